//! Five servers that vote and two that learn: every one of the seven executes everything and answers.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use frieze_base::{NodeId, Reason};
use frieze_disk::CrashKind;
use frieze_testkit::cluster::{FailoverClient, NetFaults, TestCluster, make_op};
use frieze_wire::message::{List, Reply, Request, View};
use frieze_wire::peer::ServerMessage;
use frieze_wire::txn::{MakeKind, Target};

use crate::names;

const VOTERS: [NodeId; 5] = [NodeId(1), NodeId(2), NodeId(3), NodeId(4), NodeId(5)];
const LEARNERS: [NodeId; 2] = [NodeId(6), NodeId(7)];

fn seven(seed: u64) -> Arc<TestCluster> {
    let cluster = TestCluster::of(seed, 5);
    LEARNERS.iter().for_each(|learner| cluster.add_learner(*learner));
    cluster
}

/// Makes a name, and asks these servers for it: each asks the leader how far it has to be, waits until it is, and knows
/// the name.
fn make_and_find(cluster: &TestCluster, client: &mut FailoverClient, name: &str, at: &[NodeId]) {
    let made = client.make(name).unwrap();
    for node in at {
        cluster.server(*node).linearizable().unwrap();
        let view = View { at: Some(made.stamp), user_at: None };
        let found = client.stat_at(*node, name, view);
        assert!(found.is_ok(), "{name} was made before {node} was asked for it: {found:?}");
    }
}

/// Two voters: the leader, and another one.
fn two_of(cluster: &TestCluster) -> [NodeId; 2] {
    let leader = cluster.leader().unwrap();
    [leader, VOTERS.into_iter().find(|voter| *voter != leader).unwrap()]
}

/// Two voters lose power, and the others go on: names "seven" and "five".
fn go_on_without_two(cluster: &TestCluster, client: &mut FailoverClient) -> [NodeId; 2] {
    client.make("seven").unwrap();
    let two = two_of(cluster);
    two.iter().for_each(|node| cluster.crash(*node, CrashKind::Power));
    make_and_find(cluster, client, "five", &LEARNERS);
    two
}

#[test]
fn every_one_of_seven_servers_executes_everything_and_answers_of_now() {
    let cluster = seven(81);
    cluster.set_faults(NetFaults::MANY);
    let mut client = FailoverClient::new(&cluster);
    for name in names(40) {
        make_and_find(&cluster, &mut client, &name, &LEARNERS[1..]);
    }
    cluster.set_faults(NetFaults::NONE);
    cluster.settle();
    let members = cluster.status(cluster.leader().unwrap()).members;
    assert_eq!((members.voters, members.learners), (VOTERS.to_vec(), LEARNERS.to_vec()));
    let refused = cluster.server(cluster.leader().unwrap()).promote_member(LEARNERS[0]).unwrap_err();
    assert_eq!(refused.reason, Reason::InvalidArgument, "a sixth vote: {refused}");
}

#[test]
fn seven_servers_go_on_without_two_that_vote_and_stop_without_three() {
    let cluster = seven(82);
    let mut client = FailoverClient::new(&cluster);
    let two = go_on_without_two(&cluster, &mut client);
    // Four servers are there, and two of them vote: no majority of five.
    let third = cluster.leader().unwrap();
    cluster.crash(third, CrashKind::Process);
    cluster.run(2000);
    assert_eq!(cluster.leader(), None);
    for (node, server) in cluster.alive() {
        let refused = server.linearizable().unwrap_err();
        assert_eq!(refused.reason, Reason::Unavailable, "{node}: {refused}");
    }
    cluster.start(third).unwrap();
    client.make("again").unwrap();
    two.iter().for_each(|node| cluster.start(*node).unwrap());
    cluster.settle();
    assert_eq!(client.names(), ["again", "five", "seven"]);
}

/// What three of five had in memory may be in the memory of the other two alone.
#[test]
fn seven_servers_of_which_three_that_vote_lost_their_memory_wait_for_all_that_vote() {
    let cluster = seven(82);
    let mut client = FailoverClient::new(&cluster);
    let two = go_on_without_two(&cluster, &mut client);
    let third = cluster.leader().unwrap();
    cluster.crash(third, CrashKind::Power);
    cluster.start(third).unwrap();
    cluster.start(two[0]).unwrap();
    cluster.run(2000);
    assert_eq!(cluster.leader(), None, "four of five that vote are there, and three of them lost their memory");
    cluster.start(two[1]).unwrap();
    client.make("again").unwrap();
    cluster.settle();
    assert_eq!(client.names(), ["again", "five", "seven"], "the two that kept it have it");
}

#[test]
fn a_learner_votes_in_the_place_of_a_voter_that_is_removed() {
    let cluster = seven(83);
    let mut client = FailoverClient::new(&cluster);
    client.make("a").unwrap();
    let [_, lost] = two_of(&cluster);
    cluster.crash(lost, CrashKind::Power);
    cluster.as_leader(|server| server.remove_member(lost));
    cluster.promote(LEARNERS[0]);
    client.make("b").unwrap();
    // With it there are five votes again: two more may be lost.
    two_of(&cluster).iter().for_each(|node| cluster.crash(*node, CrashKind::Power));
    make_and_find(&cluster, &mut client, "c", &LEARNERS[1..]);
}

