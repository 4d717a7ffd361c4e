//! Messages of servers that the network has not collected yet.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use frieze_base::{Fault, NodeId};
use frieze_hlc::Hlc;
use frieze_wire::message::Reply;

use super::net::Envelope;

/// Names a connection of a client, never used twice.
pub(super) type NodeConnId = u64;

/// An answer on its way out of a server.
#[derive(Clone, Debug)]
pub(super) struct NodeResponse {
    pub(super) node: NodeId,
    pub(super) client: usize,
    pub(super) conn: NodeConnId,
    pub(super) request_id: u64,
    pub(super) result: Result<Reply, Fault>,
    pub(super) payload: Vec<u8>,
    pub(super) hlc: Hlc,
}

/// Messages of servers that the world has not collected yet.
#[derive(Default)]
pub(super) struct Outbox {
    pub(super) messages: VecDeque<Box<Envelope>>,
    pub(super) answers: Vec<NodeResponse>,
}

/// Shared by all nodes.
pub(super) type Post = Arc<Mutex<Outbox>>;
