//! The only voter: an entry is committed when it is written, and one that cannot be written was never proposed.

use frieze_base::{LogIndex, Reason, Rng, SegmentId};

use super::group::{RaftGroup, propose};
use crate::raft::{BatchDurability, MemberEffect, MemberInput, MemberSettings};
use crate::{DataEnd, Error};

/// A voter that leads, of a group whose members commit from stable storage.
fn lone() -> RaftGroup {
    let mut group = RaftGroup::of(1);
    group.elect();
    group.said(1);
    group
}

fn last(group: &RaftGroup) -> LogIndex {
    group.ones[&1].member.last()
}

fn propose_naming(group: &mut RaftGroup, words: &str, data_end: DataEnd) {
    let one = group.ones.get_mut(&1).unwrap();
    one.data_end = one.data_end.max(data_end);
    one.member.note_data_end(data_end);
    let (body, durability) = (words.as_bytes().to_vec(), BatchDurability::Memory);
    group.give(1, MemberInput::Propose { body, count: 1, data_end, durability });
}

fn data_end(offset: u64) -> DataEnd {
    DataEnd { segment: SegmentId(1), offset }
}

/// The entry after which the member took entries back.
fn withdrawn_after(group: &mut RaftGroup) -> Option<LogIndex> {
    group.said(1).into_iter().find_map(|effect| match effect {
        MemberEffect::Withdrawn { after, error } => {
            assert_eq!(error, Error::AppendFailed { reason: Reason::NoSpace });
            Some(after)
        }
        _ => None,
    })
}

fn failed(group: &mut RaftGroup, id: u32) -> bool {
    group.said(id).iter().any(|effect| matches!(effect, MemberEffect::Failed(_)))
}

#[test]
fn an_entry_of_the_only_voter_is_committed_when_it_is_written_whatever_the_setting_says() {
    let mut group = lone();
    let durable = group.ones[&1].member.durable();
    group.ones.get_mut(&1).unwrap().flushes = false;
    group.propose(1, "a");
    assert_eq!(group.words(1), ["a"]);
    assert_eq!(group.ones[&1].member.durable(), durable, "no flush covers it");
    let record = group.ones[&1].written;
    group.give(1, MemberInput::Persisted { record });
    assert_eq!(group.ones[&1].member.durable(), last(&group));
}

#[test]
fn an_entry_that_must_never_be_undone_waits_for_the_disk_of_the_only_voter() {
    let mut group = lone();
    group.ones.get_mut(&1).unwrap().flushes = false;
    let (body, durability) = (b"decision".to_vec(), BatchDurability::Stable);
    group.give(1, MemberInput::Propose { body, count: 1, data_end: DataEnd::default(), durability });
    group.propose(1, "behind it");
    assert_eq!(group.words(1), [""; 0]);
    let record = group.ones[&1].written;
    group.give(1, MemberInput::Persisted { record });
    assert_eq!(group.words(1), ["decision", "behind it"]);
}

#[test]
fn the_next_entry_takes_the_place_of_one_that_could_not_be_written() {
    // Nothing of the record, some of its header, all of it but its last byte.
    for written in [0, 30, usize::MAX] {
        let mut group = lone();
        group.propose(1, "a");
        let before = last(&group);
        group.ones.get_mut(&1).unwrap().fails_after = Some(written);
        group.propose(1, "b");
        assert_eq!((withdrawn_after(&mut group), last(&group)), (Some(before), before));
        assert_eq!(group.words(1), ["a"]);
        // A crash before the next record finds nothing of it.
        group.restart(1, LogIndex(1)).unwrap();
        assert_eq!(last(&group), before, "{written} bytes were written");
        group.elect();
        group.propose(1, "c");
        assert_eq!(group.words(1), ["a", "c"]);
        group.restart(1, LogIndex(1)).unwrap();
        assert_eq!(group.words(1), ["a", "c"]);
    }
}

#[test]
fn a_record_that_would_begin_a_segment_is_withdrawn_with_its_segment() {
    let mut group = lone();
    let before = last(&group);
    group.ones.get_mut(&1).unwrap().fails_after = Some(3000);
    group.propose(1, &"b".repeat(4000));
    assert_eq!(withdrawn_after(&mut group), Some(before));
    group.propose(1, "c");
    assert_eq!(group.words(1), ["c"]);
    group.restart(1, LogIndex(1)).unwrap();
    assert_eq!(group.words(1), ["c"]);
}

