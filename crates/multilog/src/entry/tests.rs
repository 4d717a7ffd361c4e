//! Records are read as they were written, and nothing else is read.

use frieze_base::{Rng, SegmentId};

use super::*;
use crate::header::SegmentLink;

fn header() -> SegmentHeader {
    let previous = SegmentLink { stamp: Hlc(77), ..SegmentLink::default() };
    SegmentHeader { id: SegmentId(5), tag: 0x5eed, bytes: 1 << 30, previous, block_bytes: 512 }
}

/// Records of all kinds, most like the one before.
fn records(rng: &mut Rng) -> Vec<RecordMeta> {
    let mut last = RecordMeta::ZERO;
    let mut odd = |max: u64| match rng.below(4) {
        0 => rng.next() % max,
        1 => max - 1,
        _ => rng.below(max.min(300)),
    };
    (0..3000)
        .map(|_| {
            let meta = &mut last;
            meta.stamp = Hlc(meta.stamp.0.wrapping_add(odd(1 << 40)));
            (meta.n, meta.version, meta.seq) = (meta.n.wrapping_add(1), meta.version.wrapping_add(1), Seq(odd(9)));
            (meta.offset, meta.len) = (odd(1 << 31) as u32, odd(9000) as u32);
            if odd(8) == 0 {
                (meta.chain, meta.epoch) = (ChainId(odd(1 << 32) as u32), ChainEpoch(odd(u64::MAX)));
                (meta.n, meta.version) = (odd(u64::MAX), odd(u64::MAX));
                (meta.session, meta.seq, meta.uid) =
                    (SessionId(odd(u64::MAX)), Seq(odd(u64::MAX)), odd(1 << 32) as u32);
                meta.chunk = ChunkId { inode: InodeId(odd(u64::MAX)), index: odd(1 << 32) as u32 };
                meta.user_time = (odd(2) == 0).then(|| UserTime(odd(u64::MAX) as i64));
                meta.kind = if odd(3) == 0 { RecordKind::Punch } else { RecordKind::Write };
                meta.part = odd(8) as u8;
                meta.parts = meta.part + 1 + odd(3) as u8;
            }
            meta.clone()
        })
        .collect()
}

#[test]
fn records_come_back_from_the_log_and_from_footers() {
    let (header, records) = (header(), records(&mut Rng::new(3)));
    let mut cursor = RecordCursor::new(&header);
    let mut entries = Vec::new();
    let mut alone = 0;
    for meta in &records {
        let entry = cursor.encode(meta);
        let crcs = vec![7; blocks(meta.payload_len(), 512) as usize];
        let bytes = head(&header, cursor.at, meta, cursor.stamp, &entry, &crcs);
        assert!(bytes.len() - 4 * crcs.len() < RECORD_HEAD_BYTES_MAX);
        let span = cursor.span(&header, meta, &entry);
        assert_eq!(span.data - span.start, bytes.len() as u64);
        let HeadRead::Found(found) = cursor.read(&header, &bytes) else { panic!("{meta:?}") };
        let array = &bytes[(span.place - span.start) as usize..];
        assert_eq!((&found.meta, found.previous, found.entry), (meta, cursor.stamp, entry));
        assert!(found.is_sound(&header, array));
        if let Some(found) = read_alone(&header, cursor.at, &bytes) {
            assert_eq!((&found.meta, found.previous), (meta, cursor.stamp));
            assert!(found.is_sound(&header, array));
            alone += 1;
        }
        entries.extend_from_slice(entry.bytes());
        cursor.pass(&header, meta, &entry);
    }
    // From one that is told alone to the next lie as many bytes as damage may cost.
    assert!(alone as u64 >= cursor.at / (2 * ALONE_BYTES + 10_000));
    let listed = FooterEntries::new(&header, &entries).all(records.len() as u64).expect("all entries");
    let found: Vec<RecordMeta> = listed.into_iter().map(|listed| listed.meta).collect();
    assert_eq!(found, records);
    assert!(FooterEntries::new(&header, &entries).all(records.len() as u64 - 1).is_none(), "something is left");
    for len in [0, 1, entries.len() / 2, entries.len() - 1] {
        assert!(FooterEntries::new(&header, &entries[..len]).all(records.len() as u64).is_none());
    }
}

