//! Reading records: all missing pages are requested at once, every block is verified, and a block that fails its
//! checksum in memory is read from the medium.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use frieze_base::{Fault, Reason, SegmentId, crc32c, crc32c_combine};
use frieze_disk::{DiskFile, PAGE_BYTES};
use frieze_multilog::{Piece, PieceSource, StoredSpan};
use frieze_tier::{Heat, RecordBlocks};

use super::{Device, FileKey, PageSpan, PinnedPages, checksum_cache};

impl Device {
    /// True if part of `pieces` may have to be read from the disk.
    pub fn may_need_disk(&self, pieces: &[Piece]) -> bool {
        pieces.iter().any(|piece| match &piece.source {
            PieceSource::Data(source) => self.tiers.may_be_absent(source.segment, source.data_offset),
            PieceSource::Hole | PieceSource::Punched(_) | PieceSource::Image(_) | PieceSource::External(_) => false,
        })
    }

    /// As [`Device::pin`], of pieces that are all young: nothing has to be read into memory.
    pub fn pin_young(&self, pieces: &[Piece]) -> PinnedPages {
        self.record_young(pieces);
        PinnedPages::default()
    }

    /// Records that those of `pieces` are read that are young, if what the device does is recorded.
    fn record_young(&self, pieces: &[Piece]) {
        if !self.tiers.trace().is_on() {
            return;
        }
        for piece in pieces {
            if let PieceSource::Data(source) = &piece.source
                && !self.tiers.may_be_absent(source.segment, source.data_offset)
            {
                for (start, end) in stored_ranges(source, piece.len).into_iter().flatten() {
                    self.tiers.record_young(source.segment, start, end);
                }
            }
        }
    }

    /// Starts reading `pieces` into memory, without waiting. The caller passes the result to [`Device::unpin`] after
    /// its read.
    pub fn pin(&self, pieces: &[Piece], heat: Heat) -> PinnedPages {
        let mut pinned = PinnedPages::default();
        self.record_young(pieces);
        let sources = pieces.iter().filter_map(|piece| match &piece.source {
            PieceSource::Data(source) if self.tiers.may_be_absent(source.segment, source.data_offset) => {
                self.file(source.segment).ok().map(|file| (source, piece.len, file))
            }
            _ => None,
        });
        let sources: Vec<(&StoredSpan, u32, Arc<dyn DiskFile>)> = sources.collect();
        if sources.is_empty() {
            return pinned;
        }
        let mut spans = Vec::with_capacity(sources.len());
        for (source, len, file) in &sources {
            let (key, old_end) = (FileKey::Segment(source.segment), self.tiers.old_end(source.segment));
            for (start, end) in stored_ranges(source, *len).into_iter().flatten() {
                spans.push(PageSpan { key, file: &**file, old_end, start, end });
            }
        }
        self.tiers.pin(&spans, heat, &mut pinned);
        pinned
    }

    /// Releases pinned pages: their pieces were read, or could not be.
    pub fn unpin(&self, pinned: PinnedPages, failed: bool) {
        self.tiers.unpin(pinned, failed, &|key| self.file_of(key));
    }

    /// The place in a file of the operating system of `len` bytes of a record from `source.skip` on, which are whole
    /// blocks, and their CRC32C from the stored checksums. The bytes are not verified: the receiver compares them.
    /// `None` if no such file has them.
    ///
    /// # Errors
    /// As [`Device::read`], of the checksums.
    pub fn unverified_span(&self, source: &StoredSpan, len: u64) -> Result<Option<UnverifiedSpan>, Fault> {
        let file = self.file(source.segment)?;
        if file.handle().is_none() {
            return Ok(None);
        }
        self.served.fetch_add(1, Ordering::Relaxed);
        let offset = source.data_offset + u64::from(source.skip);
        let span = checksum_cache::CachedSpan::of(source, len);
        if let Some(crc) = self.checksums.get(&span) {
            return Ok(Some(UnverifiedSpan { file, offset, crc }));
        }
        let block = u64::from(source.block_bytes);
        let (first, last) = (u64::from(source.skip) / block, (u64::from(source.skip) + len).div_ceil(block));
        let mut stored = Blocks::of(&*file, source);
        let crcs = (first..last).map(|index| stored.crc(index as usize, last as usize));
        let crc = checksum_cache::combined(&crcs.collect::<Result<Vec<u32>, Fault>>()?, len, block);
        self.checksums.put(span, crc);
        Ok(Some(UnverifiedSpan { file, offset, crc }))
    }

