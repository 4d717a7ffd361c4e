//! Requests and replies between a client and a server.
//!
//! A frame's header carries session, seq, epoch and `Hlc`; the bodies here carry the rest. State changes of metadata
//! are [`crate::txn`] operations inside [`Request::Txn`].

use crate::holding::{CancelLock, Lock, LockReply, Recalls, RecallsReply, TestLock, TestLockReply};
use crate::timeline::{
    Deleted, DeletedReply, Diff, DiffReply, LastSeen, LastSeenReply, SessionInfo, Sessions, SessionsReply, Story,
    StoryReply, Usage, UsageReply,
};
use crate::txn::{Caller, Op, Target};

/// The instant and user time that a read asks for. Both absent: now.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct View {
    /// System time as an exact `Hlc`, inclusive.
    #[prost(uint64, optional, tag = "1")]
    pub at: Option<u64>,
    /// User time in ns, inclusive: every file is cut at its last record with a user time up to it.
    #[prost(sint64, optional, tag = "2")]
    pub user_at: Option<i64>,
}

/// First message of a connection.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Hello {
    /// Software and version of the client, for logs: `frieze/0.1.0`.
    #[prost(string, tag = "1")]
    pub software: String,
    /// Name of the key that proves the caller, where the kernel cannot; empty for none.
    #[prost(string, tag = "2")]
    pub key_name: String,
    /// 32 random bytes of the client.
    #[prost(bytes = "vec", tag = "3")]
    pub nonce: Vec<u8>,
    /// Cluster the client expects, 32 hex digits; empty for any.
    #[prost(string, tag = "4")]
    pub cluster: String,
}

/// Answer to [`Hello`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HelloReply {
    /// Software and version of the server.
    #[prost(string, tag = "1")]
    pub software: String,
    /// Cluster, 32 hex digits.
    #[prost(string, tag = "2")]
    pub cluster: String,
    /// Node id of the server.
    #[prost(uint32, tag = "3")]
    pub node: u32,
    /// 32 random bytes of the server, to be answered by [`Prove`]; empty if the kernel has proven the caller already.
    #[prost(bytes = "vec", tag = "4")]
    pub challenge: Vec<u8>,
    /// User the connection is proven as; 65534 (nobody) before a proof.
    #[prost(uint32, tag = "5")]
    pub uid: u32,
    /// True if the connection may speak for other users.
    #[prost(bool, tag = "6")]
    pub may_impersonate: bool,
    /// Chunk size of new files in bytes.
    #[prost(uint64, tag = "7")]
    pub chunk_bytes: u64,
    /// Path of a Unix socket of the same server, told to who calls from its machine: it costs less than TCP.
    #[prost(string, tag = "8")]
    pub socket: String,
}

/// Answers the server's challenge: BLAKE3 keyed by the secret over `challenge || client nonce || key name`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Prove {
    /// 32 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub mac: Vec<u8>,
}

/// What kind of thing an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum FileKind {
    /// Regular file.
    File = 0,
    /// Directory.
    Directory = 1,
    /// Symbolic link.
    Symlink = 2,
    /// Named pipe.
    Fifo = 3,
    /// Unix socket.
    Socket = 4,
    /// Character device.
    CharDevice = 5,
    /// Block device.
    BlockDevice = 6,
}

