//! Why a metadata operation fails.

use frieze_base::{
    ErrorKind, Fault, InodeId, NAME_BYTES_MAX, PATH_BYTES_MAX, Reason, SYMLINKS_FOLLOWED_MAX, SessionId,
};
use frieze_hlc::{Hlc, format_instant};
use frieze_retention::RetentionError;

/// Why a metadata operation fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A name on the path is not there (at that instant), or the directory is gone.
    #[error("{name:?}: no such file or directory")]
    NotFound {
        /// The name looked up.
        name: String,
    },
    /// The inode did not exist at that instant.
    #[error("inode {inode} does not exist at {at}")]
    NotYetMade {
        /// The inode.
        inode: InodeId,
        /// The instant.
        at: Hlc,
    },
    /// What it was at that instant was given up.
    #[error("{}", forgotten(path.as_deref(), *at, *before, *stamp, *uid, *gone))]
    Forgotten {
        /// The inode.
        inode: InodeId,
        /// Its path or name, where the caller knows it.
        path: Option<String>,
        /// The instant asked for; `None`: now.
        at: Option<Hlc>,
        /// The earliest instant that is kept.
        before: Hlc,
        /// When it was forgotten.
        stamp: Hlc,
        /// The user that did.
        uid: u32,
        /// It had been deleted by then: nothing of it is kept.
        gone: bool,
    },
    /// A removed file of which nothing is left.
    #[error("inode {inode} was removed, and its policy of retention keeps no instant that shows it")]
    RemovalExpired {
        /// The inode.
        inode: InodeId,
    },
    /// An instant that is to have a name is not kept for every file.
    #[error("{}", unpinnable(*at, *before, *after))]
    Unpinnable {
        /// The instant.
        at: Hlc,
        /// The newest before it that every policy keeps.
        before: Option<Hlc>,
        /// The oldest after it.
        after: Hlc,
    },
    /// No instant at or before one is kept by every policy.
    #[error("policies of retention keep nothing at or before {}: {first} ({}) is the first instant that all keep",
        format_instant(*at), format_instant(*first))]
    NoneKept {
        /// The instant asked for.
        at: Hlc,
        /// The oldest that is kept.
        first: Hlc,
    },
    /// A policy of retention is refused.
    #[error(transparent)]
    Retention(#[from] RetentionError),
    /// The inode is not known, or so long without a name that it can only be read.
    #[error("inode {inode} is not held any more: look its name up again")]
    StaleHandle {
        /// The inode.
        inode: InodeId,
    },
    /// The name is taken.
    #[error("{name:?} already exists")]
    Exists {
        /// The name.
        name: String,
    },
    /// A place on the path, or the thing itself, has to be a directory.
    #[error("{name:?} is not a directory")]
    NotDirectory {
        /// The name.
        name: String,
    },
    /// It must not be a directory.
    #[error("{name:?} is a directory")]
    IsDirectory {
        /// The name.
        name: String,
    },
    /// The directory holds names.
    #[error("directory {name:?} is not empty")]
    NotEmpty {
        /// The name.
        name: String,
    },
    /// A name is over the limit.
    #[error("a name of {bytes} bytes: at most {NAME_BYTES_MAX} are allowed")]
    NameTooLong {
        /// Length found.
        bytes: usize,
    },
    /// A path or the target of a link is over the limit.
    #[error("a path of {bytes} bytes: at most {PATH_BYTES_MAX} are allowed")]
    PathTooLong {
        /// Length found.
        bytes: usize,
    },
    /// Too many symbolic links on the way, or one where none is to be followed.
    #[error("{name:?}: more than {SYMLINKS_FOLLOWED_MAX} symbolic links on the way, or one that is not to be followed")]
    SymlinkLoop {
        /// The link at which the walk ended.
        name: String,
    },
    /// All numbers that files of a slot, or directories, can have were given.
    #[error("{}", used_up(*slot))]
    NumbersUsedUp {
        /// The slot; `None`: directories.
        slot: Option<u16>,
    },
    /// The file has all the names it can have.
    #[error("inode {inode} has {links} names: no more are allowed")]
    TooManyLinks {
        /// The file.
        inode: InodeId,
        /// Its names.
        links: u32,
    },
    /// The mode bits do not allow it.
    #[error("permission denied: {what}")]
    AccessDenied {
        /// What was asked for.
        what: String,
    },
    /// Only the owner or the superuser may.
    #[error("operation not permitted: {why}")]
    NotPermitted {
        /// The user that may.
        why: &'static str,
    },
    /// The request makes no sense.
    #[error("invalid argument: {why}")]
    InvalidArgument {
        /// What is wrong.
        why: &'static str,
    },
    /// A length beyond what a file of this layout can have, or an attribute value over the limit.
    #[error("{what} of {bytes} bytes: at most {bytes_max} are allowed")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Size asked for.
        bytes: u64,
        /// Limit.
        bytes_max: u64,
    },
    /// The extended attribute is not there.
    #[error("no extended attribute {name:?}")]
    NoAttribute {
        /// Its name.
        name: String,
    },
    /// The name of an extended attribute is empty or too long (POSIX: ERANGE).
    #[error("an attribute name of {bytes} bytes: 1 to {NAME_BYTES_MAX} are allowed")]
    AttributeName {
        /// Length found.
        bytes: usize,
    },
    /// The extended attributes of one inode are too large together.
    #[error("the extended attributes would hold {bytes} bytes: at most {bytes_max} are allowed for one file")]
    AttributesFull {
        /// Size they would have.
        bytes: usize,
        /// Limit.
        bytes_max: usize,
    },
    /// Not a thing this file system does.
    #[error("not supported: {what}")]
    Unsupported {
        /// What.
        what: &'static str,
    },
    /// The root directory, `.` or an open session's file is in the way.
    #[error("in use: {what}")]
    Busy {
        /// What.
        what: String,
    },
    /// The session was never opened or has ended.
    #[error("session {session} is not open: open a new one")]
    UnknownSession {
        /// The session.
        session: SessionId,
    },
    /// The reply to that request was acknowledged and is forgotten.
    #[error("request {seq} of session {session} was acknowledged already: everything below {acked} is forgotten")]
    SequenceTooOld {
        /// The session.
        session: SessionId,
        /// The request.
        seq: u64,
        /// Everything below is forgotten.
        acked: u64,
    },
    /// A bound on what the state may hold is reached.
    #[error("{what}: at most {max} are kept")]
    Overloaded {
        /// What there are too many of.
        what: &'static str,
        /// Limit.
        max: usize,
    },
    /// A user may have no more snapshots.
    #[error(
        "user {uid} has {max} snapshots, and no more are allowed: delete some (`frieze snapshot delete`), or \
         let the operator allow more (`snapshots_per_user_max`)"
    )]
    SnapshotsFull {
        /// The user.
        uid: u32,
        /// As many may be.
        max: u32,
    },
    /// The instant lies after the transaction.
    #[error("{at} lies in the future of {now}")]
    Future {
        /// The instant.
        at: Hlc,
        /// Stamp of the transaction.
        now: Hlc,
    },
    /// The name cannot name a snapshot.
    #[error("{0}")]
    SnapshotName(#[from] frieze_hlc::Error),
    /// There is no file system yet.
    #[error("the file system is not formatted yet")]
    NotFormatted,
    /// Stored bytes do not read.
    #[error("stored {what} cannot be read")]
    Corrupt {
        /// What it was to be.
        what: &'static str,
    },
    /// What an edit was planned on is not so any more: plan it again.
    #[error("{what} changed meanwhile")]
    Superseded {
        /// What changed.
        what: String,
    },
    /// An edit changes more than fits in one transaction.
    #[error("{steps} changes at once: at most {steps_max} are allowed; take one directory after the other")]
    EditTooLarge {
        /// Changes asked for.
        steps: usize,
        /// Limit.
        steps_max: usize,
    },
    /// A file would be put together from too many ranges.
    #[error("inode {inode} would share {patches} ranges: at most {patches_max} are allowed; copy the bytes instead")]
    TooManyPatches {
        /// The file.
        inode: InodeId,
        /// Ranges it would have.
        patches: usize,
        /// Limit.
        patches_max: usize,
    },
    /// A directory above may hold no more files.
    #[error(
        "directory {directory} may hold {max} files, and holds {used}: remove some, or let the operator allow \
         more (`frieze quota`)"
    )]
    FilesQuota {
        /// The directory with the quota.
        directory: InodeId,
        /// Files and directories below it, itself included.
        used: u64,
        /// As many may be.
        max: u64,
    },
    /// A directory above may hold no more bytes.
    #[error(
        "directory {directory} may hold {max} bytes, and holds {used}: remove some, or let the operator allow \
         more (`frieze quota`)"
    )]
    BytesQuota {
        /// The directory with the quota.
        directory: InodeId,
        /// Bytes of the files below it.
        used: u64,
        /// As many may be.
        max: u64,
    },
    /// The store of the past failed.
    #[error("{0}")]
    History(Fault),
}

