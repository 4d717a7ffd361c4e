//! A member of the metalog, the only one or one of several: a Raft log in the segments of the crate.
//!
//! A [`RaftMember`] decides what the Raft library ([`raft`], by TiKV) decides, and what that leaves open: what is on
//! disk and when it may be spoken of, when an election begins, which message is too wrong to be looked at, when a new
//! member may count. It does no I/O: [`MemberInput`]s go in, [`MemberEffect`]s come out.
//!
//! # The incarnation of a batch
//! 1. The leader gets [`MemberInput::Propose`], puts it at the end of its log, and asks for it to be sent to the others
//!    ([`MemberEffect::Send`]) and written ([`MemberEffect::Append`]), both at once.
//! 2. Each other member writes it. When a flush has made it durable, [`MemberInput::Persisted`], and not before, its
//!    answer goes out. One flush covers however many came meanwhile: group commit without a timer.
//! 3. When any majority has it on stable storage, it is committed. Each member that has it on its own
//!    stable storage says [`MemberEffect::Committed`]: execute it; at the leader, answer. The only voter is that
//!    majority by itself, and commits from memory: an entry is committed when it is written (ADR 80).
//! 4. [`MemberInput::Truncate`] when the store holds it durably. A member that needs it after that gets the state
//!    instead.
//!
//! # Guarantees
//! - Committed entries are the same on all members, in the same order, for ever; a majority holds each on stable
//!   storage. A member that restarts has all that it ever spoke of, so that it can count at once, and no vote twice in
//!   a term.
//! - At most one leader a term. A leader that a majority does not hear stands down within an election timeout.
//! - [`MemberEffect::ReadAt`] names a position that holds everything told to anybody before the question.
//! - A learner never counts for a majority. It becomes a voter only when it has caught up, and only where there is room
//!   for one.
//! - The same inputs and the same seed give the same effects.
//! - No message of another member, however wrong, ends the process.
//!
//! Leaves to others: the state machine, that each (session, seq) is executed once in it, moving the state to a member
//! that lacks too much, which of the members vote, the clock, and that no node id is ever used for two journals.
//!
//! # Source
//! Ongaro, *Consensus: Bridging Theory and Practice* (2014): pre-vote §9.6, read index §6.4, writing to disk beside
//! sending §10.2.1, one-by-one changes of members §4.1.
//! Members acknowledge before stable storage: `memory.rs`, ADR 75.

mod excuses;
mod journal;
mod member;
mod memory;
mod message;
mod peer;
mod ready;
mod record;
mod recording;
mod recover;
mod requests;
mod salvage;
mod settings;
mod store;
mod survivor;
#[cfg(test)]
mod tests;

pub use member::RaftMember;
pub use message::{
    BatchDurability, EntryKind, MemberChange, MemberEffect, MemberInput, Members, PeerEntry, PeerKind, PeerMessage,
    RaftRole, SnapshotMeta,
};
pub(crate) use record::OTHER_BUILD;
pub use record::RECORD_VERSION;
pub use recover::{MemberFrom, MemberRecovered, read_batches};
pub use salvage::{Salvage, SalvageFrom, Salvaged};
pub use settings::MemberSettings;
pub use survivor::{SoleMember, Survivor};