/// Attributes of an inode at an instant.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Attr {
    /// Inode.
    #[prost(uint64, tag = "1")]
    pub inode: u64,
    /// Kind.
    #[prost(enumeration = "FileKind", tag = "2")]
    pub kind: i32,
    /// Permission bits (no type bits).
    #[prost(uint32, tag = "3")]
    pub mode: u32,
    /// Number of names.
    #[prost(uint32, tag = "4")]
    pub links: u32,
    /// Owner.
    #[prost(uint32, tag = "5")]
    pub uid: u32,
    /// Group.
    #[prost(uint32, tag = "6")]
    pub gid: u32,
    /// Length in bytes; of a symbolic link: of its target.
    #[prost(uint64, tag = "7")]
    pub size: u64,
    /// Bytes that hold data (holes left out).
    #[prost(uint64, tag = "8")]
    pub bytes_live: u64,
    /// Access time, ns.
    #[prost(sint64, tag = "9")]
    pub atime_ns: i64,
    /// Modification time, ns.
    #[prost(sint64, tag = "10")]
    pub mtime_ns: i64,
    /// Change time, ns.
    #[prost(sint64, tag = "11")]
    pub ctime_ns: i64,
    /// Stamp of creation.
    #[prost(uint64, tag = "12")]
    pub born: u64,
    /// Device number of a special file.
    #[prost(uint32, tag = "13")]
    pub rdev: u32,
    /// Chunk size of a file, bytes.
    #[prost(uint64, tag = "14")]
    pub chunk_bytes: u64,
    /// Time plug-in of the file or of what is made in the directory, as text; empty for none.
    #[prost(string, tag = "15")]
    pub time_plugin: String,
    /// Newest stamp among metadata and data that made this state: equal stamps mean equal states.
    #[prost(uint64, tag = "16")]
    pub changed: u64,
}

/// What every answer about the past says of itself.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Answered {
    /// Exact instant used; 0 for a read of now.
    #[prost(uint64, tag = "1")]
    pub at: u64,
    /// Clock-error bound of the parts that stamped, in microseconds: the precision. `u64::MAX`: nothing disciplines the
    /// machine's clock, so nobody knows.
    #[prost(uint64, tag = "2")]
    pub precision_us: u64,
    /// True if the instant was closed before it was asked for.
    #[prost(bool, tag = "3")]
    pub was_stable: bool,
    /// True if the instant lies inside a gap: the state is that of what survived.
    #[prost(bool, tag = "4")]
    pub incomplete: bool,
    /// True if an answer by user time may still grow: the file does not yet hold a later user time.
    #[prost(bool, tag = "5")]
    pub user_time_open: bool,
}

/// Asks for the attributes of a file.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Stat {
    /// The file.
    #[prost(message, required, tag = "1")]
    pub target: Target,
    /// When.
    #[prost(message, required, tag = "2")]
    pub view: View,
}

/// Attributes.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StatReply {
    /// The attributes.
    #[prost(message, required, tag = "1")]
    pub attr: Attr,
    /// About the answer.
    #[prost(message, required, tag = "2")]
    pub answered: Answered,
}

/// Asks for entries of a directory in byte order of their names.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct List {
    /// The directory.
    #[prost(message, required, tag = "1")]
    pub target: Target,
    /// When.
    #[prost(message, required, tag = "2")]
    pub view: View,
    /// Start after this name; empty for the beginning.
    #[prost(bytes = "vec", tag = "3")]
    pub after: Vec<u8>,
    /// At most this many; 0 leaves it to the server (1,000, and 10,000 at most).
    #[prost(uint32, tag = "4")]
    pub count_max: u32,
    /// True: every entry with its attributes.
    #[prost(bool, tag = "5")]
    pub with_attrs: bool,
    /// True: the rights of the reader were checked when the directory was opened.
    #[prost(bool, tag = "6")]
    pub by_handle: bool,
}

/// One name in a directory.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DirEntry {
    /// Name.
    #[prost(bytes = "vec", tag = "1")]
    pub name: Vec<u8>,
    /// Inode it names.
    #[prost(uint64, tag = "2")]
    pub inode: u64,
    /// Kind of that inode.
    #[prost(enumeration = "FileKind", tag = "3")]
    pub kind: i32,
    /// Attributes, if asked for.
    #[prost(message, optional, tag = "4")]
    pub attr: Option<Attr>,
}

/// Entries.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListReply {
    /// In byte order.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<DirEntry>,
    /// True if more follow the last one.
    #[prost(bool, tag = "2")]
    pub more: bool,
    /// About the answer.
    #[prost(message, required, tag = "3")]
    pub answered: Answered,
    /// The directory listed and its parent.
    #[prost(uint64, tag = "4")]
    pub inode: u64,
    /// Parent of the directory listed; itself for the root.
    #[prost(uint64, tag = "5")]
    pub parent: u64,
}

