//! Open files and directories of the mounted tree.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use frieze_base::{ErrorKind, InodeId, Reason};
use frieze_client::{Attr, File, ListReply, SetAttr, Target};
use nix::errno::Errno;

use crate::at::AT_NAME;
use crate::attributes::{SET_GROUP_ID, SET_USER_ID, node_kind, too_many};
use crate::cache::CachePromise;
use crate::errno::answer;
use crate::kernel::REQUEST_BYTES_MAX;
use crate::listing::{DirListing, ListingLine};
use crate::node::{FuseNode, NodeId, NodePlace, UNNUMBERED, ViewTime};
use crate::open::{DirHandle, FileHandle, Unprivileged};
use crate::operations::{
    Allocate, Attributes, DirLine, FuseCaller, FuseEntry, NodeKind, OpenHow, OpenResult, SeekFor, WriteHow,
};
use crate::tree::MountTree;

/// Entries requested at a time: about 100 KiB of names, and three times as much with attributes.
const PAGE_ENTRIES: u32 = 2048;
/// Shorter copies are read and written: a shared range is kept with its file in every version of it from then on.
const SHARE_BYTES_MIN: u64 = 128 << 10;
/// Writes that are as long may be parts of one that the kernel has cut: at the most that a request holds, or at as many
/// pages.
const CUT_BYTES_MIN: usize = REQUEST_BYTES_MAX as usize - (4 << 10);
/// Most bytes of one answer to copy_file_range.
const COPY_BYTES_MAX: u64 = 1 << 31;

impl MountTree {
    /// Keeps a file just opened; `attr` is its state.
    pub(crate) fn keep(
        &self,
        who: FuseCaller,
        file: File,
        attr: &Attr,
        when: ViewTime,
        how: OpenHow,
        promise: Option<CachePromise>,
    ) -> OpenResult {
        let keep_cache = match when.is_past() {
            true => when.is_final(),
            false => self.pages.open(&self.cache, InodeId(attr.inode), attr.changed, promise),
        };
        let privileged = attr.mode & (SET_USER_ID | SET_GROUP_ID) != 0;
        let given = self.privileges_given.load(Ordering::Acquire);
        let unprivileged = promise.filter(|_| !privileged).map(|promise| Unprivileged { given, promise });
        // An append bypasses the kernel's cache: the kernel would cut it at the border of a page that it does not have,
        // and other mounts' appends would come between. So does a record of user time, which is the bytes of one write
        // call.
        let direct = how.append || how.write && !when.is_past() && file.has_user_time();
        let handle = self.files.insert(FileHandle {
            file,
            writes: how.write,
            reads: how.read,
            opener: who.uid,
            sync_failed: AtomicBool::new(false),
            unprivileged: Mutex::new(unprivileged),
            fresh: AtomicBool::new(!when.is_past() && !keep_cache && !direct),
            direct,
            changed: attr.changed,
            promise,
        });
        // A present file is flushed for the locks that end with a descriptor.
        OpenResult { handle, keep_cache, no_flush: when.is_past(), direct }
    }

    /// Cuts a file to nothing that was to be made and was there already, made by another mount (`O_CREAT | O_TRUNC`).
    pub(crate) fn truncate(&self, who: FuseCaller, inode: InodeId) -> Result<Attr, Errno> {
        let target = Target::inode(inode);
        let request = SetAttr { target: target.clone(), size: Some(0), by_handle: true, ..SetAttr::default() };
        let _touching = self.complete_dirs.touch(inode);
        let reply = self.ask(who, ViewTime::default(), |fs| fs.set_attr(request.clone()))?;
        match reply.attr {
            Some(attr) => Ok(attr),
            None => Ok(self.ask(who, ViewTime::default(), |fs| fs.stat(&target))?.attr),
        }
    }

    pub(crate) fn read_file(&self, handle: u64, offset: u64, into: &mut [u8]) -> Result<usize, Errno> {
        let open = self.files.get(handle).ok_or(Errno::EBADF)?;
        if !open.reads {
            return Err(Errno::EBADF);
        }
        self.check_locked(&open, handle)?;
        if open.fresh.load(Ordering::Relaxed) && open.fresh.swap(false, Ordering::Relaxed) {
            self.pages.read(open.file.inode(), open.changed, open.promise);
        }
        let mut filled = 0;
        while filled < into.len() {
            match open.file.read_at(offset + filled as u64, &mut into[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) => return Err(answer(&error.into())),
            }
        }
        Ok(filled)
    }

