//! Faults of a trace.

use std::path::PathBuf;

/// Why a ring cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The system refused.
    #[error("cannot {what} {}: {error}", path.display())]
    System {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's words.
        error: std::io::Error,
    },
    /// A ring of this size is none.
    #[error("a ring of {bytes} bytes: give {RING_BYTES_MIN} to {RING_BYTES_MAX} bytes, such as 256M")]
    Size {
        /// As it was asked for.
        bytes: u64,
    },
    /// A full disk would end the process when a page of the ring is touched.
    #[error(
        "{}: a ring needs a file system that writes in place (ext4, xfs, tmpfs), for a full disk would end the process \
         elsewhere: name a directory on one",
        path.display()
    )]
    FileSystem {
        /// The directory.
        path: PathBuf,
    },
    /// It is no ring, or one of a newer version.
    #[error("{} is no ring of a trace that this version reads: {why}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

/// Smallest ring, bytes: 16,384 events.
pub const RING_BYTES_MIN: u64 = 1 << 20;
/// Largest ring, bytes: 16 million events, which a reader has in memory.
pub const RING_BYTES_MAX: u64 = 1 << 30;
