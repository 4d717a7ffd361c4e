//! What is in memory of the indexed part, and how the rest comes back.

use frieze_base::{FastMap, InodeId, SegmentId, crc32c};
use frieze_hlc::Hlc;

use super::build::RunBuilder;
use super::format::{IndexRun, RunBlock, RunContents, SegmentFacts};
use super::key::RunKey;
use super::merge::{file_at, pieces_of};
use super::piece::{self, RunRecord};
use crate::discarded::is_discarded;
use crate::error::Error;
use crate::header::LogPosition;
use crate::index::{DroppedSpan, FIRST_SEGMENT_SLOT, FileIndex, RecordPlace, WriterKey};
use crate::log::MultiLog;
use crate::pack::{PackedLoss, decode_file};
use crate::record_files::slot_of;
use crate::segment::SegmentState;

/// What has a part of the index on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexSource {
    /// An index run.
    Run(RunKey),
    /// A pack, by its number.
    Pack(SegmentId),
}

/// A file on its way from packs and index runs to memory: [`MultiLog::fetch`], then [`IndexFetch::take`] for each read
/// that it asks for, [`MultiLog::number`], [`IndexFetch::build`], [`MultiLog::put_back`].
#[derive(Debug)]
pub struct IndexFetch {
    inode: InodeId,
    /// Segments that were indexed when it began: once there are more, it is started again.
    indexed: usize,
    /// How often something had been discarded or packed then: the same.
    discards: u32,
    reads: Vec<BlockRead>,
    taken: usize,
    records: Vec<RunRecord>,
    /// For each record the position of its segment and the number of its writer.
    numbers: Vec<(u32, u32)>,
    /// What packs say of records that left.
    losses: Vec<PackedLoss>,
    file: FileIndex,
}

/// A block that may hold the file.
#[derive(Debug)]
struct BlockRead {
    source: IndexSource,
    block: RunBlock,
}

impl IndexFetch {
    /// The next bytes it needs: of what, from where, how many. `None` if it has all.
    pub fn next_read(&self) -> Option<(IndexSource, u64, usize)> {
        let BlockRead { source, block, .. } = self.reads.get(self.taken)?;
        Some((*source, block.offset, block.len as usize))
    }

    /// True if these bytes are what [`IndexFetch::next_read`] asks for, as they were written.
    pub fn accepts(&self, bytes: &[u8]) -> bool {
        self.reads
            .get(self.taken)
            .is_some_and(|BlockRead { block, .. }| bytes.len() == block.len as usize && crc32c(bytes) == block.crc)
    }

    /// Takes in what [`IndexFetch::next_read`] asked for.
    ///
    /// # Errors
    /// `DamagedIndexRun` or `DamagedPack` if it is not what was written.
    ///
    /// # Panics
    /// If nothing was asked for.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let source = self.reads[self.taken].source;
        let damaged = || match source {
            IndexSource::Run(run) => Error::DamagedIndexRun { run },
            IndexSource::Pack(pack) => Error::DamagedPack { pack },
        };
        if !self.accepts(bytes) {
            return Err(damaged());
        }
        let mut at = 0;
        while at < bytes.len() {
            let (inode, range) = file_at(bytes, at).ok_or_else(damaged)?;
            at = range.end;
            if inode < self.inode {
                continue;
            }
            if let (true, IndexSource::Pack(pack)) = (inode == self.inode, source) {
                let (records, losses) = decode_file(inode, &bytes[range]).ok_or_else(damaged)?;
                self.records.extend(records.into_iter().map(|record| RunRecord { segment: pack, ..record }));
                self.losses.extend(losses);
            } else if inode == self.inode {
                let mut pieces = Vec::new();
                pieces_of(&bytes[range], &mut pieces).ok_or_else(damaged)?;
                for piece in pieces {
                    piece::decode(inode, piece, &mut self.records).ok_or_else(damaged)?;
                }
            }
            break;
        }
        self.taken += 1;
        Ok(())
    }

    /// The file that was built.
    pub(crate) fn into_file(self) -> (InodeId, FileIndex) {
        (self.inode, self.file)
    }

    /// Makes what was taken in the index of the file. To be called with no lock held, after [`MultiLog::number`].
    ///
    /// # Cost
    /// About half a microsecond a record.
    pub fn build(&mut self) {
        assert_eq!(self.numbers.len(), self.records.len(), "records are numbered before they are built");
        for (record, &(slot, writer)) in self.records.iter().zip(&self.numbers) {
            // The log left it out too.
            if self.file.refuses(&record.header).is_none() {
                let is_dead = (slot as usize) < FIRST_SEGMENT_SLOT && record.head != 0;
                let place = RecordPlace { slot, at: record.at, head: if is_dead { 0 } else { record.head } };
                self.file.push_as(&record.header, place, writer, is_dead);
            }
        }
        self.records = Vec::new();
    }
}

