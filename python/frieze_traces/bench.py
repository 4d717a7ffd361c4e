"""Speed of the analysis beside bare DuckDB on the same files, in the same run.

    python -m frieze_traces.bench --events 100000000 --dir /tmp/bench

Makes a synthetic trace with DuckDB (10 bytes an event), then in turn: reads every column once (scan), sorts by file and
offset (sort), and analyses. Prints seconds, CPU seconds, peak memory and the ratios. Where the machine is shared, the
ratio of CPU seconds counts.
"""

import argparse
import json
import pathlib
import resource
import shutil
import subprocess
import sys
import time

import duckdb
import pyarrow
import pyarrow.parquet

from . import contract
from .engine import MEMORY_DEFAULT

BEGIN = 1_700_000_000_000_000_000
FILES = 200_000
PART = 10_000_000

# Of ten events six read a block of about 50 KB, three and a half append to a log, the rest opens, closes or looks up.
# Files and blocks are chosen with a skew: u^3 and u^2 of uniform numbers that are hashes of the event's number.
ROWS = """
SELECT t_ns, dur_ns, call, 3::INTEGER AS gateway, (CASE WHEN call = 5 THEN 8 ELSE 0 END)::INTEGER AS flags, inode,
    inode AS stream, offset_ AS "offset", bytes AS asked, bytes AS got, 0::INTEGER AS result, 1::INTEGER AS count,
    CASE WHEN call IN (1, 10) THEN inode * 1000003 END AS path, NULL::BIGINT AS path2, 1::BIGINT AS actor,
    NULL::BIGINT AS view_ns, (CASE call WHEN 3 THEN 1 WHEN 5 THEN 2 END)::INTEGER AS purpose
FROM (
    SELECT ({begin} + i * {step} + (hash(i) % {step})::BIGINT)::BIGINT AS t_ns,
        (20000 * exp(3 * u(i, 5)))::BIGINT AS dur_ns, call,
        CASE WHEN call = 5 THEN ({files} + i // 100000)::BIGINT ELSE 1 + ({files} * u(i, 2) ** 3)::BIGINT END AS inode,
        CASE WHEN call = 3 THEN 50000 * (400 * u(i, 3) ** 2)::BIGINT
            WHEN call = 5 THEN (i % 100000)::BIGINT * 2000 END AS offset_,
        CASE WHEN call = 3 THEN 49000::BIGINT WHEN call = 5 THEN 2000::BIGINT END AS bytes
    FROM (
        SELECT i, (CASE WHEN u(i, 1) < 0.6 THEN 3 WHEN u(i, 1) < 0.95 THEN 5 WHEN u(i, 1) < 0.97 THEN 1
            WHEN u(i, 1) < 0.98 THEN 8 ELSE 10 END)::INTEGER AS call
        FROM range({low}, {high}) AS numbers(i)
    )
) ORDER BY t_ns
"""


def make(folder, events):
    """A trace of so many events over eight days."""
    step = 8 * 86400 * 10**9 // events
    connection = duckdb.connect()
    connection.execute("CREATE MACRO u(i, n) AS (hash(i * 8 + n) % 1000003) / 1000003.0")
    for part, low in enumerate(range(0, events, PART)):
        hour = folder / "events" / f"hour=2023-11-14T{part:02}"
        hour.mkdir(parents=True)
        rows = ROWS.format(begin=BEGIN, step=step, files=FILES, low=low, high=min(events, low + PART))
        options = "FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, ROW_GROUP_SIZE 1000000, PARQUET_VERSION v2"
        connection.execute(f"COPY ({rows}) TO '{hour}/part-0.parquet' ({options})")
    families = ["Actions", "MessageMeta", "Keywords", "PrefetchMeta"]
    paths = [
        {
            "path": n * 1000003,
            "parent": n % 4,
            "kind": "hfile" if n < FILES else "log",
            "family": families[n % 4] if n < FILES else None,
            "extension": None,
        }
        for n in range(1, FILES + events // 100000 + 1)
    ]
    schema = pyarrow.schema([(name, kind) for name, (kind, _) in contract.PATHS.items()])
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(paths, schema), folder / "paths.parquet")
    manifest = {
        "format": contract.FORMAT,
        "version": 1,
        "made_by": "bench",
        "source": "messages",
        "programs": [],
        "key": None,
        "begin_ns": BEGIN,
        "end_ns": BEGIN + step * events,
        "events": events,
        "absent": [],
        "notes": [],
        "lost": {"overwritten": 0, "torn": 0, "unknown": 0, "spans": []},
        "calls": {},
        "gateways": {},
        "flags": {},
        "purposes": {},
        "reasons": {},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))


def bare(files, memory, work, query):
    """Seconds, and CPU seconds, of one statement of DuckDB on the files, with the settings that the analysis has."""
    connection = duckdb.connect()
    connection.execute(f"SET memory_limit='{memory}'; SET temp_directory='{work}'; SET preserve_insertion_order=false")
    connection.execute(
        f"CREATE VIEW events AS SELECT * FROM read_parquet({[str(f) for f in files]}, hive_partitioning=false)"
    )
    began, cpu = time.monotonic(), time.process_time()
    connection.execute(query).fetchall()
    return time.monotonic() - began, time.process_time() - cpu


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--events", type=int, default=100_000_000)
    parser.add_argument(
        "--dir", type=pathlib.Path, required=True, help="where the trace is made; it stays for the next run"
    )
    parser.add_argument("--memory", default=MEMORY_DEFAULT)
    options = parser.parse_args()
    trace, out = options.dir / f"trace-{options.events}", options.dir / "out"
    if not (trace / "manifest.json").exists():
        shutil.rmtree(trace, ignore_errors=True)
        make(trace, options.events)
    files = sorted((trace / "events").rglob("*.parquet"))
    size = sum(file.stat().st_size for file in files)
    print(f"{options.events} events, {size / options.events:.1f} bytes an event")
    everything = ", ".join(f'max("{name}")' for name in contract.EVENTS)
    scan, scan_cpu = bare(files, options.memory, options.dir, f"SELECT {everything} FROM events")
    print(f"scan       {scan:7.1f} s  CPU {scan_cpu:7.1f} s  every column")
    ordered = (
        'SELECT sum(t_ns % 7 * n) FROM (SELECT t_ns, row_number() OVER (ORDER BY inode, "offset") AS n FROM events)'
    )
    sort, sort_cpu = bare(files, options.memory, options.dir, ordered)
    print(f"sort       {sort:7.1f} s  CPU {sort_cpu:7.1f} s  by file and offset, of starts")
    shutil.rmtree(out, ignore_errors=True)
    began = time.monotonic()
    command = [sys.executable, "-m", "frieze_traces", str(trace), "--out", str(out), "--memory", options.memory]
    subprocess.run(command, check=True, cwd=pathlib.Path(__file__).parent.parent)
    took = time.monotonic() - began
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu, peak = used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20
    print(
        f"analysis   {took:7.1f} s  CPU {cpu:7.1f} s  peak {peak:.2f} GiB, {options.events / took / 1e6:.2f} M events/s"
    )
    ratios = [took / (scan + sort), cpu / (scan_cpu + sort_cpu)]
    print(f"ratio      {ratios[0]:7.2f}    CPU {ratios[1]:7.2f}    analysis / (scan + sort)")


if __name__ == "__main__":
    main()
