//! Messages between members of a chain: records and promises go down it, acknowledgements up.
//!
//! Each names the chain and the sender's configuration of it; one of another configuration is dropped. Their meaning
//! and order: `frieze_chain::Message`.

use crate::fabric::{FabricOffer, RemoteMemory};
use crate::trace::TraceContext;

/// To the successor: the next record. Its payload goes beside it, and the frame has its checksum as the writer gave it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ChainRecord {
    /// The chain.
    #[prost(uint32, tag = "1")]
    pub chain: u32,
    /// The teller's configuration.
    #[prost(uint64, tag = "2")]
    pub epoch: u64,
    /// Number in the chain.
    #[prost(uint64, tag = "3")]
    pub n: u64,
    /// Configuration it was stamped under.
    #[prost(uint64, tag = "4")]
    pub stamped_under: u64,
    /// Number in its chunk.
    #[prost(uint64, tag = "5")]
    pub version: u64,
    /// Its stamp.
    #[prost(uint64, tag = "6")]
    pub stamp: u64,
    /// The file.
    #[prost(uint64, tag = "7")]
    pub inode: u64,
    /// Which chunk of it.
    #[prost(uint32, tag = "8")]
    pub index: u32,
    /// First byte within the chunk.
    #[prost(uint32, tag = "9")]
    pub offset: u32,
    /// Bytes.
    #[prost(uint32, tag = "10")]
    pub len: u32,
    /// Time of the data.
    #[prost(sint64, optional, tag = "11")]
    pub user_time: Option<i64>,
    /// True: its writer waits until it is on stable storage everywhere.
    #[prost(bool, tag = "12")]
    pub sync: bool,
    /// Session that wrote it.
    #[prost(uint64, tag = "13")]
    pub session: u64,
    /// Number of the request in its session.
    #[prost(uint64, tag = "14")]
    pub seq: u64,
    /// Every number of the session below it has been answered.
    #[prost(uint64, tag = "15")]
    pub acked: u64,
    /// Part of its group.
    #[prost(uint32, tag = "16")]
    pub part: u32,
    /// User on whose behalf.
    #[prost(uint32, tag = "17")]
    pub uid: u32,
    /// True: the range reads as zeros, and there is no payload.
    #[prost(bool, tag = "18")]
    pub punch: bool,
    /// To a syncing node: about how many bytes are still to come after this one; 0 for none, and for members.
    #[prost(uint64, tag = "19")]
    pub left_bytes: u64,
    /// The beginning of its payload was sent ahead under this name on the same connection ([`ChainPiece`]), and the
    /// payload here is the rest; 0 if all of it is here.
    #[prost(uint64, tag = "20")]
    pub ahead: u64,
    /// The writer's checksum of a payload whose beginning was sent ahead, or that is to be fetched.
    #[prost(fixed32, tag = "21")]
    pub crc: u32,
    /// Memory of the sender that the payload is to be fetched from; it is not in the frame then.
    #[prost(message, optional, tag = "22")]
    pub src_slot: Option<RemoteMemory>,
    /// The span of the sender that the record is a part of; absent: its request is not sampled.
    #[prost(message, optional, tag = "23")]
    pub trace: Option<TraceContext>,
    /// It died at the sender, and comes without its bytes: a member shows nothing of the past before it has executed
    /// the entries of the metalog up to this one. 0: it did not.
    #[prost(uint64, tag = "24")]
    pub expired_index: u64,
}

/// To the successor: payloads of records can be fetched from memory of the sender. To be tested with some of it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HopOffer {
    /// Number of the sender's connection, for the answer.
    #[prost(uint64, tag = "1")]
    pub connection: u64,
    /// Endpoint of the sender.
    #[prost(message, required, tag = "2")]
    pub offer: FabricOffer,
    /// Memory for the test.
    #[prost(message, required, tag = "3")]
    pub memory: RemoteMemory,
    /// CRC32C of what lies there.
    #[prost(fixed32, tag = "4")]
    pub crc: u32,
}

/// To the predecessor: whether payloads can be fetched from its memory.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HopAnswer {
    /// Connection of the offer.
    #[prost(uint64, tag = "1")]
    pub connection: u64,
    /// False: they have to go by TCP.
    #[prost(bool, tag = "2")]
    pub works: bool,
}

/// To the successor: the next piece of the payload of a record that is still being received here. The piece goes beside
/// it; it counts for nothing until the record comes.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ChainPiece {
    /// The chain.
    #[prost(uint32, tag = "1")]
    pub chain: u32,
    /// Name of the payload on this connection.
    #[prost(uint64, tag = "2")]
    pub ahead: u64,
    /// Bytes of the whole payload; 0: no record comes, it can be forgotten.
    #[prost(uint32, tag = "3")]
    pub len: u32,
}

