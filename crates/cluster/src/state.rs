//! The replicated state: nodes and chains after an entry of the log, and the effect of each decision.

mod nodes;
mod recover;
mod steps;

use std::collections::BTreeMap;

use frieze_base::{ChainEpoch, ChainId, ClusterId, NodeId};

use crate::chain::{Chain, ChainTarget, LostInterval, TargetRole, TargetState};
use crate::decision::{ClusterChange, Decision};
use crate::error::Error;
use crate::node::{ClusterNode, NodeInfo, NodeState};

/// Nodes and chains, as the log has decided. Every node executes every decision: at one position of the log all have
/// the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterState {
    pub(crate) cluster: ClusterId,
    pub(crate) version: u64,
    pub(crate) table_version: u64,
    pub(crate) next_node: u32,
    pub(crate) replicas: u32,
    pub(crate) is_balancing: bool,
    pub(crate) nodes: BTreeMap<NodeId, ClusterNode>,
    pub(crate) chains: BTreeMap<ChainId, Chain>,
    /// Some chain is stale (acknowledged records are lost): checked by every read of now.
    pub(crate) is_behind: bool,
    /// The former identities of the cluster, from before each recovery from one node, oldest first.
    pub(crate) former: Vec<FormerIdentity>,
}

/// An identity that a cluster had until it was recovered from one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormerIdentity {
    /// The identity.
    pub cluster: ClusterId,
    /// The node.
    pub node: NodeId,
    /// Stamp, as a number, of the decision.
    pub at: u64,
}

/// Nodes of a cluster at most.
pub const NODES_MAX: usize = 1024;
/// Chains of a cluster at most.
pub const CHAINS_MAX: u32 = 65_536;
/// Replicas of a chain at most.
pub const REPLICAS_MAX: u32 = 8;
/// Targets of a chain at most: all replicas, and as many that take their places.
pub const TARGETS_MAX: usize = 2 * REPLICAS_MAX as usize;
/// Devices of a node at most.
pub const DEVICES_MAX: usize = 64;
/// Identities of before that are remembered at most: of more the oldest are forgotten, and their servers are refused
/// without a reason.
pub const FORMER_MAX: usize = 16;

impl ClusterState {
    /// Executes a decision with its stamp in the log. Deterministic: the result depends on the arguments and this state
    /// alone. Returns the changes; if the decision does not fit, returns [`ClusterChange::NoEffect`] and changes
    /// nothing.
    pub fn apply(&mut self, decision: &Decision, stamp: u64) -> Vec<ClusterChange> {
        match self.try_apply(decision, stamp) {
            Ok(changes) => {
                let configured = changes.iter().any(|change| {
                    matches!(
                        change,
                        ClusterChange::Configured(..) | ClusterChange::Founded | ClusterChange::Recovered(_)
                    )
                });
                self.version += u64::from(!changes.is_empty());
                self.table_version += u64::from(configured);
                changes
            }
            Err(error) => vec![ClusterChange::NoEffect(error)],
        }
    }

    /// Whether the decision would have an effect now.
    ///
    /// # Errors
    /// The error that [`ClusterChange::NoEffect`] would carry.
    pub fn check(&self, decision: &Decision) -> Result<(), Error> {
        self.clone().try_apply(decision, 0).map(drop)
    }

    fn try_apply(&mut self, decision: &Decision, stamp: u64) -> Result<Vec<ClusterChange>, Error> {
        match decision {
            Decision::Found { cluster, replicas, chain_count, epoch, first, gaps } => {
                self.bootstrap(*cluster, *replicas, *chain_count, *epoch, first, gaps)
            }
            _ if !self.is_founded() => Err(Error::NotFounded),
            Decision::Join(newcomer) => self.join(newcomer),
            Decision::Node { node, revision, step } => self.change_node(*node, *revision, step, stamp),
            Decision::Chain { chain, revision, step } => self.change_chain(*chain, *revision, *step, stamp),
            Decision::Replicas { version, replicas } => {
                self.check_version(*version)?;
                self.replicas = within("replicas", (*replicas).into(), REPLICAS_MAX.into())? as u32;
                Ok(vec![ClusterChange::Wanted])
            }
            Decision::Balance { version, on } => {
                self.check_version(*version)?;
                self.is_balancing = *on;
                Ok(vec![ClusterChange::Wanted])
            }
            Decision::Recover(recovered) => self.recover(recovered, stamp),
            Decision::LoseNames(lost) => {
                self.chains.values_mut().for_each(|chain| chain.add_gap(*lost));
                Ok(vec![ClusterChange::NamesLost(*lost)])
            }
            Decision::Unknown => Err(Error::Unknown),
        }
    }

