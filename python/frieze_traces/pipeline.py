"""Runs the stages in order, each into OUT/stage/NAME, and goes on where an earlier run of the same traces stopped."""

import contextlib
import json
import pathlib
import shutil
import sys
import time

import pyarrow
import pyarrow.compute
import pyarrow.parquet

from . import engine as engines
from . import reading
from .contract import TraceError
from .stages import blocks, check, identity, io, kinds, nearby, purpose, streams
from .stages import time as times

# The locality map looks at so many reads, or at a sample of about so many.
READS_MAX = 2_000_000
# Sources whose events carry inodes: a name is never an identity there.
WITH_INODES = ["ring", "messages"]


class Stages:
    """The tables on disk: OUT/stage/NAME/*.parquet, and a file that says of which traces they are."""

    def __init__(self, folder, engine, fingerprint, tell):
        self.folder, self.engine, self.tell = folder, engine, tell
        self.seconds = {}
        mark = folder / "of"
        if not mark.exists() or mark.read_text() != fingerprint:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            mark.write_text(fingerprint)

    def table(self, name, make):
        """The table of this name: `make()` computes it unless it is on disk already. It is whole or absent there."""
        done = self.folder / name
        if not done.exists():
            began = time.monotonic()
            building = self.folder / f"{name}.part"
            shutil.rmtree(building, ignore_errors=True)
            made = make()
            if isinstance(made, pyarrow.Table):
                building.mkdir()
                pyarrow.parquet.write_table(made, building / "part-0.parquet")
            else:
                self.engine.write(made, building)
            building.rename(done)
            self.seconds[name] = time.monotonic() - began
            self.tell(f"{name}: {self.seconds[name]:.1f} s")
        return self.engine.read(self.files(name))

    def files(self, name):
        """The Parquet files of a table that is on disk."""
        return sorted((self.folder / name).glob("*.parquet"))

    def rows(self, name):
        """A table that is on disk, in memory, whatever engine made it."""
        return pyarrow.concat_tables(
            [pyarrow.parquet.read_table(file) for file in self.files(name)], promote_options="permissive"
        )


def analyze(folders, out, engine="duckdb", partial=False, memory=engines.MEMORY_DEFAULT, page=1, tell=None):
    """Computes all stages of the traces in these directories; returns (traces, facts, stages).

    `facts` are the numbers of stage `check` and the assumptions; `stages.rows(NAME)` are the tables.

    Raises TraceError if a trace cannot be read: the message says which file, and what to do.
    """
    tell = tell or (lambda words: print(words, file=sys.stderr, flush=True))
    out = pathlib.Path(out)
    traces = reading.open_traces(folders, partial)
    with contextlib.ExitStack() as stack:
        scratch = out / "stage" / "scratch"
        options = {"engine": engine, "page": page, "partial": partial}
        run = Stages(out / "stage", None, reading.fingerprint(traces, options), tell)
        scratch.mkdir(exist_ok=True)
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        facts = _facts(run, traces, tell)
        if facts["events"] == 0:
            return traces, facts, run
        run.engine = engines.connect(engine, scratch, memory)
        stack.callback(run.engine.close)
        try:
            _run(run, traces, facts, page)
        except TraceError:
            raise
        except Exception as error:
            file = next((file for trace in traces for file in trace.events if str(file) in str(error)), None)
            if file is None:
                raise
            if not file.exists():
                text = f"{file} was removed while it was read: a trace that is recorded had reached its --trace-max"
                raise TraceError(f"{text}. Copy the trace, and analyse the copy") from error
            reason = str(error).split("\n")[0][:300]
            raise TraceError(f"{file}: unreadable ({reason}). Copy it again, or leave it out with --partial") from error
    return traces, facts, run


def _facts(run, traces, tell):
    """What the order of events says: OUT/stage/order.json."""
    file = run.folder / "order.json"
    if file.exists():
        return json.loads(file.read_text())
    began = time.monotonic()
    orders = [reading.order_of(trace) for trace in traces]
    starts = [order.first_ns for order in orders if order.first_ns is not None]
    ends = [order.last_ns for order in orders if order.last_ns is not None]
    facts = {
        "events": sum(order.rows for order in orders),
        "backwards": sum(order.backwards for order in orders),
        "shared": (
            None if any(order.shared is None for order in orders) else sorted({t for o in orders for t in o.shared})
        ),
        "first_ns": min(starts, default=None),
        "last_ns": max(ends, default=None),
    }
    if _recorded_twice(traces):
        facts["shared"] = None
    file.with_suffix(".part").write_text(json.dumps(facts))
    file.with_suffix(".part").rename(file)
    tell(f"order: {time.monotonic() - began:.1f} s, {facts['events']} events")
    return facts


def _recorded_twice(traces):
    """True if two traces may hold events of one process: their events overlap, and some can be the same."""
    processes = set()
    for trace in traces:
        own = {(entry.get("program"), entry.get("process")) for entry in trace.manifest.get("programs") or []}
        if own & processes:
            return True
        processes |= own
    return False


def _spaces(traces):
    """The number of the file system of each trace: traces with one key, or without one and of one source, share it."""
    spaces, numbers = {}, {}
    for trace in traces:
        key = trace.manifest.get("key") or trace.manifest["source"]
        spaces[trace.number] = numbers.setdefault(key, len(numbers))
    return spaces


