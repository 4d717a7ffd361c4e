//! Directories that the mount knows completely: a name that is not among theirs is absent, without a request.
//!
//! Programs look up many absent names: before every creation, and along search paths. A directory is complete once the
//! server has listed it in one answer, or has answered that it was just created, under a grant on its names.
//!
//! Guarantees: a name reported absent was absent at some moment between the request and the answer. The grant excludes
//! changes by other clients, as long as it lasts and is not recalled; a new grant prolongs it only while it is valid.
//! This mount's own changes are counted here from before they are sent: while one is under way no answer is given, and
//! a listing that one overtook is dropped. A change with an unknown outcome drops the directory.
//!
//! The answer to a change also has the present attributes of its directories, and the kernel requests those before the
//! next change in them, to check the program's right. So they are kept here too, as long as nothing else may have
//! changed them. So are the attributes of a file when it was opened: reading makes the kernel drop them, for the sake
//! of the time of the last access. A change of names changes files that it does not name: while one is under way no
//! attributes of files are returned, and when it has run, those of the files that it changed are dropped. Leaves to
//! others: whether a grant is still valid ([`crate::cache`]).

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use frieze_base::{FastMap, FastSet, InodeId, NAME_BYTES_MAX};
use frieze_client::{Attr, FileKind};

use crate::cache::{CachePromise, KernelCache};
use crate::local_changes::{LocalChange, LocalChanges, Still};

/// The directories. Bounded by [`NAMES_MAX`].
#[derive(Default)]
pub(crate) struct CompleteDirs {
    state: Mutex<DirsState>,
    /// Every change of this mount's own, those of bytes too.
    pub(crate) local_changes: LocalChanges,
}

#[derive(Default)]
struct DirsState {
    directories: FastMap<InodeId, Directory>,
    /// Names of all directories.
    names: usize,
    /// Attributes of directories after the last change in them, and of files that were read or opened.
    attributes: FastMap<InodeId, (Attr, CachePromise)>,
    /// Changes of this mount that are under way, by directory.
    changing: FastMap<InodeId, UnderWay>,
    /// Answers under way that may list a complete directory.
    looking: u32,
    /// Directories that this mount changed since the first of those requests.
    changed: FastSet<InodeId>,
    /// There were more of them than are kept.
    has_lost_count: bool,
}

struct Directory {
    /// The newest grant of those that follow each other without a gap.
    promise: CachePromise,
    names: BTreeSet<Box<[u8]>>,
}

#[derive(Clone, Copy, Default)]
struct UnderWay {
    count: u32,
    /// Several were under way at a time: which of them ran last is not known.
    is_mixed: bool,
}

/// The effect of a change on the names of a directory, once it has run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EntryChange<'a> {
    /// The name is there from now on.
    Adds(&'a [u8]),
    /// It is not.
    Removes(&'a [u8]),
    /// It leads to another inode.
    Swaps(&'a [u8]),
}

/// A change that is under way; if it is dropped without [`RunningChange::done`], its outcome is unknown.
pub(crate) struct RunningChange<'a> {
    complete_dirs: &'a CompleteDirs,
    directories: [Option<InodeId>; 2],
}

/// An answer under way that may list a complete directory.
pub(crate) struct PendingListing<'a>(&'a CompleteDirs);

impl CompleteDirs {
    /// Under which promise a name of `directory` is known to be absent. `None` as well where that is about to run out:
    /// the server's answer prolongs it.
    pub(crate) fn is_absent(&self, cache: &KernelCache, directory: InodeId, name: &[u8]) -> Option<CachePromise> {
        let mut state = self.lock();
        let known = state.directories.get(&directory)?;
        let left = cache.names_left(&known.promise);
        if left.is_zero() {
            state.forget(directory);
            return None;
        }
        let is_absent = name.len() <= NAME_BYTES_MAX && !known.names.contains(name);
        let promise = known.promise;
        (is_absent && left > ASK_AGAIN && !state.changing.contains_key(&directory)).then_some(promise)
    }

    /// A newer answer grants the names of its directory.
    pub(crate) fn prolong(&self, cache: &KernelCache, promise: &CachePromise) {
        let mut state = self.lock();
        let Some(directory) = promise.directory() else { return };
        let Some(known) = state.directories.get_mut(&directory) else { return };
        let left = cache.names_left(&known.promise);
        if left.is_zero() {
            state.forget(directory);
        } else if cache.names_left(promise) > left {
            known.promise = *promise;
        }
    }

