//! A small record kept durably: the clock's bound, the server's identity.
//!
//! Guarantees: a record that [`StateFile::write`] returned for is what a later open reads, also after a loss of power;
//! a write that a crash cut short leaves the record before it. Costs one write and one sync each time; its space is
//! reserved when it is made, so a full disk does not stop it.
//! Leaves to others: what the bytes mean.
//!
//! Two slots, of 4096 bytes unless the record was made with larger ones; a write goes to the slot that does not hold
//! the newest record. Little-endian:
//!
//! | offset in slot | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `FRZS` |
//! | 4 | 4 | payload length |
//! | 8 | 8 | generation: 1 for the first record; slot = generation modulo 2 |
//! | 16 | 4 | CRC32C of bytes 0..16 and the payload |
//! | 20 | length | payload |

use std::sync::Arc;

use frieze_base::Crc32c;
use frieze_locks::{Mutex, levels};

use crate::{Disk, DiskFile, Error, Result};

/// A small durable record. Safe to share; writes are serialised.
pub struct StateFile {
    name: String,
    file: Arc<dyn DiskFile>,
    slot_bytes: usize,
    newest: Mutex<levels::StateFile, Newest>,
}

struct Newest {
    generation: u64,
    payload: Option<Vec<u8>>,
}

impl StateFile {
    /// First bytes of a slot that was written.
    pub const MAGIC: [u8; 4] = MAGIC;

    /// Opens the record `name` of a device; creates an empty one, durably, if there is none.
    ///
    /// # Errors
    /// `Corrupt` if both slots were written and neither is intact; no crash can cause that. `NoSpace`, `InputOutput`.
    pub fn open_or_create(disk: &dyn Disk, name: &str) -> Result<StateFile> {
        StateFile::open_or_create_sized(disk, name, SLOT_BYTES)
    }

    /// As [`StateFile::open_or_create`]; a new file holds records of up to `slot_bytes` (4 KiB to 1 MiB) less 20.
    ///
    /// # Errors
    /// As [`StateFile::open_or_create`].
    pub fn open_or_create_sized(disk: &dyn Disk, name: &str, slot_bytes: usize) -> Result<StateFile> {
        let lengths = SLOT_BYTES..=SLOT_BYTES_MAX;
        assert!(lengths.contains(&slot_bytes), "slots of {slot_bytes} bytes, not of {lengths:?}");
        let file = match disk.open(name) {
            Ok(file) => file,
            Err(error) if error.reason() == frieze_base::Reason::NotFound => {
                disk.create(name, 2 * slot_bytes as u64)?
            }
            Err(error) => return Err(error),
        };
        // A file is as long as its slots; a file that was truncated is read as far as it reaches.
        let slot_bytes = usize::try_from(file.len()? / 2).unwrap_or(SLOT_BYTES).clamp(SLOT_BYTES, SLOT_BYTES_MAX);
        // Also for an existing file: a process that died may have left name and record in the page cache only, and what
        // is read here has to stay.
        file.sync()?;
        disk.sync_dir()?;
        let slots = [read_slot(&*file, 0, slot_bytes)?, read_slot(&*file, 1, slot_bytes)?];
        if slots.iter().all(|slot| matches!(slot, StateSlot::Torn)) {
            return Err(Error::Corrupt { name: name.to_owned(), what: "neither of its two slots is whole".to_owned() });
        }
        let mut newest = Newest { generation: 0, payload: None };
        for slot in slots {
            if let StateSlot::Whole { generation, payload } = slot
                && generation > newest.generation
            {
                newest = Newest { generation, payload: Some(payload) };
            }
        }
        Ok(StateFile { name: name.to_owned(), file, slot_bytes, newest: Mutex::new(newest) })
    }

    /// The newest record; `None` if there never was one.
    pub fn read(&self) -> Option<Vec<u8>> {
        self.newest.lock().payload.clone()
    }

