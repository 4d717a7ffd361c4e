//! Levels that a thread holds, and the check of each lock against them.
//!
//! All of it is empty without debug assertions: [`HeldLevel`] has no size then and its methods no body.

use crate::levels::LevelRow;

#[cfg(debug_assertions)]
use std::cell::RefCell;
#[cfg(debug_assertions)]
use std::panic::Location;

/// One lock that a thread holds: an entry in the list of the thread, until it is dropped.
#[derive(Debug)]
pub(crate) struct HeldLevel {
    #[cfg(debug_assertions)]
    lock: LockEntry,
}

#[cfg(debug_assertions)]
#[derive(Clone, Copy, Debug)]
struct LockEntry {
    row: &'static LevelRow,
    /// Where it was locked.
    at: &'static Location<'static>,
    /// Tells two locks apart that were locked at one place.
    serial: u64,
}

#[cfg(debug_assertions)]
#[derive(Debug, Default)]
struct LockEntries {
    locks: Vec<LockEntry>,
    last_serial: u64,
}

#[cfg(debug_assertions)]
thread_local! {
    static HELD: RefCell<LockEntries> = RefCell::default();
}

impl HeldLevel {
    /// Checks that a lock at `row` may be locked now, and enters it. Called before the thread waits for the lock, so
    /// that a wrong order is found without another thread.
    ///
    /// # Panics
    /// With debug assertions, if the thread holds a lock of this level or of one below it.
    #[inline]
    #[track_caller]
    pub(crate) fn enter(row: &'static LevelRow) -> HeldLevel {
        #[cfg(debug_assertions)]
        {
            check_order(row, Location::caller());
        }
        HeldLevel::enter_unchecked(row)
    }

    /// Enters a lock that was locked without waiting: no deadlock comes of it, whatever else the thread holds.
    #[inline]
    #[track_caller]
    pub(crate) fn enter_unchecked(row: &'static LevelRow) -> HeldLevel {
        #[cfg(debug_assertions)]
        {
            let at = Location::caller();
            let serial = with_entries(|held| {
                held.last_serial += 1;
                held.locks.push(LockEntry { row, at, serial: held.last_serial });
                held.last_serial
            });
            HeldLevel { lock: LockEntry { row, at, serial } }
        }
        #[cfg(not(debug_assertions))]
        {
            let _ = row;
            HeldLevel {}
        }
    }

    /// Checks that the thread may wait for a signal, while only this lock is let free; the lock counts as held again
    /// when the thread wakes.
    ///
    /// # Panics
    /// With debug assertions, if the thread holds another lock: the thread that has to signal may need it. Locks whose
    /// rows allow it are excepted, and locks of rows above where the signal comes from below.
    #[inline]
    #[track_caller]
    pub(crate) fn check_wait(&self) {
        #[cfg(debug_assertions)]
        {
            let at = Location::caller();
            let own = self.lock;
            let is_allowed = |row: &LevelRow| {
                row.is_held_in_waits
                    || row.is_held_in_signals
                    || (own.row.is_signalled_from_below && row.number < own.row.number)
            };
            let other = with_entries(|held| {
                held.locks.iter().find(|lock| lock.serial != own.serial && !is_allowed(lock.row)).copied()
            });
            if let Some(other) = other
                && !std::thread::panicking()
            {
                panic!(
                    "lock order: {at} waits for a signal under {}, and holds {}, locked at {}: the thread that \
                     signals may need it",
                    own.row.name, other.row.name, other.at
                );
            }
        }
    }
}

#[cfg(debug_assertions)]
impl Drop for HeldLevel {
    fn drop(&mut self) {
        with_entries(|held| {
            if let Some(index) = held.locks.iter().rposition(|lock| lock.serial == self.lock.serial) {
                held.locks.remove(index);
            }
        });
    }
}

/// Checks that this thread holds no lock that an answer of another server may need. Called by a thread that is about
/// to wait for other servers.
///
/// # Panics
/// With debug assertions, if it holds a lock whose row in `levels.rs` does not allow waits.
#[inline]
#[track_caller]
pub fn check_may_wait() {
    #[cfg(debug_assertions)]
    check_entries("waits for other servers", |row| row.is_held_in_waits);
}

/// Checks that this thread holds no lock that another thread of this server may need to signal it. Called by a thread
/// that may be about to wait for such a signal, so that tests find a lock even where there is nothing to wait for.
///
/// # Panics
/// With debug assertions, if it holds a lock whose row in `levels.rs` does not allow waits or signals.
#[inline]
#[track_caller]
pub fn check_may_await_signal() {
    #[cfg(debug_assertions)]
    check_entries("may wait for a signal", |row| row.is_held_in_waits || row.is_held_in_signals);
}

/// Checks that this thread holds no lock.
///
/// # Panics
/// With debug assertions, if it holds one.
#[inline]
#[track_caller]
pub fn check_no_lock() {
    #[cfg(debug_assertions)]
    check_entries("needs that no lock is held", |_| false);
}

/// Runs `run` as another thread would: the locks that this thread holds do not count meanwhile. For a thread that does
/// the work of several, where it leaves one for the next.
#[inline]
pub fn run_as_other_thread<R>(run: impl FnOnce() -> R) -> R {
    #[cfg(debug_assertions)]
    let _own = HiddenEntries(with_entries(|held| std::mem::take(&mut held.locks)));
    run()
}

/// Entries of a thread that do not count. They count again once it is dropped, which a suspended call may be on behalf
/// of a thread that holds other locks.
#[cfg(debug_assertions)]
struct HiddenEntries(Vec<LockEntry>);

#[cfg(debug_assertions)]
impl Drop for HiddenEntries {
    fn drop(&mut self) {
        with_entries(|held| held.locks.splice(0..0, self.0.drain(..)).for_each(drop));
    }
}

/// Panics if the thread holds a lock that `is_allowed` does not name.
#[cfg(debug_assertions)]
#[track_caller]
fn check_entries(doing: &str, is_allowed: impl Fn(&LevelRow) -> bool) {
    let at = Location::caller();
    let found = with_entries(|held| held.locks.iter().find(|lock| !is_allowed(lock.row)).copied());
    if let Some(found) = found
        && !std::thread::panicking()
    {
        panic!("lock order: {at} {doing}, and holds {}, locked at {}", found.row.name, found.at);
    }
}

/// Panics if `row` may not be locked at `at` by this thread. A thread that panics already is left alone: a second panic
/// ends the process without the message of the first.
#[cfg(debug_assertions)]
fn check_order(row: &'static LevelRow, at: &'static Location<'static>) {
    let wrong = with_entries(|held| held.locks.iter().rfind(|lock| lock.row.number >= row.number).copied());
    let Some(other) = wrong else { return };
    if std::thread::panicking() {
        return;
    }
    let why = if other.row.number == row.number { "a level is held once at a time" } else { "it comes before it" };
    panic!(
        "lock order: {at} locks {} (level {}) and holds {} (level {}), locked at {}: {why}, see \
         crates/locks/src/levels.rs",
        row.name, row.number, other.row.name, other.row.number, other.at
    );
}

/// Reads or changes the list of this thread. In a destructor of the thread the list may be gone: nothing is checked.
#[cfg(debug_assertions)]
fn with_entries<R: Default>(run: impl FnOnce(&mut LockEntries) -> R) -> R {
    HELD.try_with(|held| run(&mut held.borrow_mut())).unwrap_or_default()
}
