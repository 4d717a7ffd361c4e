//! A chain that the leader is no member of: its answers about files there, and its promises about them, are those of
//! the members.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use frieze_base::{ChainEpoch, ChainId, ErrorKind, InodeId, MonoTime, NodeId, Reason};
use frieze_cluster::{ChainStep, Decision, NodeDevice, NodeInfo};
use frieze_disk::CrashKind;
use frieze_testkit::cluster::{FailoverClient, TestCluster};
use frieze_wire::message::{Reply, Request, Sync, View};
use frieze_wire::peer::{PeerRequest, PeerRequestKind, ServerMessage};
use frieze_wire::quota::QUOTA_XATTR;
use frieze_wire::txn::{CloseSession, Op, SetAttr, SetXattr, Settle, Target};

use crate::writers::{file, head, offset};
use crate::{ONE, THREE, TWO};

/// Three servers, of which the first leads, and three chains; of the second of them only the others are members. Every
/// server may ask any of the three about each chain: a server that is no member has to say so.
pub(crate) fn spread(seed: u64) -> Arc<TestCluster> {
    spread_over(seed, &[&[1, 2, 3], &[2, 3], &[3, 1, 2]])
}

/// As `spread`, with these members.
pub(crate) fn spread_over(seed: u64, members: &[&[u32]]) -> Arc<TestCluster> {
    let cluster = TestCluster::of(seed, 3);
    cluster.set_chain_members(members);
    cluster.until("node 1 leads", || cluster.leader() == Some(ONE));
    let newcomer = |node: u32| NodeInfo {
        name: format!("n{node}"),
        site: String::new(),
        machine: String::new(),
        address: format!("127.0.0.1:{node}"),
        token: node.into(),
        incarnation: 1,
        devices: vec![NodeDevice { device: 0, capacity_bytes: 1 << 40, has_failed: false, is_full: false }],
    };
    let cluster_id = cluster.server(ONE).cluster();
    let (epoch, first) = (ChainEpoch(1), newcomer(1));
    let mut decisions = vec![
        Decision::Found { cluster: cluster_id, replicas: 3, chain_count: 3, epoch, first, gaps: vec![] },
        Decision::Join(newcomer(2)),
        Decision::Join(newcomer(3)),
    ];
    for chain in (0..3).map(ChainId) {
        let steps = [TWO, THREE].into_iter().flat_map(|node| {
            let begin = [ChainStep::Place { node, device: 0 }, ChainStep::Sync { node, incarnation: 1 }];
            begin.into_iter().chain([ChainStep::Join(node), ChainStep::Serve(node)])
        });
        decisions.extend((1..).zip(steps).map(|(revision, step)| Decision::Chain { chain, revision, step }));
    }
    cluster.server(ONE).decide(cluster.status(ONE).term, &decisions);
    cluster.run(100);
    cluster
}

/// A file, and a chunk of it on the chain of the other servers: the only one that a session may write.
fn file_elsewhere(client: &mut FailoverClient) -> (InodeId, Vec<u8>, u32) {
    let (inode, capability) = file(client, "f");
    // The creator of a file may write its first chunk.
    settle(client, inode);
    let chunk = chunk_headed_by(inode, TWO, 1);
    client.grant(inode, chunk, 1);
    (inode, capability, chunk)
}

/// The first chunk from `first` on of which the chain was this node's at the beginning.
pub(crate) fn chunk_headed_by(inode: InodeId, node: NodeId, first: u32) -> u32 {
    (first..64).find(|index| head(inode, *index) == node).expect("chunks are spread over all chains")
}

fn settle(client: &mut FailoverClient, inode: InodeId) {
    client.txn(Op::Settle(Settle { inode: inode.0, ..Settle::default() })).unwrap();
}

fn truncate(len: u64) -> Op {
    Op::SetAttr(SetAttr { target: Target::path("f"), size: Some(len), ..SetAttr::default() })
}

fn len_at(client: &mut FailoverClient, node: NodeId, view: View) -> u64 {
    match client.stat_at(node, "f", view) {
        Ok(Reply::Stat(reply)) => reply.attr.size,
        other => panic!("{other:?}"),
    }
}

