//! Records are read as they were written, and nothing else is read.

use frieze_base::{Rng, SegmentId};

use super::*;
use crate::header::SegmentLink;

fn segment() -> SegmentHeader {
    let previous = SegmentLink { stamp: Hlc(77), ..SegmentLink::default() };
    SegmentHeader { id: SegmentId(5), tag: 0x5eed, bytes: 1 << 30, previous, block_bytes: 512 }
}

/// Records of all kinds, most like the one before.
fn records(rng: &mut Rng) -> Vec<RecordHeader> {
    let mut last = RecordHeader::ZERO;
    let mut odd = |max: u64| match rng.below(4) {
        0 => rng.next() % max,
        1 => max - 1,
        _ => rng.below(max.min(300)),
    };
    (0..3000)
        .map(|_| {
            let header = &mut last;
            header.stamp = Hlc(header.stamp.0.wrapping_add(odd(1 << 40)));
            (header.n, header.version, header.seq) =
                (header.n.wrapping_add(1), header.version.wrapping_add(1), Seq(odd(9)));
            (header.offset, header.len) = (odd(1 << 31) as u32, odd(9000) as u32);
            if odd(8) == 0 {
                (header.chain, header.epoch) = (ChainId(odd(1 << 32) as u32), ChainEpoch(odd(u64::MAX)));
                (header.n, header.version) = (odd(u64::MAX), odd(u64::MAX));
                (header.session, header.seq, header.uid) =
                    (SessionId(odd(u64::MAX)), Seq(odd(u64::MAX)), odd(1 << 32) as u32);
                header.chunk = ChunkId { inode: InodeId(odd(u64::MAX)), index: odd(1 << 32) as u32 };
                header.user_time = (odd(2) == 0).then(|| UserTime(odd(u64::MAX) as i64));
                header.kind = if odd(3) == 0 { RecordKind::Punch } else { RecordKind::Write };
                header.part = odd(8) as u8;
                header.parts = header.part + 1 + odd(3) as u8;
            }
            header.clone()
        })
        .collect()
}

#[test]
fn records_come_back_from_the_log_and_from_footers() {
    let (segment, records) = (segment(), records(&mut Rng::new(3)));
    let mut cursor = RecordCursor::new(&segment);
    let mut entries = Vec::new();
    let mut alone = 0;
    for header in &records {
        let entry = cursor.encode(header);
        let crcs = vec![7; blocks(header.payload_len(), 512) as usize];
        let bytes = head(&segment, cursor.at, header, cursor.stamp, &entry, &crcs);
        assert!(bytes.len() - 4 * crcs.len() < RECORD_HEAD_BYTES_MAX);
        let span = cursor.span(&segment, header, &entry);
        assert_eq!(span.data - span.start, bytes.len() as u64);
        let HeadRead::Found(found) = cursor.read(&segment, &bytes) else { panic!("{header:?}") };
        let array = &bytes[(span.place - span.start) as usize..];
        assert_eq!((&found.header, found.previous, found.entry), (header, cursor.stamp, entry));
        assert!(found.is_sound(&segment, array));
        if let Some(found) = read_alone(&segment, cursor.at, &bytes) {
            assert_eq!((&found.header, found.previous), (header, cursor.stamp));
            assert!(found.is_sound(&segment, array));
            alone += 1;
        }
        entries.extend_from_slice(entry.bytes());
        cursor.pass(&segment, header, &entry);
    }
    // From one that is told alone to the next lie as many bytes as damage may cost.
    assert!(alone as u64 >= cursor.at / (2 * ALONE_BYTES + 10_000));
    let listed = FooterEntries::new(&segment, &entries).all(records.len() as u64).expect("all entries");
    let found: Vec<RecordHeader> = listed.into_iter().map(|listed| listed.header).collect();
    assert_eq!(found, records);
    assert!(FooterEntries::new(&segment, &entries).all(records.len() as u64 - 1).is_none(), "something is left");
    for len in [0, 1, entries.len() / 2, entries.len() - 1] {
        assert!(FooterEntries::new(&segment, &entries[..len]).all(records.len() as u64).is_none());
    }
}

