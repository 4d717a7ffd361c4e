//! Decisions about nodes and chains as they stand in the metalog, and the state that they lead to.
//!
//! `cluster` executes a decision on every replica with the same result; the result depends on the state before it
//! alone. A decision names the revision that it was based on: one that no longer fits has no effect.

/// A device of a node.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DeviceProto {
    /// Its number within the node, from 0.
    #[prost(uint32, tag = "1")]
    pub device: u32,
    /// Bytes it can hold.
    #[prost(uint64, tag = "2")]
    pub capacity_bytes: u64,
    /// True: it has failed, and nothing is placed on it.
    #[prost(bool, tag = "3")]
    pub has_failed: bool,
    /// True: it took a record no more for want of space, and gets nothing new.
    #[prost(bool, tag = "4")]
    pub is_full: bool,
}

/// A node that asks to be one of the cluster.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodeInfoProto {
    /// Name for people; unique in the cluster.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The site it stands at; empty where there is one only.
    #[prost(string, tag = "2")]
    pub site: String,
    /// Where other nodes reach it.
    #[prost(string, tag = "3")]
    pub address: String,
    /// The machine it runs on, which several servers may share; empty if it was not given.
    #[prost(string, tag = "7")]
    pub machine: String,
    /// 16 bytes drawn when its data directory was created: a repeated request with the same token is the same node.
    #[prost(bytes = "vec", tag = "4")]
    pub token: Vec<u8>,
    /// Number of its process: rises with each start.
    #[prost(uint64, tag = "5")]
    pub incarnation: u64,
    /// Its devices.
    #[prost(message, repeated, tag = "6")]
    pub devices: Vec<DeviceProto>,
}

/// A machine that was alone becomes the first node of a cluster, and the only member of every chain.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct FoundCluster {
    /// The cluster's identity, 16 bytes, little-endian.
    #[prost(bytes = "vec", tag = "1")]
    pub cluster: Vec<u8>,
    /// Replicas wanted of each chain.
    #[prost(uint32, tag = "2")]
    pub replicas: u32,
    /// Number of chains.
    #[prost(uint32, tag = "3")]
    pub chain_count: u32,
    /// Their first configuration: above any that the machine alone has used.
    #[prost(uint64, tag = "4")]
    pub chain_epoch: u64,
    /// The machine.
    #[prost(message, optional, tag = "5")]
    pub first: Option<NodeInfoProto>,
    /// Intervals that it may have lost before: of each the stamps before and after it.
    #[prost(uint64, repeated, tag = "6")]
    pub gaps: Vec<u64>,
}

/// A step of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum NodeStepKind {
    /// None: of a newer version.
    Unknown = 0,
    /// It is there: a process with this incarnation, at this address, with these devices.
    Return = 1,
    /// Its lease has ended.
    Offline = 2,
    /// It is to give its chains away.
    Drain = 3,
    /// It may keep them after all.
    Undrain = 4,
    /// An operator declares what only this node has lost for good.
    DeclareDead = 5,
    /// It is none of the cluster any more.
    Remove = 6,
    /// It has one more device.
    AddDevice = 7,
    /// A device of it has failed.
    FailDevice = 8,
    /// A device of it took a record no more for want of space.
    FillDevice = 9,
}

/// A decision about a node.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodeStepProto {
    /// The node.
    #[prost(uint32, tag = "1")]
    pub node: u32,
    /// Its revision that this is based on.
    #[prost(uint64, tag = "2")]
    pub revision: u64,
    /// The step.
    #[prost(enumeration = "NodeStepKind", tag = "3")]
    pub kind: i32,
    /// Of its process, with `Return`.
    #[prost(uint64, tag = "4")]
    pub incarnation: u64,
    /// Where it is reached, with `Return`.
    #[prost(string, tag = "5")]
    pub address: String,
    /// With `Return` all that it has, with `AddDevice` the new one, with `FailDevice` and `FillDevice` the one that it
    /// is.
    #[prost(message, repeated, tag = "6")]
    pub devices: Vec<DeviceProto>,
    /// With `DeclareDead`: no effect where a chain would resume without records that no other node is known to hold.
    /// Absent, as in decisions from before this field: such a loss is accepted.
    #[prost(bool, tag = "7")]
    pub spares: bool,
}

/// A step of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum ChainStepKind {
    /// None: of a newer version.
    Unknown = 0,
    /// The node gets a target.
    Place = 1,
    /// Its target is dropped once other targets serve in its place.
    Retire = 2,
    /// It stays after all.
    Keep = 3,
    /// It syncs behind the tail.
    Sync = 4,
    /// It has caught up and becomes the tail.
    Join = 5,
    /// The new tail is ready.
    Serve = 6,
    /// It is taken out.
    TakeOut = 7,
    /// It was taken out alive, and knows it.
    Left = 8,
    /// Its target is none any more.
    Drop = 9,
    /// No member has kept its memory: the chain resumes from its log.
    Resume = 10,
}

