"""The format of a trace, as this package reads it: version, columns, numbers of calls and flags.

Numbers are those of `crates/trace`: a number keeps its meaning for ever.
"""

VERSION = 1
FORMAT = "frieze-trace"

# Column of events -> (physical type, may be null).
EVENTS = {
    "t_ns": ("int64", False),
    "dur_ns": ("int64", True),
    "call": ("int32", False),
    "gateway": ("int32", False),
    "flags": ("int32", False),
    "inode": ("int64", True),
    "stream": ("int64", True),
    "offset": ("int64", True),
    "asked": ("int64", True),
    "got": ("int64", True),
    "result": ("int32", False),
    "count": ("int32", False),
    "path": ("int64", True),
    "path2": ("int64", True),
    "actor": ("int64", True),
    "view_ns": ("int64", True),
    "purpose": ("int32", True),
}
PATHS = {
    "path": ("int64", False),
    "parent": ("int64", True),
    "kind": ("string", False),
    "family": ("string", True),
    "extension": ("string", True),
}

OPEN, CREATE, READ, WRITE, APPEND, CLOSE, RENAME, UNLINK, REMOVE_TREE = 1, 2, 3, 4, 5, 8, 13, 15, 17
DEVICE = 6
PAST, SEQUENTIAL = 1, 8
# Purposes: `read` is what a user waits for (a get), the others are a database's own work.
GET, LOG, FLUSH, COMPACTION = 1, 2, 3, 4
PURPOSES = {GET: "read", LOG: "log", FLUSH: "flush", COMPACTION: "compaction"}

# Words of calls and gateways, for traces whose manifest lacks a number.
CALLS = dict(
    enumerate(
        "open create read write append flush sync close seek stat list lookup rename link unlink rmdir remove_tree "
        "mkdir symlink readlink setattr truncate punch xattr_get xattr_set xattr_list xattr_remove lock snapshot "
        "clone restore join access statfs special history forget other device_append device_flush device_fetch "
        "device_drop device_remove device_shares".split(),
        start=1,
    )
)
GATEWAYS = dict(enumerate("library mount hdfs webhdfs command device import".split(), start=1))


class TraceError(Exception):
    """A trace that cannot be analysed: the message names file, column or version, and what to do. Exit status 2."""
