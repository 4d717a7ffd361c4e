//! Read locks that a thread may lock only once at a time.
//!
//! A thread that locks a read lock twice waits for ever as soon as a writer has queued in between, and so do all
//! threads behind that writer. Nothing shows the mistake until then, so debug builds check every lock.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::thread::LocalKey;

thread_local! {
    /// This thread has the namespace locked for reading.
    pub static NAMESPACE: Cell<bool> = const { Cell::new(false) };
    /// This thread has the index of the device locked for reading.
    pub static LOG: Cell<bool> = const { Cell::new(false) };
}

/// Called by a thread that is about to wait for other servers: their answers may need a lock of this thread.
pub fn check_no_read_lock() {
    debug_assert!(!NAMESPACE.get() && !LOG.get(), "a thread waits for other servers with a read lock in hand");
}

/// Guard of a read lock.
pub struct ReadGuard<'a, T> {
    guard: RwLockReadGuard<'a, T>,
    flag: &'static LocalKey<Cell<bool>>,
}

impl<'a, T> ReadGuard<'a, T> {
    /// Waits for the lock; `flag` is the flag of this thread.
    pub fn of(lock: &'a RwLock<T>, flag: &'static LocalKey<Cell<bool>>) -> ReadGuard<'a, T> {
        debug_assert!(
            !flag.get(),
            "a thread asks for a read lock that it holds: it would wait for ever behind a writer"
        );
        let guard = lock.read().unwrap_or_else(PoisonError::into_inner);
        flag.set(true);
        ReadGuard { guard, flag }
    }
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> Drop for ReadGuard<'_, T> {
    fn drop(&mut self) {
        self.flag.set(false);
    }
}
