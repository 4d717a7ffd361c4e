//! The records of one chain: found by their numbers for a member that lacks them, and taken out where the chain does
//! not have them.
//!
//! Guarantees: what is handed out has passed its checksums; what was discarded is gone for good once
//! [`Device::discard`] returns, and a crash before that leaves it wholly there or wholly gone. Leaves to others: which
//! records a chain has (`chain`), who is sent them (`data`).

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use frieze_base::{ChainId, Fault, Reason, SegmentId};
use frieze_disk::DiskFile;
use frieze_hlc::Hlc;
use frieze_multilog::{
    ChainTip, Discards, LogSource, MultiLog, NumberedRecord, Piece, PieceSource, RecordKind, RecoveredItem, RunKey,
    SegmentKey,
};

use super::shelves::shelf_name;
use super::{Device, FileKey};

/// The segments of a device that is in use, to be recovered from where it stands.
struct Standing<'a> {
    files: BTreeMap<SegmentKey, Arc<dyn DiskFile>>,
    discarded: &'a [Discards],
    shelves: BTreeMap<RunKey, Arc<dyn DiskFile>>,
}

impl LogSource for Standing<'_> {
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

    fn index_runs(&mut self) -> Result<Vec<RunKey>, Fault> {
        Ok(self.shelves.keys().copied().collect())
    }

    fn read_index_run(&mut self, key: RunKey, offset: u64, into: &mut [u8]) -> Result<usize, Fault> {
        let file = self.shelves.get(&key).expect("only shelves that were listed are read");
        Ok(file.read_at(offset, into)?)
    }
}

impl Device {
    /// The first records of a chain after number `after`, in order: some, at most `max`. None if there are none.
    ///
    /// # Errors
    /// `Corrupt` if a footer cannot be read; the disk's.
    ///
    /// # Cost
    /// Reads the footer of one segment, the first time after a restart of each that is younger too.
    pub fn records_of(&self, chain: ChainId, after: u64, max: usize) -> Result<Vec<NumberedRecord>, Fault> {
        loop {
            let Some(id) = self.log().unlisted(chain, after) else { break };
            let footer = self.footer_of(id)?;
            if !self.log.write().unwrap_or_else(PoisonError::into_inner).list(id, &footer) {
                return Err(no_footer(id));
            }
        }
        let segments = self.log().segments_with(chain, after);
        for (id, is_closed) in segments {
            let footer = if is_closed { Some(self.footer_of(id)?) } else { None };
            let found = match self.log().numbered(chain, id, footer.as_deref(), after, max) {
                Some(found) => found,
                // Closed in this moment: its footer is there with the next flush.
                None if !is_closed => return Ok(Vec::new()),
                None => return Err(no_footer(id)),
            };
            if !found.is_empty() {
                return Ok(found);
            }
        }
        Ok(Vec::new())
    }

    /// The payload of a record, and its checksum.
    ///
    /// # Errors
    /// `Corrupt` if it is damaged.
    pub fn payload_of(&self, record: &NumberedRecord) -> Result<(Bytes, u32), Fault> {
        let Some(stored) = record.stored else { return Ok((Bytes::new(), 0)) };
        let piece = Piece { at: 0, len: stored.record_len, source: PieceSource::Data(stored) };
        let (mut bytes, mut scratch) = (vec![0; stored.record_len as usize], Vec::new());
        let crc = self.read_pieces(&[piece], 0, &mut bytes, &mut scratch)?;
        Ok((Bytes::from(bytes), crc))
    }

    /// True if no read needs the bytes of this record any more: they may have been given back.
    ///
    /// # Errors
    /// As [`Device::log_of`].
    pub fn is_dead(&self, record: &NumberedRecord) -> Result<bool, Fault> {
        Ok(self.log_of([record.meta.chunk.inode])?.is_dead(&record.meta))
    }

