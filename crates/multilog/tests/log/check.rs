//! What a check of a segment finds, and that it finds nothing where nothing is wrong.

use std::collections::BTreeMap;

use frieze_base::{Fault, InodeId, Reason, SegmentId};
use frieze_hlc::Hlc;
use frieze_multilog::{CheckStop, Damage, DamageKind, DeadRecord, LogPosition, SEGMENT_HEADER_BYTES, SegmentBytes};

use crate::support::{BLOCK_BYTES, LogDevice, settings, with_payload, write_of};

const SEGMENT: SegmentId = SegmentId(1);
const LEN: u32 = 5 * BLOCK_BYTES - 100;
const FIRST: u64 = SEGMENT_HEADER_BYTES as u64;

/// The bytes of a file, of which some cannot be read.
struct CheckedFile<'a> {
    file: &'a [u8],
    unreadable: std::ops::Range<u64>,
    left: usize,
}

impl SegmentBytes for CheckedFile<'_> {
    fn bytes(&mut self, offset: u64, len: usize) -> Result<&[u8], CheckStop> {
        self.left = self.left.checked_sub(1).ok_or(CheckStop::Stop)?;
        if offset < self.unreadable.end && offset + len as u64 > self.unreadable.start {
            return Err(CheckStop::Failed(Fault::new(Reason::InputOutput, "the device says no")));
        }
        let from = (offset as usize).min(self.file.len());
        Ok(&self.file[from..self.file.len().min(from + len)])
    }
}

/// Six records of five blocks, each of a file of its own; sealed or still open.
fn device(sealed: bool) -> LogDevice {
    device_of(6, sealed)
}

fn device_of(records: u64, sealed: bool) -> LogDevice {
    let mut device = LogDevice::new(settings(64 << 10));
    for n in 1..=records {
        device.write(&[with_payload(write_of(n, 0, n * 10, 7, LEN))]);
    }
    if sealed {
        device.log.close_open();
        assert_eq!(device.seal(device.log.end()), 1);
    }
    device
}

fn check_with(device: &LogDevice, skip: &BTreeMap<u64, u64>, unreadable: std::ops::Range<u64>) -> (Vec<Damage>, u64) {
    let content = device.log.content(SEGMENT).expect("it is there");
    let file = &device.files.bytes[&device.files.keys[&SEGMENT]];
    let mut found = Vec::new();
    let mut source = CheckedFile { file, unreadable, left: usize::MAX };
    let checked = content.check(skip, &mut source, &mut |damage| found.push(damage)).expect("nobody stops it");
    (found, checked.records)
}

fn check(device: &LogDevice) -> Vec<Damage> {
    check_with(device, &BTreeMap::new(), 0..0).0
}

/// Where the `n`-th record of [`device`] lies, from 1.
fn lies(device: &LogDevice, n: u64) -> DeadRecord {
    device.log.dead_records(InodeId(n), Hlc::MAX, &Default::default())[0]
}

/// Where it begins.
fn record_at(device: &LogDevice, n: u64) -> u64 {
    lies(device, n).start
}

/// Where its payload begins, behind its head and the checksums of five blocks.
fn payload_at(device: &LogDevice, n: u64) -> u64 {
    lies(device, n).place + 20
}

#[test]
fn a_sound_segment_has_no_damage_open_or_sealed() {
    for sealed in [false, true] {
        let device = device(sealed);
        assert_eq!(check_with(&device, &BTreeMap::new(), 0..0), (vec![], 6), "sealed: {sealed}");
        assert_eq!(device.log.content(SEGMENT).unwrap().is_sealed(), sealed);
        let (restarted, ..) = device.restarted();
        assert_eq!(check(&restarted), [], "recovered, sealed: {sealed}");
    }
}

#[test]
fn every_flipped_stored_byte_is_found_at_its_place() {
    for sealed in [false, true] {
        let mut device = device(sealed);
        let content = device.log.content(SEGMENT).unwrap();
        let bytes = content.bytes();
        let footer_at = device.log.sealed(SEGMENT).map_or(bytes, |sealed| sealed.footer_at);
        let heads: Vec<DeadRecord> = (1..=6).map(|n| lies(&device, n)).collect();
        let stored = (0..content.end()).chain(if sealed { footer_at..bytes } else { 0..0 });
        for at in stored.step_by(7) {
            device.files.of(SEGMENT)[at as usize] ^= 0x20;
            let found = check(&device);
            device.files.of(SEGMENT)[at as usize] ^= 0x20;
            let here = found.iter().filter(|damage| damage.at <= at && at < damage.at + damage.len).count();
            // A block whose checksum was hit cannot be read either.
            let crc_hit = heads.iter().any(|head| (head.place..head.place + 20).contains(&at));
            let expect = (1 + usize::from(crc_hit), 1);
            assert_eq!((found.len(), here), expect, "byte {at}, sealed: {sealed}: {found:?}");
        }
    }
}

