"""The command: `python -m frieze_traces TRACE... --out OUT`."""

import argparse
import json
import pathlib
import sys

from . import VERSION, contract, engine, pipeline, report


def parser():
    """The options of the command."""
    options = argparse.ArgumentParser(
        prog="frieze analyze", description="What a trace says of a load: pictures, tables and words."
    )
    options.add_argument("traces", nargs="+", metavar="TRACE", help="directory of a trace")
    options.add_argument(
        "--out", required=True, type=pathlib.Path, help="directory of the report; stages of an earlier run are used"
    )
    options.add_argument("--engine", choices=["duckdb", "spark"], default="duckdb")
    options.add_argument("--json", action="store_true", help="print one JSON document instead of lines")
    options.add_argument("--partial", action="store_true", help="leave out files that are not whole, and say so")
    options.add_argument("--quiet", action="store_true", help="no words about the stages on standard error")
    options.add_argument(
        "--memory", default=engine.MEMORY_DEFAULT, help="of the engine; beyond it work spills into OUT"
    )
    options.add_argument(
        "--replicas", type=int, default=3, help="copies of each file below the calls (figures 2 and 3)"
    )
    options.add_argument(
        "--stored", type=int, help="bytes that the disks hold, for the part that is never touched (figure 3)"
    )
    options.add_argument("--page", type=int, default=1, help="count data in pages of so many bytes, a power of two")
    options.add_argument("--version", action="version", version=f"frieze-traces {VERSION}")
    return options


def main(words=None):
    """Runs the command; returns its exit status: 0, or 2 for a trace that cannot be analysed."""
    options = parser().parse_args(words)
    for name, low, high in [("replicas", 1, 100), ("stored", 0, 1 << 62), ("page", 1, 1 << 30)]:
        value = getattr(options, name)
        if value is not None and not low <= value <= high:
            print(f"frieze: analyze: --{name} {value} is not from {low} to {high}", file=sys.stderr)
            return 2
    if options.page & (options.page - 1):
        print(f"frieze: analyze: --page {options.page} is not a power of two", file=sys.stderr)
        return 2
    try:
        return _run(options)
    except contract.TraceError as error:
        print(f"frieze: analyze: {error}", file=sys.stderr)
        return 2


def _run(options):
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise contract.TraceError(f"--out {options.out}: {error.strerror}") from None
    traces, facts, stages = pipeline.analyze(
        options.traces,
        options.out,
        options.engine,
        options.partial,
        options.memory,
        options.page,
        (lambda words: None) if options.quiet else None,
    )
    made = []
    if facts["events"]:
        made = report.figures(report.tables_of(traces, facts, stages, options.replicas, options.stored))
    page = report.write(options.out, traces, facts, made, options.engine)
    if options.json:
        print(json.dumps(report.document(traces, facts, made)))
        return 0
    if not facts["events"]:
        print("The trace has no events: there is nothing to analyse. Record some calls, and save the ring again.")
    for figure in made:
        print(f"{figure.title}\n  " + "\n  ".join(figure.words))
    print(f"The report: {page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