    /// Replaces the record. Durable on return.
    ///
    /// # Errors
    /// `InvalidArgument` above [`StateFile::bytes_max`]; `Corrupt` behind a record with the last number. After
    /// `InputOutput` the file has the old or the new record, and accepts no more writes.
    pub fn write(&self, payload: &[u8]) -> Result<()> {
        if payload.len() > self.bytes_max() {
            let (bytes, bytes_max) = (payload.len(), self.bytes_max());
            return Err(Error::StateTooLarge { name: self.name.clone(), bytes, bytes_max });
        }
        let mut newest = self.newest.lock();
        let generation = newest.generation + 1;
        if generation == NO_GENERATION {
            let what = "its newest record has the last number of all: no writer counts that far".to_owned();
            return Err(Error::Corrupt { name: self.name.clone(), what });
        }
        let header = header(generation, payload);
        self.file.write_at(generation % 2 * self.slot_bytes as u64, &[&header, payload])?;
        self.file.sync()?;
        *newest = Newest { generation, payload: Some(payload.to_vec()) };
        Ok(())
    }

    /// Largest record that it holds, in bytes.
    pub fn bytes_max(&self) -> usize {
        self.slot_bytes - HEADER_BYTES
    }
}

impl std::fmt::Debug for StateFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StateFile").field("name", &self.name).finish_non_exhaustive()
    }
}

enum StateSlot {
    Blank,
    Torn,
    Whole { generation: u64, payload: Vec<u8> },
}

fn read_slot(file: &dyn DiskFile, slot: u64, slot_bytes: usize) -> Result<StateSlot> {
    // Most records are short, and most slots of large files were never written: the whole slot is read only if its
    // beginning does not decide.
    let mut bytes = vec![0u8; SLOT_BYTES.min(slot_bytes)];
    if file.read_at(slot * slot_bytes as u64, &mut bytes)? == 0 {
        return Ok(StateSlot::Blank);
    }
    let is_whole_here = bytes[..4] == MAGIC && word(&bytes, 4) as usize <= bytes.len() - HEADER_BYTES;
    if !is_whole_here && slot_bytes > bytes.len() {
        bytes.resize(slot_bytes, 0);
        file.read_at(slot * slot_bytes as u64, &mut bytes)?;
    }
    // Each byte equals the one before it, and the first is zero: compared as one run, not one by one.
    if bytes[0] == 0 && bytes[1..] == bytes[..slot_bytes - 1] {
        return Ok(StateSlot::Blank);
    }
    // Where the file ends within the slot, zeros stand for the rest: the checksum says whether the record is whole. A
    // record that was written to a file which had been cut is one.
    let generation = u64::from(word(&bytes, 8)) | u64::from(word(&bytes, 12)) << 32;
    let len = word(&bytes, 4) as usize;
    if bytes[..4] != MAGIC || len > slot_bytes - HEADER_BYTES {
        return Ok(StateSlot::Torn);
    }
    let payload = &bytes[HEADER_BYTES..HEADER_BYTES + len];
    if bytes[..HEADER_BYTES] != header(generation, payload) {
        return Ok(StateSlot::Torn);
    }
    // No writer counts that far.
    if generation == NO_GENERATION {
        return Ok(StateSlot::Torn);
    }
    Ok(StateSlot::Whole { generation, payload: payload.to_vec() })
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn header(generation: u64, payload: &[u8]) -> [u8; HEADER_BYTES] {
    let mut bytes = [0u8; HEADER_BYTES];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..8].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    bytes[8..16].copy_from_slice(&generation.to_le_bytes());
    let mut crc = Crc32c::default();
    crc.update(&bytes[..16]);
    crc.update(payload);
    bytes[16..20].copy_from_slice(&crc.value().to_le_bytes());
    bytes
}

/// Largest record of [`StateFile::open_or_create`], in bytes.
pub const STATE_BYTES_MAX: usize = SLOT_BYTES - HEADER_BYTES;
const SLOT_BYTES: usize = 4096;
/// Largest slot: a write of it is still one transfer.
const SLOT_BYTES_MAX: usize = 1 << 20;
/// The number of no record: there is none above it.
const NO_GENERATION: u64 = u64::MAX;
const HEADER_BYTES: usize = 20;
const MAGIC: [u8; 4] = *b"FRZS";

#[cfg(test)]
mod tests;
