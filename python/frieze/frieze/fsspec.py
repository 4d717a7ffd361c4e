"""fsspec's file system `frieze://HOST:PORT/PATH@INSTANT`, for pandas, pyarrow, dask, zarr, DuckDB.

>>> import fsspec
>>> fs = getfixture("fs")
>>> fs.write_text("/doc/t.csv", "a\\n1\\n")
>>> url, before = f"frieze://{fs.server}/doc/t.csv", fs.now()
>>> fs.write_text("/doc/t.csv", "a\\n2\\n")
>>> with fsspec.open(f"{url}@{before}", "r") as file:
...     file.read()
'a\\n1\\n'
>>> fsspec.filesystem("frieze", server=fs.server, at=before).cat_file("/doc/t.csv")
b'a\\n1\\n'

**Instants in paths.** After the last `@` of the last name stands an instant if the text is one: an exact `hlc-...`, a
time with its zone, a span such as `5m-ago`, `yesterday`, `last-whole`, `now`, or `snapshot:NAME`. Every other text is
part of the name: `icon@2x.png`. A final `@` says that all before it is a name: `log@2026-11-30T00:00Z@` is the file
`log@2026-11-30T00:00Z`. Listings give names in the form that opens them. For trees use the option `at`, which holds for
every path and leaves the names as they are.

Nothing is cached but connections, so a listing is that of now. Directories above a written file are made.
"""

from __future__ import annotations

import datetime
import errno
import os
import posixpath
import uuid

from fsspec.spec import AbstractFileSystem
from fsspec.utils import stringify_path, tokenize

from . import _frieze, filesystem
from .files import BUFFER_BYTES, WriteFile
from .filesystem import FileSystem

_SNAPSHOT = "snapshot:"


def split_instant(path: str) -> tuple[str, str | None]:
    """A path, and the instant that it ends with.

    >>> split_instant("/a/b@5m-ago")
    ('/a/b', '5m-ago')
    >>> split_instant("/icon@2x.png")
    ('/icon@2x.png', None)
    >>> split_instant("/b@5m-ago@")
    ('/b@5m-ago', None)
    """
    plain, at, instant = path.rpartition("@")
    if not at or "/" in instant:
        return path, None
    if not instant:
        return plain, None
    if instant.startswith(_SNAPSHOT):
        return plain, instant.removeprefix(_SNAPSHOT)
    return (plain, instant) if _frieze.is_instant(instant) else (path, None)


def join_instant(path: str, instant: str | None) -> str:
    """The path that opens `path` at an instant: the reverse of `split_instant`.

    >>> join_instant("/b@5m-ago", None)
    '/b@5m-ago@'
    """
    if instant is not None:
        return f"{path}@{instant}"
    return path if split_instant(path) == (path, None) else f"{path}@"


