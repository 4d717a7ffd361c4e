//! This mount's own changes, of names, attributes and bytes: which answers of the server they have overtaken.
//!
//! The server recalls no grant from the client that makes a change. So an answer whose request was sent before a change
//! and that arrives after it must be checked against this list. An answer that arrives while a change is under way
//! needs no check: the kernel lets no other program use the names of a directory that it changes, and drops what it
//! knew of the changed names when the change has ended.
//!
//! Guarantees: [`LocalChanges::has_changed`] is true of every name and inode that a change has touched that ended after
//! the count was taken; it may be true of others. [`LocalChanges::still`] is equal at two moments only if no change was
//! under way at the first or between them.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use frieze_base::{FastMap, InodeId};

/// The changes. Bounded by [`CHANGED_MAX`].
#[derive(Debug, Default)]
pub(crate) struct LocalChanges {
    begun: AtomicU64,
    ended: AtomicU64,
    log: Mutex<ChangeLog>,
}

#[derive(Debug, Default)]
struct ChangeLog {
    /// Ended so far.
    count: u64,
    /// The last change of each name and inode.
    changed: FastMap<ChangedKey, u64>,
    /// It may have changed everything.
    floor: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ChangedKey {
    /// A name of a directory, by its hash: two of one hash are taken for one.
    Name(InodeId, u64),
    Inode(InodeId),
}

/// A change of an inode that is under way.
#[derive(Debug)]
pub(crate) struct LocalChange<'a> {
    local_changes: &'a LocalChanges,
    inode: InodeId,
}

/// Where the mount's own changes stood when none was under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Still(u64);

/// How many changes had ended at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChangeCount(u64);

impl LocalChanges {
    /// To be called before a change of an inode is sent; it is over when this is dropped.
    pub(crate) fn touch(&self, inode: InodeId) -> LocalChange<'_> {
        self.begin();
        LocalChange { local_changes: self, inode }
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
        // In this order: a change that ends between the two reads counts as under way.
        let ended = self.ended.load(Ordering::Acquire);
        let begun = self.begun.load(Ordering::Acquire);
        (begun == ended).then_some(Still(begun))
    }

    /// Call this before a request is sent whose answer is used later.
    pub(crate) fn count(&self) -> ChangeCount {
        ChangeCount(self.lock().count)
    }

    /// A change has run that gave a name another inode; call this before the kernel is informed.
    pub(crate) fn changed_name(&self, directory: InodeId, name: &[u8]) {
        self.lock().note(ChangedKey::name(directory, name));
    }

    /// A change has run, by which an inode now looks different.
    pub(crate) fn changed_inode(&self, inode: InodeId) {
        self.lock().note(ChangedKey::Inode(inode));
    }

    /// A change with an unknown effect may have run.
    pub(crate) fn changed_something(&self) {
        self.lock().note_all();
    }

    /// True if everything may have changed since.
    pub(crate) fn has_lost_count(&self, since: ChangeCount) -> bool {
        self.lock().floor > since.0
    }

    /// True if the inode of a name of a directory, or that inode itself, may have changed since.
    pub(crate) fn has_changed(&self, since: ChangeCount, directory: InodeId, name: &[u8], inode: InodeId) -> bool {
        let log = self.lock();
        log.floor > since.0
            || log.is_newer(ChangedKey::Inode(inode), since)
            || log.is_newer(ChangedKey::name(directory, name), since)
    }

    /// True if an inode may have changed since.
    pub(crate) fn has_changed_inode(&self, since: ChangeCount, inode: InodeId) -> bool {
        let log = self.lock();
        log.floor > since.0 || log.is_newer(ChangedKey::Inode(inode), since)
    }

    fn lock(&self) -> MutexGuard<'_, ChangeLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ChangeLog {
    fn is_newer(&self, touched: ChangedKey, since: ChangeCount) -> bool {
        self.changed.get(&touched).is_some_and(|at| *at > since.0)
    }

    fn note(&mut self, touched: ChangedKey) {
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

impl ChangedKey {
    fn name(directory: InodeId, name: &[u8]) -> ChangedKey {
        let hash = FastMap::<(), ()>::default().hasher().hash_one(name);
        ChangedKey::Name(directory, hash)
    }
}

impl Drop for LocalChange<'_> {
    fn drop(&mut self) {
        self.local_changes.changed_inode(self.inode);
        self.local_changes.end();
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
        let own = LocalChanges::default();
        let before = own.count();
        own.changed_name(DIR, b"a");
        drop(own.touch(FILE));
        assert!(own.has_changed(before, DIR, b"a", OTHER) && own.has_changed(before, DIR, b"b", FILE));
        assert!(!own.has_changed(before, DIR, b"b", OTHER) && !own.has_changed(before, OTHER, b"a", OTHER));
        assert!(!own.has_changed(own.count(), DIR, b"a", FILE), "asked since");
    }

    #[test]
    fn an_unconfirmed_change_may_have_changed_everything() {
        let own = LocalChanges::default();
        let before = own.count();
        own.changed_something();
        assert!(own.has_lost_count(before) && own.has_changed(before, DIR, b"b", OTHER));
        assert!(!own.has_lost_count(own.count()) && !own.has_changed(own.count(), DIR, b"b", OTHER));
    }

    #[test]
    fn the_list_of_changes_is_bounded_and_forgets_on_the_safe_side() {
        let own = LocalChanges::default();
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
        let own = LocalChanges::default();
        let still = own.still();
        assert!(still.is_some());
        let touching = own.touch(FILE);
        assert_eq!(own.still(), None);
        drop(touching);
        assert!(own.still().is_some() && own.still() != still);
    }
}
