//! One device: its log of segments on a disk, with concurrent writers (`append`) and readers.
//!
//! Guarantees: a record is visible only when its data is complete; bytes that are returned have passed their block
//! checksums; a failed append leaves nothing visible. The index is read under a short lock, bytes are moved outside of
//! it.
//! Leaves to others: order and stamps (`chain`, through `data`), the place of a record (`multilog`).

mod append;
mod chains;
mod checksum_cache;
mod detached_chains;
mod images;
mod index_runs;
mod pack_file;
mod pack_list;
mod pack_writer;
mod packs;
mod preallocate;
mod read;
mod reclaim;
mod recover;
mod repair;
mod segment_file;
mod size_histogram;
mod space;
mod tiers;
mod trace;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use frieze_base::{ChainId, Fault, InodeId, Reason, SegmentId, crc32c, crc32c_combine};
use frieze_disk::{Disk, DiskFile};
use frieze_hlc::Hlc;
use frieze_locks::{Condvar, Mutex, RwLock, RwLockReadGuard, levels};
use frieze_multilog::{ChainTip, DeadRecord, LogPosition, MultiLog, RunKey, Seal};

use frieze_tier::Shares;

use crate::read_errors::ReadErrors;
pub use append::ReservedAppend;
pub use checksum_cache::SENDFILE_BYTES_MIN;
pub use packs::{NextFile, PackOrder, PackStats};
pub use preallocate::SpareSegments;
pub use segment_file::write_surely;
use segment_file::{TRAILER_BYTES, segment_name};
use size_histogram::SizeHistogram;

pub use images::{IMAGE_SLOT_BYTES, ImageBudget};
pub use read::UnverifiedSpan;
pub use recover::{Budget, DamagedLog, RecoveryLimits, damaged_log};
pub use tiers::{FileKey, PageSpan, PinnedPages, ReaderKey, Tiers};

/// Bytes appended between two checkpoints of the open segment.
const CHECKPOINT_BYTES: u64 = 8 << 20;

/// The open segment is closed early if this many of its bytes, or this part of them, are to be given back.
const CLOSE_EARLY_BYTES: u64 = 256 << 10;
/// See [`CLOSE_EARLY_BYTES`]: as much of a segment of the usual 64 MiB.
const CLOSE_EARLY_PART: u64 = 256;

/// The log of one device.
pub struct Device {
    disk: Arc<dyn Disk>,
    settings: frieze_multilog::LogSettings,
    budget: Budget,
    log: RwLock<levels::DeviceIndex, MultiLog>,
    files: RwLock<levels::SegmentFiles, BTreeMap<SegmentId, Arc<dyn DiskFile>>>,
    /// Which parts of the files are in memory.
    tiers: Tiers,
    dirty: Mutex<levels::DirtyFiles, DirtyFiles>,
    spares: SpareSegments,
    /// See [`Device::refuses_names`].
    refuses_names: AtomicBool,
    /// See [`Device::set_space_advice`].
    space_advice: Mutex<levels::SpaceAdvice, String>,
    /// Bytes appended and not yet on stable storage.
    dirty_bytes: AtomicU64,
    /// Bytes appended since the last checkpoint of the open segment.
    since_checkpoint: AtomicU64,
    /// Appends and reads so far.
    served: AtomicU64,
    /// Places of failed groups that could not be erased, and the faults.
    unerased: Mutex<levels::UnerasedGroups, Vec<(SegmentId, u64, Fault)>>,
    /// There may be some.
    has_unerased: AtomicBool,
    /// Notified when a reservation ends.
    turn: Condvar,
    turn_lock: Mutex<levels::PublishTurn, ()>,
    index_runs: RwLock<levels::IndexRunFiles, BTreeMap<RunKey, Arc<dyn DiskFile>>>,
    /// Locked while index runs are written or replaced.
    index_run_lock: Mutex<levels::IndexRunWrites, ()>,
    /// The last record of each chain in the index runs.
    tips: Mutex<levels::ChainTips, BTreeMap<ChainId, ChainTip>>,
    /// Locked while index memory is evicted, or while a reader prevents that.
    evicting: Mutex<levels::IndexEviction, ()>,
    /// The dedupe image that was last stored beside an index run.
    companion: Mutex<levels::DedupeImage, Vec<u8>>,
    /// Bytes of each flush.
    flushed: Mutex<levels::FlushSizes, SizeHistogram>,
    /// Damage found in index runs and repaired, as sentences.
    repairs: Mutex<levels::DeviceRepairs, Vec<String>>,
    read_errors: ReadErrors,
    images: images::ImageStore,
    packs: Mutex<levels::PackList, pack_list::PackList>,
    /// Counts how often records of chains were discarded.
    removals: AtomicU64,
    /// Checksums of spans that were recently written or sent.
    checksums: checksum_cache::SpanChecksums,
}