#[test]
fn all_entries_on_their_way_behind_one_that_could_not_be_written_are_withdrawn() {
    let mut group = lone();
    let before = last(&group);
    let one = group.ones.get_mut(&1).unwrap();
    let mut effects = Vec::new();
    // Both are given to the driver before it reports the first.
    for words in ["b", "c"] {
        let stamp = one.member.newest().next();
        one.member.step(stamp, propose(words.as_bytes().to_vec()), &mut effects);
    }
    let records: Vec<LogIndex> = effects
        .iter()
        .filter_map(|effect| match effect {
            MemberEffect::Append { record, .. } => Some(*record),
            _ => None,
        })
        .collect();
    let [first, second] = records[..] else { panic!("{records:?}") };
    group.give(1, MemberInput::AppendFailed { record: first, reason: Reason::NoSpace });
    assert_eq!(withdrawn_after(&mut group), Some(before));
    group.give(1, MemberInput::AppendFailed { record: second, reason: Reason::NoSpace });
    assert_eq!(withdrawn_after(&mut group), None, "it is gone already");
    group.propose(1, "d");
    assert_eq!(group.words(1), ["d"]);
}

#[test]
fn a_record_with_a_term_or_a_vote_is_not_withdrawn() {
    let mut group = lone();
    group.restart(1, LogIndex(1)).unwrap();
    group.ones.get_mut(&1).unwrap().fails_after = Some(0);
    group.ticks(5);
    assert!(failed(&mut group, 1));
    group.propose(1, "a");
    let refused = Error::DeviceFailed { reason: Reason::NoSpace };
    assert_eq!(group.said(1), [MemberEffect::Refused(refused)]);
    assert_eq!(group.words(1), [""; 0]);
}

#[test]
fn a_leader_of_others_is_silent_after_a_write_that_failed() {
    let mut group = RaftGroup::of(3);
    let leader = group.elect();
    group.ones.get_mut(&leader).unwrap().fails_after = Some(0);
    group.propose(leader, "a");
    assert!(failed(&mut group, leader), "another member may have the entry");
}

#[test]
fn an_only_voter_takes_no_more_than_its_records_on_their_way() {
    let mut group = RaftGroup::alone(MemberSettings { unflushed_records_max: 3, ..super::group::settings() });
    group.elect();
    group.ones.get_mut(&1).unwrap().flushes = false;
    for words in ["a", "b", "c"] {
        group.propose(1, words);
    }
    group.said(1);
    group.propose(1, "d");
    let said = group.said(1);
    assert!(matches!(said[..], [MemberEffect::Refused(Error::Overloaded { max: 3, .. })]), "{said:?}");
    let record = group.ones[&1].written;
    group.give(1, MemberInput::Persisted { record });
    group.propose(1, "e");
    assert_eq!(group.words(1), ["a", "b", "c", "e"]);
}

#[test]
fn entries_whose_data_is_lost_are_cut_and_the_member_is_returning() {
    let mut group = lone();
    group.ones.get_mut(&1).unwrap().flushes = false;
    propose_naming(&mut group, "a", data_end(10));
    let kept = last(&group);
    propose_naming(&mut group, "b", data_end(20));
    propose_naming(&mut group, "c", data_end(20));
    group.ones.get_mut(&1).unwrap().data_end = data_end(19);
    // The caller does not say that the power failed: the cut does.
    group.restart(1, LogIndex(1)).unwrap();
    assert_eq!((last(&group), group.words(1)), (kept, vec!["a".to_owned()]));
    assert!(group.ones[&1].member.is_returning());
    group.ones.get_mut(&1).unwrap().flushes = true;
    group.elect();
    group.propose(1, "d");
    group.restart(1, LogIndex(1)).unwrap();
    assert_eq!(group.words(1), ["a", "d"], "what was cut stays away");
}

#[test]
fn entries_that_the_store_has_need_their_data_no_more() {
    let mut group = lone();
    propose_naming(&mut group, "a", data_end(10));
    let all = last(&group);
    group.ones.get_mut(&1).unwrap().data_end = data_end(9);
    group.restart(1, all).unwrap();
    assert_eq!(last(&group), all);
}

#[test]
fn an_entry_that_was_durable_and_whose_data_is_missing_is_an_error() {
    let mut group = lone();
    propose_naming(&mut group, "a", data_end(10));
    // A later record says that it was durable.
    group.propose(1, "b");
    group.ones.get_mut(&1).unwrap().data_end = data_end(9);
    let error = group.restart(1, LogIndex(1)).unwrap_err();
    assert!(
        matches!(error, Error::DataMissing { needed, found, .. } if (needed, found) == (data_end(10), data_end(9)))
    );
}