    /// Fills `out` with the bytes of `pieces`, which cover it from chunk offset `start` on, except those that
    /// [`Device::read_images`] has filled already. Returns their CRC32C.
    ///
    /// # Errors
    /// `Corrupt` if a block fails its checksum: the bytes are not returned, the message names segment and offset.
    pub fn read(&self, pieces: &[Piece], start: u64, out: &mut [u8], scratch: &mut Vec<u8>) -> Result<u32, Fault> {
        self.served.fetch_add(1, Ordering::Relaxed);
        self.read_pieces(pieces, start, out, scratch)
    }

    /// As [`Device::read`], but on behalf of background work that no request waits for.
    pub(super) fn read_pieces(
        &self,
        pieces: &[Piece],
        start: u64,
        out: &mut [u8],
        scratch: &mut Vec<u8>,
    ) -> Result<u32, Fault> {
        let mut crc = 0;
        for piece in pieces {
            let from = (piece.at - start) as usize;
            let target = &mut out[from..from + piece.len as usize];
            let piece_crc = match &piece.source {
                PieceSource::Hole | PieceSource::Punched(_) => {
                    target.fill(0);
                    crc32c(target)
                }
                PieceSource::Data(source) => {
                    let read = self.read_record(source, target, scratch);
                    read.inspect_err(|fault| self.read_errors.note(source.segment, fault))?
                }
                // Already filled.
                PieceSource::Image(_) | PieceSource::External(_) => crc32c(target),
            };
            crc = if from == 0 { piece_crc } else { crc32c_combine(crc, piece_crc, piece.len.into()) };
        }
        Ok(crc)
    }

    /// Reads `out.len()` bytes of one record from `source.skip` on, whole blocks verified.
    fn read_record(&self, source: &StoredSpan, out: &mut [u8], scratch: &mut Vec<u8>) -> Result<u32, Fault> {
        let file = self.file(source.segment)?;
        let mut stored = Blocks::of(&*file, source);
        let block = source.block_bytes as usize;
        let (skip, len, record) = (source.skip as usize, out.len(), source.record_len as usize);
        let (first, last) = (skip / block, (skip + len).div_ceil(block));
        let corrupt = |index: usize| {
            Fault::new(
                Reason::Corrupt,
                format!(
                    "stored data is corrupt: block {index} of the record stamped {} in {} at byte {} fails its \
                     checksum; it is not returned",
                    source.stamp,
                    source.segment.in_words(),
                    source.data_offset
                ),
            )
        };
        let mut crc = 0;
        let mut done = 0;
        let mut index = first;
        while index < last {
            let block_start = index * block;
            let block_end = (block_start + block).min(record);
            if block_start >= skip + done && block_end <= skip + len {
                // Whole blocks are read directly into the target, a cache-sized step at a time.
                let blocks = (STEP_BYTES / block).max(1).min(last - index);
                let mut step_end = (block_start + blocks * block).min(record);
                if step_end > skip + len {
                    step_end = (skip + len) / block * block;
                }
                let target = &mut out[done..done + step_end - block_start];
                stored.read(index, target)?;
                for piece in target.chunks_mut(block) {
                    let mut found = crc32c(piece);
                    if found != stored.crc(index, last)? {
                        found = self.read_medium(&*file, source, index, piece)?.ok_or_else(|| corrupt(index))?;
                    }
                    crc = if done == 0 { found } else { crc32c_combine(crc, found, piece.len() as u64) };
                    done += piece.len();
                    index += 1;
                }
            } else {
                // A block that is needed in part: read it whole, verify, copy the part.
                scratch.resize(block_end - block_start, 0);
                stored.read(index, scratch)?;
                if crc32c(scratch) != stored.crc(index, last)? {
                    self.read_medium(&*file, source, index, scratch)?.ok_or_else(|| corrupt(index))?;
                }
                let part =
                    &scratch[(skip + done).max(block_start) - block_start..(skip + len).min(block_end) - block_start];
                out[done..done + part.len()].copy_from_slice(part);
                let found = crc32c(part);
                crc = if done == 0 { found } else { crc32c_combine(crc, found, part.len() as u64) };
                done += part.len();
                index += 1;
            }
        }
        Ok(crc)
    }

