//! Requests and replies between a client and a server.
//!
//! A frame's header carries session, seq, epoch and `Hlc`; the bodies here carry the rest. State changes of metadata
//! are [`crate::txn`] operations inside [`Request::Txn`].

mod bytes;
mod cluster;
mod hello;
mod instants;
mod names;
mod status;

pub use bytes::{Durability, Open, OpenReply, Punch, PunchReply, Read, ReadReply, Seek, Sync, Write, WriteReply};
pub use cluster::{
    ChainMembers, Cluster, ClusterChain, ClusterMap, ClusterMapReply, ClusterOp, ClusterReply, Join, JoinReply,
    NodeAddress, NodeStatus, TargetStatus,
};
pub use hello::{Done, FormerCluster, Hello, HelloReply, Ping, Prove};
pub use instants::{Log, LogReply, Now, NowReply, Snapshot, Snapshots, SnapshotsReply, Version, VersionKind};
pub use names::{Access, BytesReply, DirEntry, GetXattr, List, ListReply, PATH_XATTR, ReadLink, Stat, StatReply};
pub use status::{ChainStatus, Gap, ImageStatus, MemoryUse, Status, StatusReply, Trouble};

use crate::holding::{CancelLock, Lock, LockReply, Recalls, RecallsReply, TestLock, TestLockReply};
use crate::timeline::{
    Deleted, DeletedReply, Diff, DiffReply, LastSeen, LastSeenReply, Sessions, SessionsReply, Story, StoryReply, Usage,
    UsageReply,
};
use crate::txn::{Caller, Op};

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
    /// True if an access list says more than the mode, or what is made in the directory begins with one.
    #[prost(bool, tag = "17")]
    pub has_acl: bool,
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
    /// True if the instant lies inside a gap: the state is that of what survived. Of bytes, at any instant and now, also if a chain went on
    /// from a copy that was behind, and what is shown may lack what was acknowledged before.
    #[prost(bool, tag = "4")]
    pub incomplete: bool,
    /// True if an answer by user time may still grow: the file does not yet hold a later user time.
    #[prost(bool, tag = "5")]
    pub user_time_open: bool,
    /// True if the server that answered has no lease, of an answer about an instant: it vouches for what was decided up to `executed`,
    /// and not for a gap, a right or a forgetting that was declared since.
    #[prost(bool, tag = "6")]
    pub without_lease: bool,
    /// Up to which stamp the server had executed what was decided about names, rights, forgetting and chains when it judged the
    /// request; 0 in answers of now.
    #[prost(uint64, tag = "7")]
    pub executed: u64,
}

/// A metadata transaction; session, seq and acked are in the frame header.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Txn {
    /// When to acknowledge.
    #[prost(enumeration = "Durability", tag = "1")]
    pub durability: i32,
    /// What to do.
    #[prost(
        oneof = "Op",
        tags = "10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 70, 74, 190, 195, 196, 197, 198"
    )]
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
    /// The other inode of a rename, which had the new name; 0 if there was none.
    #[prost(uint64, tag = "9")]
    pub replaced: u64,
}

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
    /// Removes a tree.
    #[prost(message, tag = "75")]
    RemoveTree(crate::edit::RemoveTree),
    /// Joins files.
    #[prost(message, tag = "76")]
    JoinFiles(crate::edit::JoinFiles),
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
    /// What is damaged.
    #[prost(message, tag = "100")]
    Scrub(crate::scrub::Scrub),
    /// Who answers for what.
    #[prost(message, tag = "142")]
    ClusterMap(ClusterMap),
    /// To be one of the cluster.
    #[prost(message, tag = "143")]
    Join(Join),
    /// How the cluster is, and what is to be done with it.
    #[prost(message, tag = "144")]
    Cluster(Cluster),
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
        tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 40, 50, 51, 52, 53, 60, 61, 62, 63, 64, 65, 70, 71, 72, 73, 74, 75, 76, 100, 142, 143, 144"
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
    Status(Box<StatusReply>),
    /// To [`Punch`].
    #[prost(message, tag = "40")]
    Punch(PunchReply),
    /// To [`Request::Clone`], [`Request::Restore`], [`Request::Undo`], [`Request::CopyRange`],
    /// [`Request::RemoveTree`] and [`Request::JoinFiles`].
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
    /// To [`Request::Scrub`].
    #[prost(message, tag = "100")]
    Scrub(crate::scrub::ScrubReply),
    /// To [`ClusterMap`].
    #[prost(message, tag = "142")]
    ClusterMap(ClusterMapReply),
    /// To [`Join`].
    #[prost(message, tag = "143")]
    Join(JoinReply),
    /// To [`Cluster`].
    #[prost(message, tag = "144")]
    Cluster(ClusterReply),
}

/// Body of a reply frame.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ReplyBody {
    /// The answer.
    #[prost(
        oneof = "Reply",
        tags = "1, 2, 4, 5, 6, 9, 10, 11, 13, 14, 15, 16, 17, 18, 40, 50, 51, 52, 60, 61, 62, 63, 64, 65, 70, 74, 100, 142, 143, 144"
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
