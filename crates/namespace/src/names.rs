//! Names: make, link, remove, rename. Checks come in the order of Linux, so that a request with two faults fails alike.

use std::borrow::Cow;

use frieze_base::InodeId;
use frieze_hlc::Hlc;
use frieze_wire::message::{FileKind, VersionKind};
use frieze_wire::quota::TreeUsage;
use frieze_wire::txn::{Caller, Link, Make, MakeKind, MakeNameless, Remove, Rename, Special};

use crate::apply::{OpResult, TxnRun};
use crate::error::{Error, lossy};
use crate::inode::{
    Extra, FileLayout, GROUP_EXECUTE, Inode, MAY_EXECUTE, MAY_WRITE, SET_GID, STICKY, WriteGrant, allows,
};
use crate::key::Cached;
use crate::model::NameEntry;
use crate::namespace::Namespace;
use crate::walk::{FinalLink, PathEnd};

/// Most names of one file (`LINK_MAX` of ext4). Subdirectories are not limited.
pub const LINKS_MAX: u32 = 65_000;
/// Longest target of a symbolic link, bytes: a path and no NUL.
const TARGET_BYTES_MAX: usize = frieze_base::PATH_BYTES_MAX - 1;

/// What `Rename::flags` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RenameFlags {
    Replace,
    NoReplace,
    Exchange,
}

impl Namespace {
    pub(crate) fn make(&mut self, run: &mut TxnRun<'_>, op: &Make) -> Result<OpResult, Error> {
        let kind = op.kind.as_ref().ok_or(Error::InvalidArgument { why: "nothing to make" })?;
        let opens = op.or_open && matches!(kind, MakeKind::File(_));
        let place =
            self.place(run, &op.target, if opens && op.target.follow { FinalLink::Follow } else { FinalLink::Name })?;
        if place.slash && matches!(kind, MakeKind::File(_)) {
            return Err(Error::is_directory(&place.name));
        }
        let replaced = match place.found {
            Some(found) if opens => return existing(&place, found),
            Some(found) if op.replaces && matches!(kind, MakeKind::File(_)) => {
                Some(self.check_replaced(run, &place, found)?)
            }
            Some(_) => return Err(Error::exists(&place.name)),
            None => None,
        };
        if place.slash && !matches!(kind, MakeKind::Directory(_)) {
            return Err(Error::not_found(&place.name));
        }
        let parent = match replaced {
            Some(_) => self.live_inode(place.parent)?,
            None => self.check_addition(run, &place)?,
        };
        let (kind, mode, mut extra) = new_inode(run, kind, op.mode)?;
        let mode = self.inherit((place.parent, &parent), (kind, mode, op.umask), &mut extra);
        let id = match kind {
            FileKind::Directory => self.next_directory(0)?,
            _ => self.next_file(place.parent, 0)?,
        };
        let takes_over = replaced.and_then(|id| self.inodes.get(id)).is_some_and(|old| old.links == 1);
        self.check_room(place.parent, TreeUsage { files: u64::from(!takes_over), bytes: 0 }, None)?;
        if !extra.grants.is_empty() {
            // The open is refused, rather than the write that comes after it.
            self.check_room_to_write(place.parent, 0, 0..1)?;
        }
        let mut inode = Inode {
            from: run.stamp,
            born: run.stamp,
            ctime: run.stamp,
            mtime_ns: run.stamp.unix_ns(),
            mtime_stamp: run.stamp,
            atime_ns: run.stamp.unix_ns(),
            size: extra.target.len() as u64,
            size_as_of: run.stamp,
            named: run.stamp,
            parent: place.parent,
            layout: parent.layout.clone(),
            links: if kind == FileKind::Directory { 2 } else { 1 },
            uid: run.caller.uid,
            gid: run.caller.gid,
            mode,
            kind: kind as u8,
            extra: (!extra.is_empty()).then(|| Box::new(extra)),
        };
        if parent.mode & SET_GID != 0 || op.group_of_directory {
            inherit_group(&mut inode, parent.gid, parent.mode & SET_GID != 0, run.caller);
        }
        let opened = !inode.grants().is_empty();
        self.numbers.note(id);
        self.count_made(id);
        self.inodes.insert(id, inode);
        self.alive += 1;
        self.add_inherited(run, place.parent, id);
        if opened {
            self.granted.entry(run.session).or_default().insert(id);
        }
        if let Some(old) = replaced {
            self.take_name(run, old, &place);
        }
        self.set_entry(run, place.parent, &place.name, id, kind);
        self.subdirectories_changed(run, place.parent, (u32::from(kind == FileKind::Directory), 0));
        run.note_cause(id, VersionKind::Make, &place.name);
        Ok(OpResult { replaced: replaced.unwrap_or_default().0, ..OpResult::with(id) })
    }

