//! The tree as plain maps of versions, and what POSIX says of every change to it.
//!
//! A change is decided on the state of now and then committed at a stamp. The caller is the owner of everything (rights
//! are the business of the namespace's own tests).

mod edit;
mod expiry;

pub(crate) use edit::Mismatch;
pub(crate) use expiry::Horizons;

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::Reason;
use frieze_hlc::Hlc;
use frieze_wire::edit::Edit;
use frieze_wire::message::FileKind;
use frieze_wire::txn::{Make, MakeKind, Op, Rename, SetAttr, SetXattr, Target};

use super::bytes::{FileBytes, FileEventKind};
use super::numbers::Numbers;
use super::versions::Versions;

/// The root directory.
pub(crate) const ROOT: u64 = 1;

/// One version of an inode, without the fields of `FileBytes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InodeVersion {
    pub(crate) kind: FileKind,
    pub(crate) mode: u32,
    pub(crate) links: u32,
    pub(crate) born: Hlc,
    pub(crate) atime_ns: i64,
    pub(crate) ctime: Hlc,
    pub(crate) target: Vec<u8>,
    pub(crate) plugin: String,
    /// Of a clone or a restored file: the file and the instant whose user times come before its own.
    pub(crate) origin: Option<(u64, Hlc)>,
    /// Its own user times are those of writes stamped after this: it was cut to nothing, or restored.
    pub(crate) times_after: Hlc,
    pub(crate) parent: u64,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl InodeVersion {
    pub(crate) fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// From `stamp` on user times need not come behind those of before, but behind those of `origin`.
    fn begin_times(&mut self, stamp: Hlc, origin: Option<(u64, Hlc)>) {
        if !self.plugin.is_empty() {
            (self.times_after, self.origin) = (stamp, origin);
        }
    }

    fn set_xattr(&mut self, name: &[u8], value: Option<&[u8]>) {
        if name == frieze_usertime::BINDING_XATTR {
            self.plugin = String::from_utf8(value.unwrap_or_default().to_vec()).unwrap_or_default();
        }
        match value {
            Some(value) => self.xattrs.insert(name.to_vec(), value.to_vec()),
            None => self.xattrs.remove(name),
        };
    }
}

/// Every name and inode that ever was.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    entries: BTreeMap<u64, BTreeMap<Vec<u8>, Versions<Option<u64>>>>,
    nodes: BTreeMap<u64, Versions<InodeVersion>>,
    bytes: BTreeMap<u64, FileBytes>,
    pub(crate) numbers: Numbers,
    pub(crate) horizons: Horizons,
}

/// End of a path: the directory, the last name, its target.
pub(crate) struct TreePath {
    pub(crate) parent: u64,
    pub(crate) name: Vec<u8>,
    pub(crate) found: Option<u64>,
}

/// Effect of a change, before it has a stamp.
#[derive(Clone, Debug)]
pub(crate) enum TreeChange {
    Nothing { id: u64, existed: bool },
    Make { parent: u64, name: Vec<u8>, node: Box<InodeVersion> },
    Link { id: u64, parent: u64, name: Vec<u8> },
    Remove { id: u64, parent: u64, name: Vec<u8> },
    Rename { id: u64, from: (u64, Vec<u8>), to: (u64, Vec<u8>), replaced: Option<u64>, exchange: bool },
    SetAttr { id: u64, set: Box<SetAttr> },
    SetXattr { id: u64, name: Vec<u8>, value: Option<Vec<u8>> },
    Edit { edit: Box<Edit> },
}

impl Tree {
    /// A tree with its root, made at `stamp`.
    pub(crate) fn format(stamp: Hlc, mode: u32) -> Tree {
        let mut tree = Tree::default();
        let node = InodeVersion { parent: ROOT, links: 2, ..new_node(FileKind::Directory, mode, stamp) };
        tree.nodes.entry(ROOT).or_default().set(stamp, node);
        tree.bytes.entry(ROOT).or_default().add(stamp, FileEventKind::Touch { mtime_ns: stamp.unix_ns() });
        tree
    }

