//! From a path to an inode, now or at any instant.
//!
//! One walk serves both. At an instant, the version in memory answers if it is old enough, else the history; and the
//! right to search a directory is asked of its version of then and of its newest (design §12). A walk through the
//! present tells what it read, whether it arrives or not: an answer by path tells of every directory on the way.

use std::borrow::Cow;

use frieze_base::{Fault, InodeId, NAME_BYTES_MAX, PATH_BYTES_MAX, SYMLINKS_FOLLOWED_MAX};
use frieze_hlc::Hlc;
use frieze_wire::message::FileKind;
use frieze_wire::txn::{Caller, Target};

use crate::error::{Error, lossy};
use crate::history::{NewestVersion, VersionHistory, VisitChanged, VisitValue, VisitVersion};
use crate::inode::{Inode, MAY_EXECUTE};
use crate::key::Cached;
use crate::model::{NameEntry, Resolved};
use crate::namespace::Namespace;
use crate::read_set::ReadSet;

/// Whether a symbolic link in the last place is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FinalLink {
    /// Always.
    Follow,
    /// Only if a `/` comes after it.
    Stay,
    /// Never: the name itself is meant (make, remove, rename).
    Name,
}

/// Where a path ends.
#[derive(Clone, Debug)]
pub(crate) struct PathEnd {
    /// Directory of the last name; home of the inode where there is no last name.
    pub(crate) parent: InodeId,
    /// Last name; empty if the path ends in the starting directory, the root, `.` or `..`.
    pub(crate) name: Vec<u8>,
    /// What it names.
    pub(crate) found: Option<NameEntry>,
    /// True if a `/` follows the last name: it has to be a directory.
    pub(crate) slash: bool,
}

/// A walk through the tree as it was at one instant, with the rights of one caller.
pub(crate) struct PathWalk<'a> {
    pub(crate) namespace: &'a Namespace,
    pub(crate) history: &'a dyn VersionHistory,
    /// `None`: now.
    pub(crate) at: Option<Hlc>,
    pub(crate) caller: &'a Caller,
    /// Hears what of the present is read.
    pub(crate) reads: &'a dyn ReadSet,
}

impl Namespace {
    /// Resolves a target at an instant (`None`: now). The right to search is checked on every directory of the walk,
    /// for the past by its version of then and by its newest. A base that is not the root is checked up to the root.
    /// The rights on what is found are the caller's to check ([`Namespace::check_access`]).
    ///
    /// # Errors
    /// As `path_resolution(7)`: `NotFound`, `NotDirectory`, `AccessDenied`, `SymlinkLoop`, `NameTooLong`;
    /// `InvalidArgument` for `..` and NUL; `StaleHandle` for an unknown base; those of the store.
    ///
    /// # Cost
    /// Now: O(log entries) a name, in memory. Then: a read of the history for what changed since.
    ///
    /// `reads` hears what of the present is looked at on the way.
    pub fn resolve(
        &self,
        history: &dyn VersionHistory,
        target: &Target,
        at: Option<Hlc>,
        caller: &Caller,
        reads: &dyn ReadSet,
    ) -> Result<Resolved, Fault> {
        Ok(PathWalk { namespace: self, history, at, caller, reads }.resolve(target)?)
    }
}

impl<'a> PathWalk<'a> {
    pub(crate) fn resolve(&self, target: &Target) -> Result<Resolved, Error> {
        let last = if target.follow { FinalLink::Follow } else { FinalLink::Stay };
        let place = self.place(target, last)?;
        let Some(entry) = place.found else { return Err(Error::not_found(&place.name)) };
        let id = entry.inode();
        self.read(Cached::Inode(id));
        let inode = self.look(id).map_err(|error| error.called(&target.path))?.into_owned();
        if place.slash && !inode.is_directory() {
            return Err(Error::not_directory(&place.name));
        }
        Ok(Resolved { id, inode, parent: place.parent, name: place.name })
    }

    pub(crate) fn place(&self, target: &Target, last: FinalLink) -> Result<PathEnd, Error> {
        check_path(&target.path)?;
        let mut directory = InodeId(target.base);
        if target.path.first() == Some(&b'/') {
            directory = InodeId::ROOT;
        }
        if directory != InodeId::ROOT && self.caller.uid != 0 {
            // Where it lies is told by a refusal, and known to a client that caches a name that it had before.
            self.approach(directory).inspect_err(|_| self.reads.add_everything())?;
        }
        let mut path = Cow::Borrowed(target.path.as_slice());
        let mut from = 0;
        let mut links = 0;
        loop {
            while path.get(from) == Some(&b'/') {
                from += 1;
            }
            if from == path.len() {
                return self.end_in(directory);
            }
            let end = path[from..].iter().position(|&b| b == b'/').map_or(path.len(), |len| from + len);
            let name = &path[from..end];
            let slash = end < path.len();
            let is_last = path[end..].iter().all(|&b| b == b'/');
            // What came before this name led here, and the caller has gone that way.
            let here = self.look(directory).map_err(|error| error.called(way(&path[..from])))?;
            if !here.is_directory() {
                return Err(Error::not_directory(name));
            }
            self.check_search(directory, &here, name)?;
            match name {
                b"." => {}
                b".." => directory = here.parent,
                _ => {
                    if name.len() > NAME_BYTES_MAX {
                        return Err(Error::NameTooLong { bytes: name.len() });
                    }
                    self.read(Cached::Names(directory));
                    let found = self.lookup(directory, &here, name)?;
                    let follows = !is_last || last == FinalLink::Follow || (slash && last == FinalLink::Stay);
                    match found {
                        Some(entry) if entry.kind() == FileKind::Symlink && follows => {
                            links += 1;
                            if links > SYMLINKS_FOLLOWED_MAX {
                                return Err(Error::SymlinkLoop { name: lossy(name) });
                            }
                            self.read(Cached::Inode(entry.inode()));
                            let link = self.look(entry.inode())?;
                            let whole = [link.symlink_target(), &path[end..]].concat();
                            if whole.first() == Some(&b'/') {
                                directory = InodeId::ROOT;
                            }
                            path = Cow::Owned(whole);
                            from = 0;
                            continue;
                        }
                        found if is_last => {
                            return Ok(PathEnd { parent: directory, name: name.to_vec(), found, slash });
                        }
                        Some(entry) => directory = entry.inode(),
                        None => return Err(Error::not_found(name)),
                    }
                }
            }
            from = end;
        }
    }

