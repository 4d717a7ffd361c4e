//! Placement: what a lost node costs the others, how many targets move, and that sites and sizes count.

use std::collections::BTreeMap;

use frieze_base::{ChainEpoch, ClusterId, NodeId};
use proptest::prelude::*;

use super::STAMP;
use super::states::{GIB, add_target, chain_step, founded, newcomer};
use crate::placement::{Loads, choose, next_move};
use crate::{
    ChainStep, ClusterChange, ClusterState, Decision, MembershipChange, MetalogMembership, NodeDevice, NodeInfo,
    NodeStep, TargetRole,
};

fn all(state: &ClusterState) -> Vec<NodeId> {
    state.nodes().map(|node| node.id).collect()
}

/// Every chain gets as many targets as are wanted, all of them serving.
fn complete(state: &mut ClusterState) {
    let eligible = all(state);
    let chains: Vec<_> = state.chains().map(|chain| chain.id).collect();
    for id in chains {
        while state.chain(id).unwrap().serving().count() < (state.replicas() as usize).min(eligible.len()) {
            let (node, _) = choose(state, &Loads::of(state), state.chain(id).unwrap(), &eligible).unwrap();
            add_target(state, id, node.0, TargetRole::Serving);
        }
    }
}

/// Moves until there is nothing to move. Returns how many.
fn balance(state: &mut ClusterState) -> usize {
    let mut moves = 0;
    while let Some(found) = next_move(state, &Loads::of(state), &all(state)) {
        moves += 1;
        assert!(moves < 10_000, "it never ends");
        add_target(state, found.chain, found.to.0, TargetRole::Serving);
        for step in [ChainStep::TakeOut(found.from), ChainStep::Left(found.from), ChainStep::Drop(found.from)] {
            chain_step(state, found.chain, step).unwrap();
        }
    }
    moves
}

fn join(state: &mut ClusterState, told: NodeInfo) -> NodeId {
    match state.apply(&Decision::Join(told), STAMP)[..] {
        [ClusterChange::Joined(node)] => node,
        ref other => panic!("{other:?}"),
    }
}

fn targets(state: &ClusterState) -> BTreeMap<NodeId, usize> {
    all(state).into_iter().map(|node| (node, state.chains_of(node).count())).collect()
}

/// Of the chains of `lost`: how many each other node has to do more for.
fn shared(state: &ClusterState, lost: NodeId) -> Vec<usize> {
    let others = all(state).into_iter().filter(|node| *node != lost);
    others.map(|node| state.chains_of(node).filter(|(chain, _)| chain.target(lost).is_some()).count()).collect()
}

/// A cluster that grew node by node, and was balanced each time.
fn grown(nodes: u32, chains: u32, replicas: u32) -> ClusterState {
    let mut state = founded(1, chains, replicas);
    for number in 2..=nodes {
        join(&mut state, newcomer(number));
        complete(&mut state);
        balance(&mut state);
    }
    state
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn every_node_has_its_share_and_the_share_of_a_lost_one_is_spread_evenly(
        nodes in 4u32..10, per_node in 4u32..16, replicas in 2u32..4,
    ) {
        let chains = nodes * per_node;
        let state = grown(nodes, chains, replicas);
        let counts: Vec<usize> = targets(&state).into_values().collect();
        prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{:?}", counts);
        for lost in all(&state) {
            let shared = shared(&state, lost);
            let mean = shared.iter().sum::<usize>() as f64 / shared.len() as f64;
            let max = *shared.iter().max().unwrap() as f64;
            // At most a third more than the mean, or three chains.
            prop_assert!(max <= (mean * 1.34).max(mean + 3.0), "{lost}: {:?}", shared);
        }
    }

    #[test]
    fn no_more_moves_than_a_new_node_needs(nodes in 3u32..9, per_node in 3u32..12, replicas in 1u32..4) {
        let mut state = grown(nodes, nodes * per_node, replicas);
        prop_assert_eq!(balance(&mut state), 0, "what is balanced stays");
        join(&mut state, newcomer(nodes + 1));
        let before: Vec<Vec<NodeId>> = state.chains().map(|chain| chain.configuration().members).collect();
        complete(&mut state);
        let moves = balance(&mut state);
        let total: usize = targets(&state).values().sum();
        let share = total / (nodes as usize + 1);
        prop_assert!(moves <= share + 1, "{moves} moves for a share of {share}");
        let changed = state.chains().zip(&before).filter(|(chain, was)| chain.configuration().members != **was).count();
        prop_assert!(changed <= moves);
    }

    #[test]
    fn when_a_node_is_lost_only_its_targets_move(nodes in 5u32..9, per_node in 3u32..12) {
        let mut state = grown(nodes, nodes * per_node, 3);
        let lost = NodeId(nodes / 2);
        let before = state.clone();
        let chains: Vec<_> = state.chains_of(lost).map(|(chain, _)| chain.id).collect();
        let rest: Vec<NodeId> = all(&state).into_iter().filter(|node| *node != lost).collect();
        for id in &chains {
            chain_step(&mut state, *id, ChainStep::TakeOut(lost)).unwrap();
            chain_step(&mut state, *id, ChainStep::Left(lost)).unwrap();
            chain_step(&mut state, *id, ChainStep::Drop(lost)).unwrap();
            let (node, _) = choose(&state, &Loads::of(&state), state.chain(*id).unwrap(), &rest).unwrap();
            add_target(&mut state, *id, node.0, TargetRole::Serving);
        }
        for (was, is) in before.chains().zip(state.chains()) {
            prop_assert!(was == is || chains.contains(&is.id));
        }
        let counts = targets(&state);
        let counts = rest.iter().map(|node| counts[node]);
        prop_assert!(counts.clone().max().unwrap() - counts.min().unwrap() <= 3);
    }
}

