#!/usr/bin/env python3
"""Fits the parameters of `frieze load messages` to the numbers that the study prints.

    cargo build --release -p frieze-load --bin frieze-load-fit
    python3 -m venv venv && venv/bin/pip install cma==4.4.0
    venv/bin/python crates/load/fit/fit.py --minutes 30 --out best.json
    venv/bin/python crates/load/fit/fit.py --publish best.json
    cargo build --release -p frieze-load --bin frieze-load-fit

`--publish` writes the point and the table of what it gives to crates/load/messages.toml, and the table to docs/load.md.

CMA-ES over the logarithms of 17 parameters. The loss of a point is the sum over all numbers of
weight * min(5, distance / tolerance)^2, weight 1 for printed and 0.5 for derived ones, averaged over seeds. Figures 9
to 15, 18 and 20 of the study are no part of it, but the log's burst and the points of LRU caches.
"""

import argparse
import json
import math
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BINARY = ROOT / "target/release/frieze-load-fit"
PARAMETERS = ROOT / "crates/load/messages.toml"
DOCUMENT = ROOT / "docs/load.md"
#: Name, where the search begins, lowest and highest value.
FITTED = [
    ("regions", 40, 8, 300),
    ("users", 1e6, 1e5, 6e6),
    ("activity_exponent", 0.9, 0.4, 2.5),
    ("activity_cap", 2e3, 50, 3e4),
    ("visits_per_second", 60, 10, 300),
    ("visits_per_session", 2.5, 1.05, 8),
    ("visit_gap_seconds", 1000, 200, 3000),
    ("touch_shape", 1.0, 0.3, 2.5),
    ("write_shape", 1.0, 0.05, 2.5),
    ("deep_share", 0.15, 0.005, 0.8),
    ("scan_share", 0.08, 0.005, 0.3),
    ("base_tb", 4.0, 0.7, 9.0),
    ("flush_mb", 90, 20, 300),
    ("compaction_files_min", 4, 2, 8),
    ("compaction_ratio", 1.0, 0.3, 3.0),
    ("compaction_floor_mb", 30, 1, 300),
    ("major_days", 30, 5, 120),
]
#: Set by hand, in every point: `family.FIELD.FAMILY` or the name of a parameter.
GIVEN = {"family.base.PrefetchMeta": 0.013, "family.write.Keywords": 0.05, "diurnal_amplitude": 0.35}
#: Log bytes a second of one machine, as table 0 of ADR 0071 derives them: they fix the bytes of a put.
LOG_BYTES_PER_SECOND = 819e3


