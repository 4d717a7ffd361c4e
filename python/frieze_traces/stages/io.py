"""Stage `io`: the cube of calls and bytes that figure 2, figure 4b and the pictures over time are sums of."""

import ibis

from . import MINUTE_NS, PAGE, floor_to, is_write, total

DIMENSIONS = ["minute", "call", "gateway", "purpose", "label", "failed"]


def cube(events, labels):
    """Calls, events, bytes, waiting time by minute, call, gateway, purpose, kind of file, and whether they failed.

    `page_bytes` are the whole pages of 4 KiB that the bytes touch: what a disk has to write for them.
    """
    joined = events.left_join(labels.select("file", "label"), "file")
    offset = ibis.coalesce(joined["offset"], 0)
    end = offset + joined.bytes + PAGE - 1
    pages = ibis.ifelse(joined.bytes > 0, (end - end % PAGE) - floor_to(offset, PAGE), 0)
    wide = joined.select(
        "call",
        "gateway",
        "calls",
        "bytes",
        "dur",
        purpose=joined.purpose.fill_null(0),
        label=joined.label.fill_null(-1),
        failed=(joined.result != 0).cast("int32"),
        minute=floor_to(joined.t, MINUTE_NS),
        pages=ibis.ifelse(is_write(joined), pages, 0),
    )
    return wide.group_by(*DIMENSIONS).agg(
        events=wide.count(),
        calls=wide.calls.sum().cast("int64"),
        bytes=wide.bytes.sum().cast("int64"),
        page_bytes=wide.pages.sum().cast("int64"),
        dur_ns=total(wide.dur.notnull(), wide.dur),
        measured=total(wide.dur.notnull(), wide.calls),
    )
