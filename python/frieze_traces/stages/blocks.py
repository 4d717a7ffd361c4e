"""Stage `blocks`: how often each byte of each file is read and written. Figures 3, 4 and 8 are sums of it.

Pages are not counted one by one. Equal ranges are added up first; then each range is a step up at its start and a step
down at its end, and the running sum over a file's steps is the count of every byte between two of them. So the work
depends on the number of calls, not of bytes, and it is exact to the byte. With `page` above 1, ranges are rounded to
whole pages first, as a cache of such pages would see them.
"""

import ibis

from .. import contract
from . import floor_to, is_read, is_write, total

# Reads of one byte from here on are one class: figure 8 ends at 64.
HEAT_MAX = 64


def runs(streams, labels=None, scans=None):
    """One range for each open file that was read or written in sequence without a gap, whatever the number of calls.

    Every call begins where the one before ended, and the bytes moved are as many as lie between the first byte and the
    last: so each of these was moved once. With `labels` and `scans` the purposes are those of the rules.
    """
    keyed = streams.mutate(actor_key=ibis.coalesce(streams.actor, -1), stream_key=ibis.coalesce(streams.stream, -1))
    if labels is not None:
        scanned = scans.select("trace", "file", actor_key="actor", stream_key="stream").distinct().mutate(scan=1)
        joined = keyed.left_join(scanned, ["trace", "file", "actor_key", "stream_key"]).select(*keyed.columns, "scan")
        joined = joined.left_join(labels.select("file", "read_purpose", "write_purpose"), "file")
        core_read = (joined.read_purpose == contract.GET) & joined.scan.isnull()
        core_write = joined.write_purpose == contract.FLUSH
        keyed = joined.mutate(
            core_reads=ibis.ifelse(core_read, joined.reads, 0), core_writes=ibis.ifelse(core_write, joined.writes, 0)
        )
    tables = []
    for name, side in [("read", 1), ("write", 0)]:
        calls, core = keyed[f"{name}s"], keyed[f"core_{name}s"]
        moved = keyed["read_bytes" if side else "written_bytes"]
        whole = (moved == keyed[f"{name}_to"] - keyed[f"{name}_from"]) & (keyed[f"sequential_{name}s"] >= calls - 1)
        kept = keyed.filter((calls >= 2) & whole & ((core == 0) | (core == calls)))
        tables.append(
            kept.select(
                "trace",
                "file",
                "actor_key",
                "stream_key",
                start=kept[f"{name}_from"],
                end=kept[f"{name}_to"],
                calls=kept[f"{name}s"],
                side=ibis.literal(side, "int32"),
                core=(kept[f"core_{name}s"] > 0).cast("int64"),
            )
        )
    return tables[0].union(tables[1])


def _rounded(start, end, page):
    return (start, end) if page == 1 else (floor_to(start, page), floor_to(end + (page - 1), page))


def extents(events, runs, page):
    """Each distinct range of each file, and how many events read and wrote it, those of a database's core apart.

    `runs` stand for the events that they are made of; None: there are none worth the join.
    """
    kept = events.filter((events.bytes > 0) & events["offset"].notnull() & events.file.notnull())
    kept = kept.mutate(side=is_read(kept).cast("int32"))
    start, end = _rounded(kept["offset"], kept["offset"] + kept.bytes, page)
    core = kept.purpose.isin([contract.GET, contract.FLUSH]).fill_null(False).cast("int64")
    if runs is None:
        ranges = kept.select("file", "side", start=start, end=end, core=core)
    else:
        keyed = kept.select(
            "trace",
            "file",
            "side",
            start=start,
            end=end,
            core=core,
            actor_key=ibis.coalesce(kept.actor, -1),
            stream_key=ibis.coalesce(kept.stream, -1),
        )
        ranges = keyed.anti_join(runs, ["trace", "file", "actor_key", "stream_key", "side"])
        ranges = ranges.select("file", "side", "start", "end", "core")
        start, end = _rounded(runs.start, runs["end"], page)
        ranges = ranges.union(runs.select("file", "side", start=start, end=end, core="core"))
    return ranges.group_by("file", "start", "end").agg(
        reads=ranges.side.sum().cast("int64"),
        writes=(1 - ranges.side).sum().cast("int64"),
        core_reads=(ranges.side * ranges.core).sum().cast("int64"),
        core_writes=((1 - ranges.side) * ranges.core).sum().cast("int64"),
    )


COUNTS = ["reads", "writes", "core_reads", "core_writes"]


def segments(extents):
    """The ranges of each file between two steps, none of which overlap: how often each is read and written."""
    up = extents.select("file", "reads", "writes", "core_reads", "core_writes", at=extents.start)
    down = extents.select("file", at=extents.end, **{name: -extents[name] for name in COUNTS})
    both = up.union(down.select(*up.columns))
    steps = both.group_by("file", "at").agg(**{name: both[name].sum().cast("int64") for name in COUNTS})
    window = ibis.window(group_by="file", order_by="at")
    running = ibis.window(group_by="file", order_by="at", preceding=None, following=0)
    summed = steps.select(
        "file",
        "at",
        length=steps["at"].lead(1).over(window) - steps["at"],
        **{name: steps[name].sum().over(running).cast("int64") for name in COUNTS},
    )
    return summed.filter((summed.length > 0) & ((summed.reads > 0) | (summed.writes > 0)))


def data(segments, files):
    """Bytes by kind, family, whether the file was removed, times read, and whether they were written and core."""
    joined = segments.inner_join(
        files.select("file", "kind", "family", gone=files.died.notnull().cast("int32")), "file"
    )
    wide = joined.select(
        "kind",
        "family",
        "gone",
        "length",
        heat=ibis.least(joined.reads, HEAT_MAX).cast("int32"),
        written=(joined.writes > 0).cast("int32"),
        core=((joined.core_reads > 0).cast("int32") + 2 * (joined.core_writes > 0).cast("int32")),
        read_bytes=joined.length * joined.reads,
        written_bytes=joined.length * joined.writes,
    )
    return wide.group_by("kind", "family", "gone", "heat", "written", "core").agg(
        bytes=wide.length.sum().cast("int64"),
        read_bytes=wide.read_bytes.sum().cast("int64"),
        written_bytes=wide.written_bytes.sum().cast("int64"),
    )
