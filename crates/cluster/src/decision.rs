//! What can be decided, and what a decision changed.

use frieze_base::{ChainEpoch, ChainId, ClusterId, NodeId};

use crate::chain::Lost;
use crate::error::Error;
use crate::node::{Device, Newcomer};

/// A decision: an entry of the log, executed on every node with the same result.
///
/// Each names the revision of what it is based on; if that has changed meanwhile it has no effect.
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
        first: Newcomer,
        /// What it may have lost before.
        gaps: Vec<Lost>,
    },
    /// A node joins and gets the next id. Who asks again, by the token, has the id that it got.
    Join(Newcomer),
    /// About a node.
    Node {
        /// Which.
        node: NodeId,
        /// [`crate::Node::revision`] that this is based on.
        revision: u64,
        /// What.
        step: NodeStep,
    },
    /// About a chain.
    Chain {
        /// Which.
        chain: ChainId,
        /// [`crate::Chain::revision`] that this is based on.
        revision: u64,
        /// What.
        step: ChainStep,
    },
    /// Replicas wanted of each chain.
    Replicas {
        /// [`crate::State::version`] that this is based on.
        version: u64,
        /// How many, at least 1.
        replicas: u32,
    },
    /// Move chains until every node has its share, or do not.
    Balance {
        /// [`crate::State::version`] that this is based on.
        version: u64,
        /// Whether to.
        on: bool,
    },
    /// The majority is lost for good, and an operator goes on from one node: see [`Recovered`].
    Recover(Recovered),
    /// Of a newer version: no effect.
    Unknown,
}

/// How a cluster goes on from one node that is left. It is decided at that node alone, while no server runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The identity from now on: what the others may still say is said to another cluster.
    pub cluster: ClusterId,
    /// The node that is left.
    pub node: NodeId,
    /// What it told last.
    pub told: Newcomer,
    /// Above every configuration of a chain that this node knows of.
    pub epoch: ChainEpoch,
    /// Of each chain, by number: the stamp, as a number, up to which this node has everything that was acknowledged; 0 where it has
    /// nothing. What a majority may have acknowledged since is lost, up to the stamp of the decision.
    pub whole: Vec<u64>,
}

/// What is decided about a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeStep {
    /// It is there. With a newer incarnation its targets have lost what was in memory only.
    Return {
        /// Of its process.
        incarnation: u64,
        /// Where others reach it.
        address: String,
        /// All its devices.
        devices: Vec<Device>,
    },
    /// Its lease has certainly ended.
    Offline,
    /// It is to give its chains away.
    Drain,
    /// It may keep what it has.
    Undrain,
    /// What it alone has will not come back: said by an operator of a node that is offline.
    DeclareDead {
        /// No effect where a chain would go on without what nobody else is known to hold: that such a loss is meant has to be said.
        spares: bool,
    },
    /// It is none of the cluster any more. Only without targets.
    Remove,
    /// It has one more device.
    AddDevice(Device),
    /// A device of it has failed.
    FailDevice(u32),
    /// A device of it took a record no more for want of space.
    FillDevice(u32),
}

/// What is decided about a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainStep {
    /// The node gets a target, without a part yet.
    Place {
        /// The node.
        node: NodeId,
        /// Its device.
        device: u32,
    },
    /// Its target goes once enough others serve.
    Retire(NodeId),
    /// It stays after all.
    Keep(NodeId),
    /// It is brought up to date behind the tail.
    Sync {
        /// The node.
        node: NodeId,
        /// Its process.
        incarnation: u64,
    },
    /// It has caught up: it becomes the tail and answers nothing yet. Not before the tail said so of this configuration.
    Join(NodeId),
    /// It is ready: a full member. Not before it said so of this configuration.
    Serve(NodeId),
    /// It has no part any more. Who is there and kept its memory is *leaving* until it is known to know.
    TakeOut(NodeId),
    /// It was leaving, and has installed a configuration without it.
    Left(NodeId),
    /// Its target, without a part, is none any more.
    Drop(NodeId),
    /// Every full member has restarted or is dead: the chain goes on from the log of this one (protocols §7).
    Resume {
        /// The node with the newest (epoch, n).
        node: NodeId,
        /// Its process.
        incarnation: u64,
        /// Somebody who may have had more did not return.
        is_missing: bool,
        /// What its log may lack. Of one that was no full member to the last it reaches at least to where this is decided.
        lost: Option<Lost>,
    },
}

impl ChainStep {
    /// About whom.
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

/// What a decision has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
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
    /// What is wanted of the cluster.
    Wanted,
    /// It went on from one node, under another identity.
    Recovered(NodeId),
    /// Nothing, and why.
    NoEffect(Error),
}