/// To the successor: nothing will be stamped at or below an instant that is not there by now.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ChainPromise {
    /// The chain.
    #[prost(uint32, tag = "1")]
    pub chain: u32,
    /// The teller's configuration.
    #[prost(uint64, tag = "2")]
    pub epoch: u64,
    /// Number of the last record before the promise.
    #[prost(uint64, tag = "3")]
    pub follows: u64,
    /// The instant, inclusive.
    #[prost(uint64, tag = "4")]
    pub at: u64,
}

/// To the predecessor: how far the teller is, and all behind it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ChainAck {
    /// The chain.
    #[prost(uint32, tag = "1")]
    pub chain: u32,
    /// The teller's configuration.
    #[prost(uint64, tag = "2")]
    pub epoch: u64,
    /// Every record up to it is committed.
    #[prost(uint64, tag = "3")]
    pub upto: u64,
    /// The newest promise that the tail has acknowledged.
    #[prost(uint64, tag = "4")]
    pub closed: u64,
    /// Every record up to it is there or on its way into the log.
    #[prost(uint64, tag = "5")]
    pub held: u64,
}

/// To the successor: report what you have, to continue from there.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ChainGreet {
    /// The chain.
    #[prost(uint32, tag = "1")]
    pub chain: u32,
    /// The teller's configuration.
    #[prost(uint64, tag = "2")]
    pub epoch: u64,
    /// The teller holds every record up to it.
    #[prost(uint64, tag = "3")]
    pub held: u64,
    /// The newest promise that the teller knows of.
    #[prost(uint64, tag = "4")]
    pub promised: u64,
}

/// From the syncing node to the tail: the epochs of its log.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ChainOffer {
    /// The chain.
    #[prost(uint32, tag = "1")]
    pub chain: u32,
    /// The teller's configuration.
    #[prost(uint64, tag = "2")]
    pub epoch: u64,
    /// Configurations under which its records were stamped, each with the number of its last record: epoch, number,
    /// epoch, …
    #[prost(uint64, repeated, tag = "3")]
    pub epochs: Vec<u64>,
}

/// The tail's answer to the syncing node: up to here both logs are the same.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ChainKeep {
    /// The chain.
    #[prost(uint32, tag = "1")]
    pub chain: u32,
    /// The teller's configuration.
    #[prost(uint64, tag = "2")]
    pub epoch: u64,
    /// Number of the last record that stays.
    #[prost(uint64, tag = "3")]
    pub upto: u64,
}

/// To the tail: how far is it committed? And its answer.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ChainClean {
    /// The chain.
    #[prost(uint32, tag = "1")]
    pub chain: u32,
    /// The teller's configuration.
    #[prost(uint64, tag = "2")]
    pub epoch: u64,
    /// The asker's name for the question.
    #[prost(uint64, tag = "3")]
    pub request: u64,
    /// The answer: the tail's commit position. Absent in the question.
    #[prost(uint64, optional, tag = "4")]
    pub upto: Option<u64>,
}

/// To the head: promise that nothing will be stamped at or below an instant any more. Or, between any two members: see
/// to it that your log is on stable storage up to a record; and the answer.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ChainAsk {
    /// The chain.
    #[prost(uint32, tag = "1")]
    pub chain: u32,
    /// The teller's configuration.
    #[prost(uint64, tag = "2")]
    pub epoch: u64,
    /// The request or answer; absent if it is of a kind that this process does not know.
    #[prost(oneof = "ChainAskKind", tags = "3, 4, 5, 6, 7")]
    pub ask: Option<ChainAskKind>,
}

/// A request of a member to another, or its answer.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum ChainAskKind {
    /// Of the head: stamp nothing at or below it any more.
    #[prost(uint64, tag = "3")]
    Close(u64),
    /// Of a member: every record up to this number is to be on stable storage.
    #[prost(uint64, tag = "4")]
    Persist(u64),
    /// Its answer: every record up to this number is.
    #[prost(uint64, tag = "5")]
    Persisted(u64),
    /// Of the head: stamp nothing at or below an instant any more, once you have executed an entry of the metalog.
    #[prost(message, tag = "6")]
    CloseAfter(CloseAfter),
    /// Its answer: every member that may become head knows of the promise.
    #[prost(message, tag = "7")]
    ClosedAfter(CloseAfter),
}

/// A change of metadata that decides the content of bytes, as it is sent to chains.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, prost::Message)]
pub struct CloseAfter {
    /// Its stamp.
    #[prost(uint64, tag = "1")]
    pub at: u64,
    /// Index of its entry.
    #[prost(uint64, tag = "2")]
    pub entry: u64,
}
