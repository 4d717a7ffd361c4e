//! The multi-log: placement, the visible state, and what is asked of it.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use frieze_base::{ByteRange, ChainId, ChunkId, FastMap, InodeId, Rng, SegmentId, SessionId};
use frieze_hlc::{Hlc, UserTime};

use crate::dead::DeadFiles;
use crate::discarded::Discards;
use crate::entry::{FooterEntry, RecordSpan};
use crate::header::{self, LogPosition, SegmentHeader, SegmentLink};
use crate::index::{FileIndex, RecordPlace, Tail, TimeRuns, UserCut, WriterKey, WriterTable};
use crate::index_run::{IndexRun, NewestFiles};
use crate::numbers;
use crate::pack::Packs;
use crate::plan::{Piece, Planner};
use crate::record::RecordHeader;
use crate::record_files::{RecordFiles, slot_of};
use crate::reservations::{RESERVED_BYTES_MAX, Reservation, ReservationId, Reservations};
use crate::segment::{LogSegment, NewSegment, Seal, SegmentState, Spot};

/// How a log is laid out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// Length of a segment file in bytes, at most 4 GiB - 1. More: fewer files and footers; less: less to scan after a
    /// crash, smaller files on a small disk. A group of records must fit in one.
    pub segment_bytes: u64,
    /// Bytes of payload under one checksum. More: less space for checksums; less: a small read verifies less.
    pub block_bytes: u32,
    /// Drawn anew at each start, so that no payload can pass for a record of a later segment.
    pub seed: u64,
}

impl Default for LogSettings {
    fn default() -> LogSettings {
        LogSettings { segment_bytes: 64 << 20, block_bytes: 16 << 10, seed: 0 }
    }
}

/// The newest that a chain has on this device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainState {
    /// Largest number; 0 if there is no record.
    pub n: u64,
    /// Largest stamp.
    pub stamp: Hlc,
}

/// Sizes of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Visible records.
    pub records: u64,
    /// Bytes that they take in segments, headers included.
    pub log_bytes: u64,
    /// Memory of the index and of footers not yet written, allocator overhead included.
    pub index_bytes: u64,
    /// How much of that is for footers not yet written, about 10 bytes a record of the segments that are not sealed.
    pub footer_bytes: u64,
    /// Segments in use.
    pub segments: u64,
    /// Index runs in use.
    pub index_runs: u64,
    /// Records that they index: their files need not be in memory.
    pub run_records: u64,
    /// Bytes that they take on the device.
    pub run_bytes: u64,
    /// Files that are in memory, wholly or in part.
    pub files: u64,
}

/// The log of a device.
#[derive(Debug)]
pub struct MultiLog {
    settings: LogSettings,
    /// In the order of the log; a record names its segment by position.
    pub(crate) segments: Vec<LogSegment>,
    /// Id of the next segment. Ids are never used twice, so one that is given up is left out.
    pub(crate) next_segment: SegmentId,
    /// End and stamp of the last published record.
    pub(crate) tip: SegmentLink,
    /// Places reserved and not yet published.
    reservations: Reservations,
    /// Segments before this position are closed.
    closed: usize,
    pub(crate) files: FastMap<InodeId, FileIndex>,
    pub(crate) writers: WriterTable,
    pub(crate) time_runs: TimeRuns,
    /// Stamp of the newest record of every session.
    pub(crate) newest_of: FastMap<SessionId, Hlc>,
    pub(crate) chains: BTreeMap<ChainId, ChainState>,
    pub(crate) records: u64,
    pub(crate) log_bytes: u64,
    /// Memory of all files, the maps of this struct not counted.
    pub(crate) files_bytes: u64,
    /// The index of the oldest segments, oldest first.
    pub(crate) index_runs: Vec<IndexRun>,
    /// Segments before this position are indexed.
    pub(crate) indexed: usize,
    /// Files that an index run may have: all others are in memory.
    pub(crate) indexed_newest: NewestFiles,
    /// Files of which all is dead.
    pub(crate) gone: DeadFiles,
    /// The oldest records of chains, without those of them that died.
    pub(crate) packs: Packs,
    /// Records in it that their chains do not have, by chain.
    pub(crate) discarded: Vec<Discards>,
    /// Counts how often more was discarded, or packed.
    pub(crate) discards: u32,
    /// Counts the files that came from the index runs.
    pub(crate) tick: u32,
}

