//! The records of one chain, found by their numbers; and those that lie in the log though their chain discarded them.
//!
//! Guarantees: of two records of one chain and number the later one counts. A discarded record is in no plan, no index
//! run and no list, whatever is recovered.
//! Leaves to others: which records a chain has (`chain`), reading footers and keeping the list of what was discarded
//! (`node`).
//!
//! A chain can be removed whole once other servers have it. No other record changes, and the bytes on disk stay until
//! they are given back ([`MultiLog::discarded_in`]).
//!
//! Every segment keeps which numbers of which chains it holds: 24 bytes for each chain. For a segment that recovery
//! took from an index run this is unknown until its footer is read. Numbers rise along the log, except where something
//! was discarded, so the search goes backwards from its end.

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::{ChainId, InodeId, SegmentId};

use crate::discarded::{Discards, is_discarded, sorted};
use crate::entry::{FooterEntries, FooterRecord};
use crate::header::LogPosition;
use crate::log::MultiLog;
use crate::numbers::{ChainNumbers, note};
use crate::plan::StoredSpan;
use crate::record::{RecordHeader, RecordKind};
use crate::segment::{LogSegment, SegmentState};

/// A record as its chain knows it, and where its bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberedRecord {
    /// The record.
    pub header: RecordHeader,
    /// Its payload; none of a punch, and none of a write that packs have ([`MultiLog::payload_place`]).
    pub stored: Option<StoredSpan>,
}

impl MultiLog {
    /// Takes chains out of the log whole: from now on every record of them that is in it counts as discarded, as
    /// `discarded` says, which is all that ever was. What of them is in memory goes by [`MultiLog::take_out`], before a
    /// record of them comes again.
    pub fn begin_take_out(&mut self, chains: &BTreeSet<ChainId>, discarded: Vec<Discards>) {
        self.discarded = sorted(discarded);
        self.discards = self.discards.wrapping_add(1);
        for segment in &mut self.segments {
            if let Some(numbers) = &mut segment.numbers {
                numbers.retain(|known| !chains.contains(&known.chain));
            }
        }
        self.chains.retain(|chain, _| !chains.contains(chain));
        self.take_out_packs(chains);
    }

    /// Takes the chunks of these chains out of files that are in memory. What an interval's files are may be said of
    /// one that has no record in it any more.
    ///
    /// # Cost
    /// Less than a microsecond a file, and that of giving back the memory.
    pub fn take_out(&mut self, inodes: &[InodeId], chains: &BTreeSet<ChainId>) {
        for inode in inodes {
            let may_be_indexed = self.may_be_indexed(*inode);
            let Some(file) = self.files.get_mut(inode) else { continue };
            self.files_bytes -= file.heap_bytes();
            file.take_out(&|writer| chains.contains(&self.writers.get(writer).chain));
            self.files_bytes += file.heap_bytes();
            // As one of which nothing was ever read, or which is evicted.
            if file.is_empty() && (file.is_partial() || !may_be_indexed) {
                self.files_bytes -= file.heap_bytes();
                self.files.remove(inode);
            }
        }
    }

    /// The files that are in memory, wholly or in part, by number.
    pub fn files_in_memory(&self) -> Vec<InodeId> {
        let mut files: Vec<InodeId> = self.files.keys().copied().collect();
        files.sort_unstable();
        files
    }

