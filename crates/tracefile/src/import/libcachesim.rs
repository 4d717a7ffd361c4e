//! `oracleGeneral` of libCacheSim: 24 bytes a request, little-endian: time (u32, s), object (u64), bytes (u32), number
//! of the next request for the object (i64, -1: none).

use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::Path;

use frieze_trace::{CallKind, Gateway};

use super::target::{ImportSettings, ImportTarget};
use crate::error::TraceFileError;
use crate::row::TraceRow;

/// Bytes of a request.
pub(crate) const REQUEST_BYTES: usize = 24;

pub(super) fn import(
    settings: &ImportSettings,
    input: &Path,
    target: &mut ImportTarget<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<(), TraceFileError> {
    let file = File::open(input).map_err(TraceFileError::system("open", input))?;
    let len = file.metadata().map_err(TraceFileError::system("read", input))?.len();
    if len == 0 || !len.is_multiple_of(REQUEST_BYTES as u64) {
        let why = format!("its {len} bytes are no requests of {REQUEST_BYTES}: is it compressed, or a table of text?");
        return Err(TraceFileError::bad(input, why));
    }
    let mut reader = BufReader::with_capacity(1 << 20, file);
    let mut request = [0; REQUEST_BYTES];
    let mut last = 0;
    for _ in 0..len / REQUEST_BYTES as u64 {
        reader.read_exact(&mut request).map_err(TraceFileError::system("read", input))?;
        progress(REQUEST_BYTES as u64);
        let number = |from: usize, bytes: usize| {
            request[from..from + bytes].iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte))
        };
        let time = number(0, 4);
        if time < last {
            target.note("requests before the one in front of them");
        }
        last = time;
        let start = settings.begin_ns.saturating_add((time as i64).saturating_mul(1_000_000_000));
        let mut row = TraceRow::new(start, CallKind::Read, Gateway::Import);
        (row.inode, row.offset) = (Some(number(4, 8)), Some(0));
        (row.asked, row.got) = (Some(number(12, 4)), Some(number(12, 4)));
        target.push(row)?;
    }
    Ok(())
}
