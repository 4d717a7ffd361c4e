"""Purposes that the analysis of a trace finds by rules, beside HBase's own log: which are right?

    purposes.py TRACE REPORT LOG [LOG...]    a trace of HBase, its report by `frieze analyze`, logs of region servers

HBase logs each file that it flushes, and of each compaction its inputs, its output, its start and its end (HStore, at
level INFO). So the purpose of every store file that was written is known. A compaction reads each input to its end
between its start and its end, and no other time. Prints both beside the rules'; ends with 1 if less than 98 % of
the bytes of a kind are right. Needs the packages of the analysis.
"""

import argparse
import collections
import datetime
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "python"))

import duckdb

RIGHT_MIN = 0.98
NAMES = {1: "get", 2: "log", 3: "flush", 4: "compaction"}
TIME = r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})"
FILE = r"/data/(?P<store>[^/]+/[^/]+/[0-9a-f]{32}/[^/]+)/(?P<file>[0-9a-f]{32})"
ADDED = re.compile(rf"^{TIME} INFO HStore Added \S*{FILE},")
STARTING = re.compile(rf"^{TIME} INFO HStore Starting compaction of \[(?P<inputs>.*)\] into tmpdir")
COMPLETED = re.compile(
    rf"^{TIME} INFO HStore Completed compaction of .* in (?P<region>[0-9a-f]{{32}})/(?P<family>\S+) of .* into "
    r"(?P<file>[0-9a-f]{32})\("
)
# A line is logged after what it reports, on a loaded machine a good deal after. Where the wall clock made steps, the
# trace and the log differ by as much. A file is the input of one compaction, so a wide window hides nothing.
SLACK_NS, STEPS_SLACK_NS = 2_000_000_000, 15_000_000_000
STEPS = "steps of the wall clock"


class HbaseLog:
    """What region servers logged: flushed files, outputs of compactions, and the time in which each input was read."""

    def __init__(self, logs, slack_ns):
        self.slack_ns = slack_ns
        self.flushed, self.compacted, self.windows = set(), set(), collections.defaultdict(list)
        for log in logs:
            self.read(log)

    def read(self, log):
        started = {}
        for line in log.read_text(errors="replace").splitlines():
            if found := ADDED.match(line):
                self.flushed.add(found["file"])
            elif found := STARTING.match(line):
                inputs = [(m["store"], m["file"]) for m in re.finditer(FILE, found["inputs"])]
                region, family = inputs[0][0].split("/")[2:]
                started[region, family] = (moment(found["time"]), [file for _, file in inputs])
            elif found := COMPLETED.match(line):
                self.compacted.add(found["file"])
                begun, inputs = started.pop((found["region"], found["family"]), (None, []))
                for file in inputs:
                    self.windows[file].append((begun - self.slack_ns, moment(found["time"]) + self.slack_ns))


def moment(text):
    """Nanoseconds since 1970 of a time in the log, which is of this machine's zone."""
    parsed = datetime.datetime.strptime(text, "%Y-%m-%d %H:%M:%S,%f")
    return int(parsed.timestamp() * 1000) * 1_000_000


def written(connection, log):
    """(right, wrong) files and bytes of store files, by their true purpose, and logs."""
    rows = connection.sql(
        "SELECT any_value(regexp_extract(text, '([0-9a-f]{32})$', 1)) AS name, any_value(write_purpose) AS purpose, "
        "any_value(written_bytes) AS bytes FROM files JOIN write_purposes USING (file) "
        "JOIN file_names USING (file) JOIN names ON names.path = file_names.path "
        "WHERE writes > 0 AND regexp_matches(text, '/data/.*/[0-9a-f]{32}$') GROUP BY file"
    ).fetchall()
    found = collections.Counter()
    for name, purpose, size in rows:
        true = 3 if name in log.flushed else 4 if name in log.compacted else None
        if true is None:
            found["not in the log", "files"] += 1
            continue
        word = "right" if purpose == true else "wrong"
        found[NAMES[true], word, "files"] += 1
        found[NAMES[true], word, "bytes"] += size
    return found


