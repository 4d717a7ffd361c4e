//! The index of a pack in bytes.
//!
//! Blocks, then the directory. A block has files by inode as a block of an index run has (`index_run`); a file has two
//! pieces. The first are its records as in an index run (`index_run/piece.rs`), in the order of their stamps: segment
//! 0, the place in the pack, and in place of the length of the head 1 for a record that died and says so for its epoch,
//! 0 for all others. The second says when records were written that are not here: for each writer a byte (1 if there is
//! one writer), session, uid, chain, configuration, first and last stamp (each v).
//!
//! The directory: records (v), bytes of payloads (v), newest stamp (v), bytes of a block of payload (v), largest inodes
//! by slot as in an index run, count of blocks (v), and of each block first inode (v, as difference), length (v),
//! CRC32C (4).

use frieze_base::varint::{put, put_difference, take, take_difference, take_u32};
use frieze_base::{ChainEpoch, ChainId, Fault, InodeId, SegmentId, SessionId, crc32c};
use frieze_hlc::Hlc;

use super::{PackIndex, PackKey, PackPlace};
use crate::index::WriterKey;
use crate::index_run::{BlockWriter, NewestFiles, RunBlock, RunRecord, decode_piece, encode_piece, file_at, pieces_of};
use crate::record::RecordHeader;

/// A record as a pack has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedRecord {
    /// The record.
    pub header: RecordHeader,
    /// Where its block checksums begin in the pack; its payload follows them. Without meaning if it is dead.
    pub at: u32,
    /// It died, and is here to say so: its bytes are not.
    pub is_dead: bool,
}

/// When records were written that are not here, by one writer or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PackedLoss {
    pub(crate) writer: Option<WriterKey>,
    pub(crate) first: Hlc,
    pub(crate) last: Hlc,
}

/// Makes the index of a pack, file by file.
#[derive(Debug, Default)]
pub struct PackIndexBuilder {
    writer: BlockWriter,
    bytes: Vec<u8>,
    records: u64,
    live_bytes: u64,
}

impl PackIndexBuilder {
    /// Adds the next file by inode: its records by stamp, and when others were written that left.
    pub(crate) fn add(&mut self, inode: InodeId, records: &[PackedRecord], losses: &[PackedLoss]) {
        let of = |record: &PackedRecord| RunRecord {
            header: record.header.clone(),
            segment: SegmentId(0),
            at: record.at,
            head: u8::from(record.is_dead),
        };
        let placed: Vec<RunRecord> = records.iter().map(of).collect();
        let (mut first, mut second) = (Vec::new(), Vec::new());
        encode_piece(placed.iter(), &mut first);
        losses.iter().for_each(|loss| encode_loss(loss, &mut second));
        self.records += records.len() as u64;
        let live = records.iter().filter(|record| !record.is_dead);
        self.live_bytes += live.map(|record| u64::from(record.header.payload_len())).sum::<u64>();
        let bytes = &mut self.bytes;
        let mut sink = |_: u64, part: &[u8]| -> Result<(), Fault> {
            bytes.extend_from_slice(part);
            Ok(())
        };
        self.writer.add(&mut sink, inode, &[&first, &second]).expect("memory takes all");
    }

    /// Bytes of payloads of what was added.
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// The bytes of blocks and directory, and how many of them the blocks are.
    pub fn finish(mut self, newest: Hlc, block_bytes: u32) -> (Vec<u8>, u64) {
        let bytes = &mut self.bytes;
        let mut sink = |_: u64, part: &[u8]| -> Result<(), Fault> {
            bytes.extend_from_slice(part);
            Ok(())
        };
        let (blocks, files, end) = self.writer.end(&mut sink).expect("memory takes all");
        let out = &mut self.bytes;
        for value in [self.records, self.live_bytes, newest.0, block_bytes.into()] {
            put(out, value);
        }
        files.encode(out);
        put(out, blocks.len() as u64);
        let mut before = 0;
        for block in &blocks {
            put_difference(out, before, block.first.0);
            before = block.first.0;
            put(out, block.len.into());
            out.extend_from_slice(&block.crc.to_le_bytes());
        }
        (self.bytes, end)
    }
}