/// Asks for the target of a symbolic link.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ReadLink {
    /// The link; `follow` is ignored for the last place.
    #[prost(message, required, tag = "1")]
    pub target: Target,
    /// When.
    #[prost(message, required, tag = "2")]
    pub view: View,
}

/// Bytes of a link target or of an extended attribute.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct BytesReply {
    /// The bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub value: Vec<u8>,
}

/// Asks whether the caller may do something with a file (`R_OK` 4, `W_OK` 2, `X_OK` 1).
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Access {
    /// The file.
    #[prost(message, required, tag = "1")]
    pub target: Target,
    /// When.
    #[prost(message, required, tag = "2")]
    pub view: View,
    /// Bits asked for.
    #[prost(uint32, tag = "3")]
    pub mask: u32,
}

/// Asks for an extended attribute, or with an empty name for the names of all, each ended by NUL.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetXattr {
    /// The file.
    #[prost(message, required, tag = "1")]
    pub target: Target,
    /// When.
    #[prost(message, required, tag = "2")]
    pub view: View,
    /// Name; empty lists the names.
    #[prost(bytes = "vec", tag = "3")]
    pub name: Vec<u8>,
}

/// Opens a regular file: checks rights once and answers a capability for its bytes.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Open {
    /// The file.
    #[prost(message, required, tag = "1")]
    pub target: Target,
    /// When. Writing needs now.
    #[prost(message, required, tag = "2")]
    pub view: View,
    /// To read.
    #[prost(bool, tag = "3")]
    pub read: bool,
    /// To write.
    #[prost(bool, tag = "4")]
    pub write: bool,
    /// True: the inode was made by this session's transaction with this stamp, so rights are not asked (POSIX: a file
    /// created read-only is open for writing in the process that created it).
    #[prost(uint64, tag = "5")]
    pub made_at: u64,
}

/// An open file.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct OpenReply {
    /// Attributes at the view.
    #[prost(message, required, tag = "1")]
    pub attr: Attr,
    /// Opaque bytes that prove the right to read or write the file's chunks. Good for this session, across restarts.
    #[prost(bytes = "vec", tag = "2")]
    pub capability: Vec<u8>,
    /// About the answer.
    #[prost(message, required, tag = "3")]
    pub answered: Answered,
}

/// When a write or transaction is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum Durability {
    /// When it is in the memory of every replica.
    Async = 0,
    /// When it is on stable storage.
    Sync = 1,
}

/// Reads a range of bytes; the payload of the reply holds them, holes as zeros, cut at the end of the file.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Read {
    /// From [`OpenReply`].
    #[prost(bytes = "vec", tag = "1")]
    pub capability: Vec<u8>,
    /// Offset in the file, bytes.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    /// Bytes wanted, at most `PAYLOAD_BYTES_MAX`.
    #[prost(uint32, tag = "3")]
    pub len: u32,
}

/// The payload holds the bytes.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ReadReply {
    /// True if the range met the end of the file.
    #[prost(bool, tag = "1")]
    pub end_of_file: bool,
    /// About the answer.
    #[prost(message, required, tag = "2")]
    pub answered: Answered,
}

/// Writes the payload.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Write {
    /// From [`OpenReply`].
    #[prost(bytes = "vec", tag = "1")]
    pub capability: Vec<u8>,
    /// Offset in the file; ignored with `append`.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    /// True: at the end of the file, chosen by the server, contiguous.
    #[prost(bool, tag = "3")]
    pub append: bool,
    /// When to acknowledge.
    #[prost(enumeration = "Durability", tag = "4")]
    pub durability: i32,
    /// On whose behalf, for `log`; the right itself is in the capability.
    #[prost(uint32, tag = "5")]
    pub uid: u32,
}

