"""Open files: Python's own buffers over calls of the client.

A file of `open(..., "rb")` is an `io.BufferedReader`: small reads come from its buffer, large ones go straight into the
caller's memory, and where reads follow each other a thread of the client reads ahead. With `buffering=0` each read is
one request, and sees the bytes of that moment.
"""

from __future__ import annotations

import errno
import io
import os
import typing

if typing.TYPE_CHECKING:
    from .filesystem import FileSystem

#: Buffer of a file: small enough for programs that seek, large enough that a request costs less than its bytes.
BUFFER_BYTES = 256 << 10
#: Buffer of a file that is written: one request.
WRITE_BUFFER_BYTES = 1 << 20
#: An append is one request.
_APPEND_BYTES_MAX = 4 << 20
_MODES = "give r, w, x or a, with + to read and write, and b or t"


class RawFile(io.RawIOBase):
    """A file without a buffer."""

    def __init__(self, fs: FileSystem, path: str, mode: str, native, ahead: bool):
        self.fs, self.path, self.mode = fs, path, mode
        self._native, self._ahead = native, ahead
        self._position = 0
        self._reads = "r" in mode or "+" in mode
        self._appends = "a" in mode
        self._writes = mode[0] != "r" or "+" in mode
        if self._appends:
            self._position = self.size

    @property
    def name(self) -> str:
        """The path that it was opened by."""
        return self.path

    @property
    def size(self) -> int:
        """Its length in bytes: now, or at the instant that it was opened at."""
        return self._native.stat()["size"]

    def readable(self) -> bool:
        return self._reads

    def writable(self) -> bool:
        return self._writes

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        self._check(self._reads, "not readable")
        count = self._native.read_into(self._position, buffer, ahead=self._ahead)
        self._position += count
        return count

    def readall(self) -> bytes:
        self._check(self._reads, "not readable")
        data = self._native.read(self._position, max(self.size - self._position, 0))
        self._position += len(data)
        return data

    def write(self, data) -> int:
        self._check(self._writes, "not writable")
        view = memoryview(data).cast("B")
        if not self._appends:
            self._native.write(self._position, view)
            self._position += len(view)
            return len(view)
        for start in range(0, len(view), _APPEND_BYTES_MAX):
            piece = view[start : start + _APPEND_BYTES_MAX]
            self._position = self._native.append(piece) + len(piece)
        return len(view)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._check(True, "")
        start = {os.SEEK_SET: lambda: 0, os.SEEK_CUR: lambda: self._position, os.SEEK_END: lambda: self.size}
        if whence not in start:
            raise ValueError(f"whence={whence}: give 0, 1 or 2")
        position = start[whence]() + offset
        if position < 0:
            raise OSError(errno.EINVAL, f"the position {position} lies before the file", self.path)
        self._position = position
        return position

    def tell(self) -> int:
        self._check(True, "")
        return self._position

    def truncate(self, size: int | None = None) -> int:
        self._check(self._writes, "not writable")
        size = self._position if size is None else size
        self._native.truncate(size)
        return size

    def sync(self) -> None:
        """Makes everything written durable, as fsync(2)."""
        self._check(True, "")
        self._native.sync()

    def close(self) -> None:
        if not self.closed:
            try:
                self._native.close()
            finally:
                super().close()

    def _check(self, allowed: bool, words: str) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if not allowed:
            raise io.UnsupportedOperation(words)


class ReadFile(io.BufferedReader):
    """A file that is read. Its pickle has server, path, instant and position: it is opened again where it arrives."""

    raw: RawFile

    @property
    def size(self) -> int:
        """Its length in bytes."""
        return self.raw.size

    @property
    def path(self) -> str:
        """The path that it was opened by."""
        return self.raw.path

    def __reduce__(self):
        return _reopened, (self.raw.fs, self.raw.path, self.tell())


class WriteFile(io.BufferedWriter):
    """A file that is written."""

    raw: RawFile

    @property
    def path(self) -> str:
        """The path that it was opened by."""
        return self.raw.path


def _reopened(fs: FileSystem, path: str, position: int) -> ReadFile:
    file = fs.open(path, "rb")
    file.seek(position)
    return file


def split_mode(mode: str) -> tuple[str, bool]:
    """The mode without `b`, `t` and `U`, and whether the file is binary."""
    kind, letters = mode.replace("b", "").replace("t", "").replace("+", ""), set(mode)
    is_wrong = len(letters) != len(mode) or kind not in ("r", "w", "x", "a") or {"b", "t"} <= letters
    if is_wrong or letters - set("rwxabt+"):
        raise ValueError(f"mode={mode!r}: {_MODES}")
    return kind + ("+" if "+" in letters else ""), "b" in letters


def buffered(raw: RawFile, buffering: int):
    """The file with a buffer of this size; -1: a good one, 0: none."""
    if buffering == 0:
        return raw
    size = buffering if buffering > 1 else None
    if raw.readable() and raw.writable():
        return io.BufferedRandom(raw, size or BUFFER_BYTES)
    if raw.writable():
        return WriteFile(raw, size or WRITE_BUFFER_BYTES)
    return ReadFile(raw, size or BUFFER_BYTES)
