//! Making an index run: from footers, or from files that come sorted.

use std::collections::BTreeMap;

use frieze_base::varint::put;
use frieze_base::{Fault, InodeId, crc32c};
use frieze_hlc::Hlc;

use super::format::{BLOCK_BYTES, ChainTip, HEAD_BYTES, IndexRun, RunBlock, RunContents, RunHead, SegmentFacts};
use super::io::RunSink;
use super::key::RunKey;
use super::newest::NewestFiles;
use super::piece::{self, RunRecord};
use crate::discarded::{Discards, is_discarded};
use crate::entry::{FooterEntries, FooterRecord};
use crate::header::LogPosition;
use crate::record::RecordHeader;

/// Collects the records of some segments for an index run.
#[derive(Debug, Default)]
pub struct RunBuilder {
    records: Vec<RunRecord>,
    contents: RunContents,
}

impl RunBuilder {
    /// Adds the next segment by the entries of its footer, which were checked. False if they are none.
    pub(crate) fn add(&mut self, facts: &SegmentFacts, entries: &[u8], discarded: &[Discards]) -> bool {
        let Some(listed) = FooterEntries::new(&facts.header, entries).all(facts.records) else { return false };
        for FooterRecord { header, span, .. } in listed {
            self.contents.log_bytes += span.end - span.start;
            if is_discarded(discarded, &header, LogPosition { segment: facts.header.id, offset: span.start }) {
                continue;
            }
            let head = (span.place - span.start) as u8;
            self.records.push(RunRecord { header, segment: facts.header.id, at: span.place as u32, head });
        }
        self.contents.facts.push(*facts);
        true
    }

    /// The last record of each chain among those taken in so far.
    pub fn tips(&self) -> Vec<ChainTip> {
        let tips: BTreeMap<_, _> =
            self.records.iter().map(|RunRecord { header, .. }| (header.chain, tip_of(header))).collect();
        tips.into_values().collect()
    }

    /// Records taken in so far.
    pub fn records(&self) -> usize {
        self.records.len()
    }

    /// The index run and its bytes. `companion` is kept beside them: what the driver wants to find again at a restart
    /// that has no need of these records. `None` without a segment.
    ///
    /// # Cost
    /// Sorts the records: about 200 ns each.
    pub fn finish(mut self, companion: &[u8]) -> Option<(IndexRun, Vec<u8>)> {
        self.contents.facts.first()?;
        let mut sessions = BTreeMap::new();
        let mut chains = BTreeMap::new();
        for RunRecord { header, .. } in &self.records {
            let newest = sessions.entry(header.session).or_insert(header.stamp);
            *newest = header.stamp.max(*newest);
            chains.insert(header.chain, tip_of(header));
        }
        // By stamp, whatever the order in which chains have brought them: then each run is of a short time.
        let mut by_stamp: Vec<(Hlc, InodeId)> =
            self.records.iter().map(|record| (record.header.stamp, record.header.chunk.inode)).collect();
        by_stamp.sort_by_key(|(stamp, _)| *stamp);
        by_stamp.into_iter().for_each(|(stamp, inode)| self.contents.time_runs.push(inode, stamp));
        self.contents.time_runs.close();
        self.contents.sessions = sessions.into_iter().collect();
        self.contents.chains = chains.into_values().collect();
        self.contents.companion = companion.to_vec();
        // Stable: the records of a file stay in the order of the log.
        self.records.sort_by_key(|record| record.header.chunk.inode);
        let mut bytes = Vec::new();
        let mut sink = |offset: u64, part: &[u8]| {
            let (from, end) = (offset as usize, offset as usize + part.len());
            bytes.resize(bytes.len().max(end), 0);
            bytes[from..end].copy_from_slice(part);
            Ok(())
        };
        let mut writer = RunWriter::new(&mut sink);
        let mut encoded = Vec::new();
        for file in self.records.chunk_by(|a, b| a.header.chunk.inode == b.header.chunk.inode) {
            encoded.clear();
            piece::encode(file.iter(), &mut encoded);
            writer.add(file[0].header.chunk.inode, &[&encoded]).ok()?;
        }
        let index_run = writer.finish(&self.contents).ok()?;
        Some((index_run, bytes))
    }
}

