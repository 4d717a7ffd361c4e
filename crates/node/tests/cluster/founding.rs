//! A directory of a single machine becomes a member of several, and a crash in between leaves one or the other.

use frieze_base::{NodeId, Reason};
use frieze_disk::{CrashKind, Disk};
use frieze_testkit::cluster::{FailoverClient, TestCluster};

use crate::names;

const ONE: NodeId = NodeId(1);

#[test]
fn a_lone_directory_grows_to_three_and_back_to_one() {
    let cluster = TestCluster::new(21);
    cluster.add_machine(ONE, None);
    let mut client = FailoverClient::new(&cluster);
    let made = client.make("alone").unwrap();
    client.write_at(ONE, &made.capability, 0, b"bytes").unwrap();
    assert!(cluster.server(ONE).found_metalog().unwrap());
    assert!(!cluster.server(ONE).found_metalog().unwrap());
    // The session, its number and its file continue.
    client.make("founded").unwrap();
    assert_eq!(client.read_at(ONE, &made.capability, 100).unwrap(), b"bytes");
    for node in [2, 3] {
        cluster.add_voter(NodeId(node));
        client.make(&format!("with{node}")).unwrap();
    }
    cluster.settle();
    assert_eq!(cluster.status(ONE).members.voters, [ONE, NodeId(2), NodeId(3)]);
    for node in [ONE, NodeId(2)] {
        cluster.as_leader(|server| match server.remove_member(node) {
            // The leader hands over first, and the next leader removes it.
            Err(fault) if fault.reason == Reason::InvalidArgument => Ok(()),
            other => other,
        });
        cluster.until("it is out", || {
            let leader = cluster.leader();
            leader.is_some_and(|leader| !cluster.status(leader).members.contains(node))
        });
        cluster.crash(node, CrashKind::Process);
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
        let cluster = TestCluster::new(22);
        cluster.add_machine(ONE, None);
        let mut client = FailoverClient::new(&cluster);
        for name in names(5) {
            client.make(&name).unwrap();
        }
        cluster.server(ONE).flush().unwrap();
        let disk = cluster.disk(ONE);
        disk.fail_after(changes);
        let done = cluster.server(ONE).found_metalog();
        let over = done.is_ok();
        cluster.crash(ONE, CrashKind::Power);
        cluster.start(ONE).unwrap();
        match cluster.server(ONE).metalog() {
            Some(_) => {
                member += 1;
                cluster.until("it leads", || cluster.leader().is_some());
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
    let cluster = TestCluster::new(23);
    cluster.add_machine(ONE, None);
    let mut client = FailoverClient::new(&cluster);
    client.make("before").unwrap();
    cluster.server(ONE).flush().unwrap();
    // The numbers that it loses may have been assigned: it skips them.
    let lost = client.make("lost").unwrap().id;
    cluster.crash(ONE, CrashKind::Power);
    cluster.start(ONE).unwrap();
    cluster.server(ONE).found_metalog().unwrap();
    cluster.add_voter(NodeId(2));
    cluster.add_voter(NodeId(3));
    let mut client = FailoverClient::new(&cluster);
    let first = client.make("first").unwrap().id;
    assert!(first > lost, "{first} was given already");
    cluster.settle();
    for node in [1, 2, 3].map(NodeId) {
        cluster.crash(node, CrashKind::Power);
        cluster.start(node).unwrap();
    }
    cluster.until("somebody leads", || cluster.leader().is_some());
    let leader = cluster.leader().unwrap();
    cluster.server(leader).hand_over(NodeId(leader.0 % 3 + 1)).unwrap();
    cluster.until("the other leads", || cluster.leader().is_some_and(|other| other != leader));
    // All lost power: the numbers that they may have lost are left out, too.
    assert!(client.make("second").unwrap().id > first);
    cluster.settle();
}

#[test]
fn a_journal_that_is_damaged_or_gone_is_refused() {
    for damage in 0..3 {
        let cluster = TestCluster::of(24, 3);
        let mut client = FailoverClient::new(&cluster);
        for name in names(20) {
            client.make(&name).unwrap();
        }
        cluster.settle();
        let node = NodeId(2);
        cluster.crash(node, CrashKind::Process);
        let disk = cluster.disk(node);
        let journal: Vec<String> = disk.list().unwrap().into_iter().filter(|name| name.starts_with("raft-")).collect();
        assert!(!journal.is_empty());
        match damage {
            // In the middle of what was on stable storage.
            0 => disk.flip_bit(&journal[0], 400, 3).unwrap(),
            1 => journal.iter().for_each(|name| disk.remove(name).unwrap()),
            _ => disk.flip_bit(&journal[0], 20, 1).unwrap(),
        }
        let refused = cluster.start(node).unwrap_err();
        assert_eq!(refused.reason, Reason::Corrupt, "damage {damage}: {refused}");
        // The other servers continue, and another takes its place.
        client.make("more").unwrap();
        cluster.as_leader(|server| server.remove_member(node));
        cluster.add_voter(NodeId(4));
        cluster.settle();
    }
}