#[test]
fn a_head_counts_only_where_it_was_written_behind_what_was_there_and_unchanged() {
    let segment = segment();
    let records = records(&mut Rng::new(9));
    let mut cursor = RecordCursor::new(&segment);
    let sound = |cursor: &RecordCursor, segment: &SegmentHeader, bytes: &[u8], place: usize| match cursor
        .read(segment, bytes)
    {
        HeadRead::Found(found) => found.is_sound(segment, &bytes[place..]),
        HeadRead::Nothing | HeadRead::Torn => false,
    };
    for header in &records[..200] {
        let entry = cursor.encode(header);
        let bytes = head(&segment, cursor.at, header, cursor.stamp, &entry, &[1, 2, 3]);
        let place = (cursor.span(&segment, header, &entry).place - cursor.at) as usize;
        assert!(sound(&cursor, &segment, &bytes, place));
        let elsewhere = [
            (RecordCursor { at: cursor.at + 1, ..cursor.clone() }, segment),
            (RecordCursor { stamp: Hlc(cursor.stamp.0 + 1), ..cursor.clone() }, segment),
            (cursor.clone(), SegmentHeader { id: SegmentId(6), ..segment }),
            (cursor.clone(), SegmentHeader { tag: 0x5eee, ..segment }),
        ];
        for (cursor, segment) in &elsewhere {
            assert!(!sound(cursor, segment, &bytes, place));
        }
        for bit in 0..8 * bytes.len() {
            let mut hit = bytes.clone();
            hit[bit / 8] ^= 1 << (bit % 8);
            let found = sound(&cursor, &segment, &hit, place);
            assert!(!found, "bit {bit} of {} bytes", bytes.len());
        }
        for len in 0..place {
            assert!(!sound(&cursor, &segment, &[&bytes[..len], &vec![0; 300][..]].concat(), place.max(len)));
        }
        cursor.pass(&segment, header, &entry);
    }
}

#[test]
fn another_write_of_the_same_session_takes_15_bytes_or_fewer() {
    let segment = segment();
    let mut rng = Rng::new(1);
    let mut header = RecordHeader { session: SessionId(1 << 40), uid: 1000, len: 512, ..RecordHeader::ZERO };
    header.chunk.inode = InodeId(7000);
    let (mut cursor, mut bytes, mut records) = (RecordCursor::new(&segment), 0, 0);
    for _ in 0..1000 {
        // 50 us, in the units of stamps.
        header.stamp = Hlc(header.stamp.0 + (50 << 12) + rng.below(1 << 12));
        (header.n, header.version, header.seq) = (header.n + 1, header.version + 1, Seq(header.seq.0 + 1));
        header.offset = rng.below(1 << 17) as u32 * 512;
        let entry = cursor.encode(&header);
        bytes += head(&segment, cursor.at, &header, cursor.stamp, &entry, &[]).len();
        records += 1;
        cursor.pass(&segment, &header, &entry);
    }
    assert!(bytes <= 16 * records, "{} bytes a record", bytes as f64 / records as f64);
}

#[test]
fn any_bytes_are_a_record_head_or_none() {
    let segment = segment();
    let mut cursor = RecordCursor::new(&segment);
    let mut seeds = Vec::new();
    for header in &records(&mut Rng::new(5))[..40] {
        let entry = cursor.encode(header);
        seeds.push(head(&segment, cursor.at, header, cursor.stamp, &entry, &[7; 3]));
        cursor.pass(&segment, header, &entry);
    }
    frieze_harness::fuzz!(seeds, |bytes: &[u8]| {
        let segment = self::segment();
        let first = RecordCursor::new(&segment);
        if let HeadRead::Found(found) = first.read(&segment, bytes) {
            found.is_sound(&segment, bytes);
            assert!(first.span(&segment, &found.header, &found.entry).end >= first.at);
        }
        read_alone(&segment, 64, bytes);
        // As an entry: it tells the same record again.
        if let Some((header, _, entry)) = bytes.get(6..).and_then(|rest| first.decode(rest)) {
            let again = first.encode(&header);
            let (header_again, _, entry_again) = first.decode(again.bytes()).expect("what was encoded");
            assert_eq!((&header_again, entry_again.bytes()), (&header, again.bytes()));
            assert!(entry.bytes().len() <= ENTRY_BYTES_MAX);
        }
    });
}

#[test]
fn any_bytes_are_the_entries_of_a_footer_or_none() {
    let segment = segment();
    let mut cursor = RecordCursor::new(&segment);
    let mut entries = Vec::new();
    for header in &records(&mut Rng::new(6))[..60] {
        let entry = cursor.encode(header);
        entries.extend_from_slice(entry.bytes());
        cursor.pass(&segment, header, &entry);
    }
    frieze_harness::fuzz!([entries], |bytes: &[u8]| {
        let segment = self::segment();
        let count = FooterEntries::new(&segment, bytes).count() as u64;
        for records in [0, 1, count, count + 1, u64::MAX] {
            if let Some(all) = FooterEntries::new(&segment, bytes).all(records) {
                assert_eq!(all.len() as u64, records);
            }
        }
    });
}
