//! Which parts of a device's files are in memory: the youngest records, and parts of older ones that are in use.
//!
//! Guarantees: copies of the log and of index runs in memory stay within their limits, as far as the kernel follows the
//! advice; the bytes of a read do not depend on any of it. Leaves to others: the policy (`tier`), the meaning of bytes
//! (`multilog`), checksums (`device`).
//!
//! # How
//! The copies are pages of the kernel's page cache, and this module decides which of them stay: it advises the kernel
//! what to read and what to drop, and remembers of every *frame* of 64 KiB which pages were read (ADR 0015 has the
//! measurements). So a copy is never older than the file, expired bytes leave memory together with the disk's, a failed
//! read leaves nothing behind, and all pages that a request lacks are read from the device at once, not piece by piece.
//!
//! *Young* is the part of the log after the edge of its window: it is in memory because it was written, and no read
//! checks that. *Old* is the rest of the log, and every other immutable file. Before old bytes are read,
//! [`Tiers::pin`] notes their frames, and requests the pages that are missing; after the read, [`Tiers::unpin`] drops
//! the pages that were evicted for them.

mod frames;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use frieze_base::{ByteRange, InodeId, SegmentId};
use frieze_disk::{DiskFile, PAGE_BYTES};
use frieze_locks::{Mutex, MutexGuard, levels};
use frieze_multilog::{LogPosition, RunKey};
use frieze_tier::{CachePolicy, Habit, Heat, Readers, RecentWindow, Shares};

use frames::{FRAME_BYTES, Inherited, PAGES, Pages, pages_of};

/// An immutable file of the device: a segment of the log (of the last one without its end), or another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKey {
    /// A segment of the log.
    Segment(SegmentId),
    /// A run of the index.
    IndexRun(RunKey),
}

/// Bytes of a file that a read will need.
pub struct PageSpan<'a> {
    pub(crate) key: FileKey,
    pub(crate) file: &'a dyn DiskFile,
    /// Bytes before this offset are old, those from it on young.
    pub(crate) old_end: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// Identity of a reader: one file at one instant, in one session, or under one number if no session is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReaderKey {
    /// Number that the client assigns to its readers.
    pub reader: u64,
    /// The file.
    pub inode: InodeId,
    /// Stamp and user time of the read.
    pub at: (Option<u64>, Option<i64>),
}

/// A part of a file of [`FRAME_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Frame {
    pub(crate) key: FileKey,
    number: u32,
}

/// Frames that a read has noted; passed to [`Tiers::unpin`].
#[derive(Default)]
pub struct PinnedPages {
    /// Frames that were evicted for it, or may not stay.
    evicted: Vec<(Frame, Pages)>,
    /// Frames that it reads.
    frames: Vec<Frame>,
}

/// Bytes found in memory, and bytes not found.
#[derive(Clone, Copy, Debug, Default)]
pub struct HitCounts {
    pub hit_bytes: u64,
    pub missed_bytes: u64,
}

/// State and counters of the tiers.
#[derive(Clone, Copy, Debug, Default)]
pub struct TierStats {
    /// Bytes of old records and index runs in memory, including their bookkeeping.
    pub old_bytes: u64,
    /// Requested by random reads.
    pub wanted: HitCounts,
    /// Requested by sequential readers, or ahead of them.
    pub scanned: HitCounts,
    pub ahead_bytes: u64,
    /// Frames that were admitted, evicted, refused.
    pub admitted: u64,
    pub evicted: u64,
    pub refused: u64,
    /// Copies that failed their checksum and were read again from the medium, intact.
    pub healed: u64,
    /// The kernel ignores the advice to drop pages.
    pub unbounded: bool,
}

/// Bookkeeping of the pages in memory.
pub struct Tiers {
    segment_bytes: u64,
    young_bytes_max: u64,
    /// Log position from which on records are young.
    edge: AtomicU64,
    window: Mutex<levels::RecentWindow, RecentWindow>,
    /// Young bytes of an earlier process may be in memory or not: a bit for each frame that was requested.
    inherited: Inherited,
    old: Mutex<levels::OldPages, OldPages>,
    readers: Mutex<levels::ReaderStreams, Readers<ReaderKey>>,
    /// The first refusal of the kernel to drop pages.
    unbounded: AtomicU64,
    healed: AtomicU64,
}

