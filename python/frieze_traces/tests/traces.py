"""Makes traces: by hand, event by event, and a random one in the manner of HBase."""

import json
import pathlib
import random

import pyarrow
import pyarrow.parquet

from .. import contract

NUMBER = {word: number for number, word in contract.CALLS.items()}
SECOND, MINUTE, HOUR = 10**9, 60 * 10**9, 3600 * 10**9
BEGIN = 1_700_000_000 * SECOND
SCHEMA = pyarrow.schema([(name, kind) for name, (kind, _) in contract.EVENTS.items()])
PATHS = pyarrow.schema([(name, kind) for name, (kind, _) in contract.PATHS.items()])


def event(t, call, **given):
    """One event, `t` ns after the beginning, of a file by inode."""
    row = {name: None for name in contract.EVENTS}
    row |= {"t_ns": BEGIN + t, "dur_ns": 1000, "call": NUMBER[call], "gateway": 2, "flags": 0, "result": 0, "count": 1}
    row |= {"asked": given.get("got"), "actor": 1}
    if given.get("got") is not None:
        row["offset"] = 0
    return row | given


def write(folder, events, paths=(), source="ring", ordered=True, lost=None, **manifest):
    """A trace of these events; `paths` are (path, parent, kind, family)."""
    folder = pathlib.Path(folder)
    if ordered:
        events = sorted(events, key=lambda row: row["t_ns"])
    hour = folder / "events" / "hour=2023-11-14T22"
    hour.mkdir(parents=True)
    if events:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(events, SCHEMA), hour / "part-0.parquet")
    rows = [
        {"path": p, "parent": parent, "kind": kind, "family": family, "extension": None}
        for p, parent, kind, family in paths
    ]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, PATHS), folder / "paths.parquet")
    starts = [row["t_ns"] for row in events]
    made = {
        "format": contract.FORMAT,
        "version": 1,
        "made_by": "test",
        "source": source,
        "programs": [],
        "key": None,
        "begin_ns": min(starts, default=0),
        "end_ns": max(starts, default=0),
        "events": len(events),
        "lost": {"overwritten": 0, "torn": 0, "unknown": 0, "spans": []} | (lost or {}),
        "calls": {str(n): word for n, word in contract.CALLS.items()},
        "gateways": {str(n): word for n, word in contract.GATEWAYS.items()},
        "flags": {},
        "purposes": {},
        "reasons": {"2": "NotFound"},
        "absent": [],
        "notes": [],
    }
    (folder / "manifest.json").write_text(json.dumps(made | manifest))
    return folder


def database(count, seed=1, purposes=False):
    """(events, paths, {purpose: inodes written}) as of HBase: gets, a log, flushes, compactions, an archive."""
    draw = random.Random(seed)
    made = {"flush": [], "compaction": []}
    events, paths, files = [], [(9, None, "other", None)], []
    families = ["Actions", "MessageMeta", "Keywords", "PrefetchMeta"]
    for number, family in enumerate(families):
        paths.append((20 + number, 9, "other", family))
    t, inode, log, log_size, path = 0, 1000, None, 0, 100
    known = {"read": 1, "log": 2, "flush": 3, "compaction": 4} if purposes else {}

    def add(call, **given):
        events.append(event(t + draw.randrange(1000), call, dur_ns=int(draw.lognormvariate(12, 1.5)), **given))

    def make(family, size, purpose, stream, inputs=()):
        nonlocal inode, path, t
        inode, path = inode + 1, path + 3
        paths.append((path, 8, "temporary", None))
        paths.append((path + 1, 20 + family, "hfile", families[family]))
        paths.append((path + 2, 7, "archive", None))
        made[purpose].append(inode)
        add("create", inode=inode, path=path, stream=stream)
        for number, (file, _, length, _) in enumerate(inputs):
            for offset in range(0, length, 1 << 17):
                t += 1_000_000
                add(
                    "read",
                    inode=file,
                    stream=20_000_000 + 10 * stream + number,
                    offset=offset,
                    got=min(1 << 17, length - offset),
                    flags=8 if offset else 0,
                    purpose=known.get("compaction"),
                )
        for offset in range(0, size, 1 << 18):
            t += 20_000_000
            add(
                "write",
                inode=inode,
                stream=stream,
                offset=offset,
                got=min(1 << 18, size - offset),
                flags=8 if offset else 0,
                purpose=known.get(purpose),
            )
        t += 5_000_000
        add("close", inode=inode, stream=stream)
        t += 5_000_000
        add("rename", inode=inode, path=path, path2=path + 1)
        files.append((inode, family, size, path))

    stream = 0
    while len(events) < count:
        t += draw.randrange(2_000_000, 40_000_000)
        chance = draw.random()
        if chance < 0.6 and files:
            file, _, size, _ = files[min(int(draw.paretovariate(0.7)) - 1, len(files) - 1)]
            block = min(int(draw.paretovariate(0.6)) - 1, size // 50_000) * 50_000
            length = min(draw.randrange(30_000, 60_000), size - block)
            if length > 0:
                add("read", inode=file, stream=file, offset=block, got=length, purpose=known.get("read"))
        elif chance < 0.97:
            if log is None or log_size > 40_000_000:
                inode, path = inode + 1, path + 3
                log, log_size = inode, 0
                paths.append((path, 6, "log", None))
                add("create", inode=log, path=path, stream=log)
            size = draw.randrange(200, 4000)
            add("append", inode=log, stream=log, offset=log_size, got=size, flags=8, purpose=known.get("log"))
            log_size += size
        elif chance < 0.995:
            stream += 1
            make(draw.randrange(4), draw.randrange(1 << 16, 6 << 20), "flush", 10_000_000 + stream)
        else:
            family = draw.randrange(4)
            inputs = [file for file in files if file[1] == family][-4:]
            if len(inputs) < 2:
                continue
            stream += 1
            make(family, sum(size for _, _, size, _ in inputs) * 9 // 10, "compaction", 10_000_000 + stream, inputs)
            t += SECOND
            for file in inputs:
                files.remove(file)
                add("rename", inode=file[0], path=file[3] + 1, path2=file[3] + 2)
                t += 30 * SECOND
                add("unlink", inode=file[0], path=file[3] + 2)
                t -= 29 * SECOND
    return events, paths, made
