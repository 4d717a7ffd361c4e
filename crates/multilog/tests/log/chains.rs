//! Records of several chains in one log: each chain in the order of its numbers, their stamps in any.

use std::collections::BTreeSet;

use frieze_base::{ByteRange, ChainEpoch, ChainId, ChunkId, InodeId, SegmentId};
use frieze_hlc::{Hlc, UserTime};
use frieze_multilog::{Discards, NumberedRecord, RecordHeader, RunKey};

use super::support::{LogDevice, payload_of, settings, with_payload, write_of};

/// Record `n` of a chain, which has a file of its own.
fn record(chain: u32, n: u64, stamp: u64) -> RecordHeader {
    let header = write_of(100 + u64::from(chain), 0, stamp, (n % 40 * 100) as u32, 150);
    RecordHeader { chain: ChainId(chain), n, version: n, ..header }
}

fn put(device: &mut LogDevice, header: &RecordHeader) {
    device.write(&[with_payload(header.clone())]);
    let end = device.log.end();
    device.seal(end);
}

/// The file of a chain at `at`.
fn read(device: &mut LogDevice, chain: u32, at: u64) -> Vec<u8> {
    let inode = InodeId(100 + u64::from(chain));
    device.fetch(inode);
    device.read(ChunkId { inode, index: 0 }, ByteRange::new(0, 4200), Hlc(at)).expect("sound blocks")
}

/// The records of a chain after `after`, as they are found by their numbers.
fn listed(device: &mut LogDevice, chain: u32, after: u64) -> Vec<NumberedRecord> {
    let chain = ChainId(chain);
    let footer = |device: &LogDevice, id: SegmentId| {
        let sealed = device.log.sealed(id).expect("a closed segment");
        device.files.bytes[&device.files.keys[&id]][sealed.footer_at as usize..].to_vec()
    };
    while let Some(id) = device.log.unlisted(chain, after) {
        let footer = footer(device, id);
        assert!(device.log.list(id, &footer));
    }
    let mut found: Vec<NumberedRecord> = Vec::new();
    for (id, is_closed) in device.log.segments_with(chain, after) {
        let footer = is_closed.then(|| footer(device, id));
        let last = found.last().map_or(after, |last| last.header.n);
        found.extend(device.log.numbered(chain, id, footer.as_deref(), last, usize::MAX).expect("a footer"));
    }
    found
}

#[test]
fn a_chain_may_bring_its_history_after_what_is_newer() {
    let mut device = LogDevice::new(settings(8 << 10));
    let mut all: Vec<RecordHeader> = Vec::new();
    for n in 1..=60 {
        // What is new of one, and what is long ago of the other.
        all.push(RecordHeader { user_time: Some(UserTime(n as i64)), ..record(1, n, 1_000_000 + 10 * n) });
        all.push(record(2, n, 1000 + 10 * n));
        // Of one file, in chunks of different chains.
        let late = RecordHeader { chain: ChainId(3), n, version: n, ..write_of(101, 1, 5000 + 10 * n, 0, 100) };
        all.push(RecordHeader { user_time: Some(UserTime(n as i64 - 100)), ..late });
    }
    all.iter().for_each(|header| put(&mut device, header));
    let check = |device: &mut LogDevice| {
        for upto in [1000, 1305, 1600, 5400, 1_000_333, 2_000_000] {
            for chain in [1, 2] {
                let mut expect = vec![0; 4200];
                for header in all.iter().filter(|header| header.chain == ChainId(chain) && header.stamp <= Hlc(upto)) {
                    expect[header.offset as usize..][..header.len as usize].copy_from_slice(&payload_of(header));
                }
                assert_eq!(read(device, chain, upto), expect, "chain {chain} at {upto}");
            }
            let (files, _) = device.log.files_with_records(Hlc(upto - 30), Hlc(upto));
            let inside = all.iter().filter(|header| header.stamp > Hlc(upto - 30) && header.stamp <= Hlc(upto));
            assert!(inside.clone().all(|header| files.contains(&header.chunk.inode)), "time_runs up to {upto}");
        }
        let cut = device.log.by_user_time(InodeId(101), UserTime(-90), Hlc::ZERO, Hlc::MAX).expect("user times");
        assert_eq!(cut.stamp, Hlc(5100), "user times are in the order of the stamps");
        assert_eq!(device.log.newest_user_time(InodeId(101), Hlc::ZERO, Hlc(5605)), Some(UserTime(-40)));
        assert_eq!(device.log.newest_user_time(InodeId(101), Hlc::ZERO, Hlc::MAX), Some(UserTime(60)));
        for chain in [1, 2, 3] {
            for after in [0, 17, 59, 60] {
                let expect: Vec<&RecordHeader> =
                    all.iter().filter(|header| header.chain == ChainId(chain) && header.n > after).collect();
                let found = listed(device, chain, after);
                assert_eq!(found.iter().map(|one| &one.header).collect::<Vec<_>>(), expect);
            }
        }
    };
    check(&mut device);
    let (mut restarted, report, _) = device.restarted();
    assert_eq!((report.cut, report.corrupt.len()), (None, 0));
    check(&mut restarted);
    assert!(device.make_index_run(2, b"") > 1 && device.make_index_run(1, b"") > 0);
    let (mut restarted, _, _) = device.restarted();
    check(&mut restarted);
}

