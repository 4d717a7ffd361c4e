//! Waiting for a peer that answers in microseconds, without going to sleep.
//!
//! A sleeping thread has to be woken. If its core sleeps too, that takes longer (30 us on a virtual machine) than a
//! small request takes altogether. So after a quick reply a thread polls for a moment before the next sleep, and yields
//! its core between two polls.
//!
//! Guarantees: at most [`LOOK`] a wait, by at most half as many threads of the process as there are cores; on a rarely
//! used connection, or with a slow peer, a thread sleeps at once.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use frieze_base::MonoTime;

use crate::mono;

/// How quick the peer of one connection is.
#[derive(Debug, Default)]
pub(crate) struct BusyPoll {
    /// The last wait was over within [`QUICK`].
    is_quick: bool,
}

impl BusyPoll {
    /// Waits by `sleep`; polls by `look` first if the last wait was short.
    pub(crate) fn wait<T>(&mut self, look: impl FnMut() -> Option<T>, sleep: impl FnOnce() -> T) -> T {
        self.wait_at(&SLOTS, look, sleep)
    }

    fn wait_at<T>(&mut self, slots: &PollSlots, look: impl FnMut() -> Option<T>, sleep: impl FnOnce() -> T) -> T {
        let began = mono();
        let found = if self.is_quick { slots.look_again(began, look) } else { None };
        let found = found.unwrap_or_else(sleep);
        self.is_quick = mono().since_ns(began) < QUICK.as_nanos() as u64;
        found
    }
}

/// The threads that poll.
#[derive(Debug)]
struct PollSlots {
    taken: AtomicUsize,
    max: OnceLock<usize>,
}

impl PollSlots {
    const fn new() -> PollSlots {
        PollSlots { taken: AtomicUsize::new(0), max: OnceLock::new() }
    }

    /// Polls until something is found or the time is over.
    fn look_again<T>(&self, began: MonoTime, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        let _slot = self.take()?;
        loop {
            let found = look();
            if found.is_some() || mono().since_ns(began) >= LOOK.as_nanos() as u64 {
                return found;
            }
            thread::yield_now();
        }
    }

    fn take(&self) -> Option<PollSlot<'_>> {
        let half = || thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2));
        let max = *self.max.get_or_init(half);
        let taken = self.taken.fetch_add(1, Ordering::Relaxed);
        // The drop returns it.
        let place = PollSlot(self);
        (taken < max).then_some(place)
    }
}

struct PollSlot<'a>(&'a PollSlots);

impl Drop for PollSlot<'_> {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The slots of this process.
static SLOTS: PollSlots = PollSlots::new();
/// Longer than a request for a name takes to be answered by a server that is awake, on the same machine.
const LOOK: Duration = Duration::from_micros(50);
/// Most of a shorter wait is the wake-up.
const QUICK: Duration = Duration::from_micros(200);

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of polls, and whether it slept.
    fn wait(poll: &mut BusyPoll, slots: &PollSlots, found_at: usize, asleep: Duration) -> (usize, bool) {
        let (mut looks, mut slept) = (0, false);
        let look = || {
            looks += 1;
            (looks == found_at).then_some(())
        };
        poll.wait_at(slots, look, || {
            slept = true;
            let until = MonoTime(mono().0 + asleep.as_nanos() as u64);
            while mono() < until {}
        });
        (looks, slept)
    }

    #[test]
    fn it_sleeps_at_once_unless_the_last_answer_was_quick() {
        let (mut poll, slots) = (BusyPoll::default(), PollSlots::new());
        assert_eq!(wait(&mut poll, &slots, 1, QUICK), (0, true), "nothing is known of the peer");
        assert_eq!(wait(&mut poll, &slots, 1, Duration::ZERO), (0, true), "the last answer took long");
        poll.is_quick = true;
        assert_eq!(wait(&mut poll, &slots, 1, Duration::ZERO), (1, false));
    }

    #[test]
    fn it_does_not_look_for_long() {
        let (mut poll, slots) = (BusyPoll { is_quick: true }, PollSlots::new());
        let (looks, slept) = wait(&mut poll, &slots, usize::MAX, QUICK);
        assert!(looks > 0 && slept, "{looks} looks");
        assert!(!poll.is_quick, "and not again");
    }

    #[test]
    fn no_more_threads_look_than_may() {
        let (mut poll, slots) = (BusyPoll { is_quick: true }, PollSlots::new());
        let taken: Vec<PollSlot<'_>> = std::iter::from_fn(|| slots.take()).collect();
        assert!(!taken.is_empty());
        assert_eq!(wait(&mut poll, &slots, 1, Duration::ZERO), (0, true));
        drop(taken);
        poll.is_quick = true;
        assert_eq!(wait(&mut poll, &slots, 1, Duration::ZERO), (1, false));
    }
}