    /// Writes `data`, or fails. Returns how much of it: of a long run of records of one size, which the kernel has cut
    /// where it likes, whole ones, as write(2) may.
    pub(crate) fn write_file(&self, handle: u64, offset: u64, data: &[u8], how: WriteHow) -> Result<usize, Errno> {
        let open = self.files.get(handle).ok_or(Errno::EBADF)?;
        if !open.writes {
            return Err(Errno::EBADF);
        }
        self.check_locked(&open, handle)?;
        let _touching = self.complete_dirs.touch(open.file.inode());
        // The server clears the bits with the first write of a session for another user, including writes of a mapping,
        // whose user the kernel does not name.
        if how.kill_privileges || how.from_cache && open.opener != 0 {
            self.kill_privileges(&open)?;
        }
        let data = match data.len() >= CUT_BYTES_MIN {
            true => &data[..open.file.run_bytes_max(data.len())],
            false => data,
        };
        let written =
            if how.append { open.file.append(data).map(drop) } else { open.file.write_at(offset, data).map(drop) };
        if open.direct {
            self.pages.bypass(open.file.inode());
        }
        if open.file.has_user_time() {
            match &written {
                Ok(()) => self.refusals.clear(open.file.inode()),
                Err(error) => self.refusals.note(open.file.inode(), error),
            }
        }
        written.map_err(|error| answer(&error.into()))?;
        if how.sync {
            sync(&open)?;
        }
        Ok(data.len())
    }

    /// Refuses I/O through an open file whose lock was lost to another client.
    fn check_locked(&self, open: &FileHandle, handle: u64) -> Result<(), Errno> {
        self.locking.check(&self.client, open.file.inode(), handle, || self.cache.has_lapsed())
    }

    /// A write by any user but the superuser clears the file's set-id bits. The kernel marks every such write; the
    /// mount requests the bits only where the file may have some. The kernel keeps the mode over a write: it has to
    /// request it again.
    fn kill_privileges(&self, open: &FileHandle) -> Result<(), Errno> {
        let given = self.privileges_given.load(Ordering::Acquire);
        let is_known = |known: Unprivileged| known.given == given && self.cache.is_kept(&known.promise);
        if open.unprivileged().is_some_and(is_known) {
            return Ok(());
        }
        let inode = open.file.inode();
        let target = Target::inode(inode);
        let asking = self.asking();
        let attr = self.ask_as_mount_noting(ViewTime::default(), asking.as_ref(), |fs| fs.stat(&target))?.attr;
        // Without the group's right to execute, set-group-id meant mandatory locking, and stays.
        let runs_as_group = attr.mode & (SET_GROUP_ID | GROUP_EXECUTE) == SET_GROUP_ID | GROUP_EXECUTE;
        let killed = if runs_as_group { SET_USER_ID | SET_GROUP_ID } else { SET_USER_ID };
        if attr.mode & killed != 0 {
            let request = SetAttr { target, mode: Some(attr.mode & !killed), ..SetAttr::default() };
            self.ask_as_mount(ViewTime::default(), |fs| fs.set_attr(request))?;
            self.cache.forget_attributes(inode);
        }
        let promise = asking.map(|asking| asking.promise(None, Some(inode)));
        *open.unprivileged.lock().unwrap_or_else(PoisonError::into_inner) =
            promise.map(|promise| Unprivileged { given, promise });
        Ok(())
    }

    pub(crate) fn sync_file(&self, handle: u64) -> Result<(), Errno> {
        let open = self.files.get(handle).ok_or(Errno::EBADF)?;
        sync(&open)
    }

    /// The locks of an owner on a file end.
    pub(crate) fn unlock(&self, node: NodeId, owner: u64) {
        if let Ok(node) = self.node(node)
            && !node.when.is_past()
        {
            self.locking.release(&self.client, node.inode, owner);
        }
    }

    /// The locks of an open file itself end with its last descriptor.
    pub(crate) fn unlock_opened(&self, node: NodeId, handle: u64) {
        if let Ok(node) = self.node(node)
            && !node.when.is_past()
        {
            self.locking.close(&self.client, node.inode, handle);
        }
    }

    pub(crate) fn release_file(&self, handle: u64) {
        if let Some(open) = self.files.remove(handle) {
            self.close_open(open);
        }
    }

