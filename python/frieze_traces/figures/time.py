"""Rates over time, bursts, and how long calls take."""

import datetime

import altair
import numpy

from ..stages import MINUTE_NS, SECOND_NS
from ..stages.time import BUCKETS_PER_OCTAVE
from . import Figure, duration, grouped, percent, rounded, share
from .look import COLOURS, LINES, SECONDS, UNTOUCHED, WIDTH, decades, inline

POINTS_MAX = 400
CALLS_SHOWN = 14


def _clock(ns):
    return datetime.datetime.fromtimestamp(ns / 1e9, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _lost(starts, unit, spans):
    """True for each unit of time from these starts on that touches a span without events."""
    lost = numpy.zeros(len(starts), dtype=bool)
    for low, high in spans:
        lost |= (starts + unit > low) & (starts <= high)
    return lost


def _series(seconds, what, begin, count, unit):
    """Calls of each unit of time, empty ones included."""
    mine = seconds["what"] == what if what else numpy.ones(len(seconds["what"]), dtype=bool)
    series = numpy.zeros(count, dtype="int64")
    numpy.add.at(series, (seconds["second"][mine] - begin) // unit, seconds["calls"][mine])
    return series


def rates(tables):
    """Calls a second over the trace, spans with losses shaded."""
    seconds, span = tables.seconds, tables.span_ns
    begin = tables.facts["first_ns"] // SECOND_NS * SECOND_NS
    whole = (tables.facts["last_ns"] - begin) // SECOND_NS + 1
    steps = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 28800, 86400]
    unit = next((s for s in steps if whole / s <= POINTS_MAX), -(-whole // POINTS_MAX)) * SECOND_NS
    count = int((tables.facts["last_ns"] - begin) // unit + 1)
    starts = begin + numpy.arange(count, dtype="int64") * unit
    lost = _lost(starts, unit, tables.spans)
    rows, shown = [], []
    # The last unit may be cut by the end of the trace: its rate is over what there is of it.
    length = numpy.minimum(starts + unit, tables.facts["last_ns"] + 1) - numpy.maximum(starts, tables.facts["first_ns"])
    length = numpy.maximum(length, SECOND_NS) / 1e9
    for what in ["read", "write", "other"]:
        per_second = _series(seconds, what, begin, count, unit) / length
        for at, rate, gap in zip(starts.tolist(), per_second.tolist(), lost.tolist()):
            rows.append({"start": _clock(at), "what": what, "calls per second": rate, "lost": int(gap)})
            shown.append({"start": at / 1e6, "what": {"write": "written"}.get(what, what), "rate": rate})
    calls = int(seconds["calls"].sum())
    covered = span - sum(
        min(h, tables.facts["last_ns"]) - max(low, tables.facts["first_ns"])
        for low, h in tables.spans
        if h > tables.facts["first_ns"] and low < tables.facts["last_ns"]
    )
    within = numpy.array([not gap for gap in _lost(seconds["second"], SECOND_NS, tables.spans)], dtype=bool)
    kept = int(seconds["calls"][within].sum()) if len(within) else 0
    mean = share(kept, max(covered, SECOND_NS) / 1e9)
    words = [
        f"{grouped(calls)} calls in {duration(span)}: {rounded(mean)} a second on average"
        + (", spans with losses left out." if tables.spans else ".")
    ]
    bursts, table = _bursts(tables, begin), []
    table = bursts
    first = bursts[0] if bursts else None
    if first and first["dispersion"] is not None:
        kind = (
            "arrive more evenly than by chance"
            if first["dispersion"] < 0.7
            else ("arrive as by chance" if first["dispersion"] < 1.5 else "come in bursts")
        )
        words.append(
            f"They {kind}: the index of dispersion is {rounded(first['dispersion'])} at 1 s"
            + (f" and {rounded(bursts[1]['dispersion'])} at 1 min" if bursts[1]["dispersion"] is not None else "")
            + " (1 is chance)."
        )
    else:
        words.append("The trace is too short to tell bursts from chance.")
    names = ["read", "written", "other"]
    clock = "%H:%M:%S" if span < 5 * MINUTE_NS else "%H:%M" if span < 30 * 60 * MINUTE_NS else "%d %b"
    area = (
        altair.Chart(inline(shown))
        .mark_area(interpolate="step-after", opacity=0.9, line=False)
        .encode(
            x=altair.X("start:T", title=None, scale=altair.Scale(type="utc"), axis=altair.Axis(format=clock)),
            y=altair.Y("rate:Q", title="calls a second", stack="zero", axis=altair.Axis(format="~s")),
            color=altair.Color(
                "what:N",
                scale=altair.Scale(domain=names, range=[COLOURS[n] for n in names]),
                title=None,
                legend=altair.Legend(orient="top"),
            ),
            tooltip=[
                "what:N",
                altair.Tooltip("start:T", format="%Y-%m-%d %H:%M:%S"),
                altair.Tooltip("rate:Q", format=",.3~r"),
            ],
        )
    )
    layers = [area]
    if tables.spans:
        gaps = [{"from": low / 1e6, "to": high / 1e6} for low, high in tables.spans]
        layers.append(
            altair.Chart(inline(gaps))
            .mark_rect(color="#c9484e", opacity=0.25)
            .encode(x=altair.X("from:T", scale=altair.Scale(type="utc")), x2="to:T")
        )
    brush = altair.selection_interval(encodings=["x"], bind="scales")
    layers[0] = layers[0].add_params(brush)
    chart = altair.layer(*layers).properties(width=WIDTH, height=220)
    missing = (
        [f"{len(tables.spans)} spans in which events were lost are shaded, and not in the rates"]
        if tables.spans
        else []
    )
    return Figure("rates", "Calls over time, and bursts", "", words, {"bursts": table, "rates": rows}, chart, missing)


def _bursts(tables, begin):
    """Index of dispersion (variance by mean) of the calls in a second and in a minute, all and by what they do."""
    rows = []
    for what in [None, "read", "write", "other"]:
        for name, unit in [("1 s", SECOND_NS), ("1 min", MINUTE_NS)]:
            # Whole units only: the last is cut by the end of the trace.
            count = int((tables.facts["last_ns"] - begin) // unit)
            series = _series(tables.seconds, what, begin, count + 1, unit)[:count]
            starts = begin + numpy.arange(count, dtype="int64") * unit
            series = series[~_lost(starts, unit, tables.spans)]
            mean = float(series.mean()) if len(series) else 0.0
            dispersion = float(series.var(ddof=1)) / mean if len(series) > 1 and mean else None
            rows.append(
                {
                    "calls": what or "all",
                    "unit": name,
                    "units": len(series),
                    "mean": mean,
                    "most": int(series.max()) if len(series) else 0,
                    "dispersion": dispersion,
                }
            )
    return rows


def latency(tables):
    """Quantiles of duration by call and gateway, and what programs wait for."""
    found = tables.durations
    if not len(found["events"]):
        return Figure(
            "latency",
            "How long calls take",
            "",
            ["The trace has no durations."],
            {"latency": []},
            missing=["durations: the source does not know them"],
        )
    groups = {}
    for call, gateway, bucket, events, dur, most in zip(
        *(found[c].tolist() for c in ["call", "gateway", "bucket", "events", "dur_ns", "max_ns"])
    ):
        groups.setdefault((call, gateway), []).append((bucket, events, dur, most))
    waited = int(found["dur_ns"].sum())
    rows = []
    for (call, gateway), buckets in groups.items():
        buckets.sort()
        counted = numpy.cumsum([events for _, events, _, _ in buckets])
        row = {
            "call": tables.calls.get(call, str(call)),
            "gateway": tables.gateways.get(gateway, str(gateway)),
            "events": int(counted[-1]),
        }
        for name, q in [("p50_ns", 0.5), ("p90_ns", 0.9), ("p99_ns", 0.99)]:
            place = int(numpy.searchsorted(counted, q * counted[-1]))
            # The middle of the bucket, and never more than the largest there is.
            row[name] = min(2 ** ((buckets[place][0] + 0.5) / BUCKETS_PER_OCTAVE), float(max(b[3] for b in buckets)))
        row["max_ns"] = max(b[3] for b in buckets)
        row["waited_ns"] = sum(b[2] for b in buckets)
        row["share of waiting"] = share(row["waited_ns"], waited)
        rows.append(row)
    rows.sort(key=lambda row: (-row["waited_ns"], row["call"], row["gateway"]))
    top = rows[0]
    words = [
        f"Programs wait {duration(waited)} for calls in all, {percent(top['share of waiting'])} of it for "
        f"{top['call']} ({top['gateway']}).",
        f"Half of these {top['call']} calls take at most {duration(top['p50_ns'])}, 99 % at most "
        f"{duration(top['p99_ns'])}.",
    ]
    gateways = sorted({row["gateway"] for row in rows})
    shown = [
        {
            **row,
            "name": f"{row['call']}  ({row['gateway']})" if len(gateways) > 1 else row["call"],
            **{q: max(row[f"{q}_ns"], 1) / 1e9 for q in ["p50", "p90", "p99", "max"]},
        }
        for row in rows[:CALLS_SHOWN]
    ]
    order = [row["name"] for row in shown]
    dots = [
        {"name": row["name"], "quantile": q, "seconds": row[q], "events": row["events"]}
        for row in shown
        for q in ["p50", "p90", "p99", "max"]
    ]
    y = altair.Y(
        "name:N", sort=order, title=None, axis=altair.Axis(ticks=False, domain=False, grid=True, labelPadding=8)
    )
    x = {
        "scale": altair.Scale(type="log"),
        "title": "duration",
        "axis": altair.Axis(
            labelExpr=SECONDS,
            values=decades(min(row["p50"] for row in shown) / 10, max(row["max"] for row in shown) * 10),
        ),
    }
    lines = altair.Chart(inline(shown)).mark_rule(color=UNTOUCHED).encode(y=y, x=altair.X("p50:Q", **x), x2="max:Q")
    points = (
        altair.Chart(inline(dots))
        .mark_point(filled=True, size=70, opacity=1)
        .encode(
            y=y,
            x=altair.X("seconds:Q", **x),
            color=altair.Color(
                "quantile:N",
                sort=["p50", "p90", "p99", "max"],
                scale=altair.Scale(domain=["p50", "p90", "p99", "max"], range=[*LINES[:3], LINES[3]]),
                title=None,
                legend=altair.Legend(orient="top"),
            ),
            tooltip=[
                "name:N",
                "quantile:N",
                altair.Tooltip("seconds:Q", format=".3~s"),
                altair.Tooltip("events:Q", format=","),
            ],
        )
    )
    waits = (
        altair.Chart(inline(shown))
        .mark_bar(color=LINES[0], cornerRadius=1)
        .encode(
            y=altair.Y("name:N", sort=order, title=None, axis=None),
            x=altair.X("share of waiting:Q", axis=altair.Axis(format="%", tickCount=3), title="of all waiting"),
            tooltip=["name:N", altair.Tooltip("share of waiting:Q", format=".2%")],
        )
    )
    chart = altair.hconcat(
        altair.layer(lines, points).properties(width=WIDTH - 240, height=altair.Step(24)),
        waits.properties(width=120, height=altair.Step(24)),
        spacing=16,
    )
    missing = (
        []
        if tables.facts["measured"] == tables.facts["events"]
        else [f"{grouped(tables.facts['events'] - tables.facts['measured'])} events have no duration"]
    )
    return Figure(
        "latency", "How long calls take, and what programs wait for", "", words, {"latency": rows}, chart, missing
    )
