//! One chunk: its records by stamp, and its pages.

use frieze_base::ByteRange;
use frieze_hlc::Hlc;

use super::archive::{Archive, Archived, Reader};
use super::imaged::Through;
use super::page::{Fragment, PAGE_BYTES, Slot};
use super::peaks::Peaks;
use super::records::Records;
use super::reserve_slim;
use crate::RecordKind;
use crate::plan::{Imaged, Planner};

/// Where a record lies on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Which segment, counted from the oldest.
    pub(crate) slot: u32,
    /// Offset of the block checksums in it.
    pub(crate) at: u32,
    /// Bytes from the start of the record to there.
    pub(crate) head: u8,
}

/// Where and when: the part of a record that reads need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) stamp: Hlc,
    /// Which segment, counted from the oldest; above it the bytes of its head; in the top bits whether the record is a punch,
    /// and whether it is buried.
    tagged_slot: u32,
    /// Offset of the block checksums in the segment.
    pub(crate) at: u32,
    /// First byte in the chunk.
    pub(crate) offset: u32,
    pub(crate) len: u32,
}

impl Record {
    pub(crate) fn new(kind: RecordKind, stamp: Hlc, place: Place, offset: u32, len: u32) -> Record {
        let Place { slot, at, head } = place;
        assert!(slot < SLOTS_MAX, "more segments than a record can name");
        assert!(head <= HEAD_MAX, "a head of {head} bytes");
        let punch = if kind == RecordKind::Punch { PUNCH } else { 0 };
        Record { stamp, tagged_slot: slot | u32::from(head) << SLOT_BITS | punch, at, offset, len }
    }

    pub(crate) fn slot(&self) -> usize {
        (self.tagged_slot % SLOTS_MAX) as usize
    }

    /// Bytes from the start of the record to its block checksums.
    pub(crate) fn head(&self) -> u8 {
        (self.tagged_slot >> SLOT_BITS) as u8 & HEAD_MAX
    }

    pub(crate) fn place(&self) -> Place {
        Place { slot: self.slot() as u32, at: self.at, head: self.head() }
    }

    pub(super) fn bury(&mut self) {
        self.tagged_slot |= BURIED;
    }

    /// True if no read needs its bytes any more: they may be gone.
    pub(crate) fn is_buried(&self) -> bool {
        self.tagged_slot & BURIED != 0
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

/// A chunk's history.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    pub(super) records: Records,
    reaches: Peaks,
    archive: Archive,
    /// By page number; pages never touched are not there.
    pub(super) pages: Vec<(u32, Slot)>,
    version: u64,
    /// Bytes that hold data after the last record.
    live: i64,
    /// Stamp of the first record there ever was: it may be here no more ([`super::thin`]).
    first: Option<Hlc>,
    heap_bytes: u64,
}

impl Chunk {
    /// Takes in the next record and returns by how much the memory grew.
    pub(super) fn push(&mut self, record: Record, archived: Archived) -> usize {
        let number = self.records.len() as u32;
        assert!(number < PUNCH, "more records in a chunk than the index can number");
        let mut grown = self.records.push(record) + self.archive.push(archived);
        self.version = self.version.max(archived.version);
        let records = &self.records;
        grown += self.reaches.push(number as usize, record.reach(), |at| records.get(at).reach());

        let punch = record.kind() == RecordKind::Punch;
        let range = ByteRange::new(record.offset.into(), u64::from(record.offset) + u64::from(record.len));
        let mut live = if punch { 0 } else { i64::from(record.len) };
        for (page, start, last) in pages_of(range) {
            let fragment = Fragment::new(number, punch, start, last);
            let position = self.position_of(page);
            match self.pages.get_mut(position).filter(|(found, _)| *found == page) {
                Some((_, slot)) => {
                    let (covered, more) = slot.add(fragment);
                    live -= i64::from(covered);
                    grown += more;
                }
                None => {
                    grown += reserve_slim(&mut self.pages, 1);
                    self.pages.insert(position, (page, Slot::Once(fragment)));
                }
            }
        }
        self.live += live;
        self.first = self.first.or(Some(record.stamp));
        self.heap_bytes += grown as u64;
        grown
    }

    /// Memory held by what it points to.
    pub(super) fn heap_bytes(&self) -> u64 {
        self.heap_bytes
    }

    /// Puts in its place a chunk made of its first `taken` records, some of them left out; the others are taken over.
    pub(super) fn replace(&mut self, mut thin: Chunk, taken: usize) -> Chunk {
        assert!(taken <= self.records.len(), "records went from a chunk that was being made anew");
        for (record, archived) in self.versions_of(taken, self.records.len()) {
            thin.push(record, archived);
        }
        (thin.version, thin.live, thin.first) = (self.version, self.live, self.first);
        std::mem::replace(self, thin)
    }

