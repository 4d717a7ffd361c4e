#!/usr/bin/env python3
"""How a server's memory for records is best divided: simulates the traces in these directories, prints the tables of
ADR 72, and draws docs/pictures/memory-splits.svg.

    bench/memory/splits.py TRACE ...
    bench/memory/splits.py --figures FILE      the numbers of an earlier run (out/memory-splits.csv)

Traces are made by `frieze load messages`, `frieze trace save` and `frieze trace import`; `bench/memory/loads.py` makes
those of the ADR. Needs cargo, and Python without packages.
"""

import argparse
import csv
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
COLUMNS = "trace sweep bytes part young small first longest asked young_hits hits device".split()
POINTS_MAX = 3.0
# Colours that differ for the colour-blind (Okabe and Ito).
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#8c564b"]


def measured(traces, out):
    """The rows of the simulation of these traces, also written to `out`."""
    run = ["cargo", "run", "--quiet", "--release", "-p", "frieze-whatif", "--example", "splits", "--", *traces]
    text = subprocess.run(run, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    out.parent.mkdir(exist_ok=True)
    out.write_text(text)
    return text


def rows(text):
    """Each line as a dictionary of numbers; what is empty is None."""
    found = []
    for line in csv.reader(text.splitlines()):
        row = dict(zip(COLUMNS, line))
        for name in COLUMNS[2:]:
            row[name] = float(row[name]) if row[name] else None
        found.append(row)
    return found


def regrets(found, sweep, setting, where=lambda row: True):
    """{setting: {(trace, part): points below the best setting}}."""
    table = {}
    cases = {}
    for row in found:
        if row["sweep"] == sweep and where(row) and row["hits"] is not None:
            cases.setdefault((row["trace"], row["part"]), {})[setting(row)] = 100 * row["hits"]
    for case, by_setting in cases.items():
        best = max(by_setting.values())
        for value, hits in by_setting.items():
            table.setdefault(value, {})[case] = best - hits
    return table


def worst(table):
    """[(setting, largest regret, mean regret, its case)], by setting."""
    lines = []
    for value in sorted(table):
        case = max(table[value], key=table[value].get)
        mean = sum(table[value].values()) / len(table[value])
        lines.append((value, table[value][case], mean, case))
    return lines


def printed(title, lines, name):
    """A table of worst and mean regrets in Markdown."""
    print(f"\n**{title}**\n\n| {name} | most points below the best | on | mean |\n|---|---|---|---|")
    least = min(lines, key=lambda line: line[1])[1]
    for value, most, mean, (trace, part) in lines:
        mark = "**" if most == least else ""
        print(f"| {mark}{value}{mark} | {most:.1f} | {trace}, {part:.0%} | {mean:.1f} |")


def curves(found):
    """Hits by split, of each trace and size: the table under the picture."""
    traces = sorted({row["trace"] for row in found})
    parts = sorted({row["part"] for row in found})
    shown = [0.0, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9, 1.0]
    print("\n**Hits in %, by the young part**\n")
    print("| trace, memory | best | " + " | ".join(f"{share:.0%}" for share in shown) + " |")
    print("|---" * (len(shown) + 2) + "|")
    for trace in traces:
        for part in parts:
            by_share = {
                round(row["young"], 2): 100 * row["hits"]
                for row in found
                if (row["sweep"], row["trace"], row["part"]) == ("young", trace, part) and row["hits"] is not None
            }
            if by_share:
                best = max(by_share, key=by_share.get)
                values = " | ".join(f"{by_share[s]:.0f}" for s in shown)
                print(f"| {trace}, {part:.0%} | {by_share[best]:.1f} at {best:.0%} | {values} |")


def picture(found, chosen):
    """Small multiples: hits by split, one picture a size of memory, one line a trace."""
    traces = sorted({row["trace"] for row in found})
    parts = sorted({row["part"] for row in found})
    width, height, left, top, gap = 210, 190, 44, 44, 22
    full = left + len(parts) * (width + gap)
    low = top + height
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {full} {low + 92}" font-family="sans-serif" '
        'font-size="12" role="img" aria-label="Hits by the part of the memory that young records have">',
        "<style>text{fill:#333}.grid{stroke:#bbb;stroke-width:.5}.chosen{stroke:#333;stroke-dasharray:3 3}"
        "@media(prefers-color-scheme:dark){text{fill:#ddd}.grid{stroke:#555}.chosen{stroke:#ddd}}</style>",
        f'<text x="{left}" y="16" font-weight="bold">Reads found in memory, by the part that young records have</text>',
    ]
    for number, part in enumerate(parts):
        x0 = left + number * (width + gap)
        lines.append(f'<text x="{x0}" y="{top - 10}">memory {part:.0%} of the data</text>')
        for percent in range(0, 101, 25):
            y = low - height * percent / 100
            lines.append(f'<line class="grid" x1="{x0}" x2="{x0 + width}" y1="{y:.1f}" y2="{y:.1f}"/>')
            if number == 0:
                lines.append(f'<text x="{x0 - 6}" y="{y + 4:.1f}" text-anchor="end">{percent} %</text>')
            x = x0 + width * percent / 100
            if percent % 50 == 0:
                anchor = {0: "start", 50: "middle", 100: "end"}[percent]
                lines.append(f'<text x="{x:.1f}" y="{low + 16}" text-anchor="{anchor}">{percent} %</text>')
        x = x0 + width * chosen
        lines.append(f'<line class="chosen" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{low}"/>')
        for trace, colour in zip(traces, COLOURS):
            points = [
                f'{x0 + width * row["young"]:.1f},{low - height * max(row["hits"], 0):.1f}'
                for row in found
                if (row["sweep"], row["trace"], row["part"]) == ("young", trace, part) and row["hits"] is not None
            ]
            lines.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{" ".join(points)}"/>')
    step = (full - left) / len(traces)
    for number, (trace, colour) in enumerate(zip(traces, COLOURS)):
        x, y = left + number * step, low + 44
        lines.append(f'<line x1="{x:.0f}" x2="{x + 18:.0f}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="3"/>')
        lines.append(f'<text x="{x + 23:.0f}" y="{y + 4}">{trace}</text>')
    lines.append(f'<text x="{left}" y="{low + 74}">dashed: the default, {chosen:.0%}</text>')
    return "\n".join([*lines, "</svg>", ""])


