//! What a server does for requests, by now: the times that lie in data, read by plug-ins.
//!
//! Guarantees: a handler gets what it needs and never the server.
//! Leaves to others: threads, sockets, Raft, messages between chains (`node` and the drivers).

pub mod time_plugin;

pub use time_plugin::{BINDING_XATTR, TimePlugin};