/// A decision about a chain.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ChainStepProto {
    /// The chain.
    #[prost(uint32, tag = "1")]
    pub chain: u32,
    /// Its revision that this is based on.
    #[prost(uint64, tag = "2")]
    pub revision: u64,
    /// The step.
    #[prost(enumeration = "ChainStepKind", tag = "3")]
    pub kind: i32,
    /// The node that the step is about.
    #[prost(uint32, tag = "4")]
    pub node: u32,
    /// Its device, with `Place`.
    #[prost(uint32, tag = "5")]
    pub device: u32,
    /// Of its process, with `Sync` and `Resume`.
    #[prost(uint64, tag = "6")]
    pub incarnation: u64,
    /// With `Resume`: a target that may have had more records did not return.
    #[prost(bool, tag = "7")]
    pub is_missing: bool,
    /// With `Resume`: a power loss may have taken the records of its log between these stamps, both exclusive; 0 and 0:
    /// none did.
    #[prost(uint64, tag = "8")]
    pub lost_from: u64,
    /// See `lost_from`.
    #[prost(uint64, tag = "9")]
    pub lost_to: u64,
}

/// A decision about the cluster.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Adjust {
    /// Version of the state that this is based on.
    #[prost(uint64, tag = "1")]
    pub version: u64,
    /// Replicas wanted of each chain.
    #[prost(uint32, optional, tag = "2")]
    pub replicas: Option<u32>,
    /// Move chains until every node has its share.
    #[prost(bool, optional, tag = "3")]
    pub balance: Option<bool>,
}

/// A cluster whose majority is lost for good is recovered from one node, under another identity: decided by an
/// operator, without a majority.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Recover {
    /// The new identity, 16 bytes, little-endian.
    #[prost(bytes = "vec", tag = "1")]
    pub cluster: Vec<u8>,
    /// The node that is left.
    #[prost(uint32, tag = "2")]
    pub node: u32,
    /// Its last description of itself.
    #[prost(message, optional, tag = "3")]
    pub info: Option<NodeInfoProto>,
    /// Above every configuration of a chain that it knows of.
    #[prost(uint64, tag = "4")]
    pub chain_epoch: u64,
    /// For each chain, by number: the stamp up to which this node has every acknowledged record. Lost records were
    /// stamped between that and this decision.
    #[prost(uint64, repeated, tag = "5")]
    pub whole: Vec<u64>,
}

/// The object and the step of a decision.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum DecisionKind {
    /// The first one.
    #[prost(message, tag = "10")]
    Found(FoundCluster),
    /// A node joins; it gets the next id.
    #[prost(message, tag = "11")]
    Join(NodeInfoProto),
    /// About a node.
    #[prost(message, tag = "12")]
    Node(NodeStepProto),
    /// About a chain.
    #[prost(message, tag = "13")]
    Chain(ChainStepProto),
    /// About the cluster.
    #[prost(message, tag = "14")]
    Adjust(Adjust),
    /// Of one node that is left.
    #[prost(message, tag = "15")]
    Recover(Recover),
    /// Of names that a loss of power took.
    #[prost(message, tag = "16")]
    LoseNames(LoseNames),
}

/// The members of the metalog lost power together.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct LoseNames {
    /// Changes stamped above it may be lost.
    #[prost(uint64, tag = "1")]
    pub from: u64,
    /// Nothing is lost that is stamped at or above it.
    #[prost(uint64, tag = "2")]
    pub to: u64,
}

/// A decision of the control plane.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DecisionProto {
    /// The decision; absent if it is of a newer version.
    #[prost(oneof = "DecisionKind", tags = "10, 11, 12, 13, 14, 15, 16")]
    pub kind: Option<DecisionKind>,
}

impl DecisionProto {
    /// True if changes of names may be lost by what it decides about, while records of chains are kept.
    pub fn loses_names(&self) -> bool {
        matches!(self.kind, Some(DecisionKind::LoseNames(_) | DecisionKind::Recover(_)))
    }
}