    /// The file that a new one takes a name from.
    fn check_replaced(&self, run: &TxnRun<'_>, place: &PathEnd, found: NameEntry) -> Result<InodeId, Error> {
        if found.kind() == FileKind::Directory {
            return Err(Error::is_directory(&place.name));
        }
        self.check_removal(run, place, found.inode())?;
        // A caller that may only remove the name uses `remove`.
        let file = self.live_inode(found.inode())?;
        if !allows(&file, run.caller, MAY_WRITE) {
            return Err(Error::denied("replacing", &place.name));
        }
        Ok(found.inode())
    }

    /// A file that begins as one whose last name went.
    pub(crate) fn make_nameless(&mut self, run: &mut TxnRun<'_>, op: &MakeNameless) -> Result<OpResult, Error> {
        let beside = InodeId(op.beside);
        let like = self.inodes.get(beside).ok_or(Error::StaleHandle { inode: beside })?;
        if like.kind() != FileKind::File {
            return Err(Error::InvalidArgument { why: "only beside a regular file is one made without a name" });
        }
        let id = self.next_file(beside, 0)?;
        // What it holds is looked at by a plug-in where it goes.
        let layout = FileLayout { plugin: String::new(), ..FileLayout::clone(&like.layout) };
        let (kind, mode, extra) = new_inode(run, &MakeKind::File(true), 0o600)?;
        let inode = Inode {
            from: run.stamp,
            born: run.stamp,
            ctime: run.stamp,
            mtime_ns: run.stamp.unix_ns(),
            mtime_stamp: run.stamp,
            atime_ns: run.stamp.unix_ns(),
            size: 0,
            size_as_of: run.stamp,
            named: Hlc::ZERO,
            parent: InodeId::default(),
            layout: self.share(layout),
            links: 0,
            uid: run.caller.uid,
            gid: run.caller.gid,
            mode,
            kind: kind as u8,
            extra: Some(Box::new(Extra { orphaned: run.stamp, ..extra })),
        };
        self.numbers.note(id);
        self.count_made(id);
        self.inodes.insert(id, inode);
        self.granted.entry(run.session).or_default().insert(id);
        self.keep_orphan(run.stamp, id, false);
        run.note_cause(id, VersionKind::Make, b"");
        Ok(OpResult::with(id))
    }

    pub(crate) fn link(&mut self, run: &mut TxnRun<'_>, op: &Link) -> Result<OpResult, Error> {
        let (id, file) = self.subject(run, &op.file)?;
        let place = self.place(run, &op.name, FinalLink::Name)?;
        if place.found.is_some() {
            return Err(Error::exists(&place.name));
        }
        if place.slash {
            return Err(Error::not_found(&place.name));
        }
        self.check_addition(run, &place)?;
        if file.is_directory() {
            return Err(Error::NotPermitted { why: "a directory has one name only" });
        }
        if file.links == 0 {
            return Err(Error::not_found(&op.file.path));
        }
        if file.links >= LINKS_MAX {
            return Err(Error::TooManyLinks { inode: id, links: file.links });
        }
        let kind = file.kind();
        self.set_entry(run, place.parent, &place.name, id, kind);
        run.add_link(id, place.parent, &place.name);
        let stamp = run.stamp;
        let file = self.edit(run, id);
        file.add_place(place.parent);
        file.links += 1;
        file.ctime = stamp;
        self.directory_changed(run, place.parent);
        run.note_cause(id, VersionKind::Named, &place.name);
        Ok(OpResult::with(id))
    }

