//! Pages of a server's older files that are in memory, and what a request for bytes finds there.
//!
//! Guarantees: the pages of all frames and their bookkeeping stay within the room; a page counts as missing once, until
//! it leaves. Leaves to others: the pages themselves, which the caller requests and drops as it is told.
//!
//! A *frame* is 64 KiB of a file, the unit that stays or leaves; of each it is known which pages were read. The policy
//! is that of [`CachePolicy`].

use std::hash::Hash;

use crate::cache::{CachePolicy, CacheStats, Heat, Weigh};

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;
/// Pages of a frame.
pub const FRAME_PAGES: u64 = 16;
/// Bytes of a frame, dropped together: a system call for 64 KiB costs about a microsecond, reading them from memory
/// about six.
pub const FRAME_BYTES: u64 = FRAME_PAGES * PAGE_BYTES;

/// A part of a file of [`FRAME_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageFrame<F> {
    /// The file.
    pub file: F,
    /// It begins at this number of frames.
    pub number: u32,
}

impl<F: Copy> PageFrame<F> {
    /// The frames that bytes `start..end` of a file lie in; none if that is empty.
    pub fn of_range(file: F, start: u64, end: u64) -> impl Iterator<Item = PageFrame<F>> {
        let first = start / FRAME_BYTES;
        let upto = if start < end { end.div_ceil(FRAME_BYTES) } else { first };
        (first..upto).map(move |number| PageFrame { file, number: number as u32 })
    }

    /// Its first byte.
    pub fn start(&self) -> u64 {
        u64::from(self.number) * FRAME_BYTES
    }
}

/// The pages of a frame that were read, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FramePages {
    /// Pages that a random read asked for.
    pub wanted: u16,
    /// Pages read only by scans.
    pub scanned: u16,
}

impl FramePages {
    /// Both.
    pub fn all(self) -> u16 {
        self.wanted | self.scanned
    }

    /// Bytes of the pages.
    pub fn bytes(self) -> u64 {
        u64::from(self.all().count_ones()) * PAGE_BYTES
    }

    fn add(&mut self, pages: u16, heat: Heat) {
        match heat {
            Heat::Wanted => self.wanted |= pages,
            Heat::Scan => self.scanned |= pages,
        }
        self.scanned &= !self.wanted;
    }
}

impl Weigh for FramePages {
    fn weight(&self) -> u64 {
        self.bytes() + ENTRY_BYTES
    }

    fn shed(&mut self) -> Option<FramePages> {
        // If nothing else is left, the cache policy decides whether the frame stays.
        if self.scanned == 0 || self.wanted == 0 {
            return None;
        }
        Some(FramePages { wanted: 0, scanned: std::mem::take(&mut self.scanned) })
    }
}

/// Where a record of a log lies in its segment: the checksums of its blocks, and behind them its payload. In bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordBlocks {
    /// First byte of the checksums, 4 bytes for each block.
    pub crcs_start: u64,
    /// First byte of the payload.
    pub data_start: u64,
    /// Length of the payload.
    pub len: u64,
    /// Length of a block.
    pub block_bytes: u64,
}

impl RecordBlocks {
    /// What a read of `len` bytes of the payload from `skip` on requests: whole blocks and their checksums.
    pub fn ranges(&self, skip: u64, len: u64) -> [Option<(u64, u64)>; 2] {
        let (first, last) = (skip / self.block_bytes, (skip + len).div_ceil(self.block_bytes));
        let end = self.data_start + (last * self.block_bytes).min(self.len);
        let (crcs, data) = (self.crcs_start + 4 * first, self.data_start + first * self.block_bytes);
        // The checksums of the blocks lie just before the first block: one read fetches both, unless the blocks are far
        // behind.
        match data - crcs <= NEAR_BYTES {
            true => [Some((crcs, end)), None],
            false => [Some((crcs, self.crcs_start + 4 * last)), Some((data, end))],
        }
    }
}

/// Bytes found in memory, and bytes not found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitCounts {
    /// Bytes of pages that were there.
    pub hit_bytes: u64,
    /// Bytes of pages that were not.
    pub missed_bytes: u64,
}

impl HitCounts {
    /// Bytes of the pages that were asked for.
    pub fn asked_bytes(&self) -> u64 {
        self.hit_bytes + self.missed_bytes
    }

    /// The part that was there, 0 to 1; `None` if nothing was asked for.
    pub fn ratio(&self) -> Option<f64> {
        (self.asked_bytes() > 0).then(|| self.hit_bytes as f64 / self.asked_bytes() as f64)
    }
}

/// The older pages that are in memory.
#[derive(Clone, Debug)]
pub struct OldPages<F> {
    cache: CachePolicy<PageFrame<F>, FramePages>,
    wanted: HitCounts,
    scanned: HitCounts,
}

impl<F: Copy + Eq + Hash> OldPages<F> {
    /// None yet, and room for `bytes_max` bytes of pages and bookkeeping.
    pub fn new(bytes_max: u64) -> OldPages<F> {
        OldPages::under(CachePolicy::new(bytes_max))
    }

    /// None yet, under this policy.
    pub fn under(cache: CachePolicy<PageFrame<F>, FramePages>) -> OldPages<F> {
        OldPages { cache, wanted: HitCounts::default(), scanned: HitCounts::default() }
    }

