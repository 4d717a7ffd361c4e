//! One chunk: its records by stamp, and its pages.

use frieze_base::ByteRange;
use frieze_hlc::Hlc;

use super::archive::{ArchiveReader, ArchivedRecord, RecordArchive};
use super::image_use::{FragmentedPage, ImageUse};
use super::page::{Fragment, PAGE_BYTES, PageHistory, PageSlot};
use super::peaks::Peaks;
use super::record::{IndexRecord, RECORDS_MAX};
use super::records::PackedRecords;
use crate::RecordKind;
use crate::image::{Digest, ImageDigest, ImageKey};
use crate::plan::{ImageSpan, Planner};
use crate::slim::reserve_slim;

/// A chunk's history.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    pub(super) records: PackedRecords,
    reaches: Peaks,
    archive: RecordArchive,
    /// By page number; pages never touched are not there.
    pub(super) pages: Vec<(u32, PageSlot)>,
    version: u64,
    /// Bytes that hold data after the last record.
    live: i64,
    /// Stamp of the first record there ever was: it may be here no more ([`super::compact_index`]).
    first: Option<Hlc>,
    heap_bytes: u64,
}

impl Chunk {
    /// Adds the next record and returns by how much the memory grew.
    pub(super) fn push(&mut self, record: IndexRecord, archived: ArchivedRecord) -> usize {
        let number = self.records.len() as u32;
        assert!(number < RECORDS_MAX, "more records in a chunk than the index can number");
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
                    self.pages.insert(position, (page, PageSlot::Once(fragment)));
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
    pub(super) fn replace(&mut self, mut compact: Chunk, taken: usize) -> Chunk {
        assert!(taken <= self.records.len(), "records went from a chunk that was being made anew");
        for (record, archived) in self.versions_of(taken, self.records.len()) {
            compact.push(record, archived);
        }
        (compact.version, compact.live, compact.first) = (self.version, self.live, self.first);
        std::mem::replace(self, compact)
    }

    /// The records stamped up to `upto`, as a chunk of their own.
    pub(super) fn beginning(&self, upto: Hlc) -> Chunk {
        let mut made = Chunk::default();
        for (record, archived) in self.versions_of(0, self.count_upto(upto)) {
            made.push(record, archived);
        }
        made
    }

    /// With the records of `later` behind its own.
    pub(super) fn followed_by(mut self, later: Chunk) -> Chunk {
        if self.records.len() == 0 {
            return later;
        }
        for (record, archived) in later.versions_of(0, later.records.len()) {
            self.push(record, archived);
        }
        self
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
    /// `image_use`, pages of many pieces come from images.
    pub(super) fn plan(
        &self,
        range: ByteRange,
        at: Hlc,
        after: Hlc,
        mut image_use: Option<&mut ImageUse<'_>>,
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
            let image = image_use
                .as_deref_mut()
                .and_then(|image_use| self.choose_image(image_use, (*number, page), &shown, at));
            let leave_out = image_use.as_ref().is_some_and(|image_use| image_use.is_for_image());
            for fragment in &shown {
                let record = &self.records.get(fragment.record() as usize);
                let start = page_start + u64::from(fragment.start);
                let end = page_start + u64::from(fragment.last) + 1;
                match (fragment.is_punch(), &image) {
                    (true, _) => planner.punched(start, end, record.stamp),
                    // A dead record is not shown by an image, should anybody ask for it: its bytes are forgotten.
                    (false, _) if leave_out && record.is_dead() => planner.hole(end),
                    (false, Some(image)) if record.stamp <= image.key.stamp && !record.is_dead() => {
                        planner.image(start, end, ImageSpan { skip: fragment.start.into(), ..*image });
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
    pub(super) fn versions(&self, after: Hlc, upto: Hlc) -> ChunkRecords<'_> {
        let (from, to) = (self.count_upto(after), self.count_upto(upto));
        self.versions_of(from, to.max(from))
    }

    /// The records numbered `from..to`.
    pub(super) fn versions_of(&self, from: usize, to: usize) -> ChunkRecords<'_> {
        ChunkRecords { records: &self.records, next: from, to, archive: self.archive.read_from(from as u32) }
    }

    /// The records in segments from position `slot` on, in order.
    pub(super) fn versions_from(&self, slot: usize) -> ChunkRecords<'_> {
        let from = self.records.partition_point(|record| record.slot() < slot);
        self.versions_of(from, self.records.len())
    }

    /// The records stamped up to `upto` that are not dead.
    pub(super) fn kept_upto(&self, upto: Hlc) -> impl Iterator<Item = IndexRecord> {
        self.records.range(0, self.count_upto(upto)).filter(|record| !record.is_dead())
    }

    /// True if a record of this stamp is here and not dead.
    pub(super) fn keeps(&self, stamp: Hlc) -> bool {
        let upto = self.count_upto(stamp);
        upto.checked_sub(1)
            .map(|last| self.records.get(last))
            .is_some_and(|last| last.stamp == stamp && !last.is_dead())
    }

    /// Marks the records stamped up to `upto` dead for which `dead` holds.
    pub(super) fn mark_dead(&mut self, upto: Hlc, dead: &mut dyn FnMut(&IndexRecord) -> bool) {
        for number in 0..self.count_upto(upto) {
            let record = self.records.get(number);
            if !record.is_dead() && dead(&record) {
                self.records.mark_dead(number);
            }
        }
    }

    /// Bytes of all writes that are not dead.
    pub(super) fn written_bytes(&self) -> u64 {
        let kept = self.records.range(0, self.records.len()).filter(|record| !record.is_dead());
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

impl Chunk {
    /// Of how many places of the device these fragments consist that are stamped above `after`. Zeros and what is
    /// dead take none.
    pub(super) fn pieces(&self, fragments: &[Fragment], after: Hlc) -> usize {
        let kept = fragments.iter().filter(|fragment| {
            let record = self.records.get(fragment.record() as usize);
            !fragment.is_punch() && record.stamp > after && !record.is_dead()
        });
        let mut records: Vec<u32> = kept.map(|fragment| fragment.record()).collect();
        records.sort_unstable();
        records.dedup();
        records.len()
    }

    /// What a page consists of as of a stamp.
    pub(super) fn made_of(&self, (number, page): (u32, &PageHistory), stamp: Hlc) -> ImageDigest {
        let (mut all, mut left_out) = (Digest::new(), Digest::new());
        let of = |record| self.fragment(number, record);
        for fragment in page.visible(self.count_upto(stamp) as u32, (0, u16::MAX), &of, &mut Vec::new()) {
            let record = self.records.get(fragment.record() as usize);
            let place =
                u64::from(fragment.start) << 32 | u64::from(fragment.last) << 1 | u64::from(fragment.is_punch());
            let add = |digest: &mut Digest| [record.stamp.0, place].into_iter().for_each(|part| digest.add(part));
            add(&mut all);
            if record.is_dead() && !fragment.is_punch() {
                add(&mut left_out);
            }
        }
        ImageDigest { digest: all.value(), left_out: left_out.value() as u32 }
    }

    pub(super) fn page(&self, number: u32) -> Option<&PageHistory> {
        match self.pages.get(self.position_of(number))? {
            (found, PageSlot::Often(page)) if *found == number => Some(page),
            _ => None,
        }
    }

    /// The image that the fragments of a page are taken from, if they are many.
    fn choose_image(
        &self,
        image_use: &mut ImageUse<'_>,
        (number, page): (u32, &PageSlot),
        shown: &[Fragment],
        at: Hlc,
    ) -> Option<ImageSpan> {
        let pieces_max = image_use.images.pieces_max();
        let PageSlot::Often(page) = page else { return None };
        if shown.len() <= pieces_max || self.pieces(shown, Hlc::ZERO) <= pieces_max {
            return None;
        }
        let made_of = |stamp| self.made_of((number, page), stamp);
        let found = image_use.images.newest(image_use.chunk, number, at, made_of);
        let left = found.map_or(usize::MAX, |(stamp, _)| self.pieces(shown, stamp) + 1);
        if let Some(fragmented) = image_use.fragmented.as_deref_mut() {
            if left > pieces_max {
                let newest = self.newest();
                fragmented.push(FragmentedPage { chunk: image_use.chunk, page: number, at: at.min(newest) });
            }
            if let Some((_, image)) = found {
                image_use.images.touch(image);
            }
        }
        let (stamp, image) = found?;
        let key = ImageKey { chunk: image_use.chunk, page: number, stamp };
        Some(ImageSpan { key, place: image.place, skip: 0 })
    }
}

/// Records of a chunk with all that is known of them.
#[derive(Debug)]
pub(super) struct ChunkRecords<'a> {
    records: &'a PackedRecords,
    next: usize,
    to: usize,
    archive: ArchiveReader<'a>,
}

impl Iterator for ChunkRecords<'_> {
    type Item = (IndexRecord, ArchivedRecord);

    fn next(&mut self) -> Option<(IndexRecord, ArchivedRecord)> {
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
