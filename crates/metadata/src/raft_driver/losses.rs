//! What a loss of power at all members may take: entries that were in memory only.
//!
//! Guarantees: no inode number that a client has seen is ever given to another inode. A leader orders while fewer than
//! [`NEW_IDS_MAX`] numbers lie in entries that are not known to be durable, and a leader whose election may have lost
//! entries leaves out [`IDS_LEFT_OUT`] numbers above the last one of its log: a change of the state, so that entries
//! before it give the same numbers whenever they are executed again. It declares the interval in which entries
//! may be lost before it orders anything else, in a batch that is committed from stable storage.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use frieze_base::LogIndex;
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

    /// This member has again what it lost. If that cannot be noted, the next start takes it for returning again, which
    /// is slower and no harm.
    pub(super) fn on_up_to_date(&self) {
        let _noted = self.keeper.update(|identity| identity.is_returning = false);
    }

    /// Declares what the election of this leader may have lost. False: not yet, and nothing else may be ordered.
    pub(super) fn declare_loss(&self, core: &mut RaftCore, state: &AppliedState) -> bool {
        let Some(after) = core.lost_after.filter(|_| self.leads()) else { return false };
        let Ok(stamp) = self.stamp(core, 1) else { return false };
        let ids_above = state.read().last_id().0 + IDS_LEFT_OUT;
        let lost = LostInterval { from: after.0, to: stamp.0 };
        let decisions = vec![Decision::LoseNames(lost).to_wire()];
        let batch = Batch { transactions: Vec::new(), ids_above, decisions };
        let (data_end, durability) = (DataEnd::default(), BatchDurability::Stable);
        let input = MemberInput::Propose { body: batch.encode_to_vec(), count: 1, data_end, durability };
        let before = core.member.last();
        core.lost_after = None;
        self.step(core, state, stamp, input, InputReply::Nothing);
        if core.member.last() == before {
            // It was refused: there is no room for it now.
            core.lost_after = Some(after);
            return false;
        }
        warn!(
            "the members of the metalog lost power together: changes of names between {after} and {stamp} that were \
             not synced may be lost"
        );
        true
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
        ids.begin_after(LogIndex(9));
        assert!(!ids.have_room());
        ids.durable(LogIndex(9));
        assert!(ids.have_room());
    }
}
