//! Inputs and effects of the controller.

use frieze_base::{ClusterId, NodeId};

use crate::decision::{ClusterChange, Decision};
use crate::error::Error;
use crate::message::{ClockOffset, Heartbeat, LeaseGrant};
use crate::node::{NodeDevice, NodeInfo};

/// Everything that can happen to an controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControllerInput {
    /// Time has passed. Sent as often as a lost node should be noticed: each 50 ms by default.
    Tick,
    /// This node leads the metalog, and its state holds everything that earlier leaders have had committed.
    Lead {
        /// In this term.
        term: u64,
    },
    /// It does not, and this one does.
    Follow(Option<NodeId>),
    /// A node is there. The sender is proven by the connection.
    Heartbeat(Heartbeat),
    /// A majority of the metalog has confirmed, after [`ControllerEffect::Confirm`], that this node leads, and the
    /// state holds everything that was committed by then.
    Confirmed {
        /// From the effect.
        token: u64,
    },
    /// Decisions were executed on the state, with these changes.
    Applied(Vec<ClusterChange>),
    /// A request of an operator or a joining node. Answered by [`ControllerEffect::Answer`].
    Request {
        /// Names the request.
        request: u64,
        /// The request.
        ask: OperatorRequest,
    },
}

/// A request of an operator, or of a node that wants to join. A repeated request takes effect once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperatorRequest {
    /// To be one of the cluster. Answered by [`OperatorReply::Joined`].
    Join {
        /// The node.
        newcomer: NodeInfo,
        /// The cluster that its directory belongs to, if it does to one.
        cluster: Option<ClusterId>,
        /// Its wall clock, as far as it could compare it with this node's.
        clock: Option<ClockOffset>,
    },
    /// The node gives its chains away.
    Drain {
        /// Which.
        node: NodeId,
        /// Even where fewer replicas than wanted remain.
        fewer: bool,
    },
    /// The node may keep its targets.
    Undrain(NodeId),
    /// A drained node is none of the cluster any more.
    Remove(NodeId),
    /// The node is offline and will not come back, nor will what only it has. Its chains continue without it, and it is
    /// removed.
    DeclareDead {
        /// The node.
        node: NodeId,
        /// The operator confirms the loss of what only this node has.
        with_loss: bool,
    },
    /// A node has one more device.
    AddDevice {
        /// Which.
        node: NodeId,
        /// The device.
        device: NodeDevice,
    },
    /// Move chains until every node has its share, or stop that.
    Balance(bool),
    /// So many replicas of each chain.
    Replicas(u32),
}

/// Result of an [`OperatorRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorReply {
    /// The node has this id.
    Joined(NodeId),
    /// It is decided, and is being done: [`Controller::status`] shows how far.
    Decided,
}

/// Everything that an controller asks of its driver, to be done in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControllerEffect {
    /// Ask a majority of the metalog whether this node leads, now or later (a read index), and wait until the state
    /// holds all up to there. Then [`ControllerInput::Confirmed`]; nothing if it does not come.
    Confirm {
        /// Names the question.
        token: u64,
    },
    /// Send this to a node, which may be this one.
    Grant {
        /// The node.
        to: NodeId,
        /// The grant.
        grant: LeaseGrant,
    },
    /// Refuse a node's heartbeat.
    Refuse {
        /// The node.
        to: NodeId,
        /// The reason, and what to do.
        error: Error,
    },
    /// Propose these to the log, if this node still leads in this term: a decision from an older term may rest on
    /// overtaken state. A decision that is not taken is proposed again.
    Propose {
        /// From [`ControllerInput::Lead`].
        term: u64,
        /// In this order.
        decisions: Vec<Decision>,
    },
    /// Answers [`ControllerInput::Request`].
    Answer {
        /// The request.
        request: u64,
        /// Its result.
        result: Result<OperatorReply, Error>,
    },
    /// This node's own clock differs too much from those of the other nodes: transfer the leadership.
    StepAside(Error),
}
