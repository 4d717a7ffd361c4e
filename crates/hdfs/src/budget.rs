//! Memory for what writers have sent and is not in a file yet: so many bytes for all connections, which wait for them.
//!
//! A packet may have 16 MiB and a service 4,096 connections: each alone is bounded, together they were not.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes that may be lent.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    left: Mutex<BudgetState>,
    returned: Condvar,
}

#[derive(Debug)]
struct BudgetState {
    bytes: usize,
    /// How many wait for more: waking nobody would be a system call, too.
    waiting: usize,
}

/// Bytes that are lent. Dropped, they are returned.
#[derive(Debug)]
pub(crate) struct BudgetShare<'b> {
    budget: &'b MemoryBudget,
    bytes: usize,
}

impl MemoryBudget {
    /// So many bytes. Nobody may ask for more at once.
    pub(crate) fn new(bytes: usize) -> MemoryBudget {
        MemoryBudget { left: Mutex::new(BudgetState { bytes, waiting: 0 }), returned: Condvar::new() }
    }

    /// Nothing yet, to be added to.
    pub(crate) fn none(&self) -> BudgetShare<'_> {
        BudgetShare { budget: self, bytes: 0 }
    }

    fn lock(&self) -> MutexGuard<'_, BudgetState> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BudgetShare<'_> {
    /// Adds `bytes` if they are there at once.
    pub(crate) fn try_add(&mut self, bytes: usize) -> bool {
        let mut left = self.budget.lock();
        let is_there = left.bytes >= bytes;
        if is_there {
            left.bytes -= bytes;
            self.bytes += bytes;
        }
        is_there
    }

    /// Adds `bytes` as soon as others have returned them. Who waits must hold nothing: else all might wait for each other.
    pub(crate) fn add(&mut self, bytes: usize) {
        assert_eq!(self.bytes, 0, "who waits holds nothing");
        let mut left = self.budget.lock();
        while left.bytes < bytes {
            left.waiting += 1;
            left = self.budget.returned.wait(left).unwrap_or_else(PoisonError::into_inner);
            left.waiting -= 1;
        }
        left.bytes -= bytes;
        self.bytes = bytes;
    }

    /// Returns everything.
    pub(crate) fn give_back(&mut self) {
        if self.bytes > 0 {
            let mut left = self.budget.lock();
            left.bytes += std::mem::take(&mut self.bytes);
            if left.waiting > 0 {
                self.budget.returned.notify_all();
            }
        }
    }
}

impl Drop for BudgetShare<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_more_than_is_left_waits_until_it_is_returned() {
        let budget = MemoryBudget::new(10);
        let mut first = budget.none();
        assert!(first.try_add(4) && first.try_add(4) && !first.try_add(4));
        std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                let mut second = budget.none();
                second.add(9);
            });
            first.give_back();
            second.join().expect("it was lent");
        });
        assert!(budget.none().try_add(10), "all is returned");
    }
}
