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

mod inherited;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use frieze_base::{ByteRange, InodeId, SegmentId};
use frieze_disk::{DiskFile, PAGE_BYTES};
use frieze_locks::{Mutex, MutexGuard, levels};
use frieze_multilog::{LogPosition, RunKey};
use frieze_tier::{
    FRAME_BYTES, FRAME_PAGES, FramePages, Habit, Heat, HitCounts, OldPages, PageFrame, READERS_MAX, Readers,
    RecentWindow, Shares,
};
use frieze_trace::{EventFlags, Recorder};

use super::trace::{DeviceTrace, FetchEvent, flags_of};
use inherited::Inherited;

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

/// Frames that a read has noted; passed to [`Tiers::unpin`].
#[derive(Default)]
pub struct PinnedPages {
    /// Frames that were evicted for it, or may not stay.
    evicted: Vec<(PageFrame<FileKey>, FramePages)>,
    /// Frames that it reads.
    frames: Vec<PageFrame<FileKey>>,
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
    shares: Shares,
    /// Log position from which on records are young.
    edge: AtomicU64,
    window: Mutex<levels::RecentWindow, RecentWindow>,
    /// Young bytes of an earlier process may be in memory or not: a bit for each frame that was requested.
    inherited: Inherited,
    old: Mutex<levels::OldPages, OldState>,
    readers: Mutex<levels::ReaderStreams, Readers<ReaderKey>>,
    /// The first refusal of the kernel to drop pages.
    unbounded: AtomicU64,
    healed: AtomicU64,
    trace: DeviceTrace,
}

struct OldState {
    pages: OldPages<FileKey>,
    /// Files that may have untracked pages in memory, with the count of sweeps left to look for them.
    loose: BTreeMap<FileKey, u8>,
    ahead_bytes: u64,
}

impl Tiers {
    /// Tiers of a log that ends at `end`.
    pub(crate) fn new(shares: &Shares, segment_bytes: u64, end: LogPosition) -> Tiers {
        let end = position(segment_bytes, end);
        let window = RecentWindow::new(shares.young, FRAME_BYTES, end);
        let start = window.edge();
        let pages = OldPages::new(shares.old);
        let ahead_bytes_max = pages.ahead_bytes_max();
        Tiers {
            segment_bytes,
            shares: *shares,
            edge: AtomicU64::new(start),
            window: Mutex::new(window),
            inherited: Inherited::new(start, end),
            old: Mutex::new(OldState { pages, loose: BTreeMap::new(), ahead_bytes: 0 }),
            readers: Mutex::new(Readers::new(READERS_MAX, ahead_bytes_max)),
            unbounded: AtomicU64::new(0),
            healed: AtomicU64::new(0),
            trace: DeviceTrace::default(),
        }
    }

