//! A mutex with a level.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};

use crate::levels::Level;
use crate::thread_locks::HeldLevel;

/// Mutual exclusion at level `L`: `std`'s mutex, checked in debug builds.
pub struct Mutex<L, T: ?Sized> {
    level: PhantomData<fn() -> L>,
    lock: std::sync::Mutex<T>,
}

/// The right to what a [`Mutex`] guards, until it is dropped.
#[must_use = "the mutex is free again at once"]
pub struct MutexGuard<'a, T: ?Sized> {
    pub(crate) guard: std::sync::MutexGuard<'a, T>,
    pub(crate) held: HeldLevel,
}

/// Without the check a lock and its guard are `std`'s.
#[cfg(not(debug_assertions))]
const _: () = assert!(
    size_of::<Mutex<crate::levels::SimTime, u64>>() == size_of::<std::sync::Mutex<u64>>()
        && size_of::<MutexGuard<'_, u64>>() == size_of::<std::sync::MutexGuard<'_, u64>>()
);

impl<L: Level, T> Mutex<L, T> {
    /// A free mutex.
    pub const fn new(value: T) -> Mutex<L, T> {
        Mutex { level: PhantomData, lock: std::sync::Mutex::new(value) }
    }

    /// What it guards.
    pub fn into_inner(self) -> T {
        self.lock.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<L: Level, T: ?Sized> Mutex<L, T> {
    /// Waits for the mutex.
    ///
    /// # Panics
    /// With debug assertions, if this thread holds a lock of this level or of one below.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let held = HeldLevel::enter(L::ROW);
        MutexGuard { guard: self.lock.lock().unwrap_or_else(PoisonError::into_inner), held }
    }

    /// Locks the mutex if it is free now; in any order, because the thread does not wait.
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let guard = match self.lock.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(MutexGuard { guard, held: HeldLevel::enter_unchecked(L::ROW) })
    }

    /// What it guards: the caller has it alone, so no lock is needed.
    pub fn get_mut(&mut self) -> &mut T {
        self.lock.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<L: Level, T: Default> Default for Mutex<L, T> {
    fn default() -> Mutex<L, T> {
        Mutex::new(T::default())
    }
}

impl<L: Level, T: ?Sized + fmt::Debug> fmt::Debug for Mutex<L, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.lock, f)
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.guard, f)
    }
}
