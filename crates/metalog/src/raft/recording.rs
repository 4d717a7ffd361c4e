//! Records of the journal are written, and withdrawn if they could not be.

use frieze_base::{LogIndex, Reason};

use super::journal::FlushDue;
use super::member::RaftMember;
use super::message::MemberEffect;
use super::record::JournalRecord;
use crate::error::Error;
use crate::message::DataEnd;

impl RaftMember {
    /// Writes a record with what the member may not forget.
    pub(super) fn write(&mut self, record: JournalRecord, out: &mut Vec<MemberEffect>) -> Result<(), Error> {
        let state = self.node.raft.hard_state();
        let whole = JournalRecord { term: state.term, vote: state.vote, commit: state.commit, ..record };
        (self.recorded_commit, self.ticks_without_record) = (whole.commit, 0);
        let is_kept =
            self.recorded_vote != (whole.term, whole.vote) || whole.base.as_ref().is_some_and(|base| base.anew);
        self.recorded_vote = (whole.term, whole.vote);
        // Before a proposal is refused for them.
        let flush = FlushDue::After(self.unflushed_max() as u64 / 2);
        let number = self.journal.append(whole, flush, out)?;
        if is_kept {
            self.kept_record = number;
        }
        Ok(())
    }

    /// Records on their way to stable storage, beyond which proposals are refused.
    pub(super) fn unflushed_max(&self) -> usize {
        match self.is_only_voter() {
            true => self.settings.unflushed_records_max,
            false => self.settings.records_in_flight_max,
        }
    }

    /// End of this server's data log: what is written from now on may name data before it. Entries that name data and
    /// are written here count after a loss of power only with all of that.
    pub fn note_data_end(&mut self, end: DataEnd) {
        self.journal.note_data_end(end);
    }

    /// A record could not be written: it goes, with all after it, and the entries in them as if they had never been
    /// proposed. No other member has them, and nothing was answered by them.
    ///
    /// # Errors
    /// `AppendFailed` if others may have them, or if the record holds what a member may not forget.
    pub(super) fn withdraw(
        &mut self,
        record: LogIndex,
        reason: Reason,
        out: &mut Vec<MemberEffect>,
    ) -> Result<(), Error> {
        let error = Error::AppendFailed { reason };
        if record.0 > self.journal.last() {
            // Withdrawn already, together with one before it.
            return Ok(());
        }
        let is_alone = self.is_only_voter() && self.members().learners.is_empty();
        if !is_alone || !self.leads() || record.0 <= self.kept_record {
            return Err(error);
        }
        let last = self.journal.last_entry_before(record.0).unwrap_or_else(|| self.last().0);
        assert!(last >= self.committed().0, "entry {last} and those before it are committed, and were not written");
        self.journal.withdraw(record, last, out);
        self.held_back.retain(|held| held.written < record.0);
        if self.stable_first >= record.0 {
            // What is held back waits for the records before it in any case.
            self.stable_first = self.kept_record;
        }
        let gone = self.node.mut_store().truncate(last);
        let raft = &mut self.node.raft;
        raft.reduce_uncommitted_size(&gone);
        raft.pending_conf_index = raft.pending_conf_index.min(last);
        raft.raft_log.unstable.offset = last + 1;
        self.recorded_commit = 0;
        let closing = self.closing.drain(..);
        out.extend(closing.map(|at| MemberEffect::NotClosed { at, error: error.clone() }));
        out.push(MemberEffect::Withdrawn { after: LogIndex(last), error });
        Ok(())
    }
}
