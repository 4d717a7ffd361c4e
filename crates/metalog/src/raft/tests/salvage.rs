//! Damaged journals: what is refused, and what is left.

use frieze_base::{LogIndex, SegmentId};
use frieze_hlc::Hlc;

use super::group::{MemberFiles, One, RaftGroup, settings};
use crate::Error;
use crate::raft::{MemberFrom, MemberSettings, RaftMember, Salvage, SalvageFrom, Salvaged};

/// A voter with a journal of several segments: entries `one` to `count`, words of 100 bytes, all on stable storage.
fn filled(count: u32) -> RaftGroup {
    let mut group = RaftGroup::alone(settings());
    group.elect();
    for number in 0..count {
        group.propose(1, &word(number));
    }
    group
}

fn word(number: u32) -> String {
    format!("word {number:0>94}.")
}

fn one(group: &RaftGroup) -> &One {
    &group.ones[&1]
}

fn from(group: &RaftGroup, applied: LogIndex) -> SalvageFrom {
    let one = one(group);
    let member = MemberFrom {
        id: frieze_base::NodeId(1),
        seed: 5,
        incarnation: 2,
        kept_memory: true,
        stamp_bound: one.member.newest(),
        applied,
        installed: None,
        data_end: None,
    };
    SalvageFrom { member, stamp: Hlc(1), durable: (one.member.durable(), one.written), whose: Salvage::OnlyVoter }
}

/// The segment and the place of the record with this word.
fn place_of(files: &MemberFiles, number: u32) -> (u64, usize) {
    let needle = word(number).into_bytes();
    let at = |bytes: &Vec<u8>| bytes.windows(needle.len()).position(|window| window == needle);
    files.0.iter().find_map(|(segment, bytes)| Some((*segment, at(bytes)?))).expect("it is in the journal")
}

fn refusal(group: &RaftGroup, files: &MemberFiles, applied: LogIndex) -> Error {
    let from = from(group, applied).member;
    let error = RaftMember::recover(settings(), &from, &mut files.clone()).expect_err("it is damaged");
    assert!(error.is_loss(), "{error}");
    error
}

/// What is executed behind `applied`, and the stamp behind which entries may be lost.
fn salvaged(group: &RaftGroup, files: &mut MemberFiles, applied: LogIndex) -> (Vec<String>, Option<Hlc>) {
    let from = from(group, applied);
    let Salvaged { effects, record, lost_after, files: damaged, .. } =
        RaftMember::salvage(settings(), &from, files).expect("something is left");
    assert!(record > one(group).written);
    assert_eq!(damaged, files.0.keys().map(|segment| SegmentId(*segment)).collect::<Vec<_>>());
    let words = words_of(&effects);
    // A crash anywhere in the middle of what is written finds the damage again, or all of it.
    let writes = effects.iter().filter(|effect| matches!(effect, crate::MemberEffect::Append { .. })).count();
    for done in 0..=writes {
        let mut torn = files.clone();
        for effect in effects.iter().filter(|effect| matches!(effect, crate::MemberEffect::Append { .. })).take(done) {
            if let crate::MemberEffect::Append { roll, segment, offset, bytes, .. } = effect {
                torn.write(roll.clone(), *segment, *offset, bytes);
            }
        }
        match RaftMember::recover(settings(), &from.member, &mut torn) {
            Ok(recovered) => {
                assert_eq!((done, words_of(&recovered.effects)), (writes, words.clone()));
                // The same without the damaged files.
                torn.0.retain(|segment, _| !damaged.contains(&SegmentId(*segment)));
                let alone = RaftMember::recover(settings(), &from.member, &mut torn).expect("it is whole");
                assert_eq!(words_of(&alone.effects), words);
            }
            Err(error) => assert!(done < writes, "{done} of {writes} records: {error}"),
        }
    }
    (words, lost_after)
}

fn words_of(effects: &[crate::MemberEffect]) -> Vec<String> {
    let committed = effects.iter().filter_map(|effect| match effect {
        crate::MemberEffect::Committed { entries, .. } => Some(entries),
        _ => None,
    });
    committed.flatten().map(|entry| String::from_utf8(entry.body.clone()).expect("words")).collect()
}

fn words(numbers: std::ops::Range<u32>) -> Vec<String> {
    numbers.map(word).collect()
}

/// The entry with this word.
fn index_of(group: &RaftGroup, number: u32) -> LogIndex {
    let executed = &one(group).executed;
    executed.iter().find(|entry| entry.body == word(number).into_bytes()).expect("it was executed").index
}

