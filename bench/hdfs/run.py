#!/usr/bin/env python3
"""The same stock Hadoop client on real HDFS and on frieze, in one run, in turn.

    bench/hdfs/run.py                      every row; about 10 minutes
    bench/hdfs/run.py write-1m stat        only these
    bench/hdfs/run.py --start 1000000      how long a server that has so many files takes to its first answer
    bench/hdfs/run.py --quick              a tenth of the load: to see that it works

A NameNode and a DataNode beside `frieze serve --hdfs`, and a client for each (bench/hdfs/Load.java), all on loopback. A row is played on
both sides in turn, HDFS first, until two rounds of each agree within 5 %, twelve times at most; what is told is the mean of the last
two, or, where those of one side never agreed, the medians of the later half of all. Processor seconds are those of the client and of the
servers apart; `cap` is what this machine's processors would allow if the client alone had them.

frieze gets 4 GiB of memory, the page cache of its files included; HDFS two heaps of 512 MiB, and what is free for its files. Before `hflush` both
write 5 GiB: from then on new pages of frieze's log are old ones, as in any server that has run for a while. (HDFS removes what it wrote, and
has its pages back at once. On a host that takes unused memory back from its guests a page that was never used costs a third of a packet.)

Needs a JDK and Maven, and 40 GiB of disk where temporary files are: frieze keeps what was written over. The jars of HDFS come from Maven
Central at the first run and stay in the user's cache.
"""

import argparse
import contextlib
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import hadoop  # noqa: E402

ROUNDS_MAX = 12
MEMORY_MIB = 4096
# Writes of 1 GiB before small ones.
TURNS = 5
AGREE = 0.05
GIB = 1 << 30
# Row: load and its numbers, the unit, the amount that processor seconds refer to, at least so many times HDFS, at most so much of its
# servers' processor.
ROWS = {
    "write-64k": ("write {mib} 65536", "GiB", 1.2, 0.5),
    "write-1m": ("write {mib} 1048576", "GiB", 1.2, 0.5),
    "read": ("read {mib}", "GiB", 0.95, 1.0),
    "hflush": ("hflush {flushed}", "MiB", 1.3, 0.35),
    "small": ("small {few} 32", "files", 5.0, None),
    "small-tuned": ("tuned {many} 32", "files", 2.0, None),
    "empty": ("empty {many} 32", "files", 1.2, 0.35),
    "stat": ("stat {stats} 32", "calls", 1.2, 0.35),
}
WORDS = {
    "write-64k": "sequential write, 64 KiB at a time",
    "write-1m": "sequential write, 1 MiB at a time",
    "read": "sequential read, not the first",
    "hflush": "write with hflush per 4 KiB",
    "small": "create, 1 KiB, close; 32 threads",
    "small-tuned": "the same, closing asked again after 5 ms",
    "empty": "create, close; 32 threads",
    "stat": "getFileStatus; 32 threads",
}
# Programs beside `hflush`, and what they do.
PRETENDING = {
    "bare": "receives, acknowledges and forgets",
    "stores": "receives, writes to a file and acknowledges",
    "checks": "receives into a mapped file, checks, acknowledges and writes 16 at a time",
    "keeps": "does so, and brings it to the medium every 50 ms and out of memory",
}
# Amount of a unit in the bytes or calls that a load reports, and the amount that processor seconds refer to.
UNITS = {"GiB": (GIB, "GiB", 1), "MiB": (1 << 20, "GiB", 1024), "files": (1, "1,000", 1000), "calls": (1, "1,000", 1000)}


class Side:
    """A server, or several, and a client of it that takes commands."""

    def __init__(self, name, classpath, conf, servers):
        self.name, self.servers = name, servers
        command = ["java", "-Xmx768m", "-cp", f"{conf}:{classpath}", "Load"]
        self.log = conf.parent / f"client-{name}.log"
        with open(self.log, "wb") as log:
            self.client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        self.heard("ready")

    def heard(self, word=None):
        line = self.client.stdout.readline().strip()
        if not line or (word is not None and line != word):
            sys.exit(f"bench/hdfs: the client of {self.name} failed:\n{self.log.read_text()[-3000:]}")
        return line

    def play(self, load):
        """Amount, seconds, processor seconds of the client, of the servers."""
        before = sum(map(hadoop.cpu_s, self.servers()))
        self.client.stdin.write(load + "\n")
        self.client.stdin.flush()
        amount, seconds, client_s = map(float, self.heard().split())
        return amount, seconds, client_s, sum(map(hadoop.cpu_s, self.servers())) - before

    def end(self):
        self.client.stdin.close()
        try:
            self.client.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.client.kill()
            self.client.wait()