    pub(crate) fn remove(&mut self, run: &mut TxnRun<'_>, op: &Remove) -> Result<OpResult, Error> {
        let place = self.place(run, &op.target, FinalLink::Name)?;
        let found = place.found.ok_or_else(|| Error::not_found(&place.name))?;
        let id = found.inode();
        if place.name.is_empty() {
            return Err(match op.directory {
                true if id == InodeId::ROOT => Error::Busy { what: "the root directory".to_owned() },
                true => Error::InvalidArgument { why: "`.` cannot be removed: name the directory in its parent" },
                false => Error::is_directory(b"."),
            });
        }
        let is_directory = found.kind() == FileKind::Directory;
        if !op.directory && place.slash {
            return Err(if is_directory {
                Error::is_directory(&place.name)
            } else {
                Error::not_directory(&place.name)
            });
        }
        self.check_removal(run, &place, id)?;
        if op.directory && is_directory {
            run.reads.add(Cached::Names(id));
        }
        match (op.directory, is_directory) {
            (true, false) => return Err(Error::not_directory(&place.name)),
            (false, true) => return Err(Error::is_directory(&place.name)),
            (true, true) if self.name_count(id) > 0 => {
                return Err(Error::NotEmpty { name: lossy(&place.name) });
            }
            _ => {}
        }
        self.clear_entry(run, place.parent, &place.name);
        self.subdirectories_changed(run, place.parent, (0, u32::from(is_directory)));
        self.take_name(run, id, &place);
        Ok(OpResult::with(id))
    }

    pub(crate) fn rename(&mut self, run: &mut TxnRun<'_>, op: &Rename) -> Result<OpResult, Error> {
        let mode = match op.flags {
            0 => RenameFlags::Replace,
            1 => RenameFlags::NoReplace,
            2 => RenameFlags::Exchange,
            _ => return Err(Error::InvalidArgument { why: "unknown flags of a rename" }),
        };
        let from = self.place(run, &op.from, FinalLink::Name)?;
        let to = self.place(run, &op.to, FinalLink::Name)?;
        let (moved, replaced) = self.check_rename(run, mode, &from, &to)?;
        let id = moved.inode();
        if replaced.is_some_and(|entry| entry.inode() == id) {
            // Two names of one file: POSIX says that nothing happens.
            return Ok(OpResult::with(id));
        }
        if mode == RenameFlags::Exchange {
            let other = replaced.expect("an exchange needs both names");
            self.move_name(run, other, &to, &from);
        } else {
            if let Some(old) = replaced {
                if old.kind() == FileKind::Directory {
                    self.edit(run, to.parent).links -= 1;
                }
                self.take_name(run, old.inode(), &to);
            }
            self.clear_entry(run, from.parent, &from.name);
        }
        self.move_name(run, moved, &from, &to);
        self.directory_changed(run, from.parent);
        self.directory_changed(run, to.parent);
        Ok(OpResult { id: id.0, replaced: replaced.map_or(0, |other| other.inode().0), ..OpResult::default() })
    }

