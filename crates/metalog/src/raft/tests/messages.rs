//! Messages that no member sends: refused, and no member fails on them.

use frieze_base::{LogIndex, NodeId, Rng};
use frieze_hlc::Hlc;

use super::group::RaftGroup;
use crate::raft::{EntryKind, MemberEffect, MemberInput, Members, PeerEntry, PeerKind, PeerMessage, SnapshotMeta};

const KINDS: [PeerKind; 17] = [
    PeerKind::Append,
    PeerKind::Appended,
    PeerKind::AskVote,
    PeerKind::Vote,
    PeerKind::AskPreVote,
    PeerKind::PreVote,
    PeerKind::Snapshot,
    PeerKind::Heartbeat,
    PeerKind::HeartbeatSeen,
    PeerKind::TimeoutNow,
    PeerKind::AskReadIndex,
    PeerKind::ReadIndex,
    PeerKind::UpToDate,
    PeerKind::Flushed,
    PeerKind::Durable,
    PeerKind::FlushNow,
    PeerKind::DeclareLost,
];

/// Numbers that are near something, or far from everything.
fn number(rng: &mut Rng, near: u64) -> u64 {
    match rng.below(8) {
        0 => 0,
        1 => u64::MAX - rng.below(3),
        2 => rng.next(),
        _ => (near + rng.below(7)).saturating_sub(3),
    }
}

fn made_up(rng: &mut Rng, to: u32, last: u64, term: u64) -> PeerMessage {
    let node = |rng: &mut Rng| NodeId(number(rng, 2).min(u64::from(u32::MAX)) as u32);
    let index = number(rng, last);
    let entries = (0..rng.below(4)).map(|step| PeerEntry {
        kind: if rng.chance(4) { EntryKind::Change } else { EntryKind::Normal },
        index: LogIndex(if rng.chance(6) { number(rng, last) } else { index.wrapping_add(1 + step) }),
        term: number(rng, term),
        data: (0..rng.below(60)).map(|_| rng.next() as u8).collect::<Vec<u8>>().into(),
    });
    let entries = entries.collect();
    let members = Members {
        voters: (0..rng.below(4)).map(|_| node(rng)).collect(),
        learners: (0..rng.below(2)).map(|_| node(rng)).collect(),
    };
    let meta =
        SnapshotMeta { index: LogIndex(number(rng, last)), term: number(rng, term), stamp: Hlc(rng.next()), members };
    PeerMessage {
        kind: *rng.choose(&KINDS),
        from: node(rng),
        to: if rng.chance(20) { node(rng) } else { NodeId(to) },
        term: number(rng, term),
        log_term: number(rng, term),
        index: LogIndex(index),
        commit: LogIndex(number(rng, last)),
        commit_term: number(rng, term),
        reject: rng.chance(2),
        hint: LogIndex(number(rng, last)),
        context: (0..rng.below(30)).map(|_| rng.next() as u8).collect::<Vec<u8>>().into(),
        entries,
        snapshot: rng.chance(3).then_some(meta),
        incarnation: number(rng, 1),
        returning: rng.chance(2),
        for_incarnation: number(rng, 1),
        newest: Hlc(rng.next() >> 8),
        votes: rng.chance(2),
    }
}

/// A real message with one field made up.
fn twisted(rng: &mut Rng, mut message: PeerMessage, other: PeerMessage) -> PeerMessage {
    match rng.below(11) {
        0 => message.kind = other.kind,
        1 => message.term = other.term,
        2 => message.log_term = other.log_term,
        3 => message.index = other.index,
        4 => message.commit = other.commit,
        5 => message.hint = other.hint,
        6 => message.reject = !message.reject,
        7 => message.entries = other.entries,
        8 => message.incarnation = other.incarnation,
        9 => message.returning = !message.returning,
        _ => message.snapshot = other.snapshot,
    }
    message
}

/// Plays with wrong messages between the right ones. Members may end up wherever lies bring them: but they are there.
fn play(seed: u64, wrong_one_in: u64) -> u64 {
    let mut rng = Rng::new(seed);
    let count = rng.between(1, 4) as u32;
    let mut group = RaftGroup::of(count);
    let mut refused = 0;
    for round in 0..120u64 {
        for id in 1..=count {
            group.give(id, MemberInput::Tick);
            if rng.chance(20) {
                let through = group.ones[&id].applied;
                group.give(id, MemberInput::Truncate { through });
            }
            if rng.chance(40) {
                group.ones.get_mut(&id).unwrap().flushes ^= true;
            }
            let one = &group.ones[&id];
            let (last, term) = (one.member.last().0, one.member.term().min(1 << 50));
            if round.is_multiple_of(4) {
                group.propose(id, "x");
            }
            if rng.chance(wrong_one_in) {
                let made_up = made_up(&mut rng, id, last, term);
                let message = match group.under_way.front().cloned() {
                    Some(real) if rng.chance(2) => twisted(&mut rng, PeerMessage { to: NodeId(id), ..real }, made_up),
                    _ => made_up,
                };
                group.give(id, MemberInput::Receive(message));
            }
            let said = group.said(id);
            refused += said
                .iter()
                .filter(|effect| matches!(effect, MemberEffect::Refused(crate::Error::BadMessage { .. })))
                .count();
        }
        let mut steps = 0;
        while let Some(message) = group.under_way.pop_front() {
            steps += 1;
            if steps < 200 && group.ones.contains_key(&message.to.0) {
                group.give(message.to.0, MemberInput::Receive(message));
            }
        }
    }
    refused as u64
}

#[test]
fn no_message_however_wrong_ends_the_process() {
    let refused: u64 = (0..2000).map(|seed| play(seed, 2)).sum();
    assert!(refused > 10_000, "{refused}");
}

#[test]
fn a_commit_beyond_the_log_is_refused() {
    let mut group = RaftGroup::of(3);
    let leader = group.elect();
    let other = (1..=3).find(|id| *id != leader).unwrap();
    group.give(leader, MemberInput::Tick);
    group.give(leader, MemberInput::Tick);
    let mut heartbeat = group.under_way.iter().find(|message| message.kind == PeerKind::Heartbeat).unwrap().clone();
    heartbeat.to = NodeId(other);
    heartbeat.commit = LogIndex(1_000_000);
    group.said(other);
    group.give(other, MemberInput::Receive(heartbeat));
    let said = group.said(other);
    assert!(matches!(said[..], [MemberEffect::Refused(crate::Error::BadMessage { .. })]), "{said:?}");
}

#[test]
fn term_zero_does_not_stand_for_what_lies_beyond_the_log() {
    let mut group = RaftGroup::of(3);
    let leader = group.elect();
    let other = (1..=3).find(|id| *id != leader).unwrap();
    group.propose(leader, "a");
    let append = group.under_way.iter().find(|message| message.kind == PeerKind::Append && message.to.0 == other);
    let mut append = append.unwrap().clone();
    append.entries[0].term = 0;
    append.commit = append.entries[0].index;
    let mut beyond = append.clone();
    (beyond.index, beyond.log_term) = (LogIndex(append.index.0 + 9), 0);
    beyond.entries.clear();
    for message in [append, beyond] {
        group.said(other);
        group.give(other, MemberInput::Receive(message));
        let said = group.said(other);
        assert!(matches!(said[..], [MemberEffect::Refused(crate::Error::BadMessage { .. })]), "{said:?}");
    }
}
