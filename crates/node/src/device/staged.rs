//! Small records that follow each other: kept in a file that is always in memory, and placed in the log together.
//!
//! To place a record, to tell the index of it and to write it into a segment costs as much for 4 KiB as for 64. So while small records come one
//! behind the other they are copied into one file ([`DiskFile::hold_pages`]), where a crash of the process does not reach them, and whoever
//! looks at the log, or appends anything else, or flushes, has them placed before ([`Device::settle`]).
//!
//! Guarantees: nobody who asks the device sees a log without them; what was staged is there after the process has died: recovery
//! places it. After a loss of power it is placed only where all of the log before it is there, so what is left is a beginning of what happened.
//! Bounded: [`STAGED_BYTES_MAX`] and one record. Leaves to others: order, stamps and numbers, which records have when they come.
//!
//! | offset | bytes | field of a record in the file (little-endian) |
//! |---|---|---|
//! | 0 | 4 | magic `FRZT` |
//! | 4 | 4 | CRC32C of bytes 8..104 |
//! | 8 | 8 | segment in which the log ended before the first of them |
//! | 16 | 8 | and where in it |
//! | 24 | 8 | inode |
//! | 32 | 4 | chunk index |
//! | 36 | 4 | chain |
//! | 40 | 8 | chain epoch |
//! | 48 | 8 | n: number in the chain |
//! | 56 | 8 | version of the chunk |
//! | 64 | 8 | stamp |
//! | 72 | 8 | session |
//! | 80 | 8 | seq |
//! | 88 | 4 | uid |
//! | 92 | 4 | offset in the chunk |
//! | 96 | 4 | length, of the payload that follows |
//! | 100 | 4 | CRC32C of the payload |
//!
//! Each is a write of one part without a user time. The next lies behind its payload, if the log ended for it where it did for the first. Whenever they
//! have been placed they begin at the start of the file again, and what lies behind them is of an earlier use: in the log already, by its number.

use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frieze_base::{ChainEpoch, ChainId, ChunkId, Fault, InodeId, Reason, SegmentId, Seq, SessionId, crc32c};
use frieze_disk::DiskFile;
use frieze_hlc::Hlc;
use frieze_multilog::{LogPosition, RecordKind, RecordMeta, RecoveredItem};

use super::{Device, block_checksums, known, write_surely};
use crate::data::Few;
use crate::reading::{LOG, Reading};

/// The file.
const NAME: &str = "staged";
/// Bytes of the file: 16 records of 4 KiB, which is what costs most by itself.
const STAGED_BYTES_MAX: u64 = 68 << 10;
/// No more is staged than this part of a segment, and nothing where not three times as much is left of it: a record takes less than twice as
/// much in the log.
const PART_MAX: u64 = 16;
/// A larger record costs less by itself.
const RECORD_BYTES_MAX: usize = 16 << 10;
/// So many small records one behind the other, and nobody looked, and more are expected.
const MANY: u32 = 4;
const MAGIC: [u8; 4] = *b"FRZT";
const HEAD_BYTES: usize = 104;

/// What is staged on a device.
#[derive(Default)]
pub(super) struct Staging {
    /// How many records, and what is left to be done for them. Whoever looks at the log sees to it that there is nothing.
    waiting: AtomicUsize,
    stage: Mutex<Stage>,
}

#[derive(Default)]
struct Stage {
    /// `None` where files are not held in memory: nothing is staged.
    file: Option<Arc<dyn DiskFile>>,
    records: Vec<Staged>,
    /// Where the next one goes in the file.
    at: u64,
    /// Where the log ended before them.
    after: LogPosition,
    /// Small records one behind the other since somebody looked.
    run: u32,
    /// Placed, and the disk refused the bytes.
    unwritten: Option<Unwritten>,
}

struct Staged {
    meta: RecordMeta,
    block_crcs: Few<u32>,
    /// Where its payload begins in the file.
    payload: usize,
}

struct Unwritten {
    segment: SegmentId,
    offset: u64,
    bytes: Vec<u8>,
}

