//! Inputs and effects of a replica: two closed enums, so that its whole life is one `match`.

use frieze_base::{ChainEpoch, ChunkId, Fault, MonoTime, NodeId, Reason, SegmentId, Seq, SessionId};
use frieze_hlc::{Hlc, UserTime};
use frieze_wire::chain::{Configuration, RecordHeader};
use frieze_wire::message::Durability;

use crate::configuration::{ForwardedRecord, Message, RequestId};

/// One look at the driver's clocks, taken once per input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Monotonic time; drives timers and ages, never order.
    pub mono: MonoTime,
    /// The node's hybrid clock. For [`ReplicaInput::Write`] a fresh tick, taken while the driver holds the replica, so
    /// that it lies above every stamp and every promise; for [`ReplicaInput::Close`] a reading taken after the clock
    /// was moved past the instant. For the other inputs any reading will do.
    pub hlc: Hlc,
}

/// Names one append from [`ReplicaEffect::Append`] to its completion. Never used twice by a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AppendToken(pub u64);

/// A place in the device's log: where a record ends, or up to where everything is on stable storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogEnd {
    /// The segment.
    pub segment: SegmentId,
    /// Bytes from its start.
    pub offset: u64,
}

/// A write of one extent of one chunk. The payload stays with the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteRequest {
    /// The request to answer.
    pub request: RequestId,
    /// The record to make of it, not numbered yet: `n`, `version` and `stamp` are 0, and `epoch` is the configuration
    /// that the sender knows. `len` is at least 1.
    pub header: RecordHeader,
    /// Every seq of the session below it has been answered and may be forgotten.
    pub acked: Seq,
    /// The sender's newest known stamp; the record is stamped above it.
    pub seen: Hlc,
    /// The first byte within the file, for messages to people.
    pub file_offset: u64,
    /// When to answer.
    pub durability: Durability,
    /// Newest version of the chunk in the index.
    pub chunk_version: u64,
    /// Newest user time of the file in the index, of those that count.
    pub newest_user_time: Option<UserTime>,
    /// User times of records stamped up to here do not count: the file was cut to nothing since, or restored.
    pub times_after: Hlc,
}

/// Everything that can happen to a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicaInput {
    /// A client writes. Answered by an [`ReplicaEffect::Reply`], possibly much later.
    Write(WriteRequest),
    /// The record of this append is whole in the device's log and in the index. Appends complete in the order asked.
    Appended {
        /// From [`ReplicaEffect::Append`].
        token: AppendToken,
        /// Where the record ends.
        end: LogEnd,
    },
    /// The record could not be appended, and its space is free again. It and every later append of this replica that
    /// is not complete are withdrawn and refused with `reason`.
    AppendFailed {
        /// From [`ReplicaEffect::Append`].
        token: AppendToken,
        /// The reason given to the callers.
        reason: Reason,
    },
    /// Everything in the device's log up to `through` is on stable storage.
    Persisted {
        /// Durable frontier of the device.
        through: LogEnd,
    },
    /// The device can no longer make records durable. Unanswered requests fail, and nothing is written from now on.
    DeviceFailed {
        /// The reason given to the callers.
        reason: Reason,
    },
    /// Asks that no record will be stamped at or below `at` any more. Answered by an [`ReplicaEffect::Closed`] when
    /// every record up to `at` is committed.
    Close {
        /// The request to answer.
        request: RequestId,
        /// The instant, inclusive.
        at: Hlc,
    },
    /// The control plane names a newer configuration. An older or equal one is a delayed message and changes nothing.
    Configure(Configuration),
    /// A message of another member. Its payload, if it is a record, waits with the driver; the driver's clock has
    /// adopted [`Message::newest`], and [`Moment::hlc`] is a later reading.
    Receive {
        /// The sender, as proven by the connection.
        from: NodeId,
        /// The sender's configuration.
        epoch: ChainEpoch,
        /// The message.
        message: Message,
    },
    /// A read of now asks for its cut. Answered by [`ReplicaEffect::TailCut`]; after that, not before, the driver
    /// checks that its lease still holds.
    QueryTail {
        /// The request to answer.
        request: RequestId,
    },
    /// A message is unanswered for long ([`crate::Replica::has_unanswered`]), or a connection was lost: what may have
    /// been lost is sent again.
    Resend,
    /// The session is over: its numbers will not come again.
    EndSession(SessionId),
}

