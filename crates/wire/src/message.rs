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
    ChainMembers, Cluster, ClusterChain, ClusterMap, ClusterMapReply, ClusterNodeStatus, ClusterOp, ClusterReply,
    ClusterTargetStatus, Join, JoinReply, NodeAddress,
};
pub use hello::{EmptyReply, FormerCluster, Hello, HelloReply, Ping, Prove};
pub use instants::{Log, LogReply, Now, NowReply, Snapshot, Snapshots, SnapshotsReply, Version, VersionKind};
pub use names::{Access, BytesReply, DirEntry, GetXattr, List, ListReply, PATH_XATTR, ReadLink, Stat, StatReply};
pub use status::{
    FabricStatus, Gap, ImageStatus, MemoryUse, ReplicaStatus, Status, StatusReply, ThinnedStatus, Trouble,
};

use crate::holding::{CancelLock, Lock, LockReply, Recalls, RecallsReply, TestLock, TestLockReply};
use crate::timeline::{
    AwaitChange, AwaitChangeReply, Deleted, DeletedReply, Diff, DiffReply, LastExisted, LastExistedReply, Sessions,
    SessionsReply, Story, StoryReply, Usage, UsageReply,
};
use crate::trace::TraceContext;
use crate::txn::{Caller, Op};
pub use crate::view::{Attr, FileKind, InstantInfo, View};

/// A metadata transaction; session, seq and acked are in the frame header.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Txn {
    /// When to acknowledge.
    #[prost(enumeration = "Durability", tag = "1")]
    pub durability: i32,
    /// The operation.
    #[prost(
        oneof = "Op",
        tags = "10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 70, 74, 190, 195, 196, \
                197, 198, 199, 200, 201"
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
    /// After `Make` of a directory by a session that asked for grants: for how many milliseconds the session may cache
    /// its names, of which there are none yet.
    #[prost(uint32, tag = "6")]
    pub empty_ms: u32,
    /// After a change of names by a session that asked for grants: attributes just after of the directories whose names
    /// it changed. None after an exchange of names and after the renaming of a directory, which change other
    /// directories too.
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
    /// Restores a former state.
    #[prost(message, tag = "71")]
    Restore(crate::edit::Restore),
    /// Undoes the changes of an actor.
    #[prost(message, tag = "72")]
    Undo(crate::edit::Undo),
    /// Copies a range by sharing.
    #[prost(message, tag = "73")]
    CopyRange(crate::edit::CopyRange),
    /// Forgets the history before an instant.
    #[prost(message, tag = "74")]
    Forget(crate::forget::Forget),
    /// Removes a tree.
    #[prost(message, tag = "75")]
    RemoveTree(crate::edit::RemoveTree),
    /// Joins files.
    #[prost(message, tag = "76")]
    JoinFiles(crate::edit::JoinFiles),
    /// Changes mode and owner of a tree.
    #[prost(message, tag = "77")]
    ChangeTree(crate::edit::ChangeTree),
    /// Which instants are kept.
    #[prost(message, tag = "78")]
    Retention(crate::retention::Retention),
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
    /// Events in a directory.
    #[prost(message, tag = "61")]
    Story(Story),
    /// The newest instant at which a path existed.
    #[prost(message, tag = "62")]
    LastExisted(LastExisted),
    /// Names that once were there.
    #[prost(message, tag = "63")]
    Deleted(Deleted),
    /// The sessions of an interval.
    #[prost(message, tag = "64")]
    Sessions(Sessions),
    /// Bytes of now and of history.
    #[prost(message, tag = "65")]
    Usage(Usage),
    /// The next change.
    #[prost(message, tag = "66")]
    AwaitChange(AwaitChange),
    /// Damaged data.
    #[prost(message, tag = "100")]
    Scrub(crate::scrub::Scrub),
    /// Which server answers for which chain.
    #[prost(message, tag = "142")]
    ClusterMap(ClusterMap),
    /// To be one of the cluster.
    #[prost(message, tag = "143")]
    Join(Join),
    /// The state of the cluster, and operations on it.
    #[prost(message, tag = "144")]
    Cluster(Cluster),
    /// One-sided transfers.
    #[prost(message, tag = "150")]
    ConnectFabric(crate::fabric::ConnectFabric),
}

/// Body of a request frame.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RequestBody {
    /// User on whose behalf the request runs; absent: the proven user of the connection. Only a connection that may
    /// impersonate may set it.
    #[prost(message, optional, tag = "30")]
    pub caller: Option<Caller>,
    /// The span that the request is a part of; absent: it is not sampled.
    #[prost(message, optional, tag = "31")]
    pub trace: Option<TraceContext>,
    /// The request.
    #[prost(
        oneof = "Request",
        tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 40, 50, 51, 52, 53, \
                60, 61, 62, 63, 64, 65, 66, 70, 71, 72, 73, 74, 75, 76, 77, 78, 100, 142, 143, 144, 150"
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
    Done(EmptyReply),
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
    /// [`Request::RemoveTree`], [`Request::JoinFiles`] and [`Request::ChangeTree`].
    #[prost(message, tag = "70")]
    Edited(crate::edit::EditReply),
    /// To [`Request::Forget`].
    #[prost(message, tag = "74")]
    Forgot(crate::forget::ForgetReply),
    /// To [`Request::Retention`].
    #[prost(message, tag = "78")]
    Retention(crate::retention::RetentionReply),
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
    /// To [`LastExisted`].
    #[prost(message, tag = "62")]
    LastExisted(LastExistedReply),
    /// To [`Deleted`].
    #[prost(message, tag = "63")]
    Deleted(DeletedReply),
    /// To [`Sessions`].
    #[prost(message, tag = "64")]
    Sessions(SessionsReply),
    /// To [`Usage`].
    #[prost(message, tag = "65")]
    Usage(UsageReply),
    /// To [`AwaitChange`].
    #[prost(message, tag = "66")]
    AwaitChange(AwaitChangeReply),
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
        tags = "1, 2, 4, 5, 6, 9, 10, 11, 13, 14, 15, 16, 17, 18, 40, 50, 51, 52, 60, 61, 62, 63, 64, \
                65, 66, 70, 74, 78, 100, 142, 143, 144"
    )]
    pub reply: Option<Reply>,
}

/// Body of a refusal frame.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Refusal {
    /// Code of `base::Reason`.
    #[prost(uint32, tag = "1")]
    pub reason: u32,
    /// What failed, on which object, and what to do.
    #[prost(string, tag = "2")]
    pub message: String,
}
