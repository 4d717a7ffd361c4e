//! The two ends of a copy, whatever they are: local files or the file system at a view.

use std::io;

use anyhow::{Error, Result};
use frieze_base::Reason;
use frieze_client::InstantInfo;

use crate::failure::{self, About, Reported};

/// Largest piece that travels at once: 1 MiB requests reach the most of a connection (libraries.md, the data path).
pub(crate) const PIECE_BYTES: usize = 1 << 20;

/// What kind of thing stands at a path, as far as copying goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Device, socket or pipe: not copied.
    Other,
}

impl Kind {
    /// As JSON names it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Kind::File => "file",
            Kind::Directory => "directory",
            Kind::Symlink => "symlink",
            Kind::Other => "other",
        }
    }
}

/// What stands at a path.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// Kind.
    pub(crate) kind: Kind,
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

    /// Length of the file: asked after [`Pull::next`] has answered none.
    fn end(&self) -> u64;
}

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// Over what is there.
    Over,
    /// Beside it, then renamed.
    Atomic,
    /// After what is there.
    Append,
}

/// One end of a copy.
pub(crate) trait Side {
    /// How this side names things.
    type Path: Clone;

    /// The entry `name` of a directory.
    fn join(&self, directory: &Self::Path, name: &[u8]) -> Self::Path;

    /// The directory that a path lies in; none of the uppermost.
    fn parent(&self, path: &Self::Path) -> Option<Self::Path>;

    /// The path in print.
    fn show(&self, path: &Self::Path) -> String;

    /// What stands there; none if nothing does. `follow`: a symbolic link in the last place is followed.
    ///
    /// # Errors
    /// If it cannot be known.
    fn node(&self, path: &Self::Path, follow: bool) -> Result<Option<Node>>;
}

/// `error`, which making or writing `path` ended with, and what it is about: the uppermost directory that is not there, if it is one that is
/// missing; else `path`. What is known to be about something already stays so.
pub(crate) fn about<S: Side>(side: &S, path: &S::Path, error: Error) -> Error {
    if error.is::<About>() || error.is::<Reported>() {
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
    error.context(About(side.show(&wrong)))
}

/// The end that is read.
pub(crate) trait Source: Side {
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
pub(crate) trait Sink: Side {
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
    fn set_like(&self, path: &Self::Path, node: &Node) -> Result<()>;
}

/// A name beside `name` that is not in use by anybody else: hidden, and with the process in it.
pub(crate) fn temporary_name(name: &[u8]) -> Vec<u8> {
    let suffix = format!(".frieze-{}", std::process::id());
    // Some bytes of the name for a person who finds it; the whole stays below the 255 bytes of a name.
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