class FriezeFileSystem(AbstractFileSystem):
    """The file system for fsspec.

    `server`, `key`, `timeout` and `sync` are those of `frieze.connect`; a URL names the server itself. `at` is the
    instant of all paths without one. `auto_mkdir=False` refuses to write below directories that do not exist.
    """

    protocol = "frieze"
    root_marker = "/"
    # An instance costs nothing: connections are shared below. fsspec's own cache would give `at="5m-ago"` the instant
    # of its first use, and has keys that differ between processes.
    cachable = False

    def __init__(self, server=None, at=None, key=None, timeout=30.0, sync=False, auto_mkdir=True, **options):
        super().__init__(**options)
        native = filesystem.connect(server, key=key, timeout=timeout, sync=sync)
        self.native: FileSystem = native if at is None else native.at(at)
        self.auto_mkdir = auto_mkdir

    @classmethod
    def _strip_protocol(cls, path):
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = stringify_path(path)
        if path.startswith("frieze://"):
            path = "/" + path.removeprefix("frieze://").partition("/")[2]
        return "/" + path.strip("/") if path.startswith("/") else "/" + path.rstrip("/")

    @staticmethod
    def _get_kwargs_from_urls(path):
        server = path.removeprefix("frieze://").partition("/")[0] if path.startswith("frieze://") else ""
        return {"server": server} if server else {}

    def unstrip_protocol(self, name):
        return f"frieze://{self.native.server}{self._strip_protocol(name)}"

    @property
    def fsid(self):
        return f"frieze-{self.native._client.hello()[1]}"

    # What identifies it: neither a process nor a thread, and the exact instant.
    @property
    def _fs_token(self):
        made_of, at = self.native._identity()
        return tokenize(type(self).__name__, made_of, at and str(at), self.auto_mkdir)

    @property
    def storage_options(self):
        server, key, timeout, sync = self.native._shared.made_of
        at = self.native.instant
        options = {"server": server, "timeout": timeout, "sync": sync, "auto_mkdir": self.auto_mkdir}
        absent = {name: value for name, value in [("key", key), ("at", at and str(at))] if value is not None}
        return {**options, **absent, **self._other_options}

    @storage_options.setter
    def storage_options(self, options):
        ours = {"server", "at", "key", "timeout", "sync", "auto_mkdir"}
        self._other_options = {name: value for name, value in options.items() if name not in ours}

    @property
    def storage_args(self):
        return ()

    @storage_args.setter
    def storage_args(self, _):
        pass

    def __reduce__(self):
        return _made, (type(self), self.storage_options)

    def at(self, instant) -> FriezeFileSystem:
        """The same at an instant: for every path that names none.

        >>> fs = getfixture("fs")
        >>> fs.write_text("/doc/x", "1")
        >>> files = FriezeFileSystem(fs.server)
        >>> then = files.at(fs.now())
        >>> files.rm("/doc/x")
        >>> then.cat_file("/doc/x")
        b'1'
        """
        return type(self)(**{**self.storage_options, "at": self.native.resolve(instant)})

    def _view(self, path) -> tuple[FileSystem, str, str | None]:
        """The view and the plain path that a path means, and the exact instant that it names."""
        plain, instant = split_instant(self._strip_protocol(path))
        if instant is None:
            return self.native, plain or "/", None
        if instant == "now":
            return FileSystem(self.native._shared), plain or "/", instant
        view = self.native.at(instant)
        return view, plain or "/", str(view.instant)

    def info(self, path, **_):
        view, plain, instant = self._view(path)
        stat = view.lstat(plain)
        is_link = stat.kind == "link"
        kind, size = stat.kind, stat.st_size
        if is_link and view.exists(plain):
            there = view.stat(plain)
            kind, size = there.kind, there.st_size
        return {
            "name": join_instant(plain, instant) if plain != "/" or instant else "/",
            "size": size,
            "type": kind if kind in ("file", "directory") else "other",
            "islink": is_link,
            "mode": stat.st_mode,
            "uid": stat.st_uid,
            "gid": stat.st_gid,
            "ino": stat.st_ino,
            "nlink": stat.st_nlink,
            "mtime": stat.st_mtime_ns / 1e9,
            "created": (stat.made >> 12) / 1e6,
            "changed": int(stat.changed),
        }

    def ls(self, path, detail=True, **_):
        view, plain, instant = self._view(path)
        try:
            if detail:
                return [self._listed(view, entry, instant) for entry in view.scandir(plain)]
            names = view.listdir(plain)
        except NotADirectoryError:
            info = self.info(path)
            return [info] if detail else [info["name"]]
        start = plain.rstrip("/") + "/"
        return [join_instant(start + name, instant) for name in names]

    def _listed(self, view, entry, instant) -> dict:
        info = entry.info()
        if instant is not None or "@" in info["name"]:
            info["name"] = join_instant(info["name"], instant)
        if info["islink"]:
            # A link to a directory is none in a listing, as with local files: `walk` would run in circles.
            try:
                there = view.stat(entry.path)
                info["size"] = there.st_size
                info["type"] = "file" if there.kind == "file" else "other"
            except OSError:
                pass
        return info

    def exists(self, path, **_):
        view, plain, _ = self._view(path)
        return view.exists(plain)

    def lexists(self, path, **_):
        try:
            self.info(path)
            return True
        except (FileNotFoundError, NotADirectoryError):
            return False

    def isdir(self, path):
        view, plain, _ = self._view(path)
        return view.isdir(plain)

    def isfile(self, path):
        view, plain, _ = self._view(path)
        return view.isfile(plain)

    def created(self, path):
        """When it was made."""
        view, plain, _ = self._view(path)
        return view.stat(plain).made.time

    def modified(self, path):
        """Its modification time."""
        view, plain, _ = self._view(path)
        return datetime.datetime.fromtimestamp(view.stat(plain).st_mtime, datetime.timezone.utc)

    def ukey(self, path):
        view, plain, _ = self._view(path)
        stat = view.stat(plain)
        return tokenize(self.fsid, stat.st_ino, int(stat.changed))

    def checksum(self, path):
        return int(self.ukey(path), 16)

    def _open(self, path, mode="rb", block_size=None, autocommit=True, cache_options=None, **_):
        view, plain, _ = self._view(path)
        if mode == "rb":
            return view.open(plain, "rb", buffering=block_size or BUFFER_BYTES)
        if mode[0] == "r":
            return view.open(plain, mode)
        if autocommit or mode[0] == "a":
            return self._making_parents(lambda: view.open(plain, mode), view, plain)
        if mode[0] == "x" and view.exists(plain):
            raise FileExistsError(errno.EEXIST, "already exists", plain)
        return self._making_parents(lambda: _PendingFile(view, plain), view, plain)

    def _making_parents(self, call, view, plain):
        try:
            return call()
        except FileNotFoundError:
            if not self.auto_mkdir:
                raise
            # Another thread may make it at the same time.
            view.makedirs(posixpath.dirname(plain))
            return call()

    def cat_file(self, path, start=None, end=None, **_):
        view, plain, _ = self._view(path)
        with view.open(plain, "rb", buffering=0) as file:
            if start is None and end is None:
                return file.readall()
            size = file.size if (start or 0) < 0 or end is None or end < 0 else None
            start = max(start + size, 0) if (start or 0) < 0 else start or 0
            end = size if end is None else end + size if end < 0 else end
            return file._native.read(start, max(end - start, 0))

    def pipe_file(self, path, value, mode="overwrite", **_):
        with self.open(path, "xb" if mode == "create" else "wb") as file:
            file.write(value)

    def touch(self, path, truncate=True, **_):
        view, plain, _ = self._view(path)
        if truncate or not view.exists(plain):
            self._making_parents(lambda: view.write_bytes(plain, b""), view, plain)
        else:
            now = view.now().time
            micros = (now - datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)) // datetime.timedelta(
                microseconds=1
            )
            view.utime(plain, ns=(micros * 1000, micros * 1000))

    def mkdir(self, path, create_parents=True, **_):
        view, plain, _ = self._view(path)
        if create_parents:
            view.makedirs(plain, exist_ok=False)
        else:
            view.mkdir(plain)

    def makedirs(self, path, exist_ok=False):
        view, plain, _ = self._view(path)
        view.makedirs(plain, exist_ok=exist_ok)

    def rmdir(self, path):
        view, plain, _ = self._view(path)
        view.rmdir(plain)

    def rm_file(self, path):
        view, plain, _ = self._view(path)
        view.remove(plain)

    _rm = rm_file

    def rm(self, path, recursive=False, maxdepth=None):
        if maxdepth is not None:
            for one in reversed(self.expand_path(path, recursive=recursive, maxdepth=maxdepth)):
                self.rmdir(one) if self.isdir(one) else self.rm_file(one)
            return
        # A name with a bracket or a star may be there as it is.
        for one in path if isinstance(path, (list, tuple)) else [path]:
            for name in [one] if self.lexists(one) else self.expand_path(one):
                view, plain, _ = self._view(name)
                if view.lstat(plain).kind != "directory":
                    view.remove(plain)
                elif not recursive:
                    words = "is a directory: recursive=True removes it with everything in it"
                    raise IsADirectoryError(errno.EISDIR, words, plain)
                elif plain == "/":
                    self.rm([self._strip_protocol(entry) for entry in self.ls("/", detail=False)], recursive=True)
                else:
                    view.remove_tree(plain)

    def cp_file(self, path1, path2, **_):
        source, plain, _ = self._view(path1)
        target, place, _ = self._view(path2)
        if source.stat(plain).kind == "directory":
            target.makedirs(place)
            return
        self._making_parents(lambda: _clone_over(source, plain, target, place), target, place)

    def copy(self, path1, path2, recursive=False, maxdepth=None, on_error=None, **kwargs):
        past, plain = self._of_instant(path1)
        if past is None:
            return super().copy(path1, path2, recursive=recursive, maxdepth=maxdepth, on_error=on_error, **kwargs)
        # Names as they are, each copied from the past.
        pairs = _copied_pairs(past, plain, self, path2, recursive, maxdepth)
        for source, target in pairs:
            self.cp_file(join_instant(source, str(past.native.instant)), target)

    def get(self, rpath, lpath, recursive=False, **kwargs):
        past, plain = self._of_instant(rpath)
        if past is None:
            return super().get(rpath, lpath, recursive=recursive, **kwargs)
        return past.get(plain, lpath, recursive=recursive, **kwargs)

    def _of_instant(self, path):
        """The file system at the instant that one path names, and the path without it."""
        if not isinstance(path, (str, os.PathLike)):
            return None, path
        text = stringify_path(path)
        end = "/" if text.endswith("/") else ""
        plain, instant = split_instant(self._strip_protocol(text))
        if instant is None or instant == "now":
            return None, path
        return self.at(instant), join_instant(plain, None) + end

    def mv(self, path1, path2, recursive=False, maxdepth=None, **_):
        source, plain, _ = self._view(path1)
        target, place, _ = self._view(path2)
        if str(path2).endswith("/") or target.isdir(place):
            place = posixpath.join(place, posixpath.basename(plain))
        source.lstat(plain)
        self._making_parents(lambda: source.replace(plain, place), source, place)

    mv_file = mv
    rename = mv
    move = mv


