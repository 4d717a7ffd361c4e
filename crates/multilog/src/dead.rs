//! Records that no read needs any more: where they lie, and which files have no others.

use std::collections::BTreeMap;
use std::mem::size_of;

use frieze_base::{ByteRange, InodeId, SegmentId, SessionId};
use frieze_hlc::Hlc;

/// Where a record lies: its header and everything up to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeadRecord {
    /// The segment.
    pub segment: SegmentId,
    /// Its first byte.
    pub start: u64,
    /// Where its block checksums begin: by this a plan names it ([`crate::StoredSpan::crcs_offset`]).
    pub place: u64,
    /// The first byte after it.
    pub end: u64,
    /// Bytes of payload.
    pub bytes: u32,
}

/// A record of a file, as thinning looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRecord {
    /// Its stamp.
    pub stamp: Hlc,
    /// First byte in the chunk, and the one behind the last.
    pub range: ByteRange,
    /// No read needs its bytes any more: they may be gone.
    pub is_dead: bool,
    /// Where it lies.
    pub place: DeadRecord,
}

/// A segment that takes no more records, all of which its footer names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedSegment {
    /// End of its last record. Nothing lies between here and the footer.
    pub end: u64,
    /// Where the footer begins; it ends with the segment.
    pub footer_at: u64,
    /// Length of the segment in bytes.
    pub bytes: u64,
    /// Stamp of its last record.
    pub stamp: Hlc,
}

/// When records were written that are dead and not in memory any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DroppedRecords {
    /// Session and user that wrote them. `None` stands for several, where there were too many to keep apart.
    pub by: Option<(SessionId, u32)>,
    /// Stamp of the first of them.
    pub first: Hlc,
    /// Stamp of the last.
    pub last: Hlc,
}

/// Files of which all is dead, as runs of numbers: first and last.
#[derive(Debug, Default)]
pub(crate) struct DeadFiles(BTreeMap<InodeId, InodeId>);

impl DeadFiles {
    pub(crate) fn holds(&self, id: InodeId) -> bool {
        self.0.range(..=id).next_back().is_some_and(|(_, last)| *last >= id)
    }

    pub(crate) fn add(&mut self, id: InodeId) {
        if self.holds(id) {
            return;
        }
        let before = self.0.range(..id).next_back().filter(|(_, last)| last.0 + 1 == id.0);
        let first = before.map_or(id, |(first, _)| *first);
        let last = self.0.remove(&InodeId(id.0.saturating_add(1))).unwrap_or(id);
        self.0.insert(first, last);
    }

    /// Memory held, in bytes: about that of its entries in the tree.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.0.len() * 2 * size_of::<(InodeId, InodeId)>()
    }
}
