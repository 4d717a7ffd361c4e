#!/usr/bin/env python3
"""The Facebook Messages study on real HBase: its load on frieze, traced, analysed, beside the study's numbers.

    examples/hbase/messages_study.py               ten minutes of load, and two of preparation
    examples/hbase/messages_study.py --minutes 2   less
    examples/hbase/messages_study.py --flush-all   all families of a region are flushed together, as in the study
    examples/hbase/messages_study.py --in-memory   HBase merges within its memstores before it flushes (BASIC)
    examples/hbase/messages_study.py --out DIR     trace and report lie there (default: out/hbase)

HBase 2.6.4 with all its files on frieze, as run.py starts it, and FamiliesLoad.java: eight column families, 60 % get,
34 % put, 6 % delete, sixteen records a put. Memstores and the block cache are small, so that minutes have the flushes
and compactions of hours. The ring of the server is saved as a trace, and `frieze analyze` makes a report of it.
purposes.py compares the purposes that the analysis finds by rules (get, log, flush, compaction) with HBase's own log:
the script ends with 1 if less than 98 % of the bytes are right. Needs a JDK (17) and Maven.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import run
from run import hadoop

USERS, THREADS, PUTS_PER_USER = 60_000, 8, 3
RING = "1G"
MB = 1 << 20
# The study's servers flushed near 64 MB (crates/load/messages.toml); everything else keeps its proportion to it.
FLUSH_BYTES = 4 * MB
LOG_BYTES = 14 * MB
# HBase moves inputs of a compaction to the archive in seconds; they are removed soon after, as at the study's time.
ARCHIVE_MS = 10_000
# The compactions that are under way when the load ends.
SETTLING_S = 20


class Study(run.Hbase):
    """HBase with small memstores and a small block cache, and a load of eight families."""

    load_words = ["FamiliesLoad", str(USERS), str(THREADS)]
    logged = (
        "log4j.appender.err.layout=org.apache.log4j.PatternLayout\n"
        "log4j.appender.err.layout.ConversionPattern=%d{yyyy-MM-dd HH:mm:ss,SSS} %p %c{1} %m%n\n"
        "log4j.logger.org.apache.hadoop.hbase.regionserver.HStore=INFO\n"
    )
    flush_all = False

    def settings(self):
        policy = "FlushAllStoresPolicy" if self.flush_all else "FlushAllLargeStoresPolicy"
        return {
            **super().settings(),
            "hbase.hregion.memstore.flush.size": FLUSH_BYTES,
            # A family is flushed if it has its part of that; the default bound is for memstores of 128 MB.
            "hbase.hregion.percolumnfamilyflush.size.lower.bound.min": FLUSH_BYTES // 8,
            "hbase.regionserver.flush.policy": f"org.apache.hadoop.hbase.regionserver.{policy}",
            # 10 MB.
            "hfile.block.cache.size": 0.02,
            "hbase.regionserver.hlog.blocksize": 2 * LOG_BYTES,
            "hbase.regionserver.logroll.multiplier": 0.5,
            "hbase.regionserver.maxlogs": 32,
            "hbase.hstore.compaction.min.size": FLUSH_BYTES // 40,
            "hbase.hstore.blockingStoreFiles": 40,
            "hbase.master.hfilecleaner.ttl": ARCHIVE_MS,
            "hbase.master.cleaner.interval": ARCHIVE_MS,
        }


def interpreter():
    """An interpreter with the packages of the analysis, which `frieze analyze` takes too."""
    pins = (hadoop.ROOT / "python" / "frieze_traces" / "requirements.txt").read_text().split("\n")
    return hadoop.python_with(*[line for line in pins if line and not line.startswith("#")])


def loaded(frieze, work, jars, options, trace):
    """Runs the load; the trace of its time. What the load counted."""
    subprocess.run(
        ["javac", "-nowarn", "-cp", jars, "-d", work / "classes", run.HERE / "FamiliesLoad.java"], check=True
    )
    trace.parent.mkdir(parents=True, exist_ok=True)
    ring = ["--trace-ring", RING, "--trace-dir", work / "rings"]
    with hadoop.served(frieze, work, "--memory", "1024", *ring) as ready:
        server = ready["addresses"][0]
        Study.flush_all = options.flush_all
        Study.seconds_max = 60 * options.minutes + 900
        hbase = Study(frieze, work, ready["hdfs"], server, f"{work / 'classes'}:{jars}")
        try:
            hbase.do("create", "BASIC" if options.in_memory else "NONE")
            hbase.do("fill", PUTS_PER_USER)
            hbase.do("settle", 240)
            begun = time.time()
            hbase.do("reopen")
            counted = hbase.do("load", int(60 * options.minutes))
            time.sleep(SETTLING_S)
            shutil.rmtree(trace, ignore_errors=True)
            rings = sorted((work / "rings").glob("serve-*.ring"))
            save = [frieze, "--json", "trace", "save", "--last", f"{int(time.time() - begun)}s", trace, *rings]
            saved = json.loads(subprocess.run(save, check=True, stdout=subprocess.PIPE).stdout)
        finally:
            hbase.end()
            for log in ["region-server", "master"]:
                shutil.copyfile(work / f"{log}.log", trace.parent / f"{log}.log")
    return {**counted, "events": saved["events"]}


def beside(figures):
    """Numbers of figures 2 to 8, here and in the study: (figure, what, here, study)."""
    layers = {row["layer"]: row for row in figures["layers-io"]["rows"]["layers"]}
    purposes = {row["purpose"]: row for row in figures["layers-io"]["rows"]["purposes"]}
    data = {row["layer"]: row for row in figures["layers-data"]["rows"]["layers"]}
    types = {row["type"]: row for row in figures["types"]["rows"]["types"]}
    sizes = {row["type"]: row for row in figures["sizes"]["rows"]["sizes"]}
    near = {(row["distance"], row["within"]): row["share"] for row in figures["locality"]["rows"]["locality"]}
    heat = {row["read"]: row for row in figures["heat"]["rows"]["heat"]}

    def percent(value):
        return f"{100 * value:.1f} %"

    def touched(row):
        return row["read"] + row["both"] + row["written"]

    flushed = purposes["flush"]["written"]
    both = sum(row["data both"] for row in types.values())
    lifetimes = figures["lifetimes"]["rows"]["lifetimes"][0]
    everything = sum(row["data"] for row in types.values())
    return [
        ("2", "written share, gets and flushes", percent(layers["core"]["written share"]), "1 %"),
        ("2", "written share, all calls", percent(layers["all calls"]["written share"]), "21 %"),
        ("2", "written share, three copies", percent(layers["local files, 3 copies"]["written share"]), "45 %"),
        ("4.1", "log over flushed", f"{purposes['log']['written'] / flushed:.1f}", "10"),
        ("4.1", "written by compactions over flushed", f"{purposes['compaction']['written'] / flushed:.1f}", "17"),
        ("3", "core data that remains, of all",
         percent(touched(data["core, not removed"]) / touched(data["all"])), "15 %"),
        ("4", "data both read and written", percent(both / everything), "11 %"),
        ("4", "I/O over data, PrefetchMeta", f"{types['PrefetchMeta']['I/O per data']:.1f}", "15"),
        ("4", "I/O over data, Keywords", f"{types['Keywords']['I/O per data']:.1f}", "1.1"),
        ("5", "mean over 90 %, files of MessageMeta",
         f"{sizes['MessageMeta']['mean'] / max(sizes['MessageMeta']['p90'], 1):.1f}", "above 19"),
        ("6", "created files removed within a minute", percent(lifetimes["removed within 60 s"]), "17 %"),
        ("5", "90 % over 10 % of log files", f"{sizes['log']['p90'] / max(sizes['log']['p10'], 1):.2f}", "near 1"),
        ("7", "same bytes within 4 min", percent(near["same bytes", "4 min"]), "near 0"),
        ("7", "random: nothing within 1 KiB in a minute", percent(1 - near["within 1 KiB", "60 s"]), "above 75 %"),
        ("7", "64 KiB line above the 1 KiB line, 1 min",
         percent(near["within 64 KiB", "60 s"] - near["within 1 KiB", "60 s"]), "near 0"),
        ("8", "read data that is read once", percent(heat["once"]["share of data"]), "73.7 %"),
        ("8", "read data that is read 64 times or more", percent(heat["64 or more"]["share of data"]), "1.1 %"),
        ("8", "reads that go to data read once", percent(heat["once"]["share of reads"]), "19 %"),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frieze", default=None, help="the command (default: the release build)")
    parser.add_argument("--minutes", type=float, default=10, help="of load")
    parser.add_argument("--flush-all", action="store_true", help="flush all families of a region together")
    parser.add_argument("--in-memory", action="store_true", help="in-memory compaction: BASIC")
    parser.add_argument("--out", type=pathlib.Path, default=hadoop.ROOT / "out" / "hbase", help="where it all goes")
    options = parser.parse_args()
    if not 0.5 <= options.minutes <= 120:
        parser.error(f"--minutes {options.minutes} is not from 0.5 to 120")
    hadoop.end_orderly()
    hadoop.needs("examples/hbase", "java", "javac", "mvn")
    frieze = os.path.abspath(hadoop.command(options.frieze))
    jars = hadoop.fetched(hadoop.cache(f"hbase-{run.VERSION}"), run.POM)
    python = interpreter()
    out = options.out.resolve()
    trace, report = out / "trace", out / "report"
    with tempfile.TemporaryDirectory(prefix="frieze-study-") as work:
        counted = loaded(frieze, pathlib.Path(work), jars, options, trace)
    print("  ".join(f"{name} {value}" for name, value in counted.items()), flush=True)
    shutil.rmtree(report, ignore_errors=True)
    analyze = [frieze, "--json", "analyze", "--quiet", trace, "--out", report]
    environment = {**os.environ, "FRIEZE_PYTHON": str(python)}
    found = json.loads(subprocess.run(analyze, check=True, stdout=subprocess.PIPE, env=environment).stdout)
    for figure, what, here, study in beside(found["figures"]):
        print(f"{figure:>4}  {what:<44} {here:>9}   study {study}")
    judged = subprocess.run([python, run.HERE / "purposes.py", trace, report, out / "region-server.log"])
    print(f"report {report / 'report.html'}")
    sys.exit(judged.returncode)


if __name__ == "__main__":
    main()
