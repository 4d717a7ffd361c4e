"""Stage `streams`: one row for each opened file from open to close, and its sequential share."""

import ibis

from .. import contract
from . import is_read, is_write, total

KEY = ["trace", "file", "actor", "stream"]


def marked_sequential(events):
    """`flags` with the bit for "begins where the one before ended" by the offsets, for sources that do not record it.

    The event before is the one on the same open file; without numbers of open files, the one on the same file.
    """
    data = (is_read(events) | is_write(events)) & events["offset"].notnull()
    # A sync between two writes is none of them.
    window = ibis.window(group_by=[*KEY, is_read(events), data], order_by=["t", "offset"])
    end = (events["offset"] + events.bytes).lag(1).over(window)
    follows = data & (end == events["offset"])
    others = events.flags - (events.flags & contract.SEQUENTIAL)
    return events.mutate(flags=ibis.ifelse(follows, others | contract.SEQUENTIAL, others))


def streams(events):
    """Facts of each open file. Events without a stream make one row a file, with a null in its place."""
    done = events.result == 0
    end = ibis.coalesce(events["offset"], 0) + events.bytes
    # Of several calls in one event all but the first begin where the one before ended.
    sequential = ibis.ifelse((events.flags & contract.SEQUENTIAL) != 0, events.calls, events.calls - 1)
    reads, writes = is_read(events) & (events.bytes > 0), is_write(events) & (events.bytes > 0)
    begins = done & events.call.isin([contract.OPEN, contract.CREATE])
    return (
        events.filter(events.file.notnull())
        .group_by(*KEY)
        .agg(
            first=events.t.min(),
            last=events.t.max(),
            opened=ibis.ifelse(begins, events.t, None).min(),
            closed=ibis.ifelse(events.call == contract.CLOSE, events.t, None).max(),
            created=ibis.ifelse(done & (events.call == contract.CREATE), events.t, None).min(),
            removed=ibis.ifelse(done & events.call.isin([contract.UNLINK, contract.REMOVE_TREE]), events.t, None).max(),
            calls=events.calls.sum().cast("int64"),
            reads=total(reads, events.calls),
            writes=total(writes, events.calls),
            read_bytes=total(reads, events.bytes),
            written_bytes=total(writes, events.bytes),
            sequential_reads=total(reads, sequential),
            sequential_writes=total(writes, sequential),
            read_from=ibis.ifelse(reads, events["offset"], None).min(),
            read_to=ibis.ifelse(reads, end, None).max(),
            write_from=ibis.ifelse(writes, events["offset"], None).min(),
            write_to=ibis.ifelse(writes, end, None).max(),
            core_reads=total(reads & (events.purpose == contract.GET), events.calls),
            core_writes=total(writes & (events.purpose == contract.FLUSH), events.calls),
            end=ibis.ifelse(reads | writes, end, None).max(),
            opens=total(begins, events.calls),
        )
    )
