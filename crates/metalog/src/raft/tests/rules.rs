//! One rule each.

use std::cell::RefCell;

use frieze_base::{LogIndex, NodeId, Reason};
use frieze_hlc::Hlc;

use super::group::{RaftGroup, message, propose, settings};
use crate::Error;
use crate::raft::{MemberChange, MemberEffect, MemberInput, MemberSettings, PeerKind, PeerMessage, RaftRole};

#[test]
fn what_a_majority_has_is_executed_by_all_in_one_order() {
    let mut group = RaftGroup::of(3);
    let leader = group.elect();
    for words in ["a", "b", "c"] {
        group.propose(leader, words);
    }
    group.deliver();
    group.ticks(3);
    for id in 1..=3 {
        assert_eq!(group.words(id), ["a", "b", "c"], "member {id}");
    }
}

#[test]
fn one_member_alone_leads_and_commits() {
    let mut group = RaftGroup::of(1);
    let leader = group.elect();
    group.propose(leader, "a");
    assert_eq!(group.words(1), ["a"]);
    group.give(1, MemberInput::Read { token: 7 });
    let committed = group.ones[&1].member.committed();
    assert!(group.said(1).contains(&MemberEffect::ReadAt { token: 7, index: committed }));
}

#[test]
fn a_member_that_restarts_alone_knows_what_was_committed_although_no_entry_followed() {
    let mut group = RaftGroup::of(3);
    let leader = group.elect();
    let at = group.ones[&leader].member.newest().next();
    group.give(leader, MemberInput::Close { at });
    group.deliver();
    group.ticks(10);
    for id in 1..=3 {
        let applied = group.ones[&id].applied;
        group.restart(id, applied).unwrap();
        assert!(group.ones[&id].member.closed() >= at, "member {id}: {:?}", group.ones[&id].member.closed());
        let written = group.ones[&id].written;
        (0..100).for_each(|_| group.give(id, MemberInput::Tick));
        assert!(group.ones[&id].written.0 <= written.0 + 2, "member {id} writes on without anything to record");
    }
}

#[test]
fn a_vote_is_sent_only_when_it_is_durable() {
    let mut group = RaftGroup::of(3);
    group.ones.values_mut().for_each(|one| one.flushes = false);
    let is_vote = |kind| matches!(kind, PeerKind::Vote | PeerKind::AskVote);
    let spoken = std::cell::RefCell::new(Vec::new());
    group.ticks_but(60, |message| {
        spoken.borrow_mut().push(message.kind);
        false
    });
    assert!(!spoken.borrow().iter().any(|kind| is_vote(*kind)), "nobody can say what it voted");
    assert_eq!(group.leader(), None);
}

#[test]
fn a_restarted_member_does_not_vote_twice_in_a_term() {
    let mut group = RaftGroup::of(3);
    group.elect();
    let term = group.ones[&2].member.term();
    let voted = |group: &mut RaftGroup, index| {
        group.under_way.clear();
        let mut ask = ask_vote(3, 2, term + 5);
        ask.index = index;
        ask.log_term = term;
        group.give(2, MemberInput::Receive(ask));
        group.under_way.pop_front().filter(|answer| answer.kind == PeerKind::Vote && !answer.reject).is_some()
    };
    // It has not heard a leader for long enough to listen.
    for _ in 0..9 {
        group.give(2, MemberInput::Tick);
    }
    group.restart(2, LogIndex(1)).unwrap();
    assert!(voted(&mut group, LogIndex(50)));
    group.restart(2, LogIndex(1)).unwrap();
    assert_eq!(group.ones[&2].member.term(), term + 5);
    let mut ask = ask_vote(1, 2, term + 5);
    (ask.index, ask.log_term) = (LogIndex(60), term);
    group.under_way.clear();
    group.give(2, MemberInput::Receive(ask));
    assert!(group.under_way.pop_front().is_some_and(|answer| answer.reject), "it voted for 3 in that term");
}

fn ask_vote(from: u32, to: u32, term: u64) -> PeerMessage {
    message(PeerKind::AskVote, from, to, term)
}

#[test]
fn a_follower_names_the_leader_when_it_refuses() {
    let mut group = RaftGroup::of(3);
    let leader = group.elect();
    let other = (1..=3).find(|id| *id != leader).unwrap();
    group.said(other);
    group.propose(other, "a");
    let hint = Error::NotLeader { leader: Some(NodeId(leader)) };
    assert_eq!(hint.reason(), Reason::Elsewhere);
    assert_eq!(group.said(other), [MemberEffect::Refused(hint)]);
}

