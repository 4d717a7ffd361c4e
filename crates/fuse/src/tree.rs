//! The mounted tree: every call of the kernel, answered by the client.
//!
//! Guarantees: what a program reads of the present is what the server holds when it asks, or what the server granted the
//! mount to go on using and has not recalled; what it reads at an exact instant never changes, and nothing is written below
//! `.at`. A call that changes something is answered when the server has acknowledged it: no write waits here.
//! Leaves to others: how the server is asked ([`crate::asking`]), what a name stands for ([`crate::looking`]), rights (the
//! kernel checks, then the server), what a name in `.at` means ([`crate::at`]).

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use frieze_base::InodeId;
use frieze_client::{Attr, Client, FileKind, FreeSpace, Fs, LockKind, LockRange, SetAttr, Special, Target, TimeValue};
use frieze_client::{CreateMode, OpenFlags, RenameMode, XattrMode, is_acl};
use nix::errno::Errno;

use crate::ahead::Ahead;
use crate::at::AT_NAME;
use crate::cache::{Asking, Cache, Holding, Promise};
use crate::files::{OpenDir, OpenFile};
use crate::handle::Handles;
use crate::lists::Lists;
use crate::locking::{Answer, Asked, Locking};
use crate::moving::Moving;
use crate::node::{Full, Node, NodeId, Nodes, Place, When};
use crate::operations::{
    Allocate, Attributes, Changes, DirLine, Entry, FileLock, Found, LockFor, NewMode, NewNode, NewTime, NodeKind,
    OpenHow, Opened, Operations, RenameHow, SeekFor, WantedLock, Who, WriteHow,
};
use crate::pages::Pages;
use crate::refusals::{REFUSED_XATTR, Refusals};
use crate::whole::{Change, Whole};

/// A mounted file system.
pub(crate) struct Tree {
    pub(crate) client: Client,
    /// What the mount shows; now, unless it is a mount of an instant.
    pub(crate) base: When,
    /// True: the server lets this mount speak for the calling users. False: everything is done as the session's user.
    pub(crate) impersonates: bool,
    pub(crate) nodes: Nodes,
    pub(crate) moving: Moving,
    /// What the kernel may go on using.
    pub(crate) cache: Arc<Cache>,
    /// Directories whose names are all known.
    pub(crate) whole: Whole,
    /// Directories that programs walk through.
    pub(crate) ahead: Ahead,
    pub(crate) locking: Arc<Locking>,
    pub(crate) files: Handles<OpenFile>,
    pub(crate) dirs: Handles<OpenDir>,
    /// What the kernel's pages of present files hold.
    pub(crate) pages: Pages,
    /// Counts the changes that gave a file set-user-id or set-group-id bits.
    pub(crate) privileges_given: AtomicU64,
    pub(crate) refusals: Refusals,
    pub(crate) lists: Lists,
}

/// How long names and attributes of an exact instant hold. They never change; the rights to see them may, so they are
/// asked for again.
const PAST_VALID: Duration = Duration::from_secs(1);

impl Tree {
    /// The tree of the server behind `client` as it is at `base`.
    pub(crate) fn new(client: Client, base: When) -> Tree {
        let impersonates = client.hello().may_impersonate;
        Tree {
            client,
            base,
            impersonates,
            nodes: Nodes::new(base),
            moving: Moving::default(),
            cache: Arc::default(),
            whole: Whole::default(),
            ahead: Ahead::default(),
            locking: Arc::default(),
            files: Handles::new(),
            dirs: Handles::new(),
            pages: Pages::default(),
            privileges_given: AtomicU64::new(0),
            refusals: Refusals::default(),
            lists: Lists::default(),
        }
    }

    /// Refuses attribute classes that mean nothing on this mount: by default it is `nosuid`, so a file capability is never used.
    /// Answered here, because the kernel asks for them at nearly every write and `ls -l`.
    fn refuse_foreign_xattr(&self, name: &[u8]) -> Result<(), Errno> {
        if name.starts_with(b"security.") {
            return Err(Errno::EOPNOTSUPP);
        }
        Ok(())
    }

    /// The node, or `ESTALE` if the kernel was told to forget it.
    pub(crate) fn node(&self, id: NodeId) -> Result<Node, Errno> {
        self.nodes.find(id).ok_or(Errno::ESTALE)
    }

