//! Status of a cluster with something missing, by a leader and by a node without a leader.

use std::collections::BTreeMap;

use frieze_base::{ChainId, MonoTime, NodeId};

use super::STAMP;
use super::leading::LeaderHarness;
use super::states::{add_target, founded, node_step};
use crate::{
    ClusterState, ClusterStatus, Contacts, Controller, ControllerInput, Heartbeat, NodeState, NodeStep, ReplicaHealth,
    Settings, TargetRole, TargetState, WallMoment,
};

const MS: u64 = 1_000_000;
/// 2026-01-01T00:00:00Z.
const NEW_YEAR_US: u64 = 1_767_225_600_000_000;

/// Three servers, each with every chain, of which as many copies are wanted as there are by default.
fn three(chains: u32) -> ClusterState {
    let mut state = founded(3, chains, 5);
    for chain in (0..chains).map(ChainId) {
        [2, 3].into_iter().for_each(|node| add_target(&mut state, chain, node, TargetRole::Serving));
    }
    state
}

fn words(status: &ClusterStatus) -> Vec<String> {
    status.troubles().into_iter().map(|trouble| trouble.what).collect()
}

/// What node 2 says, `ms` after it heard from the others at these.
fn of_follower(state: &ClusterState, leader: Option<u32>, ms: u64, last: &[(u32, u64)]) -> ClusterStatus {
    let mut controller = Controller::new(NodeId(2), Settings::default());
    let at = |ms: u64| WallMoment { mono: MonoTime(ms * MS), wall_us: NEW_YEAR_US + ms * 1000 };
    // The controller learns a beat later that it leads; its input about the leader counts.
    controller.step(at(0), state, ControllerInput::Follow(Some(NodeId(1))), &mut Vec::new());
    let last: BTreeMap<_, _> = last.iter().map(|(node, ms)| (NodeId(*node), MonoTime(ms * MS))).collect();
    let no_leader_since = leader.is_none().then_some(MonoTime(0));
    controller.status(at(ms), state, &Contacts { last, leader: leader.map(NodeId), no_leader_since })
}

#[test]
fn three_servers_are_whole_with_three_copies_and_not_with_two() {
    let mut state = three(8);
    let status = of_follower(&state, Some(1), 10, &[]);
    assert_eq!((status.copies_wanted, status.whole(), status.copies_missing()), (3, 8, 0));
    assert_eq!(status.troubles(), []);
    // The log knows that one is offline, and it still has its role in the chains.
    node_step(&mut state, 3, NodeStep::Offline).unwrap();
    let status = of_follower(&state, Some(1), 10, &[]);
    assert_eq!((status.copies_wanted, status.whole(), status.copies_missing()), (3, 0, 8));
    let said = status.troubles();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].what.starts_with("8 chains have 2 of 3 copies: n3 is away since 1970-01-01T"), "{said:?}");
    assert!(said[0].remedy.contains("start n3 again"), "{said:?}");
    // One that an operator gave up, or lets go, is not missed.
    let mut drained = state.clone();
    node_step(&mut drained, 3, NodeStep::Drain).unwrap();
    assert_eq!(of_follower(&drained, Some(1), 10, &[]).whole(), 8);
    node_step(&mut state, 3, NodeStep::DeclareDead { spares: true }).unwrap();
    let status = of_follower(&state, Some(1), 10, &[]);
    assert_eq!((status.copies_wanted, status.whole(), words(&status)), (2, 8, vec![]));
}

#[test]
fn fewer_copies_than_servers_are_counted_as_copies_and_a_server_that_is_away_is_named_all_the_same() {
    let mut state = founded(3, 1, 2);
    add_target(&mut state, ChainId(0), 2, TargetRole::Serving);
    let status = of_follower(&state, Some(1), 10, &[]);
    assert_eq!((status.copies_wanted, status.whole(), words(&status)), (2, 1, vec![]));
    node_step(&mut state, 3, NodeStep::Offline).unwrap();
    let status = of_follower(&state, Some(1), 10, &[]);
    assert_eq!((status.copies_wanted, status.whole(), status.copies_missing()), (2, 1, 0));
    assert!(matches!(&words(&status)[..], [one] if one.starts_with("n3 is away since ")), "{:?}", words(&status));
}

