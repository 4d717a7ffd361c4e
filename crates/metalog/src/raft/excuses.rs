//! Elections without a voter that the operator declared lost.
//!
//! If too many voters lost their memory, an election needs the votes of all ([`super::memory`]). If one of them is lost
//! for good, the operator says so, and the others *excuse* it.
//!
//! # Rules
//! - A member takes a declaration while it knows no leader: with a leader, the log decides about nodes. It says it to
//!   the others, because the member with the longest log has to win.
//! - The votes of all voters that are not excused suffice, if they are a majority of the voters: what is on stable
//!   storage of a majority is on one of them. It is a loss, as an election by all is; what only the excused voter had
//!   in memory is a part of it.
//! - An excuse has the term of its declaration. A member that has an entry of a later term does not count it: the first
//!   entry of a leader is on the stable storage of a majority, so each candidate that can win has one of every leader
//!   that answered anything since.
//! - An excused voter may be alive, and may have executed what is lost now. It wins no election, for its log is older.
//!   When a leader sends an entry that contradicts one that it executed, it fails: it would acknowledge what it does
//!   not have. Before that it answers no read: at the index of the leader's answer it has no entry of the leader's
//!   term. A state that is sent replaces all that it executed, as at a learner.
//!
//! # Source
//! ADR 75; `tests/returning_model.rs`, where each of these rules can be removed.

use frieze_base::{LogIndex, NodeId};

use super::member::RaftMember;
use super::memory::is_majority;
use super::message::{MemberEffect, PeerKind, PeerMessage};
use crate::error::Error;

impl RaftMember {
    /// True if an election does not wait for this voter.
    pub(super) fn is_excused(&self, voter: NodeId) -> bool {
        let newest = self.term_at(self.last()).unwrap_or(0);
        self.memory.excuses.get(&voter).is_some_and(|since| newest <= *since)
    }

    /// The operator says that a voter is lost.
    pub(super) fn on_declare_lost(&mut self, node: NodeId, out: &mut Vec<MemberEffect>) -> Result<(), Error> {
        let before = self.memory.excuses.get(&node).copied();
        self.excuse(node, self.term())?;
        if self.memory.excuses.get(&node).copied() != before {
            self.repeat_excuses(out);
        }
        Ok(())
    }

    /// Another member repeats the operator's declaration. If it is refused, this member knows a leader or other voters;
    /// the operator declares the voter lost again if no leader is found.
    pub(super) fn on_peer_excuses(&mut self, message: &PeerMessage) {
        if let Ok(node) = u32::try_from(message.hint.0) {
            let _refused = self.excuse(NodeId(node), message.log_term.min(message.term));
        }
    }

    fn excuse(&mut self, node: NodeId, since: u64) -> Result<(), Error> {
        let bad = |what| Err(Error::BadChange { what });
        if let Some(leader) = self.leader() {
            return Err(Error::NotLeader { leader: Some(leader) });
        }
        let voters = &self.members().voters;
        if node == self.id {
            return bad("it is the member that is asked");
        }
        if !voters.contains(&node) && !self.voters_to_be().contains(&node) {
            return bad("it has no vote");
        }
        if !is_majority(voters, |voter| *voter != node && !self.is_excused(*voter)) {
            return bad("the voters that are left are no majority: 'frieze cluster recover' goes on from one server");
        }
        let known = self.memory.excuses.entry(node).or_insert(since);
        *known = since.max(*known);
        Ok(())
    }

    /// Says to the others which voters are declared lost, while no leader is known.
    pub(super) fn repeat_excuses(&mut self, out: &mut Vec<MemberEffect>) {
        if self.memory.excuses.is_empty() || self.leader().is_some() {
            return;
        }
        let others: Vec<NodeId> = self.members().voters.iter().copied().filter(|node| *node != self.id).collect();
        for (node, since) in self.memory.excuses.clone() {
            for to in others.iter().filter(|to| **to != node) {
                let (hint, log_term) = (LogIndex(node.0.into()), since);
                let said = PeerMessage { hint, log_term, ..self.message(PeerKind::DeclareLost, *to) };
                self.send(said, out);
            }
        }
    }

    /// False if the leader's answer to a question about reads is for another log than that which this member executed.
    pub(super) fn reads_of_leader(&self, message: &PeerMessage) -> bool {
        let (index, base) = (message.index.max(self.base().index), self.base());
        if index > self.committed() {
            // What is executed by then is of the leader's log.
            return true;
        }
        let term = if index == base.index { Some(base.term) } else { self.term_at(index) };
        term.is_some_and(|term| term >= message.term)
    }
}
