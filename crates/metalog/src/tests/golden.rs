//! The bytes as `docs/formats.md` draws them. If one of these fails, the format has changed: raise its version.

use frieze_base::{LogIndex, SegmentId};
use frieze_harness::{Inputs, check_stable};
use frieze_hlc::Hlc;

use crate::format::{EntryHeader, JournalHeader, SegmentStart, entry_size};
use crate::message::DataEnd;

fn hex(bytes: &[u8]) -> String {
    let lines = bytes.chunks(16).map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    lines.collect::<Vec<_>>().join("\n")
}

const SEGMENT: JournalHeader = JournalHeader {
    segment: SegmentId(0x11),
    first: LogIndex(0x22),
    term: 0x33,
    durable: LogIndex(0x21),
    stamp: Hlc(0x0123_4567_89ab_cdef),
    link: 0xdead_beef,
    bytes: 16 << 20,
};

const ENTRY: EntryHeader = EntryHeader {
    body_len: 0x0102,
    index: LogIndex(0x22),
    term: 0x33,
    stamp: Hlc(0x0123_4567_89ab_cdef),
    durable: LogIndex(0x21),
    data_end: DataEnd { segment: SegmentId(0x44), offset: 0x5566 },
    count: 7,
    link: 0xdead_beef,
    body_crc: 0xcafe_f00d,
};

#[test]
fn a_segment_header_is_these_bytes() {
    let golden = "\
46525a4c010000001100000000000000
22000000000000003300000000000000
2100000000000000efcdab8967452301
efbeadde00000001000000002461385b";
    assert_eq!(hex(&SEGMENT.encode()), golden);
}

#[test]
fn an_entry_header_is_these_bytes() {
    let golden = "\
46525a4d020100002200000000000000
3300000000000000efcdab8967452301
21000000000000004400000000000000
665500000000000007000000efbeadde
0df0feca0d9d2d85";
    assert_eq!(hex(&ENTRY.encode(SegmentId(0x11))), golden);
}

#[test]
fn headers_read_back_as_they_were_written() {
    assert_eq!(JournalHeader::decode(&SEGMENT.encode()), SegmentStart::Begun(SEGMENT));
    assert_eq!(EntryHeader::decode(&ENTRY.encode(SegmentId(0x11)), SegmentId(0x11)), Some(ENTRY));
}

#[test]
fn an_entry_of_another_segment_is_none_of_this_one() {
    assert_eq!(EntryHeader::decode(&ENTRY.encode(SegmentId(0x10)), SegmentId(0x11)), None);
}

#[test]
fn every_flipped_bit_of_a_header_is_found() {
    let (segment, entry) = (SEGMENT.encode(), ENTRY.encode(SegmentId(0x11)));
    for bit in 0..segment.len() * 8 {
        let mut bytes = segment;
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(JournalHeader::decode(&bytes), SegmentStart::NotBegun, "bit {bit}");
    }
    for bit in 0..entry.len() * 8 {
        let mut bytes = entry;
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(EntryHeader::decode(&bytes, SegmentId(0x11)), None, "bit {bit}");
    }
}

#[test]
fn a_short_header_is_none() {
    assert_eq!(JournalHeader::decode(&SEGMENT.encode()[..63]), SegmentStart::NotBegun);
    assert_eq!(EntryHeader::decode(&ENTRY.encode(SegmentId(0x11))[..71], SegmentId(0x11)), None);
}

#[test]
fn entries_begin_at_multiples_of_eight() {
    assert_eq!([entry_size(0), entry_size(1), entry_size(8), entry_size(9)], [72, 80, 80, 88]);
}

fn seal_segment(bytes: &mut Vec<u8>) {
    bytes.resize(64, 0);
    let crc = frieze_base::crc32c(&bytes[..60]);
    bytes[60..].copy_from_slice(&crc.to_le_bytes());
}

fn seal_entry(bytes: &mut Vec<u8>) {
    bytes.resize(72, 0);
    let crc = frieze_base::crc32c(&[&0x11u64.to_le_bytes(), &bytes[..68]].concat());
    bytes[68..].copy_from_slice(&crc.to_le_bytes());
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
fn any_bytes_are_an_entry_header_or_none() {
    let segment = SegmentId(0x11);
    frieze_harness::fuzz!(Inputs::from([ENTRY.encode(segment)]).resealed(seal_entry), |bytes: &[u8]| {
        let decode = |bytes: &[u8]| EntryHeader::decode(bytes, segment);
        if let Some(header) = check_stable(bytes, decode, |header| header.encode(segment).to_vec()) {
            assert!(header.size() >= 72 && header.last_stamp() >= header.stamp);
        }
    });
}
