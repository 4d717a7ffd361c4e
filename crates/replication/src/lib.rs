//! The data plane of one server: chains order, stamp and deduplicate writes; the device appends them; readers see what
//! is committed.
//!
//! Guarantees: only this crate stamps records; a write is acknowledged only after its durability level is reached; a
//! write that crosses chunks is one group with one stamp, visible wholly or not at all; a retry runs once; a read at a
//! closed instant never changes. Leaves to others: names, users and requests, the order of metadata, messages between
//! servers (`net::Peers`).

mod admission;
mod append;
mod appender;
mod appender_lock;
mod barrier;
mod bounds;
mod catch_up;
mod chain_state;
mod chain_view;
mod close_after;
mod closed_reads;
mod closed_record;
mod codec;
mod commit_wait;
mod config_store;
mod configure;
mod dedupe_image;
mod detach;
mod effects;
mod fault;
mod fills;
mod gather;
mod inbound;
mod incoming;
mod observer;
mod persist;
mod plane;
mod promises;
mod reads;
mod replay;
mod report;
mod request_table;
mod sessions;
mod status;
mod striping;
mod supply;
#[cfg(test)]
mod tests;
mod tick;
mod visibility;
mod write;
mod write_request;

pub use appender::Appender;
pub use bounds::{Bounds, ServingLease};
pub use chain_view::Cuts;
pub use closed_record::ClosedRecord;

pub use config_store::{ConfigStore, DiscardedSpace};
pub use dedupe_image::resume;
pub use gather::Gather;
pub use observer::PublishObserver;
pub use plane::DataPlane;
pub use replay::{new_chains, replay};
pub use report::{ChainEnd, ChainEvent};
pub use striping::{HOLE_PARTS_MAX, Layout, REACH_BYTES_MAX, Spread, file_bytes_max, in_one_record, split, split_hole};
pub use write_request::{Content, WriteAsk, WriteCallback, WritePlace, WriteResult};

#[cfg(test)]
frieze_harness::count_allocations!();
