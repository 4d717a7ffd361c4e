//! Restart of a replica from its log, and the state that it exports so that a restart need not read every record.

use frieze_base::{ChainEpoch, SessionId};
use frieze_hlc::Hlc;
use frieze_wire::chain::RecordHeader;

use super::model::Replica;
use crate::dedupe::SessionMemory;
use crate::error::Error;
use crate::message::{ResumePoint, WriteDone};

impl Replica {
    /// Restores the position after one record of this chain, instead of a [`Replica::replay`] of every record up to it.
    /// The memory of their requests is restored by [`Replica::restore_session`]. Only before the first `replay` and
    /// `step`.
    pub fn resume(&mut self, last: &ResumePoint) {
        assert!(self.last == 0 && self.tokens == 0, "a chain resumes before anything else");
        (self.last, self.appended, self.clean) = (last.n, last.n, last.n);
        (self.newest, self.newest_group) = (last.stamp, (last.session, last.seq));
        self.last_epoch = last.epoch;
        self.note_epoch(last.epoch, last.n);
        self.configuration.epoch = self.configuration.epoch.max(last.epoch);
    }

    /// The memory of requests whose records are stamped up to `upto`, by session: what a restart without those records
    /// needs. `None` while one of them is not committed.
    pub fn session_memories(&self, upto: Hlc) -> Option<Vec<(SessionId, SessionMemory)>> {
        if self.first_dirty().is_some_and(|stamp| stamp <= upto) {
            return None;
        }
        Some(self.sessions.iter().map(|(session, memory)| (*session, memory.upto(upto))).collect())
    }

    /// The configurations under which records up to number `upto` were stamped, in order, with the number of the last
    /// of each: so much has to be kept, too, so that a log that went another way long ago need not be sent whole.
    pub fn epochs(&self, upto: u64) -> Vec<(ChainEpoch, u64)> {
        let mut before = 0;
        let begun = self.epochs.iter().take_while(|(_, last)| std::mem::replace(&mut before, *last) < upto);
        begun.map(|&(epoch, last)| (epoch, last.min(upto))).collect()
    }

    /// Restores the result of [`Replica::epochs`], after [`Replica::resume`] and before anything else.
    pub fn restore_epochs(&mut self, epochs: &[(ChainEpoch, u64)]) {
        let (epoch, last) = (self.last_epoch, self.last);
        self.epochs = epochs.iter().copied().filter(|(other, n)| *other < epoch && *n < last).collect();
        if last > 0 {
            self.note_epoch(epoch, last);
        }
    }

    /// Restores the result of [`Replica::session_memories`] for a session.
    pub fn restore_session(&mut self, session: SessionId, remembered: &SessionMemory) {
        let memory = self.sessions.entry(session).or_default();
        for &(seq, part, done) in &remembered.done {
            memory.replay(seq, part, done, self.settings.remembered_max);
        }
        memory.acknowledge(remembered.floor);
    }

    /// Takes the next recovered record: sequence, stamps and memory continue from it. Only before the first `step`, in
    /// the order of the log.
    ///
    /// Returns how many records of this chain are missing before it: 0 unless the log lost something in its middle.
    /// A restart is a new configuration: afterwards the driver configures an epoch above [`Replica::epoch`], so that
    /// the numbers of records that a crash lost are not used twice in one epoch.
    ///
    /// # Errors
    /// `OutOfOrder` if number, stamp or epoch lie before those of the last record; the record is left out.
    pub fn replay(&mut self, record: &RecordHeader) -> Result<u64, Error> {
        assert!(self.dirty.is_empty() && self.tokens == 0, "records are replayed before the first step");
        let group = (record.session, record.seq);
        let stamp_rises = record.stamp > self.newest || self.is_further_part(record.stamp, group, record.part);
        if record.n <= self.last || !stamp_rises || record.epoch < self.last_epoch {
            return Err(Error::OutOfOrder {
                chain: self.chain,
                n: record.n,
                stamp: record.stamp,
                last_n: self.last,
                last_stamp: self.newest,
            });
        }
        let missing = record.n - self.last - 1;
        self.last = record.n;
        self.appended = record.n;
        self.clean = record.n;
        self.newest = record.stamp;
        self.newest_group = group;
        self.last_epoch = record.epoch;
        self.note_epoch(record.epoch, record.n);
        self.configuration.epoch = self.configuration.epoch.max(record.epoch);
        let done = WriteDone { stamp: record.stamp, chunk: record.chunk, offset: record.offset };
        let memory = self.sessions.entry(record.session).or_default();
        memory.replay(record.seq, record.part, done, self.settings.remembered_max);
        Ok(missing)
    }
}
