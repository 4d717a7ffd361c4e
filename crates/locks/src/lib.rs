//! Locks of the server: each has a level in its type, and a thread locks levels in ascending order only.
//!
//! Guarantees: with debug assertions, which the tests and the simulator have (`[profile.sim]`), a thread that locks a
//! level at or below one it holds panics, and the panic names both locks and the places where both were locked.
//! Threads that keep one order cannot deadlock. The order is one table, `levels.rs`. Without debug assertions a lock is
//! `std`'s: no field and no instruction more.
//!
//! A lock whose holder panicked is locked as it was left: no caller here can do better. `frieze serve` ends at a panic,
//! and its next start recovers from the logs; only tests and servers inside another process lock such a lock.
//!
//! Leaves to others: which lock guards what (the crates above), locks of clients and gateways, which are `std`'s.
//!
//! # Source
//! Ranks checked at run time as in `wgpu-core` (`lock/rank.rs`), FreeBSD's `witness` and Linux's `lockdep`; ADR 64 says
//! why ranks are numbers and why the compiler does not check them, as it does in Fuchsia's `lock_order`.

mod condvar;

pub mod levels;
mod mutex;
mod rwlock;
mod thread_locks;

pub use condvar::Condvar;
pub use levels::Level;
pub use mutex::{Mutex, MutexGuard};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use thread_locks::{check_may_await_signal, check_may_wait, check_no_lock, run_as_other_thread};

#[cfg(test)]
mod tests;