/// Any of the chain's members may be the one that is left.
#[test]
fn synced_bytes_are_on_stable_storage_at_members_of_chains_on_other_servers() {
    for late in [0, 17, 34] {
        let cluster = spread(101);
        let mut client = FailoverClient::new(&cluster);
        let (inode, capability, chunk) = file_elsewhere(&mut client);
        // Servers flush now and then by themselves.
        cluster.run(late);
        client.write_at(TWO, &capability, offset(chunk), b"synced").unwrap();
        client.ask_at(ONE, Request::Sync(Sync { inode: inode.0 }), &[], 0).0.unwrap();
        cluster.crash(THREE, CrashKind::Power);
        cluster.start(THREE).unwrap();
        cluster.set_chain_members(&[&[1, 2], &[3], &[1, 2]]);
        cluster.run(300);
        let found = client.read_from(THREE, &capability, offset(chunk), 6);
        assert_eq!(found, Ok(b"synced".to_vec()), "after {late} steps");
    }
}

/// The clock of the leader is ahead of that of a head which receives nothing from it: members that do receive from the
/// leader cannot have it ordered there.
#[test]
fn a_truncate_is_answered_only_when_remote_heads_write_above_it() {
    let cluster = spread(102);
    let mut client = FailoverClient::new(&cluster);
    let (_, capability, chunk) = file_elsewhere(&mut client);
    client.write_at(TWO, &capability, offset(chunk), b"before").unwrap();
    // The head has been removed and does not know yet: the other member is asked, and answers at once.
    let step = ChainStep::TakeOut(TWO);
    let taken_out = Decision::Chain { chain: ChainId(1), revision: 9, step };
    cluster.server(ONE).decide(cluster.status(ONE).term, &[taken_out]);
    cluster.run(100);
    cluster.time(ONE).jump_wall_us(300_000);
    cluster.run(50);
    cluster.cut_link(ONE, TWO);
    let answered = client.txn_once(ONE, truncate(0));
    if let Err(fault) = &answered {
        assert_eq!(fault.reason, Reason::Unavailable, "{fault}");
        cluster.heal();
        client.txn_again(truncate(0)).unwrap();
    }
    client.write_at(TWO, &capability, offset(chunk), b"after").unwrap();
    cluster.heal();
    assert_eq!(client.len("f"), offset(chunk) + 5, "{answered:?}");
    assert_eq!(client.read_from(THREE, &capability, offset(chunk), 10).unwrap(), b"after");
}

#[test]
fn a_truncate_hides_writes_that_another_server_acknowledged_before_it() {
    for ahead_us in [0, 100_000, 200_000] {
        let cluster = spread(103);
        let mut client = FailoverClient::new(&cluster);
        let (_, capability, chunk) = file_elsewhere(&mut client);
        cluster.time(TWO).jump_wall_us(ahead_us);
        client.write_at(TWO, &capability, offset(chunk), b"before").unwrap();
        client.txn(truncate(1)).unwrap();
        assert_eq!(client.len("f"), 1);
        client.txn(truncate(offset(chunk) + 100)).unwrap();
        let found = client.read_from(THREE, &capability, offset(chunk), 6).unwrap();
        assert_eq!(found, [0; 6], "its clock was {ahead_us} us ahead");
    }
}

/// The grant by which the bytes would count ends with the settling.
#[test]
fn a_settled_length_counts_records_on_other_servers() {
    let cluster = spread(104);
    let mut client = FailoverClient::new(&cluster);
    let (inode, capability, chunk) = file_elsewhere(&mut client);
    client.write_at(TWO, &capability, offset(chunk), b"some").unwrap();
    settle(&mut client, inode);
    assert_eq!(client.len("f"), offset(chunk) + 4);
}

