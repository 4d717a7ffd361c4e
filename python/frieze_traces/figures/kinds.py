"""Figure 4: data and I/O by type of file. Figures 5 and 6: sizes and lifetimes of files. The carpet, small files."""

import altair
import numpy

from ..contract import READ
from . import MEDIUM, NONE, SMALL, Figure, duration, grouped, kind_label, percent, rounded, share, size
from .look import BYTES, LINES, SECONDS, SEQUENTIAL, UNTOUCHED, WIDTH, bar_chart, decades, even_steps, inline

KINDS_SHOWN = 12
CLASSES = ["small (below 16 MiB)", "medium (16 to 64 MiB)", "large (64 MiB and more)"]
NOT_FILES = "sizes and lifetimes need calls that read or write at a known place"


def types(tables):
    """Figure 4: distinct data and I/O of each type of file."""
    data, io = tables.data, tables.io
    labels = numpy.array([kind_label(k, f) for k, f in zip(data["kind"], data["family"])], dtype=object)
    numbered = {int(n): kind_label(k, f) for n, k, f in zip(*(tables.labels[c] for c in ["label", "kind", "family"]))}
    io_labels = numpy.array([numbered.get(int(n), "unknown") for n in io["label"]], dtype=object)
    rows = []
    for label in sorted(set(labels) | set(io_labels[io["bytes"] > 0])):
        mine, called = labels == label, io_labels == label
        read, written = data["heat"] > 0, data["written"] > 0
        parts = {
            name: int(data["bytes"][mine & mask].sum())
            for name, mask in [("read", read & ~written), ("both", read & written), ("written", ~read & written)]
        }
        reads = int(io["bytes"][called & (io["call"] == READ)].sum())
        writes = int(io["bytes"][called].sum()) - reads
        touched = sum(parts.values())
        rows.append(
            {
                "type": label,
                **{f"data {n}": v for n, v in parts.items()},
                "data": touched,
                "I/O read": reads,
                "I/O written": writes,
                "I/O per data": share(reads + writes, touched),
            }
        )
    rows.sort(key=lambda row: -row["data"])
    total = sum(row["data"] for row in rows)
    if not total:
        return Figure(
            "types",
            "Data and I/O by type of file",
            "4",
            ["No data is touched at a known place."],
            {"types": rows},
            missing=["offsets of reads and writes"],
        )
    most = max((row for row in rows if row["data"] >= total / 1000), key=lambda row: row["I/O per data"])
    both = sum(row["data both"] for row in rows)
    words = [
        f"{size(total)} of data are touched, most of type {rows[0]['type']} "
        f"({percent(share(rows[0]['data'], total))}); "
        f"{percent(share(both, total))} is both read and written.",
        f"A byte of {most['type']} gets {rounded(most['I/O per data'])} bytes of I/O, the most of all types.",
    ]
    shown = rows[:KINDS_SHOWN]
    order = [row["type"] for row in shown]
    names = {row["type"]: f"{row['type']}  ×{rounded(row['I/O per data'])}" for row in shown}
    left = bar_chart(
        [
            {"type": row["type"], "what": what, "bytes": row[f"data {what}"], "order": number}
            for row in shown
            for number, what in enumerate(["read", "both", "written"])
        ],
        "type",
        order,
        "what",
        ["read", "both", "written"],
        "bytes",
        "Data touched",
        width=WIDTH // 2 - 60,
    )
    right = bar_chart(
        [
            {"type": names[row["type"]], "what": what, "bytes": row[f"I/O {what}"], "order": number}
            for row in shown
            for number, what in enumerate(["read", "written"])
        ],
        "type",
        [names[name] for name in order],
        "what",
        ["read", "written"],
        "bytes",
        "I/O, and times the data",
        width=WIDTH // 2 - 60,
    )
    # On a small screen they stand below each other.
    chart = altair.hconcat(left, right, spacing=24, usermeta={"stacks": True}).resolve_scale(color="independent")
    missing = ["types of files: the trace's paths are of no known kind"] if set(order) <= {"other", "unknown"} else []
    return Figure("types", "Data and I/O by type of file", "4", words, {"types": rows}, chart, missing)


