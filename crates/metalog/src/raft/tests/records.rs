//! What is on disk: bytes that stay, tails that tear, damage that is told.

use frieze_base::{LogIndex, NodeId, SegmentId};
use frieze_hlc::Hlc;

use super::group::{RaftGroup, founders};
use crate::Error;
use crate::message::DataEnd;
use crate::raft::MemberInput;
use crate::raft::message::{BatchDurability, EntryKind, PeerEntry};
use crate::raft::peer;
use crate::raft::record::{self, JournalBase, JournalRecord};

fn record() -> JournalRecord {
    let mut meta = founders(2);
    meta.members.learners = vec![NodeId(9)];
    let data_end = DataEnd { segment: SegmentId(3), offset: 4096 };
    let data = record::encode_batch(Hlc(0x0102_0304), 2, data_end, BatchDurability::Stable, b"batch").into();
    let entries = vec![
        PeerEntry { kind: EntryKind::Normal, index: LogIndex(7), term: 3, data },
        PeerEntry { kind: EntryKind::Change, index: LogIndex(8), term: 3, data: vec![1, 2].into() },
    ];
    JournalRecord { term: 3, vote: 2, commit: 6, base: Some(JournalBase { meta, anew: true, needed: 5 }), entries }
}

#[test]
fn a_record_has_the_bytes_that_its_table_draws() {
    let hex: String = record().encode().iter().map(|byte| format!("{byte:02x}")).collect();
    let expected = [
        "46525a52",
        "01",
        "03",
        "0000", // magic, version, flags
        "0300000000000000",
        "0200000000000000",
        "0600000000000000", // term, vote, commit
        "0100000000000000",
        "0100000000000000",
        "0100000000000000",
        "0500000000000000", // base: index, term, stamp, needed
        "0200",
        "0100",
        "01000000",
        "02000000",
        "09000000", // members
        "02000000", // entries
        "0700000000000000",
        "0300000000000000",
        "00",
        "23000000", // index, term, kind, length
        "01",
        "01",
        "0403020100000000",
        "02000000",
        "0300000000000000",
        "0010000000000000",
        "6261746368", // data
        "0800000000000000",
        "0300000000000000",
        "01",
        "02000000",
        "0102",
    ];
    assert_eq!(hex, expected.concat());
}

#[test]
fn a_record_comes_back_whole_or_not_at_all() {
    let bytes = record().encode();
    assert_eq!(JournalRecord::decode(&bytes), Some(record()));
    for len in 0..bytes.len() {
        assert_eq!(JournalRecord::decode(&bytes[..len]), None, "{len} bytes of it");
    }
    let mut newer = bytes.clone();
    newer[4] = 2;
    assert_eq!(JournalRecord::decode(&newer), None, "a version to come");
}

/// A member with a journal of several segments, its log cut now and then.
fn old_member(cut: bool) -> RaftGroup {
    let mut group = RaftGroup::of(1);
    let leader = group.elect();
    for round in 0..120 {
        group.propose(leader, &format!("entry {round} {}", "x".repeat(round % 50)));
        if cut && round % 10 == 9 {
            let through = group.ones[&1].applied;
            group.give(1, MemberInput::Truncate { through });
        }
    }
    group
}

#[test]
fn a_member_recovers_its_log_and_its_place() {
    for cut in [false, true] {
        let mut group = old_member(cut);
        let (applied, words) = (group.ones[&1].applied, group.words(1));
        let term = group.ones[&1].member.term();
        group.restart(1, applied).unwrap();
        let member = &group.ones[&1].member;
        assert_eq!((member.committed(), member.term()), (applied, term));
        assert_eq!(group.words(1), words, "nothing is executed twice");
        group.elect();
        group.propose(1, "after");
        assert_eq!(group.words(1).last().map(String::as_str), Some("after"));
    }
}

#[test]
fn a_store_that_lags_gets_the_entries_again() {
    let mut group = old_member(false);
    let words = group.words(1);
    group.restart(1, LogIndex(20)).unwrap();
    group.elect();
    assert_eq!(group.words(1), words);
}

#[test]
fn segments_that_nothing_needs_go() {
    let (kept, cut) = (old_member(false), old_member(true));
    let live = |group: &RaftGroup| group.ones[&1].files.0.len();
    assert!(live(&kept) > 10 && live(&cut) <= 7, "{} and {} files, four of them spare", live(&kept), live(&cut));
}

