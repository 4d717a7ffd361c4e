use frieze_base::{Reason, Rng};

use super::*;
use crate::{CrashKind, SimDisk};

fn reopened(disk: &SimDisk) -> StateFile {
    StateFile::open_or_create(disk, "bound").unwrap()
}

#[test]
fn a_new_record_is_empty_and_an_old_one_is_read_back() {
    let disk = SimDisk::new(1);
    let state = reopened(&disk);
    assert_eq!(state.read(), None);
    state.write(b"one").unwrap();
    state.write(b"two").unwrap();
    assert_eq!(state.read().as_deref(), Some(&b"two"[..]));
    assert_eq!(reopened(&disk).read().as_deref(), Some(&b"two"[..]));
    reopened(&disk).write(b"").unwrap();
    assert_eq!(reopened(&disk).read().as_deref(), Some(&b""[..]), "an empty record is not a missing one");
}

#[test]
fn the_largest_record_fits_and_one_byte_more_is_refused() {
    let disk = SimDisk::new(1);
    let state = reopened(&disk);
    let largest = vec![9; STATE_BYTES_MAX];
    state.write(&largest).unwrap();
    let error = state.write(&[largest.clone(), vec![1]].concat()).unwrap_err();
    assert_eq!(error.to_string(), "cannot keep 4077 bytes in bound: it holds at most 4076");
    assert_eq!(reopened(&disk).read(), Some(largest));
}

#[test]
fn a_record_of_larger_slots_is_read_back_by_any_opener() {
    let disk = SimDisk::new(1);
    let large = StateFile::open_or_create_sized(&disk, "bound", 64 << 10).unwrap();
    let record = vec![7; large.bytes_max()];
    assert_eq!(record.len(), (64 << 10) - HEADER_BYTES);
    for fill in [1, 2, 3] {
        large.write(&vec![fill; record.len()]).unwrap();
    }
    assert!(large.write(&[0].repeat(record.len() + 1)).is_err());
    assert_eq!(reopened(&disk).read(), Some(vec![3; record.len()]));
}

#[test]
fn a_torn_slot_gives_the_record_before_it() {
    let disk = SimDisk::new(1);
    let state = reopened(&disk);
    state.write(b"one").unwrap(); // slot 1
    state.write(b"two").unwrap(); // slot 0
    disk.flip_bit("bound", 21, 3).unwrap();
    let state = reopened(&disk);
    assert_eq!(state.read().as_deref(), Some(&b"one"[..]));
    state.write(b"three").unwrap();
    assert_eq!(reopened(&disk).read().as_deref(), Some(&b"three"[..]), "and the torn slot is the next to be written");
}

#[test]
fn any_flipped_bit_of_a_slot_is_noticed() {
    for at in 0..(HEADER_BYTES + 3) as u64 {
        for bit in 0..8 {
            let disk = SimDisk::new(1);
            let state = reopened(&disk);
            state.write(b"one").unwrap();
            state.write(b"two").unwrap();
            disk.flip_bit("bound", at, bit).unwrap();
            assert_eq!(reopened(&disk).read().as_deref(), Some(&b"one"[..]), "byte {at} bit {bit}");
        }
    }
}

#[test]
fn two_broken_slots_are_corruption_not_an_empty_record() {
    let disk = SimDisk::new(1);
    let state = reopened(&disk);
    state.write(b"one").unwrap();
    state.write(b"two").unwrap();
    disk.flip_bit("bound", 22, 0).unwrap();
    disk.flip_bit("bound", 4096 + 22, 0).unwrap();
    let error = StateFile::open_or_create(&disk, "bound").unwrap_err();
    assert_eq!(error.reason(), Reason::Corrupt);
}

#[test]
fn the_bytes_on_disk_are_those_of_the_table() {
    let disk = SimDisk::new(1);
    reopened(&disk).write(b"frieze").unwrap();
    let mut bytes = [0; 26];
    disk.open("bound").unwrap().read_at(4096, &mut bytes).unwrap();
    let expected = [b"FRZS\x06\0\0\0\x01\0\0\0\0\0\0\0".as_slice(), &GOLDEN_CRC.to_le_bytes(), b"frieze"].concat();
    assert_eq!(bytes[..], expected[..], "{bytes:02x?}");
}

/// CRC32C of the first 16 bytes and the payload, computed by other code.
const GOLDEN_CRC: u32 = 0x9c6a_bbfa;

#[test]
fn a_crash_anywhere_leaves_the_record_acknowledged_last_or_the_one_being_written() {
    let mut cuts = 0;
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let disk = SimDisk::new(seed);
        let mut acknowledged: Option<Vec<u8>> = None;
        let mut attempted: Option<Vec<u8>> = None;
        for round in 0..6u8 {
            disk.fail_after(rng.between(1, 8));
            let cut = StateFile::open_or_create(&disk, "bound").and_then(|state| {
                let found = state.read();
                assert!(found == acknowledged || found == attempted, "seed {seed} round {round}: {found:?}");
                acknowledged = found;
                loop {
                    let record = vec![round; rng.between(1, 2000) as usize];
                    attempted = Some(record.clone());
                    state.write(&record)?;
                    acknowledged = Some(record);
                }
            });
            let error: Error = cut.map(|never: std::convert::Infallible| never).unwrap_err();
            assert!(matches!(error, Error::Crashed { .. }), "seed {seed}: {error}");
            cuts += 1;
            disk.crash(if rng.chance(3) { CrashKind::Process } else { CrashKind::Power });
            disk.restart();
        }
    }
    assert_eq!(cuts, 2400);
}

