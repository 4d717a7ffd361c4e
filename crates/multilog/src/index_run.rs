//! Shelves: the index of sealed segments on disk, sorted by file, so that memory holds what is in use and a restart reads
//! little.
//!
//! Guarantees: a shelf says of its segments what their footers say, record for record; it is immutable and checked by
//! checksums, what it says of a file when that file is fetched; a shelf that is missing, damaged, or of other segments
//! costs time and nothing else.
//! Leaves to others: files, reading and writing (`node`), when to shelve and how much memory there is (`node`).
//!
//! # The algorithm
//! Segments are shelved in the order of the log, a few at a time: their footers are read back, the records sorted by file
//! and written as one shelf. Shelves of like size are merged into one, so there are about as many as the logarithm of the
//! log is long. What is shelved is the beginning of the log without a hole; what comes after it, the *young* part, is always
//! in memory. A file whose older records are on shelves only is *away*: it has to be fetched before it is asked for, by one
//! search in the directory of each shelf and one read of each that may hold it.
//!
//! # Source
//! LSM trees (O'Neil et al., 1996) with tiered merging; a table's blocks and its directory are those of LevelDB's SSTables.
//! The log itself stays where it is: only its index is sorted and merged.

mod build;
mod fetch;
mod format;
mod io;
mod key;
mod merge;
mod piece;

pub use build::RunBuilder;
pub use fetch::IndexFetch;
pub use format::{ChainTip, IndexRun};
pub(crate) use format::{RunContents, SegmentFacts};
pub use io::{RunSink, RunSource};
pub use key::RunKey;
pub(crate) use merge::read_contents;
pub use merge::{RunMerge, check_index_run};