/// Everything a replica can ask of its driver, to be done in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicaEffect {
    /// Append this record to the device's log and index it, then report [`ReplicaInput::Appended`] or
    /// [`ReplicaInput::AppendFailed`].
    Append {
        /// Names the append.
        token: AppendToken,
        /// The request that carries the payload.
        request: RequestId,
        /// The record, with its number, version and stamp.
        header: RecordHeader,
    },
    /// Append this record, which the predecessor has sent with its payload, and index it, then report
    /// [`ReplicaInput::Appended`] or [`ReplicaInput::AppendFailed`].
    AppendForwarded {
        /// Names the append.
        token: AppendToken,
        /// The record.
        record: Box<ForwardedRecord>,
    },
    /// Send this to another member; a record together with its payload. Messages to one member keep their order where
    /// the network does; [`ReplicaInput::Resend`] sends a lost one again.
    Send {
        /// The member.
        to: NodeId,
        /// The sender's configuration.
        epoch: ChainEpoch,
        /// The message.
        message: Message,
    },
    /// Answers [`ReplicaInput::QueryTail`]: records stamped up to `cut` are committed, and they include all that was
    /// committed when the read began.
    TailCut {
        /// The request to answer.
        request: RequestId,
        /// Inclusive.
        cut: Hlc,
    },
    /// Send `to` the committed records after `after` up to `upto`, out of the log, as [`Message::Record`] each, in
    /// order.
    Supply {
        /// The member that lacks them.
        to: NodeId,
        /// Number of the last record that it has.
        after: u64,
        /// Number of the last one to be sent.
        upto: u64,
    },
    /// Take every record of this chain after `after` out of the log, durably: the chain does not have them. Then start
    /// the replica anew from the log ([`crate::Replica::replay`]) and configure it again.
    Discard {
        /// Number of the last record that stays.
        after: u64,
    },
    /// From the tail to the control plane: the syncing node has every record that is committed here.
    CaughtUp {
        /// The syncing node.
        node: NodeId,
        /// Under this configuration.
        epoch: ChainEpoch,
    },
    /// From a joining tail to the control plane: it has committed everything that its predecessor had, and can serve.
    Ready {
        /// Under this configuration.
        epoch: ChainEpoch,
    },
    /// A member has sent an impossible message: close its connection and report it to the operator. Nothing was
    /// changed.
    Distrust {
        /// The member.
        peer: NodeId,
        /// What is impossible about it.
        why: &'static str,
    },
    /// Answers a write, or refuses any request.
    Reply {
        /// The request to answer.
        request: RequestId,
        /// Its result.
        result: Result<WriteDone, Fault>,
    },
    /// Answers [`ReplicaInput::Close`].
    Closed {
        /// The request to answer.
        request: RequestId,
        /// The instant: a read at it never changes from now on.
        at: Hlc,
    },
}

/// A completed write: committed, and durable if the writer asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteDone {
    /// Its stamp; of the first run, if this was a retry.
    pub stamp: Hlc,
    /// Chunk in which it landed.
    pub chunk: ChunkId,
    /// Its first byte within the chunk.
    pub offset: u32,
}

/// The last of the records that a replica does not see at a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResumePoint {
    /// Configuration it was written under.
    pub epoch: ChainEpoch,
    /// Number in the chain.
    pub n: u64,
    /// Stamp.
    pub stamp: Hlc,
    /// Session that wrote it.
    pub session: SessionId,
    /// Number of the request in the session.
    pub seq: Seq,
}
