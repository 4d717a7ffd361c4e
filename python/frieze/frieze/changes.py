"""Rows of history, and what shows them: iterators, Arrow tables, timelines in notebooks."""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import html
import itertools
import os
import pwd
import typing

from .instants import Instant

#: Rows that a notebook shows.
_SHOWN_MAX = 500
_COLORS = {"added": "#2a9d5c", "removed": "#d1495b", "renamed": "#8d6cc3", "modified": "#3a7ca5"}


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """One change: of a name or tree between two instants, or by one transaction or one run of writes.

    `change` is `added`, `removed`, `renamed` or `modified` for a tree; for a single file it is the kind of the
    version: `write`, `make`, `truncate`, `set-attr`, `named`, `unnamed`, `punch`, `cloned`, `restored`, `undone`,
    `copied`. `what` says what was modified: `content`, `mode`, `owner`, `times`, `xattrs`, `acl`, `replaced`.
    """

    instant: Instant
    change: str
    path: str
    path_before: str | None = None
    kind: str | None = None
    inode: int | None = None
    size_before: int | None = None
    size_after: int | None = None
    mode_before: int | None = None
    mode_after: int | None = None
    #: Bytes written, cut off or added.
    bytes: int = 0
    what: tuple[str, ...] = ()
    #: Where, as (offset, length): the first 64 places. A change of a watch with more has none, and no `bytes`.
    spans: tuple[tuple[int, int], ...] = ()
    #: The session that made it: `FileSystem.undo` takes its number.
    session: int = 0
    uid: int = 0
    command: str | None = None
    host: str | None = None

    @property
    def time(self) -> datetime.datetime:
        """Its time in UTC."""
        return self.instant.time

    @property
    def user(self) -> str:
        """The user's name on this machine, or the number."""
        return _user(self.uid)


@dataclasses.dataclass(frozen=True, slots=True)
class Deleted:
    """A name that once was in a directory."""

    path: str
    kind: str
    inode: int
    size: int
    #: When it went; `instant - 1` still shows it.
    instant: Instant
    session: int
    uid: int
    #: Where the same file is now, if it was moved.
    moved_to: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Session:
    """A program that was connected."""

    session: int
    uid: int
    command: str | None = None
    host: str | None = None
    ended: Instant | None = None
    last: Instant | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class EditAction:
    """What a composite change does to one object: `make`, `bring back`, `remove`, `replace`, `bytes`, `attributes`, or
    `left` with the reason in `words`."""

    action: str
    path: str
    inode: int
    offset: int
    len: int
    words: str


@dataclasses.dataclass(frozen=True, slots=True)
class Edit:
    """What a clone, restore, undo or removal did, or would do."""

    #: Its instant; `None` for a dry run, or if there was nothing to do.
    instant: Instant | None
    #: The instant that older states were taken at.
    at: Instant | None
    #: Actions, those included that did not fit into the answer.
    count: int
    actions: tuple[EditAction, ...]

    @property
    def left(self) -> tuple[EditAction, ...]:
        """What was left as it is, because other changes depend on it."""
        return tuple(action for action in self.actions if action.action == "left")


def rows(columns: dict[str, list]) -> typing.Iterator[dict]:
    """The rows of columns."""
    names = list(columns)
    return (dict(zip(names, row)) for row in zip(*columns.values()))


def changes(columns: dict[str, list], sessions: dict[int, tuple], path: str) -> typing.Iterator[Change]:
    """A page of history as changes; `path` is that of the file where the rows have none."""
    for row in rows(columns):
        command, host = sessions.get(row["session"], (None, None))
        common = {"session": row["session"], "uid": row["uid"], "command": command, "host": host}
        instant = Instant(row["stamp"])
        if "len" in row:
            is_data = row["change"] in ("write", "punch", "copied")
            yield Change(
                instant,
                row["change"],
                row["name"] or path,
                kind="file",
                size_after=row["len"] if row["change"] == "truncate" else None,
                bytes=row["len"] if is_data else 0,
                spans=((row["offset"], row["len"]),) if is_data else (),
                **common,
            )
        else:
            yield Change(
                instant,
                row["change"],
                row["path"],
                row["path_before"],
                row["kind"],
                row["inode"],
                row["size_before"],
                row["size_after"],
                row["mode_before"],
                row["mode_after"],
                row["bytes"],
                tuple(row["what"]),
                tuple(row["spans"]),
                **common,
            )


