//! Numbers of the requests of a session.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use frieze_base::Seq;

/// Numbers state-changing requests and knows which are unanswered.
#[derive(Debug, Default)]
pub(crate) struct Sequence(Mutex<Numbers>);

#[derive(Debug, Default)]
struct Numbers {
    last: u64,
    unanswered: BTreeSet<u64>,
}

/// A number in use. Dropped, it counts as answered: nobody will ask under it again.
#[derive(Debug)]
pub(crate) struct Numbered<'a> {
    sequence: &'a Sequence,
    /// The number.
    pub(crate) seq: Seq,
}

impl Sequence {
    /// The next number, unanswered until it is dropped.
    pub(crate) fn next(&self) -> Numbered<'_> {
        Numbered { seq: self.take(), sequence: self }
    }

    /// The next number, unanswered until [`Sequence::answered`].
    pub(crate) fn take(&self) -> Seq {
        let mut numbers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        numbers.last += 1;
        let seq = numbers.last;
        numbers.unanswered.insert(seq);
        Seq(seq)
    }

    /// Its answer will not be asked for again.
    pub(crate) fn answered(&self, seq: Seq) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).unanswered.remove(&seq.0);
    }

    /// How many numbers have been given since the first that is not answered.
    pub(crate) fn behind(&self) -> u64 {
        let numbers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        numbers.unanswered.first().map_or(0, |first| numbers.last - first)
    }

    /// Every number below it has been answered.
    pub(crate) fn acked(&self) -> Seq {
        let numbers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Seq(numbers.unanswered.first().copied().unwrap_or(numbers.last + 1))
    }
}

impl Drop for Numbered<'_> {
    fn drop(&mut self) {
        self.sequence.answered(self.seq);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acked_is_the_smallest_unanswered_number() {
        let sequence = Sequence::default();
        assert_eq!(sequence.acked(), Seq(1));
        let (a, b, c) = (sequence.next(), sequence.next(), sequence.next());
        assert_eq!((a.seq, b.seq, c.seq, sequence.acked()), (Seq(1), Seq(2), Seq(3), Seq(1)));
        drop(b);
        assert_eq!(sequence.acked(), Seq(1));
        drop(a);
        assert_eq!(sequence.acked(), Seq(3));
        drop(c);
        assert_eq!(sequence.acked(), Seq(4));
    }
}
