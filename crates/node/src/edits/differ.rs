//! Where the bytes of two states differ, found from where they lie and not from what they are.

use frieze_base::{ByteRange, Fault};
use frieze_multilog::{Piece, Source};

use crate::engine::Engine;
use crate::seen::Seen;

/// Ranges of one file that are told apart; beyond, the whole stretch from the first to the last is taken.
const RANGES_MAX: usize = 32;

impl Engine {
    /// The ranges below `size` in which two states show bytes of different records, in order. Equal bytes that were
    /// written twice differ; the same bytes shown through another file do not.
    ///
    /// # Errors
    /// Those of the store.
    ///
    /// # Cost
    /// The pieces of both plans; no byte is read.
    pub(super) fn differing(&self, a: &Seen, b: &Seen, size: u64) -> Result<Vec<ByteRange>, Fault> {
        let (sources_a, sources_b) = (self.sources(&a.inode, 0, size)?, self.sources(&b.inode, 0, size)?);
        let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
        {
            let look = self.look();
            look.plan(a, &sources_a, ByteRange::new(0, size), &mut of_a)?;
            look.plan(b, &sources_b, ByteRange::new(0, size), &mut of_b)?;
        }
        Ok(compare(&of_a, &of_b))
    }
}

/// Both lists cover the same range.
fn compare(a: &[Piece], b: &[Piece]) -> Vec<ByteRange> {
    let end = |piece: &Piece| piece.at + u64::from(piece.len);
    let mut ranges: Vec<ByteRange> = Vec::new();
    let (mut i, mut j, mut at) = (0, 0, 0);
    while let (Some(left), Some(right)) = (a.get(i), b.get(j)) {
        let upto = end(left).min(end(right));
        if place(left, at) != place(right, at) {
            match ranges.last_mut() {
                Some(last) if last.end() == at => *last = ByteRange::new(last.start(), upto),
                _ => ranges.push(ByteRange::new(at, upto)),
            }
        }
        at = upto;
        i += usize::from(end(left) == at);
        j += usize::from(end(right) == at);
    }
    if let (true, [first, .., last]) = (ranges.len() > RANGES_MAX, ranges.as_slice()) {
        return vec![ByteRange::new(first.start(), last.end())];
    }
    ranges
}

/// Where byte `at` lies on the device; `None` for a zero.
fn place(piece: &Piece, at: u64) -> Option<(u64, u64)> {
    match &piece.source {
        Source::Hole | Source::Punched => None,
        Source::Data(stored) => Some((stored.segment.0, stored.data_offset + u64::from(stored.skip) + (at - piece.at))),
    }
}
