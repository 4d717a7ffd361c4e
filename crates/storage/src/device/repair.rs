//! Repair: writes over the damaged parts of a record.
//!
//! Guarantees: the repair restores the bytes from before the damage, for everything it writes matches the intact rest
//! of the record: bytes match their checksum, a checksum matches two equal copies of the bytes. Any other copy of a
//! record with this name is refused, and nothing is written. Leaves to others: fetching the bytes (`scrub`);
//! durability, which comes with the next flush: if a power loss takes the repair, the record is as damaged as before.

use frieze_base::{Fault, crc32c};
use frieze_multilog::{NumberedRecord, StoredSpan};

use super::{Device, FileKey, block_checksums};

impl Device {
    /// Overwrites the damaged parts of a record with `payload`, a copy of it. False, and nothing is written, if the
    /// copy does not match.
    ///
    /// # Errors
    /// The disk's.
    pub fn repair_record(&self, record: &NumberedRecord, payload: &[u8]) -> Result<bool, Fault> {
        let Some(stored) = record.stored.filter(|stored| stored.record_len as usize == payload.len()) else {
            return Ok(false);
        };
        if stored.segment.is_pack() {
            return self.repair_packed(&stored, payload);
        }
        let file = self.medium(stored.segment)?;
        let (mut here, mut writes) = (vec![0; stored.block_bytes as usize], Vec::new());
        for (index, block) in (0u64..).zip(payload.chunks(stored.block_bytes as usize)) {
            let (at, crc_at) =
                (stored.data_offset + index * u64::from(stored.block_bytes), stored.crcs_offset + 4 * index);
            let crc = crc32c(block).to_le_bytes();
            let (here, mut known) = (&mut here[..block.len()], [0; 4]);
            // An unreadable range counts as different.
            let is_same = file.read_direct_at(at, here).is_ok_and(|found| found == here.len()) && *here == *block;
            let fits = file.read_direct_at(crc_at, &mut known).is_ok_and(|found| found == known.len()) && known == crc;
            match (is_same, fits) {
                (true, true) => {}
                (false, true) => writes.push((at, block.to_vec())),
                (true, false) => writes.push((crc_at, crc.to_vec())),
                (false, false) => return Ok(false),
            }
        }
        for (at, bytes) in &writes {
            file.write_at(*at, &[bytes])?;
        }
        if !writes.is_empty() {
            self.tiers.note_untracked(FileKey::Segment(stored.segment));
            self.checksums.clear();
            self.dirty.lock().segments.insert(stored.segment);
        }
        Ok(true)
    }

    /// As [`Device::repair_record`], of a record in a pack: its blocks are whole once copies of all records in them
    /// came.
    fn repair_packed(&self, stored: &StoredSpan, payload: &[u8]) -> Result<bool, Fault> {
        let Some(file) = self.open_pack(stored.segment) else { return Ok(false) };
        let (crcs, _) = block_checksums(payload, stored.block_bytes as usize);
        let mut copy: Vec<u8> = crcs.iter().flat_map(|crc| crc.to_le_bytes()).collect();
        copy.extend_from_slice(payload);
        let is_whole = file.mend(stored.crcs_offset, &copy)?;
        if is_whole {
            self.tiers.note_untracked(FileKey::Segment(stored.segment));
            self.checksums.clear();
        }
        Ok(is_whole)
    }
}
