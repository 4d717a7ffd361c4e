//! The records of one chain: lookup by number for a member that lacks them, and removal of records that the chain does
//! not have.
//!
//! Guarantees: returned payloads have passed their checksums; discarded records are durably removed once
//! [`Device::discard`] returns, and a crash before that leaves all of them or none. Leaves to others: which records a
//! chain has (`chain`), which member receives them (`data`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use frieze_base::{ChainId, Fault, Reason, SegmentId};
use frieze_disk::DiskFile;
use frieze_hlc::Hlc;
use frieze_multilog::{
    ChainTip, Discards, LogSource, MultiLog, NumberedRecord, PackIndex, Piece, PieceSource, RecordKind, RecoveredItem,
    RunKey, SegmentKey,
};

use super::index_runs::index_run_name;
use super::{Device, FileKey};

/// The segments of a device in use, as a source for recovery in place.
struct OpenSegments<'a> {
    files: BTreeMap<SegmentKey, Arc<dyn DiskFile>>,
    discarded: &'a [Discards],
    index_runs: BTreeMap<RunKey, Arc<dyn DiskFile>>,
    packs: Vec<PackIndex>,
}

impl LogSource for OpenSegments<'_> {
    fn segments(&mut self) -> Result<Vec<(SegmentKey, u64)>, Fault> {
        let mut found = Vec::with_capacity(self.files.len());
        for (key, file) in &self.files {
            found.push((*key, file.len()?));
        }
        Ok(found)
    }

    fn read(&mut self, key: SegmentKey, offset: u64, into: &mut [u8]) -> Result<usize, Fault> {
        let file = self.files.get(&key).expect("only segments that were listed are read");
        Ok(file.read_at(offset, into)?)
    }

    fn discarded(&mut self) -> Vec<Discards> {
        self.discarded.to_vec()
    }

    fn packs(&mut self) -> Vec<PackIndex> {
        std::mem::take(&mut self.packs)
    }

    fn index_runs(&mut self) -> Result<Vec<RunKey>, Fault> {
        Ok(self.index_runs.keys().copied().collect())
    }

    fn read_index_run(&mut self, key: RunKey, offset: u64, into: &mut [u8]) -> Result<usize, Fault> {
        let file = self.index_runs.get(&key).expect("only index runs that were listed are read");
        Ok(file.read_at(offset, into)?)
    }
}

impl Device {
    /// At most `max` records of a chain after number `after`, in order. Empty if there are none.
    ///
    /// # Errors
    /// `Corrupt` if a footer cannot be read; the disk's.
    ///
    /// # Cost
    /// Reads the footer of one segment; the first time after a restart also those of all younger segments.
    pub fn records_of(&self, chain: ChainId, after: u64, max: usize) -> Result<Vec<NumberedRecord>, Fault> {
        loop {
            let Some(id) = self.log().unlisted(chain, after) else { break };
            let footer = self.footer_of(id)?;
            if !self.log.write().list(id, &footer) {
                return Err(no_footer(id));
            }
        }
        let segments = self.log().segments_with(chain, after);
        for (id, is_closed) in segments {
            let footer = if is_closed { Some(self.footer_of(id)?) } else { None };
            let listed = self.log().numbered(chain, id, footer.as_deref(), after, max);
            let found = match listed {
                Some(found) => self.with_packed(found)?,
                // The segment was just closed: the next flush writes its footer.
                None if !is_closed => return Ok(Vec::new()),
                None => return Err(no_footer(id)),
            };
            if !found.is_empty() {
                return Ok(found);
            }
        }
        Ok(Vec::new())
    }

    /// The same records, with the places of those that packs have.
    fn with_packed(&self, mut found: Vec<NumberedRecord>) -> Result<Vec<NumberedRecord>, Fault> {
        let is_packed =
            |record: &&mut NumberedRecord| record.stored.is_none() && record.header.kind == RecordKind::Write;
        for record in found.iter_mut().filter(is_packed) {
            record.stored = self.packed_payload(&record.header)?;
        }
        Ok(found)
    }

    /// The payload of a record, and its checksum.
    ///
    /// # Errors
    /// `Corrupt` if it is damaged.
    pub fn payload_of(&self, record: &NumberedRecord) -> Result<(Bytes, u32), Fault> {
        let Some(stored) = record.stored else {
            if record.header.kind == RecordKind::Write {
                let words =
                    format!("record {} of chain {} died: its bytes are gone", record.header.n, record.header.chain);
                return Err(Fault::new(Reason::Corrupt, words));
            }
            return Ok((Bytes::new(), 0));
        };
        let piece = Piece { at: 0, len: stored.record_len, source: PieceSource::Data(stored) };
        let (mut bytes, mut scratch) = (vec![0; stored.record_len as usize], Vec::new());
        let crc = self.read_pieces(&[piece], 0, &mut bytes, &mut scratch)?;
        Ok((Bytes::from(bytes), crc))
    }

