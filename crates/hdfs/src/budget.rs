//! Memory for what writers have sent and is not in a file yet: one budget for all connections, which wait for it.
//!
//! A packet may have 16 MiB and a service 4,096 connections: each alone was bounded, all together were not.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A number of bytes to share.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    left: Mutex<BudgetState>,
    returned: Condvar,
}

#[derive(Debug)]
struct BudgetState {
    bytes: usize,
    /// Waiting connections: waking none would cost a system call, too.
    waiting: usize,
}

/// Bytes of the budget. Dropped, they return to it.
#[derive(Debug)]
pub(crate) struct BudgetShare<'b> {
    budget: &'b MemoryBudget,
    bytes: usize,
}

impl MemoryBudget {
    /// A budget of `bytes`. One request must not exceed it.
    pub(crate) fn new(bytes: usize) -> MemoryBudget {
        MemoryBudget { left: Mutex::new(BudgetState { bytes, waiting: 0 }), returned: Condvar::new() }
    }

    /// An empty share, to be added to.
    pub(crate) fn none(&self) -> BudgetShare<'_> {
        BudgetShare { budget: self, bytes: 0 }
    }

    fn lock(&self) -> MutexGuard<'_, BudgetState> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BudgetShare<'_> {
    /// Adds `bytes` if they are free now.
    pub(crate) fn try_add(&mut self, bytes: usize) -> bool {
        let mut left = self.budget.lock();
        let is_there = left.bytes >= bytes;
        if is_there {
            left.bytes -= bytes;
            self.bytes += bytes;
        }
        is_there
    }

    /// Adds `bytes` as soon as they are free. The share must be empty: otherwise all could wait for each other.
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

    /// Returns all of it.
    pub(crate) fn release(&mut self) {
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
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_beyond_the_budget_waits_until_others_are_returned() {
        let budget = MemoryBudget::new(10);
        let mut first = budget.none();
        assert!(first.try_add(4) && first.try_add(4) && !first.try_add(4));
        std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                let mut second = budget.none();
                second.add(9);
            });
            first.release();
            second.join().expect("it was lent");
        });
        assert!(budget.none().try_add(10), "all is returned");
    }
}
