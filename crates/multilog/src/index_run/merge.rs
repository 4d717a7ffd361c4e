//! Several index runs made one, and reading index runs file by file.

use std::collections::BTreeMap;

use frieze_base::varint::{take, take_bytes};
use frieze_base::{InodeId, SessionId, crc32c};
use frieze_hlc::Hlc;

use super::build::RunWriter;
use super::format::{BLOCK_BYTES, ChainTip, HEAD_BYTES, IndexRun, RunBlock, RunContents, RunHead, open};
use super::io::{RunSink, RunSource};
use super::key::RunKey;
use super::piece;
use crate::discarded::Discards;
use crate::error::Error;

/// Index runs that follow each other, about to become one.
#[derive(Debug)]
pub struct RunMerge {
    inputs: Vec<MergeInput>,
    contents: RunContents,
    bytes_max: u64,
}

#[derive(Debug)]
struct MergeInput {
    index_run: IndexRun,
    /// Blocks read so far.
    blocks: usize,
    block: Vec<u8>,
    at: usize,
    /// The next file and its pieces in `block`.
    next: Option<(InodeId, std::ops::Range<usize>)>,
}

/// Reads head and contents of an index run.
///
/// # Errors
/// The source's; `DamagedIndexRun`; `IndexRunVersion`.
pub(crate) fn read_contents(source: &mut dyn RunSource, key: RunKey) -> Result<(IndexRun, RunContents), Error> {
    let head = read_exactly(source, key, 0, HEAD_BYTES as u64)?;
    let head = RunHead::decode(key, &head)?;
    let contents = read_exactly(source, key, head.contents_at(), head.contents_bytes)?;
    open(&head, &contents).ok_or(Error::DamagedIndexRun { run: key })
}

/// Reads all of an index run as a merge or a fetch would.
///
/// # Errors
/// The source's; `DamagedIndexRun` if a part of it is not what was written.
pub fn check_index_run(source: &mut dyn RunSource, key: RunKey) -> Result<(), Error> {
    let damaged = || Error::DamagedIndexRun { run: key };
    let (index_run, _) = read_contents(source, key)?;
    let mut records = Vec::new();
    for block in &index_run.blocks {
        let bytes = read_block(source, key, block)?;
        let mut at = 0;
        while at < bytes.len() {
            let (inode, range) = file_at(&bytes, at).ok_or_else(damaged)?;
            at = range.end;
            let mut pieces = Vec::new();
            pieces_of(&bytes[range], &mut pieces).ok_or_else(damaged)?;
            for piece in pieces {
                records.clear();
                piece::decode(inode, piece, &mut records).ok_or_else(damaged)?;
            }
        }
    }
    Ok(())
}

/// As many bytes as there are, up to `len`.
fn read_exactly(source: &mut dyn RunSource, key: RunKey, offset: u64, len: u64) -> Result<Vec<u8>, Error> {
    // A length that rotted must not take all memory: bytes come as far as there are any.
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < len {
        let from = bytes.len();
        bytes.resize(from + (len - from as u64).min(READ_BYTES) as usize, 0);
        let read = source.read(key, offset + from as u64, &mut bytes[from..]).map_err(Error::Source)?;
        bytes.truncate(from + read);
        if read == 0 {
            break;
        }
    }
    Ok(bytes)
}

impl RunMerge {
    /// Reads what the index runs say beside their files. `discarded`: what was since they were made.
    ///
    /// # Errors
    /// The source's; `DamagedIndexRun` with the one that has to be rebuilt.
    ///
    /// # Panics
    /// Without a key.
    pub fn begin(source: &mut dyn RunSource, keys: &[RunKey], discarded: &[Discards]) -> Result<RunMerge, Error> {
        assert!(!keys.is_empty(), "a merge of no index_runs");
        let mut contents = RunContents::default();
        let mut sessions: BTreeMap<SessionId, Hlc> = BTreeMap::new();
        let mut chains: BTreeMap<_, ChainTip> = BTreeMap::new();
        let (mut inputs, mut blocks_bytes, mut contents_bytes) = (Vec::new(), 0, 0);
        for &key in keys {
            let (index_run, mut own) = read_contents(source, key)?;
            own.leave_out(discarded);
            blocks_bytes += index_run.blocks_bytes;
            contents_bytes += index_run.contents_bytes;
            contents.facts.extend(own.facts);
            for (session, stamp) in own.sessions {
                let newest = sessions.entry(session).or_insert(stamp);
                *newest = stamp.max(*newest);
            }
            chains.extend(own.chains.into_iter().map(|tip| (tip.chain, tip)));
            contents.time_runs.append(&own.time_runs);
            contents.companion = own.companion;
            contents.log_bytes += own.log_bytes;
            inputs.push(MergeInput { index_run, blocks: 0, block: Vec::new(), at: 0, next: None });
        }
        contents.sessions = sessions.into_iter().collect();
        contents.chains = chains.into_values().collect();
        // Blocks are cut anew; what a directory says of one has at most 19 bytes.
        let directory_max = (blocks_bytes / BLOCK_BYTES as u64 + 2) * 24;
        let bytes_max = HEAD_BYTES as u64 + blocks_bytes + contents_bytes + directory_max + 64;
        Ok(RunMerge { inputs, contents, bytes_max })
    }

