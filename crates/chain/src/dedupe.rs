//! A chain's memory of one session, so that a retry runs once.
//!
//! Guarantees: between the floor and the newest number, every request that became a record is known, also after a
//! restart (the numbers are in the records' headers). Below the floor nothing is known, and nothing is run. The floor
//! rises with the client's acknowledgements and with the newest number, so that memory is bounded. Leaves to others:
//! the list of live sessions (`namespace`).

use std::collections::VecDeque;

use frieze_base::Seq;
use frieze_hlc::Hlc;

use crate::message::WriteDone;

/// The requests of one session.
#[derive(Debug, Default)]
pub(crate) struct SessionDedupe {
    /// Every number below it is forgotten.
    floor: Seq,
    /// By number and part, in their order: the parts of a group may lie on one chain. Most come behind the last and go
    /// as the first.
    requests: VecDeque<((Seq, u8), DedupeEntry)>,
}

/// Memory of a session whose requests are all committed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionMemory {
    /// Every number below it is forgotten.
    pub floor: Seq,
    /// Number, part and result, by number and part.
    pub done: Vec<(Seq, u8, WriteDone)>,
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DedupeEntry {
    /// It is record `n`, not yet committed.
    InFlight { n: u64 },
    /// It is committed.
    Done(WriteDone),
}

/// The number lies below the floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BelowFloor {
    pub(crate) floor: Seq,
}

impl SessionDedupe {
    /// Forgets results below `acked`: the client has received them.
    pub(crate) fn acknowledge(&mut self, acked: Seq) {
        self.raise_floor(acked);
    }

    /// Remembers that `(seq, part)` has become record `n`. The floor follows `remembered_max` numbers behind.
    pub(crate) fn begin(&mut self, seq: Seq, part: u8, n: u64, remembered_max: u64) {
        let before = self.put(seq, part, DedupeEntry::InFlight { n });
        assert!(before.is_none(), "request {seq} part {part} becomes record {n} and is already {before:?}");
        self.follow(seq, remembered_max);
    }

    /// Remembers the answer, unless the request has been forgotten meanwhile.
    pub(crate) fn finish(&mut self, seq: Seq, part: u8, done: WriteDone) {
        if let Ok(at) = self.find(seq, part) {
            self.requests[at].1 = DedupeEntry::Done(done);
        }
    }

    /// Remembers a recovered record.
    pub(crate) fn replay(&mut self, seq: Seq, part: u8, done: WriteDone, remembered_max: u64) {
        if seq >= self.floor {
            self.put(seq, part, DedupeEntry::Done(done));
            self.follow(seq, remembered_max);
        }
    }

    /// Its results of records stamped up to `upto`.
    pub(crate) fn upto(&self, upto: Hlc) -> SessionMemory {
        let done = self.requests.iter().filter_map(|&((seq, part), ref run)| match run {
            DedupeEntry::Done(done) if done.stamp <= upto => Some((seq, part, *done)),
            DedupeEntry::Done(_) | DedupeEntry::InFlight { .. } => None,
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
    pub(crate) fn recall(&self, seq: Seq, part: u8) -> Result<Option<DedupeEntry>, BelowFloor> {
        if seq < self.floor {
            return Err(BelowFloor { floor: self.floor });
        }
        Ok(self.find(seq, part).ok().map(|at| self.requests[at].1))
    }

    /// The first part of `seq` on this chain, and how far it has come.
    pub(crate) fn first_part(&self, seq: Seq) -> Option<(u8, DedupeEntry)> {
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

    /// Stores the state of a request. Returns the former one.
    fn put(&mut self, seq: Seq, part: u8, run: DedupeEntry) -> Option<DedupeEntry> {
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
