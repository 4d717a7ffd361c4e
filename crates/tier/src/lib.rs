//! What stays in memory, what is let go, what is read ahead: policies without I/O, clocks or threads.
//!
//! Guarantees: the same calls give the same decisions, so that a server and a simulator of traces decide alike; every
//! table is bounded; no decision can change a byte that is read, only what it costs.
//! Leaves to others: where bytes are kept and how they get there (`node`, `disk`).
//!
//! # The parts
//! - [`RecentWindow`]: the youngest bytes of a log stay, first in, first out, up to a number of bytes.
//! - [`CachePolicy`]: which parts of everything older stay. One pass over all of history does not push out what is in
//!   use.
//! - [`OldPages`]: those parts as pages of files, as a server has them.
//! - [`FrameCache`]: frames of pages under LRU, FIFO, CLOCK, SIEVE or S3-FIFO, for simulations of other caches.
//! - [`Tiered`]: such a cache in memory over one in flash.
//! - [`Readers`]: which readers are sequential, and how far ahead of each to read.
//! - [`MemoryDemand::divide`]: one number of bytes for all of a server's memory, divided among its uses.

mod budget;
mod cache;
mod frames;
mod pages;
mod readers;
mod slots;
mod tiered;
mod window;

pub use budget::{MemoryDemand, Shares, TooLittle};
pub use cache::{CachePolicy, CacheStats, Heat, Weigh};
pub use frames::{EvictedPages, FrameCache, Policy};
pub use pages::{FRAME_BYTES, FRAME_PAGES, FramePages, HitCounts, OldPages, PAGE_BYTES, PageFrame, RecordBlocks};
pub use readers::{AheadSteps, Habit, READERS_MAX, Readers};
pub use tiered::{FlashAdmission, MovedPages, OnFlashHit, PagesFound, TierPlace, TierSettings, Tiered, Writes};
pub use window::RecentWindow;
