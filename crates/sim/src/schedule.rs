//! The schedule of a simulation: events in the order of simulated time, and of scheduling at equal times.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

struct ScheduledEvent<E> {
    at_us: u64,
    order: u64,
    event: E,
}

impl<E> PartialEq for ScheduledEvent<E> {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl<E> Eq for ScheduledEvent<E> {}

impl<E> PartialOrd for ScheduledEvent<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for ScheduledEvent<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at_us, self.order).cmp(&(other.at_us, other.order))
    }
}

/// Future events.
pub(crate) struct Schedule<E> {
    queue: BinaryHeap<Reverse<ScheduledEvent<E>>>,
    /// Events scheduled so far.
    count: u64,
}

impl<E> Default for Schedule<E> {
    fn default() -> Self {
        Schedule { queue: BinaryHeap::new(), count: 0 }
    }
}

impl<E> Schedule<E> {
    /// Adds an event at `at_us`, after those that were added before for the same time.
    pub(crate) fn add(&mut self, at_us: u64, event: E) {
        self.count += 1;
        self.queue.push(Reverse(ScheduledEvent { at_us, order: self.count, event }));
    }

    /// Time of the next event.
    pub(crate) fn next_at_us(&self) -> Option<u64> {
        self.queue.peek().map(|Reverse(next)| next.at_us)
    }

    /// Takes the next event, with its time.
    pub(crate) fn pop(&mut self) -> Option<(u64, E)> {
        self.queue.pop().map(|Reverse(next)| (next.at_us, next.event))
    }
}
