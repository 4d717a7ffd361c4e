//! Events of chains for the control plane, and the ends of their logs.

use frieze_base::{ChainEpoch, ChainId, Fault, NodeId};
use frieze_hlc::Hlc;

/// Events of chains, for the control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChainEvent {
    /// The syncing node has all that is committed: it can join.
    CaughtUp {
        /// The chain.
        chain: ChainId,
        /// Under this configuration.
        epoch: ChainEpoch,
        /// The syncing node.
        node: NodeId,
    },
    /// This node, the joining tail, can serve.
    Ready {
        /// The chain.
        chain: ChainId,
        /// Under this configuration.
        epoch: ChainEpoch,
    },
    /// A member sent an impossible message: its connection is to be closed.
    Distrust {
        /// The chain.
        chain: ChainId,
        /// The member.
        peer: NodeId,
        /// The rule that the message broke.
        why: &'static str,
    },
    /// The successor has sent nothing for long, despite repeats; or it sends again.
    Silent {
        /// The chain.
        chain: ChainId,
        /// The unreachable successor; `None` if it is reachable again.
        node: Option<NodeId>,
    },
    /// This node stops being a member of the chain although its configuration names it: its device failed to append a
    /// record.
    Failed {
        /// The chain.
        chain: ChainId,
        /// The fault.
        fault: Fault,
    },
    /// A record that another member lacks cannot be read here.
    Damaged {
        /// The chain.
        chain: ChainId,
        /// Number of the record.
        n: u64,
        /// The fault of the read.
        fault: Fault,
    },
}

/// End of the log of a chain at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainEnd {
    /// The chain.
    pub chain: ChainId,
    /// The newest configuration that the node has taken.
    pub taken: ChainEpoch,
    /// The configuration under which its last record was stamped.
    pub epoch: ChainEpoch,
    /// Number of its last record. Of two logs of a chain the one with the larger (epoch, n) has more.
    pub n: u64,
    /// Stamp of its last record; ZERO without one.
    pub newest: Hlc,
}
