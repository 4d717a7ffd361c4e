//! Entries count from memory, and members that lost their memory do not elect as if they had it.

use frieze_base::{LogIndex, NodeId};
use frieze_hlc::Hlc;

use super::group::{RaftGroup, message, propose};
use crate::raft::{BatchDurability, MemberChange, MemberEffect, MemberInput, PeerKind, PeerMessage, RaftRole};
use crate::{DataEnd, Error};

/// Three members, the leader's id, and the other two.
pub(super) fn three() -> (RaftGroup, u32, [u32; 2]) {
    let mut group = RaftGroup::of(3);
    let leader = group.elect();
    let others: Vec<u32> = (1..=3).filter(|id| *id != leader).collect();
    (group, leader, [others[0], others[1]])
}

pub(super) fn stop_flushes(group: &mut RaftGroup) {
    group.ones.values_mut().for_each(|one| one.flushes = false);
}

fn flush(group: &mut RaftGroup, id: u32) {
    let record = group.ones[&id].written;
    group.give(id, MemberInput::Persisted { record });
}

fn propose_when(group: &mut RaftGroup, id: u32, words: &str, durability: BatchDurability) {
    let body = words.as_bytes().to_vec();
    group.give(id, MemberInput::Propose { body, count: 1, data_end: DataEnd::default(), durability });
}

fn durable(group: &RaftGroup, id: u32) -> LogIndex {
    group.ones[&id].member.durable()
}

/// What the last role of this member says of lost entries.
pub(super) fn lost_after(group: &mut RaftGroup, id: u32) -> Option<Hlc> {
    let said = group.said(id);
    let leads = said.iter().rev().find_map(|effect| match effect {
        MemberEffect::Role { role: RaftRole::Leader, lost_after, .. } => Some(*lost_after),
        _ => None,
    });
    leads.expect("it has begun to lead")
}

#[test]
fn a_majority_commits_from_memory_and_says_later_what_is_durable() {
    let (mut group, leader, [other, third]) = three();
    let before = durable(&group, leader);
    stop_flushes(&mut group);
    group.propose(leader, "a");
    group.deliver();
    group.ticks(3);
    for id in 1..=3 {
        assert_eq!(group.words(id), ["a"], "member {id}");
        assert_eq!(durable(&group, id), before, "no disk has it");
    }
    flush(&mut group, other);
    group.deliver();
    assert_eq!(durable(&group, leader), before, "one disk of three has it");
    flush(&mut group, third);
    group.deliver();
    let all = group.ones[&leader].member.committed();
    for id in 1..=3 {
        assert_eq!(durable(&group, id), all, "two disks of three have it, and member {id} knows");
    }
}

#[test]
fn what_waits_for_a_flush_is_urgent() {
    let mut group = RaftGroup::of(3);
    group.ones.values_mut().for_each(|one| one.is_lazy = true);
    let leader = group.elect();
    group.propose(leader, "a");
    group.deliver();
    assert_eq!(group.words(leader), ["a"], "the leader has begun, and a majority has the entry in memory");
    assert!(durable(&group, leader) < group.ones[&leader].member.committed());
    propose_when(&mut group, leader, "b", BatchDurability::Stable);
    group.deliver();
    assert_eq!(group.words(leader), ["a", "b"]);
    let other = (1..=3).find(|id| *id != leader).unwrap();
    group.ticks_but(100, |message| message.from.0 == leader || message.to.0 == leader);
    let is_leader = |id: u32| group.ones[&id].member.role() == RaftRole::Leader;
    assert!(is_leader(other) || is_leader(6 - leader - other), "another is elected");
}

#[test]
fn what_is_durable_is_said_again_until_it_is_known() {
    let (mut group, leader, [other, _]) = three();
    group.propose(leader, "a");
    group.deliver_but(|message| message.kind == PeerKind::Durable || message.kind == PeerKind::Flushed);
    let all = group.ones[&leader].member.committed();
    assert!(durable(&group, leader) < all && durable(&group, other) < all);
    group.ticks(10);
    assert_eq!((durable(&group, leader), durable(&group, other)), (all, all));
}

#[test]
fn a_batch_that_must_never_be_undone_is_committed_from_disks_alone() {
    let (mut group, leader, [other, _]) = three();
    stop_flushes(&mut group);
    propose_when(&mut group, leader, "a", BatchDurability::Stable);
    propose_when(&mut group, leader, "b", BatchDurability::Memory);
    group.deliver();
    group.ticks(3);
    assert_eq!(group.words(leader), [""; 0]);
    flush(&mut group, other);
    group.deliver();
    assert_eq!(group.words(leader), [""; 0], "one of three");
    flush(&mut group, leader);
    group.deliver();
    assert_eq!(group.words(leader), ["a", "b"], "what follows it waits for it");
}

