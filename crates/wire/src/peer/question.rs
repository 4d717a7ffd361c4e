//! Requests of a server to another about chains that it has no part in.
//!
//! A request is sent again, perhaps to another member of the chains, until it is answered; answering it twice does no
//! harm.

use super::chain::{ChainRecord, CloseAfter};
use crate::message::Refusal;

/// A question about chains, to a member of all of them.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PeerRequest {
    /// The asker's name for it.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The chains.
    #[prost(uint32, repeated, tag = "2")]
    pub chains: Vec<u32>,
    /// The instant that it is about, which has to be closed first; absent: now, and the answering server needs a lease.
    #[prost(uint64, optional, tag = "3")]
    pub at: Option<u64>,
    /// The request; absent if it is of a kind that this process does not know.
    #[prost(oneof = "PeerRequestKind", tags = "4, 5, 6, 7, 8, 9, 10, 11")]
    pub about: Option<PeerRequestKind>,
}

/// The request.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum PeerRequestKind {
    /// How far files reach in chunks of these chains.
    #[prost(message, tag = "4")]
    Reach(ReachAsk),
    /// Order a change of metadata among the writes of these chains.
    #[prost(message, tag = "5")]
    Order(CloseAfter),
    /// Have all that is acknowledged on stable storage, at every member.
    #[prost(message, tag = "6")]
    Persist(PersistAsk),
    /// The records of a file in chunks of these chains, without their bytes.
    #[prost(message, tag = "7")]
    Records(RecordsAsk),
    /// The files that these chains have records of in an interval.
    #[prost(message, tag = "8")]
    Touched(TouchedAsk),
    /// Bytes of chunks.
    #[prost(message, tag = "9")]
    Bytes(BytesAsk),
    /// A record that is damaged at the asking server, from any server that has it whole: that server need not be a
    /// member of the chain.
    #[prost(message, tag = "10")]
    Record(RecordAsk),
    /// Bytes that are stored of trees in chunks of these chains, as last counted.
    #[prost(message, tag = "11")]
    Kept(KeptAsk),
}

/// Bytes that are stored of trees, present and history.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct KeptAsk {
    /// Their directories.
    #[prost(uint64, repeated, tag = "1")]
    pub trees: Vec<u64>,
}

/// How far files reach.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ReachAsk {
    /// The files.
    #[prost(message, repeated, tag = "1")]
    pub files: Vec<FileReach>,
    /// Records that are not committed count as well.
    #[prost(bool, tag = "2")]
    pub uncommitted: bool,
}

/// How far a file reaches.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct FileReach {
    /// The file.
    #[prost(uint64, tag = "1")]
    pub inode: u64,
    /// Chains that it is spread over.
    #[prost(uint32, tag = "2")]
    pub chain_count: u32,
    /// Only records stamped later count.
    #[prost(uint64, tag = "3")]
    pub after: u64,
    /// The chunks: first and last of each run.
    #[prost(uint32, repeated, tag = "4")]
    pub chunks: Vec<u32>,
    /// Bytes of a chunk: a record may reach over the end of its own.
    #[prost(uint64, tag = "5")]
    pub chunk_bytes: u64,
}

/// Have all that is acknowledged on stable storage.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PersistAsk {}

/// Records of a file, in the order of their stamps.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RecordsAsk {
    /// The file.
    #[prost(uint64, tag = "1")]
    pub inode: u64,
    /// Chains that it is spread over.
    #[prost(uint32, tag = "2")]
    pub chain_count: u32,
    /// Only those stamped later.
    #[prost(uint64, tag = "3")]
    pub after: u64,
    /// Only those stamped up to this; now: those that are committed.
    #[prost(uint64, tag = "4")]
    pub upto: u64,
}

/// Files with records stamped in an interval.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TouchedAsk {
    /// After this.
    #[prost(uint64, tag = "1")]
    pub after: u64,
    /// Up to this, inclusive.
    #[prost(uint64, tag = "2")]
    pub upto: u64,
    /// Only files with larger numbers.
    #[prost(uint64, tag = "3")]
    pub above: u64,
}

/// Bytes of chunks at an instant, or now, as the chunks' own records show them.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct BytesAsk {
    /// The parts; `PAYLOAD_BYTES_MAX` in all at most.
    #[prost(message, repeated, tag = "1")]
    pub parts: Vec<BytesPart>,
}

/// A part of a chunk.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct BytesPart {
    /// The file.
    #[prost(uint64, tag = "1")]
    pub inode: u64,
    /// Index of the chunk.
    #[prost(uint32, tag = "2")]
    pub index: u32,
    /// Chains that the file is spread over.
    #[prost(uint32, tag = "3")]
    pub chain_count: u32,
    /// First byte, counted from the start of the chunk: beyond its end lie the bytes of its records in the chunks after
    /// it.
    #[prost(uint32, tag = "4")]
    pub offset: u32,
    /// How many.
    #[prost(uint32, tag = "5")]
    pub len: u32,
    /// Only records stamped above this count.
    #[prost(uint64, tag = "6")]
    pub after: u64,
}

/// One record of the one chain that the question names.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct RecordAsk {
    /// Its number.
    #[prost(uint64, tag = "1")]
    pub n: u64,
    /// Its stamp: of two records of one number, of which the chain never had one, the one that is meant.
    #[prost(uint64, tag = "2")]
    pub stamp: u64,
}

/// The answer to a question. Bytes come beside it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PeerResponse {
    /// The asker's name for the question.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// It cannot be answered here, or not now.
    #[prost(message, optional, tag = "2")]
    pub refused: Option<Refusal>,
    /// Of a reach of now: everything stamped up to this was counted.
    #[prost(uint64, tag = "3")]
    pub complete: u64,
    /// Of a reach: as many as files were named, in their order.
    #[prost(message, repeated, tag = "4")]
    pub tails: Vec<FileTail>,
    /// Records. If a single one was requested, the payload comes beside it.
    #[prost(message, repeated, tag = "5")]
    pub records: Vec<ChainRecord>,
    /// There are more: records, stamped later than this; files, with larger numbers.
    #[prost(uint64, optional, tag = "6")]
    pub more_after: Option<u64>,
    /// Files that were touched, and perhaps others, in the order of their numbers.
    #[prost(uint64, repeated, tag = "7")]
    pub inodes: Vec<u64>,
    /// Of bytes: as many as parts were named, in their order. The bytes come beside it, one part behind the other.
    #[prost(message, repeated, tag = "8")]
    pub holes: Vec<Holes>,
    /// Of the past: the entry of the metalog up to which records may have died at the answering server. The asker has
    /// to have executed it before it knows that the instant is kept.
    #[prost(uint64, tag = "10")]
    pub expired_index: u64,
    /// Of stored bytes: as many as trees were named, in their order.
    #[prost(uint64, repeated, tag = "9")]
    pub kept: Vec<u64>,
}

/// The parts of a range that no record covers.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Holes {
    /// First byte in the part and length of each run.
    #[prost(uint32, repeated, tag = "1")]
    pub runs: Vec<u32>,
}

/// How far a file reaches.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct FileTail {
    /// The last chunk that was written to, by a record of whichever chunk; absent if none was.
    #[prost(uint32, optional, tag = "1")]
    pub chunk: Option<u32>,
    /// The largest end of a write in it, in bytes.
    #[prost(uint32, tag = "2")]
    pub end: u32,
    /// Stamp of the newest record; absent if there is none.
    #[prost(uint64, optional, tag = "3")]
    pub newest: Option<u64>,
}
