//! One data directory: its identity, the bound of its clock, its log of segments and what is derived from it.
//!
//! Guarantees: a record is visible only when it is complete; every byte that is read was verified or is marked as
//! unverified; no stamp leaves before the bound that covers it is durable. Leaves to others: roles of chains and stamps
//! of records (`replication`), names (`metadata`), sessions and sockets.

mod clock;
mod device;
mod few;
mod identity;
mod medium;
mod read_errors;
mod ticket;
mod wake;

pub use clock::{IdentityStore, NodeClock};
pub use device::{
    Budget, DamagedLog, Device, FileKey, IMAGE_SLOT_BYTES, ImageBudget, NextFile, PackOrder, PackStats, PageSpan,
    PinnedPages, ReaderKey, RecoveryLimits, ReservedAppend, SENDFILE_BYTES_MIN, SpareSegments, Tiers, UnverifiedSpan,
    block_checksums, damaged_log, write_surely,
};
pub use few::Few;
pub use identity::{FORMAT_VERSION, Identity, MetalogRole, STATE_FILE, secret_after};
pub use medium::MediumWindow;
pub use read_errors::ReadErrors;
pub use ticket::Ticket;
pub use wake::Wake;

#[cfg(test)]
frieze_harness::count_allocations!();
