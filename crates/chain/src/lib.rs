//! One replica of a chain: it orders writes, stamps them, runs each once, promises instants and commits.
//!
//! A chain is a replicated log of records for all chunks placed on it. Writes enter at the head and commit at the tail;
//! every member serves reads (CRAQ). This crate decides order and time; it never sees a byte of payload.
//!
//! # The life of a write
//! 1. [`Input::Write`] with a fresh tick of the node's clock. The replica checks the configuration, finds retries, takes
//!    the tick as the stamp, gives the record the next number `n` and asks for [`Effect::Append`].
//! 2. The driver appends header and payload to the device's log, indexes them, and reports [`Input::Appended`].
//! 3. The record commits when every record before it has and, if the writer asked for `sync`, when
//!    [`Input::Persisted`] has passed its end. Only then is there an [`Effect::Reply`].
//!
//! # What is read
//! A read of now sees what is committed: [`Replica::now_cut`]. A read at t may be answered when nothing can be stamped
//! at or below t any more and everything up to t is committed: [`Replica::is_readable_at`], or [`Input::Close`].
//!
//! # Guarantees
//! - Stamps rise with `n` (the parts of one group share theirs); `n` has no holes; what is clean is a prefix.
//! - No record is stamped at or below [`Replica::closed`], nor at or below what its sender had seen.
//! - Each (session, seq, part) becomes one record, however often it is sent, also across a restart.
//! - A `sync` write is answered only while `Persisted` is handled, or later; what is answered stays answered the same.
//! - After [`Input::AppendFailed`] it is as if the record had never been, but that its stamp is not used again.
//!
//! # Several members
//! Every member runs the same [`Replica`]; a [`Configuration`] names them, head first. Records and promises go down
//! ([`Message::Record`], [`Message::Promise`]), acknowledgements up ([`Message::Ack`]):
//! - a record is sent on when it is whole here, so each log is a prefix of the one before it;
//! - it is committed here when it is committed behind and, if its writer asked for it, durable here; the head's answer means all;
//! - a promise counts from when the tail has acknowledged it: whoever becomes head knows it;
//! - a read of now ([`Input::Look`]) that meets a record not known to be committed asks the tail;
//! - every message carries its epoch, and those of another are passed over. What is lost is said again ([`Input::Again`]);
//! - who returns offers what its log consists of, discards what the chain does not have, gets what it lacks out of the tail's
//!   log, joins as a tail that answers no read of now yet, and serves when it has committed all that its predecessor held.
//!
//! Leaves to others: bytes, index and recovery (`multilog`), the clock (`hlc`), which sessions live (`namespace`), the
//! device's durable frontier, leases and who is a member (`node`). With one member head and tail are the same replica and
//! nothing is sent. Where records are gone from the log (retention), a difference by content takes the place of numbers: not yet.
//!
//! # Source
//! Terrace and Freedman, CRAQ (USENIX ATC'09): clean and dirty, the tail commits. FFFS (SoCC'16) §5: stamps of a log.
//! Closed timestamps follow protocols §3. Where they depart from it or say more: docs/adr/0023-one-replica-every-role.md.

mod error;
mod link;
mod memory;
mod message;
mod replica;
mod settings;
#[cfg(test)]
mod tests;

pub use error::Error;
pub use link::{Configuration, Forwarded, Message};
pub use memory::SessionMemory;
pub use message::{AppendToken, Effect, Input, LogEnd, Moment, Replayed, RequestId, Resumed, WriteDone, WriteRequest};
pub use replica::{Remembered, RememberedState, Replica};
pub use settings::Settings;
