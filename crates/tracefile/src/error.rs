//! Errors of traces in files.

use std::io;
use std::path::{Path, PathBuf};

/// Why a trace cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TraceFileError {
    /// The system refused. Free space, or name another directory.
    #[error("cannot {what} {path}: {error}", path = path.display())]
    System {
        /// What was tried.
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// There is no such directory. Name that of a trace.
    #[error(
        "{path}: no such directory: a trace is one, made with --trace or by 'frieze trace save'",
        path = path.display()
    )]
    NoDirectory {
        /// The path.
        path: PathBuf,
    },
    /// The directory is no trace, or its writing was interrupted. Name the directory that `frieze trace save` made.
    #[error(
        "{path} is no whole trace: it has no manifest.json, which is written last: save or import it again",
        path = path.display()
    )]
    NoTrace {
        /// The directory.
        path: PathBuf,
    },
    /// A file of the trace is damaged, cut, of a newer version, or of another program. Its place says where.
    #[error("{path}: {why}", path = path.display())]
    Bad {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, with column or line.
        why: String,
    },
    /// The directory has files already. Name one that is empty or not there.
    #[error("{path} is not empty: a trace gets a directory of its own", path = path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// Another program records into it. Name another directory, or record into a ring.
    #[error(
        "{path}: another program records into it: give each a directory of its own, or use --trace-ring",
        path = path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// A ring cannot be read.
    #[error(transparent)]
    Ring(#[from] frieze_trace::TraceError),
    /// A rule of kinds cannot be read. Mend the rule.
    #[error("rule {number} of kinds: {why}")]
    Rule {
        /// Which, from 1.
        number: usize,
        /// What is wrong.
        why: String,
    },
}

impl TraceFileError {
    pub(crate) fn system(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> TraceFileError {
        move |error| TraceFileError::System { what, path: path.to_owned(), error }
    }

    pub(crate) fn bad(path: &Path, why: impl ToString) -> TraceFileError {
        TraceFileError::Bad { path: path.to_owned(), why: why.to_string() }
    }
}
