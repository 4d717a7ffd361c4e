//! Traces of disks as tables: a volume is a file.

use std::path::Path;

use frieze_trace::{CallKind, Gateway};

use super::target::{ImportFormat, ImportTarget, for_each_line};
use crate::error::TraceFileError;
use crate::row::TraceRow;

/// From 1601, where Windows begins, to 1970, in 100 ns.
const WINDOWS_EPOCH: i64 = 116_444_736_000_000_000;
/// Bytes of a sector.
const SECTOR_BYTES: u64 = 512;

/// A request of a disk.
struct BlockRequest {
    start_ns: i64,
    duration_ns: Option<u64>,
    volume: Vec<u8>,
    writes: bool,
    offset: u64,
    bytes: u64,
}

pub(super) fn import(
    format: ImportFormat,
    input: &Path,
    target: &mut ImportTarget<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<(), TraceFileError> {
    for_each_line(input, progress, target, |target, line| {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let request = match format {
            ImportFormat::Msr => msr(&fields),
            ImportFormat::Tencent => tencent(&fields),
            _ => alibaba(&fields),
        };
        let Some(request) = request else {
            target.note("lines that are no request");
            return Ok(());
        };
        let path = target.path(&[b"/", &request.volume[..]].concat(), input)?;
        let call = if request.writes { CallKind::Write } else { CallKind::Read };
        let mut row = TraceRow::new(request.start_ns, call, Gateway::Import);
        (row.inode, row.path, row.duration_ns) = (Some(path), Some(path), request.duration_ns);
        (row.offset, row.asked, row.got) = (Some(request.offset), Some(request.bytes), Some(request.bytes));
        target.push(row)
    })
}

/// `Timestamp (100 ns since 1601),Hostname,DiskNumber,Type,Offset,Size,ResponseTime (100 ns)`.
fn msr(fields: &[&str]) -> Option<BlockRequest> {
    let &[time, host, disk, kind, offset, bytes, response] = fields else { return None };
    let time: i64 = time.parse().ok()?;
    Some(BlockRequest {
        start_ns: time.checked_sub(WINDOWS_EPOCH)?.checked_mul(100)?,
        duration_ns: response.parse::<u64>().ok()?.checked_mul(100),
        volume: format!("{host}/{disk}").into_bytes(),
        writes: is_write(kind)?,
        offset: offset.parse().ok()?,
        bytes: bytes.parse().ok()?,
    })
}

/// `Timestamp (s),Offset (sectors),Size (sectors),IOType (0 read, 1 write),VolumeID`.
fn tencent(fields: &[&str]) -> Option<BlockRequest> {
    let &[time, offset, sectors, kind, volume] = fields else { return None };
    Some(BlockRequest {
        start_ns: time.parse::<i64>().ok()?.checked_mul(1_000_000_000)?,
        duration_ns: None,
        volume: volume.as_bytes().to_vec(),
        writes: is_write(kind)?,
        offset: offset.parse::<u64>().ok()?.checked_mul(SECTOR_BYTES)?,
        bytes: sectors.parse::<u64>().ok()?.checked_mul(SECTOR_BYTES)?,
    })
}

/// `device_id,opcode (R, W),offset (bytes),length (bytes),timestamp (us)`.
fn alibaba(fields: &[&str]) -> Option<BlockRequest> {
    let &[volume, kind, offset, bytes, time] = fields else { return None };
    Some(BlockRequest {
        start_ns: time.parse::<i64>().ok()?.checked_mul(1000)?,
        duration_ns: None,
        volume: volume.as_bytes().to_vec(),
        writes: is_write(kind)?,
        offset: offset.parse().ok()?,
        bytes: bytes.parse().ok()?,
    })
}

fn is_write(kind: &str) -> Option<bool> {
    match kind {
        "R" | "r" | "Read" | "read" | "0" => Some(false),
        "W" | "w" | "Write" | "write" | "1" => Some(true),
        _ => None,
    }
}
