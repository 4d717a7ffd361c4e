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
    fn a_window_over_a_log_that_is_there_begins_at_its_end() {
        assert_eq!(RecentWindow::new(1000, 64, 5000).edge(), 3968);
        assert_eq!(RecentWindow::new(1000, 64, 10).edge(), 0);
    }
}