/// A write has happened.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WriteReply {
    /// Its stamp (of the last record if it crossed chunks).
    #[prost(uint64, tag = "1")]
    pub stamp: u64,
    /// Where it landed.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
}

/// Punches a hole: the range reads as zeros from then on and takes no room; what it held stays readable in the past. The
/// length of the file stays. One request reaches as far as the server says, at least over one chunk.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Punch {
    /// From [`OpenReply`].
    #[prost(bytes = "vec", tag = "1")]
    pub capability: Vec<u8>,
    /// Offset in the file, bytes.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    /// Bytes, at least 1.
    #[prost(uint64, tag = "3")]
    pub len: u64,
    /// When to acknowledge.
    #[prost(enumeration = "Durability", tag = "4")]
    pub durability: i32,
}

/// A hole was punched.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PunchReply {
    /// Its stamp.
    #[prost(uint64, tag = "1")]
    pub stamp: u64,
    /// Everything from the offset asked for up to here is a hole: go on from here if it lies before the end of the range.
    #[prost(uint64, tag = "2")]
    pub upto: u64,
}

/// Makes everything the session wrote to a file, and the metadata that names it, durable. Inode 0: everything.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Sync {
    /// The file or directory; 0 for all.
    #[prost(uint64, tag = "1")]
    pub inode: u64,
}

/// Finds data or holes.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Seek {
    /// From [`OpenReply`].
    #[prost(bytes = "vec", tag = "1")]
    pub capability: Vec<u8>,
    /// Start, bytes.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    /// True: the next data; false: the next hole.
    #[prost(bool, tag = "3")]
    pub data: bool,
}

/// A metadata transaction; session, seq and acked are in the frame header.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Txn {
    /// When to acknowledge.
    #[prost(enumeration = "Durability", tag = "1")]
    pub durability: i32,
    /// What to do.
    #[prost(oneof = "Op", tags = "10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 70, 74")]
    pub op: Option<Op>,
}

/// A transaction has happened.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TxnReply {
    /// Its stamp.
    #[prost(uint64, tag = "1")]
    pub stamp: u64,
    /// Inode made, opened or changed, or session opened.
    #[prost(uint64, tag = "2")]
    pub id: u64,
    /// True if `or_open` found an existing file.
    #[prost(bool, tag = "3")]
    pub existed: bool,
    /// Attributes of that inode just after, where there is one.
    #[prost(message, optional, tag = "4")]
    pub attr: Option<Attr>,
    /// After `Make` of a file: a capability to read and write it, as [`OpenReply`]; empty if the file existed.
    #[prost(bytes = "vec", tag = "5")]
    pub capability: Vec<u8>,
    /// After `Make` of a directory by a session that asked for grants: for how many milliseconds the session may cache its
    /// names, of which there are none yet.
    #[prost(uint32, tag = "6")]
    pub empty_ms: u32,
    /// After a change of names by a session that asked for grants: attributes just after of the directories whose names it
    /// changed. None after an exchange of names and after the renaming of a directory, which change other directories too.
    #[prost(message, repeated, tag = "7")]
    pub parents: Vec<Attr>,
    /// For how many milliseconds the session may cache those attributes.
    #[prost(uint32, tag = "8")]
    pub parents_ms: u32,
}

/// Asks for the current time of the server, or what a text means as an instant.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Now {
    /// Name of a snapshot to look up, or `last-whole`; empty asks for now.
    #[prost(string, tag = "1")]
    pub name: String,
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
}

/// Lists named instants.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Snapshots {
    /// True: with the bytes that each holds back, which takes a look at what changed since.
    #[prost(bool, tag = "1")]
    pub with_bytes: bool,
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
    /// By whom.
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
    /// All of them.
    #[prost(message, repeated, tag = "1")]
    pub snapshots: Vec<Snapshot>,
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
}

/// What a line of `log` tells.
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

