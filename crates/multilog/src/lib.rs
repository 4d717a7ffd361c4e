//! The multi-log of a device: records of all chunks in one sequence of segments, the index that answers any byte range
//! at any instant, and recovery.
//!
//! Guarantees: a record is visible only when its data is whole; what a read at `t` gives does not change while records
//! stamped above `t` are added; an old instant costs what a new one costs; after a crash the log is a prefix of what
//! was published, an atomic group wholly or not at all; an old record in a reused file never passes for a new one.
//! Leaves to others: moving bytes, files and syncing (`node`), stamps, versions and retries (`chain`), sizes and
//! truncates as the namespace knows them (`namespace`).
//!
//! # A write
//! [`MultiLog::place`] says where a group goes; the driver takes the header from [`MultiLog::encode`], writes header
//! and payload to the page cache, and calls [`MultiLog::publish`]: from then on every plan at or after its stamp sees
//! it. Place, encode, write and publish happen under one lock of the device, so log order is stamp order.
//!
//! # A read
//! [`MultiLog::plan`] cuts a range into holes and stored pieces; the driver reads those and checks their block CRCs.
//!
//! # Source
//! FFFS §5 (a log for each block behind one flushed sequence, snapshots looked up rather than replayed). It indexes
//! pages and builds a past state from the log when first asked; we index extents and keep bounded leaves, so the first
//! read of a past state is as fast as the second (see the `index` module).

mod chains;
mod check;
mod dead;
mod discarded;
mod entry;
mod error;
mod gc;
mod header;
pub mod image;
mod image_plan;
mod index;
mod index_run;
mod log;
mod numbers;
mod pack;
mod plan;
mod record;
mod record_files;
mod recover;
mod reservations;
mod segment;
mod slim;
mod trailer;

pub use chains::NumberedRecord;
pub use check::{CheckStop, CheckedSegment, Damage, DamageKind, SegmentBytes, SegmentContent};
pub use dead::{DeadRecord, DroppedRecords, FileRecord, SealedSegment};
pub use discarded::Discards;
pub use entry::RECORD_MARK_BYTES;
pub use error::Error;
pub use header::{FORMAT_VERSION, LogPosition, SEGMENT_HEADER_BYTES};
pub use image::{ImageDigest, ImageKey, ImagePlace, Images};
pub use image_plan::PlannedImage;
pub use index::{CompactIndex, FragmentedPage, ImageScan, ScanCursor, Tail, UserCut};
pub use index_run::IndexSource;
pub use index_run::{
    ChainTip, IndexFetch, IndexRun, RunBuilder, RunKey, RunMerge, RunSink, RunSource, check_index_run,
};
pub use log::{ChainState, LogSettings, LogStats, MultiLog};
pub use pack::{FileToPack, PackIndex, PackIndexBuilder, PackKey, PackPlace, PackedRecord, RecordToPack};
pub use plan::{ExternalSpan, ImageSpan, Piece, PieceSource, StoredSpan};
pub use record::{RecordHeader, RecordKind, block_crcs};
pub use recover::{Corruption, LogCut, LogCutReason, LogSource, RecoveredItem, RecoveryReport, SegmentKey};
pub use reservations::{RESERVED_BYTES_MAX, Reservation, ReservationId};
pub use segment::{NewSegment, Seal, Spot};

#[cfg(test)]
frieze_harness::count_allocations!();
