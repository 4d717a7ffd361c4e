//! Young frames of the log of which it is not known whether they are in memory.

use std::sync::atomic::{AtomicU64, Ordering};

use frieze_tier::FRAME_BYTES;

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
