//! Which state of each file the kernel's pages hold, so that they are kept from one open to the next.
//!
//! Guarantees: pages are kept over an open only if they contain the state that is opened: that of an earlier open whose
//! pages have been read since, or one that differs only by this mount's own changes, made under a grant that was never
//! recalled. Leaves to others: pages of files that are open (the kernel compares modification times at every
//! `read(2)`), recalls ([`crate::cache`]).

use std::sync::{Mutex, PoisonError};

use frieze_base::{FastMap, InodeId};

use crate::cache::{CachePromise, KernelCache};

/// Files that were opened, and that the kernel has not forgotten.
#[derive(Default)]
pub(crate) struct PageStates(Mutex<FastMap<InodeId, PageState>>);

struct PageState {
    /// Newest change that the pages hold.
    changed: u64,
    /// The grant of that answer.
    promise: Option<CachePromise>,
}

impl PageStates {
    /// The file is being opened in the state `changed`. True if the kernel may keep its pages; else it drops them as it
    /// takes up the answer, which is certain when it reads through the new handle ([`PageStates::read`]).
    pub(crate) fn open(
        &self,
        cache: &KernelCache,
        inode: InodeId,
        changed: u64,
        promise: Option<CachePromise>,
    ) -> bool {
        let mut held = self.lock();
        let Some(held) = held.get_mut(&inode) else { return false };
        let is_own = || held.promise.as_ref().is_some_and(|promise| cache.is_kept(promise));
        let keeps = held.changed == changed || is_own();
        if keeps {
            *held = PageState { changed, promise };
        }
        keeps
    }

    /// The kernel reads through a handle that was opened in the state `changed`.
    pub(crate) fn read(&self, inode: InodeId, changed: u64, promise: Option<CachePromise>) {
        let mut held = self.lock();
        if held.len() >= FILES_MAX {
            held.clear();
        }
        held.insert(inode, PageState { changed, promise });
    }

    /// This mount writes to the file past its pages.
    pub(crate) fn bypass(&self, inode: InodeId) {
        if let Some(held) = self.lock().get_mut(&inode) {
            held.promise = None;
        }
    }

    /// The kernel knows the file no more.
    pub(crate) fn forget(&self, inode: InodeId) {
        self.lock().remove(&inode);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, FastMap<InodeId, PageState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Files whose state is remembered; if there are more, all are dropped, and the next open drops the kernel's pages.
const FILES_MAX: usize = 1 << 18;