impl MultiLog {
    /// An empty log.
    ///
    /// # Panics
    /// If the settings cannot hold a record: they are checked where they are read.
    pub fn new(settings: LogSettings) -> MultiLog {
        let lengths = header::SEGMENT_BYTES_MIN..=header::SEGMENT_BYTES_MAX;
        assert!(lengths.contains(&settings.segment_bytes), "segments of {} bytes", settings.segment_bytes);
        assert!(settings.block_bytes >= header::BLOCK_BYTES_MIN, "blocks of {} bytes", settings.block_bytes);
        MultiLog {
            settings,
            segments: Vec::new(),
            next_segment: SegmentId(1),
            tip: SegmentLink::default(),
            reservations: Reservations::default(),
            closed: 0,
            files: FastMap::default(),
            writers: WriterTable::default(),
            time_runs: TimeRuns::default(),
            newest_of: FastMap::default(),
            chains: BTreeMap::new(),
            records: 0,
            log_bytes: 0,
            files_bytes: 0,
            index_runs: Vec::new(),
            indexed: 0,
            indexed_newest: NewestFiles::default(),
            gone: DeadFiles::default(),
            packs: Packs::default(),
            discarded: Vec::new(),
            discards: 0,
            tick: 0,
        }
    }

    /// Reserves room for a group of records, adjacent in one segment, behind everything that is reserved already.
    /// `None` if one of the open reservations has to end first: it has failed, a new segment is needed, or more than
    /// [`RESERVED_BYTES_MAX`] would be reserved.
    ///
    /// The caller writes the bytes of [`Reservation::head`] and the payload of each record, without a lock on the log.
    /// Then, in the order of reservations, it publishes each record ([`MultiLog::publish`]) or abandons the group
    /// ([`MultiLog::abandon`]). A new segment is made at once, before other reservations.
    ///
    /// # Panics
    /// If no segment can hold the group.
    pub fn reserve(&mut self, headers: &[RecordHeader]) -> Option<Reservation> {
        assert!(!headers.is_empty(), "a group has at least one record");
        if self.reservations.is_barred() {
            return None;
        }
        let open = self.segments.last().filter(|segment| segment.state == SegmentState::Open);
        if let Some(open) = open {
            let visible = (&open.cursor, open.entries_bytes);
            let (cursor, entries_bytes) =
                self.reservations.behind().map_or(visible, |(cursor, entries_bytes)| (cursor, *entries_bytes));
            if let Some((spots, behind)) = open.place(cursor, entries_bytes, headers) {
                if !self.reservations.is_empty() && behind.0.at > open.end + RESERVED_BYTES_MAX {
                    return None;
                }
                let (header, before) = (open.header, cursor.stamp);
                let id = self.reservations.push(headers.len(), false, behind);
                return Some(Reservation::new(id, None, header, before, spots));
            }
        }
        if !self.reservations.is_empty() {
            return None;
        }
        let roll = self.roll();
        let segment = self.segments.last().expect("one was just made");
        let Some((spots, behind)) = segment.place(&segment.cursor, 0, headers) else {
            panic!(
                "a group of {} records does not fit in a segment of {:?}: {headers:?}",
                headers.len(),
                self.settings
            );
        };
        let (header, before) = (segment.header, segment.cursor.stamp);
        let id = self.reservations.push(headers.len(), true, behind);
        Some(Reservation::new(id, Some(roll), header, before, spots))
    }

    /// True if a reservation is the oldest that has not ended: it is its turn to be published or abandoned.
    pub fn is_first(&self, id: ReservationId) -> bool {
        self.reservations.first() == Some(id)
    }