    /// Call this before a request is sent whose answer may be passed to [`PendingListing::complete`].
    pub(crate) fn look(&self) -> PendingListing<'_> {
        self.lock().looking += 1;
        PendingListing(self)
    }

    /// To be called before a change is sent that adds names to these directories or removes them, or changes their
    /// attributes.
    pub(crate) fn change(&self, directory: InodeId, other: Option<InodeId>) -> RunningChange<'_> {
        let directories = [Some(directory), other.filter(|other| *other != directory)];
        self.local_changes.begin();
        let mut state = self.lock();
        for directory in directories.into_iter().flatten() {
            let under_way = state.changing.entry(directory).or_default();
            under_way.count += 1;
            under_way.is_mixed |= under_way.count > 1;
            state.note_change(directory);
        }
        RunningChange { complete_dirs: self, directories }
    }

    /// A change of an inode by other means than its names: to be called before it is sent, over when this is dropped.
    pub(crate) fn touch(&self, id: InodeId) -> LocalChange<'_> {
        let touching = self.local_changes.touch(id);
        self.forget_attributes(id);
        touching
    }

    /// The attributes of an inode, if no change can have happened since they were returned.
    pub(crate) fn attributes(&self, cache: &KernelCache, id: InodeId) -> Option<(Attr, CachePromise)> {
        let mut state = self.lock();
        let (attr, promise) = state.attributes.get(&id)?;
        if !cache.is_kept(promise) {
            state.attributes.remove(&id);
            return None;
        }
        // Which file a change of names is about is known only when it has run.
        let is_changing = match attr.kind() {
            FileKind::Directory => state.changing.contains_key(&id),
            _ => self.local_changes.still().is_none(),
        };
        if is_changing { None } else { Some((attr.clone(), *promise)) }
    }

    /// Stores the attributes of an inode; requested when no change was under way.
    pub(crate) fn know(&self, attr: &Attr, promise: CachePromise, still: Option<Still>) {
        let mut state = self.lock();
        // A change that begins after this look finds the attributes, and ends them.
        if still.is_some() && self.local_changes.still() == still {
            state.keep(attr.clone(), promise);
        }
    }

    /// This inode was changed by other means than its names, or was deleted.
    pub(crate) fn forget_attributes(&self, id: InodeId) {
        self.local_changes.changed_inode(id);
        self.lock().attributes.remove(&id);
    }

    /// Directories were moved or replaced.
    pub(crate) fn forget_all_attributes(&self) {
        self.local_changes.changed_something();
        self.lock().attributes.clear();
    }

    fn lock(&self) -> MutexGuard<'_, DirsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingListing<'_> {
    /// These are all names of the directory, by an answer under its promise.
    pub(crate) fn complete<'n>(&self, promise: CachePromise, names: impl Iterator<Item = &'n [u8]>) {
        let Some(directory) = promise.directory() else { return };
        let mut state = self.0.lock();
        if state.has_lost_count || state.changed.contains(&directory) || state.changing.contains_key(&directory) {
            return;
        }
        state.forget(directory);
        let names: BTreeSet<Box<[u8]>> = names.map(Box::from).collect();
        if state.names + names.len() > NAMES_MAX {
            // Those in use come back one by one.
            state.directories.clear();
            state.names = 0;
        }
        if names.len() <= NAMES_MAX {
            state.names += names.len();
            state.directories.insert(directory, Directory { promise, names });
        }
    }
}

impl Drop for PendingListing<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.looking -= 1;
        if state.looking == 0 {
            state.changed = FastSet::default();
            state.has_lost_count = false;
        }
    }
}

impl RunningChange<'_> {
    /// It has run, with these effects, and these present attributes of the directories, if the server returned them.
    pub(crate) fn done(mut self, changes: &[(InodeId, EntryChange<'_>)], now: Vec<(Attr, CachePromise)>) {
        let mut state = self.complete_dirs.lock();
        for directory in self.directories.into_iter().flatten() {
            state.attributes.remove(&directory);
            self.complete_dirs.local_changes.changed_inode(directory);
        }
        for (attr, promise) in now {
            let directory = InodeId(attr.inode);
            if state.changing.get(&directory).is_some_and(|under_way| !under_way.is_mixed) {
                state.keep(attr, promise.after(&self.complete_dirs.local_changes));
            }
        }
        for (directory, change) in changes {
            let (EntryChange::Adds(name) | EntryChange::Removes(name) | EntryChange::Swaps(name)) = change;
            self.complete_dirs.local_changes.changed_name(*directory, name);
            let Some(known) = state.directories.get_mut(directory) else { continue };
            match change {
                EntryChange::Adds(name) => {
                    if known.names.insert(Box::from(*name)) {
                        state.names += 1;
                    }
                }
                EntryChange::Removes(name) => {
                    if known.names.remove(*name) {
                        state.names -= 1;
                    }
                }
                EntryChange::Swaps(_) => {}
            }
        }
        if state.names > NAMES_MAX {
            state.directories.clear();
            state.names = 0;
        }
        for directory in std::mem::take(&mut self.directories).into_iter().flatten() {
            state.changed_by_us(directory);
        }
    }
}

impl Drop for RunningChange<'_> {
    fn drop(&mut self) {
        let mut state = self.complete_dirs.lock();
        for directory in std::mem::take(&mut self.directories).into_iter().flatten() {
            state.forget(directory);
            // The state of the file of the name is unknown too.
            state.attributes.clear();
            self.complete_dirs.local_changes.changed_something();
            state.changed_by_us(directory);
        }
        drop(state);
        self.complete_dirs.local_changes.end();
    }
}

impl DirsState {
    fn keep(&mut self, attr: Attr, promise: CachePromise) {
        if self.attributes.len() >= ATTRIBUTES_MAX {
            self.attributes.clear();
        }
        self.attributes.insert(InodeId(attr.inode), (attr, promise));
    }

    fn forget(&mut self, directory: InodeId) {
        if let Some(known) = self.directories.remove(&directory) {
            self.names -= known.names.len();
        }
    }

    fn note_change(&mut self, directory: InodeId) {
        if self.looking > 0 {
            self.has_lost_count |= self.changed.len() >= CHANGED_MAX;
            if !self.has_lost_count {
                self.changed.insert(directory);
            }
        }
    }

    fn changed_by_us(&mut self, directory: InodeId) {
        self.note_change(directory);
        if let Some(under_way) = self.changing.get_mut(&directory) {
            under_way.count -= 1;
            if under_way.count == 0 {
                self.changing.remove(&directory);
            }
        }
    }
}

/// Names that are kept: about 64 bytes each.
const NAMES_MAX: usize = 1 << 18;
/// Inodes whose attributes are kept: those that were changed, opened or read in the last seconds; 200 bytes each.
const ATTRIBUTES_MAX: usize = 1 << 16;
/// Directories changed while one is being listed.
const CHANGED_MAX: usize = 1 << 16;
/// A grant with less left than this is prolonged: a fifth of its usual life.
const ASK_AGAIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
