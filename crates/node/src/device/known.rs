//! Checksums of spans of records that were handed on lately: states of a chunk that lie near each other share most of their
//! pieces, and the checksums of small pieces cost as much to read as to look up the pieces.
//!
//! Guarantees: what is remembered is what was stored beside the bytes once; whoever gets the bytes compares all the same. Bounded:
//! the newer of two spans that fall on one slot stays.

use std::sync::{Mutex, PoisonError};

use frieze_base::SegmentId;
use frieze_hlc::Hlc;
use frieze_multilog::Stored;

/// What is remembered. Takes no memory before the first span.
#[derive(Default)]
pub(super) struct Known(Mutex<Vec<Option<(Span, u32)>>>);

/// Some bytes of a record.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    segment: SegmentId,
    /// Offset of the first one in the segment.
    offset: u64,
    len: u64,
    /// When the record was written: what is placed again where something was refused is another record.
    stamp: Hlc,
}

impl Span {
    /// `len` bytes from where `source` begins.
    pub(super) fn of(source: &Stored, len: u64) -> Span {
        Span { segment: source.segment, offset: source.data_offset + u64::from(source.skip), len, stamp: source.stamp }
    }

    fn slot(&self) -> usize {
        // Records lie a few bytes more than their lengths apart: multiplied by an odd number near 2^64 over the golden ratio
        // the upper bits are spread.
        let mixed = (self.offset ^ self.segment.0 << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> (u64::BITS - SLOTS.ilog2())) as usize
    }
}

impl Known {
    /// The checksum of a span.
    pub(super) fn get(&self, span: &Span) -> Option<u32> {
        let slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slots.get(span.slot())?.filter(|(known, _)| known == span).map(|(_, crc)| crc)
    }

    /// Forgets all: something that was stored beside bytes was written anew.
    pub(super) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// From now on this is the checksum of a span.
    pub(super) fn put(&self, span: Span, crc: u32) {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.is_empty() {
            slots.resize(SLOTS, None);
        }
        slots[span.slot()] = Some((span, crc));
    }
}

/// Spans that are remembered at most, a power of two: eight chunks in pieces of 32 KiB, in less than 1 MiB.
const SLOTS: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(offset: u64, skip: u32, wall_ns: u64) -> Stored {
        Stored {
            segment: SegmentId(3),
            data_offset: offset,
            record_len: 64 << 10,
            skip,
            crcs_offset: offset - 64,
            block_bytes: 4096,
            stamp: Hlc(wall_ns),
        }
    }

    #[test]
    fn a_span_is_known_by_its_place_its_length_and_its_stamp() {
        let known = Known::default();
        let source = stored(1 << 20, 4096, 7);
        let span = Span::of(&source, 32 << 10);
        assert_eq!(known.get(&span), None);
        known.put(span, 0xfeed);
        assert_eq!(known.get(&span), Some(0xfeed));
        assert_eq!(known.get(&Span::of(&source, 28 << 10)), None, "fewer bytes");
        assert_eq!(known.get(&Span::of(&stored(1 << 20, 8192, 7), 32 << 10)), None, "elsewhere");
        assert_eq!(known.get(&Span::of(&stored(1 << 20, 4096, 8), 32 << 10)), None, "another record in the same place");
    }

    #[test]
    fn what_is_known_is_bounded_and_the_newest_is_always_known() {
        let known = Known::default();
        for number in 0..4 * SLOTS as u64 {
            let span = Span::of(&stored(128 + number * (33 << 10), 0, number), 32 << 10);
            known.put(span, number as u32);
            assert_eq!(known.get(&span), Some(number as u32));
        }
        let slots = known.0.lock().unwrap();
        assert_eq!(slots.len(), SLOTS);
        // Places a few bytes more than 32 KiB apart do not fall on a few slots.
        assert!(slots.iter().flatten().count() > SLOTS / 10 * 9, "{}", slots.iter().flatten().count());
    }
}