/// The head is asked first. It does not know that the tail has committed what a reader was shown there.
#[test]
fn a_read_of_the_present_asks_the_tail_first() {
    let cluster = spread(105);
    let (mut writer, mut reader) = (FailoverClient::new(&cluster), FailoverClient::new(&cluster));
    let (_, capability, chunk) = file_elsewhere(&mut writer);
    let (_, others) = reader.open("f");
    cluster.cut_link(THREE, TWO);
    let (weak, told, mut left) = (Arc::downgrade(&cluster), Arc::new(Mutex::new(None)), 20);
    let to = told.clone();
    cluster.set_step_hook(Some(Box::new(move |_| {
        left -= 1;
        if left == 0
            && let Some(cluster) = weak.upgrade()
        {
            let shown = reader.read_from(THREE, &others, offset(chunk), 10);
            let len = len_at(&mut reader, ONE, View::NOW);
            cluster.heal();
            *to.lock().unwrap() = Some((shown, len));
        }
    })));
    writer.write_at(TWO, &capability, offset(chunk), b"on its way").unwrap();
    cluster.set_step_hook(None);
    let (shown, len) = told.lock().unwrap().take().expect("it was looked at meanwhile");
    assert_eq!((shown, len), (Ok(b"on its way".to_vec()), offset(chunk) + 10));
}

/// Its replica is not what the chain holds by now, and it may not know that.
#[test]
fn a_server_without_its_part_or_its_lease_answers_nothing_about_now() {
    let of_three: &[&[u32]] = &[&[1, 2, 3], &[3], &[3, 1, 2]];
    for knows in [false, true] {
        let cluster = spread(106);
        cluster.set_chain_members(&[&[1, 2, 3], &[3, 2], &[3, 1, 2]]);
        let mut client = FailoverClient::new(&cluster);
        let (_, capability, chunk) = file_elsewhere(&mut client);
        client.write_at(THREE, &capability, offset(chunk), b"old").unwrap();
        assert_eq!(len_at(&mut client, ONE, View::NOW), offset(chunk) + 3);
        match knows {
            true => cluster.set_chain_members(of_three),
            false => {
                cluster.server(TWO).renew_lease(MonoTime(0));
                cluster.set_chain_members_at(&[ONE, THREE], of_three);
            }
        }
        client.write_at(THREE, &capability, offset(chunk), b"newer").unwrap();
        assert_eq!(len_at(&mut client, ONE, View::NOW), offset(chunk) + 5, "knows that it has left: {knows}");
    }
}

/// The chain continues without a record that this server has of it from when it was a member.
#[test]
fn records_of_a_chain_that_has_left_this_server_count_for_no_length() {
    let cluster = spread(107);
    cluster.set_chain_members(&[&[1, 2, 3], &[2, 1, 3], &[3, 1, 2]]);
    let mut client = FailoverClient::new(&cluster);
    let (inode, capability) = file(&mut client, "f");
    let near = chunk_headed_by(inode, ONE, 0);
    let far = chunk_headed_by(inode, TWO, near + 1);
    client.grant(inode, near, 1);
    client.grant(inode, far, 1);
    client.write_at(ONE, &capability, offset(near), b"kept").unwrap();
    cluster.cut_link(ONE, THREE);
    cluster.cut_link(TWO, THREE);
    let (weak, mut left) = (Arc::downgrade(&cluster), 20);
    cluster.set_step_hook(Some(Box::new(move |_| {
        left -= 1;
        if left == 0
            && let Some(cluster) = weak.upgrade()
        {
            cluster.set_chain_members(&[&[1, 2, 3], &[3], &[3, 1, 2]]);
            cluster.heal();
        }
    })));
    let lost = client.write_at(TWO, &capability, offset(far), b"never kept");
    cluster.set_step_hook(None);
    assert!(lost.is_err(), "nobody acknowledges it: {lost:?}");
    cluster.run(300);
    let end = offset(near) + 4;
    assert_eq!(len_at(&mut client, ONE, View::NOW), end);
    let then = View { at: Some(cluster.time(ONE).wall().0 - (100_000 << 12)), user_at: None };
    assert_eq!(len_at(&mut client, ONE, then), end, "when it had left");
    assert_eq!(client.append_at(ONE, &capability, end, b"more").unwrap().offset, end, "of which it places the end");
    settle(&mut client, inode);
    assert_eq!(client.len("f"), end + 4, "settled");
}