#[test]
fn replicas_stand_at_different_sites_as_far_as_there_are_sites() {
    for sites in 1..=3 {
        let mut state = founded(1, 24, 3);
        for number in 2..=6 {
            let site = ["", "east", "west"][number as usize % sites].to_owned();
            join(&mut state, NodeInfo { site, ..newcomer(number) });
        }
        complete(&mut state);
        balance(&mut state);
        for chain in state.chains() {
            let sites_of = |nodes: &[NodeId]| {
                let mut sites: Vec<_> = nodes.iter().map(|node| &state.node(*node).unwrap().info.site).collect();
                sites.sort();
                sites.dedup();
                sites.len()
            };
            let there_are = sites_of(&all(&state));
            assert_eq!(sites_of(&chain.configuration().members), there_are.min(3), "{chain:?}");
        }
    }
}

/// `number` runs on the machine of this name.
fn on(number: u32, machine: &str) -> NodeInfo {
    NodeInfo { machine: machine.to_owned(), ..newcomer(number) }
}

fn machines(state: &ClusterState, nodes: &[NodeId]) -> usize {
    let mut machines: Vec<_> = nodes.iter().map(|node| &state.node(*node).unwrap().info.machine).collect();
    machines.sort();
    machines.dedup();
    machines.len()
}

#[test]
fn no_two_replicas_are_on_one_machine_while_there_are_enough_machines() {
    let mut state = ClusterState::default();
    let (cluster, epoch, first) = (ClusterId(7), ChainEpoch(5), on(1, "a"));
    state.apply(&Decision::Found { cluster, replicas: 3, chain_count: 24, epoch, first, gaps: vec![] }, STAMP);
    // ControlMachine after machine, with two disks each; the first of them have all there is before there are others.
    for (number, machine) in (2..).zip(["a", "b", "b", "c", "c", "d", "d"]) {
        join(&mut state, on(number, machine));
        complete(&mut state);
        balance(&mut state);
        let there_are = machines(&state, &all(&state)).min(3);
        for chain in state.chains() {
            assert_eq!(machines(&state, &chain.configuration().members), there_are, "{number}: {chain:?}");
        }
    }
    let counts: Vec<usize> = targets(&state).into_values().collect();
    assert!(counts.iter().all(|count| (8..=10).contains(count)), "{counts:?}");
}

