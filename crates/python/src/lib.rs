//! The native half of the Python package `frieze`: the module `frieze._frieze`.
//!
//! The package (`python/frieze`) has the classes that people use, fsspec's file system and Arrow tables. This crate has
//! what Python cannot do: the calls of the client library, bytes into Python's buffers without a copy, read-ahead.
//! Paths are bytes, instants are the integers of stamps, rows of history are columns.
//!
//! Guarantees: a call to the server runs without the interpreter's lock. After a fork the child never uses the
//! connections, locks or threads of its parent ([`per_process`]): it connects anew. Every failure is an `OSError` with
//! errno and path, or a subclass of the package ([`errors`]).
//! Leaves to others: names of instants and their types, paths with `@`, buffering, documentation (`python/frieze`).

mod buffers;
mod client;
mod columns;
mod edits;
mod errors;
mod file;
mod history;
mod listing;
mod per_process;
mod read_ahead;
mod watch;

use pyo3::pymodule;

/// The native module.
#[pymodule]
mod _frieze {
    #[pymodule_export]
    use super::client::{PythonClient, is_instant};
    #[pymodule_export]
    use super::edits::{clone_tree, remove_tree, restore, undo};
    #[pymodule_export]
    use super::errors::{FutureInstant, HistoryExpired, InvalidInstant, Unavailable, VersionMismatch};
    #[pymodule_export]
    use super::file::{PythonFile, open_file};
    #[pymodule_export]
    use super::history::{deleted_page, diff_page, last_existed, log_page, sessions_page, snapshots, story_page};
    #[pymodule_export]
    use super::listing::{PythonEntry, list_page, scan_page};
    #[pymodule_export]
    use super::watch::{PythonFeed, open_feed};
}