impl MultiLog {
    /// True if records of the file are in index runs only: it has to be fetched before it is asked for.
    pub fn is_evicted(&self, inode: InodeId) -> bool {
        match self.files.get(&inode) {
            Some(file) => file.is_partial(),
            None => self.may_be_indexed(inode),
        }
    }

    /// Begins to fetch a file that is evicted.
    pub fn fetch(&self, inode: InodeId) -> IndexFetch {
        let packed = self.packs.iter().filter_map(|pack| {
            Some(BlockRead { source: IndexSource::Pack(pack.place().id), block: pack.block_of(inode)? })
        });
        let reads = self.index_runs.iter().filter_map(|index_run| {
            let at = index_run.blocks.partition_point(|block| block.first <= inode).checked_sub(1)?;
            index_run
                .newest
                .may_have(inode)
                .then(|| BlockRead { source: IndexSource::Run(index_run.key), block: index_run.blocks[at] })
        });
        // Packs first: they have the oldest records of their chains.
        self.fetch_from(inode, packed.chain(reads).collect())
    }

    /// Begins to fetch what a pack says of a file.
    pub(crate) fn fetch_packed(&self, inode: InodeId, pack: SegmentId) -> Option<IndexFetch> {
        let block = self.packs.get(pack)?.block_of(inode)?;
        Some(self.fetch_from(inode, vec![BlockRead { source: IndexSource::Pack(pack), block }]))
    }

    fn fetch_from(&self, inode: InodeId, reads: Vec<BlockRead>) -> IndexFetch {
        let (indexed, discards) = (self.indexed, self.discards);
        let (records, numbers, losses) = (Vec::new(), Vec::new(), Vec::new());
        IndexFetch { inode, indexed, discards, reads, taken: 0, records, numbers, losses, file: FileIndex::default() }
    }

    /// Numbers the segments and writers of what was fetched, but for what was discarded since it was indexed. False if
    /// it names a segment that is not in the log.
    pub fn number(&mut self, fetch: &mut IndexFetch) -> bool {
        let begins = |placed: &RunRecord| LogPosition {
            segment: placed.segment,
            offset: u64::from(placed.at) - u64::from(placed.head),
        };
        let mut pack = None;
        fetch.records.retain(|placed| {
            if placed.segment.is_pack() {
                // Records of a pack follow each other.
                if pack.is_none_or(|(id, _)| id != placed.segment) {
                    pack = self.packs.get(placed.segment).map(|pack| (placed.segment, pack.place().upto));
                }
                return pack.is_some_and(|(_, upto)| placed.header.n <= upto);
            }
            let begins = begins(placed);
            !is_discarded(&self.discarded, &placed.header, begins) && !self.packs.holds(&placed.header, begins)
        });
        let mut slots: FastMap<SegmentId, u32> = FastMap::default();
        fetch.numbers.clear();
        for RunRecord { header, segment, .. } in &fetch.records {
            let slot = match slots.get(segment) {
                Some(&slot) => slot,
                None if segment.is_pack() => {
                    let Some(slot) = self.packs.slot_of(*segment) else { return false };
                    slots.insert(*segment, slot);
                    slot
                }
                None => {
                    let Ok(slot) = self.segments.binary_search_by_key(segment, |known| known.header.id) else {
                        return false;
                    };
                    slots.insert(*segment, slot_of(slot));
                    slot_of(slot)
                }
            };
            let writer = self.writers.number_of(WriterKey::of(header));
            fetch.numbers.push((slot, writer));
        }
        for PackedLoss { writer, first, last } in fetch.losses.drain(..) {
            let writer = writer.map(|writer| self.writers.number_of(writer));
            fetch.file.lose(DroppedSpan { writer, first, last });
        }
        true
    }