/// The server that is asked first knows that it left, and has the bytes of then.
#[test]
fn a_former_member_answers_for_no_instant_after_its_removal() {
    let cluster = spread(111);
    let mut client = FailoverClient::new(&cluster);
    let (_, capability, chunk) = file_elsewhere(&mut client);
    client.write_at(TWO, &capability, offset(chunk), b"old").unwrap();
    cluster.run(100);
    cluster.set_chain_members(&[&[1, 2, 3], &[3], &[3, 1, 2]]);
    client.write_at(THREE, &capability, offset(chunk), b"newer").unwrap();
    cluster.run(100);
    let then = View { at: Some(cluster.server(ONE).newest().0), user_at: None };
    assert_eq!(len_at(&mut client, ONE, then), offset(chunk) + 5);
}

/// An answer about an instant is what was then, and stays so: nothing is stamped below it any more, however slow a
/// clock.
#[test]
fn a_request_about_an_instant_is_answered_as_of_it_and_closes_it() {
    let cluster = spread(112);
    let mut client = FailoverClient::new(&cluster);
    let (_, capability, chunk) = file_elsewhere(&mut client);
    client.write_at(TWO, &capability, offset(chunk), b"one").unwrap();
    cluster.run(50);
    let first = View { at: Some(cluster.server(ONE).newest().0), user_at: None };
    cluster.run(50);
    client.write_at(TWO, &capability, offset(chunk), b"longer").unwrap();
    assert_eq!(len_at(&mut client, ONE, first), offset(chunk) + 3, "as it was");
    cluster.time(ONE).jump_wall_us(200_000);
    let ahead = View { at: Some(cluster.time(ONE).wall().0), user_at: None };
    assert_eq!(len_at(&mut client, ONE, ahead), offset(chunk) + 6);
    client.write_at(TWO, &capability, offset(chunk), b"longer still").unwrap();
    for node in [ONE, TWO, THREE] {
        assert_eq!(len_at(&mut client, node, ahead), offset(chunk) + 6, "at {node}");
    }
    assert_eq!(client.len("f"), offset(chunk) + 12);
}

/// It was removed and does not know: its flush covers none of the acknowledged records.
#[test]
fn a_server_without_a_lease_answers_no_sync() {
    for late in [0, 17, 34] {
        let cluster = spread(113);
        let mut client = FailoverClient::new(&cluster);
        let (inode, capability, chunk) = file_elsewhere(&mut client);
        cluster.run(late);
        cluster.server(TWO).renew_lease(MonoTime(0));
        cluster.set_chain_members_at(&[ONE, THREE], &[&[1, 2, 3], &[3], &[3, 1, 2]]);
        client.write_at(THREE, &capability, offset(chunk), b"synced").unwrap();
        client.ask_at(ONE, Request::Sync(Sync { inode: inode.0 }), &[], 0).0.unwrap();
        cluster.crash(THREE, CrashKind::Power);
        cluster.start(THREE).unwrap();
        cluster.set_chain_members(&[&[1, 2], &[3], &[1, 2]]);
        cluster.run(300);
        assert_eq!(
            client.read_from(THREE, &capability, offset(chunk), 6),
            Ok(b"synced".to_vec()),
            "after {late} steps"
        );
    }
}

/// The leader's clock is ahead. A server that knows that it left cannot ensure that the head stamps above.
#[test]
fn a_former_head_orders_nothing() {
    let cluster = spread(114);
    let mut client = FailoverClient::new(&cluster);
    let (_, capability, chunk) = file_elsewhere(&mut client);
    client.write_at(TWO, &capability, offset(chunk), b"before").unwrap();
    cluster.run(50);
    cluster.set_chain_members(&[&[1, 2, 3], &[3], &[3, 1, 2]]);
    cluster.time(ONE).jump_wall_us(300_000);
    cluster.run(50);
    client.txn(truncate(0)).unwrap();
    client.write_at(THREE, &capability, offset(chunk), b"after").unwrap();
    assert_eq!(client.len("f"), offset(chunk) + 5);
    assert_eq!(client.read_from(THREE, &capability, offset(chunk), 10).unwrap(), b"after");
}

/// Every chain continues without the first server.
const WITHOUT_ONE: &[&[u32]] = &[&[2, 3], &[2, 3], &[3, 2]];