fn stamp_of(group: &RaftGroup, number: u32) -> Hlc {
    let index = index_of(group, number);
    one(group).executed.iter().find(|entry| entry.index == index).expect("it was executed").stamp
}

#[test]
fn a_damaged_record_costs_the_entries_from_it_on_that_the_store_lacks() {
    let group = filled(40);
    for part in [0, 60] {
        // The body of the record, or its header.
        let mut files = one(&group).files.clone();
        let (segment, at) = place_of(&files, 20);
        files.0.get_mut(&segment).unwrap()[at - part] ^= 1;
        let error = refusal(&group, &files, LogIndex(1));
        assert!(matches!(error, Error::Damaged { segment: SegmentId(named), .. } if named == segment), "{error}");
        let (left, lost_after) = salvaged(&group, &mut files, LogIndex(1));
        assert_eq!((left, lost_after), (words(0..20), Some(stamp_of(&group, 19))));
    }
}

#[test]
fn a_damaged_record_of_which_the_store_has_the_entries_costs_nothing() {
    let group = filled(40);
    let mut files = one(&group).files.clone();
    for number in [3, 4, 20] {
        let (segment, at) = place_of(&files, number);
        files.0.get_mut(&segment).unwrap()[at] ^= 1;
    }
    refusal(&group, &files, index_of(&group, 20));
    // All of them, the last of them, one before it.
    for (applied, left, lost_after) in [
        (index_of(&group, 20), words(21..40), None),
        (index_of(&group, 30), words(31..40), None),
        (index_of(&group, 19), words(0..0), Some(Hlc(1))),
        (index_of(&group, 10), words(11..20), Some(stamp_of(&group, 19))),
    ] {
        assert_eq!(salvaged(&group, &mut files.clone(), applied), (left, lost_after), "{applied}");
    }
}

#[test]
fn a_damaged_last_record_is_missed_if_no_mark_says_that_it_was_durable() {
    let group = filled(40);
    let mut files = one(&group).files.clone();
    for number in [3, 39] {
        let (segment, at) = place_of(&files, number);
        files.0.get_mut(&segment).unwrap()[at] ^= 1;
    }
    let from = SalvageFrom { durable: (LogIndex(0), LogIndex(0)), ..from(&group, index_of(&group, 20)) };
    let left = RaftMember::salvage(settings(), &from, &mut files).expect("something is left");
    assert_eq!((words_of(&left.effects), left.lost_after), (words(21..39), Some(stamp_of(&group, 38))));
}

#[test]
fn each_file_may_lose_its_header_or_be_missing() {
    let group = filled(40);
    let all = one(&group).files.clone();
    let segments: Vec<u64> = all.0.keys().copied().collect();
    assert!(segments.len() > 3, "{segments:?}");
    let last = *segments.last().unwrap();
    for (place, segment) in segments.iter().copied().enumerate() {
        let first_word = (0..40).find(|number| place_of(&all, *number).0 == segment).unwrap_or(0);
        let next_word = (0..40).find(|number| place_of(&all, *number).0 > segment).unwrap_or(40);
        for byte in [0, 4, 20, 47] {
            let mut files = all.clone();
            files.0.get_mut(&segment).unwrap()[byte] ^= 1;
            assert_eq!(refusal(&group, &files, LogIndex(1)), Error::HeaderDamaged { segment: SegmentId(segment) });
            // The records behind the header are whole.
            assert_eq!(salvaged(&group, &mut files, LogIndex(1)), (words(0..40), None), "segment {segment}");
        }
        let mut files = all.clone();
        files.0.remove(&segment);
        let error = match place {
            0 => Some(Error::FileBeforeMissing {
                segment: SegmentId(segments[1]),
                record: first_record(&all, segments[1]),
            }),
            _ if segment == last => None,
            _ => Some(Error::FileMissing {
                before: SegmentId(segments[place - 1]),
                after: SegmentId(segments[place + 1]),
                record: first_record(&all, segment),
            }),
        };
        if let Some(error) = error {
            assert_eq!(refusal(&group, &files, LogIndex(1)), error);
        }
        let (left, lost_after) = salvaged_if_refused(&group, &mut files, LogIndex(1));
        assert_eq!(left, words(0..first_word), "without segment {segment}");
        assert!(lost_after.is_some());
        if next_word < 40 {
            let applied = index_of(&group, next_word - 1);
            assert_eq!(salvaged(&group, &mut files, applied), (words(next_word..40), None), "without {segment}");
        }
    }
    assert_eq!(refusal(&group, &MemberFiles::default(), LogIndex(1)), Error::NeverBegun);
    let nothing = salvaged(&group, &mut MemberFiles::default(), index_of(&group, 10));
    assert_eq!(nothing, (words(0..0), Some(Hlc(1))));
}

