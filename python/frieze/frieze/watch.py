"""Changes as they happen."""

from __future__ import annotations

import collections.abc
import dataclasses
import os
import threading
import time
import typing
import warnings

from . import _frieze, changes
from .changes import Change
from .instants import Instant


@dataclasses.dataclass(frozen=True, slots=True)
class Resolved:
    """A mark: no change at or before `instant` follows. A later watch may begin here."""

    instant: Instant


@dataclasses.dataclass(frozen=True, slots=True)
class LeftOut:
    """Changes up to the next mark are missing."""

    #: `forgotten`, or `not-permitted`: they happened where the caller may not look.
    why: str
    #: The history before this instant was forgotten; `None` if other files or directories have forgotten theirs.
    before: Instant | None = None


class LeftOutWarning(UserWarning):
    """A watch without marks leaves out changes: they are forgotten, or the caller may not look where they happened."""


WatchItem = typing.Union[Change, Resolved, LeftOut]
Item = typing.TypeVar("Item", Change, WatchItem)


class Watch(collections.abc.Iterator, typing.Generic[Item]):
    """Changes of a file or tree in their order, as they happen. `FileSystem.watch` makes it.

    A loop over it waits for the next change. It ends at `until`, when the file or directory was removed, by `close`,
    or if nothing comes for `timeout` seconds: `ended` is false then, and another loop goes on. After an error, such as
    `Unavailable`, and after Ctrl-C the next loop goes on too: nothing is lost.

    With the same rights two watches from one instant have the same changes up to any mark, now and at any later time.

    One thread waits at a time; `close` may come from any. A child of `fork` goes on by itself after the change that
    was given out last, and so does a pickle of the watch in another process.

    >>> fs = getfixture("fs")
    >>> fs.makedirs("/doc/queue")
    >>> start = fs.now()
    >>> fs.write_text("/doc/queue/1", "1")
    >>> kept = start
    >>> for item in fs.watch("/doc/queue", since=start, until=fs.now(), marks=True):
    ...     if isinstance(item, Resolved):
    ...         kept = item.instant               # everything before it was handled: keep it in a file
    >>> fs.write_text("/doc/queue/2", "2")
    >>> [change.path for change in fs.watch("/doc/queue", since=kept, until=fs.now()) if change.change == "added"]
    ['/doc/queue/2']
    """

    def __init__(self, fs, path: bytes, since: Instant, until: Instant | None, marks: bool, timeout: float | None):
        self._set(fs, path, until, marks, timeout)
        self._begin(since, None, 0, 0)

    def _set(self, fs, path: bytes, until: Instant | None, marks: bool, timeout: float | None) -> None:
        self._fs, self._path, self._until, self._marks, self.timeout = fs, path, until, marks, timeout
        self._process, self._lock = os.getpid(), threading.Lock()
        self._warned: set[str] = set()
        self.ended = self.removed = False
        self._feed, self._items = None, iter(())

    def _begin(self, resolved: Instant, inode: int | None, newest: int, count: int) -> None:
        self._resolved, self._inode = resolved, inode
        # The stamp of the change that was given out last since the mark, and how many of that stamp were.
        self._newest, self._count = newest, count
        self._skip = (newest, count)
        self._items = iter(())
        self._feed = _frieze.open_feed(self._fs._client, self._path, after=resolved, upto=self._until, inode=inode)
        self._inode = self._feed.inode

    @property
    def resolved(self) -> Instant:
        """The last mark: every change up to it was given out, and a watch `since` it has the rest."""
        return self._resolved

    def __iter__(self) -> Watch[Item]:
        return self

    def __next__(self) -> Item:
        if os.getpid() != self._process:
            if not self.ended:
                self._begin(self._resolved, self._inode, self._newest, self._count)
            # Another thread of the parent may have had the lock.
            self._process, self._lock = os.getpid(), threading.Lock()
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("another thread waits in this watch: give each thread a watch of its own")
        try:
            return self._next()
        finally:
            self._lock.release()

    def _next(self) -> Item:
        until = None if self.timeout is None else time.monotonic() + self.timeout
        while True:
            for item in self._items:
                if isinstance(item, Resolved):
                    self._resolved, self._newest, self._count = item.instant, 0, 0
                elif isinstance(item, Change):
                    if not self._is_new(item.instant):
                        continue
                    self._count = self._count + 1 if item.instant == self._newest else 1
                    self._newest = item.instant
                elif not self._marks:
                    self._warn(item)
                if self._marks or isinstance(item, Change):
                    return item
            if self.ended:
                raise StopIteration
            found = self._feed.next(None if until is None else until - time.monotonic())
            if found is None:
                raise StopIteration
            self._items = self._batch(*found)

    def _is_new(self, instant: Instant) -> bool:
        """False for what was given out before the fork, or the pickle."""
        newest, count = self._skip
        if instant == newest and count > 0:
            self._skip = (newest, count - 1)
            return False
        return instant >= newest

    def _batch(
        self, columns: dict, sessions: dict, word: str, stamp: int | None
    ) -> collections.abc.Iterator[WatchItem]:
        named = {row["session"]: (row["command"], row["host"]) for row in changes.rows(sessions)}
        yield from changes.changes(columns, named, "")
        if word == "resolved":
            yield Resolved(Instant(stamp))
        elif word in ("forgotten", "not-permitted"):
            yield LeftOut(word, None if stamp is None else Instant(stamp))
        else:
            self.removed |= word == "removed"
            self.ended = True

    def _warn(self, item: LeftOut) -> None:
        if item.why not in self._warned:
            self._warned.add(item.why)
            path = self._path.decode("utf-8", "surrogateescape")
            before = "" if item.before is None else f" before {item.before}"
            words = {
                "forgotten": f"changes{before} are forgotten",
                "not-permitted": "changes in directories that you may not read are left out",
            }
            warnings.warn(f"watch of {path}: {words[item.why]}", LeftOutWarning, stacklevel=4)

    def close(self) -> None:
        """Ends the watch, also under a loop of another thread. `resolved` stays."""
        self.ended, self._items = True, iter(())
        if self._feed is not None:
            self._feed.close()

    def __enter__(self) -> Watch[Item]:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def __reduce__(self):
        made_of = (self._fs, self._path, self._until, self._marks, self.timeout)
        return _resumed, (*made_of, self.removed, self._resolved, self._inode, self._newest, self._count)

    def __repr__(self) -> str:
        path = self._path.decode("utf-8", "surrogateescape")
        return f"<frieze.Watch of {path} on {self._fs.server}, resolved {self._resolved}>"


def _resumed(fs, path, until, marks, timeout, is_removed, resolved, inode, newest, count) -> Watch:
    watch = Watch.__new__(Watch)
    watch._set(fs, path, until, marks, timeout)
    if is_removed:
        watch._resolved, watch._inode, watch._newest, watch._count = resolved, inode, newest, count
        watch.ended = watch.removed = True
    else:
        watch._begin(resolved, inode, newest, count)
    return watch