/// What was answered, in order, and how much of it no loss of power may take.
#[derive(Default)]
struct Answered {
    words: Vec<String>,
    flushed: usize,
}

/// One life of a lone member: proposals, flushes, cuts of the log, failed writes, kills, losses of power.
fn play(seed: u64) -> (u32, u32, u32) {
    let mut rng = Rng::new(seed);
    let mut group = lone();
    group.ones.get_mut(&1).unwrap().flushes = false;
    let mut answered = Answered::default();
    let (mut losses, mut withdrawn, mut cuts) = (0, 0, 0);
    // The one way in which a withdrawn entry comes back: the power fails before the next flush.
    let mut withdrawn_since_flush = false;
    let (mut end, mut count) = (0, 0);
    for _ in 0..120 {
        match rng.below(12) {
            0..5 => {
                count += 1;
                end += rng.below(3) * 50;
                let words = format!("{count} {}", "x".repeat(rng.below(300) as usize));
                propose_naming(&mut group, &words, data_end(end));
                answered.words.push(words);
            }
            5 => {
                let record = group.ones[&1].written;
                group.give(1, MemberInput::Persisted { record });
                (answered.flushed, withdrawn_since_flush) = (answered.words.len(), false);
            }
            6 => {
                let one = &group.ones[&1];
                let through = one.member.durable().min(one.applied);
                group.give(1, MemberInput::Truncate { through });
            }
            7 => {
                group.ones.get_mut(&1).unwrap().fails_after = Some(rng.below(400) as usize);
                let before = last(&group);
                group.propose(1, "not written");
                assert_eq!((withdrawn_after(&mut group), last(&group)), (Some(before), before));
                (withdrawn, withdrawn_since_flush) = (withdrawn + 1, true);
            }
            8 => {
                let base = group.ones[&1].member.base().index;
                group.restart(1, base).unwrap();
                begin(&mut group, &mut answered);
                withdrawn_since_flush = false;
            }
            _ if withdrawn_since_flush => {}
            9 => {
                group.tear(1, &mut rng);
                let base = group.ones[&1].member.base().index;
                // Data that no flush covered may be lost, too: none of what a durable entry names.
                let one = group.ones.get_mut(&1).unwrap();
                let durable = one.executed.iter().filter(|entry| entry.index <= one.member.durable());
                let needed = durable.map(|entry| entry.data_end).max().unwrap_or_default().offset;
                let lost = rng.below(end - needed + 1);
                one.data_end = data_end(end - lost);
                cuts += u32::from(lost > 0);
                group.begin_after_loss(1, base).unwrap();
                end -= lost;
                let named = group.ones[&1].executed.iter().map(|entry| entry.data_end).max().unwrap_or_default();
                assert!(named <= data_end(end), "seed {seed}: an entry without its data");
                begin(&mut group, &mut answered);
                losses += 1;
            }
            _ => {}
        }
        let words = group.words(1);
        assert!(words.len() >= answered.flushed, "seed {seed}: {} of {} entries", words.len(), answered.flushed);
        assert!(answered.words.starts_with(&words), "seed {seed}: a prefix of what was answered");
        if words.len() < answered.words.len() {
            panic!("seed {seed}: an answered entry is lost without a loss of power");
        }
    }
    (losses, withdrawn, cuts)
}

/// What is there after a start is what there is from now on.
fn begin(group: &mut RaftGroup, answered: &mut Answered) {
    let words = group.words(1);
    assert!(words.len() >= answered.flushed, "{} entries of {} that were durable", words.len(), answered.flushed);
    assert!(answered.words.starts_with(&words), "a prefix of what was answered");
    answered.words.truncate(words.len());
    let one = group.ones.get_mut(&1).unwrap();
    one.flushes = true;
    group.elect();
    group.ones.get_mut(&1).unwrap().flushes = false;
    answered.flushed = answered.words.len();
    group.said(1);
}

#[test]
fn every_life_of_a_lone_member_leaves_a_prefix_with_all_that_was_durable() {
    let (mut losses, mut withdrawn, mut cuts) = (0, 0, 0);
    for seed in 0..200 {
        let (more_losses, more_withdrawn, more_cuts) = play(seed);
        losses += more_losses;
        withdrawn += more_withdrawn;
        cuts += more_cuts;
    }
    assert!(losses > 500 && withdrawn > 500 && cuts > 200, "{losses} losses, {withdrawn} withdrawn, {cuts} cuts");
}