def _of_files(tables):
    """Files with a size: those that calls read or wrote, or that were created. A directory may be opened, too."""
    files = tables.files
    return (files["size"] > 0) | (files["born"] != NONE)


def sizes(tables):
    """Figure 5: the distribution of sizes of each type."""
    files, mine, rows = tables.files, _of_files(tables), []
    labels = numpy.array([kind_label(k, f) for k, f in zip(files["kind"], files["family"])], dtype=object)
    for label in sorted(set(labels[mine])):
        chosen = files["size"][mine & (labels == label)]
        p10, p25, p50, p75, p90 = numpy.quantile(chosen, [0.1, 0.25, 0.5, 0.75, 0.9]).tolist()
        known = int((files["born"][mine & (labels == label)] != NONE).sum())
        rows.append(
            {
                "type": label,
                "files": len(chosen),
                "mean": float(chosen.mean()),
                "p10": p10,
                "p25": p25,
                "p50": p50,
                "p75": p75,
                "p90": p90,
                "max": int(chosen.max()),
                "size known": known,
            }
        )
    rows.sort(key=lambda row: -row["files"])
    if not rows:
        return Figure(
            "sizes", "Sizes of files", "5", ["No file is in this trace."], {"sizes": rows}, missing=[NOT_FILES]
        )
    every = files["size"][mine]
    words = [
        f"{grouped(len(every))} files; half are at most {size(float(numpy.quantile(every, 0.5)))}, "
        f"90 % at most {size(float(numpy.quantile(every, 0.9)))}.",
        f"The mean is {size(float(every.mean()))}; the largest has {size(int(every.max()))}.",
    ]
    known = int((files["born"][mine] != NONE).sum())
    missing = []
    if known < len(every):
        missing.append(
            f"{grouped(len(every) - known)} files were not created in the trace: "
            "their size is at least the largest end that a call reached (>=)"
        )
    # Types of empty files alone have no place on a logarithmic axis.
    shown = [row for row in rows if row["max"] > 0][:KINDS_SHOWN] or rows[:KINDS_SHOWN]
    scaled = [
        {
            **row,
            **{q: max(row[q], 1) for q in ["p10", "p25", "p50", "p75", "p90", "mean"]},
            "name": f"{row['type']}  (mean {size(row['mean'])})",
        }
        for row in shown
    ]
    base = altair.Chart(inline(scaled)).encode(
        y=altair.Y(
            "name:N", sort=[row["name"] for row in scaled], title=None, axis=altair.Axis(ticks=False, domain=False)
        ),
        tooltip=[
            "type:N",
            "files:Q",
            *(altair.Tooltip(f"{q}:Q", format=",.0f") for q in ["p10", "p25", "p50", "p75", "p90", "mean"]),
        ],
    )
    ends = [min(row["p10"] for row in scaled), max(row["p90"] for row in scaled)]
    axis = altair.Axis(labelExpr=BYTES, values=decades(ends[0] / 10, ends[1] * 10))
    x = {"title": None, "scale": altair.Scale(type="log"), "axis": axis}
    chart = altair.layer(
        base.mark_rule(color=UNTOUCHED, strokeWidth=1.5).encode(x=altair.X("p10:Q", **x), x2="p90:Q"),
        base.mark_bar(height=14, color="#2f9f8f", cornerRadius=2).encode(x=altair.X("p25:Q", **x), x2="p75:Q"),
        base.mark_tick(color="#ffffff", thickness=2, height=14).encode(x=altair.X("p50:Q", **x)),
        base.mark_point(color="#c9484e", filled=True, shape="diamond", size=60).encode(x=altair.X("mean:Q", **x)),
    ).properties(width=WIDTH - 120, height=altair.Step(28))
    return Figure("sizes", "Sizes of files", "5", words, {"sizes": rows}, chart, missing)


def _class_of(sizes_of_files):
    return numpy.digitize(sizes_of_files, [SMALL, MEDIUM])