/// The first server gets a lease, with configurations without it, as soon as it asks others about lengths.
fn leaves_while_it_asks(cluster: &Arc<TestCluster>) {
    let asked = Arc::new(AtomicBool::new(false));
    let asks = asked.clone();
    cluster.lose_if(move |_, told| {
        let is_about_length =
            matches!(told, ServerMessage::Question(PeerRequest { about: Some(PeerRequestKind::Reach(_)), .. }));
        asks.fetch_or(is_about_length, Ordering::Relaxed);
        false
    });
    let weak = Arc::downgrade(cluster);
    cluster.set_step_hook(Some(Box::new(move |_| {
        if asked.swap(false, Ordering::Relaxed)
            && let Some(cluster) = weak.upgrade()
        {
            cluster.set_chain_members_at(&[ONE], WITHOUT_ONE);
        }
    })));
}

/// Its lease had ended, and it gets another while it asks another server about the rest: with a configuration without
/// it.
#[test]
fn a_reader_removed_from_its_chain_meanwhile_does_not_answer() {
    let (cluster, mut client, _, capability, start) = longer_than_the_leader_knows(116);
    leaves_while_it_asks(&cluster);
    let read = client.read_from(ONE, &capability, start + 4, 5);
    cluster.set_step_hook(None);
    let told = read.map_err(|fault| fault.reason);
    assert_eq!(told, Err(Reason::Unavailable), "it was shown what is not so any more, or was never asked");
    assert_eq!(client.read_from(TWO, &capability, start + 4, 5), Ok(b" more".to_vec()));
}

/// A file with bytes at the first server, which leads, and their place. The chain has continued without it since, and
/// the file ends later than it knows.
fn longer_than_the_leader_knows(seed: u64) -> (Arc<TestCluster>, FailoverClient, InodeId, Vec<u8>, u64) {
    let cluster = spread(seed);
    let mut client = FailoverClient::new(&cluster);
    let (inode, capability) = file(&mut client, "f");
    let far = chunk_headed_by(inode, TWO, 0);
    let near = chunk_headed_by(inode, ONE, far + 1);
    client.grant(inode, far, 1);
    client.grant(inode, near, 1);
    client.write_at(ONE, &capability, offset(near), b"some").unwrap();
    cluster.run(100);
    cluster.server(ONE).renew_lease(MonoTime(0));
    cluster.set_chain_members_at(&[TWO, THREE], WITHOUT_ONE);
    client.write_at(TWO, &capability, offset(near), b"some more").unwrap();
    (cluster, client, inode, capability, offset(near))
}

/// The size it would settle omits later acknowledged writes, for ever: the grant by which they count ends with it.
#[test]
fn a_leader_without_its_lease_settles_no_length_of_what_it_has() {
    let (cluster, mut client, inode, _, start) = longer_than_the_leader_knows(118);
    let settle_it = || Op::Settle(Settle { inode: inode.0, ..Settle::default() });
    let refused = client.txn_once(ONE, settle_it()).map(drop).map_err(|fault| fault.reason);
    assert_eq!(refused, Err(Reason::Unavailable));
    let close = Op::CloseSession(CloseSession::default());
    let refused = client.twin(client.seq()).txn_once(ONE, close).map(drop).map_err(|fault| fault.reason);
    assert_eq!(refused, Err(Reason::Unavailable), "a session is not ended with it either");
    cluster.set_chain_members_at(&[ONE], WITHOUT_ONE);
    client.txn_again(settle_it()).unwrap();
    assert_eq!(client.len("f"), start + 9);
}

#[test]
fn a_server_removed_from_its_chain_meanwhile_settles_no_length() {
    let (cluster, mut client, inode, _, start) = longer_than_the_leader_knows(119);
    leaves_while_it_asks(&cluster);
    let settle_it = || Op::Settle(Settle { inode: inode.0, ..Settle::default() });
    let refused = client.txn_once(ONE, settle_it());
    cluster.set_step_hook(None);
    assert!(refused.is_err_and(|fault| fault.kind() == ErrorKind::Unavailable), "it was settled, or nobody was asked");
    client.txn_again(settle_it()).unwrap();
    assert_eq!(client.len("f"), start + 9);
}