#[test]
fn a_node_without_a_leader_vouches_for_itself_and_its_peers_in_reach() {
    let state = three(2);
    // No leader, as during an election: every node is online, and without a leader nothing is complete.
    let status = of_follower(&state, None, 1000, &[(1, 900), (3, 950)]);
    let states = |status: &ClusterStatus| status.nodes.iter().map(|node| node.state).collect::<Vec<_>>();
    assert_eq!(states(&status), [NodeState::Up; 3]);
    assert_eq!(status.whole(), 0);
    assert_eq!(words(&status), ["no majority of the servers: none leads since 2026-01-01T00:00:00Z"]);
    let status = of_follower(&state, None, 61_000, &[(1, 900)]);
    assert_eq!(states(&status), [NodeState::Unknown, NodeState::Up, NodeState::Unknown]);
    assert_eq!(status.nodes[0].last_contact_us, Some(NEW_YEAR_US + 900_000));
    let targets: Vec<TargetState> = status.chains[0].targets.iter().map(|target| target.state).collect();
    assert_eq!(targets, [TargetState::Unknown, TargetState::Serving, TargetState::Unknown]);
    let said = words(&status);
    let lost = "n1 was last heard from at 2026-01-01T00:00:00Z, n3 has not been heard from";
    assert_eq!(said[0], format!("no majority of the servers: none leads since 2026-01-01T00:00:00Z: {lost}"));
    assert_eq!(said[1], format!("2 chains have 1 of 3 copies: {lost}"));
}

#[test]
fn a_leader_does_not_restore_a_node_whose_lease_has_ended() {
    let mut desk = LeaderHarness::whole(3, 4);
    desk.pass(1000, &[1, 2, 3]);
    assert_eq!((desk.status().whole(), words(&desk.status())), (4, vec![]));
    // Its proposals are not taken any more.
    let state = desk.state.clone();
    desk.pass(2100, &[1]);
    let at = WallMoment { mono: MonoTime(desk.now * MS), wall_us: 0 };
    let contacts = Contacts { leader: Some(NodeId(1)), ..Contacts::default() };
    let status = desk.controller.status(at, &state, &contacts);
    let states: Vec<NodeState> = status.nodes.iter().map(|node| node.state).collect();
    assert_eq!((states, status.whole()), (vec![NodeState::Up, NodeState::Unknown, NodeState::Unknown], 0));
}

/// It died before the election: the leader waits for the end of its lease, and does not call it up meanwhile.
#[test]
fn a_new_leader_vouches_for_no_node_that_it_has_heard_nothing_of() {
    let mut desk = LeaderHarness::whole(3, 4);
    desk.pass(100, &[1, 2]);
    let status = desk.status();
    let states: Vec<NodeState> = status.nodes.iter().map(|node| node.state).collect();
    assert_eq!((states, status.whole()), (vec![NodeState::Up, NodeState::Up, NodeState::Unknown], 0));
    assert_eq!(words(&status), ["4 chains have 2 of 3 copies: n3 has not been heard from"]);
    desk.pass(100, &[1, 2, 3]);
    assert_eq!((desk.status().whole(), words(&desk.status())), (4, vec![]));
}

#[test]
fn a_node_without_an_answer_is_found_by_its_heartbeats() {
    let mut desk = LeaderHarness::whole(2, 1);
    desk.pass(500, &[1, 2]);
    let beats = |desk: &LeaderHarness| -> Vec<_> { desk.status().nodes.iter().map(|node| node.heartbeat).collect() };
    let before = beats(&desk);
    assert!(before.iter().all(Option::is_some));
    desk.pass(100, &[1]);
    let after = beats(&desk);
    assert!(after[0] > before[0] && after[1] == before[1], "{before:?} {after:?}");
}