/// One version.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Version {
    /// What happened.
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
    /// On whose behalf.
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
    /// In order of stamp.
    #[prost(message, repeated, tag = "1")]
    pub versions: Vec<Version>,
    /// True if more follow.
    #[prost(bool, tag = "2")]
    pub more: bool,
    /// The sessions named.
    #[prost(message, repeated, tag = "3")]
    pub sessions: Vec<SessionInfo>,
    /// What was forgotten: nothing before it is told.
    #[prost(message, optional, tag = "4")]
    pub forgotten: Option<crate::forget::Forgotten>,
}

/// Asks how the server is.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Status {}

/// How the server is.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StatusReply {
    /// `healthy`, or what is wrong in words.
    #[prost(string, tag = "1")]
    pub health: String,
    /// Clock-error bound, microseconds; `u64::MAX`: unknown.
    #[prost(uint64, tag = "2")]
    pub clock_error_us: u64,
    /// True if the node has fenced itself: read-only.
    #[prost(bool, tag = "3")]
    pub fenced: bool,
    /// Newest stamp given.
    #[prost(uint64, tag = "4")]
    pub newest: u64,
    /// Earliest readable instant.
    #[prost(uint64, tag = "5")]
    pub earliest: u64,
    /// Newest closed instant.
    #[prost(uint64, tag = "6")]
    pub stable: u64,
    /// Every record stamped up to it is on stable storage.
    #[prost(uint64, tag = "7")]
    pub durable: u64,
    /// Bytes acknowledged and not yet on stable storage.
    #[prost(uint64, tag = "8")]
    pub dirty_bytes: u64,
    /// Age of the oldest of them, milliseconds.
    #[prost(uint64, tag = "9")]
    pub dirty_age_ms: u64,
    /// Bytes of the device that frieze may use.
    #[prost(uint64, tag = "10")]
    pub capacity_bytes: u64,
    /// Bytes free for data, the reserve left out.
    #[prost(uint64, tag = "11")]
    pub free_bytes: u64,
    /// Bytes of records held, history included.
    #[prost(uint64, tag = "12")]
    pub log_bytes: u64,
    /// Records held.
    #[prost(uint64, tag = "13")]
    pub records: u64,
    /// Inodes alive.
    #[prost(uint64, tag = "14")]
    pub inodes: u64,
    /// Open sessions.
    #[prost(uint64, tag = "15")]
    pub sessions: u64,
    /// Open connections.
    #[prost(uint64, tag = "16")]
    pub connections: u64,
    /// Resident memory of the server now, bytes.
    #[prost(uint64, tag = "17")]
    pub resident_bytes: u64,
    /// Largest resident memory so far, bytes.
    #[prost(uint64, tag = "18")]
    pub resident_bytes_peak: u64,
    /// CPU time used by the server so far, nanoseconds.
    #[prost(uint64, tag = "19")]
    pub cpu_ns: u64,
    /// Lost intervals, oldest first.
    #[prost(message, repeated, tag = "20")]
    pub gaps: Vec<Gap>,
    /// Software and version.
    #[prost(string, tag = "21")]
    pub software: String,
    /// Cluster, 32 hex digits.
    #[prost(string, tag = "22")]
    pub cluster: String,
    /// Milliseconds since the server began to serve.
    #[prost(uint64, tag = "23")]
    pub uptime_ms: u64,
    /// Last position of the metalog.
    #[prost(uint64, tag = "24")]
    pub metalog_index: u64,
    /// Bytes of memory that the index of the device log holds.
    #[prost(uint64, tag = "25")]
    pub index_bytes: u64,
    /// Newest instant at which everything was whole at the last crash; 0 if none is known to have lost anything.
    #[prost(uint64, tag = "26")]
    pub last_whole: u64,
    /// Bytes of records that were forgotten since the server started, or found forgotten when it did.
    #[prost(uint64, tag = "27")]
    pub forgotten_bytes: u64,
    /// Bytes of those that are not given back yet.
    #[prost(uint64, tag = "28")]
    pub forgotten_waiting_bytes: u64,
    /// While a forgetting is worked out: files and directories looked at so far, each up to three times.
    #[prost(uint64, tag = "29")]
    pub forgetting_looked_at: u64,
    /// How many there are to look at; 0 while they are still being found, or if nothing is being forgotten.
    #[prost(uint64, tag = "30")]
    pub forgetting_to_look_at: u64,
}