#[test]
fn what_was_discarded_is_nowhere_and_its_numbers_are_used_again() {
    let mut device = LogDevice::new(settings(4 << 10));
    let header = |n: u64, epoch: u64, stamp: u64| RecordHeader { epoch: ChainEpoch(epoch), ..record(1, n, stamp) };
    let lost: Vec<RecordHeader> = (1..=30).map(|n| header(n, 1, 100 + n)).collect();
    let other: Vec<RecordHeader> = (1..=30).map(|n| record(2, n, 100 + n)).collect();
    for n in 0..30 {
        put(&mut device, &lost[n]);
        put(&mut device, &other[n]);
    }
    device.files.discarded = vec![Discards { chain: ChainId(1), after: 12, before: device.log.end() }];
    let (mut device, report, seen) = device.restarted();
    assert_eq!((report.cut, report.corrupt.len()), (None, 0));
    let kept: Vec<&RecordHeader> = lost[..12].iter().collect();
    assert_eq!(seen.iter().filter(|header| header.chain == ChainId(1)).collect::<Vec<_>>(), kept);
    assert_eq!(device.log.chain_state(ChainId(1)).n, 12);
    // What the chain has in its place is stamped below what is gone.
    let instead: Vec<RecordHeader> = (13..=40).map(|n| header(n, 2, 115 + n)).collect();
    instead.iter().for_each(|header| put(&mut device, header));
    let check = |device: &mut LogDevice| {
        let mut expect = vec![0; 4200];
        for header in lost[..12].iter().chain(&instead) {
            expect[header.offset as usize..][..header.len as usize].copy_from_slice(&payload_of(header));
        }
        assert_eq!(read(device, 1, 1000), expect);
        let found: Vec<RecordHeader> = listed(device, 1, 5).into_iter().map(|one| one.header).collect();
        assert_eq!(found, lost[5..12].iter().chain(&instead).cloned().collect::<Vec<_>>());
        assert_eq!(listed(device, 2, 0).len(), 30);
    };
    check(&mut device);
    check(&mut device.restarted().0);
    assert!(device.make_index_run(100, b"") > 3);
    let (mut device, _, _) = device.restarted();
    check(&mut device);
}

#[test]
fn a_part_of_a_group_that_arrived_alone_is_recovered_alone() {
    let mut device = LogDevice::new(settings(8 << 10));
    let part = |chain, part, n, stamp| RecordHeader { part, parts: 0, ..record(chain, n, stamp) };
    let records = [part(1, 0, 1, 500), part(2, 1, 1, 500), part(1, 2, 2, 500), record(1, 3, 700), part(2, 1, 2, 600)];
    records.iter().for_each(|header| put(&mut device, header));
    let (restarted, report, seen) = device.restarted();
    assert_eq!((report.cut, seen), (None, records.to_vec()));
    let found = restarted.log.versions(InodeId(102), Hlc::ZERO, Hlc::MAX, 10);
    assert_eq!(found.iter().map(|header| (header.part, header.parts)).collect::<Vec<_>>(), [(1, 0), (1, 0)]);
}