/// The last file alone may be missing without a trace in the journal: the driver's mark knows.
fn salvaged_if_refused(group: &RaftGroup, files: &mut MemberFiles, applied: LogIndex) -> (Vec<String>, Option<Hlc>) {
    let from = from(group, applied);
    let salvaged = RaftMember::salvage(settings(), &from, files).expect("something is left");
    (words_of(&salvaged.effects), salvaged.lost_after)
}

fn first_record(files: &MemberFiles, segment: u64) -> LogIndex {
    LogIndex(u64::from_le_bytes(files.0[&segment][16..24].try_into().expect("eight bytes")))
}

#[test]
fn a_file_that_is_cut_off_keeps_the_records_before_its_end() {
    let group = filled(40);
    let mut files = one(&group).files.clone();
    let (segment, at) = place_of(&files, 20);
    files.0.get_mut(&segment).unwrap().truncate(at + 10);
    assert!(matches!(refusal(&group, &files, LogIndex(1)), Error::Truncated { .. }));
    assert_eq!(salvaged_if_refused(&group, &mut files, LogIndex(1)).0, words(0..20));
}

#[test]
fn a_store_that_lacks_entries_which_the_journal_let_go_is_refused() {
    let mut group = filled(20);
    let through = index_of(&group, 15);
    group.give(1, crate::MemberInput::Truncate { through });
    let from = from(&group, index_of(&group, 10));
    let found = RaftMember::salvage(settings(), &from, &mut one(&group).files.clone());
    assert!(matches!(found, Err(Error::Missing { found, .. }) if found == through), "{found:?}");
}

#[test]
fn entries_beyond_the_end_of_the_data_are_lost() {
    let group = filled(4);
    let mut from = from(&group, LogIndex(1));
    from.member.data_end = Some(crate::DataEnd::default());
    let left = RaftMember::salvage(settings(), &from, &mut one(&group).files.clone()).expect("it is whole");
    assert_eq!(words_of(&left.effects), words(0..4), "these name no data");
}

#[test]
fn one_of_several_shows_what_is_committed_before_the_damage_and_is_silent() {
    let mut group = RaftGroup::of(3);
    let leader = group.elect();
    for number in 0..10 {
        group.propose(leader, &word(number));
        group.deliver();
    }
    group.ticks(20);
    let other = if leader == 1 { 2 } else { 1 };
    let mut files = group.ones[&other].files.clone();
    let (segment, at) = place_of(&files, 5);
    files.0.get_mut(&segment).unwrap()[at] ^= 1;
    let member = MemberFrom { id: frieze_base::NodeId(other), ..from_of(&group, other) };
    let whose = Salvage::OneOfSeveral;
    let from = SalvageFrom { member, stamp: Hlc(1), durable: (LogIndex(0), LogIndex(0)), whose };
    let settings = MemberSettings { ..settings() };
    let Salvaged { mut member, effects, .. } = RaftMember::salvage(settings, &from, &mut files).expect("some is left");
    let left = words_of(&effects);
    assert!(words(0..5).starts_with(&left) && left.len() > 2, "{left:?}");
    assert!(effects.iter().any(|effect| matches!(effect, crate::MemberEffect::Failed(_))));
    let writes = |effects: &[crate::MemberEffect]| {
        effects.iter().any(|effect| matches!(effect, crate::MemberEffect::Append { .. } | crate::MemberEffect::Send(_)))
    };
    assert!(!writes(&effects));
    let mut later = Vec::new();
    for _ in 0..100 {
        member.step(Hlc(1000), crate::MemberInput::Tick, &mut later);
    }
    assert!(!writes(&later), "it stands for no election");
}

fn from_of(group: &RaftGroup, id: u32) -> MemberFrom {
    let one = &group.ones[&id];
    MemberFrom {
        id: frieze_base::NodeId(id),
        seed: 5,
        incarnation: 2,
        kept_memory: true,
        stamp_bound: one.member.newest(),
        applied: LogIndex(1),
        installed: None,
        data_end: None,
    }
}