    #[track_caller]
    fn old(&self) -> MutexGuard<'_, OldState> {
        self.old.lock()
    }

    /// Records what the device does from now on. Later calls change nothing.
    pub(crate) fn record(&self, recorder: Recorder) {
        self.trace.begin(recorder);
        self.record_shares();
    }

    pub(super) fn trace(&self) -> &DeviceTrace {
        &self.trace
    }

    fn record_shares(&self) {
        let edge = self.edge.load(Ordering::Relaxed);
        self.trace.shares(self.segment_bytes, edge, self.shares.young, self.shares.old);
    }

    /// Offset up to which a segment is old; a pack is, wholly.
    pub(crate) fn old_end(&self, segment: SegmentId) -> u64 {
        if segment.is_pack() {
            return u64::MAX;
        }
        let start = position(self.segment_bytes, LogPosition { segment, offset: 0 });
        self.edge.load(Ordering::Relaxed).saturating_sub(start).min(self.segment_bytes)
    }

    /// True if a byte of a segment may not be in memory and has to be requested before a read: it is old, or its state
    /// is unknown.
    pub(crate) fn may_be_absent(&self, segment: SegmentId, offset: u64) -> bool {
        let at = position(self.segment_bytes, LogPosition { segment, offset });
        at < self.edge.load(Ordering::Relaxed) || segment.is_pack() || self.inherited.concerns(at)
    }

    /// Access pattern of the reader, which now reads `range` of a file with old bytes.
    pub fn observe(&self, reader: ReaderKey, range: ByteRange) -> Habit {
        self.readers.lock().observe(reader, range)
    }

    /// Prepares a read of these bytes: requests all that are not in memory, before the reader waits for any of them.
    pub(crate) fn pin(&self, spans: &[PageSpan<'_>], heat: Heat, pinned: &mut PinnedPages) {
        let began = self.trace.start();
        let (mut missing, mut fetches) = (Vec::new(), Vec::new());
        {
            let mut old = self.old();
            for (number, span) in spans.iter().enumerate() {
                let (key, start, end) = (span.key, span.start, span.end.min(span.old_end));
                let is_missing = if start < end {
                    pinned.frames.extend(PageFrame::of_range(key, start, end));
                    let missed_bytes = old.pages.request(key, start, end, heat, &mut pinned.evicted);
                    if began.is_some() {
                        fetches.push(FetchEvent { key, start, end, missed_bytes, flags: flags_of(heat) });
                    }
                    missed_bytes > 0
                } else {
                    let FileKey::Segment(segment) = key else { continue };
                    let at = position(self.segment_bytes, LogPosition { segment, offset: start });
                    self.inherited.ask(at, at + (span.end - start))
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
        fetches.iter().for_each(|fetch| self.trace.fetch(began, fetch));
    }

    /// Bytes `start..end` of a segment are read, and are young.
    pub(super) fn record_young(&self, segment: SegmentId, start: u64, end: u64) {
        let (key, flags) = (FileKey::Segment(segment), EventFlags::FROM_CACHE);
        self.trace.fetch(self.trace.start(), &FetchEvent { key, start, end, missed_bytes: 0, flags });
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
                    pinned.evicted.extend(old.pages.remove(frame).map(|pages| (frame, pages)));
                }
            }
            for (frame, pages) in &mut pinned.evicted {
                // Another reader has requested the frame meanwhile, and keeps it.
                let kept = old.pages.get(frame).map_or(0, |kept| kept.all());
                (pages.wanted, pages.scanned) = (pages.wanted & !kept, pages.scanned & !kept);
                // A concurrent reader keeps it in memory without knowing that it was evicted.
                old.loose.insert(frame.file, SWEEPS);
            }
        }
        pinned.evicted.sort_unstable_by_key(|(frame, _)| *frame);
        let mut runs: Vec<(FileKey, u64, u64)> = Vec::new();
        for (frame, pages) in &pinned.evicted {
            for page in (0..FRAME_PAGES).filter(|page| pages.all() >> page & 1 == 1) {
                let start = frame.start() + page * PAGE_BYTES;
                match runs.last_mut() {
                    Some((key, _, end)) if *key == frame.file && *end == start => *end += PAGE_BYTES,
                    _ => runs.push((frame.file, start, start + PAGE_BYTES)),
                }
            }
        }
        for (key, start, end) in runs {
            if let Some(file) = file_of(key) {
                self.drop_pages(key, &*file, start, end - start);
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
        if !window.is_due(end) {
            return;
        }
        let Some(left) = window.advance(end, durable) else { return };
        // Set before any page is dropped: later readers of these bytes request them.
        self.edge.store(left.end, Ordering::Relaxed);
        if self.trace.is_on() {
            self.record_shares();
        }
        for id in left.start / self.segment_bytes..=(left.end - 1) / self.segment_bytes {
            let key = FileKey::Segment(SegmentId(id));
            let Some(file) = file_of(key) else { continue };
            let upto = (left.end - id * self.segment_bytes).min(self.segment_bytes);
            self.advise(file.hint_random_reads());
            // From its beginning: pages read or written across the last edge could not be dropped then.
            self.drop_pages(key, &*file, 0, upto);
            self.old().loose.insert(key, SWEEPS);
        }
    }

    /// Clears the tracking of this file, and drops its pages except the young ones.
    pub(crate) fn drop_file_pages(&self, key: FileKey, file: &dyn DiskFile, len: u64) {
        let end = match key {
            FileKey::Segment(segment) => self.old_end(segment).min(len),
            FileKey::IndexRun(_) => len,
        };
        if end > 0 {
            self.advise(file.hint_random_reads());
            self.drop_pages(key, file, 0, end);
        }
    }

    /// A file was written, or read on another path: a sweep looks for its pages.
    pub(crate) fn note_untracked(&self, key: FileKey) {
        self.old().loose.insert(key, SWEEPS);
    }

    /// A file was removed.
    pub(crate) fn forget_file(&self, key: FileKey) {
        let mut old = self.old();
        old.pages.remove_file(key);
        old.loose.remove(&key);
        drop(old);
        self.trace.removed(key);
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
                FileKey::Segment(segment) => self.old_end(segment).min(len),
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
                    self.drop_pages(key, &*file, gap.start(), gap.len());
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
        let cache = old.pages.stats();
        TierStats {
            old_bytes: cache.bytes,
            wanted: old.pages.wanted(),
            scanned: old.pages.scanned(),
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

    fn drop_pages(&self, key: FileKey, file: &dyn DiskFile, offset: u64, len: u64) {
        let began = self.trace.start();
        self.advise(file.advise_dont_need(offset, len));
        self.trace.dropped(began, key, offset, len);
    }

    /// Advice that the kernel refuses changes no answer: more is in memory than should be, and `status` reports it.
    fn advise(&self, advised: frieze_disk::Result<()>) {
        if advised.is_err() {
            self.unbounded.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl OldState {
    /// Ranges of the first `end` bytes of a file without tracked pages, and how many bytes of the rest are in memory.
    fn gaps(&self, key: FileKey, end: u64) -> (Vec<ByteRange>, u64) {
        let (mut gaps, mut known_bytes, mut from) = (Vec::new(), 0, 0);
        for number in 0..end.div_ceil(FRAME_BYTES) {
            if let Some(pages) = self.pages.get(&PageFrame { file: key, number: number as u32 }) {
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

const _: () = assert!(PAGE_BYTES == frieze_tier::PAGE_BYTES);
/// Sweeps that visit a file: a reader that was active during the first is done by the second.
const SWEEPS: u8 = 2;