    /// Closes an unused file; a call still running on it closes it by dropping it.
    pub(crate) fn close_open(&self, open: Arc<FileHandle>) {
        if let Ok(open) = Arc::try_unwrap(open) {
            self.close(open.file);
        }
    }

    /// Settles and closes, without waiting for it where that is possible. Every write was answered before, so no
    /// promised write is lost here; a request for the length before it is settled gets the same answer.
    pub(crate) fn close(&self, file: File) {
        let _touching = file.flags().write.then(|| self.complete_dirs.touch(file.inode()));
        if let Err(error) = file.close_later() {
            tracing::debug!("files are settled at the end of the session: {error}");
        }
    }

    pub(crate) fn seek_file(&self, handle: u64, offset: u64, what: SeekFor) -> Result<u64, Errno> {
        let open = self.files.get(handle).ok_or(Errno::EBADF)?;
        let found = match what {
            SeekFor::Data => open.file.seek_data(offset),
            SeekFor::Hole => open.file.seek_hole(offset),
        };
        match found {
            Ok(Some(found)) => Ok(found),
            // lseek(2) has one errno for both: beyond the end, and no data from there on.
            Ok(None) => Err(Errno::ENXIO),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(Errno::ENXIO),
            Err(error) => Err(answer(&error.into())),
        }
    }

    /// copy_file_range(2), by sharing. Where sharing is not worth it or the range does not fit, the kernel gets
    /// `EOPNOTSUPP` and copies by reading and writing.
    pub(crate) fn copy_file_range(
        &self,
        who: FuseCaller,
        from: (u64, u64),
        to: (u64, u64),
        len: u64,
    ) -> Result<u32, Errno> {
        let source = self.files.get(from.0).ok_or(Errno::EBADF)?;
        let target = self.files.get(to.0).ok_or(Errno::EBADF)?;
        if !target.writes {
            return Err(Errno::EBADF);
        }
        // An answer counts bytes in 32 bits; the kernel asks again for the rest.
        let len = len.min(COPY_BYTES_MAX);
        let end = from.1.checked_add(len).zip(to.1.checked_add(len));
        if len < SHARE_BYTES_MIN || end.is_none_or(|(from, to)| from.max(to) > i64::MAX as u64) {
            return Err(Errno::EOPNOTSUPP);
        }
        let _touching = self.complete_dirs.touch(target.file.inode());
        if who.uid != 0 {
            self.kill_privileges(&target)?;
        }
        match source.file.copy_range(from.1, &target.file, to.1, len) {
            Ok(copied) => Ok(copied as u32),
            Err(error) => match error.reason() {
                Reason::TooLarge
                | Reason::Unsupported
                | Reason::AccessDenied
                | Reason::NotPermitted
                | Reason::Busy
                | Reason::Superseded => Err(Errno::EOPNOTSUPP),
                _ => Err(answer(&error.into())),
            },
        }
    }

    /// fallocate(2). Space is taken when bytes are written, so it cannot be set aside; that there is enough of it now
    /// is checked.
    pub(crate) fn allocate_file(
        &self,
        who: FuseCaller,
        handle: u64,
        offset: u64,
        len: u64,
        how: Allocate,
    ) -> Result<(), Errno> {
        let open = self.files.get(handle).ok_or(Errno::EBADF)?;
        if !open.writes {
            return Err(Errno::EBADF);
        }
        let end = offset.checked_add(len).filter(|end| *end <= i64::MAX as u64).ok_or(Errno::EFBIG)?;
        match how {
            Allocate::Extend | Allocate::KeepSize => self.check_room(len)?,
            Allocate::Punch | Allocate::Zero | Allocate::ZeroKeepSize => {}
            Allocate::Other => return Err(Errno::EOPNOTSUPP),
        }
        let _touching = self.complete_dirs.touch(open.file.inode());
        if who.uid != 0 {
            self.kill_privileges(&open)?;
        }
        if matches!(how, Allocate::Punch | Allocate::Zero | Allocate::ZeroKeepSize) {
            // Beyond the end there is nothing to punch, and ranges far beyond it are usual.
            let size = open.file.stat().map_err(|error| answer(&error.into()))?.attr.size;
            if offset < size {
                open.file.punch(offset, end.min(size) - offset).map_err(|error| answer(&error.into()))?;
            }
        }
        if matches!(how, Allocate::Extend | Allocate::Zero) {
            open.file.extend_to(end).map_err(|error| answer(&error.into()))?;
        }
        Ok(())
    }