#[test]
fn a_change_of_members_is_committed_from_disks_alone() {
    let (mut group, leader, [other, _]) = three();
    group.join(4);
    stop_flushes(&mut group);
    group.give(leader, MemberInput::Change(MemberChange::Add(NodeId(4))));
    group.deliver();
    assert!(!group.ones[&leader].member.members().contains(NodeId(4)));
    group.said(leader);
    group.propose(leader, "a");
    let refused = group.said(leader);
    assert_eq!(refused, [MemberEffect::Refused(Error::Changing)], "nothing is ordered behind a change that is open");
    flush(&mut group, other);
    flush(&mut group, leader);
    group.deliver();
    assert!(group.ones[&leader].member.members().contains(NodeId(4)));
}

#[test]
fn a_member_that_lost_its_memory_votes_for_nobody_with_one_that_lacks_what_it_had() {
    let (mut group, leader, [with, without]) = three();
    stop_flushes(&mut group);
    group.propose(leader, "a");
    // The third has not got it.
    group.deliver_but(|message| message.to.0 == without || message.from.0 == without);
    assert_eq!(group.words(leader), ["a"], "two of three have it in memory");
    group.lose_power(with);
    assert!(group.ones[&with].member.is_returning());
    // The leader is away: neither of the others may lead without it.
    let away = move |message: &PeerMessage| message.from.0 == leader || message.to.0 == leader;
    group.ticks_but(200, away);
    for id in [with, without] {
        assert_ne!(group.ones[&id].member.role(), RaftRole::Leader, "member {id} leads without the entry");
    }
    // With it they go on, and nothing is lost.
    group.ones.values_mut().for_each(|one| one.flushes = true);
    group.ticks(200);
    let next = group.leader().unwrap();
    assert_eq!(group.words(next), ["a"]);
    assert!(group.ones.values().all(|one| !one.member.is_returning()));
}

#[test]
fn a_member_that_lost_its_memory_counts_when_it_is_up_to_date() {
    let (mut group, leader, [other, third]) = three();
    stop_flushes(&mut group);
    group.propose(leader, "a");
    group.deliver();
    group.lose_power(other);
    group.ones.values_mut().for_each(|one| one.flushes = true);
    group.ticks(10);
    assert!(!group.ones[&other].member.is_returning(), "the leader has said what it has to have");
    assert_eq!(group.words(other), ["a"]);
    // It and the third elect one of them.
    let away = move |message: &PeerMessage| message.from.0 == leader || message.to.0 == leader;
    group.ticks_but(200, away);
    let leads = [other, third].into_iter().find(|id| group.ones[id].member.role() == RaftRole::Leader).unwrap();
    assert_eq!(lost_after(&mut group, leads), None, "both kept their memory");
}

#[test]
fn when_all_lose_power_the_longest_log_goes_on_and_says_that_entries_may_be_lost() {
    let (mut group, leader, [with, without]) = three();
    group.propose(leader, "a");
    group.deliver();
    group.ticks(3);
    stop_flushes(&mut group);
    group.propose(leader, "b");
    group.deliver_but(|message| message.to.0 == without);
    flush(&mut group, with);
    group.propose(leader, "c");
    group.deliver();
    (1..=3).for_each(|id| group.lose_power(id));
    group.under_way.clear();
    group.ones.values_mut().for_each(|one| one.flushes = true);
    // Two are not enough.
    group.ticks_but(200, |message| message.from.0 == with || message.to.0 == with);
    assert_eq!(group.leader(), None);
    group.ticks(200);
    let next = group.leader().unwrap();
    assert_eq!(next, with, "its log is the longest");
    let a = group.ones[&with].executed.iter().find(|entry| entry.body == b"a").unwrap().stamp;
    let lost_after = lost_after(&mut group, with).expect("too few kept their memory");
    assert!(lost_after >= a, "the first entry is not lost");
    for id in 1..=3 {
        assert_eq!(group.words(id), ["a", "b"], "member {id}");
        assert!(!group.ones[&id].member.is_returning());
    }
}

#[test]
fn the_only_voter_goes_on_alone_and_says_where_its_log_ended() {
    let mut group = RaftGroup::of(1);
    group.elect();
    group.propose(1, "a");
    let newest = group.ones[&1].member.newest();
    stop_flushes(&mut group);
    group.propose(1, "b");
    assert_eq!(group.words(1), ["a", "b"]);
    group.lose_power(1);
    group.ones.values_mut().for_each(|one| one.flushes = true);
    group.said(1);
    group.elect();
    assert_eq!(group.words(1), ["a"]);
    assert_eq!(lost_after(&mut group, 1), Some(newest));
}

#[test]
fn a_process_that_ends_and_a_machine_that_runs_on_lose_nothing() {
    let mut group = RaftGroup::of(1);
    group.elect();
    stop_flushes(&mut group);
    group.propose(1, "a");
    group.restart(1, LogIndex(1)).unwrap();
    group.ones.values_mut().for_each(|one| one.flushes = true);
    group.said(1);
    group.elect();
    assert_eq!(group.words(1), ["a"]);
    assert_eq!(lost_after(&mut group, 1), None);
}

