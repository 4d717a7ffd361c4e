//! Instants, names for them, and the versions of a file.

use crate::target::Target;
use crate::timeline::SessionInfo;
use crate::view::View;

/// Asks for the current time of the server, for the instant of a text, or for a kept one.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Now {
    /// Name of a snapshot to look up, or `last-whole`; empty asks for now.
    #[prost(string, tag = "1")]
    pub name: String,
    /// An instant: asks for the newest at or before it that every policy of retention keeps. 0: for what `name` says.
    #[prost(uint64, tag = "2")]
    pub nearest: u64,
}

/// An exact instant.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NowReply {
    /// The stamp: a read at it holds everything that happened before the question.
    #[prost(uint64, tag = "1")]
    pub at: u64,
    /// Clock-error bound, microseconds; `u64::MAX`: unknown.
    #[prost(uint64, tag = "2")]
    pub precision_us: u64,
    /// Earliest instant that can be read.
    #[prost(uint64, tag = "3")]
    pub earliest: u64,
    /// Newest instant that is closed everywhere.
    #[prost(uint64, tag = "4")]
    pub stable: u64,
    /// The server has no lease: instants after `stable` are closed, and can be read, once a leader is elected.
    #[prost(bool, tag = "5")]
    pub without_lease: bool,
}

/// Lists named instants.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Snapshots {
    /// True: with the bytes that each holds back, which requires reading the changes since.
    #[prost(bool, tag = "1")]
    pub with_bytes: bool,
    /// Start after this name.
    #[prost(string, tag = "2")]
    pub after: String,
    /// At most this many; 0 leaves it to the server.
    #[prost(uint32, tag = "3")]
    pub count_max: u32,
}

/// A named instant.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Snapshot {
    /// Name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Instant.
    #[prost(uint64, tag = "2")]
    pub at: u64,
    /// When it was made.
    #[prost(uint64, tag = "3")]
    pub made: u64,
    /// User that made it.
    #[prost(uint32, tag = "4")]
    pub uid: u32,
    /// Bytes that were live at the instant and are not now, if asked for.
    #[prost(uint64, optional, tag = "5")]
    pub bytes_held: Option<u64>,
    /// True if there may be more of them.
    #[prost(bool, tag = "6")]
    pub held_at_least: bool,
}

/// Named instants in order of name.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SnapshotsReply {
    /// Those after the name that was given.
    #[prost(message, repeated, tag = "1")]
    pub snapshots: Vec<Snapshot>,
    /// True if more follow.
    #[prost(bool, tag = "2")]
    pub more: bool,
}

/// Asks for the versions of a file: its records in order of stamp.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Log {
    /// The file.
    #[prost(message, required, tag = "1")]
    pub target: Target,
    /// As of when; a file since deleted is named by an instant at which it existed.
    #[prost(message, required, tag = "2")]
    pub view: View,
    /// Start after this stamp.
    #[prost(uint64, tag = "3")]
    pub after: u64,
    /// At most this many; 0 leaves it to the server (1,000, and 10,000 at most).
    #[prost(uint32, tag = "4")]
    pub count_max: u32,
    /// End with this stamp; 0: with the newest. Up to a stamp, and as of an instant, any server answers.
    #[prost(uint64, tag = "5")]
    pub upto: u64,
    /// True: the newest that are not later than `upto`, newest first.
    #[prost(bool, tag = "6")]
    pub newest_first: bool,
}

impl Log {
    /// True if the answer includes nothing that may still change.
    pub fn is_past(&self) -> bool {
        self.view.at.is_some() && self.upto != 0
    }
}

/// The kind of a line of `log`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum VersionKind {
    /// Bytes written.
    Write = 0,
    /// The inode was made.
    Make = 1,
    /// Length set.
    Truncate = 2,
    /// Attributes changed.
    SetAttr = 3,
    /// A name was given to it.
    Named = 4,
    /// A name was taken from it.
    Unnamed = 5,
    /// Bytes punched out.
    Punch = 6,
    /// Made by a clone, or a part of it.
    Cloned = 70,
    /// Changed by a restore.
    Restored = 71,
    /// Changed by an undo.
    Undone = 72,
    /// A range copied by sharing.
    Shared = 73,
}

impl VersionKind {
    /// As commands and JSON name it.
    pub fn word(self) -> &'static str {
        match self {
            VersionKind::Write => "write",
            VersionKind::Make => "make",
            VersionKind::Truncate => "truncate",
            VersionKind::SetAttr => "set-attr",
            VersionKind::Named => "named",
            VersionKind::Unnamed => "unnamed",
            VersionKind::Punch => "punch",
            VersionKind::Cloned => "cloned",
            VersionKind::Restored => "restored",
            VersionKind::Undone => "undone",
            VersionKind::Shared => "copied",
        }
    }
}

/// One version.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Version {
    /// The kind.
    #[prost(enumeration = "VersionKind", tag = "1")]
    pub kind: i32,
    /// When.
    #[prost(uint64, tag = "2")]
    pub stamp: u64,
    /// Time of the data, ns.
    #[prost(sint64, optional, tag = "3")]
    pub user_time: Option<i64>,
    /// By which session.
    #[prost(uint64, tag = "4")]
    pub session: u64,
    /// User on whose behalf.
    #[prost(uint32, tag = "5")]
    pub uid: u32,
    /// Offset in the file.
    #[prost(uint64, tag = "6")]
    pub offset: u64,
    /// Bytes written, or new length of a truncate.
    #[prost(uint64, tag = "7")]
    pub len: u64,
    /// Name given or taken, path where known.
    #[prost(bytes = "vec", tag = "8")]
    pub name: Vec<u8>,
}

/// Versions.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LogReply {
    /// In order of stamp, or in reverse.
    #[prost(message, repeated, tag = "1")]
    pub versions: Vec<Version>,
    /// True if more follow.
    #[prost(bool, tag = "2")]
    pub more: bool,
    /// The sessions named.
    #[prost(message, repeated, tag = "3")]
    pub sessions: Vec<SessionInfo>,
    /// Forgotten history: nothing before it is returned.
    #[prost(message, optional, tag = "4")]
    pub forgotten: Option<crate::forget::ForgottenHistory>,
    /// With `newest_first`: everything after this stamp was returned; if there is more, ask again up to it.
    #[prost(uint64, tag = "5")]
    pub after: u64,
}