    fn bootstrap(
        &mut self,
        cluster: ClusterId,
        replicas: u32,
        chain_count: u32,
        epoch: ChainEpoch,
        first: &NodeInfo,
        gaps: &[LostInterval],
    ) -> Result<Vec<ClusterChange>, Error> {
        if self.is_founded() {
            return Err(Error::AlreadyFounded);
        }
        let replicas = within("replicas", replicas.into(), REPLICAS_MAX.into())? as u32;
        within("chains", chain_count.into(), CHAINS_MAX.into())?;
        let id = NodeId(1);
        let node = self.checked(id, first)?;
        let role = TargetRole::Serving;
        let target = |device| ChainTarget {
            node: id,
            device,
            role,
            incarnation: first.incarnation,
            left: 0,
            is_retiring: false,
        };
        let device = first.devices.first().map_or(0, |device| device.device);
        let chain = |id| {
            let (targets, leaving) = (vec![target(device)], Vec::new());
            let mut chain =
                Chain { id, epoch, revision: 1, targets, leaving, resumed: None, gaps: Vec::new(), behind: None };
            gaps.iter().for_each(|lost| chain.add_gap(*lost));
            chain
        };
        self.chains = (0..chain_count).map(ChainId).map(|id| (id, chain(id))).collect();
        (self.cluster, self.replicas, self.next_node) = (cluster, replicas, 2);
        self.nodes.insert(id, node);
        Ok(vec![ClusterChange::Founded, ClusterChange::Joined(id)])
    }

    /// True if there is a cluster. A machine that is alone has none, and needs none.
    pub fn is_founded(&self) -> bool {
        self.next_node > 0
    }

    /// The cluster's identity.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// The former identity of the cluster with this id, if there was one.
    pub fn former(&self, cluster: ClusterId) -> Option<FormerIdentity> {
        self.former.iter().copied().find(|former| former.cluster == cluster)
    }

    /// The identities of before, oldest first.
    pub fn formers(&self) -> &[FormerIdentity] {
        &self.former
    }

    /// Number of decisions that had an effect. Sent with everything derived from the state, so that a receiver
    /// recognises the older of two.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Of the chain table: rises with every change of any configuration.
    pub fn table_version(&self) -> u64 {
        self.table_version
    }

    /// Replicas wanted of each chain, as far as there are nodes.
    pub fn replicas(&self) -> u32 {
        self.replicas
    }

    /// Copies that every chain should have: [`ClusterState::replicas`], or the number of nodes that keep copies if that
    /// is smaller. A node that is offline, or whose disk is full, counts: its copies are missing until it is removed,
    /// declared dead or drained.
    pub fn copies_wanted(&self) -> u32 {
        let keeps = |node: &&ClusterNode| !node.is_draining && !node.is_dead;
        let count = self.nodes.values().filter(keeps).count() as u32;
        self.replicas.min(count).max(1)
    }

    /// True while chains are moved until every node has its share.
    pub fn is_balancing(&self) -> bool {
        self.is_balancing
    }

    /// True if some chain resumed from a stale copy, so that the present may lack acknowledged records.
    pub fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// The nodes, by id.
    pub fn nodes(&self) -> impl Iterator<Item = &ClusterNode> {
        self.nodes.values()
    }

    /// The chains, by number.
    pub fn chains(&self) -> impl Iterator<Item = &Chain> {
        self.chains.values()
    }

