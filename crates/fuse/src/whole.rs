//! Directories that the mount knows whole: a name that is not among theirs is not there, and nobody has to be asked.
//!
//! Programs look for many names that are not there: before every creation, and along search paths. A directory is known
//! whole once the server has listed it in one answer, or has said that it was just made, under a grant on its names.
//!
//! Guarantees: what is said absent was absent at some moment between the question and the answer. The grant says that
//! nobody else has changed the directory, as long as it lasts and is not recalled; a new grant prolongs it only while it
//! still does. This mount's own changes are counted here from before they are sent: while one is under way nothing is said,
//! and a listing that one overtook is no use. What may have failed or not is forgotten.
//!
//! The same change tells what its directories are like now, and the kernel asks for that before the next change in them,
//! to see whether the program may make it. So it is kept here too, as long as nothing else may have changed them. So is
//! what a file was like when it was opened: reading makes the kernel forget it, for the sake of the time of the last access.
//! A change of names changes files that it does not name: while one is under way nothing is said of files, and when it has
//! run, what it says it changed is forgotten.
//! Leaves to others: whether a grant still holds ([`crate::cache`]).

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use frieze_base::{FastMap, FastSet, InodeId, NAME_BYTES_MAX};
use frieze_client::{Attr, FileKind};

use crate::cache::{Cache, Promise};
use crate::own::{Own, Still, Touching};

/// The directories. Bounded by [`NAMES_MAX`].
#[derive(Default)]
pub(crate) struct Whole {
    state: Mutex<State>,
    /// Every change of this mount's own, those of bytes too.
    pub(crate) own: Own,
}

#[derive(Default)]
struct State {
    directories: FastMap<InodeId, Directory>,
    /// Names of all directories.
    names: usize,
    /// Attributes of directories as the last change in them left them, and of files that were looked at or opened.
    attributes: FastMap<InodeId, (Attr, Promise)>,
    /// Changes of this mount that are under way, by directory.
    changing: FastMap<InodeId, UnderWay>,
    /// Answers under way that may tell of a whole directory.
    looking: u32,
    /// Directories that this mount changed since the first of those was asked for.
    changed: FastSet<InodeId>,
    /// There were more of them than are kept.
    has_lost_count: bool,
}

struct Directory {
    /// The newest grant of those that follow each other without a gap.
    promise: Promise,
    names: BTreeSet<Box<[u8]>>,
}

#[derive(Clone, Copy, Default)]
struct UnderWay {
    count: u32,
    /// Several were under way at a time: which of them ran last is not known.
    is_mixed: bool,
}

/// What a change does to the names of a directory, once it has run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change<'a> {
    /// The name is there from now on.
    Adds(&'a [u8]),
    /// It is not.
    Removes(&'a [u8]),
    /// It stands for something else.
    Swaps(&'a [u8]),
}

/// A change that is under way; dropped without [`Changing::done`] it is one of which nobody knows whether it ran.
pub(crate) struct Changing<'a> {
    whole: &'a Whole,
    directories: [Option<InodeId>; 2],
}

/// An answer under way that may tell of a whole directory.
pub(crate) struct Looking<'a>(&'a Whole);

impl Whole {
    /// Under which promise a name of `directory` is known to be absent. `None` as well where that is about to run out: the
    /// server's answer prolongs it.
    pub(crate) fn is_absent(&self, cache: &Cache, directory: InodeId, name: &[u8]) -> Option<Promise> {
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
    pub(crate) fn prolong(&self, cache: &Cache, promise: &Promise) {
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

    /// To be called before a question is sent whose answer may be given to [`Looking::saw`].
    pub(crate) fn look(&self) -> Looking<'_> {
        self.lock().looking += 1;
        Looking(self)
    }

    /// To be called before a change is sent that adds names to these directories or removes them, or changes their attributes.
    pub(crate) fn change(&self, directory: InodeId, other: Option<InodeId>) -> Changing<'_> {
        let directories = [Some(directory), other.filter(|other| *other != directory)];
        self.own.begin();
        let mut state = self.lock();
        for directory in directories.into_iter().flatten() {
            let under_way = state.changing.entry(directory).or_default();
            under_way.count += 1;
            under_way.is_mixed |= under_way.count > 1;
            state.note_change(directory);
        }
        Changing { whole: self, directories }
    }

