//! Answers requests: one table of them, and the rooms in which they are handled.
//!
//! Guarantees: a handler gets its room, and never the server; an arrow between rooms goes down (`cargo xtask deps`).
//! Leaves to others: threads and sockets (`frieze_node`), Raft (`frieze_metadata`), messages of chains
//! (`frieze_replication`).

pub mod history;
pub mod read;
pub mod service;
pub mod session;
pub mod table;
pub mod tree_ops;
pub mod upkeep;
pub mod write;

pub use history::{History, Unshown};
pub use read::Reader;
pub use service::{ClusterHost, ReceivedRequest, Service};
pub use session::Sessions;
pub use session::cache_leases::Caching;
pub use session::capability::{Bearer, Capability, Mint, Presenter, Shown, claims_past};
pub use session::connection::{Conn, KeyRight, SessionTable};
pub use session::node_keys::NodeKeys;
pub use session::reply_stream::{Portion, Steps};
pub use session::responder::Responder;
pub use session::scratch::Scratch;
pub use session::unknown_session;
pub use table::class_of;

pub use tree_ops::TreeOps;
pub use upkeep::{CheckProgress, Checkup, Remains, Scrub, ScrubSummary, Upkeep, machine_bytes};
pub use write::Writers;

#[cfg(test)]
frieze_harness::count_allocations!();