    /// A node of the cluster.
    ///
    /// # Errors
    /// `Removed` if it was one, `UnknownNode` if it never was.
    pub fn node(&self, node: NodeId) -> Result<&ClusterNode, Error> {
        self.nodes.get(&node).ok_or(match self.node_state(node) {
            Some(_) => Error::Removed { node },
            None => Error::UnknownNode { node },
        })
    }

    /// The state of a node, for display; `None` if there never was a node with this id.
    pub fn node_state(&self, node: NodeId) -> Option<NodeState> {
        match self.nodes.get(&node) {
            Some(node) => Some(node.state()),
            None => (1..self.next_node).contains(&node.0).then_some(NodeState::Removed),
        }
    }

    /// The node of this name.
    pub fn node_named(&self, name: &str) -> Option<&ClusterNode> {
        self.nodes.values().find(|node| node.info.name == name)
    }

    /// The node that joined with this token.
    pub fn node_of_token(&self, token: u128) -> Option<&ClusterNode> {
        self.nodes.values().find(|node| node.info.token == token)
    }

    /// A chain.
    pub fn chain(&self, chain: ChainId) -> Option<&Chain> {
        self.chains.get(&chain)
    }

    /// True if the target's process is the one that the log knows: it still has in memory what it had when it took its
    /// role.
    pub fn kept_memory(&self, target: &ChainTarget) -> bool {
        self.nodes.get(&target.node).is_some_and(|node| node.incarnation() == target.incarnation)
    }

    /// True if the target kept its memory and its node is not known to be offline.
    pub fn is_alive(&self, target: &ChainTarget) -> bool {
        self.kept_memory(target) && self.is_online(target.node)
    }

    /// True if the log does not know that the node's lease has ended.
    pub fn is_online(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|node| !node.is_offline)
    }

    /// True if the target's device takes no more.
    pub fn is_full(&self, target: &ChainTarget) -> bool {
        self.nodes.get(&target.node).is_some_and(|node| node.is_full(target.device))
    }

    /// The state of a target, for display.
    pub fn target_state(&self, target: &ChainTarget) -> TargetState {
        match target.role {
            _ if !self.is_online(target.node) => TargetState::Offline,
            TargetRole::Serving => TargetState::Serving,
            TargetRole::Joining => TargetState::Joining,
            TargetRole::Syncing => TargetState::Syncing,
            TargetRole::Out if self.is_full(target) => TargetState::Full,
            TargetRole::Out => TargetState::Waiting,
        }
    }

    /// True if the data that `node` may still have of a chain is garbage: the node has no role in it, and all members
    /// are online and serve with complete copies, as many as are wanted of the nodes that may have one.
    pub fn is_kept_by_others(&self, chain: ChainId, node: NodeId) -> bool {
        let Some(chain) = self.chains.get(&chain) else { return false };
        let may_have =
            |node: &&ClusterNode| !node.is_draining && !node.is_dead && node.whole_devices().next().is_some();
        let wanted = (self.replicas as usize).min(self.nodes.values().filter(may_have).count()).max(1);
        let serves = |target: &ChainTarget| target.role == TargetRole::Serving && self.is_alive(target);
        let is_out = chain.target(node).is_none() && !chain.leaving.contains(&node);
        is_out && chain.targets.len() >= wanted && chain.targets.iter().all(serves)
    }

    /// Chains of which `node` has a target.
    pub fn chains_of(&self, node: NodeId) -> impl Iterator<Item = (&Chain, &ChainTarget)> {
        self.chains.values().filter_map(move |chain| Some((chain, chain.target(node)?)))
    }

    fn check_version(&self, based_on: u64) -> Result<(), Error> {
        check_revision("the cluster", based_on, self.version)
    }
}

fn check_revision(what: &'static str, based_on: u64, found: u64) -> Result<(), Error> {
    if based_on == found { Ok(()) } else { Err(Error::Stale { what, based_on, found }) }
}

fn within(what: &'static str, found: u64, max: u64) -> Result<u64, Error> {
    if (1..=max).contains(&found) { Ok(found) } else { Err(Error::OutOfRange { what, found, max }) }
}