#[test]
fn an_isolated_leader_stands_down_and_answers_no_read() {
    let mut group = RaftGroup::of(3);
    let leader = group.elect();
    group.said(leader);
    let cut = |message: &crate::raft::PeerMessage| message.from.0 == leader || message.to.0 == leader;
    group.give(leader, MemberInput::Read { token: 1 });
    group.ticks_but(50, cut);
    assert_ne!(group.ones[&leader].member.role(), RaftRole::Leader);
    let said = group.said(leader);
    assert!(said.iter().any(|effect| matches!(effect, MemberEffect::ReadFailed { token: 1, .. })), "{said:?}");
    let next = group.leader().unwrap();
    assert_ne!(next, leader, "the others go on");
}

#[test]
fn a_follower_reads_what_the_leader_has_committed() {
    let mut group = RaftGroup::of(3);
    let leader = group.elect();
    group.propose(leader, "a");
    group.deliver();
    let other = (1..=3).find(|id| *id != leader).unwrap();
    group.give(other, MemberInput::Read { token: 5 });
    group.deliver();
    let index = group.ones[&leader].member.committed();
    assert!(group.said(other).contains(&MemberEffect::ReadAt { token: 5, index }));
}

#[test]
fn an_answer_to_an_earlier_heartbeat_confirms_no_later_read() {
    let mut group = RaftGroup::of(3);
    let leader = group.elect();
    let [asks, answers] = [1, 2].map(|step| (leader + step - 1) % 3 + 1);
    // A question and an answer to the heartbeat that it caused, which the network delivers once more, late.
    group.give(asks, MemberInput::Read { token: 5 });
    let late = RefCell::new(Vec::new());
    group.deliver_but(|message| {
        let is_answer = message.kind == PeerKind::HeartbeatSeen && message.from.0 == answers;
        if message.kind == PeerKind::AskReadIndex || is_answer && !message.context.is_empty() {
            late.borrow_mut().push(message.clone());
        }
        false
    });
    assert!(group.said(asks).iter().any(|effect| matches!(effect, MemberEffect::ReadAt { token: 5, .. })));
    let cut = |message: &PeerMessage| message.from.0 == leader || message.to.0 == leader;
    for other in [asks, answers] {
        group.give(other, MemberInput::Gone { peer: NodeId(leader) });
    }
    group.ticks_but(4, cut);
    let next = group.leader().unwrap();
    assert_ne!(next, leader);
    group.propose(next, "a later entry");
    group.deliver_but(cut);

    group.give(leader, MemberInput::Read { token: 7 });
    let late = late.into_inner();
    assert_eq!(
        late.iter().map(|message| message.kind).collect::<Vec<_>>(),
        [PeerKind::AskReadIndex, PeerKind::HeartbeatSeen]
    );
    for message in late {
        group.give(leader, MemberInput::Receive(message));
    }
    assert_eq!(group.ones[&leader].member.role(), RaftRole::Leader, "it does not know of the other yet");
    let said = group.said(leader);
    assert!(!said.iter().any(|effect| matches!(effect, MemberEffect::ReadAt { token: 7, .. })), "{said:?}");
}

#[test]
fn another_leads_soon_when_all_see_the_leader_go() {
    for seen_by in 1..=2 {
        let mut group = RaftGroup::of(3);
        let leader = group.elect();
        let term = group.ones[&leader].member.term();
        let gone = |message: &crate::raft::PeerMessage| message.from.0 == leader || message.to.0 == leader;
        for other in (1..=3).filter(|id| *id != leader).take(seen_by) {
            group.give(other, MemberInput::Gone { peer: NodeId(leader) });
        }
        group.ticks_but(4, gone);
        let next = group.leader().filter(|next| *next != leader);
        // One alone may be wrong, and asks the other.
        assert_eq!(next.is_some(), seen_by == 2, "seen by {seen_by}");
        assert_eq!(group.ones[&leader].member.term(), term, "who is there all the same is not disturbed");
    }
}

