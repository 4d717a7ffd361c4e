//! The bytes on disk, as the tables in `record` and `segment` draw them. Old bytes must read for ever: a change here is
//! a new format version.

use frieze_base::{ByteRange, ChainEpoch, ChainId, InodeId, SegmentId, Seq, SessionId, crc32c};
use frieze_hlc::{Hlc, UserTime};
use frieze_multilog::{FIXED_HEADERS, LogPosition, RecordKind, RecordMeta, Settings};

use crate::support::{Device, Files, recover, settings, with_payload, write_of};

/// Compares bytes with lines of 16 in hexadecimal.
fn same(bytes: &[u8], expect: &str) {
    let lines = bytes.chunks(16).map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    let found = lines.collect::<Vec<_>>().join("\n");
    let expect = expect.split_whitespace().collect::<Vec<_>>().join("\n");
    assert_eq!(found, expect, "the bytes found are\n{found}");
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.bytes().filter_map(|byte| (byte as char).to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// A write with every field set, and a punch.
fn records() -> Vec<(RecordMeta, Vec<u8>)> {
    let write = RecordMeta {
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
        RecordMeta { kind: RecordKind::Punch, stamp: Hlc(0x0005_1900_0000_0002), user_time: None, ..write.clone() };
    vec![(write, vec![0xab; 600]), (punch, Vec::new())]
}

const SEGMENT: &str = "
    46525a53010000000100000000000000
    eac61ecfb8a55a2a0010000000000000
    00000000000000000000000000000000
    000000000000000000020000afe987b6";
const WRITE: &str = "
    46525a52010000000000000000000000
    7700000000000000880000000c0c0c0c
    0e0e0000000000001111000000000000
    22220000000000000100000000190500
    feffffffffffffff3333000000000000
    44440000000000005555000000060000
    58020000010100010002000034f4f45d
    2fe4fdb2e531d77b";
const FOOTER: &str = "
    46525a52010000000000000000000000
    7700000000000000880000000c0c0c0c
    0e0e0000000000001111000000000000
    22220000000000000100000000190500
    feffffffffffffff3333000000000000
    44440000000000005555000000060000
    58020000010100010002000000000000
    46525a52010000000100000000190500
    7700000000000000880000000c0c0c0c
    0e0e0000000000001111000000000000
    22220000000000000200000000190500
    00000000000000003333000000000000
    44440000000000005555000000060000
    58020000020000010002000000000000
    46525a53010000000100000000000000
    eac61ecfb8a55a2a0010000000000000
    00000000000000000000000000000000
    000000000000000000020000afe987b6
    46525a4685d6585b8003000000000000
    02000000000000000200000000190500
    00000000000000000000000000000000
    000000000000000000000000272f5da1";

fn older() -> Settings {
    Settings { version: FIXED_HEADERS, ..settings(4096) }
}

#[test]
fn stored_bytes_are_those_of_format_version_1_where_that_is_asked_for() {
    let mut device = Device::new(older());
    for record in records() {
        device.write(&[record]);
    }
    let file = device.files.of(SegmentId(1)).clone();
    same(&file[..64], SEGMENT);
    same(&file[64..64 + 120], WRITE);
    assert_eq!(crc32c(&file[64 + 120..64 + 720]), crc32c(&[0xab; 600]));
    let end = device.log.end();
    assert_eq!(end, LogPosition { segment: SegmentId(1), offset: 64 + 720 + 112 });
    let seal = device.log.checkpoint(end).expect("two records");
    assert_eq!(seal.offset, 4096 - 2 * 112 - 128);
    same(&seal.footer, FOOTER);
}

/// The trailer of a segment after which another follows, or that was closed before: byte 96 says that nothing comes after
/// the records that it names.
const CLOSED: &str = "
    46525a53010000000100000000000000
    eac61ecfb8a55a2a0010000000000000
    00000000000000000000000000000000
    000000000000000000020000afe987b6
    46525a4685d6585b8003000000000000
    02000000000000000200000000190500
    01000000000000000000000000000000
    00000000000000000000000013a44803";

#[test]
fn a_closed_segment_says_so_in_byte_96_of_its_trailer() {
    let mut device = Device::new(older());
    for record in records() {
        device.write(&[record]);
    }
    let end = device.log.end();
    let open = device.log.checkpoint(end).expect("two records").footer;
    assert_eq!(open[open.len() - 128 + 96], 0, "the footer of a segment that goes on");
    assert!(!device.log.vouched_by(SegmentId(1), &open));
    assert_eq!(device.log.close_open(), Some(end));
    let seals = device.log.sealable(end);
    let [seal] = seals.as_slice() else { panic!("{seals:?}") };
    let (entries, trailer) = seal.footer.split_at(seal.footer.len() - 128);
    same(trailer, CLOSED);
    assert_eq!((entries, trailer.len()), (&open[..open.len() - 128], 128));
    assert!(device.log.vouched_by(SegmentId(1), &seal.footer), "its records are not looked at any more");
    // Recovery goes on behind it in a new segment, and reads it by its footer alone, whatever is left of the records.
    device.files.put(SegmentId(1), seal.offset, &seal.footer);
    device.files.put(SegmentId(1), 64, &[0; 832]);
    let expect: Vec<RecordMeta> = records().into_iter().map(|(meta, _)| meta).collect();
    let (_, report, seen) = recover(device.files, settings(4096));
    assert_eq!((seen, report.scanned_bytes, report.cut), (expect, 0, None));
}

/// Of format version 2: the header of the segment, the first record, which is told alone, and the footer of both.
const SEGMENT_2: &str = "
    46525a53020000000100000000000000
    eac61ecfb8a55a2a0010000000000000
    00000000000000000000000000000000
    00000000000000000002000056f9b411";
const WRITE_2: &str = "
    2994d7a59b6c7f8180808080a0c60281
    80808080a0c602b366d5aa019c38ee01
    88018c98b060a244c488018891028018
    d804032fe4fdb2e531d77b";
const PUNCH_2: &str = "
    76b49883b96b9801000000af09020001";
const FOOTER_2: &str = "
    7f8180808080a0c6028180808080a0c6
    02b366d5aa019c38ee0188018c98b060
    a244c488018891028018d80403980100
    0000af0902000146525a530200000001
    00000000000000eac61ecfb8a55a2a00
    10000000000000000000000000000000
    00000000000000000000000000000000
    02000056f9b41146525a46dc846e91e3
    02000000000000020000000000000002
    00000000190500000000000000000037
    00000000000000000000000000000000
    000000a603d023";

#[test]
fn stored_bytes_are_those_of_format_version_2() {
    let mut device = Device::new(settings(4096));
    for record in records() {
        device.write(&[record]);
    }
    let file = device.files.of(SegmentId(1)).clone();
    let end = device.log.end();
    let seal = device.log.checkpoint(end).expect("two records");
    let footer_at = seal.offset as usize;
    assert_eq!(footer_at + seal.footer.len(), 4096);
    let unheaded = device.log.graves(InodeId(0x77), Hlc::MAX, &Default::default());
    let [write, punch] = unheaded.as_slice() else { panic!("{unheaded:?}") };
    assert_eq!((write.start, write.end, punch.end), (64, punch.start, end.offset));
    let payload = write.place as usize + 8;
    same(&file[..64], SEGMENT_2);
    same(&file[64..payload], WRITE_2);
    assert_eq!(file[payload..write.end as usize], [0xab; 600]);
    same(&file[punch.start as usize..punch.end as usize], PUNCH_2);
    same(&seal.footer, FOOTER_2);
}

#[test]
fn bytes_of_format_version_2_are_read() {
    let mut files = Files::default();
    files.make(SegmentId(1), 4096, &mut Vec::new());
    let mut at = 0;
    for part in [unhex(SEGMENT_2), unhex(WRITE_2), vec![0xab; 600], unhex(PUNCH_2)] {
        files.put(SegmentId(1), at, &part);
        at += part.len() as u64;
    }
    let expect: Vec<RecordMeta> = records().into_iter().map(|(meta, _)| meta).collect();
    let (_, report, seen) = recover(files.clone(), settings(4096));
    assert_eq!((seen, report.cut, report.end.offset), (expect.clone(), None, at));
    let footer = unhex(FOOTER_2);
    files.put(SegmentId(1), 4096 - footer.len() as u64, &footer);
    files.put(SegmentId(1), 64, &[0; 700]);
    let (_, report, seen) = recover(files, settings(4096));
    assert_eq!((seen, report.scanned_bytes), (expect, 0));
}

#[test]
fn a_log_goes_on_behind_segments_of_format_version_1() {
    let mut device = Device::new(older());
    let nth = |stamp: u64| with_payload(write_of(1, 0, stamp, stamp as u32 * 300, 300));
    (1..=20).for_each(|stamp| {
        device.write(&[nth(stamp)]);
    });
    let end = device.log.end();
    device.seal(end);
    // What is left of a record that was torn lies behind the last.
    let torn = device.store(&[nth(21)]).spots[0];
    device.files.of(end.segment)[torn.data_offset as usize..].fill(0);
    let (mut device, report, seen) = recover(device.files, settings(4096));
    assert_eq!((seen.len(), report.cut.map(|cut| cut.offset)), (20, Some(end.offset)));
    let (next, free) = report.next.expect("what was torn is to be wiped");
    assert!(next == end && free > 128);
    for stamp in 22..=60 {
        device.write(&[nth(stamp)]);
        // Nobody wiped it: the segment that follows says where this one ended.
        let (_, report, seen) = device.restarted();
        assert_eq!((seen.len() as u64, report.cut, report.corrupt), (stamp - 1, None, vec![]));
    }
    device.seal(device.log.end());
    assert_eq!(device.shelve(100, b""), device.log.stats().segments as usize - 1, "older ones get their footers");
    let (mut device, report, _) = device.restarted();
    assert!(report.shelved_records > 40);
    device.fetch(InodeId(1));
    for stamp in (1..=20).chain(22..=60) {
        let (meta, payload) = nth(stamp);
        let range = ByteRange::new(meta.offset.into(), u64::from(meta.offset) + 300);
        assert_eq!(device.read(meta.chunk, range, Hlc(stamp)), Some(payload));
    }
}

#[test]
fn bytes_of_format_version_1_are_read() {
    let mut device = Device::new(settings(4096));
    device.files.make(SegmentId(1), 4096, &mut Vec::new());
    device.files.put(SegmentId(1), 0, &unhex(SEGMENT));
    device.files.put(SegmentId(1), 64, &unhex(WRITE));
    device.files.put(SegmentId(1), 64 + 120, &[0xab; 600]);
    let expect: Vec<RecordMeta> = records().into_iter().map(|(meta, _)| meta).collect();
    let (_, report, seen) = recover(device.files.clone(), settings(4096));
    assert_eq!((seen, report.cut), (expect[..1].to_vec(), None));
    device.files.put(SegmentId(1), 4096 - 352, &unhex(FOOTER));
    let (_, report, seen) = recover(device.files, settings(4096));
    assert_eq!((seen, report.scanned_bytes), (expect, 0));
}