def lifetimes(tables):
    """Figure 6: how long files of a size live."""
    files = tables.files
    created = _of_files(tables) & (files["born"] != NONE)
    logs = files["kind"] == "log"
    end = tables.facts["last_ns"]
    rows, curves, table = [], [], []
    for with_logs, chosen in [("without logs", created & ~logs), ("with logs", created)]:
        groups = _class_of(files["size"])
        count, data = int(chosen.sum()), int(files["size"][chosen].sum())
        for number, name in enumerate(CLASSES):
            mine = chosen & (groups == number)
            n = int(mine.sum())
            lived = files["died"][mine] - files["born"][mine]
            gone = numpy.sort(lived[files["died"][mine] != NONE])
            table.append(
                {
                    "files": with_logs,
                    "size": name,
                    "created": n,
                    "share of files": share(n, count),
                    "share of data": share(int(files["size"][mine].sum()), data),
                    "removed": len(gone),
                    "removed share": share(len(gone), n),
                    **{
                        f"removed within {duration(t)}": share(int((gone <= t).sum()), n)
                        for t in [60 * 10**9, 3600 * 10**9, 8 * 3600 * 10**9]
                    },
                }
            )
            if n:
                steps = numpy.unique(
                    numpy.concatenate([[1], numpy.geomspace(1e6, max(tables.span_ns, 10**9), 120).astype("int64")])
                )
                within = numpy.searchsorted(gone, steps, side="right") / n
                curves += [
                    {"files": with_logs, "size": name, "seconds": t / 1e9, "share": float(s)}
                    for t, s in zip(steps.tolist(), within)
                    if t >= 10**6
                ]
    rows = table
    # Logs are left out, as in the study, unless they are most of the files: a rollback journal is a file a transaction.
    leaves_logs = 2 * int((created & ~logs).sum()) >= int(created.sum())
    if not int(created.sum()):
        return Figure(
            "lifetimes",
            "Lifetimes of files",
            "6",
            ["No file was created in the trace."],
            {"lifetimes": rows},
            missing=["files that are created"],
        )
    main = table[:3] if leaves_logs else table[3:]
    words = [
        f"Of {grouped(sum(r['created'] for r in main))} files created, {percent(main[0]['share of files'])} are small, "
        f"{percent(main[1]['share of files'])} medium, {percent(main[2]['share of files'])} large; large ones hold "
        f"{percent(main[2]['share of data'])} of the data.",
        f"{percent(main[0]['removed within 60 s'])} of small files "
        f"are removed within a minute; {percent(main[2]['removed share'])} of large ones within the trace.",
    ]
    kinds_of = "without logs" if leaves_logs else "with logs"
    shown = [c for c in curves if c["files"] == kinds_of]
    seen = [name for name in CLASSES if any(c["size"] == name for c in shown)]
    chart = (
        altair.Chart(inline(shown))
        .mark_line(interpolate="step-after", strokeWidth=2.5)
        .encode(
            x=altair.X(
                "seconds:Q",
                scale=altair.Scale(type="log", nice=False),
                title="age at removal",
                axis=altair.Axis(
                    labelExpr=SECONDS, values=[1e-3, 1e-2, 0.1, 1, 10, 60, 600, 3600, 8 * 3600, 86400, 7 * 86400]
                ),
            ),
            y=altair.Y(
                "share:Q",
                scale=altair.Scale(domain=[0, 1]),
                axis=altair.Axis(format="%"),
                title="removed, share of created files",
            ),
            color=altair.Color(
                "size:N",
                scale=altair.Scale(domain=seen, range=[LINES[CLASSES.index(n)] for n in seen]),
                title=None,
                legend=altair.Legend(orient="top"),
            ),
            tooltip=["size:N", "seconds:Q", altair.Tooltip("share:Q", format=".1%")],
        )
        .properties(width=WIDTH, height=280)
    )
    missing = ["lines end below 100 % where files still exist at the end of the trace"]
    if int((created & logs).sum()) and leaves_logs:
        missing.append("logs are not in the picture; the table has both")
    del end
    return Figure("lifetimes", "Lifetimes of files", "6", words, {"lifetimes": rows}, chart, missing)


COLUMNS, ROWS = 96, 44


