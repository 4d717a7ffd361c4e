//! What each decision makes of a state: one rule a test.

use frieze_base::{ChainEpoch, ChainId, ClusterId, NodeId};
use frieze_hlc::Hlc;
use frieze_wire::chain::Configuration;

use super::STAMP;
use crate::{
    ChainStep, ClusterChange, ClusterState, Decision, Error, LostInterval, NodeDevice, NodeInfo, NodeState, NodeStep,
    RemainingCopies, TargetRole, TargetState,
};

pub(super) const GIB: u64 = 1 << 30;

pub(super) fn newcomer(number: u32) -> NodeInfo {
    NodeInfo {
        name: format!("n{number}"),
        site: String::new(),
        machine: String::new(),
        address: format!("10.0.0.{number}:7410"),
        token: number.into(),
        incarnation: 1,
        devices: vec![NodeDevice { device: 0, capacity_bytes: 100 * GIB, has_failed: false, is_full: false }],
    }
}

/// A cluster of so many nodes and chains; the first node has all of these.
pub(super) fn founded(nodes: u32, chain_count: u32, replicas: u32) -> ClusterState {
    let mut state = ClusterState::default();
    let (cluster, epoch, first) = (ClusterId(7), ChainEpoch(5), newcomer(1));
    state.apply(&Decision::Found { cluster, replicas, chain_count, epoch, first, gaps: vec![] }, STAMP);
    for number in 2..=nodes {
        assert_eq!(state.apply(&Decision::Join(newcomer(number)), STAMP), [ClusterChange::Joined(NodeId(number))]);
    }
    state
}

const CHAIN: ChainId = ChainId(0);

pub(super) fn chain_step(state: &mut ClusterState, chain: ChainId, step: ChainStep) -> Result<(), Error> {
    let revision = state.chain(chain).unwrap().revision;
    match state.apply(&Decision::Chain { chain, revision, step }, STAMP).remove(0) {
        ClusterChange::NoEffect(error) => Err(error),
        _ => Ok(()),
    }
}

pub(super) fn node_step(state: &mut ClusterState, node: u32, step: NodeStep) -> Result<(), Error> {
    let node = NodeId(node);
    let revision = state.node(node)?.revision;
    match state.apply(&Decision::Node { node, revision, step }, STAMP).into_iter().next() {
        Some(ClusterChange::NoEffect(error)) => Err(error),
        _ => Ok(()),
    }
}

/// A node takes its part in a chain, step by step, as far as `role`.
pub(super) fn add_target(state: &mut ClusterState, chain: ChainId, node: u32, role: TargetRole) {
    let (node, incarnation) = (NodeId(node), state.node(NodeId(node)).unwrap().incarnation());
    let steps = [
        (TargetRole::Out, ChainStep::Place { node, device: 0 }),
        (TargetRole::Syncing, ChainStep::Sync { node, incarnation }),
        (TargetRole::Joining, ChainStep::Join(node)),
        (TargetRole::Serving, ChainStep::Serve(node)),
    ];
    for (reached, step) in steps {
        let has_target = state.chain(chain).unwrap().target(node).is_some();
        if !(has_target && reached == TargetRole::Out) {
            chain_step(state, chain, step).unwrap();
        }
        if reached == role {
            return;
        }
    }
}

/// Chain 0 of nodes 1 to `count`, all serving.
fn whole(count: u32) -> ClusterState {
    let mut state = founded(count, 1, count);
    (2..=count).for_each(|node| add_target(&mut state, CHAIN, node, TargetRole::Serving));
    state
}

fn restart(state: &mut ClusterState, node: u32) {
    let known = state.node(NodeId(node)).unwrap();
    let (incarnation, address, devices) =
        (known.incarnation() + 1, known.info.address.clone(), known.info.devices.clone());
    node_step(state, node, NodeStep::Return { incarnation, address, devices }).unwrap();
}

fn configuration(state: &ClusterState) -> Configuration {
    state.chain(CHAIN).unwrap().configuration()
}

fn configured(epoch: u64, members: &[u32], syncing: Option<u32>, joining: bool) -> Configuration {
    let members = members.iter().copied().map(NodeId).collect();
    Configuration { epoch: ChainEpoch(epoch), members, syncing: syncing.map(NodeId), joining }
}