def reads(connection, log):
    """Bytes and reads of store files that the rules call a compaction's, within windows of HBase's and outside."""
    rows = connection.sql(
        "SELECT name, size, t, bytes, purpose FROM reads_of JOIN (SELECT file, any_value(size) AS size, "
        "any_value(regexp_extract(text, '([0-9a-f]{32})$', 1)) AS name FROM files JOIN file_names USING (file) "
        "JOIN names ON names.path = file_names.path WHERE kind = 'hfile' GROUP BY file) USING (file) WHERE name <> ''"
    ).fetchall()
    found, scanned = collections.Counter(), collections.Counter()
    sizes = {}
    for name, size, t, moved, purpose in rows:
        sizes[name] = size
        within = next((window for window in log.windows.get(name, []) if window[0] <= t <= window[1]), None)
        found["reads", NAMES.get(purpose, "unknown")] += 1
        found["bytes", NAMES.get(purpose, "unknown")] += moved
        if purpose == 4 and within is None:
            found["reads", "compaction outside"] += 1
            found["bytes", "compaction outside"] += moved
        elif purpose == 4:
            scanned[name, within] += moved
    first = connection.sql("SELECT min(t) FROM reads_of").fetchall()[0][0] or 0
    for name, windows in log.windows.items():
        for window in windows:
            if window[0] < first or name not in sizes:
                continue
            found["inputs", "in the log"] += 1
            found["bytes", "of inputs"] += sizes[name]
            # HBase takes some of an input from its block cache: one read to the end is enough.
            missed = scanned[name, window] == 0
            found["inputs", "found"] += not missed
            found["bytes", "of inputs missed"] += missed * sizes[name]
            found["bytes", "of inputs from the cache"] += (not missed) * max(sizes[name] - scanned[name, window], 0)
    return found


def tables(trace, report):
    """A connection with the stages of the report, names, and the reads with their purposes by the analysis' rules."""
    connection = duckdb.connect()
    for name in ["files", "write_purposes", "labels", "scans"]:
        connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{report}/stage/{name}/*.parquet')")
    connection.execute(f"CREATE VIEW file_names AS SELECT * FROM read_parquet('{report}/stage/names/*.parquet')")
    connection.execute(f"CREATE VIEW names AS SELECT * FROM read_parquet('{trace}/names.parquet')")
    import ibis
    from frieze_traces import reading
    from frieze_traces.stages import check, purpose

    traces = reading.open_traces([trace], partial=False)
    engine = ibis.duckdb.connect()
    stage = {name: engine.read_parquet(f"{report}/stage/{name}/*.parquet") for name in ["labels", "scans"]}
    raw = check.with_trace(engine.read_parquet([str(f) for f in traces[0].events], hive_partitioning=False), 0)
    events = purpose.resolved(check.prepared(raw, {0: 0}, [0]), stage["labels"], stage["scans"])
    wanted = events.filter((events.call == 3) & (events.bytes > 0)).select("file", "t", "bytes", "purpose")
    reads_of = engine.to_pyarrow(wanted)
    connection.register("reads_of", reads_of)
    return connection


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=pathlib.Path)
    parser.add_argument("report", type=pathlib.Path)
    parser.add_argument("logs", type=pathlib.Path, nargs="+")
    options = parser.parse_args()
    notes = json.loads((options.trace / "manifest.json").read_text()).get("notes") or []
    steps = sum(note["count"] for note in notes if note["what"] == STEPS)
    if steps:
        print(f"the wall clock made {steps} steps: times differ by up to {STEPS_SLACK_NS // 10**9} s")
    log = HbaseLog(options.logs, STEPS_SLACK_NS if steps else SLACK_NS)
    connection = tables(options.trace, options.report)
    shares = {}
    of_files = written(connection, log)
    for name in ["flush", "compaction"]:
        right, wrong = (of_files[name, word, "bytes"] for word in ["right", "wrong"])
        files = [of_files[name, word, "files"] for word in ["right", "wrong"]]
        shares[f"written by {name}"] = right / max(right + wrong, 1)
        print(f"{name:<11} files written: {files[0]} right, {files[1]} wrong; bytes {right:,} and {wrong:,}")
    of_reads = reads(connection, log)
    wrong = of_reads["bytes", "of inputs missed"] + of_reads["bytes", "compaction outside"]
    every = sum(of_reads["bytes", name] for name in [*NAMES.values(), "unknown"])
    print(
        f"reads of store files: {of_reads['reads', 'get']:,} gets of {of_reads['bytes', 'get']:,} bytes, "
        f"{of_reads['reads', 'compaction']:,} of compactions of {of_reads['bytes', 'compaction']:,} bytes "
        f"({of_reads['reads', 'compaction outside']:,} outside of any compaction)"
    )
    inputs, cached = of_reads["bytes", "of inputs"], of_reads["bytes", "of inputs from the cache"]
    print(
        f"inputs of compactions: {of_reads['inputs', 'in the log']:,} in HBase's log, "
        f"{of_reads['inputs', 'found']:,} of them found by the rules; "
        f"{cached:,} of {inputs:,} bytes came from HBase's cache"
    )
    shares["read by compactions"] = 1 - wrong / max(inputs, 1)
    shares["read at all"] = 1 - wrong / max(every, 1)
    for name, value in shares.items():
        print(f"right: {100 * value:6.2f} % of the bytes {name}")
    sys.exit(0 if min(shares.values()) >= RIGHT_MIN else 1)


if __name__ == "__main__":
    main()
