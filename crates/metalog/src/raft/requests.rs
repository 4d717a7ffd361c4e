//! What is asked of a member beside proposals: instants to close, positions to read at, other members, another leader.

use frieze_base::NodeId;
use frieze_hlc::Hlc;

use super::member::{RaftMember, ReadRequest};
use super::message::{BatchDurability, MemberChange, MemberEffect, PeerMessage, RaftRole};
use super::peer;
use crate::error::Error;
use crate::message::DataEnd;

impl RaftMember {
    /// False if so many records wait for a flush that a proposal would be refused: it can wait for the flush.
    pub fn has_room(&self) -> bool {
        ((self.journal.last() - self.journal.durable()) as usize) < self.unflushed_max()
    }

    pub(super) fn on_close(&mut self, clock: Hlc, instant: Hlc, out: &mut Vec<MemberEffect>) -> Result<(), Error> {
        if instant <= self.committed_stamp {
            out.push(MemberEffect::Closed { at: instant });
            return Ok(());
        }
        if instant > clock {
            return Err(Error::CloseFuture { at: instant, clock });
        }
        self.check_leads()?;
        let max = self.settings.closing_max;
        if self.closing.len() >= max {
            return Err(Error::Overloaded { what: "instants waiting to close", max: max as u64 });
        }
        // An entry without transactions: what comes after it is stamped above it, under any leader. The newest stamp
        // that is known may be that of an entry that is in no log any more.
        if self.newest_stamp(self.committed().0, self.last().0) < instant {
            self.propose(clock, &[], 0, DataEnd::default(), BatchDurability::Memory)?;
        }
        self.closing.push(instant);
        Ok(())
    }

    pub(super) fn on_read(&mut self, token: u64) -> Result<(), Error> {
        self.check_belongs()?;
        // Without a leader it waits for the next one: it is sent again every few ticks.
        let max = self.settings.reads_max;
        if self.reads.len() >= max {
            return Err(Error::Overloaded { what: "questions about reads", max: max as u64 });
        }
        self.last_read += 1;
        self.reads.insert(self.last_read, ReadRequest { token, ticks: 0 });
        self.node.read_index(self.read_name(self.last_read));
        Ok(())
    }

    /// What a question is called among the members: never the same twice.
    pub(super) fn read_name(&self, number: u64) -> Vec<u8> {
        let mut name = self.id.0.to_le_bytes().to_vec();
        name.extend_from_slice(&self.read_salt.to_le_bytes());
        name.extend_from_slice(&number.to_le_bytes());
        name
    }

    /// A question of another member, with the leader's own number behind its name. The question may come again, and the
    /// members' answers name it: an answer to an earlier heartbeat must not count for a later one. A question that is
    /// repeated waits in the library once for each time; one answer ends all before it, and a leader that no majority
    /// answers stands down within an election timeout, which drops them.
    pub(super) fn number_question(&mut self, asked: &PeerMessage) -> PeerMessage {
        self.questions += 1;
        let mut numbered = asked.clone();
        for entry in &mut numbered.entries {
            entry.data = [entry.data.as_ref(), &self.questions.to_le_bytes()].concat().into();
        }
        numbered
    }

    /// The question that a name stands for, if it is one of this process. The leader's number may follow the name.
    pub(super) fn take_read(&mut self, name: &[u8]) -> Option<ReadRequest> {
        let number = u64::from_le_bytes(name.get(12..20)?.try_into().ok()?);
        if !name.starts_with(&self.read_name(number)) {
            return None;
        }
        self.reads.remove(&number)
    }

    pub(super) fn on_change(&mut self, change: MemberChange) -> Result<MemberEffect, Error> {
        self.check_leads()?;
        self.check_room()?;
        let members = self.members();
        match change {
            MemberChange::Add(NodeId(0)) => return Err(Error::BadChange { what: "0 is no node id" }),
            MemberChange::Add(node) if members.contains(node) => {
                return Err(Error::BadChange { what: "it is a member" });
            }
            MemberChange::Remove(node) if !members.contains(node) => {
                return Err(Error::BadChange { what: "it is no member" });
            }
            MemberChange::Promote(node) if !members.learners.contains(&node) => {
                return Err(Error::BadChange { what: "it is no learner" });
            }
            MemberChange::Promote(_) if members.voters.len() >= self.settings.voters_max => {
                return Err(Error::BadChange { what: "as many vote as may: another is to be demoted first" });
            }
            MemberChange::Promote(node) if !self.caught_up().contains(&node) => {
                return Err(Error::NotCaughtUp { node });
            }
            MemberChange::Demote(node) if !members.voters.contains(&node) => {
                return Err(Error::BadChange { what: "it has no vote" });
            }
            MemberChange::Remove(node) | MemberChange::Demote(node) if members.voters == [node] => {
                return Err(Error::BadChange { what: "it is the only voter" });
            }
            MemberChange::Add(_) | MemberChange::Promote(_) | MemberChange::Demote(_) | MemberChange::Remove(_) => {}
        }
        if self.node.raft.has_pending_conf() {
            return Err(Error::Changing);
        }
        if [MemberChange::Remove(self.id), MemberChange::Demote(self.id)].contains(&change) {
            // The next leader can take it out; this one could not tell the others that it is done.
            let next = self.next_leader().ok_or(Error::BadChange { what: "nobody else could lead" })?;
            self.node.transfer_leader(next.0.into());
            return Err(Error::NotLeader { leader: Some(next) });
        }
        let proposed = self.node.propose_conf_change(Vec::new(), peer::change_of(change));
        proposed.map_err(|_| Error::Changing)?;
        Ok(MemberEffect::Proposed { index: self.last(), term: self.term() })
    }

    /// The other voter that has most of the log, of those that were heard lately; for a leader that wants to hand over.
    pub fn next_leader(&self) -> Option<NodeId> {
        let prs = self.node.raft.prs();
        let others = self.members().voters.iter().copied().filter(|voter| *voter != self.id);
        others.max_by_key(|voter| prs.get(voter.0.into()).map(|at| (at.recent_active, at.matched)))
    }

    pub(super) fn on_transfer(&mut self, to: NodeId) -> Result<(), Error> {
        // Another than the one asked before will do too.
        if self.role() != RaftRole::Leader {
            return Err(Error::NotLeader { leader: self.leader() });
        }
        if !self.members().voters.contains(&to) {
            return Err(Error::BadChange { what: "only a voter can lead" });
        }
        self.node.transfer_leader(to.0.into());
        Ok(())
    }
}
