//! Requests about time itself: changes of an interval, their actors, deleted names.
//!
//! Every answer names sessions by number and includes their descriptions, so that a line can show user, host and
//! command.

use crate::target::Target;
use crate::view::{FileKind, View};

/// A name at one end of an interval and its inode.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Side {
    /// Path from the root.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// Inode it named.
    #[prost(uint64, tag = "2")]
    pub inode: u64,
    /// Kind of that inode.
    #[prost(enumeration = "FileKind", tag = "3")]
    pub kind: i32,
    /// Permission bits.
    #[prost(uint32, tag = "4")]
    pub mode: u32,
    /// Owner.
    #[prost(uint32, tag = "5")]
    pub uid: u32,
    /// Group.
    #[prost(uint32, tag = "6")]
    pub gid: u32,
    /// Length in bytes.
    #[prost(uint64, tag = "7")]
    pub size: u64,
    /// Modification time, ns.
    #[prost(sint64, tag = "8")]
    pub mtime_ns: i64,
    /// Stamp of its creation.
    #[prost(uint64, tag = "9")]
    pub born: u64,
}

/// Bytes of a file, half-open.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ChangedSpan {
    /// First byte.
    #[prost(uint64, tag = "1")]
    pub offset: u64,
    /// How many.
    #[prost(uint64, tag = "2")]
    pub len: u64,
}

/// An object that differs between the ends of an interval. Without `before` it was added, without `after` removed; with
/// two paths renamed.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Difference {
    /// At the start.
    #[prost(message, optional, tag = "1")]
    pub before: Option<Side>,
    /// At the end.
    #[prost(message, optional, tag = "2")]
    pub after: Option<Side>,
    /// The differences besides the name: the bits below.
    #[prost(uint32, tag = "3")]
    pub flags: u32,
    /// Stamp of the newest change in the interval.
    #[prost(uint64, tag = "4")]
    pub stamp: u64,
    /// The session that made it.
    #[prost(uint64, tag = "5")]
    pub session: u64,
    /// User on whose behalf.
    #[prost(uint32, tag = "6")]
    pub uid: u32,
    /// Bytes written, cut off or added in the interval, in order, apart from each other; only if the caller may read
    /// them.
    #[prost(message, repeated, tag = "7")]
    pub spans: Vec<ChangedSpan>,
    /// True if there are more spans than are listed.
    #[prost(bool, tag = "8")]
    pub more_spans: bool,
    /// Sides that do not lie in the tree that was asked about: [`BEFORE_OUTSIDE`], [`AFTER_OUTSIDE`]. A name moved into
    /// it, or out of it.
    #[prost(uint32, tag = "9")]
    pub outside: u32,
}

impl Difference {
    /// What differs besides the name, as JSON lists it.
    pub fn words(&self) -> Vec<&'static str> {
        let words = [
            (CONTENT, "content"),
            (MODE, "mode"),
            (OWNER, "owner"),
            (TIMES, "times"),
            (XATTRS, "xattrs"),
            (ACL, "acl"),
            (REPLACED, "replaced"),
        ];
        words.into_iter().filter(|(bit, _)| self.flags & bit != 0).map(|(_, word)| word).collect()
    }
}

/// The name of before lay outside of the tree.
pub const BEFORE_OUTSIDE: u32 = 1;
/// The name of after lies outside of the tree.
pub const AFTER_OUTSIDE: u32 = 2;

/// Bytes were written, or the length was changed.
pub const CONTENT: u32 = 1;
/// Permission bits.
pub const MODE: u32 = 2;
/// Owner or group.
pub const OWNER: u32 = 4;
/// Times that were set by hand.
pub const TIMES: u32 = 8;
/// Extended attributes.
pub const XATTRS: u32 = 16;
/// The name leads to another inode.
pub const REPLACED: u32 = 32;
/// Access lists, beyond the permission bits.
pub const ACL: u32 = 64;

/// A session as history knows it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SessionInfo {
    /// Its number, which is the stamp at which it was opened.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// User proven by the server.
    #[prost(uint32, tag = "2")]
    pub uid: u32,
    /// Program or command line, as the client sent it; empty if it is `hidden`, or was forgotten.
    #[prost(string, tag = "3")]
    pub command: String,
    /// Host, as the client sent it; empty as `command` is.
    #[prost(string, tag = "4")]
    pub host: String,
    /// Stamp of its end; 0 while it is open.
    #[prost(uint64, tag = "5")]
    pub ended: u64,
    /// Stamp of the newest change it is known to have made; 0 if it is not known to have made any.
    #[prost(uint64, tag = "6")]
    pub last: u64,
    /// Command and host are shown to the session's own user and to administrators alone.
    #[prost(bool, tag = "7")]
    pub hidden: bool,
}