impl Error {
    /// Why, for programs.
    pub fn reason(&self) -> Reason {
        match self {
            Error::NotFound { .. } | Error::NotYetMade { .. } | Error::NotFormatted => Reason::NotFound,
            Error::Forgotten { .. }
            | Error::RemovalExpired { .. }
            | Error::NoneKept { .. }
            | Error::Unpinnable { .. } => Reason::HistoryExpired,
            Error::Retention(error) => error.reason(),
            Error::StaleHandle { .. } => Reason::StaleHandle,
            Error::Exists { .. } => Reason::Exists,
            Error::NotDirectory { .. } => Reason::NotDirectory,
            Error::IsDirectory { .. } => Reason::IsDirectory,
            Error::NotEmpty { .. } => Reason::NotEmpty,
            Error::NameTooLong { .. } | Error::PathTooLong { .. } => Reason::NameTooLong,
            Error::SymlinkLoop { .. } => Reason::SymlinkLoop,
            Error::TooManyLinks { .. } => Reason::TooManyLinks,
            Error::NumbersUsedUp { .. } => Reason::NoSpace,
            Error::AccessDenied { .. } => Reason::AccessDenied,
            Error::NotPermitted { .. } => Reason::NotPermitted,
            Error::InvalidArgument { .. } => Reason::InvalidArgument,
            Error::TooLarge { .. } => Reason::TooLarge,
            Error::NoAttribute { .. } => Reason::NoAttribute,
            Error::AttributeName { .. } => Reason::AttributeTooSmall,
            Error::AttributesFull { .. } | Error::SnapshotsFull { .. } => Reason::NoSpace,
            Error::Unsupported { .. } => Reason::Unsupported,
            Error::Busy { .. } => Reason::Busy,
            Error::UnknownSession { .. } => Reason::UnknownSession,
            Error::SequenceTooOld { .. } => Reason::SequenceTooOld,
            Error::Overloaded { .. } => Reason::Overloaded,
            Error::Future { .. } => Reason::Future,
            Error::SnapshotName(_) => Reason::InvalidArgument,
            Error::Superseded { .. } => Reason::Superseded,
            Error::EditTooLarge { .. } | Error::TooManyPatches { .. } => Reason::TooLarge,
            Error::FilesQuota { .. } => Reason::FilesQuota,
            Error::BytesQuota { .. } => Reason::BytesQuota,
            Error::Corrupt { .. } => Reason::Corrupt,
            Error::History(fault) => fault.reason,
        }
    }

