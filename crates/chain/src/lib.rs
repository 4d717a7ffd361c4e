//! One replica of a chain: it orders writes, stamps them, runs each once, promises instants and commits.
//!
//! A chain is a replicated log of records for all chunks placed on it. Writes enter at the head and commit at the tail;
//! every member serves reads (CRAQ). This crate decides order and time; it never sees a byte of payload.
//!
//! # The life of a write
//! 1. [`ReplicaInput::Write`] with a fresh tick of the node's clock. The replica checks the configuration, finds
//!    retries, takes the tick as the stamp, gives the record the next number `n` and asks for
//!    [`ReplicaEffect::Append`].
//! 2. The driver appends header and payload to the device's log, indexes them, and reports [`ReplicaInput::Appended`].
//! 3. The record commits when every record before it has and, if the writer asked for `sync`, when
//!    [`ReplicaInput::Persisted`] has passed its end. Only then is there an [`ReplicaEffect::Reply`].
//!
//! # What is read
//! A read of now sees what is committed: [`Replica::now_cut`]. A read at t may be answered once nothing can be stamped
//! at or below t and everything up to t is committed: [`Replica::is_readable_at`], or [`ReplicaInput::Close`].
//!
//! # Guarantees
//! - Stamps rise with `n` (the parts of one group share theirs); `n` has no holes; what is clean is a prefix.
//! - No record is stamped at or below [`Replica::closed`], nor at or below its sender's newest known stamp.
//! - Each (session, seq, part) becomes one record, however often it is sent, also across a restart.
//! - A `sync` write is answered only while `Persisted` is handled, or later; an answer never changes.
//! - After [`ReplicaInput::AppendFailed`] it is as if the record had never been, but that its stamp is not used again.
//!
//! # Several members
//! Every member runs the same [`Replica`]; a [`Configuration`](frieze_wire::chain::Configuration) names them, head
//! first. Records and promises go down ([`Message::Record`], [`Message::Promise`]), acknowledgements up
//! ([`Message::Ack`]):
//! - a record is sent on when it is whole here, so each log is a prefix of the one before it;
//! - it is committed here when it is committed at the successors and, if its writer asked for it, durable here; the
//!   head's answer means that every member has it;
//! - a promise counts from when the tail has acknowledged it: any later head knows it;
//! - a read of now ([`ReplicaInput::QueryTail`]) that meets a record not known to be committed asks the tail;
//! - every message carries its epoch, and messages of another epoch are dropped. A lost message is sent again
//!   ([`ReplicaInput::Resend`]);
//! - a returning member offers the epochs of its log, discards records that the chain does not have, receives the
//!   missing ones from the tail's log, joins as a tail that does not answer reads of now yet, and serves when it has
//!   committed everything that its predecessor had.
//!
//! Leaves to others: bytes, index and recovery (`multilog`), the clock (`hlc`), the list of live sessions
//! (`namespace`), the device's durable frontier, leases and membership (`node`). With one member head and tail are the
//! same replica and nothing is sent. Where records are gone from the log (retention), a difference by content takes the
//! place of numbers: not yet.
//!
//! # Source
//! Terrace and Freedman, CRAQ (USENIX ATC'09): clean and dirty, the tail commits. FFFS (SoCC'16) §5: stamps of a log.
//! Closed timestamps follow protocols §3. Where they depart from it or say more:
//! docs/adr/0023-one-replica-every-role.md.

mod configuration;
mod dedupe;
mod error;
mod message;
mod replica;
mod settings;
#[cfg(test)]
mod tests;

pub use configuration::{ForwardedRecord, Message, RequestId};
pub use dedupe::SessionMemory;
pub use error::Error;
pub use message::{AppendToken, LogEnd, Moment, ReplicaEffect, ReplicaInput, ResumePoint, WriteDone, WriteRequest};
pub use replica::{Replica, RequestOutcome, RequestState};
pub use settings::Settings;
