"""Stage `check`: what a trace holds, which of its events are odd, and the events that later stages see."""

import ibis

from .. import contract
from . import is_read, is_write, total


def with_trace(raw, number):
    """The columns of the format, and the number of the trace."""
    return raw.select(*contract.EVENTS, trace=ibis.literal(number, "int32"))


def shared_starts(raw):
    """Starts that several events have."""
    counted = raw.group_by("t_ns").agg(events=raw.count())
    return counted.filter(counted.events > 1).select("t_ns")


def without_duplicates(raw, starts):
    """(rows, duplicates): each measured event once, and the number of rows that are left out.

    Two events are one if all columns are equal, the duration in nanoseconds among them. An event without a duration
    comes from a source with a coarse clock, where equal rows are two calls: it stays, and so does a server's own event,
    one of several of one read. `starts` holds the candidates.
    """
    rare = raw.semi_join(starts, "t_ns")
    may_be_two = rare.dur_ns.notnull() & (rare.gateway != contract.DEVICE)
    measured = rare.filter(may_be_two)
    once = measured.group_by(*contract.EVENTS).agg(trace=measured.trace.min(), copies=measured.count())
    rest = raw.anti_join(starts, "t_ns").union(rare.filter(~may_be_two))
    return rest.union(once.select(*rest.columns)), once.agg(
        duplicates=(once.copies - 1).sum().coalesce(0).cast("int64")
    )


def counts(raw):
    """One row a trace: how many events of users, and how many that need an assumption; a server's own events apart."""
    user = raw.gateway != contract.DEVICE
    data = user & (is_read(raw) | is_write(raw))
    return raw.group_by("trace").agg(
        events=total(user),
        calls=total(user, raw["count"]),
        first_ns=raw.t_ns.min(),
        last_ns=raw.t_ns.max(),
        failed=total(user & (raw.result != 0)),
        device=total(~user),
        past=total(user & ((raw.flags & contract.PAST) != 0)),
        sequential=total(user & ((raw.flags & contract.SEQUENTIAL) != 0)),
        measured=total(user & raw.dur_ns.notnull()),
        negative=total(user & ((raw.dur_ns < 0) | (raw["offset"] < 0) | (raw.got < 0) | (raw.asked < 0))),
        without_file=total(data & raw.inode.isnull() & raw.path.isnull()),
        without_offset=total(data & raw["offset"].isnull()),
        with_purpose=total(user & raw.purpose.notnull()),
        named_by_path=total(user & (raw.inode == raw.path) & raw.path.notnull()),
        unknown_calls=total(~raw.call.isin(list(contract.CALLS))),
        data_events=total(data),
    )


def prepared(raw, spaces, rings=()):
    """The events of later stages: no device events, bytes and identity made plain.

    `rings` are the numbers of traces that were saved from rings. The number of an open file is the program's own there,
    and its calls come from several threads with sessions of their own, so the actor says nothing of the open file.
    `spaces` maps the number of a trace to that of its file system: files of two file systems are never one.
    `bytes` is what was moved; where a source knows only what was asked for, that. A failed call moves nothing.
    """
    kept = raw.filter(raw.gateway != contract.DEVICE)
    # A gateway of Hadoop sends whole chunks of checksums: more than was asked for, and no byte more for the caller.
    moved = ibis.least(ibis.coalesce(kept.got, kept.asked, 0), ibis.coalesce(kept.asked, kept.got, 0))
    fine = (kept.result == 0) & (is_read(kept) | is_write(kept)) & (moved > 0)
    file = ibis.coalesce(kept.inode, kept.path)
    if len(set(spaces.values())) > 1:
        space = ibis.cases(*((kept.trace == trace, number << 52) for trace, number in spaces.items()), else_=0)
        file = file ^ space.cast("int64")
    return kept.select(
        "trace",
        "call",
        "gateway",
        "flags",
        "stream",
        "result",
        "path",
        "path2",
        "purpose",
        actor=ibis.ifelse(kept.trace.isin(rings), None, kept.actor) if rings else kept.actor,
        t=kept.t_ns,
        dur=ibis.ifelse(kept.dur_ns >= 0, kept.dur_ns, None),
        file=file,
        offset=ibis.ifelse(kept["offset"] >= 0, kept["offset"], None),
        asked=kept.asked,
        bytes=ibis.ifelse(fine, moved, 0),
        calls=ibis.greatest(kept["count"], 1).cast("int64"),
    )
