//! The majority of the voters of the metalog: which servers vote, how many of them are reachable, and the text of an
//! error without a majority.

use frieze_base::{ErrorKind, Fault, NodeId};
use frieze_cluster::{ClusterStatus, ClusterTrouble};
use frieze_wire::message::ClusterNodeStatus;

use crate::parts::ServerParts;

impl ServerParts {
    /// Of the voters of the metalog, how many sent a message within a lease, and how many there are; this server counts
    /// as reachable.
    pub(crate) fn reachable_voters(&self) -> (usize, usize) {
        let Some((control, status)) = self.control().zip(self.planes.meta.status()) else { return (1, 1) };
        let voters = status.members.voters;
        (control.reachable_count(&voters), voters.len())
    }

    /// For how long this server, one of several, has followed no leader, in nanoseconds; `None` while it follows one.
    pub(crate) fn leaderless_ns(&self) -> Option<u64> {
        self.control()?.leaderless_ns()
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
        let (heard, voters) = self.reachable_voters();
        let is_lost = self.planes.meta.leader().is_none() && heard <= voters / 2;
        match fault.kind() {
            ErrorKind::Unavailable if is_lost => Fault::new(fault.reason, words_without(heard, voters)),
            _ => fault,
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
        let (heard, voters) = self.reachable_voters();
        (status.leader.is_some() && is_last_majority(heard, voters)).then(|| {
            ClusterTrouble::new(
                format!("{heard} of {voters} servers that vote are there: the loss of one more stops the cluster"),
                "start the others again ('frieze cluster nodes' names those that vote)",
            )
        })
    }
}

fn words_without(heard: usize, voters: usize) -> String {
    format!("no majority of the cluster's servers answers: {heard} of {voters} that vote were heard from lately")
}

/// A voter is offline, and the others are just enough.
fn is_last_majority(heard: usize, voters: usize) -> bool {
    heard < voters && heard == voters / 2 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_majority_is_that_which_bears_no_further_loss() {
        let last = |voters: usize| (0..=voters).filter(|heard| is_last_majority(*heard, voters)).collect::<Vec<_>>();
        assert_eq!(last(5), [3]);
        assert_eq!(last(4), [3]);
        assert_eq!(last(3), [2]);
        // Two servers never survive a loss, and no voter is missing.
        assert!(last(2).is_empty() && last(1).is_empty());
    }
}
