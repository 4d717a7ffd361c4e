"""frieze: a distributed file system that can be read at any instant of its past.

>>> import frieze
>>> fs = frieze.connect()
>>> fs.write_text("/doc/report.txt", "v1")
>>> before = fs.now()
>>> fs.write_text("/doc/report.txt", "v2")
>>> fs.at(before).read_text("/doc/report.txt")
'v1'
>>> [change.change for change in fs.history("/doc/report.txt")][:1]
['write']

`connect` gives the file system of now, `FileSystem.at` the same at an instant. `frieze.fsspec` makes it known to
pandas, pyarrow, dask and zarr as `frieze://HOST:PORT/PATH@INSTANT`.
"""

from ._frieze import FutureInstant, HistoryExpired, InvalidInstant, Unavailable, VersionMismatch
from .changes import Change, Deleted, Diff, Edit, EditAction, History, Session
from .filesystem import Clock, Entry, FileSystem, Snapshot, Stat, connect
from .instants import Instant
from .watch import LeftOut, LeftOutWarning, Resolved, Watch

__all__ = [
    "Change",
    "Clock",
    "Deleted",
    "Diff",
    "Edit",
    "EditAction",
    "Entry",
    "FileSystem",
    "FutureInstant",
    "History",
    "HistoryExpired",
    "Instant",
    "InvalidInstant",
    "LeftOut",
    "LeftOutWarning",
    "Resolved",
    "Session",
    "Snapshot",
    "Stat",
    "Unavailable",
    "VersionMismatch",
    "Watch",
    "connect",
]
__version__ = "0.1.0"
