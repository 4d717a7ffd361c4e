"""How pictures look: colours that hold on light and on dark paper, and the shapes that several figures share."""

import altair

# Reading is cold, writing warm, both in between; grey is what nothing touches.
READ, WRITTEN, BOTH, UNTOUCHED = "#3b82c4", "#e07b39", "#8e6bb0", "#8a9099"
COLOURS = {"read": READ, "written": WRITTEN, "both": BOTH, "untouched": UNTOUCHED, "other": UNTOUCHED}
# From little to much: legible on white and on near-black.
SEQUENTIAL = ["#2f6f9f", "#2f9aa0", "#57b47c", "#b5bf3f", "#eda63a", "#e2673d", "#c2334d"]
LINES = ["#3b82c4", "#2f9f8f", "#e0a030", "#c9484e"]
WIDTH = 640


def _bytes(base, units):
    """An expression of Vega that writes a number of bytes in units that are powers of `base`."""
    steps = [
        f"datum.value >= {base ** n} ? format(datum.value/{base ** n}, '~r') + ' {unit}' : "
        for n, unit in reversed(list(enumerate(units, start=1)))
    ]
    return "".join(steps) + "format(datum.value, '~r') + ' B'"


BYTES = _bytes(1000, ["KB", "MB", "GB", "TB", "PB"])
BINARY = _bytes(1024, ["KiB", "MiB", "GiB", "TiB", "PiB"])
# Seconds, in words.
SECONDS = (
    "datum.value == 0 ? '0' : "
    "datum.value >= 172800 ? format(datum.value/86400, '~r') + ' d' : "
    "datum.value >= 7200 ? format(datum.value/3600, '~r') + ' h' : "
    "datum.value >= 60 ? format(datum.value/60, '~r') + ' min' : datum.value >= 1 ? format(datum.value, '~r') + ' s' : "
    "datum.value >= 1e-3 ? format(datum.value*1e3, '~r') + ' ms' : format(datum.value*1e6, '~r') + ' us'"
)


def decades(low, high, base=10):
    """The powers of ten that a logarithmic axis from `low` to `high` is labelled at."""
    power, out = 1e-9, []
    while power <= high * 1.0001:
        if power >= low * 0.9999:
            out.append(power)
        power *= base
    return out


def even_steps(whole):
    """Some six round places from 0 to `whole` seconds, for an axis of time."""
    rounds = [
        0.001,
        0.002,
        0.005,
        0.01,
        0.02,
        0.05,
        0.1,
        0.2,
        0.5,
        1,
        2,
        5,
        10,
        20,
        30,
        60,
        120,
        300,
        600,
        900,
        1800,
        3600,
        7200,
        14400,
        28800,
        43200,
        86400,
        172800,
    ]
    step = next((r for r in rounds if whole / r <= 8), 86400 * max(1, round(whole / 86400 / 6)))
    return [step * n for n in range(int(whole / step) + 1)]


def inline(rows):
    """Rows as data of a chart."""
    return altair.Data(values=rows)


def config(chart, dark=False):
    """The chart with the look of a page that is light or dark."""
    ink, faint = ("#d7dae0", "#3a3f48") if dark else ("#24292f", "#dfe3e8")
    return (
        chart.configure(background="#16181d" if dark else "#ffffff", font="system-ui, 'DejaVu Sans', sans-serif")
        .configure_axis(
            labelColor=ink,
            titleColor=ink,
            gridColor=faint,
            domainColor=faint,
            tickColor=faint,
            labelFontSize=12,
            titleFontSize=12,
            titleFontWeight="normal",
            labelLimit=240,
            labelSeparation=5,
        )
        .configure_legend(labelColor=ink, titleColor=ink, labelFontSize=12, titleFontSize=12, titleFontWeight="normal")
        .configure_title(color=ink, fontSize=13, fontWeight="normal", anchor="start")
        .configure_header(labelColor=ink, titleColor=ink, labelFontSize=12)
        .configure_text(color=ink, fontSize=12)
        .configure_view(stroke=None)
    )


def bar_chart(rows, across, order, colour, parts, value, title=None, axis=None, select=False, width=WIDTH):
    """Horizontal bars, stacked by `colour`; a click in the legend shows one part alone."""
    picked = altair.selection_point(
        name=f"pick_{across}_{value}_{len(rows)}".replace(" ", "_"), fields=[colour], bind="legend"
    )
    scale = altair.Scale(domain=list(parts), range=[COLOURS.get(part, UNTOUCHED) for part in parts])
    chart = (
        altair.Chart(inline(rows))
        .mark_bar(cornerRadius=1)
        .encode(
            y=altair.Y(
                f"{across}:N", sort=order, title=None, axis=altair.Axis(ticks=False, domain=False, labelPadding=8)
            ),
            x=altair.X(f"{value}:Q", title=axis, stack="zero", axis=altair.Axis(labelExpr=BYTES, tickCount=5)),
            color=altair.Color(f"{colour}:N", scale=scale, title=None, legend=altair.Legend(orient="top")),
            order=altair.Order("order:Q"),
            opacity=altair.condition(picked, altair.value(1), altair.value(0.15)),
            tooltip=[f"{across}:N", f"{colour}:N", altair.Tooltip(f"{value}:Q", format=",.0f")],
        )
        .add_params(picked)
    )
    return chart.properties(width=width, height=altair.Step(30), **({"title": title} if title else {}))