    /// What the caller does next.
    pub fn kind(&self) -> ErrorKind {
        self.reason().kind()
    }

    pub(crate) fn not_found(name: &[u8]) -> Error {
        Error::NotFound { name: lossy(name) }
    }

    pub(crate) fn exists(name: &[u8]) -> Error {
        Error::Exists { name: lossy(name) }
    }

    pub(crate) fn not_directory(name: &[u8]) -> Error {
        Error::NotDirectory { name: lossy(name) }
    }

    pub(crate) fn is_directory(name: &[u8]) -> Error {
        Error::IsDirectory { name: lossy(name) }
    }

    /// With the path or name by which the caller came to what was forgotten.
    pub(crate) fn called(mut self, name: &[u8]) -> Error {
        if let Error::Forgotten { path, .. } = &mut self
            && !name.is_empty()
        {
            *path = Some(lossy(name));
        }
        self
    }

    pub(crate) fn denied(what: &str, name: &[u8]) -> Error {
        Error::AccessDenied { what: format!("{what} {:?}", String::from_utf8_lossy(name)) }
    }
}

fn used_up(slot: Option<u16>) -> String {
    let count = InodeId::COUNT_MAX;
    match slot {
        Some(slot) => format!(
            "slot {slot}, where the directory lies, has given all its {count} inode numbers: make the file in another \
             directory"
        ),
        None => format!("all {count} inode numbers of directories were given: no directory can be made any more"),
    }
}

fn forgotten(path: Option<&str>, at: Option<Hlc>, before: Hlc, stamp: Hlc, uid: u32, gone: bool) -> String {
    let of = path.map_or(String::new(), |path| format!(" of {path}"));
    let asked = at.map_or("now".to_owned(), format_instant);
    let (before_text, stamp_text) = (format_instant(before), format_instant(stamp));
    let kept = match gone {
        true => format!("it had been deleted by then, and nothing of it is kept; {before} is the earliest that is"),
        false => format!("the earliest instant that is kept is {before_text}: ask for {before} or a later one"),
    };
    format!(
        "history{of} is not kept at {asked}: user {uid} forgot what was before {before_text} at {stamp_text}; {kept}"
    )
}

/// A name for a person to read; bytes that are not UTF-8 show as replacement characters.
pub(crate) fn lossy(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        match error {
            Error::History(fault) => fault,
            other => Fault::new(other.reason(), other.to_string()),
        }
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Error {
        Error::History(fault)
    }
}

fn unpinnable(at: Hlc, before: Option<Hlc>, after: Hlc) -> String {
    let before = before.map_or(String::new(), |before| format!("{} or ", format_instant(before)));
    let (at, after) = (format_instant(at), format_instant(after));
    format!(
        "policies of retention do not keep {at} for every file: name {before}{after}, which they keep \
         (`frieze retention show` lists policies)"
    )
}
