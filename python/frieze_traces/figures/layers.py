"""Figures 2 and 3: the same load at each layer, as I/O and as data."""

from ..contract import COMPACTION, FLUSH, GET, LOG, READ
from . import Figure, percent, rounded, share, size
from .look import bar_chart

WHAT_IF = "what memory in front of the disks leaves of the reads is a simulation: frieze what-if"


def io_layers(tables):
    """Figure 2: reads and writes of the database's core, of all calls, and below replication."""
    io = tables.io
    reads, purposes = io["call"] == READ, tables.facts["purposes"]
    core = (io["purpose"] == GET) | (io["purpose"] == FLUSH)
    moved = io["bytes"]
    rows = []
    if purposes:
        rows.append(
            {"layer": "core", "read": int(moved[reads & core].sum()), "written": int(moved[~reads & core].sum())}
        )
    every = {"layer": "all calls", "read": int(moved[reads].sum()), "written": int(moved[~reads].sum())}
    copies = tables.replicas
    rows.append(every)
    local = {"layer": f"local files, {copies} copies", "read": every["read"], "written": copies * every["written"]}
    pages = int(io["page_bytes"].sum())
    disk = {"layer": "written as 4 KiB pages", "read": every["read"], "written": copies * pages}
    rows += [local, disk]
    for row in rows:
        row["written share"] = share(row["written"], row["read"] + row["written"])
    if every["read"] + every["written"] == 0:
        words = ["No bytes were read or written."]
    else:
        first = rows[0]
        words = [
            f"{size(first['read'] + first['written'])} are {'core I/O' if purposes else 'moved'}, "
            f"{percent(first['written share'])} of it written."
        ]
        words.append(
            f"Writes are {percent(every['written share'])} of all calls' bytes, and "
            f"{percent(local['written share'])} below {copies} copies."
        )
    parts = [
        {
            "purpose": name,
            "read": int(moved[reads & (io["purpose"] == number)].sum()),
            "written": int(moved[~reads & (io["purpose"] == number)].sum()),
        }
        for number, name in [
            (GET, "read"),
            (LOG, "log"),
            (FLUSH, "flush"),
            (COMPACTION, "compaction"),
            (0, "not known"),
        ]
    ]
    missing = [WHAT_IF]
    if purposes:
        flushed = parts[2]["written"]
        if flushed:
            words.append(
                f"For each byte that is flushed, {rounded(parts[1]['written'] / flushed)} go to logs and "
                f"{rounded(parts[3]['written'] / flushed)} are written by compaction."
            )
    else:
        missing.append(
            "purposes (get, log, flush, compaction): neither does the source know them, nor are there store files"
        )
    chart = bar_chart(
        [
            {"layer": row["layer"], "what": what, "bytes": row[what], "order": number}
            for row in rows
            for number, what in enumerate(["read", "written"])
        ],
        "layer",
        [row["layer"] for row in rows],
        "what",
        {"read": "read", "written": "written"},
        "bytes",
    )
    return Figure("layers-io", "I/O across layers", "2", words, {"layers": rows, "purposes": parts}, chart, missing)


def data_layers(tables):
    """Figure 3: distinct bytes that each layer touches."""
    data, copies, rows = tables.data, tables.replicas, []

    def row(layer, chosen, factor=1):
        parts = {}
        for name, mask in [
            ("read", ~touched_writes),
            ("both", touched_reads & touched_writes),
            ("written", ~touched_reads),
        ]:
            parts[name] = factor * int(data["bytes"][chosen & mask].sum())
        rows.append({"layer": layer, **parts, "untouched": 0})
        return sum(parts.values())

    # Core data first: what gets read and flushes wrote, of files that still exist.
    touched_reads, touched_writes = (data["core"] & 1) > 0, (data["core"] & 2) > 0
    core = None
    if tables.facts["purposes"]:
        core = row("core, not removed", (data["core"] > 0) & (data["gone"] == 0))
    touched_reads, touched_writes = data["heat"] > 0, data["written"] > 0
    everything = data["heat"] >= 0
    kept = row("all, not removed", (data["gone"] == 0))
    total = row("all", everything)
    local = row(f"local files, {copies} copies", everything, copies)
    missing = []
    if tables.stored is not None:
        rows[-1]["untouched"] = max(0, tables.stored - local)
    else:
        missing.append("data that is never touched: give what the disks hold with --stored BYTES")
    if core is None:
        missing.append("core data: purposes are not known in this trace")
    if total:
        words = [
            f"{size(total)} of data are touched, {percent(share(total - kept, total))} of it in files that were "
            "removed."
        ]
        if core is not None:
            words.append(
                f"Core I/O touches {size(core)} of files that still exist, {percent(share(core, kept))} of their "
                "touched data."
            )
        else:
            both = sum(r["both"] for r in rows if r["layer"] == "all")
            words.append(f"{percent(share(both, total))} of it is both read and written.")
        if tables.stored:
            words.append(f"{percent(share(rows[-1]['untouched'], tables.stored))} of what is stored is never touched.")
    else:
        words = ["No data is touched at a known place."]
    parts = {"read": "read", "both": "both", "written": "written"} | (
        {"untouched": "untouched"} if tables.stored else {}
    )
    chart = bar_chart(
        [
            {"layer": r["layer"], "what": what, "bytes": r[what], "order": number}
            for r in rows
            for number, what in enumerate(parts)
        ],
        "layer",
        [r["layer"] for r in rows],
        "what",
        parts,
        "bytes",
    )
    return Figure("layers-data", "Data across layers", "3", words, {"layers": rows}, chart, missing)