    /// Record `n` of a chain: what it does, its payload, and that one's checksum.
    ///
    /// # Errors
    /// As [`Device::payload_of`]; `Corrupt` if it is not in the log.
    pub fn payload_at(&self, chain: ChainId, n: u64) -> Result<(RecordKind, Bytes, u32), Fault> {
        let found = self.records_of(chain, n - 1, 1)?;
        match found.first().filter(|found| found.meta.n == n) {
            Some(found) => self.payload_of(found).map(|(bytes, crc)| (found.meta.kind, bytes, crc)),
            None => Err(Fault::new(Reason::Corrupt, format!("record {n} of chain {chain} is not in the log"))),
        }
    }

    /// The last record of each chain among those on shelves.
    pub(super) fn tips(&self) -> BTreeMap<ChainId, ChainTip> {
        self.tips.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn footer_of(&self, id: SegmentId) -> Result<Vec<u8>, Fault> {
        let sealed = self.log().sealed(id).ok_or_else(|| no_footer(id))?;
        let file = self.file(id)?;
        let mut footer = vec![0; (sealed.bytes - sealed.footer_at) as usize];
        let found = file.read_at(sealed.footer_at, &mut footer)?;
        self.tiers.touched(FileKey::Segment(id));
        footer.truncate(found);
        Ok(footer)
    }

    /// True if a record of so many bytes fits a segment of this device.
    pub fn fits(&self, len: usize) -> bool {
        let checksums = 4 * (len / self.block_bytes() + 1);
        (len + checksums + RECORD_OVERHEAD_BYTES) as u64 <= self.settings.segment_bytes
    }

    /// Takes every record of `chain` after `after` out of the log, and shows what is left of it, as at a restart, to
    /// `on_recovered`. `keep` makes durable what has to be known at a restart: all that was ever discarded, this one
    /// with the place that it is told. The caller keeps everybody else from appending.
    ///
    /// # Errors
    /// `Busy`: try again. The disk's: then the log is as before, until the next start.
    ///
    /// # Cost
    /// As a restart: about a microsecond for each record that is not on shelves.
    pub fn discard(
        &self,
        chain: ChainId,
        after: u64,
        keep: &mut dyn FnMut(Discards) -> Result<Vec<Discards>, Fault>,
        on_recovered: &mut dyn FnMut(RecoveredItem<'_>),
    ) -> Result<(), Fault> {
        // Who shelves may be waiting for the appender, which the caller holds.
        let Ok(_shelving) = self.shelving.try_lock() else {
            return Err(Fault::new(Reason::Busy, "the index is being written: try again"));
        };
        let _evicting = self.evicting.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.flush()?;
        let shelved = self.tips().get(&chain).map_or(0, |tip| tip.n);
        if shelved > after {
            // Rare: what went another way is as old as what is shelved. The footers say what the shelves did.
            let mut shelves = self.shelves.write().unwrap_or_else(PoisonError::into_inner);
            while let Some((key, _)) = shelves.pop_last() {
                self.tiers.gone(FileKey::Shelf(key));
                self.disk.remove(&shelf_name(key))?;
            }
            drop(shelves);
            self.disk.sync_dir()?;
        }
        let discarded = keep(Discards { chain, after, before })?;
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner).clone();
        let files = files.into_iter().map(|(id, file)| (SegmentKey(id.0), file)).collect();
        let shelves = self.shelves.read().unwrap_or_else(PoisonError::into_inner).clone();
        let mut tips = BTreeMap::new();
        let mut source = Standing { files, discarded: &discarded, shelves };
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
        *self.tips.lock().unwrap_or_else(PoisonError::into_inner) = tips;
        *self.log.write().unwrap_or_else(PoisonError::into_inner) = log;
        Ok(())
    }
}

fn no_footer(id: SegmentId) -> Fault {
    Fault::new(Reason::Corrupt, format!("stored data is corrupt: the footer of segment {id} cannot be read"))
}

/// What a record takes beside payload and checksums, with its entry in the footer, and a segment beside records.
const RECORD_OVERHEAD_BYTES: usize = 1024;