#[test]
fn a_learner_that_leaves_stops_no_server() {
    let cluster = seven(84);
    let mut client = FailoverClient::new(&cluster);
    cluster.as_leader(|server| server.remove_member(LEARNERS[0]));
    cluster.until("it is out", || {
        cluster.leader().is_some_and(|leader| !cluster.status(leader).members.contains(LEARNERS[0]))
    });
    cluster.crash(LEARNERS[0], CrashKind::Process);
    make_and_find(&cluster, &mut client, "a", &LEARNERS[1..]);
    cluster.settle();
}

#[test]
fn a_sixth_server_joins_while_voters_are_away() {
    let cluster = TestCluster::of(85, 5);
    let mut client = FailoverClient::new(&cluster);
    for name in names(30) {
        client.make(&name).unwrap();
    }
    let two = two_of(&cluster);
    two.iter().for_each(|node| cluster.crash(*node, CrashKind::Power));
    cluster.until("another leads", || cluster.leader().is_some());
    cluster.add_learner(LEARNERS[0]);
    make_and_find(&cluster, &mut client, "last", &LEARNERS[..1]);
    two.iter().for_each(|node| cluster.start(*node).unwrap());
    cluster.settle();
}

#[test]
fn seven_servers_that_lose_power_at_once_are_seven_again() {
    let cluster = seven(86);
    let mut client = FailoverClient::new(&cluster);
    for name in names(20) {
        client.make(&name).unwrap();
    }
    let all: Vec<NodeId> = cluster.alive().into_iter().map(|(node, _)| node).collect();
    all.iter().for_each(|node| cluster.crash(*node, CrashKind::Power));
    // Those that learn first: they wait for a majority of the others.
    for node in all.iter().rev() {
        cluster.start(*node).unwrap();
    }
    client.make("after").unwrap();
    cluster.settle();
    assert_eq!(client.names().len(), 21);
    let members = cluster.status(cluster.leader().unwrap()).members;
    assert_eq!((members.voters, members.learners), (VOTERS.to_vec(), LEARNERS.to_vec()));
}

/// A server that was away for so long that it gets the state may vote when it has it, and not before.
#[test]
fn a_learner_that_lags_does_not_vote_before_it_has_caught_up() {
    let cluster = TestCluster::of(87, 2);
    let mut client = FailoverClient::new(&cluster);
    for name in names(200) {
        client.make(&name).unwrap();
    }
    cluster.lose_if(|to, told| to == NodeId(3) && matches!(told, ServerMessage::MetalogPiece(_)));
    cluster.add_learner(NodeId(3));
    cluster.run(300);
    let leader = cluster.leader().unwrap();
    let refused = cluster.server(leader).promote_member(NodeId(3)).unwrap_err();
    assert_eq!(refused.reason, Reason::Busy, "{refused}");
    cluster.lose_if(|_, _| false);
    cluster.promote(NodeId(3));
    cluster.settle();
}

/// Six servers join at once: four get the state, and the others when there is room.
#[test]
fn states_go_to_four_servers_at_a_time() {
    let cluster = TestCluster::of(88, 1);
    let mut client = FailoverClient::new(&cluster);
    for name in names(300) {
        client.txn(make_op(&name, MakeKind::Symlink(vec![b'x'; 4000]))).unwrap();
    }
    let (receivers, is_held): (Arc<Mutex<BTreeSet<NodeId>>>, _) = (Arc::default(), Arc::new(Mutex::new(true)));
    let (noted, held) = (receivers.clone(), is_held.clone());
    cluster.lose_if(move |to, told| {
        let is_piece = matches!(told, ServerMessage::MetalogPiece(_));
        if is_piece {
            noted.lock().unwrap().insert(to);
        }
        is_piece && *held.lock().unwrap()
    });
    for node in 2..=7 {
        cluster.add_learner(NodeId(node));
    }
    cluster.run(500);
    assert_eq!(receivers.lock().unwrap().len(), 4, "states on their way");
    *is_held.lock().unwrap() = false;
    cluster.settle();
    assert_eq!(receivers.lock().unwrap().len(), 6);
}

/// Its names come from the log that a majority has. Chains it has none of.
#[test]
fn a_server_that_joined_and_has_no_chain_loses_nothing_by_a_loss_of_power() {
    let cluster = TestCluster::of(87, 3);
    let joined = NodeId(4);
    cluster.add_learner_without_chains(joined);
    let mut client = FailoverClient::new(&cluster);
    let made = client.make("a").unwrap();
    cluster.settle();
    cluster.crash(joined, CrashKind::Power);
    // Below the bound of the clock of before.
    let meanwhile = client.make("b").unwrap();
    cluster.start(joined).unwrap();
    cluster.settle();
    for (count, stamp) in [(1, made.stamp), (1, meanwhile.stamp - 1), (2, meanwhile.stamp)] {
        let view = View { at: Some(stamp), user_at: None };
        let list = List { target: Target::path("/"), view, count_max: 10, ..List::default() };
        let Reply::List(found) = client.ask_at(joined, Request::List(list), &[], 0).0.unwrap() else {
            panic!("it answers something else");
        };
        assert_eq!(found.entries.len(), count, "{found:?}");
        assert!(!found.answered.incomplete, "nothing was lost before {stamp}: {found:?}");
    }
}
