//! What nodes tell the leader, and what it tells them.

use frieze_base::{ChainEpoch, ChainId, ClusterId, MonoTime, NodeId};

use crate::chain::{Configuration, Lost, Resumed};
use crate::node::Device;

/// One look at the driver's clocks, taken once per input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Monotonic, and running while the machine sleeps (`CLOCK_BOOTTIME`): leases are counted by it.
    pub mono: MonoTime,
    /// Microseconds since the Unix epoch: compared between nodes, and nothing else.
    pub wall_us: u64,
}

/// How a target is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// Well.
    #[default]
    Good,
    /// It does not hear from this neighbour.
    Unreachable(NodeId),
    /// Its device takes no more records.
    Failed,
    /// The same for want of space: what it has is good.
    Full,
}

/// What a node tells of one chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The chain.
    pub chain: ChainId,
    /// The configuration that it has installed; 0 for none since its process began.
    pub epoch: ChainEpoch,
    /// The tail says, under that configuration: this one has caught up.
    pub caught_up: Option<NodeId>,
    /// The joining tail says, under that configuration: it can serve.
    pub is_ready: bool,
    /// (epoch, n) of the last record in its log.
    pub last: (ChainEpoch, u64),
    /// The stamp of that record, as a number; 0 without one.
    pub newest: u64,
    /// How it is.
    pub health: Health,
    /// Bytes that it lacks, as far as it knows.
    pub left_bytes: u64,
    /// What its log may lack since a loss of power, as long as it has not been a member since.
    pub lost: Option<Lost>,
}

/// What a node still has of chains that others have by now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remains {
    /// Chains that it has no part in, and has not taken out yet.
    pub chains: u32,
    /// Bytes of those taken out that are still to be given back, as far as it has counted them.
    pub left_bytes: u64,
}

/// A wall clock compared with that of the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
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
    /// The newest of them that it has seen answered.
    pub heard: u64,
    /// Its wall clock, as far as it could compare it with that of this leader.
    pub clock: Option<Clock>,
    /// It stops, and holds no lease from now on.
    pub resigns: bool,
    /// Where others reach it.
    pub address: String,
    /// Its devices.
    pub devices: Vec<Device>,
    /// Every chain that it has records of or a part in.
    pub chains: Vec<Report>,
    /// What it has to give back.
    pub remains: Remains,
    /// What is wrong with it besides, in words of at most [`TROUBLE_BYTES_MAX`] bytes; empty: nothing.
    pub trouble: String,
}

/// Bytes of the words in which a node tells what is wrong with it.
pub const TROUBLE_BYTES_MAX: usize = 512;

/// What a node is to know of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The chain.
    pub chain: ChainId,
    /// The device, if it has a target.
    pub device: u32,
    /// What to install; `None`: what it has.
    pub configuration: Option<Configuration>,
    /// The last time that the chain went on from a log alone: older logs end in a gap there.
    pub resumed: Option<Resumed>,
}

/// The leader's answer to a heartbeat, or, with number 0, what has just been decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// The heartbeat that it answers.
    pub number: u64,
    /// The process that it is for.
    pub incarnation: u64,
    /// Who gives it.
    pub leader: NodeId,
    /// The leader's wall clock as it gave it, in microseconds.
    pub wall_us: u64,
    /// [`crate::State::version`] that it was made from.
    pub version: u64,
    /// Length of the lease in nanoseconds, from when the heartbeat was sent; 0 for none.
    pub lease_ns: u64,
    /// With a lease: every chain in which the node has a part, and those that it does not know to have lost.
    pub chains: Vec<Assignment>,
}
