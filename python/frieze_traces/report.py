"""Makes of the stages' tables what people read: report.html, tables as CSV and Parquet, pictures as SVG, one JSON."""

import csv
import html
import json
import pathlib
import re

import pyarrow
import pyarrow.parquet
import vl_convert

from . import VERSION, contract
from .figures import Tables, columns, duration, grouped, kinds, layers, look, reads, time

FIGURES = [
    layers.io_layers,
    layers.data_layers,
    kinds.types,
    kinds.sizes,
    kinds.lifetimes,
    kinds.carpet,
    kinds.small,
    reads.locality,
    reads.heat,
    reads.sequence,
    time.rates,
    time.latency,
]
# A table in the page has at most so many rows; the files have all.
ROWS_IN_PAGE = 40


def tables_of(traces, facts, stages, replicas, stored):
    """The columns that figures are made of."""
    words = {"calls": dict(contract.CALLS), "gateways": dict(contract.GATEWAYS)}
    for trace in traces:
        for name, known in words.items():
            known.update({int(number): str(word) for number, word in trace.manifest[name].items()})
    loaded = {
        name: columns(stages.rows(name))
        for name in ["io", "files", "data", "nearby", "seconds", "durations", "streams", "labels"]
    }
    return Tables(
        facts=facts, manifests=[trace.manifest for trace in traces], replicas=replicas, stored=stored, **words, **loaded
    )


def figures(tables):
    """All figures, in the order of the report."""
    return [make(tables) for make in FIGURES]


def summary(traces, facts):
    """What is said of the traces themselves."""
    rows = []
    for trace in traces:
        lost = trace.manifest["lost"]
        rows.append(
            {
                "trace": str(trace.folder),
                "source": trace.manifest["source"],
                "made by": trace.manifest.get("made_by") or "",
                "events": trace.manifest["events"],
                "lost": sum(int(lost.get(name) or 0) for name in ["overwritten", "torn", "unknown"]),
                "not known to it": ", ".join(trace.manifest.get("absent") or []),
            }
        )
    return rows


def assumptions(traces, facts):
    """Each oddity of the traces, how often it occurs, and what was assumed: [{what, count}]."""
    found = []

    def note(count, what):
        if count:
            found.append({"what": what, "count": int(count)})

    note(
        facts["backwards"],
        "events start before the one in front of them (a clock set back, or an unsorted file): sorted",
    )
    note(facts.get("duplicates"), "events are there twice, equal in every column: left out")
    note(facts.get("negative"), "events have a negative duration, offset or length: that number is left out")
    note(facts.get("device"), "events are a server's own work on its devices, not calls: left out")
    note(facts.get("failed"), "calls failed: counted as calls, moving no bytes")
    note(facts.get("past"), "calls look at the past: counted as reads of the same files")
    note(facts.get("without_file"), "reads and writes name no file: counted as I/O only")
    note(facts.get("without_offset"), "reads and writes have no offset: not in figures 3, 4, 7 and 8")
    note(facts.get("unknown_calls"), "events are calls that this version does not know: shown by their number")
    note(facts.get("renamed"), "names mean another file after a rename or removal: followed")
    note(facts.get("steps_left_out"), "renames are too many to follow: a file has another identity after each")
    if facts.get("purposes") == "rules":
        note(facts["data_events"], "reads and writes have a purpose by the rules for HBase, not by their source")
    for trace in traces:
        begin, end = trace.manifest.get("begin_ns"), trace.manifest.get("end_ns")
        if facts["events"] and isinstance(begin, int) and isinstance(end, int) and len(traces) == 1:
            if facts["first_ns"] < begin or facts["last_ns"] > max(end, begin):
                note(
                    1,
                    f"{trace.folder}: events lie outside of the manifest's begin and end: a clock step, or files "
                    "of another trace",
                )
        lost = trace.manifest["lost"]
        note(lost.get("overwritten"), f"{trace.folder}: events were overwritten before they were saved")
        note(lost.get("torn"), f"{trace.folder}: events were being written when their program ended: left out")
        note(lost.get("unknown"), f"{trace.folder}: events of a newer version: left out")
        for text in trace.notes:
            note(1, text)
        for entry in trace.manifest.get("notes") or []:
            if isinstance(entry, dict):
                note(entry.get("count") or 1, f"{trace.folder}: {entry.get('what')}")
    return found


def document(traces, facts, made):
    """Everything as one JSON document."""
    events = facts["events"]
    return {
        "version": 1,
        "made_by": f"frieze-traces {VERSION}",
        "traces": summary(traces, facts),
        "events": events,
        "begin_ns": facts["first_ns"],
        "end_ns": facts["last_ns"],
        "purposes": facts.get("purposes"),
        "sampled": facts.get("sampled"),
        "assumptions": assumptions(traces, facts),
        "figures": {
            f.name: {"title": f.title, "paper": f.paper, "words": f.words, "missing": f.missing, "rows": f.rows}
            for f in made
        },
    }


