//! The metalog of a server, alone or with others: drives a [`RaftMember`](frieze_metalog::RaftMember).
//!
//! Guarantees: a transaction is answered when its entry is committed, on stable storage at a majority and here (in
//! memory, if members commit from memory), and has been executed here; entries are executed in the order of the log,
//! the same at every member. What is to be on stable storage waits until [`RaftDriver::durable`] has reached it;
//! decisions of the control plane are executed only there. A server that leads no more does not answer what it has
//! ordered: the client asks the next leader, whose namespace remembers it. A record of the journal is said to be
//! durable only after the data that its entries may name. After a failed write the member is silent; one without
//! others withdraws what it could not write, and goes on.
//! Leaves to others: what is ordered and when it may be spoken of (`frieze_metalog`), the way to the others (`peers`).
//!
//! One lock, the core's, is held for one input of the member and all of its effects, execution included: effects run in
//! order, and the state is where the member expects it. No thread waits while it holds that lock.
//!
//! A server that is alone ([`RaftDriver::is_alone`]) is the only voter, and no other server may join before it is
//! *shared* ([`RaftDriver::share`]). It needs no timer: it leads when it begins ([`RaftDriver::lead_alone`]), an entry
//! is executed within the input that proposes it, and an instant is closed by the clock, without an entry.

mod apply;
mod closing;
mod driver;
mod effects;
mod journal;
mod losses;
mod propose;
mod read_index;
mod status;
mod transfer;

pub(crate) use driver::{DriverSetup, RaftDriver};
pub use status::MetalogStatus;