def main():
    """Prints the tables and draws the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="*")
    parser.add_argument("--figures", type=pathlib.Path)
    parser.add_argument("--default", type=float, default=0.7, help="the part that is marked (default 0.7)")
    options = parser.parse_args()
    if not options.traces and options.figures is None:
        parser.error("name directories of traces, or --figures FILE")
    absolute = [str(pathlib.Path(trace).resolve()) for trace in options.traces]
    text = options.figures.read_text() if options.figures else measured(absolute, ROOT / "out" / "memory-splits.csv")
    found = rows(text)
    splits = worst(regrets(found, "young", lambda row: round(row["young"], 2)))
    curves(found)
    printed("Young part", splits, "young part")
    for young in sorted({row["young"] for row in found if row["sweep"] == "small"}):
        of = regrets(found, "small", lambda row: row["small"], lambda row, young=young: row["young"] == young)
        printed(f"Small queue, young part {young:.0%}", worst(of), "small queue")
    ahead(found, options.default)
    least = min(splits, key=lambda line: line[1])
    verdict = "within" if least[1] <= POINTS_MAX else "not within"
    print(f"\nLeast regret: {least[0]:.0%} young, {least[1]:.1f} points, {verdict} {POINTS_MAX:.0f} of the best")
    drawn = ROOT / "docs" / "pictures" / "memory-splits.svg"
    drawn.write_text(picture(found, options.default))
    return 0


def ahead(found, young):
    """Read-ahead: what it saves readers from waiting for, and what it reads more than they asked for."""
    near = min({row["young"] for row in found if row["sweep"] == "ahead"}, key=lambda share: abs(share - young))
    print(f"\n**Read-ahead, young part {near:.0%}**: waited for / read from the device, in % of bytes asked for\n")
    kinds = [(131072.0, limit) for limit in [0, 131072, 524288, 1 << 20, 4 << 20, 16 << 20]]
    kinds += [(32768.0, 4 << 20), (524288.0, 4 << 20)]
    # The limit of a quarter of the small queue may make two of them one.
    print("| trace, memory | " + " | ".join(f"{int(f) >> 10} KiB to {int(m) >> 10} KiB" for f, m in kinds) + " |")
    print("|---" * (len(kinds) + 1) + "|")
    cases = {}
    for row in found:
        if row["sweep"] == "ahead" and row["young"] == near and row["hits"] is not None:
            cases.setdefault((row["trace"], row["part"], row["bytes"]), []).append(row)
    for (trace, part, size), of in sorted(cases.items()):
        old = size - int(size * near)
        cells = []
        for first, limit in kinds:
            row = next(r for r in of if r["first"] == first and r["longest"] == min(limit, old // 40))
            cells.append(f"{100 - 100 * row['hits']:.1f} / {100 * row['device']:.0f}")
        print(f"| {trace}, {part:.0%} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    sys.exit(main())
