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
//! [`MultiLog::place`] says where a group goes; the driver takes the header from [`MultiLog::encode`], writes header and
//! payload to the page cache, and calls [`MultiLog::publish`]: from then on every plan at or after its stamp sees it.
//! Place, encode, write and publish happen under one lock of the device, so log order is stamp order.
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
mod imaging;
mod index;
mod log;
mod numbers;
mod plan;
mod record;
mod recover;
mod segment;
mod shelf;
mod slim;
mod trailer;

pub use chains::Numbered;
pub use check::{Checked, Content, Damage, DamageKind, SegmentBytes, Unread};
pub use dead::{Grave, Lost, Sealed};
pub use discarded::Discarded;
pub use entry::RECORD_MARK_BYTES;
pub use error::Error;
pub use header::{FORMAT_VERSION, LogPosition, SEGMENT_HEADER_BYTES};
pub use image::{ImageKey, ImagePlace, Images, MadeOf};
pub use imaging::PlannedImage;
pub use index::{Crowded, Looked, Looking, Tail, Thin, UserCut};
pub use log::{ChainState, MultiLog, Settings, Stats};
pub use plan::{Fetched, Imaged, Piece, Source, Stored};
pub use record::{RecordKind, RecordMeta, block_crcs};
pub use recover::{Corruption, Cut, CutReason, Recovered, Report, SegmentKey, SegmentSource};
pub use segment::{NewSegment, Placed, Seal, Spot};
pub use shelf::{ChainTip, Fetch, Merge, Shelf, ShelfBuilder, ShelfKey, ShelfSink, ShelfSource, check_shelf};
