//! Index runs: the index of sealed segments on disk, sorted by file, so that memory holds only what is in use and a
//! restart reads little.
//!
//! Guarantees: an index run says of its segments what their footers say, record for record. It is immutable, and
//! checksums cover all of it; those of a block are verified when a file in it is fetched. A run that is missing,
//! damaged, or of other segments costs time and nothing else.
//! Leaves to others: files, reading and writing, when to write a run and how much memory there is (`node`).
//!
//! # The algorithm
//! Segments are indexed in the order of the log, a few at a time: their footers are read back, the records sorted by
//! file and written as one run. Runs of like size are merged into one, so their number is about the logarithm of the
//! log's length. The runs cover the beginning of the log without a hole. The rest of the log, its *unsealed* part, is
//! always in memory. A file is *evicted* if its older records are in index runs only: before it is read it has to be
//! fetched, by one search in the directory of each run and one read of each run that may hold it.
//!
//! # Source
//! LSM trees (O'Neil et al., 1996) with tiered merging; a table's blocks and its directory are those of LevelDB's
//! SSTables. The log itself stays where it is: only its index is sorted and merged.

mod build;
mod fetch;
mod format;
mod io;
mod key;
mod merge;
mod newest;
mod piece;

pub(crate) use build::BlockWriter;
pub use build::RunBuilder;
pub use fetch::{IndexFetch, IndexSource};
pub(crate) use format::RunBlock;
pub use format::{ChainTip, IndexRun};
pub(crate) use format::{RunContents, SegmentFacts};
pub use io::{RunSink, RunSource};
pub use key::RunKey;
pub use merge::{RunMerge, check_index_run};
pub(crate) use merge::{file_at, pieces_of, read_contents};
pub(crate) use newest::NewestFiles;
pub(crate) use piece::{RunRecord, decode as decode_piece, encode as encode_piece};
