//! Metadata transactions: the content of a batch of the metalog, executed by every namespace.
//!
//! A transaction is executed at its stamp by `namespace` on every replica with the same result, errors included. Paths
//! are resolved when it runs. Values that come from outside the namespace (the settled size, the user of the caller)
//! are written into it by the server that received it, so that execution needs nothing else.

pub use crate::target::Target;

/// The caller: user, group and supplementary groups.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Caller {
    /// User id.
    #[prost(uint32, tag = "1")]
    pub uid: u32,
    /// Group id.
    #[prost(uint32, tag = "2")]
    pub gid: u32,
    /// Supplementary groups.
    #[prost(uint32, repeated, tag = "3")]
    pub groups: Vec<u32>,
}

/// A point in time of an inode in nanoseconds since the Unix epoch, or now (the stamp of the transaction).
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct TimeValue {
    /// True: the stamp of the transaction; `ns` is ignored.
    #[prost(bool, tag = "1")]
    pub now: bool,
    /// Nanoseconds since the Unix epoch.
    #[prost(sint64, tag = "2")]
    pub ns: i64,
}

/// Opens a session. Its id is the stamp of the transaction.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct OpenSession {
    /// Program or command line, as the client sent it; for `sessions` and `log`.
    #[prost(string, tag = "1")]
    pub command: String,
    /// The client's host, by its own description.
    #[prost(string, tag = "2")]
    pub host: String,
    /// The user proven by the server.
    #[prost(uint32, tag = "3")]
    pub uid: u32,
    /// The session will ask for cache grants or locks: a new leader of a cluster gives it time to claim them again.
    #[prost(bool, tag = "4")]
    pub keeps: bool,
}

/// Ends a session: its write grants become settled, its remembered replies are forgotten.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CloseSession {
    /// The settled state of every file the session still had open for writing.
    #[prost(message, repeated, tag = "1")]
    pub settled: Vec<Settle>,
    /// `Busy` if the session may write any file: it was considered ended, and is back. Filled in by the server.
    #[prost(bool, tag = "2")]
    pub only_stopped: bool,
}

/// Erases sessions that ended before an instant and changed nothing, those that ended first, 1,024 at most: nothing
/// that can be read at any instant names them.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct EraseSessions {
    /// The instant.
    #[prost(uint64, tag = "1")]
    pub before: u64,
}

/// The kind of inode that `Make` creates.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum MakeKind {
    /// A regular file; true: the session also opens it for writing (a write grant of chunk 0).
    #[prost(bool, tag = "10")]
    File(bool),
    /// A directory.
    #[prost(bool, tag = "11")]
    Directory(bool),
    /// A symbolic link to this target.
    #[prost(bytes, tag = "12")]
    Symlink(Vec<u8>),
    /// A fifo, socket or device: the type bits of mode (`S_IFIFO`, `S_IFSOCK`, `S_IFCHR`, `S_IFBLK`).
    #[prost(message, tag = "13")]
    Special(Special),
}

/// A fifo, socket or device node.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Special {
    /// Type bits of `st_mode`.
    #[prost(uint32, tag = "1")]
    pub file_type: u32,
    /// Device number, 0 where it has none.
    #[prost(uint32, tag = "2")]
    pub rdev: u32,
}

/// Makes a file, directory, symbolic link or special file.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Make {
    /// The new name. `follow` is ignored, except with `or_open`.
    #[prost(message, required, tag = "1")]
    pub target: Target,
    /// Permission bits, without those of the umask unless `umask` names them.
    #[prost(uint32, tag = "2")]
    pub mode: u32,
    /// True: an existing regular file is answered instead of `Exists` (open without `O_EXCL`).
    #[prost(bool, tag = "3")]
    pub or_open: bool,
    /// True: an existing file of the name, if it is no directory and the caller may write it, loses it to the new file;
    /// the answer names it. Only for a regular file, and not with `or_open`.
    #[prost(bool, tag = "4")]
    pub replaces: bool,
    /// True: it belongs to the group of the directory, whatever the directory's bits are, as in HDFS and BSD.
    #[prost(bool, tag = "5")]
    pub group_of_directory: bool,
    /// Permission bits of `mode` that are not given, unless the directory has a default access list, which then decides
    /// alone.
    #[prost(uint32, tag = "6")]
    pub umask: u32,
    /// The kind to create.
    #[prost(oneof = "MakeKind", tags = "10, 11, 12, 13")]
    pub kind: Option<MakeKind>,
}

/// Makes a regular file that never has a name, which the session opens for writing: bytes wait in it until they are put
/// into others at one stamp. It is removed like a file that has lost its last name.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct MakeNameless {
    /// The file that its bytes are for: it has the same layout.
    #[prost(uint64, tag = "1")]
    pub beside: u64,
}

