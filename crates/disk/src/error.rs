//! Errors of a device.

use std::fmt;

use frieze_base::{ErrorKind, Fault, Reason};
use rustix::io::Errno;

/// An operation on a device, named in its errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskOp {
    /// Opening a directory as a device.
    OpenDisk,
    /// Listing the files.
    List,
    /// Creating and preallocating a file.
    Create,
    /// Opening a file.
    Open,
    /// Reading a file's length.
    Len,
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Making a file's bytes durable.
    Sync,
    /// Freeing the space of a part of a file.
    Punch,
    /// Advising which parts of a file need not stay in memory.
    Advise,
    /// Renaming a file.
    Rename,
    /// Removing a file.
    Remove,
    /// Making names durable.
    SyncDir,
    /// Reading the free space.
    Space,
    /// Removing the rights of other users below a directory.
    Tighten,
}

impl fmt::Display for DiskOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DiskOp::OpenDisk => "open directory",
            DiskOp::List => "list",
            DiskOp::Create => "create",
            DiskOp::Open => "open",
            DiskOp::Len => "ask for the length of",
            DiskOp::Read => "read",
            DiskOp::Write => "write",
            DiskOp::Sync => "sync",
            DiskOp::Punch => "free a part of",
            DiskOp::Advise => "advise the system about",
            DiskOp::Rename => "rename",
            DiskOp::Remove => "remove",
            DiskOp::SyncDir => "sync directory",
            DiskOp::Space => "ask for the free space of",
            DiskOp::Tighten => "take the rights of others from",
        })
    }
}

/// Why an operation on a device failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The operating system refused.
    #[error("cannot {op} {name}: {errno}")]
    Io {
        /// The operation.
        op: DiskOp,
        /// The file or directory.
        name: String,
        /// The system's error.
        errno: Errno,
    },
    /// The device's own limit is reached, below that of its file system.
    #[error(
        "cannot create {name} of {wanted_bytes} bytes: {free_bytes} bytes are free of the limit set for this device"
    )]
    Full {
        /// The file.
        name: String,
        /// Its length.
        wanted_bytes: u64,
        /// Bytes left.
        free_bytes: u64,
    },
    /// A write would go beyond the length the file was created with.
    #[error("cannot write {len} bytes at {offset} of {name}: it was created with {file_bytes} bytes")]
    Beyond {
        /// The file.
        name: String,
        /// Offset of the write in bytes.
        offset: u64,
        /// Its length in bytes.
        len: u64,
        /// The file's length.
        file_bytes: u64,
    },
    /// The name is not one plain path component.
    #[error(
        "{name:?} is no name for a file on a device: use one component of 1 to 200 bytes, not beginning with a dot, \
             and not `lock`"
    )]
    BadName {
        /// The name.
        name: String,
    },
    /// Another server has the directory locked.
    #[error("{dir} is in use by a running server{}: stop it first, or give another directory", Pid(*pid))]
    InUse {
        /// The directory.
        dir: String,
        /// Its process id, if it could be read.
        pid: Option<u32>,
    },
    /// An earlier sync of this file failed: what was written before it may be lost, and no later sync can undo that.
    #[error(
        "cannot sync {name}: an earlier sync of it failed, so bytes written before may be lost; restart the server"
    )]
    SyncLost {
        /// The file.
        name: String,
    },
    /// Stored bytes fail their checksum.
    #[error("{name} is corrupt: {what}")]
    Corrupt {
        /// The file.
        name: String,
        /// The check that failed.
        what: String,
    },
    /// A file that never changes was to be changed.
    #[error("cannot {op} {name}: it never changes once it is made")]
    Immutable {
        /// The operation.
        op: DiskOp,
        /// The file.
        name: String,
    },
    /// More bytes than a state file holds.
    #[error("cannot keep {bytes} bytes in {name}: it holds at most {bytes_max}")]
    StateTooLarge {
        /// The file.
        name: String,
        /// Length of the record.
        bytes: usize,
        /// Longest record.
        bytes_max: usize,
    },
    /// The simulated machine has crashed: the calling process is dead.
    #[error("the simulated machine crashed before it could {op} {name}")]
    Crashed {
        /// The operation.
        op: DiskOp,
        /// The file.
        name: String,
    },
}

/// The result of an operation on a device.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Kind of the error: what the caller does next.
    pub fn kind(&self) -> ErrorKind {
        self.reason().kind()
    }

    /// Reason of the error, for programs.
    pub fn reason(&self) -> Reason {
        match self {
            Error::Io { errno, .. } => match *errno {
                Errno::NOSPC | Errno::DQUOT => Reason::NoSpace,
                Errno::NOENT => Reason::NotFound,
                Errno::EXIST => Reason::Exists,
                Errno::NOTDIR => Reason::NotDirectory,
                Errno::ACCESS => Reason::AccessDenied,
                Errno::PERM => Reason::NotPermitted,
                Errno::OPNOTSUPP | Errno::NOSYS => Reason::Unsupported,
                Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => Reason::Unavailable,
                _ => Reason::InputOutput,
            },
            Error::Full { .. } => Reason::NoSpace,
            Error::Beyond { .. } | Error::BadName { .. } | Error::StateTooLarge { .. } => Reason::InvalidArgument,
            Error::InUse { .. } => Reason::Busy,
            Error::SyncLost { .. } => Reason::InputOutput,
            Error::Corrupt { .. } => Reason::Corrupt,
            Error::Immutable { .. } => Reason::Unsupported,
            Error::Crashed { .. } => Reason::Unavailable,
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::new(error.reason(), error.to_string())
    }
}

struct Pid(Option<u32>);

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(pid) => write!(f, " (pid {pid})"),
            None => Ok(()),
        }
    }
}
