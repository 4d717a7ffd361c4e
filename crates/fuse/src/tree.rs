//! The mounted tree: every call of the kernel, answered by the client.
//!
//! Guarantees: a program reads the server's present state, or state that the server granted the mount to use and has
//! not recalled; a read at an exact instant never changes, and nothing is written below `.at`. A change is answered
//! when the server has acknowledged it: no write waits here. Leaves to others: requests to the server ([`crate::rpc`]),
//! the lookup of a name ([`crate::lookup`]), rights (the kernel checks, then the server), the meaning of a name in
//! `.at` ([`crate::at`]).

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use frieze_base::InodeId;
use frieze_client::{Attr, Client, FreeSpace, Fs, LockKind, SetAttr, Special, Target};
use frieze_client::{CreateMode, OpenFlags, RenameMode, XattrMode, is_acl};
use nix::errno::Errno;

use crate::acl_cache::AclCache;
use crate::at::AT_NAME;
use crate::attr_prefetch::AttrPrefetch;
use crate::attributes::{MODE_MASK, SET_GROUP_ID, SET_USER_ID, range_of, time_value};
use crate::cache::{CachePromise, GrantRequest, Holding, KernelCache};
use crate::complete_dirs::{CompleteDirs, EntryChange};
use crate::handle::Handles;
use crate::locking::{LockAnswer, LockRequest, Locking};
use crate::moving_names::MovingNames;
use crate::node::{FuseNode, NodeId, NodePlace, NodeTable, ViewTime};
use crate::open::{DirHandle, FileHandle};
use crate::operations::{
    Allocate, AttrChanges, DirLine, FileLock, FuseCaller, FuseEntry, LockFor, LookupResult, NewMode, NewNode, OpenHow,
    OpenResult, Operations, RenameHow, SeekFor, WantedLock, WriteHow,
};
use crate::page_states::PageStates;
use crate::refusals::{REFUSED_XATTR, Refusals};

/// A mounted file system.
pub(crate) struct MountTree {
    pub(crate) client: Client,
    /// The view of the mount; now, unless it is a mount of an instant.
    pub(crate) base: ViewTime,
    /// Below `.at`, an instant that is not kept is a link to the newest before it that is.
    pub(crate) nearest: bool,
    /// True: the server lets this mount speak for the calling users. False: everything is done as the session's user.
    pub(crate) impersonates: bool,
    pub(crate) nodes: NodeTable,
    pub(crate) moving_names: MovingNames,
    /// The kernel's caches.
    pub(crate) cache: Arc<KernelCache>,
    /// Directories whose names are all known.
    pub(crate) complete_dirs: CompleteDirs,
    /// Directories that programs walk through.
    pub(crate) prefetch: AttrPrefetch,
    pub(crate) locking: Arc<Locking>,
    pub(crate) files: Handles<FileHandle>,
    pub(crate) dirs: Handles<DirHandle>,
    /// The state of the kernel's pages of present files.
    pub(crate) pages: PageStates,
    /// Counts the changes that gave a file set-user-id or set-group-id bits.
    pub(crate) privileges_given: AtomicU64,
    pub(crate) refusals: Refusals,
    pub(crate) acl_cache: AclCache,
}

impl MountTree {
    /// The tree of the server behind `client` as it is at `base`.
    pub(crate) fn new(client: Client, base: ViewTime, nearest: bool) -> MountTree {
        let impersonates = client.hello().may_impersonate;
        MountTree {
            client,
            base,
            nearest,
            impersonates,
            nodes: NodeTable::new(base),
            moving_names: MovingNames::default(),
            cache: Arc::default(),
            complete_dirs: CompleteDirs::default(),
            prefetch: AttrPrefetch::default(),
            locking: Arc::default(),
            files: Handles::new(),
            dirs: Handles::new(),
            pages: PageStates::default(),
            privileges_given: AtomicU64::new(0),
            refusals: Refusals::default(),
            acl_cache: AclCache::default(),
        }
    }