def _copied_pairs(past, plain, present, path2, recursive, maxdepth):
    """What `copy` copies, and whereto: fsspec's rules, with names of the past and the directories of now."""
    pairs = []

    class Copied(type(past)):
        def cp_file(self, path1, path2, **_):
            pairs.append((self._view(path1)[1], path2))

        def isdir(self, path):
            is_target = self._strip_protocol(path) == self._strip_protocol(path2)
            return present.isdir(path) if is_target else super().isdir(path)

    AbstractFileSystem.copy(Copied(**past.storage_options), plain, path2, recursive=recursive, maxdepth=maxdepth)
    return pairs


def _made(cls, options):
    return cls(**options)


def _beside(path: str) -> str:
    """A hidden name beside a path, for a file that takes its name in the end."""
    directory, name = posixpath.split(path)
    return posixpath.join(directory, f".{name[:200]}.{uuid.uuid4().hex[:12]}.part")


def _clone_over(source: FileSystem, plain: str, target: FileSystem, place: str) -> None:
    try:
        source.clone(plain, place)
    except FileExistsError:
        beside = _beside(place)
        source.clone(plain, beside)
        try:
            target.replace(beside, place)
        except OSError:
            target.remove(beside)
            raise


class _PendingFile(WriteFile):
    """A file of a transaction: it takes its name when that commits."""

    def __init__(self, view: FileSystem, plain: str):
        self._view, self._plain, self._beside = view, plain, _beside(plain)
        super().__init__(view.open(self._beside, "xb", buffering=0))

    def commit(self):
        """Gives it its name."""
        self._view.replace(self._beside, self._plain)

    def discard(self):
        """Drops it."""
        self._view.remove(self._beside)
