//! Half-open ranges of bytes.

use std::fmt;

/// Bytes from `start` up to, not including, `end`. `start <= end` always holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteRange {
    start: u64,
    end: u64,
}

impl ByteRange {
    /// The range from `start` to `end`, in bytes.
    ///
    /// # Panics
    /// If `start > end`: check bytes from outside before they become a range, or use [`ByteRange::at`].
    pub fn new(start: u64, end: u64) -> ByteRange {
        assert!(start <= end, "a range starts at {start}, after its end {end}");
        ByteRange { start, end }
    }

    /// `len` bytes from `start`; `None` if the end is beyond 2^64.
    pub fn at(start: u64, len: u64) -> Option<ByteRange> {
        Some(ByteRange { start, end: start.checked_add(len)? })
    }

    /// First byte.
    pub fn start(self) -> u64 {
        self.start
    }

    /// One past the last byte.
    pub fn end(self) -> u64 {
        self.end
    }

    /// Number of bytes.
    pub fn len(self) -> u64 {
        self.end - self.start
    }

    /// True if there is no byte in it.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// The bytes in both, or an empty range at the larger start.
    pub fn intersect(self, other: ByteRange) -> ByteRange {
        let start = self.start.max(other.start);
        ByteRange { start, end: self.end.min(other.end).max(start) }
    }
}

impl fmt::Display for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.start, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_do_not_meet_intersect_in_nothing() {
        let a = ByteRange::new(0, 10);
        assert!(a.intersect(ByteRange::new(10, 20)).is_empty());
        assert_eq!(a.intersect(ByteRange::new(5, 20)), ByteRange::new(5, 10));
        assert_eq!(ByteRange::at(u64::MAX, 1), None);
    }
}
