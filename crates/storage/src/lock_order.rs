//! Read locks that a thread takes once at a time.
//!
//! A thread that asks for a read lock that it holds already waits for ever as soon as a writer has asked in between,
//! and everybody behind that writer with it. Nothing shows it until then, so debug builds look at every lock taken.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::thread::LocalKey;

thread_local! {
    /// This thread reads the namespace.
    pub static NAMESPACE: Cell<bool> = const { Cell::new(false) };
    /// This thread reads the index of the device.
    pub static LOG: Cell<bool> = const { Cell::new(false) };
}

/// To be called by whoever is about to wait for other servers: what they answer may need what this thread holds.
pub fn check_none_held() {
    debug_assert!(!NAMESPACE.get() && !LOG.get(), "a thread waits for other servers with a read lock in hand");
}

/// A read lock, held.
pub struct Reading<'a, T> {
    guard: RwLockReadGuard<'a, T>,
    held: &'static LocalKey<Cell<bool>>,
}

impl<'a, T> Reading<'a, T> {
    /// Waits for the lock; `held` says that this thread has it.
    pub fn of(lock: &'a RwLock<T>, held: &'static LocalKey<Cell<bool>>) -> Reading<'a, T> {
        debug_assert!(
            !held.get(),
            "a thread asks for a read lock that it holds: it would wait for ever behind a writer"
        );
        let guard = lock.read().unwrap_or_else(PoisonError::into_inner);
        held.set(true);
        Reading { guard, held }
    }
}

impl<T> Deref for Reading<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> Drop for Reading<'_, T> {
    fn drop(&mut self) {
        self.held.set(false);
    }
}
