//! What a pack is made of, and putting it in the place of records and older packs.

use std::collections::BTreeSet;

use frieze_base::{ChainId, InodeId, SegmentId};
use frieze_hlc::Hlc;

use super::{PackIndex, PackIndexBuilder, PackKey, PackedLoss, PackedRecord};
use crate::index::{DroppedSpan, FileIndex, PackableRecord};
use crate::index_run::IndexFetch;
use crate::log::MultiLog;
use crate::numbers::ChainNumbers;
use crate::plan::StoredSpan;
use crate::record::{RecordHeader, RecordKind};

/// What a pack is to have of a file.
#[derive(Clone, Debug)]
pub struct FileToPack {
    inode: InodeId,
    /// Its records, chunk by chunk, those of each in order.
    pub records: Vec<RecordToPack>,
    losses: Vec<PackedLoss>,
}

/// A record that is to be packed.
#[derive(Clone, Debug)]
pub struct RecordToPack {
    /// The record.
    pub header: RecordHeader,
    /// Where its payload is now; `None` if it has none, or died.
    pub stored: Option<StoredSpan>,
    is_dead: bool,
    /// The kept instant that it is the first to show at; its stamp, where all instants are kept.
    pub shown_from: Hlc,
}

impl FileToPack {
    /// Adds the file to the index of a pack; `places` has where the block checksums of each record begin there.
    pub fn add_to(&self, index: &mut PackIndexBuilder, places: &[u32]) {
        let packed = |(record, at): (&RecordToPack, &u32)| PackedRecord {
            header: record.header.clone(),
            at: *at,
            is_dead: record.is_dead,
        };
        let records: Vec<PackedRecord> = self.records.iter().zip(places).map(packed).collect();
        index.add(self.inode, &records, &self.losses);
    }
}

impl MultiLog {
    /// The packs in use, by chain and number.
    pub fn packs(&self) -> impl Iterator<Item = &PackIndex> {
        self.packs.iter()
    }

    /// What of a file is packed: its records of the numbers of `key`, stamped up to `upto`. Those that are dead go, but
    /// for what is asked of them at the instants `kept`, as in memory ([`MultiLog::compact_index`]). `None` if it has
    /// none.
    ///
    /// # Panics
    /// If the file is evicted.
    pub fn file_to_pack(&self, inode: InodeId, key: PackKey, upto: Hlc, kept: &[Hlc]) -> Option<FileToPack> {
        let file = self.file(inode)?;
        let chain_of = |writer| self.writers.get(writer).chain;
        let (mut records, mut lost) = (Vec::new(), file.losses_upto(upto));
        for PackableRecord { header, record, writer, stays } in
            file.chunks_to_pack((inode, key), upto, kept, &self.writers)
        {
            if !stays {
                lost.push(DroppedSpan { writer: Some(writer), first: header.stamp, last: header.stamp });
                continue;
            }
            let is_dead = record.is_dead();
            let has_bytes = header.kind == RecordKind::Write && !is_dead;
            let stored = has_bytes.then(|| self.record_files().span(&record));
            let after = kept.partition_point(|kept| *kept < header.stamp);
            let shown_from = kept.get(after).copied().unwrap_or(header.stamp);
            records.push(RecordToPack { header, stored, is_dead, shown_from });
        }
        lost.retain(|loss| loss.writer.is_none_or(|writer| chain_of(writer) == key.chain));
        let losses = FileIndex::merged(lost).map(|loss| {
            let writer = loss.writer.map(|writer| self.writers.get(writer));
            PackedLoss { writer, first: loss.first, last: loss.last }
        });
        let losses = losses.collect();
        (!records.is_empty()).then_some(FileToPack { inode, records, losses })
    }

    /// From now on a pack, which is on stable storage, has its records; those of `old`, whose numbers it has too, are
    /// not used any more. Files in memory keep their places until [`MultiLog::put_packed`].
    pub fn put_pack(&mut self, pack: PackIndex, old: &[SegmentId]) {
        self.discards = self.discards.wrapping_add(1);
        self.packs.put(pack, old);
    }

    /// Begins to fetch what a pack says of a file that is in memory. `None` if there is nothing to replace.
    pub fn begin_put_packed(&self, inode: InodeId, pack: SegmentId) -> Option<IndexFetch> {
        self.files.get(&inode).filter(|file| !file.is_partial())?;
        self.fetch_packed(inode, pack)
    }

    /// Puts what was fetched and built in the place of what is in memory of the pack's numbers.
    pub fn put_packed(&mut self, fetch: IndexFetch, pack: SegmentId) {
        let (inode, mut packed) = fetch.into_file();
        let Some(put) = self.packs.get(pack) else { return };
        let of_chain = self.packs.iter().filter(|before| before.key().chain == put.key().chain);
        let before = of_chain.filter(|before| before.key().last < put.key().first).map(PackIndex::newest);
        let (after, upto) = (before.max().unwrap_or_default(), put.newest());
        if let Some(file) = self.files.get_mut(&inode).filter(|file| !file.is_partial()) {
            self.files_bytes -= file.heap_bytes();
            file.put_packed(&mut packed, after, upto);
            self.files_bytes += file.heap_bytes();
        }
    }

    /// Counts how often something was discarded or packed.
    pub fn changes(&self) -> u32 {
        self.discards
    }

    /// Where the payload of a record of a chunk lies; `None` if it died, or has none.
    ///
    /// # Panics
    /// If the file is evicted.
    pub fn payload_place(&self, header: &RecordHeader) -> Option<StoredSpan> {
        let file = self.file(header.chunk.inode)?;
        let record = file.record_at(header.chunk.index, header.stamp, header.offset)?;
        Some(self.record_files().span(&record))
    }

    /// Nothing of the packs of a chain is read in segments any more, up to number `last`: the space there may be given
    /// back ([`MultiLog::discarded_in`]).
    pub fn release_packed(&mut self, chain: ChainId, last: u64) {
        self.packs.release(chain, last);
    }

    /// The indexed segments that have, or may have, records of these numbers, oldest first.
    pub fn segments_of_numbers(&self, key: PackKey) -> Vec<SegmentId> {
        let has = |known: &ChainNumbers| known.chain == key.chain && known.first <= key.last && known.last >= key.first;
        let indexed = self.segments[..self.indexed].iter();
        let may_have = indexed.filter(|segment| segment.numbers.as_ref().is_none_or(|all| all.iter().any(has)));
        may_have.map(|segment| segment.header.id).collect()
    }

    /// Takes the packs of chains out of the log.
    pub(crate) fn take_out_packs(&mut self, chains: &BTreeSet<ChainId>) {
        self.packs.take_out(&|chain| chains.contains(&chain));
    }
}
