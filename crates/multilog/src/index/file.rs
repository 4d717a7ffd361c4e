//! One file: its chunks, and the user times found in its data.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU32, Ordering};

use frieze_base::{ByteRange, ChunkId, InodeId};
use frieze_hlc::{Hlc, UserTime};

use super::archive::{ArchivedRecord, WriterKey, WriterTable};
use super::chunk::{Chunk, ChunkRecords};
use super::dropped::{DroppedSpan, DroppedSpans};
use super::image_use::ImageUse;
use super::marks::UserTimeMarks;
use super::record::{IndexRecord, RecordPlace};
use crate::pack::PackKey;
use crate::plan::Planner;
use crate::slim::{heap_bytes, reserve_slim};
use crate::{RecordHeader, RecordKind};

/// How far an interval's records reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// The last chunk that a write of the interval reached, and the largest end of such a write in it, in bytes.
    pub highest: Option<(u32, u32)>,
    /// Stamp of the newest record of the interval, punches included.
    pub newest: Option<Hlc>,
}

/// A record that may be packed.
#[derive(Debug)]
pub(crate) struct PackableRecord {
    pub(crate) header: RecordHeader,
    pub(crate) record: IndexRecord,
    pub(crate) writer: u32,
    /// It does not leave with the dead.
    pub(crate) stays: bool,
}

/// A file's history of bytes.
#[derive(Debug, Default)]
pub(crate) struct FileIndex {
    /// By index; chunks never written are not there.
    pub(super) chunks: Vec<(u32, Box<Chunk>)>,
    /// Stamp and user time of every record that has one. Few files have any.
    marks: Option<Box<UserTimeMarks>>,
    /// When records were written that have left the index: an instant up to then is refused.
    pub(super) lost: DroppedSpans,
    /// Memory of all of that.
    pub(super) heap_bytes: u64,
    /// Position of the segment of its oldest record.
    oldest_slot: u32,
    /// Only its unsealed records are here: the others are in index runs.
    partial: bool,
    /// Records of it are dead, which no index run says.
    has_dead: bool,
    /// All its records are dead: it is never read.
    is_gone: bool,
    /// When it came from the index runs, and when it was last asked for, counted in files that came.
    fetched: u32,
    used: AtomicU32,
}

