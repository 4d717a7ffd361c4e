//! Chains that this server is no member of: it asks their members for what it needs to know.
//!
//! Guarantees: an answer about such a chain comes from a member of it, and, if it is about now, from one that held a
//! lease after every look-up; so it is the answer that a client of that member would get. If no member can be asked,
//! this server does not guess. Leaves to others: which servers are the members (`cluster`), how requests and responses
//! travel ([`crate::peer_rpc`]).
//!
//! If a cluster has more servers than copies, no server has everything. Clients read bytes chunk by chunk from the
//! servers that have them. This module asks for the length of a file with open writers, and for the order of a change
//! of names among writes; it asks one member for all the chains that this member has.

mod bytes;
pub(crate) mod client;
mod reach;
mod records;
mod server;

pub use self::bytes::{Fetch, Wanted};