    fn check_room(&self, len: u64) -> Result<(), Errno> {
        let status = self.client.status().map_err(|error| answer(&error.into()))?;
        if status.free_bytes < len { Err(Errno::ENOSPC) } else { Ok(()) }
    }

    /// Opens a directory, and reads its first page: the right to read it is decided here, by the server.
    pub(crate) fn open_dir(&self, who: FuseCaller, node: FuseNode) -> Result<OpenResult, Errno> {
        // With attributes, which the kernel requests first: names and attributes are one state of the directory.
        let looking = self.complete_dirs.look();
        let is_now = node.place == NodePlace::Tree && !node.when.is_past();
        let known = if is_now {
            self.prefetch.listing(&self.cache, &self.complete_dirs.local_changes, node.inode, who)
        } else {
            None
        };
        let (first, promise) = match known {
            Some((first, promise)) => (first, Some(promise)),
            None => self.page(who, &node, b"", true, false)?,
        };
        if let Some(promise) = promise.filter(|_| !first.more) {
            looking.complete(promise, first.entries.iter().map(|entry| &entry.name[..]));
        }
        drop(looking);
        let listing = Mutex::new(DirListing::opened(first));
        let opened = DirHandle { node, listing, promise: Mutex::new(promise) };
        Ok(OpenResult { handle: self.dirs.insert(opened), keep_cache: false, no_flush: true, direct: false })
    }