    /// Refuses attribute classes that mean nothing on this mount: by default it is `nosuid`, so a file capability would
    /// never be used; and a server of before them keeps no access lists. Answered here, because the kernel asks for
    /// them at nearly every write and `ls -l`.
    fn refuse_foreign_xattr(&self, name: &[u8]) -> Result<(), Errno> {
        if name.starts_with(b"security.") {
            return Err(Errno::EOPNOTSUPP);
        }
        Ok(())
    }

    /// The node, or `ESTALE` if the kernel has dropped it.
    pub(crate) fn node(&self, id: NodeId) -> Result<FuseNode, Errno> {
        self.nodes.find(id).ok_or(Errno::ESTALE)
    }

    /// The directory or file to change, or `EROFS`.
    fn writable(&self, id: NodeId) -> Result<InodeId, Errno> {
        let node = self.node(id)?;
        if node.place != NodePlace::Tree || node.when.is_past() {
            return Err(Errno::EROFS);
        }
        Ok(node.inode)
    }

    /// A place for a new name.
    fn new_name(&self, parent: NodeId, name: &[u8]) -> Result<Target, Errno> {
        let directory = self.writable(parent)?;
        if name == AT_NAME {
            return Err(Errno::EEXIST);
        }
        Ok(Target::under(directory, name))
    }

    /// A name to be removed or moved.
    fn old_name(&self, parent: NodeId, name: &[u8]) -> Result<Target, Errno> {
        let directory = self.writable(parent)?;
        if name == AT_NAME {
            return Err(Errno::EROFS);
        }
        Ok(Target::under(directory, name))
    }
}

impl Operations for MountTree {
    fn lookup(&self, who: FuseCaller, parent: NodeId, name: &[u8]) -> Result<LookupResult, Errno> {
        let dir = self.node(parent)?;
        match &dir.place {
            NodePlace::Moving(_) => Err(Errno::ENOTDIR),
            NodePlace::At => self.lookup_in_at(who, &dir, name).map(LookupResult::Entry),
            NodePlace::Tree if name == AT_NAME => self.lookup_at(who, &dir).map(LookupResult::Entry),
            NodePlace::Tree => self.look_up(who, &dir, name),
        }
    }

