//! Five servers that vote and two that learn: every one of the seven executes everything and answers.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use frieze_base::{NodeId, Reason};
use frieze_disk::CrashKind;
use frieze_wire::message::{List, Reply, Request, View};
use frieze_wire::peer::ServerMessage;
use frieze_wire::txn::{MakeKind, Target};

use crate::client::{Client, make};
use crate::names;
use crate::world::{FAIR, FOUL, World};

const VOTERS: [NodeId; 5] = [NodeId(1), NodeId(2), NodeId(3), NodeId(4), NodeId(5)];
const LEARNERS: [NodeId; 2] = [NodeId(6), NodeId(7)];

fn seven(seed: u64) -> Arc<World> {
    let world = World::of(seed, 5);
    LEARNERS.iter().for_each(|learner| world.learn(*learner));
    world
}

/// Makes a name, and asks these servers for it: each asks the leader how far it has to be, waits until it is, and knows
/// the name.
fn make_and_find(world: &World, client: &mut Client, name: &str, at: &[NodeId]) {
    let made = client.make(name).unwrap();
    for node in at {
        world.engine(*node).linearizable().unwrap();
        let view = View { at: Some(made.stamp), user_at: None };
        let found = client.stat_at(*node, name, view);
        assert!(found.is_ok(), "{name} was made before {node} was asked for it: {found:?}");
    }
}

/// Two voters: the leader, and another one.
fn two_of(world: &World) -> [NodeId; 2] {
    let leader = world.leader().unwrap();
    [leader, VOTERS.into_iter().find(|voter| *voter != leader).unwrap()]
}

#[test]
fn every_one_of_seven_servers_executes_everything_and_answers_of_now() {
    let world = seven(81);
    world.set_weather(FOUL);
    let mut client = Client::new(&world);
    for name in names(40) {
        make_and_find(&world, &mut client, &name, &LEARNERS[1..]);
    }
    world.set_weather(FAIR);
    world.settle();
    let members = world.status(world.leader().unwrap()).members;
    assert_eq!((members.voters, members.learners), (VOTERS.to_vec(), LEARNERS.to_vec()));
    let refused = world.engine(world.leader().unwrap()).promote_member(LEARNERS[0]).unwrap_err();
    assert_eq!(refused.reason, Reason::InvalidArgument, "a sixth vote: {refused}");
}

#[test]
fn seven_servers_go_on_without_two_that_vote_and_stop_without_three() {
    let world = seven(82);
    let mut client = Client::new(&world);
    client.make("seven").unwrap();
    let two = two_of(&world);
    two.iter().for_each(|node| world.crash(*node, CrashKind::Power));
    make_and_find(&world, &mut client, "five", &LEARNERS);
    // Four servers are there, and two of them vote: no majority of five.
    let third = world.leader().unwrap();
    world.crash(third, CrashKind::Power);
    world.run(2000);
    assert_eq!(world.leader(), None);
    for (node, engine) in world.alive() {
        let refused = engine.linearizable().unwrap_err();
        assert_eq!(refused.reason, Reason::Unavailable, "{node}: {refused}");
    }
    world.start(third).unwrap();
    client.make("again").unwrap();
    two.iter().for_each(|node| world.start(*node).unwrap());
    world.settle();
    assert_eq!(client.names(), ["again", "five", "seven"]);
}

#[test]
fn a_learner_votes_in_the_place_of_a_voter_that_is_removed() {
    let world = seven(83);
    let mut client = Client::new(&world);
    client.make("a").unwrap();
    let [_, lost] = two_of(&world);
    world.crash(lost, CrashKind::Power);
    world.as_leader(|engine| engine.remove_member(lost));
    world.promote(LEARNERS[0]);
    client.make("b").unwrap();
    // With it there are five votes again: two more may be lost.
    two_of(&world).iter().for_each(|node| world.crash(*node, CrashKind::Power));
    make_and_find(&world, &mut client, "c", &LEARNERS[1..]);
}

