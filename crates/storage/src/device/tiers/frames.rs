//! Frames: parts of files, and which of their pages were read.

use std::sync::atomic::{AtomicU64, Ordering};

use frieze_disk::PAGE_BYTES;
use frieze_tier::{Heat, Weigh};

/// The pages of a frame that were read, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pages {
    pub(super) wanted: u16,
    /// Pages read only by scans.
    pub(super) scanned: u16,
}

impl Pages {
    pub(super) fn all(self) -> u16 {
        self.wanted | self.scanned
    }

    pub(super) fn bytes(self) -> u64 {
        u64::from(self.all().count_ones()) * PAGE_BYTES
    }

    pub(super) fn add(&mut self, pages: u16, heat: Heat) {
        match heat {
            Heat::Wanted => self.wanted |= pages,
            Heat::Scan => self.scanned |= pages,
        }
        self.scanned &= !self.wanted;
    }
}

impl Weigh for Pages {
    fn weight(&self) -> u64 {
        self.bytes() + ENTRY_BYTES
    }

    fn shed(&mut self) -> Option<Pages> {
        // If nothing else is left, the cache policy decides whether the frame stays.
        if self.scanned == 0 || self.wanted == 0 {
            return None;
        }
        Some(Pages { wanted: 0, scanned: std::mem::take(&mut self.scanned) })
    }
}

/// Young frames of the log from before the start.
pub(super) struct Inherited {
    start: u64,
    end: u64,
    asked: Vec<AtomicU64>,
}

impl Inherited {
    /// Frames between two positions; none is requested yet.
    pub(super) fn new(start: u64, end: u64) -> Inherited {
        let words = (end - start) / FRAME_BYTES / 64 + 1;
        Inherited { start, end, asked: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    /// True if the frame of a position may or may not be in memory.
    pub(super) fn concerns(&self, at: u64) -> bool {
        at < self.end && self.is_new(at)
    }

    /// True if no read has requested the frame at this position.
    fn is_new(&self, at: u64) -> bool {
        self.bit(at).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit == 0)
    }

    /// Notes a request for the range; true if it is the first for a part of it.
    pub(super) fn ask(&self, start: u64, end: u64) -> bool {
        let mut new = false;
        for frame in start / FRAME_BYTES..=end.max(start + 1).saturating_sub(1) / FRAME_BYTES {
            if let Some((word, bit)) = self.bit(frame * FRAME_BYTES) {
                new |= word.fetch_or(bit, Ordering::Relaxed) & bit == 0;
            }
        }
        new
    }

    fn bit(&self, at: u64) -> Option<(&AtomicU64, u64)> {
        let number = (at.checked_sub(self.start).filter(|_| at < self.end)?) / FRAME_BYTES;
        Some((self.asked.get(number as usize / 64)?, 1 << (number % 64)))
    }
}

/// The pages of the frame at `frame_start` that contain bytes of `start..end`, a bit each.
pub(super) fn pages_of(start: u64, end: u64, frame_start: u64) -> u16 {
    let first = start.max(frame_start) - frame_start;
    let last = end.min(frame_start + FRAME_BYTES) - 1 - frame_start;
    let (first, last) = (first / PAGE_BYTES, last / PAGE_BYTES);
    let upto = u32::from(u16::MAX) >> (PAGES - 1 - last);
    (upto & (u32::from(u16::MAX) << first)) as u16
}

/// Bytes dropped together: a system call for 64 KiB costs about a microsecond, reading them from memory about six.
pub(super) const FRAME_BYTES: u64 = PAGES * PAGE_BYTES;
pub(super) const PAGES: u64 = 16;
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
}
