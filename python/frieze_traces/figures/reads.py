"""Figures 7 and 8: where and when reads come back."""

import altair

from ..contract import READ
from ..stages import nearby as stage
from . import Figure, duration, grouped, percent, rounded, share, size
from .look import LINES, SECONDS, SEQUENTIAL, WIDTH, inline

LINE_NAMES = {0: "same bytes", 1 << 10: "within 1 KiB", 1 << 16: "within 64 KiB", 1 << 20: "within 1 MiB"}


def locality(tables):
    """Figure 7: the share of reads that a nearby read preceded within a time."""
    near, rows, curves = tables.nearby, [], []
    total = int(near["reads"][near["distance"] == 0].sum()) if len(near["reads"]) else 0
    reads = tables.io["call"] == READ
    read_bytes = int(tables.io["bytes"][reads].sum())
    rate = share(read_bytes, tables.span_ns / 1e9)
    if not total:
        return Figure(
            "locality",
            "Locality map of reads",
            "7",
            ["No read has a known place."],
            {"locality": []},
            missing=["reads with an offset"],
        )
    undecided, nearer = 0, [0] * len(stage.THRESHOLDS_NS)
    for distance, name in LINE_NAMES.items():
        mine = near["distance"] == distance
        counted = 0
        undecided = max(undecided, share(int(near["undecided"][mine].sum()), total))
        for slot, limit in enumerate(stage.THRESHOLDS_NS):
            counted += int(near["reads"][mine & (near["slot"] == slot)].sum())
            # What lies nearer lies within this distance, too, also where the search for this distance had to end.
            below = nearer[slot] = max(counted, nearer[slot])
            rows.append(
                {
                    "distance": name,
                    "within": duration(limit),
                    "seconds": limit / 1e9,
                    "reads": below,
                    "share": share(below, total),
                }
            )
    curves = [row for row in rows if row["seconds"] <= max(4 * tables.span_ns / 1e9, 60)]

    def at(name, seconds):
        return next(row["share"] for row in rows if row["distance"] == name and row["seconds"] == seconds)

    span = tables.span_ns / 1e9
    held = max([limit / 1e9 for limit in stage.THRESHOLDS_NS if limit / 1e9 <= min(span, 1920)], default=1.0)
    cache = rate * held * (1 - at("same bytes", held))
    repeated, random = at("same bytes", held), 1 - at("within 1 KiB", 60)
    words = [
        f"{percent(repeated)} of reads repeat bytes read within {duration(held * 1e9)}"
        + (
            f"; memory that holds so long, about {size(cache)}, serves them."
            if held >= 60
            else f", {size(cache)} of reads."
        ),
        f"{percent(random)} are random: none of the bytes within 1 KiB was read in the minute before. Bringing 64 KiB "
        f"along on both sides would have served {percent(max(0, at('within 64 KiB', 60) + random - 1))} more.",
    ]
    names = list(LINE_NAMES.values())
    colour = altair.Color(
        "distance:N",
        scale=altair.Scale(domain=names, range=LINES),
        sort=names,
        title="a read before",
        legend=altair.Legend(orient="top"),
    )
    picked = altair.selection_point(fields=["distance"], bind="legend")
    # Labels at the grid of minutes, on a scale where each step is twice the one before.
    axis = altair.Axis(labelExpr=SECONDS, values=[t / 1e9 for t in stage.THRESHOLDS_NS], grid=True)
    limit = min(1.0, max(0.05, max(row["share"] for row in curves) * 1.1))
    x = altair.X("seconds:Q", scale=altair.Scale(type="log", base=2, nice=False), title="before, at most", axis=axis)
    base = altair.Chart(inline(curves)).encode(
        x=x,
        y=altair.Y(
            "share:Q",
            title="of all reads",
            scale=altair.Scale(domain=[0, limit], nice=True),
            axis=altair.Axis(format="%"),
        ),
        color=colour,
        opacity=altair.condition(picked, altair.value(1), altair.value(0.15)),
        tooltip=[
            "distance:N",
            "within:N",
            altair.Tooltip("share:Q", format=".2%"),
            altair.Tooltip("reads:Q", format=","),
        ],
    )
    last = max(row["seconds"] for row in curves)
    ends = (
        altair.Chart(inline(_apart([row for row in curves if row["seconds"] == last], limit)))
        .mark_text(align="left", dx=8, fontSize=12)
        .encode(x=x, y=altair.Y("place:Q", title="of all reads"), text="words:N", color=colour)
    )
    chart = altair.layer(base.mark_line(strokeWidth=2.5), base.mark_point(filled=True, size=45), ends).add_params(
        picked
    )
    missing = []
    if undecided > 0:
        missing.append(
            f"at most {percent(max(undecided, 0.001))} of reads are undecided and count as random: more than "
            f"{stage.LOOKBACK} other reads of their frame came between"
        )
    if tables.facts["sampled"] < 1:
        missing.append(
            f"a sample: {percent(tables.facts['sampled'])} of all regions of 64 MiB, {grouped(total)} reads; "
            f"the standard error of a share is near {percent(0.5 / max(total, 1) ** 0.5)} if regions are alike"
        )
    return Figure(
        "locality",
        "Locality map of reads",
        "7",
        words,
        {"locality": rows},
        chart.properties(width=WIDTH - 110, height=340),
        missing,
    )


