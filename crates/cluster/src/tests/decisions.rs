//! Random decisions, most of which make no sense: what protects a chain holds after each, and bytes read back to what
//! they were.

use frieze_base::{ChainId, NodeId, Rng};
use frieze_wire::chain::Configuration;

use super::STAMP;
use super::states::{founded, newcomer};
use crate::{ChainStep, ClusterChange, ClusterState, Decision, Error, NodeDevice, NodeStep, TargetRole};

/// A random decision, based on the present state or on an older one.
fn any_decision(rng: &mut Rng, state: &ClusterState) -> Decision {
    let node = NodeId(rng.between(0, 6) as u32);
    let late = u64::from(rng.chance(12));
    let incarnation = (rng.between(0, 2) + state.node(node).map_or(1, |node| node.incarnation())).max(2) - 1;
    if rng.chance(5) {
        let revision = state.node(node).map_or(0, |node| node.revision).saturating_sub(late);
        let device = NodeDevice {
            device: rng.below(3) as u32,
            capacity_bytes: rng.below(3),
            has_failed: rng.chance(3),
            is_full: rng.chance(3),
        };
        let (address, devices) = ("h:1".to_owned(), newcomer(1).devices);
        let step = match rng.below(9) {
            0..=2 => NodeStep::Return { incarnation, address, devices },
            3 => NodeStep::Offline,
            4 => NodeStep::Drain,
            5 => NodeStep::DeclareDead { spares: rng.chance(2) },
            6 => NodeStep::Remove,
            7 => NodeStep::AddDevice(device),
            _ => NodeStep::FailDevice(device.device),
        };
        return Decision::Node { node, revision, step };
    }
    if rng.chance(30) {
        return Decision::Join(newcomer(rng.between(1, 9) as u32));
    }
    let chain = ChainId(rng.below(3) as u32);
    let revision = state.chain(chain).map_or(0, |chain| chain.revision).saturating_sub(late);
    let step = match rng.below(12) {
        0 | 1 => ChainStep::Place { node, device: rng.below(2) as u32 },
        2 => ChainStep::Retire(node),
        3 | 4 => ChainStep::Sync { node, incarnation },
        5 | 6 => ChainStep::Join(node),
        7 | 8 => ChainStep::Serve(node),
        9 => ChainStep::TakeOut(node),
        10 if rng.chance(2) => ChainStep::Left(node),
        10 => ChainStep::Drop(node),
        _ => ChainStep::Resume { node, incarnation, is_missing: rng.chance(2), lost: None },
    };
    Decision::Chain { chain, revision, step }
}

#[test]
fn no_decision_removes_the_last_memory_of_a_chain_or_leaves_a_joining_tail_alone() {
    let (mut effects, mut resumed, mut last) = (0, 0, 0);
    for seed in 0..600 {
        let mut rng = Rng::new(seed);
        let mut state = founded(4, 2, 3);
        for _ in 0..400 {
            let decision = any_decision(&mut rng, &state);
            let before = state.clone();
            let changes = state.apply(&Decision::from_wire(&decision.to_wire()), STAMP);
            let mut twin = before.clone();
            assert_eq!(twin.apply(&decision, STAMP), changes, "a decision reads back to itself");
            assert_eq!(twin.encode(), state.encode());
            if let [ClusterChange::NoEffect(error)] = &changes[..] {
                assert_eq!(before, state, "{decision:?} has no effect");
                last += u32::from(matches!(error, Error::LastMember { .. }));
                continue;
            }
            effects += 1;
            resumed += u32::from(matches!(decision, Decision::Chain { step: ChainStep::Resume { .. }, .. }));
            check(&before, &state, &decision);
        }
        assert_eq!(ClusterState::decode(&state.encode()), Ok(state));
    }
    assert!(effects > 20_000 && resumed > 100 && last > 500, "{effects} {resumed} {last}");
}

fn check(before: &ClusterState, after: &ClusterState, decision: &Decision) {
    for (was, is) in before.chains().zip(after.chains()) {
        let (old, new) = (was.configuration(), is.configuration());
        assert!(is.epoch >= was.epoch && is.revision >= was.revision);
        let same = Configuration { epoch: new.epoch, ..old.clone() };
        assert!(is.epoch > was.epoch || same == new, "another configuration is another epoch: {decision:?}");
        assert!(new.members.len() > usize::from(new.joining), "a joining tail is not alone");
        // A serving target served before, or was joining, unless no process had anything left in memory.
        let had_memory = was.serving().any(|target| before.kept_memory(target) && !is_dead(before, target.node));
        for target in is.serving().filter(|_| had_memory) {
            let role = was.target(target.node).map(|target| target.role);
            assert!(
                matches!(role, Some(TargetRole::Serving | TargetRole::Joining)),
                "{decision:?} makes {} a member",
                target.node
            );
        }
        if had_memory && old != new {
            let mut left = is.serving().filter(|target| was.target(target.node).is_some_and(|was| was == *target));
            assert!(left.any(|target| after.kept_memory(target)), "{decision:?} takes the last memory");
        }
        let gone = was.serving().filter(|target| before.is_alive(target) && !new.members.contains(&target.node));
        for target in gone {
            assert!(is.leaving.contains(&target.node), "{} is not asked whether it knows", target.node);
        }
    }
}

fn is_dead(state: &ClusterState, node: NodeId) -> bool {
    state.node(node).map_or(true, |node| node.is_dead)
}

#[test]
fn bytes_that_are_no_state_are_refused() {
    let bytes = founded(3, 4, 2).encode();
    assert!(ClusterState::decode(&bytes[..bytes.len() - 1]).is_err());
    let mut other = bytes.clone();
    other[1] = 2;
    assert_eq!(ClusterState::decode(&other), Err(Error::BadState("it was written by another version of frieze")));
    let mut rng = Rng::new(1);
    for _ in 0..20_000 {
        let mut changed = bytes.clone();
        let at = rng.below(bytes.len() as u64) as usize;
        changed[at] = rng.next() as u8;
        let _ = ClusterState::decode(&changed);
    }
}

#[test]
fn any_bytes_are_a_state_of_the_cluster_or_refused() {
    let mut rng = Rng::new(7);
    let mut state = founded(4, 3, 3);
    let fresh = state.encode();
    for _ in 0..200 {
        state.apply(&any_decision(&mut rng, &state), STAMP);
    }
    frieze_harness::fuzz!([fresh, state.encode()], |bytes: &[u8]| {
        let decode = |bytes: &[u8]| ClusterState::decode(bytes).ok();
        frieze_harness::check_stable(bytes, decode, ClusterState::encode);
    });
}

#[test]
fn any_bytes_are_a_decision_that_reads_back_or_unknown() {
    use frieze_wire::control::DecisionProto;
    use prost::Message;
    let (mut rng, state) = (Rng::new(8), founded(4, 2, 3));
    let seeds: Vec<Vec<u8>> = (0..200).map(|_| any_decision(&mut rng, &state).to_wire().encode_to_vec()).collect();
    frieze_harness::fuzz!(seeds, |bytes: &[u8]| {
        let decode = |bytes: &[u8]| DecisionProto::decode(bytes).ok().map(|decision| Decision::from_wire(&decision));
        if let Some(decision) =
            frieze_harness::check_stable(bytes, decode, |decision| decision.to_wire().encode_to_vec())
        {
            // Any node applies what the log holds.
            let mut state = founded(4, 2, 3);
            state.apply(&decision, STAMP);
            assert_eq!(ClusterState::decode(&state.encode()), Ok(state));
        }
    });
}