#[test]
fn a_machine_alone_becomes_a_cluster_with_all_its_chains() {
    let mut state = ClusterState::default();
    assert_eq!(state.apply(&Decision::Join(newcomer(2)), STAMP), [ClusterChange::NoEffect(Error::NotFounded)]);
    state = founded(1, 8, 3);
    assert_eq!(state.chains().count(), 8);
    assert_eq!(configuration(&state), configured(5, &[1], None, false));
    let again = Decision::Found {
        cluster: ClusterId(8),
        replicas: 1,
        chain_count: 1,
        epoch: ChainEpoch(1),
        first: newcomer(1),
        gaps: vec![],
    };
    assert_eq!(state.apply(&again, STAMP), [ClusterChange::NoEffect(Error::AlreadyFounded)]);
}

#[test]
fn a_node_that_asks_twice_is_one_node_and_ids_never_come_again() {
    let mut state = founded(3, 1, 1);
    assert_eq!(state.apply(&Decision::Join(newcomer(3)), STAMP), [ClusterChange::Joined(NodeId(3))]);
    node_step(&mut state, 3, NodeStep::Remove).unwrap();
    assert_eq!(state.node_state(NodeId(3)), Some(NodeState::Removed));
    assert_eq!(state.node(NodeId(3)), Err(Error::Removed { node: NodeId(3) }));
    assert_eq!(state.node(NodeId(4)), Err(Error::UnknownNode { node: NodeId(4) }));
    assert_eq!(
        state.apply(&Decision::Join(newcomer(3)), STAMP),
        [ClusterChange::Joined(NodeId(4))],
        "its name is free again"
    );
}

#[test]
fn names_are_unique_and_words() {
    let mut state = founded(2, 1, 1);
    let taken = NodeInfo { token: 99, ..newcomer(2) };
    let error = Error::NameTaken { name: "n2".into(), node: NodeId(2) };
    assert_eq!(state.apply(&Decision::Join(taken), STAMP), [ClusterChange::NoEffect(error)]);
    for name in ["", "a b", "a\nb", &"x".repeat(256)] {
        let changes = state.apply(&Decision::Join(NodeInfo { name: name.into(), ..newcomer(9) }), STAMP);
        assert!(matches!(changes[..], [ClusterChange::NoEffect(Error::BadName { what: "name", .. })]), "{changes:?}");
    }
    assert_eq!(state.nodes().count(), 2);
}

#[test]
fn a_node_joins_step_by_step_each_under_a_new_epoch() {
    let mut state = founded(2, 1, 2);
    add_target(&mut state, CHAIN, 2, TargetRole::Out);
    assert_eq!(configuration(&state), configured(5, &[1], None, false));
    assert_eq!(state.target_state(&state.chain(CHAIN).unwrap().targets[1]), TargetState::Waiting);
    add_target(&mut state, CHAIN, 2, TargetRole::Syncing);
    assert_eq!(configuration(&state), configured(6, &[1], Some(2), false));
    chain_step(&mut state, CHAIN, ChainStep::Join(NodeId(2))).unwrap();
    assert_eq!(configuration(&state), configured(7, &[1, 2], None, true));
    assert!(!configuration(&state).may_answer(NodeId(2)));
    chain_step(&mut state, CHAIN, ChainStep::Serve(NodeId(2))).unwrap();
    assert_eq!(configuration(&state), configured(8, &[1, 2], None, false));
}

#[test]
fn a_decision_based_on_what_has_changed_has_no_effect() {
    let mut state = founded(2, 1, 2);
    let revision = state.chain(CHAIN).unwrap().revision;
    add_target(&mut state, CHAIN, 2, TargetRole::Out);
    let before = state.clone();
    let step = ChainStep::Sync { node: NodeId(2), incarnation: 1 };
    let stale = Error::Stale { what: "the chain", based_on: revision, found: revision + 1 };
    assert_eq!(state.apply(&Decision::Chain { chain: CHAIN, revision, step }, STAMP), [ClusterChange::NoEffect(stale)]);
    assert_eq!(state, before);
    let balance = Decision::Balance { version: 0, on: true };
    assert!(matches!(state.apply(&balance, STAMP)[..], [ClusterChange::NoEffect(Error::Stale { .. })]));
}

#[test]
fn one_node_joins_a_chain_at_a_time() {
    let mut state = founded(3, 1, 3);
    add_target(&mut state, CHAIN, 2, TargetRole::Syncing);
    add_target(&mut state, CHAIN, 3, TargetRole::Out);
    let sync = ChainStep::Sync { node: NodeId(3), incarnation: 1 };
    assert!(matches!(chain_step(&mut state, CHAIN, sync), Err(Error::DoesNotFit { .. })));
    assert!(chain_step(&mut state, CHAIN, ChainStep::Serve(NodeId(2))).is_err(), "it is not joining yet");
    assert!(chain_step(&mut state, CHAIN, ChainStep::Join(NodeId(3))).is_err(), "it is not syncing");
}

