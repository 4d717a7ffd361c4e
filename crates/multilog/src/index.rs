//! What was where, when: answers any range at any instant without replaying the log.
//!
//! Guarantees: a plan for an old instant looks at no more entries than one for now, within a factor: in each page of 64
//! KiB at most one base of the fragments visible then and as many deltas (or 16). The
//! index only grows at its end: an answer for `t` never changes by records stamped above `t`.
//! Leaves to others: where segments are (`segment`), reading bytes (the driver).
//!
//! # The algorithm
//! A file has chunks, a chunk has its records in the order of their stamps, so an instant is a number of records, found
//! by one binary search. The bytes of the chunk are cut into pages. A page keeps *deltas*, one for each record that
//! touches it, and now and then a *leaf*: the fragments visible before the next delta, sorted by offset. To know the
//! page at record number `r`, take the last leaf at or before `r` and lay the few deltas up to `r` over it. A new leaf
//! is due when the deltas since the last are as many as its fragments (at least 16), so leaves cost a fragment a delta
//! however the page is cut, 3 to 8 bytes, and what the page shows now is always at hand. A delta is only the record's
//! number.

mod archive;
mod chunk;
mod compact_index;
mod dropped;
mod file;
mod image_scan;
mod image_use;
mod marks;
mod page;
mod peaks;
mod record;
mod records;
#[cfg(test)]
mod tests;
mod time_runs;

pub(crate) use archive::{WriterKey, WriterTable};
pub use compact_index::CompactIndex;
pub(crate) use dropped::DroppedSpan;
pub use file::Tail;
pub(crate) use file::{FileIndex, PackableRecord};
pub use image_scan::{ImageScan, ScanCursor};
pub use image_use::FragmentedPage;
pub(crate) use image_use::ImageUse;
pub use marks::UserCut;
pub(crate) use page::PAGE_BYTES;
pub(crate) use record::{FIRST_SEGMENT_SLOT, IndexRecord, RecordPlace};
pub(crate) use time_runs::TimeRuns;