#[test]
fn a_head_counts_only_where_it_was_written_behind_what_was_there_and_unchanged() {
    let header = header();
    let records = records(&mut Rng::new(9));
    let mut cursor = RecordCursor::new(&header);
    let sound =
        |cursor: &RecordCursor, header: &SegmentHeader, bytes: &[u8], place: usize| match cursor.read(header, bytes) {
            HeadRead::Found(found) => found.is_sound(header, &bytes[place..]),
            HeadRead::Nothing | HeadRead::Torn => false,
        };
    for meta in &records[..200] {
        let entry = cursor.encode(meta);
        let bytes = head(&header, cursor.at, meta, cursor.stamp, &entry, &[1, 2, 3]);
        let place = (cursor.span(&header, meta, &entry).place - cursor.at) as usize;
        assert!(sound(&cursor, &header, &bytes, place));
        let elsewhere = [
            (RecordCursor { at: cursor.at + 1, ..cursor.clone() }, header),
            (RecordCursor { stamp: Hlc(cursor.stamp.0 + 1), ..cursor.clone() }, header),
            (cursor.clone(), SegmentHeader { id: SegmentId(6), ..header }),
            (cursor.clone(), SegmentHeader { tag: 0x5eee, ..header }),
        ];
        for (cursor, header) in &elsewhere {
            assert!(!sound(cursor, header, &bytes, place));
        }
        for bit in 0..8 * bytes.len() {
            let mut hit = bytes.clone();
            hit[bit / 8] ^= 1 << (bit % 8);
            let found = sound(&cursor, &header, &hit, place);
            assert!(!found, "bit {bit} of {} bytes", bytes.len());
        }
        for len in 0..place {
            assert!(!sound(&cursor, &header, &[&bytes[..len], &vec![0; 300][..]].concat(), place.max(len)));
        }
        cursor.pass(&header, meta, &entry);
    }
}

#[test]
fn another_write_of_the_same_session_takes_15_bytes_or_fewer() {
    let header = header();
    let mut rng = Rng::new(1);
    let mut meta = RecordMeta { session: SessionId(1 << 40), uid: 1000, len: 512, ..RecordMeta::ZERO };
    meta.chunk.inode = InodeId(7000);
    let (mut cursor, mut bytes, mut records) = (RecordCursor::new(&header), 0, 0);
    for _ in 0..1000 {
        // 50 us, in the units of stamps.
        meta.stamp = Hlc(meta.stamp.0 + (50 << 12) + rng.below(1 << 12));
        (meta.n, meta.version, meta.seq) = (meta.n + 1, meta.version + 1, Seq(meta.seq.0 + 1));
        meta.offset = rng.below(1 << 17) as u32 * 512;
        let entry = cursor.encode(&meta);
        bytes += head(&header, cursor.at, &meta, cursor.stamp, &entry, &[]).len();
        records += 1;
        cursor.pass(&header, &meta, &entry);
    }
    assert!(bytes <= 16 * records, "{} bytes a record", bytes as f64 / records as f64);
}

#[test]
fn any_bytes_are_a_record_head_or_none() {
    let header = header();
    let mut cursor = RecordCursor::new(&header);
    let mut seeds = Vec::new();
    for meta in &records(&mut Rng::new(5))[..40] {
        let entry = cursor.encode(meta);
        seeds.push(head(&header, cursor.at, meta, cursor.stamp, &entry, &[7; 3]));
        cursor.pass(&header, meta, &entry);
    }
    frieze_harness::fuzz!(seeds, |bytes: &[u8]| {
        let header = self::header();
        let first = RecordCursor::new(&header);
        if let HeadRead::Found(found) = first.read(&header, bytes) {
            found.is_sound(&header, bytes);
            assert!(first.span(&header, &found.meta, &found.entry).end >= first.at);
        }
        read_alone(&header, 64, bytes);
        // As an entry: it tells the same record again.
        if let Some((meta, _, entry)) = bytes.get(6..).and_then(|rest| first.decode(rest)) {
            let again = first.encode(&meta);
            let (meta_again, _, entry_again) = first.decode(again.bytes()).expect("what was encoded");
            assert_eq!((&meta_again, entry_again.bytes()), (&meta, again.bytes()));
            assert!(entry.bytes().len() <= ENTRY_BYTES_MAX);
        }
    });
}

#[test]
fn any_bytes_are_the_entries_of_a_footer_or_none() {
    let header = header();
    let mut cursor = RecordCursor::new(&header);
    let mut entries = Vec::new();
    for meta in &records(&mut Rng::new(6))[..60] {
        let entry = cursor.encode(meta);
        entries.extend_from_slice(entry.bytes());
        cursor.pass(&header, meta, &entry);
    }
    frieze_harness::fuzz!([entries], |bytes: &[u8]| {
        let header = self::header();
        let count = FooterEntries::new(&header, bytes).count() as u64;
        for records in [0, 1, count, count + 1, u64::MAX] {
            if let Some(all) = FooterEntries::new(&header, bytes).all(records) {
                assert_eq!(all.len() as u64, records);
            }
        }
    });
}
