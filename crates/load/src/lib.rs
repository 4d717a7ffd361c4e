//! The load of the Facebook Messages study (FAST'14): HBase in the small, as events of files.
//!
//! Users with an activity each visit their mailboxes in sessions; a visit reads blocks of store files that the block
//! cache lacks and puts records. Flushes, logs and compactions follow from HBase's rules, and only the parameters of
//! those rules are fitted to the numbers that the study prints ([`PAPER`]).
//!
//! Guarantees: no I/O, no clock; the same parameters, size and seed give the same events. Events are ordered by time.
//! State is sizes and key ranges, never keys or contents: a block in memory costs 16 bytes, a file 64.
//! Leaves to others: where events go (`tracefile` writes a trace, `frieze load` replays calls), and what disks would do
//! with them (`whatif`).
//!
//! # Source
//! Harter et al., *Analysis of HDFS Under HBase: A Facebook Messages Case Study*, FAST'14; the HBase of its time for
//! the selection of files to compact (`hbase.hstore.compaction.*`) and for the block cache (`LruBlockCache`).

mod block_cache;
mod comparison;
mod error;
mod event;
mod measures;
mod messages;
mod parameters;
mod stack_distance;
mod stores;
mod users;

pub use comparison::{Comparison, PAPER, PaperNumber, PaperSource, Tolerance, compare};
pub use error::LoadError;
pub use event::{FilePlace, LoadCall, LoadEvent, LoadFile, LoadPurpose};
pub use measures::Measures;
pub use messages::{LoadSize, MessagesLoad};
pub use parameters::{BUILT_IN, FamilyParameters, MessagesParameters};
