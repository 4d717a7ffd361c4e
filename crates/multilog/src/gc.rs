//! Marking records dead, and where their bytes may be given back.
//!
//! Guarantees: only what the caller names is marked dead. Space is given back only in segments whose last footer names
//! every record, so recovery finds all of them without the bytes that are gone.
//! Leaves to others: which records no read needs (`node`, from horizons, pins and shared ranges), giving back the
//! space.
//!
//! A dead record stays in the footer: order, numbers and stamps are as they were. Only its place in the segment, header
//! and payload, has no meaning any more. So nothing is moved, and a crash at any moment leaves a log that recovery
//! reads like any other. The index in memory is rebuilt without most dead records ([`MultiLog::compact_index`]).

use std::collections::BTreeSet;

use frieze_base::{ByteRange, InodeId, SegmentId, crc32c};
use frieze_hlc::Hlc;

use crate::dead::{DeadRecord, DroppedRecords, FileRecord, SealedSegment};
use crate::header::LogPosition;
use crate::index::{CompactIndex, IndexRecord};
use crate::log::MultiLog;
use crate::record::{RecordHeader, RecordKind, blocks};
use crate::record_files::RecordFiles;
use crate::segment::SegmentState;
use crate::trailer::{TRAILER_BYTES, Trailer};

impl MultiLog {
    /// The records of a file stamped up to `upto` that are not dead and none of `live`: segments and places, as
    /// [`DeadRecord::place`].
    ///
    /// # Cost
    /// A pass over the file's records in memory.
    pub fn dead_records(&self, inode: InodeId, upto: Hlc, live: &BTreeSet<(SegmentId, u64)>) -> Vec<DeadRecord> {
        let Some(file) = self.file(inode) else { return Vec::new() };
        let dead = file.kept_upto(upto).map(|record| self.dead_record_of(&record));
        dead.filter(|dead| !live.contains(&(dead.segment, dead.place))).collect()
    }

    /// The records of a file stamped in (`after`, `upto`], dead or not, by chunk, each chunk's oldest first.
    ///
    /// # Cost
    /// A pass over them, and a search in each chunk.
    pub fn records_of_chunks(&self, inode: InodeId, after: Hlc, upto: Hlc) -> Vec<(u32, Vec<FileRecord>)> {
        let record = |record: IndexRecord| {
            let (start, len) = (u64::from(record.offset), u64::from(record.len));
            FileRecord {
                stamp: record.stamp,
                range: ByteRange::new(start, start + len),
                is_dead: record.is_dead(),
                place: self.dead_record_of(&record),
            }
        };
        let chunks = self.file(inode).into_iter().flat_map(|file| file.chunks_within(after, upto));
        chunks.map(|(index, records)| (index, records.map(record).collect())).collect()
    }

    /// Marks records dead that [`MultiLog::dead_records`] listed. No plan of a read that is still answered may name
    /// one. `gone`: with them all there is of the file is dead, and nothing will be written to it; it may leave memory,
    /// and comes back dead.
    ///
    /// # Cost
    /// As [`MultiLog::dead_records`].
    pub fn mark_dead(&mut self, inode: InodeId, upto: Hlc, dead_records: &[DeadRecord], gone: bool) {
        assert!(!self.is_evicted(inode), "inode {inode} is asked for while it is evicted");
        let places: BTreeSet<(SegmentId, u64)> = dead_records.iter().map(|dead| (dead.segment, dead.place)).collect();
        if gone {
            self.gone.add(inode);
        }
        let MultiLog { files, segments, packs, .. } = self;
        let record_files = RecordFiles::new(segments, packs);
        if let Some(file) = files.get_mut(&inode) {
            file.mark_dead(upto, gone, &mut |record| places.contains(&(record_files.of(record).0, record.at.into())));
        }
    }

    /// True if a record that is in the log is dead: no read needs its bytes any more, and they may be gone.
    ///
    /// # Panics
    /// If the file is evicted.
    pub fn is_dead(&self, header: &RecordHeader) -> bool {
        self.file(header.chunk.inode).is_none_or(|file| !file.keeps(header.chunk.index, header.stamp))
    }

    /// True if all of a file was dead since the start: there is no dead record to be told of it.
    pub fn is_wholly_dead(&self, inode: InodeId) -> bool {
        self.gone.holds(inode)
    }

