//! The files that records lie in: segments of the log, and packs.

use frieze_base::SegmentId;

use crate::index::{FIRST_SEGMENT_SLOT, IndexRecord};
use crate::pack::Packs;
use crate::plan::StoredSpan;
use crate::record::blocks;
use crate::segment::LogSegment;

/// Finds the file of a record by its slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordFiles<'a> {
    segments: &'a [LogSegment],
    packs: &'a Packs,
}

impl<'a> RecordFiles<'a> {
    pub(crate) fn new(segments: &'a [LogSegment], packs: &'a Packs) -> RecordFiles<'a> {
        RecordFiles { segments, packs }
    }

    /// Where the payload of a record lies.
    pub(crate) fn span(&self, record: &IndexRecord) -> StoredSpan {
        let (segment, block_bytes) = self.of(record);
        StoredSpan {
            segment,
            data_offset: u64::from(record.at) + 4 * u64::from(blocks(record.len, block_bytes)),
            record_len: record.len,
            skip: 0,
            crcs_offset: record.at.into(),
            block_bytes,
            stamp: record.stamp,
        }
    }

    /// The file of a record, and the bytes of its blocks.
    pub(crate) fn of(&self, record: &IndexRecord) -> (SegmentId, u32) {
        match record.slot().checked_sub(FIRST_SEGMENT_SLOT) {
            Some(position) => {
                let header = &self.segments[position].header;
                (header.id, header.block_bytes)
            }
            None => self.packs.in_slot(record.slot()),
        }
    }
}

/// The slot of the segment at a position, counted from the oldest.
pub(crate) fn slot_of(position: usize) -> u32 {
    (FIRST_SEGMENT_SLOT + position) as u32
}