    /// The directory or file to change, or `EROFS`.
    fn writable(&self, id: NodeId) -> Result<InodeId, Errno> {
        let node = self.node(id)?;
        if node.place != Place::Tree || node.when.is_past() {
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

impl Operations for Tree {
    fn lookup(&self, who: Who, parent: NodeId, name: &[u8]) -> Result<Found, Errno> {
        let dir = self.node(parent)?;
        match &dir.place {
            Place::Moving(_) => Err(Errno::ENOTDIR),
            Place::At => self.lookup_in_at(who, &dir, name).map(Found::Entry),
            Place::Tree if name == AT_NAME => self.lookup_at(who, &dir).map(Found::Entry),
            Place::Tree => self.look_up(who, &dir, name),
        }
    }

    fn giving(&self, answer: &mut dyn FnMut(&Holding<'_>)) {
        self.cache.giving(&self.whole.own, answer);
    }

    fn forget(&self, node: NodeId, count: u64) {
        if let Some(Node { place: Place::Tree, when, inode, .. }) = self.nodes.find(node)
            && !when.is_past()
        {
            self.pages.forget(inode);
        }
        self.nodes.forget(node, count);
    }

    fn getattr(&self, who: Who, node: NodeId) -> Result<Entry, Errno> {
        let node = self.node(node)?;
        match &node.place {
            Place::Tree => {
                let is_past = node.when.is_past();
                if !is_past && let Some((attr, promise)) = self.whole.attributes(&self.cache, node.inode) {
                    return Ok(self.entry_for(node.id, &attr, node.when, Some(promise)));
                }
                let (asking, still) = (self.asking().filter(|_| !is_past), self.whole.own.still());
                let target = Target::inode(node.inode);
                // The way to `.at` leads through the root: it is shown as it was last known if nobody leads.
                let is_root = node.inode == InodeId::ROOT;
                let stat = |fs: &Fs| if is_root { fs.recent().stat(&target) } else { fs.stat(&target) };
                let attr = self.ask_noting(who, node.when, asking.as_ref(), stat)?.attr;
                let promise = asking.map(|asking| asking.promise(None, Some(node.inode)));
                if let Some(promise) = promise {
                    self.whole.know(&attr, promise, still);
                }
                Ok(self.entry_for(node.id, &attr, node.when, promise))
            }
            Place::At => self.at_attributes(who, &node, node.id),
            Place::Moving(name) => self.moving_attributes(who, &node, node.id, name),
        }
    }

    fn setattr(&self, who: Who, node: NodeId, changes: Changes) -> Result<Entry, Errno> {
        let inode = self.writable(node)?;
        if (Changes { handle: None, ..changes }) == Changes::default() {
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
        let changing = self.whole.change(inode, None);
        let reply = if groups_matter {
            self.ask_knowing_groups(who, self.base, |fs| fs.set_attr(request.clone()))
        } else {
            self.ask_noting(who, self.base, asking.as_ref(), |fs| fs.set_attr(request.clone()))
        }?;
        changing.done(&[], Vec::new());
        self.made(who, reply.attr, &target, asking.as_ref(), None)
    }

    fn readlink(&self, who: Who, node: NodeId) -> Result<Vec<u8>, Errno> {
        let node = self.node(node)?;
        match &node.place {
            Place::Tree => self.read_link(who, &node),
            Place::At => Err(Errno::EINVAL),
            Place::Moving(name) => self.resolve_moving(who, &node, name),
        }
    }

    fn mknod(&self, who: Who, parent: NodeId, name: &[u8], new: NewNode) -> Result<Entry, Errno> {
        let target = self.new_name(parent, name)?;
        let NewMode { mode, umask } = new.mode;
        let (mode, file_type) = (mode & MODE_MASK, mode & TYPE_MASK);
        if file_type == 0 || file_type == TYPE_FILE {
            let asking = self.asking();
            let make = |fs: &Fs| fs.with_umask(umask).create(&target, mode, CreateMode::Exclusive);
            let changing = self.whole.change(InodeId(parent.0), None);
            let file = self.ask_to_make(who, mode, asking.as_ref(), make)?;
            changing.done(&[(InodeId(parent.0), Change::Adds(name))], parents(asking.as_ref()));
            let attr = file.attr().clone();
            self.close(file);
            return self.made(who, Some(attr), &target, asking.as_ref(), Some(parent));
        }
        let special = Special { file_type, rdev: new.rdev };
        let asking = self.asking();
        let changing = self.whole.change(InodeId(parent.0), None);
        let make = |fs: &Fs| fs.with_umask(umask).special(&target, mode, special);
        let reply = self.ask_to_make(who, mode, asking.as_ref(), make)?;
        changing.done(&[(InodeId(parent.0), Change::Adds(name))], parents(asking.as_ref()));
        self.made(who, reply.attr, &target, asking.as_ref(), Some(parent))
    }

    fn mkdir(&self, who: Who, parent: NodeId, name: &[u8], new: NewMode) -> Result<Entry, Errno> {
        let target = self.new_name(parent, name)?;
        let asking = self.asking();
        let (looking, changing) = (self.whole.look(), self.whole.change(InodeId(parent.0), None));
        let make = |fs: &Fs| fs.with_umask(new.umask).mkdir(&target, new.mode & MODE_MASK);
        let reply = self.ask_noting(who, self.base, asking.as_ref(), make)?;
        changing.done(&[(InodeId(parent.0), Change::Adds(name))], parents(asking.as_ref()));
        if let Some(asking) = asking.as_ref().filter(|_| reply.empty_ms > 0) {
            let promise = asking.promise_of_empty(InodeId(reply.id), reply.empty_ms);
            looking.saw(promise, std::iter::empty());
        }
        drop(looking);
        self.made(who, reply.attr, &target, asking.as_ref(), Some(parent))
    }

    fn symlink(&self, who: Who, parent: NodeId, name: &[u8], to: &[u8]) -> Result<Entry, Errno> {
        let target = self.new_name(parent, name)?;
        let asking = self.asking();
        let changing = self.whole.change(InodeId(parent.0), None);
        let reply = self.ask_noting(who, self.base, asking.as_ref(), |fs| fs.symlink(to, &target))?;
        changing.done(&[(InodeId(parent.0), Change::Adds(name))], parents(asking.as_ref()));
        self.made(who, reply.attr, &target, asking.as_ref(), Some(parent))
    }

    fn link(&self, who: Who, node: NodeId, parent: NodeId, name: &[u8]) -> Result<Entry, Errno> {
        let target = self.new_name(parent, name)?;
        let file = self.node(node)?;
        if file.place != Place::Tree || file.when.is_past() {
            return Err(Errno::EXDEV);
        }
        let asking = self.asking();
        let link = |fs: &Fs| fs.link(&Target::inode(file.inode), &target);
        let changing = self.whole.change(InodeId(parent.0), None);
        let reply = self.ask_noting(who, self.base, asking.as_ref(), link)?;
        self.whole.forget_attributes(file.inode);
        changing.done(&[(InodeId(parent.0), Change::Adds(name))], parents(asking.as_ref()));
        self.made(who, reply.attr, &target, asking.as_ref(), Some(parent))
    }

    fn unlink(&self, who: Who, parent: NodeId, name: &[u8]) -> Result<(), Errno> {
        let target = self.old_name(parent, name)?;
        let asking = self.asking();
        let changing = self.whole.change(InodeId(parent.0), None);
        let reply = self.ask_noting(who, self.base, asking.as_ref(), |fs| fs.unlink(&target))?;
        self.whole.forget_attributes(InodeId(reply.id));
        changing.done(&[(InodeId(parent.0), Change::Removes(name))], parents(asking.as_ref()));
        Ok(())
    }

    fn rmdir(&self, who: Who, parent: NodeId, name: &[u8]) -> Result<(), Errno> {
        let target = self.old_name(parent, name)?;
        let asking = self.asking();
        let changing = self.whole.change(InodeId(parent.0), None);
        let reply = self.ask_noting(who, self.base, asking.as_ref(), |fs| fs.rmdir(&target))?;
        self.whole.forget_attributes(InodeId(reply.id));
        changing.done(&[(InodeId(parent.0), Change::Removes(name))], parents(asking.as_ref()));
        Ok(())
    }

    fn rename(&self, who: Who, from: (NodeId, &[u8]), to: (NodeId, &[u8]), how: RenameHow) -> Result<(), Errno> {
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
        let changing = self.whole.change(left, Some(entered));
        let reply = self.ask_noting(who, self.base, asking.as_ref(), |fs| fs.rename(&from, &to, mode))?;
        self.whole.forget_attributes(InodeId(reply.id));
        self.whole.forget_attributes(InodeId(reply.replaced));
        let parents = parents(asking.as_ref());
        if parents.is_empty() {
            // A directory may have moved, or gone.
            self.whole.forget_all_attributes();
        }
        match how {
            RenameHow::Exchange => {
                changing.done(&[(left, Change::Swaps(old)), (entered, Change::Swaps(new))], parents);
            }
            // In this order, for a name that was moved to itself.
            _ => changing.done(&[(left, Change::Removes(old)), (entered, Change::Adds(new))], parents),
        }
        Ok(())
    }

    fn create(
        &self,
        who: Who,
        parent: NodeId,
        name: &[u8],
        new: NewMode,
        how: OpenHow,
    ) -> Result<(Entry, Opened), Errno> {
        let target = self.new_name(parent, name)?;
        let flags = OpenFlags { read: how.read, write: how.write };
        let if_there = if how.exclusive { CreateMode::Exclusive } else { CreateMode::OpenExisting };
        let mode = new.mode & MODE_MASK;
        let asking = self.asking();
        let make = |fs: &Fs| fs.with_umask(new.umask).create_with(&target, mode, if_there, flags);
        let changing = self.whole.change(InodeId(parent.0), None);
        let file = self.ask_to_make(who, mode, asking.as_ref(), make)?;
        changing.done(&[(InodeId(parent.0), Change::Adds(name))], parents(asking.as_ref()));
        let mut attr = file.attr().clone();
        if how.truncate && attr.size > 0 {
            attr = self.truncate(who, InodeId(attr.inode))?;
        }
        let entry = self.made(who, Some(attr.clone()), &target, asking.as_ref(), Some(parent))?;
        let opened = self.keep(who, file, &attr, self.base, how, entry.promise);
        Ok((entry, opened))
    }

    fn open(&self, who: Who, node: NodeId, how: OpenHow) -> Result<Opened, Errno> {
        let node = self.node(node)?;
        match node.place {
            Place::Tree => {}
            Place::At => return Err(Errno::EISDIR),
            Place::Moving(_) => return Err(Errno::ELOOP),
        }
        if node.when.is_past() && how.write {
            return Err(Errno::EROFS);
        }
        let target = Target::inode(node.inode);
        let flags = OpenFlags { read: how.read, write: how.write };
        let (asking, still) = (self.asking().filter(|_| !node.when.is_past()), self.whole.own.still());
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
        // Reading makes the kernel forget what it knew, for the sake of the time of the last access.
        if let Some(promise) = promise {
            self.whole.know(&attr, promise, still);
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

    fn lock(&self, who: Who, node: NodeId, lock: WantedLock, answer: Answer) {
        match self.node(node) {
            // Nobody writes to the past: nothing can be in the way.
            Ok(node) if node.when.is_past() || node.place != Place::Tree => answer(Ok(())),
            Ok(node) => {
                let range = range_of(node.inode, lock.range);
                let asked = Asked { range, handle: lock.handle, wait: lock.wait, thread: who.thread };
                self.locking.set(&self.client, asked, answer);
            }
            Err(errno) => answer(Err(errno)),
        }
    }

    fn test_lock(&self, node: NodeId, range: FileLock) -> Result<Option<FileLock>, Errno> {
        let node = self.node(node)?;
        if node.when.is_past() || node.place != Place::Tree {
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

    fn copy_range(&self, who: Who, from: (u64, u64), to: (u64, u64), len: u64) -> Result<u32, Errno> {
        self.copy_file_range(who, from, to, len)
    }

    fn allocate(&self, who: Who, handle: u64, offset: u64, len: u64, how: Allocate) -> Result<(), Errno> {
        self.allocate_file(who, handle, offset, len, how)
    }

    fn opendir(&self, who: Who, node: NodeId) -> Result<Opened, Errno> {
        let dir = self.node(node)?;
        if let Place::Moving(_) = dir.place {
            return Err(Errno::ENOTDIR);
        }
        self.open_dir(who, dir)
    }

    fn readdir(
        &self,
        who: Who,
        handle: u64,
        cookie: u64,
        show: &mut dyn FnMut(DirLine<'_>) -> bool,
    ) -> Result<(), Errno> {
        self.read_dir(who, handle, cookie, false, &mut |line, _| show(line))
    }

    fn readdir_plus(
        &self,
        who: Who,
        handle: u64,
        cookie: u64,
        show: &mut dyn FnMut(DirLine<'_>, &Entry) -> bool,
    ) -> Result<(), Errno> {
        self.read_dir(who, handle, cookie, true, show)
    }

    fn fsyncdir(&self, handle: u64) -> Result<(), Errno> {
        let dir = self.dirs.get(handle).ok_or(Errno::EBADF)?;
        if dir.node.when.is_past() || dir.node.place != Place::Tree {
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

    fn setxattr(&self, who: Who, node: NodeId, name: &[u8], value: &[u8], flags: u32) -> Result<(), Errno> {
        let inode = self.writable(node)?;
        self.refuse_foreign_xattr(name)?;
        let mode = match flags {
            0 => XattrMode::Any,
            1 => XattrMode::Create,
            2 => XattrMode::Replace,
            _ => return Err(Errno::EINVAL),
        };
        let changing = self.whole.change(inode, None);
        self.ask(who, self.base, |fs| fs.set_xattr(&Target::inode(inode), name, value, mode))?;
        changing.done(&[], Vec::new());
        Ok(())
    }

    fn getxattr(&self, who: Who, node: NodeId, name: &[u8]) -> Result<Vec<u8>, Errno> {
        self.refuse_foreign_xattr(name)?;
        let node = self.node(node)?;
        if node.place != Place::Tree {
            return Err(Errno::ENODATA);
        }
        if name == REFUSED_XATTR && !node.when.is_past() {
            // The words name what the file holds: for who may read it.
            self.ask(who, node.when, |fs| fs.access(&Target::inode(node.inode), MAY_READ))?;
            return self.refusals.words(node.inode).ok_or(Errno::ENODATA);
        }
        if is_acl(name) && !node.when.is_past() && self.lists.is_absent(&self.cache, &self.whole.own, node.inode) {
            return Err(Errno::ENODATA);
        }
        self.ask(who, node.when, |fs| fs.get_xattr(&Target::inode(node.inode), name))
    }

    fn listxattr(&self, who: Who, node: NodeId) -> Result<Vec<u8>, Errno> {
        let node = self.node(node)?;
        if node.place != Place::Tree {
            return Ok(Vec::new());
        }
        let names = self.ask(who, node.when, |fs| fs.list_xattr(&Target::inode(node.inode)))?;
        Ok(names.into_iter().flat_map(|name| name.into_iter().chain([0])).collect())
    }

    fn removexattr(&self, who: Who, node: NodeId, name: &[u8]) -> Result<(), Errno> {
        let inode = self.writable(node)?;
        self.refuse_foreign_xattr(name)?;
        let changing = self.whole.change(inode, None);
        self.ask(who, self.base, |fs| fs.remove_xattr(&Target::inode(inode), name))?;
        changing.done(&[], Vec::new());
        Ok(())
    }

    fn access(&self, who: Who, node: NodeId, mask: u32) -> Result<(), Errno> {
        let node = self.node(node)?;
        if mask & WRITE != 0 && (node.when.is_past() || node.place != Place::Tree) {
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

/// What the answer to a change of names says of the directories it changed.
fn parents(asking: Option<&Asking>) -> Vec<(Attr, Promise)> {
    asking.map_or(Vec::new(), Asking::parents)
}

/// A lock as the server knows it.
fn range_of(inode: InodeId, lock: FileLock) -> LockRange {
    let kind = match lock.kind {
        LockFor::Reading => LockKind::Shared,
        LockFor::Writing => LockKind::Exclusive,
        LockFor::Nothing => LockKind::Unlock,
    };
    let FileLock { owner, start, end, pid, .. } = lock;
    LockRange { inode: inode.0, owner, kind: kind as i32, start, end, pid }
}

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
pub(crate) fn valid(when: When) -> Duration {
    if when.is_final() { PAST_VALID } else { Duration::ZERO }
}

/// No number is free for another view.
pub(crate) fn too_many(_: Full) -> Errno {
    tracing::warn!("too many instants are in use by the kernel at once; drop its caches or unmount");
    Errno::ENFILE
}

fn time_value(time: NewTime) -> TimeValue {
    match time {
        NewTime::Now => TimeValue { now: true, ns: 0 },
        NewTime::At(ns) => TimeValue { now: false, ns },
    }
}

/// Permission, set-id and sticky bits of a mode.
pub(crate) const MODE_MASK: u32 = 0o7777;
pub(crate) const SET_USER_ID: u32 = 0o4000;
pub(crate) const SET_GROUP_ID: u32 = 0o2000;
const TYPE_MASK: u32 = 0o170_000;
const TYPE_FILE: u32 = 0o100_000;
const EXECUTE: u32 = 1;
/// The right to read.
const MAY_READ: u32 = 4;
const WRITE: u32 = 2;
