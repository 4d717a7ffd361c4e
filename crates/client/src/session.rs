//! Numbers of the requests of a session.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use frieze_base::Seq;

/// Numbers state-changing requests and knows which are unanswered.
#[derive(Debug, Default)]
pub(crate) struct Sequence {
    numbers: Mutex<Numbers>,
    /// The first unanswered number was answered while somebody waited for that.
    answered: Condvar,
}

#[derive(Debug, Default)]
struct Numbers {
    last: u64,
    unanswered: BTreeSet<u64>,
    waiting: u32,
}

/// A number in use. Dropped, it counts as answered: nobody will ask under it again. A connection keeps those whose answers
/// it owes, so that they end with it, however it ends.
#[derive(Debug)]
pub(crate) struct Numbered {
    sequence: Arc<Sequence>,
    /// The number.
    pub(crate) seq: Seq,
}

impl Sequence {
    /// The next number, unanswered until it is dropped; `None` if the first unanswered one is too far behind: the server
    /// would forget it before it is sent again.
    pub(crate) fn next(self: &Arc<Sequence>) -> Option<Numbered> {
        let mut numbers = self.lock();
        (numbers.behind() < AHEAD_MAX).then(|| Numbered { seq: numbers.take(), sequence: self.clone() })
    }

    /// The next number, unanswered until it is dropped: for who must not wait.
    pub(crate) fn next_at_once(self: &Arc<Sequence>) -> Numbered {
        Numbered { seq: self.take(), sequence: self.clone() }
    }

    /// The next number, unanswered until [`Sequence::answered`]: for who must not wait.
    pub(crate) fn take(&self) -> Seq {
        self.lock().take()
    }

    /// Its answer will not be asked for again.
    pub(crate) fn answered(&self, seq: Seq) {
        let mut numbers = self.lock();
        let was_first = numbers.unanswered.first() == Some(&seq.0);
        numbers.unanswered.remove(&seq.0);
        if was_first && numbers.waiting > 0 {
            self.answered.notify_all();
        }
    }

    /// Waits until the first unanswered number is answered, at most `limit`.
    pub(crate) fn wait(&self, limit: Duration) {
        let mut numbers = self.lock();
        if numbers.behind() >= AHEAD_MAX {
            numbers.waiting += 1;
            numbers = self.answered.wait_timeout(numbers, limit).unwrap_or_else(PoisonError::into_inner).0;
            numbers.waiting -= 1;
        }
    }

    /// How many numbers have been given since the first that is not answered.
    pub(crate) fn behind(&self) -> u64 {
        self.lock().behind()
    }

    fn lock(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every number below it has been answered.
    pub(crate) fn acked(&self) -> Seq {
        let numbers = self.lock();
        Seq(numbers.unanswered.first().copied().unwrap_or(numbers.last + 1))
    }
}

impl Numbers {
    fn take(&mut self) -> Seq {
        self.last += 1;
        self.unanswered.insert(self.last);
        Seq(self.last)
    }

    fn behind(&self) -> u64 {
        self.unanswered.first().map_or(0, |first| self.last - first)
    }
}

/// Numbers given since the first unanswered one before others wait for it: half of what the server remembers.
const AHEAD_MAX: u64 = 2048;

impl Drop for Numbered {
    fn drop(&mut self) {
        self.sequence.answered(self.seq);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acked_is_the_smallest_unanswered_number() {
        let sequence = Arc::new(Sequence::default());
        assert_eq!(sequence.acked(), Seq(1));
        let next = || sequence.next().expect("nobody is behind");
        let (a, b, c) = (next(), next(), next());
        assert_eq!((a.seq, b.seq, c.seq, sequence.acked()), (Seq(1), Seq(2), Seq(3), Seq(1)));
        drop(b);
        assert_eq!(sequence.acked(), Seq(1));
        drop(a);
        assert_eq!(sequence.acked(), Seq(3));
        drop(c);
        assert_eq!(sequence.acked(), Seq(4));
    }

    #[test]
    fn nobody_runs_away_from_a_number_that_is_not_answered() {
        let sequence = Arc::new(Sequence::default());
        let first = sequence.next().expect("nobody is behind");
        for _ in 0..AHEAD_MAX {
            drop(sequence.next().expect("not yet too far"));
        }
        assert!(sequence.next().is_none());
        assert_eq!(sequence.take(), Seq(AHEAD_MAX + 2), "who must not wait gets one all the same");
        std::thread::scope(|scope| {
            scope.spawn(|| drop(first));
            while sequence.behind() >= AHEAD_MAX {
                sequence.wait(Duration::from_secs(10));
            }
        });
        assert!(sequence.next().is_some());
    }
}