    /// A read needs bytes `start..end` of a file. Returns the bytes of the pages that were not there; they are from now
    /// on, and what has to leave for them goes to `evicted`.
    ///
    /// # Cost
    /// O(frames of the range), amortised.
    pub fn request(
        &mut self,
        file: F,
        start: u64,
        end: u64,
        heat: Heat,
        evicted: &mut Vec<(PageFrame<F>, FramePages)>,
    ) -> u64 {
        let found = match heat {
            Heat::Wanted => &mut self.wanted,
            Heat::Scan => &mut self.scanned,
        };
        let missed_before = found.missed_bytes;
        for frame in PageFrame::of_range(file, start, end) {
            let wanted = pages_of(start, end, frame.start());
            self.cache.touch(
                frame,
                heat,
                |pages| {
                    let missing = wanted & !pages.all();
                    pages.add(wanted, heat);
                    found.hit_bytes += u64::from((wanted & !missing).count_ones()) * PAGE_BYTES;
                    found.missed_bytes += u64::from(missing.count_ones()) * PAGE_BYTES;
                    missing == 0
                },
                evicted,
            );
        }
        found.missed_bytes - missed_before
    }

    /// Takes a frame out: its pages are of no use, or were not read after all.
    pub fn remove(&mut self, frame: PageFrame<F>) -> Option<FramePages> {
        self.cache.remove(frame)
    }

    /// Takes out the frames of a file.
    ///
    /// # Cost
    /// A pass over all frames.
    pub fn remove_file(&mut self, file: F) {
        self.cache.retain(|frame| frame.file != file);
    }

    /// Which pages of a frame are there. Asking does not count.
    pub fn get(&self, frame: &PageFrame<F>) -> Option<&FramePages> {
        self.cache.get(frame)
    }

    /// Bytes that may be read ahead of one reader: all readers together should stay well below what a scan can fill.
    pub fn ahead_bytes_max(&self) -> u64 {
        (self.cache.small_bytes_max() / 4).min(AHEAD_BYTES_MAX)
    }

    /// What random reads found.
    pub fn wanted(&self) -> HitCounts {
        self.wanted
    }

    /// What sequential readers found, and requests ahead of them.
    pub fn scanned(&self) -> HitCounts {
        self.scanned
    }

    /// What the policy holds and has done.
    pub fn stats(&self) -> CacheStats {
        self.cache.stats()
    }
}

/// The pages of the frame at `frame_start` that contain bytes of `start..end`, a bit each.
fn pages_of(start: u64, end: u64, frame_start: u64) -> u16 {
    let first = start.max(frame_start) - frame_start;
    let last = end.min(frame_start + FRAME_BYTES) - 1 - frame_start;
    let (first, last) = (first / PAGE_BYTES, last / PAGE_BYTES);
    let upto = u32::from(u16::MAX) >> (FRAME_PAGES - 1 - last);
    (upto & (u32::from(u16::MAX) << first)) as u16
}

/// Most bytes read ahead of one reader: what a disk of 1 GiB/s reads in 4 ms.
const AHEAD_BYTES_MAX: u64 = 4 << 20;
/// If at most this many bytes lie between the checksums and the needed blocks, one read fetches all of them: as fast as
/// a second read.
const NEAR_BYTES: u64 = 32 << 10;
/// Upper bound of the bookkeeping of a frame, in bytes: an entry of a map, places in two queues.
const ENTRY_BYTES: u64 = 160;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_of_a_frame_are_those_that_bytes_lie_in() {
        let all = FRAME_BYTES;
        for (start, end, pages) in [
            (0, 1, 1),
            (0, 4096, 1),
            (4095, 4097, 3),
            (0, all, u16::MAX),
            (all - 1, all, 1 << 15),
            (8192, 3 * 4096 + 1, 0b1100),
            (0, 10 * all, u16::MAX),
        ] {
            assert_eq!(pages_of(start, end, 0), pages, "{start}..{end}");
            assert_eq!(pages_of(start + 5 * all, end + 5 * all, 5 * all), pages, "{start}..{end} of the sixth");
        }
        assert_eq!(pages_of(10, 2 * all, all), u16::MAX);
    }

    #[test]
    fn a_page_is_missed_once_and_counted_by_the_heat_of_the_request() {
        let (mut old, mut evicted) = (OldPages::new(1 << 20), Vec::new());
        assert_eq!(old.request(1u8, 100, 70_000, Heat::Wanted, &mut evicted), 18 * PAGE_BYTES);
        assert_eq!(old.request(1u8, 0, 73_728, Heat::Scan, &mut evicted), 0);
        assert_eq!(old.request(1u8, 0, 80_000, Heat::Scan, &mut evicted), 2 * PAGE_BYTES);
        assert_eq!(old.request(2u8, 5, 5, Heat::Scan, &mut evicted), 0, "nothing is asked for");
        assert_eq!(old.wanted().ratio(), Some(0.0));
        assert_eq!(old.scanned(), HitCounts { hit_bytes: 36 * PAGE_BYTES, missed_bytes: 2 * PAGE_BYTES });
        old.remove_file(1);
        assert_eq!((old.stats().count, evicted.len()), (0, 0));
        assert_eq!(old.request(1u8, 0, 1, Heat::Wanted, &mut evicted), PAGE_BYTES);
    }
}
