"""Stage `purpose`: what a read or write is for, where the source does not say: get, log, flush or compaction of HBase.

HBase writes a flush and a compaction alike: into `.tmp`, then a rename into the store. A compaction opens its inputs,
creates its output, reads the inputs whole, and within ten minutes they go to the archive. So a new file of a store is a
compaction if files of that store, of about its size together, go to the archive within ten minutes after its rename,
and were read whole while it was written, or just before. An input belongs to the output that was created nearest to
its reading: a flush of the same store may end meanwhile. Where no input was read whole in view of the trace, the sizes
alone decide.

A client of Hadoop that streams a file asks for all bytes up to the end of its block of HDFS in one call, and HBase
takes the first blocks of an input from its cache; a get asks for a block of HBase's, and the opening of a file for its
short end. A reader with an open file (a stream) reads it in many calls.
"""

import ibis

from .. import contract
from . import MINUTE_NS, SECOND_NS, is_read, is_write

ARCHIVED_WITHIN_NS = 10 * MINUTE_NS
# Inputs have at least half of the output's bytes (they may be seen only in part) and, unstreamed, at most four times.
INPUTS_MIN, INPUTS_MAX = 0.5, 4.0
# Blocks of HDFS are multiples of this.
HDFS_BLOCK = 64 << 20
# A call that asks for a file up to its end is a scan if it asks for so much of it; else it reads what opening needs.
REST, REST_BYTES = 0.1, 16 << 10
# From the first read of an input to the creation of the output: a compaction opens all of its inputs between.
OPENING_NS = 10 * SECOND_NS
# A stream that reads so much of a file, so much of it in sequence, is a scan.
WHOLE, IN_SEQUENCE = 0.8, 0.8


def scans(streams, files):
    """Streams that read a store file whole, in sequence, from its start."""
    joined = streams.inner_join(files.select("file", "kind", "size"), "file")
    whole = (joined.kind == "hfile") & (joined.read_from == 0) & (joined.read_bytes >= WHOLE * joined["size"])
    several = (joined.reads >= 2) & (joined.sequential_reads >= IN_SEQUENCE * (joined.reads - 1))
    kept = joined.filter(whole & several & joined.stream.notnull())
    return kept.select("trace", "file", "stream", "first", "last", actor=ibis.coalesce(kept.actor, -1))


def whole_reads(events, files):
    """Single calls that read a store file to its end, or to that of a block of HDFS, as rows like those of `scans`."""
    joined = events.inner_join(files.filter(files.kind == "hfile").select("file", of_size="size"), "file")
    kept = joined.filter(_is_scan(joined, joined.of_size))
    ended = kept.t + ibis.coalesce(kept.dur, 0)
    return kept.select("trace", "file", "stream", first=kept.t, last=ended, actor=ibis.literal(-1, "int64"))


def _is_scan(events, size):
    asked = ibis.greatest(ibis.coalesce(events.asked, 0), events.bytes)
    reach = events["offset"] + asked
    ends = (reach >= size) | (reach % HDFS_BLOCK == 0)
    much = (events["offset"] % HDFS_BLOCK == 0) | ((asked >= REST_BYTES) & (asked >= REST * size))
    return is_read(events) & events.stream.isnull() & (events.bytes > 0) & ends & much


