//! Requests of the kernel to a mounted file system, in plain types.
//!
//! The seam between the logic ([`crate::tree`]) and a way to talk to a kernel ([`crate::kernel`], over the `fuser`
//! crate): another transport (io_uring, virtio-fs) implements calls of this trait and leaves the logic alone.

use std::time::Duration;

use frieze_client::FreeSpace;
use nix::errno::Errno;

use crate::cache::{CachePromise, Holding};
use crate::locking::LockAnswer;
use crate::node::NodeId;

/// The caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FuseCaller {
    /// User id of the calling thread.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Thread id; 0 if it lives in another pid namespace, or the kernel itself asks.
    pub thread: u32,
}

/// The kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeKind {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Named pipe.
    Fifo,
    /// Unix socket.
    Socket,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
}

/// Attributes of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// The node; its id is also `st_ino`.
    pub node: NodeId,
    /// Kind.
    pub kind: NodeKind,
    /// Permission bits, without the type.
    pub mode: u32,
    /// Number of names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length, bytes.
    pub size: u64,
    /// Bytes that hold data.
    pub bytes_live: u64,
    /// Access time, nanoseconds since 1970.
    pub atime_ns: i64,
    /// Modification time.
    pub mtime_ns: i64,
    /// Change time.
    pub ctime_ns: i64,
    /// Device number of a special file.
    pub rdev: u32,
}

/// Attributes, and how long they and the name they were found by may be used without asking again. Each entry of a
/// lookup, a creation or a listing with attributes gives the kernel one reference to the node, until it forgets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FuseEntry {
    /// The attributes.
    pub attributes: Attributes,
    /// How long they hold.
    pub valid: Duration,
    /// The server's grant: the entry is valid as long as that instead.
    pub promise: Option<CachePromise>,
}

/// The result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LookupResult {
    /// A file.
    Entry(FuseEntry),
    /// Nothing; the kernel may remember that.
    Absent(CachePromise),
}

/// An open file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenResult {
    /// Its number.
    pub handle: u64,
    /// True: cached bytes of the file are still right.
    pub keep_cache: bool,
    /// True: nothing has to happen at close(2), so the kernel need not send it.
    pub no_flush: bool,
    /// True: reads and writes go past the kernel's cache, each as one request.
    pub direct: bool,
}

/// How a file is opened: the flags of open(2) that a file system has to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OpenHow {
    /// To read.
    pub read: bool,
    /// To write.
    pub write: bool,
    /// `O_TRUNC`, of a creation: for a file that is there, the kernel asks on its own.
    pub truncate: bool,
    /// `O_EXCL`, for a creation.
    pub exclusive: bool,
    /// Every write goes to the end (`O_APPEND`).
    pub append: bool,
    /// To run it: needs the right to execute, not the one to read.
    pub execute: bool,
}

/// How bytes are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteHow {
    /// At the end of the file, wherever that is by now (`O_APPEND`); the offset is ignored.
    pub append: bool,
    /// Durable on return (`O_SYNC`, `O_DSYNC`).
    pub sync: bool,
    /// Set-user-id and set-group-id bits of the file end with this write.
    pub kill_privileges: bool,
    /// A page of a shared mapping, written back.
    pub from_cache: bool,
}

/// A new time of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewTime {
    /// The instant of the change.
    Now,
    /// Nanoseconds since 1970.
    At(i64),
}

/// Changes of attributes; absent ones stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AttrChanges {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<NewTime>,
    /// Modification time.
    pub mtime: Option<NewTime>,
    /// The open file they came by (ftruncate), if any.
    pub handle: Option<u64>,
}

/// How a name is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RenameHow {
    /// An existing new name is replaced.
    Replace,
    /// An existing new name is an error.
    NoReplace,
    /// The two names change places.
    Exchange,
}

/// The mode of a new node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewMode {
    /// Permission bits, as in `st_mode`.
    pub mode: u32,
    /// Permission bits that are not given, unless the directory has a default access list.
    pub umask: u32,
}

/// The node that mknod(2) creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewNode {
    /// Kind and permission bits.
    pub mode: NewMode,
    /// Device number.
    pub rdev: u32,
}

/// An operation of fallocate(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allocate {
    /// Space for the range, and a file at least as long.
    Extend,
    /// Space for the range; the length stays.
    KeepSize,
    /// The range is a hole from now on; the length stays.
    Punch,
    /// The range is a hole from now on, and the file at least as long.
    Zero,
    /// The range is a hole from now on, as far as the file reaches; the length stays.
    ZeroKeepSize,
    /// Anything else: collapsing, inserting, unsharing.
    Other,
}

/// The target of lseek(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeekFor {
    /// The next byte of data.
    Data,
    /// The next hole; the end of the file counts as one.
    Hole,
}

/// The kind of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockFor {
    /// Writers.
    Reading,
    /// Excludes all other owners.
    Writing,
    /// Excludes none: the lock is released.
    Nothing,
}

/// A lock on a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileLock {
    /// The owner.
    pub owner: u64,
    /// The kind.
    pub kind: LockFor,
    /// First byte.
    pub start: u64,
    /// Last byte, inclusive.
    pub end: u64,
    /// Process.
    pub pid: u32,
}

/// A lock that a program asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WantedLock {
    /// Which.
    pub range: FileLock,
    /// Through which open file.
    pub handle: u64,
    /// Whether the program waits until the way is free.
    pub wait: bool,
}

/// A line of a listing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirLine<'a> {
    /// The node it names.
    pub node: NodeId,
    /// Kind of that node.
    pub kind: NodeKind,
    /// The name.
    pub name: &'a [u8],
    /// The offset after this line.
    pub cookie: u64,
}