/// A chain that others have by now, and its return from nothing: whatever of it was in index runs, in memory or merged.
#[test]
fn a_chain_that_is_taken_out_whole_leaves_everything_else_and_may_come_back() {
    for (before, after) in [(0, 0), (4, 0), (0, 4), (4, 4)] {
        let mut device = LogDevice::new(settings(4 << 10));
        let timed = |header: RecordHeader, time: i64| RecordHeader { user_time: Some(UserTime(time)), ..header };
        // A chunk of the file of the other chain is on the one that goes.
        let apart = |n: u64| RecordHeader {
            chain: ChainId(1),
            n: 2 * n,
            version: n,
            ..write_of(102, 1, 1000 + 10 * n + 2, (n % 40 * 100) as u32, 90)
        };
        let gone: Vec<RecordHeader> =
            (1..=40).flat_map(|n| [record(1, 2 * n - 1, 1000 + 10 * n), timed(apart(n), 500 + n as i64)]).collect();
        let other: Vec<RecordHeader> = (1..=40).map(|n| timed(record(2, n, 1000 + 10 * n + 1), n as i64)).collect();
        for n in 0..40 {
            put(&mut device, &gone[2 * n]);
            put(&mut device, &gone[2 * n + 1]);
            put(&mut device, &other[n]);
        }
        while before > 0 && device.make_index_run(before, b"") > 0 {}
        let chains = BTreeSet::from([ChainId(1)]);
        let out = vec![Discards { chain: ChainId(1), after: 0, before: device.log.end() }];
        device.files.discarded = out.clone();
        device.fetch(InodeId(102));
        device.log.begin_take_out(&chains, out);
        let files = device.log.files_in_memory();
        device.log.take_out(&files, &chains);
        let runs = discarded_bytes(&device);
        let check = |device: &mut LogDevice, back: &[RecordHeader]| {
            let expect = |chain: u32, of: &[RecordHeader]| {
                let mut bytes = vec![0; 4200];
                for header in of.iter().filter(|header| header.chunk.inode == InodeId(100 + u64::from(chain))) {
                    bytes[header.offset as usize..][..header.len as usize].copy_from_slice(&payload_of(header));
                }
                bytes
            };
            let whole: Vec<RecordHeader> = back.iter().filter(|header| header.chunk.index == 0).cloned().collect();
            assert_eq!(read(device, 1, 9000), expect(1, &whole));
            assert_eq!(read(device, 2, 9000), expect(2, &other));
            let newest = back
                .iter()
                .chain(&other)
                .filter_map(|header| header.user_time.filter(|_| header.chunk.inode == InodeId(102)));
            assert_eq!(device.log.newest_user_time(InodeId(102), Hlc::ZERO, Hlc::MAX), newest.max());
            assert_eq!(listed(device, 1, 0).into_iter().map(|one| one.header).collect::<Vec<_>>(), back);
            assert_eq!(listed(device, 2, 0).len(), 40);
            assert_eq!(device.log.chain_state(ChainId(1)).n, back.len() as u64);
        };
        check(&mut device, &[]);
        check(&mut device.restarted().0, &[]);
        // Some of it is supplied again, and indexed and merged with what it was on.
        let back = &gone[..30];
        back.iter().for_each(|header| put(&mut device, header));
        check(&mut device, back);
        while after > 0 && device.make_index_run(after, b"") > 0 {}
        check(&mut device, back);
        let keys: Vec<RunKey> = device.log.index_runs().map(|index_run| index_run.key()).collect();
        if keys.len() > 1 {
            device.merge(&keys, false).expect("sound index_runs");
        }
        check(&mut device, back);
        let (mut device, report, _) = device.restarted();
        assert_eq!((report.cut, report.corrupt.len()), (None, 0));
        check(&mut device, back);
        // The last segment was not sealed then.
        assert!(discarded_bytes(&device).starts_with(&runs), "what is given back is what was before");
    }
}

/// Bytes of each sealed segment that hold what was discarded.
fn discarded_bytes(device: &LogDevice) -> Vec<(SegmentId, u64)> {
    let mut found = Vec::new();
    let mut after = SegmentId(0);
    while let Some(id) = device.log.segment_after(after) {
        after = id;
        let Some(sealed) = device.log.sealed(id) else { continue };
        let footer = &device.files.bytes[&device.files.keys[&id]][sealed.footer_at as usize..];
        let runs = device.log.discarded_in(id, Some(footer)).expect("a footer");
        let bytes: u64 = runs.iter().map(|(start, end)| end - start).sum();
        found.extend((bytes > 0).then_some((id, bytes)));
    }
    found
}
