//! Why a mount could not be made or ended badly.

use std::io;
use std::path::PathBuf;

use frieze_base::{ErrorKind, Fault, Reason};

/// A mount that failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The mountpoint is missing or cannot be read.
    #[error("cannot mount on {}: {source}", path.display())]
    MountpointUnreadable {
        /// The mountpoint.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The mountpoint is no directory.
    #[error("cannot mount on {}: it is not a directory; make one with mkdir", path.display())]
    NotDirectory {
        /// The mountpoint.
        path: PathBuf,
    },
    /// Something is mounted there already.
    #[error(
        "cannot mount on {}: {by} is mounted there already; unmount it first (umount {}) or choose another directory",
        path.display(), path.display()
    )]
    InUse {
        /// The mountpoint.
        path: PathBuf,
        /// The mounted file system.
        by: String,
    },
    /// A frieze mount whose process has ended is still mounted there.
    #[error("cannot mount on {}: a mount whose process has ended is there; clear it with `umount {}`",
        path.display(), path.display())]
    Dead {
        /// The mountpoint.
        path: PathBuf,
    },
    /// The machine has no FUSE, or this user may not use it.
    #[error(
        "cannot open /dev/fuse: {source}; load the module with `modprobe fuse`, let this user read and write the \
        device, or in a container pass it in (--device /dev/fuse --cap-add SYS_ADMIN)"
    )]
    NoFuse {
        /// Why.
        source: io::Error,
    },
    /// The kernel or fusermount refused.
    #[error("mounting on {} was refused: {source}", path.display())]
    Refused {
        /// The mountpoint.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The instant to mount, or the root directory at it, cannot be read.
    #[error("cannot mount: {0}")]
    Root(Fault),
    /// It could not be unmounted.
    #[error("cannot unmount {}: {source}", path.display())]
    Unmount {
        /// The mountpoint.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The connection to the kernel broke.
    #[error("the mount on {} ended: {source}", path.display())]
    Ended {
        /// The mountpoint.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Error {
    /// The class of the error, by the caller's next action.
    pub fn kind(&self) -> ErrorKind {
        self.reason().kind()
    }

    /// Why, for programs.
    pub fn reason(&self) -> Reason {
        match self {
            Error::MountpointUnreadable { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => Reason::NotFound,
                io::ErrorKind::PermissionDenied => Reason::AccessDenied,
                io::ErrorKind::NotADirectory => Reason::NotDirectory,
                _ => Reason::InputOutput,
            },
            Error::NotDirectory { .. } => Reason::NotDirectory,
            Error::InUse { .. } | Error::Dead { .. } => Reason::Busy,
            Error::NoFuse { .. } => Reason::Unsupported,
            Error::Refused { .. } => Reason::NotPermitted,
            Error::Root(fault) => fault.reason,
            Error::Unmount { .. } | Error::Ended { .. } => Reason::InputOutput,
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::new(error.reason(), error.to_string())
    }
}
