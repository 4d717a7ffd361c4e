//! A device in memory: files that the log's bytes go to and come back from.

use std::collections::BTreeMap;

use frieze_base::{ByteRange, ChainEpoch, ChainId, ChunkId, Fault, InodeId, SegmentId, Seq, SessionId};
use frieze_hlc::Hlc;
use frieze_multilog::{
    Discards, Error, IndexRun, IndexSource, LogPosition, LogSettings, LogSource, MultiLog, Piece, PieceSource,
    RecordHeader, RecordKind, RecoveryReport, Reservation, RunBuilder, RunKey, RunMerge, RunSource, Seal, SegmentKey,
    block_crcs,
};

/// Small blocks, so that small records have several.
pub(crate) const BLOCK_BYTES: u32 = 512;

pub(crate) fn settings(segment_bytes: u64) -> LogSettings {
    LogSettings { segment_bytes, block_bytes: BLOCK_BYTES, seed: 0x5eed }
}

/// The files of a device.
#[derive(Clone, Default)]
pub(crate) struct DeviceFiles {
    pub(crate) bytes: BTreeMap<SegmentKey, Vec<u8>>,
    pub(crate) keys: BTreeMap<SegmentId, SegmentKey>,
    pub(crate) index_runs: BTreeMap<RunKey, Vec<u8>>,
    pub(crate) discarded: Vec<Discards>,
}

impl DeviceFiles {
    pub(crate) fn of(&mut self, segment: SegmentId) -> &mut Vec<u8> {
        self.bytes.get_mut(&self.keys[&segment]).expect("the file of a segment")
    }