/// Gives an existing file another name.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Link {
    /// The file.
    #[prost(message, required, tag = "1")]
    pub file: Target,
    /// Its new name.
    #[prost(message, required, tag = "2")]
    pub name: Target,
}

/// Removes a name.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Remove {
    /// The name.
    #[prost(message, required, tag = "1")]
    pub target: Target,
    /// True: an empty directory (rmdir); false: anything else (unlink).
    #[prost(bool, tag = "2")]
    pub directory: bool,
}

/// In [`Rename::flags`]: the two names change places.
pub const RENAME_EXCHANGE: u32 = 2;

/// Moves a name.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Rename {
    /// The old name.
    #[prost(message, required, tag = "1")]
    pub from: Target,
    /// The new name.
    #[prost(message, required, tag = "2")]
    pub to: Target,
    /// 0 replaces, 1 is `RENAME_NOREPLACE`, 2 is [`RENAME_EXCHANGE`].
    #[prost(uint32, tag = "3")]
    pub flags: u32,
}

/// Changes attributes. Absent fields stay.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SetAttr {
    /// The file.
    #[prost(message, required, tag = "1")]
    pub target: Target,
    /// Permission bits.
    #[prost(uint32, optional, tag = "2")]
    pub mode: Option<u32>,
    /// Owner.
    #[prost(uint32, optional, tag = "3")]
    pub uid: Option<u32>,
    /// Group.
    #[prost(uint32, optional, tag = "4")]
    pub gid: Option<u32>,
    /// Length in bytes: a truncate. Puts a horizon at the stamp of the transaction.
    #[prost(uint64, optional, tag = "5")]
    pub size: Option<u64>,
    /// Access time.
    #[prost(message, optional, tag = "6")]
    pub atime: Option<TimeValue>,
    /// Modification time.
    #[prost(message, optional, tag = "7")]
    pub mtime: Option<TimeValue>,
    /// True: the right to change the size was checked when the file was opened for writing (ftruncate).
    #[prost(bool, tag = "8")]
    pub by_handle: bool,
    /// The unsettled length and modification time of the file as the data plane knows them just before, so that a
    /// `stat` of an older instant stays cheap. Filled in by the server.
    #[prost(message, optional, tag = "9")]
    pub settled: Option<Settle>,
    /// True: `size` only extends. A file that is as long already keeps its length, whatever client extended it
    /// meanwhile.
    #[prost(bool, tag = "10")]
    pub extend: bool,
    /// True: at a length of 0 the order of the file's user times begins anew. Filled in by the server; false in
    /// transactions of older servers, which are executed as they were when they were logged.
    #[prost(bool, tag = "11")]
    pub times_anew: bool,
}

/// Sets an extended attribute.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SetXattr {
    /// The file.
    #[prost(message, required, tag = "1")]
    pub target: Target,
    /// Name, with its class: `user.color`.
    #[prost(bytes = "vec", tag = "2")]
    pub name: Vec<u8>,
    /// Value, at most 64 KiB.
    #[prost(bytes = "vec", tag = "3")]
    pub value: Vec<u8>,
    /// 0 either, 1 `XATTR_CREATE`, 2 `XATTR_REPLACE`.
    #[prost(uint32, tag = "4")]
    pub flags: u32,
}

/// Removes an extended attribute.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RemoveXattr {
    /// The file.
    #[prost(message, required, tag = "1")]
    pub target: Target,
    /// Name.
    #[prost(bytes = "vec", tag = "2")]
    pub name: Vec<u8>,
}

/// Sets the access lists of a file or directory, both at one stamp. Absent fields stay.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SetAcl {
    /// The file.
    #[prost(message, required, tag = "1")]
    pub target: Target,
    /// Its list, in the bytes of [`crate::acl`]. A list that is equivalent to a mode changes the mode; empty: the mode
    /// is to say all.
    #[prost(bytes = "vec", optional, tag = "2")]
    pub access: Option<Vec<u8>>,
    /// The default list, inherited by what is created in it; empty: none.
    #[prost(bytes = "vec", optional, tag = "3")]
    pub default_list: Option<Vec<u8>>,
    /// The list that it has now, if only that of its mode; another one means `Superseded`.
    #[prost(bytes = "vec", optional, tag = "4")]
    pub expect_access: Option<Vec<u8>>,
    /// The default list that it has now, empty for none; another one means `Superseded`.
    #[prost(bytes = "vec", optional, tag = "5")]
    pub expect_default: Option<Vec<u8>>,
}

