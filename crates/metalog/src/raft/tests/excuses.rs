//! Elections without a voter that the operator declared lost.

use frieze_base::{LogIndex, NodeId};

use super::group::{RaftGroup, message};
use super::memory::{lost_after, stop_flushes, three};
use crate::Error;
use crate::raft::{MemberEffect, MemberInput, PeerKind, PeerMessage, RaftRole};

/// Three members of which one is lost for good and the others lost their memory: the lost one had led, and alone has
/// "only here" in its memory. Returns the two others.
fn two_returning() -> (RaftGroup, u32, [u32; 2]) {
    let (mut group, lost, [one, two]) = three();
    group.propose(lost, "durable");
    group.deliver();
    group.ticks(3);
    stop_flushes(&mut group);
    group.propose(lost, "only here");
    group.deliver();
    assert_eq!(group.words(lost), ["durable", "only here"], "a majority had it in memory");
    group.lose_power(one);
    group.lose_power(two);
    for id in [one, two] {
        group.ones.get_mut(&id).unwrap().flushes = true;
        group.said(id);
    }
    (group, lost, [one, two])
}

#[test]
fn the_votes_of_all_but_one_that_is_declared_lost_elect() {
    let (mut group, lost, [one, two]) = two_returning();
    let cut = |message: &PeerMessage| message.from.0 == lost || message.to.0 == lost;
    let newest = group.ones[&lost].member.newest();
    group.ticks_but(200, cut);
    let leads = |group: &RaftGroup, id| group.ones[&id].member.role() == RaftRole::Leader;
    assert!(![one, two].iter().any(|id| leads(&group, *id)), "two that lost their memory wait for the third");

    // The operator asks one; either may be elected by it.
    group.give(one, MemberInput::DeclareLost { node: NodeId(lost) });
    group.ticks_but(200, cut);
    let next = [one, two].into_iter().find(|id| leads(&group, *id)).expect("the two elect");
    let after = lost_after(&mut group, next).expect("what the lost one had in memory may be lost");
    assert!(after < newest, "{after} is below what was lost");
    assert!(group.ones[&next].member.newest() > newest, "what is stamped next is above what was lost");
    assert_eq!(group.words(next), ["durable"]);
    assert!(!group.ones[&next].member.is_returning());
}

#[test]
fn a_voter_is_declared_lost_only_where_no_leader_is_known_and_a_majority_is_left() {
    let (mut group, leader, [other, third]) = three();
    let refused = |group: &mut RaftGroup, at, node| {
        group.said(at);
        group.give(at, MemberInput::DeclareLost { node: NodeId(node) });
        group.said(at).into_iter().find_map(|effect| match effect {
            MemberEffect::Refused(error) => Some(error),
            _ => None,
        })
    };
    assert_eq!(refused(&mut group, other, third), Some(Error::NotLeader { leader: Some(NodeId(leader)) }));

    let (mut group, lost, [one, two]) = two_returning();
    let cut = |message: &PeerMessage| message.from.0 == lost || message.to.0 == lost;
    group.ticks_but(100, cut);
    let words = |error: Option<Error>| error.map(|error| error.to_string()).unwrap_or_default();
    assert!(words(refused(&mut group, one, 9)).contains("it has no vote"));
    assert!(words(refused(&mut group, one, one)).contains("the member that is asked"));
    assert_eq!(refused(&mut group, one, lost), None);
    assert!(words(refused(&mut group, one, two)).contains("no majority"));
}

#[test]
fn a_declaration_ends_when_a_leader_is_known() {
    let (mut group, lost, [one, two]) = two_returning();
    group.give(one, MemberInput::DeclareLost { node: NodeId(lost) });
    // The third was there after all, and has the longest log.
    group.ticks(200);
    let leader = group.leader().unwrap();
    assert_eq!(group.words(leader), ["durable", "only here"]);
    stop_flushes(&mut group);
    group.propose(leader, "later");
    group.deliver();
    group.ticks(3);
    let others = [one, two, lost].into_iter().filter(|id| *id != leader).collect::<Vec<_>>();
    others.iter().for_each(|id| group.lose_power(*id));
    let cut = |message: &PeerMessage| message.from.0 == leader || message.to.0 == leader;
    group.ticks_but(200, cut);
    assert!(others.iter().all(|id| group.ones[id].member.role() != RaftRole::Leader), "nothing excuses the leader");
}

