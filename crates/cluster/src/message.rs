//! Messages from nodes to the leader, and its replies.

use frieze_base::{ChainEpoch, ChainId, ClusterId, MonoTime, NodeId};

use frieze_wire::chain::Configuration;

use crate::chain::{LostInterval, Resumption};
use crate::node::NodeDevice;

/// One look at the driver's clocks, taken once per input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WallMoment {
    /// Monotonic, and running while the machine sleeps (`CLOCK_BOOTTIME`): leases are counted by it.
    pub mono: MonoTime,
    /// Microseconds since the Unix epoch: compared between nodes, and nothing else.
    pub wall_us: u64,
}

/// How a target is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplicaHealth {
    /// Well.
    #[default]
    Good,
    /// It receives nothing from this neighbour.
    Unreachable(NodeId),
    /// Its device takes no more records.
    Failed,
    /// The device is out of space: it takes no new records, and the stored ones are good.
    Full,
}

/// A node's report of one chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaReport {
    /// The chain.
    pub chain: ChainId,
    /// The configuration that it has installed; 0 for none since its process began.
    pub epoch: ChainEpoch,
    /// Reported by the tail under that configuration: this node has caught up.
    pub caught_up: Option<NodeId>,
    /// Reported by the joining tail under that configuration: it can serve.
    pub is_ready: bool,
    /// (epoch, n) of the last record in its log.
    pub last: (ChainEpoch, u64),
    /// The stamp of that record, as a number; 0 without one.
    pub newest: u64,
    /// How it is.
    pub health: ReplicaHealth,
    /// Bytes that it lacks, as far as it knows.
    pub left_bytes: u64,
    /// What its log may lack since a power loss, until it is a member again.
    pub lost: Option<LostInterval>,
}

/// Replica garbage of a node: data of chains that other nodes hold by now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaGarbage {
    /// Chains that it has no part in, and has not taken out yet.
    pub chains: u32,
    /// Bytes of those taken out that are still to be given back, as far as it has counted them.
    pub left_bytes: u64,
}

/// A wall clock compared with that of the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    /// It less the leader's, in microseconds.
    pub offset_us: i64,
    /// At most so far from the truth: half of the time on the way, there and back.
    pub error_us: u64,
}

/// A node is there and asks for a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// Its cluster.
    pub cluster: ClusterId,
    /// Its id.
    pub node: NodeId,
    /// Its process.
    pub incarnation: u64,
    /// Rises with each heartbeat of the process.
    pub number: u64,
    /// The newest of its heartbeats whose answer it has received.
    pub heard: u64,
    /// Its wall clock, as far as it could compare it with that of this leader.
    pub clock: Option<ClockOffset>,
    /// It stops, and holds no lease from now on.
    pub resigns: bool,
    /// Address at which peers reach it.
    pub address: String,
    /// Its devices.
    pub devices: Vec<NodeDevice>,
    /// Every chain that it has records of or a part in.
    pub chains: Vec<ReplicaReport>,
    /// Its replica garbage.
    pub remains: ReplicaGarbage,
    /// Any further trouble, as text of at most [`TROUBLE_BYTES_MAX`] bytes; empty if there is none.
    pub trouble: String,
}

/// Length of a node's text about its trouble, in bytes.
pub const TROUBLE_BYTES_MAX: usize = 512;

/// What the leader sends a node about one chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The chain.
    pub chain: ChainId,
    /// The device, if it has a target.
    pub device: u32,
    /// The configuration to install; `None`: keep the installed one.
    pub configuration: Option<Configuration>,
    /// The last time that the chain resumed from a log alone: older logs end in a gap there.
    pub resumed: Option<Resumption>,
}

/// The leader's answer to a heartbeat; with number 0, a new decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseGrant {
    /// The heartbeat that it answers.
    pub number: u64,
    /// The process that it is for.
    pub incarnation: u64,
    /// The leader that grants it.
    pub leader: NodeId,
    /// The leader's wall clock as it gave it, in microseconds.
    pub wall_us: u64,
    /// [`crate::ClusterState::version`] that it was made from.
    pub version: u64,
    /// Length of the lease in nanoseconds, from when the heartbeat was sent; 0 for none.
    pub lease_ns: u64,
    /// With a lease: every chain in which the node has a part, and those that it does not know to have lost.
    pub chains: Vec<Assignment>,
}