/// Asks for the right to write chunks of a file (protocols §4). The caller proved at open that it may write.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Grant {
    /// The file.
    #[prost(uint64, tag = "1")]
    pub inode: u64,
    /// First chunk.
    #[prost(uint32, tag = "2")]
    pub first: u32,
    /// Number of chunks, at most 16.
    #[prost(uint32, tag = "3")]
    pub count: u32,
}

/// Replaces a session's write grant on a file by the settled size: at close, fsync and the end of a session.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Settle {
    /// The file.
    #[prost(uint64, tag = "1")]
    pub inode: u64,
    /// True: the session continues to write (fsync); its grant stays.
    #[prost(bool, tag = "2")]
    pub keep_grant: bool,
    /// Newest data stamp that `size` and `mtime_ns` cover. Filled in by the server from the data plane.
    #[prost(uint64, tag = "3")]
    pub stamp: u64,
    /// Length in bytes at that stamp. Filled in by the server.
    #[prost(uint64, tag = "4")]
    pub size: u64,
    /// Modification time by the newest write in ns, 0 if none since the last. Filled in by the server.
    #[prost(sint64, tag = "5")]
    pub mtime_ns: i64,
    /// Set if other servers took writes while this was measured: everything stamped up to it was counted, and perhaps
    /// some of what is newer. Filled in by the server.
    #[prost(uint64, optional, tag = "6")]
    pub complete: Option<u64>,
    /// With `complete`: the settled length that it was measured on. If that has changed, the measurement is void.
    /// Filled in by the server.
    #[prost(uint64, tag = "7")]
    pub since: u64,
}

/// Names an instant and pins its history.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct MakeSnapshot {
    /// Name: no `/`, not an instant, 1 to 255 bytes.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The instant; 0 is the stamp of the transaction.
    #[prost(uint64, tag = "2")]
    pub at: u64,
    /// How many snapshots the caller may have, this one included; 0: as many as there may be at all. Written by the
    /// server.
    #[prost(uint32, tag = "3")]
    pub count_max: u32,
}

/// Settles several files at once.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SettleAll {
    /// The files, at most 256.
    #[prost(message, repeated, tag = "1")]
    pub files: Vec<Settle>,
}

/// The session may not write to these files until it asks for the right again. Its earlier writes count for their
/// lengths until its grants are settled: a head that does not know of this yet may acknowledge more of them.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StopWriting {
    /// The files; those that the session has no grant on are passed over.
    #[prost(uint64, repeated, tag = "1")]
    pub inodes: Vec<u64>,
}

/// Forgets the name of an instant.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DeleteSnapshot {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// The operation of a transaction.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum Op {
    /// Opens a session.
    #[prost(message, tag = "10")]
    OpenSession(OpenSession),
    /// Ends a session.
    #[prost(message, tag = "11")]
    CloseSession(CloseSession),
    /// Makes an inode and a name for it.
    #[prost(message, tag = "12")]
    Make(Make),
    /// Gives another name.
    #[prost(message, tag = "13")]
    Link(Link),
    /// Removes a name.
    #[prost(message, tag = "14")]
    Remove(Remove),
    /// Moves a name.
    #[prost(message, tag = "15")]
    Rename(Rename),
    /// Changes attributes.
    #[prost(message, tag = "16")]
    SetAttr(SetAttr),
    /// Sets an extended attribute.
    #[prost(message, tag = "17")]
    SetXattr(SetXattr),
    /// Removes an extended attribute.
    #[prost(message, tag = "18")]
    RemoveXattr(RemoveXattr),
    /// Asks for the right to write.
    #[prost(message, tag = "19")]
    Grant(Grant),
    /// Settles a file's size.
    #[prost(message, tag = "20")]
    Settle(Settle),
    /// Names an instant.
    #[prost(message, tag = "21")]
    MakeSnapshot(MakeSnapshot),
    /// Forgets a named instant.
    #[prost(message, tag = "22")]
    DeleteSnapshot(DeleteSnapshot),
    /// Makes the file system: root directory and layout. The first transaction of a metalog, and only that.
    #[prost(message, tag = "23")]
    Format(Format),
    /// Settles several files that were closed one after the other.
    #[prost(message, tag = "24")]
    SettleAll(SettleAll),
    /// Many changes at one stamp: a clone, restore, undo or shared copy as the server has analysed it. Never taken from
    /// a client.
    #[prost(message, tag = "70")]
    Edit(crate::edit::Edit),
    /// Gives up the history before an instant. Never accepted from a client.
    #[prost(message, tag = "74")]
    Forget(crate::forget::Horizon),
    /// Makes a file without a name.
    #[prost(message, tag = "190")]
    MakeNameless(MakeNameless),
    /// Asks for the right to append. Records of the file may reach over the ends of the chunks from the first one named
    /// on, from then on: only where a chunk's chain has several members.
    #[prost(message, tag = "195")]
    GrantAppend(Grant),
    /// Takes from the session the right to write, before it is ended. Never taken from a client.
    #[prost(message, tag = "196")]
    StopWriting(StopWriting),
    /// Erases sessions that changed nothing. Never taken from a client.
    #[prost(message, tag = "197")]
    EraseSessions(EraseSessions),
    /// Sets access lists.
    #[prost(message, tag = "198")]
    SetAcl(SetAcl),
    /// Keeps a part of an edit. Never taken from a client.
    #[prost(message, tag = "199")]
    StageEdit(crate::edit::StageEdit),
    /// Thins history. Never taken from a client.
    #[prost(message, tag = "200")]
    RaiseMarks(RaiseMarks),
    /// Lets go of removed files that no kept instant shows. Never taken from a client.
    #[prost(message, tag = "201")]
    ExpireRemoved(ExpireRemoved),
}

