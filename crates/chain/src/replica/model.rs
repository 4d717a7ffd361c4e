//! State of a replica.

use std::collections::{BTreeMap, VecDeque};

use frieze_base::{ChainEpoch, ChainId, NodeId, Reason, Seq, SessionId};
use frieze_hlc::Hlc;
use frieze_wire::chain::{Configuration, RecordHeader};
use frieze_wire::message::Durability;

use crate::configuration::{ForwardedRecord, RequestId};
use crate::dedupe::SessionDedupe;
use crate::message::{AppendToken, LogEnd};
use crate::settings::Settings;

/// One member of a chain: head, tail, both, or between them.
#[derive(Debug)]
pub struct Replica {
    pub(super) chain: ChainId,
    /// This node's id among the members.
    pub(super) me: NodeId,
    pub(super) settings: Settings,
    /// In force; requests and messages of another are refused.
    pub(super) configuration: Configuration,
    /// Configuration of the last record. With its number it orders logs of the chain against each other.
    pub(super) last_epoch: ChainEpoch,

    /// Number of the last record that was given a number.
    pub(super) last: u64,
    /// Every record up to this one is whole in the log.
    pub(super) appended: u64,
    /// Every record up to this one is committed: the commit position.
    pub(super) clean: u64,
    /// The records after `clean`, in order: numbers `clean + 1 ..= last`.
    pub(super) dirty: VecDeque<DirtyRecord>,
    /// Durable frontier of the device.
    pub(super) persisted: LogEnd,
    /// Why the device takes no more records.
    pub(super) failed: Option<Reason>,

    /// Newest stamp given; stays when its record is withdrawn.
    pub(super) newest: Hlc,
    /// The group that `newest` was given to: its further parts share the stamp.
    pub(super) newest_group: (SessionId, Seq),
    /// Nothing will be stamped at or below it.
    pub(super) promised: Hlc,
    /// Promises made and not yet acknowledged by the tail, oldest first.
    pub(super) promises: VecDeque<ClosePromise>,
    /// Newest acknowledged promise: the closed timestamp.
    pub(super) closed: Hlc,
    /// The record that it follows.
    pub(super) closed_follows: u64,
    /// Requests that wait for an instant to close.
    pub(super) closing: Vec<PendingClose>,
    /// Requests that wait for the tail's cut for a read of now.
    pub(super) tail_queries: Vec<RequestId>,
    pub(super) link: NeighbourState,

    pub(super) sessions: BTreeMap<SessionId, SessionDedupe>,
    pub(super) tokens: u64,
    /// Configurations under which records were stamped, in order, with the number of the last of each; the newest of
    /// them.
    pub(super) epochs: VecDeque<(ChainEpoch, u64)>,
}

/// A record that is not committed yet.
#[derive(Debug)]
pub(super) struct DirtyRecord {
    pub(super) token: AppendToken,
    pub(super) header: RecordHeader,
    /// When the writer is answered.
    pub(super) durability: Durability,
    /// Every number of its session below it has been answered.
    pub(super) acked: Seq,
    /// The request and its retries, all answered at the commit.
    pub(super) waiting: Vec<RequestId>,
    /// Where it ends in the log, once it is whole there.
    pub(super) end: Option<LogEnd>,
}

impl DirtyRecord {
    /// The record as it is sent down the chain.
    pub(super) fn forwarded(&self) -> ForwardedRecord {
        ForwardedRecord { header: self.header.clone(), durability: self.durability, acked: self.acked }
    }
}

/// "Nothing will be stamped at or below `at`", in order with the records: it counts where record `follows` is present.
#[derive(Debug)]
pub(super) struct ClosePromise {
    pub(super) follows: u64,
    pub(super) at: Hlc,
}

#[derive(Debug)]
pub(super) struct PendingClose {
    pub(super) at: Hlc,
    pub(super) request: RequestId,
}

/// Knowledge of the neighbours under the configuration in force.
#[derive(Debug, Default)]
pub(super) struct NeighbourState {
    /// Every record up to it was sent to the successor or is present there; `None` until the successor has reported
    /// what it has.
    pub(super) sent: Option<u64>,
    /// Newest promise sent to the successor.
    pub(super) promised: Hlc,
    /// Every record up to it is committed at the successor.
    pub(super) acked: u64,
    /// Commit position and closed timestamp last sent to the predecessor.
    pub(super) reported: Option<(u64, Hlc)>,
    /// A new tail answers no reads of now before it has committed what it had when it became tail. The tail before it
    /// may have shown a `sync` record that was on stable storage there, and is not yet here.
    pub(super) inherited: u64,
    /// Nor does it serve before it knows what was promised then: it may become head.
    pub(super) inherited_promise: Hlc,
    /// Every record up to it was sent out of the log to a successor that lacked it.
    pub(super) supplied: u64,
    /// The syncing node knows that its log is a prefix of the chain's.
    pub(super) is_sound: bool,
    /// The tail has reported that the syncing node has caught up, or a joining tail that it is ready.
    pub(super) has_reported: bool,
}