def _apart(ends, limit):
    """Labels at the ends of lines, moved so far that none lies on another, nor above the picture."""
    placed, least, top = [], 0.055 * limit, limit
    for row in sorted(ends, key=lambda row: row["share"]):
        place = max(row["share"], placed[-1]["place"] + least if placed else row["share"])
        placed.append({**row, "place": place, "words": f"{row['distance']}  {percent(row['share'])}"})
    for row in reversed(placed):
        row["place"] = min(row["place"], top)
        top = row["place"] - least
    return placed


HEAT = [
    ("once", 1, 1),
    ("2 or 3", 2, 3),
    ("4 to 7", 4, 7),
    ("8 to 15", 8, 15),
    ("16 to 31", 16, 31),
    ("32 to 63", 32, 63),
    ("64 or more", 64, 64),
]


def heat(tables):
    """Figure 8: how often bytes are read, as shares of the data and of the reading."""
    data, rows = tables.data, []
    read = data["heat"] > 0
    distinct, moved = int(data["bytes"][read].sum()), int(data["read_bytes"][read].sum())
    for name, low, high in HEAT:
        mine = (data["heat"] >= low) & (data["heat"] <= high)
        bytes_of, reads = int(data["bytes"][mine].sum()), int(data["read_bytes"][mine].sum())
        rows.append(
            {
                "read": name,
                "data": bytes_of,
                "share of data": share(bytes_of, distinct),
                "reads": reads,
                "share of reads": share(reads, moved),
            }
        )
    if not distinct:
        return Figure(
            "heat", "Read heat", "8", ["No read has a known place."], {"heat": rows}, missing=["reads with an offset"]
        )
    words = [
        f"{percent(rows[0]['share of data'])} of the {size(distinct)} that are read at all are read once, and "
        f"{percent(rows[-1]['share of data'])} 64 times or more.",
        f"{percent(rows[0]['share of reads'])} of what reads move is read once: memory can not help there. "
        f"A byte that is read is read {rounded(share(moved, distinct))} times on average.",
    ]
    widest = max(max(row["share of data"], row["share of reads"]) for row in rows) * 1.22
    order = [row["read"] for row in rows]
    colour = altair.Color("read:N", scale=altair.Scale(domain=order, range=SEQUENTIAL), legend=None)

    def half(field, title, mirrored):
        scale = altair.Scale(domain=[0, widest], reverse=mirrored, nice=False)
        shown = [
            {
                "read": row["read"],
                "share": row[f"share of {field}"],
                "bytes": row[field],
                "text": percent(row[f"share of {field}"]),
            }
            for row in rows
        ]
        base = altair.Chart(inline(shown)).encode(
            y=altair.Y("read:N", sort=order, title=None, axis=None),
            x=altair.X(
                "share:Q",
                scale=scale,
                title=title,
                axis=altair.Axis(format="%", grid=False, values=[v for v in (0, 0.25, 0.5, 0.75, 1) if v <= widest]),
            ),
            tooltip=["read:N", altair.Tooltip("share:Q", format=".2%"), altair.Tooltip("bytes:Q", format=",")],
        )
        align = {"align": "right", "dx": -6} if mirrored else {"align": "left", "dx": 6}
        return altair.layer(
            base.mark_bar(cornerRadius=1).encode(color=colour), base.mark_text(**align).encode(text="text:N")
        ).properties(width=WIDTH // 2 - 50, height=altair.Step(32))

    # The words between the two halves belong to both.
    words_between = (
        altair.Chart(inline([{"read": name} for name in order]))
        .mark_text()
        .encode(y=altair.Y("read:N", sort=order, title=None, axis=None), text="read:N")
        .properties(width=84, height=altair.Step(32))
    )
    chart = altair.hconcat(
        half("data", "of the data read", True),
        words_between,
        half("reads", "of the bytes moved", False),
        spacing=4,
    )
    missing = []
    if tables.facts["without_offset"]:
        missing.append(f"{grouped(tables.facts['without_offset'])} reads and writes have no offset: they are not in it")
    return Figure("heat", "Read heat: how often is a byte read", "8", words, {"heat": rows}, chart, missing)


def sequence(tables):
    """How far calls are sequential, and what open files are read whole. A table only."""
    streams = tables.streams
    rows = []
    for name in ["read", "write"]:
        calls, follow = int(streams[f"{name}s"].sum()), int(streams[f"sequential_{name}s"].sum())
        rows.append({"calls": f"{name}s", "number": calls, "sequential": follow, "share": share(follow, calls)})
    opens = int(streams["opens"].sum())
    never = int(((streams["opened"] < 0) & (streams["stream"] > 0)).sum())
    unclosed = int(((streams["opened"] >= 0) & (streams["closed"] < 0) & (streams["stream"] > 0)).sum())
    words = [
        f"{percent(rows[0]['share'])} of reads and {percent(rows[1]['share'])} of writes begin where the one before "
        "ended.",
        f"{grouped(opens)} times a file or directory is opened or created.",
    ]
    missing = []
    if never:
        missing.append(f"{grouped(never)} open files were opened before the trace")
    if unclosed:
        missing.append(f"{grouped(unclosed)} are not closed in it")
    return Figure("sequence", "Sequential calls", "", words, {"sequence": rows}, None, missing)
