//! A condition variable for mutexes with levels.

use std::sync::{PoisonError, WaitTimeoutResult};
use std::time::Duration;

use crate::MutexGuard;

/// Signals to threads that wait under a mutex: `std`'s condition variable, checked in debug builds.
///
/// A thread that waits holds no other lock but those that `levels.rs` allows in waits.
#[derive(Debug, Default)]
pub struct Condvar(std::sync::Condvar);

impl Condvar {
    /// A condition variable that nothing waits for.
    pub const fn new() -> Condvar {
        Condvar(std::sync::Condvar::new())
    }

    /// Waits for a signal; wakes without one, too.
    ///
    /// # Panics
    /// With debug assertions, if this thread holds another lock that is not allowed in waits; so for all waits.
    #[track_caller]
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let MutexGuard { guard, held } = guard;
        held.check_wait();
        MutexGuard { guard: self.0.wait(guard).unwrap_or_else(PoisonError::into_inner), held }
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
        MutexGuard { guard: self.0.wait_while(guard, condition).unwrap_or_else(PoisonError::into_inner), held }
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
        let (guard, result) = self.0.wait_timeout(guard, duration).unwrap_or_else(PoisonError::into_inner);
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
        let waited = self.0.wait_timeout_while(guard, duration, condition);
        let (guard, result) = waited.unwrap_or_else(PoisonError::into_inner);
        (MutexGuard { guard, held }, result)
    }

    /// Wakes one of the threads that wait.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all threads that wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
