//! What servers of one cluster tell each other.
//!
//! Every message goes one way in a frame of kind [`crate::FrameKind::Told`], over a connection that the teller has opened and
//! on which it has proven to be a node of the cluster ([`crate::message::Hello`] names it). Nothing is answered and
//! everything may be lost, doubled or late: whoever needs certainty says it again. The header carries the teller's newest
//! `Hlc` like every other; its other numbers are 0.

/// One message between servers.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum Told {
    /// Nothing but that the connection lives.
    #[prost(message, tag = "1")]
    Alive(Alive),
}

/// Body of a frame of kind `Told`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PeerBody {
    /// What is told; absent if it is of a kind that this process does not know.
    #[prost(oneof = "Told", tags = "1")]
    pub told: Option<Told>,
}

/// The teller is there and has had nothing else to tell for a while.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Alive {}