/// Every request of a kernel. Errors are those that the program gets. Calls come from many threads at once and may
/// wait.
///
/// `name` is one component, never empty, `.` or `..`.
pub(crate) trait Operations: Send + Sync + 'static {
    fn lookup(&self, who: FuseCaller, parent: NodeId, name: &[u8]) -> Result<LookupResult, Errno>;
    /// Hands an answer to the kernel by `answer`, which asks for its validity.
    fn giving(&self, answer: &mut dyn FnMut(&Holding<'_>));
    /// The kernel drops `count` references.
    fn forget(&self, node: NodeId, count: u64);
    fn getattr(&self, who: FuseCaller, node: NodeId) -> Result<FuseEntry, Errno>;
    fn setattr(&self, who: FuseCaller, node: NodeId, changes: AttrChanges) -> Result<FuseEntry, Errno>;
    fn readlink(&self, who: FuseCaller, node: NodeId) -> Result<Vec<u8>, Errno>;
    fn mknod(&self, who: FuseCaller, parent: NodeId, name: &[u8], new: NewNode) -> Result<FuseEntry, Errno>;
    fn mkdir(&self, who: FuseCaller, parent: NodeId, name: &[u8], mode: NewMode) -> Result<FuseEntry, Errno>;
    fn symlink(&self, who: FuseCaller, parent: NodeId, name: &[u8], target: &[u8]) -> Result<FuseEntry, Errno>;
    fn link(&self, who: FuseCaller, node: NodeId, parent: NodeId, name: &[u8]) -> Result<FuseEntry, Errno>;
    fn unlink(&self, who: FuseCaller, parent: NodeId, name: &[u8]) -> Result<(), Errno>;
    fn rmdir(&self, who: FuseCaller, parent: NodeId, name: &[u8]) -> Result<(), Errno>;
    fn rename(&self, who: FuseCaller, from: (NodeId, &[u8]), to: (NodeId, &[u8]), how: RenameHow) -> Result<(), Errno>;
    fn create(
        &self,
        who: FuseCaller,
        parent: NodeId,
        name: &[u8],
        mode: NewMode,
        how: OpenHow,
    ) -> Result<(FuseEntry, OpenResult), Errno>;
    fn open(&self, who: FuseCaller, node: NodeId, how: OpenHow) -> Result<OpenResult, Errno>;
    /// Fills `into` from `offset`; less than full only at the end of the file.
    fn read(&self, handle: u64, offset: u64, into: &mut [u8]) -> Result<usize, Errno>;
    /// Writes `data` or fails. Returns how much of it: all, but for the rest of a run of records that the kernel has
    /// cut within one.
    fn write(&self, handle: u64, offset: u64, data: &[u8], how: WriteHow) -> Result<usize, Errno>;
    fn fsync(&self, handle: u64) -> Result<(), Errno>;
    /// A program closed its descriptor: locks that `owner` has on the file end.
    fn flush(&self, node: NodeId, owner: u64);
    /// `owner`: its locks on the file end with it.
    fn release(&self, node: NodeId, handle: u64, owner: Option<u64>);
    /// Locks, unlocks or waits; `answer` is called when it is decided.
    fn lock(&self, who: FuseCaller, node: NodeId, lock: WantedLock, answer: LockAnswer);
    /// The first lock in the way.
    fn test_lock(&self, node: NodeId, range: FileLock) -> Result<Option<FileLock>, Errno>;
    fn seek(&self, handle: u64, offset: u64, what: SeekFor) -> Result<u64, Errno>;
    fn copy_range(&self, who: FuseCaller, from: (u64, u64), to: (u64, u64), len: u64) -> Result<u32, Errno>;
    fn allocate(&self, who: FuseCaller, handle: u64, offset: u64, len: u64, how: Allocate) -> Result<(), Errno>;
    fn opendir(&self, who: FuseCaller, node: NodeId) -> Result<OpenResult, Errno>;
    /// Shows lines after `cookie` (0: from the start) until `show` answers true: full.
    fn readdir(
        &self,
        who: FuseCaller,
        handle: u64,
        cookie: u64,
        show: &mut dyn FnMut(DirLine<'_>) -> bool,
    ) -> Result<(), Errno>;
    /// As `readdir`, with an entry for every line except `.` and `..`, whose attributes are their ids and kinds only.
    fn readdir_plus(
        &self,
        who: FuseCaller,
        handle: u64,
        cookie: u64,
        show: &mut dyn FnMut(DirLine<'_>, &FuseEntry) -> bool,
    ) -> Result<(), Errno>;
    fn fsyncdir(&self, handle: u64) -> Result<(), Errno>;
    fn releasedir(&self, handle: u64);
    fn statfs(&self, node: NodeId) -> Result<FreeSpace, Errno>;
    /// `flags`: 0 either, 1 `XATTR_CREATE`, 2 `XATTR_REPLACE`.
    fn setxattr(&self, who: FuseCaller, node: NodeId, name: &[u8], value: &[u8], flags: u32) -> Result<(), Errno>;
    fn getxattr(&self, who: FuseCaller, node: NodeId, name: &[u8]) -> Result<Vec<u8>, Errno>;
    /// Names, each ended by NUL.
    fn listxattr(&self, who: FuseCaller, node: NodeId) -> Result<Vec<u8>, Errno>;
    fn removexattr(&self, who: FuseCaller, node: NodeId, name: &[u8]) -> Result<(), Errno>;
    /// `mask`: `R_OK` 4, `W_OK` 2, `X_OK` 1.
    fn access(&self, who: FuseCaller, node: NodeId, mask: u32) -> Result<(), Errno>;
    /// The last call: everything still open is closed.
    fn destroy(&self);
}
