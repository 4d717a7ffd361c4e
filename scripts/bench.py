#!/usr/bin/env python3
"""Runs the benchmarks and sets each figure beside its baseline. `make bench` calls it.

    scripts/bench.py                     every scenario, the median of five runs
    scripts/bench.py create stat         only these
    scripts/bench.py --quick --repeat 1  a tenth of the load, once: to see that it works; keeps nothing
    scripts/bench.py --keep              make the new figures the baselines; say why in the commit

A baseline is one file of bench/baselines/: the JSON line of the scenario and the machine it was measured on. A scenario
without one gets its first. Machines differ and are noisy, so nothing fails here: compare ratios, which have the ceiling
of the same run below the line.
"""

import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BASELINES = ROOT / "bench" / "baselines"
# Name of the baseline, arguments of `frieze bench`.
SCENARIOS = {
    "seq-write": ["seq-write"],
    "seq-write-sync": ["seq-write", "--sync"],
    "seq-read": ["seq-read"],
    "persist": ["persist"],
    "flush": ["flush"],
    "visible": ["visible"],
    "rand-write": ["rand-write"],
    "rand-read": ["rand-read"],
    "latency": ["latency"],
    "snapshots": ["snapshots"],
    "memory": ["memory"],
    "create": ["create"],
    "create-sync": ["create", "--sync"],
    "stat": ["stat"],
    "list": ["list"],
    "append": ["append"],
    "diff": ["diff"],
    "mount": ["mount"],
    "mount-seq": ["mount-seq"],
    "mount-tree": ["mount-tree"],
    "restore": ["restore"],
    "undo": ["undo"],
    "get-storm": ["get-storm"],
    "replicated-write": ["replicated-write"],
    "replica-reads": ["replica-reads"],
    "failover": ["failover"],
    "rejoin": ["rejoin"],
    "young-cuts": ["young-cuts"],
}


def machine():
    """What the figures were measured on."""
    model = platform.processor() or platform.machine()
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**30, 1),
        "kernel": platform.release(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def commit():
    try:
        found = subprocess.run(
            ["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True, check=True
        )
        return found.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def measure(frieze, name, options):
    command = [frieze, "bench", *SCENARIOS[name], "--json", "--repeat", str(options.repeat)]
    if options.quick:
        command.append("--quick")
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        sys.exit(f"bench.py: {' '.join(command)} ended with {done.returncode}")
    return json.loads(lines[-1])


def short(value):
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def row(name, found, kept):
    columns = [name, f"{short(found['value'])} {found['unit']}", f"{found['ratio']:.2f}", "", ""]
    if kept:
        change = found["value"] / kept["value"] - 1 if kept["value"] else 0.0
        columns[3:] = [f"{short(kept['value'])} ({change:+.0%})", f"{kept['ratio']:.2f}"]
    else:
        columns[3] = "first measured now"
    print("{:<12} {:>16} {:>7}   {:<20} {:>5}".format(*columns), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", nargs="*", choices=[*SCENARIOS, []], help="what to run; nothing: everything")
    parser.add_argument("--frieze", default=None, help="the command to measure (default: the release build)")
    parser.add_argument("--repeat", type=int, default=5, help="runs of which the median counts")
    parser.add_argument("--quick", action="store_true", help="a tenth of the load")
    parser.add_argument("--keep", action="store_true", help="replace the baselines")
    options = parser.parse_args()
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    frieze = options.frieze or str(target / "release" / "frieze")

    about = {"machine": machine(), "commit": commit(), "repeat": options.repeat}
    print(f"{about['machine']['processor']}, {about['machine']['cores']} cores, load {about['machine']['load_before']}")
    print("{:<12} {:>16} {:>7}   {:<20} {:>5}".format("scenario", "figure", "ratio", "baseline", "ratio"))
    for name in options.scenario or SCENARIOS:
        found = measure(frieze, name, options)
        path = BASELINES / f"{name}.json"
        kept = json.loads(path.read_text()) if path.exists() else None
        row(name, found, kept)
        if options.quick or not (options.keep or kept is None):
            continue
        BASELINES.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**found, **about}, indent=2) + "\n")


if __name__ == "__main__":
    main()