impl Staging {
    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Device {
    /// Appends a record as [`Device::append`] does; a small one behind others is staged. The caller lets one append run at a time.
    ///
    /// # Errors
    /// As [`Device::append`]: the record is not there then.
    pub(crate) fn append_behind(&self, meta: &RecordMeta, payload: &[u8], block_crcs: Few<u32>) -> Result<(), Fault> {
        if self.stage(meta, payload, &block_crcs)? {
            return Ok(());
        }
        self.append(slice::from_ref(meta), &[payload], &[block_crcs.into_vec()]).map(drop)
    }

    /// Stages a record, if records are.
    fn stage(&self, meta: &RecordMeta, payload: &[u8], block_crcs: &[u32]) -> Result<bool, Fault> {
        let mut stage = self.staging.lock();
        let is_plain = meta.kind == RecordKind::Write && meta.user_time.is_none() && meta.parts == 1;
        let is_small = payload.len() <= RECORD_BYTES_MAX;
        stage.run = if is_plain && is_small { stage.run.saturating_add(1) } else { 0 };
        if stage.run <= MANY || stage.file.is_none() {
            return Ok(false);
        }
        if stage.unwritten.is_some() {
            // What is staged begins at the start of the file, or a restart would not take it for what follows.
            self.place_all(&mut stage)?;
        }
        let bytes_max = STAGED_BYTES_MAX.min(self.settings.segment_bytes / PART_MAX);
        let bytes = (HEAD_BYTES + payload.len()) as u64;
        if stage.at + bytes > bytes_max {
            self.place_all(&mut stage)?;
        }
        if stage.records.is_empty() {
            let log = Reading::of(&self.log, &LOG);
            if bytes > bytes_max || log.room() < 3 * bytes_max {
                return Ok(false);
            }
            stage.after = log.end();
        }
        let Stage { file: Some(file), at, after, .. } = &*stage else { return Ok(false) };
        let head =
            head(meta, *after, known::combined(block_crcs, payload.len() as u64, self.settings.block_bytes.into()));
        if let Err(refused) = file.write_at(*at, &[&head, payload]) {
            // It must not be found by a restart.
            write_surely(&**file, *at, &[0; HEAD_BYTES])?;
            return Err(refused.into());
        }
        self.served.fetch_add(1, Ordering::Relaxed);
        let (block_crcs, payload) = (Few::from_slice(block_crcs), stage.at as usize + HEAD_BYTES);
        stage.records.push(Staged { meta: meta.clone(), block_crcs, payload });
        stage.at += bytes;
        self.staging.waiting.store(stage.records.len(), Ordering::SeqCst);
        Ok(true)
    }

    /// Sees to it that all that was staged is in the log.
    ///
    /// # Errors
    /// The disk's: what it refused is where a restart finds it, and the next call tries again. Until then the index may name bytes that are not
    /// written: whoever reads them is to be told this instead.
    pub(crate) fn settle(&self) -> Result<(), Fault> {
        if self.staging.waiting.load(Ordering::SeqCst) == 0 {
            return Ok(());
        }
        self.place_all(&mut self.staging.lock())
    }

    /// The same before somebody looks at files: who writes while others look at each record stages nothing.
    pub(super) fn settle_for_reader(&self) -> Result<(), Fault> {
        if self.staging.waiting.load(Ordering::SeqCst) == 0 {
            return Ok(());
        }
        let mut stage = self.staging.lock();
        stage.run = 0;
        self.place_all(&mut stage)
    }

    fn place_all(&self, stage: &mut Stage) -> Result<(), Fault> {
        self.write_rest(stage)?;
        if let (Some(file), false) = (stage.file.clone(), stage.records.is_empty()) {
            self.erase_refused()?;
            let mut written = Ok(());
            file.look_at(stage.at as usize, &mut |staged| written = self.place(stage, staged))?;
            written?;
        }
        stage.at = 0;
        self.staging.waiting.store(0, Ordering::SeqCst);
        Ok(())
    }

    /// Places the records behind each other and writes them there.
    fn place(&self, stage: &mut Stage, staged: &[u8]) -> Result<(), Fault> {
        let mut log = self.log.write().unwrap_or_else(PoisonError::into_inner);
        let mut heads = Vec::with_capacity(stage.records.len());
        let mut begins = None;
        for Staged { meta, block_crcs, .. } in &stage.records {
            let placed = log.place(slice::from_ref(meta));
            assert!(placed.roll.is_none(), "room was looked for before anything was staged");
            let spot = &placed.spots[0];
            begins.get_or_insert((spot.segment, spot.offset));
            heads.push(log.encode(meta, spot, block_crcs));
            log.publish(meta, spot);
        }
        let (segment, offset) = begins.expect("there is something to place");
        let mut parts: Vec<&[u8]> = Vec::with_capacity(2 * heads.len());
        for (Staged { meta, payload, .. }, head) in stage.records.iter().zip(&heads) {
            parts.extend([head, &staged[*payload..][..meta.len as usize]]);
        }
        // Under the lock: nobody is to read, or to call durable, what has not been written.
        let file = self.file(segment);
        let written = file.and_then(|file| Ok(file.write_at(offset, &parts)?));
        match &written {
            Ok(()) => self.note_written(segment, parts.iter().map(|part| part.len() as u64).sum()),
            Err(_) => stage.unwritten = Some(Unwritten { segment, offset, bytes: parts.concat() }),
        }
        drop(log);
        stage.records.clear();
        written
    }

    /// Writes what was placed and the disk refused.
    fn write_rest(&self, stage: &mut Stage) -> Result<(), Fault> {
        if let Some(Unwritten { segment, offset, bytes }) = &stage.unwritten {
            write_surely(&*self.file(*segment)?, *offset, bytes)?;
            self.note_written(*segment, bytes.len() as u64);
            stage.unwritten = None;
        }
        Ok(())
    }

    fn note_written(&self, segment: SegmentId, bytes: u64) {
        self.dirty_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.since_checkpoint.fetch_add(bytes, Ordering::Relaxed);
        self.dirty.lock().unwrap_or_else(PoisonError::into_inner).segments.insert(segment);
    }

    /// Sees to it that no restart finds anything that was staged so far: what the log is about to lose must not come back from there.
    ///
    /// # Errors
    /// The disk's.
    pub(super) fn empty_stage(&self) -> Result<(), Fault> {
        self.settle()?;
        let file = self.staging.lock().file.clone();
        if let Some(file) = file {
            file.write_at(0, &[&[0; HEAD_BYTES]])?;
            file.sync()?;
        }
        Ok(())
    }

    /// Places what an earlier process staged and is not in the log, if it is stamped up to `upto`; from now on there is nothing, and records
    /// are staged. Returns the stamp of the last record.
    ///
    /// # Errors
    /// The disk's: what was staged is as it was.
    pub(super) fn recover_staged(
        &self,
        upto: Hlc,
        on_recovered: &mut dyn FnMut(RecoveredItem<'_>),
    ) -> Result<Option<Hlc>, Fault> {
        let is_there = self.disk.list()?.iter().any(|name| name == NAME);
        let file = match is_there {
            true => self.disk.open(NAME)?,
            // A disk that has no room for it is too full for small records, too.
            false => match self.disk.create(NAME, STAGED_BYTES_MAX) {
                Err(full) if full.reason() == Reason::NoSpace => return Ok(None),
                made => made?,
            },
        };
        let mut bytes = vec![0; STAGED_BYTES_MAX as usize];
        let found = file.read_at(0, &mut bytes)?;
        let (mut newest, mut began) = (None, None);
        let mut rest = &bytes[..found];
        while let Some((meta, after, payload)) = read(rest) {
            let (end, last) = {
                let log = self.log();
                (log.end(), log.chain_state(meta.chain).n)
            };
            // Where the log has lost something, what came after it is lost; and what comes after one that is lost here, in whose place is what
            // was there before.
            if *began.get_or_insert(after) != after || end < after || meta.stamp > upto {
                break;
            }
            if meta.n == last + 1 {
                let (crcs, _) = block_checksums(payload, self.block_bytes());
                self.append(slice::from_ref(&meta), &[payload], &[crcs])?;
                on_recovered(RecoveredItem::Record(&meta));
                newest = Some(meta.stamp);
            }
            rest = &rest[HEAD_BYTES + payload.len()..];
        }
        if newest.is_some() {
            self.flush()?;
        }
        // What comes from now on must not be taken for what follows on it.
        file.write_at(0, &[&vec![0; found]])?;
        file.sync()?;
        if !is_there {
            self.disk.sync_dir()?;
        }
        if found as u64 == STAGED_BYTES_MAX && file.hold_pages() {
            self.staging.lock().file = Some(file);
        }
        Ok(newest)
    }
}

/// What goes before the payload.
fn head(meta: &RecordMeta, after: LogPosition, payload_crc: u32) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    let mut at = 8;
    let mut put = |bytes: &[u8]| {
        head[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    put(&after.segment.0.to_le_bytes());
    put(&after.offset.to_le_bytes());
    put(&meta.chunk.inode.0.to_le_bytes());
    put(&meta.chunk.index.to_le_bytes());
    put(&meta.chain.0.to_le_bytes());
    put(&meta.epoch.0.to_le_bytes());
    put(&meta.n.to_le_bytes());
    put(&meta.version.to_le_bytes());
    put(&meta.stamp.0.to_le_bytes());
    put(&meta.session.0.to_le_bytes());
    put(&meta.seq.0.to_le_bytes());
    put(&meta.uid.to_le_bytes());
    put(&meta.offset.to_le_bytes());
    put(&meta.len.to_le_bytes());
    put(&payload_crc.to_le_bytes());
    debug_assert_eq!(at, HEAD_BYTES, "the head is full");
    let crc = crc32c(&head[8..]);
    head[..4].copy_from_slice(&MAGIC);
    head[4..8].copy_from_slice(&crc.to_le_bytes());
    head
}

/// The record that `bytes` begin with, where the log ended before it, and its payload; `None` if there is none.
fn read(bytes: &[u8]) -> Option<(RecordMeta, LogPosition, &[u8])> {
    let (head, behind) = bytes.split_first_chunk::<HEAD_BYTES>()?;
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
    let payload = behind.get(..word(96) as usize)?;
    if head[..4] != MAGIC || crc32c(&head[8..]) != word(4) || crc32c(payload) != word(100) {
        return None;
    }
    let meta = RecordMeta {
        kind: RecordKind::Write,
        chain: ChainId(word(36)),
        epoch: ChainEpoch(long(40)),
        n: long(48),
        chunk: ChunkId { inode: InodeId(long(24)), index: word(32) },
        version: long(56),
        stamp: Hlc(long(64)),
        user_time: None,
        session: SessionId(long(72)),
        seq: Seq(long(80)),
        uid: word(88),
        offset: word(92),
        len: word(96),
        part: 0,
        parts: 1,
    };
    Some((meta, LogPosition { segment: SegmentId(long(8)), offset: long(16) }, payload))
}

#[cfg(test)]
mod tests;