    fn check_rename(
        &self,
        run: &TxnRun<'_>,
        mode: RenameFlags,
        from: &PathEnd,
        to: &PathEnd,
    ) -> Result<(NameEntry, Option<NameEntry>), Error> {
        let exchange = mode == RenameFlags::Exchange;
        if from.name.is_empty() {
            return Err(Error::Busy { what: "the root directory or `.` has no name to move".to_owned() });
        }
        if to.name.is_empty() {
            return Err(match mode {
                RenameFlags::NoReplace => Error::exists(b"."),
                _ => Error::Busy { what: "the root directory or `.` cannot be replaced".to_owned() },
            });
        }
        let moved = from.found.ok_or_else(|| Error::not_found(&from.name))?;
        match (mode, to.found) {
            (RenameFlags::NoReplace, Some(_)) => return Err(Error::exists(&to.name)),
            (RenameFlags::Exchange, None) => return Err(Error::not_found(&to.name)),
            _ => {}
        }
        let is_directory = |entry: NameEntry| entry.kind() == FileKind::Directory;
        let over_directory = to.found.is_some_and(is_directory);
        if !is_directory(moved) && from.slash {
            return Err(Error::not_directory(&from.name));
        }
        if to.slash && !(if exchange { over_directory } else { is_directory(moved) }) {
            return Err(Error::not_directory(&to.name));
        }
        if from.parent != to.parent && (is_directory(moved) || over_directory) {
            // What lies above what is told by either answer, and known to a client that caches a name on the way.
            run.reads.add_everything();
        }
        if is_directory(moved) && self.is_within(to.parent, moved.inode()) {
            return Err(Error::InvalidArgument { why: "a directory cannot move below itself" });
        }
        if let Some(old) = to.found.filter(|&old| is_directory(old))
            && self.is_within(from.parent, old.inode())
        {
            return Err(match exchange {
                true => Error::InvalidArgument { why: "a directory cannot change places with one above it" },
                false => Error::NotEmpty { name: lossy(&to.name) },
            });
        }
        if to.found.is_some_and(|old| old.inode() == moved.inode()) {
            return Ok((moved, to.found));
        }
        self.check_removal(run, from, moved.inode())?;
        match to.found {
            None => {
                self.check_addition(run, to)?;
            }
            Some(old) => {
                self.check_removal(run, to, old.inode())?;
                match (is_directory(moved), over_directory) {
                    (true, false) if !exchange => return Err(Error::not_directory(&to.name)),
                    (false, true) if !exchange => return Err(Error::is_directory(&to.name)),
                    _ => {}
                }
            }
        }
        if from.parent != to.parent {
            // The `..` of a directory that moves is written.
            let exchanged = to.found.filter(|_| exchange);
            for (entry, place) in [(Some(moved), from), (exchanged, to)] {
                if let Some(entry) = entry.filter(|&entry| is_directory(entry))
                    && !allows(self.live_inode(entry.inode())?.as_ref(), run.caller, MAY_WRITE)
                {
                    return Err(Error::denied("moving", &place.name));
                }
            }
        }
        let replaced = to.found.map(NameEntry::inode).filter(|_| !exchange && over_directory);
        if let Some(replaced) = replaced {
            run.reads.add(Cached::Names(replaced));
        }
        if replaced.is_some_and(|replaced| self.name_count(replaced) > 0) {
            return Err(Error::NotEmpty { name: lossy(&to.name) });
        }
        self.check_room_to_move((moved.inode(), from.parent), (to.found.map(NameEntry::inode), to.parent), exchange)?;
        Ok((moved, to.found))
    }

    /// Gives an inode the name `to` for its name `from`, which the caller clears or gives away.
    fn move_name(&mut self, run: &mut TxnRun<'_>, entry: NameEntry, from: &PathEnd, to: &PathEnd) {
        let id = entry.inode();
        self.set_entry(run, to.parent, &to.name, id, entry.kind());
        if entry.kind() == FileKind::Directory && from.parent != to.parent {
            self.edit(run, from.parent).links -= 1;
            self.edit(run, to.parent).links += 1;
        }
        let stamp = run.stamp;
        let inode = self.edit(run, id);
        inode.move_place(from.parent, to.parent);
        inode.ctime = stamp;
        match inode.is_directory() || inode.links == 1 {
            true => inode.named = stamp,
            // The name in the home may be another one.
            false => run.add_link(id, to.parent, &to.name),
        }
        run.note_cause(id, VersionKind::Unnamed, &from.name);
        run.note_cause(id, VersionKind::Named, &to.name);
    }

    /// An inode loses a name; the entry and the parent are the caller's.
    fn take_name(&mut self, run: &mut TxnRun<'_>, id: InodeId, place: &PathEnd) {
        let stamp = run.stamp;
        let inode = self.edit(run, id);
        inode.ctime = stamp;
        if inode.is_directory() || inode.links == 1 {
            self.orphan(run, id);
        } else {
            inode.links -= 1;
            inode.drop_place(place.parent);
        }
        run.note_cause(id, VersionKind::Unnamed, &place.name);
    }

