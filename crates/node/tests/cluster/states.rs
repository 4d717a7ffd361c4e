//! Members that lack too much of the log, or a part of it.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use frieze_base::{ChainEpoch, NodeId};
use frieze_cluster::{ClusterChange, Decision, NodeDevice, NodeInfo};
use frieze_disk::CrashKind;
use frieze_testkit::cluster::{FailoverClient, NetFaults, TestCluster, make_op};
use frieze_wire::peer::ServerMessage;
use frieze_wire::txn::MakeKind;

use crate::names;

#[test]
fn a_new_member_gets_the_state_while_transactions_go_on() {
    for seed in 31..=34 {
        let cluster = TestCluster::of(seed, 2);
        cluster.set_faults(NetFaults::MANY);
        let mut client = FailoverClient::new(&cluster);
        for name in names(300) {
            client.make(&name).unwrap();
        }
        cluster.add_machine(NodeId(3), Some(NodeId(3)));
        cluster.as_leader(|server| server.add_member(NodeId(3)));
        for number in 0..50 {
            client.rename(&format!("f{number:04}"), &format!("g{number:04}")).unwrap();
        }
        cluster.set_faults(NetFaults::NONE);
        cluster.promote(NodeId(3));
        cluster.settle();
    }
}

#[test]
fn a_transfer_that_is_broken_off_begins_anew() {
    for seed in 41..=44 {
        let cluster = TestCluster::of(seed, 3);
        let mut client = FailoverClient::new(&cluster);
        for name in names(100) {
            client.make(&name).unwrap();
        }
        cluster.add_machine(NodeId(4), Some(NodeId(4)));
        cluster.as_leader(|server| server.add_member(NodeId(4)));
        // Now the sender goes, now the receiver, in the middle of it.
        for number in 0..6 {
            cluster.run(20 + seed * number);
            let who = if number % 2 == 0 { NodeId(4) } else { cluster.leader().unwrap_or(NodeId(1)) };
            cluster.crash(who, CrashKind::Power);
            client.make(&format!("h{number}")).unwrap();
            cluster.start(who).unwrap();
        }
        cluster.promote(NodeId(4));
        cluster.settle();
        assert_eq!(client.names().len(), 106);
    }
}

#[test]
fn one_that_was_away_catches_up() {
    let cluster = TestCluster::of(51, 3);
    let mut client = FailoverClient::new(&cluster);
    client.make("first").unwrap();
    let away = [1, 2, 3].map(NodeId).into_iter().find(|node| Some(*node) != cluster.leader()).unwrap();
    cluster.crash(away, CrashKind::Power);
    for name in names(200) {
        client.make(&name).unwrap();
    }
    cluster.start(away).unwrap();
    cluster.settle();
    // And one that was only cut off.
    cluster.isolate(away);
    for name in names(100) {
        client.rename(&name, &format!("{name}x")).unwrap();
    }
    cluster.heal();
    cluster.settle();
}

/// It was away for so long that no server has the missing entries any more: it gets the state.
#[test]
fn one_that_was_away_for_too_long_gets_the_state() {
    let cluster = TestCluster::of(52, 3);
    let mut client = FailoverClient::new(&cluster);
    client.make("f0").unwrap();
    let away = [1, 2, 3].map(NodeId).into_iter().find(|node| Some(*node) != cluster.leader()).unwrap();
    cluster.isolate(away);
    for number in 0..6000 {
        client.rename(&format!("f{number}"), &format!("f{}", number + 1)).unwrap();
    }
    let lacks = cluster.status(away).last;
    cluster.heal();
    cluster.settle();
    let (_, first) =
        cluster.server(cluster.leader().unwrap()).metalog().map(|status| (status.last, status.first)).unwrap();
    assert!(first > lacks, "the log begins with {first}, it lacked what is after {lacks}");
    assert_eq!(client.names(), ["f6000"]);
    // What it got is what it has after a loss of power.
    cluster.crash(away, CrashKind::Power);
    cluster.start(away).unwrap();
    cluster.settle();
}

/// Fate of the pieces of states.
#[derive(Default)]
struct Pieces {
    transfers: BTreeSet<u64>,
    /// The one that was lost, and how many that come after it arrived before it came again.
    lost: bool,
    ahead: u64,
}

/// The second piece is lost, the others and the last arrive. What they hold is not the state, and the sender need not
/// begin anew.
#[test]
fn a_piece_that_is_lost_comes_again_before_those_behind_it_count() {
    let cluster = TestCluster::of(62, 2);
    let mut client = FailoverClient::new(&cluster);
    for name in names(300) {
        client.txn(make_op(&name, MakeKind::Symlink(vec![b'x'; 4000]))).unwrap();
    }
    let pieces: Arc<Mutex<Pieces>> = Arc::default();
    let seen = pieces.clone();
    cluster.lose_if(move |to, told| {
        let (NodeId(3), ServerMessage::MetalogPiece(piece)) = (to, told) else { return false };
        let mut seen = seen.lock().unwrap();
        seen.transfers.insert(piece.transfer);
        seen.ahead += u64::from(seen.lost && piece.number > 1);
        piece.number == 1 && !std::mem::replace(&mut seen.lost, true)
    });
    cluster.add_voter(NodeId(3));
    cluster.settle();
    let pieces = pieces.lock().unwrap();
    assert!(pieces.lost && pieces.ahead > 2, "the state is too small");
    assert_eq!(pieces.transfers.len(), 1, "it began anew for one piece");
}