#[derive(Default)]
struct DirtyFiles {
    segments: BTreeSet<SegmentId>,
    directory: bool,
}

/// A write of at least this many bytes with a waiting request is written out at once. Smaller writes share a flush,
/// which is cheaper.
const EARLY_BYTES: u64 = 256 << 10;
/// Bytes that a disk of 2 GiB/s writes in 8 ms.
const AHEAD_BYTES_MAX: u64 = 16 << 20;

impl Device {
    /// The index, for reading.
    #[track_caller]
    pub fn log(&self) -> RwLockReadGuard<'_, MultiLog> {
        self.log.read()
    }

    /// Count of flushes, and the median of their bytes.
    pub fn flushes(&self) -> (u64, u64) {
        let flushed = self.flushed.lock();
        (flushed.count(), flushed.median())
    }

    /// Size of a checksummed block in bytes.
    pub fn block_bytes(&self) -> usize {
        self.settings.block_bytes as usize
    }

    /// Creates the file of a new segment and writes its header.
    fn add_segment(&self, id: SegmentId, header: &[u8]) -> Result<(), Fault> {
        let file = match self.spares.take(&*self.disk, &segment_name(id))? {
            Some(file) => file,
            None => {
                while let Err(full) = self.check_room(1) {
                    // Data has priority over images.
                    if !self.evict_image_file()? {
                        return Err(full);
                    }
                }
                self.disk.create(&segment_name(id), self.settings.segment_bytes)?
            }
        };
        // Registered before its header is written: if a step below fails, the file is reused.
        self.files.write().insert(id, file.clone());
        let mut dirty = self.dirty.lock();
        dirty.directory = true;
        dirty.segments.insert(id);
        drop(dirty);
        file.write_at(0, &[header])?;
        // A spare may have had another use before.
        file.hint_writes(header.len() as u64..self.settings.segment_bytes - TRAILER_BYTES);
        Ok(())
    }

    /// Creates missing spare segments while there is space. Called off the critical path.
    ///
    /// # Errors
    /// The disk's: the next call retries.
    pub fn prepare_spares(&self) -> Result<(), Fault> {
        self.watch_space()?;
        self.spares.fill(&*self.disk, self.settings.segment_bytes, &|segments| self.check_room(segments).is_ok())
    }

    /// Looks up the names of the next segments before a write needs them. Called off the critical path, when a segment
    /// has just been started.
    pub fn expect_segments(&self) {
        let open = self.log().end().segment;
        (1..=preallocate::COUNT as u64).for_each(|ahead| self.disk.hint_name(&segment_name(SegmentId(open.0 + ahead))));
    }

    /// The spare segments.
    pub fn spares(&self) -> &SpareSegments {
        &self.spares
    }

    fn file(&self, segment: SegmentId) -> Result<Arc<dyn DiskFile>, Fault> {
        self.files.read().get(&segment).cloned().ok_or_else(|| {
            Fault::new(
                Reason::Corrupt,
                format!("stored data is corrupt: {} is missing from the data directory", segment.in_words()),
            )
        })
    }

    /// Which parts of the files are in memory.
    pub fn tiers(&self) -> &Tiers {
        &self.tiers
    }

    /// Records what the device does from now on, beside the calls of users: appends, flushes, requests for bytes, and
    /// what leaves memory ([`frieze_trace::DeviceFile`]). Only the first recorder counts.
    ///
    /// # Cost
    /// Some 50 ns for each of these; one branch without a recorder.
    pub fn record(&self, recorder: frieze_trace::Recorder) {
        self.tiers.record(recorder);
    }

    /// The limits of memory by use.
    pub fn shares(&self) -> &Shares {
        &self.budget.shares
    }

    /// An immutable file.
    fn file_of(&self, key: FileKey) -> Option<Arc<dyn DiskFile>> {
        match key {
            FileKey::Segment(segment) => self.file(segment).ok(),
            FileKey::IndexRun(run) => self.index_run_file(run),
        }
    }

    /// Evicts records that have left the young window, as far as they are durable.
    pub fn keep_young(&self, durable: LogPosition) {
        let end = self.log().end();
        self.tiers.advance(end, durable, &|key| self.file_of(key));
    }

    /// Finds and drops cached pages of files that `tiers` does not track.
    pub fn sweep(&self) {
        self.tiers.sweep(&|key| self.file_of(key));
    }

    /// Makes everything appended so far durable, after the reservations made before the call have ended. Returns the
    /// position that is durable now: once the metadata that it depends on is durable too, [`Device::write_footers`]
    /// writes footers for it.
    ///
    /// # Errors
    /// The disk's. Data that failed to reach the disk may be lost: the caller must refuse all later writes.
    pub fn flush(&self) -> Result<LogPosition, Fault> {
        self.await_reserved();
        self.erase_failed()?;
        let began = self.tiers.trace().start();
        let _span = self.tiers.trace().flush_span();
        // The count is read before the position: what it counts was published earlier, so the position covers it.
        let bytes = self.dirty_bytes.load(Ordering::Acquire);
        let end = self.log().end();
        let dirty = std::mem::take(&mut *self.dirty.lock());
        let begin = || -> Result<(), Fault> {
            dirty.segments.iter().try_for_each(|segment| {
                self.file(*segment)?.begin_sync(0, self.settings.segment_bytes);
                Ok(())
            })
        };
        // Writeback starts before the directory sync, during which the disk would be idle. Only for few bytes: a
        // segment that starts meanwhile waits for the directory's blocks.
        let is_ahead = dirty.directory && bytes <= AHEAD_BYTES_MAX;
        if is_ahead {
            begin()?;
        }
        if dirty.directory {
            self.disk.sync_dir()?;
        }
        // Writeback of all segments starts before the wait for the first: otherwise the disk would be idle between one
        // and the next.
        if dirty.segments.len() > 1 && !is_ahead {
            begin()?;
        }
        for segment in &dirty.segments {
            self.file(*segment)?.sync()?;
        }
        self.dirty_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.tiers.trace().flush(began, end, bytes);
        self.flushed.lock().add(bytes);
        Ok(end)
    }

    /// Starts writeback of the last `len` bytes up to `end`, if they are many: a request waits for them, and a disk
    /// that writes while more data arrives is not idle between two flushes.
    pub fn begin_flush(&self, end: LogPosition, len: u64) {
        if len >= EARLY_BYTES
            && let Ok(file) = self.file(end.segment)
        {
            file.begin_sync(end.offset.saturating_sub(len), len);
        }
    }

    /// Writes footers of full segments whose records are durable, and periodically of the open segment.
    ///
    /// # Errors
    /// The disk's.
    pub fn write_footers(&self, durable: LogPosition) -> Result<(), Fault> {
        let mut seals = self.log.write().sealable(durable);
        if self.since_checkpoint.load(Ordering::Relaxed) >= CHECKPOINT_BYTES {
            seals.extend(self.take_checkpoint(durable));
        }
        self.write_seals(seals)
    }

    /// Writes a footer for the durable records of the open segment: the next start need not scan them, and damage to
    /// one of them is not mistaken for a torn tail.
    ///
    /// # Errors
    /// The disk's.
    pub fn checkpoint(&self, durable: LogPosition) -> Result<(), Fault> {
        let seal = self.take_checkpoint(durable);
        self.write_seals(seal.into_iter().collect())
    }

    fn take_checkpoint(&self, durable: LogPosition) -> Option<Seal> {
        self.since_checkpoint.store(0, Ordering::Relaxed);
        self.log.write().checkpoint(durable)
    }

    fn write_seals(&self, seals: Vec<Seal>) -> Result<(), Fault> {
        for seal in seals {
            let file = self.file(seal.segment)?;
            file.write_at(seal.offset, &[&seal.footer])?;
            // It may be written behind the edge of the young window.
            self.tiers.note_untracked(FileKey::Segment(seal.segment));
            // A later flush makes it durable; until then recovery scans the segment instead.
            self.dirty.lock().segments.insert(seal.segment);
        }
        Ok(())
    }

    /// Damage that readers met.
    pub fn read_errors(&self) -> &ReadErrors {
        &self.read_errors
    }

    /// The file of a segment, for reading from the medium.
    ///
    /// # Errors
    /// `Corrupt` if it is missing.
    pub fn medium(&self, segment: SegmentId) -> Result<Arc<dyn DiskFile>, Fault> {
        self.file(segment)
    }

    /// Count of appends and reads: while it rises, requests wait for this device.
    pub fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    /// Marks records as dead that no read needs any more: their bytes may be given back, and with `gone` the file's
    /// index leaves memory. Up to the last of `kept` only these instants are readable: records that are dead there
    /// leave memory.
    ///
    /// # Errors
    /// As [`Device::log_of`].
    pub fn mark_dead(
        &self,
        inode: InodeId,
        upto: Hlc,
        dead_records: &[DeadRecord],
        gone: bool,
        kept: &[Hlc],
    ) -> Result<(), Fault> {
        // No index memory is evicted meanwhile: the new index is built from what is in memory.
        let _kept = self.evicting.lock();
        loop {
            let mut log = self.log.write();
            if !log.is_evicted(inode) {
                log.mark_dead(inode, upto, dead_records, gone);
                break;
            }
            drop(log);
            self.fetch(inode)?;
        }
        // Most of the work runs without the lock, so writers continue.
        let mut from = 0;
        loop {
            let Some(mut thin) = self.log().compact_index(inode, from, kept) else { return Ok(()) };
            thin.build();
            self.log.write().put_compact_index(&mut thin);
            from = thin.next_chunk();
        }
    }

    /// If at least this many bytes of the open segment can be given back, closing it early is worth it.
    pub fn worth_closing(&self) -> u64 {
        CLOSE_EARLY_BYTES.min(self.settings.segment_bytes / CLOSE_EARLY_PART)
    }

    /// Makes the next append start a new segment. The caller locks writers out meanwhile.
    pub fn close_open(&self) {
        self.log.write().close_open();
    }

    /// Bytes appended and not yet durable.
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes.load(Ordering::Relaxed)
    }

    /// Space on the disk.
    pub fn space(&self) -> Result<frieze_disk::Space, Fault> {
        Ok(self.disk.space()?)
    }
}

/// The checksums of the blocks of `payload`, and of the whole.
pub fn block_checksums(payload: &[u8], block_bytes: usize) -> (Vec<u32>, u32) {
    let mut crcs = Vec::with_capacity(payload.len().div_ceil(block_bytes));
    let mut whole = 0;
    for (i, block) in payload.chunks(block_bytes).enumerate() {
        let crc = crc32c(block);
        whole = if i == 0 { crc } else { crc32c_combine(whole, crc, block.len() as u64) };
        crcs.push(crc);
    }
    (crcs, whole)
}
