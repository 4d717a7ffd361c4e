//! The calls of a mount as a trace records them: one event for each request of the kernel.
//!
//! Guarantees: every operation that a program can cause passes here, also one that the mount answers from its own
//! caches. Leaves to others: what the requests beneath add to an event (`frieze_client`).

use std::sync::Arc;

use frieze_base::Reason;
use frieze_client::{CallKind, CallScope, EventFlags, FreeSpace, Gateway, Program, Recorder};
use nix::errno::Errno;

use crate::cache::Holding;
use crate::errno::reason_of;
use crate::locking::LockAnswer;
use crate::node::NodeId;
use crate::operations::{
    Allocate, AttrChanges, DirLine, FileLock, FuseCaller, FuseEntry, LookupResult, NewMode, NewNode, OpenHow,
    OpenResult, Operations, RenameHow, SeekFor, WantedLock, WriteHow,
};

/// Operations with a scope around each.
pub(crate) struct RecordedOperations<T> {
    operations: Arc<T>,
    trace: Option<(Recorder, Program)>,
    /// The mount shows the past.
    shows_past: bool,
}

impl<T: Operations> RecordedOperations<T> {
    pub(crate) fn new(operations: Arc<T>, recorder: Option<Recorder>, shows_past: bool) -> RecordedOperations<T> {
        let trace = recorder.map(|recorder| {
            let program = recorder.program("mount");
            (recorder, program)
        });
        RecordedOperations { operations, trace, shows_past }
    }

    fn scope(&self, call: CallKind, who: Option<FuseCaller>) -> CallScope<'_> {
        let Some((recorder, program)) = &self.trace else { return CallScope::off() };
        let scope = recorder.scope(Gateway::Mount, call);
        if let Some(who) = who {
            scope.actor(recorder.actor(program, who.uid));
        }
        if self.shows_past {
            scope.flag(EventFlags::PAST);
        }
        scope
    }

    fn about(&self, call: CallKind, who: FuseCaller, node: NodeId) -> CallScope<'_> {
        let scope = self.scope(call, Some(who));
        // Ids of the mount's own view are inode numbers; those of others are replaced by the requests beneath.
        if node.is_of_base() {
            scope.inode(node.0);
        }
        scope
    }

    fn named(&self, call: CallKind, who: FuseCaller, parent: NodeId, name: &[u8]) -> CallScope<'_> {
        let scope = self.scope(call, Some(who));
        if let (Some((recorder, _)), true) = (&self.trace, parent.is_of_base()) {
            scope.path(recorder, parent.0, name);
        }
        scope
    }

    fn ranged(&self, call: CallKind, handle: u64, offset: u64, len: u64) -> CallScope<'_> {
        let scope = self.scope(call, None);
        scope.stream(handle as u32);
        scope.range(offset, len);
        scope
    }
}

/// States how an operation ended. A fault that no request beneath has stated is the mount's own.
fn end<V>(scope: &CallScope<'_>, result: Result<V, Errno>) -> Result<V, Errno> {
    if scope.is_on() {
        match &result {
            Ok(_) => scope.result(0),
            Err(errno) => scope.failed(reason_of(*errno) as u32 as u16),
        }
    }
    result
}

impl<T: Operations> Operations for RecordedOperations<T> {
    fn lookup(&self, who: FuseCaller, parent: NodeId, name: &[u8]) -> Result<LookupResult, Errno> {
        let scope = self.named(CallKind::Lookup, who, parent, name);
        let found = self.operations.lookup(who, parent, name);
        match &found {
            Ok(LookupResult::Entry(entry)) => note_entry(&scope, entry),
            Ok(LookupResult::Absent(_)) => {
                scope.result(Reason::NotFound as u32 as u16);
                return found;
            }
            Err(_) => {}
        }
        end(&scope, found)
    }

