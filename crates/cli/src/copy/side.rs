//! The two ends of a copy: local files or the file system at a view.

use std::io;

use anyhow::{Error, Result};
use frieze_base::Reason;
use frieze_client::InstantInfo;

use crate::failure::{self, ErrorSubject, ReportedError};

/// Largest piece that travels at once: 1 MiB requests reach the most of a connection (libraries.md, the data path).
pub(crate) const PIECE_BYTES: usize = 1 << 20;

/// The kind of an object, for copying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyKind {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Device, socket or pipe: not copied.
    Other,
}

impl CopyKind {
    /// As JSON names it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            CopyKind::File => "file",
            CopyKind::Directory => "directory",
            CopyKind::Symlink => "symlink",
            CopyKind::Other => "other",
        }
    }
}

/// The object at a path.
#[derive(Clone, Debug)]
pub(crate) struct CopyEntry {
    /// Kind.
    pub(crate) kind: CopyKind,
    /// Permission bits.
    pub(crate) mode: u32,
    /// Modification time, ns since 1970.
    pub(crate) mtime_ns: i64,
    /// Length in bytes.
    pub(crate) size: u64,
    /// Two nodes of one side with equal identities are the same file.
    pub(crate) identity: (u64, u64),
    /// About the answer, where the file system gave one.
    pub(crate) answered: Option<InstantInfo>,
}

/// The bytes of a file in order; holes are left out.
pub(crate) trait Pull {
    /// Fills `into` with the next bytes, at most [`PIECE_BYTES`], and answers their offset; none at the end.
    ///
    /// # Errors
    /// If they cannot be read.
    fn next(&mut self, into: &mut Vec<u8>) -> Result<Option<u64>>;

    /// Length of the file: valid after [`Pull::next`] has returned none.
    fn end(&self) -> u64;
}

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// From the start of the existing file.
    Over,
    /// Beside it, then renamed.
    Atomic,
    /// Behind its end.
    Append,
}

/// One end of a copy.
pub(crate) trait CopySide {
    /// How this side names things.
    type Path: Clone;

    /// The entry `name` of a directory.
    fn join(&self, directory: &Self::Path, name: &[u8]) -> Self::Path;

    /// The directory that a path lies in; none of the uppermost.
    fn parent(&self, path: &Self::Path) -> Option<Self::Path>;

    /// The path in print.
    fn show(&self, path: &Self::Path) -> String;

    /// The object there; none if there is none. `follow`: a symbolic link in the last place is followed.
    ///
    /// # Errors
    /// If it cannot be known.
    fn node(&self, path: &Self::Path, follow: bool) -> Result<Option<CopyEntry>>;
}

/// `error`, the failure of creating or writing `path`, with its subject: the uppermost missing directory, if one is
/// missing; else `path`. A known subject stays.
pub(crate) fn about<S: CopySide>(side: &S, path: &S::Path, error: Error) -> Error {
    if error.is::<ErrorSubject>() || error.is::<ReportedError>() {
        return error;
    }
    let is_io =
        |error: &Error| error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::NotFound);
    let mut wrong = path.clone();
    if failure::is(&error, Reason::NotFound) || is_io(&error) {
        while let Some(parent) = side.parent(&wrong).filter(|parent| matches!(side.node(parent, true), Ok(None))) {
            wrong = parent;
        }
    }
    error.context(ErrorSubject(side.show(&wrong)))
}

/// The end that is read.
pub(crate) trait CopySource: CopySide {
    /// Names in a directory, in byte order.
    ///
    /// # Errors
    /// If it is no directory or cannot be read.
    fn names(&self, directory: &Self::Path) -> Result<Vec<Vec<u8>>>;

    /// Text of a symbolic link.
    ///
    /// # Errors
    /// If it is none.
    fn link_text(&self, path: &Self::Path) -> Result<Vec<u8>>;

    /// The bytes of a regular file.
    ///
    /// # Errors
    /// If it cannot be opened.
    fn open(&self, path: &Self::Path) -> Result<Box<dyn Pull>>;
}

/// The end that is written.
pub(crate) trait CopySink: CopySide {
    /// Makes a directory.
    ///
    /// # Errors
    /// If it cannot be made; one that is there is an error too.
    fn make_directory(&self, path: &Self::Path, mode: u32) -> Result<()>;

    /// Makes a symbolic link; one that is there is replaced, anything else is an error.
    ///
    /// # Errors
    /// If it cannot be made.
    fn make_link(&self, path: &Self::Path, text: &[u8]) -> Result<()>;

    /// Makes or writes a regular file and answers how many bytes were moved. `mode` is that of a new file.
    ///
    /// # Errors
    /// If reading or writing fails; with [`How::Atomic`] nothing has changed then.
    fn write(&self, path: &Self::Path, mode: u32, how: How, bytes: &mut dyn Pull) -> Result<u64>;

    /// Gives a file or directory the mode and modification time of `node`.
    ///
    /// # Errors
    /// If that is not permitted.
    fn set_like(&self, path: &Self::Path, node: &CopyEntry) -> Result<()>;
}

/// An unused name beside `name`: hidden, and with the process in it.
pub(crate) fn temporary_name(name: &[u8]) -> Vec<u8> {
    let suffix = format!(".frieze-{}", std::process::id());
    // Some bytes of the name for a person that finds it; the whole stays below the 255 bytes of a name.
    let kept = name.len().min(200);
    [b".".as_slice(), &name[..kept], suffix.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_name_is_hidden_and_short_enough() {
        let name = temporary_name(&[b'x'; 255]);
        assert!(name.starts_with(b".x") && name.len() <= 255);
        assert!(temporary_name(b"a").starts_with(b".a.frieze-"));
    }
}
