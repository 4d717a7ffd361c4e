//! The data plane of one server: chains order, stamp and deduplicate writes; the device appends them; readers see what
//! is committed.
//!
//! Guarantees: only this crate stamps records; a write is acknowledged only after its durability level is reached; a
//! write that crosses chunks is one group with one stamp, visible wholly or not at all; a retry runs once; a read at a
//! closed instant never changes. Leaves to others: names, users and requests, the order of metadata, messages between
//! servers (`net::Peers`).

mod barrier;
mod bounds;
mod catch_up;
mod chain_state;
mod chains;
mod close_after;
mod closed_record;
mod codec;
mod commit_wait;
mod config_store;
mod dedupe_image;
mod detach;
mod observer;
mod plane;
mod promises;
mod striping;
#[cfg(test)]
mod tests;
mod visibility;

pub use bounds::{Bounds, Lease};
pub use chains::{ChainEnd, Report};
pub use closed_record::Remembered;
pub use commit_wait::Gather;
pub use config_store::{Roles, Room};
pub use dedupe_image::resume;
pub use observer::PublishObserver;
pub use plane::{Appender, Content, DataPlane, Placed, WriteAsk, WriteReply, Written, new_chains, replay};
pub use striping::{HOLE_PARTS_MAX, Layout, REACH_BYTES_MAX, Spread, file_bytes_max, in_one_record, split, split_hole};
pub use visibility::Cuts;

#[cfg(test)]
frieze_harness::count_allocations!();
