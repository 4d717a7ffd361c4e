//! Which records of an epoch survive: those that are newest for at least one byte.
//!
//! Guarantees: the states at kept instants are those of all records. Where some of the dead are removed, the same of
//! the rest survive, so removal can stop and start again anywhere, and answers do not depend on it.
//!
//! # The algorithm
//! Records of an epoch come newest first. The ranges of newer ones are kept in order; a record survives if it has a
//! byte outside of them. If they become more than a bound, the sweep looks at the bytes below the last of them only,
//! and once more at the epoch for those above.

use std::collections::BTreeMap;

use frieze_base::ByteRange;
use frieze_hlc::Hlc;

use crate::kept::{KeptSet, RetentionEpoch};

/// Ranges in memory during a sweep, 16 bytes each and what a tree takes: 64 Ki, below 4 MiB.
pub const RANGES_MAX: usize = 1 << 16;

/// What a sweep finds of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepVerdict {
    /// It is newest for a byte. Final.
    Survives,
    /// It is newest for no byte of the epoch, unless an earlier pass said that it survives. Final.
    Dies,
    /// It is newest for no byte of this pass, and the next pass says more.
    Undecided,
}

/// A sweep over the records of one file, from new to old, in bounded memory.
///
/// Its position is an end of an epoch: a sweep that stopped starts again there, and nothing of it is stored.
#[derive(Clone, Debug)]
pub struct RetentionSweep {
    kept: KeptSet,
    epoch: Option<RetentionEpoch>,
    covered: CoveredRanges,
    /// First byte of this pass.
    start: u64,
    /// End of this pass: bytes from there on are those of the next pass.
    end: u64,
    ranges_max: usize,
}

impl RetentionSweep {
    /// A sweep with at most `ranges_max` ranges in memory, 1 or more.
    pub fn new(kept: KeptSet, ranges_max: usize) -> RetentionSweep {
        assert!(ranges_max > 0, "a sweep without ranges finds nothing");
        RetentionSweep { kept, epoch: None, covered: CoveredRanges::default(), start: 0, end: u64::MAX, ranges_max }
    }

    /// The epoch of which the records of `stamp` have to come next: the last one once more, if a pass was too small
    /// for it, else that of the stamp (`None`: there are no more records).
    ///
    /// Call it before the first record of each epoch, and behind the last one.
    pub fn next_pass(&mut self, stamp: Option<Hlc>) -> Option<RetentionEpoch> {
        self.covered = CoveredRanges::default();
        (self.start, self.end) = match self.end {
            u64::MAX => (0, u64::MAX),
            end => (end, u64::MAX),
        };
        if self.start == 0 {
            self.epoch = stamp.map(|stamp| self.kept.epoch_of(stamp));
        }
        self.epoch
    }

    /// Looks at the next record of the epoch: older than those before it, or of the same stamp and an earlier number.
    pub fn step(&mut self, range: ByteRange) -> SweepVerdict {
        let within = range.intersect(ByteRange::new(self.start, self.end));
        if !within.is_empty() && self.covered.add(within) {
            if self.covered.0.len() > self.ranges_max {
                let (&last, _) = self.covered.0.last_key_value().expect("there are more than none");
                self.covered.0.remove(&last);
                self.end = last;
            }
            return SweepVerdict::Survives;
        }
        if range.end() > self.end { SweepVerdict::Undecided } else { SweepVerdict::Dies }
    }
}

/// Which of the records of one epoch survive. `newest_first` has their ranges, in bytes.
pub fn surviving_records(newest_first: &[ByteRange], ranges_max: usize) -> Vec<bool> {
    let mut survives = vec![false; newest_first.len()];
    let mut sweep = RetentionSweep::new(KeptSet::default(), ranges_max);
    loop {
        for (range, survives) in newest_first.iter().zip(&mut survives) {
            *survives |= sweep.step(*range) == SweepVerdict::Survives;
        }
        if sweep.next_pass(None).is_none() && sweep.start == 0 {
            return survives;
        }
    }
}

/// Ranges without a common byte, by start. Neighbours are one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct CoveredRanges(BTreeMap<u64, u64>);

impl CoveredRanges {
    /// Adds a range. True if a byte of it was not there.
    fn add(&mut self, range: ByteRange) -> bool {
        let (mut start, mut end) = (range.start(), range.end());
        if let Some((&before, &before_end)) = self.0.range(..=start).next_back() {
            if before_end >= end {
                return false;
            }
            if before_end >= start {
                start = before;
            }
        }
        while let Some((&next, &next_end)) = self.0.range(start..).next().filter(|(next, _)| **next <= end) {
            self.0.remove(&next);
            end = end.max(next_end);
        }
        self.0.insert(start, end);
        true
    }
}
