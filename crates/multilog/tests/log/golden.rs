//! The bytes on disk, as the tables in `entry`, `record` and `segment` draw them. A change here is a new format
//! version.

use frieze_base::{ChainEpoch, ChainId, InodeId, SegmentId, Seq, SessionId};
use frieze_hlc::{Hlc, UserTime};
use frieze_multilog::{RecordHeader, RecordKind};

use crate::support::{DeviceFiles, LogDevice, recover, settings, write_of};

/// Compares bytes with lines of 16 in hexadecimal.
fn same(bytes: &[u8], expect: &str) {
    let lines = bytes.chunks(16).map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    let found = lines.collect::<Vec<_>>().join("\n");
    let expect = expect.split_whitespace().collect::<Vec<_>>().join("\n");
    assert_eq!(found, expect, "the bytes found are\n{found}");
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.bytes().filter_map(|byte| (byte as char).to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// A write with every field set, and a punch.
fn records() -> Vec<(RecordHeader, Vec<u8>)> {
    let write = RecordHeader {
        chain: ChainId(0x0c0c_0c0c),
        epoch: ChainEpoch(0x0e0e),
        n: 0x1111,
        version: 0x2222,
        user_time: Some(UserTime(-2)),
        session: SessionId(0x3333),
        seq: Seq(0x4444),
        uid: 0x5555,
        ..write_of(0x77, 0x88, 0x0005_1900_0000_0001, 0x600, 600)
    };
    let punch =
        RecordHeader { kind: RecordKind::Punch, stamp: Hlc(0x0005_1900_0000_0002), user_time: None, ..write.clone() };
    vec![(write, vec![0xab; 600]), (punch, Vec::new())]
}

/// The trailer of a segment after which another follows, or that was closed before: byte 96 says that nothing comes
/// after the records that it names.
const CLOSED: &str = "
    46525a53010000000100000000000000
    eac61ecfb8a55a2a0010000000000000
    00000000000000000000000000000000
    000000000000000000020000afe987b6
    46525a46dc846e91e302000000000000
    02000000000000000200000000190500
    01000000000000003700000000000000
    0000000000000000000000009288c581";

#[test]
fn a_closed_segment_says_so_in_byte_96_of_its_trailer() {
    let mut device = LogDevice::new(settings(4096));
    for record in records() {
        device.write(&[record]);
    }
    let end = device.log.end();
    let open = device.log.checkpoint(end).expect("two records").footer;
    assert_eq!(open[open.len() - 128 + 96], 0, "the footer of a segment that goes on");
    assert!(!device.log.is_footer_of(SegmentId(1), &open));
    assert_eq!(device.log.close_open(), Some(end));
    let seals = device.log.sealable(end);
    let [seal] = seals.as_slice() else { panic!("{seals:?}") };
    let (entries, trailer) = seal.footer.split_at(seal.footer.len() - 128);
    same(trailer, CLOSED);
    assert_eq!((entries, trailer.len()), (&open[..open.len() - 128], 128));
    assert!(device.log.is_footer_of(SegmentId(1), &seal.footer), "its records are not scan at any more");
    // Recovery goes on behind it in a new segment, and reads it by its footer alone, whatever is left of the records.
    device.files.put(SegmentId(1), seal.offset, &seal.footer);
    device.files.put(SegmentId(1), 64, &[0; 832]);
    let expect: Vec<RecordHeader> = records().into_iter().map(|(header, _)| header).collect();
    let (_, report, seen) = recover(device.files, settings(4096));
    assert_eq!((seen, report.scanned_bytes, report.cut), (expect, 0, None));
}

/// The header of the segment, the first record, which is alone, the second, and the footer of both.
const SEGMENT: &str = "
    46525a53010000000100000000000000
    eac61ecfb8a55a2a0010000000000000
    00000000000000000000000000000000
    000000000000000000020000afe987b6";
const WRITE: &str = "
    2994d7a59b6c7f8180808080a0c60281
    80808080a0c602b366d5aa019c38ee01
    88018c98b060a244c488018891028018
    d804032fe4fdb2e531d77b";
const PUNCH: &str = "
    76b49883b96b9801000000af09020001";
const FOOTER: &str = "
    7f8180808080a0c6028180808080a0c6
    02b366d5aa019c38ee0188018c98b060
    a244c488018891028018d80403980100
    0000af0902000146525a530100000001
    00000000000000eac61ecfb8a55a2a00
    10000000000000000000000000000000
    00000000000000000000000000000000
    020000afe987b646525a46dc846e91e3
    02000000000000020000000000000002
    00000000190500000000000000000037
    00000000000000000000000000000000
    000000a603d023";

#[test]
fn stored_bytes_are_those_of_format_version_1() {
    let mut device = LogDevice::new(settings(4096));
    for record in records() {
        device.write(&[record]);
    }
    let file = device.files.of(SegmentId(1)).clone();
    let end = device.log.end();
    let seal = device.log.checkpoint(end).expect("two records");
    let footer_at = seal.offset as usize;
    assert_eq!(footer_at + seal.footer.len(), 4096);
    let unheaded = device.log.dead_records(InodeId(0x77), Hlc::MAX, &Default::default());
    let [write, punch] = unheaded.as_slice() else { panic!("{unheaded:?}") };
    assert_eq!((write.start, write.end, punch.end), (64, punch.start, end.offset));
    let payload = write.place as usize + 8;
    same(&file[..64], SEGMENT);
    same(&file[64..payload], WRITE);
    assert_eq!(file[payload..write.end as usize], [0xab; 600]);
    same(&file[punch.start as usize..punch.end as usize], PUNCH);
    same(&seal.footer, FOOTER);
}

/// A segment of format version 1 without a footer, and where its records end.
pub(crate) fn golden_segment() -> (DeviceFiles, u64) {
    let mut files = DeviceFiles::default();
    files.make(SegmentId(1), 4096, &mut Vec::new());
    let mut at = 0;
    for part in [unhex(SEGMENT), unhex(WRITE), vec![0xab; 600], unhex(PUNCH)] {
        files.put(SegmentId(1), at, &part);
        at += part.len() as u64;
    }
    (files, at)
}

/// Puts the footer into it, at its end.
pub(crate) fn put_golden_footer(files: &mut DeviceFiles) {
    let footer = unhex(FOOTER);
    files.put(SegmentId(1), 4096 - footer.len() as u64, &footer);
}

#[test]
fn bytes_of_format_version_1_are_read() {
    let (mut files, at) = golden_segment();
    let expect: Vec<RecordHeader> = records().into_iter().map(|(header, _)| header).collect();
    let (_, report, seen) = recover(files.clone(), settings(4096));
    assert_eq!((seen, report.cut, report.end.offset), (expect.clone(), None, at));
    put_golden_footer(&mut files);
    files.put(SegmentId(1), 64, &[0; 700]);
    let (_, report, seen) = recover(files, settings(4096));
    assert_eq!((seen, report.scanned_bytes), (expect, 0));
}