impl FileIndex {
    /// What speaks against a record as the next of this file.
    pub(crate) fn refuses(&self, header: &RecordHeader) -> Option<&'static str> {
        if self.chunk(header.chunk.index).is_some_and(|chunk| chunk.newest() > header.stamp) {
            return Some("it is stamped below the newest record of its chunk");
        }
        None
    }

    /// A file of which older records are in index runs.
    pub(crate) fn partial() -> FileIndex {
        FileIndex { partial: true, ..FileIndex::default() }
    }

    /// True if older records are in index runs: only the unsealed ones are here.
    pub(crate) fn is_partial(&self) -> bool {
        self.partial
    }

    /// True if memory can be had from it, with segments before position `indexed` in index runs.
    pub(crate) fn can_leave(&self, indexed: u32) -> bool {
        (self.chunks.is_empty() || self.oldest_slot < indexed) && (!self.has_dead || self.is_gone)
    }

    /// Memory held, in bytes.
    pub(crate) fn heap_bytes(&self) -> u64 {
        self.heap_bytes
    }

    /// It came from the index runs at `tick`.
    pub(crate) fn fetched(&mut self, tick: u32) {
        self.fetched = tick;
        self.used = AtomicU32::new(tick);
    }

    /// It is asked for at `tick`.
    pub(crate) fn touch(&self, tick: u32) {
        // Most readers find the value that they would write: a cache line without a writer is shared by all cores.
        if self.used.load(Ordering::Relaxed) != tick {
            self.used.store(tick, Ordering::Relaxed);
        }
    }

    /// For how long it has not been asked for, in files fetched meanwhile; `bonus` more if it was never asked for after
    /// its fetch.
    pub(crate) fn idle(&self, now: u32, bonus: u32) -> u32 {
        let used = self.used.load(Ordering::Relaxed);
        let again = used != self.fetched;
        now.wrapping_sub(used).saturating_add(if again { 0 } else { bonus })
    }

    /// The records in segments from position `slot` on, by stamp, each with its place.
    pub(crate) fn records_from(
        &self,
        id: InodeId,
        slot: u32,
        writers: &WriterTable,
    ) -> Vec<(RecordHeader, RecordPlace)> {
        let mut found = Vec::new();
        for (index, chunk) in &self.chunks {
            let chunk_id = ChunkId { inode: id, index: *index };
            let unsealed = chunk.versions_from(slot as usize);
            found.extend(
                unsealed.map(|(record, archived)| (whole(chunk_id, record, archived, writers), record.place())),
            );
        }
        // The order of the log: by segment and place.
        found.sort_by_key(|(_, place)| *place);
        found
    }

    /// Adds the next record and returns by how much the memory grew.
    pub(crate) fn push(&mut self, header: &RecordHeader, place: RecordPlace, writer: u32) -> usize {
        self.push_as(header, place, writer, false)
    }

    /// As [`FileIndex::push`], of a record that may be dead, as a pack says it.
    pub(crate) fn push_as(&mut self, header: &RecordHeader, place: RecordPlace, writer: u32, is_dead: bool) -> usize {
        let mut record = IndexRecord::new(header.kind, header.stamp, place, header.offset, header.len);
        if is_dead {
            record.mark_dead();
        }
        let archived = ArchivedRecord {
            writer,
            n: header.n,
            version: header.version,
            seq: header.seq,
            user_time: header.user_time,
            part: header.part,
            parts: header.parts,
        };
        if self.chunks.is_empty() {
            self.oldest_slot = place.slot;
        }
        self.is_gone = false;
        let mut grown = 0;
        let position = self.position_of(header.chunk.index);
        if self.chunks.get(position).is_none_or(|(index, _)| *index != header.chunk.index) {
            grown += reserve_slim(&mut self.chunks, 1) + heap_bytes(size_of::<Chunk>());
            self.chunks.insert(position, (header.chunk.index, Box::default()));
        }
        let more = self.chunks[position].1.push(record, archived);
        grown += more;
        grown += header.user_time.map_or(0, |time| self.mark(header.stamp, time));
        self.heap_bytes += grown as u64;
        grown
    }

    /// Plans a range of a chunk.
    pub(crate) fn plan(
        &self,
        chunk: u32,
        range: ByteRange,
        at: Hlc,
        after: Hlc,
        image_use: Option<&mut ImageUse<'_>>,
        planner: &mut Planner<'_>,
    ) {
        if let Some(chunk) = self.chunk(chunk) {
            chunk.plan(range, at, after, image_use, planner);
        }
    }

    /// Bytes of a range of a chunk that hold data.
    pub(crate) fn data_in(&self, chunk: u32, range: ByteRange, at: Hlc, after: Hlc) -> u64 {
        self.chunk(chunk).map_or(0, |chunk| chunk.data_in(range, at, after))
    }

    /// Bytes of a chunk that hold data, where that is known without a plan.
    pub(crate) fn live_in(&self, chunk: u32, upto: u64, at: Hlc, after: Hlc) -> Result<u64, u64> {
        self.chunk(chunk).map_or(Ok(0), |chunk| chunk.live(upto, at, after))
    }

    /// How far the records stamped in `(after, upto]` reach.
    pub(crate) fn newest_in(&self, chunks: RangeInclusive<u32>, after: Hlc, upto: Hlc) -> Tail {
        let from = self.position_of(*chunks.start());
        let mut tail = Tail::default();
        for (index, chunk) in self.chunks[from..].iter().take_while(|(index, _)| chunks.contains(index)) {
            let (reach, newest) = chunk.newest_in(after, upto);
            tail.highest = reach.map(|reach| (*index, reach)).or(tail.highest);
            tail.newest = tail.newest.max(newest);
        }
        tail
    }

    /// When records were written that are not here any more, if some of them may be stamped in `(after, upto]`.
    pub(crate) fn dropped_within(&self, after: Hlc, upto: Hlc) -> impl Iterator<Item = &DroppedSpan> {
        self.lost.within(after, upto)
    }

    /// True if a record is stamped in `(after, upto]`. Before the instants that are kept it may be said of one that is
    /// near.
    pub(crate) fn has_records(&self, after: Hlc, upto: Hlc) -> bool {
        if self.dropped_within(after, upto).next().is_some() {
            return true;
        }
        let newer = self.chunks.iter().filter(|(_, chunk)| chunk.newest() > after);
        newer.map(|(_, chunk)| chunk.newest_in(after, upto)).any(|(_, newest)| newest.is_some())
    }

    /// Records stamped in `(after, upto]` by stamp, those of equal stamp by chunk.
    pub(crate) fn versions(
        &self,
        id: InodeId,
        after: Hlc,
        upto: Hlc,
        max: usize,
        writers: &WriterTable,
    ) -> Vec<RecordHeader> {
        let chunks = self.chunks.iter().filter(|(_, chunk)| chunk.newest() > after);
        let mut sources: Vec<(u32, ChunkRecords<'_>)> =
            chunks.map(|(index, chunk)| (*index, chunk.versions(after, upto))).collect();
        let mut next: Vec<_> = sources.iter_mut().map(|(_, records)| records.next()).collect();
        let stamp_of = |entry: &Option<(IndexRecord, ArchivedRecord)>| entry.as_ref().map(|(record, _)| record.stamp);
        let mut heap: BinaryHeap<Reverse<(Hlc, usize)>> =
            next.iter().enumerate().filter_map(|(at, entry)| Some(Reverse((stamp_of(entry)?, at)))).collect();
        let mut found = Vec::new();
        while found.len() < max
            && let Some(Reverse((_, at))) = heap.pop()
        {
            let (index, records) = &mut sources[at];
            let entry = std::mem::replace(&mut next[at], records.next());
            heap.extend(stamp_of(&next[at]).map(|stamp| Reverse((stamp, at))));
            let chunk = ChunkId { inode: id, index: *index };
            found.extend(entry.map(|(record, archived)| whole(chunk, record, archived, writers)));
        }
        found
    }

    /// User times of the records, if any has one.
    pub(crate) fn marks(&self) -> Option<&UserTimeMarks> {
        self.marks.as_deref()
    }

    /// Adds a user time, and returns by how much the memory grew.
    fn mark(&mut self, stamp: Hlc, time: UserTime) -> usize {
        let grown = if self.marks.is_none() { heap_bytes(size_of::<UserTimeMarks>()) } else { 0 };
        grown + self.marks.get_or_insert_default().add(stamp, time)
    }

    /// The chunks among these that have a record, in order.
    pub(crate) fn chunks_in(&self, chunks: RangeInclusive<u32>) -> impl Iterator<Item = u32> + '_ {
        let from = self.position_of(*chunks.start());
        self.chunks[from..].iter().map(|(index, _)| *index).take_while(move |index| chunks.contains(index))
    }

    /// The records stamped up to `upto` that are not dead, chunk by chunk.
    pub(crate) fn kept_upto(&self, upto: Hlc) -> impl Iterator<Item = IndexRecord> {
        self.chunks.iter().flat_map(move |(_, chunk)| chunk.kept_upto(upto))
    }

    /// The chunks with records stamped in (`after`, `upto`], and these.
    pub(crate) fn chunks_within(
        &self,
        after: Hlc,
        upto: Hlc,
    ) -> impl Iterator<Item = (u32, impl Iterator<Item = IndexRecord> + '_)> {
        let within = move |(index, chunk): &(u32, Box<Chunk>)| {
            let (from, to) = (chunk.count_upto(after), chunk.count_upto(upto));
            (from < to).then_some((*index, from, to))
        };
        self.chunks.iter().filter_map(move |chunk| {
            let (index, from, to) = within(chunk)?;
            Some((index, chunk.1.records.range(from, to)))
        })
    }

    /// True if a record of a chunk is here and not dead.
    pub(crate) fn keeps(&self, chunk: u32, stamp: Hlc) -> bool {
        self.chunk(chunk).is_some_and(|chunk| chunk.keeps(stamp))
    }

    /// The write of a chunk with this stamp and first byte, if it is here and not dead.
    pub(crate) fn record_at(&self, chunk: u32, stamp: Hlc, offset: u32) -> Option<IndexRecord> {
        let chunk = self.chunk(chunk)?;
        let upto = chunk.count_upto(stamp);
        let of_stamp =
            (0..upto).rev().map(|number| chunk.records.get(number)).take_while(|record| record.stamp == stamp);
        let mut writes = of_stamp.filter(|record| record.kind() == RecordKind::Write && !record.is_dead());
        writes.find(|record| record.offset == offset)
    }

    /// Marks the records stamped up to `upto` dead for which `dead` holds. `gone`: these are all of them, and none is
    /// read any more.
    pub(crate) fn mark_dead(&mut self, upto: Hlc, gone: bool, dead: &mut dyn FnMut(&IndexRecord) -> bool) {
        self.has_dead = true;
        self.is_gone = gone;
        for (_, chunk) in &mut self.chunks {
            chunk.mark_dead(upto, dead);
        }
    }

    /// Takes out the chunks that writers of these numbers wrote: a chunk is on one chain.
    pub(crate) fn take_out(&mut self, is_out: &dyn Fn(u32) -> bool) {
        let (count, mut freed) = (self.chunks.len(), 0);
        self.chunks.retain(|(_, chunk)| {
            let first = chunk.versions_of(0, chunk.records.len().min(1)).next();
            let stays = !first.is_some_and(|(_, archived)| is_out(archived.writer));
            freed += if stays { 0 } else { chunk.heap_bytes() + heap_bytes(size_of::<Chunk>()) as u64 };
            stays
        });
        self.heap_bytes -= freed;
        let Some(marks) = self.marks.as_mut().filter(|_| self.chunks.len() != count) else { return };
        // Of records that are not in memory any more the marks are all there is.
        let lost = self.lost.last();
        marks.keep_upto(lost);
        let timed = |(record, archived): (IndexRecord, ArchivedRecord)| Some((record.stamp, archived.user_time?));
        let mut left: Vec<_> =
            self.chunks.iter().flat_map(|(_, chunk)| chunk.versions(Hlc::ZERO, Hlc::MAX)).filter_map(timed).collect();
        left.sort_unstable();
        let grown: usize = left.into_iter().map(|(stamp, time)| marks.add(stamp, time)).sum();
        self.heap_bytes += grown as u64;
    }

    /// The records of some numbers of a chain, stamped up to `upto`, chunk by chunk: all that is known of each, and
    /// whether it stays when the others leave ([`FileIndex::compact_index`]).
    pub(crate) fn chunks_to_pack(
        &self,
        (id, key): (InodeId, PackKey),
        upto: Hlc,
        kept: &[Hlc],
        writers: &WriterTable,
    ) -> Vec<PackableRecord> {
        // A chunk is on one chain.
        let is_on_chain = |(_, chunk): &&(u32, Box<Chunk>)| {
            let first = chunk.versions_of(0, chunk.records.len().min(1)).next();
            first.is_some_and(|(_, archived)| writers.get(archived.writer).chain == key.chain)
        };
        let of_chunk = |(index, chunk): &(u32, Box<Chunk>)| {
            let (chunk_id, count) = (ChunkId { inode: id, index: *index }, chunk.count_upto(upto));
            let goes = chunk.goes(count, kept);
            let with_header = |((record, archived), goes): ((IndexRecord, ArchivedRecord), bool)| {
                let (header, writer) = (whole(chunk_id, record, archived, writers), archived.writer);
                PackableRecord { header, record, writer, stays: !goes }
            };
            let numbers = key.first..=key.last;
            let within =
                chunk.versions_of(0, count).zip(goes).filter(|((_, archived), _)| numbers.contains(&archived.n));
            within.map(with_header).collect::<Vec<_>>()
        };
        self.chunks.iter().filter(is_on_chain).flat_map(of_chunk).collect()
    }

    /// When records were written, up to `upto`, that are not here.
    pub(crate) fn losses_upto(&self, upto: Hlc) -> Vec<DroppedSpan> {
        self.lost.within(Hlc::ZERO, upto).map(|loss| DroppedSpan { last: loss.last.min(upto), ..*loss }).collect()
    }

    /// The same losses, by writer.
    pub(crate) fn merged(losses: Vec<DroppedSpan>) -> impl Iterator<Item = DroppedSpan> {
        let mut merged = DroppedSpans::default();
        for loss in losses {
            merged.add(loss);
        }
        merged.into_sorted()
    }

    /// Puts a pack's records in the place of those stamped in (`after`, `upto`] in its chunks. What leaves is noted.
    pub(crate) fn put_packed(&mut self, packed: &mut FileIndex, after: Hlc, upto: Hlc) {
        for (index, compact) in packed.chunks.drain(..) {
            let position = self.position_of(index);
            let Some((_, chunk)) = self.chunks.get_mut(position).filter(|(known, _)| *known == index) else { continue };
            self.heap_bytes -= chunk.heap_bytes();
            let taken = chunk.count_upto(upto);
            chunk.replace(chunk.beginning(after).followed_by(*compact), taken);
            self.heap_bytes += chunk.heap_bytes();
        }
        for loss in packed.lost.drain() {
            self.heap_bytes += self.lost.add(loss) as u64;
        }
        self.oldest_slot = 0;
        // What a pack says to be dead comes back with it.
        self.has_dead = self.chunks.iter().any(|(_, chunk)| chunk.has_dead_outside_packs());
    }

    /// Notes when records were written that are not here.
    pub(crate) fn lose(&mut self, loss: DroppedSpan) {
        self.heap_bytes += self.lost.add(loss) as u64;
    }

    /// True if nothing is known of it.
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.lost.last() == Hlc::ZERO
    }

    /// Bytes of all writes that are not dead.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.chunks.iter().map(|(_, chunk)| chunk.written_bytes()).sum()
    }

    /// Newest version of a chunk.
    pub(crate) fn chunk_version(&self, index: u32) -> u64 {
        self.chunk(index).map_or(0, Chunk::version)
    }

    pub(super) fn chunk(&self, index: u32) -> Option<&Chunk> {
        let (found, chunk) = self.chunks.get(self.position_of(index))?;
        (*found == index).then_some(&**chunk)
    }

    pub(super) fn position_of(&self, index: u32) -> usize {
        match self.chunks.get(index as usize) {
            Some((found, _)) if *found == index => index as usize,
            _ => self.chunks.partition_point(|(other, _)| *other < index),
        }
    }
}

fn whole(chunk: ChunkId, record: IndexRecord, archived: ArchivedRecord, writers: &WriterTable) -> RecordHeader {
    let WriterKey { session, uid, chain, epoch } = writers.get(archived.writer);
    RecordHeader {
        kind: record.kind(),
        chain,
        epoch,
        n: archived.n,
        chunk,
        version: archived.version,
        stamp: record.stamp,
        user_time: archived.user_time,
        session,
        seq: archived.seq,
        uid,
        offset: record.offset,
        len: record.len,
        part: archived.part,
        parts: archived.parts,
    }
}
