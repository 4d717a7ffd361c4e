//! Where the bytes of two states differ, computed from their places and not from their values.

use frieze_base::{ByteRange, Fault, Reason};
use frieze_multilog::{Piece, PieceSource};
use frieze_planes::FileVersion;

use crate::read::Reader;

/// Differing ranges listed for one file; beyond, one range spans the first to the last.
const RANGES_MAX: usize = 32;

impl Reader {
    /// The parts of `ranges`, which are in order and apart, in which two states show bytes of different records. Equal
    /// bytes that were written twice differ; the same bytes shown through another file do not.
    ///
    /// # Errors
    /// Those of the store.
    ///
    /// # Cost
    /// The pieces of both plans; no byte is read.
    pub(crate) fn differing(&self, [a, b]: [&FileVersion; 2], ranges: &[ByteRange]) -> Result<Vec<ByteRange>, Fault> {
        let mut found: Vec<ByteRange> = Vec::new();
        let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
        for range in ranges.iter().filter(|range| !range.is_empty()) {
            let (start, end) = (range.start(), range.end());
            let (sources_a, sources_b) =
                (self.files.sources(&a.inode, start, end)?, self.files.sources(&b.inode, start, end)?);
            of_a.clear();
            of_b.clear();
            {
                let look = self.files.look_through(&[a, b], &[&sources_a, &sources_b])?;
                look.plan(a, &sources_a, *range, &mut of_a)?;
                look.plan(b, &sources_b, *range, &mut of_b)?;
            }
            found.extend(compare(start, &of_a, &of_b));
        }
        Ok(few(found))
    }

    /// The same, for a caller that tolerates a superset: ranges with a part on remote chains count as different.
    ///
    /// # Errors
    /// As [`Reader::differing`].
    pub(crate) fn may_differ(&self, pair: [&FileVersion; 2], ranges: &[ByteRange]) -> Result<Vec<ByteRange>, Fault> {
        match self.differing(pair, ranges) {
            Err(fault) if fault.reason == Reason::Unsupported => {
                Ok(few(ranges.iter().filter(|range| !range.is_empty()).copied().collect()))
            }
            differing => differing,
        }
    }
}

fn few(ranges: Vec<ByteRange>) -> Vec<ByteRange> {
    match (ranges.len() > RANGES_MAX, ranges.as_slice()) {
        (true, [first, .., last]) => vec![ByteRange::new(first.start(), last.end())],
        _ => ranges,
    }
}

/// Both lists cover the same range, from `start` on.
fn compare(start: u64, a: &[Piece], b: &[Piece]) -> Vec<ByteRange> {
    let end = |piece: &Piece| piece.at + u64::from(piece.len);
    let mut ranges: Vec<ByteRange> = Vec::new();
    let (mut i, mut j, mut at) = (0, 0, start);
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
    ranges
}

/// Where byte `at` lies on the device; `None` for a zero.
fn place(piece: &Piece, at: u64) -> Option<(u64, u64)> {
    match &piece.source {
        // Plans for reading bytes contain them; this plan does not.
        PieceSource::Image(_) | PieceSource::External(_) => None,
        PieceSource::Hole | PieceSource::Punched(_) => None,
        PieceSource::Data(stored) => {
            Some((stored.segment.0, stored.data_offset + u64::from(stored.skip) + (at - piece.at)))
        }
    }
}