    /// True if a reservation before this one was abandoned: this one has to be abandoned too.
    pub fn has_failed(&self, id: ReservationId) -> bool {
        self.reservations.has_failed(id)
    }

    /// The number of the next reservation.
    pub fn next_reservation(&self) -> ReservationId {
        self.reservations.next_id()
    }

    /// True if all reservations below this number have ended.
    pub fn has_ended(&self, below: ReservationId) -> bool {
        self.reservations.first().is_none_or(|first| first >= below)
    }

    /// Makes a record visible: header and payload are whole in the page cache. The records of a group are published in
    /// order and, for readers to see all or none, under one lock.
    ///
    /// # Panics
    /// If it is not the next record reserved, or is stamped below the newest of its chunk ([`MultiLog::accepts`]).
    ///
    /// # Cost
    /// Less than a microsecond for a record of up to 64 KiB, and about 30 ns for each page of 64 KiB beyond.
    pub fn publish(&mut self, header: &RecordHeader, spot: &Spot) {
        let end = self.segments.last().map(|segment| (segment.header.id, segment.end));
        assert!(
            !self.reservations.is_empty() && end == Some((spot.segment, spot.offset)),
            "{spot:?} is not the next, the log ends at {end:?}"
        );
        if let Some(why) = self.refuses(header) {
            panic!("the record with stamp {} of chunk {} cannot be published: {why}", header.stamp, header.chunk);
        }
        self.reservations.publish();
        self.admit(header, &spot.entry);
    }

    /// Ends the oldest reservation without records: writing it failed, or a reservation before it did. If the whole
    /// group may have reached the file, erase its first head: a process that dies before the room is used again would
    /// find it at its restart.
    ///
    /// Reservations behind it fail ([`MultiLog::has_failed`]). A segment that was to be made for the group is given up
    /// with its id; its file is free. The next group gets another.
    ///
    /// # Panics
    /// If a record of the group was published, or it is not the oldest.
    pub fn abandon(&mut self, reservation: Reservation) {
        self.reservations.abandon(reservation.id, reservation.spots.len());
        if reservation.roll.is_some() {
            self.segments.pop();
        }
    }

    /// Footers of segments that are full and durable up to `durable`; each is given once. One that is not written only
    /// costs time at recovery.
    pub fn sealable(&mut self, durable: LogPosition) -> Vec<Seal> {
        let mut seals = Vec::new();
        while let Some(segment) = self.segments.get_mut(self.closed) {
            match segment.state {
                SegmentState::Open => break,
                SegmentState::Full if segment.link().end > durable => break,
                SegmentState::Full => seals.push(segment.seal()),
                SegmentState::Closed => {}
            }
            self.closed += 1;
        }
        seals
    }

    /// A footer of the open segment for the records that are durable by `durable`; `None` if the last one named them
    /// all.
    ///
    /// Until a footer names a record, recovery must take damage to it for the torn end of the log. So a driver
    /// writes one at a clean stop, after the last sync, and once in a while: it costs about 10 bytes a record of the
    /// segment.
    pub fn checkpoint(&mut self, durable: LogPosition) -> Option<Seal> {
        let open = self.segments.last_mut().filter(|open| open.state == SegmentState::Open)?;
        if durable.segment != open.header.id {
            return None;
        }
        open.checkpoint(durable.offset)
    }

    /// Appends to `out` what a read of `range` of `chunk` at `at` has to fetch: pieces in order that cover the range
    /// exactly.
    ///
    /// `at` is inclusive; [`Hlc::MAX`] is now. Records stamped up to `after` are hidden, as a truncate or a patch of
    /// that stamp hides them: where only they lie, the plan has holes.
    ///
    /// # Panics
    /// If the range ends beyond 2^32, where no chunk reaches.
    ///
    /// # Cost
    /// O(log versions + entries of the pages touched), for an old instant as for now; no I/O.
    pub fn plan(&self, chunk: ChunkId, range: ByteRange, at: Hlc, after: Hlc, out: &mut Vec<Piece>) {
        assert!(range.end() <= 1 << 32, "{range} is beyond any chunk");
        let mut planner = Planner::new(self.record_files(), range.start(), out);
        if let Some(file) = self.file(chunk.inode).filter(|_| !range.is_empty()) {
            file.plan(chunk.index, range, at, after, None, &mut planner);
        }
        planner.hole(range.end());
    }

