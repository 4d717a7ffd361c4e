"""Opens traces: manifests, the list of files, their columns, and the order of their events.

Everything that is wrong with a trace is found here, before an engine reads it, so that the error names the file and
the column. With `partial`, a bad file is left out and noted instead.
"""

import dataclasses
import hashlib
import json
import pathlib

import numpy
import pyarrow
import pyarrow.parquet

from . import contract
from .contract import TraceError

# At most so many starts that occur twice are kept as candidates for duplicates; beyond, every event is one.
SHARED_STARTS_MAX = 1_000_000


@dataclasses.dataclass
class Trace:
    """A directory in the format of `contract`, its files checked."""

    number: int
    folder: pathlib.Path
    manifest: dict
    events: list
    paths: pathlib.Path | None
    # Words that go into the report.
    notes: list


@dataclasses.dataclass
class Order:
    """What the starts of a trace's events say in the order of its files."""

    rows: int = 0
    backwards: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    # Starts that more than one event has; None: too many to list, or files overlap.
    shared: list | None = dataclasses.field(default_factory=list)


def open_traces(folders, partial=False):
    """The traces in these directories, in this order.

    Raises TraceError for the first that is not whole; with `partial` leaves bad files out, and notes them.
    """
    traces = [_open(number, pathlib.Path(folder), partial) for number, folder in enumerate(folders)]
    real = {}
    for trace in traces:
        path = trace.folder.resolve()
        if path in real:
            raise TraceError(f"{trace.folder} is given twice: name each trace once")
        real[path] = trace
    return traces


def fingerprint(traces, options):
    """Changes whenever a stage's result could: files, their sizes and times, this package's code, options."""
    parts = [repr(sorted(options.items()))]
    for code in sorted(pathlib.Path(__file__).parent.rglob("*.py")):
        if "tests" not in code.parts:
            parts.append(f"{code.name} {hashlib.sha256(code.read_bytes()).hexdigest()}")
    for trace in traces:
        for path in [trace.folder / "manifest.json", *trace.events, *([trace.paths] if trace.paths else [])]:
            stat = path.stat()
            parts.append(f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]


def _open(number, folder, partial):
    manifest = _manifest(folder)
    notes = []
    files = _files(folder, manifest)
    good = []
    for file in files:
        try:
            if not file.exists():
                raise TraceError(f"{file} is missing, and the manifest names it. Copy the trace again, whole")
            _check_columns(file, contract.EVENTS)
            good.append(file)
        except TraceError as error:
            if not partial:
                raise
            notes.append(f"left out: {error}")
    if not files and manifest["events"]:
        text = f"{folder}: the manifest counts {manifest['events']} events, and events/ has no Parquet file"
        if not partial:
            raise TraceError(f"{text}. Copy the trace again, whole")
        notes.append(text)
    paths = folder / "paths.parquet"
    if paths.exists():
        try:
            _check_columns(paths, contract.PATHS)
        except TraceError as error:
            if not partial:
                raise
            notes.append(f"left out: {error}")
            paths = None
    else:
        notes.append(f'{folder} has no paths.parquet: every file is of kind "other"')
        paths = None
    if manifest.get("recording"):
        notes.append(f"{folder}: a program records into it, or was killed: what came last is not in it yet")
    if not partial and files:
        rows = sum(pyarrow.parquet.read_metadata(file).num_rows for file in files)
        if rows != manifest["events"]:
            notes.append(f"{folder}: the manifest counts {manifest['events']} events, the files have {rows}")
    return Trace(number, folder, manifest, good, paths, notes)


def _files(folder, manifest):
    """The files of events by their first one; those in the directory for a manifest without a list of them.

    A program that records adds files before its manifest names them.
    """
    parts = manifest.get("parts") or []
    if not parts:
        return sorted((folder / "events").rglob("*.parquet"))
    for part in parts:
        named = isinstance(part, dict) and isinstance(part.get("file"), str) and isinstance(part.get("begin_ns"), int)
        if not named or ".." in pathlib.PurePosixPath(part["file"]).parts or part["file"].startswith("/"):
            raise TraceError(f'{folder / "manifest.json"}: "parts" needs file, a path inside, and begin_ns in each')
    return [folder / part["file"] for part in sorted(parts, key=lambda part: part["begin_ns"])]


