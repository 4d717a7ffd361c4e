"""The file system now, or at an instant."""

from __future__ import annotations

import dataclasses
import datetime
import errno
import io
import os
import posixpath
import pwd
import stat as _stat
import typing
import weakref

from . import _frieze, changes, settings
from ._frieze import Entry
from .changes import Change, Deleted, Diff, Edit, EditAction, History, Session
from .files import RawFile, buffered, split_mode
from .instants import Instant
from .watch import Watch, WatchItem

#: What names an instant: an `Instant`, the integer of one, a `datetime` with a zone, or a text as the command takes it:
#: `5m-ago`, `2026-11-30T10:00:00Z`, `yesterday`, `last-whole`, the name of a snapshot.
InstantLike = typing.Union[Instant, int, str, datetime.datetime]
Path = typing.Union[str, bytes, os.PathLike]

_TYPE_BITS = {
    "file": _stat.S_IFREG,
    "directory": _stat.S_IFDIR,
    "link": _stat.S_IFLNK,
    "fifo": _stat.S_IFIFO,
    "socket": _stat.S_IFSOCK,
    "char-device": _stat.S_IFCHR,
    "block-device": _stat.S_IFBLK,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Stat:
    """Attributes of an object; the names that `os.stat` has mean the same."""

    st_mode: int
    st_ino: int
    st_nlink: int
    st_uid: int
    st_gid: int
    st_size: int
    st_atime_ns: int
    st_mtime_ns: int
    st_ctime_ns: int
    #: `file`, `directory`, `link`, `fifo`, `socket`, `char-device` or `block-device`.
    kind: str
    #: Bytes that hold data.
    bytes_live: int
    #: When it was made.
    made: Instant
    #: The newest change that made this state: equal instants mean equal states.
    changed: Instant

    @property
    def st_mtime(self) -> float:
        """Modification time in seconds."""
        return self.st_mtime_ns / 1e9

    @property
    def st_atime(self) -> float:
        """Access time in seconds."""
        return self.st_atime_ns / 1e9

    @property
    def st_ctime(self) -> float:
        """Change time in seconds."""
        return self.st_ctime_ns / 1e9


@dataclasses.dataclass(frozen=True, slots=True)
class Clock:
    """The server's clock, and what can be read."""

    now: Instant
    #: The newest instant that is closed everywhere.
    stable: Instant
    #: The earliest instant that can be read.
    earliest: Instant
    #: The bound of the clock's error in microseconds; `None` if it is not known.
    precision_us: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """A name for an instant."""

    name: str
    at: Instant
    made: Instant
    uid: int


def connect(
    server: str | None = None,
    *,
    key: str | os.PathLike | None = None,
    timeout: float = 30.0,
    sync: bool = False,
) -> FileSystem:
    """Connects to a server, and gives its file system as it is now.

    `server` is `HOST:PORT`, several with commas between them, or `unix:/PATH`; without it, `FRIEZE_SERVER` or the
    settings of the command name it. `key` is a file with the line `NAME:SECRET`. A call that gets no answer for
    `timeout` seconds fails as `Unavailable`. With `sync` a write returns when it is on stable storage.

    >>> fs = connect()
    >>> fs.exists("/doc")
    True
    """
    server, key = settings.server_and_key(server, key)
    return FileSystem(_client_of(server, key, float(timeout), bool(sync)))


class _Client:
    """A client, with what it was made of. Clients with the same arguments are one, in each process."""

    def __init__(self, server: str, key: str | None, timeout: float, sync: bool):
        self.made_of = (server, key, timeout, sync)
        self.native = _frieze.Client(server, key=key, timeout=timeout, sync=sync)


_clients: weakref.WeakValueDictionary = weakref.WeakValueDictionary()


def _client_of(*made_of) -> _Client:
    client = _clients.get(made_of)
    if client is None:
        client = _clients[made_of] = _Client(*made_of)
    return client


def _restored(made_of: tuple, at: int | None) -> FileSystem:
    return FileSystem(_client_of(*made_of), None if at is None else Instant(at))


def to_bytes(path: Path) -> bytes:
    """A path as the server has it. Bytes that are not UTF-8 are surrogates in a `str`, as in Python's own paths."""
    path = os.fspath(path)
    raw = path if isinstance(path, bytes) else path.encode("utf-8", "surrogateescape")
    return raw if raw.startswith(b"/") else b"/" + raw


def to_text(path: Path) -> str:
    """A path as a `str`."""
    return to_bytes(path).decode("utf-8", "surrogateescape")


class FileSystem:
    """The file system now, or at an instant of its past, for one user. `connect` makes it, `at` gives another view.

    Paths start at the root, as `str`, `bytes` or `os.PathLike`. Refusals are `OSError` with errno and path, such as
    `FileNotFoundError`; `HistoryExpired` and `FutureInstant` refuse an instant. A view of the past changes nothing.

    Threads may share it. After a fork the child connects anew. A pickle has the server's address and the exact instant.
    """

    def __init__(self, client: _Client, at: Instant | None = None):
        self._shared, self._at = client, at

    @property
    def _client(self):
        return self._shared.native

    @property
    def instant(self) -> Instant | None:
        """The instant of this view; `None` for now."""
        return self._at

    @property
    def server(self) -> str:
        """The address that it was connected with."""
        return self._shared.made_of[0]

    @property
    def session(self) -> int:
        """The session of this program: `undo(session=...)` undoes its changes."""
        return self._client.session()

    def at(self, instant: InstantLike) -> FileSystem:
        """The same at an instant. A text that moves, such as `5m-ago`, is made exact here, once.

        >>> fs = getfixture("fs")
        >>> fs.write_text("/doc/kept", "1")
        >>> then = fs.at(fs.now())
        >>> fs.remove("/doc/kept")
        >>> fs.exists("/doc/kept"), then.exists("/doc/kept")
        (False, True)
        """
        return FileSystem(self._shared, self.resolve(instant))

    def resolve(self, instant: InstantLike) -> Instant:
        """The exact instant that something means.

        >>> fs = getfixture("fs")
        >>> fs.resolve("2026-11-30T12:00:00Z")
        Instant('hlc-6617d2633d000fff')
        """
        if isinstance(instant, str):
            return Instant(self._client.resolve(instant))
        return Instant(instant)

    def now(self) -> Instant:
        """The instant of now: a view at it has everything that happened before this call."""
        return self.clock().now

    def clock(self) -> Clock:
        """The server's clock, and the span of instants that can be read."""
        now, precision_us, earliest, stable = self._client.clock()
        return Clock(Instant(now), Instant(stable), Instant(earliest), precision_us)

    def open(
        self,
        path: Path,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> typing.IO:
        """Opens a file, as the built-in `open`.

        A file that is read in order is read ahead; with `buffering=0` each read is a request, and sees the bytes of
        that moment. `mode="a"` appends atomically, up to 1 MiB at once.

        >>> fs = getfixture("fs")
        >>> with fs.open("/doc/lines", "w") as file:
        ...     print("one", "two", sep="\\n", file=file)
        >>> with fs.open("/doc/lines") as file:
        ...     [line.strip() for line in file]
        ['one', 'two']
        """
        kind, is_binary = split_mode(mode)
        if is_binary and (encoding or errors or newline):
            raise ValueError("a binary file has no encoding, errors or newline")
        if not is_binary and buffering == 0:
            raise ValueError("a text file has a buffer: open it with b to read without")
        native = _frieze.open_file(
            self._client,
            to_bytes(path),
            at=self._at,
            read=kind[0] == "r" or "+" in kind,
            write=kind != "r",
            create={"r": "never", "w": "if_absent", "a": "if_absent", "x": "exclusive"}[kind[0]],
            truncate=kind[0] == "w",
        )
        is_read_only = kind == "r"
        raw = RawFile(self, to_text(path), kind + "b", native, ahead=is_read_only and buffering != 0)
        file = buffered(raw, -1 if buffering == 1 else buffering)
        return file if is_binary else io.TextIOWrapper(file, encoding or "utf-8", errors, newline, buffering == 1)

    def read_bytes(self, path: Path) -> bytes:
        """The content of a file."""
        with self.open(path, "rb", buffering=0) as file:
            return file.readall()

    def write_bytes(self, path: Path, data) -> None:
        """Writes a file anew. Readers of now may see a part of it meanwhile; readers of an instant never do afterwards
        what they did not before."""
        with self.open(path, "wb", buffering=0) as file:
            file.write(data)

    def read_text(self, path: Path, encoding: str = "utf-8") -> str:
        """The content of a text file."""
        return self.read_bytes(path).decode(encoding)

    def write_text(self, path: Path, text: str, encoding: str = "utf-8") -> None:
        """Writes a text file anew."""
        self.write_bytes(path, text.encode(encoding))

    def stat(self, path: Path, *, follow_symlinks: bool = True) -> Stat:
        """Attributes of an object.

        >>> fs = getfixture("fs")
        >>> fs.write_text("/doc/five", "12345")
        >>> fs.stat("/doc/five").st_size
        5
        """
        return _stat_of(self._client.stat(to_bytes(path), at=self._at, follow=follow_symlinks))

    def lstat(self, path: Path) -> Stat:
        """Attributes of an object; of a symbolic link those of the link."""
        return self.stat(path, follow_symlinks=False)

    def exists(self, path: Path) -> bool:
        """True if the path leads to something. A failure that leaves it open is raised."""
        return self._kind(path) is not None

    def isdir(self, path: Path) -> bool:
        """True for a directory, or a link to one."""
        return self._kind(path) == "directory"

    def isfile(self, path: Path) -> bool:
        """True for a regular file, or a link to one."""
        return self._kind(path) == "file"

    def islink(self, path: Path) -> bool:
        """True for a symbolic link."""
        return self._kind(path, follow_symlinks=False) == "link"

    def _kind(self, path: Path, follow_symlinks: bool = True) -> str | None:
        try:
            return self.stat(path, follow_symlinks=follow_symlinks).kind
        except (FileNotFoundError, NotADirectoryError):
            return None

    def access(self, path: Path, mode: int) -> bool:
        """True if the caller has the rights `os.R_OK`, `os.W_OK`, `os.X_OK`."""
        try:
            self._client.access(to_bytes(path), mode, at=self._at)
            return True
        except (PermissionError, FileNotFoundError, NotADirectoryError):
            return False

    def listdir(self, path: Path = "/") -> list[str]:
        """The names in a directory, in the order of their bytes.

        >>> fs = getfixture("fs")
        >>> fs.makedirs("/doc/dir"); fs.write_text("/doc/dir/b", ""); fs.write_text("/doc/dir/a", "")
        >>> fs.listdir("/doc/dir")
        ['a', 'b']
        """
        names: list[str] = []
        for columns in self._pages(path, "names"):
            names += columns["name"]
        return names

    def scandir(self, path: Path = "/") -> typing.Iterator[Entry]:
        """The entries of a directory with their attributes, page by page: a directory of any size passes through."""
        path, directory, after, more = to_bytes(path), None, None, True
        while more:
            directory, more, entries = _frieze.scan_page(
                self._client, path, at=self._at, directory=directory, after=after
            )
            yield from entries
            if not entries:
                return
            after = entries[-1].name.encode("utf-8", "surrogateescape")

    def walk(self, path: Path = "/") -> typing.Iterator[tuple[str, list[str], list[str]]]:
        """Directories from the top down, as `os.walk`: path, names of directories, other names."""
        path = to_text(path)
        directories, others = [], []
        for columns in self._pages(path, "kinds"):
            for name, kind in zip(columns["name"], columns["kind"]):
                (directories if kind == "directory" else others).append(name)
        yield path, directories, others
        for name in directories:
            yield from self.walk(posixpath.join(path, name))

    def _pages(self, path: Path, wanted: str) -> typing.Iterator[dict[str, list]]:
        path, directory, after, more = to_bytes(path), None, None, True
        while more:
            directory, more, columns = _frieze.list_page(
                self._client, path, at=self._at, directory=directory, after=after, columns=wanted
            )
            if columns["name"]:
                yield columns
                after = columns["name"][-1].encode("utf-8", "surrogateescape")
            else:
                more = False

    def names(self, path: Path = "/"):
        """A `pyarrow.Table` of everything below a directory: paths and attributes at this view.

        >>> fs = getfixture("fs")
        >>> fs.makedirs("/doc/tree/sub"); fs.write_text("/doc/tree/sub/f", "123")
        >>> fs.names("/doc/tree").select(["path", "size"]).to_pylist()[-1]
        {'path': '/doc/tree/sub/f', 'size': 3}
        """
        return self.name_batches(path).read_all()

    def name_batches(self, path: Path = "/"):
        """The same as a `pyarrow.RecordBatchReader`, which reads while it is read."""
        from . import arrow

        # Exact, so that all pages are of one cut.
        view = self if self._at is not None else self.at(self.now())
        return arrow.name_batches(view._tree(to_text(path)))

    def _tree(self, top: str) -> typing.Iterator[tuple[str, dict]]:
        waiting = [top]
        while waiting:
            directory = waiting.pop()
            found = []
            for columns in self._pages(directory, "attributes"):
                yield directory, columns
                names = zip(columns["name"], columns["kind"])
                found += [posixpath.join(directory, name) for name, kind in names if kind == "directory"]
            waiting += reversed(found)

    def readlink(self, path: Path) -> str:
        """The text of a symbolic link."""
        return self._client.read_link(to_bytes(path), at=self._at)

    def mkdir(self, path: Path, mode: int = 0o777) -> None:
        """Makes a directory."""
        self._client.mkdir(to_bytes(path), mode, at=self._at)

    def makedirs(self, path: Path, mode: int = 0o777, exist_ok: bool = True) -> None:
        """Makes a directory, and those above it that are missing."""
        path = to_text(path).rstrip("/") or "/"
        try:
            self.mkdir(path, mode)
        except FileNotFoundError:
            self.makedirs(posixpath.dirname(path), mode)
            self.makedirs(path, mode, exist_ok)
        except FileExistsError:
            if not exist_ok or not self.isdir(path):
                raise

    def rmdir(self, path: Path) -> None:
        """Removes an empty directory."""
        self._client.rmdir(to_bytes(path), at=self._at)

    def remove(self, path: Path) -> None:
        """Removes a name that is not a directory's. The past keeps it."""
        self._client.unlink(to_bytes(path), at=self._at)

    unlink = remove

    def remove_tree(self, path: Path, *, dry_run: bool = False) -> Edit:
        """Removes a file, or a directory with everything below it, by one change: readers see all of it or none."""
        return _edit(_frieze.remove_tree(self._client, to_bytes(path), at=self._at, dry_run=dry_run))

    def rename(self, path: Path, to: Path) -> None:
        """Moves a name, unless the other one is taken."""
        self._client.rename(to_bytes(path), to_bytes(to), replace=False, at=self._at)

    def replace(self, path: Path, to: Path) -> None:
        """Moves a name over another one, in one change."""
        self._client.rename(to_bytes(path), to_bytes(to), replace=True, at=self._at)

    def symlink(self, text: Path, path: Path) -> None:
        """Makes a symbolic link at `path`, whose text is `text`."""
        self._client.symlink(os.fsencode(text), to_bytes(path), at=self._at)

    def link(self, path: Path, name: Path) -> None:
        """Gives a file another name."""
        self._client.link(to_bytes(path), to_bytes(name), at=self._at)

    def chmod(self, path: Path, mode: int) -> None:
        """Changes the permission bits."""
        self._client.set_attr(to_bytes(path), mode=mode & 0o7777, at=self._at)

    def chown(self, path: Path, uid: int = -1, gid: int = -1) -> None:
        """Changes owner and group; -1 leaves one as it is."""
        uid, gid = (None if number == -1 else number for number in (uid, gid))
        self._client.set_attr(to_bytes(path), uid=uid, gid=gid, at=self._at)

    def utime(self, path: Path, *, ns: tuple[int, int]) -> None:
        """Sets access and modification time in nanoseconds."""
        self._client.set_attr(to_bytes(path), atime_ns=ns[0], mtime_ns=ns[1], at=self._at)

    def truncate(self, path: Path, size: int) -> None:
        """Sets the length of a file."""
        self._client.set_attr(to_bytes(path), size=size, at=self._at)

    def getxattr(self, path: Path, name: str) -> bytes:
        """An extended attribute."""
        return self._client.get_xattr(to_bytes(path), os.fsencode(name), at=self._at)

    def listxattr(self, path: Path) -> list[str]:
        """The names of extended attributes."""
        return self._client.list_xattr(to_bytes(path), at=self._at)

    def setxattr(self, path: Path, name: str, value: bytes) -> None:
        """Sets an extended attribute."""
        self._client.set_xattr(to_bytes(path), os.fsencode(name), value, at=self._at)

    def removexattr(self, path: Path, name: str) -> None:
        """Removes an extended attribute."""
        self._client.set_xattr(to_bytes(path), os.fsencode(name), None, at=self._at)

    def sync(self) -> None:
        """Makes everything that this program wrote durable."""
        self._client.sync()

    def history(
        self,
        path: Path = "/",
        *,
        since: InstantLike | None = None,
        until: InstantLike | None = None,
        recursive: bool = True,
    ) -> History:
        """What happened to a file, or in a directory, the newest first: changes after `since`, up to `until`.

        `recursive` counts everything below a directory. A deleted path is looked up when it last existed.

        >>> fs = getfixture("fs")
        >>> fs.write_text("/doc/gone", "1"); fs.remove("/doc/gone")
        >>> [change.change for change in fs.history("/doc/gone")]
        ['unnamed', 'write', 'make']
        """
        view, text = self, to_text(path)
        try:
            kind = self.lstat(path).kind
        except FileNotFoundError:
            if self._at is not None:
                raise
            view = self.at(_frieze.last_existed(self._client, to_bytes(path)) or self.now())
            kind = view.lstat(path).kind
        after = 0 if since is None else self.resolve(since)
        upto = self.resolve(until) if until is not None else (self._at or self.now())
        page = _frieze.story_page if kind == "directory" else _frieze.log_page
        options = {"recursive": recursive} if kind == "directory" else {}

        def pages(newest_first):
            sessions: dict[int, tuple] = {}
            rest = (after, upto) if after < upto else None
            while rest:
                columns, named, rest = page(
                    self._client, to_bytes(path), view._at, *rest, newest_first=newest_first, **options
                )
                _learn(sessions, named)
                if columns["stamp"]:
                    yield columns, sessions

        def size_before(inode):
            try:
                return self._client.size_of(inode, at=after) if after else None
            except OSError:
                return None

        return History(f"{text}, up to {upto.time:%F %T} UTC", pages, text, size_before)

    @typing.overload
    def watch(
        self,
        path: Path = "/",
        *,
        since: InstantLike | None = None,
        until: InstantLike | None = None,
        marks: typing.Literal[False] = False,
        timeout: float | None = None,
    ) -> Watch[Change]: ...

    @typing.overload
    def watch(
        self,
        path: Path = "/",
        *,
        since: InstantLike | None = None,
        until: InstantLike | None = None,
        marks: typing.Literal[True],
        timeout: float | None = None,
    ) -> Watch[WatchItem]: ...

    def watch(self, path="/", *, since=None, until=None, marks=False, timeout=None):
        """The changes of a file, or of everything below a directory, as they happen: those after `since` (by default
        now, the moment of this call), the oldest first. A loop over it waits for the next one.

        A change is shown 25 ms after it on average. Writes of a session to a file are one change within a twentieth of
        a second. A name that moves out of the directory is `removed`, one that moves in is `added`. The file or
        directory is looked up once, and followed under any later name.

        With `marks` the items are `Change`, `Resolved` (no change at or before its instant follows: the place to keep,
        and to go on from) and `LeftOut` (changes are missing). Without, `Watch.resolved` has the last mark, and what is
        left out is warned about (`LeftOutWarning`).

        The loop ends at `until`, with the removal of what is watched, or if nothing comes for `timeout` seconds; then
        another loop over the watch goes on.

        >>> fs = getfixture("fs")
        >>> fs.makedirs("/doc/inbox")
        >>> with fs.watch("/doc/inbox", timeout=10) as watch:
        ...     fs.write_text("/doc/inbox/order", "1")
        ...     for change in watch:
        ...         print(change.change, change.path)
        ...         break
        added /doc/inbox/order
        """
        if self._at is not None:
            text = f"the past does not change: watch asked of a view of {self._at}; `history` has its changes"
            raise OSError(errno.EROFS, text, to_text(path))
        if timeout is not None and not timeout >= 0:
            raise ValueError(f"timeout={timeout}: give seconds, or None to wait without an end")
        after = self.now() if since is None else self.resolve(since)
        upto = None if until is None else self.resolve(until)
        if upto is not None and after > upto:
            raise ValueError(f"the interval ends ({upto.time}) before it begins ({after.time})")
        return Watch(self, to_bytes(path), after, upto, bool(marks), timeout)

    def diff(self, since: InstantLike, until: InstantLike | None = None, path: Path = "/") -> Diff:
        """What differs between two instants in a file, or in everything below a directory, in the order of paths. The
        server reads what changed, not the tree.

        >>> fs = getfixture("fs")
        >>> before = fs.now()
        >>> fs.write_text("/doc/new", "123")
        >>> [(change.change, change.path, change.size_after) for change in fs.diff(before)]
        [('added', '/doc/new', 3)]
        """
        after = self.resolve(since)
        upto = self.resolve(until) if until is not None else (self._at or self.now())
        if after > upto:
            raise ValueError(f"the interval ends ({upto.time}) before it begins ({after.time})")

        def pages(_):
            sessions: dict[int, tuple] = {}
            skip, more = 0, True
            while more:
                columns, named, more, hidden = _frieze.diff_page(self._client, to_bytes(path), after, upto, skip)
                found.hidden |= hidden
                _learn(sessions, named)
                skip += len(columns["stamp"])
                if columns["stamp"]:
                    yield columns, sessions

        found = Diff(f"{to_text(path)} from {after.time:%F %T} to {upto.time:%F %T} UTC", pages, to_text(path))
        return found

    def deleted(self, path: Path = "/") -> typing.Iterator[Deleted]:
        """The names that once were in a directory and are not at this view."""
        after = b""
        while after is not None:
            columns, _, after = _frieze.deleted_page(self._client, to_bytes(path), at=self._at, after=after)
            after = bytes(after) if after is not None else None
            for row in changes.rows(columns):
                row["instant"] = Instant(row.pop("stamp"))
                yield Deleted(**row)

    def sessions(self, since: InstantLike | None = None) -> typing.Iterator[Session]:
        """The programs that were connected after an instant, the oldest first."""
        start, after, more = 0 if since is None else self.resolve(since), 0, True
        while more:
            columns, more = _frieze.sessions_page(self._client, since=start, after=after)
            for row in changes.rows(columns):
                after = row["session"]
                ended, last = (None if stamp is None else Instant(stamp) for stamp in (row["ended"], row["last"]))
                yield Session(row["session"], row["uid"], row["command"], row["host"], ended, last)

    def undo(
        self,
        path: Path = "/",
        *,
        session: int | typing.Iterable[int] = (),
        user: int | str | None = None,
        since: InstantLike | None = None,
        until: InstantLike | None = None,
        dry_run: bool = False,
    ) -> Edit:
        """Undoes the changes of sessions or of a user, or all after `since` and up to `until`, at or below `path`.

        Each name, attribute and range of bytes whose newest version is theirs gets the newest by any other. Later
        changes by others stay, and so does what they depend on (`Edit.left`). All of it is one change.

        >>> fs = getfixture("fs")
        >>> fs.write_text("/doc/kept", "good")
        >>> before = fs.now()
        >>> fs.write_text("/doc/kept", "bad!")
        >>> edit = fs.undo("/doc/kept", since=before)
        >>> fs.read_text("/doc/kept")
        'good'
        """
        if isinstance(user, str):
            user = pwd.getpwnam(user).pw_uid
        return _edit(
            _frieze.undo(
                self._present("undo"),
                to_bytes(path),
                [session] if isinstance(session, int) else list(session),
                uid=user,
                after=0 if since is None else self.resolve(since),
                upto=0 if until is None else self.resolve(until),
                dry_run=dry_run,
            )
        )

    def restore(self, path: Path, to: InstantLike, *, delete: bool = False, dry_run: bool = False) -> Edit:
        """Restores a file or tree to its state at an instant, by one change. With `delete` names made since go."""
        client = self._present("restore")
        return _edit(_frieze.restore(client, to_bytes(path), self.resolve(to), delete=delete, dry_run=dry_run))

    def clone(self, path: Path, target: Path, *, dry_run: bool = False) -> Edit:
        """Makes `target` a clone of a file or tree at this view. It shares every byte and copies none.

        >>> fs = getfixture("fs")
        >>> fs.write_text("/doc/original", "1")
        >>> _ = fs.at(fs.now()).clone("/doc/original", "/doc/clone")
        >>> fs.read_text("/doc/clone")
        '1'
        """
        return _edit(
            _frieze.clone_tree(self._client, to_bytes(path), to_bytes(target), at=self._at, dry_run=dry_run)
        )

    def forget(self, path: Path, before: InstantLike, *, dry_run: bool = False) -> int:
        """Deletes for good what only instants before `before` show of a file or tree. Returns how many bytes."""
        client = self._present("forget")
        return client.forget(to_bytes(path), self.resolve(before), dry_run=dry_run)

    def snapshots(self) -> list[Snapshot]:
        """The named instants."""
        rows = _frieze.snapshots(self._client)
        return [Snapshot(name, Instant(at), Instant(made), uid) for name, at, made, uid in rows]

    def snapshot(self, name: str, at: InstantLike | None = None) -> Instant:
        """Names an instant, that of this view or of now, and keeps its history.

        >>> fs = getfixture("fs")
        >>> at = fs.snapshot("before-upgrade")
        >>> fs.at("before-upgrade").instant == at
        True
        >>> fs.delete_snapshot("before-upgrade")
        """
        at = self._at if at is None else self.resolve(at)
        return Instant(self._client.make_snapshot(name, at))

    def delete_snapshot(self, name: str) -> None:
        """Deletes a name of an instant."""
        self._client.delete_snapshot(name)

    def close(self) -> None:
        """Ends the session and the connections of this process, for all views that share them. What is used again
        afterwards fails; without this call they end with the last view."""
        _clients.pop(self._shared.made_of, None)
        self._client.close()

    def __enter__(self) -> FileSystem:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def __eq__(self, other) -> bool:
        return isinstance(other, FileSystem) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple:
        return self._shared.made_of, self._at

    def __reduce__(self):
        return _restored, (self._shared.made_of, None if self._at is None else int(self._at))

    def __repr__(self) -> str:
        at = "now" if self._at is None else f"{self._at} ({self._at.time:%F %T.%f} UTC)"
        return f"<frieze.FileSystem {self.server} at {at}>"

    def _repr_html_(self) -> str:
        recent = self.history("/", since=None)
        return recent._repr_html_()

    def _present(self, what: str):
        if self._at is not None:
            raise OSError(errno.EROFS, f"the past cannot be changed: {what} asked of a view of {self._at}")
        return self._client


def _stat_of(row: dict) -> Stat:
    return Stat(
        st_mode=_TYPE_BITS[row["kind"]] | row["mode"],
        st_ino=row["inode"],
        st_nlink=row["links"],
        st_uid=row["uid"],
        st_gid=row["gid"],
        st_size=row["size"],
        st_atime_ns=row["atime_ns"],
        st_mtime_ns=row["mtime_ns"],
        st_ctime_ns=row["ctime_ns"],
        kind=row["kind"],
        bytes_live=row["bytes_live"],
        made=Instant(row["born"]),
        changed=Instant(row["changed"]),
    )


def _edit(row: tuple) -> Edit:
    stamp, at, count, columns = row
    actions = tuple(EditAction(**action) for action in changes.rows(columns))
    return Edit(Instant(stamp) if stamp else None, Instant(at) if at else None, count, actions)


def _learn(sessions: dict[int, tuple], columns: dict[str, list]) -> None:
    sessions.update((row["session"], (row["command"], row["host"])) for row in changes.rows(columns))