def write(out, traces, facts, made, engine):
    """Writes OUT/report.html, report.json, and for each figure NAME.svg, NAME.csv and NAME.parquet."""
    out = pathlib.Path(out)
    for figure in made:
        for name, rows in figure.rows.items():
            if not rows:
                continue
            file = out / (figure.name if len(figure.rows) == 1 or name == figure.name else f"{figure.name}-{name}")
            with open(f"{file}.csv", "w", newline="") as lines:
                writer = csv.DictWriter(lines, fieldnames=list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), f"{file}.parquet")
        if figure.chart is not None:
            spec = look.config(figure.chart).to_json()
            (out / f"{figure.name}.svg").write_text(vl_convert.vegalite_to_svg(spec))
    (out / "report.json").write_text(json.dumps(document(traces, facts, made)))
    (out / "report.html").write_text(page(traces, facts, made, engine))
    return out / "report.html"


def page(traces, facts, made, engine):
    """The report: one file, which needs nothing else."""
    specs, sections, contents = {}, [], []
    for figure in made:
        number = f'<span class="number">figure {figure.paper}</span>' if figure.paper else ""
        parts = [f'<section id="{figure.name}"><h2>{html.escape(figure.title)} {number}</h2>']
        parts.append(f'<p class="words">{_sentence(" ".join(figure.words))}</p>')
        if figure.chart is not None:
            specs[figure.name] = [json.loads(look.config(figure.chart, dark).to_json()) for dark in (False, True)]
            parts.append(f'<div class="chart" data-figure="{figure.name}"></div>')
        for text in figure.missing:
            parts.append(f'<p class="missing">Not in this picture: {_sentence(text)}.</p>')
        for name, rows in figure.rows.items():
            parts.append(_table(name, rows, opened=figure.chart is None and bool(rows)))
        sections.append("\n".join(parts) + "</section>")
        contents.append(f'<a href="#{figure.name}">{html.escape(figure.title)}</a>')
    noted = assumptions(traces, facts)
    listed = "".join(f"<li><b>{grouped(note['count'])}</b> {html.escape(note['what'])}.</li>" for note in noted)
    empty = not facts["events"]
    about = (
        "The trace has no events: there is nothing to show. Record some calls, and save the ring again."
        if empty
        else f"{grouped(facts['events'])} events over {duration(facts['last_ns'] - facts['first_ns'])}, "
        f"from {time._clock(facts['first_ns'])} on; computed with {engine}."
    )
    template = (pathlib.Path(__file__).parent / "page.html").read_text()
    filled = {
        "ABOUT": html.escape(about),
        "TRACES": _table("traces", summary(traces, facts), opened=True),
        "CONTENTS": " ".join(contents),
        "SECTIONS": "\n".join(sections),
        "ASSUMPTIONS": f"<ul>{listed}</ul>" if listed else "<p>Nothing odd was found.</p>",
        # `</` would end the script that it is in.
        "SPECS": json.dumps(specs).replace("</", "<\\/"),
        "LIBRARY": (
            vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").replace("</script", "<\\/script")
            if specs
            else ""
        ),
    }
    for name, text in filled.items():
        template = template.replace(f"{{{{{name}}}}}", text, 1)
    return template


# A number stays on one line with its unit.
UNITS = re.compile(r"(?<=\d) (?=(?:%|[KMGTP]?B|[KMG]iB|ns|us|ms|s|min|h|days)\b|%)")


def _sentence(text):
    return html.escape(UNITS.sub("\N{NO-BREAK SPACE}", text))


def _cell(value):
    if isinstance(value, bool) or value is None:
        return "" if value is None else str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return html.escape(str(value))


def _table(name, rows, opened=False):
    if not rows:
        return ""
    heads = "".join(f"<th>{html.escape(str(head))}</th>" for head in rows[0])
    lines = []
    for row in rows[:ROWS_IN_PAGE]:
        cells = "".join(
            f'<td class="{"text" if isinstance(value, str) else "number"}">{_cell(value)}</td>'
            for value in row.values()
        )
        lines.append(f"<tr>{cells}</tr>")
    more = (
        f'<p class="missing">{len(rows) - ROWS_IN_PAGE} more rows are in the CSV.</p>'
        if len(rows) > ROWS_IN_PAGE
        else ""
    )
    return (
        f"<details{' open' if opened else ''}><summary>{html.escape(name)}, {len(rows)} "
        f"{'row' if len(rows) == 1 else 'rows'}</summary>"
        f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
        f"{more}</details>"
    )