class Machine:
    """One process that answers points, a line each."""

    def __init__(self, binary):
        self.process = subprocess.Popen([binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, point, seed, scale, whole_log=False):
        request = {"scale": scale, "seed": seed, "set": point, "whole_log": whole_log}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def point_of(vector):
    """Parameters of a vector of numbers between 0 and 1."""
    point = {}
    for (name, _, low, high), at in zip(FITTED, vector):
        point[name] = math.exp(math.log(low) + at * math.log(high / low))
    point["compaction_files_min"] = float(round(point["compaction_files_min"]))
    point["put_bytes"] = LOG_BYTES_PER_SECOND / point["visits_per_second"]
    point.update(GIVEN)
    return point


def vector_of(point):
    """The other way round."""
    return [math.log(point[name] / low) / math.log(high / low) for name, _, low, high in FITTED]


def with_numbers(text, point):
    """`messages.toml` up to its table, with the numbers of a point."""
    lines, family = [], None
    for line in text.split("\n# What these")[0].rstrip().splitlines():
        name, _, value = (part.strip() for part in line.partition("="))
        if name == "name":
            family = value.strip('"')
        key = f"family.{name}.{family}" if family else name
        lines.append(f"{name} = {point[key]:.6g}" if key in point else line)
    # TOML wants a point in what is a fraction.
    return "\n".join(re.sub(r"= (\d+)$", r"= \1.0", line) for line in lines)


def short(number):
    """Four digits."""
    return "none" if number is None else f"{number:,.4g}" if abs(number) < 10_000 else f"{number:,.0f}"


def publish(point, machine, scale):
    """Writes a point and its table where the crate and the documents have them."""
    text = with_numbers(PARAMETERS.read_text(), point)
    given = {k: float(f"{v:.6g}") for k, v in point.items()}
    answer = machine.ask(given, 1, scale)
    rows = answer["comparisons"]
    met = sum(row["met"] for row in rows)
    text += f"\n\n# What these give: {met} of {len(rows)} numbers within their tolerance.\n"
    text += "# frieze load messages --scale 1/225 --days 8.3 --seed 1 --compare\n"
    for row in rows:
        text += f'\n[[number]]\nname = "{row["name"]}"\nmodel = {row["model"]:.6e}\npaper = {row["paper"]:.6e}\n'
        text += f'tolerance = "{row["tolerance"]}"\nsource = "{row["source"]}"\nmet = {str(row["met"]).lower()}\n'
    PARAMETERS.write_text(text)
    table = "| number | model | study | tolerance | from | met |\n|---|---|---|---|---|---|\n"
    for row in rows:
        table += f"| {row['about']} | {short(row['model'])} | {short(row['paper'])} | {row['tolerance']} "
        table += f"| {row['source']} | {'yes' if row['met'] else '**no**'} |\n"
    table += f"\n{met} of {len(rows)} numbers lie within their tolerance.\n"
    before, _, rest = DOCUMENT.read_text().partition("<!-- table -->\n")
    _, _, after = rest.partition("<!-- end of table -->")
    DOCUMENT.write_text(f"{before}<!-- table -->\n{table}<!-- end of table -->{after}")
    print(f"{met} of {len(rows)} met: {PARAMETERS}, {DOCUMENT}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--scale", type=float, default=1 / 225)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--sigma", type=float, default=0.15)
    parser.add_argument("--begin", type=Path, help="JSON of a point to begin at")
    parser.add_argument("--out", type=Path, help="JSON of the best point, written as it gets better")
    parser.add_argument("--publish", type=Path, help="JSON of a point to write down")
    parser.add_argument("--binary", type=Path, default=BINARY)
    args = parser.parse_args()
    if args.publish:
        publish(json.loads(args.publish.read_text())["point"], Machine(args.binary), args.scale)
        return
    if not args.out:
        parser.error("--out or --publish is needed")
    import cma  # Only the search needs it.

    machines = [Machine(args.binary) for _ in range(args.jobs)]
    begin = {name: start for name, start, _, _ in FITTED}
    if args.begin:
        begin.update({k: v for k, v in json.loads(args.begin.read_text())["point"].items() if k in begin})
    options = {"bounds": [0, 1], "popsize": 14, "verbose": -9, "seed": 7}
    search = cma.CMAEvolutionStrategy(vector_of(begin), args.sigma, options)
    end = time.monotonic() + 60 * args.minutes
    best = math.inf
    runs = 0
    with ThreadPoolExecutor(args.jobs) as pool:
        while time.monotonic() < end and not search.stop():
            vectors = search.ask()
            points = [point_of(vector) for vector in vectors]

            def losses(job):
                machine, mine = machines[job], []
                for i in range(job, len(points), args.jobs):
                    answers = [machine.ask(points[i], seed + 1, args.scale) for seed in range(args.seeds)]
                    if any("error" in answer for answer in answers):
                        print(answers, file=sys.stderr)
                        mine.append((i, 1e6, 0))
                        continue
                    loss = sum(answer["loss"] for answer in answers) / len(answers)
                    mine.append((i, loss, min(answer["met"] for answer in answers)))
                return mine

            losses_of = sorted(sum(pool.map(losses, range(args.jobs)), []))
            runs += len(losses_of) * args.seeds
            search.tell(vectors, [loss for _, loss, _ in losses_of])
            for i, loss, met in losses_of:
                if loss < best:
                    best = loss
                    found = {"loss": loss, "met": met, "runs": runs, "point": points[i]}
                    args.out.write_text(json.dumps(found, indent=1))
            print(f"{runs} runs, best loss {best:.1f}, sigma {search.sigma:.3f}", flush=True)
    for machine in machines:
        machine.process.stdin.close()


if __name__ == "__main__":
    main()
