//! A directory of a single machine becomes a member of several, and a crash in between leaves one or the other.

use frieze_base::{NodeId, Reason};
use frieze_disk::{CrashKind, Disk};

use crate::client::Client;
use crate::names;
use crate::world::World;

const ONE: NodeId = NodeId(1);

#[test]
fn a_lone_directory_grows_to_three_and_back_to_one() {
    let world = World::new(21);
    world.add_machine(ONE, None);
    let mut client = Client::new(&world);
    let made = client.make("alone").unwrap();
    client.write_at(ONE, &made.capability, 0, b"bytes").unwrap();
    world.engine(ONE).found_metalog().unwrap();
    assert_eq!(world.engine(ONE).found_metalog().unwrap_err().reason, Reason::InvalidArgument);
    // The session, its number and its file continue.
    client.make("founded").unwrap();
    assert_eq!(client.read_at(ONE, &made.capability, 100).unwrap(), b"bytes");
    for node in [2, 3] {
        world.grow(NodeId(node));
        client.make(&format!("with{node}")).unwrap();
    }
    world.settle();
    assert_eq!(world.status(ONE).members.voters, [ONE, NodeId(2), NodeId(3)]);
    for node in [ONE, NodeId(2)] {
        world.as_leader(|engine| match engine.remove_member(node) {
            // The leader hands over first, and the next leader removes it.
            Err(fault) if fault.reason == Reason::InvalidArgument => Ok(()),
            other => other,
        });
        world.until("it is out", || {
            let leader = world.leader();
            leader.is_some_and(|leader| !world.status(leader).members.contains(node))
        });
        world.crash(node, CrashKind::Process);
        client.make(&format!("without{node}")).unwrap();
    }
    assert_eq!(client.names(), ["alone", "founded", "with2", "with3", "without1", "without2"]);
}

/// The power fails at each change of the device while a metalog is founded: the machine is alone as before, or a
/// member; what was answered is there.
#[test]
fn a_crash_while_a_metalog_is_founded_leaves_the_one_or_the_other() {
    let (mut alone, mut member) = (0, 0);
    for changes in 1..200 {
        let world = World::new(22);
        world.add_machine(ONE, None);
        let mut client = Client::new(&world);
        for name in names(5) {
            client.make(&name).unwrap();
        }
        world.engine(ONE).planes.flush().unwrap();
        let disk = world.disk(ONE);
        disk.fail_after(changes);
        let done = world.engine(ONE).found_metalog();
        let over = done.is_ok();
        world.crash(ONE, CrashKind::Power);
        world.start(ONE).unwrap();
        match world.engine(ONE).metalog() {
            Some(_) => {
                member += 1;
                world.until("it leads", || world.leader().is_some());
            }
            None => {
                alone += 1;
                assert!(!over, "it said that it had founded one");
            }
        }
        assert_eq!(client.names(), names(5), "change {changes}");
        client.make("more").unwrap();
        if over {
            break;
        }
    }
    assert!(alone > 0 && member > 0, "{alone} alone, {member} members");
}

#[test]
fn inode_numbers_go_on_where_a_founder_left_some_out() {
    let world = World::new(23);
    world.add_machine(ONE, None);
    let mut client = Client::new(&world);
    client.make("before").unwrap();
    world.engine(ONE).planes.flush().unwrap();
    // The numbers that it loses may have been assigned: it skips them.
    let lost = client.make("lost").unwrap().id;
    world.crash(ONE, CrashKind::Power);
    world.start(ONE).unwrap();
    world.engine(ONE).found_metalog().unwrap();
    world.grow(NodeId(2));
    world.grow(NodeId(3));
    let mut client = Client::new(&world);
    let first = client.make("first").unwrap().id;
    assert!(first > lost, "{first} was given already");
    world.settle();
    for node in [1, 2, 3].map(NodeId) {
        world.crash(node, CrashKind::Power);
        world.start(node).unwrap();
    }
    world.until("somebody leads", || world.leader().is_some());
    let leader = world.leader().unwrap();
    world.engine(leader).hand_over(NodeId(leader.0 % 3 + 1)).unwrap();
    world.until("the other leads", || world.leader().is_some_and(|other| other != leader));
    assert_eq!(client.make("second").unwrap().id, first + 1);
    world.settle();
}

#[test]
fn a_journal_that_is_damaged_or_gone_is_refused() {
    for damage in 0..3 {
        let world = World::of(24, 3);
        let mut client = Client::new(&world);
        for name in names(20) {
            client.make(&name).unwrap();
        }
        world.settle();
        let node = NodeId(2);
        world.crash(node, CrashKind::Process);
        let disk = world.disk(node);
        let journal: Vec<String> = disk.list().unwrap().into_iter().filter(|name| name.starts_with("raft-")).collect();
        assert!(!journal.is_empty());
        match damage {
            // In the middle of what was on stable storage.
            0 => disk.flip_bit(&journal[0], 400, 3).unwrap(),
            1 => journal.iter().for_each(|name| disk.remove(name).unwrap()),
            _ => disk.flip_bit(&journal[0], 20, 1).unwrap(),
        }
        let refused = world.start(node).unwrap_err();
        assert_eq!(refused.reason, Reason::Corrupt, "damage {damage}: {refused}");
        // The other servers continue, and another takes its place.
        client.make("more").unwrap();
        world.as_leader(|engine| engine.remove_member(node));
        world.grow(NodeId(4));
        world.settle();
    }
}