#[test]
fn voters_are_spread_over_machines() {
    let mut state = founded(1, 1, 1);
    for (number, machine) in (2..).zip(["a", "a", "a", "a", "b", "b", "c"]) {
        join(&mut state, on(number, machine));
    }
    let mut kept = keepers(1, [1], []);
    settle(&state, &mut kept);
    // The first says nothing of its machine.
    assert_eq!(kept.voters, [1, 2, 3, 6, 8].map(NodeId));
    assert_eq!(kept.learners, [4, 5, 7].map(NodeId), "the others get the log all the same");
    // Others come to vote where fewer do; the leader stays.
    let mut crowded = keepers(2, [2, 3, 4, 5, 8], [1, 6, 7]);
    settle(&state, &mut crowded);
    assert!(crowded.voters.contains(&NodeId(2)));
    assert_eq!(machines(&state, &crowded.voters), 4, "{crowded:?}");
    // Not while one is away, and not one that is away.
    let crowded = keepers(2, [2, 3, 4, 5, 8], [1, 6, 7]);
    offline(&mut state, 8);
    assert_eq!(state.next_membership_change(&crowded), None);
    assert_eq!(
        state.next_membership_change(&keepers(2, [2, 3], [1, 4, 5, 6, 7, 8])),
        Some(MembershipChange::Promote(NodeId(1)))
    );
    assert_eq!(state.next_membership_change(&keepers(2, [2, 3], [4, 5, 6, 7])), Some(MembershipChange::Add(NodeId(1))));
}

/// A metalog kept by these nodes, all of which have all of it.
fn keepers<const V: usize, const L: usize>(leader: u32, voters: [u32; V], learners: [u32; L]) -> MetalogMembership {
    MetalogMembership {
        leader: NodeId(leader),
        voters: voters.map(NodeId).to_vec(),
        learners: learners.map(NodeId).to_vec(),
        caught_up: learners.map(NodeId).to_vec(),
        voters_max: 5,
        replaceable: Vec::new(),
    }
}

/// Changes one after the other until nothing is to change. Learners catch up at once.
fn settle(state: &ClusterState, kept: &mut MetalogMembership) -> Vec<MembershipChange> {
    let mut changes = Vec::new();
    while let Some(change) = state.next_membership_change(kept) {
        changes.push(change);
        assert!(changes.len() < 20, "it never ends: {changes:?}");
        let MetalogMembership { voters, learners, .. } = kept;
        match change {
            MembershipChange::Add(node) => learners.push(node),
            MembershipChange::Promote(node) => voters.push(node),
            MembershipChange::Demote(node) => {
                voters.retain(|voter| *voter != node);
                learners.push(node);
            }
            MembershipChange::Remove(node) => {
                [voters, learners].into_iter().for_each(|some| some.retain(|keeper| *keeper != node))
            }
        }
        kept.learners.retain(|node| !kept.voters.contains(node));
        kept.voters.sort();
        kept.learners.sort();
        kept.caught_up.clone_from(&kept.learners);
        assert!(kept.voters.len() <= 5 && kept.voters.contains(&kept.leader), "{changes:?}: {kept:?}");
    }
    changes
}

fn offline(state: &mut ClusterState, node: u32) {
    let revision = state.node(NodeId(node)).unwrap().revision;
    state.apply(&Decision::Node { node: NodeId(node), revision, step: NodeStep::Offline }, STAMP);
}

fn seven() -> ClusterState {
    let mut state = founded(1, 1, 1);
    for number in 2..=7 {
        join(&mut state, newcomer(number));
    }
    state
}

#[test]
fn every_node_gets_the_metalog_and_five_vote() {
    let state = seven();
    let mut kept = keepers(1, [1], []);
    settle(&state, &mut kept);
    assert_eq!(kept.voters, [1, 2, 3, 4, 5].map(NodeId));
    assert_eq!(kept.learners, [6, 7].map(NodeId));
}

#[test]
fn a_learner_votes_only_when_it_has_caught_up_and_is_there() {
    let mut state = seven();
    let mut kept = keepers(1, [1, 2, 3, 4], [5, 6, 7]);
    kept.caught_up = vec![NodeId(6), NodeId(7)];
    offline(&mut state, 6);
    assert_eq!(state.next_membership_change(&kept), Some(MembershipChange::Promote(NodeId(7))));
    kept.caught_up = vec![NodeId(6)];
    assert_eq!(state.next_membership_change(&kept), None);
}

