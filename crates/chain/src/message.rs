//! What can happen to a replica and what it can ask for: two closed enums, so that its whole life is one `match`.

use frieze_base::{ChainEpoch, ChunkId, Fault, MonoTime, NodeId, Reason, SegmentId, Seq, SessionId};
use frieze_hlc::{Hlc, UserTime};
use frieze_wire::message::Durability;

use crate::link::{Configuration, Forwarded, Message};

/// One look at the driver's clocks, taken once per input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Monotonic time; drives timers and ages, never order.
    pub mono: MonoTime,
    /// The node's hybrid clock. For [`Input::Write`] a fresh tick, taken while the driver holds the replica, so that
    /// it lies above every stamp and every promise; for [`Input::Close`] a reading taken after the clock was moved
    /// past the instant. For the others any reading will do.
    pub hlc: Hlc,
}

/// Names a request until it is answered. Chosen by the driver, one for each part of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Names one append from [`Effect::Append`] to its completion. Never used twice by a replica.
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
    /// Who is answered.
    pub request: RequestId,
    /// Session that asks.
    pub session: SessionId,
    /// Number of the request in its session, from 1.
    pub seq: Seq,
    /// Every seq of the session below it has been answered and may be forgotten.
    pub acked: Seq,
    /// Configuration of the chain that the sender knows.
    pub epoch: ChainEpoch,
    /// Newest stamp the sender has seen; the record is stamped above it.
    pub seen: Hlc,
    /// Chunk written.
    pub chunk: ChunkId,
    /// First byte within the chunk.
    pub offset: u32,
    /// Bytes, at least 1.
    pub len: u32,
    /// The first byte within the file, for messages to people.
    pub file_offset: u64,
    /// Which part of a group this is, from 0. The parts of a group have one stamp.
    pub part: u8,
    /// Parts of the group; 1 for a write within one chunk.
    pub parts: u8,
    /// Time of the data, where a time plug-in found one.
    pub user_time: Option<UserTime>,
    /// On whose behalf, for `log`.
    pub uid: u32,
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
pub enum Input {
    /// A client writes. Answered by an [`Effect::Reply`], possibly much later.
    Write(WriteRequest),
    /// The record of this append is whole in the device's log and in the index. Appends complete in the order asked.
    Appended {
        /// From [`Effect::Append`].
        token: AppendToken,
        /// Where the record ends.
        end: LogEnd,
    },
    /// The record could not be appended, and its space is free again. It and every later append of this replica that
    /// is not complete are withdrawn and refused with `reason`.
    AppendFailed {
        /// From [`Effect::Append`].
        token: AppendToken,
        /// What the callers are told.
        reason: Reason,
    },
    /// Everything in the device's log up to `through` is on stable storage.
    Persisted {
        /// Durable frontier of the device.
        through: LogEnd,
    },
    /// The device can no longer make records durable. What is not answered fails, and nothing is written from now on.
    DeviceFailed {
        /// What the callers are told.
        reason: Reason,
    },
    /// Asks that no record will be stamped at or below `at` any more. Answered by an [`Effect::Closed`] when every
    /// record up to `at` is committed.
    Close {
        /// Who is answered.
        request: RequestId,
        /// The instant, inclusive.
        at: Hlc,
    },
    /// The control plane names a newer configuration. An older or equal one is a delayed message and changes nothing.
    Configure(Configuration),
    /// A member tells something. Its payload, if it is a record, waits with the driver; the driver's clock has taken in
    /// [`Message::newest`], and [`Moment::hlc`] is a reading after that.
    Receive {
        /// The sender, as proven by the connection.
        from: NodeId,
        /// The sender's configuration.
        epoch: ChainEpoch,
        /// What it tells.
        message: Message,
    },
    /// A read of now asks what it may see. Answered by [`Effect::Seen`]; after that, not before, the driver looks whether its
    /// lease still holds.
    Look {
        /// Who is answered.
        request: RequestId,
    },
    /// Something is unanswered for long ([`crate::Replica::waits`]), or a connection was lost: what may have been lost with it is
    /// said again.
    Again,
    /// The session is over: its numbers will not come again.
    EndSession(SessionId),
}

/// Everything a replica can ask of its driver, to be done in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Append this record to the device's log and index it, then report [`Input::Appended`] or
    /// [`Input::AppendFailed`].
    Append {
        /// Names the append.
        token: AppendToken,
        /// The request that carries extent and payload.
        request: RequestId,
        /// Number of the record in the chain.
        n: u64,
        /// Configuration it is written under.
        epoch: ChainEpoch,
        /// Number of the record in its chunk.
        version: u64,
        /// Its stamp.
        stamp: Hlc,
    },
    /// Append this record, which the predecessor has sent with its payload, and index it, then report [`Input::Appended`] or
    /// [`Input::AppendFailed`].
    Take {
        /// Names the append.
        token: AppendToken,
        /// The record.
        record: Box<Forwarded>,
    },
    /// Send this to another member; a record together with its payload. Messages to one member keep their order where the
    /// network does; one that is lost is said again by [`Input::Again`].
    Send {
        /// The member.
        to: NodeId,
        /// The sender's configuration.
        epoch: ChainEpoch,
        /// What is told.
        message: Message,
    },
    /// Answers [`Input::Look`]: what is stamped up to `cut` is committed, and it holds all that was committed when the read
    /// began.
    Seen {
        /// Who is answered.
        request: RequestId,
        /// Inclusive.
        cut: Hlc,
    },
    /// Send `to` the committed records after `after` up to `upto`, out of the log, as [`Message::Record`] each, in order.
    Supply {
        /// Who lacks them.
        to: NodeId,
        /// Number of the last record that it has.
        after: u64,
        /// Number of the last one to be sent.
        upto: u64,
    },
    /// Take every record of this chain after `after` out of the log, durably: the chain does not have them. Then start the
    /// replica anew from the log ([`crate::Replica::replay`]) and configure it again.
    Discard {
        /// Number of the last record that stays.
        after: u64,
    },
    /// The tail tells the control plane: who is syncing holds all that is committed here.
    CaughtUp {
        /// Who it is.
        node: NodeId,
        /// Under this configuration.
        epoch: ChainEpoch,
    },
    /// A joining tail tells the control plane: it has committed all that its predecessor held, and can serve.
    Ready {
        /// Under this configuration.
        epoch: ChainEpoch,
    },
    /// A member has told what cannot be so: its connection is to be closed and this told to whoever looks after the cluster.
    /// Nothing was changed.
    Distrust {
        /// The member.
        peer: NodeId,
        /// What was wrong.
        why: &'static str,
    },
    /// Answers a write, or refuses any request.
    Reply {
        /// Who is answered.
        request: RequestId,
        /// What happened.
        result: Result<WriteDone, Fault>,
    },
    /// Answers [`Input::Close`].
    Closed {
        /// Who is answered.
        request: RequestId,
        /// The instant asked for: what is read at it will never change.
        at: Hlc,
    },
}

/// A write has happened: committed, and durable if that was asked.
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
pub struct Resumed {
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

/// What a replica takes from the header of a recovered record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
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
    /// Part of its group.
    pub part: u8,
    /// Chunk written.
    pub chunk: ChunkId,
    /// First byte within the chunk.
    pub offset: u32,
}