/// The lost one of [`two_returning`] was alive, and the two have elected without it. What is said to it or by it is
/// lost meanwhile.
fn elected_without() -> (RaftGroup, u32, u32) {
    let (mut group, lost, [one, two]) = two_returning();
    group.give(one, MemberInput::DeclareLost { node: NodeId(lost) });
    group.ticks_but(200, |message| message.from.0 == lost || message.to.0 == lost);
    group.ones.get_mut(&lost).unwrap().flushes = true;
    let is_leader = |id: &u32| group.ones[id].member.role() == RaftRole::Leader;
    let next = [one, two].into_iter().find(is_leader).expect("the two elect");
    (group, lost, next)
}

#[test]
fn a_voter_that_was_declared_lost_and_lives_fails_when_the_log_contradicts_it() {
    let (mut group, lost, next) = elected_without();
    group.propose(next, "after");
    group.said(lost);
    group.ticks(20);
    assert_eq!(group.words(next), ["durable", "after"]);
    assert_eq!(group.words(lost), ["durable", "only here"], "what it has executed stays there");
    let failed = group.said(lost).into_iter().find_map(|effect| match effect {
        MemberEffect::Failed(error) => Some(error),
        _ => None,
    });
    assert_eq!(failed, Some(Error::Contradicted { from: NodeId(next) }));
    // It says so again after a restart.
    let applied = group.ones[&lost].applied;
    group.restart(lost, applied).unwrap();
    group.ticks(20);
    let fails = |effect: &MemberEffect| matches!(effect, MemberEffect::Failed(Error::Contradicted { .. }));
    assert!(group.said(lost).iter().any(fails));
}

#[test]
fn a_voter_that_was_declared_lost_reads_nothing_by_the_index_of_the_next_leader() {
    let (mut group, lost, next) = elected_without();
    // It hears heartbeats alone: it knows the leader, and not that the log is another.
    let is_append = |message: &PeerMessage| message.kind == PeerKind::Append && message.to.0 == lost;
    group.ticks_but(5, is_append);
    assert_eq!(group.ones[&lost].member.leader(), Some(NodeId(next)));
    assert!(group.ones[&lost].member.committed() >= group.ones[&next].member.committed());
    group.said(lost);
    group.give(lost, MemberInput::Read { token: 7 });
    group.ticks_but(10, is_append);
    let answered = |effect: &MemberEffect| matches!(effect, MemberEffect::ReadAt { .. });
    assert!(!group.said(lost).iter().any(answered), "its log is not the leader's");
}

#[test]
fn a_declaration_of_a_term_before_that_of_the_newest_entry_does_not_count() {
    let (mut group, lost, [one, two]) = two_returning();
    let term = group.ones[&one].member.term();
    // The third was there after all, and another leads after it.
    group.ones.get_mut(&lost).unwrap().flushes = true;
    group.ticks(200);
    group.give(lost, MemberInput::Transfer { to: NodeId(one) });
    group.ticks(5);
    let leader = group.leader().expect("it hands over");
    assert!(group.ones[&leader].member.term() > term);
    group.propose(leader, "later");
    group.ticks(5);
    // A message of then comes late, when no leader is known. The term of its sender is as new as can be.
    let others: Vec<u32> = [one, two, lost].into_iter().filter(|id| *id != leader).collect();
    stop_flushes(&mut group);
    group.propose(leader, "only there");
    group.deliver();
    for id in &others {
        group.lose_power(*id);
        group.ones.get_mut(id).unwrap().flushes = true;
    }
    let cut = |message: &PeerMessage| message.from.0 == leader || message.to.0 == leader;
    group.ticks_but(100, cut);
    for (from, to) in [(others[0], others[1]), (others[1], others[0])] {
        let incarnation = group.ones[&from].incarnation;
        let now = group.ones[&from].member.term();
        let hint = LogIndex(leader.into());
        let late = PeerMessage { hint, log_term: term, incarnation, ..message(PeerKind::DeclareLost, from, to, now) };
        group.give(to, MemberInput::Receive(late));
    }
    group.ticks_but(200, cut);
    assert!(others.iter().all(|id| group.ones[id].member.role() != RaftRole::Leader), "it is of an earlier time");
    // The operator says it anew, and then it counts.
    group.give(others[0], MemberInput::DeclareLost { node: NodeId(leader) });
    group.ticks_but(200, cut);
    assert!(others.iter().any(|id| group.ones[id].member.role() == RaftRole::Leader));
}
