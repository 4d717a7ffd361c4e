//! What a chain remembers of one session, so that a retry runs once.
//!
//! Guarantees: between the floor and the newest number, every request that became a record is known, also after a
//! restart (the numbers are in the records' headers). Below the floor nothing is known, and nothing is run.
//! The floor rises with what the client has acknowledged and with the newest number, so that memory is bounded.
//! Leaves to others: which sessions live (`namespace`).

use std::collections::VecDeque;

use frieze_base::Seq;
use frieze_hlc::Hlc;

use crate::message::WriteDone;

/// The requests of one session.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Every number below it is forgotten.
    floor: Seq,
    /// By number and part, in their order: the parts of a group may lie on one chain. Most come behind the last and go as the first.
    requests: VecDeque<((Seq, u8), Run)>,
}

/// What is remembered of a session whose requests are all committed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionMemory {
    /// Every number below it is forgotten.
    pub floor: Seq,
    /// Number, part, and what was done, by number and part.
    pub done: Vec<(Seq, u8, WriteDone)>,
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    /// It is record `n`, not yet committed.
    InFlight { n: u64 },
    /// It is committed.
    Done(WriteDone),
}

/// The number lies below the floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forgotten {
    pub(crate) floor: Seq,
}

impl Memory {
    /// Forgets what lies below `acked`, all of it answered.
    pub(crate) fn acknowledge(&mut self, acked: Seq) {
        self.raise_floor(acked);
    }

    /// Remembers that `(seq, part)` has become record `n`. The floor follows `remembered_max` numbers behind.
    pub(crate) fn begin(&mut self, seq: Seq, part: u8, n: u64, remembered_max: u64) {
        let before = self.put(seq, part, Run::InFlight { n });
        assert!(before.is_none(), "request {seq} part {part} becomes record {n} and is already {before:?}");
        self.follow(seq, remembered_max);
    }

    /// Remembers the answer, unless the request has been forgotten meanwhile.
    pub(crate) fn finish(&mut self, seq: Seq, part: u8, done: WriteDone) {
        if let Ok(at) = self.find(seq, part) {
            self.requests[at].1 = Run::Done(done);
        }
    }

    /// Remembers a recovered record.
    pub(crate) fn replay(&mut self, seq: Seq, part: u8, done: WriteDone, remembered_max: u64) {
        if seq >= self.floor {
            self.put(seq, part, Run::Done(done));
            self.follow(seq, remembered_max);
        }
    }

    /// What it remembers of records stamped up to `upto`.
    pub(crate) fn upto(&self, upto: Hlc) -> SessionMemory {
        let done = self.requests.iter().filter_map(|&((seq, part), ref run)| match run {
            Run::Done(done) if done.stamp <= upto => Some((seq, part, *done)),
            Run::Done(_) | Run::InFlight { .. } => None,
        });
        SessionMemory { floor: self.floor, done: done.collect() }
    }

    /// The request has no record after all: when it comes again it runs.
    pub(crate) fn withdraw(&mut self, seq: Seq, part: u8) {
        if let Ok(at) = self.find(seq, part) {
            self.requests.remove(at);
        }
    }

    /// How far `(seq, part)` has come; `None` if it has never become a record.
    pub(crate) fn recall(&self, seq: Seq, part: u8) -> Result<Option<Run>, Forgotten> {
        if seq < self.floor {
            return Err(Forgotten { floor: self.floor });
        }
        Ok(self.find(seq, part).ok().map(|at| self.requests[at].1))
    }

    /// The first part of `seq` on this chain, and how far it has come.
    pub(crate) fn first_part(&self, seq: Seq) -> Option<(u8, Run)> {
        let at = self.find(seq, 0).unwrap_or_else(|at| at);
        let ((_, part), run) = *self.requests.get(at).filter(|((number, _), _)| *number == seq)?;
        Some((part, run))
    }

    /// Where it is, or belongs.
    fn find(&self, seq: Seq, part: u8) -> Result<usize, usize> {
        let key = (seq, part);
        if self.requests.back().is_none_or(|(last, _)| *last < key) {
            return Err(self.requests.len());
        }
        self.requests.binary_search_by_key(&key, |(of, _)| *of)
    }

    /// Notes how far it has come. Returns what was noted before.
    fn put(&mut self, seq: Seq, part: u8, run: Run) -> Option<Run> {
        match self.find(seq, part) {
            Ok(at) => Some(std::mem::replace(&mut self.requests[at].1, run)),
            Err(at) => {
                self.requests.insert(at, ((seq, part), run));
                None
            }
        }
    }

    fn follow(&mut self, newest: Seq, remembered_max: u64) {
        self.raise_floor(Seq((newest.0 + 1).saturating_sub(remembered_max)));
    }

    fn raise_floor(&mut self, floor: Seq) {
        self.floor = self.floor.max(floor);
        while let Some(((seq, _), _)) = self.requests.front()
            && *seq < self.floor
        {
            self.requests.pop_front();
        }
    }
}