#[test]
fn a_full_disk_does_not_stop_a_record_from_being_replaced() {
    let disk = SimDisk::with_capacity(1, 8192);
    let state = reopened(&disk);
    assert!(disk.create("more", 1).is_err());
    state.write(b"bound").unwrap();
    assert_eq!(state.read().as_deref(), Some(&b"bound"[..]));
}

#[test]
fn a_record_written_to_a_file_that_was_cut_is_read_back() {
    let disk = SimDisk::new(1);
    let state = reopened(&disk);
    state.write(b"one").unwrap();
    state.write(b"two").unwrap();
    let mut slot = vec![0; SLOT_BYTES];
    disk.open("bound").unwrap().read_at(0, &mut slot).unwrap();
    // Of the second slot, in which the next record goes, the beginning is left.
    let cut = SimDisk::new(2);
    cut.create("bound", SLOT_BYTES as u64 + 100).unwrap().write_at(0, &[&slot]).unwrap();
    let state = reopened(&cut);
    assert_eq!(state.read().as_deref(), Some(&b"two"[..]));
    state.write(b"three").unwrap();
    assert_eq!(reopened(&cut).read().as_deref(), Some(&b"three"[..]));
}

#[test]
fn a_record_with_the_last_number_of_all_is_none() {
    let disk = SimDisk::new(1);
    let state = reopened(&disk);
    state.write(b"one").unwrap();
    let mut slot = vec![0; SLOT_BYTES];
    disk.open("bound").unwrap().read_at(SLOT_BYTES as u64, &mut slot).unwrap();
    slot[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    let mut forged = [vec![0; SLOT_BYTES], slot].concat();
    seal(&mut forged);
    disk.open("bound").unwrap().write_at(SLOT_BYTES as u64, &[&forged[SLOT_BYTES..]]).unwrap();
    // The next write needs a number above that of the newest record.
    let state = reopened(&disk);
    assert_eq!(state.read(), None);
    state.write(b"two").unwrap();
    assert_eq!(reopened(&disk).read().as_deref(), Some(&b"two"[..]));
}

#[test]
fn behind_a_record_with_the_last_number_none_is_written_and_that_one_stays() {
    let disk = SimDisk::new(1);
    let state = reopened(&disk);
    state.write(b"one").unwrap();
    let mut slot = vec![0; SLOT_BYTES];
    disk.open("bound").unwrap().read_at(SLOT_BYTES as u64, &mut slot).unwrap();
    slot[8..16].copy_from_slice(&(u64::MAX - 1).to_le_bytes());
    let mut forged = [slot, vec![0; SLOT_BYTES]].concat();
    seal(&mut forged);
    disk.open("bound").unwrap().write_at(0, &[&forged[..SLOT_BYTES]]).unwrap();
    let state = reopened(&disk);
    assert_eq!(state.read().as_deref(), Some(&b"one"[..]));
    assert_eq!(state.write(b"two").unwrap_err().reason(), Reason::Corrupt);
    assert_eq!(reopened(&disk).read().as_deref(), Some(&b"one"[..]));
}

/// Makes the checksums of both slots right.
fn seal(bytes: &mut Vec<u8>) {
    bytes.resize(2 * SLOT_BYTES, 0);
    for slot in bytes.chunks_exact_mut(SLOT_BYTES) {
        let len = (word(slot, 4) as usize).min(SLOT_BYTES - HEADER_BYTES);
        let crc = frieze_base::crc32c(&[&slot[..16], &slot[HEADER_BYTES..HEADER_BYTES + len]].concat());
        slot[16..20].copy_from_slice(&crc.to_le_bytes());
    }
}

#[test]
fn any_bytes_in_place_of_a_record_are_read_or_corrupt() {
    let disk = SimDisk::new(1);
    let state = reopened(&disk);
    state.write(b"one").unwrap();
    state.write(&[7; 300]).unwrap();
    let mut seed = vec![0; 2 * SLOT_BYTES];
    disk.open("bound").unwrap().read_at(0, &mut seed).unwrap();
    frieze_harness::fuzz!(frieze_harness::Inputs::from([seed]).resealed(seal), |bytes: &[u8]| {
        let disk = SimDisk::new(1);
        disk.create("bound", bytes.len() as u64).unwrap().write_at(0, &[bytes]).unwrap();
        match StateFile::open_or_create(&disk, "bound") {
            Ok(state) => {
                let before = state.read();
                assert_eq!(reopened(&disk).read(), before);
                // It takes the next record, whatever it held.
                if state.write(b"next").is_ok() {
                    assert_eq!(reopened(&disk).read().as_deref(), Some(&b"next"[..]));
                }
            }
            Err(error) => assert_eq!(error.reason(), Reason::Corrupt),
        }
    });
}