#[test]
fn the_vote_of_a_node_that_is_away_for_long_dead_or_removed_goes_to_a_learner() {
    let mut state = seven();
    let five = || keepers(1, [1, 2, 3, 4, 5], [6, 7]);
    // A node that is away for a while keeps its vote.
    offline(&mut state, 3);
    assert_eq!(state.next_membership_change(&five()), None);
    // As long as its chains wait, and only where another can take its place.
    let away = || MetalogMembership { replaceable: vec![NodeId(3)], ..five() };
    assert_eq!(
        settle(&state, &mut away()),
        [MembershipChange::Demote(NodeId(3)), MembershipChange::Promote(NodeId(6))]
    );
    assert_eq!(state.next_membership_change(&MetalogMembership { caught_up: vec![], ..away() }), None);
    // Two of them: one after the other.
    offline(&mut state, 4);
    let mut both = MetalogMembership { replaceable: vec![NodeId(3), NodeId(4)], ..five() };
    settle(&state, &mut both);
    assert_eq!(both.voters, [1, 2, 5, 6, 7].map(NodeId));
    // At once, if an operator says that it does not come back.
    let revision = state.node(NodeId(3)).unwrap().revision;
    let step = NodeStep::DeclareDead { spares: false };
    state.apply(&Decision::Node { node: NodeId(3), revision, step }, STAMP);
    assert_eq!(
        settle(&state, &mut five()),
        [MembershipChange::Demote(NodeId(3)), MembershipChange::Promote(NodeId(6))]
    );
    let revision = state.node(NodeId(3)).unwrap().revision;
    state.apply(&Decision::Node { node: NodeId(3), revision, step: NodeStep::Remove }, STAMP);
    assert_eq!(
        settle(&state, &mut five()),
        [MembershipChange::Remove(NodeId(3)), MembershipChange::Promote(NodeId(6))]
    );
    // A learner goes as a voter does.
    let kept = keepers(1, [1, 2, 4, 5, 6], [3, 7]);
    assert_eq!(state.next_membership_change(&kept), Some(MembershipChange::Remove(NodeId(3))));
}

#[test]
fn a_node_that_drains_gives_its_vote_to_one_that_stays() {
    let mut state = seven();
    for node in [2, 6] {
        let step = NodeStep::Drain;
        state.apply(&Decision::Node { node: NodeId(node), revision: 1, step }, STAMP);
    }
    let mut kept = keepers(1, [1, 2, 3, 4, 5], [6, 7]);
    assert_eq!(settle(&state, &mut kept), [MembershipChange::Demote(NodeId(2)), MembershipChange::Promote(NodeId(7))]);
    // Where no other node can, it votes all the same.
    let kept = MetalogMembership { caught_up: vec![NodeId(6)], ..keepers(1, [1, 3, 4], [2, 5, 6, 7]) };
    assert_eq!(state.next_membership_change(&kept), Some(MembershipChange::Promote(NodeId(6))));
}

#[test]
fn a_node_that_holds_twice_as_much_gets_twice_as_many() {
    let mut state = founded(1, 60, 2);
    for number in 2..=5 {
        let devices = vec![NodeDevice { device: 0, capacity_bytes: 200 * GIB, has_failed: false, is_full: false }];
        join(&mut state, if number == 5 { NodeInfo { devices, ..newcomer(5) } } else { newcomer(number) });
    }
    complete(&mut state);
    balance(&mut state);
    let counts: Vec<usize> = targets(&state).into_values().collect();
    assert_eq!(counts.iter().sum::<usize>(), 120);
    assert!((39..=41).contains(&counts[4]) && counts[..4].iter().all(|count| (19..=21).contains(count)), "{counts:?}");
}

#[test]
fn devices_of_a_node_share_its_chains() {
    let device =
        |device, gib| NodeDevice { device, capacity_bytes: gib * GIB, has_failed: device == 2, is_full: false };
    let mut state = founded(1, 30, 2);
    let node =
        join(&mut state, NodeInfo { devices: vec![device(0, 100), device(1, 200), device(2, 500)], ..newcomer(2) });
    let chains: Vec<_> = state.chains().map(|chain| chain.id).collect();
    for id in chains {
        let (node, device) = choose(&state, &Loads::of(&state), state.chain(id).unwrap(), &[node]).unwrap();
        chain_step(&mut state, id, ChainStep::Place { node, device }).unwrap();
    }
    let on = |device| state.chains_of(node).filter(|(_, target)| target.device == device).count();
    assert_eq!([on(0), on(1), on(2)], [10, 20, 0]);
}
