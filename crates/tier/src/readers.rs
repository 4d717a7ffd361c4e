//! Which readers are sequential, and how far ahead of each to read.
//!
//! A read that begins where another of the same reader ended continues it. That finds a program that reads a file from
//! front to back, several of them in one file, and requests that overtake each other: each of a few interleaved runs
//! goes on by itself. A random reader continues no run, and nothing is read ahead for it.

use std::collections::{BTreeMap, VecDeque};

use frieze_base::ByteRange;

/// The readers, and the last runs of each. The reader that has been idle for longest is dropped.
#[derive(Clone, Debug)]
pub struct Readers<K> {
    readers: BTreeMap<K, ReaderState>,
    /// Oldest first; a ticket that is not that of the reader any more is from before he read again.
    order: VecDeque<(K, u64)>,
    readers_max: usize,
    steps: AheadSteps,
    next_ticket: u64,
}

/// How far ahead of a sequential reader to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AheadSteps {
    /// The first step in bytes, or twice the read that causes it, if that is more. Each later step is twice as long.
    pub first_bytes: u64,
    /// The longest step in bytes; 0: nothing is read ahead.
    pub bytes_max: u64,
}

impl AheadSteps {
    /// Steps up to `bytes_max`.
    pub fn upto(bytes_max: u64) -> AheadSteps {
        AheadSteps { first_bytes: AHEAD_BYTES_MIN, bytes_max }
    }
}

#[derive(Clone, Debug, Default)]
struct ReaderState {
    ticket: u64,
    /// Oldest first.
    runs: Vec<ReadSequence>,
}

/// Reads that continue each other.
#[derive(Clone, Copy, Debug)]
struct ReadSequence {
    start: u64,
    end: u64,
    reads: u32,
    /// Everything before it was read or asked for ahead.
    ahead_end: u64,
    /// How far to read ahead, in bytes.
    window: u64,
}

/// What a read tells of its reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Habit {
    /// He reads on and on: what he has read he does not need again.
    pub is_sequential: bool,
    /// What to read ahead for him now, if anything.
    pub ahead: Option<ByteRange>,
}

impl<K: Copy + Ord> Readers<K> {
    /// Remembers at most `readers_max` readers, and reads at most `ahead_bytes_max` bytes ahead of each run.
    ///
    /// # Panics
    /// If no reader can be remembered.
    pub fn new(readers_max: usize, ahead_bytes_max: u64) -> Readers<K> {
        Readers::with_steps(readers_max, AheadSteps::upto(ahead_bytes_max))
    }

    /// Remembers at most `readers_max` readers, and reads ahead of each run in these steps.
    ///
    /// # Panics
    /// If no reader can be remembered.
    pub fn with_steps(readers_max: usize, steps: AheadSteps) -> Readers<K> {
        assert!(readers_max > 0, "no reader can be remembered");
        Readers { readers: BTreeMap::new(), order: VecDeque::new(), readers_max, steps, next_ticket: 0 }
    }

    /// A reader reads `range` of its file.
    ///
    /// # Cost
    /// O(log readers).
    pub fn observe(&mut self, who: K, range: ByteRange) -> Habit {
        if range.is_empty() {
            return Habit::default();
        }
        self.next_ticket += 1;
        let reader = self.readers.entry(who).or_default();
        reader.ticket = self.next_ticket;
        self.order.push_back((who, self.next_ticket));
        let habit = reader.observe(range, self.steps);
        self.forget_oldest();
        habit
    }

    /// Readers that are remembered.
    pub fn count(&self) -> usize {
        self.readers.len()
    }

    fn forget_oldest(&mut self) {
        while self.readers.len() > self.readers_max {
            let Some((who, ticket)) = self.order.pop_front() else { return };
            if self.readers.get(&who).is_some_and(|reader| reader.ticket == ticket) {
                self.readers.remove(&who);
            }
        }
        if self.order.len() > 2 * self.readers_max {
            let readers = &self.readers;
            self.order.retain(|(who, ticket)| readers.get(who).is_some_and(|reader| reader.ticket == *ticket));
        }
    }
}