def _manifest(folder):
    file = folder / "manifest.json"
    if not folder.is_dir():
        raise TraceError(f"{folder}: no such directory. A trace is a directory: make one with frieze trace save")
    try:
        manifest = json.loads(file.read_text())
    except FileNotFoundError:
        raise TraceError(f"{folder} is not a trace: it has no manifest.json") from None
    except (ValueError, OSError) as error:
        raise TraceError(f"{file}: {error}. Copy the trace again, whole") from None
    if not isinstance(manifest, dict) or manifest.get("format") != contract.FORMAT:
        raise TraceError(f'{file}: its format is not "{contract.FORMAT}"')
    version = manifest.get("version")
    if not isinstance(version, int) or version < 1:
        raise TraceError(f"{file}: version {version!r} is no version of a trace")
    if version > contract.VERSION:
        text = f"{file}: version {version} is newer than {contract.VERSION}, the newest that this frieze reads"
        raise TraceError(f"{text}. Use a newer frieze")
    for name, kind in [("source", str), ("events", int), ("lost", dict)]:
        if not isinstance(manifest.get(name), kind):
            raise TraceError(f'{file}: "{name}" is missing, or not of type {kind.__name__}')
    for name in ["calls", "gateways", "reasons"]:
        words = manifest.get(name) or {}
        if not isinstance(words, dict) or not all(str(number).isdigit() for number in words):
            raise TraceError(f'{file}: "{name}" has to be a table of words by number')
        manifest[name] = words
    spans = manifest["lost"].get("spans") or []
    for span in spans:
        if not isinstance(span, dict) or not all(isinstance(span.get(name), int) for name in ["from_ns", "to_ns"]):
            raise TraceError(f'{file}: "lost.spans" needs from_ns and to_ns, numbers, in each span')
    manifest["lost"]["spans"] = spans
    return manifest


def _check_columns(file, expected):
    try:
        schema = pyarrow.parquet.read_schema(file)
    except (pyarrow.ArrowException, OSError) as error:
        reason = str(error).split("\n")[0]
        raise TraceError(
            f"{file}: not a whole Parquet file ({reason}). Copy it again, or leave it out with --partial"
        ) from None
    version = f"version {contract.VERSION} of the format"
    for name, (kind, _) in expected.items():
        index = schema.get_field_index(name)
        if index < 0:
            raise TraceError(f'{file}: column "{name}" of {version} is missing')
        found = str(schema.field(index).type).replace("large_", "")
        found = "string" if found.startswith("dictionary<values=string") else found
        if found != kind:
            raise TraceError(f'{file}: column "{name}" is {found}, and {kind} in {version}')
    foreign = [name for name in schema.names if name not in expected]
    if foreign:
        raise TraceError(f'{file}: column "{foreign[0]}" is not one of {version}')


def order_of(trace):
    """How the events lie in their files: reads the column of starts once, a row group at a time."""
    order, shared, spans = Order(), [], []
    for file in trace.events:
        try:
            parquet = pyarrow.parquet.ParquetFile(file)
            last, low, high = None, None, None
            for group in range(parquet.num_row_groups):
                column = parquet.read_row_group(group, columns=["t_ns"]).column(0)
                if column.null_count:
                    raise TraceError(f'{file}: column "t_ns" has {column.null_count} nulls, and may have none')
                starts = column.to_numpy()
                if not len(starts):
                    continue
                steps = numpy.diff(starts, prepend=starts[0] - 1 if last is None else last)
                order.backwards += int((steps < 0).sum())
                shared.append(numpy.unique(starts[steps == 0]))
                last = starts[-1]
                low = int(starts.min()) if low is None else min(low, int(starts.min()))
                high = int(starts.max()) if high is None else max(high, int(starts.max()))
                order.rows += len(starts)
        except (pyarrow.ArrowException, OSError) as error:
            reason = str(error).split("\n")[0]
            raise TraceError(f"{file}: unreadable ({reason}). Copy it again") from None
        if low is not None:
            spans.append((low, high))
    spans.sort()
    overlap = any(later[0] <= earlier[1] for earlier, later in zip(spans, spans[1:]))
    if spans:
        order.first_ns, order.last_ns = spans[0][0], max(high for _, high in spans)
    few = sum(map(len, shared)) <= SHARED_STARTS_MAX
    order.shared = sorted(set(numpy.concatenate(shared).tolist())) if shared and few and not overlap else []
    if overlap or order.backwards or not few:
        order.shared = None
    return order