/// An interval whose unflushed records a crash lost.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Gap {
    /// Everything up to it survived.
    #[prost(uint64, tag = "1")]
    pub from: u64,
    /// New stamps lie above it.
    #[prost(uint64, tag = "2")]
    pub to: u64,
}

/// Says that the session is alive; any request does.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Ping {}

/// Nothing to add.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Done {}

/// Everything a client can ask.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum Request {
    /// First message of a connection.
    #[prost(message, tag = "1")]
    Hello(Hello),
    /// Second, where a key proves the caller.
    #[prost(message, tag = "2")]
    Prove(Prove),
    /// Sign of life.
    #[prost(message, tag = "3")]
    Ping(Ping),
    /// Attributes.
    #[prost(message, tag = "4")]
    Stat(Stat),
    /// Entries.
    #[prost(message, tag = "5")]
    List(List),
    /// Target of a symbolic link.
    #[prost(message, tag = "6")]
    ReadLink(ReadLink),
    /// Rights.
    #[prost(message, tag = "7")]
    Access(Access),
    /// Extended attribute.
    #[prost(message, tag = "8")]
    GetXattr(GetXattr),
    /// Opens a file.
    #[prost(message, tag = "9")]
    Open(Open),
    /// Reads bytes.
    #[prost(message, tag = "10")]
    Read(Read),
    /// Writes bytes.
    #[prost(message, tag = "11")]
    Write(Write),
    /// Barrier.
    #[prost(message, tag = "12")]
    Sync(Sync),
    /// Finds data or holes.
    #[prost(message, tag = "13")]
    Seek(Seek),
    /// Metadata transaction.
    #[prost(message, tag = "14")]
    Txn(Txn),
    /// Time.
    #[prost(message, tag = "15")]
    Now(Now),
    /// Named instants.
    #[prost(message, tag = "16")]
    Snapshots(Snapshots),
    /// Versions of a file.
    #[prost(message, tag = "17")]
    Log(Log),
    /// Health.
    #[prost(message, tag = "18")]
    Status(Status),
    /// Punches a hole.
    #[prost(message, tag = "40")]
    Punch(Punch),
    /// Copies by sharing.
    #[prost(message, tag = "70")]
    Clone(crate::edit::CloneTree),
    /// Puts back what was.
    #[prost(message, tag = "71")]
    Restore(crate::edit::Restore),
    /// Takes back what somebody did.
    #[prost(message, tag = "72")]
    Undo(crate::edit::Undo),
    /// Copies a range by sharing.
    #[prost(message, tag = "73")]
    CopyRange(crate::edit::CopyRange),
    /// Forgets what was before an instant.
    #[prost(message, tag = "74")]
    Forget(crate::forget::Forget),
    /// Waits for recalls of cache grants.
    #[prost(message, tag = "50")]
    Recalls(Recalls),
    /// Locks or unlocks.
    #[prost(message, tag = "51")]
    Lock(Lock),
    /// Looks for a lock.
    #[prost(message, tag = "52")]
    TestLock(TestLock),
    /// Waits for a lock no longer.
    #[prost(message, tag = "53")]
    CancelLock(CancelLock),
    /// Differences of two instants.
    #[prost(message, tag = "60")]
    Diff(Diff),
    /// What happened in a directory.
    #[prost(message, tag = "61")]
    Story(Story),
    /// The newest instant at which a path existed.
    #[prost(message, tag = "62")]
    LastSeen(LastSeen),
    /// Names that once were there.
    #[prost(message, tag = "63")]
    Deleted(Deleted),
    /// Who was connected.
    #[prost(message, tag = "64")]
    Sessions(Sessions),
    /// Bytes of now and of history.
    #[prost(message, tag = "65")]
    Usage(Usage),
}

