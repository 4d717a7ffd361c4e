//! What a server does for requests, by now: capabilities, and the times that lie in data.
//!
//! Guarantees: a handler gets what it needs and never the server.
//! Leaves to others: threads, sockets, Raft, messages between chains (`node` and the drivers).

mod capability;
pub mod time_plugin;

pub use capability::{Bearer, Capability, Mint, Presenter, Shown, claims_past};
pub use time_plugin::{BINDING_XATTR, TimePlugin};

#[cfg(test)]
frieze_harness::count_allocations!();