impl ReaderState {
    fn observe(&mut self, range: ByteRange, steps: AheadSteps) -> Habit {
        let (start, end) = (range.start(), range.end());
        let mut run = match self.runs.iter().rposition(|run| run.end == start) {
            Some(at) => self.runs.remove(at),
            None => ReadSequence { start, end, reads: 0, ahead_end: end, window: 0 },
        };
        run.reads = run.reads.saturating_add(1);
        run.end = end;
        // One that had overtaken it goes on as part of it.
        if let Some(at) = self.runs.iter().position(|later| later.start == end) {
            let later = self.runs.remove(at);
            run.end = later.end;
            run.reads = run.reads.saturating_add(later.reads);
            run.ahead_end = run.ahead_end.max(later.ahead_end);
            run.window = run.window.max(later.window);
        }
        run.ahead_end = run.ahead_end.max(run.end);
        // A lot at once is a pass of its own, and the second of them one that goes on.
        let is_much = run.end - run.start >= PASS_BYTES;
        let is_sequential = is_much || run.reads >= READS_OF_A_RUN;
        let goes_on = run.reads >= if is_much { 2 } else { READS_OF_A_RUN };
        let mut ahead = None;
        // The next part is asked for while half of the last one is still to be read: the reader never waits for it.
        if goes_on && run.ahead_end - run.end <= run.window / 2 {
            let first = (2 * range.len()).max(steps.first_bytes);
            run.window = (2 * run.window).max(first).min(steps.bytes_max);
            let upto = run.end.saturating_add(run.window);
            if upto > run.ahead_end {
                ahead = Some(ByteRange::new(run.ahead_end, upto));
                run.ahead_end = upto;
            }
        }
        // Read once more from the same place: known once.
        self.runs.retain(|other| other.end != run.end);
        if self.runs.len() >= RUNS_MAX {
            self.runs.remove(0);
        }
        self.runs.push(run);
        Habit { is_sequential, ahead }
    }
}

/// Readers that a server remembers: about 400 KiB.
pub const READERS_MAX: usize = 1024;
/// Reads that continue each other before they count as a run: two happen by chance.
const READS_OF_A_RUN: u32 = 3;
/// Bytes in a row that are a pass over a lot, in however many reads: half of it would be a tenth of a small cache.
const PASS_BYTES: u64 = 1 << 20;
/// Runs of one reader that are remembered. Few: a random reader of a small file comes back to where it was
/// before long, and that is no run.
const RUNS_MAX: usize = 8;
/// Least to read ahead: below, the device's latency shows (128 KiB: the kernel's own first step).
const AHEAD_BYTES_MIN: u64 = 128 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: u64, len: u64) -> ByteRange {
        ByteRange::at(start, len).unwrap()
    }

    #[test]
    fn the_third_read_in_a_row_is_a_run_and_is_read_ahead_of_in_growing_steps() {
        let mut readers = Readers::new(8, 1 << 20);
        let mut ahead = Vec::new();
        for i in 0..40u64 {
            let habit = readers.observe(1u32, at(i * 65536, 65536));
            assert_eq!(habit.is_sequential, i >= 2, "read {i}");
            ahead.extend(habit.ahead.map(|range| (i, range.start() >> 16, range.end() >> 16)));
        }
        assert_eq!(ahead, [(2, 3, 5), (3, 5, 8), (5, 8, 14), (9, 14, 26), (17, 26, 34), (25, 34, 42), (33, 42, 50)]);
    }

    #[test]
    fn random_reads_cause_no_read_ahead() {
        let mut rng = frieze_base::Rng::new(5);
        for (places, runs_max) in [(1 << 20, 0), (256, 400), (64, 3000)] {
            let mut readers = Readers::new(64, 1 << 20);
            let mut runs = 0;
            for i in 0..20_000u32 {
                let habit = readers.observe(i % 100, at(rng.below(places) * 4096, 4096));
                runs += u32::from(habit.is_sequential);
                assert!(readers.count() <= 64 && readers.order.len() <= 128);
            }
            for _ in 0..20_000 {
                runs += u32::from(readers.observe(7, at(rng.below(places) * 4096, 4096)).is_sequential);
            }
            assert!(runs <= runs_max, "{runs} reads of 20,000 at {places} places were taken for a run");
        }
    }

    #[test]
    fn a_large_read_is_a_scan_and_the_next_one_is_read_ahead() {
        let mut readers = Readers::new(8, 8 << 20);
        let mib = 1 << 20;
        assert_eq!(readers.observe(1u32, at(0, mib)), Habit { is_sequential: true, ahead: None });
        assert_eq!(readers.observe(1u32, at(9 * mib, mib)), Habit { is_sequential: true, ahead: None });
        let ahead = readers.observe(1u32, at(mib, mib)).ahead.unwrap();
        assert_eq!((ahead.start(), ahead.end()), (2 * mib, 4 * mib));
    }

    #[test]
    fn two_in_one_file_and_requests_that_overtake_are_runs_too() {
        let mut readers = Readers::new(8, 1 << 20);
        let overtaking = [0, 2, 1, 3, 5, 4, 7, 6, 8, 9];
        let mut runs = 0;
        for i in overtaking {
            runs += u32::from(readers.observe(7u32, at(i * 4096, 4096)).is_sequential);
            runs += u32::from(readers.observe(7u32, at((1 << 30) + i * 4096, 4096)).is_sequential);
            readers.observe(8u32, at(i * 4096, 100));
        }
        assert!(runs >= 12, "{runs} of 20 reads were of a run");
    }

    #[test]
    fn an_empty_read_tells_nothing_and_a_read_at_the_end_of_everything_is_no_harm() {
        let mut readers = Readers::new(1, u64::MAX);
        assert_eq!(readers.observe(1u32, at(5, 0)), Habit::default());
        for i in (1..4u64).rev() {
            readers.observe(1u32, at(u64::MAX - i, 1));
        }
        assert_eq!(readers.count(), 1);
    }
}