    /// Checks that the caller may add a name to the directory, and answers the directory.
    fn check_addition(&self, run: &TxnRun<'_>, place: &PathEnd) -> Result<Cow<'_, Inode>, Error> {
        run.reads.add(Cached::Inode(place.parent));
        let parent = self.live_inode(place.parent)?;
        if parent.links == 0 {
            return Err(Error::not_found(&place.name));
        }
        if !allows(&parent, run.caller, MAY_WRITE | MAY_EXECUTE) {
            return Err(Error::denied("adding", &place.name));
        }
        Ok(parent)
    }

    /// Checks that the caller may take this name from the directory.
    fn check_removal(&self, run: &TxnRun<'_>, place: &PathEnd, id: InodeId) -> Result<(), Error> {
        run.reads.add(Cached::Inode(place.parent));
        run.reads.add(Cached::Inode(id));
        let parent = self.live_inode(place.parent)?;
        if !allows(&parent, run.caller, MAY_WRITE | MAY_EXECUTE) {
            return Err(Error::denied("removing", &place.name));
        }
        let uid = run.caller.uid;
        if parent.mode & STICKY != 0 && uid != 0 && uid != parent.uid && uid != self.live_inode(id)?.uid {
            return Err(Error::NotPermitted { why: "the directory is sticky: only the owner may take a name from it" });
        }
        Ok(())
    }

    /// True if `directory` is `ancestor` or lies below it.
    fn is_within(&self, directory: InodeId, ancestor: InodeId) -> bool {
        let mut here = directory;
        while here != ancestor {
            match self.inodes.get(here) {
                Some(inode) if here != InodeId::ROOT => here = inode.parent,
                _ => return false,
            }
        }
        true
    }
}

/// What open without `O_EXCL` makes of a name that is there.
fn existing(place: &PathEnd, found: NameEntry) -> Result<OpResult, Error> {
    match found.kind() {
        FileKind::Directory => Err(Error::is_directory(&place.name)),
        FileKind::Symlink => Err(Error::SymlinkLoop { name: lossy(&place.name) }),
        _ => Ok(OpResult { id: found.inode().0, existed: true, ..OpResult::default() }),
    }
}

fn new_inode(run: &TxnRun<'_>, kind: &MakeKind, mode: u32) -> Result<(FileKind, u16, Extra), Error> {
    let mut extra = Extra::default();
    let (kind, mode) = match kind {
        MakeKind::File(open) => {
            if *open {
                let first = 0..1;
                extra.grants.push(WriteGrant { session: run.session, chunks: vec![first], is_stopped: false });
            }
            (FileKind::File, mode & 0o7777)
        }
        MakeKind::Directory(_) => (FileKind::Directory, mode & 0o1777),
        MakeKind::Symlink(target) => {
            if target.is_empty() {
                return Err(Error::not_found(b""));
            }
            if target.contains(&0) {
                return Err(Error::InvalidArgument { why: "the target of a link holds no NUL" });
            }
            if target.len() > TARGET_BYTES_MAX {
                return Err(Error::PathTooLong { bytes: target.len() });
            }
            extra.target = target.as_slice().into();
            (FileKind::Symlink, 0o777)
        }
        MakeKind::Special(special) => {
            let kind = special_kind(special)?;
            if matches!(kind, FileKind::CharDevice | FileKind::BlockDevice) {
                if run.caller.uid != 0 {
                    return Err(Error::NotPermitted { why: "only the superuser makes device nodes" });
                }
                extra.rdev = special.rdev;
            }
            (kind, mode & 0o7777)
        }
    };
    Ok((kind, mode as u16, extra))
}

fn special_kind(special: &Special) -> Result<FileKind, Error> {
    match special.file_type {
        0o010_000 => Ok(FileKind::Fifo),
        0o020_000 => Ok(FileKind::CharDevice),
        0o060_000 => Ok(FileKind::BlockDevice),
        0o140_000 => Ok(FileKind::Socket),
        _ => Err(Error::InvalidArgument { why: "a special file is a fifo, a socket or a device" }),
    }
}

/// What is made in a set-group-id directory belongs to the directory's group; a directory hands on the bit that its own
/// `has`.
fn inherit_group(inode: &mut Inode, gid: u32, has_bit: bool, caller: &Caller) {
    inode.gid = gid;
    let runs_as_group = inode.mode & (SET_GID | GROUP_EXECUTE) == SET_GID | GROUP_EXECUTE;
    if inode.is_directory() {
        inode.mode |= if has_bit { SET_GID } else { 0 };
    } else if runs_as_group && caller.uid != 0 && !caller.in_group(gid) {
        inode.mode &= !SET_GID;
    }
}