    /// Bytes that hold data after every record stamped up to `at`, among the first `upto` of the chunk; records stamped
    /// up to `after` may be hidden. `Err` with the most it can be, where only a plan can tell.
    pub(super) fn live(&self, upto: u64, at: Hlc, after: Hlc) -> Result<u64, u64> {
        let live = (self.live as u64).min(upto);
        let (Some(first), Some(last)) = (self.first, self.records.last()) else { return Ok(0) };
        if first > at {
            return Ok(0);
        }
        let reach = self.reaches.largest(0, self.records.len(), |at| self.records.get(at).reach());
        let exact = first > after && last.stamp <= at && u64::from(reach) <= upto;
        if exact { Ok(live) } else { Err(if last.stamp <= at { live } else { upto.min(reach.into()) }) }
    }

    /// Bytes of `range` that hold data after every record stamped up to `at`; those stamped up to `after` are hidden.
    pub(super) fn data_in(&self, range: ByteRange, at: Hlc, after: Hlc) -> u64 {
        if self.newest() <= after {
            return 0;
        }
        let count = self.count_upto(at) as u32;
        let (mut scratch, mut bytes) = (Vec::new(), 0);
        let mut pages = self.pages[self.position_of((range.start() / PAGE_BYTES) as u32)..].iter().peekable();
        while let Some((number, page)) = pages.next_if(|(number, _)| u64::from(*number) * PAGE_BYTES < range.end()) {
            let shown = part_of_page(range, *number);
            let of = |record| self.fragment(*number, record);
            let kept = page.visible(count, shown, &of, &mut scratch).filter(|fragment| {
                fragment.start <= fragment.last
                    && !fragment.is_punch()
                    && (after == Hlc::ZERO || self.stamp_of(*fragment) > after)
            });
            bytes += kept.map(|fragment| u64::from(fragment.last - fragment.start) + 1).sum::<u64>();
        }
        bytes
    }

    /// Plans `range` as it was after every record stamped up to `at`; those stamped up to `after` are hidden. With
    /// `through`, pages of many pieces come from images.
    pub(super) fn plan(
        &self,
        range: ByteRange,
        at: Hlc,
        after: Hlc,
        mut through: Option<&mut Through<'_>>,
        planner: &mut Planner<'_>,
    ) {
        if self.newest() <= after {
            return;
        }
        let count = self.count_upto(at) as u32;
        let (mut scratch, mut shown) = (Vec::new(), Vec::new());
        let mut pages = self.pages[self.position_of((range.start() / PAGE_BYTES) as u32)..].iter().peekable();
        while let Some((number, page)) = pages.next_if(|(number, _)| u64::from(*number) * PAGE_BYTES < range.end()) {
            let page_start = u64::from(*number) * PAGE_BYTES;
            let (start, last) = part_of_page(range, *number);
            shown.clear();
            // What a later record cut off may lie outside of the range; what is stamped up to `after` is hidden.
            let of = |record| self.fragment(*number, record);
            shown.extend(page.visible(count, (start, last), &of, &mut scratch).filter(|fragment| {
                fragment.start <= fragment.last && (after == Hlc::ZERO || self.stamp_of(*fragment) > after)
            }));
            let image = through.as_deref_mut().and_then(|through| through.choose(self, (*number, page), &shown, at));
            let leave_out = through.as_ref().is_some_and(|through| through.is_for_image());
            for fragment in &shown {
                let record = &self.records.get(fragment.record() as usize);
                let start = page_start + u64::from(fragment.start);
                let end = page_start + u64::from(fragment.last) + 1;
                match (fragment.is_punch(), &image) {
                    (true, _) => planner.punched(start, end, record.stamp),
                    // A buried record is not shown by an image, should anybody ask for it: its bytes are forgotten.
                    (false, _) if leave_out && record.is_buried() => planner.hole(end),
                    (false, Some(image)) if record.stamp <= image.key.stamp && !record.is_buried() => {
                        planner.image(start, end, Imaged { skip: fragment.start.into(), ..*image });
                    }
                    (false, _) => planner.data(start, end, fragment.record(), record),
                }
            }
        }
    }

    /// The largest reach of the records stamped in `(after, upto]`, and the newest stamp among them.
    pub(super) fn newest_in(&self, after: Hlc, upto: Hlc) -> (Option<u32>, Option<Hlc>) {
        let (from, to) = (self.count_upto(after), self.count_upto(upto));
        if from >= to {
            return (None, None);
        }
        let reach = self.reaches.largest(from, to, |at| self.records.get(at).reach());
        ((reach > 0).then_some(reach), Some(self.records.stamp(to - 1)))
    }

    /// The records stamped in `(after, upto]`, in order.
    pub(super) fn versions(&self, after: Hlc, upto: Hlc) -> Versions<'_> {
        let (from, to) = (self.count_upto(after), self.count_upto(upto));
        self.versions_of(from, to.max(from))
    }