    pub(crate) fn put(&mut self, segment: SegmentId, offset: u64, bytes: &[u8]) {
        let offset = offset as usize;
        self.of(segment)[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    pub(crate) fn seal(&mut self, seal: &Seal) {
        self.put(seal.segment, seal.offset, &seal.footer);
    }

    /// A file for a segment: one that is free with its old bytes, or a new one.
    pub(crate) fn make(&mut self, segment: SegmentId, bytes: u64, free: &mut Vec<SegmentKey>) {
        let key = free.pop().unwrap_or_else(|| SegmentKey(self.bytes.keys().last().map_or(0, |key| key.0) + 1));
        self.bytes.entry(key).or_default().resize(bytes as usize, 0);
        self.keys.insert(segment, key);
    }
}

fn read_from(bytes: &[u8], offset: u64, into: &mut [u8]) -> usize {
    let from = (offset as usize).min(bytes.len());
    let len = into.len().min(bytes.len() - from);
    into[..len].copy_from_slice(&bytes[from..from + len]);
    len
}

impl RunSource for DeviceFiles {
    fn read(&mut self, key: RunKey, offset: u64, into: &mut [u8]) -> Result<usize, Fault> {
        Ok(read_from(&self.index_runs[&key], offset, into))
    }
}

impl LogSource for DeviceFiles {
    fn segments(&mut self) -> Result<Vec<(SegmentKey, u64)>, Fault> {
        Ok(self.bytes.iter().map(|(key, bytes)| (*key, bytes.len() as u64)).collect())
    }

    fn read(&mut self, key: SegmentKey, offset: u64, into: &mut [u8]) -> Result<usize, Fault> {
        Ok(read_from(&self.bytes[&key], offset, into))
    }

    fn discarded(&mut self) -> Vec<Discards> {
        self.discarded.clone()
    }

    fn index_runs(&mut self) -> Result<Vec<RunKey>, Fault> {
        Ok(self.index_runs.keys().copied().collect())
    }

    fn read_index_run(&mut self, key: RunKey, offset: u64, into: &mut [u8]) -> Result<usize, Fault> {
        Ok(read_from(&self.index_runs[&key], offset, into))
    }
}

/// A log and its files.
pub(crate) struct LogDevice {
    pub(crate) log: MultiLog,
    pub(crate) files: DeviceFiles,
    /// Files that may be used again, with whatever they hold.
    pub(crate) free: Vec<SegmentKey>,
}

impl LogDevice {
    pub(crate) fn new(settings: LogSettings) -> LogDevice {
        LogDevice { log: MultiLog::new(settings), files: DeviceFiles::default(), free: Vec::new() }
    }

    /// Writes a group up to, but without, its publication; returns where its records went.
    pub(crate) fn store(&mut self, group: &[(RecordHeader, Vec<u8>)]) -> Reservation {
        let headers: Vec<RecordHeader> = group.iter().map(|(header, _)| header.clone()).collect();
        let placed = self.log.reserve(&headers).expect("the places before have ended");
        if let Some(new) = &placed.roll {
            self.files.make(new.id, new.bytes, &mut self.free);
            self.files.put(new.id, 0, &new.header);
        }
        for (index, ((header, payload), spot)) in group.iter().zip(&placed.spots).enumerate() {
            let block_bytes = self.log.settings().block_bytes;
            let head = placed.head(index, header, &block_crcs(payload, block_bytes));
            assert_eq!(spot.offset + head.len() as u64, spot.data_offset);
            self.files.put(spot.segment, spot.offset, &head);
            self.files.put(spot.segment, spot.data_offset, payload);
        }
        placed
    }

    pub(crate) fn write(&mut self, group: &[(RecordHeader, Vec<u8>)]) -> LogPosition {
        let placed = self.store(group);
        for ((header, _), spot) in group.iter().zip(&placed.spots) {
            self.log.publish(header, spot);
        }
        self.log.end()
    }

    /// Gives full segments that are durable up to `durable` their footers; returns how many.
    pub(crate) fn seal(&mut self, durable: LogPosition) -> usize {
        let seals = self.log.sealable(durable);
        seals.iter().for_each(|seal| self.files.seal(seal));
        seals.len()
    }

    /// The bytes of an index run of these segments; `None` if one has no footer that is whole.
    pub(crate) fn make_shelf(&self, segments: &[SegmentId], companion: &[u8]) -> Option<(IndexRun, Vec<u8>)> {
        let mut builder = RunBuilder::default();
        for &id in segments {
            let sealed = self.log.sealed(id)?;
            let footer = &self.files.bytes[&self.files.keys[&id]][sealed.footer_at as usize..];
            if !self.log.add_to_index_run(id, footer, &mut builder) {
                return None;
            }
        }
        builder.finish(companion)
    }

    /// Index runs up to `max` sealed segments. Returns how many.
    pub(crate) fn make_index_run(&mut self, max: usize, companion: &[u8]) -> usize {
        let mut segments = self.log.segments_to_index();
        segments.truncate(max);
        let Some((index_run, bytes)) = self.make_shelf(&segments, companion) else { return 0 };
        assert_eq!(index_run.bytes(), bytes.len() as u64);
        self.files.index_runs.insert(index_run.key(), bytes);
        self.log.add_index_run(index_run);
        segments.len()
    }

    /// Makes these index runs one; the old ones are kept for `keep`.
    pub(crate) fn merge(&mut self, keys: &[RunKey], keep: bool) -> Result<(), Error> {
        let merge = RunMerge::begin(&mut self.files, keys, self.log.discarded())?;
        let mut bytes = vec![0; merge.bytes_max() as usize];
        let mut sink = |offset: u64, part: &[u8]| {
            bytes[offset as usize..offset as usize + part.len()].copy_from_slice(part);
            Ok(())
        };
        let index_run = merge.run(&mut self.files, &mut sink)?;
        if !keep {
            keys.iter().for_each(|key| drop(self.files.index_runs.remove(key)));
        }
        self.files.index_runs.insert(index_run.key(), bytes);
        self.log.replace_index_runs(keys, vec![index_run]);
        Ok(())
    }

    /// Brings a file into memory. Damaged index runs are rebuilt.
    pub(crate) fn fetch(&mut self, inode: InodeId) {
        while self.log.is_evicted(inode) {
            let mut fetch = self.log.fetch(inode);
            let mut damaged = None;
            while let Some((source, offset, len)) = fetch.next_read() {
                let IndexSource::Run(key) = source else { panic!("these logs have no packs") };
                let mut bytes = vec![0; len];
                let read = read_from(&self.files.index_runs[&key], offset, &mut bytes);
                if fetch.take(&bytes[..read]).is_err() {
                    damaged = Some(key);
                    break;
                }
            }
            if let Some(key) = damaged {
                self.mend(key);
                continue;
            }
            assert!(self.log.number(&mut fetch));
            fetch.build();
            assert!(self.log.put_back(fetch));
        }
    }

    /// Makes an index run anew from the footers of its segments: two, where it has several.
    pub(crate) fn mend(&mut self, key: RunKey) {
        let segments = self.log.segments_of(key);
        let (first, second) = segments.split_at(segments.len().div_ceil(2));
        let halves = [first, second].into_iter().filter(|half| !half.is_empty());
        let made: Vec<_> = halves.map(|half| self.make_shelf(half, b"mended").expect("sound footers")).collect();
        self.files.index_runs.remove(&key);
        let mut index_runs = Vec::new();
        for (index_run, bytes) in made {
            self.files.index_runs.insert(index_run.key(), bytes);
            index_runs.push(index_run);
        }
        self.log.replace_index_runs(&[key], index_runs);
    }

    /// The same device after a stop, and what recovery said.
    pub(crate) fn restarted(&self) -> (LogDevice, RecoveryReport, Vec<RecordHeader>) {
        recover(self.files.clone(), self.log.settings().clone())
    }

    /// Reads as the server does a file that shares nothing, every block verified. `None` if a checksum fails.
    pub(crate) fn read(&self, chunk: ChunkId, range: ByteRange, at: Hlc) -> Option<Vec<u8>> {
        let bytes = self.read_after(chunk, range, at, Hlc::ZERO)?;
        Some(bytes.into_iter().map(Option::unwrap_or_default).collect())
    }

    /// Reads what records not stamped below `after` say; `None` for a byte of which they say nothing.
    pub(crate) fn read_after(&self, chunk: ChunkId, range: ByteRange, at: Hlc, after: Hlc) -> Option<Vec<Option<u8>>> {
        let mut pieces = Vec::new();
        self.log.plan(chunk, range, at, after, &mut pieces);
        let mut bytes = Vec::new();
        for piece in &pieces {
            assert_eq!(piece.at, range.start() + bytes.len() as u64, "pieces follow each other");
            assert!(piece.len > 0);
            match piece.source {
                PieceSource::Hole => bytes.resize(bytes.len() + piece.len as usize, None),
                PieceSource::Punched(_) => bytes.resize(bytes.len() + piece.len as usize, Some(0)),
                PieceSource::Data(_) => bytes.extend(self.stored(piece)?.into_iter().map(Some)),
                PieceSource::Image(_) | PieceSource::External(_) => panic!("a plan without images has one"),
            }
        }
        assert_eq!(bytes.len() as u64, range.len(), "pieces cover the range");
        Some(bytes)
    }

    pub(crate) fn stored(&self, piece: &Piece) -> Option<Vec<u8>> {
        let PieceSource::Data(stored) = piece.source else { panic!("only records have these") };
        let file = &self.files.bytes[&self.files.keys[&stored.segment]];
        let data = file.get(stored.data_offset as usize..)?.get(..stored.record_len as usize)?;
        let crcs = file.get(stored.crcs_offset as usize..stored.data_offset as usize)?;
        let expect: Vec<u32> = crcs.as_chunks().0.iter().map(|crc| u32::from_le_bytes(*crc)).collect();
        let whole = block_crcs(data, stored.block_bytes) == expect;
        whole.then(|| data[stored.skip as usize..][..piece.len as usize].to_vec())
    }
}

/// A device recovered from files.
pub(crate) fn recover(mut files: DeviceFiles, settings: LogSettings) -> (LogDevice, RecoveryReport, Vec<RecordHeader>) {
    let mut seen = Vec::new();
    let (log, report) =
        MultiLog::recover(settings, &mut files, &mut |header| seen.push(header.clone())).expect("readable files");
    files.keys = report.files.clone();
    assert_eq!((report.records - report.run_records) as usize, seen.len());
    let free = report.free.clone();
    (LogDevice { log, files, free }, report, seen)
}

/// A write of one session, alone in its group; fields that matter are set by the test.
pub(crate) fn write_of(inode: u64, index: u32, stamp: u64, offset: u32, len: u32) -> RecordHeader {
    RecordHeader {
        kind: RecordKind::Write,
        chain: ChainId(1),
        epoch: ChainEpoch(1),
        n: stamp,
        chunk: ChunkId { inode: InodeId(inode), index },
        version: stamp,
        stamp: Hlc(stamp),
        user_time: None,
        session: SessionId(9),
        seq: Seq(stamp),
        uid: 1000,
        offset,
        len,
        part: 0,
        parts: 1,
    }
}

/// Bytes that tell which record they belong to and where in it.
pub(crate) fn payload_of(header: &RecordHeader) -> Vec<u8> {
    (0..header.payload_len())
        .map(|at| ((header.stamp.0 * 131 + u64::from(header.part) * 17 + u64::from(at)) % 251 + 1) as u8)
        .collect()
}

pub(crate) fn with_payload(header: RecordHeader) -> (RecordHeader, Vec<u8>) {
    let payload = payload_of(&header);
    (header, payload)
}