    /// Reads a block whose copy in memory failed its checksum from the medium, and returns its checksum; `None` if it
    /// fails there too. The copy is dropped from memory.
    fn read_medium(
        &self,
        file: &dyn DiskFile,
        source: &StoredSpan,
        index: usize,
        into: &mut [u8],
    ) -> Result<Option<u32>, Fault> {
        let at = source.data_offset + index as u64 * u64::from(source.block_bytes);
        let crc_at = source.crcs_offset + 4 * index as u64;
        for (offset, len) in [(at, into.len() as u64), (crc_at, 4)] {
            let page = offset / PAGE_BYTES * PAGE_BYTES;
            // If the kernel keeps the copy, the medium is read all the same.
            let _ = file.advise_dont_need(page, (offset + len).next_multiple_of(PAGE_BYTES) - page);
        }
        let mut expected = [0; 4];
        let read = file.read_direct_at(at, into)? + file.read_direct_at(crc_at, &mut expected)?;
        let found = crc32c(into);
        let is_whole = read == into.len() + expected.len() && found == u32::from_le_bytes(expected);
        if is_whole {
            self.tiers.note_healed();
        }
        Ok(is_whole.then_some(found))
    }
}

/// Bytes of a record that are not verified yet.
pub struct UnverifiedSpan {
    /// The file, which has a file descriptor.
    pub file: Arc<dyn DiskFile>,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Their checksum from when they were stored.
    pub crc: u32,
}

/// The blocks of a record and their checksums.
struct Blocks<'a> {
    file: &'a dyn DiskFile,
    source: &'a StoredSpan,
    /// The checksums of the blocks `from` to `upto`.
    crcs: [u8; CRCS_BYTES],
    from: usize,
    upto: usize,
}

impl<'a> Blocks<'a> {
    fn of(file: &'a dyn DiskFile, source: &'a StoredSpan) -> Blocks<'a> {
        Blocks { file, source, crcs: [0; CRCS_BYTES], from: 0, upto: 0 }
    }

    /// Fills `into` with the stored bytes from block `index` on. The first block's read fetches the checksums too,
    /// which lie before it.
    fn read(&mut self, index: usize, into: &mut [u8]) -> Result<(), Fault> {
        let StoredSpan { segment, crcs_offset, data_offset, block_bytes, .. } = *self.source;
        let before = (data_offset - crcs_offset) as usize;
        if index > 0 || before > self.crcs.len() {
            let at = data_offset + index as u64 * u64::from(block_bytes);
            return ends_behind(segment, at, self.file.read_at(at, into)?, into.len());
        }
        (self.from, self.upto) = (0, before / 4);
        let found = self.file.read_two_at(crcs_offset, &mut self.crcs[..before], into)?;
        ends_behind(segment, crcs_offset, found, before + into.len())
    }

    /// The stored checksum of block `index`; further checksums of blocks before `last` are fetched with it.
    fn crc(&mut self, index: usize, last: usize) -> Result<u32, Fault> {
        if !(self.from..self.upto).contains(&index) {
            (self.from, self.upto) = (index, last.min(index + CRCS_BYTES / 4));
            let offset = self.source.crcs_offset + 4 * index as u64;
            let bytes = &mut self.crcs[..4 * (self.upto - index)];
            read_exactly(self.file, self.source.segment, offset, bytes)?;
        }
        Ok(u32::from_le_bytes(self.crcs.as_chunks().0[index - self.from]))
    }
}

/// Ranges of a segment that a read of `len` bytes of a record needs.
fn stored_ranges(source: &StoredSpan, len: u32) -> [Option<(u64, u64)>; 2] {
    let place = RecordBlocks {
        crcs_start: source.crcs_offset,
        data_start: source.data_offset,
        len: source.record_len.into(),
        block_bytes: source.block_bytes.into(),
    };
    place.ranges(source.skip.into(), len.into())
}

fn read_exactly(file: &dyn DiskFile, segment: SegmentId, offset: u64, into: &mut [u8]) -> Result<(), Fault> {
    ends_behind(segment, offset, file.read_at(offset, into)?, into.len())
}

/// Fault of a read at `offset` that returned `found` of `wanted` bytes.
fn ends_behind(segment: SegmentId, offset: u64, found: usize, wanted: usize) -> Result<(), Fault> {
    if found == wanted {
        return Ok(());
    }
    Err(Fault::new(
        Reason::Corrupt,
        format!(
            "stored data is corrupt: {} ends at byte {} where a record should go on: its file was cut",
            segment.in_words(),
            offset + found as u64
        ),
    ))
}

/// Bytes per checksum step: fits the second-level cache of a core.
const STEP_BYTES: usize = 512 << 10;
/// Checksums that are read at once: those of a record of 1 MiB.
const CRCS_BYTES: usize = 256;
