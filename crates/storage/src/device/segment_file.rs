//! Files of segments: their names, and writes that undo what a failed write or a crash has left.

use frieze_base::{Fault, SegmentId};
use frieze_disk::DiskFile;
use frieze_multilog::RECORD_MARK_BYTES;

/// The name of a segment's file.
pub(super) fn segment_name(id: SegmentId) -> String {
    format!("seg-{:016x}", id.0)
}

/// The segment with a file of that name.
pub(super) fn segment_of(name: &str) -> Option<SegmentId> {
    u64::from_str_radix(name.strip_prefix("seg-")?, 16).ok().map(SegmentId)
}

/// Erases the header of a record, so that recovery ends before it.
pub(super) fn erase_header(file: &dyn DiskFile, offset: u64) -> Result<(), Fault> {
    write_surely(file, offset, &[0; RECORD_MARK_BYTES])
}

/// Writes with retries, to undo a failed write: a device that has just refused a write may refuse more.
pub fn write_surely(file: &dyn DiskFile, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
    let mut written = file.write_at(offset, &[bytes]);
    for _ in 1..UNDO_TRIES {
        if written.is_err() {
            written = file.write_at(offset, &[bytes]);
        }
    }
    Ok(written?)
}

/// Erases bytes, durably, if they are not zeros.
pub(super) fn wipe(file: &dyn DiskFile, offset: u64, len: usize) -> Result<(), Fault> {
    let mut left = vec![0u8; len];
    file.read_at(offset, &mut left)?;
    if left.iter().any(|&byte| byte != 0) {
        file.write_at(offset, &[&vec![0u8; len]])?;
        file.sync()?;
    }
    Ok(())
}

/// Bytes at the end of a footer.
pub(super) const TRAILER_BYTES: u64 = 128;
/// Attempts to undo a write that the device refused.
const UNDO_TRIES: usize = 4;