    /// Bytes of `range` of `chunk` that hold data at `at`; records stamped up to `after` are hidden. As many as the
    /// pieces with data of a [`MultiLog::plan`] have, which is not made.
    ///
    /// # Cost
    /// As a plan's, but no memory for it.
    pub fn data_in(&self, chunk: ChunkId, range: ByteRange, at: Hlc, after: Hlc) -> u64 {
        let file = self.file(chunk.inode).filter(|_| !range.is_empty());
        file.map_or(0, |file| file.data_in(chunk.index, range, at, after))
    }

    /// How far the records stamped in `(after, upto]` reach in these chunks.
    ///
    /// # Cost
    /// O(log records) for each chunk that has any.
    pub fn newest_in(&self, inode: InodeId, chunks: RangeInclusive<u32>, after: Hlc, upto: Hlc) -> Tail {
        self.file(inode).map_or(Tail::default(), |file| file.newest_in(chunks, after, upto))
    }

    /// Bytes among the first `upto` of a chunk that hold data at `at`, where no record of the chunk is hidden.
    ///
    /// # Errors
    /// What they are at most, where only a plan tells how many: at an instant before the newest record, where the chunk
    /// reaches beyond `upto`, and if it has records stamped up to `after`, which may be hidden.
    ///
    /// # Cost
    /// O(log records).
    pub fn live_in(&self, chunk: ChunkId, upto: u64, at: Hlc, after: Hlc) -> Result<u64, u64> {
        self.file(chunk.inode).map_or(Ok(0), |file| file.live_in(chunk.index, upto, at, after))
    }

