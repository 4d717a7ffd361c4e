//! Messages between servers of one cluster.
//!
//! Every message goes one way in a frame of kind [`crate::FrameKind::Peer`], over a connection that the sender has
//! opened and on which it has proven to be a node of the cluster ([`crate::message::Hello`] names it). No message is
//! answered and any may be lost, doubled or late: a sender that needs certainty sends it again. The header carries the
//! sender's newest `Hlc` like every other; its other numbers are 0.

mod chain;
pub mod control;
pub mod metalog;
mod question;

pub use chain::{
    ChainAck, ChainAsk, ChainAskKind, ChainClean, ChainGreet, ChainKeep, ChainOffer, ChainPiece, ChainPromise,
    ChainRecord, CloseAfter, HopAnswer, HopOffer,
};
pub use question::{
    BytesAsk, BytesPart, FileReach, FileTail, Holes, KeptAsk, PeerRequest, PeerRequestKind, PeerResponse, PersistAsk,
    ReachAsk, RecordAsk, RecordsAsk, TouchedAsk,
};

use metalog::{MetalogClose, MetalogHeld, MetalogMessage, MetalogPiece};

/// One message between servers.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum ServerMessage {
    /// Nothing but that the connection lives.
    #[prost(message, tag = "1")]
    Alive(KeepAlive),
    /// To the leader: this node is there.
    #[prost(message, tag = "160")]
    Heartbeat(control::HeartbeatProto),
    /// From the leader: a lease, and new decisions.
    #[prost(message, tag = "161")]
    Grant(control::LeaseGrantProto),
    /// From the leader: it refuses this node.
    #[prost(message, tag = "162")]
    Refused(control::HeartbeatRefusal),
    /// The next record of a chain.
    #[prost(message, tag = "142")]
    ChainRecord(ChainRecord),
    /// How far a member of a chain is.
    #[prost(message, tag = "143")]
    ChainAck(ChainAck),
    /// Promises of the head of a chain.
    #[prost(message, tag = "144")]
    ChainPromise(ChainPromise),
    /// Neighbours begin, or begin again.
    #[prost(message, tag = "145")]
    ChainGreet(ChainGreet),
    /// The epochs of the log of a joining member.
    #[prost(message, tag = "146")]
    ChainOffer(ChainOffer),
    /// How much of it stays.
    #[prost(message, tag = "147")]
    ChainKeep(ChainKeep),
    /// How far the tail is committed.
    #[prost(message, tag = "148")]
    ChainClean(ChainClean),
    /// A request of a member to another.
    #[prost(message, tag = "149")]
    ChainAsk(ChainAsk),
    /// A part of a record's payload, sent ahead of it.
    #[prost(message, tag = "170")]
    ChainPiece(ChainPiece),
    /// Payloads can be fetched.
    #[prost(message, tag = "171")]
    HopOffer(HopOffer),
    /// Whether they are.
    #[prost(message, tag = "172")]
    HopAnswer(HopAnswer),
    /// A message of the Raft log.
    #[prost(message, tag = "150")]
    Metalog(MetalogMessage),
    /// A piece of the state after an entry.
    #[prost(message, tag = "151")]
    MetalogPiece(MetalogPiece),
    /// How much of a state has come.
    #[prost(message, tag = "152")]
    MetalogHeld(MetalogHeld),
    /// Close an instant.
    #[prost(message, tag = "153")]
    MetalogClose(MetalogClose),
    /// To a member of chains that the teller has no part in: a question.
    #[prost(message, tag = "180")]
    Question(PeerRequest),
    /// Its answer.
    #[prost(message, tag = "181")]
    QuestionAnswer(PeerResponse),
    /// To the leader: the sessions connected to this node.
    #[prost(message, tag = "200")]
    Attached(control::Attached),
}

/// Body of a frame of kind `ServerMessage`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PeerBody {
    /// The message; absent if it is of a kind that this process does not know.
    #[prost(
        oneof = "ServerMessage",
        tags = "1, 142, 143, 144, 145, 146, 147, 148, 149, 150, 151, 152, 153, 160, \
                161, 162, 170, 171, 172, 180, 181, 200"
    )]
    pub message: Option<ServerMessage>,
}

/// The sender is alive and has had no other message for a while.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct KeepAlive {}