/// What was executed and is not in the store yet belongs to the state that is called by the last entry executed.
#[test]
fn a_state_holds_all_that_its_name_says() {
    let cluster = TestCluster::of(63, 2);
    let mut client = FailoverClient::new(&cluster);
    client.make("first").unwrap();
    cluster.settle();
    cluster.hold_flushes(true);
    for name in names(40) {
        client.make(&name).unwrap();
    }
    cluster.add_voter(NodeId(3));
    cluster.hold_flushes(false);
    cluster.settle();
    assert_eq!(client.names().len(), 41);
}

/// The last change was answered, and no other server knows that it is committed when the leader dies: the next leader
/// has it, and has executed it only with the first entry of its own term.
#[test]
fn a_leader_has_executed_every_answered_change() {
    let (mut elected, mut behind) = (0, 0);
    for seed in 21..=26 {
        let cluster = TestCluster::of(seed, 3);
        let mut client = FailoverClient::new(&cluster);
        client.make("f").unwrap();
        cluster.settle();
        client.make("g").unwrap();
        let leader = cluster.leader().unwrap();
        let answered = cluster.status(leader).applied;
        cluster.crash(leader, CrashKind::Power);
        let was_behind = Cell::new(false);
        cluster.until("another leads", || {
            for (node, status) in cluster.statuses() {
                let status = status.unwrap();
                assert!(!status.leads || status.applied >= answered, "node {node} leads: {status:?}, {answered}");
                was_behind.set(was_behind.get() || status.leader == Some(node) && status.applied < answered);
            }
            cluster.leader().is_some()
        });
        behind += u64::from(was_behind.get());
        elected += 1;
        cluster.start(leader).unwrap();
        cluster.settle();
        assert_eq!(client.names(), ["f", "g"]);
    }
    assert!(behind > 0, "of {elected} that were elected none had anything to execute first");
}

/// What the control plane decides comes with the log, the state and the disk, like names.
#[test]
fn decisions_are_executed_alike_and_stay() {
    let cluster = TestCluster::of(71, 3);
    let mut client = FailoverClient::new(&cluster);
    client.make("f").unwrap();
    let first = NodeInfo {
        name: "a".into(),
        site: String::new(),
        machine: String::new(),
        address: "127.0.0.1:1".into(),
        token: 5,
        incarnation: 1,
        devices: vec![NodeDevice { device: 0, capacity_bytes: 1 << 40, has_failed: false, is_full: false }],
    };
    let second = NodeInfo { name: "b".into(), token: 6, ..first.clone() };
    let cluster_id = cluster.server(NodeId(1)).cluster();
    let found =
        Decision::Found { cluster: cluster_id, replicas: 2, chain_count: 3, epoch: ChainEpoch(1), first, gaps: vec![] };
    let decisions = [found, Decision::Join(second)];
    // One that does not lead puts nothing into the log.
    let follower = [1, 2, 3].map(NodeId).into_iter().find(|node| Some(*node) != cluster.leader()).unwrap();
    let term = cluster.status(follower).term;
    cluster.server(follower).decide(term, &decisions);
    cluster.run(300);
    let nodes = |node: NodeId| {
        let mut nodes = 0;
        cluster.server(node).look_at_control(&mut |state| nodes = state.nodes().count());
        nodes
    };
    assert_eq!([1, 2, 3].map(|node| nodes(NodeId(node))), [0; 3]);
    let leader = cluster.leader().unwrap();
    // Nor does one that leads, for what was decided in another term.
    cluster.server(leader).decide(term + 1, &decisions);
    cluster.run(300);
    assert_eq!([1, 2, 3].map(|node| nodes(NodeId(node))), [0; 3]);
    cluster.server(leader).decide(term, &decisions);
    cluster.until("all have executed it", || [1, 2, 3].iter().all(|node| nodes(NodeId(*node)) == 2));
    assert!(cluster.server(follower).take_control_news().contains(&ClusterChange::Founded));
    assert_eq!(cluster.server(follower).take_control_news(), []);
    cluster.settle();
    for node in [1, 2, 3].map(NodeId) {
        cluster.server(node).flush().unwrap();
        cluster.crash(node, CrashKind::Power);
    }
    for node in [1, 2, 3].map(NodeId) {
        cluster.start(node).unwrap();
    }
    client.make("g").unwrap();
    cluster.add_voter(NodeId(4));
    assert_eq!([1, 2, 3, 4].map(|node| nodes(NodeId(node))), [2; 4]);
    cluster.settle();
}

/// Readers at the member that gets a state see the old or the new: nothing of what was answered before it was away is
/// missing at any time.
#[test]
fn a_reader_never_sees_half_a_state() {
    let cluster = TestCluster::of(61, 3);
    let mut client = FailoverClient::new(&cluster);
    for name in names(50) {
        client.make(&name).unwrap();
    }
    let then = client.make("last").unwrap().stamp;
    cluster.settle();
    let (seen, weak) = (Arc::new(std::sync::atomic::AtomicU64::new(0)), Arc::downgrade(&cluster));
    let counted = seen.clone();
    cluster.add_machine(NodeId(4), Some(NodeId(4)));
    cluster.set_step_hook(Some(Box::new(move |_| {
        let Some(cluster) = weak.upgrade() else { return };
        let status = cluster.status(NodeId(4));
        let (at, digest) = cluster.server(NodeId(4)).digest().unwrap();
        assert_eq!(at, status.applied);
        if at.0 > 0 {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let same = cluster.alive().into_iter().filter_map(|(_, server)| server.digest().ok());
            assert!(same.filter(|(place, _)| *place == at).all(|(_, other)| other == digest));
        }
    })));
    cluster.as_leader(|server| server.add_member(NodeId(4)));
    cluster.promote(NodeId(4));
    cluster.run(20);
    cluster.set_step_hook(None);
    cluster.settle();
    assert!(seen.load(std::sync::atomic::Ordering::Relaxed) > 10 && then > 0);
}