struct OldPages {
    cache: CachePolicy<Frame, Pages>,
    /// Files that may have untracked pages in memory, with the count of sweeps left to look for them.
    loose: BTreeMap<FileKey, u8>,
    wanted: HitCounts,
    scanned: HitCounts,
    ahead_bytes: u64,
}

impl Tiers {
    /// Tiers of a log that ends at `end`.
    pub(crate) fn new(shares: &Shares, segment_bytes: u64, end: LogPosition) -> Tiers {
        let end = position(segment_bytes, end);
        let window = RecentWindow::new(shares.young, FRAME_BYTES, end);
        let start = window.edge();
        let cache = CachePolicy::new(shares.old);
        let ahead_bytes_max = (cache.small_bytes_max() / 4).min(AHEAD_BYTES_MAX);
        Tiers {
            segment_bytes,
            young_bytes_max: shares.young,
            edge: AtomicU64::new(start),
            window: Mutex::new(window),
            inherited: Inherited::new(start, end),
            old: Mutex::new(OldPages {
                cache,
                loose: BTreeMap::new(),
                wanted: HitCounts::default(),
                scanned: HitCounts::default(),
                ahead_bytes: 0,
            }),
            readers: Mutex::new(Readers::new(READERS_MAX, ahead_bytes_max)),
            unbounded: AtomicU64::new(0),
            healed: AtomicU64::new(0),
        }
    }