/// Its head has the record; the tail, which is asked, does not: the size settled meanwhile covers only earlier stamps.
#[test]
fn a_settled_length_covers_records_on_their_way_to_other_servers() {
    let cluster = spread(115);
    // What the first heads gets to the third without the second.
    cluster.set_chain_members(&[&[1, 3], &[2, 3], &[3, 1]]);
    let (mut one, mut other) = (FailoverClient::new(&cluster), FailoverClient::new(&cluster));
    let (inode, capability) = file(&mut one, "f");
    let near = chunk_headed_by(inode, ONE, 0);
    let far = chunk_headed_by(inode, TWO, near + 1);
    let (_, others) = other.open("f");
    one.grant(inode, near, 1);
    other.grant(inode, far, 1);
    cluster.time(ONE).jump_wall_us(200_000);
    cluster.run(100);
    cluster.cut_link(TWO, THREE);
    let (weak, mut client) = (Arc::downgrade(&cluster), Some(one));
    let settled = Arc::new(Mutex::new(None));
    let (to, mut left) = (settled.clone(), 3);
    cluster.set_step_hook(Some(Box::new(move |_| {
        left -= 1;
        if left == 0
            && let (Some(cluster), Some(mut one)) = (weak.upgrade(), client.take())
        {
            let wrote = one.write_at(ONE, &capability, offset(near), b"near");
            let done = one.txn_once(ONE, Op::Settle(Settle { inode: inode.0, ..Settle::default() }));
            cluster.heal();
            *to.lock().unwrap() = Some((one, wrote, done.map(drop)));
        }
    })));
    let wrote = other.write_at(TWO, &others, offset(far), b"far");
    cluster.set_step_hook(None);
    let (mut one, near_wrote, done) = settled.lock().unwrap().take().expect("it was settled meanwhile");
    assert_eq!((near_wrote, done), (Ok(()), Ok(())));
    wrote.unwrap();
    assert_eq!(one.len("f"), offset(far) + 3);
    other.txn(Op::Settle(Settle { inode: inode.0, ..Settle::default() })).unwrap();
    assert_eq!(one.len("f"), offset(far) + 3, "settled");
}

#[test]
fn what_is_kept_of_a_tree_is_counted_over_all_servers_and_bounded_at_each() {
    let cluster = spread_over(77, &[&[1, 2, 3], &[2, 3], &[3, 2]]);
    let mut client = FailoverClient::new(&cluster);
    let (inode, capability) = file(&mut client, "f");
    let set =
        SetXattr { target: Target::path(""), name: QUOTA_XATTR.to_vec(), value: b"kept=100000".to_vec(), flags: 0 };
    client.txn(Op::SetXattr(set)).unwrap();
    let places: Vec<(NodeId, u64)> = [ONE, TWO, THREE]
        .map(|node| (node, chunk_headed_by(inode, node, 0)))
        .map(|(node, chunk)| {
            client.grant(inode, chunk, 1);
            (node, offset(chunk))
        })
        .to_vec();
    for round in 0..2 {
        for (node, at) in &places {
            client
                .write_at(*node, &capability, *at, &[7; 10_000 + 1])
                .unwrap_or_else(|fault| panic!("{round}: {fault}"));
        }
    }
    cluster.run(500);
    let count = |client: &mut FailoverClient| {
        for _ in 0..3 {
            for node in [ONE, TWO, THREE] {
                cluster.server(node).count_kept().unwrap();
            }
            for _ in 0..6 {
                cluster.run(1000);
                client.keep();
            }
        }
        [ONE, TWO, THREE].map(|node| cluster.server(node).kept_bytes(InodeId::ROOT))
    };
    assert_eq!(count(&mut client), [Some(60_006); 3]);
    for (node, at) in &places {
        client.write_at(*node, &capability, *at, &[7; 13_000]).unwrap();
    }
    assert_eq!(count(&mut client), [Some(99_006); 3]);
    for (node, at) in &places {
        let fault = client.write_at(*node, &capability, *at, &[7; 1000]).unwrap_err();
        assert_eq!(fault.reason, Reason::BytesQuota, "at {node}");
    }
}