class Played:
    """Rounds of one row on one side."""

    def __init__(self, unit):
        self.rounds, self.unit = [], unit

    def add(self, round):
        self.rounds.append(round)

    def rates(self):
        return [amount / UNITS[self.unit][0] / seconds for amount, seconds, _, _ in self.rounds]

    def is_settled(self):
        rates = self.rates()
        return len(rates) > 1 and abs(rates[-1] - rates[-2]) <= AGREE * max(rates[-2:])

    def told(self, settled):
        """Mean of the last two rounds; if not all sides have settled, the medians of the later half."""
        if settled:
            amount, seconds, client_s, server_s = (statistics.mean(part) for part in zip(*self.rounds[-2:]))
        else:
            amount, seconds, client_s, server_s = (statistics.median(part) for part in zip(*self.rounds[len(self.rounds) // 2 :]))
        one, _, per = UNITS[self.unit]
        share = per / (amount / one)
        return {
            "rate": amount / one / seconds,
            "client_s": client_s * share,
            "server_s": server_s * share,
            "cap": os.cpu_count() / client_s * amount / one if client_s > 0 else float("inf"),
            "rounds": len(self.rounds),
            "settled": self.is_settled(),
        }


def row(name, sides, scale, beside=()):
    """A row on both sides. `beside`: programs that can do no more of it than pretend."""
    load, unit, wanted, server_share = ROWS[name]
    load = load.format(**scale)
    played = {side.name: Played(unit) for side in [*sides, *beside]}
    for _ in range({"read": 1, "hflush": TURNS}.get(name, 0)):
        for side in sides:
            side.play("write {mib} 1048576".format(**scale))
    for _ in range(ROUNDS_MAX):
        for side in sides:
            played[side.name].add(side.play(load))
        for side in beside:
            played[side.name].add(side.play(load.replace("hflush", "told")))
        if all(side.is_settled() for side in played.values()):
            break
    settled = all(side.is_settled() for side in played.values())
    told = {side: rounds.told(settled) for side, rounds in played.items()}
    theirs, ours = told["hdfs"], told["frieze"]
    pretends = {f"{side.name}_over_hdfs": told[side.name]["rate"] / theirs["rate"] for side in beside}
    pretends |= {f"{side.name}_server_over_hdfs": told[side.name]["server_s"] / theirs["server_s"] for side in beside}
    return {
        "row": name,
        "unit": unit,
        "cpu_per": UNITS[unit][1],
        **told,
        **pretends,
        "over_hdfs": ours["rate"] / theirs["rate"],
        "over_hdfs_wanted": wanted,
        "server_over_hdfs": ours["server_s"] / theirs["server_s"] if theirs["server_s"] > 0 else None,
        "server_over_hdfs_wanted": server_share,
    }


def print_row(found):
    def said(value, wanted, is_least):
        if value is None:
            return ""
        met = "" if wanted is None else f" (wanted {'>=' if is_least else '<='} {wanted:g})"
        return f"{value:.2f}{met}"

    print(f"\n{WORDS[found['row']]}", flush=True)
    for side in ["hdfs", "frieze", *(side for side in PRETENDING if side in found)]:
        told = found[side]
        settled = f"{told['rounds']} rounds" + ("" if told["settled"] else ", not settled")
        print(
            f"  {side:<7}{told['rate']:>12,.3f} {found['unit']}/s   CPU per {found['cpu_per']}: client {told['client_s']:.3f} s, "
            f"servers {told['server_s']:.3f} s; cap of the client {told['cap']:,.2f}/s; {settled}"
        )
    print(f"  over HDFS {said(found['over_hdfs'], found['over_hdfs_wanted'], True)}; "
          f"servers' CPU over HDFS {said(found['server_over_hdfs'], found['server_over_hdfs_wanted'], False)}", flush=True)
    for side, words in PRETENDING.items():
        if side in found:
            print(f"  a program that {words}: over HDFS {found[side + '_over_hdfs']:.2f}; its CPU over HDFS {found[side + '_server_over_hdfs']:.2f}",
                  flush=True)


@contextlib.contextmanager
def bare(name, ready, data_port, work, classpath):
    """A client of a program that receives each packet, writes it to a file or not, and acknowledges it, before the server that is `ready`."""
    subprocess.run(["rustc", "--edition", "2024", "-O", "-o", work / "bare", ROOT / "bench" / "hdfs" / "bare.rs"], check=True)
    names = ready["hdfs"].removeprefix("hdfs://")
    stores = {"bare": [], "stores": [work / "stored"], "checks": [work / "checked", "checks"], "keeps": [work / "kept", "checks", "keeps"]}[name]
    program = subprocess.Popen([work / "bare", names, str(data_port), *stores], stdout=subprocess.PIPE, text=True)
    try:
        port = program.stdout.readline().split()[0]
        hadoop.site(work / f"conf-{name}", fs_defaultFS=f"hdfs://127.0.0.1:{port}", dfs_replication=1)
        side = Side(name, classpath, work / f"conf-{name}", lambda: [program.pid])
        try:
            yield side
        finally:
            side.end()
    finally:
        program.kill()
        program.wait()


def start(frieze, options, work, classpath, hdfs, sides):
    """Fills both with so many files, ends both, and starts them again, three times each."""
    # A wait for a server polls every 10 ms.
    asking = {"ipc_client_connect_retry_interval": 10, "ipc_client_connect_max_retries": 100_000}
    fill = f"fill {options.start} 32 1000"
    port = hadoop.free_port()
    hadoop.site(work / "conf-ours", fs_defaultFS=f"hdfs://127.0.0.1:{port}", dfs_replication=1, **asking)
    hadoop.site(work / "conf-theirs", fs_defaultFS=hdfs.address, dfs_replication=1, **asking)
    served = lambda: hadoop.served(frieze, work / "ours", port=port)  # noqa: E731
    found = {"files": options.start}
    with served():
        sides.append(Side("hdfs", classpath, work / "conf-theirs", lambda: []))
        sides.append(Side("frieze", classpath, work / "conf-ours", lambda: []))
        theirs, ours = sides
        for side in sides:
            amount, seconds, _, _ = side.play(fill)
            found[f"{side.name}_made_per_s"] = amount / seconds
    times = {"hdfs": [], "frieze": []}
    for _ in range(3):
        hdfs.end_names()
        began = time.monotonic()
        hdfs.start_names()
        theirs.play("look 0")
        times["hdfs"].append(time.monotonic() - began)
        began = time.monotonic()
        with served():
            ours.play("look 0")
            times["frieze"].append(time.monotonic() - began)
    for name, seconds in times.items():
        found[f"{name}_s"] = sorted(seconds)[1]
    found["over_hdfs"] = found["frieze_s"] / found["hdfs_s"]
    if options.json:
        print(json.dumps(found))
        return
    print(f"start with {options.start:,} files until a client is answered (median of three; wanted: at most 0.2 of HDFS)")
    for side in ["hdfs", "frieze"]:
        print(f"  {side:<7}{found[side + '_s']:>8.2f} s   (made at {found[side + '_made_per_s']:,.0f}/s)")
    print(f"  over HDFS {found['over_hdfs']:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--frieze", default=None, help="the command to compare (default: the release build, brought up to date)")
    parser.add_argument("--start", type=int, metavar="FILES", help="restart both with so many files, and nothing else")
    parser.add_argument("--quick", action="store_true", help="a tenth of the load")
    parser.add_argument("--json", action="store_true", help="a JSON document a row")
    options = parser.parse_args()
    unknown = sorted(set(options.rows) - set(ROWS))
    if unknown:
        parser.error(f"no row of the name {', '.join(unknown)}; there are {', '.join(ROWS)}")
    # Ended in order it takes along its servers, and up to 40 GiB.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    hadoop.needs("bench/hdfs", "java", "javac", "mvn")
    frieze = hadoop.command(options.frieze)
    less = 10 if options.quick else 1
    scale = {"mib": 1024 // less, "flushed": 64 // less, "few": 1000 // less, "many": 8000 // less, "stats": 100_000 // less}
    jars = hadoop.jars()
    with tempfile.TemporaryDirectory(prefix="frieze-bench-hdfs-") as work:
        work = pathlib.Path(work)
        subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", work / "classes", ROOT / "bench" / "hdfs" / "Load.java"], check=True)
        classpath = f"{work / 'classes'}:{jars}"
        (work / "theirs").mkdir()
        (work / "ours").mkdir()
        heap = "2g" if options.start else "512m"
        hdfs = hadoop.Hdfs(work / "theirs", classpath, datanodes=1, heap=heap)
        sides = []
        try:
            if options.start:
                start(frieze, options, work, classpath, hdfs, sides)
            else:
                data_port = hadoop.free_port()
                with hadoop.served(frieze, work / "ours", "--memory", str(MEMORY_MIB), data_port=data_port) as ready:
                    hadoop.site(work / "conf", fs_defaultFS=ready["hdfs"], dfs_replication=1)
                    sides.append(Side("hdfs", classpath, work / "theirs" / "conf-name", lambda: [one.pid for one in hdfs.processes]))
                    sides.append(Side("frieze", classpath, work / "conf", lambda: [ready["pid"]]))
                    for name in options.rows or ROWS:
                        with contextlib.ExitStack() as stack:
                            names = PRETENDING if name == "hflush" else {}
                            beside = [stack.enter_context(bare(side, ready, data_port, work, classpath)) for side in names]
                            found = row(name, sides, scale, beside)
                        print(json.dumps(found), flush=True) if options.json else print_row(found)
        finally:
            for side in sides:
                side.end()
            hdfs.end()


if __name__ == "__main__":
    main()