    pub(crate) fn node(&self, id: u64, at: Hlc) -> Option<&InodeVersion> {
        self.nodes.get(&id)?.at(at)
    }

    pub(crate) fn bytes(&self, id: u64) -> &FileBytes {
        static NONE: FileBytes = FileBytes::NONE;
        self.bytes.get(&id).unwrap_or(&NONE)
    }

    pub(crate) fn write(&mut self, id: u64, stamp: Hlc, what: FileEventKind) {
        self.bytes.entry(id).or_default().add(stamp, what);
    }

    /// Names in a directory at an instant, in byte order.
    pub(crate) fn list(&self, id: u64, at: Hlc) -> impl Iterator<Item = (&[u8], u64)> {
        let names = self.entries.get(&id).into_iter().flatten();
        names.filter_map(move |(name, versions)| Some((name.as_slice(), (*versions.at(at)?)?)))
    }

    pub(crate) fn entry(&self, parent: u64, name: &[u8], at: Hlc) -> Option<u64> {
        *self.entries.get(&parent)?.get(name)?.at(at)?
    }

    /// The numbers of the inodes that an operation makes, if it succeeds.
    pub(crate) fn numbers_of(&self, op: &Op) -> Vec<u64> {
        match (op, self.decide(op)) {
            (Op::Edit(edit), _) => self.numbers.of_edit(edit),
            (_, Ok(TreeChange::Make { parent, node, .. })) => vec![self.numbers.next(parent, node.is_directory())],
            _ => Vec::new(),
        }
    }

    /// The first inode that an operation makes has this number.
    pub(crate) fn expect_number(&mut self, op: &Op, id: u64) {
        let Some(&expected) = self.numbers_of(op).first() else { return };
        let left_out = self.numbers.left_out(expected, id);
        self.numbers.leave_out(left_out.unwrap_or_else(|| panic!("{id} was right when it was made, not {expected}")));
    }