/// A node, in the stored state.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StoredNode {
    /// Its id.
    #[prost(uint32, tag = "1")]
    pub node: u32,
    /// Changes of it.
    #[prost(uint64, tag = "2")]
    pub revision: u64,
    /// Its description of itself, when it joined and since.
    #[prost(message, optional, tag = "3")]
    pub info: Option<NodeInfoProto>,
    /// Its lease has ended.
    #[prost(bool, tag = "4")]
    pub is_offline: bool,
    /// It is giving its chains away.
    #[prost(bool, tag = "5")]
    pub is_draining: bool,
    /// What only it has is lost for good.
    #[prost(bool, tag = "6")]
    pub is_dead: bool,
    /// Stamp of the decision that it is offline; 0 while it is not.
    #[prost(uint64, tag = "7")]
    pub offline_since: u64,
}

/// A target's part in its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum StoredRole {
    /// None.
    Out = 0,
    /// A full member.
    Serving = 1,
    /// The new tail.
    Joining = 2,
    /// Behind the tail.
    Syncing = 3,
}

/// A target, in the stored state.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct StoredTarget {
    /// Its node.
    #[prost(uint32, tag = "1")]
    pub node: u32,
    /// Its device there.
    #[prost(uint32, tag = "2")]
    pub device: u32,
    /// Its part.
    #[prost(enumeration = "StoredRole", tag = "3")]
    pub role: i32,
    /// Of the process that took this part.
    #[prost(uint64, tag = "4")]
    pub incarnation: u64,
    /// It is to go.
    #[prost(bool, tag = "5")]
    pub is_retiring: bool,
    /// Stamp of the decision that took its last part away, unless it has been a full member since; 0: none did.
    #[prost(uint64, tag = "6")]
    pub left: u64,
}

/// A chain, in the stored state.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StoredChain {
    /// Its number.
    #[prost(uint32, tag = "1")]
    pub chain: u32,
    /// Configuration in force.
    #[prost(uint64, tag = "2")]
    pub chain_epoch: u64,
    /// Changes of it.
    #[prost(uint64, tag = "3")]
    pub revision: u64,
    /// Its targets: members first, head to tail.
    #[prost(message, repeated, tag = "4")]
    pub targets: Vec<StoredTarget>,
    /// Nodes that were removed while online and have not acknowledged it.
    #[prost(uint32, repeated, tag = "5")]
    pub leaving: Vec<u32>,
    /// Configuration in which it last resumed from a log alone; 0 if it never did.
    #[prost(uint64, tag = "6")]
    pub resumed_epoch: u64,
    /// A target that may have had more records was missing then.
    #[prost(bool, tag = "7")]
    pub resumed_missing: bool,
    /// The intervals in which records of it may have been lost: of each the stamps before and after it.
    #[prost(uint64, repeated, tag = "8")]
    pub gaps: Vec<u64>,
    /// Where it resumed from a stale copy, the stamps before and after what may be missing, durable or not; 0 and 0: it
    /// never did.
    #[prost(uint64, tag = "9")]
    pub behind_from: u64,
    /// See `behind_from`.
    #[prost(uint64, tag = "10")]
    pub behind_to: u64,
}

/// An identity that a cluster had before it was recovered from one node.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StoredFormer {
    /// The identity, 16 bytes, little-endian.
    #[prost(bytes = "vec", tag = "1")]
    pub cluster: Vec<u8>,
    /// The node that it was recovered from.
    #[prost(uint32, tag = "2")]
    pub node: u32,
    /// Stamp of that decision.
    #[prost(uint64, tag = "3")]
    pub at: u64,
}

/// The state of the control plane after an entry of the metalog.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StoredCluster {
    /// Version of this format: [`STORED_FORMAT`].
    #[prost(uint32, tag = "1")]
    pub format: u32,
    /// The cluster's identity, 16 bytes, little-endian.
    #[prost(bytes = "vec", tag = "2")]
    pub cluster: Vec<u8>,
    /// Decisions that had an effect.
    #[prost(uint64, tag = "3")]
    pub version: u64,
    /// Those among them that changed a configuration.
    #[prost(uint64, tag = "4")]
    pub table_version: u64,
    /// Id of the next node that joins.
    #[prost(uint32, tag = "5")]
    pub next_node: u32,
    /// Replicas wanted of each chain.
    #[prost(uint32, tag = "6")]
    pub replicas: u32,
    /// Chains are moved until every node has its share.
    #[prost(bool, tag = "7")]
    pub is_balancing: bool,
    /// The nodes, by id.
    #[prost(message, repeated, tag = "8")]
    pub nodes: Vec<StoredNode>,
    /// The chains, by number.
    #[prost(message, repeated, tag = "9")]
    pub chains: Vec<StoredChain>,
    /// The identities before this one, oldest first.
    #[prost(message, repeated, tag = "10")]
    pub former: Vec<StoredFormer>,
}

/// Of [`StoredCluster`].
pub const STORED_FORMAT: u32 = 1;