class History(collections.abc.Iterable):
    """Changes, read from the server page by page while they are iterated; each iteration reads them again, and an
    interval that has ended gives the same changes every time.

    In a notebook it is a timeline. `to_arrow` makes a table of it that DuckDB, pandas and polars read.

    >>> fs = getfixture("fs")
    >>> start = fs.now()
    >>> fs.write_text("/doc/a", "1"); fs.write_text("/doc/b", "22")
    >>> history = fs.history("/doc", since=start)
    >>> sorted({change.path for change in history})
    ['/doc/a', '/doc/b']
    >>> history.to_arrow().select(["path", "grown"]).group_by("path").aggregate([("grown", "sum")]).num_rows
    2
    """

    def __init__(
        self,
        title: str,
        pages: typing.Callable[[bool], typing.Iterator[tuple[dict, dict]]],
        path: str,
        size_before: typing.Callable[[int], int | None] | None = None,
    ):
        self._title, self._pages, self._path, self._size_before = title, pages, path, size_before

    def __iter__(self) -> typing.Iterator[Change]:
        for columns, sessions in self._pages(True):
            yield from changes(columns, sessions, self._path)

    def first(self, count: int) -> list[Change]:
        """The first so many."""
        return list(itertools.islice(self, count))

    def to_batches(self):
        """A `pyarrow.RecordBatchReader`: pages are read while it is, so history of any length passes through. The
        oldest change is the first."""
        from . import arrow

        return arrow.change_batches(self._pages(False), self._path, self._size_before)

    def to_arrow(self):
        """A `pyarrow.Table` of all of it, the oldest change first. Columns: those of `Change`, and `time`; `grown`, by
        how many bytes the change made its file longer, whose sum over an interval is what the tree grew by (null for
        the history of a single file); `path_hex`, the bytes of a path that is not UTF-8, whose `path` has replacement
        characters."""
        return self.to_batches().read_all()

    def to_pandas(self):
        """A `pandas.DataFrame` of all of it."""
        return self.to_arrow().to_pandas()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._title}>"

    def _repr_html_(self) -> str:
        shown = self.first(_SHOWN_MAX + 1)
        return timeline(self._title, shown[:_SHOWN_MAX], len(shown) > _SHOWN_MAX)


class Diff(History):
    """The differences between two instants: each object once, with the newest change of it.

    `hidden` is true after an iteration if something changed where the caller may not look.
    """

    hidden: bool = False


def timeline(title: str, shown: list[Change], more: bool) -> str:
    """A picture of when things changed, and a table."""
    if not shown:
        return f"<p>{html.escape(title)}: nothing changed</p>"
    times = [change.time.timestamp() for change in shown]
    first, last = min(times), max(times)
    width, height = 800, 60
    scale = (width - 20) / max(last - first, 1e-6)
    dots = "".join(
        f'<circle cx="{10 + (time - first) * scale:.1f}" cy="{height - 25 - 8 * lane}" r="3.5" '
        f'fill="{_COLORS.get(change.change, _COLORS["modified"])}" fill-opacity="0.7">'
        f"<title>{html.escape(_line(change))}</title></circle>"
        for time, change, lane in zip(times, shown, _lanes(times, scale))
    )
    ends = [min(shown, key=lambda change: change.instant).time, max(shown, key=lambda change: change.instant).time]
    labels = "".join(
        f'<text x="{x}" y="{height - 4}" text-anchor="{anchor}" font-size="11" fill="currentColor">{time:%F %T}</text>'
        for x, anchor, time in [(10, "start", ends[0]), (width - 10, "end", ends[1])]
    )
    cells = "".join(
        f"<tr><td>{change.time:%F %T.%f}</td><td>{html.escape(change.change)}</td>"
        f"<td>{html.escape(_printable(change.path))}</td><td>{change.bytes or ''}</td>"
        f"<td>{html.escape(change.user)}</td><td>{html.escape(os.path.basename((change.command or '').split(' ')[0]))}"
        f"</td></tr>"
        for change in shown[:20]
    )
    heading = "".join(f"<th>{name}</th>" for name in ["time (UTC)", "change", "path", "bytes", "user", "program"])
    count = f"the newest {len(shown)} changes" if more else f"{len(shown)} changes"
    return (
        f'<div class="frieze-timeline"><p><b>{html.escape(title)}</b>: {count}</p>'
        f'<svg width="{width}" height="{height}" role="img" aria-label="timeline">'
        f'<line x1="10" x2="{width - 10}" y1="{height - 20}" y2="{height - 20}" stroke="currentColor"/>{dots}{labels}'
        f"</svg><table><thead><tr>{heading}</tr></thead><tbody>{cells}</tbody></table></div>"
    )


def _lanes(times: list[float], scale: float) -> typing.Iterator[int]:
    """Dots that would cover each other are stacked."""
    placed: dict[int, int] = {}
    for time in times:
        place = int(time * scale // 6)
        placed[place] = placed.get(place, -1) + 1
        yield placed[place] % 4


def _line(change: Change) -> str:
    moved = f"{_printable(change.path_before)} -> " if change.path_before else ""
    return f"{change.time:%F %T.%f} {change.change} {moved}{_printable(change.path)} by {change.user}"


def _printable(path: str) -> str:
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