#[test]
fn a_learner_that_goes_is_missed_by_nobody() {
    let world = seven(84);
    let mut client = Client::new(&world);
    world.as_leader(|engine| engine.remove_member(LEARNERS[0]));
    world.until("it is out", || {
        world.leader().is_some_and(|leader| !world.status(leader).members.contains(LEARNERS[0]))
    });
    world.crash(LEARNERS[0], CrashKind::Process);
    make_and_find(&world, &mut client, "a", &LEARNERS[1..]);
    world.settle();
}

#[test]
fn a_sixth_server_joins_while_voters_are_away() {
    let world = World::of(85, 5);
    let mut client = Client::new(&world);
    for name in names(30) {
        client.make(&name).unwrap();
    }
    let two = two_of(&world);
    two.iter().for_each(|node| world.crash(*node, CrashKind::Power));
    world.until("another leads", || world.leader().is_some());
    world.learn(LEARNERS[0]);
    make_and_find(&world, &mut client, "last", &LEARNERS[..1]);
    two.iter().for_each(|node| world.start(*node).unwrap());
    world.settle();
}

#[test]
fn seven_servers_that_lose_power_at_once_are_seven_again() {
    let world = seven(86);
    let mut client = Client::new(&world);
    for name in names(20) {
        client.make(&name).unwrap();
    }
    let all: Vec<NodeId> = world.alive().into_iter().map(|(node, _)| node).collect();
    all.iter().for_each(|node| world.crash(*node, CrashKind::Power));
    // Those that learn first: they wait for a majority of the others.
    for node in all.iter().rev() {
        world.start(*node).unwrap();
    }
    client.make("after").unwrap();
    world.settle();
    assert_eq!(client.names().len(), 21);
    let members = world.status(world.leader().unwrap()).members;
    assert_eq!((members.voters, members.learners), (VOTERS.to_vec(), LEARNERS.to_vec()));
}

/// A server that was away for so long that it gets the state may vote when it has it, and not before.
#[test]
fn a_learner_that_lags_does_not_vote_before_it_has_caught_up() {
    let world = World::of(87, 2);
    let mut client = Client::new(&world);
    for name in names(200) {
        client.make(&name).unwrap();
    }
    world.steal(|to, told| to == NodeId(3) && matches!(told, ServerMessage::MetalogPiece(_)));
    world.learn(NodeId(3));
    world.run(300);
    let leader = world.leader().unwrap();
    let refused = world.engine(leader).promote_member(NodeId(3)).unwrap_err();
    assert_eq!(refused.reason, Reason::Busy, "{refused}");
    world.steal(|_, _| false);
    world.promote(NodeId(3));
    world.settle();
}

/// Six servers join at once: four get the state, and the others when there is room.
#[test]
fn states_go_to_four_servers_at_a_time() {
    let world = World::of(88, 1);
    let mut client = Client::new(&world);
    for name in names(300) {
        client.txn(make(&name, MakeKind::Symlink(vec![b'x'; 4000]))).unwrap();
    }
    let (receivers, is_held): (Arc<Mutex<BTreeSet<NodeId>>>, _) = (Arc::default(), Arc::new(Mutex::new(true)));
    let (noted, held) = (receivers.clone(), is_held.clone());
    world.steal(move |to, told| {
        let is_piece = matches!(told, ServerMessage::MetalogPiece(_));
        if is_piece {
            noted.lock().unwrap().insert(to);
        }
        is_piece && *held.lock().unwrap()
    });
    for node in 2..=7 {
        world.learn(NodeId(node));
    }
    world.run(500);
    assert_eq!(receivers.lock().unwrap().len(), 4, "states on their way");
    *is_held.lock().unwrap() = false;
    world.settle();
    assert_eq!(receivers.lock().unwrap().len(), 6);
}

/// Its names come from the log that a majority has. Chains it has none of.
#[test]
fn a_server_that_joined_and_has_no_chain_loses_nothing_by_a_loss_of_power() {
    let world = World::of(87, 3);
    let joined = NodeId(4);
    world.learn_names(joined);
    let mut client = Client::new(&world);
    let made = client.make("a").unwrap();
    world.settle();
    world.crash(joined, CrashKind::Power);
    // Below the bound of the clock of before.
    let meanwhile = client.make("b").unwrap();
    world.start(joined).unwrap();
    world.settle();
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