impl PackIndex {
    /// Reads a directory, which was checked, of a pack whose blocks begin at `offset` of its file. `None` if it is
    /// none.
    pub fn open(place: PackPlace, key: PackKey, offset: u64, mut directory: &[u8]) -> Option<PackIndex> {
        let rest = &mut directory;
        let (records, live_bytes, newest) = (take(rest)?, take(rest)?, Hlc(take(rest)?));
        let block_bytes = u32::try_from(take(rest)?).ok().filter(|bytes| *bytes > 0)?;
        let files = NewestFiles::decode(rest)?;
        let (mut blocks, mut first, mut at) = (Vec::new(), 0, offset);
        for _ in 0..take(rest)? {
            first = take_difference(rest, first)?;
            let (len, crc) = (u32::try_from(take(rest)?).ok()?, take_u32(rest)?);
            blocks.push(RunBlock { first: InodeId(first), offset: at, len, crc });
            at = at.checked_add(len.into())?;
        }
        blocks.shrink_to_fit();
        Some(PackIndex { place, key, newest, block_bytes, records, live_bytes, files, blocks })
    }
}

/// The files of a block, checked.
pub(super) fn decode_block(block: &RunBlock, bytes: &[u8]) -> Option<Vec<(InodeId, Vec<PackedRecord>)>> {
    if bytes.len() != block.len as usize || crc32c(bytes) != block.crc {
        return None;
    }
    let (mut files, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let (inode, range) = file_at(bytes, at)?;
        at = range.end;
        let (records, _) = decode_file(inode, &bytes[range])?;
        let of = |record: RunRecord| PackedRecord { header: record.header, at: record.at, is_dead: record.head != 0 };
        files.push((inode, records.into_iter().map(of).collect()));
    }
    Some(files)
}

/// The records of a file and what left, from its pieces.
pub(crate) fn decode_file(inode: InodeId, bytes: &[u8]) -> Option<(Vec<RunRecord>, Vec<PackedLoss>)> {
    let mut pieces = Vec::new();
    pieces_of(bytes, &mut pieces)?;
    let [first, second] = pieces[..] else { return None };
    let mut records = Vec::new();
    decode_piece(inode, first, &mut records)?;
    let (mut losses, mut rest) = (Vec::new(), second);
    while !rest.is_empty() {
        losses.push(decode_loss(&mut rest)?);
    }
    Some((records, losses))
}

fn encode_loss(loss: &PackedLoss, out: &mut Vec<u8>) {
    out.push(u8::from(loss.writer.is_some()));
    if let Some(WriterKey { session, uid, chain, epoch }) = loss.writer {
        [session.0, uid.into(), chain.0.into(), epoch.0].into_iter().for_each(|value| put(out, value));
    }
    put(out, loss.first.0);
    put(out, loss.last.0);
}

fn decode_loss(rest: &mut &[u8]) -> Option<PackedLoss> {
    let (&is_one, after) = rest.split_first()?;
    *rest = after;
    let writer = match is_one {
        0 => None,
        1 => Some(WriterKey {
            session: SessionId(take(rest)?),
            uid: u32::try_from(take(rest)?).ok()?,
            chain: ChainId(u32::try_from(take(rest)?).ok()?),
            epoch: ChainEpoch(take(rest)?),
        }),
        _ => return None,
    };
    Some(PackedLoss { writer, first: Hlc(take(rest)?), last: Hlc(take(rest)?) })
}

#[cfg(test)]
mod tests {
    use frieze_base::{ChunkId, Rng, Seq};

    use super::*;
    use crate::record::RecordKind;

