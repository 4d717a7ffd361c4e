//! Attributes, locks and times in the kernel's terms.

use std::time::Duration;

use frieze_base::InodeId;
use frieze_client::{Attr, FileKind, LockKind, LockRange, TimeValue};
use nix::errno::Errno;

use crate::node::{Full, NodeId, ViewTime};
use crate::operations::{Attributes, FileLock, LockFor, NewTime, NodeKind};

/// Attributes of a file as the kernel gets them.
pub(crate) fn attributes(node: NodeId, attr: &Attr) -> Attributes {
    Attributes {
        node,
        kind: node_kind(attr.kind()),
        mode: attr.mode & MODE_MASK,
        links: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        size: attr.size,
        bytes_live: attr.bytes_live,
        atime_ns: attr.atime_ns,
        mtime_ns: attr.mtime_ns,
        ctime_ns: attr.ctime_ns,
        rdev: attr.rdev,
    }
}

pub(crate) fn node_kind(kind: FileKind) -> NodeKind {
    match kind {
        FileKind::File => NodeKind::File,
        FileKind::Directory => NodeKind::Directory,
        FileKind::Symlink => NodeKind::Symlink,
        FileKind::Fifo => NodeKind::Fifo,
        FileKind::Socket => NodeKind::Socket,
        FileKind::CharDevice => NodeKind::CharDevice,
        FileKind::BlockDevice => NodeKind::BlockDevice,
    }
}

/// How long names and attributes of a view hold.
pub(crate) fn valid(when: ViewTime) -> Duration {
    if when.is_final() { PAST_VALID } else { Duration::ZERO }
}

/// No number is free for another view.
pub(crate) fn too_many(_: Full) -> Errno {
    tracing::warn!("too many instants are in use by the kernel at once; drop its caches or unmount");
    Errno::ENFILE
}

pub(crate) fn time_value(time: NewTime) -> TimeValue {
    match time {
        NewTime::Now => TimeValue { now: true, ns: 0 },
        NewTime::At(ns) => TimeValue { now: false, ns },
    }
}

/// A lock as the server knows it.
pub(crate) fn range_of(inode: InodeId, lock: FileLock) -> LockRange {
    let kind = match lock.kind {
        LockFor::Reading => LockKind::Shared,
        LockFor::Writing => LockKind::Exclusive,
        LockFor::Nothing => LockKind::Unlock,
    };
    let FileLock { owner, start, end, pid, .. } = lock;
    LockRange { inode: inode.0, owner, kind: kind as i32, start, end, pid }
}

/// Validity of names and attributes of an exact instant. They never change; the rights to see them may, so they are
/// requested again.
const PAST_VALID: Duration = Duration::from_secs(1);

/// Permission, set-id and sticky bits of a mode.
pub(crate) const MODE_MASK: u32 = 0o7777;
pub(crate) const SET_USER_ID: u32 = 0o4000;
pub(crate) const SET_GROUP_ID: u32 = 0o2000;
