//! The bytes as `docs/formats.md` draws them. If one of these fails, the format has changed: raise its version.

use frieze_base::{LogIndex, SegmentId};
use frieze_harness::{Inputs, check_stable};

use crate::format::{JournalHeader, JournalRecordHeader, SegmentStart, record_size};
use crate::message::DataEnd;

fn hex(bytes: &[u8]) -> String {
    let lines = bytes.chunks(16).map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    lines.collect::<Vec<_>>().join("\n")
}

const SEGMENT: JournalHeader = JournalHeader {
    segment: SegmentId(0x11),
    first: LogIndex(0x22),
    durable: LogIndex(0x21),
    link: 0xdead_beef,
    bytes: 16 << 20,
};

const RECORD: JournalRecordHeader = JournalRecordHeader {
    body_len: 0x0102,
    number: LogIndex(0x22),
    durable: LogIndex(0x21),
    data_end: DataEnd { segment: SegmentId(0x44), offset: 0x5566 },
    link: 0xdead_beef,
    body_crc: 0xcafe_f00d,
};

#[test]
fn a_segment_header_is_these_bytes() {
    let golden = "\
46525a4c010000001100000000000000
22000000000000002100000000000000
efbeadde00000001000000002d5f5ca7";
    assert_eq!(hex(&SEGMENT.encode()), golden);
}

#[test]
fn a_record_header_is_these_bytes() {
    let golden = "\
46525a4d020100002200000000000000
21000000000000004400000000000000
6655000000000000efbeadde0df0feca
7a6f2b1c";
    assert_eq!(hex(&RECORD.encode(SegmentId(0x11))), golden);
}

#[test]
fn headers_read_back_as_they_were_written() {
    assert_eq!(JournalHeader::decode(&SEGMENT.encode()), SegmentStart::Begun(SEGMENT));
    assert_eq!(JournalRecordHeader::decode(&RECORD.encode(SegmentId(0x11)), SegmentId(0x11)), Some(RECORD));
}

#[test]
fn a_record_of_another_segment_is_none_of_this_one() {
    assert_eq!(JournalRecordHeader::decode(&RECORD.encode(SegmentId(0x10)), SegmentId(0x11)), None);
}

#[test]
fn every_flipped_bit_of_a_header_is_found() {
    let (segment, record) = (SEGMENT.encode(), RECORD.encode(SegmentId(0x11)));
    for bit in 0..segment.len() * 8 {
        let mut bytes = segment;
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(JournalHeader::decode(&bytes), SegmentStart::NotBegun, "bit {bit}");
    }
    for bit in 0..record.len() * 8 {
        let mut bytes = record;
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(JournalRecordHeader::decode(&bytes, SegmentId(0x11)), None, "bit {bit}");
    }
}

#[test]
fn a_short_header_is_none() {
    assert_eq!(JournalHeader::decode(&SEGMENT.encode()[..47]), SegmentStart::NotBegun);
    assert_eq!(JournalRecordHeader::decode(&RECORD.encode(SegmentId(0x11))[..51], SegmentId(0x11)), None);
}

#[test]
fn records_begin_at_multiples_of_eight() {
    assert_eq!([record_size(0), record_size(1), record_size(8), record_size(9)], [56, 56, 64, 64]);
}

fn seal_segment(bytes: &mut Vec<u8>) {
    bytes.resize(48, 0);
    let crc = frieze_base::crc32c(&bytes[..44]);
    bytes[44..].copy_from_slice(&crc.to_le_bytes());
}

fn seal_record(bytes: &mut Vec<u8>) {
    bytes.resize(52, 0);
    let crc = frieze_base::crc32c(&[&0x11u64.to_le_bytes(), &bytes[..48]].concat());
    bytes[48..].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn any_bytes_are_a_segment_header_or_none() {
    frieze_harness::fuzz!(Inputs::from([SEGMENT.encode()]).resealed(seal_segment), |bytes: &[u8]| {
        let decode = |bytes: &[u8]| match JournalHeader::decode(bytes) {
            SegmentStart::Begun(header) => Some(header),
            SegmentStart::OtherVersion(_) | SegmentStart::NotBegun => None,
        };
        check_stable(bytes, decode, |header| header.encode().to_vec());
    });
}

#[test]
fn any_bytes_are_a_record_header_or_none() {
    let segment = SegmentId(0x11);
    frieze_harness::fuzz!(Inputs::from([RECORD.encode(segment)]).resealed(seal_record), |bytes: &[u8]| {
        let decode = |bytes: &[u8]| JournalRecordHeader::decode(bytes, segment);
        if let Some(header) = check_stable(bytes, decode, |header| header.encode(segment).to_vec()) {
            assert!(header.size() >= 52);
        }
    });
}
