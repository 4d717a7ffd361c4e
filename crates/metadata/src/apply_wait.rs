//! Threads wait until a member has applied an entry, or knows something.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use frieze_base::MonoTime;
use frieze_locks::{Condvar, Mutex, levels};
use frieze_net::Idle;

/// The longest sleep: deadlines are checked and lost messages sent again in between.
const REST: Duration = Duration::from_millis(20);

/// Wakes the waiting threads whenever the state of the member has changed.
pub(super) struct ApplyWait {
    generation: Mutex<levels::ApplyGeneration, u64>,
    changed: Condvar,
    waiting: AtomicU32,
    idle: Idle,
}

impl ApplyWait {
    pub(super) fn new(idle: Idle) -> ApplyWait {
        ApplyWait { generation: Mutex::default(), changed: Condvar::new(), waiting: AtomicU32::new(0), idle }
    }

    /// True if a waiting thread runs all other work meanwhile, as in the simulator.
    pub(super) fn is_driven(&self) -> bool {
        self.idle.get().is_some()
    }

    /// Something has changed.
    pub(super) fn changed(&self) {
        // A thread counts itself before it looks. Where one thread runs everything, no thread sleeps.
        if self.waiting.load(Ordering::SeqCst) > 0 && !self.is_driven() {
            *self.generation.lock() += 1;
            self.changed.notify_all();
        }
    }

    /// Sleeps until this thread is unparked, or for a short while.
    pub(super) fn rest(&self) {
        frieze_locks::check_may_wait();
        match self.idle.get() {
            Some(idle) => frieze_locks::run_as_other_thread(idle),
            None => std::thread::park_timeout(REST),
        }
    }

    /// Waits until `look` finds something, `patience` at most by the clock `now`.
    pub(super) fn wait<T>(
        &self,
        now: &dyn Fn() -> MonoTime,
        patience: Duration,
        mut look: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        frieze_locks::check_may_wait();
        let began = now();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let found = loop {
            let generation = *self.generation.lock();
            if let Some(found) = look() {
                break Some(found);
            }
            if now().since_ns(began) > patience.as_nanos() as u64 {
                break None;
            }
            match self.idle.get() {
                Some(idle) => frieze_locks::run_as_other_thread(idle),
                None => {
                    let held = self.generation.lock();
                    let same = |held: &mut u64| *held == generation;
                    drop(self.changed.wait_timeout_while(held, REST, same));
                }
            }
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        found
    }
}