pub(super) fn tip_of(header: &RecordHeader) -> ChainTip {
    let RecordHeader { chain, epoch, n, stamp, session, seq, .. } = *header;
    ChainTip { chain, epoch, n, stamp, session, seq }
}

/// Writes blocks of files in order, one behind the other.
#[derive(Debug, Default)]
pub(crate) struct BlockWriter {
    blocks: Vec<RunBlock>,
    open: Vec<u8>,
    open_first: InodeId,
    newest: NewestFiles,
    offset: u64,
}

impl BlockWriter {
    /// Adds the pieces of the next file.
    pub(crate) fn add(&mut self, sink: &mut RunSink<'_>, inode: InodeId, pieces: &[&[u8]]) -> Result<(), Fault> {
        if self.open.is_empty() {
            self.open_first = inode;
        }
        self.newest.add(inode);
        let mut all = Vec::with_capacity(pieces.iter().map(|piece| piece.len() + 5).sum());
        for piece in pieces {
            put(&mut all, piece.len() as u64);
            all.extend_from_slice(piece);
        }
        put(&mut self.open, inode.0);
        put(&mut self.open, all.len() as u64);
        self.open.extend_from_slice(&all);
        if self.open.len() >= BLOCK_BYTES { self.close_block(sink) } else { Ok(()) }
    }

    fn close_block(&mut self, sink: &mut RunSink<'_>) -> Result<(), Fault> {
        let (len, crc) = (self.open.len() as u32, crc32c(&self.open));
        self.blocks.push(RunBlock { first: self.open_first, offset: self.offset, len, crc });
        sink(self.offset, &self.open)?;
        self.offset += u64::from(len);
        self.open.clear();
        Ok(())
    }

    /// Closes the last block: all blocks, the files in them, and where they end.
    pub(crate) fn end(mut self, sink: &mut RunSink<'_>) -> Result<(Vec<RunBlock>, NewestFiles, u64), Fault> {
        if !self.open.is_empty() {
            self.close_block(sink)?;
        }
        self.blocks.shrink_to_fit();
        Ok((self.blocks, self.newest, self.offset))
    }
}

/// Writes an index run from its files in order.
pub(super) struct RunWriter<'a> {
    sink: &'a mut RunSink<'a>,
    blocks: BlockWriter,
}

impl<'a> RunWriter<'a> {
    pub(super) fn new(sink: &'a mut RunSink<'a>) -> RunWriter<'a> {
        RunWriter { sink, blocks: BlockWriter { offset: HEAD_BYTES as u64, ..BlockWriter::default() } }
    }

    /// Adds the pieces of the next file.
    pub(super) fn add(&mut self, inode: InodeId, pieces: &[&[u8]]) -> Result<(), Fault> {
        self.blocks.add(self.sink, inode, pieces)
    }

    /// Writes contents and head.
    pub(super) fn finish(self, contents: &RunContents) -> Result<IndexRun, Fault> {
        let RunWriter { sink, blocks } = self;
        let (blocks, newest, end) = blocks.end(sink)?;
        let bytes = contents.encode(&blocks, &newest);
        let of = |facts: Option<&SegmentFacts>| facts.expect("a index_run has segments").header.id;
        let head = RunHead {
            key: RunKey { first: of(contents.facts.first()), last: of(contents.facts.last()) },
            blocks_bytes: end - HEAD_BYTES as u64,
            contents_bytes: bytes.len() as u64,
            records: contents.facts.iter().map(|facts| facts.records).sum(),
            log_bytes: contents.log_bytes,
            contents_crc: crc32c(&bytes),
        };
        sink(end, &bytes)?;
        sink(0, &head.encode())?;
        Ok(IndexRun {
            key: head.key,
            segments: contents.facts.len(),
            records: head.records,
            newest,
            blocks,
            blocks_bytes: head.blocks_bytes,
            contents_bytes: head.contents_bytes,
        })
    }
}
