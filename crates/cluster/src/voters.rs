//! Which nodes keep the metalog, and which of them vote.
//!
//! Every node executes every change of names, so every node keeps the log. A few of them vote, since each entry waits
//! for a majority of the voters. Voters are spread so that a lost machine or site takes as few of them as possible; the
//! rest are learners. A vote moves to another node only where that makes a loss no likelier: from a node that is dead,
//! or has been offline for as long as its chains wait before they are copied to another node
//! ([`Settings::replace_after_ns`](crate::Settings::replace_after_ns)); from one that drains; or from a machine or site
//! that has more voters than another would have. The old voter is removed before the new one is added: if several
//! voters are offline, each removal leaves a majority that is as near, or nearer.

use std::collections::BTreeSet;

use frieze_base::NodeId;

use crate::node::{ClusterNode, NodeState};
use crate::placement::beside;
use crate::state::ClusterState;

/// How the metalog is kept now, as its leader knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetalogMembership {
    /// The leader: its vote stays.
    pub leader: NodeId,
    /// The nodes whose majority commits.
    pub voters: Vec<NodeId>,
    /// The nodes that get the log and do not vote.
    pub learners: Vec<NodeId>,
    /// The learners that lack so little that they could vote at once.
    pub caught_up: Vec<NodeId>,
    /// Voters that there may be.
    pub voters_max: usize,
    /// The nodes that have been offline for so long that other nodes replace them: [`crate::Controller::replaceable`].
    pub replaceable: Vec<NodeId>,
}

/// A change of the voters and learners of the metalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MembershipChange {
    /// This node is to get it.
    Add(NodeId),
    /// This learner is to vote.
    Promote(NodeId),
    /// This voter is to learn.
    Demote(NodeId),
    /// This node is to keep it no more.
    Remove(NodeId),
}

impl ClusterState {
    /// The next change of how the metalog is kept, one at a time; `None` if nothing is to change, or nothing can yet.
    ///
    /// # Cost
    /// O(n log n + n v) for n nodes and v voters.
    pub fn next_membership_change(&self, members: &MetalogMembership) -> Option<MembershipChange> {
        let all: BTreeSet<NodeId> = members.voters.iter().chain(&members.learners).copied().collect();
        let is_removed = |node: &&NodeId| self.node_state(**node) == Some(NodeState::Removed);
        if let Some(removed) = all.iter().find(is_removed) {
            return Some(MembershipChange::Remove(*removed));
        }
        let newcomers = self.nodes().filter(|node| !all.contains(&node.id) && !node.is_dead);
        if let Some(newcomer) = newcomers.min_by_key(|node| (node.is_offline, node.id)) {
            return Some(MembershipChange::Add(newcomer.id));
        }
        if members.voters.len() < members.voters_max {
            let key = |node: &&ClusterNode| (node.is_draining, beside(self, node.id, &members.voters), node.id);
            return self.electable(members).min_by_key(key).map(|node| MembershipChange::Promote(node.id));
        }
        self.voter_to_replace(members).map(MembershipChange::Demote)
    }

    /// The learners that could vote now.
    fn electable<'a>(&'a self, members: &'a MetalogMembership) -> impl Iterator<Item = &'a ClusterNode> {
        let nodes = members.caught_up.iter().filter_map(|node| self.node(*node).ok());
        nodes.filter(|node| !node.is_offline && !node.is_dead)
    }

    /// The voter that one of the learners should replace.
    fn voter_to_replace(&self, members: &MetalogMembership) -> Option<NodeId> {
        let able: Vec<NodeId> = self.electable(members).filter(|node| !node.is_draining).map(|node| node.id).collect();
        if able.is_empty() {
            return None;
        }
        let voters = || members.voters.iter().copied().filter(|voter| *voter != members.leader);
        let is = |voter: NodeId, what: fn(&ClusterNode) -> bool| self.node(voter).is_ok_and(what);
        let is_lost = |voter: &NodeId| is(*voter, |node| node.is_dead) || members.replaceable.contains(voter);
        if let Some(lost) = voters().find(is_lost) {
            return Some(lost);
        }
        // While a voter is away, the majority of those that are there is as near as it should come.
        if voters().any(|voter| is(voter, |node| node.is_offline)) {
            return None;
        }
        if let Some(draining) = voters().find(|voter| is(*voter, |node| node.is_draining)) {
            return Some(draining);
        }
        let (crowd, crowded) = voters().map(|voter| (beside(self, voter, &members.voters), voter)).max()?;
        let rest: Vec<NodeId> = members.voters.iter().copied().filter(|voter| *voter != crowded).collect();
        able.into_iter().any(|node| beside(self, node, &rest) < crowd).then_some(crowded)
    }
}