#[test]
fn a_leader_that_only_seemed_to_go_stays() {
    let mut group = RaftGroup::of(3);
    let leader = group.elect();
    for other in (1..=3).filter(|id| *id != leader) {
        group.give(other, MemberInput::Gone { peer: NodeId(leader) });
        // It is heard before anybody stands.
        group.ticks(2);
    }
    group.ticks(100);
    assert_eq!(group.leader(), Some(leader));
    // The departure of another member changes nothing.
    let (one, other) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    group.give(one, MemberInput::Gone { peer: NodeId(other) });
    group.ticks_but(4, |_| false);
    assert_eq!(group.leader(), Some(leader));
}

#[test]
fn a_question_about_reads_is_asked_of_the_next_leader_soon() {
    let mut group = RaftGroup::of(3);
    let leader = group.elect();
    let gone = |message: &crate::raft::PeerMessage| message.from.0 == leader || message.to.0 == leader;
    let others = || (1..=3).filter(|id| *id != leader);
    for other in others() {
        group.give(other, MemberInput::Gone { peer: NodeId(leader) });
        group.give(other, MemberInput::Read { token: 9 });
    }
    group.ticks_but(4 + 2 * settings().heartbeat_ticks, gone);
    for other in others() {
        let said = group.said(other);
        assert!(said.iter().any(|effect| matches!(effect, MemberEffect::ReadAt { token: 9, .. })), "{other}: {said:?}");
    }
}

#[test]
fn a_member_too_far_behind_gets_the_state() {
    let mut group = RaftGroup::of(3);
    let leader = group.elect();
    let behind = (1..=3).find(|id| *id != leader).unwrap();
    for round in 0..20 {
        group.propose(leader, &format!("{round}"));
        group.deliver_but(|message| message.to.0 == behind);
    }
    let through = group.ones[&leader].applied;
    group.give(leader, MemberInput::Truncate { through });
    assert_eq!(group.ones[&leader].member.base().index, through);
    group.ticks(20);
    let installed = group.ones[&behind].installed.clone().unwrap();
    assert_eq!((installed.index, installed.members.voters.len()), (through, 3));
    // It goes on from there, and after a restart too.
    group.propose(leader, "after");
    group.deliver();
    group.ticks(3);
    assert_eq!(group.words(behind).last().map(String::as_str), Some("after"));
    let applied = group.ones[&behind].applied;
    group.restart(behind, applied).unwrap();
    group.propose(leader, "later");
    group.deliver();
    group.ticks(20);
    assert_eq!(group.words(behind).last().map(String::as_str), Some("later"));
}

#[test]
fn a_crash_between_state_and_journal_goes_on_from_the_state() {
    let mut group = RaftGroup::of(3);
    let leader = group.elect();
    let behind = (1..=3).find(|id| *id != leader).unwrap();
    for round in 0..20 {
        group.propose(leader, &format!("{round}"));
        group.deliver_but(|message| message.to.0 == behind);
    }
    let before = group.ones[&behind].files.clone();
    let through = group.ones[&leader].applied;
    group.give(leader, MemberInput::Truncate { through });
    group.ticks(20);
    // The store has the state, the journal's record of it is lost.
    group.ones.get_mut(&behind).unwrap().files = before;
    group.restart(behind, through).unwrap();
    assert_eq!(group.ones[&behind].member.base().index, through);
    group.propose(leader, "after");
    group.deliver();
    group.ticks(20);
    assert_eq!(group.words(behind).last().map(String::as_str), Some("after"));
}

#[test]
fn a_member_stands_for_election_only_when_its_state_is_durable() {
    let mut group = RaftGroup::of(3);
    let leader = group.elect();
    let behind = (1..=3).find(|id| *id != leader).unwrap();
    for round in 0..20 {
        group.propose(leader, &format!("{round}"));
        group.deliver_but(|message| message.to.0 == behind);
    }
    let through = group.ones[&leader].applied;
    group.give(leader, MemberInput::Truncate { through });
    // The state is in the store; the flush of the journal takes long, and the leader is not heard any more.
    group.ones.get_mut(&behind).unwrap().flushes = false;
    group.ticks(20);
    assert_eq!(group.ones[&behind].applied, through);
    for _ in 0..60 {
        group.give(behind, MemberInput::Tick);
    }
    assert_eq!(group.ones[&behind].member.role(), RaftRole::Follower);
    let record = group.ones[&behind].written;
    group.give(behind, MemberInput::Persisted { record });
    for _ in 0..60 {
        group.give(behind, MemberInput::Tick);
    }
    assert_eq!(group.ones[&behind].member.role(), RaftRole::Candidate);
}

