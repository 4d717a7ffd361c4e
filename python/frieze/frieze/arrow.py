"""Arrow tables of names and of their history. Needs `pyarrow`, which is imported when the first table is made."""

from __future__ import annotations

import typing

from .instants import _COUNTER_BITS

if typing.TYPE_CHECKING:
    import pyarrow


def change_schema() -> pyarrow.Schema:
    """The columns of changes."""
    import pyarrow as pa

    return pa.schema(
        [
            ("instant", pa.uint64()),
            ("time", pa.timestamp("us", "UTC")),
            ("change", pa.string()),
            ("path", pa.string()),
            ("path_hex", pa.string()),
            ("path_before", pa.string()),
            ("kind", pa.string()),
            ("inode", pa.uint64()),
            ("size_before", pa.uint64()),
            ("size_after", pa.uint64()),
            ("grown", pa.int64()),
            ("bytes", pa.uint64()),
            ("what", pa.list_(pa.string())),
            ("spans", pa.list_(pa.struct([("offset", pa.uint64()), ("len", pa.uint64())]))),
            ("session", pa.uint64()),
            ("uid", pa.uint32()),
            ("command", pa.string()),
            ("host", pa.string()),
        ]
    )


def name_schema() -> pyarrow.Schema:
    """The columns of names."""
    import pyarrow as pa

    return pa.schema(
        [
            ("path", pa.string()),
            ("path_hex", pa.string()),
            ("kind", pa.string()),
            ("size", pa.uint64()),
            ("mode", pa.uint32()),
            ("links", pa.uint32()),
            ("uid", pa.uint32()),
            ("gid", pa.uint32()),
            ("inode", pa.uint64()),
            ("mtime", pa.timestamp("ns", "UTC")),
            ("made", pa.uint64()),
            ("changed", pa.uint64()),
        ]
    )


def change_batches(
    pages: typing.Iterator[tuple[dict, dict]],
    path: str,
    size_before: typing.Callable[[int], int | None] | None,
) -> pyarrow.RecordBatchReader:
    """Pages of history as batches, the oldest change first. `size_before` says how long a file was before all of them;
    `None` for differences, which have both lengths."""
    schema = change_schema()
    sizes = None if size_before is None else _Sizes(size_before)
    return _reader(schema, (_changes(columns, sessions, path, sizes) for columns, sessions in pages))


def name_batches(pages: typing.Iterator[tuple[str, dict]]) -> pyarrow.RecordBatchReader:
    """Pages of directories, each with the directory's path, as batches."""
    return _reader(name_schema(), (_names(directory, columns) for directory, columns in pages))


def _reader(schema, batches) -> pyarrow.RecordBatchReader:
    import pyarrow as pa

    def made():
        for columns in batches:
            yield pa.record_batch([pa.array(columns[field.name], field.type) for field in schema], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, made())


class _Sizes:
    """The lengths of files, change by change.

    A run of writes is one event, and says how long the file is after it alone. So a change made its file longer by the
    difference to the length after the change before it.
    """

    def __init__(self, size_before: typing.Callable[[int], int | None]):
        self._size_before = size_before
        self._sizes: dict[int, int] = {}

    def grown(self, change: str, what: list, kind: str, inode: int, before: int | None, after: int | None) -> int:
        """By how many bytes; the change is later than those of earlier calls."""
        if kind != "file":
            return 0
        last = self._sizes.get(inode)
        if "replaced" in what:
            # Another file had the name.
            last = before
        elif last is None and change == "added":
            last = 0
        elif last is None and "content" in what:
            last = self._size_before(inode)
        if last is None:
            last = before
        self._sizes[inode] = after or 0
        return (after or 0) - (last or 0)


def _changes(columns: dict, sessions: dict, path: str, sizes: _Sizes | None) -> dict:
    count = len(columns["stamp"])
    nothing = [None] * count
    if "len" in columns:
        is_data = [change in ("write", "punch", "copied") for change in columns["change"]]
        columns = {
            **columns,
            "path": [name or path for name in columns["name"]],
            "path_before": nothing,
            "kind": ["file"] * count,
            "inode": nothing,
            "size_before": nothing,
            "size_after": nothing,
            "bytes": [length if data else 0 for length, data in zip(columns["len"], is_data)],
            "what": [[]] * count,
            "spans": [
                [(offset, length)] if data else []
                for offset, length, data in zip(columns["offset"], columns["len"], is_data)
            ],
        }
        grown = nothing
    elif sizes is not None:
        names = ["change", "what", "kind", "inode", "size_before", "size_after"]
        grown = [sizes.grown(*row) for row in zip(*(columns[name] for name in names))]
    else:
        grown = [
            (after or 0) - (before or 0) if kind == "file" else 0
            for kind, before, after in zip(columns["kind"], columns["size_before"], columns["size_after"])
        ]
    by = [sessions.get(session, (None, None)) for session in columns["session"]]
    return {
        **columns,
        "instant": columns["stamp"],
        "time": [stamp >> _COUNTER_BITS for stamp in columns["stamp"]],
        "path": [_valid(path) for path in columns["path"]],
        "path_hex": [_hex(path) for path in columns["path"]],
        "path_before": [path and _valid(path) for path in columns["path_before"]],
        "grown": grown,
        "spans": [[{"offset": offset, "len": length} for offset, length in spans] for spans in columns["spans"]],
        "command": [command for command, _ in by],
        "host": [host for _, host in by],
    }


def _names(directory: str, columns: dict) -> dict:
    start = directory.rstrip("/") + "/"
    paths = [start + name for name in columns["name"]]
    return {
        **columns,
        "path": [_valid(path) for path in paths],
        "path_hex": [_hex(path) for path in paths],
        "mtime": columns["mtime_ns"],
        "made": columns["born"],
    }


def _valid(path: str) -> str:
    """The path with replacement characters for bytes that are not UTF-8, which Arrow's strings cannot have."""
    return path if path.isascii() else path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _hex(path: str) -> str | None:
    if path.isascii():
        return None
    try:
        path.encode("utf-8")
        return None
    except UnicodeEncodeError:
        return path.encode("utf-8", "surrogateescape").hex()
