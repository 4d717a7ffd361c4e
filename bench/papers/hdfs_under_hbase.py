#!/usr/bin/env python3
"""Every figure of "Analysis of HDFS Under HBase" (Harter et al., FAST'14) that prints a number, beside what the fitted
load and the simulator give.

    make paper-hbase                    # release build, some ten minutes, report in out/paper-hbase
    bench/papers/hdfs_under_hbase.py --frieze target/release/frieze --out out/paper-hbase

Caches and the rates of table 1 are simulated under 1/225 of a machine for 8.3 days, times of disks under 1/5 for a
day: the first needs the whole time, the second whole disks. The numbers of the trace alone are those of
`frieze load messages --compare`.
"""

import argparse
import csv
import json
import subprocess
import sys
import time
from pathlib import Path

STUDY_SYSTEMS = ["ram=10,30,100", "flash=0,60,120,240", "disks=10,15,20"]
#: Systems of figure 15 that the study calls justified and that its text lets one derive: memory, flash, disks.
JUSTIFIED = {(10, 0, 10), (10, 60, 10), (10, 120, 10), (10, 120, 15)}


class Report:
    def __init__(self):
        self.rows = []

    def near(self, figure, what, ours, study, tolerance, unit=""):
        """A number, and the part by which it may differ."""
        holds = abs(ours / study - 1) <= tolerance
        self.rows.append((figure, what, f"{number(ours)}{unit}", f"{number(study)}{unit} +-{tolerance:.0%}", holds))

    def points(self, figure, what, ours, study, points):
        """A share, and the points by which it may differ."""
        holds = abs(ours - study) <= points / 100
        self.rows.append((figure, what, f"{ours:.1%}", f"{study:.1%} +-{points} points", holds))

    def within(self, figure, what, ours, least, most, unit=""):
        self.rows.append(
            (figure, what, f"{number(ours)}{unit}", f"{number(least)} to {number(most)}{unit}", least <= ours <= most)
        )

    def shape(self, figure, what, ours, holds):
        self.rows.append((figure, what, ours, "as said", holds))

    def table(self):
        lines = ["| figure | what | here | study | holds |", "|---|---|---|---|---|"]
        lines += [f"| {f} | {w} | {o} | {s} | {'yes' if h else '**no**'} |" for f, w, o, s, h in self.rows]
        held = sum(row[4] for row in self.rows)
        return "\n".join(lines + ["", f"{held} of {len(self.rows)} hold."])


def number(value):
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


