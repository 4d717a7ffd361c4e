//! One member goes on when the majority is lost for good.

use frieze_base::{LogIndex, NodeId};
use frieze_hlc::Hlc;

use super::group::{RaftGroup, settings};
use crate::raft::{MemberChange, MemberEffect, MemberFrom, RaftRole, Survivor};

/// Lets `id` go on alone from its files, and starts it.
fn go_on(group: &mut RaftGroup, id: u32, applied: LogIndex) -> (LogIndex, LogIndex) {
    let one = group.ones.get_mut(&id).unwrap();
    let from = MemberFrom {
        id: NodeId(id),
        seed: 0,
        incarnation: 9,
        kept_memory: true,
        stamp_bound: crate::raft::tests::survivor::Hlc::ZERO,
        applied,
        installed: one.installed.clone(),
        data_end: None,
    };
    let survivor = Survivor::read(&settings(), &from, &mut one.files).unwrap();
    let (known, last) = (survivor.known(), survivor.last());
    let stamp = Hlc(survivor.newest().0 + 1000);
    let alone = survivor.go_on(stamp, b"alone").unwrap();
    assert!(alone.entry > last);
    for effect in alone.effects {
        if let MemberEffect::Append { roll, segment, offset, bytes, .. } = effect {
            one.files.write(roll, segment, offset, &bytes);
        }
    }
    group.ones.retain(|other, _| *other == id);
    group.under_way.clear();
    group.restart(id, applied).unwrap();
    (known, last)
}

#[test]
fn a_survivor_keeps_all_that_it_has_and_leads_by_itself() {
    let mut group = RaftGroup::of(3);
    let leader = group.elect();
    group.propose(leader, "one");
    group.deliver();
    group.ticks(3);
    let survivor = (1..=3).find(|id| *id != leader).unwrap();
    // The leader has sent it, and is lost before anybody tells that it is committed.
    group.propose(leader, "two");
    group.deliver_but(|message| message.to != NodeId(survivor));
    let (known, last) = go_on(&mut group, survivor, LogIndex(1));
    assert!(known < last, "the last one is not known to be committed");
    assert_eq!(group.words(survivor), ["one", "two", "alone"]);
    let member = &group.ones[&survivor].member;
    assert_eq!((member.members().voters.as_slice(), member.members().learners.len()), (&[NodeId(survivor)][..], 0));
    assert_eq!(group.elect(), survivor);
    group.propose(survivor, "three");
    assert_eq!(group.words(survivor), ["one", "two", "alone", "three"]);
    // Started once more, it is the only one still, and others can be added.
    group.restart(survivor, LogIndex(1)).unwrap();
    group.elect();
    assert_eq!(group.words(survivor), ["one", "two", "alone", "three"]);
    group.join(9);
    group.change(MemberChange::Add(NodeId(9)));
    group.ticks(30);
    group.change(MemberChange::Promote(NodeId(9)));
    assert_eq!(group.ones[&survivor].member.members().voters, [NodeId(survivor), NodeId(9)]);
    assert_eq!(group.ones[&9].member.role(), RaftRole::Follower);
}

#[test]
fn a_removed_member_can_survive_alone_above_every_term() {
    let mut group = RaftGroup::of(3);
    let leader = group.elect();
    let removed = (1..=3).find(|id| *id != leader).unwrap();
    group.propose(leader, "one");
    group.deliver();
    group.change(MemberChange::Remove(NodeId(removed)));
    let term = group.ones[&removed].member.term();
    go_on(&mut group, removed, LogIndex(1));
    assert_eq!(group.ones[&removed].member.members().voters, [NodeId(removed)]);
    assert!(group.ones[&removed].member.term() > term);
    assert_eq!(group.elect(), removed);
}

#[test]
fn a_record_that_was_torn_leaves_the_member_as_it_was() {
    let mut group = RaftGroup::of(3);
    let leader = group.elect();
    group.propose(leader, "one");
    group.deliver();
    group.ticks(3);
    let survivor = (1..=3).find(|id| *id != leader).unwrap();
    let before = group.ones[&survivor].files.clone();
    go_on(&mut group, survivor, LogIndex(1));
    // Half of it reached the disk.
    let after = group.ones[&survivor].files.clone();
    let mut torn = before.clone();
    for (id, bytes) in &mut torn.0 {
        let Some(now) = after.0.get(id) else { continue };
        let changed: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] != now[*at]).collect();
        changed[..changed.len() / 2].iter().for_each(|at| bytes[*at] = now[*at]);
    }
    group.ones.get_mut(&survivor).unwrap().files = torn;
    group.restart(survivor, LogIndex(1)).unwrap();
    assert!(!group.words(survivor).contains(&"alone".to_owned()));
    assert_eq!(group.ones[&survivor].member.members().voters.len(), 3);
}
