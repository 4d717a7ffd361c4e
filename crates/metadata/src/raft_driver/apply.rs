//! Committed entries are executed, and the log is cut behind them.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use frieze_base::{Fault, LogIndex, Reason};
use frieze_metalog::{LogEntry, MemberInput, SnapshotMeta};
use prost::Message;

use super::super::codec;
use super::super::state::AppliedState;
use super::driver::{ProposedBatch, RaftCore, RaftDriver};

/// Entries kept for members that lag, at most, and their bytes: a member that lags more gets the state.
const KEPT_ENTRIES: usize = 4096;
const KEPT_BYTES: usize = 64 << 20;
/// The same while a state is on its way to a member that needs what follows it.
const KEPT_BYTES_SENDING: usize = 256 << 20;

impl RaftDriver {
    /// Executes committed entries.
    ///
    /// # Errors
    /// `Corrupt`: one cannot be decoded. `NoSpace`: the store cannot write tables, and memory for what waits for them
    /// is used up; a leader refuses changes long before.
    pub(super) fn apply_committed(
        &self,
        core: &mut RaftCore,
        state: &AppliedState,
        through: LogIndex,
        entries: Vec<LogEntry>,
    ) -> Result<(), Fault> {
        if state.versions.is_overfull() {
            // Only of the fault: no entry becomes durable here.
            state.versions.settle(LogIndex(0))?;
        }
        let mut answers = Vec::new();
        let mut last = LogIndex(0);
        for entry in entries {
            let place = (entry.index, entry.stamp);
            match core.proposed.remove(&entry.index.0).filter(|proposed| proposed.term == entry.term) {
                Some(ProposedBatch { batch, slots, .. }) => {
                    let outcomes = state.apply_batch(place, &batch, slots.iter().map(|slot| slot.reads()));
                    answers.extend(slots.into_iter().zip(outcomes));
                }
                None => state.apply_entry(&entry)?,
            }
            if !self.is_alone() {
                core.kept.push_back((entry.index, entry.body.len()));
                core.kept_bytes += entry.body.len();
            }
            last = entry.index;
        }
        if last < through {
            // The store's place moves on with entries that hold nothing, too.
            state.versions.add(through, Vec::new());
        }
        self.seen.applied.store(through.0, Ordering::Release);
        for (slot, outcome) in answers {
            slot.set_done(Ok(outcome));
            core.answered.push(slot);
        }
        Ok(())
    }

    /// Puts the state that was received in the place of the one here.
    pub(super) fn install_snapshot(
        &self,
        core: &mut RaftCore,
        state: &AppliedState,
        meta: &SnapshotMeta,
    ) -> Result<(), Fault> {
        if core.received.take().is_none_or(|received| received != *meta) {
            return Err(Fault::new(Reason::Internal, format!("the state after entry {} has not come", meta.index)));
        }
        state.install_snapshot(meta.index, &codec::state_to_wire(meta).encode_to_vec())?;
        self.seen.applied.store(meta.index.0, Ordering::Release);
        (core.kept, core.kept_bytes) = (VecDeque::new(), 0);
        Ok(())
    }

    /// The store holds entries up to `through` durably. Some are kept for members that lag.
    pub(crate) fn truncate(&self, state: &AppliedState, through: LogIndex) {
        let mut core = self.lock();
        if self.is_alone() {
            if core.member.last() <= core.begun {
                // Nothing has changed since the start: the next one reads what this one has read.
                return;
            }
            (core.kept, core.kept_bytes) = (VecDeque::new(), 0);
            return self.feed(&mut core, state, MemberInput::Truncate { through });
        }
        let sending = self.transfers.oldest();
        let bytes_max = if sending.is_some() { KEPT_BYTES_SENDING } else { KEPT_BYTES };
        let mut upto = LogIndex(0);
        while core.kept_bytes > bytes_max
            || (core.kept.len() > KEPT_ENTRIES
                && core.kept.front().is_some_and(|(index, _)| sending.is_none_or(|sending| *index <= sending)))
        {
            let Some((index, bytes)) = core.kept.pop_front() else { break };
            core.kept_bytes -= bytes;
            upto = index;
        }
        if upto > LogIndex(0) {
            let through = upto.min(through);
            self.feed(&mut core, state, MemberInput::Truncate { through });
        }
    }
}