#[test]
fn the_only_one_that_votes_leads_with_its_first_tick() {
    let mut group = RaftGroup::of(1);
    let leader = group.elect();
    group.propose(leader, "a");
    let applied = group.ones[&leader].applied;
    group.restart(leader, applied).unwrap();
    group.give(leader, MemberInput::Tick);
    group.deliver();
    assert_eq!(group.ones[&leader].member.role(), RaftRole::Leader);
}

#[test]
fn a_new_member_may_vote_when_it_has_caught_up() {
    let mut group = RaftGroup::of(3);
    let leader = group.elect();
    group.propose(leader, "a");
    group.join(4);
    // It does not hear anything yet.
    group.give(leader, MemberInput::Change(MemberChange::Add(NodeId(4))));
    group.ticks_but(20, |message| message.to.0 == 4);
    let members = group.ones[&leader].member.members().clone();
    assert_eq!((members.voters.len(), members.learners), (3, vec![NodeId(4)]));
    assert_eq!(group.refused(MemberChange::Promote(NodeId(4))), Error::NotCaughtUp { node: NodeId(4) });
    group.ticks(20);
    assert_eq!(group.ones[&leader].member.caught_up(), [NodeId(4)]);
    group.change(MemberChange::Promote(NodeId(4)));
    let members = group.ones[&leader].member.members().clone();
    assert_eq!((members.voters.len(), members.learners.len()), (4, 0));
    group.propose(leader, "b");
    group.deliver();
    group.ticks(3);
    assert_eq!(group.words(4), ["b"], "what came before is in the state it got");
}

#[test]
fn a_new_member_that_has_nothing_does_not_count_however_short_the_log_is() {
    // Two could not go on without one that holds nothing.
    let mut group = RaftGroup::of(1);
    let leader = group.elect();
    let settings = MemberSettings { promote_lag: 64, ..settings() };
    group.ones.get_mut(&leader).unwrap().member.settings = settings;
    group.join(2);
    group.give(leader, MemberInput::Change(MemberChange::Add(NodeId(2))));
    group.ticks_but(1, |message| message.to.0 == 2);
    assert_eq!(group.refused(MemberChange::Promote(NodeId(2))), Error::NotCaughtUp { node: NodeId(2) });
    group.ticks(20);
    group.change(MemberChange::Promote(NodeId(2)));
    assert_eq!(group.ones[&leader].member.members().voters.len(), 2);
}

/// Five voters and two learners that have caught up.
fn seven() -> (RaftGroup, u32) {
    let mut group = RaftGroup::of(5);
    let leader = group.elect();
    for id in [6, 7] {
        group.join(id);
        group.change(MemberChange::Add(NodeId(id)));
    }
    group.ticks(40);
    (group, leader)
}

#[test]
fn a_sixth_member_gets_the_log_and_votes_only_in_the_place_of_one_of_five() {
    let (mut group, leader) = seven();
    let members = group.ones[&leader].member.members().clone();
    assert_eq!((members.voters.len(), members.learners), (5, vec![NodeId(6), NodeId(7)]));
    group.propose(leader, "a");
    group.deliver();
    group.ticks(3);
    assert!((1..=7).all(|id| group.words(id) == ["a"]), "learners get the log all the same");
    assert!(matches!(group.refused(MemberChange::Promote(NodeId(6))), Error::BadChange { .. }));
    let other = (1..=5).find(|id| *id != leader).unwrap();
    group.change(MemberChange::Demote(NodeId(other)));
    group.change(MemberChange::Promote(NodeId(6)));
    let members = group.ones[&leader].member.members().clone();
    assert!(members.voters.len() == 5 && members.voters.contains(&NodeId(6)), "{members:?}");
    assert!(members.learners.contains(&NodeId(other)), "{members:?}");
    group.propose(leader, "b");
    group.deliver();
    group.ticks(3);
    assert_eq!(group.words(other), ["a", "b"], "without its vote it goes on getting the log");
}