/// Its target stays, so that it goes on from where it was: what it has is neither given up nor copied anew.
#[test]
fn a_server_whose_disk_is_full_goes_out_of_its_chains_keeps_what_it_has_and_is_named() {
    let mut desk = LeaderHarness::new(three(2));
    desk.pass(100, &[1, 2, 3]);
    let mut full = desk.heartbeat(3);
    full.chains[0].health = ReplicaHealth::Full;
    desk.now += 1;
    full.number = desk.now;
    desk.put(ControllerInput::Heartbeat(full));
    desk.pass(2000, &[1, 2, 3]);
    let target =
        |desk: &LeaderHarness, chain| *desk.state.chain(ChainId(chain)).unwrap().target(NodeId(3)).expect("it stays");
    assert_eq!((target(&desk, 0).role, target(&desk, 0).is_retiring), (TargetRole::Out, false));
    let status = desk.status();
    assert!(
        words(&status).iter().any(|what| what == "1 chain has 2 of 3 copies: the disk of n3 is full"),
        "{status:?}"
    );
    assert!(!desk.state.is_kept_by_others(ChainId(0), NodeId(3)), "nobody gives up what it has");
    // Another process begins with what the disk has: it is brought up to date, by what it lacks.
    let known = desk.state.node(NodeId(3)).unwrap().clone();
    let mut again = Heartbeat { incarnation: known.incarnation() + 1, ..desk.heartbeat(3) };
    desk.now += 1;
    again.number = desk.now;
    desk.put(ControllerInput::Heartbeat(again));
    desk.pass(300, &[1, 2, 3]);
    assert!(desk.state.node(NodeId(3)).unwrap().free_devices().next().is_some());
    assert_eq!(target(&desk, 0).role, TargetRole::Syncing);
}

/// With a fourth server the copy is made there, and the one that is full gives back what it had.
#[test]
fn the_copy_of_a_server_with_a_full_disk_is_made_on_another_server_if_there_is_one() {
    let mut state = founded(4, 1, 3);
    [2, 3].into_iter().for_each(|node| add_target(&mut state, ChainId(0), node, TargetRole::Serving));
    node_step(&mut state, 3, NodeStep::FillDevice(0)).unwrap();
    let revision = state.chain(ChainId(0)).unwrap().revision;
    let step = crate::ChainStep::TakeOut(NodeId(3));
    state.apply(&crate::Decision::Chain { chain: ChainId(0), revision, step }, STAMP);
    let revision = state.chain(ChainId(0)).unwrap().revision;
    let step = crate::ChainStep::Left(NodeId(3));
    state.apply(&crate::Decision::Chain { chain: ChainId(0), revision, step }, STAMP);
    let mut desk = LeaderHarness::new(state);
    desk.is_quick = true;
    desk.pass(3000, &[1, 2, 3, 4]);
    let chain = desk.state.chain(ChainId(0)).unwrap();
    let serving: Vec<u32> = chain.serving().map(|target| target.node.0).collect();
    assert_eq!((serving, chain.target(NodeId(3))), (vec![1, 2, 4], None));
    assert!(desk.state.is_kept_by_others(ChainId(0), NodeId(3)));
}

#[test]
fn the_leader_passes_on_the_troubles_that_a_server_reports() {
    let mut desk = LeaderHarness::whole(2, 1);
    desk.pass(100, &[1, 2]);
    desk.now += 1;
    let told = Heartbeat { number: desk.now, trouble: "é".repeat(600), ..desk.heartbeat(2) };
    desk.put(ControllerInput::Heartbeat(told));
    let said = words(&desk.status());
    assert!(matches!(&said[..], [one] if one.starts_with("n2: éé") && one.len() <= 4 + 512), "{said:?}");
}