#[test]
fn older_segments_that_came_back_do_no_harm() {
    let mut group = RaftGroup::of(1);
    group.elect();
    let mut old = std::collections::BTreeMap::new();
    for round in 0..200 {
        group.propose(1, &format!("entry {round}"));
        let through = group.ones[&1].applied;
        group.give(1, MemberInput::Truncate { through });
        old.extend(group.ones[&1].files.0.clone());
    }
    let applied = group.ones[&1].applied;
    let now = group.ones[&1].files.0.clone();
    // Every subset of what was removed that one bit pattern draws: names go in any order.
    for pattern in [1u64, 0b1011, 0x5555_5555, 0x7777_7777, u64::MAX] {
        let mut files = now.clone();
        for (place, (id, bytes)) in old.iter().enumerate() {
            if pattern >> (place % 64) & 1 == 1 {
                files.entry(*id).or_insert_with(|| bytes.clone());
            }
        }
        group.ones.get_mut(&1).unwrap().files.0 = files;
        group.restart(1, applied).unwrap();
        assert_eq!(group.ones[&1].member.committed(), applied, "{pattern:b}");
    }
}

#[test]
fn a_torn_tail_is_cut_and_durable_records_are_not() {
    let mut group = old_member(false);
    // One more is written, and no flush ends.
    group.ones.get_mut(&1).unwrap().flushes = false;
    let before = group.ones[&1].member.last();
    group.propose(1, "torn");
    let last = *group.ones[&1].files.0.keys().last().unwrap();
    let whole = group.ones[&1].files.0[&last].clone();
    let end = whole.iter().rposition(|byte| *byte != 0).unwrap();
    let one = group.ones.get_mut(&1).unwrap();
    one.files.0.get_mut(&last).unwrap()[end - 2] ^= 0xff;
    group.restart(1, before).unwrap();
    assert_eq!(group.ones[&1].member.last(), before);
}

#[test]
fn damage_to_what_was_durable_is_an_error() {
    let group = old_member(false);
    let applied = group.ones[&1].applied;
    let files = group.ones[&1].files.0.clone();
    let mut told = 0;
    for (id, bytes) in &files {
        for place in (64..bytes.len()).step_by(67) {
            if bytes[place] == 0 {
                continue;
            }
            let mut group = old_member(false);
            let one = group.ones.get_mut(&1).unwrap();
            one.files.0.get_mut(id).unwrap()[place] ^= 0x10;
            match group.restart(1, applied) {
                Err(
                    Error::Damaged { .. }
                    | Error::BadRecord { .. }
                    | Error::JournalBehind { .. }
                    | Error::Missing { .. },
                ) => told += 1,
                Err(error) => panic!("segment {id} byte {place}: {error:?}"),
                // In a segment that nothing needs, or in the last record, which nothing says was durable.
                Ok(()) => assert_eq!(group.ones[&1].member.committed(), applied, "segment {id} byte {place}"),
            }
        }
    }
    assert!(told > 100, "{told} cases of damage were told");
}

#[test]
fn a_journal_that_is_gone_is_not_an_empty_one() {
    let mut group = old_member(false);
    let applied = group.ones[&1].applied;
    group.ones.get_mut(&1).unwrap().files.0.clear();
    assert_eq!(group.restart(1, applied), Err(Error::NeverBegun));
}

#[test]
fn a_store_ahead_of_the_journal_is_reported() {
    let mut group = old_member(false);
    assert!(matches!(group.restart(1, LogIndex(100_000)), Err(Error::JournalBehind { .. })));
}

#[test]
fn any_bytes_are_a_record_of_the_journal_or_none() {
    let plain = JournalRecord { base: None, ..record() };
    frieze_harness::fuzz!([record().encode(), plain.encode()], |bytes: &[u8]| {
        let decode = |bytes: &[u8]| JournalRecord::decode(bytes);
        if let Some(record) = frieze_harness::check_stable(bytes, decode, JournalRecord::encode) {
            assert_eq!(record.encode().len(), bytes.len(), "every byte is read");
        }
    });
}

#[test]
fn any_bytes_are_the_data_of_an_entry_or_unknown() {
    let data_end = DataEnd { segment: SegmentId(3), offset: 4096 };
    let batch = record::encode_batch(Hlc(0x0102_0304), 2, data_end, BatchDurability::Stable, b"batch");
    let change = peer::change_data(&peer::change_of(crate::raft::MemberChange::Add(NodeId(9))));
    // The library of the change reserves what a length in it claims, up to 10 MB.
    let inputs = frieze_harness::Inputs::from([batch, change.to_vec()]).with_buffers(11 << 20);
    frieze_harness::fuzz!(inputs, |bytes: &[u8]| {
        record::stamp_of(bytes);
        let entry = PeerEntry { kind: EntryKind::Normal, index: LogIndex(7), term: 3, data: bytes.to_vec().into() };
        let data_end = entry.data_end();
        if let record::EntryData::Batch(batch) = record::decode_batch(7, 3, bytes) {
            assert_eq!(Some(batch.data_end), data_end);
            assert_eq!(
                record::encode_batch(batch.stamp, batch.count, batch.data_end, entry.durability(), &batch.body),
                bytes
            );
        }
        if let Some(change) = peer::decode_change(bytes) {
            peer::change_members(&mut Default::default(), &change);
            assert_eq!(peer::decode_change(&peer::change_data(&change)), Some(change));
        }
    });
}
