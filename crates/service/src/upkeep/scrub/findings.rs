//! The findings of a scrub in their form on disk.
//!
//! Guarantees: at most [`FINDINGS_MAX`] places are stored one by one, the rest is counted.
//! Leaves to others: finding them (`scrub`), names and instants (`told`).

use frieze_base::{Fault, Reason, SegmentId};
use frieze_disk::{Disk, StateFile};
use frieze_hlc::Hlc;
use frieze_multilog::{Damage, DamageKind, RecordHeader};
use frieze_wire::scrub::{FindingKind, ScrubState};
use prost::Message;

/// Name of the file.
pub(super) const FILE: &str = "scrub";
/// Most damaged places that are stored; the others are counted.
pub(super) const FINDINGS_MAX: usize = 500;
/// Room for as many findings, each with the longest error text of a device.
pub(super) const SLOT_BYTES: usize = 128 << 10;
/// Longest error text of a device that is stored.
const WORDS_MAX: usize = 120;

/// The stored state.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct StoredScrub {
    #[prost(enumeration = "ScrubState", tag = "1")]
    pub(super) state: i32,
    /// Number of the newest scrub.
    #[prost(uint64, tag = "2")]
    pub(super) run: u64,
    #[prost(uint64, tag = "3")]
    pub(super) started: u64,
    #[prost(uint64, tag = "4")]
    pub(super) ended: u64,
    /// The last segment that was checked.
    #[prost(uint64, tag = "5")]
    pub(super) segment: u64,
    #[prost(uint64, tag = "6")]
    pub(super) bytes_per_s: u64,
    #[prost(uint64, tag = "7")]
    pub(super) done_bytes: u64,
    #[prost(uint64, tag = "8")]
    pub(super) records: u64,
    #[prost(message, repeated, tag = "9")]
    pub(super) found: Vec<StoredFinding>,
    /// Places found by the newest scrub that are not in `found`.
    #[prost(uint64, tag = "10")]
    pub(super) more: u64,
    /// Of the scrub before, the same, until the newest has finished.
    #[prost(uint64, tag = "11")]
    pub(super) more_before: u64,
    #[prost(uint64, tag = "12")]
    pub(super) finished: u64,
    /// Shelves that the newest scrub found damaged and rebuilt.
    #[prost(uint64, tag = "13")]
    pub(super) mended: u64,
}

/// A damaged place as it is stored. Names and instants are looked up for the report.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct StoredFinding {
    #[prost(uint32, tag = "1")]
    pub(super) kind: u32,
    #[prost(uint64, tag = "2")]
    pub(super) segment: u64,
    #[prost(uint64, tag = "3")]
    pub(super) at: u64,
    #[prost(uint64, tag = "4")]
    pub(super) len: u64,
    /// 0: no record is known.
    #[prost(uint64, tag = "5")]
    pub(super) inode: u64,
    #[prost(uint32, tag = "6")]
    pub(super) chunk: u32,
    /// In the chunk.
    #[prost(uint64, tag = "7")]
    pub(super) start: u64,
    #[prost(uint64, tag = "8")]
    pub(super) bytes: u64,
    #[prost(uint64, tag = "9")]
    pub(super) stamp: u64,
    /// The last scrub that found it.
    #[prost(uint64, tag = "10")]
    pub(super) run: u64,
    #[prost(uint64, tag = "11")]
    pub(super) found: u64,
    #[prost(string, tag = "12")]
    pub(super) unread: String,
}

impl StoredFinding {
    /// True if it is a place in this record.
    pub(super) fn is_of(&self, segment: SegmentId, record: &RecordHeader) -> bool {
        let place = (self.segment, self.inode, self.chunk, self.stamp);
        self.kind == FindingKind::Data as u32
            && place == (segment.0, record.chunk.inode.0, record.chunk.index, record.stamp.0)
    }
}

impl StoredScrub {
    pub(super) fn damaged(&self) -> u64 {
        self.found.len() as u64 + self.more.max(self.more_before)
    }

    /// Adds a place, known or new. If there is no room, it replaces one of the scrub before, or it is only counted.
    pub(super) fn add(&mut self, found: StoredFinding) {
        let place = |found: &StoredFinding| (found.segment, found.at, found.kind);
        if let Some(known) = self.found.iter_mut().find(|known| place(known) == place(&found)) {
            *known = found;
            return;
        }
        if self.found.len() < FINDINGS_MAX {
            self.found.push(found);
        } else if let Some(older) = self.found.iter_mut().find(|known| known.run < self.run) {
            *older = found;
            self.more_before += 1;
        } else {
            self.more += 1;
        }
    }
}

pub(super) fn read_kept(disk: &dyn Disk) -> Result<Option<(StoredScrub, StateFile)>, Fault> {
    if !disk.list()?.iter().any(|name| name == FILE) {
        return Ok(None);
    }
    let file = StateFile::open_or_create_sized(disk, FILE, SLOT_BYTES)?;
    let kept = file.read().map_or(Ok(StoredScrub::default()), |bytes| StoredScrub::decode(bytes.as_slice()));
    let kept = kept.map_err(|error| Fault::new(Reason::Corrupt, format!("the {FILE} file is malformed: {error}")))?;
    Ok(Some((kept, file)))
}

pub(super) fn found(damage: Damage, run: u64, now: Hlc) -> StoredFinding {
    let is_data = damage.kind == DamageKind::Data;
    let unread = damage.unread.map_or(String::new(), |fault| fault.message.chars().take(WORDS_MAX).collect());
    let mut found = StoredFinding {
        kind: kind_of(damage.kind) as u32,
        segment: damage.segment.0,
        at: damage.at,
        len: damage.len,
        run,
        found: now.0,
        unread,
        ..StoredFinding::default()
    };
    if let Some(record) = damage.record {
        found.inode = record.chunk.inode.0;
        found.chunk = record.chunk.index;
        found.stamp = record.stamp.0;
        found.start = u64::from(record.offset) + u64::from(damage.skip);
        found.bytes = if is_data { damage.len } else { record.len.into() };
    }
    found
}

fn kind_of(kind: DamageKind) -> FindingKind {
    match kind {
        DamageKind::Data => FindingKind::Data,
        DamageKind::Header => FindingKind::Header,
        DamageKind::SegmentHeader => FindingKind::SegmentHeader,
        DamageKind::Footer => FindingKind::Footer,
        DamageKind::Records => FindingKind::Records,
        DamageKind::Index => FindingKind::Index,
    }
}