class Runner:
    def __init__(self, frieze, out):
        self.frieze, self.out = Path(frieze).resolve(), out

    def run(self, *words):
        began = time.time()
        print("$ frieze", *words, file=sys.stderr)
        done = subprocess.run([self.frieze, *words], stdout=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(f"frieze {' '.join(words)} ended with {done.returncode}")
        print(f"  {time.time() - began:.0f} s", file=sys.stderr)
        return done.stdout

    def load(self, name, *words):
        directory = self.out / name
        if not (directory / "manifest.json").exists():
            self.run("load", "messages", "--out", str(directory), *words)
        return str(directory)

    def what_if(self, trace, *words):
        """The answer, kept in the directory: a run that was stopped goes on."""
        kept = self.out / ("-".join(["what-if", Path(trace).name, *words]).replace("/", "_") + ".json")
        if not kept.exists():
            kept.write_text(self.run("what-if", trace, "--json", *words))
        return json.loads(kept.read_text())


def rows_of(path, **wanted):
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def caches(report, figures):
    hits = {
        (row["writes"], int(row["ram GB"])): float(row["hit ratio"]) for row in rows_of(figures / "figure-10.csv")
    }
    none, allocate, hints = "no-write-allocate", "write-allocate", "hints"
    for ram, study in [(10, 0.295), (30, 0.45), (90, 0.63), (250, 0.80)]:
        report.points("10", f"hits of {ram} GB of memory", hits[none, ram], study, 4)
    worst = all(hits[allocate, ram] < hits[none, ram] for ram in (10, 30, 60, 90, 120, 160, 200, 250))
    report.shape("10", "write-allocate is worst", "below at each size up to 250 GB" if worst else "not always", worst)
    gain = hits[hints, 250] - hits[none, 250]
    report.shape("10", "hints are slightly better for large caches", f"{gain:+.1%} at 250 GB", 0 < gain < 0.03)

    flash = {
        (row["on flash hit"], int(row["ram GB"]), int(row["flash GB"])): row
        for row in rows_of(figures / "figure-11.csv")
    }
    for how in ("promote", "keep"):
        ratio = float(flash[how, 30, 60]["hit ratio"])
        report.points("11", f"30 GB and 60 GB of flash, {how}", ratio, 0.63, 4)
    more = float(flash["promote", 30, 60]["ram hit ratio"]) > float(flash["keep", 30, 60]["ram hit ratio"])
    report.shape("11", "promotion has more hits in memory", "yes" if more else "no", more)

    life = {
        (row["on flash hit"], int(row["ram GB"]), int(row["flash GB"])): float(row["flash years"])
        for row in rows_of(figures / "figure-12.csv")
    }
    report.near("12", "life of 10 and 60 GB, promote", life["promote", 10, 60], 2.5, 0.15, " years")
    report.near("12", "life of 10 and 60 GB, keep", life["keep", 10, 60], 5.2, 0.15, " years")
    linear = life["promote", 10, 240] / life["promote", 10, 60]
    report.within("12", "promote: four times the flash lives longer", linear, 3.99, 4.01, "x")
    least = min(life[how, 10, size] for how in ("promote", "keep") for size in (120, 240))
    report.shape("12", "120 GB and more live over 5 years", f"{least:.1f} years at least", least > 5)

    crash = {}
    for row in rows_of(figures / "figure-13.csv"):
        if row["extra read GB"]:
            crash.setdefault(int(row["flash %"]), []).append((float(row["extra read GB"]), float(row["recovered h"])))
    mean = {part: sum(extra for extra, _ in runs) / len(runs) for part, runs in crash.items()}
    report.near("13", "read again after a crash, memory only", mean[0], 26, 0.3, " GB")
    report.near("13", "read again, 75 % flash", mean[75], 10, 0.3, " GB")
    report.within("13", "read again, all flash", mean[100], 0, 0, " GB")

    network = {
        (row["compaction"], row["writes"], int(row["cache GB"])): row for row in rows_of(figures / "figure-18.csv")
    }
    at = lambda where, size, column: float(network[where, none, size][column])
    report.near("18", "network reads", at("central", 100, "net TB"), 3.5, 0.15, " TB")
    report.points("18", "network reads less", 1 - at("local", 100, "net TB") / at("central", 100, "net TB"), 0.62, 4)
    disk = at("local", 100, "disk read TB") - at("central", 100, "disk read TB")
    less = at("central", 100, "net TB") - at("local", 100, "net TB")
    report.near("18", "disk reads more for each byte of network less", disk / less, 2.6 / 2.2, 0.15)


def disks(report, runner, trace, whole):
    base = runner.what_if(trace)["systems"][0]
    table = runner.what_if(whole)["systems"][0]["table1"]
    for what, study in [
        ("FS reads MB/min", 576), ("FS writes MB/min", 447), ("RAM reads MB/min", 287), ("RAM writes MB/min", 345),
        ("Disk reads MB/min", 345), ("Disk writes MB/min", 616), ("Net reads MB/min", 305), ("Disk reqs K/min", 275.1),
        ("(user-read) K/min", 65.8), ("(log) K/min", 104.1), ("(flush) K/min", 4.5), ("(compact) K/min", 100.6),
    ]:
        report.near("table 1", what, table[what], study, 0.15)
    table = base["table1"]
    for what, study in [
        ("Disk queue ms", 6.17), ("Disk queue ms (user-read)", 12.3), ("Disk queue ms (log)", 2.47),
        ("Disk queue ms (flush)", 5.33), ("Disk queue ms (compact)", 6.0), ("Disk exec ms", 0.39),
        ("Disk exec ms (user-read)", 0.84), ("Disk exec ms (log)", 0.26), ("Disk exec ms (flush)", 0.15),
        ("Disk exec ms (compact)", 0.24),
    ]:
        report.near("table 1", what, table[what], study, 0.3)

    sensitivity(report, runner, trace, whole, table)

    latency = lambda *words: runner.what_if(trace, *words)["systems"]
    by_seek = [system["foreground_ms"] for system in latency("--sweep", "disk.seek=2,10")[-2:]]
    by_band = [system["foreground_ms"] for system in latency("--sweep", "disk.bandwidth=50,400")[-2:]]
    spread = abs(by_seek[1] - by_seek[0]) / max(abs(by_band[1] - by_band[0]), 1e-9)
    words = f"2 to 10 ms changes {spread:.1f}x what 50 to 400 MB/s does"
    report.shape("9", "seeks matter more than MB/s", words, spread > 5)

    systems = runner.what_if(trace, "--fast14")["systems"]
    at = {(int(s["ram_gb"]), int(s["flash_gb"]), s["disks"]): s for s in systems}
    few, many = (at[30, 0, disks]["foreground_ms"] for disks in (10, 20))
    middle = at[30, 0, 15]["foreground_ms"]
    report.shape("9", "returns of disks diminish above 15", f"{few:.1f}, {middle:.1f}, {many:.1f} ms at 10, 15, 20",
                 few - middle > middle - many > 0)
    gain = at[10, 0, 10]["foreground_ms"] / at[10, 60, 10]["foreground_ms"]
    report.near("15", "A1 (60 GB of flash) over A0, reads faster", gain, 3.5, 0.25, "x")
    report.near("15", "A1 over A0, money", at[10, 60, 10]["capex"] / at[10, 0, 10]["capex"] - 1, 48 / 1050, 0.01)
    justified = {key for key, system in at.items() if system["justified"]}
    report.shape("15", "A0, A1, A2 at 10 disks and A2 at 15 are justified",
                 f"{len(JUSTIFIED & justified)} of 4", JUSTIFIED <= justified)
    large = [key for key in justified if key[1] == 240]
    report.shape("15", "seven of the nine systems with 240 GB of flash are justified", f"{len(large)}", len(large) >= 6)
    report.shape("15", "systems that are justified, of 36", f"{len(justified)} (study 11)", 9 <= len(justified) <= 13)

    apart = base
    combined = runner.what_if(trace, "--combined-log")["systems"][0]
    logs = lambda system: system["table1"]["Disk queue ms (log)"] + system["table1"]["Disk exec ms (log)"]
    report.within("20", "combined logging: logs wait less", logs(apart) / logs(combined), 4, 9, "x")
    reads = combined["foreground_ms"] / apart["foreground_ms"] - 1
    report.within("20", "combined logging: reads at 15 disks", reads * 100, -10, 3, " %")


def sensitivity(report, runner, trace, whole, table):
    """Table 1's columns beside the baseline: by how much its statistics change, at most."""
    def change(base, other):
        errors = {what: abs(other[what] / value - 1) for what, value in base.items() if value}
        return max(errors.items(), key=lambda error: error[1])

    worst = []
    for jitter, study in [(1, "1.3"), (5, "3.3"), (10, "6.6")]:
        what, error = change(table, runner.what_if(trace, "--jitter", str(jitter))["systems"][0]["table1"])
        worst.append(error)
        report.rows.append(("table 1", f"jitter of {jitter} ms changes a statistic by at most", f"{error:.1%} ({what})",
                            f"{study} %; 10 % at most", error <= 0.1))
    report.shape("table 1", "errors grow with jitter", ", ".join(f"{error:.1%}" for error in worst),
                 worst == sorted(worst))
    base = runner.what_if(whole)["systems"][0]["table1"]
    for days in (-2, -4):
        what, error = change(base, runner.what_if(whole, "--finish", str(days))["systems"][0]["table1"])
        report.rows.append(("table 1", f"the trace ends {-days} days early: a statistic changes by at most",
                            f"{error:.1%} ({what})", "18.4 % at most", error <= 0.184))


def trace_alone(report, runner):
    lines = runner.run("load", "messages", "--scale", "1/225", "--compare", "--json").splitlines()
    rows = [json.loads(line) for line in lines if line.strip()]
    for row in rows:
        if "name" not in row:
            continue
        about = row["about"]
        named = about.endswith(")") and about.rsplit("(", 1)[1][0] in "ft4"
        figure = about.rsplit("(", 1)[1].rstrip(")") if named else "text"
        what = about.rsplit(" (", 1)[0] if named else about
        model = "none" if row["model"] is None else number(row["model"])
        study = f"{number(row['paper'])} {row['tolerance']}"
        report.rows.append((figure.replace("figure ", ""), what, model, study, row["met"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frieze", default="target/release/frieze")
    parser.add_argument("--out", type=Path, default=Path("out/paper-hbase"))
    parser.add_argument("--document", type=Path, help="page whose table is replaced")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    runner, report = Runner(args.frieze, args.out), Report()
    trace_alone(report, runner)
    whole = runner.load("caches", "--scale", "1/225")
    figures = args.out / "figures"
    if not (figures / "figure-20.csv").exists():
        runner.run("what-if", whole, "--fast14", "--figures", "--out", str(figures))
    caches(report, figures)
    disks(report, runner, runner.load("disks", "--scale", "1/5", "--days", "1"), whole)
    table = report.table()
    (args.out / "table.md").write_text(table + "\n")
    if args.document:
        before, _, rest = args.document.read_text().partition("<!-- table -->\n")
        _, _, after = rest.partition("<!-- end of table -->")
        args.document.write_text(f"{before}<!-- table -->\n{table}\n\n<!-- end of table -->{after}")
    print(table)


if __name__ == "__main__":
    main()