#[test]
fn a_joining_tail_is_never_left_alone_and_syncs_anew_without_its_predecessor() {
    let mut state = founded(3, 1, 3);
    add_target(&mut state, CHAIN, 2, TargetRole::Joining);
    let last = Error::LastMember { chain: CHAIN, node: NodeId(1) };
    assert_eq!(chain_step(&mut state, CHAIN, ChainStep::TakeOut(NodeId(1))), Err(last));

    let mut state = whole(2);
    state.apply(&Decision::Join(newcomer(3)), STAMP);
    add_target(&mut state, CHAIN, 3, TargetRole::Joining);
    let mut other = state.clone();
    node_step(&mut state, 2, NodeStep::Offline).unwrap();
    chain_step(&mut state, CHAIN, ChainStep::TakeOut(NodeId(2))).unwrap();
    assert_eq!(configuration(&state), configured(11, &[1], Some(3), false));
    node_step(&mut other, 1, NodeStep::Offline).unwrap();
    chain_step(&mut other, CHAIN, ChainStep::TakeOut(NodeId(1))).unwrap();
    assert_eq!(configuration(&other), configured(11, &[2, 3], None, true));
}

#[test]
fn the_last_member_with_its_memory_stays_at_any_request() {
    let mut state = whole(2);
    restart(&mut state, 2);
    let last = Error::LastMember { chain: CHAIN, node: NodeId(1) };
    assert_eq!(chain_step(&mut state, CHAIN, ChainStep::TakeOut(NodeId(1))), Err(last.clone()));
    node_step(&mut state, 1, NodeStep::Offline).unwrap();
    assert_eq!(chain_step(&mut state, CHAIN, ChainStep::TakeOut(NodeId(1))), Err(last));
    let resume = ChainStep::Resume { node: NodeId(2), incarnation: 2, is_missing: true, lost: None };
    assert!(chain_step(&mut state, CHAIN, resume).is_err(), "node 1 may have kept its memory");
    node_step(&mut state, 1, NodeStep::DeclareDead { spares: false }).unwrap();
    chain_step(&mut state, CHAIN, resume).unwrap();
    assert_eq!(configuration(&state).members, [NodeId(2)]);
    assert!(state.chain(CHAIN).unwrap().resumed.unwrap().is_missing);
    assert!(state.chain(CHAIN).unwrap().target(NodeId(1)).is_none());
}

#[test]
fn only_an_offline_node_can_be_declared_dead_until_it_returns() {
    let mut state = whole(2);
    assert_eq!(
        node_step(&mut state, 2, NodeStep::DeclareDead { spares: false }),
        Err(Error::StillOnline { node: NodeId(2) })
    );
    node_step(&mut state, 2, NodeStep::Offline).unwrap();
    node_step(&mut state, 2, NodeStep::DeclareDead { spares: false }).unwrap();
    restart(&mut state, 2);
    assert!(!state.node(NodeId(2)).unwrap().is_dead);
}