#[test]
fn learners_do_not_count_for_a_majority() {
    let (mut group, leader) = seven();
    group.propose(leader, "a");
    group.deliver();
    // Three of five voters are away; the two that are left and both learners hold what is proposed, and that is not
    // enough.
    let away: Vec<u32> = (1..=5).filter(|id| *id != leader).take(3).collect();
    let is_lost = |message: &PeerMessage| away.contains(&message.to.0) || away.contains(&message.from.0);
    group.propose(leader, "b");
    group.deliver_but(is_lost);
    group.give(leader, MemberInput::Read { token: 7 });
    group.ticks_but(60, is_lost);
    assert!((1..=7).all(|id| group.words(id) == ["a"]), "nothing is committed without a majority of the voters");
    assert!(!group.said(leader).iter().any(|effect| matches!(effect, MemberEffect::ReadAt { .. })));
    let leads = |id: u32| group.ones[&id].member.role() == RaftRole::Leader;
    assert!((1..=7).filter(|id| !away.contains(id)).all(|id| !leads(id)), "nor does one of them lead");
    assert!([6, 7].iter().all(|id| group.ones[id].member.role() == RaftRole::Follower), "a learner does not stand");
}

#[test]
fn two_of_five_voters_may_go_and_learners_read_on() {
    let (mut group, leader) = seven();
    // The leader is one of the two.
    let away = [leader, (1..=5).find(|id| *id != leader).unwrap()];
    let is_lost = |message: &PeerMessage| away.contains(&message.to.0) || away.contains(&message.from.0);
    group.ticks_but(60, is_lost);
    let (next, _) =
        group.ones.iter().find(|(id, one)| !away.contains(id) && one.member.role() == RaftRole::Leader).unwrap();
    let next = *next;
    assert!(next <= 5, "a learner leads");
    group.propose(next, "a");
    group.deliver_but(is_lost);
    group.give(7, MemberInput::Read { token: 1 });
    group.ticks_but(3, is_lost);
    assert!((3..=7).filter(|id| !away.contains(id)).all(|id| group.words(id) == ["a"]));
    let read = group.said(7).into_iter().find_map(|effect| match effect {
        MemberEffect::ReadAt { token: 1, index } => Some(index),
        _ => None,
    });
    assert_eq!(read, Some(group.ones[&next].applied), "the leader's place, confirmed by a majority of the voters");
}

#[test]
fn a_leader_whose_vote_is_to_go_hands_over_first_and_then_learns() {
    let (mut group, leader) = seven();
    assert!(matches!(group.refused(MemberChange::Demote(NodeId(leader))), Error::NotLeader { leader: Some(_) }));
    group.ticks(5);
    let next = group.leader().unwrap();
    assert_ne!(next, leader);
    // Proposed by the one, and committed by the other, which is the one that it is about.
    group.give(next, MemberInput::Change(MemberChange::Demote(NodeId(leader))));
    group.give(next, MemberInput::Transfer { to: NodeId(leader) });
    group.ticks(60);
    let now = group.leader().unwrap();
    let members = group.ones[&now].member.members().clone();
    assert!(now != leader && members.voters.contains(&NodeId(now)), "{now} leads {members:?}");
    assert!(members.learners.contains(&NodeId(leader)), "{members:?}");
    group.propose(now, "a");
    group.deliver();
    group.ticks(3);
    assert!((1..=7).all(|id| group.words(id) == ["a"]));
}

#[test]
fn voters_and_learners_that_restart_all_at_once_go_on() {
    let (mut group, leader) = seven();
    group.propose(leader, "a");
    group.deliver();
    group.ticks(3);
    group.under_way.clear();
    for id in 1..=7 {
        let applied = group.ones[&id].applied;
        group.restart(id, applied).unwrap();
    }
    let leader = group.elect();
    let members = group.ones[&leader].member.members().clone();
    assert_eq!((members.voters.len(), members.learners), (5, vec![NodeId(6), NodeId(7)]));
    group.propose(leader, "b");
    group.deliver();
    group.ticks(3);
    assert!((1..=7).all(|id| group.words(id) == ["a", "b"]));
}