    /// A change of an inode by other means than its names: to be called before it is sent, over when this is dropped.
    pub(crate) fn touch(&self, id: InodeId) -> Touching<'_> {
        let touching = self.own.touch(id);
        self.forget_attributes(id);
        touching
    }

    /// The attributes of an inode, if nobody can have changed it since they were told.
    pub(crate) fn attributes(&self, cache: &Cache, id: InodeId) -> Option<(Attr, Promise)> {
        let mut state = self.lock();
        let (attr, promise) = state.attributes.get(&id)?;
        if !cache.is_kept(promise) {
            state.attributes.remove(&id);
            return None;
        }
        // Which file a change of names is about is known only when it has run.
        let is_changing = match attr.kind() {
            FileKind::Directory => state.changing.contains_key(&id),
            _ => self.own.still().is_none(),
        };
        if is_changing { None } else { Some((attr.clone(), *promise)) }
    }

    /// The server says that an inode looks like this; asked for when nothing was under way.
    pub(crate) fn know(&self, attr: &Attr, promise: Promise, still: Option<Still>) {
        let mut state = self.lock();
        // A change that begins after this look finds the attributes, and ends them.
        if still.is_some() && self.own.still() == still {
            state.keep(attr.clone(), promise);
        }
    }

    /// This inode was changed by other means than its names, or has gone.
    pub(crate) fn forget_attributes(&self, id: InodeId) {
        self.own.changed_inode(id);
        self.lock().attributes.remove(&id);
    }

    /// Directories were moved or replaced.
    pub(crate) fn forget_all_attributes(&self) {
        self.own.changed_something();
        self.lock().attributes.clear();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Looking<'_> {
    /// These are all names of the directory, as the answer says under its promise.
    pub(crate) fn saw<'n>(&self, promise: Promise, names: impl Iterator<Item = &'n [u8]>) {
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

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.looking -= 1;
        if state.looking == 0 {
            state.changed = FastSet::default();
            state.has_lost_count = false;
        }
    }
}

impl Changing<'_> {
    /// It has run, and this is what it did, and what the directories are like now as far as the server said.
    pub(crate) fn done(mut self, changes: &[(InodeId, Change<'_>)], now: Vec<(Attr, Promise)>) {
        let mut state = self.whole.lock();
        for directory in self.directories.into_iter().flatten() {
            state.attributes.remove(&directory);
            self.whole.own.changed_inode(directory);
        }
        for (attr, promise) in now {
            let directory = InodeId(attr.inode);
            if state.changing.get(&directory).is_some_and(|under_way| !under_way.is_mixed) {
                state.keep(attr, promise.after(&self.whole.own));
            }
        }
        for (directory, change) in changes {
            let (Change::Adds(name) | Change::Removes(name) | Change::Swaps(name)) = change;
            self.whole.own.changed_name(*directory, name);
            let Some(known) = state.directories.get_mut(directory) else { continue };
            match change {
                Change::Adds(name) => {
                    if known.names.insert(Box::from(*name)) {
                        state.names += 1;
                    }
                }
                Change::Removes(name) => {
                    if known.names.remove(*name) {
                        state.names -= 1;
                    }
                }
                Change::Swaps(_) => {}
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

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let mut state = self.whole.lock();
        for directory in std::mem::take(&mut self.directories).into_iter().flatten() {
            state.forget(directory);
            // Of the file whose name it is about nobody knows either.
            state.attributes.clear();
            self.whole.own.changed_something();
            state.changed_by_us(directory);
        }
        drop(state);
        self.whole.own.end();
    }
}

impl State {
    fn keep(&mut self, attr: Attr, promise: Promise) {
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
/// Inodes whose attributes are kept: those that were changed, opened or looked at in the last seconds; 200 bytes each.
const ATTRIBUTES_MAX: usize = 1 << 16;
/// Directories changed while one is being listed.
const CHANGED_MAX: usize = 1 << 16;
/// A grant with less left than this is prolonged: a fifth of its usual life.
const ASK_AGAIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