    /// The version of an inode at this walk's instant.
    pub(crate) fn look(&self, id: InodeId) -> Result<Cow<'a, Inode>, Error> {
        self.namespace.kept(id, self.at)?;
        self.namespace.version(self.history, id, self.at)
    }

    /// The past does not change, and no client caches it as the present.
    fn read(&self, what: Cached) {
        if self.at.is_none() {
            self.reads.add(what);
        }
    }

    /// Checks that the caller may come to an inode that was named by its number: by some way from the root.
    pub(crate) fn approach(&self, id: InodeId) -> Result<(), Error> {
        self.namespace.kept(id, self.at)?;
        self.climb(id)
    }

    fn climb(&self, id: InodeId) -> Result<(), Error> {
        let mut inode = self.on_the_way(id)?;
        if !inode.is_directory() {
            if inode.links as usize > inode.places().count() {
                // A file with so many names that not all places are known: its own mode bits decide alone.
                return Ok(());
            }
            let mut answer = Err(Error::StaleHandle { inode: id });
            for place in inode.places() {
                answer = self.on_the_way(place).and_then(|directory| {
                    self.check_search(place, &directory, b"..")?;
                    self.climb(place)
                });
                if answer.is_ok() {
                    break;
                }
            }
            return answer;
        }
        let mut here = id;
        while here != InodeId::ROOT {
            here = inode.parent;
            inode = self.on_the_way(here)?;
            self.check_search(here, &inode, b"..")?;
        }
        Ok(())
    }

    /// A directory that is passed and not looked into. A file may be open whose directory was removed and forgotten
    /// since: that no operation of now waits for.
    fn on_the_way(&self, id: InodeId) -> Result<Cow<'a, Inode>, Error> {
        self.read(Cached::Inode(id));
        if self.at.is_some() {
            self.namespace.kept(id, self.at)?;
        }
        self.namespace.version(self.history, id, self.at)
    }

    /// The rights of then and of now (of a deleted directory: its last) must both allow.
    fn check_search(&self, id: InodeId, directory: &Inode, name: &[u8]) -> Result<(), Error> {
        // The superuser learns nothing of modes.
        if self.caller.uid != 0 {
            self.read(Cached::Inode(id));
        }
        self.namespace.check_both(self.history, id, directory, self.at, self.caller, MAY_EXECUTE, name)
    }

    fn lookup(&self, directory: InodeId, version: &Inode, name: &[u8]) -> Result<Option<NameEntry>, Error> {
        let current = self.namespace.entry(directory, name);
        match self.at {
            None => Ok(current),
            Some(at) if current.is_some_and(|entry| entry.from <= at) => Ok(current),
            // Nothing in it changed since: what is absent now was absent then.
            Some(at) if self.namespace.current(directory).is_some_and(|now| now.size_as_of <= at) => {
                debug_assert!(version.size_as_of <= at);
                Ok(None)
            }
            Some(at) => Namespace::entry_then(self.history, directory, name, at),
        }
    }

    fn end_in(&self, id: InodeId) -> Result<PathEnd, Error> {
        let inode = self.look(id)?;
        let found = Some(NameEntry::new(id, inode.kind(), inode.from));
        Ok(PathEnd { parent: inode.parent, name: Vec::new(), found, slash: false })
    }
}

/// A part of a path without the `/` at its end, unless it is all there is.
fn way(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(1, |last| last + 1);
    &path[..end.min(path.len())]
}

fn check_path(path: &[u8]) -> Result<(), Error> {
    if path.len() > PATH_BYTES_MAX {
        return Err(Error::PathTooLong { bytes: path.len() });
    }
    if path.contains(&0) {
        return Err(Error::InvalidArgument { why: "a path holds no NUL" });
    }
    if path.split(|&b| b == b'/').any(|name| name == b"..") {
        return Err(Error::InvalidArgument { why: "`..` is not allowed in a path: name the directory from the root" });
    }
    Ok(())
}

/// The history of a walk through the present, which asks none.
pub(crate) struct NoHistory;

impl VersionHistory for NoHistory {
    fn newest(&self, _: &[u8], _: Hlc) -> Result<NewestVersion, Fault> {
        Ok(None)
    }

    fn scan(&self, _: &[u8], _: &[u8], _: Hlc, _: &mut VisitValue<'_>) -> Result<(), Fault> {
        Ok(())
    }

    fn versions(&self, _: &[u8], _: &[u8], _: Hlc, _: Hlc, _: &mut VisitVersion<'_>) -> Result<(), Fault> {
        Ok(())
    }

    fn versions_of(&self, _: &[u8], _: Hlc, _: Hlc, _: &mut VisitVersion<'_>) -> Result<(), Fault> {
        Ok(())
    }

    fn changed(&self, _: Hlc, _: Hlc, _: &mut VisitChanged<'_>) -> Result<u64, Fault> {
        Ok(0)
    }

    fn changed_back(&self, _: Hlc, _: Hlc, _: &mut VisitChanged<'_>) -> Result<u64, Fault> {
        Ok(0)
    }
}