#[test]
fn what_an_earlier_incarnation_acknowledged_does_not_count() {
    let (mut group, leader, [other, third]) = three();
    stop_flushes(&mut group);
    group.propose(leader, "a");
    // The acknowledgement of one is late, the other has nothing.
    group.deliver_but(|message| message.to.0 == third || message.kind == PeerKind::Appended);
    group.lose_power(other);
    group.ones.get_mut(&other).unwrap().flushes = true;
    group.ticks_but(2, |message| message.to.0 == third || message.kind == PeerKind::Append);
    let member = &group.ones[&leader].member;
    let (index, term) = (member.last(), member.term());
    let late = PeerMessage { index, ..message(PeerKind::Appended, other, leader, term) };
    group.give(leader, MemberInput::Receive(late));
    assert_eq!(group.words(leader), [""; 0], "the incarnation that had it is over");
    group.ticks(10);
    assert_eq!(group.words(leader), ["a"], "and its next one gets it again");
}

#[test]
fn a_goal_of_an_earlier_incarnation_is_not_taken() {
    let (mut group, leader, [other, _]) = three();
    stop_flushes(&mut group);
    group.lose_power(other);
    group.ones.get_mut(&other).unwrap().flushes = true;
    // The goal of this incarnation is under way while the next one begins.
    group.give(leader, MemberInput::Tick);
    let mut goals = Vec::new();
    for _ in 0..4 {
        group.ticks_but(1, |message| message.kind == PeerKind::UpToDate);
        let member = &group.ones[&leader].member;
        goals.push((member.last(), member.term()));
    }
    let (index, term) = goals[0];
    group.propose(leader, "a");
    group.deliver_but(|message| message.kind == PeerKind::UpToDate);
    group.lose_power(other);
    let named = message(PeerKind::UpToDate, leader, other, term);
    let late = PeerMessage { log_term: term, index, hint: LogIndex(2), ..named };
    group.give(other, MemberInput::Receive(late));
    assert!(group.ones[&other].member.is_returning(), "incarnation 2 was meant, this is incarnation 3");
}

#[test]
fn a_learner_learns_of_a_commit_when_it_is_durable() {
    let (mut group, leader, [other, _]) = three();
    group.join(4);
    group.change(MemberChange::Add(NodeId(4)));
    group.ticks(10);
    stop_flushes(&mut group);
    group.give(leader, propose(b"a".to_vec()));
    group.deliver();
    group.ticks(3);
    assert_eq!(group.words(leader), ["a"]);
    assert_eq!(group.words(4), [""; 0], "the voters could lose it");
    flush(&mut group, other);
    flush(&mut group, leader);
    group.deliver();
    group.ticks(3);
    assert_eq!(group.words(4), ["a"]);
}

#[test]
fn who_waits_for_a_flush_can_ask_all_members_for_it() {
    let (mut group, leader, [other, third]) = three();
    (1..=3).for_each(|id| drop(group.said(id)));
    group.give(other, MemberInput::FlushAll);
    group.deliver();
    for id in [leader, other, third] {
        let asked = group.said(id).iter().filter(|effect| **effect == MemberEffect::FlushNow).count();
        assert_eq!(asked, 1, "member {id}");
    }
}

#[test]
fn a_learner_with_a_longer_log_that_votes_by_an_open_change_stops_no_election() {
    let (mut group, leader, _) = three();
    group.join(4);
    group.change(MemberChange::Add(NodeId(4)));
    group.ticks(10);
    // The change is on every disk, and no member knows that it is committed.
    stop_flushes(&mut group);
    group.give(leader, MemberInput::Change(MemberChange::Promote(NodeId(4))));
    group.deliver();
    (1..=4).for_each(|id| flush(&mut group, id));
    group.under_way.clear();
    (1..=3).for_each(|id| group.lose_power(id));
    group.under_way.clear();
    group.ones.values_mut().for_each(|one| one.flushes = true);
    group.ticks_but(200, |message| message.from.0 == 4 || message.to.0 == 4);
    assert_eq!(group.leader(), None, "too few kept their memory: they wait for all that may have voted");
    // A leader of a term that the voters lost had given it one entry more.
    for _ in 0..200 {
        (1..=4).for_each(|id| group.give(id, MemberInput::Tick));
        while let Some(mut message) = group.under_way.pop_front() {
            if message.from == NodeId(4) && matches!(message.kind, PeerKind::PreVote | PeerKind::Vote) {
                message.term -= u64::from(message.kind == PeerKind::PreVote && !message.reject);
                message.reject = true;
            }
            group.give(message.to.0, MemberInput::Receive(message));
        }
    }
    assert!(group.leader().is_some_and(|leader| leader <= 3));
}
