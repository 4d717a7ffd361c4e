//! The log as the Raft core reads it: everything since the base, in memory. What is on disk is the journal's.

use std::collections::VecDeque;

use frieze_base::LogIndex;
use frieze_hlc::Hlc;
use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Result, Storage, StorageError};

use super::message::{Members, SnapshotMeta};
use super::peer;

/// Entries after the base, and what the library asks for beside them.
#[derive(Debug)]
pub(super) struct Store {
    base: SnapshotMeta,
    entries: VecDeque<Entry>,
    state: HardState,
    /// The members from an entry on, oldest first: at least those as of the base.
    members: VecDeque<(u64, Members)>,
    /// The state machine holds everything up to here.
    applied: u64,
    /// Newest stamp up to there.
    applied_stamp: Hlc,
}

impl Store {
    pub(super) fn new(base: SnapshotMeta, entries: VecDeque<Entry>, state: HardState) -> Store {
        let members = [(base.index.0, base.members.clone())].into();
        let (applied, applied_stamp) = (base.index.0, base.stamp);
        Store { base, entries, state, members, applied, applied_stamp }
    }

    pub(super) fn base(&self) -> &SnapshotMeta {
        &self.base
    }

    pub(super) fn last(&self) -> u64 {
        self.base.index.0 + self.entries.len() as u64
    }

    /// The members that the newest applied change made.
    pub(super) fn members(&self) -> &Members {
        &self.members.back().expect("those of the base are kept").1
    }

    pub(super) fn change_members(&mut self, index: u64, members: Members) {
        self.members.push_back((index, members));
    }

    pub(super) fn applied(&self) -> u64 {
        self.applied
    }

    pub(super) fn apply(&mut self, index: u64, stamp: Hlc) {
        self.applied = index;
        self.applied_stamp = self.applied_stamp.max(stamp);
    }

    /// Puts entries at the end, over those that they replace.
    pub(super) fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        assert!(first.index > self.base.index.0 && first.index <= self.last() + 1, "entries follow each other");
        self.entries.truncate((first.index - self.base.index.0 - 1) as usize);
        self.entries.extend(entries.iter().cloned());
    }

    /// Takes back the entries after `last`, and returns them.
    pub(super) fn truncate(&mut self, last: u64) -> Vec<Entry> {
        let kept = last.saturating_sub(self.base.index.0) as usize;
        self.entries.split_off(kept.min(self.entries.len())).into()
    }

    /// Lets go of what a later base stands for. `base` lies in the log.
    pub(super) fn compact(&mut self, base: SnapshotMeta) {
        let count = (base.index.0 - self.base.index.0) as usize;
        self.entries.drain(..count);
        while self.members.get(1).is_some_and(|(from, _)| *from <= base.index.0) {
            self.members.pop_front();
        }
        self.base = base;
    }

    /// Begins anew from a state that was received.
    pub(super) fn install(&mut self, base: SnapshotMeta) {
        self.entries.clear();
        self.members = [(base.index.0, base.members.clone())].into();
        self.applied = base.index.0;
        self.applied_stamp = base.stamp;
        self.base = base;
    }

    /// What the state after `index`, which is applied, is called. `None` if it lies before the base or after the log.
    pub(super) fn meta_at(&self, index: u64, stamp: Hlc) -> Option<SnapshotMeta> {
        let term = self.term(index).ok()?;
        let members = self.members.iter().rev().find(|(from, _)| *from <= index)?.1.clone();
        Some(SnapshotMeta { index: LogIndex(index), term, stamp, members })
    }

    pub(super) fn entry(&self, index: u64) -> Option<&Entry> {
        self.entries.get(index.checked_sub(self.base.index.0 + 1)? as usize)
    }
}

impl Storage for Store {
    fn initial_state(&self) -> Result<RaftState> {
        let conf_state: ConfState = peer::conf_state(&self.base.members);
        Ok(RaftState { hard_state: self.state.clone(), conf_state })
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> Result<Vec<Entry>> {
        if low <= self.base.index.0 {
            return Err(Error::Store(StorageError::Compacted));
        }
        if high > self.last() + 1 {
            return Err(Error::Store(StorageError::Unavailable));
        }
        let max = max_size.into().unwrap_or(u64::MAX);
        let from = (low - self.base.index.0 - 1) as usize;
        let mut bytes = 0;
        let mut found = Vec::new();
        for entry in self.entries.range(from..from + (high - low) as usize) {
            bytes += entry.data.len() as u64 + peer::ENTRY_OVERHEAD_BYTES;
            if bytes > max && !found.is_empty() {
                break;
            }
            found.push(entry.clone());
        }
        Ok(found)
    }

    fn term(&self, index: u64) -> Result<u64> {
        if index == self.base.index.0 {
            return Ok(self.base.term);
        }
        if index < self.base.index.0 {
            return Err(Error::Store(StorageError::Compacted));
        }
        self.entry(index).map(|entry| entry.term).ok_or(Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> Result<u64> {
        Ok(self.base.index.0 + 1)
    }

    fn last_index(&self) -> Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, request_index: u64, _to: u64) -> Result<Snapshot> {
        let unavailable = || Error::Store(StorageError::SnapshotTemporarilyUnavailable);
        if self.applied < request_index || self.applied == 0 {
            return Err(unavailable());
        }
        let meta = self.meta_at(self.applied, self.applied_stamp).ok_or_else(unavailable)?;
        Ok(peer::snapshot_of(&meta))
    }
}
