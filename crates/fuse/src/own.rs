//! This mount's own changes, of names, attributes and bytes: which answers of the server they have overtaken.
//!
//! Nobody recalls a grant from who makes the change. So what was asked before a change and is told after it must be held
//! against this list. What is told while a change is under way needs no more: the kernel lets nobody else use the names of a
//! directory that it changes, and forgets what it knew of what it has changed when the change has ended.
//!
//! Guarantees: [`Own::has_changed`] is true of every name and inode that a change has touched that ended after the count was
//! taken; it may be true of others. [`Own::still`] is equal at two moments only if no change was under way at the first or
//! between them.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use frieze_base::{FastMap, InodeId};

/// The changes. Bounded by [`CHANGED_MAX`].
#[derive(Debug, Default)]
pub(crate) struct Own {
    begun: AtomicU64,
    ended: AtomicU64,
    log: Mutex<Log>,
}

#[derive(Debug, Default)]
struct Log {
    /// Ended so far.
    count: u64,
    /// What was changed last by which.
    changed: FastMap<Touched, u64>,
    /// It may have changed everything.
    floor: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Touched {
    /// A name of a directory, by its hash: two of one hash are taken for one.
    Name(InodeId, u64),
    Inode(InodeId),
}

/// A change of an inode that is under way.
#[derive(Debug)]
pub(crate) struct Touching<'a> {
    own: &'a Own,
    inode: InodeId,
}

/// Where the mount's own changes stood when none was under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Still(u64);

/// How many changes had ended at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count(u64);

impl Own {
    /// To be called before a change of an inode is sent; it is over when this is dropped.
    pub(crate) fn touch(&self, inode: InodeId) -> Touching<'_> {
        self.begin();
        Touching { own: self, inode }
    }

    /// To be called before a change is sent.
    pub(crate) fn begin(&self) {
        self.begun.fetch_add(1, Ordering::AcqRel);
    }

    /// It is over.
    pub(crate) fn end(&self) {
        self.ended.fetch_add(1, Ordering::AcqRel);
    }

    /// `None` while a change is under way.
    pub(crate) fn still(&self) -> Option<Still> {
        // In this order: what ends between the two looks is taken for under way.
        let ended = self.ended.load(Ordering::Acquire);
        let begun = self.begun.load(Ordering::Acquire);
        (begun == ended).then_some(Still(begun))
    }

    /// To be called before a question is sent whose answer is used later.
    pub(crate) fn count(&self) -> Count {
        Count(self.lock().count)
    }

    /// A change has run, by which a name now stands for something else; to be called before the kernel is told.
    pub(crate) fn changed_name(&self, directory: InodeId, name: &[u8]) {
        self.lock().note(Touched::name(directory, name));
    }

    /// A change has run, by which an inode now looks different.
    pub(crate) fn changed_inode(&self, inode: InodeId) {
        self.lock().note(Touched::Inode(inode));
    }

    /// A change may have run of which it is not known what it changed.
    pub(crate) fn changed_something(&self) {
        self.lock().note_all();
    }

    /// True if everything may have changed since.
    pub(crate) fn has_lost_count(&self, since: Count) -> bool {
        self.lock().floor > since.0
    }

    /// True if what a name of a directory stands for, or the inode that it stood for, may have changed since.
    pub(crate) fn has_changed(&self, since: Count, directory: InodeId, name: &[u8], inode: InodeId) -> bool {
        let log = self.lock();
        log.floor > since.0
            || log.is_newer(Touched::Inode(inode), since)
            || log.is_newer(Touched::name(directory, name), since)
    }

    /// True if an inode may have changed since.
    pub(crate) fn has_changed_inode(&self, since: Count, inode: InodeId) -> bool {
        let log = self.lock();
        log.floor > since.0 || log.is_newer(Touched::Inode(inode), since)
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
    fn is_newer(&self, touched: Touched, since: Count) -> bool {
        self.changed.get(&touched).is_some_and(|at| *at > since.0)
    }

    fn note(&mut self, touched: Touched) {
        if self.changed.len() >= CHANGED_MAX {
            self.note_all();
        }
        self.count += 1;
        self.changed.insert(touched, self.count);
    }

    fn note_all(&mut self) {
        self.count += 1;
        self.floor = self.count;
        self.changed.clear();
    }
}

impl Touched {
    fn name(directory: InodeId, name: &[u8]) -> Touched {
        let hash = FastMap::<(), ()>::default().hasher().hash_one(name);
        Touched::Name(directory, hash)
    }
}

impl Drop for Touching<'_> {
    fn drop(&mut self) {
        self.own.changed_inode(self.inode);
        self.own.end();
    }
}

/// Names and inodes remembered, 32 bytes each: some seconds of a mount that does nothing but change.
const CHANGED_MAX: usize = 1 << 15;

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: InodeId = InodeId(5);
    const FILE: InodeId = InodeId(9);
    const OTHER: InodeId = InodeId(10);

    #[test]
    fn a_change_overtakes_what_was_asked_before_it_and_nothing_else() {
        let own = Own::default();
        let before = own.count();
        own.changed_name(DIR, b"a");
        drop(own.touch(FILE));
        assert!(own.has_changed(before, DIR, b"a", OTHER) && own.has_changed(before, DIR, b"b", FILE));
        assert!(!own.has_changed(before, DIR, b"b", OTHER) && !own.has_changed(before, OTHER, b"a", OTHER));
        assert!(!own.has_changed(own.count(), DIR, b"a", FILE), "asked since");
    }

    #[test]
    fn what_is_not_known_to_have_run_may_have_changed_everything() {
        let own = Own::default();
        let before = own.count();
        own.changed_something();
        assert!(own.has_lost_count(before) && own.has_changed(before, DIR, b"b", OTHER));
        assert!(!own.has_lost_count(own.count()) && !own.has_changed(own.count(), DIR, b"b", OTHER));
    }

    #[test]
    fn the_list_of_changes_is_bounded_and_forgets_on_the_safe_side() {
        let own = Own::default();
        let first = own.count();
        own.changed_inode(FILE);
        let before = own.count();
        for inode in 0..=CHANGED_MAX as u64 {
            own.changed_inode(InodeId(1000 + inode));
        }
        assert!(own.lock().changed.len() <= CHANGED_MAX);
        assert!(own.has_changed(first, DIR, b"a", FILE) && own.has_changed(before, DIR, b"a", OTHER));
    }

    #[test]
    fn nothing_is_still_while_a_change_is_under_way() {
        let own = Own::default();
        let still = own.still();
        assert!(still.is_some());
        let touching = own.touch(FILE);
        assert_eq!(own.still(), None);
        drop(touching);
        assert!(own.still().is_some() && own.still() != still);
    }
}