    /// The most bytes that the index run will have.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Writes the index run that says what the others say.
    ///
    /// # Errors
    /// The source's and the sink's; `DamagedIndexRun` with the one that has to be rebuilt.
    ///
    /// # Cost
    /// Reads all and writes as much; memory for a block of each, or the largest file.
    pub fn run(mut self, source: &mut dyn RunSource, sink: &mut RunSink<'_>) -> Result<IndexRun, Error> {
        for input in &mut self.inputs {
            input.advance(source)?;
        }
        let mut offered = |offset: u64, bytes: &[u8]| sink(offset, bytes);
        let mut writer = RunWriter::new(&mut offered);
        while let Some(inode) = self.inputs.iter().filter_map(|input| Some(input.next.as_ref()?.0)).min() {
            let mut holders: Vec<&mut MergeInput> = self
                .inputs
                .iter_mut()
                .filter(|input| input.next.as_ref().is_some_and(|next| next.0 == inode))
                .collect();
            let mut pieces: Vec<&[u8]> = Vec::new();
            for input in &holders {
                let damaged = || Error::DamagedIndexRun { run: input.index_run.key };
                pieces_of(input.next_bytes(), &mut pieces).ok_or_else(damaged)?;
            }
            let joined = join(inode, &pieces);
            let written = match &joined {
                Some(joined) => writer.add(inode, &[joined]),
                None => writer.add(inode, &pieces),
            };
            written.map_err(Error::Source)?;
            for input in &mut holders {
                input.advance(source)?;
            }
        }
        writer.finish(&self.contents).map_err(Error::Source)
    }
}

/// Small pieces as one, where that is shorter.
fn join(inode: InodeId, pieces: &[&[u8]]) -> Option<Vec<u8>> {
    let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
    if pieces.len() < 2 || bytes > JOIN_BYTES_MAX {
        return None;
    }
    let mut records = Vec::new();
    for piece in pieces {
        piece::decode(inode, piece, &mut records)?;
    }
    let mut joined = Vec::with_capacity(bytes);
    piece::encode(records.iter(), &mut joined);
    (joined.len() < bytes).then_some(joined)
}

/// Splits the pieces of a file; `None` if they are damaged.
pub(crate) fn pieces_of<'a>(mut bytes: &'a [u8], pieces: &mut Vec<&'a [u8]>) -> Option<()> {
    while !bytes.is_empty() {
        let len = usize::try_from(take(&mut bytes)?).ok()?;
        pieces.push(take_bytes(&mut bytes, len)?);
    }
    Some(())
}

/// The file at `at` of a block: its inode, and where its pieces are. `None` if the block is damaged.
pub(crate) fn file_at(block: &[u8], at: usize) -> Option<(InodeId, std::ops::Range<usize>)> {
    let mut rest = block.get(at..)?;
    let inode = InodeId(take(&mut rest)?);
    let len = usize::try_from(take(&mut rest)?).ok()?;
    let start = block.len() - rest.len();
    (len <= rest.len()).then_some((inode, start..start + len))
}

/// Reads a block, checked.
fn read_block(source: &mut dyn RunSource, key: RunKey, block: &RunBlock) -> Result<Vec<u8>, Error> {
    let bytes = read_exactly(source, key, block.offset, block.len.into())?;
    let sound = bytes.len() == block.len as usize && crc32c(&bytes) == block.crc;
    if sound { Ok(bytes) } else { Err(Error::DamagedIndexRun { run: key }) }
}

impl MergeInput {
    fn next_bytes(&self) -> &[u8] {
        self.next.as_ref().map_or(&[], |(_, range)| &self.block[range.clone()])
    }

    fn advance(&mut self, source: &mut dyn RunSource) -> Result<(), Error> {
        if self.at == self.block.len() {
            let Some(block) = self.index_run.blocks.get(self.blocks) else {
                self.next = None;
                return Ok(());
            };
            self.block = read_block(source, self.index_run.key, block)?;
            (self.blocks, self.at) = (self.blocks + 1, 0);
        }
        let next = file_at(&self.block, self.at).ok_or(Error::DamagedIndexRun { run: self.index_run.key })?;
        self.at = next.1.end;
        self.next = Some(next);
        Ok(())
    }
}

/// Most bytes of a file's pieces that are made one: more would take long, and have little to gain.
const JOIN_BYTES_MAX: usize = 64 << 10;
/// What is read at a time of what is long.
const READ_BYTES: u64 = 4 << 20;
