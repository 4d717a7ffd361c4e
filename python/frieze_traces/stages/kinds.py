"""Stage `kinds`: the type of each file by the names that it had, and its facts over the whole trace."""

import ibis

from .. import contract

# Names that a file has for a while: another name of the same file says more.
PASSING = ["temporary", "archive"]


def names(events):
    """Each name that a file had, with the first and the last time that a call used it."""
    kept = events.filter(events.file.notnull() & (events.result == 0))
    used = kept.filter(kept.path.notnull() & (kept.call != contract.RENAME)).select("file", "path", "t")
    renames = kept.filter((kept.call == contract.RENAME) & kept.path2.notnull())
    pairs = used.union(renames.select("file", path=renames.path2, t=renames.t))
    return pairs.group_by("file", "path").agg(first=pairs.t.min(), last=pairs.t.max())


def replaced(events, names):
    """Files that lost their name to another one, by a rename onto it: they died then."""
    ends = events.filter(
        events.path.notnull() & events.call.isin([contract.RENAME, contract.UNLINK]) & (events.result == 0)
    )
    comes = events.filter(events.path2.notnull() & (events.call == contract.RENAME) & (events.result == 0))
    nothing = ibis.literal(None, "int64")
    history = (
        names.select("path", "file", t=names.first, renames=ibis.literal(0))
        .union(ends.select("path", file=nothing, t=ends.t, renames=ibis.literal(2)))
        .union(comes.select(path=comes.path2, file=comes.file, t=comes.t, renames=ibis.literal(1)))
    ).distinct()
    # A file that is named by a rename is in `names` too, at the same time: it is not its own predecessor.
    window = ibis.window(group_by="path", order_by=["t", "renames", "file"])
    before = history.mutate(
        one=history.file.lag(1).over(window),
        ended=history.renames.lag(1).over(window),
        two=history.file.lag(2).over(window),
        ended_two=history.renames.lag(2).over(window),
    )
    own = before.one == before.file
    previous = ibis.ifelse(own, before.two, ibis.ifelse(before.ended == 2, None, before.one))
    over = before.filter((before.renames == 1)).mutate(previous=previous)
    lost = over.filter(over.previous.notnull() & (over.previous != over.file))
    return lost.group_by(file=lost.previous).agg(replaced=lost.t.max())


def kinds(names, paths):
    """One row a file: kind, family and extension of the name that says most, and the directory of that name."""
    joined = names.left_join(paths, "path")
    rank = ibis.cases((joined.kind.isnull(), 2), (joined.kind.isin(PASSING), 1), else_=0)
    ranked = joined.select("file", "path", "parent", "kind", "family", "extension", "last", rank=rank)
    window = ibis.window(group_by="file", order_by=[ranked["rank"], ranked["last"].desc(), ranked.path])
    best = ranked.mutate(place=ibis.row_number().over(window))
    best = best.filter(best.place == 0)
    return best.select("file", "path", "extension", "family", store=best.parent, kind=best.kind.fill_null("other"))


def files(streams, kinds, replaced):
    """One row a file. `size` is the largest end that a call reached; where `born` is null the file may be larger."""
    facts = streams.group_by("file").agg(
        first=streams["first"].min(),
        born=streams.created.min(),
        unlinked=streams.removed.max(),
        size=streams.end.max().coalesce(0).cast("int64"),
        calls=streams.calls.sum().cast("int64"),
        opens=streams.opens.sum().cast("int64"),
        reads=streams.reads.sum().cast("int64"),
        writes=streams.writes.sum().cast("int64"),
        read_bytes=streams.read_bytes.sum().cast("int64"),
        written_bytes=streams.written_bytes.sum().cast("int64"),
    )
    joined = facts.left_join(kinds, "file").drop("file_right").left_join(replaced, "file").drop("file_right")
    died = ibis.ifelse(
        joined.replaced.isnull() | (joined.unlinked >= joined.replaced), joined.unlinked, joined.replaced
    )
    return joined.mutate(
        died=ibis.ifelse(joined.born.isnull() | (died >= joined.born), died, None),
        kind=joined.kind.fill_null("unknown"),
        family=joined.family.fill_null(""),
        extension=joined.extension.fill_null(""),
    ).drop("unlinked", "replaced")