/// The differences of a file or a tree between two instants.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Diff {
    /// The file or directory, as named at the end of the interval, else at its start.
    #[prost(message, required, tag = "1")]
    pub target: Target,
    /// Start, exclusive: the first state is that at this instant.
    #[prost(uint64, tag = "2")]
    pub from: u64,
    /// End, inclusive: the second state is that at this instant.
    #[prost(uint64, tag = "3")]
    pub to: u64,
    /// Start after so many differences.
    #[prost(uint64, tag = "4")]
    pub skip: u64,
    /// At most this many; 0 leaves it to the server.
    #[prost(uint32, tag = "5")]
    pub count_max: u32,
}

/// Differences.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DiffReply {
    /// In byte order of paths (of the end, else of the start).
    #[prost(message, repeated, tag = "1")]
    pub differences: Vec<Difference>,
    /// True if more follow.
    #[prost(bool, tag = "2")]
    pub more: bool,
    /// True if something changed where the caller may not look.
    #[prost(bool, tag = "3")]
    pub hidden: bool,
    /// The sessions named.
    #[prost(message, repeated, tag = "4")]
    pub sessions: Vec<SessionInfo>,
    /// Entries of indexes, versions and records that were read: grows with what changed, not with the tree.
    #[prost(uint64, tag = "5")]
    pub entries_read: u64,
    /// True if an end lies inside a gap: the state there is what survived.
    #[prost(bool, tag = "6")]
    pub incomplete: bool,
}

/// Events of a directory and the names in it, or of a whole tree or a file, one after the other.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Story {
    /// The directory; with `recursive` it may be a file.
    #[prost(message, required, tag = "1")]
    pub target: Target,
    /// The instant at which `target` is resolved.
    #[prost(message, required, tag = "2")]
    pub view: View,
    /// Start, exclusive.
    #[prost(uint64, tag = "3")]
    pub after: u64,
    /// End, inclusive.
    #[prost(uint64, tag = "4")]
    pub upto: u64,
    /// True: everything below, too.
    #[prost(bool, tag = "5")]
    pub recursive: bool,
    /// About this many; 0 leaves it to the server.
    #[prost(uint32, tag = "6")]
    pub count_max: u32,
    /// True: the newest of the interval, newest first.
    #[prost(bool, tag = "7")]
    pub newest_first: bool,
    /// Length in us of the cells of time that runs of writes end with: cells begin at multiples of it since 1970. 0: a
    /// run ends where another session writes, or the page ends.
    #[prost(uint64, tag = "8")]
    pub cell_us: u64,
}

/// Waits until anything has changed: a name, an attribute, bytes of a file.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AwaitChange {
    /// The position of the client, exclusive: it has everything up to this stamp.
    #[prost(uint64, tag = "1")]
    pub after: u64,
    /// Longest wait, in ms; the server waits no longer than [`AWAIT_MS_MAX`].
    #[prost(uint32, tag = "2")]
    pub wait_ms: u32,
}

/// Longest wait of [`AwaitChange`], in ms.
pub const AWAIT_MS_MAX: u32 = 60_000;
/// Length of the cells of time that changes are grouped by, in us: an answer to [`AwaitChange`] comes at the end of the
/// cell of the change. A reader is behind a change by a cell and a half at most, most often by one; a busy file system
/// answers twenty times a second.
pub const CELL_US: u64 = 50_000;

/// Something has changed, or the wait has ended.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AwaitChangeReply {
    /// End of a cell, inclusive, after the position of the client; 0 if this server knows no change.
    #[prost(uint64, tag = "1")]
    pub upto: u64,
}

/// Events.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StoryReply {
    /// In order of stamp, or in reverse: each the difference that one transaction made, or that a run of writes of one
    /// session made.
    #[prost(message, repeated, tag = "1")]
    pub events: Vec<Difference>,
    /// Every event up to it has been returned; ask again after it unless it is the end of the interval.
    #[prost(uint64, tag = "2")]
    pub upto: u64,
    /// True if something happened where the caller may not look.
    #[prost(bool, tag = "3")]
    pub hidden: bool,
    /// The sessions named.
    #[prost(message, repeated, tag = "4")]
    pub sessions: Vec<SessionInfo>,
    /// Forgotten history of the directory: no event before it is returned.
    #[prost(message, optional, tag = "5")]
    pub forgotten: Option<crate::forget::ForgottenHistory>,
    /// True if events are left out because a file, or a directory that a name moved from or to, has forgotten them.
    #[prost(bool, tag = "6")]
    pub left_out: bool,
    /// With `newest_first`: every event of the interval after this stamp was returned; ask again up to it unless it is
    /// the start.
    #[prost(uint64, tag = "7")]
    pub after: u64,
}

