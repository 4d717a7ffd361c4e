//! Names and bytes as one: instants that are closed in both planes, versions of files, and what other servers know of
//! them; recovery of both.
//!
//! Guarantees: an answer about an instant is made only when the instant is closed in both planes, so it never changes;
//! an answer about now that this server cannot know is asked of a server that can. Leaves to others: the right to ask
//! and to change (`frieze_service`), the order of names (`frieze_metadata`), of bytes (`frieze_replication`).

mod chain_parts;
mod change_watch;
mod count_kept;
mod dead_records;
mod durability;
mod expired;
mod file_look;
mod file_version;
mod file_view;
mod files;
mod freshness;
mod gaps;
mod gc_state;
mod kept_bytes;
mod live_bytes;
mod losses;
mod open_requests;
mod origins;
mod packing;
mod peer_rpc;
mod planes;
mod principal;
mod reclaim;
mod recovery;
mod remote_chains;
mod remote_reach;
mod removal_scan;
mod settings;
mod space_advice;
mod stored_places;
mod thinning;
mod thinning_pass;
mod write_order;

pub use chain_parts::*;
pub use change_watch::*;
pub use durability::*;
pub use file_version::*;
pub use file_view::*;
pub use files::*;
pub use gaps::*;
pub use gc_state::*;
pub use kept_bytes::{BoundedTrees, TreeBound};
pub use live_bytes::*;
pub use open_requests::*;
pub use origins::*;
pub use packing::PackLimits;
pub use peer_rpc::*;
pub use planes::*;
pub use principal::*;
pub use recovery::*;
pub use remote_chains::*;
pub use remote_reach::*;
pub use removal_scan::RemovalScan;
pub use settings::*;
pub use thinning_pass::*;