    fn giving(&self, answer: &mut dyn FnMut(&Holding<'_>)) {
        self.cache.giving(&self.complete_dirs.local_changes, answer);
    }

    fn forget(&self, node: NodeId, count: u64) {
        if let Some(FuseNode { place: NodePlace::Tree, when, inode, .. }) = self.nodes.find(node)
            && !when.is_past()
        {
            self.pages.forget(inode);
        }
        self.nodes.forget(node, count);
    }

    fn getattr(&self, who: FuseCaller, node: NodeId) -> Result<FuseEntry, Errno> {
        let node = self.node(node)?;
        match &node.place {
            NodePlace::Tree => {
                let is_past = node.when.is_past();
                if !is_past && let Some((attr, promise)) = self.complete_dirs.attributes(&self.cache, node.inode) {
                    return Ok(self.entry_for(node.id, &attr, node.when, Some(promise)));
                }
                let (asking, still) = (self.asking().filter(|_| !is_past), self.complete_dirs.local_changes.still());
                let target = Target::inode(node.inode);
                // The way to `.at` leads through the root: its last known attributes are shown if there is no leader.
                let is_root = node.inode == InodeId::ROOT;
                let stat = |fs: &Fs| if is_root { fs.recent().stat(&target) } else { fs.stat(&target) };
                let attr = self.ask_noting(who, node.when, asking.as_ref(), stat)?.attr;
                let promise = asking.map(|asking| asking.promise(None, Some(node.inode)));
                if let Some(promise) = promise {
                    self.complete_dirs.know(&attr, promise, still);
                }
                Ok(self.entry_for(node.id, &attr, node.when, promise))
            }
            NodePlace::At => self.at_attributes(who, &node, node.id),
            NodePlace::Moving(name) => self.moving_attributes(who, &node, node.id, name),
        }
    }

    fn setattr(&self, who: FuseCaller, node: NodeId, changes: AttrChanges) -> Result<FuseEntry, Errno> {
        let inode = self.writable(node)?;
        if (AttrChanges { handle: None, ..changes }) == AttrChanges::default() {
            return self.getattr(who, node);
        }
        let by_handle = changes.handle.and_then(|handle| self.files.get(handle)).is_some_and(|file| file.writes);
        let target = Target::inode(inode);
        let request = SetAttr {
            target: target.clone(),
            mode: changes.mode.map(|mode| mode & MODE_MASK),
            uid: changes.uid,
            gid: changes.gid,
            size: changes.size,
            atime: changes.atime.map(time_value),
            mtime: changes.mtime.map(time_value),
            by_handle,
            ..SetAttr::default()
        };
        // chmod by an owner outside the file's group drops the set-group-id bit without a refusal.
        let groups_matter = changes.mode.is_some_and(|mode| mode & SET_GROUP_ID != 0);
        if changes.mode.is_some_and(|mode| mode & (SET_USER_ID | SET_GROUP_ID) != 0) {
            self.privileges_given.fetch_add(1, std::sync::atomic::Ordering::AcqRel);
        }
        let asking = self.asking().filter(|_| !groups_matter);
        let changing = self.complete_dirs.change(inode, None);
        let reply = if groups_matter {
            self.ask_knowing_groups(who, self.base, |fs| fs.set_attr(request.clone()))
        } else {
            self.ask_noting(who, self.base, asking.as_ref(), |fs| fs.set_attr(request.clone()))
        }?;
        changing.done(&[], Vec::new());
        self.made(who, reply.attr, &target, asking.as_ref(), None)
    }

    fn readlink(&self, who: FuseCaller, node: NodeId) -> Result<Vec<u8>, Errno> {
        let node = self.node(node)?;
        match &node.place {
            NodePlace::Tree => self.read_link(who, &node),
            NodePlace::At => Err(Errno::EINVAL),
            NodePlace::Moving(name) => self.resolve_moving(who, &node, name),
        }
    }

    fn mknod(&self, who: FuseCaller, parent: NodeId, name: &[u8], new: NewNode) -> Result<FuseEntry, Errno> {
        let target = self.new_name(parent, name)?;
        let NewMode { mode, umask } = new.mode;
        let (mode, file_type) = (mode & MODE_MASK, mode & TYPE_MASK);
        if file_type == 0 || file_type == TYPE_FILE {
            let asking = self.asking();
            let make = |fs: &Fs| fs.with_umask(umask).create(&target, mode, CreateMode::Exclusive);
            let changing = self.complete_dirs.change(InodeId(parent.0), None);
            let file = self.ask_to_make(who, mode, asking.as_ref(), make)?;
            changing.done(&[(InodeId(parent.0), EntryChange::Adds(name))], parents(asking.as_ref()));
            let attr = file.attr().clone();
            self.close(file);
            return self.made(who, Some(attr), &target, asking.as_ref(), Some(parent));
        }
        let special = Special { file_type, rdev: new.rdev };
        let asking = self.asking();
        let changing = self.complete_dirs.change(InodeId(parent.0), None);
        let make = |fs: &Fs| fs.with_umask(umask).special(&target, mode, special);
        let reply = self.ask_to_make(who, mode, asking.as_ref(), make)?;
        changing.done(&[(InodeId(parent.0), EntryChange::Adds(name))], parents(asking.as_ref()));
        self.made(who, reply.attr, &target, asking.as_ref(), Some(parent))
    }

    fn mkdir(&self, who: FuseCaller, parent: NodeId, name: &[u8], new: NewMode) -> Result<FuseEntry, Errno> {
        let target = self.new_name(parent, name)?;
        let asking = self.asking();
        let (looking, changing) = (self.complete_dirs.look(), self.complete_dirs.change(InodeId(parent.0), None));
        let make = |fs: &Fs| fs.with_umask(new.umask).mkdir(&target, new.mode & MODE_MASK);
        let reply = self.ask_noting(who, self.base, asking.as_ref(), make)?;
        changing.done(&[(InodeId(parent.0), EntryChange::Adds(name))], parents(asking.as_ref()));
        if let Some(asking) = asking.as_ref().filter(|_| reply.empty_ms > 0) {
            let promise = asking.promise_of_empty(InodeId(reply.id), reply.empty_ms);
            looking.complete(promise, std::iter::empty());
        }
        drop(looking);
        self.made(who, reply.attr, &target, asking.as_ref(), Some(parent))
    }

    fn symlink(&self, who: FuseCaller, parent: NodeId, name: &[u8], to: &[u8]) -> Result<FuseEntry, Errno> {
        let target = self.new_name(parent, name)?;
        let asking = self.asking();
        let changing = self.complete_dirs.change(InodeId(parent.0), None);
        let reply = self.ask_noting(who, self.base, asking.as_ref(), |fs| fs.symlink(to, &target))?;
        changing.done(&[(InodeId(parent.0), EntryChange::Adds(name))], parents(asking.as_ref()));
        self.made(who, reply.attr, &target, asking.as_ref(), Some(parent))
    }

    fn link(&self, who: FuseCaller, node: NodeId, parent: NodeId, name: &[u8]) -> Result<FuseEntry, Errno> {
        let target = self.new_name(parent, name)?;
        let file = self.node(node)?;
        if file.place != NodePlace::Tree || file.when.is_past() {
            return Err(Errno::EXDEV);
        }
        let asking = self.asking();
        let link = |fs: &Fs| fs.link(&Target::inode(file.inode), &target);
        let changing = self.complete_dirs.change(InodeId(parent.0), None);
        let reply = self.ask_noting(who, self.base, asking.as_ref(), link)?;
        self.complete_dirs.forget_attributes(file.inode);
        changing.done(&[(InodeId(parent.0), EntryChange::Adds(name))], parents(asking.as_ref()));
        self.made(who, reply.attr, &target, asking.as_ref(), Some(parent))
    }

    fn unlink(&self, who: FuseCaller, parent: NodeId, name: &[u8]) -> Result<(), Errno> {
        let target = self.old_name(parent, name)?;
        let asking = self.asking();
        let changing = self.complete_dirs.change(InodeId(parent.0), None);
        let reply = self.ask_noting(who, self.base, asking.as_ref(), |fs| fs.unlink(&target))?;
        self.complete_dirs.forget_attributes(InodeId(reply.id));
        changing.done(&[(InodeId(parent.0), EntryChange::Removes(name))], parents(asking.as_ref()));
        Ok(())
    }

    fn rmdir(&self, who: FuseCaller, parent: NodeId, name: &[u8]) -> Result<(), Errno> {
        let target = self.old_name(parent, name)?;
        let asking = self.asking();
        let changing = self.complete_dirs.change(InodeId(parent.0), None);
        let reply = self.ask_noting(who, self.base, asking.as_ref(), |fs| fs.rmdir(&target))?;
        self.complete_dirs.forget_attributes(InodeId(reply.id));
        changing.done(&[(InodeId(parent.0), EntryChange::Removes(name))], parents(asking.as_ref()));
        Ok(())
    }

    fn rename(&self, who: FuseCaller, from: (NodeId, &[u8]), to: (NodeId, &[u8]), how: RenameHow) -> Result<(), Errno> {
        let (left, entered) = (InodeId(from.0.0), InodeId(to.0.0));
        let (old, new) = (from.1, to.1);
        let from = self.old_name(from.0, from.1)?;
        let to = self.new_name(to.0, to.1)?;
        let mode = match how {
            RenameHow::Replace => RenameMode::Replace,
            RenameHow::NoReplace => RenameMode::NoReplace,
            RenameHow::Exchange => RenameMode::Exchange,
        };
        let asking = self.asking();
        let changing = self.complete_dirs.change(left, Some(entered));
        let reply = self.ask_noting(who, self.base, asking.as_ref(), |fs| fs.rename(&from, &to, mode))?;
        self.complete_dirs.forget_attributes(InodeId(reply.id));
        self.complete_dirs.forget_attributes(InodeId(reply.replaced));
        let parents = parents(asking.as_ref());
        if parents.is_empty() {
            // A directory may have been moved or deleted.
            self.complete_dirs.forget_all_attributes();
        }
        match how {
            RenameHow::Exchange => {
                changing.done(&[(left, EntryChange::Swaps(old)), (entered, EntryChange::Swaps(new))], parents);
            }
            // In this order, for a name that was moved to itself.
            _ => changing.done(&[(left, EntryChange::Removes(old)), (entered, EntryChange::Adds(new))], parents),
        }
        Ok(())
    }

    fn create(
        &self,
        who: FuseCaller,
        parent: NodeId,
        name: &[u8],
        new: NewMode,
        how: OpenHow,
    ) -> Result<(FuseEntry, OpenResult), Errno> {
        let target = self.new_name(parent, name)?;
        let flags = OpenFlags { read: how.read, write: how.write };
        let if_there = if how.exclusive { CreateMode::Exclusive } else { CreateMode::OpenExisting };
        let mode = new.mode & MODE_MASK;
        let asking = self.asking();
        let make = |fs: &Fs| fs.with_umask(new.umask).create_with(&target, mode, if_there, flags);
        let changing = self.complete_dirs.change(InodeId(parent.0), None);
        let file = self.ask_to_make(who, mode, asking.as_ref(), make)?;
        changing.done(&[(InodeId(parent.0), EntryChange::Adds(name))], parents(asking.as_ref()));
        let mut attr = file.attr().clone();
        if how.truncate && attr.size > 0 {
            attr = self.truncate(who, InodeId(attr.inode))?;
        }
        let entry = self.made(who, Some(attr.clone()), &target, asking.as_ref(), Some(parent))?;
        let opened = self.keep(who, file, &attr, self.base, how, entry.promise);
        Ok((entry, opened))
    }

    fn open(&self, who: FuseCaller, node: NodeId, how: OpenHow) -> Result<OpenResult, Errno> {
        let node = self.node(node)?;
        match node.place {
            NodePlace::Tree => {}
            NodePlace::At => return Err(Errno::EISDIR),
            NodePlace::Moving(_) => return Err(Errno::ELOOP),
        }
        if node.when.is_past() && how.write {
            return Err(Errno::EROFS);
        }
        let target = Target::inode(node.inode);
        let flags = OpenFlags { read: how.read, write: how.write };
        let (asking, still) =
            (self.asking().filter(|_| !node.when.is_past()), self.complete_dirs.local_changes.still());
        let file = match self.ask_noting(who, node.when, asking.as_ref(), |fs| fs.open(&target, flags)) {
            // A file may be run without the right to read it: the kernel reads it for the program.
            Err(Errno::EACCES) if how.execute && !how.write => {
                self.ask(who, node.when, |fs| fs.access(&target, EXECUTE))?;
                self.ask_as_mount(node.when, |fs| fs.open(&target, flags))?
            }
            opened => opened?,
        };
        let attr = file.attr().clone();
        let promise = asking.map(|asking| asking.promise(None, Some(node.inode)));
        // Reading makes the kernel drop attributes, for the sake of the time of the last access.
        if let Some(promise) = promise {
            self.complete_dirs.know(&attr, promise, still);
        }
        Ok(self.keep(who, file, &attr, node.when, how, promise))
    }

    fn read(&self, handle: u64, offset: u64, into: &mut [u8]) -> Result<usize, Errno> {
        self.read_file(handle, offset, into)
    }

    fn write(&self, handle: u64, offset: u64, data: &[u8], how: WriteHow) -> Result<usize, Errno> {
        self.write_file(handle, offset, data, how)
    }

    fn fsync(&self, handle: u64) -> Result<(), Errno> {
        self.sync_file(handle)
    }

    fn flush(&self, node: NodeId, owner: u64) {
        self.unlock(node, owner);
    }

    fn release(&self, node: NodeId, handle: u64, owner: Option<u64>) {
        if let Some(owner) = owner {
            self.unlock(node, owner);
        }
        self.unlock_opened(node, handle);
        self.release_file(handle);
    }

    fn lock(&self, who: FuseCaller, node: NodeId, lock: WantedLock, answer: LockAnswer) {
        match self.node(node) {
            // The past has no writers: no lock can be in the way.
            Ok(node) if node.when.is_past() || node.place != NodePlace::Tree => answer(Ok(())),
            Ok(node) => {
                let range = range_of(node.inode, lock.range);
                let asked = LockRequest { range, handle: lock.handle, wait: lock.wait, thread: who.thread };
                self.locking.set(&self.client, asked, answer);
            }
            Err(errno) => answer(Err(errno)),
        }
    }

    fn test_lock(&self, node: NodeId, range: FileLock) -> Result<Option<FileLock>, Errno> {
        let node = self.node(node)?;
        if node.when.is_past() || node.place != NodePlace::Tree {
            return Ok(None);
        }
        Ok(self.locking.test(&self.client, range_of(node.inode, range))?.map(|held| FileLock {
            owner: held.owner,
            kind: if held.kind() == LockKind::Exclusive { LockFor::Writing } else { LockFor::Reading },
            start: held.start,
            end: held.end,
            pid: held.pid,
        }))
    }

    fn seek(&self, handle: u64, offset: u64, what: SeekFor) -> Result<u64, Errno> {
        self.seek_file(handle, offset, what)
    }

    fn copy_range(&self, who: FuseCaller, from: (u64, u64), to: (u64, u64), len: u64) -> Result<u32, Errno> {
        self.copy_file_range(who, from, to, len)
    }

    fn allocate(&self, who: FuseCaller, handle: u64, offset: u64, len: u64, how: Allocate) -> Result<(), Errno> {
        self.allocate_file(who, handle, offset, len, how)
    }

    fn opendir(&self, who: FuseCaller, node: NodeId) -> Result<OpenResult, Errno> {
        let dir = self.node(node)?;
        if let NodePlace::Moving(_) = dir.place {
            return Err(Errno::ENOTDIR);
        }
        self.open_dir(who, dir)
    }

    fn readdir(
        &self,
        who: FuseCaller,
        handle: u64,
        cookie: u64,
        show: &mut dyn FnMut(DirLine<'_>) -> bool,
    ) -> Result<(), Errno> {
        self.read_dir(who, handle, cookie, false, &mut |line, _| show(line))
    }

    fn readdir_plus(
        &self,
        who: FuseCaller,
        handle: u64,
        cookie: u64,
        show: &mut dyn FnMut(DirLine<'_>, &FuseEntry) -> bool,
    ) -> Result<(), Errno> {
        self.read_dir(who, handle, cookie, true, show)
    }

    fn fsyncdir(&self, handle: u64) -> Result<(), Errno> {
        let dir = self.dirs.get(handle).ok_or(Errno::EBADF)?;
        if dir.node.when.is_past() || dir.node.place != NodePlace::Tree {
            return Ok(());
        }
        self.ask_as_mount(dir.node.when, |fs| fs.sync(dir.node.inode)).map(drop)
    }

    fn releasedir(&self, handle: u64) {
        drop(self.dirs.remove(handle));
    }

    fn statfs(&self, node: NodeId) -> Result<FreeSpace, Errno> {
        self.room(node)
    }

    fn setxattr(&self, who: FuseCaller, node: NodeId, name: &[u8], value: &[u8], flags: u32) -> Result<(), Errno> {
        let inode = self.writable(node)?;
        self.refuse_foreign_xattr(name)?;
        let mode = match flags {
            0 => XattrMode::Any,
            1 => XattrMode::Create,
            2 => XattrMode::Replace,
            _ => return Err(Errno::EINVAL),
        };
        let changing = self.complete_dirs.change(inode, None);
        self.ask(who, self.base, |fs| fs.set_xattr(&Target::inode(inode), name, value, mode))?;
        changing.done(&[], Vec::new());
        Ok(())
    }

    fn getxattr(&self, who: FuseCaller, node: NodeId, name: &[u8]) -> Result<Vec<u8>, Errno> {
        self.refuse_foreign_xattr(name)?;
        let node = self.node(node)?;
        if node.place != NodePlace::Tree {
            return Err(Errno::ENODATA);
        }
        if name == REFUSED_XATTR && !node.when.is_past() {
            // The words name the content of the file: only for readers of it.
            self.ask(who, node.when, |fs| fs.access(&Target::inode(node.inode), MAY_READ))?;
            return self.refusals.words(node.inode).ok_or(Errno::ENODATA);
        }
        if is_acl(name)
            && !node.when.is_past()
            && self.acl_cache.is_absent(&self.cache, &self.complete_dirs.local_changes, node.inode)
        {
            return Err(Errno::ENODATA);
        }
        self.ask(who, node.when, |fs| fs.get_xattr(&Target::inode(node.inode), name))
    }

    fn listxattr(&self, who: FuseCaller, node: NodeId) -> Result<Vec<u8>, Errno> {
        let node = self.node(node)?;
        if node.place != NodePlace::Tree {
            return Ok(Vec::new());
        }
        let names = self.ask(who, node.when, |fs| fs.list_xattr(&Target::inode(node.inode)))?;
        Ok(names.into_iter().flat_map(|name| name.into_iter().chain([0])).collect())
    }

    fn removexattr(&self, who: FuseCaller, node: NodeId, name: &[u8]) -> Result<(), Errno> {
        let inode = self.writable(node)?;
        self.refuse_foreign_xattr(name)?;
        let changing = self.complete_dirs.change(inode, None);
        self.ask(who, self.base, |fs| fs.remove_xattr(&Target::inode(inode), name))?;
        changing.done(&[], Vec::new());
        Ok(())
    }

    fn access(&self, who: FuseCaller, node: NodeId, mask: u32) -> Result<(), Errno> {
        let node = self.node(node)?;
        if mask & WRITE != 0 && (node.when.is_past() || node.place != NodePlace::Tree) {
            return Err(Errno::EROFS);
        }
        self.ask(who, node.when, |fs| fs.access(&Target::inode(node.inode), mask)).map(drop)
    }

    fn destroy(&self) {
        self.locking.end();
        // The end of the session settles every file, in one request: with the server away, one wait for all.
        if let Err(error) = self.client.close() {
            tracing::debug!("the session was left to run out: {error}");
        }
        drop(self.files.drain());
        drop(self.dirs.drain());
    }
}

/// The attributes of changed directories in the answer to a change of names.
fn parents(asking: Option<&GrantRequest>) -> Vec<(Attr, CachePromise)> {
    asking.map_or(Vec::new(), GrantRequest::parents)
}

const TYPE_MASK: u32 = 0o170_000;
const TYPE_FILE: u32 = 0o100_000;
const EXECUTE: u32 = 1;
/// The right to read.
const MAY_READ: u32 = 4;
const WRITE: u32 = 2;