    fn record(rng: &mut Rng, inode: InodeId, n: u64) -> PackedRecord {
        let header = RecordHeader {
            kind: if rng.below(9) == 0 { RecordKind::Punch } else { RecordKind::Write },
            chain: ChainId(3),
            epoch: ChainEpoch(2),
            n,
            chunk: ChunkId { inode, index: (n / 7) as u32 },
            version: n,
            stamp: Hlc(n << 20),
            session: SessionId(1 + n % 3),
            seq: Seq(n),
            uid: 1000,
            offset: rng.below(1 << 20) as u32,
            len: 1 + rng.below(1 << 16) as u32,
            ..RecordHeader::ZERO
        };
        PackedRecord { header, at: rng.below(1 << 31) as u32, is_dead: rng.below(4) == 0 }
    }

    fn losses(rng: &mut Rng) -> Vec<PackedLoss> {
        let writer = WriterKey { session: SessionId(7), uid: 5, chain: ChainId(3), epoch: ChainEpoch(9) };
        let loss = |writer, first| PackedLoss { writer, first: Hlc(first), last: Hlc(first + 100) };
        [loss(Some(writer), rng.below(1 << 40)), loss(None, rng.below(1 << 40))].into()
    }

    #[test]
    fn an_index_comes_back_as_it_was_and_not_if_a_bit_turned() {
        let mut rng = Rng::new(11);
        let mut builder = PackIndexBuilder::default();
        let mut expected = Vec::new();
        for file in 1..400 {
            let inode = InodeId(8192 + 2 * file);
            let records: Vec<PackedRecord> = (1..1 + rng.below(30)).map(|n| record(&mut rng, inode, n)).collect();
            builder.add(inode, &records, &losses(&mut rng));
            expected.push((inode, records));
        }
        let live = builder.live_bytes();
        let (mut bytes, blocks_bytes) = builder.finish(Hlc(77), 16 << 10);
        let place =
            PackPlace { id: SegmentId::pack(5), made: crate::header::LogPosition::default(), upto: 30, released: 0 };
        let key = PackKey { chain: ChainId(3), first: 1, last: 30 };
        let index = PackIndex::open(place, key, 0, &bytes[blocks_bytes as usize..]).unwrap();
        assert_eq!((index.newest(), index.live_bytes(), index.block_bytes), (Hlc(77), live, 16 << 10));
        assert!(index.blocks.len() > 3);
        let read = |bytes: &[u8]| -> Option<Vec<(InodeId, Vec<PackedRecord>)>> {
            let mut files = Vec::new();
            for (number, (offset, len)) in index.blocks().enumerate() {
                files.extend(index.files_in(number, &bytes[offset as usize..offset as usize + len])?);
            }
            Some(files)
        };
        assert_eq!(read(&bytes), Some(expected));
        let at = rng.below(blocks_bytes) as usize;
        bytes[at] ^= 4;
        assert_eq!(read(&bytes), None);
    }

    #[test]
    fn any_bytes_are_a_directory_of_a_pack_or_a_file_in_one_or_none() {
        let mut rng = Rng::new(12);
        let mut builder = PackIndexBuilder::default();
        let inode = InodeId(8194);
        builder.add(inode, &[record(&mut rng, inode, 1), record(&mut rng, inode, 2)], &losses(&mut rng));
        let (bytes, blocks_bytes) = builder.finish(Hlc(9), 4096);
        let place =
            PackPlace { id: SegmentId::pack(1), made: crate::header::LogPosition::default(), upto: 2, released: 0 };
        let key = PackKey { chain: ChainId(3), first: 1, last: 2 };
        let directory = bytes[blocks_bytes as usize..].to_vec();
        let (_, range) = file_at(&bytes[..blocks_bytes as usize], 0).unwrap();
        frieze_harness::fuzz!([directory, bytes[range].to_vec()], |bytes: &[u8]| {
            drop(PackIndex::open(place, key, 0, bytes));
            drop(decode_file(inode, bytes));
        });
    }
}