    pub(crate) fn read_dir(
        &self,
        who: FuseCaller,
        handle: u64,
        cookie: u64,
        plus: bool,
        show: &mut dyn FnMut(DirLine<'_>, &FuseEntry) -> bool,
    ) -> Result<(), Errno> {
        let open = self.dirs.get(handle).ok_or(Errno::EBADF)?;
        let dir = &open.node;
        let mut listing = open.listing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut failed = None;
        let is_now = plus && dir.place == NodePlace::Tree && !dir.when.is_past();
        let is_good = !is_now || self.is_good(open.promise());
        if cookie == 0 && !self.is_current(dir, open.promise()) {
            listing.outdate();
        }
        listing.walk(
            cookie,
            is_good,
            |after| {
                let (page, promise) = self.page(who, dir, after, plus, true)?;
                *open.promise.lock().unwrap_or_else(PoisonError::into_inner) = promise;
                Ok(page)
            },
            |listing, line, cookie| match line {
                ListingLine::Itself => show_dot(show, dir.id, b".", cookie),
                ListingLine::Parent => show_dot(show, self.parent_of(dir, listing.parent()), b"..", cookie),
                // Created by another gateway. Here the name is taken, and a tree walk must not enter it.
                ListingLine::Entry(entry) if dir.place == NodePlace::Tree && entry.name == AT_NAME => false,
                ListingLine::Entry(entry) => {
                    // A name in `.at` is a view that no program has entered: it has no number yet.
                    let inode = InodeId(entry.inode);
                    let node = if dir.place == NodePlace::At { UNNUMBERED } else { self.nodes.beside(dir, inode) };
                    let line = DirLine { node, kind: node_kind(entry.kind()), name: &entry.name, cookie };
                    if !plus {
                        return show(line, &no_attributes(node, line.kind));
                    }
                    let promise = open.promise();
                    // The kernel takes names and files of this answer as present state.
                    let is_overtaken = |promise: CachePromise| {
                        let own = &self.complete_dirs.local_changes;
                        !self.cache.is_kept(&promise.about(inode))
                            || own.has_changed(promise.change_count(), dir.inode, &entry.name, inode)
                    };
                    let is_old = is_now && !listing.is_new() && (!is_good || promise.is_none_or(is_overtaken));
                    let attr = entry.attr.as_ref().filter(|_| !is_old);
                    match self.entry_of(who, dir, &entry.name, attr, promise) {
                        Ok(found) => {
                            let line = DirLine { node: found.attributes.node, ..line };
                            let full = show(line, &found);
                            if full {
                                self.nodes.forget(found.attributes.node, 1);
                            }
                            full
                        }
                        // Deleted since the page was read.
                        Err(Errno::ENOENT) => false,
                        Err(errno) => {
                            failed = Some(errno);
                            true
                        }
                    }
                }
            },
        )?;
        failed.map_or(Ok(()), Err)
    }

    /// True if only this mount can have changed what a page says, and it knows its changes.
    fn is_good(&self, page: Option<CachePromise>) -> bool {
        page.is_some_and(|page| {
            let is_kept = !self.cache.names_left(&page).is_zero() && self.cache.is_kept(&page);
            is_kept && !self.complete_dirs.local_changes.has_lost_count(page.change_count())
        })
    }

    /// True if a directory has the names that its first page shows. A mount is never recalled for its own changes, and
    /// the rest of a directory that it changes while it reads may stay as it was (`rm -r`): only from the start all
    /// names have to be shown.
    fn is_current(&self, dir: &FuseNode, page: Option<CachePromise>) -> bool {
        match dir.place {
            NodePlace::Tree if dir.when.is_final() => true,
            NodePlace::Tree if !dir.when.is_past() => page.is_some_and(|page| {
                self.is_good(Some(page))
                    && !self.complete_dirs.local_changes.has_changed_inode(page.change_count(), dir.inode)
            }),
            // Snapshots are made, and user times written, without a word to the mount.
            _ => false,
        }
    }

    /// The entry of a name in a listing, with one more reference.
    fn entry_of(
        &self,
        who: FuseCaller,
        dir: &FuseNode,
        name: &[u8],
        attr: Option<&Attr>,
        promise: Option<CachePromise>,
    ) -> Result<FuseEntry, Errno> {
        match (&dir.place, attr) {
            (NodePlace::Tree, Some(attr)) => {
                let node = self.nodes.refer_beside(dir, InodeId(attr.inode)).map_err(too_many)?;
                let promise = promise.map(|promise| promise.about(InodeId(attr.inode)));
                Ok(self.entry_for(node, attr, dir.when, promise))
            }
            // Without, because the kernel asked without and later continues with them.
            (NodePlace::Tree, None) => self.find(who, dir, name),
            (NodePlace::At | NodePlace::Moving(_), _) => self.lookup_in_at(who, dir, name),
        }
    }

    /// The page after a name. Once opened, a directory is read to its end, whatever mode it gets.
    fn page(
        &self,
        who: FuseCaller,
        dir: &FuseNode,
        after: &[u8],
        plus: bool,
        opened: bool,
    ) -> Result<(ListReply, Option<CachePromise>), Errno> {
        let count = PAGE_ENTRIES;
        match dir.place {
            NodePlace::Tree => {
                let asking = self.cache.ask(&self.complete_dirs.local_changes).filter(|_| plus && !dir.when.is_past());
                let page = self.ask_noting(who, dir.when, asking.as_ref(), |fs| match opened {
                    true => fs.list_opened(dir.inode, after, count, plus),
                    false => fs.list(&Target::inode(dir.inode), after, count, plus),
                })?;
                Ok((page, asking.map(|asking| asking.promise(Some(dir.inode), None))))
            }
            NodePlace::At | NodePlace::Moving(_) => Ok((self.list_at(dir, after)?, None)),
        }
    }

    fn parent_of(&self, dir: &FuseNode, parent: u64) -> NodeId {
        match dir.place {
            // `..` of `.at` is the directory it belongs to; only a listing shows this number.
            NodePlace::At | NodePlace::Moving(_) => UNNUMBERED,
            NodePlace::Tree => self.nodes.beside(dir, InodeId(parent)),
        }
    }
}

/// Makes everything written through this handle, and the metadata that names the file, durable.
fn sync(open: &FileHandle) -> Result<(), Errno> {
    if open.sync_failed.load(Ordering::Acquire) {
        return Err(Errno::EIO);
    }
    open.file.sync().map(drop).map_err(|error| {
        open.sync_failed.store(true, Ordering::Release);
        answer(&error.into())
    })
}

fn show_dot(
    show: &mut dyn FnMut(DirLine<'_>, &FuseEntry) -> bool,
    node: NodeId,
    name: &'static [u8],
    cookie: u64,
) -> bool {
    let line = DirLine { node, kind: NodeKind::Directory, name, cookie };
    show(line, &no_attributes(node, NodeKind::Directory))
}

fn no_attributes(node: NodeId, kind: NodeKind) -> FuseEntry {
    let attributes = Attributes {
        node,
        kind,
        mode: 0,
        links: 1,
        uid: 0,
        gid: 0,
        size: 0,
        bytes_live: 0,
        atime_ns: 0,
        mtime_ns: 0,
        ctime_ns: 0,
        rdev: 0,
    };
    FuseEntry { attributes, valid: std::time::Duration::ZERO, promise: None }
}

const GROUP_EXECUTE: u32 = 0o010;
