//! Parts of a payload: bytes in memory, or a range of a file.

use std::fmt;
use std::os::fd::AsFd;
use std::sync::Arc;

use frieze_hlc::Hlc;

/// A part of the payload of a reply.
#[derive(Clone, Debug)]
pub enum PayloadPart {
    /// The next so many bytes of the payload buffer, read and verified.
    Read(usize),
    /// Bytes that stay in their file, unverified.
    File(FileRange),
}

impl PayloadPart {
    /// Length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "no caller needs it: a part is never empty")]
    pub fn len(&self) -> usize {
        match self {
            PayloadPart::Read(len) => *len,
            PayloadPart::File(range) => range.len,
        }
    }
}

/// A range of a file that holds bytes of a record, for a system call that sends them without a copy. The bytes are
/// unverified: the receiver compares them with a checksum that was taken when they were written.
#[derive(Clone)]
pub struct FileRange {
    /// The file.
    pub file: Arc<dyn AsFd + Send + Sync>,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub len: usize,
    /// Stamp of the record. Records that begin at one offset of a file have different stamps.
    pub stamp: Hlc,
    /// Bytes of the record before this range.
    pub skip: u32,
}

impl fmt::Debug for FileRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {} of a file, {} into the record of {}", self.len, self.offset, self.skip, self.stamp)
    }
}