def writes(files, names, paths, scans):
    """(file, write_purpose) of each file with a log's or a store file's kind."""
    committed = files.inner_join(names.select("file", "path", committed="first"), ["file", "path"])
    made = committed.filter((committed.kind == "hfile") & (committed.writes > 0) & committed.born.notnull())
    archives = names.inner_join(paths.filter(paths.kind == "archive").select("path"), "path")
    archived = archives.group_by("file").agg(archived=archives["first"].min())
    inputs = files.filter(files.kind == "hfile").inner_join(archived, "file")
    inputs = inputs.select("store", "archived", input="file", input_size=inputs["size"])

    def span(t):
        return t - t % ARCHIVED_WITHIN_NS

    outputs = made.select("file", "store", "born", "committed", output_size=made["size"])
    both = outputs.mutate(span=span(outputs.committed)).union(
        outputs.mutate(span=span(outputs.committed) + ARCHIVED_WITHIN_NS)
    )
    pairs = both.inner_join(inputs.mutate(span=span(inputs.archived)), ["store", "span"])
    after = pairs.archived - pairs.committed
    pairs = pairs.filter((after >= 0) & (after <= ARCHIVED_WITHIN_NS) & (pairs.input != pairs.file))
    read = pairs.inner_join(scans.select(input="file", from_ns="first", to_ns="last"), "input")
    read = read.filter((read.from_ns <= read.committed) & (read.to_ns >= read.born - OPENING_NS))
    nearest = ibis.window(group_by="input", order_by=[(read.born - read.from_ns).abs(), read.file])
    read = read.mutate(place=ibis.row_number().over(nearest))
    read = read.filter(read.place == 0).select("file", "input", streamed=ibis.literal(1))
    marked = pairs.left_join(read, ["file", "input"])
    marked = marked.select("file", "output_size", "input_size", streamed=marked.streamed.fill_null(0))
    sums = marked.group_by("file", "output_size").agg(
        streamed=(marked.input_size * marked.streamed).sum(), all=marked.input_size.sum(), any=marked.streamed.max()
    )
    by_stream = (sums["any"] == 1) & (sums.streamed >= INPUTS_MIN * sums.output_size)
    by_size = (sums["any"] == 0) & sums["all"].between(INPUTS_MIN * sums.output_size, INPUTS_MAX * sums.output_size)
    # Where any scan is in view, an output without one was a flush.
    seen = scans.agg(scans=scans.count())
    judged = sums.cross_join(seen)
    compacted = judged.filter(by_stream | (by_size & (judged.scans == 0))).select("file", compacted=ibis.literal(1))
    store = made.select("file").left_join(compacted, "file")
    of_store = store.select(
        "file", write_purpose=ibis.ifelse(store.compacted == 1, contract.COMPACTION, contract.FLUSH).cast("int32")
    )
    logs = files.filter(files.kind == "log").select("file", write_purpose=ibis.literal(contract.LOG, "int32"))
    return of_store.union(logs)


def unknown(files):
    """(file, write_purpose) where no rule applies: nothing is said."""
    return files.select("file", write_purpose=ibis.literal(None, "int32")).limit(0)


def labels(files, write_purposes):
    """What the events of a file need: a number for its kind and family, its size class, its purposes."""
    kinds = files.select("kind", "family").distinct()
    numbered = kinds.mutate(label=ibis.row_number().over(ibis.window(order_by=["kind", "family"])).cast("int32"))
    joined = files.inner_join(numbered, ["kind", "family"]).left_join(write_purposes, "file")
    read = ibis.cases((joined.kind == "hfile", contract.GET), (joined.kind == "log", contract.LOG), else_=None)
    return joined.select(
        "file",
        "label",
        "kind",
        "family",
        "write_purpose",
        "size",
        read_purpose=ibis.ifelse(joined.write_purpose.notnull() | (joined.kind == "hfile"), read, None).cast("int32"),
    )


def resolved(events, labels, scans):
    """The events with their purpose: the source's, else by the rules. Null where neither says anything."""
    keyed = events.mutate(actor_key=ibis.coalesce(events.actor, -1))
    streamed = scans.select("trace", "file", "stream", actor_key="actor").distinct().mutate(scan=ibis.literal(1))
    joined = keyed.left_join(streamed, ["trace", "file", "stream", "actor_key"])
    joined = joined.select(*keyed.columns, "scan").left_join(
        labels.select("file", "write_purpose", "read_purpose", of_size="size", of_kind="kind"), "file"
    )
    whole = (joined.scan == 1) | ((joined.of_kind == "hfile") & _is_scan(joined, joined.of_size))
    ruled = ibis.cases(
        (is_write(joined), joined.write_purpose),
        (is_read(joined) & whole, contract.COMPACTION),
        (is_read(joined), joined.read_purpose),
        else_=None,
    )
    return joined.mutate(purpose=ibis.coalesce(joined.purpose, ruled.cast("int32"))).select(*events.columns)