    /// True if no read needs the bytes of this record any more: their space may have been given back.
    ///
    /// # Errors
    /// As [`Device::log_of`].
    pub fn is_dead(&self, record: &NumberedRecord) -> Result<bool, Fault> {
        Ok(self.log_of([record.header.chunk.inode])?.is_dead(&record.header))
    }

    /// Record `n` of a chain: its kind, its payload, and the payload's checksum.
    ///
    /// # Errors
    /// As [`Device::payload_of`]; `Corrupt` if it is not in the log.
    pub fn payload_at(&self, chain: ChainId, n: u64) -> Result<(RecordKind, Bytes, u32), Fault> {
        let found = self.records_of(chain, n - 1, 1)?;
        match found.first().filter(|found| found.header.n == n) {
            Some(found) => self.payload_of(found).map(|(bytes, crc)| (found.header.kind, bytes, crc)),
            None => Err(Fault::new(Reason::Corrupt, format!("record {n} of chain {chain} is not in the log"))),
        }
    }

    /// The last record of each chain in the index runs.
    pub(super) fn tips(&self) -> BTreeMap<ChainId, ChainTip> {
        self.tips.lock().clone()
    }

    fn footer_of(&self, id: SegmentId) -> Result<Vec<u8>, Fault> {
        let sealed = self.log().sealed(id).ok_or_else(|| no_footer(id))?;
        let file = self.file(id)?;
        let mut footer = vec![0; (sealed.bytes - sealed.footer_at) as usize];
        let found = file.read_at(sealed.footer_at, &mut footer)?;
        self.tiers.note_untracked(FileKey::Segment(id));
        footer.truncate(found);
        Ok(footer)
    }

    /// True if a record of `len` bytes fits a segment of this device.
    pub fn fits(&self, len: usize) -> bool {
        let checksums = 4 * (len / self.block_bytes() + 1);
        (len + checksums + RECORD_OVERHEAD_BYTES) as u64 <= self.settings.segment_bytes
    }

    /// Removes every record of `chain` after `after` from the log, and replays the rest to `on_recovered`, as at a
    /// restart. `keep` makes durable what a restart has to know: all discards so far, and this one with the place in
    /// its argument. The caller locks out all other appends.
    ///
    /// # Errors
    /// `Busy`: retry. The disk's: then the log is as before, until the next start.
    ///
    /// # Cost
    /// As a restart: about a microsecond for each record outside of index runs.
    pub fn discard(
        &self,
        chain: ChainId,
        after: u64,
        keep: &mut dyn FnMut(Discards) -> Result<Vec<Discards>, Fault>,
        on_recovered: &mut dyn FnMut(RecoveredItem<'_>),
    ) -> Result<(), Fault> {
        // The thread that writes an index run may be waiting for the appender, which the caller has locked.
        let Some(_index_run_lock) = self.index_run_lock.try_lock() else {
            return Err(Fault::new(Reason::Busy, "the index is being written: try again"));
        };
        let _evicting = self.evicting.lock();
        let before = self.flush()?;
        let shelved = self.tips().get(&chain).map_or(0, |tip| tip.n);
        if shelved > after {
            // Rare: discarded records as old as those in index runs. The footers have all that the runs had.
            let mut index_runs = self.index_runs.write();
            while let Some((key, _)) = index_runs.pop_last() {
                self.tiers.forget_file(FileKey::IndexRun(key));
                self.disk.remove(&index_run_name(key))?;
            }
            drop(index_runs);
            self.disk.sync_dir()?;
        }
        let discarded = keep(Discards { chain, after, before })?;
        self.removals.fetch_add(1, Ordering::Relaxed);
        self.drop_packs(&|other| (other == chain).then_some(after))?;
        let files = self.files.read().clone();
        let files =
            files.into_iter().filter(|(id, _)| !id.is_pack()).map(|(id, file)| (SegmentKey(id.0), file)).collect();
        let index_runs = self.index_runs.read().clone();
        let mut tips = BTreeMap::new();
        let mut source = OpenSegments { files, discarded: &discarded, index_runs, packs: self.pack_indexes()? };
        let (log, report) = MultiLog::recover_upto(self.settings.clone(), &mut source, Hlc::MAX, &mut |recovered| {
            if let RecoveredItem::Indexed { chains, .. } = recovered {
                tips = chains.iter().map(|tip| (tip.chain, *tip)).collect();
            }
            on_recovered(recovered);
        })?;
        if report.end < before {
            let words = format!("the device log ends at {:?} and was durable up to {before:?}", report.end);
            return Err(Fault::new(Reason::Corrupt, words));
        }
        *self.tips.lock() = tips;
        *self.log.write() = log;
        Ok(())
    }
}

fn no_footer(id: SegmentId) -> Fault {
    Fault::new(Reason::Corrupt, format!("stored data is corrupt: the footer of segment {id} cannot be read"))
}

/// Bytes of a record besides payload and checksums, with its footer entry, and of a segment besides records.
const RECORD_OVERHEAD_BYTES: usize = 1024;