    fn giving(&self, answer: &mut dyn FnMut(&Holding<'_>)) {
        self.operations.giving(answer);
    }

    fn forget(&self, node: NodeId, count: u64) {
        self.operations.forget(node, count);
    }

    fn getattr(&self, who: FuseCaller, node: NodeId) -> Result<FuseEntry, Errno> {
        let scope = self.about(CallKind::Stat, who, node);
        end(&scope, self.operations.getattr(who, node))
    }

    fn setattr(&self, who: FuseCaller, node: NodeId, changes: AttrChanges) -> Result<FuseEntry, Errno> {
        let call = if changes.size.is_some() { CallKind::Truncate } else { CallKind::SetAttr };
        let scope = self.about(call, who, node);
        end(&scope, self.operations.setattr(who, node, changes))
    }

    fn readlink(&self, who: FuseCaller, node: NodeId) -> Result<Vec<u8>, Errno> {
        let scope = self.about(CallKind::Readlink, who, node);
        end(&scope, self.operations.readlink(who, node))
    }

    fn mknod(&self, who: FuseCaller, parent: NodeId, name: &[u8], new: NewNode) -> Result<FuseEntry, Errno> {
        let scope = self.named(CallKind::Special, who, parent, name);
        end(&scope, self.operations.mknod(who, parent, name, new))
    }

    fn mkdir(&self, who: FuseCaller, parent: NodeId, name: &[u8], mode: NewMode) -> Result<FuseEntry, Errno> {
        let scope = self.named(CallKind::Mkdir, who, parent, name);
        end(&scope, self.operations.mkdir(who, parent, name, mode))
    }

    fn symlink(&self, who: FuseCaller, parent: NodeId, name: &[u8], target: &[u8]) -> Result<FuseEntry, Errno> {
        let scope = self.named(CallKind::Symlink, who, parent, name);
        end(&scope, self.operations.symlink(who, parent, name, target))
    }

    fn link(&self, who: FuseCaller, node: NodeId, parent: NodeId, name: &[u8]) -> Result<FuseEntry, Errno> {
        let scope = self.named(CallKind::Link, who, parent, name);
        end(&scope, self.operations.link(who, node, parent, name))
    }

    fn unlink(&self, who: FuseCaller, parent: NodeId, name: &[u8]) -> Result<(), Errno> {
        let scope = self.named(CallKind::Unlink, who, parent, name);
        end(&scope, self.operations.unlink(who, parent, name))
    }

    fn rmdir(&self, who: FuseCaller, parent: NodeId, name: &[u8]) -> Result<(), Errno> {
        let scope = self.named(CallKind::Rmdir, who, parent, name);
        end(&scope, self.operations.rmdir(who, parent, name))
    }

    fn rename(&self, who: FuseCaller, from: (NodeId, &[u8]), to: (NodeId, &[u8]), how: RenameHow) -> Result<(), Errno> {
        let scope = self.named(CallKind::Rename, who, from.0, from.1);
        end(&scope, self.operations.rename(who, from, to, how))
    }

    fn create(
        &self,
        who: FuseCaller,
        parent: NodeId,
        name: &[u8],
        mode: NewMode,
        how: OpenHow,
    ) -> Result<(FuseEntry, OpenResult), Errno> {
        let scope = self.named(CallKind::Create, who, parent, name);
        let made = self.operations.create(who, parent, name, mode, how);
        if let Ok((entry, opened)) = &made {
            note_entry(&scope, entry);
            scope.stream(opened.handle as u32);
        }
        end(&scope, made)
    }

    fn open(&self, who: FuseCaller, node: NodeId, how: OpenHow) -> Result<OpenResult, Errno> {
        let scope = self.about(CallKind::Open, who, node);
        let opened = self.operations.open(who, node, how);
        if let Ok(opened) = &opened {
            scope.stream(opened.handle as u32);
        }
        end(&scope, opened)
    }

    fn read(&self, handle: u64, offset: u64, into: &mut [u8]) -> Result<usize, Errno> {
        let scope = self.ranged(CallKind::Read, handle, offset, into.len() as u64);
        let count = self.operations.read(handle, offset, into);
        if let Ok(count) = count {
            scope.moved_in_all(count as u64);
        }
        end(&scope, count)
    }

    fn write(&self, handle: u64, offset: u64, data: &[u8], how: WriteHow) -> Result<usize, Errno> {
        let scope = self.ranged(CallKind::Write, handle, offset, data.len() as u64);
        let count = self.operations.write(handle, offset, data, how);
        if let Ok(count) = count {
            scope.moved_in_all(count as u64);
        }
        end(&scope, count)
    }

    fn fsync(&self, handle: u64) -> Result<(), Errno> {
        let scope = self.ranged(CallKind::Sync, handle, 0, 0);
        end(&scope, self.operations.fsync(handle))
    }

    fn flush(&self, node: NodeId, owner: u64) {
        let scope = self.scope(CallKind::Flush, None);
        if node.is_of_base() {
            scope.inode(node.0);
        }
        self.operations.flush(node, owner);
    }

    fn release(&self, node: NodeId, handle: u64, owner: Option<u64>) {
        let scope = self.ranged(CallKind::Close, handle, 0, 0);
        if node.is_of_base() {
            scope.inode(node.0);
        }
        self.operations.release(node, handle, owner);
    }

    fn lock(&self, who: FuseCaller, node: NodeId, lock: WantedLock, answer: LockAnswer) {
        let _scope = self.about(CallKind::Lock, who, node);
        self.operations.lock(who, node, lock, answer);
    }

    fn test_lock(&self, node: NodeId, range: FileLock) -> Result<Option<FileLock>, Errno> {
        let scope = self.scope(CallKind::Lock, None);
        end(&scope, self.operations.test_lock(node, range))
    }

    fn seek(&self, handle: u64, offset: u64, what: SeekFor) -> Result<u64, Errno> {
        let scope = self.ranged(CallKind::Seek, handle, offset, 0);
        end(&scope, self.operations.seek(handle, offset, what))
    }

    fn copy_range(&self, who: FuseCaller, from: (u64, u64), to: (u64, u64), len: u64) -> Result<u32, Errno> {
        let scope = self.scope(CallKind::Clone, Some(who));
        scope.range(to.1, len);
        end(&scope, self.operations.copy_range(who, from, to, len))
    }

    fn allocate(&self, who: FuseCaller, handle: u64, offset: u64, len: u64, how: Allocate) -> Result<(), Errno> {
        let scope = self.ranged(CallKind::Punch, handle, offset, len);
        end(&scope, self.operations.allocate(who, handle, offset, len, how))
    }

    fn opendir(&self, who: FuseCaller, node: NodeId) -> Result<OpenResult, Errno> {
        let scope = self.about(CallKind::Open, who, node);
        end(&scope, self.operations.opendir(who, node))
    }

    fn readdir(
        &self,
        who: FuseCaller,
        handle: u64,
        cookie: u64,
        show: &mut dyn FnMut(DirLine<'_>) -> bool,
    ) -> Result<(), Errno> {
        let scope = self.scope(CallKind::List, Some(who));
        end(&scope, self.operations.readdir(who, handle, cookie, show))
    }

    fn readdir_plus(
        &self,
        who: FuseCaller,
        handle: u64,
        cookie: u64,
        show: &mut dyn FnMut(DirLine<'_>, &FuseEntry) -> bool,
    ) -> Result<(), Errno> {
        let scope = self.scope(CallKind::List, Some(who));
        end(&scope, self.operations.readdir_plus(who, handle, cookie, show))
    }

    fn fsyncdir(&self, handle: u64) -> Result<(), Errno> {
        let scope = self.ranged(CallKind::Sync, handle, 0, 0);
        end(&scope, self.operations.fsyncdir(handle))
    }

    fn releasedir(&self, handle: u64) {
        let _scope = self.ranged(CallKind::Close, handle, 0, 0);
        self.operations.releasedir(handle);
    }

    fn statfs(&self, node: NodeId) -> Result<FreeSpace, Errno> {
        let scope = self.scope(CallKind::StatFs, None);
        end(&scope, self.operations.statfs(node))
    }

    fn setxattr(&self, who: FuseCaller, node: NodeId, name: &[u8], value: &[u8], flags: u32) -> Result<(), Errno> {
        let scope = self.about(CallKind::XattrSet, who, node);
        end(&scope, self.operations.setxattr(who, node, name, value, flags))
    }

    fn getxattr(&self, who: FuseCaller, node: NodeId, name: &[u8]) -> Result<Vec<u8>, Errno> {
        let scope = self.about(CallKind::XattrGet, who, node);
        end(&scope, self.operations.getxattr(who, node, name))
    }

    fn listxattr(&self, who: FuseCaller, node: NodeId) -> Result<Vec<u8>, Errno> {
        let scope = self.about(CallKind::XattrList, who, node);
        end(&scope, self.operations.listxattr(who, node))
    }

    fn removexattr(&self, who: FuseCaller, node: NodeId, name: &[u8]) -> Result<(), Errno> {
        let scope = self.about(CallKind::XattrRemove, who, node);
        end(&scope, self.operations.removexattr(who, node, name))
    }

    fn access(&self, who: FuseCaller, node: NodeId, mask: u32) -> Result<(), Errno> {
        let scope = self.about(CallKind::Access, who, node);
        end(&scope, self.operations.access(who, node, mask))
    }

    fn destroy(&self) {
        self.operations.destroy();
    }
}

fn note_entry(scope: &CallScope<'_>, entry: &FuseEntry) {
    if entry.attributes.node.is_of_base() {
        scope.inode(entry.attributes.node.0);
    }
}
