//! Driver state of each chain beside its replica, and the work to do after the appender's lock is released.

use std::collections::BTreeMap;

use bytes::Bytes;
use frieze_base::{ChainEpoch, ChainId, Fault, MonoTime, NodeId};
use frieze_chain::RequestId;
use frieze_hlc::Hlc;
use frieze_multilog::LogPosition;
use frieze_net::SentPrefix;
use frieze_wire::peer::CloseAfter;

use crate::report::ChainEvent;
use crate::supply::Supply;
use crate::write_request::{WriteCallback, WriteResult};

/// State of one chain at this node.
#[derive(Default)]
pub(crate) struct DriverState {
    /// The control plane sets its configuration (false: this node is alone in the chain).
    pub(crate) shared: bool,
    /// Uncommitted records, by number: they may have to be sent again.
    pub(crate) uncommitted: BTreeMap<u64, UncommittedRecord>,
    /// Bytes of all uncommitted records.
    pub(crate) uncommitted_bytes: u64,
    /// Bytes of those whose payload is in memory.
    kept_bytes: u64,
    /// Stamp up to which the tail has reported everything as committed.
    pub(crate) seen: Hlc,
    /// Catch-up of a member that lacks old records.
    pub(crate) supply: Option<Supply>,
    /// Last progress, valid since `since`: epoch, last number, clean number, closed instant, and the number that the
    /// member under catch-up has acknowledged.
    pub(crate) progress: (ChainEpoch, u64, u64, Hlc, u64),
    pub(crate) since: MonoTime,
    /// When it last made progress; repeats do not change it.
    pub(crate) waits_since: MonoTime,
    /// The successor that was reported as unreachable.
    pub(crate) silent: Option<NodeId>,
    /// The newest promise without a waiter.
    pub(crate) promised: Hlc,
    /// When it was last read at an instant here.
    pub(crate) read_at: Option<MonoTime>,
    /// When this node last asked its head to promise.
    pub(crate) asked_at: Option<MonoTime>,
    /// Barriers: requests that wait until other members have records on stable storage.
    pub(crate) barriers: Vec<Barrier>,
    /// Members that asked for durability here: the record number and its log position, by member.
    pub(crate) persisting: BTreeMap<NodeId, (u64, LogPosition)>,
    /// Changes of metadata that this chain is to close.
    pub(crate) ordered: Vec<OrderedChange>,
}

/// A request that waits until every member has records on stable storage.
pub(crate) struct Barrier {
    pub(crate) n: u64,
    pub(crate) left: Vec<NodeId>,
    pub(crate) asked: ChainEpoch,
    pub(crate) waiter: u64,
}

/// A record that is not committed.
pub(crate) struct UncommittedRecord {
    /// Its bytes, if they may be requested and there is room.
    pub(crate) payload: Option<Bytes>,
    /// The prefix of its bytes that was already sent.
    pub(crate) ahead: Option<SentPrefix>,
    len: u64,
    /// Checksum of the bytes.
    pub(crate) crc: u32,
}

impl UncommittedRecord {
    pub(crate) fn of(payload: Option<Bytes>, len: usize, crc: u32) -> UncommittedRecord {
        UncommittedRecord { payload, ahead: None, len: len as u64, crc }
    }

    /// The same record, with the prefix of its bytes that was already sent.
    pub(crate) fn behind(self, ahead: Option<SentPrefix>) -> UncommittedRecord {
        UncommittedRecord { ahead, ..self }
    }
}

impl DriverState {
    /// State of a chain whose configuration the control plane sets, or not.
    pub(crate) fn of(shared: bool) -> DriverState {
        DriverState { shared, ..DriverState::default() }
    }

    /// Keeps a record; its bytes only while at most `kept_max` bytes are in memory.
    pub(crate) fn keep_uncommitted(&mut self, n: u64, mut record: UncommittedRecord, kept_max: u64) {
        self.uncommitted_bytes += record.len;
        if self.kept_bytes + record.len > kept_max {
            (record.payload, record.ahead) = (None, None);
        }
        self.kept_bytes += if record.payload.is_some() { record.len } else { 0 };
        self.uncommitted.insert(n, record);
    }

    /// Drops the committed records. True if there were any.
    pub(crate) fn release(&mut self, clean: u64) -> bool {
        let mut any = false;
        while let Some(first) = self.uncommitted.first_entry().filter(|first| *first.key() <= clean) {
            let record = first.remove();
            self.uncommitted_bytes -= record.len;
            self.kept_bytes -= if record.payload.is_some() { record.len } else { 0 };
            any = true;
        }
        any
    }

    /// Resets the state with the replica.
    pub(crate) fn forget(&mut self) {
        (self.uncommitted, self.uncommitted_bytes, self.kept_bytes, self.supply) = (BTreeMap::new(), 0, 0, None);
    }
}

/// A request that waits for other members.
pub(crate) struct PendingReply {
    #[expect(dead_code, reason = "for a debugger, where a wait hangs")]
    pub(crate) chain: ChainId,
    pub(crate) since: MonoTime,
    pub(crate) reply: ResultCallback,
}

/// Work to do after the appender's lock is released: replies are system calls, and a receiver may send its next request
/// at once.
#[derive(Default)]
pub(crate) struct DeferredWork {
    pub(crate) done: Vec<(WriteCallback, Result<WriteResult, Fault>)>,
    pub(crate) waited: Vec<(ResultCallback, Result<(), Fault>)>,
    pub(crate) reports: Vec<ChainEvent>,
    pub(crate) supplies: Vec<ChainId>,
    /// End of the last append and its bytes, if a request waits for the flush.
    pub(crate) flush: Option<(LogPosition, u64)>,
    /// Messages to other members are queued: they are sent when the lock is released.
    pub(crate) queued: bool,
}

impl DeferredWork {
    pub(crate) fn answer(&mut self, waiter: Option<PendingReply>, result: Result<(), Fault>) {
        self.waited.extend(waiter.map(|waiter| (waiter.reply, result)));
    }
}

/// A change that a chain is to close, and the node that waits for it.
pub(crate) struct OrderedChange {
    pub(crate) after: CloseAfter,
    pub(crate) requester: Requester,
    pub(crate) since: MonoTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requester {
    /// A waiter on this node.
    Local(u64),
    /// Another node, which asked the head.
    Node(NodeId),
}

/// Called once, by the thread that has the result.
pub(crate) type ResultCallback = Box<dyn FnOnce(Result<(), Fault>) + Send>;

pub(crate) fn waiter_of(request: RequestId) -> Option<u64> {
    (request.0 & WAITER != 0).then_some(request.0 & !WAITER)
}

/// Bit of requests that wait but are no writes.
pub(crate) const WAITER: u64 = 1 << 63;

/// Request of a promise without a waiter.
pub(crate) const NOBODY: RequestId = RequestId(WAITER | (WAITER - 1));
