//! Recovery of a cluster from one node when the majority of its metalog is lost for good.
//!
//! Guarantees: the node is the only one, and the only member of every chain, whatever was decided before, known to be
//! committed or not; what the lost nodes may have acknowledged since is a gap of every chain, and makes reads of now
//! report it; the ids of the lost nodes are never reused; the identity changes. Leaves to others: from which stamp on a
//! chain is incomplete (`node`, which reads the logs), and the operator's confirmation.

use frieze_base::NodeId;

use super::{CHAINS_MAX, ClusterState, FORMER_MAX, FormerIdentity, within};
use crate::chain::{ChainTarget, LostInterval, TargetRole};
use crate::decision::{ClusterChange, ClusterRecovery};
use crate::error::Error;
use crate::node::ClusterNode;

impl ClusterState {
    pub(super) fn recover(&mut self, recovered: &ClusterRecovery, stamp: u64) -> Result<Vec<ClusterChange>, Error> {
        let ClusterRecovery { cluster, node: id, info, epoch, whole } = recovered;
        if *cluster == self.cluster {
            return Err(Error::SameCluster { cluster: *cluster });
        }
        within("chains", whole.len() as u64, CHAINS_MAX.into())?;
        let mut next = ClusterState { nodes: Default::default(), ..self.clone() };
        let node = next.checked(*id, info)?;
        let revision = self.nodes.get(id).map_or(0, |node| node.revision) + 1;
        next.nodes.insert(*id, ClusterNode { revision, ..node });
        next.next_node = next.next_node.max(id.0 + 1);
        next.former.push(FormerIdentity { cluster: self.cluster, node: *id, at: stamp });
        if next.former.len() > FORMER_MAX {
            next.former.remove(0);
        }
        next.cluster = *cluster;
        let device = info.devices.first().map_or(0, |device| device.device);
        let mut changes = vec![ClusterChange::Recovered(*id)];
        for (chain, whole) in next.chains.values_mut().zip(whole.iter().chain(std::iter::repeat(&0))) {
            let device = chain.target(*id).map_or(device, |target| target.device);
            chain.targets = vec![ChainTarget {
                node: *id,
                device,
                role: TargetRole::Serving,
                incarnation: info.incarnation,
                left: 0,
                is_retiring: false,
            }];
            chain.leaving.clear();
            chain.resumed = None;
            chain.epoch.0 = epoch.0.max(chain.epoch.0 + 1);
            chain.revision += 1;
            // Every later write has a larger stamp than this decision. A chain that is complete up to it lost nothing.
            if *whole < stamp {
                chain.add_stale_interval(LostInterval { from: *whole, to: stamp });
                next.is_behind = true;
            }
            chain.assert_whole();
            changes.push(ClusterChange::Configured(chain.id, chain.epoch));
        }
        let removed = self.nodes.keys().filter(|other| *other != id).copied().map(ClusterChange::Removed);
        changes.extend(removed.collect::<Vec<_>>());
        *self = next;
        Ok(changes)
    }
}

impl ClusterState {
    /// The nodes but `node`.
    pub fn others(&self, node: NodeId) -> impl Iterator<Item = &ClusterNode> {
        self.nodes.values().filter(move |other| other.id != node)
    }
}