/// What declaring a node dead says of the chains of which it alone has the newest, unless such a loss is meant.
fn spared(state: &ClusterState, node: u32) -> Vec<RemainingCopies> {
    let mut state = state.clone();
    match node_step(&mut state, node, NodeStep::DeclareDead { spares: true }) {
        Ok(()) => Vec::new(),
        Err(Error::OnlyCopy { last_of, .. }) => {
            assert!(!state.node(NodeId(node)).unwrap().is_dead);
            node_step(&mut state, node, NodeStep::DeclareDead { spares: false }).unwrap();
            last_of.into_iter().map(|last| last.left).collect()
        }
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn the_only_member_with_the_newest_log_is_declared_dead_only_if_the_loss_is_meant() {
    let mut state = whole(3);
    node_step(&mut state, 3, NodeStep::Offline).unwrap();
    assert_eq!(spared(&state, 3), [], "two others have it all");
    take_out_dead(&mut state, 2);
    assert_eq!(spared(&state, 2), [], "it had no part any more");
    chain_step(&mut state, CHAIN, ChainStep::TakeOut(NodeId(3))).unwrap();
    node_step(&mut state, 1, NodeStep::Offline).unwrap();
    assert_eq!(spared(&state, 1), [RemainingCopies::Until(Hlc(STAMP))], "both others have been out of it since");
    let words = node_step(&mut state, 1, NodeStep::DeclareDead { spares: true }).unwrap_err().to_string();
    assert!(
        words.contains("chain 0") && words.contains("--accept-loss") && words.contains("start its server again"),
        "{words}"
    );
    (2..=3).for_each(|node| node_step(&mut state, node, NodeStep::DeclareDead { spares: true }).unwrap());
    assert_eq!(spared(&state, 1), [RemainingCopies::Nothing], "nobody else is left");
}

#[test]
fn the_only_member_with_its_memory_is_declared_dead_only_if_the_loss_is_meant() {
    let mut state = whole(2);
    restart(&mut state, 2);
    node_step(&mut state, 1, NodeStep::Offline).unwrap();
    assert_eq!(spared(&state, 1), [RemainingCopies::Durable]);
    restart(&mut state, 1);
    node_step(&mut state, 1, NodeStep::Offline).unwrap();
    assert_eq!(spared(&state, 1), [], "its memory is gone, and the other served to the last as well");
}

#[test]
fn a_chain_resumed_from_a_stale_copy_reports_the_lost_interval() {
    let mut state = whole(2);
    restart(&mut state, 2);
    restart(&mut state, 1);
    let lost = Some(LostInterval { from: 3, to: 4 });
    let resume = |node, lost| ChainStep::Resume { node: NodeId(node), incarnation: 2, is_missing: false, lost };
    let mut power = state.clone();
    chain_step(&mut power, CHAIN, resume(1, lost)).unwrap();
    assert_eq!((power.chain(CHAIN).unwrap().gaps.len(), power.chain(CHAIN).unwrap().behind), (1, None));
    assert!(!power.is_behind(), "what was durable is there");
    // Node 1 goes on alone, and is lost.
    chain_step(&mut state, CHAIN, resume(1, None)).unwrap();
    node_step(&mut state, 1, NodeStep::Offline).unwrap();
    node_step(&mut state, 1, NodeStep::DeclareDead { spares: false }).unwrap();
    chain_step(&mut state, CHAIN, resume(2, lost)).unwrap();
    let behind = state.chain(CHAIN).unwrap().behind.unwrap();
    assert!(behind.from == 3 && behind.to > STAMP && state.is_behind());
    let again = ClusterState::decode(&state.encode()).unwrap();
    assert!(again == state && again.is_behind());
}

#[test]
fn a_chain_whose_members_all_restarted_resumes_from_one_of_them() {
    let mut state = whole(3);
    take_out_dead(&mut state, 3);
    (1..=2).for_each(|node| restart(&mut state, node));
    restart(&mut state, 3);
    let resume =
        |node, incarnation| ChainStep::Resume { node: NodeId(node), incarnation, is_missing: false, lost: None };
    assert!(chain_step(&mut state, CHAIN, resume(3, 2)).is_err(), "it was no member to the last");
    assert!(chain_step(&mut state, CHAIN, resume(2, 1)).is_err(), "that process is gone");
    chain_step(&mut state, CHAIN, resume(2, 2)).unwrap();
    assert_eq!(configuration(&state), configured(13, &[2], None, false));
    assert!(state.is_alive(state.chain(CHAIN).unwrap().target(NodeId(2)).unwrap()));
}

fn take_out_dead(state: &mut ClusterState, node: u32) {
    node_step(state, node, NodeStep::Offline).unwrap();
    chain_step(state, CHAIN, ChainStep::TakeOut(NodeId(node))).unwrap();
}

#[test]
fn a_member_removed_online_is_leaving_until_it_acknowledges_or_goes_offline() {
    let mut state = whole(3);
    chain_step(&mut state, CHAIN, ChainStep::TakeOut(NodeId(1))).unwrap();
    assert_eq!(state.chain(CHAIN).unwrap().leaving, [NodeId(1)]);
    let sync = ChainStep::Sync { node: NodeId(1), incarnation: 1 };
    assert!(chain_step(&mut state, CHAIN, sync).is_err(), "it is still leaving");
    assert!(chain_step(&mut state, CHAIN, ChainStep::TakeOut(NodeId(2))).is_err(), "one after the other");
    assert_eq!(node_step(&mut state, 1, NodeStep::Remove), Err(Error::StillUsed { node: NodeId(1), chains: 1 }));
    for (step, name) in [("left", 0), ("restarted", 1), ("offline", 2)] {
        let mut state = state.clone();
        match name {
            0 => chain_step(&mut state, CHAIN, ChainStep::Left(NodeId(1))).unwrap(),
            1 => restart(&mut state, 1),
            _ => node_step(&mut state, 1, NodeStep::Offline).unwrap(),
        }
        assert_eq!(state.chain(CHAIN).unwrap().leaving, [], "{step}");
    }
    let mut dead = whole(3);
    node_step(&mut dead, 1, NodeStep::Offline).unwrap();
    chain_step(&mut dead, CHAIN, ChainStep::TakeOut(NodeId(1))).unwrap();
    assert_eq!(dead.chain(CHAIN).unwrap().leaving, [], "its lease has ended");
}

#[test]
fn an_older_process_does_not_return_and_a_failed_device_stays_failed_until_another_has_opened_it() {
    let mut state = whole(2);
    restart(&mut state, 2);
    let (address, devices) = ("h:1".to_owned(), newcomer(2).devices);
    let back = NodeStep::Return { incarnation: 1, address: address.clone(), devices: devices.clone() };
    assert_eq!(node_step(&mut state, 2, back), Err(Error::OldProcess { node: NodeId(2), newest: 2, found: 1 }));
    node_step(&mut state, 2, NodeStep::FailDevice(0)).unwrap();
    let back = |incarnation| NodeStep::Return { incarnation, address: address.clone(), devices: devices.clone() };
    node_step(&mut state, 2, back(2)).unwrap();
    assert_eq!(state.node(NodeId(2)).unwrap().capacity_bytes(), 0, "whatever its process says");
    node_step(&mut state, 2, back(3)).unwrap();
    assert_eq!(state.node(NodeId(2)).unwrap().capacity_bytes(), devices[0].capacity_bytes);
    take_in_fails(&mut state);
}

fn take_in_fails(state: &mut ClusterState) {
    state.apply(&Decision::Join(newcomer(3)), STAMP);
    let place = ChainStep::Place { node: NodeId(3), device: 4 };
    assert!(chain_step(state, CHAIN, place).is_err(), "it has no such device");
}

#[test]
fn nothing_changed_is_no_new_version() {
    let mut state = whole(2);
    let version = state.version();
    node_step(&mut state, 2, NodeStep::Undrain).unwrap();
    state.apply(&Decision::Unknown, STAMP);
    assert_eq!(state.version(), version);
    node_step(&mut state, 2, NodeStep::Drain).unwrap();
    assert_eq!(state.version(), version + 1);
}

#[test]
fn records_of_a_former_member_are_needed_until_every_target_serves() {
    let kept = |state: &ClusterState, node: u32| state.is_kept_by_others(CHAIN, NodeId(node));
    let mut state = founded(4, 1, 3);
    (2..=3).for_each(|node| add_target(&mut state, CHAIN, node, TargetRole::Serving));
    assert!(kept(&state, 4), "it never had a part");
    assert!(!(1..=3).any(|node| kept(&state, node)));
    // The fourth takes the place of the first.
    add_target(&mut state, CHAIN, 4, TargetRole::Syncing);
    chain_step(&mut state, CHAIN, ChainStep::TakeOut(NodeId(1))).unwrap();
    assert!(!kept(&state, 1), "it has its place still");
    chain_step(&mut state, CHAIN, ChainStep::Drop(NodeId(1))).unwrap();
    assert!(!kept(&state, 1), "one of three is syncing, and it may not know yet");
    chain_step(&mut state, CHAIN, ChainStep::Left(NodeId(1))).unwrap();
    assert!(!kept(&state, 1), "one of three is syncing");
    chain_step(&mut state, CHAIN, ChainStep::Join(NodeId(4))).unwrap();
    assert!(!kept(&state, 1), "one of three is joining");
    chain_step(&mut state, CHAIN, ChainStep::Serve(NodeId(4))).unwrap();
    assert!(kept(&state, 1));
    // A serving target may have lost its memory, or be offline.
    let before = state.clone();
    restart(&mut state, 2);
    assert!(!kept(&state, 1));
    state = before.clone();
    node_step(&mut state, 2, NodeStep::Offline).unwrap();
    assert!(!kept(&state, 1));
    // Fewer than are wanted, though another could have it.
    state = before.clone();
    chain_step(&mut state, CHAIN, ChainStep::TakeOut(NodeId(2))).unwrap();
    assert!(!kept(&state, 1));
    assert!(!state.is_kept_by_others(ChainId(9), NodeId(1)), "there is no such chain");
}