def carpet(tables):
    """When files are born, how old they get, how large they are: one cell for the files of one age and birth."""
    files = tables.files
    created = _of_files(tables) & (files["born"] != NONE)
    if not int(created.sum()):
        return Figure(
            "carpet",
            "File lifetimes",
            "",
            ["No file was created in the trace."],
            {"carpet": []},
            missing=["files that are created"],
        )
    begin, end = tables.facts["first_ns"], tables.facts["last_ns"]
    span = max(end - begin, 1)
    born = files["born"][created] - begin
    died = files["died"][created]
    gone = died != NONE
    age = numpy.where(gone, died - files["born"][created], 0)
    sizes_of = files["size"][created]
    low = max(1e3, float(numpy.quantile(age[gone], 0.001)) if gone.any() else 1e6)
    low = min(10 ** numpy.floor(numpy.log10(low)), span / 10)
    x = numpy.minimum(born * COLUMNS // span, COLUMNS - 1)
    height = numpy.log(numpy.maximum(age, low) / low) / numpy.log(max(span / low, 10))
    y = numpy.where(gone, numpy.minimum((height * ROWS).astype("int64"), ROWS - 1), ROWS + 1)
    cells = {}
    for at, up, bytes_of in zip(x.tolist(), y.tolist(), sizes_of.tolist()):
        cell = cells.setdefault((at, up), [0, 0])
        cell[0] += 1
        cell[1] += bytes_of
    grow = (max(span / low, 10)) ** (1 / ROWS)
    rows = []
    hours = span / COLUMNS / 1e9
    for (at, up), (count, bytes_of) in sorted(cells.items()):
        remains = up > ROWS
        top = max(span / 1e9 * 1.25, 1e-9)
        rows.append(
            {
                "born from": at * hours,
                "born to": (at + 1) * hours,
                "age from": top if remains else low * grow**up / 1e9,
                "age to": top * 1.35 if remains else low * grow ** (up + 1) / 1e9,
                "files": count,
                "bytes": bytes_of,
                "mean": bytes_of / count,
                "state": "still there" if remains else "removed",
            }
        )
    alive = int((~gone).sum())
    still = int(sizes_of[~gone].sum())
    words = []
    if gone.any():
        half = float(numpy.quantile(age[gone], 0.5))
        words.append(
            f"Half of the {grouped(int(gone.sum()))} removed files lived at most {duration(half)}; "
            f"{percent(share(int((age[gone] < 60e9).sum()), int(gone.sum())))} of them less than a minute."
        )
    else:
        words.append("No file that was created in the trace was removed in it.")
    words.append(
        f"{percent(share(alive, len(born)))} of the created files, with {percent(share(still, int(sizes_of.sum())))} "
        "of their bytes, exist at the end."
    )
    thresholds = [4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 1 << 30]
    names = ["below 4 KiB", "64 KiB", "1 MiB", "16 MiB", "64 MiB", "1 GiB", "more"]
    for row in rows:
        row["size"] = names[int(numpy.digitize(row["mean"], thresholds))]
    used = [name for name in names if any(row["size"] == name for row in rows)]
    ticks = [
        t
        for t in [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10, 60, 600, 3600, 8 * 3600, 86400, 7 * 86400]
        if low / 1e9 <= t <= span / 1e9
    ]
    most = max(row["files"] for row in rows)
    cells_chart = (
        altair.Chart(inline(rows))
        .mark_rect(strokeWidth=0)
        .encode(
            x=altair.X(
                "born from:Q",
                title="birth, time into the trace",
                axis=altair.Axis(labelExpr=SECONDS, values=even_steps(span / 1e9), grid=False),
                scale=altair.Scale(domain=[0, span / 1e9], nice=False),
            ),
            x2="born to:Q",
            y=altair.Y(
                "age from:Q",
                title="age at removal",
                scale=altair.Scale(type="log", nice=False),
                axis=altair.Axis(values=ticks, labelExpr=SECONDS),
            ),
            y2="age to:Q",
            color=altair.Color(
                "size:N",
                title="mean size, below",
                sort=names,
                scale=altair.Scale(domain=used, range=[SEQUENTIAL[names.index(name)] for name in used]),
                legend=altair.Legend(orient="top", symbolType="square"),
            ),
            opacity=altair.Opacity(
                "files:Q", scale=altair.Scale(type="log", domain=[1, max(most, 2)], range=[0.6, 1]), legend=None
            ),
            tooltip=[
                "files:Q",
                altair.Tooltip("mean:Q", format=",.0f"),
                altair.Tooltip("bytes:Q", format=",.0f"),
                "state:N",
                altair.Tooltip("age from:Q", format=".3~g"),
                altair.Tooltip("born from:Q", format=".4~g"),
            ],
        )
    )
    # Above the line no file can lie: it would have been removed after the end of the trace.
    edge = [{"x": f * span / 1e9, "y": max((1 - f) * span, low) / 1e9} for f in [i / 200 for i in range(201)]]
    line = (
        altair.Chart(inline(edge)).mark_line(color=UNTOUCHED, strokeDash=[3, 3], strokeWidth=1).encode(x="x:Q", y="y:Q")
    )
    text = (
        altair.Chart(inline([{"x": span / 1e9 * 0.005, "y": span / 1e9 * 1.8, "text": "exist at the end"}]))
        .mark_text(align="left", baseline="bottom", dy=-2)
        .encode(x="x:Q", y="y:Q", text="text:N")
    )
    chart = altair.layer(cells_chart, line, text).properties(width=WIDTH, height=380)
    before = int((_of_files(tables) & (files["born"] == NONE)).sum())
    missing = [f"{grouped(before)} files existed before the trace: their birth is not known"] if before else []
    return Figure("carpet", "File lifetimes", "", words, {"carpet": rows}, chart, missing)


def small(tables):
    """Small files and metadata: what they are of files, of data, and of calls."""
    files, mine, io = tables.files, _of_files(tables), tables.io
    bounds = [0, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 1 << 30, 1 << 62]
    names = [
        "below 4 KiB",
        "4 to 64 KiB",
        "64 KiB to 1 MiB",
        "1 to 16 MiB",
        "16 to 64 MiB",
        "64 MiB to 1 GiB",
        "1 GiB and more",
    ]
    count, data = int(mine.sum()), int(files["size"][mine].sum())
    rows = []
    for low, high, name in zip(bounds, bounds[1:], names):
        chosen = mine & (files["size"] >= low) & (files["size"] < high)
        moved = int(files["read_bytes"][chosen].sum() + files["written_bytes"][chosen].sum())
        rows.append(
            {
                "size": name,
                "files": int(chosen.sum()),
                "share of files": share(int(chosen.sum()), count),
                "share of data": share(int(files["size"][chosen].sum()), data),
                "I/O bytes": moved,
            }
        )
    calls = {}
    for number, n in zip(io["call"].tolist(), io["calls"].tolist()):
        calls[tables.calls.get(number, str(number))] = calls.get(tables.calls.get(number, str(number)), 0) + n
    every = sum(calls.values())
    moving = sum(calls.get(name, 0) for name in ["read", "write", "append"])
    metadata = [
        {"call": name, "calls": n, "share": share(n, every)}
        for name, n in sorted(calls.items(), key=lambda c: (-c[1], c[0]))
    ]
    below = sum(row["share of files"] for row in rows[:3])
    words = [
        f"{percent(below)} of the files are smaller than 1 MiB and hold "
        f"{percent(sum(r['share of data'] for r in rows[:3]))} "
        "of the data.",
        f"{percent(share(every - moving, every))} of the calls move no bytes: opens, looks, renames and the like.",
    ]
    shown = [
        {"size": row["size"], "what": what, "share": row[what]}
        for row in rows
        for what in ["share of files", "share of data"]
    ]
    chart = (
        altair.Chart(inline(shown))
        .mark_bar(cornerRadius=1)
        .encode(
            y=altair.Y("size:N", sort=names, title=None, axis=altair.Axis(ticks=False, domain=False, labelPadding=8)),
            yOffset=altair.YOffset("what:N", sort=["share of files", "share of data"]),
            x=altair.X("share:Q", axis=altair.Axis(format="%"), title=None),
            color=altair.Color(
                "what:N",
                scale=altair.Scale(domain=["share of files", "share of data"], range=["#3b82c4", "#e0a030"]),
                title=None,
                legend=altair.Legend(orient="top"),
            ),
            tooltip=["size:N", "what:N", altair.Tooltip("share:Q", format=".2%")],
        )
        .properties(width=WIDTH - 40, height=altair.Step(12))
        if count
        else None
    )
    return Figure(
        "small",
        "Small files and metadata",
        "",
        words,
        {"sizes": rows, "calls": metadata},
        chart,
        [] if count else [NOT_FILES],
    )