    /// Every inode that was ever made.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u64> {
        self.nodes.keys().copied()
    }

    /// Walks to where a path ends. `follow`: also a link in the last place.
    pub(crate) fn place(&self, target: &Target, follow: bool, at: Hlc) -> Result<TreePath, Reason> {
        let mut rest: Vec<Vec<u8>> = split(&target.path);
        rest.reverse();
        let mut here = if target.path.first() == Some(&b'/') { ROOT } else { target.base };
        let mut links = 0;
        self.kept(here, at)?;
        if self.node(here, at).is_none() {
            return Err(if at == Hlc::MAX { Reason::StaleHandle } else { Reason::NotFound });
        }
        loop {
            self.kept(here, at)?;
            let Some(name) = rest.pop() else {
                let parent = self.node(here, at).map_or(0, |node| node.parent);
                return Ok(TreePath { parent, name: Vec::new(), found: Some(here) });
            };
            if !self.node(here, at).is_some_and(InodeVersion::is_directory) {
                return Err(Reason::NotDirectory);
            }
            if name.len() > frieze_base::NAME_BYTES_MAX {
                return Err(Reason::NameTooLong);
            }
            let found = self.entry(here, &name, at);
            let node = found.and_then(|id| self.node(id, at));
            let last = rest.is_empty();
            match (found, node) {
                (Some(id), Some(link)) if link.kind == FileKind::Symlink && (!last || follow) => {
                    self.kept(id, at)?;
                    links += 1;
                    if links > frieze_base::SYMLINKS_FOLLOWED_MAX {
                        return Err(Reason::SymlinkLoop);
                    }
                    if link.target.first() == Some(&b'/') {
                        here = ROOT;
                    }
                    rest.extend(split(&link.target).into_iter().rev());
                }
                _ if last => return Ok(TreePath { parent: here, name, found }),
                (Some(id), _) => here = id,
                (None, _) => return Err(Reason::NotFound),
            }
        }
    }

    /// The inode that a target names.
    pub(crate) fn resolve(&self, target: &Target, at: Hlc) -> Result<u64, Reason> {
        let found = self.place(target, target.follow, at)?.found.ok_or(Reason::NotFound)?;
        self.kept(found, at)?;
        Ok(found)
    }

    /// An inode that is named by its number is reached from the root, by any of its names.
    pub(crate) fn approach(&self, id: u64, at: Hlc) -> Result<(), Reason> {
        self.kept(id, at)?;
        if at == Hlc::MAX {
            // A directory that was removed and has expired does not block a client with one of its files open.
            return Ok(());
        }
        let parents = match self.node(id, at) {
            Some(node) if node.is_directory() => [node.parent].into(),
            _ => self.homes(id, at),
        };
        let mut ways = parents.into_iter().filter(|parent| *parent != id).map(|parent| self.approach(parent, at));
        let first = ways.next().unwrap_or(Ok(()));
        first.or_else(|reason| if ways.any(|way| way.is_ok()) { Ok(()) } else { Err(reason) })
    }

    /// The effect of a change, or the reason to refuse it.
    pub(crate) fn decide(&self, op: &Op) -> Result<TreeChange, Reason> {
        let now = Hlc::MAX;
        match op {
            Op::Make(op) => self.decide_make(op),
            Op::Link(op) => {
                let id = self.resolve(&op.file, now)?;
                let place = self.place(&op.name, false, now)?;
                if place.found.is_some() {
                    return Err(Reason::Exists);
                }
                self.check_alive(place.parent)?;
                let node = self.node(id, now).ok_or(Reason::StaleHandle)?;
                if node.is_directory() {
                    return Err(Reason::NotPermitted);
                }
                if node.links == 0 {
                    return Err(Reason::NotFound);
                }
                Ok(TreeChange::Link { id, parent: place.parent, name: place.name })
            }
            Op::Remove(op) => {
                let place = self.place(&op.target, false, now)?;
                let id = place.found.ok_or(Reason::NotFound)?;
                if place.name.is_empty() {
                    return Err(if op.directory { Reason::Busy } else { Reason::IsDirectory });
                }
                match (op.directory, self.is_directory(id)) {
                    (true, false) => Err(Reason::NotDirectory),
                    (false, true) => Err(Reason::IsDirectory),
                    (true, true) if self.list(id, now).next().is_some() => Err(Reason::NotEmpty),
                    _ => Ok(TreeChange::Remove { id, parent: place.parent, name: place.name }),
                }
            }
            Op::Rename(op) => self.decide_rename(op),
            Op::SetAttr(op) => self.decide_set_attr(op),
            Op::SetXattr(op) => self.decide_set_xattr(op),
            Op::RemoveXattr(op) => {
                let id = self.resolve(&op.target, now)?;
                let node = self.node(id, now).ok_or(Reason::StaleHandle)?;
                check_xattr(node)?;
                if !node.xattrs.contains_key(&op.name) {
                    return Err(Reason::NoAttribute);
                }
                Ok(TreeChange::SetXattr { id, name: op.name.clone(), value: None })
            }
            Op::Edit(edit) => self.decide_edit(edit),
            _ => Err(Reason::Unsupported),
        }
    }

    fn decide_make(&self, op: &Make) -> Result<TreeChange, Reason> {
        let kind = op.kind.as_ref().ok_or(Reason::InvalidArgument)?;
        let opens = op.or_open && matches!(kind, MakeKind::File(_));
        let place = self.place(&op.target, opens && op.target.follow, Hlc::MAX)?;
        if op.replaces {
            return Err(Reason::Unsupported);
        }
        if let Some(found) = place.found {
            return match self.node(found, Hlc::MAX).map(|node| node.kind) {
                _ if !opens => Err(Reason::Exists),
                Some(FileKind::Directory) => Err(Reason::IsDirectory),
                Some(FileKind::Symlink) => Err(Reason::SymlinkLoop),
                _ => Ok(TreeChange::Nothing { id: found, existed: true }),
            };
        }
        self.check_alive(place.parent)?;
        let parent = self.node(place.parent, Hlc::MAX).ok_or(Reason::StaleHandle)?;
        let (kind, mode, target) = match kind {
            MakeKind::File(_) => (FileKind::File, op.mode & 0o7777, Vec::new()),
            MakeKind::Directory(_) => (FileKind::Directory, op.mode & 0o1777, Vec::new()),
            MakeKind::Symlink(target) if target.is_empty() => return Err(Reason::NotFound),
            MakeKind::Symlink(target) => (FileKind::Symlink, 0o777, target.clone()),
            MakeKind::Special(_) => (FileKind::Fifo, op.mode & 0o7777, Vec::new()),
        };
        let links = if kind == FileKind::Directory { 2 } else { 1 };
        let plugin = parent.plugin.clone();
        let node = InodeVersion { links, target, plugin, parent: place.parent, ..new_node(kind, mode, Hlc::ZERO) };
        Ok(TreeChange::Make { parent: place.parent, name: place.name, node: Box::new(node) })
    }

    fn decide_rename(&self, op: &Rename) -> Result<TreeChange, Reason> {
        let now = Hlc::MAX;
        let exchange = op.flags == 2;
        let from = self.place(&op.from, false, now)?;
        let to = self.place(&op.to, false, now)?;
        if from.name.is_empty() || to.name.is_empty() {
            return Err(if !from.name.is_empty() && op.flags == 1 { Reason::Exists } else { Reason::Busy });
        }
        let id = from.found.ok_or(Reason::NotFound)?;
        match (op.flags, to.found) {
            (1, Some(_)) => return Err(Reason::Exists),
            (2, None) => return Err(Reason::NotFound),
            _ => {}
        }
        if self.is_directory(id) && self.is_within(to.parent, id) {
            return Err(Reason::InvalidArgument);
        }
        if let Some(old) = to.found.filter(|old| self.is_directory(*old))
            && self.is_within(from.parent, old)
        {
            return Err(if exchange { Reason::InvalidArgument } else { Reason::NotEmpty });
        }
        if to.found == Some(id) {
            return Ok(TreeChange::Nothing { id, existed: false });
        }
        if let Some(old) = to.found.filter(|_| !exchange) {
            match (self.is_directory(id), self.is_directory(old)) {
                (true, false) => return Err(Reason::NotDirectory),
                (false, true) => return Err(Reason::IsDirectory),
                (true, true) if self.list(old, now).next().is_some() => return Err(Reason::NotEmpty),
                _ => {}
            }
        }
        if to.found.is_none() {
            self.check_alive(to.parent)?;
        }
        let (from, replaced) = ((from.parent, from.name), to.found);
        Ok(TreeChange::Rename { id, from, to: (to.parent, to.name), replaced, exchange })
    }

    fn decide_set_attr(&self, op: &SetAttr) -> Result<TreeChange, Reason> {
        let id = self.resolve(&op.target, Hlc::MAX)?;
        let node = self.node(id, Hlc::MAX).ok_or(Reason::StaleHandle)?;
        match node.kind {
            FileKind::Directory if op.size.is_some() => return Err(Reason::IsDirectory),
            FileKind::Symlink if op.size.is_some() => return Err(Reason::InvalidArgument),
            FileKind::Symlink if op.mode.is_some() => return Err(Reason::Unsupported),
            _ => {}
        }
        Ok(TreeChange::SetAttr { id, set: Box::new(op.clone()) })
    }

    fn decide_set_xattr(&self, op: &SetXattr) -> Result<TreeChange, Reason> {
        let id = self.resolve(&op.target, Hlc::MAX)?;
        let node = self.node(id, Hlc::MAX).ok_or(Reason::StaleHandle)?;
        check_xattr(node)?;
        match node.xattrs.contains_key(&op.name) {
            true if op.flags & 1 != 0 => return Err(Reason::Exists),
            false if op.flags & 2 != 0 => return Err(Reason::NoAttribute),
            _ => {}
        }
        if op.name == frieze_usertime::BINDING_XATTR && !node.is_directory() {
            return Err(Reason::InvalidArgument);
        }
        Ok(TreeChange::SetXattr { id, name: op.name.clone(), value: Some(op.value.clone()) })
    }

    /// Carries out a change; returns the inode and whether it was there already.
    pub(crate) fn commit(&mut self, change: &TreeChange, stamp: Hlc) -> (u64, bool) {
        match change {
            TreeChange::Nothing { id, existed } => return (*id, *existed),
            TreeChange::Make { parent, name, node } => {
                let id = self.numbers.next(*parent, node.is_directory());
                self.numbers.note(id);
                let node =
                    InodeVersion { born: stamp, ctime: stamp, atime_ns: stamp.unix_ns(), ..InodeVersion::clone(node) };
                let directory = node.is_directory();
                self.nodes.entry(id).or_default().set(stamp, node);
                self.write(id, stamp, FileEventKind::Touch { mtime_ns: stamp.unix_ns() });
                self.set_entry(*parent, name, Some(id), stamp);
                self.edit(*parent, stamp, |parent| parent.links += u32::from(directory));
                return (id, false);
            }
            TreeChange::Link { id, parent, name } => {
                self.set_entry(*parent, name, Some(*id), stamp);
                self.edit(*id, stamp, |node| node.links += 1);
            }
            TreeChange::Remove { id, parent, name } => {
                let directory = self.is_directory(*id);
                self.set_entry(*parent, name, None, stamp);
                self.edit(*parent, stamp, |parent| parent.links -= u32::from(directory));
                self.take_name(*id, stamp);
            }
            TreeChange::Rename { id, from, to, replaced, exchange } => {
                if let Some(old) = replaced.filter(|_| !exchange) {
                    let directory = self.is_directory(old);
                    self.edit(to.0, stamp, |parent| parent.links -= u32::from(directory));
                    self.take_name(old, stamp);
                }
                self.set_entry(from.0, &from.1, replaced.filter(|_| *exchange), stamp);
                self.set_entry(to.0, &to.1, Some(*id), stamp);
                self.moved(*id, from.0, to.0, stamp);
                if let Some(other) = replaced.filter(|_| *exchange) {
                    self.moved(other, to.0, from.0, stamp);
                }
            }
            TreeChange::SetAttr { id, set } => self.set_attr(*id, set, stamp),
            TreeChange::SetXattr { id, name, value } => {
                self.edit(*id, stamp, |node| node.set_xattr(name, value.as_deref()));
            }
            TreeChange::Edit { edit } => return (self.commit_edit(edit, stamp), false),
        }
        match change {
            TreeChange::Link { id, .. }
            | TreeChange::Remove { id, .. }
            | TreeChange::Rename { id, .. }
            | TreeChange::SetAttr { id, .. }
            | TreeChange::SetXattr { id, .. } => (*id, false),
            TreeChange::Nothing { .. } | TreeChange::Make { .. } | TreeChange::Edit { .. } => (0, false),
        }
    }

    fn set_attr(&mut self, id: u64, set: &SetAttr, stamp: Hlc) {
        let nothing = set.mode.is_none() && set.uid.is_none() && set.gid.is_none() && set.size.is_none();
        if nothing && set.atime.is_none() && set.mtime.is_none() {
            return;
        }
        if let Some(len) = set.size {
            self.write(id, stamp, FileEventKind::Truncate { len });
        }
        if let Some(mtime) = set.mtime {
            let mtime_ns = if mtime.now { stamp.unix_ns() } else { mtime.ns };
            self.write(id, stamp, FileEventKind::Touch { mtime_ns });
        }
        self.edit(id, stamp, |node| {
            if set.size == Some(0) {
                node.begin_times(stamp, None);
            }
            node.mode = set.mode.map_or(node.mode, |mode| mode & 0o7777);
            if let Some(atime) = set.atime {
                node.atime_ns = if atime.now { stamp.unix_ns() } else { atime.ns };
            }
        });
    }

    fn set_entry(&mut self, parent: u64, name: &[u8], id: Option<u64>, stamp: Hlc) {
        self.entries.entry(parent).or_default().entry(name.to_vec()).or_default().set(stamp, id);
        self.edit(parent, stamp, |_| {});
        self.write(parent, stamp, FileEventKind::Touch { mtime_ns: stamp.unix_ns() });
    }

    fn moved(&mut self, id: u64, from: u64, to: u64, stamp: Hlc) {
        if self.is_directory(id) && from != to {
            self.edit(from, stamp, |parent| parent.links -= 1);
            self.edit(to, stamp, |parent| parent.links += 1);
        }
        self.edit(id, stamp, |node| {
            if node.is_directory() {
                node.parent = to;
            }
        });
    }

    fn take_name(&mut self, id: u64, stamp: Hlc) {
        self.edit(id, stamp, |node| node.links = if node.is_directory() { 0 } else { node.links - 1 });
    }

    fn edit(&mut self, id: u64, stamp: Hlc, change: impl FnOnce(&mut InodeVersion)) {
        let versions = self.nodes.get_mut(&id).expect("only inodes that were found are changed");
        let mut node = versions.at(Hlc::MAX).expect("it has a version").clone();
        node.ctime = stamp;
        change(&mut node);
        versions.set(stamp, node);
    }

    fn is_directory(&self, id: u64) -> bool {
        self.node(id, Hlc::MAX).is_some_and(InodeVersion::is_directory)
    }

    /// Nothing is added to a directory that was removed.
    fn check_alive(&self, directory: u64) -> Result<(), Reason> {
        match self.node(directory, Hlc::MAX) {
            Some(node) if node.links > 0 => Ok(()),
            _ => Err(Reason::NotFound),
        }
    }

    fn is_within(&self, directory: u64, ancestor: u64) -> bool {
        let mut here = directory;
        while here != ancestor {
            match self.node(here, Hlc::MAX) {
                Some(node) if here != ROOT => here = node.parent,
                _ => return false,
            }
        }
        true
    }

    /// Checks that the names at an instant form a tree and that link counts follow from it: the model checks itself
    /// first, so that a mistake in it is not taken for one of the server.
    pub(crate) fn check(&self, at: Hlc) -> Result<(), String> {
        let mut visited = BTreeSet::new();
        let mut names: BTreeMap<u64, u32> = BTreeMap::new();
        let mut left = vec![ROOT];
        while let Some(directory) = left.pop() {
            if !visited.insert(directory) {
                return Err(format!("directory {directory} has two names or lies below itself at {at}"));
            }
            let mut subdirectories = 0;
            for (_, id) in self.list(directory, at) {
                match self.node(id, at) {
                    Some(node) if node.is_directory() => {
                        subdirectories += 1;
                        left.push(id);
                    }
                    Some(_) => *names.entry(id).or_default() += 1,
                    None => return Err(format!("a name in {directory} leads to {id}, which is not there at {at}")),
                }
            }
            let links = self.node(directory, at).map_or(0, |node| node.links);
            if links != 2 + subdirectories {
                return Err(format!("directory {directory} counts {links} links, {subdirectories} below, at {at}"));
            }
        }
        match names.into_iter().find(|(id, count)| self.node(*id, at).is_none_or(|node| node.links != *count)) {
            Some((id, count)) => Err(format!("inode {id} has {count} names, and counts others, at {at}")),
            None => Ok(()),
        }
    }
}

fn new_node(kind: FileKind, mode: u32, stamp: Hlc) -> InodeVersion {
    InodeVersion {
        kind,
        mode,
        links: 1,
        born: stamp,
        atime_ns: stamp.unix_ns(),
        ctime: stamp,
        target: Vec::new(),
        plugin: String::new(),
        origin: None,
        times_after: Hlc::ZERO,
        parent: ROOT,
        xattrs: BTreeMap::new(),
    }
}

fn check_xattr(node: &InodeVersion) -> Result<(), Reason> {
    match node.kind {
        FileKind::File | FileKind::Directory => Ok(()),
        _ => Err(Reason::NotPermitted),
    }
}

fn split(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".").map(<[u8]>::to_vec).collect()
}