    /// Begins to make a chunk of a file anew without its dead records: the first from `from` on of which enough is
    /// dead; `None` if there is none. `kept`: the instants before the last of them, and that one, which are asked for
    /// again; those after it all are.
    ///
    /// Nothing of the file may be dead or leave memory until [`MultiLog::put_compact_index`].
    ///
    /// # Cost
    /// A pass over the records of the chunk, about 50 ns each.
    pub fn compact_index(&self, inode: InodeId, from: u32, kept: &[Hlc]) -> Option<CompactIndex> {
        self.file(inode)?.compact_index(inode, from, kept)
    }

    /// Puts a chunk in its place that was rebuilt, and what was there into `compact`: to be dropped with no lock
    /// held.
    pub fn put_compact_index(&mut self, compact: &mut CompactIndex) {
        if let Some(file) = self.files.get_mut(&compact.inode) {
            self.files_bytes -= file.heap_bytes();
            file.put_compact_index(compact);
            self.files_bytes += file.heap_bytes();
        }
    }

    /// When records of a file were written that are not in memory any more, if some of them may be stamped in `(after,
    /// upto]`.
    pub fn dropped_records(&self, inode: InodeId, after: Hlc, upto: Hlc) -> Vec<DroppedRecords> {
        let lost = self.file(inode).into_iter().flat_map(|file| file.dropped_within(after, upto));
        let by = |writer| {
            let writer = self.writers.get(writer);
            (writer.session, writer.uid)
        };
        lost.map(|loss| DroppedRecords { by: loss.writer.map(by), first: loss.first, last: loss.last }).collect()
    }

    fn dead_record_of(&self, record: &IndexRecord) -> DeadRecord {
        let (segment, block_bytes) = self.record_files().of(record);
        let bytes = match record.kind() {
            RecordKind::Write => record.len,
            RecordKind::Punch => 0,
        };
        let place = u64::from(record.at);
        let end = place + 4 * u64::from(blocks(bytes, block_bytes)) + u64::from(bytes);
        DeadRecord { segment, start: place - u64::from(record.head()), place, end, bytes }
    }

    /// Lets the open segment take no more records, so that [`MultiLog::sealable`] gives its footer once it is durable.
    /// The next group goes into a new segment. Nothing happens while places are reserved, or if there is nothing in it.
    pub fn close_open(&mut self) -> Option<LogPosition> {
        if self.has_reservations() {
            return None;
        }
        let open = self.segments.last_mut().filter(|open| open.state == SegmentState::Open && open.records > 0)?;
        open.state = SegmentState::Full;
        Some(open.link().end)
    }

    /// A segment whose last footer was handed out or found. That the footer is whole and durable is for the driver to
    /// see ([`MultiLog::is_footer_of`]) before it gives anything back.
    pub fn sealed(&self, id: SegmentId) -> Option<SealedSegment> {
        let segment = &self.segments[self.segments.binary_search_by_key(&id, |segment| segment.header.id).ok()?];
        (segment.state == SegmentState::Closed).then_some(SealedSegment {
            end: segment.end,
            footer_at: segment.footer_at(),
            bytes: segment.header.bytes,
            stamp: segment.stamp,
        })
    }

    /// True if these bytes are the last footer of a sealed segment, naming every record of it: recovery will not look
    /// at the records themselves.
    pub fn is_footer_of(&self, id: SegmentId, footer: &[u8]) -> bool {
        self.footer_entries(id, footer).is_some()
    }

    /// The record headers in the last footer of a sealed segment; `None` if these bytes are not that footer, whole.
    pub(crate) fn footer_entries<'a>(&self, id: SegmentId, footer: &'a [u8]) -> Option<&'a [u8]> {
        let at = self.segments.binary_search_by_key(&id, |segment| segment.header.id).ok()?;
        let segment = &self.segments[at];
        let (entries, trailer) = footer.split_at(footer.len().checked_sub(TRAILER_BYTES)?);
        let trailer = Trailer::decode(trailer)?;
        let whole = trailer.header == segment.header
            && (trailer.records, trailer.end) == (segment.records, segment.end)
            && (entries.len() as u64, trailer.entries_bytes) == (segment.entries_bytes, segment.entries_bytes)
            && crc32c(entries) == trailer.entries_crc
            // Another segment may not follow yet: the footer itself has to say that nothing comes after it.
            && (trailer.closed || at + 1 < self.segments.len());
        whole.then_some(entries)
    }
}
