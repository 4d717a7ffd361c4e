//! Where a member is.

use std::sync::atomic::Ordering;

use frieze_base::{Fault, LogIndex, NodeId, Reason};
use frieze_hlc::Hlc;
use frieze_metalog::{Error, Members};

use super::driver::RaftDriver;

/// What is to be known of a member from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetalogStatus {
    /// It leads, and holds all that was committed before.
    pub leads: bool,
    /// The leader, as far as it knows.
    pub leader: Option<NodeId>,
    /// Its term.
    pub term: u64,
    /// The members, as far as it knows.
    pub members: Members,
    /// The learners that could vote at once, as far as it leads.
    pub caught_up: Vec<NodeId>,
    /// Voters that there may be.
    pub voters_max: usize,
    /// Last entry that it no longer holds: the state stands for it.
    pub first: LogIndex,
    /// Last entry of its log.
    pub last: LogIndex,
    /// Last entry executed.
    pub applied: LogIndex,
    /// The closed timestamp.
    pub closed: Hlc,
    /// Why it is silent, if it is.
    pub failed: Option<Fault>,
}

impl MetalogStatus {
    /// What a node is in the metalog: a `voter`, a `learner`, `joining`: a learner that votes once it has caught up;
    /// empty if it is no member.
    pub fn role_of(&self, node: NodeId) -> &'static str {
        if self.members.voters.contains(&node) {
            "voter"
        } else if !self.members.learners.contains(&node) {
            ""
        } else if self.members.voters.len() < self.voters_max {
            "joining"
        } else {
            "learner"
        }
    }
}

impl RaftDriver {
    pub(crate) fn applied(&self) -> LogIndex {
        LogIndex(self.seen.applied.load(Ordering::Acquire))
    }

    /// A majority of the voters has the log on stable storage up to this entry, and this server knows.
    pub(crate) fn durable(&self) -> LogIndex {
        LogIndex(self.seen.durable.load(Ordering::Acquire))
    }

    pub(crate) fn closed(&self) -> Hlc {
        Hlc(self.seen.closed.load(Ordering::Acquire))
    }

    pub(crate) fn leads(&self) -> bool {
        self.seen.leads.load(Ordering::Acquire)
    }

    pub(crate) fn leader_terms(&self) -> u64 {
        self.seen.reigns.load(Ordering::Acquire)
    }

    pub(crate) fn leader(&self) -> Option<NodeId> {
        Some(NodeId(self.seen.leader.load(Ordering::Acquire))).filter(|leader| leader.0 > 0)
    }

    pub(crate) fn newest(&self) -> Hlc {
        self.lock().member.newest()
    }

    pub(crate) fn status(&self) -> MetalogStatus {
        let core = self.lock();
        MetalogStatus {
            leads: self.leads(),
            leader: core.member.leader().filter(|_| core.failed.is_none()),
            term: core.member.term(),
            members: core.member.members().clone(),
            caught_up: core.member.caught_up(),
            voters_max: core.member.voters_max(),
            first: core.member.base().index,
            last: core.member.last(),
            applied: self.applied(),
            closed: self.closed(),
            failed: core.failed.clone(),
        }
    }

    /// Why a transaction is not taken here.
    pub(crate) fn not_leader(&self) -> Fault {
        match self.leader() {
            Some(leader) if leader == self.id => {
                Fault::new(Reason::Unavailable, "this server has just begun to lead the metalog: try again in a moment")
            }
            leader => Error::NotLeader { leader }.into(),
        }
    }
}