    /// The records numbered `from..to`.
    pub(super) fn versions_of(&self, from: usize, to: usize) -> Versions<'_> {
        Versions { records: &self.records, next: from, to, archive: self.archive.read_from(from as u32) }
    }

    /// The records in segments from position `slot` on, in order.
    pub(super) fn versions_from(&self, slot: usize) -> Versions<'_> {
        let from = self.records.partition_point(|record| record.slot() < slot);
        self.versions_of(from, self.records.len())
    }

    /// The records stamped up to `upto` that are not buried.
    pub(super) fn kept_upto(&self, upto: Hlc) -> impl Iterator<Item = Record> {
        self.records.range(0, self.count_upto(upto)).filter(|record| !record.is_buried())
    }

    /// True if a record of this stamp is here and not buried.
    pub(super) fn keeps(&self, stamp: Hlc) -> bool {
        let upto = self.count_upto(stamp);
        upto.checked_sub(1)
            .map(|last| self.records.get(last))
            .is_some_and(|last| last.stamp == stamp && !last.is_buried())
    }

    /// Buries the records stamped up to `upto` that `dead` says to.
    pub(super) fn bury(&mut self, upto: Hlc, dead: &mut dyn FnMut(&Record) -> bool) {
        for number in 0..self.count_upto(upto) {
            let record = self.records.get(number);
            if !record.is_buried() && dead(&record) {
                self.records.bury(number);
            }
        }
    }

    /// Bytes of all writes that are not buried.
    pub(super) fn written_bytes(&self) -> u64 {
        let kept = self.records.range(0, self.records.len()).filter(|record| !record.is_buried());
        let writes = kept.filter(|record| record.kind() == RecordKind::Write);
        writes.map(|record| u64::from(record.len)).sum()
    }

    /// Stamp of the newest record.
    pub(super) fn newest(&self) -> Hlc {
        self.records.last().map_or(Hlc::ZERO, |record| record.stamp)
    }

    /// Newest version, 0 without records.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// How many records are stamped up to `at`.
    pub(super) fn count_upto(&self, at: Hlc) -> usize {
        self.records.count_upto(at)
    }

    /// What a record touches of a page.
    pub(super) fn fragment(&self, page: u32, number: u32) -> Fragment {
        let record = self.records.get(number as usize);
        let page_start = u64::from(page) * PAGE_BYTES;
        let start = u64::from(record.offset).max(page_start) - page_start;
        let end = (u64::from(record.offset) + u64::from(record.len)).min(page_start + PAGE_BYTES) - page_start;
        Fragment::new(number, record.kind() == RecordKind::Punch, start as u16, (end - 1) as u16)
    }

    pub(super) fn stamp_of(&self, fragment: Fragment) -> Hlc {
        self.records.stamp(fragment.record() as usize)
    }

    /// Index in `pages` of a page, or of the first after it.
    pub(super) fn position_of(&self, number: u32) -> usize {
        // Without holes every page is at its number.
        match self.pages.get(number as usize) {
            Some((found, _)) if *found == number => number as usize,
            _ => self.pages.partition_point(|(other, _)| *other < number),
        }
    }
}

/// Records of a chunk with all that is known of them.
#[derive(Debug)]
pub(super) struct Versions<'a> {
    records: &'a Records,
    next: usize,
    to: usize,
    archive: Reader<'a>,
}

impl Iterator for Versions<'_> {
    type Item = (Record, Archived);

    fn next(&mut self) -> Option<(Record, Archived)> {
        if self.next == self.to {
            return None;
        }
        self.next += 1;
        Some((self.records.get(self.next - 1), self.archive.next()?))
    }
}

/// The pages of a range: number, first byte in the page, last byte in the page.
fn pages_of(range: ByteRange) -> impl Iterator<Item = (u32, u16, u16)> {
    let numbers = range.start() / PAGE_BYTES..range.end().div_ceil(PAGE_BYTES);
    numbers.filter(move |_| !range.is_empty()).map(move |number| {
        let (start, last) = part_of_page(range, number as u32);
        (number as u32, start, last)
    })
}

/// The first and the last byte of a page that lie in a range, counted in the page. The range reaches into the page.
fn part_of_page(range: ByteRange, number: u32) -> (u16, u16) {
    let page_start = u64::from(number) * PAGE_BYTES;
    let part = range.intersect(ByteRange::new(page_start, page_start + PAGE_BYTES));
    ((part.start() - page_start) as u16, (part.end() - 1 - page_start) as u16)
}

const PUNCH: u32 = 1 << 31;
const BURIED: u32 = 1 << 30;
/// Eight million segments, of 64 MiB half a pebibyte.
const SLOT_BITS: u32 = 23;
const SLOTS_MAX: u32 = 1 << SLOT_BITS;
const HEAD_MAX: u8 = 127;
