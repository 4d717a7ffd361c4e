//! Traces for other simulators of caches.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use frieze_trace::CallKind;

use crate::error::TraceFileError;
use crate::import::REQUEST_BYTES;
use crate::reader::TraceReader;
use crate::row::TraceRow;
use crate::writer::{TraceNames, TraceWriter};
use crate::{KindRules, Manifest};

/// Requests that an export for a simulator has in memory: 24 bytes each.
const REQUESTS_MAX: u64 = 200_000_000;

/// A format of a simulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    /// `oracleGeneral` of libCacheSim: reads of blocks, with the next request for each.
    LibCacheSim,
    /// The table that CacheBench of CacheLib replays: `key,op,size,op_count,key_size`.
    CacheBench,
}

/// Copies a trace without the words of paths, users and machines.
///
/// # Errors
/// Those of reading and writing traces.
pub fn export_without_names(from: &TraceReader, to: &Path, keeps_names: bool) -> Result<Manifest, TraceFileError> {
    let mut manifest = Manifest { events: 0, ..from.manifest().clone() };
    if !keeps_names {
        // Arguments of a program may be names.
        manifest.programs.iter_mut().for_each(|program| {
            let word = program.program.split_whitespace().next().unwrap_or_default();
            program.program = word.rsplit('/').next().unwrap_or_default().to_owned();
        });
    }
    let mut trace = TraceWriter::create(to, manifest)?;
    let copied = from.for_each_group(|rows| rows.into_iter().try_for_each(|row| trace.push(row)));
    let names = copied.and_then(|()| from.names());
    match names {
        Ok(names) if keeps_names => trace.finish(&names, &KindRules::default(), true),
        // Kinds stay: they were decided when the names were known.
        Ok(names) => {
            let names = TraceNames { actors: BTreeMap::new(), ..names };
            trace.finish(&names, &KindRules::default(), false)
        }
        Err(error) => {
            trace.abandon();
            Err(error)
        }
    }
}

/// Writes the blocks that a trace reads (and, with `writes`, writes) for a simulator; returns how many.
///
/// # Errors
/// Those of reading; `System`; `Bad` for more than 200 million requests.
pub fn export_blocks(
    from: &TraceReader,
    to: &Path,
    format: ExportFormat,
    block_bytes: u64,
    writes: bool,
) -> Result<u64, TraceFileError> {
    let mut requests: Vec<BlockAccess> = Vec::new();
    from.for_each_group(|rows| -> Result<(), TraceFileError> {
        for row in &rows {
            let is_write = row.call != CallKind::Read;
            if row.call.moves_bytes() && (writes || !is_write) {
                requests.extend(blocks_of(row, block_bytes));
            }
            if requests.len() as u64 > REQUESTS_MAX {
                let why = format!("it has more than {REQUESTS_MAX} requests: export a part of it, or larger blocks");
                return Err(TraceFileError::bad(to, why));
            }
        }
        Ok(())
    })?;
    requests.sort_by_key(|request| request.start_ns);
    let file = File::create_new(to).map_err(TraceFileError::system("create", to))?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let written = match format {
        ExportFormat::LibCacheSim => {
            let begin = requests.first().map_or(0, |request| request.start_ns);
            let next = next_requests(&requests);
            requests.iter().zip(next).try_for_each(|(request, next)| {
                let mut bytes = [0; REQUEST_BYTES];
                let seconds = u32::try_from((request.start_ns - begin) / 1_000_000_000).unwrap_or(u32::MAX);
                bytes[..4].copy_from_slice(&seconds.to_le_bytes());
                bytes[4..12].copy_from_slice(&request.block.to_le_bytes());
                bytes[12..16].copy_from_slice(&u32::try_from(block_bytes).unwrap_or(u32::MAX).to_le_bytes());
                bytes[16..].copy_from_slice(&next.to_le_bytes());
                out.write_all(&bytes)
            })
        }
        ExportFormat::CacheBench => out.write_all(b"key,op,size,op_count,key_size\n").and_then(|()| {
            requests.iter().try_for_each(|request| {
                let key = format!("{:016x}", request.block);
                let word = if request.is_write { "SET" } else { "GET" };
                writeln!(out, "{key},{word},{block_bytes},1,{}", key.len())
            })
        }),
    };
    written.and_then(|()| out.flush()).map_err(TraceFileError::system("write", to))?;
    Ok(requests.len() as u64)
}

struct BlockAccess {
    start_ns: i64,
    block: u64,
    is_write: bool,
}

/// The blocks that a row touches. One of unknown place counts as one block.
fn blocks_of(row: &TraceRow, block_bytes: u64) -> impl Iterator<Item = BlockAccess> {
    let (file, offset) = (row.inode.or(row.path).unwrap_or(0), row.offset.unwrap_or(0));
    let first = offset / block_bytes;
    let end = offset.saturating_add(row.got.unwrap_or(0).max(1)).div_ceil(block_bytes);
    let (start_ns, is_write) = (row.start_ns, row.call != CallKind::Read);
    (first..end).map(move |block| BlockAccess { start_ns, block: mixed(file, block), is_write })
}

/// One number of a file and a block in it.
fn mixed(file: u64, block: u64) -> u64 {
    let mixed = (file.rotate_left(32) ^ block).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ file
}

/// For each request the number of the next one for its block, or -1.
fn next_requests(requests: &[BlockAccess]) -> Vec<i64> {
    let mut upcoming: BTreeMap<u64, i64> = BTreeMap::new();
    let mut next = vec![-1; requests.len()];
    for (number, request) in requests.iter().enumerate().rev() {
        next[number] = upcoming.insert(request.block, number as i64).unwrap_or(-1);
    }
    next
}
