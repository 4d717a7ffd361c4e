//! Chunks without dead records: what no instant shows need not stay in memory.
//!
//! Guarantees: at every instant that is kept, a plan, the end of the file and the writes since any other instant are as
//! before. For the records that leave, the writer and the interval of their stamps stay known, so a read at an instant
//! that is not kept is refused as before, and of the dead between two kept instants one stays, so that it is known that
//! something died there. What is on disk stays as it is.
//! Leaves to others: which instants are kept (`node`).
//!
//! # Why a plan is the same
//! At an instant that is kept, a dead write shows nothing: later records cover it, or a stamp hides it. If what covers
//! it is dead too, that is covered or hidden in turn. The end of this chain is a write that shows and stays, a punch,
//! which stays, or a stamp that hides all that is older. So no older record below it becomes visible.

use frieze_base::InodeId;
use frieze_hlc::Hlc;

use super::archive::ArchivedRecord;
use super::chunk::Chunk;
use super::dropped::{DroppedSpan, DroppedSpans};
use super::file::FileIndex;
use super::record::IndexRecord;
use crate::RecordKind;

/// A chunk on its way to be without most of its dead records: [`crate::MultiLog::compact_index`],
/// [`CompactIndex::build`] with no lock held, [`crate::MultiLog::put_compact_index`].
#[derive(Debug)]
pub struct CompactIndex {
    pub(crate) inode: InodeId,
    chunk: u32,
    /// So many records the chunk had.
    taken: usize,
    /// Of these, what stays.
    stays: Vec<(IndexRecord, ArchivedRecord)>,
    lost: DroppedSpans,
    made: Chunk,
}

impl CompactIndex {
    /// Makes the chunk anew.
    ///
    /// # Cost
    /// About half a microsecond for each record that stays.
    pub fn build(&mut self) {
        for (record, archived) in std::mem::take(&mut self.stays) {
            self.made.push(record, archived);
        }
    }

    /// The chunk after it: where the next look begins.
    pub fn next_chunk(&self) -> u32 {
        self.chunk.saturating_add(1)
    }
}

impl FileIndex {
    /// Looks for the first chunk from `from` on of which enough is dead, and copies what stays of it. `kept`: the
    /// instants that are asked for up to the last of them, in order, and all after it.
    pub(crate) fn compact_index(&self, id: InodeId, from: u32, kept: &[Hlc]) -> Option<CompactIndex> {
        let from = self.chunks.partition_point(|(index, _)| *index < from);
        self.chunks[from..].iter().find_map(|(index, chunk)| chunk.compact_index(id, *index, kept))
    }

    /// Puts a chunk in its place that was rebuilt, and that of before into `compact`.
    pub(crate) fn put_compact_index(&mut self, compact: &mut CompactIndex) {
        let position = self.position_of(compact.chunk);
        let Some((_, chunk)) = self.chunks.get_mut(position).filter(|(index, _)| *index == compact.chunk) else {
            return;
        };
        self.heap_bytes -= chunk.heap_bytes();
        compact.made = chunk.replace(std::mem::take(&mut compact.made), compact.taken);
        let more: usize = compact.lost.drain().map(|loss| self.lost.add(loss)).sum();
        self.heap_bytes += chunk.heap_bytes() + more as u64;
    }
}

impl Chunk {
    /// Dead writes go. Stays what else is asked of records: the newest up to each instant, and the farthest reach
    /// from any stamp up to each. Punches stay: a plan shows them without naming them.
    fn compact_index(&self, inode: InodeId, index: u32, kept: &[Hlc]) -> Option<CompactIndex> {
        let goes = self.goes(self.count_upto(*kept.last()?), kept);
        let going = goes.iter().filter(|goes| **goes).count();
        if going == 0 || going * COMPACT_PART < self.records.len() {
            return None;
        }
        let taken = self.records.len();
        let mut compact = CompactIndex {
            inode,
            chunk: index,
            taken,
            stays: Vec::new(),
            lost: DroppedSpans::default(),
            made: Chunk::default(),
        };
        compact.stays.reserve_exact(taken - going);
        for (number, (record, archived)) in self.versions_of(0, taken).enumerate() {
            if goes.get(number) == Some(&true) {
                let stamp = record.stamp;
                compact.lost.add(DroppedSpan { writer: Some(archived.writer), first: stamp, last: stamp });
            } else {
                compact.stays.push((record, archived));
            }
        }
        Some(compact)
    }

    /// Which of the first `count` records are not needed any more at the instants `kept`.
    pub(super) fn goes(&self, count: usize, kept: &[Hlc]) -> Vec<bool> {
        let upto = kept.last().copied().unwrap_or_default();
        let mut later = kept.len();
        let (mut farthest, mut newest, mut death) = (0, true, true);
        let mut goes = vec![false; count];
        for number in (0..count).rev() {
            let record = self.records.get(number);
            while later > 0 && record.stamp <= kept[later - 1] {
                later -= 1;
                (farthest, newest, death) = (0, true, true);
            }
            // Of the dead between two kept instants one stays: where none died, every instant is exact.
            let is_last_death = death && record.is_dead();
            let needed = newest || is_last_death || record.reach() > farthest || record.stamp == upto;
            death &= !record.is_dead();
            farthest = farthest.max(record.reach());
            newest = false;
            goes[number] = !needed && record.is_dead() && record.kind() == RecordKind::Write;
        }
        goes
    }

    /// True if a record is dead of which no pack says so.
    pub(super) fn has_dead_outside_packs(&self) -> bool {
        self.records.range(0, self.records.len()).any(|record| record.is_dead() && !record.is_packed())
    }
}

/// A chunk is rebuilt if one in so many of its records goes: rebuilt more often, each record costs more.
const COMPACT_PART: usize = 4;
