//! What servers of one cluster tell each other.
//!
//! Every message goes one way in a frame of kind [`crate::FrameKind::Told`], over a connection that the teller has opened and
//! on which it has proven to be a node of the cluster ([`crate::message::Hello`] names it). Nothing is answered and
//! everything may be lost, doubled or late: whoever needs certainty says it again. The header carries the teller's newest
//! `Hlc` like every other; its other numbers are 0.

mod chain;
pub mod control;
pub mod metalog;
mod question;

pub use chain::{
    Ask, ChainAck, ChainAsk, ChainClean, ChainGreet, ChainKeep, ChainOffer, ChainPiece, ChainPromise, ChainRecord,
    CloseAfter,
};
pub use question::{
    About, BytesAsk, BytesPart, FileReach, FileTail, Holes, PersistAsk, Question, QuestionAnswer, ReachAsk, RecordAsk,
    RecordsAsk, TouchedAsk,
};

use metalog::{MetalogClose, MetalogHeld, MetalogMessage, MetalogPiece};

/// One message between servers.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum Told {
    /// Nothing but that the connection lives.
    #[prost(message, tag = "1")]
    Alive(Alive),
    /// To the leader: this node is there.
    #[prost(message, tag = "160")]
    Heartbeat(control::Heartbeat),
    /// From the leader: a lease, and what was decided.
    #[prost(message, tag = "161")]
    Grant(control::Grant),
    /// From the leader: it refuses this node.
    #[prost(message, tag = "162")]
    Refused(control::Refused),
    /// The next record of a chain.
    #[prost(message, tag = "142")]
    ChainRecord(ChainRecord),
    /// How far a member of a chain is.
    #[prost(message, tag = "143")]
    ChainAck(ChainAck),
    /// What the head of a chain has promised.
    #[prost(message, tag = "144")]
    ChainPromise(ChainPromise),
    /// Neighbours begin, or begin again.
    #[prost(message, tag = "145")]
    ChainGreet(ChainGreet),
    /// What the log of a member to be consists of.
    #[prost(message, tag = "146")]
    ChainOffer(ChainOffer),
    /// How much of it stays.
    #[prost(message, tag = "147")]
    ChainKeep(ChainKeep),
    /// How far the tail is committed.
    #[prost(message, tag = "148")]
    ChainClean(ChainClean),
    /// What a member asks another.
    #[prost(message, tag = "149")]
    ChainAsk(ChainAsk),
    /// What a record will consist of, ahead of it.
    #[prost(message, tag = "170")]
    ChainPiece(ChainPiece),
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
    Question(Question),
    /// Its answer.
    #[prost(message, tag = "181")]
    QuestionAnswer(QuestionAnswer),
    /// To the leader: who is connected to this node.
    #[prost(message, tag = "200")]
    Attached(control::Attached),
}

/// Body of a frame of kind `Told`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PeerBody {
    /// What is told; absent if it is of a kind that this process does not know.
    #[prost(
        oneof = "Told",
        tags = "1, 142, 143, 144, 145, 146, 147, 148, 149, 150, 151, 152, 153, 160, 161, 162, 170, 180, 181, 200"
    )]
    pub told: Option<Told>,
}

/// The teller is there and has had nothing else to tell for a while.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Alive {}
