//! Ids, ranges, error kinds, checksums and the seeded random numbers that every frieze crate shares.
//!
//! Guarantees: no I/O, no clock, no unseeded randomness; ids print and parse back to themselves.
//! Leaves to others: time (`hlc`), messages (`wire`), everything that does work.

mod checksum;
mod error;
mod fast;
mod ids;
mod range;
mod rng;
pub mod varint;

pub use checksum::{CRC32C_BEHIND, Crc32c, crc32c, crc32c_combine};
pub use error::{ErrorKind, Fault, Reason};
pub use fast::{FastMap, FastSet, FixedHasher};
pub use ids::{
    BatchEpoch, ChainEpoch, ChainId, ChunkId, ClusterId, InodeId, LogIndex, NodeId, ParseIdError, SegmentId, Seq,
    SessionId,
};
pub use range::ByteRange;
pub use rng::Rng;

/// A reading of the driver's monotonic clock, in nanoseconds since an arbitrary start. Drives timers and nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MonoTime(pub u64);

impl MonoTime {
    /// Nanoseconds that passed since `earlier`; 0 if `earlier` lies later.
    pub fn since_ns(self, earlier: MonoTime) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Longest name of a directory entry, in bytes (`NAME_MAX`).
pub const NAME_BYTES_MAX: usize = 255;
/// The name by which a mount and the doors for Hadoop's clients show the past of every directory. Nothing else is given
/// it.
pub const AT_NAME: &str = ".at";
/// Longest path in a request, in bytes (`PATH_MAX`).
pub const PATH_BYTES_MAX: usize = 4096;
/// Symbolic links followed while one path is resolved; one more is `Reason::Loop` (Linux: 40).
pub const SYMLINKS_FOLLOWED_MAX: u32 = 40;

#[cfg(test)]
frieze_harness::count_allocations!();
