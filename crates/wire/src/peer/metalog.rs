//! Messages between members of the metalog: entries and votes, whole states, instants to close.
//!
//! Sender and receiver are those of the connection. Bytes of entries and of states are the payload, one after the
//! other; a message that does not fit into one frame is sent in parts, in order.

/// The members as of an entry, by node id, rising.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct MetalogMembers {
    /// Those whose majority commits and elects.
    #[prost(uint32, repeated, tag = "1")]
    pub voters: Vec<u32>,
    /// Those that get the log and do not count yet.
    #[prost(uint32, repeated, tag = "2")]
    pub learners: Vec<u32>,
}

/// Identifies the state after an entry.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct MetalogState {
    /// The last entry in it.
    #[prost(uint64, tag = "1")]
    pub index: u64,
    /// Its term.
    #[prost(uint64, tag = "2")]
    pub term: u64,
    /// Newest stamp up to it.
    #[prost(uint64, tag = "3")]
    pub stamp: u64,
    /// The members as of it.
    #[prost(message, required, tag = "4")]
    pub members: MetalogMembers,
}

/// An entry; its bytes are in the payload.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct MetalogEntry {
    /// Its place.
    #[prost(uint64, tag = "1")]
    pub index: u64,
    /// Term of the leader that put it there.
    #[prost(uint64, tag = "2")]
    pub term: u64,
    /// True: a change of members.
    #[prost(bool, tag = "3")]
    pub change: bool,
    /// Length of its bytes.
    #[prost(uint32, tag = "4")]
    pub len: u32,
}

/// The kind of a message of the Raft log. Codes are part of the wire format: add at the end, never reuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum MetalogKind {
    /// Of a newer version.
    Unknown = 0,
    /// Entries, or none to probe.
    Append = 1,
    /// They are in memory, or do not fit.
    Appended = 2,
    /// Vote for me.
    AskVote = 3,
    /// Yes or no.
    Vote = 4,
    /// Would you vote for me?
    AskPreVote = 5,
    /// Yes or no.
    PreVote = 6,
    /// Continue from this state.
    Snapshot = 7,
    /// I lead.
    Heartbeat = 8,
    /// I follow.
    HeartbeatSeen = 9,
    /// Stand for election at once.
    TimeoutNow = 10,
    /// How far have I to be?
    AskReadIndex = 11,
    /// So far.
    ReadIndex = 12,
    /// The receiver is up to date with this entry.
    UpToDate = 13,
    /// The sender's log is on stable storage up to here.
    Flushed = 14,
    /// A majority has the log on stable storage up to here.
    Durable = 15,
    /// Flush the journal: a client waits.
    FlushNow = 16,
    /// The operator declared the voter named by `hint` lost.
    DeclareLost = 17,
}

/// One message of the Raft log, or a part of one: all parts have the same fields, and carry the payload in order.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct MetalogMessage {
    /// The kind.
    #[prost(enumeration = "MetalogKind", tag = "1")]
    pub kind: i32,
    /// The sender's term, or the one it asks votes for.
    #[prost(uint64, tag = "2")]
    pub term: u64,
    /// Term of the entry at `index`, or at `hint`.
    #[prost(uint64, tag = "3")]
    pub log_term: u64,
    /// A place in the log.
    #[prost(uint64, tag = "4")]
    pub index: u64,
    /// The last entry that the receiver may take for committed.
    #[prost(uint64, tag = "5")]
    pub commit: u64,
    /// Its term, with votes.
    #[prost(uint64, tag = "6")]
    pub commit_term: u64,
    /// No.
    #[prost(bool, tag = "7")]
    pub reject: bool,
    /// Where to try next; with [`MetalogKind::UpToDate`] the receiver's process that is meant.
    #[prost(uint64, tag = "8")]
    pub hint: u64,
    /// Names a request, or the reason of a vote.
    #[prost(bytes = "vec", tag = "9")]
    pub context: Vec<u8>,
    /// Entries after `index`.
    #[prost(message, repeated, tag = "10")]
    pub entries: Vec<MetalogEntry>,
    /// With [`MetalogKind::Snapshot`].
    #[prost(message, optional, tag = "11")]
    pub state: Option<MetalogState>,
    /// Names a message that comes in parts; the sender's, it rises. 0: it comes whole.
    #[prost(uint64, tag = "12")]
    pub parted: u64,
    /// Which part this is, from 0 on.
    #[prost(uint32, tag = "13")]
    pub part: u32,
    /// How many there are.
    #[prost(uint32, tag = "14")]
    pub parts: u32,
    /// Number of the sender's process among those of its node.
    #[prost(uint64, tag = "15")]
    pub incarnation: u64,
    /// What the sender had in memory is lost, and it is not up to date yet.
    #[prost(bool, tag = "16")]
    pub returning: bool,
    /// The newest incarnation of the receiver that the sender knows; 0 for none.
    #[prost(uint64, tag = "17")]
    pub for_incarnation: u64,
    /// With votes of a returning member: no entry that it ever acknowledged is stamped above it.
    #[prost(uint64, tag = "18")]
    pub newest: u64,
    /// The sender is a voter, as far as it knows.
    #[prost(bool, tag = "19")]
    pub votes: bool,
}

/// A piece of a state. The payload: items, each length of the key, length of the value (4 bytes each, little-endian),
/// key, value; none in the last piece.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct MetalogPiece {
    /// Names the transfer; the sender's.
    #[prost(uint64, tag = "1")]
    pub transfer: u64,
    /// Which piece, from 0 on.
    #[prost(uint64, tag = "2")]
    pub number: u64,
    /// CRC32C of the payload.
    #[prost(uint32, tag = "3")]
    pub crc: u32,
    /// The message that follows the state; with the last piece, and only there.
    #[prost(message, optional, tag = "4")]
    pub message: Option<MetalogMessage>,
}

/// How much of a state has come.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct MetalogHeld {
    /// The transfer.
    #[prost(uint64, tag = "1")]
    pub transfer: u64,
    /// The piece that is to come next. 0 for a transfer that the receiver knows nothing of: begin another.
    #[prost(uint64, tag = "2")]
    pub next: u64,
    /// All of it has come.
    #[prost(bool, tag = "3")]
    pub whole: bool,
}

/// Close an instant: it comes back as an entry of the log, or as the stamp of one.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct MetalogClose {
    /// The instant, inclusive.
    #[prost(uint64, tag = "1")]
    pub at: u64,
}
