//! Bytes of a file as they lie on the medium, and not in memory.

use frieze_base::Fault;
use frieze_disk::{DiskFile, PAGE_BYTES};

/// A window of a file that was read from the medium.
#[derive(Default)]
pub struct MediumWindow {
    start: u64,
    bytes: Vec<u8>,
}

impl MediumWindow {
    /// True if it has the bytes `offset..end`.
    pub fn holds(&self, offset: u64, end: u64) -> bool {
        self.start <= offset && end <= self.start + self.bytes.len() as u64
    }

    /// Bytes in it.
    pub fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// True if nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Reads the pages of `offset..end`.
    ///
    /// # Errors
    /// The disk's. Then it has what was read before.
    pub fn fill(&mut self, file: &dyn DiskFile, offset: u64, end: u64) -> Result<(), Fault> {
        self.start = offset / PAGE_BYTES * PAGE_BYTES;
        self.bytes.resize((end.next_multiple_of(PAGE_BYTES) - self.start) as usize, 0);
        let read = file.read_direct_at(self.start, &mut self.bytes);
        self.bytes.truncate(*read.as_ref().unwrap_or(&0));
        read.map(drop).map_err(Fault::from)
    }

    /// `len` bytes from `offset`, fewer where it ends.
    pub fn part(&self, offset: u64, len: usize) -> &[u8] {
        let from = ((offset - self.start) as usize).min(self.bytes.len());
        &self.bytes[from..self.bytes.len().min(from + len)]
    }
}