/// Lets go of what is stored of removed files, which no instant shows that their policies of retention keep. A file
/// that has a name again, or is written to, stays.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ExpireRemoved {
    /// The files ([`crate::forget::encode_ids`]).
    #[prost(bytes = "vec", tag = "1")]
    pub inodes: Vec<u8>,
    /// Each lost its last name at or before this stamp.
    #[prost(uint64, tag = "2")]
    pub removed_upto: u64,
}

/// Raises the marks of all policies of retention that are due.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct RaiseMarks {
    /// All chains and the names are closed up to here: ages count back from it.
    #[prost(uint64, tag = "1")]
    pub closed: u64,
}

/// The first transaction: the root directory and the defaults that new files inherit.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Format {
    /// Chunk size in bytes, a power of two.
    #[prost(uint64, tag = "1")]
    pub chunk_bytes: u64,
    /// Number of chains that chunks are spread over.
    #[prost(uint32, tag = "2")]
    pub chain_count: u32,
    /// Owner of the root directory.
    #[prost(uint32, tag = "3")]
    pub uid: u32,
    /// Group of the root directory.
    #[prost(uint32, tag = "4")]
    pub gid: u32,
    /// Permission bits of the root directory.
    #[prost(uint32, tag = "5")]
    pub mode: u32,
}

/// A metadata transaction.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Transaction {
    /// Session that asks; 0 only for `OpenSession` and `Format`.
    #[prost(uint64, tag = "1")]
    pub session: u64,
    /// Number of the request in its session: executed once.
    #[prost(uint64, tag = "2")]
    pub seq: u64,
    /// Every seq of the session below it has been answered; its remembered reply may go.
    #[prost(uint64, tag = "3")]
    pub acked: u64,
    /// User on whose behalf.
    #[prost(message, required, tag = "4")]
    pub caller: Caller,
    /// The caller's newest known `Hlc`; the stamp of the batch lies above it.
    #[prost(uint64, tag = "5")]
    pub must_see: u64,
    /// The operation.
    #[prost(
        oneof = "Op",
        tags = "10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 70, 74, 190, 195, 196, 197, 198, 199, \
                200, 201"
    )]
    pub op: Option<Op>,
}

/// One entry of the metalog. Transaction i is stamped batch stamp + i.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Batch {
    /// The transactions in order.
    #[prost(message, repeated, tag = "1")]
    pub transactions: Vec<Transaction>,
    /// Inodes made from here on have numbers with larger counts: a power loss may have taken inodes with these, and a
    /// client that still knows them must not meet another file.
    #[prost(uint64, tag = "2")]
    pub ids_above: u64,
    /// Decisions of the control plane, executed after the transactions, in order.
    #[prost(message, repeated, tag = "3")]
    pub decisions: Vec<crate::control::DecisionProto>,
}

/// The result of a transaction. The same on every replica; remembered until acknowledged.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Outcome {
    /// Stamp of the transaction; of the first run if it was a retry.
    #[prost(uint64, tag = "1")]
    pub stamp: u64,
    /// The inode made, opened or changed; the session opened; 0 if none.
    #[prost(uint64, tag = "2")]
    pub id: u64,
    /// True if `or_open` found an existing file.
    #[prost(bool, tag = "3")]
    pub existed: bool,
    /// Why it failed: code of `base::Reason`; 0 if it did not.
    #[prost(uint32, tag = "4")]
    pub reason: u32,
    /// The sentence that goes with the reason.
    #[prost(string, tag = "5")]
    pub message: String,
    /// The other inode of a rename, which had the new name: it lost that, or has the old one after an exchange; 0 if
    /// none.
    #[prost(uint64, tag = "6")]
    pub replaced: u64,
}
