//! Which nodes keep the metalog: few, since every entry goes to each of them, and spread so that no machine and no site takes more
//! of them with it than it must.

use frieze_base::NodeId;

use crate::node::{Node, NodeState};
use crate::placement::beside;
use crate::state::State;

/// What is to change about who keeps the metalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// This node is to keep it.
    Add(NodeId),
    /// This node is to keep it no more.
    Remove(NodeId),
}

impl State {
    /// The next change, one at a time, of those that keep the metalog, of whom `me` leads and there are to be at most `max`; `None` if they are
    /// as they should be.
    pub fn next_keeper(&self, keepers: &[NodeId], me: NodeId, max: usize) -> Option<Keeper> {
        let is_gone = |node: &&NodeId| self.node_state(**node) == Some(NodeState::Removed);
        if let Some(gone) = keepers.iter().find(is_gone) {
            return Some(Keeper::Remove(*gone));
        }
        let others = || self.nodes().filter(|node| !keepers.contains(&node.id));
        if keepers.len() < max {
            let key = |node: &&Node| (node.is_offline, beside(self, node.id, keepers), node.id);
            return others().min_by_key(key).map(|node| Keeper::Add(node.id));
        }
        // While one is away the majority is as near as it should come.
        if keepers.iter().any(|keeper| self.node_state(*keeper) == Some(NodeState::Offline)) {
            return None;
        }
        let crowded = keepers.iter().copied().filter(|keeper| *keeper != me);
        let (crowd, leaves) = crowded.map(|keeper| (beside(self, keeper, keepers), keeper)).max()?;
        let rest: Vec<NodeId> = keepers.iter().copied().filter(|keeper| *keeper != leaves).collect();
        let may_come = |node: &Node| !node.is_offline && !node.is_draining && beside(self, node.id, &rest) < crowd;
        others().any(may_come).then_some(Keeper::Remove(leaves))
    }
}
