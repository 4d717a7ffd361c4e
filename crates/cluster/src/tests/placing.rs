//! Placement: what a lost node costs the others, how many targets move, and that sites and sizes count.

use std::collections::BTreeMap;

use frieze_base::NodeId;
use proptest::prelude::*;

use super::states::{GIB, chain_step, founded, newcomer, take_in};
use crate::placement::{Loads, best_move, choose};
use crate::{ChainStep, Change, Decision, Device, Newcomer, Role, State};

fn all(state: &State) -> Vec<NodeId> {
    state.nodes().map(|node| node.id).collect()
}

/// Every chain gets as many targets as are wanted, all of them serving.
fn complete(state: &mut State) {
    let eligible = all(state);
    let chains: Vec<_> = state.chains().map(|chain| chain.id).collect();
    for id in chains {
        while state.chain(id).unwrap().serving().count() < (state.replicas() as usize).min(eligible.len()) {
            let (node, _) = choose(state, &Loads::of(state), state.chain(id).unwrap(), &eligible).unwrap();
            take_in(state, id, node.0, Role::Serving);
        }
    }
}

/// Moves until there is nothing to move. Returns how many.
fn balance(state: &mut State) -> usize {
    let mut moves = 0;
    while let Some(found) = best_move(state, &Loads::of(state), &all(state)) {
        moves += 1;
        assert!(moves < 10_000, "it never ends");
        take_in(state, found.chain, found.to.0, Role::Serving);
        for step in [ChainStep::TakeOut(found.from), ChainStep::Left(found.from), ChainStep::Drop(found.from)] {
            chain_step(state, found.chain, step).unwrap();
        }
    }
    moves
}

fn join(state: &mut State, told: Newcomer) -> NodeId {
    match state.apply(&Decision::Join(told))[..] {
        [Change::Joined(node)] => node,
        ref other => panic!("{other:?}"),
    }
}

fn targets(state: &State) -> BTreeMap<NodeId, usize> {
    all(state).into_iter().map(|node| (node, state.chains_of(node).count())).collect()
}

/// Of the chains of `lost`: how many each other node has to do more for.
fn shared(state: &State, lost: NodeId) -> Vec<usize> {
    let others = all(state).into_iter().filter(|node| *node != lost);
    others.map(|node| state.chains_of(node).filter(|(chain, _)| chain.target(lost).is_some()).count()).collect()
}

/// A cluster that grew node by node, and was balanced each time.
fn grown(nodes: u32, chains: u32, replicas: u32) -> State {
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
    fn every_node_has_its_share_and_what_a_lost_one_did_falls_evenly_on_the_rest(
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
    fn when_a_node_goes_nothing_moves_but_what_it_had(nodes in 5u32..9, per_node in 3u32..12) {
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
            take_in(&mut state, *id, node.0, Role::Serving);
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
            join(&mut state, Newcomer { site, ..newcomer(number) });
        }
        complete(&mut state);
        balance(&mut state);
        for chain in state.chains() {
            let sites_of = |nodes: &[NodeId]| {
                let mut sites: Vec<_> = nodes.iter().map(|node| &state.node(*node).unwrap().told.site).collect();
                sites.sort();
                sites.dedup();
                sites.len()
            };
            let there_are = sites_of(&all(&state));
            assert_eq!(sites_of(&chain.configuration().members), there_are.min(3), "{chain:?}");
        }
    }
}

#[test]
fn a_node_that_holds_twice_as_much_gets_twice_as_many() {
    let mut state = founded(1, 60, 2);
    for number in 2..=5 {
        let devices = vec![Device { device: 0, capacity_bytes: 200 * GIB, has_failed: false }];
        join(&mut state, if number == 5 { Newcomer { devices, ..newcomer(5) } } else { newcomer(number) });
    }
    complete(&mut state);
    balance(&mut state);
    let counts: Vec<usize> = targets(&state).into_values().collect();
    assert_eq!(counts.iter().sum::<usize>(), 120);
    assert!((39..=41).contains(&counts[4]) && counts[..4].iter().all(|count| (19..=21).contains(count)), "{counts:?}");
}

#[test]
fn devices_of_a_node_share_its_chains() {
    let device = |device, gib| Device { device, capacity_bytes: gib * GIB, has_failed: device == 2 };
    let mut state = founded(1, 30, 2);
    let node =
        join(&mut state, Newcomer { devices: vec![device(0, 100), device(1, 200), device(2, 500)], ..newcomer(2) });
    let chains: Vec<_> = state.chains().map(|chain| chain.id).collect();
    for id in chains {
        let (node, device) = choose(&state, &Loads::of(&state), state.chain(id).unwrap(), &[node]).unwrap();
        chain_step(&mut state, id, ChainStep::Place { node, device }).unwrap();
    }
    let on = |device| state.chains_of(node).filter(|(_, target)| target.device == device).count();
    assert_eq!([on(0), on(1), on(2)], [10, 20, 0]);
}
