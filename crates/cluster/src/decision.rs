//! Decisions, and the changes that a decision makes.

use frieze_base::{ChainEpoch, ChainId, ClusterId, NodeId};

use crate::chain::LostInterval;
use crate::error::Error;
use crate::node::{NodeDevice, NodeInfo};

/// A decision: an entry of the log, executed on every node with the same result.
///
/// Each names the revision that it is based on; if that has changed meanwhile, the decision has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// A machine that was alone becomes node 1, and the only member of every chain.
    Found {
        /// The cluster's identity.
        cluster: ClusterId,
        /// Replicas wanted of each chain.
        replicas: u32,
        /// Chains, numbered from 0.
        chain_count: u32,
        /// Their first configuration: above any that the machine alone has used.
        epoch: ChainEpoch,
        /// The machine.
        first: NodeInfo,
        /// Intervals that it may have lost before.
        gaps: Vec<LostInterval>,
    },
    /// A node joins and gets the next id. A node that repeats the request, recognised by the token, has the id that it
    /// got first.
    Join(NodeInfo),
    /// About a node.
    Node {
        /// Which.
        node: NodeId,
        /// [`crate::ClusterNode::revision`] that this is based on.
        revision: u64,
        /// The step.
        step: NodeStep,
    },
    /// About a chain.
    Chain {
        /// Which.
        chain: ChainId,
        /// [`crate::Chain::revision`] that this is based on.
        revision: u64,
        /// The step.
        step: ChainStep,
    },
    /// Replicas wanted of each chain.
    Replicas {
        /// [`crate::ClusterState::version`] that this is based on.
        version: u64,
        /// How many, at least 1.
        replicas: u32,
    },
    /// Move chains until every node has its share, or do not.
    Balance {
        /// [`crate::ClusterState::version`] that this is based on.
        version: u64,
        /// Whether to.
        on: bool,
    },
    /// The majority is lost for good, and an operator recovers the cluster from one node: see [`ClusterRecovery`].
    Recover(ClusterRecovery),
    /// The members of the metalog lost power together: changes of names of this interval that were on no stable storage
    /// are lost. Every answer depends on names, so it is a gap of every chain.
    LoseNames(LostInterval),
    /// Of a newer version: no effect.
    Unknown,
}

/// Recovery of a cluster from one surviving node. It is decided at that node alone, while no server runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterRecovery {
    /// The identity from now on: messages of the lost nodes carry the old identity and are refused.
    pub cluster: ClusterId,
    /// The node that is left.
    pub node: NodeId,
    /// Its last description of itself.
    pub info: NodeInfo,
    /// Above every configuration of a chain that this node knows of.
    pub epoch: ChainEpoch,
    /// For each chain, by number: the stamp, as a number, up to which this node has every acknowledged record; 0 if it
    /// has no copy. What a majority may have acknowledged since is lost, up to the stamp of the decision.
    pub whole: Vec<u64>,
}

/// A step of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeStep {
    /// The node is online. With a newer incarnation its targets have lost what was only in memory.
    Return {
        /// Of its process.
        incarnation: u64,
        /// Address at which peers reach it.
        address: String,
        /// All its devices.
        devices: Vec<NodeDevice>,
    },
    /// Its lease has certainly ended.
    Offline,
    /// It is to give its chains away.
    Drain,
    /// The node may keep its targets.
    Undrain,
    /// An operator declares that what only this node has is lost for good. The node is offline.
    DeclareDead {
        /// If true, the decision has no effect where a chain would resume without records that no other node is known
        /// to hold: the operator has to confirm such a loss.
        spares: bool,
    },
    /// It is none of the cluster any more. Only without targets.
    Remove,
    /// It has one more device.
    AddDevice(NodeDevice),
    /// A device of it has failed.
    FailDevice(u32),
    /// A device of it took a record no more for want of space.
    FillDevice(u32),
}

/// A step of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainStep {
    /// The node gets a target, without a part yet.
    Place {
        /// The node.
        node: NodeId,
        /// Its device.
        device: u32,
    },
    /// Its target is dropped once enough other targets serve.
    Retire(NodeId),
    /// It stays after all.
    Keep(NodeId),
    /// The target syncs behind the tail.
    Sync {
        /// The node.
        node: NodeId,
        /// Its process.
        incarnation: u64,
    },
    /// It has caught up: it becomes the tail and answers no reads yet. Requires the tail's report under this
    /// configuration.
    Join(NodeId),
    /// It is ready: a full member. Requires its own report under this configuration.
    Serve(NodeId),
    /// The node has no role any more. If it is online and kept its memory, it is *leaving* until it acknowledges.
    TakeOut(NodeId),
    /// It was leaving, and has installed a configuration without it.
    Left(NodeId),
    /// Its target, without a part, is none any more.
    Drop(NodeId),
    /// Every full member has restarted or is dead: the chain resumes from the log of this one (protocols §7).
    Resume {
        /// The node with the newest (epoch, n).
        node: NodeId,
        /// Its process.
        incarnation: u64,
        /// A target that may have had more records did not return.
        is_missing: bool,
        /// What its log may lack. If it was not a full member to the last, the interval reaches at least to this
        /// decision.
        lost: Option<LostInterval>,
    },
}

impl ChainStep {
    /// The node that the step is about.
    pub fn node(&self) -> NodeId {
        match *self {
            ChainStep::Place { node, .. } | ChainStep::Sync { node, .. } | ChainStep::Resume { node, .. } => node,
            ChainStep::Retire(node)
            | ChainStep::Keep(node)
            | ChainStep::Join(node)
            | ChainStep::Serve(node)
            | ChainStep::TakeOut(node)
            | ChainStep::Left(node)
            | ChainStep::Drop(node) => node,
        }
    }
}

/// What a decision changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterChange {
    /// There is a cluster.
    Founded,
    /// A node has joined, or had joined already.
    Joined(NodeId),
    /// Something about a node.
    Node(NodeId),
    /// It is none of the cluster any more: the metalog's members are to be changed.
    Removed(NodeId),
    /// A chain has another configuration.
    Configured(ChainId, ChainEpoch),
    /// Something about a chain other than its configuration.
    Chain(ChainId),
    /// The replicas or the balance wanted of the cluster.
    Wanted,
    /// The cluster was recovered from this node, under another identity.
    Recovered(NodeId),
    /// Changes of names of this interval may be lost.
    NamesLost(LostInterval),
    /// Nothing, and why.
    NoEffect(Error),
}