/// Looks for the newest instant at which a path existed.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LastExisted {
    /// From the root; symbolic links on the way are not followed.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
}

/// The newest instant at which a path existed.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LastExistedReply {
    /// Just before it went; 0 if it is there now.
    #[prost(uint64, tag = "1")]
    pub at: u64,
    /// The deleted object.
    #[prost(message, required, tag = "2")]
    pub was: DeletedObject,
    /// The session named.
    #[prost(message, repeated, tag = "3")]
    pub sessions: Vec<SessionInfo>,
}

/// A name that went.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DeletedObject {
    /// The name, as it was at the instant before.
    #[prost(message, required, tag = "1")]
    pub was: Side,
    /// Stamp at which it went; 0 if it is there.
    #[prost(uint64, tag = "2")]
    pub stamp: u64,
    /// The session that took it.
    #[prost(uint64, tag = "3")]
    pub session: u64,
    /// User on whose behalf.
    #[prost(uint32, tag = "4")]
    pub uid: u32,
    /// Where the same inode was put by that change; empty if it was not moved, or where the caller may not look.
    #[prost(bytes = "vec", tag = "5")]
    pub moved_to: Vec<u8>,
}

/// Names that once were in a directory and are not now.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Deleted {
    /// The directory.
    #[prost(message, required, tag = "1")]
    pub target: Target,
    /// The instant that counts as now.
    #[prost(message, required, tag = "2")]
    pub view: View,
    /// Start after this name.
    #[prost(bytes = "vec", tag = "3")]
    pub after: Vec<u8>,
    /// At most this many; 0 leaves it to the server.
    #[prost(uint32, tag = "4")]
    pub count_max: u32,
}

/// Names that went.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DeletedReply {
    /// In byte order of names.
    #[prost(message, repeated, tag = "1")]
    pub names: Vec<DeletedObject>,
    /// The last name read: ask again after it; empty if there are no more.
    #[prost(bytes = "vec", tag = "2")]
    pub next: Vec<u8>,
    /// The sessions named.
    #[prost(message, repeated, tag = "3")]
    pub sessions: Vec<SessionInfo>,
}

/// The sessions that were connected in an interval.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Sessions {
    /// Only sessions that were open after this stamp.
    #[prost(uint64, tag = "1")]
    pub since: u64,
    /// Start after this number.
    #[prost(uint64, tag = "2")]
    pub after: u64,
    /// At most this many; 0 leaves it to the server.
    #[prost(uint32, tag = "3")]
    pub count_max: u32,
}

/// Sessions, open ones and ended ones.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SessionsReply {
    /// By number: oldest first.
    #[prost(message, repeated, tag = "1")]
    pub sessions: Vec<SessionInfo>,
    /// True if more follow.
    #[prost(bool, tag = "2")]
    pub more: bool,
}

/// Space of a directory's files, now and in their history.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Usage {
    /// A directory or file.
    #[prost(message, required, tag = "1")]
    pub target: Target,
    /// The instant at which `target` is resolved: a deleted directory is named by an instant at which it existed.
    #[prost(message, required, tag = "2")]
    pub view: View,
    /// Start after this name.
    #[prost(bytes = "vec", tag = "3")]
    pub after: Vec<u8>,
    /// At most this many names are read; 0 leaves the number to the server.
    #[prost(uint32, tag = "4")]
    pub count_max: u32,
}

/// Bytes of the files in one directory; its subdirectories are asked for one by one.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct UsageReply {
    /// Bytes that hold data now.
    #[prost(uint64, tag = "1")]
    pub live_bytes: u64,
    /// Bytes that are kept for the past only.
    #[prost(uint64, tag = "2")]
    pub history_bytes: u64,
    /// Files that are there now.
    #[prost(uint64, tag = "3")]
    pub files: u64,
    /// Files without a name whose last one was here.
    #[prost(uint64, tag = "4")]
    pub deleted_files: u64,
    /// Directories in it, and those whose last name was here.
    #[prost(message, repeated, tag = "5")]
    pub directories: Vec<UsageDirectory>,
    /// The last name read: ask again after it; empty if there are no more.
    #[prost(bytes = "vec", tag = "6")]
    pub next: Vec<u8>,
}

/// A directory to ask for next.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct UsageDirectory {
    /// Its name.
    #[prost(bytes = "vec", tag = "1")]
    pub name: Vec<u8>,
    /// Its inode.
    #[prost(uint64, tag = "2")]
    pub inode: u64,
    /// Newest instant at which it had that name; 0 if it has it now.
    #[prost(uint64, tag = "3")]
    pub at: u64,
}
