//! What a loss of power at all members may take: entries that were in memory only.
//!
//! Guarantees: no inode number that a client has seen is ever given to another inode. A leader orders while fewer than
//! [`NEW_IDS_MAX`] numbers lie in entries that are not known to be durable, and a leader whose election may have lost
//! entries leaves out [`IDS_LEFT_OUT`] numbers above the last one of its log: a change of the state, so that entries
//! before it give the same numbers whenever they are executed again. It declares the interval in which entries
//! may be lost before it orders anything else, in a batch that is committed from stable storage.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use frieze_base::{Fault, LogIndex, Reason};
use frieze_cluster::{Decision, LostInterval};
use frieze_metalog::{BatchDurability, DataEnd, MemberInput};
use frieze_wire::txn::Batch;
use prost::Message;
use tracing::warn;

use super::super::state::AppliedState;
use super::driver::{InputReply, RaftCore, RaftDriver};

/// Numbers in entries that are not known to be durable, from which on no further batch is ordered. More: less waiting
/// for flushes where files are made fast.
const NEW_IDS_MAX: usize = 65_536;
/// Numbers that are left out after a loss: those, and as many as the largest batch can give. Its body has 32 MiB, and
/// each number takes more than ten bytes of it.
const IDS_LEFT_OUT: u64 = 1 << 23;

/// Inode numbers that entries give which are not known to be durable.
#[derive(Default)]
pub(super) struct UnsafeIds {
    /// By entry, oldest first.
    entries: VecDeque<(LogIndex, usize)>,
    count: usize,
}

impl UnsafeIds {
    /// The numbers in what a leader found in its log are not known: they count as many until it is durable.
    pub(super) fn begin_after(&mut self, last: LogIndex) {
        self.entries = [(last, NEW_IDS_MAX)].into();
        self.count = NEW_IDS_MAX;
    }

    pub(super) fn add(&mut self, index: LogIndex, count: usize) {
        self.entries.push_back((index, count));
        self.count += count;
    }

    pub(super) fn durable(&mut self, upto: LogIndex) {
        while let Some((_, count)) = self.entries.pop_front_if(|(index, _)| *index <= upto) {
            self.count -= count;
        }
    }

    /// The entries after `last` are as if they had never been ordered.
    pub(super) fn withdraw(&mut self, last: LogIndex) {
        while let Some((_, count)) = self.entries.pop_back_if(|(index, _)| *index > last) {
            self.count -= count;
        }
    }

    pub(super) fn have_room(&self) -> bool {
        self.count < NEW_IDS_MAX
    }
}

impl RaftDriver {
    /// Notes how far the log is on stable storage at a majority.
    pub(super) fn note_durable(&self, core: &mut RaftCore) {
        let durable = core.member.durable();
        core.new_ids.durable(durable);
        self.seen.durable.store(durable.0, Ordering::Release);
    }

    /// Notes in the directory that this member has again what it lost, once it has declared what no member has. If that
    /// cannot be noted, the next start takes it for returning again, which is slower and no harm.
    pub(super) fn note_back(&self, core: &mut RaftCore) {
        let is_declared = core.lost_after.is_none() && core.loss_entry.is_none_or(|entry| entry <= self.applied());
        if core.is_back && is_declared {
            core.is_back = false;
            let _noted = self.keeper.update(|identity| identity.is_returning = false);
        }
    }

    /// Declares what the election of this leader may have lost.
    ///
    /// # Errors
    /// `Unavailable`, those of a clock that is not trusted: not yet, and nothing else may be ordered.
    pub(super) fn declare_loss(&self, core: &mut RaftCore, state: &AppliedState) -> Result<(), Fault> {
        let Some(after) = core.lost_after.filter(|_| self.leads()) else { return Err(self.not_leader()) };
        let stamp = self.stamp(core, 1)?;
        let ids_above = state.read().numbers().newest() + IDS_LEFT_OUT;
        let lost = LostInterval { from: after.0, to: stamp.0 };
        // Without a cluster there are no chains in the log: the gap is in the identity of the directory.
        let mut is_founded = false;
        state.look_at_control(&mut |control| is_founded = control.is_founded());
        let decisions = if is_founded { vec![Decision::LoseNames(lost).to_wire()] } else { Vec::new() };
        let batch = Batch { transactions: Vec::new(), ids_above, decisions };
        let (data_end, durability) = (DataEnd::default(), BatchDurability::Stable);
        let input = MemberInput::Propose { body: batch.encode_to_vec(), count: 1, data_end, durability };
        let before = core.member.last();
        core.lost_after = None;
        self.step(core, state, stamp, input, InputReply::Nothing);
        if core.member.last() == before {
            // It was refused: there is no room for it now.
            core.lost_after = Some(after);
            return Err(Fault::new(Reason::Unavailable, "what a loss of power took cannot be declared yet: try again"));
        }
        core.loss_entry = Some(core.member.last());
        if !is_founded {
            return Ok(());
        }
        warn!(
            "the members of the metalog lost power together: changes of names between {after} and {stamp} that were \
             not synced may be lost"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_until_their_entries_are_durable() {
        let mut ids = UnsafeIds::default();
        assert!(ids.have_room());
        ids.add(LogIndex(5), NEW_IDS_MAX - 1);
        assert!(ids.have_room());
        ids.add(LogIndex(6), 1);
        assert!(!ids.have_room());
        ids.durable(LogIndex(4));
        assert!(!ids.have_room());
        ids.durable(LogIndex(5));
        assert!(ids.have_room());
        ids.add(LogIndex(7), NEW_IDS_MAX);
        assert!(!ids.have_room());
        ids.withdraw(LogIndex(6));
        assert!(ids.have_room());
        ids.begin_after(LogIndex(9));
        assert!(!ids.have_room());
        ids.durable(LogIndex(9));
        assert!(ids.have_room());
    }
}
