//! What the index keeps of a record for reads: where and when.

use frieze_hlc::Hlc;

use crate::record::RecordKind;

/// Where a record lies on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RecordPlace {
    /// Which file: a pack, or from [`FIRST_SEGMENT_SLOT`] on a segment, counted from the oldest.
    pub(crate) slot: u32,
    /// Offset of the block checksums in it.
    pub(crate) at: u32,
    /// Bytes from the start of the record to there; 0 in a pack.
    pub(crate) head: u8,
}

/// Where and when: the part of a record that reads need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexRecord {
    pub(crate) stamp: Hlc,
    /// Which file ([`RecordPlace::slot`]); above it the bytes of its head; in the top bits whether the record is a
    /// punch, and whether it is dead.
    tagged_slot: u32,
    /// Offset of the block checksums in the segment.
    pub(crate) at: u32,
    /// First byte in the chunk.
    pub(crate) offset: u32,
    pub(crate) len: u32,
}

impl IndexRecord {
    pub(crate) fn new(kind: RecordKind, stamp: Hlc, place: RecordPlace, offset: u32, len: u32) -> IndexRecord {
        let RecordPlace { slot, at, head } = place;
        assert!(slot < SLOTS_MAX, "more segments and packs than a record can name");
        assert!(head <= HEAD_MAX, "a head of {head} bytes");
        let punch = if kind == RecordKind::Punch { PUNCH } else { 0 };
        IndexRecord { stamp, tagged_slot: slot | u32::from(head) << SLOT_BITS | punch, at, offset, len }
    }

    pub(crate) fn slot(&self) -> usize {
        (self.tagged_slot % SLOTS_MAX) as usize
    }

    /// Bytes from the start of the record to its block checksums.
    pub(crate) fn head(&self) -> u8 {
        (self.tagged_slot >> SLOT_BITS) as u8 & HEAD_MAX
    }

    pub(crate) fn place(&self) -> RecordPlace {
        RecordPlace { slot: self.slot() as u32, at: self.at, head: self.head() }
    }

    /// True if it lies in a pack.
    pub(super) fn is_packed(&self) -> bool {
        self.slot() < FIRST_SEGMENT_SLOT
    }

    pub(super) fn mark_dead(&mut self) {
        self.tagged_slot |= DEAD;
    }

    /// True if no read needs its bytes any more: they may be gone.
    pub(crate) fn is_dead(&self) -> bool {
        self.tagged_slot & DEAD != 0
    }

    pub(crate) fn kind(&self) -> RecordKind {
        if self.tagged_slot & PUNCH == 0 { RecordKind::Write } else { RecordKind::Punch }
    }

    /// Where the file reaches at least because of this record, in bytes of the chunk; 0 if it extends nothing.
    pub(super) fn reach(&self) -> u32 {
        match self.kind() {
            RecordKind::Write if self.len > 0 => self.offset + self.len,
            _ => 0,
        }
    }
}

/// Records of a chunk are numbered below this.
pub(super) const RECORDS_MAX: u32 = 1 << 31;
const PUNCH: u32 = 1 << 31;
const DEAD: u32 = 1 << 30;
/// Slots below are those of packs, which have the oldest records: so a chunk's slots rise.
pub(crate) const FIRST_SEGMENT_SLOT: usize = 1 << 20;
/// Seven million segments, of 64 MiB near half a pebibyte.
const SLOT_BITS: u32 = 23;
const SLOTS_MAX: u32 = 1 << SLOT_BITS;
const HEAD_MAX: u8 = 127;