    #[track_caller]
    fn old(&self) -> MutexGuard<'_, OldPages> {
        self.old.lock()
    }

    /// Offset up to which a segment is old.
    pub(crate) fn old_end(&self, segment: SegmentId) -> u64 {
        let start = position(self.segment_bytes, LogPosition { segment, offset: 0 });
        self.edge.load(Ordering::Relaxed).saturating_sub(start).min(self.segment_bytes)
    }

    /// True if a byte of a segment may not be in memory and has to be requested before a read: it is old, or its state
    /// is unknown.
    pub(crate) fn may_be_absent(&self, segment: SegmentId, offset: u64) -> bool {
        let at = position(self.segment_bytes, LogPosition { segment, offset });
        at < self.edge.load(Ordering::Relaxed) || self.inherited.concerns(at)
    }

    /// Access pattern of the reader, which now reads `range` of a file with old bytes.
    pub fn observe(&self, reader: ReaderKey, range: ByteRange) -> Habit {
        self.readers.lock().observe(reader, range)
    }

    /// Prepares a read of these bytes: requests all that are not in memory, before the reader waits for any of them.
    pub(crate) fn pin(&self, spans: &[PageSpan<'_>], heat: Heat, pinned: &mut PinnedPages) {
        let mut missing = Vec::new();
        {
            let mut old = self.old();
            for (number, span) in spans.iter().enumerate() {
                let old_end = span.end.min(span.old_end);
                let is_missing = if span.start < old_end {
                    old.note(span.key, span.start, old_end, heat, pinned)
                } else {
                    let FileKey::Segment(segment) = span.key else { continue };
                    let at = position(self.segment_bytes, LogPosition { segment, offset: span.start });
                    self.inherited.ask(at, at + (span.end - span.start))
                };
                if is_missing {
                    missing.push(number);
                }
            }
        }
        for number in missing {
            let span = &spans[number];
            // If the prefetch fails, the read itself fetches the bytes and returns the error.
            let _ = span.file.prefetch(span.start, span.end - span.start);
        }
    }

    /// Ends a read. The pages that were evicted for it are dropped; if it `failed`, its pages count as not in memory.
    pub(crate) fn unpin(
        &self,
        mut pinned: PinnedPages,
        failed: bool,
        file_of: &dyn Fn(FileKey) -> Option<Arc<dyn DiskFile>>,
    ) {
        if pinned.evicted.is_empty() && !failed {
            return;
        }
        {
            let mut old = self.old();
            if failed {
                for frame in pinned.frames.drain(..) {
                    pinned.evicted.extend(old.cache.remove(frame).map(|pages| (frame, pages)));
                }
            }
            for (frame, pages) in &mut pinned.evicted {
                // Another reader has requested the frame meanwhile, and keeps it.
                let kept = old.cache.get(frame).map_or(0, |kept| kept.all());
                (pages.wanted, pages.scanned) = (pages.wanted & !kept, pages.scanned & !kept);
                // A concurrent reader keeps it in memory without knowing that it was evicted.
                old.loose.insert(frame.key, SWEEPS);
            }
        }
        pinned.evicted.sort_unstable_by_key(|(frame, _)| *frame);
        let mut runs: Vec<(FileKey, u64, u64)> = Vec::new();
        for (frame, pages) in &pinned.evicted {
            for page in (0..PAGES).filter(|page| pages.all() >> page & 1 == 1) {
                let start = u64::from(frame.number) * FRAME_BYTES + page * PAGE_BYTES;
                match runs.last_mut() {
                    Some((key, _, end)) if *key == frame.key && *end == start => *end += PAGE_BYTES,
                    _ => runs.push((frame.key, start, start + PAGE_BYTES)),
                }
            }
        }
        for (key, start, end) in runs {
            if let Some(file) = file_of(key) {
                self.drop_pages(&*file, start, end - start);
            }
        }
    }

    /// Bytes that were requested ahead of a reader.
    pub fn read_ahead(&self, bytes: u64) {
        self.old().ahead_bytes += bytes;
    }

    /// The log has grown to `end` and is durable up to `durable`: drops pages that are no longer young.
    pub(crate) fn advance(
        &self,
        end: LogPosition,
        durable: LogPosition,
        file_of: &dyn Fn(FileKey) -> Option<Arc<dyn DiskFile>>,
    ) {
        let (end, durable) = (position(self.segment_bytes, end), position(self.segment_bytes, durable));
        let mut window = self.window.lock();
        let step = (self.young_bytes_max / STEP_PART).clamp(FRAME_BYTES, STEP_BYTES_MAX);
        if end.saturating_sub(self.young_bytes_max) < window.edge() + step {
            return;
        }
        let Some(left) = window.advance(end, durable) else { return };
        // Set before any page is dropped: later readers of these bytes request them.
        self.edge.store(left.end, Ordering::Relaxed);
        for id in left.start / self.segment_bytes..=(left.end - 1) / self.segment_bytes {
            let key = FileKey::Segment(SegmentId(id));
            let Some(file) = file_of(key) else { continue };
            let upto = (left.end - id * self.segment_bytes).min(self.segment_bytes);
            self.advise(file.hint_random_reads());
            // From its beginning: pages read or written across the last edge could not be dropped then.
            self.drop_pages(&*file, 0, upto);
            self.old().loose.insert(key, SWEEPS);
        }
    }

    /// Clears the tracking of this file, and drops its pages except the young ones.
    pub(crate) fn drop_file_pages(&self, key: FileKey, file: &dyn DiskFile, len: u64) {
        let end = match key {
            FileKey::Segment(segment) => self.old_end(segment),
            FileKey::IndexRun(_) => len,
        };
        if end > 0 {
            self.advise(file.hint_random_reads());
            self.drop_pages(file, 0, end);
        }
    }

    /// A file was written, or read on another path: a sweep looks for its pages.
    pub(crate) fn note_untracked(&self, key: FileKey) {
        self.old().loose.insert(key, SWEEPS);
    }

    /// A file was removed.
    pub(crate) fn forget_file(&self, key: FileKey) {
        let mut old = self.old();
        old.cache.retain(|frame| frame.key != key);
        old.loose.remove(&key);
    }

    /// Finds untracked pages in memory, and drops them.
    pub(crate) fn sweep(&self, file_of: &dyn Fn(FileKey) -> Option<Arc<dyn DiskFile>>) {
        let keys: Vec<FileKey> = self.old().loose.keys().copied().collect();
        for key in keys {
            let Some(file) = file_of(key) else {
                self.old().loose.remove(&key);
                continue;
            };
            let Ok(len) = file.len() else { continue };
            let end = match key {
                FileKey::Segment(segment) => self.old_end(segment),
                FileKey::IndexRun(_) => len,
            };
            let (gaps, known_bytes) = self.old().gaps(key, end);
            let is_young = end < len.min(self.segment_bytes) && matches!(key, FileKey::Segment(_));
            // In a file that is partly young, the count of pages in memory does not say which part they belong to; and
            // to ask takes time in proportion to the pages of the file.
            let more = is_young
                || match file.cached_bytes() {
                    Ok(Some(bytes)) => bytes > known_bytes,
                    Ok(None) | Err(_) => true,
                };
            if more {
                for gap in gaps {
                    self.drop_pages(&*file, gap.start(), gap.len());
                }
            }
            let mut old = self.old();
            if let Some(left) = old.loose.get_mut(&key)
                && !is_young
            {
                *left -= 1;
                if *left == 0 {
                    old.loose.remove(&key);
                }
            }
        }
    }

    /// A copy failed its checksum and the medium did not.
    pub(crate) fn note_healed(&self) {
        self.healed.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes read from memory and from the medium so far.
    pub fn stats(&self) -> TierStats {
        let old = self.old();
        let cache = old.cache.stats();
        TierStats {
            old_bytes: cache.bytes,
            wanted: old.wanted,
            scanned: old.scanned,
            ahead_bytes: old.ahead_bytes,
            admitted: cache.admitted,
            evicted: cache.evicted,
            refused: cache.refused,
            healed: self.healed.load(Ordering::Relaxed),
            unbounded: self.unbounded.load(Ordering::Relaxed) > 0,
        }
    }

    /// Young bytes of a log that ends at `end`.
    pub fn young_bytes(&self, end: LogPosition) -> u64 {
        position(self.segment_bytes, end).saturating_sub(self.edge.load(Ordering::Relaxed))
    }

    fn drop_pages(&self, file: &dyn DiskFile, offset: u64, len: u64) {
        self.advise(file.advise_dont_need(offset, len));
    }

    /// Advice that the kernel refuses changes no answer: more is in memory than should be, and `status` reports it.
    fn advise(&self, advised: frieze_disk::Result<()>) {
        if advised.is_err() {
            self.unbounded.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl OldPages {
    /// Notes that a read needs `start..end` of a file; true if part of it is not in memory.
    fn note(&mut self, key: FileKey, start: u64, end: u64, heat: Heat, pinned: &mut PinnedPages) -> bool {
        let mut missed = 0;
        for number in start / FRAME_BYTES..=(end - 1) / FRAME_BYTES {
            let frame = Frame { key, number: number as u32 };
            let wanted = pages_of(start, end, number * FRAME_BYTES);
            let found = match heat {
                Heat::Wanted => &mut self.wanted,
                Heat::Scan => &mut self.scanned,
            };
            self.cache.touch(
                frame,
                heat,
                |pages| {
                    let missing = wanted & !pages.all();
                    pages.add(wanted, heat);
                    found.hit_bytes += u64::from((wanted & !missing).count_ones()) * PAGE_BYTES;
                    found.missed_bytes += u64::from(missing.count_ones()) * PAGE_BYTES;
                    missed += missing.count_ones();
                    missing == 0
                },
                &mut pinned.evicted,
            );
            pinned.frames.push(frame);
        }
        missed > 0
    }

    /// Ranges of the first `end` bytes of a file without tracked pages, and how many bytes of the rest are in memory.
    fn gaps(&self, key: FileKey, end: u64) -> (Vec<ByteRange>, u64) {
        let (mut gaps, mut known_bytes, mut from) = (Vec::new(), 0, 0);
        for number in 0..end.div_ceil(FRAME_BYTES) {
            if let Some(pages) = self.cache.get(&Frame { key, number: number as u32 }) {
                known_bytes += pages.bytes();
                let start = number * FRAME_BYTES;
                if from < start {
                    gaps.push(ByteRange::new(from, start));
                }
                from = start + FRAME_BYTES;
            }
        }
        if from < end {
            gaps.push(ByteRange::new(from, end));
        }
        (gaps, known_bytes)
    }
}

/// Bytes of the log before a position, each segment counted as full.
fn position(segment_bytes: u64, at: LogPosition) -> u64 {
    at.segment.0.saturating_mul(segment_bytes).saturating_add(at.offset)
}

/// Readers that are tracked: about 400 KiB.
const READERS_MAX: usize = 1024;
/// Most bytes read ahead of one reader: what a disk of 1 GiB/s reads in 4 ms.
const AHEAD_BYTES_MAX: u64 = 4 << 20;
/// The window moves in steps of this part of it, at most this many bytes: what one system call drops.
const STEP_PART: u64 = 16;
const STEP_BYTES_MAX: u64 = 1 << 20;
/// Sweeps that visit a file: a reader that was active during the first is done by the second.
const SWEEPS: u8 = 2;