#[test]
fn a_leader_that_is_to_go_hands_over_first() {
    let mut group = RaftGroup::of(3);
    let leader = group.elect();
    group.said(leader);
    group.change(MemberChange::Remove(NodeId(leader)));
    let refused = group.said(leader);
    let handed =
        refused.iter().any(|effect| matches!(effect, MemberEffect::Refused(Error::NotLeader { leader: Some(_) })));
    assert!(handed, "{refused:?}");
    let next = group.leader().unwrap();
    assert_ne!(next, leader);
    group.change(MemberChange::Remove(NodeId(leader)));
    assert_eq!(group.ones[&next].member.members().voters.len(), 2);
    // A removed member cannot disturb the others, and says so.
    let term = group.ones[&next].member.term();
    group.ticks(100);
    assert_eq!(group.ones[&next].member.term(), term);
    group.said(leader);
    group.propose(leader, "a");
    group.give(leader, MemberInput::Read { token: 1 });
    let refused = MemberEffect::Refused(Error::NotMember);
    assert_eq!(group.said(leader), [refused.clone(), refused]);
}

#[test]
fn a_change_that_makes_no_sense_is_refused() {
    let mut group = RaftGroup::of(1);
    group.elect();
    for change in [
        MemberChange::Add(NodeId(0)),
        MemberChange::Add(NodeId(1)),
        MemberChange::Promote(NodeId(1)),
        MemberChange::Promote(NodeId(9)),
        MemberChange::Demote(NodeId(9)),
        MemberChange::Demote(NodeId(1)),
        MemberChange::Remove(NodeId(9)),
        MemberChange::Remove(NodeId(1)),
    ] {
        let refused = group.refused(change);
        assert!(matches!(refused, Error::BadChange { .. }), "{change:?}: {refused:?}");
    }
}

#[test]
fn an_instant_is_closed_by_an_entry_above_it() {
    let mut group = RaftGroup::of(3);
    let leader = group.elect();
    group.propose(leader, "a");
    group.deliver();
    let at = Hlc(group.ones[&leader].member.newest().0 + 3);
    group.said(leader);
    group.give(leader, MemberInput::Close { at });
    assert_eq!(group.said(leader), [], "a majority has not heard of it");
    group.deliver();
    assert_eq!(group.said(leader).first(), Some(&MemberEffect::Closed { at }));
    group.ticks(3);
    assert!((1..=3).all(|id| group.ones[&id].member.closed() >= at), "whoever leads next stamps above it");
    assert_eq!(group.words(leader), ["a"], "it holds nothing to execute");
}

#[test]
fn an_instant_in_the_future_is_not_closed() {
    let mut group = RaftGroup::of(1);
    group.elect();
    group.said(1);
    let at = Hlc(u64::MAX / 2);
    group.give(1, MemberInput::Close { at });
    let said = group.said(1);
    assert!(matches!(said[..], [MemberEffect::Refused(Error::CloseFuture { .. })]), "{said:?}");
}

#[test]
fn a_member_whose_device_failed_is_silent() {
    let mut group = RaftGroup::of(3);
    let leader = group.elect();
    group.give(leader, MemberInput::DeviceFailed { reason: Reason::InputOutput });
    group.said(leader);
    group.propose(leader, "a");
    let refused = Error::DeviceFailed { reason: Reason::InputOutput };
    assert_eq!(group.said(leader), [MemberEffect::Refused(refused)]);
    group.ticks_but(60, |message| {
        assert_ne!(message.from.0, leader);
        false
    });
    let next =
        group.ones.iter().filter(|(id, _)| **id != leader).find(|(_, one)| one.member.role() == RaftRole::Leader);
    assert!(next.is_some(), "the others elect another");
}

#[test]
fn the_same_seed_gives_the_same_effects() {
    let play = || {
        let mut group = RaftGroup::of(5);
        let mut seen = Vec::new();
        for round in 0..400u32 {
            // One after the other is cut off, so that elections come and go.
            let alone = round / 40 % 5 + 1;
            group.ticks_but(1, |message| message.from.0 == alone || message.to.0 == alone);
            seen.push((group.leader(), group.ones.values().map(|one| one.member.term()).collect::<Vec<_>>()));
        }
        seen
    };
    let first = play();
    assert!(first.last().unwrap().1.iter().any(|term| *term > 3), "there were elections");
    assert_eq!(first, play());
}

#[test]
fn a_proposal_too_large_is_refused() {
    let mut group = RaftGroup::of(1);
    group.elect();
    group.said(1);
    let body = vec![0; group.settings.body_bytes_max as usize + 1];
    group.give(1, propose(body));
    let said = group.said(1);
    assert!(matches!(said[..], [MemberEffect::Refused(Error::BatchTooLarge { .. })]), "{said:?}");
}