def _run(run, traces, facts, page):
    engine = run.engine
    raws = [check.with_trace(engine.read(trace.events), trace.number) for trace in traces if trace.events]
    raw = raws[0].union(*raws[1:]) if len(raws) > 1 else raws[0]
    facts["duplicates"] = 0
    if facts["shared"] is None or facts["shared"]:
        raw = _once(run, raw, facts)
    counts = run.table("check", lambda: check.counts(raw))
    del counts
    found = run.rows("check").to_pylist()
    for name in found[0]:
        if name not in ("trace", "first_ns", "last_ns"):
            facts[name] = sum(row[name] or 0 for row in found)
    if facts["events"] == 0:
        return
    rings = [trace.number for trace in traces if trace.manifest["source"] == "ring"]
    events = check.prepared(raw, _spaces(traces), rings)
    events = _followed(run, traces, events, facts)
    # A ring marks calls that it has collapsed, which lie behind one another, and no others.
    if facts["data_events"] and (rings or facts["sequential"] == 0):
        marked = streams.marked_sequential(events)
    else:
        marked = events
    paths = _paths(run, traces)
    names = run.table("names", lambda: kinds.names(events))
    opened = run.table("streams", lambda: streams.streams(marked))
    replaced = run.table("replaced", lambda: kinds.replaced(events, names))
    types = run.table("kinds", lambda: kinds.kinds(names, paths))
    files = run.table("files", lambda: kinds.files(opened, types, replaced))
    hbase = _has_store_files(run)
    scans = run.table("scans", lambda: purpose.scans(opened, files).union(purpose.whole_reads(events, files)))
    if hbase:
        written = run.table("write_purposes", lambda: purpose.writes(files, names, paths, scans))
    else:
        written = run.table("write_purposes", lambda: purpose.unknown(files))
    labels = run.table("labels", lambda: purpose.labels(files, written))
    ruled = hbase and facts["with_purpose"] == 0
    facts["purposes"] = "rules" if ruled else "source" if facts["with_purpose"] else None
    io_events = purpose.resolved(events, labels, scans) if ruled else events
    run.table("io", lambda: io.cube(io_events, labels))
    run.table("seconds", lambda: times.seconds(events))
    run.table("durations", lambda: times.durations(events))
    runs = run.table("runs", lambda: blocks.runs(opened, labels, scans) if ruled else blocks.runs(opened))
    # The join with the runs costs a pass: it has to save one call of ten.
    merged = pyarrow.compute.sum(run.rows("runs").column("calls")).as_py() or 0
    taken = runs if merged * 10 > facts["data_events"] and page == 1 else None
    extents = run.table("extents", lambda: blocks.extents(io_events, taken, page))
    run.table("data", lambda: blocks.data(blocks.segments(extents), files))
    reads = sum(row["events"] for row in run.rows("io").select(["call", "events"]).to_pylist() if row["call"] == 3)
    share = nearby.HASHES if reads <= READS_MAX else max(1, round(nearby.HASHES * READS_MAX / reads))
    facts["sampled"] = share / nearby.HASHES
    chosen = run.table("reads", lambda: nearby.sample(nearby.reads(events), share))
    run.table("nearby", lambda: nearby.waits(chosen))


def _once(run, raw, facts):
    """The events without duplicates; on disk if there were any."""
    if facts["shared"] is None:
        starts = run.table("starts", lambda: check.shared_starts(raw))
    else:
        starts = run.table("starts", lambda: pyarrow.table({"t_ns": pyarrow.array(facts["shared"], "int64")}))
    once, duplicates = check.without_duplicates(raw, starts)
    run.table("duplicates", lambda: duplicates)
    facts["duplicates"] = run.rows("duplicates").column(0)[0].as_py()
    return run.table("events", lambda: once) if facts["duplicates"] else raw


def _followed(run, traces, events, facts):
    """The events with the file that each name meant then; where inodes are known, the events as they are."""
    facts["renamed"] = 0
    imported = [trace.number for trace in traces if trace.manifest["source"] not in WITH_INODES]
    if not imported or not facts["named_by_path"]:
        return events
    run.table("steps", lambda: identity.steps(events, imported).limit(identity.STEPS_MAX + 1))
    rows = run.rows("steps")
    if rows.num_rows > identity.STEPS_MAX:
        facts["steps_left_out"] = rows.num_rows
        return events
    rows = rows.sort_by([("t", "ascending"), ("call", "ascending"), ("path", "ascending")]).to_pylist()
    spans = identity.follow(rows)
    facts["renamed"] = len(spans)
    if not spans:
        return events
    schema = pyarrow.schema([(name, "int64") for name in ["path", "after", "until", "renamed"]])
    return identity.renamed(events, run.table("spans", lambda: pyarrow.Table.from_pylist(spans, schema)))


def _paths(run, traces):
    """The kinds of all paths; of a path that several traces name, once."""
    columns = ["path", "parent", "kind", "family", "extension"]
    schema = pyarrow.schema([(name, "int64" if name in ("path", "parent") else "string") for name in columns])

    def joined():
        tables = [run.engine.read([trace.paths]).select(*columns) for trace in traces if trace.paths]
        if not tables:
            return schema.empty_table()
        every = tables[0].union(*tables[1:]) if len(tables) > 1 else tables[0]
        return every.group_by("path").agg(**{name: every[name].min() for name in columns[1:]})

    return run.table("paths", joined)


def _has_store_files(run):
    kinds_found = run.rows("files").column("kind").unique().to_pylist()
    return "hfile" in kinds_found
