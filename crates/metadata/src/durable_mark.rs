//! How far the journal of the metalog was flushed, noted after each flush.
//!
//! A journal ends where no further record is whole: a write that a loss of power tore looks like a record that was
//! flushed and has rotted since. The mark tells them apart. The identity has such a mark too, which is flushed and
//! therefore seldom written; this one is not flushed. A killed process leaves it as it is; after a loss of power it may
//! be an older one, and damage behind that is taken for a torn end.
//!
//! One sector of 512 bytes, which a loss of power leaves old or new: magic `FRZD`, CRC32C of the number of the record
//! (4), the number (8). Little-endian. What cannot be read says nothing.

use std::sync::Arc;

use frieze_base::{Fault, LogIndex, Reason, crc32c};
use frieze_disk::{Disk, DiskFile};

/// Its file.
pub(crate) const DURABLE_MARK_FILE: &str = "names-durable";
const SECTOR_BYTES: usize = 512;
const MAGIC: [u8; 4] = *b"FRZD";

/// The mark of a journal.
pub(crate) struct DurableMark(Arc<dyn DiskFile>);

impl DurableMark {
    /// The mark on `disk`, made if there is none, or one of another length: a loss of power may leave that of a file
    /// that was just made.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) fn open(disk: &dyn Disk) -> Result<DurableMark, Fault> {
        match disk.open(DURABLE_MARK_FILE).map_err(Fault::from) {
            Ok(file) if file.len()? == SECTOR_BYTES as u64 => return Ok(DurableMark(file)),
            Ok(_) => disk.remove(DURABLE_MARK_FILE)?,
            Err(fault) if fault.reason == Reason::NotFound => {}
            Err(fault) => return Err(fault),
        }
        Ok(DurableMark(disk.create(DURABLE_MARK_FILE, SECTOR_BYTES as u64)?))
    }

    /// The journal was flushed at least up to this record.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) fn read(&self) -> Result<LogIndex, Fault> {
        let mut bytes = [0; 16];
        self.0.read_at(0, &mut bytes)?;
        let [magic, crc, low, high] = [0, 4, 8, 12].map(|at| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let index = [low, high];
        let is_whole = magic == MAGIC && u32::from_le_bytes(crc) == crc32c(index.as_flattened());
        let (low, high) = (u32::from_le_bytes(low), u32::from_le_bytes(high));
        Ok(LogIndex(if is_whole { u64::from(low) | u64::from(high) << 32 } else { 0 }))
    }

    /// Notes that the journal is flushed up to the record `number`.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) fn note(&self, number: LogIndex) -> Result<(), Fault> {
        let number = number.0.to_le_bytes();
        Ok(self.0.write_at(0, &[&MAGIC, &crc32c(&number).to_le_bytes(), &number])?)
    }

    /// Forgets the mark, durably: the journal is about to be cut on purpose.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) fn reset(&self) -> Result<(), Fault> {
        self.note(LogIndex(0))?;
        Ok(self.0.sync()?)
    }
}

#[cfg(test)]
mod tests {
    use frieze_disk::SimDisk;

    use super::*;

    #[test]
    fn a_mark_of_another_length_is_made_anew() {
        let disk = SimDisk::new(1);
        disk.create(DURABLE_MARK_FILE, 0).expect("there is room");
        let mark = DurableMark::open(&disk).expect("it is made");
        mark.note(LogIndex(7)).expect("a disk that works");
        assert_eq!(DurableMark::open(&disk).expect("it is there").read(), Ok(LogIndex(7)));
    }

    #[test]
    fn a_mark_is_what_was_noted_last_or_nothing() {
        let disk = SimDisk::new(1);
        let mark = DurableMark::open(&disk).expect("it is made");
        assert_eq!(mark.read(), Ok(LogIndex(0)));
        for index in [1, 1 << 40, u64::MAX] {
            mark.note(LogIndex(index)).expect("it is written");
            assert_eq!(DurableMark::open(&disk).and_then(|mark| mark.read()), Ok(LogIndex(index)));
        }
        for bit in 0..128 {
            disk.flip_bit(DURABLE_MARK_FILE, bit / 8, (bit % 8) as u8).expect("it is there");
            assert_eq!(mark.read(), Ok(LogIndex(0)), "a damaged mark says nothing");
            disk.flip_bit(DURABLE_MARK_FILE, bit / 8, (bit % 8) as u8).expect("it is there");
        }
        mark.reset().expect("it is written");
        assert_eq!(mark.read(), Ok(LogIndex(0)));
    }
}
