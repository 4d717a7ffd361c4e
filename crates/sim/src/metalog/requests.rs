//! Requests of the clients, responses to them, and those that wait at members.

use std::collections::BTreeMap;

use frieze_base::{LogIndex, NodeId};
use frieze_hlc::Hlc;

use super::state::PutId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetalogRequest {
    Put(PutId),
    Read,
    Close,
}

/// True if the client waits until its request is durable.
pub(super) fn is_sync(ask: PutId) -> bool {
    ask.1.is_multiple_of(3)
}

/// True if the batch of the request is one that must never be undone.
pub(super) fn is_barrier(ask: PutId) -> bool {
    ask.1.is_multiple_of(10)
}

#[derive(Clone, Copy, Debug)]
pub(super) enum MemberResponse {
    Done(PutId),
    Shown(LogIndex),
    Closed,
    Hint(Option<NodeId>),
    Again,
}

#[derive(Debug)]
pub(super) struct MetalogClient {
    pub(super) host: NodeId,
    pub(super) what: MetalogRequest,
    pub(super) seq: u64,
    pub(super) attempt: u64,
    /// Newest answered index when this attempt began.
    pub(super) floor: u64,
    pub(super) left: u64,
    /// The member that this attempt asks.
    pub(super) on_request: NodeId,
}

/// Requests that wait at a host.
#[derive(Debug, Default)]
pub(super) struct PendingRequests {
    pub(super) puts: BTreeMap<PutId, Vec<(u64, u64)>>,
    pub(super) reads: BTreeMap<u64, (u64, u64)>,
    pub(super) shows: Vec<(LogIndex, u64, u64)>,
    pub(super) closes: Vec<(Hlc, u64, u64)>,
    /// Requests that are executed and wait until their entry is durable.
    pub(super) syncs: Vec<(LogIndex, PutId, (u64, u64))>,
}
