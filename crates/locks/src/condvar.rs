//! A condition variable for mutexes with levels.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, WaitTimeoutResult};
use std::time::Duration;

use crate::MutexGuard;

/// Signals to threads that wait under a mutex: `std`'s condition variable, checked in debug builds.
///
/// A thread that waits holds no other lock but those that `levels.rs` allows in waits.
///
/// # Cost
/// A signal that no thread waits for is one load: `std` makes a system call for it. This needs what a condition
/// variable needs anyway: the state that a thread waits for changes under the mutex of the wait, or before the thread
/// that signals has locked that mutex once.
#[derive(Debug, Default)]
pub struct Condvar {
    signals: std::sync::Condvar,
    /// Threads that wait. A thread counts itself while it has the mutex, so a thread that locks the mutex after it
    /// finds it counted.
    waiting: AtomicU32,
}

/// A thread that waits, until dropped.
struct Waiter<'a>(&'a AtomicU32);

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Condvar {
    /// A condition variable that nothing waits for.
    pub const fn new() -> Condvar {
        Condvar { signals: std::sync::Condvar::new(), waiting: AtomicU32::new(0) }
    }

    /// The caller has the mutex.
    fn begin_wait(&self) -> Waiter<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiter(&self.waiting)
    }

    fn has_waiters(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Waits for a signal; wakes without one, too.
    ///
    /// # Panics
    /// With debug assertions, if this thread holds another lock that is not allowed in waits; so for all waits.
    #[track_caller]
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let MutexGuard { guard, held } = guard;
        held.check_wait();
        let _waiter = self.begin_wait();
        MutexGuard { guard: self.signals.wait(guard).unwrap_or_else(PoisonError::into_inner), held }
    }

    /// Waits while `condition` is true.
    #[track_caller]
    pub fn wait_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        let MutexGuard { guard, held } = guard;
        held.check_wait();
        let _waiter = self.begin_wait();
        MutexGuard { guard: self.signals.wait_while(guard, condition).unwrap_or_else(PoisonError::into_inner), held }
    }

    /// Waits for a signal, at most `duration`; wakes without one, too.
    #[track_caller]
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        duration: Duration,
    ) -> (MutexGuard<'a, T>, WaitTimeoutResult) {
        let MutexGuard { guard, held } = guard;
        held.check_wait();
        let _waiter = self.begin_wait();
        let (guard, result) = self.signals.wait_timeout(guard, duration).unwrap_or_else(PoisonError::into_inner);
        (MutexGuard { guard, held }, result)
    }

    /// Waits while `condition` is true, at most `duration`.
    #[track_caller]
    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        duration: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> (MutexGuard<'a, T>, WaitTimeoutResult) {
        let MutexGuard { guard, held } = guard;
        held.check_wait();
        let _waiter = self.begin_wait();
        let waited = self.signals.wait_timeout_while(guard, duration, condition);
        let (guard, result) = waited.unwrap_or_else(PoisonError::into_inner);
        (MutexGuard { guard, held }, result)
    }

    /// Wakes one of the threads that wait.
    pub fn notify_one(&self) {
        if self.has_waiters() {
            self.signals.notify_one();
        }
    }

    /// Wakes all threads that wait.
    pub fn notify_all(&self) {
        if self.has_waiters() {
            self.signals.notify_all();
        }
    }
}