/// Body of a request frame.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RequestBody {
    /// On whose behalf; absent: the proven user of the connection. Only a connection that may impersonate may set it.
    #[prost(message, optional, tag = "30")]
    pub caller: Option<Caller>,
    /// What is asked.
    #[prost(
        oneof = "Request",
        tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 40, 50, 51, 52, 53, 60, 61, 62, 63, 64, 65, 70, 71, 72, 73, 74"
    )]
    pub request: Option<Request>,
}

/// Everything a server can answer.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum Reply {
    /// To [`Hello`].
    #[prost(message, tag = "1")]
    Hello(HelloReply),
    /// Done.
    #[prost(message, tag = "2")]
    Done(Done),
    /// To [`Stat`].
    #[prost(message, tag = "4")]
    Stat(StatReply),
    /// To [`List`].
    #[prost(message, tag = "5")]
    List(ListReply),
    /// To [`ReadLink`] and [`GetXattr`].
    #[prost(message, tag = "6")]
    Bytes(BytesReply),
    /// To [`Open`].
    #[prost(message, tag = "9")]
    Open(OpenReply),
    /// To [`Read`]; the payload holds the bytes.
    #[prost(message, tag = "10")]
    Read(ReadReply),
    /// To [`Write`].
    #[prost(message, tag = "11")]
    Write(WriteReply),
    /// To [`Seek`]: the offset found; `NotFound` if there is none.
    #[prost(uint64, tag = "13")]
    Seek(u64),
    /// To [`Txn`].
    #[prost(message, tag = "14")]
    Txn(TxnReply),
    /// To [`Now`].
    #[prost(message, tag = "15")]
    Now(NowReply),
    /// To [`Snapshots`].
    #[prost(message, tag = "16")]
    Snapshots(SnapshotsReply),
    /// To [`Log`].
    #[prost(message, tag = "17")]
    Log(LogReply),
    /// To [`Status`].
    #[prost(message, tag = "18")]
    Status(StatusReply),
    /// To [`Punch`].
    #[prost(message, tag = "40")]
    Punch(PunchReply),
    /// To [`Request::Clone`], [`Request::Restore`], [`Request::Undo`] and [`Request::CopyRange`].
    #[prost(message, tag = "70")]
    Edited(crate::edit::EditReply),
    /// To [`Request::Forget`].
    #[prost(message, tag = "74")]
    Forgot(crate::forget::ForgetReply),
    /// To [`Recalls`].
    #[prost(message, tag = "50")]
    Recalls(RecallsReply),
    /// To [`Lock`] and [`CancelLock`].
    #[prost(message, tag = "51")]
    Lock(LockReply),
    /// To [`TestLock`].
    #[prost(message, tag = "52")]
    TestLock(TestLockReply),
    /// To [`Diff`].
    #[prost(message, tag = "60")]
    Diff(DiffReply),
    /// To [`Story`].
    #[prost(message, tag = "61")]
    Story(StoryReply),
    /// To [`LastSeen`].
    #[prost(message, tag = "62")]
    LastSeen(LastSeenReply),
    /// To [`Deleted`].
    #[prost(message, tag = "63")]
    Deleted(DeletedReply),
    /// To [`Sessions`].
    #[prost(message, tag = "64")]
    Sessions(SessionsReply),
    /// To [`Usage`].
    #[prost(message, tag = "65")]
    Usage(UsageReply),
}

/// Body of a reply frame.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ReplyBody {
    /// The answer.
    #[prost(
        oneof = "Reply",
        tags = "1, 2, 4, 5, 6, 9, 10, 11, 13, 14, 15, 16, 17, 18, 40, 50, 51, 52, 60, 61, 62, 63, 64, 65, 70, 74"
    )]
    pub reply: Option<Reply>,
}

/// Body of a refusal frame.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Refusal {
    /// Code of `base::Reason`.
    #[prost(uint32, tag = "1")]
    pub reason: u32,
    /// What was wrong, where, and what to do.
    #[prost(string, tag = "2")]
    pub message: String,
}