    /// The chunks of a file among these that have a record, in order; the others are holes at every instant.
    pub fn chunks_in(&self, inode: InodeId, chunks: RangeInclusive<u32>) -> impl Iterator<Item = u32> + '_ {
        self.file(inode).into_iter().flat_map(move |file| file.chunks_in(chunks.clone()))
    }

    /// Records of a file stamped in `(after, upto]`, oldest first, those of one stamp by chunk, at most `max`. To go
    /// on, ask again after the last stamp; a group is in one answer unless `max` cuts it, so leave room for its parts.
    pub fn versions(&self, inode: InodeId, after: Hlc, upto: Hlc, max: usize) -> Vec<RecordHeader> {
        self.file(inode).map_or(Vec::new(), |file| file.versions(inode, after, upto, max, &self.writers))
    }

    /// Files with records stamped in `(after, upto]`, by number, and perhaps some without any
    /// ([`MultiLog::has_records`] tells), and how many entries of the index of time that took.
    ///
    /// # Cost
    /// The records of the interval, and at most 512 beside them: not those of other files or times.
    pub fn files_with_records(&self, after: Hlc, upto: Hlc) -> (Vec<InodeId>, u64) {
        let mut files = Vec::new();
        let looked_at = self.time_runs.files(after, upto, &mut files);
        (files, looked_at)
    }

    /// An instant in `(after, upto]` up to which about `records_max` records of all files follow `after`; `upto` if
    /// there are no more. A page of what was written ends there.
    ///
    /// # Cost
    /// One look for every 16,384 records of the interval, and the answer's share of the index of time.
    pub fn reach(&self, after: Hlc, upto: Hlc, records_max: usize) -> Hlc {
        self.time_runs.reach(after, upto, records_max)
    }

    /// As [`MultiLog::reach`], back from `upto`: an instant from which about `records_max` records follow up to `upto`;
    /// `after` if there are no more.
    pub fn reach_back(&self, after: Hlc, upto: Hlc, records_max: usize) -> Hlc {
        self.time_runs.reach_back(after, upto, records_max)
    }

    /// True if a record of the file is stamped in `(after, upto]`.
    pub fn has_records(&self, inode: InodeId, after: Hlc, upto: Hlc) -> bool {
        self.file(inode).is_some_and(|file| file.has_records(after, upto))
    }

    /// Stamp of the newest record that a session wrote; `None` if it wrote none.
    pub fn newest_of(&self, session: SessionId) -> Option<Hlc> {
        self.newest_of.get(&session).copied()
    }

    /// Bytes that were ever written to a file, those since overwritten or hidden included, those dead not.
    ///
    /// # Cost
    /// A pass over the file's records in memory.
    pub fn written_bytes(&self, inode: InodeId) -> u64 {
        self.file(inode).map_or(0, FileIndex::written_bytes)
    }

    /// The stamp at which the file is read to see it at user time `user`, among records stamped in `(after, upto]`.
    /// `None` if none of them has a user time.
    pub fn by_user_time(&self, inode: InodeId, user: UserTime, after: Hlc, upto: Hlc) -> Option<UserCut> {
        self.file(inode)?.marks()?.cut(user, after, upto)
    }

    /// Newest user time in a file, of records stamped in `(after, upto]`.
    pub fn newest_user_time(&self, inode: InodeId, after: Hlc, upto: Hlc) -> Option<UserTime> {
        self.file(inode)?.marks()?.newest(after, upto)
    }

    /// Newest version of a chunk, 0 without records.
    pub fn chunk_version(&self, chunk: ChunkId) -> u64 {
        self.file(chunk.inode).map_or(0, |file| file.chunk_version(chunk.index))
    }

    /// The newest number and stamp of a chain.
    pub fn chain_state(&self, chain: ChainId) -> ChainState {
        self.chains.get(&chain).copied().unwrap_or_default()
    }

    /// Bytes that the records take in segments.
    pub fn log_bytes(&self) -> u64 {
        self.log_bytes
    }

    /// End of the last published record; segment 0 in an empty log.
    pub fn end(&self) -> LogPosition {
        self.tip.end
    }

    /// Sizes.
    pub fn stats(&self) -> LogStats {
        let entry = (size_of::<(InodeId, FileIndex)>() + 1) * 8 / 7;
        let footers: usize = self.segments[self.closed..].iter().map(|segment| segment.entries.capacity()).sum();
        let segments = self.segments.capacity() * size_of::<LogSegment>();
        let sessions = self.newest_of.capacity() * (size_of::<(SessionId, Hlc)>() + 1) * 8 / 7;
        let who_and_when = sessions + self.writers.heap_bytes() + self.time_runs.heap_bytes() + self.gone.heap_bytes();
        let packs = self.packs.heap_bytes();
        let index_runs: usize = self.index_runs.iter().map(IndexRun::heap_bytes).sum();
        let maps = self.files.capacity() * entry + who_and_when + footers + segments + index_runs + packs;
        LogStats {
            records: self.records,
            log_bytes: self.log_bytes,
            index_bytes: self.files_bytes + maps as u64,
            footer_bytes: footers as u64,
            segments: self.segments.len() as u64,
            index_runs: self.index_runs.len() as u64,
            run_records: self.index_runs.iter().map(IndexRun::records).sum(),
            run_bytes: self.index_runs.iter().map(IndexRun::bytes).sum(),
            files: self.files.len() as u64,
        }
    }

    /// True while a reservation has not ended.
    pub fn has_reservations(&self) -> bool {
        !self.reservations.is_empty()
    }

    /// Records in it that their chains do not have, by chain.
    pub fn discarded(&self) -> &[Discards] {
        &self.discarded
    }

    /// The settings in effect.
    pub fn settings(&self) -> &LogSettings {
        &self.settings
    }

    /// True if a record can be the next one: the records of a chunk come in the order of their stamps, those of
    /// different chunks in any.
    pub fn accepts(&self, header: &RecordHeader) -> bool {
        self.refuses(header).is_none()
    }

    /// What speaks against a record as the next one.
    pub(crate) fn refuses(&self, header: &RecordHeader) -> Option<&'static str> {
        self.files.get(&header.chunk.inode).and_then(|file| file.refuses(header))
    }

    /// Where records lie.
    pub(crate) fn record_files(&self) -> RecordFiles<'_> {
        RecordFiles::new(&self.segments, &self.packs)
    }

    /// The slot from which on segments are not indexed.
    pub(crate) fn indexed_slot(&self) -> u32 {
        slot_of(self.indexed)
    }

    /// True if an index run or a pack may say something of a file.
    pub(crate) fn may_be_indexed(&self, inode: InodeId) -> bool {
        (self.indexed > 0 && self.indexed_newest.may_have(inode)) || self.packs.may_have(inode)
    }

    /// What is known of a file, if there is anything.
    ///
    /// # Panics
    /// If it is evicted: an answer without what is on the index runs would be a wrong one.
    pub(crate) fn file(&self, inode: InodeId) -> Option<&FileIndex> {
        let Some(file) = self.files.get(&inode) else {
            assert!(!self.may_be_indexed(inode), "inode {inode} is asked for while it is evicted");
            return None;
        };
        assert!(!file.is_partial(), "inode {inode} is asked for while most of it is evicted");
        file.touch(self.tick);
        Some(file)
    }

    /// Adds a record that is whole, as the next of the last segment.
    pub(crate) fn admit(&mut self, header: &RecordHeader, entry: &FooterEntry) {
        let slot = self.segments.len() - 1;
        let segment = &mut self.segments[slot];
        let RecordSpan { start, place, end, .. } = segment.cursor.span(&segment.header, header, entry);
        let begins = LogPosition { segment: segment.header.id, offset: start };
        let place = RecordPlace { slot: slot_of(slot), at: place as u32, head: (place - start) as u8 };
        self.log_bytes += end - start;
        segment.add(header, entry);
        if let Some(numbers) = &mut segment.numbers {
            numbers::note(numbers, header);
        }
        self.tip = segment.link();
        self.records += 1;
        self.time_runs.push(header.chunk.inode, header.stamp);
        let newest = self.newest_of.entry(header.session).or_default();
        *newest = header.stamp.max(*newest);
        let chain = self.chains.entry(header.chain).or_default();
        *chain = ChainState { n: chain.n.max(header.n), stamp: chain.stamp.max(header.stamp) };
        if self.packs.holds(header, begins) {
            // Its pack says where it is, if it is still anywhere.
            return;
        }
        let (writer, inode) = (self.writers.number_of(WriterKey::of(header)), header.chunk.inode);
        let evicted = self.may_be_indexed(inode);
        let file = self
            .files
            .entry(inode)
            .or_insert_with(|| if evicted { FileIndex::partial() } else { FileIndex::default() });
        self.files_bytes += file.push(header, place, writer) as u64;
    }

    /// Starts a segment and returns what the driver has to make.
    fn roll(&mut self) -> NewSegment {
        if let Some(full) = self.segments.last_mut().filter(|segment| segment.state == SegmentState::Open) {
            full.state = SegmentState::Full;
        }
        let id = self.next_segment;
        self.next_segment = SegmentId(id.0 + 1);
        let header = SegmentHeader {
            id,
            tag: Rng::new(self.settings.seed ^ id.0.rotate_left(32)).next(),
            bytes: self.settings.segment_bytes,
            previous: self.segments.last().map_or(SegmentLink::default(), LogSegment::link),
            block_bytes: self.settings.block_bytes,
        };
        self.segments.push(LogSegment::new(header));
        NewSegment { id, bytes: header.bytes, header: header.encode().to_vec() }
    }
}
