"""Stage `names`: which file a name means, at each instant.

A trace of frieze itself names files by inode. An imported one may know only paths: there the hash of the path is in the
place of the inode, and the same file has another number after each rename, and a new file an old number. `follow` goes
through creations, renames and removals in order of time and gives each file one number.
"""

import ibis

from .. import contract

# Renames and removals that `follow` takes: some 300 bytes of memory each.
STEPS_MAX = 5_000_000
# Odd numbers below 2^63 (golden ratio; Steele and others' SplitMix): a new number for the next file of a name.
MIX, STEP = 0x1E3779B97F4A7C15, 0x3F58476D1CE4E5B9
FOREVER = (1 << 63) - 1


def steps(events, imported):
    """What changes the meaning of a name in the traces with these numbers, whose names are identities."""
    change = events.call.isin([contract.CREATE, contract.RENAME, contract.UNLINK]) & (events.result == 0)
    kept = events.filter(change & (events.file == events.path) & events.trace.isin(imported))
    return kept.select("t", "call", "path", "path2").order_by("t", "call", "path", "path2")


def follow(rows):
    """Spans of time (after, until] in which a path means another file than its hash, from rows of `steps`."""
    current, ended, generation, spans = {}, {}, {}, []

    def identity(path):
        return current.get(path, (path, None))[0]

    def close(path, t):
        file, since = current.pop(path, (path, None))
        if since is not None:
            spans.append({"path": path, "after": since, "until": t, "renamed": file})
        ended[path] = t

    for row in rows:
        path, t = row["path"], row["t"]
        if row["call"] == contract.CREATE:
            if path in ended:
                generation[path] = generation.get(path, 0) + 1
                fresh = (path * MIX + generation[path] * STEP) & FOREVER
                current[path] = (fresh, ended.pop(path))
        elif row["call"] == contract.UNLINK:
            close(path, t)
        elif row["path2"] is not None and row["path2"] != path:
            file, target = identity(path), row["path2"]
            close(path, t)
            if target in current:
                close(target, t)
            ended.pop(target, None)
            current[target] = (file, t)
    for path, (file, since) in current.items():
        if since is not None:
            spans.append({"path": path, "after": since, "until": FOREVER, "renamed": file})
    return spans


def renamed(events, spans):
    """The events, each with the file that its name meant then."""
    spans = spans.select(span_path=spans.path, span_after=spans.after, span_until=spans.until, renamed=spans.renamed)
    within = [events.file == spans.span_path, events.t > spans.span_after, events.t <= spans.span_until]
    joined = events.left_join(spans, within)
    return joined.mutate(file=ibis.coalesce(joined.renamed, joined.file)).select(*events.columns)
