#!/usr/bin/env python3
"""Runs the benchmarks and sets each figure beside its baseline. `make bench` calls it.

    scripts/bench.py                     every scenario, the median of five runs
    scripts/bench.py create stat         only these
    scripts/bench.py --quick --repeat 1  a tenth of the load, once, to check that it works; keeps nothing
    scripts/bench.py --keep              make the new figures the baselines; say why in the commit
    scripts/bench.py --page              and write them into docs/figures.md: what `make figures` does

A baseline is one file of bench/baselines/: the JSON line of the scenario and the machine it was measured on. A scenario
without one gets its first. Machines differ and are noisy, so nothing fails here: compare ratios, which have the ceiling
of the same run below the line.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BASELINES = ROOT / "bench" / "baselines"
PAGE = ROOT / "docs" / "figures.md"
# The part of the page between these lines is generated.
BEGIN, END = "<!-- from make figures -->\n", "<!-- to here -->\n"
# Name of the baseline: arguments of `frieze bench`, and its description in the page.
SCENARIOS = {
    "seq-write": (["seq-write"], "sequential write in 1 MiB requests, one client, `async`"),
    "seq-write-sync": (["seq-write", "--sync"], "the same, each MiB on stable storage when it is answered, 8 in flight"),
    "seq-read": (["seq-read"], "sequential read in 1 MiB requests, one client, hot"),
    "persist": (["persist"], "writes at 0.7 of the top rate with the data on disk"),
    "flush": (["flush"], "writes of 128 KiB: how large the flushes are"),
    "visible": (["visible"], "4 KiB after 4 KiB by one writer, each visible to readers when it is acknowledged"),
    "rand-write": (["rand-write"], "4 KiB writes at random places, 32 in flight"),
    "rand-read": (["rand-read"], "4 KiB reads at random places"),
    "latency": (["latency"], "the slower of a 4 KiB write and a 4 KiB read, one at a time"),
    "snapshots": (["snapshots"], "old states of a 64 MiB chunk after random writes of 32 KiB"),
    "memory": (["memory"], "memory and log for random writes, over the bytes written"),
    "create": (["create"], "empty files made and closed by 32 clients, `async`"),
    "create-sync": (["create", "--sync"], "the same, each durable before it is acknowledged"),
    "stat": (["stat"], "`stat` by 32 clients"),
    "list": (["list"], "listings of a directory"),
    "append": (["append"], "many clients append to one file"),
    "diff": (["diff"], "`diff` of 1,000 changes in a tree of 100,000 files"),
    "mount": (["mount"], "mount: create, write 1 KiB, close by one program"),
    "mount-seq": (["mount-seq"], "mount: a large file written, read twice, and twice as it was"),
    "mount-tree": (["mount-tree"], "mount: a tree of 5,000 files unpacked by tar, looked through by git, removed"),
    "restore": (["restore"], "`restore` of 1,000 changes in a tree of 100,000 files"),
    "undo": (["undo"], "`undo` of 1,000 changes of a session in such a tree"),
    "get-storm": (["get-storm"], "1,000 gets of 10 MiB at once"),
    "replicated-write": (["replicated-write"], "writes of 1 MiB to three replicas: processor beside that for one"),
    "replica-reads": (["replica-reads"], "reads from three servers limited to 100 MiB/s each, beside one"),
    "failover": (["failover"], "writers wait while servers are killed one after the other"),
    "rejoin": (["rejoin"], "a server comes back after a while: bytes that it is sent"),
    "watch": (["watch"], "events of a watch, and how far behind its marks are"),
    "young-cuts": (["young-cuts"], "reads of the latest instants beside a writer"),
}


def machine():
    """The machine that the figures were measured on."""
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
    command = [frieze, "bench", *SCENARIOS[name][0], "--json", "--repeat", str(options.repeat)]
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


def page(rows, about):
    """Writes the figures into the page."""
    machine = about["machine"]
    runs = "each measured once" if about["repeat"] == 1 else f"medians of {about['repeat']}"
    lines = [
        f"{datetime.date.today()}, commit {about['commit']}, {runs}; {machine['processor']} with {machine['cores']} cores, "
        f"{machine['memory_gib']} GiB, Linux {machine['kernel'].partition('-')[0]}, load {machine['load_before']} before.",
        "",
        "| what | figure | ceiling of the machine, in the same run | ratio | processor, server | command |",
        "|---|---|---|---|---|---|",
    ]
    for name, found in rows.items():
        arguments, what = SCENARIOS[name]
        processor = f"{short(found['cpu_server_s'])} s per {found['cpu_per']}" if found.get("cpu_server_s") else ""
        ceiling = f"{short(found['ceiling'])} ({found['ceiling_name']})" if found.get("ceiling") else ""
        command = f"`frieze bench {' '.join(arguments)}`"
        lines.append(f"| {what} | {short(found['value'])} {found['unit']} | {ceiling} | {short(found['ratio'])} | {processor} | {command} |")
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + "\n" + "\n".join(lines) + "\n\n" + END + rest.partition(END)[2])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", nargs="*", choices=[*SCENARIOS, []], help="what to run; nothing: everything")
    parser.add_argument("--frieze", default=None, help="the command to measure (default: the release build)")
    parser.add_argument("--repeat", type=int, default=5, help="runs of which the median counts")
    parser.add_argument("--quick", action="store_true", help="a tenth of the load")
    parser.add_argument("--keep", action="store_true", help="replace the baselines")
    parser.add_argument("--page", action="store_true", help="write the figures into docs/figures.md")
    options = parser.parse_args()
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    frieze = options.frieze or str(target / "release" / "frieze")

    about = {"machine": machine(), "commit": commit(), "repeat": options.repeat}
    print(f"{about['machine']['processor']}, {about['machine']['cores']} cores, load {about['machine']['load_before']}")
    print("{:<12} {:>16} {:>7}   {:<20} {:>5}".format("scenario", "figure", "ratio", "baseline", "ratio"))
    rows = {}
    for name in options.scenario or SCENARIOS:
        found = rows[name] = measure(frieze, name, options)
        path = BASELINES / f"{name}.json"
        kept = json.loads(path.read_text()) if path.exists() else None
        row(name, found, kept)
        if options.page:
            page(rows, about)
        if options.quick or not (options.keep or kept is None):
            continue
        BASELINES.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**found, **about}, indent=2) + "\n")


if __name__ == "__main__":
    main()