    /// Makes a fetched file known. False if it has to be started again, since more was indexed, or discarded,
    /// meanwhile.
    pub fn put_back(&mut self, fetch: IndexFetch) -> bool {
        if !self.is_evicted(fetch.inode) {
            return true;
        }
        if (fetch.indexed, fetch.discards) != (self.indexed, self.discards) {
            return false;
        }
        let mut file = fetch.file;
        if let Some(unsealed) = self.take_file(fetch.inode) {
            for (header, place) in unsealed.records_from(fetch.inode, self.indexed_slot(), &self.writers) {
                // As all of it together would have said when it was recovered.
                if file.refuses(&header).is_none() {
                    let writer = self.writers.number_of(WriterKey::of(&header));
                    file.push(&header, place, writer);
                }
            }
        }
        if self.gone.holds(fetch.inode) {
            file.mark_dead(Hlc::MAX, true, &mut |_| true);
        }
        self.tick = self.tick.wrapping_add(1);
        file.fetched(self.tick);
        self.files_bytes += file.heap_bytes();
        self.files.insert(fetch.inode, file);
        true
    }

    /// Files whose memory can be given back until at most `bytes_max` are held, those first that were fetched once and
    /// not asked for again since, then those not asked for the longest. None if no more is held.
    ///
    /// # Cost
    /// A pass over the files in memory.
    pub fn to_evict(&self, bytes_max: u64) -> Vec<InodeId> {
        let held = self.stats().index_bytes;
        let Some(mut surplus) = held.checked_sub(bytes_max).filter(|surplus| *surplus > 0) else { return Vec::new() };
        let indexed = self.indexed_slot();
        let bonus = (self.files.len() as u32).saturating_mul(8);
        let entry = (size_of::<(InodeId, FileIndex)>() + 1) as u64;
        let mut candidates: Vec<(u32, u64, InodeId)> = (self.files.iter())
            .filter(|(_, file)| file.can_leave(indexed))
            .map(|(inode, file)| (file.idle(self.tick, bonus), file.heap_bytes() + entry, *inode))
            .collect();
        candidates.sort_unstable_by(|a, b| b.cmp(a));
        let mut chosen = Vec::new();
        for (_, bytes, inode) in candidates {
            if surplus == 0 {
                break;
            }
            surplus = surplus.saturating_sub(bytes);
            chosen.push(inode);
        }
        chosen
    }

    /// Drops these files from memory but for their unsealed records; they are away from then on. Those with dead
    /// records stay.
    pub fn evict(&mut self, inodes: &[InodeId]) {
        for &inode in inodes {
            let indexed = self.indexed_slot();
            if !self.files.get(&inode).is_some_and(|file| file.can_leave(indexed)) {
                continue;
            }
            let Some(file) = self.take_file(inode) else { continue };
            let unsealed = file.records_from(inode, indexed, &self.writers);
            if unsealed.is_empty() {
                continue;
            }
            let mut part = FileIndex::partial();
            for (header, place) in unsealed {
                let writer = self.writers.number_of(WriterKey::of(&header));
                part.push(&header, place, writer);
            }
            self.files_bytes += part.heap_bytes();
            self.files.insert(inode, part);
        }
        if self.files.capacity() > 4 * self.files.len() + 1024 {
            self.files.shrink_to(2 * self.files.len());
        }
    }

    /// Takes a file out of memory.
    fn take_file(&mut self, inode: InodeId) -> Option<FileIndex> {
        let file = self.files.remove(&inode)?;
        self.files_bytes -= file.heap_bytes();
        Some(file)
    }

    /// Sealed segments that are not indexed yet, oldest first. Their footers may still be on their way to the disk.
    pub fn segments_to_index(&self) -> Vec<SegmentId> {
        let sealed = self.segments[self.indexed..].iter().take_while(|segment| segment.state == SegmentState::Closed);
        sealed.map(|segment| segment.header.id).collect()
    }

