//! Leases: a node's messages to the leader of the metalog, and its answers.

use crate::control::DeviceProto;

/// A node is there and asks for a lease.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HeartbeatProto {
    /// Number of its process.
    #[prost(uint64, tag = "1")]
    pub incarnation: u64,
    /// Rises with each heartbeat of the process.
    #[prost(uint64, tag = "2")]
    pub number: u64,
    /// The newest of its heartbeats whose answer it has received.
    #[prost(uint64, tag = "3")]
    pub heard: u64,
    /// Its wall clock compared with the leader's.
    #[prost(message, optional, tag = "4")]
    pub clock: Option<ClockOffsetProto>,
    /// It stops, and holds no lease from now on.
    #[prost(bool, tag = "5")]
    pub resigns: bool,
    /// Address at which peers reach it.
    #[prost(string, tag = "6")]
    pub address: String,
    /// All its devices.
    #[prost(message, repeated, tag = "7")]
    pub devices: Vec<DeviceProto>,
    /// Every chain that it has records of or a part in.
    #[prost(message, repeated, tag = "8")]
    pub chains: Vec<ChainReport>,
    /// Chains that other nodes hold by now, and whose data it has not removed yet.
    #[prost(uint32, tag = "9")]
    pub remains_chains: u32,
    /// Bytes of those taken out that are still to be given back, as far as it has counted them.
    #[prost(uint64, tag = "10")]
    pub remains_bytes: u64,
    /// Any further trouble, as text; empty if there is none.
    #[prost(string, tag = "11")]
    pub trouble: String,
}

/// Sessions that have a connection to the teller: they do not expire.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Attached {
    /// All of them.
    #[prost(fixed64, repeated, tag = "1")]
    pub sessions: Vec<u64>,
}

/// A wall clock compared with another.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ClockOffsetProto {
    /// It less the other, in microseconds.
    #[prost(sint64, tag = "1")]
    pub offset_us: i64,
    /// At most so far from the truth.
    #[prost(uint64, tag = "2")]
    pub error_us: u64,
}

/// A node's report of one chain.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ChainReport {
    /// The chain.
    #[prost(uint32, tag = "1")]
    pub chain: u32,
    /// The configuration that it has installed; 0 for none since its process began.
    #[prost(uint64, tag = "2")]
    pub epoch: u64,
    /// As the tail, under that configuration: this node has caught up; 0 for none.
    #[prost(uint32, tag = "3")]
    pub caught_up: u32,
    /// As the joining tail, under that configuration: it can serve.
    #[prost(bool, tag = "4")]
    pub is_ready: bool,
    /// Configuration of the last record in its log.
    #[prost(uint64, tag = "5")]
    pub last_epoch: u64,
    /// Number of the last record in its log.
    #[prost(uint64, tag = "6")]
    pub last: u64,
    /// Its device takes no more records.
    #[prost(bool, tag = "7")]
    pub has_failed: bool,
    /// The neighbour that it receives nothing from; 0 for none.
    #[prost(uint32, tag = "8")]
    pub unreachable: u32,
    /// Bytes that it lacks, as far as it knows.
    #[prost(uint64, tag = "9")]
    pub left_bytes: u64,
    /// A power loss may have taken the records of its log between these stamps, both exclusive, and they have not been
    /// supplied again; 0 and 0: none did.
    #[prost(uint64, tag = "10")]
    pub lost_from: u64,
    /// See `lost_from`.
    #[prost(uint64, tag = "11")]
    pub lost_to: u64,
    /// Stamp of the last record in its log; 0 without one.
    #[prost(uint64, tag = "12")]
    pub newest: u64,
    /// With `has_failed`: for want of space.
    #[prost(bool, tag = "13")]
    pub is_full: bool,
}

/// The leader's answer to a heartbeat; with number 0, a new decision.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LeaseGrantProto {
    /// The heartbeat that it answers.
    #[prost(uint64, tag = "1")]
    pub number: u64,
    /// The process that it is for.
    #[prost(uint64, tag = "2")]
    pub incarnation: u64,
    /// The leader's wall clock as it gave it, in microseconds since the Unix epoch.
    #[prost(uint64, tag = "3")]
    pub wall_us: u64,
    /// Version of the state that it was made from.
    #[prost(uint64, tag = "4")]
    pub version: u64,
    /// Length of the lease in nanoseconds, from when the heartbeat was sent; 0 for none.
    #[prost(uint64, tag = "5")]
    pub lease_ns: u64,
    /// With a lease: every chain in which the node has a part, and those that it does not know to have lost.
    #[prost(message, repeated, tag = "6")]
    pub chains: Vec<AssignmentProto>,
}

/// What the leader sends a node about one chain.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AssignmentProto {
    /// The chain.
    #[prost(uint32, tag = "1")]
    pub chain: u32,
    /// The device, if it has a target.
    #[prost(uint32, tag = "2")]
    pub device: u32,
    /// The configuration to install; absent: keep the installed one.
    #[prost(message, optional, tag = "3")]
    pub configuration: Option<ConfigurationProto>,
    /// Configuration in which the chain last resumed from a log alone; 0 if it never did.
    #[prost(uint64, tag = "4")]
    pub resumed_epoch: u64,
    /// A target that may have had more records was missing then.
    #[prost(bool, tag = "5")]
    pub resumed_missing: bool,
}

/// The members of a chain.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ConfigurationProto {
    /// Its number.
    #[prost(uint64, tag = "1")]
    pub epoch: u64,
    /// Node ids, head first.
    #[prost(uint32, repeated, tag = "2")]
    pub members: Vec<u32>,
    /// The node that syncs behind the tail; 0 for none.
    #[prost(uint32, tag = "3")]
    pub syncing: u32,
    /// The tail is new.
    #[prost(bool, tag = "4")]
    pub joining: bool,
}

/// The leader refuses a node.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HeartbeatRefusal {
    /// Code of `base::Reason`.
    #[prost(uint32, tag = "1")]
    pub reason: u32,
    /// The reason, and what to do.
    #[prost(string, tag = "2")]
    pub message: String,
}
