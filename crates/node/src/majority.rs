//! The majority of the voters of the metalog: which servers vote, how many of them are reachable, and the text of an
//! error without a majority.

use frieze_base::{ErrorKind, Fault, NodeId, Reason};
use frieze_cluster::{ClusterStatus, ClusterTrouble, ReachableVotes};
use frieze_wire::message::{ClusterNodeStatus, ClusterOp};

use crate::parts::ServerParts;

impl ServerParts {
    /// The voters of the metalog, and how many of them are reachable.
    pub(crate) fn votes(&self) -> ReachableVotes {
        let Some((control, status)) = self.control().zip(self.planes.meta.status()) else {
            return ReachableVotes { reachable: 1, voters: 1, leaderless_ns: None };
        };
        let voters = status.members.voters;
        let reachable = control.reachable_count(&voters);
        let leaderless_ns = status.leader.is_none().then(|| control.leaderless_ns().unwrap_or(0));
        ReachableVotes { reachable, voters: voters.len(), leaderless_ns }
    }

    /// Checks that this server leads.
    ///
    /// # Errors
    /// `Elsewhere`, `Unavailable`: it does not lead; the fault names the leader, or the missing majority.
    pub(crate) fn check_leads(&self) -> Result<(), Fault> {
        self.planes.meta.check_leads().map_err(|fault| self.name_majority(fault))
    }

    /// `fault`, of a change or a read of now: with other words if a lost majority is the cause. A client handles it
    /// alike.
    pub(crate) fn name_majority(&self, fault: Fault) -> Fault {
        match self.votes().missing() {
            Some(words) if fault.kind() == ErrorKind::Unavailable => Fault::new(fault.reason, words),
            _ => fault,
        }
    }

    /// The answer to a request of an operator that found no leader. If the servers wait for a voter that he declares
    /// dead, they elect without it.
    pub(crate) fn declare_without_leader(&self, op: ClusterOp, fault: Fault) -> Fault {
        let (node, with_loss) = match op {
            ClusterOp::DeclareDead(node) => (NodeId(node), false),
            ClusterOp::DeclareLost(node) => (NodeId(node), true),
            _ => return fault,
        };
        let (Some(control), votes) = (self.control(), self.votes()) else { return fault };
        let is_reachable = control.reachable_count(&[node]) > 0;
        let Some(may) = votes.check_declaration(node, is_reachable, with_loss) else { return fault };
        match may.map_err(Fault::from).and_then(|()| self.planes.meta.declare_lost(node)) {
            Ok(()) => Fault::new(Reason::Unavailable, format!("the other servers elect without node {node}: wait")),
            Err(fault) => fault,
        }
    }

    /// Adds what the nodes are in the metalog, and of this one the lease that it has, not the one that the log gave it.
    pub(crate) fn complete_nodes(&self, nodes: &mut [ClusterNodeStatus]) {
        let Some(status) = self.planes.meta.status() else { return };
        let own_ms = self.planes.data.lease().left_ns(self.planes.clock.reading().mono) / 1_000_000;
        for node in nodes {
            node.metalog = status.role_of(NodeId(node.node)).to_owned();
            let is_own = node.node == self.planes.node().0;
            node.lease_left_ms = node.lease_left_ms.map(|left| if is_own { left.min(own_ms) } else { left });
        }
    }

    /// Trouble: a voter is offline, and the loss of one more stops the cluster.
    pub(crate) fn trouble_of_votes(&self, status: &ClusterStatus) -> Option<ClusterTrouble> {
        self.votes().trouble().filter(|_| status.leader.is_some())
    }
}
