//! The young bytes of a log: first in, first out.

use std::ops::Range;

/// The end of a log that stays in memory. Positions are bytes since the log began.
///
/// What was just written is what is read most (FFFS §7: readers follow writers), and it needs no decision to be there:
/// it is in memory because it was written. So it leaves in the order in which it came, and nothing is remembered of it.
#[derive(Clone, Debug)]
pub struct RecentWindow {
    bytes_max: u64,
    align: u64,
    edge: u64,
}

impl RecentWindow {
    /// The last `bytes_max` bytes of a log that ends at `end`. Its edge moves in steps of `align` bytes.
    ///
    /// # Panics
    /// If `align` is 0.
    pub fn new(bytes_max: u64, align: u64, end: u64) -> RecentWindow {
        assert!(align > 0, "a window that moves by nothing");
        let edge = end.saturating_sub(bytes_max) / align * align;
        RecentWindow { bytes_max, align, edge }
    }

    /// Where it begins: what lies before is old.
    pub fn edge(&self) -> u64 {
        self.edge
    }

    /// True if a log that has grown to `end` has a step's worth of bytes before the window: a sixteenth of it, 1 MiB at
    /// most, the most that one system call should drop. Until then [`RecentWindow::advance`] can wait.
    pub fn is_due(&self, end: u64) -> bool {
        let step = (self.bytes_max / STEP_PART).clamp(self.align, STEP_BYTES_MAX.max(self.align));
        end.saturating_sub(self.bytes_max) >= self.edge.saturating_add(step)
    }

    /// The log has grown to `end`, and is on stable storage up to `durable`. Returns what has left the window since the
    /// last call, if anything has; what is not durable never leaves.
    pub fn advance(&mut self, end: u64, durable: u64) -> Option<Range<u64>> {
        let edge = end.saturating_sub(self.bytes_max).min(durable) / self.align * self.align;
        if edge <= self.edge {
            return None;
        }
        let left = self.edge..edge;
        self.edge = edge;
        Some(left)
    }
}

/// The window moves in steps of this part of it, at most this many bytes.
const STEP_PART: u64 = 16;
const STEP_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaves_is_durable_and_older_than_the_youngest_bytes() {
        let mut window = RecentWindow::new(1000, 64, 0);
        assert_eq!(window.advance(900, 900), None);
        assert_eq!(window.advance(2000, 500), Some(0..448));
        assert_eq!(window.advance(2000, 510), None, "less than a step");
        assert_eq!(window.advance(2000, 2000), Some(448..960));
        assert_eq!(window.advance(1000, 1000), None, "a log that was cut brings nothing back");
        assert_eq!(window.edge(), 960);
    }

    #[test]
    fn a_step_is_a_sixteenth_of_the_window_between_its_alignment_and_a_mebibyte() {
        for (bytes_max, step) in [(1000, 64), (1600, 100), (1 << 30, 1 << 20)] {
            let window = RecentWindow::new(bytes_max, 64, 0);
            assert!(!window.is_due(bytes_max + step - 1), "{bytes_max}");
            assert!(window.is_due(bytes_max + step), "{bytes_max}");
        }
    }

    #[test]
    fn a_window_over_a_log_that_is_there_begins_at_its_end() {
        assert_eq!(RecentWindow::new(1000, 64, 5000).edge(), 3968);
        assert_eq!(RecentWindow::new(1000, 64, 10).edge(), 0);
    }
}
