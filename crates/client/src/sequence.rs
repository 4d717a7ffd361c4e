//! SequenceState of the requests of a session.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use frieze_base::Seq;

/// SequenceState state-changing requests and knows which are unanswered.
#[derive(Debug, Default)]
pub(crate) struct Sequence {
    numbers: Mutex<SequenceState>,
    /// Notified when the first unanswered number is answered while a call waits for it.
    answered: Condvar,
}

#[derive(Debug, Default)]
struct SequenceState {
    last: u64,
    unanswered: BTreeSet<u64>,
    waiting: u32,
}

/// A number in use. Dropping it marks it as answered: no request is sent under it again. A connection keeps the numbers
/// whose replies it owes, so that they end with it.
#[derive(Debug)]
pub(crate) struct RequestNumber {
    sequence: Arc<Sequence>,
    /// The number.
    pub(crate) seq: Seq,
}

impl Sequence {
    /// The next number, unanswered until it is dropped; `None` if the first unanswered one is so far behind that the
    /// server would forget it before it is sent again.
    pub(crate) fn next(self: &Arc<Sequence>) -> Option<RequestNumber> {
        let mut numbers = self.lock();
        (numbers.behind() < AHEAD_MAX).then(|| RequestNumber { seq: numbers.take(), sequence: self.clone() })
    }

    /// The next number, unanswered until it is dropped, for callers that must not wait.
    pub(crate) fn next_at_once(self: &Arc<Sequence>) -> RequestNumber {
        RequestNumber { seq: self.take(), sequence: self.clone() }
    }

    /// The next number, unanswered until [`Sequence::answered`], for callers that must not wait.
    pub(crate) fn take(&self) -> Seq {
        self.lock().take()
    }

    /// Marks a number as answered.
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

    /// How many numbers were given out since the first unanswered one.
    pub(crate) fn behind(&self) -> u64 {
        self.lock().behind()
    }

    fn lock(&self) -> MutexGuard<'_, SequenceState> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The smallest number that is not answered: all below it are.
    pub(crate) fn acked(&self) -> Seq {
        let numbers = self.lock();
        Seq(numbers.unanswered.first().copied().unwrap_or(numbers.last + 1))
    }
}

impl SequenceState {
    fn take(&mut self) -> Seq {
        self.last += 1;
        self.unanswered.insert(self.last);
        Seq(self.last)
    }

    fn behind(&self) -> u64 {
        self.unanswered.first().map_or(0, |first| self.last - first)
    }
}

/// SequenceState given since the first unanswered one before others wait for it: half of what the server remembers.
const AHEAD_MAX: u64 = 2048;

impl Drop for RequestNumber {
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
        let next = || sequence.next().expect("no number is behind");
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
    fn numbers_stay_near_the_first_unanswered_one() {
        let sequence = Arc::new(Sequence::default());
        let first = sequence.next().expect("no number is behind");
        for _ in 0..AHEAD_MAX {
            drop(sequence.next().expect("not yet too far"));
        }
        assert!(sequence.next().is_none());
        assert_eq!(sequence.take(), Seq(AHEAD_MAX + 2), "a caller that must not wait gets one all the same");
        std::thread::scope(|scope| {
            scope.spawn(|| drop(first));
            while sequence.behind() >= AHEAD_MAX {
                sequence.wait(Duration::from_secs(10));
            }
        });
        assert!(sequence.next().is_some());
    }
}