    /// A segment and what it lists: `footer`, its last one, if it is sealed. `None` if that is not what these bytes
    /// are.
    fn entries_of<'a>(
        &'a self,
        id: SegmentId,
        footer: Option<&'a [u8]>,
    ) -> Option<(&'a LogSegment, FooterEntries<'a>)> {
        let at = self.segments.binary_search_by_key(&id, |segment| segment.header.id).ok()?;
        let segment = &self.segments[at];
        let entries = match footer {
            Some(footer) => self.footer_entries(id, footer)?,
            None if segment.state == SegmentState::Closed => return None,
            None => &segment.entries,
        };
        Some((segment, FooterEntries::new(&segment.header, entries)))
    }

    /// Where what was discarded, or is read in packs only, lies in a segment: first bytes and ends, grown together.
    /// `footer`: its last one, if it is sealed. `None` if that is not what these bytes are.
    ///
    /// # Cost
    /// About 60 ns for each record of the segment.
    pub fn discarded_in(&self, id: SegmentId, footer: Option<&[u8]>) -> Option<BTreeMap<u64, u64>> {
        let mut runs: BTreeMap<u64, u64> = BTreeMap::new();
        for listed in self.entries_of(id, footer)?.1 {
            let begins = LogPosition { segment: id, offset: listed.span.start };
            let has_no_bytes = is_discarded(&self.discarded, &listed.header, begins)
                || self.packs.has_released(&listed.header, begins);
            if !has_no_bytes {
                continue;
            }
            match runs.last_entry().filter(|last| *last.get() == listed.span.start) {
                Some(mut last) => *last.get_mut() = listed.span.end,
                None => drop(runs.insert(listed.span.start, listed.span.end)),
            }
        }
        Some(runs)
    }

    /// A segment whose footer has to be read ([`MultiLog::list`]) before [`MultiLog::segments_with`] can tell where the
    /// records of `chain` after `after` are; `None` if it can.
    pub fn unlisted(&self, chain: ChainId, after: u64) -> Option<SegmentId> {
        for segment in self.segments.iter().rev() {
            let Some(numbers) = &segment.numbers else { return Some(segment.header.id) };
            if numbers.iter().any(|known| known.chain == chain && known.first <= after + 1) {
                return None;
            }
        }
        None
    }

    /// Takes in which chains a segment has records of. False if these bytes are not its last footer.
    pub fn list(&mut self, id: SegmentId, footer: &[u8]) -> bool {
        let Some(entries) = self.footer_entries(id, footer) else { return false };
        let Ok(at) = self.segments.binary_search_by_key(&id, |segment| segment.header.id) else { return false };
        let header = self.segments[at].header;
        let mut numbers = Vec::new();
        for listed in FooterEntries::new(&header, entries) {
            let begins = LogPosition { segment: id, offset: listed.span.start };
            if !is_discarded(&self.discarded, &listed.header, begins) {
                note(&mut numbers, &listed.header);
            }
        }
        self.segments[at].numbers = Some(numbers);
        true
    }

    /// The segments that hold records of `chain` after `after`, in the order of the log, and whether their footer is
    /// needed to list them.
    pub fn segments_with(&self, chain: ChainId, after: u64) -> Vec<(SegmentId, bool)> {
        let holds = |known: &&ChainNumbers| known.chain == chain && known.last > after;
        let segments =
            self.segments.iter().filter(|segment| segment.numbers.iter().flatten().any(|known| holds(&known)));
        segments.map(|segment| (segment.header.id, segment.state == SegmentState::Closed)).collect()
    }

    /// The records of `chain` in a segment after number `after`, in order, at most `max`. `footer`: its last footer, if
    /// it is closed. `None` if that is not what these bytes are.
    ///
    /// # Cost
    /// About 60 ns for each record of the segment.
    pub fn numbered(
        &self,
        chain: ChainId,
        id: SegmentId,
        footer: Option<&[u8]>,
        after: u64,
        max: usize,
    ) -> Option<Vec<NumberedRecord>> {
        let (segment, entries) = self.entries_of(id, footer)?;
        let of_chain = entries.filter(|listed| {
            let begins = LogPosition { segment: id, offset: listed.span.start };
            listed.header.chain == chain
                && listed.header.n > after
                && !is_discarded(&self.discarded, &listed.header, begins)
        });
        let is_here = |listed: &FooterRecord| {
            let begins = LogPosition { segment: id, offset: listed.span.start };
            listed.header.kind == RecordKind::Write && !self.packs.holds(&listed.header, begins)
        };
        let numbered = of_chain.take(max).map(|listed| NumberedRecord {
            stored: is_here(&listed).then_some(StoredSpan {
                segment: id,
                data_offset: listed.span.data,
                record_len: listed.header.len,
                skip: 0,
                crcs_offset: listed.span.place,
                block_bytes: segment.header.block_bytes,
                stamp: listed.header.stamp,
            }),
            header: listed.header,
        });
        Some(numbered.collect())
    }
}