#[test]
fn damaged_bytes_are_named_by_record_and_block_and_neighbours_are_one() {
    let mut device = device(true);
    let payload = payload_at(&device, 3);
    for block in [1, 2, 4] {
        let at = payload + block * u64::from(BLOCK_BYTES) + 3;
        device.files.of(SEGMENT)[at as usize] ^= 1;
    }
    let found = check(&device);
    let told: Vec<_> = found.iter().map(|damage| (damage.kind, damage.skip, damage.len)).collect();
    let last = u64::from(LEN - 4 * BLOCK_BYTES);
    assert_eq!(told, [(DamageKind::Data, 512, 1024), (DamageKind::Data, 2048, last)]);
    let record = found[0].record.as_ref().unwrap();
    assert_eq!((record.chunk.inode.0, record.stamp.0, record.offset), (3, 30, 7));
    assert_eq!(found[0].at, payload + 512);
}

#[test]
fn a_segment_without_footer_is_checked_and_its_losses_are_reported() {
    // Behind a head that is damaged, records can be told from the next one that is told alone: at most 16 KiB further.
    let (mut device, next) = (device_of(20, true), 8);
    let bytes = device.log.content(SEGMENT).unwrap().bytes();
    let [second, next_at, tenth] = [2, next, 10].map(|n| record_at(&device, n));
    let payload = payload_at(&device, 10);
    assert!(next_at - second <= (16 << 10) && tenth > next_at);
    // The footer, the head of record 2, and a byte of record 10.
    device.files.of(SEGMENT)[bytes as usize - 60] ^= 1;
    device.files.of(SEGMENT)[second as usize + 7] ^= 1;
    device.files.of(SEGMENT)[payload as usize] ^= 1;
    let (found, records) = check_with(&device, &BTreeMap::new(), 0..0);
    let told: Vec<_> = found.iter().map(|damage| (damage.kind, damage.at, damage.len)).collect();
    assert_eq!(
        told,
        [
            (DamageKind::Footer, bytes - 128, 128),
            (DamageKind::Records, second, next_at - second),
            (DamageKind::Data, payload, 512),
        ]
    );
    assert_eq!(records, 20 - (next - 2));
}

#[test]
fn what_was_given_back_is_not_missed() {
    for footer in [true, false] {
        let mut device = device(true);
        let (from, upto) = (record_at(&device, 2), record_at(&device, 4));
        device.files.of(SEGMENT)[from as usize..upto as usize].fill(0);
        let dead = BTreeMap::from([(from, upto)]);
        if !footer {
            let bytes = device.log.content(SEGMENT).unwrap().bytes();
            device.files.of(SEGMENT)[bytes as usize - 60] ^= 1;
        }
        let (found, records) = check_with(&device, &dead, 0..0);
        // Without the footer, nothing says what those behind them are told by.
        let kinds: Vec<DamageKind> = found.iter().map(|damage| damage.kind).collect();
        let expect = if footer { (vec![], 4) } else { (vec![DamageKind::Footer, DamageKind::Records], 1) };
        assert_eq!((kinds, records), expect, "{found:?}");
        assert!(!check(&device).is_empty(), "it is missed where nobody gave it back");
    }
}

#[test]
fn what_the_device_cannot_read_is_damage_and_the_rest_is_checked() {
    let device = device(true);
    let at = payload_at(&device, 2) + 600;
    let (found, records) = check_with(&device, &BTreeMap::new(), at..at + 10);
    assert_eq!((found.len(), records), (1, 6));
    assert_eq!((found[0].kind, found[0].skip, found[0].len), (DamageKind::Data, 512, 512));
    assert_eq!(found[0].unread.as_ref().unwrap().message, "the device says no");
    let (found, _) = check_with(&device, &BTreeMap::new(), record_at(&device, 5)..record_at(&device, 5) + 1);
    let kinds: Vec<_> = found.iter().map(|damage| (damage.kind, damage.len)).collect();
    assert_eq!(
        kinds,
        [(DamageKind::Header, payload_at(&device, 5) - record_at(&device, 5)), (DamageKind::Data, u64::from(LEN))]
    );
}

#[test]
fn a_file_that_was_cut_is_damaged_from_there_on() {
    let mut device = device(false);
    let (at, payload) = (record_at(&device, 6), payload_at(&device, 6));
    device.files.of(SEGMENT).truncate(at as usize + 10);
    let kinds: Vec<_> = check(&device).iter().map(|damage| (damage.kind, damage.at)).collect();
    assert_eq!(kinds, [(DamageKind::Header, at), (DamageKind::Data, payload)]);
}

#[test]
fn a_check_can_be_stopped() {
    let device = device(true);
    let content = device.log.content(SEGMENT).unwrap();
    let file = &device.files.bytes[&device.files.keys[&SEGMENT]];
    let mut source = CheckedFile { file, unreadable: 0..0, left: 4 };
    assert_eq!(content.check(&BTreeMap::new(), &mut source, &mut |_| {}), Err(CheckStop::Stop));
}

#[test]
fn segments_follow_each_other_as_in_the_log() {
    let mut device = LogDevice::new(settings(4 << 10));
    for n in 1..=9 {
        device.write(&[with_payload(write_of(n, 0, n * 10, 0, 900))]);
    }
    let mut ids = vec![SegmentId(0)];
    while let Some(next) = device.log.segment_after(*ids.last().unwrap()) {
        assert!(device.log.stored_bytes(next) > FIRST);
        ids.push(next);
    }
    assert_eq!(ids.len() as u64, device.log.stats().segments + 1);
    let end: LogPosition = device.log.end();
    assert_eq!(ids.last(), Some(&end.segment));
    assert!(device.log.content(SegmentId(77)).is_none());
}