    /// The segments of an index run, oldest first.
    pub fn segments_of(&self, key: RunKey) -> Vec<SegmentId> {
        let ids = self.segments.iter().map(|segment| segment.header.id);
        ids.filter(|id| (key.first..=key.last).contains(id)).collect()
    }

    /// Adds a segment to an index run in the making, by its footer as read back from stable storage. False if the
    /// footer is not whole: then nothing was added.
    pub fn add_to_index_run(&self, id: SegmentId, footer: &[u8], index_run: &mut RunBuilder) -> bool {
        let Some(entries) = self.footer_entries(id, footer) else { return false };
        let Ok(at) = self.segments.binary_search_by_key(&id, |segment| segment.header.id) else { return false };
        index_run.add(&SegmentFacts::of(&self.segments[at]), entries, &self.discarded)
    }

    /// From now on these segments are indexed: they follow what was indexed before, and the index run is on stable
    /// storage.
    ///
    /// # Panics
    /// If they do not.
    pub fn add_index_run(&mut self, index_run: IndexRun) {
        let first = self.segments.get(self.indexed).map(|segment| segment.header.id);
        assert_eq!(first, Some(index_run.key.first), "index_runs follow each other");
        let last = self.segments.get(self.indexed + index_run.segments - 1).map(|segment| segment.header.id);
        assert_eq!(last, Some(index_run.key.last), "a index_run of other segments");
        self.indexed += index_run.segments;
        self.indexed_newest.merge(&index_run.newest);
        self.index_runs.push(index_run);
    }

    /// Index runs that are better made one, as they follow each other; `None` if there is nothing to gain.
    pub fn to_merge(&self) -> Option<Vec<RunKey>> {
        let sizes: Vec<u64> = self.index_runs.iter().map(IndexRun::records).collect();
        let mut from = sizes.len().checked_sub(MERGE_MIN)?;
        let newer = |from: usize| sizes[from + 1..].iter().sum::<u64>();
        if sizes[from] > 2 * newer(from) {
            return None;
        }
        while from > 0 && sizes[from - 1] <= sizes[from..].iter().sum() {
            from -= 1;
        }
        Some(self.index_runs[from..].iter().map(IndexRun::key).collect())
    }

    /// Puts index runs that say the same of the same segments in the place of others, all of which follow each other.
    ///
    /// # Panics
    /// If they are not there, or of other segments.
    pub fn replace_index_runs(&mut self, old: &[RunKey], new: Vec<IndexRun>) {
        let at = self
            .index_runs
            .iter()
            .position(|index_run| Some(&index_run.key) == old.first())
            .expect("index_runs that are there");
        let segments = |index_runs: &[IndexRun]| index_runs.iter().map(IndexRun::segments).sum::<usize>();
        let held: Vec<RunKey> = self.index_runs[at..at + old.len()].iter().map(IndexRun::key).collect();
        assert_eq!(held, old, "index_runs that follow each other");
        assert_eq!(segments(&self.index_runs[at..at + old.len()]), segments(&new), "index_runs of other segments");
        self.index_runs.splice(at..at + old.len(), new);
    }

    /// The index runs in use, oldest first.
    pub fn index_runs(&self) -> impl Iterator<Item = &IndexRun> {
        self.index_runs.iter()
    }

    /// Takes in what an index run says, as recovery does: its segments are in the log already.
    pub(crate) fn take_contents(&mut self, contents: &RunContents) {
        for (session, newest) in &contents.sessions {
            let known = self.newest_of.entry(*session).or_default();
            *known = (*newest).max(*known);
        }
        for tip in &contents.chains {
            let chain = self.chains.entry(tip.chain).or_default();
            (chain.n, chain.stamp) = (chain.n.max(tip.n), chain.stamp.max(tip.stamp));
        }
        self.time_runs.append(&contents.time_runs);
        self.records += contents.facts.iter().map(|facts| facts.records).sum::<u64>();
        self.log_bytes += contents.log_bytes;
    }
}

/// So many index runs of like size become one: fewer write more often what was written before, more have to be
/// searched.
const MERGE_MIN: usize = 4;
