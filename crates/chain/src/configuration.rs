//! Messages between the members of a chain.

use frieze_base::{ChainEpoch, Seq};
use frieze_hlc::Hlc;
use frieze_wire::chain::RecordHeader;
use frieze_wire::message::Durability;

/// Names a request until it is answered. Chosen by the driver, one for each part of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A record on its way down the chain. The payload travels beside it, by the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardedRecord {
    /// The record.
    pub header: RecordHeader,
    /// When the writer is answered.
    pub durability: Durability,
    /// Every number of the session below it has been answered.
    pub acked: Seq,
}

/// A message between members, always sent with its epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// To the successor: the next record.
    Record(Box<ForwardedRecord>),
    /// To the successor: nothing will be stamped at or below `at` that is not record `follows` or before it.
    Promise {
        /// Number of the last record before the promise.
        follows: u64,
        /// The instant, inclusive.
        at: Hlc,
    },
    /// To the predecessor, cumulative.
    Ack {
        /// Every record up to it is committed, and durable where its writer asked for it, here and at all successors.
        upto: u64,
        /// The closed timestamp: the newest promise that all from here on know and the tail has acknowledged.
        closed: Hlc,
        /// Every record up to it is here or on its way into the log.
        held: u64,
    },
    /// To the successor: report what you have, to continue from there. From a joining tail to its predecessor: greet
    /// me.
    Greet {
        /// The sender holds every record up to it.
        held: u64,
        /// The newest promise that the sender knows of. A tail that is none any more may have acknowledged it.
        promised: Hlc,
    },
    /// From the syncing node to the tail: the epochs of its log.
    Offer {
        /// Configurations under which its records were stamped, in order, with the number of the last record of each.
        epochs: Vec<(ChainEpoch, u64)>,
    },
    /// The tail's answer: up to here both logs are the same, and nothing after it stays.
    Keep {
        /// Number of the last record that stays.
        upto: u64,
    },
    /// To the tail: how far is it committed? On behalf of a read of now that met a record of which the asker does not
    /// know.
    AskClean {
        /// The asker's.
        request: RequestId,
    },
    /// The tail's answer.
    Clean {
        /// From [`Message::AskClean`].
        request: RequestId,
        /// Its commit position.
        upto: u64,
    },
    /// To the head: promise that nothing will be stamped at or below `at` any more.
    AskClose {
        /// The instant, inclusive.
        at: Hlc,
    },
}

impl Message {
    /// The newest stamp in it. The driver's clock takes it in, or refuses the message as coming from the future, before
    /// the message is given to [`crate::Replica::step`].
    pub fn newest(&self) -> Hlc {
        match self {
            Message::Record(record) => record.header.stamp,
            Message::Promise { at, .. } | Message::AskClose { at } => *at,
            Message::Ack { closed: at, .. } | Message::Greet { promised: at, .. } => *at,
            Message::Offer { .. } | Message::Keep { .. } | Message::AskClean { .. } | Message::Clean { .. } => {
                Hlc::ZERO
            }
        }
    }
}
