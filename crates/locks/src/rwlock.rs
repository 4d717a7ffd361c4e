//! A lock for many readers or one writer, with a level.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};

use crate::levels::Level;
use crate::thread_locks::HeldLevel;

/// Many readers or one writer at level `L`: `std`'s lock, checked in debug builds.
///
/// A thread reads once at a time, too: if it locks a second time and a writer has queued in between, the thread waits
/// for the writer, the writer for the thread, and all other threads for both.
pub struct RwLock<L, T: ?Sized> {
    level: PhantomData<fn() -> L>,
    lock: std::sync::RwLock<T>,
}

/// The right to read what a [`RwLock`] guards, until it is dropped.
#[must_use = "the lock is free again at once"]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    guard: std::sync::RwLockReadGuard<'a, T>,
    _held: HeldLevel,
}

/// The right to change what a [`RwLock`] guards, until it is dropped.
#[must_use = "the lock is free again at once"]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    guard: std::sync::RwLockWriteGuard<'a, T>,
    _held: HeldLevel,
}

impl<L: Level, T> RwLock<L, T> {
    /// A free lock.
    pub const fn new(value: T) -> RwLock<L, T> {
        RwLock { level: PhantomData, lock: std::sync::RwLock::new(value) }
    }

    /// What it guards.
    pub fn into_inner(self) -> T {
        self.lock.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<L: Level, T: ?Sized> RwLock<L, T> {
    /// Waits until no writer has the lock.
    ///
    /// # Panics
    /// With debug assertions, if this thread holds a lock of this level or of one below.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let held = HeldLevel::enter(L::ROW);
        RwLockReadGuard { guard: self.lock.read().unwrap_or_else(PoisonError::into_inner), _held: held }
    }

    /// Waits until no reader and no other writer has the lock.
    ///
    /// # Panics
    /// As [`RwLock::read`].
    #[inline]
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let held = HeldLevel::enter(L::ROW);
        RwLockWriteGuard { guard: self.lock.write().unwrap_or_else(PoisonError::into_inner), _held: held }
    }

    /// Locks for writing if the lock is free now; in any order, because the thread does not wait.
    #[inline]
    #[track_caller]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        let guard = match self.lock.try_write() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(RwLockWriteGuard { guard, _held: HeldLevel::enter_unchecked(L::ROW) })
    }

    /// What it guards: the caller has it alone, so no lock is needed.
    pub fn get_mut(&mut self) -> &mut T {
        self.lock.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<L: Level, T: Default> Default for RwLock<L, T> {
    fn default() -> RwLock<L, T> {
        RwLock::new(T::default())
    }
}

impl<L: Level, T: ?Sized + fmt::Debug> fmt::Debug for RwLock<L, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.lock, f)
    }
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}
