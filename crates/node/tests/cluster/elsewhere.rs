//! A chain that the leader is no member of: its answers about files there, and its promises about them, are those of
//! the members.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use frieze_base::{ChainEpoch, ChainId, ErrorKind, InodeId, MonoTime, NodeId, Reason};
use frieze_cluster::{ChainStep, Decision, NodeDevice, NodeInfo};
use frieze_disk::CrashKind;
use frieze_wire::message::{Reply, Request, Sync, View};
use frieze_wire::peer::{PeerRequest, PeerRequestKind, ServerMessage};
use frieze_wire::txn::{CloseSession, Op, SetAttr, Settle, Target};

use crate::client::Client;
use crate::world::World;
use crate::writers::{file, head, offset};
use crate::{ONE, THREE, TWO};

/// Three servers, of which the first leads, and three chains; of the second of them only the others are members. Every
/// server may ask any of the three about each chain: a server that is no member has to say so.
pub(crate) fn spread(seed: u64) -> Arc<World> {
    spread_over(seed, &[&[1, 2, 3], &[2, 3], &[3, 1, 2]])
}

/// As `spread`, with these members.
pub(crate) fn spread_over(seed: u64, members: &[&[u32]]) -> Arc<World> {
    let world = World::of(seed, 3);
    world.share_chains(members);
    world.until("node 1 leads", || world.leader() == Some(ONE));
    let newcomer = |node: u32| NodeInfo {
        name: format!("n{node}"),
        site: String::new(),
        machine: String::new(),
        address: format!("127.0.0.1:{node}"),
        token: node.into(),
        incarnation: 1,
        devices: vec![NodeDevice { device: 0, capacity_bytes: 1 << 40, has_failed: false, is_full: false }],
    };
    let cluster = world.engine(ONE).planes.cluster();
    let (epoch, first) = (ChainEpoch(1), newcomer(1));
    let mut decisions = vec![
        Decision::Found { cluster, replicas: 3, chain_count: 3, epoch, first, gaps: vec![] },
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
    world.engine(ONE).decide(world.status(ONE).term, &decisions);
    world.run(100);
    world
}

/// A file, and a chunk of it on the chain of the other servers: the only one that a session may write.
fn file_elsewhere(client: &mut Client) -> (InodeId, Vec<u8>, u32) {
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

fn settle(client: &mut Client, inode: InodeId) {
    client.txn(Op::Settle(Settle { inode: inode.0, ..Settle::default() })).unwrap();
}

fn truncate(len: u64) -> Op {
    Op::SetAttr(SetAttr { target: Target::path("f"), size: Some(len), ..SetAttr::default() })
}

fn len_at(client: &mut Client, node: NodeId, view: View) -> u64 {
    match client.stat_at(node, "f", view) {
        Ok(Reply::Stat(reply)) => reply.attr.size,
        other => panic!("{other:?}"),
    }
}

/// Any of the chain's members may be the one that is left.
#[test]
fn what_was_synced_is_on_stable_storage_at_members_of_chains_that_are_elsewhere() {
    for late in [0, 17, 34] {
        let world = spread(101);
        let mut client = Client::new(&world);
        let (inode, capability, chunk) = file_elsewhere(&mut client);
        // Servers flush now and then by themselves.
        world.run(late);
        client.write_at(TWO, &capability, offset(chunk), b"synced").unwrap();
        client.ask_at(ONE, Request::Sync(Sync { inode: inode.0 }), &[], 0).0.unwrap();
        world.crash(THREE, CrashKind::Power);
        world.start(THREE).unwrap();
        world.share_chains(&[&[1, 2], &[3], &[1, 2]]);
        world.run(300);
        let found = client.read_from(THREE, &capability, offset(chunk), 6);
        assert_eq!(found, Ok(b"synced".to_vec()), "after {late} steps");
    }
}

/// The clock of the leader is ahead of that of a head which receives nothing from it: members that do receive from the
/// leader cannot have it ordered there.
#[test]
fn a_truncate_is_answered_only_when_heads_elsewhere_write_above_it() {
    let world = spread(102);
    let mut client = Client::new(&world);
    let (_, capability, chunk) = file_elsewhere(&mut client);
    client.write_at(TWO, &capability, offset(chunk), b"before").unwrap();
    // The head has been removed and does not know yet: the other member is asked, and answers at once.
    let step = ChainStep::TakeOut(TWO);
    let taken_out = Decision::Chain { chain: ChainId(1), revision: 9, step };
    world.engine(ONE).decide(world.status(ONE).term, &[taken_out]);
    world.run(100);
    world.time(ONE).jump_wall_us(300_000);
    world.run(50);
    world.deafen(ONE, TWO);
    let answered = client.txn_once(ONE, truncate(0));
    if let Err(fault) = &answered {
        assert_eq!(fault.reason, Reason::Unavailable, "{fault}");
        world.heal();
        client.txn_again(truncate(0)).unwrap();
    }
    client.write_at(TWO, &capability, offset(chunk), b"after").unwrap();
    world.heal();
    assert_eq!(client.len("f"), offset(chunk) + 5, "{answered:?}");
    assert_eq!(client.read_from(THREE, &capability, offset(chunk), 10).unwrap(), b"after");
}

#[test]
fn what_was_acknowledged_elsewhere_before_a_truncate_is_hidden_by_it() {
    for ahead_us in [0, 100_000, 200_000] {
        let world = spread(103);
        let mut client = Client::new(&world);
        let (_, capability, chunk) = file_elsewhere(&mut client);
        world.time(TWO).jump_wall_us(ahead_us);
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
fn a_settled_length_counts_what_is_elsewhere() {
    let world = spread(104);
    let mut client = Client::new(&world);
    let (inode, capability, chunk) = file_elsewhere(&mut client);
    client.write_at(TWO, &capability, offset(chunk), b"some").unwrap();
    settle(&mut client, inode);
    assert_eq!(client.len("f"), offset(chunk) + 4);
}

/// The head is asked first. It does not know that the tail has committed what a reader was shown there.
#[test]
fn who_is_asked_about_now_looks_at_the_tail_first() {
    let world = spread(105);
    let (mut writer, mut reader) = (Client::new(&world), Client::new(&world));
    let (_, capability, chunk) = file_elsewhere(&mut writer);
    let (_, others) = reader.open("f");
    world.deafen(THREE, TWO);
    let (weak, told, mut left) = (Arc::downgrade(&world), Arc::new(Mutex::new(None)), 20);
    let to = told.clone();
    world.set_hook(Some(Box::new(move |_| {
        left -= 1;
        if left == 0
            && let Some(world) = weak.upgrade()
        {
            let shown = reader.read_from(THREE, &others, offset(chunk), 10);
            let len = len_at(&mut reader, ONE, View::NOW);
            world.heal();
            *to.lock().unwrap() = Some((shown, len));
        }
    })));
    writer.write_at(TWO, &capability, offset(chunk), b"on its way").unwrap();
    world.set_hook(None);
    let (shown, len) = told.lock().unwrap().take().expect("it was looked at meanwhile");
    assert_eq!((shown, len), (Ok(b"on its way".to_vec()), offset(chunk) + 10));
}

/// Its replica is not what the chain holds by now, and it may not know that.
#[test]
fn a_server_without_its_part_or_its_lease_answers_nothing_about_now() {
    let of_three: &[&[u32]] = &[&[1, 2, 3], &[3], &[3, 1, 2]];
    for knows in [false, true] {
        let world = spread(106);
        world.share_chains(&[&[1, 2, 3], &[3, 2], &[3, 1, 2]]);
        let mut client = Client::new(&world);
        let (_, capability, chunk) = file_elsewhere(&mut client);
        client.write_at(THREE, &capability, offset(chunk), b"old").unwrap();
        assert_eq!(len_at(&mut client, ONE, View::NOW), offset(chunk) + 3);
        match knows {
            true => world.share_chains(of_three),
            false => {
                world.engine(TWO).renew_lease(MonoTime(0));
                world.share_chains_at(&[ONE, THREE], of_three);
            }
        }
        client.write_at(THREE, &capability, offset(chunk), b"newer").unwrap();
        assert_eq!(len_at(&mut client, ONE, View::NOW), offset(chunk) + 5, "knows that it has left: {knows}");
    }
}

/// The chain continues without a record that this server has of it from when it was a member.
#[test]
fn records_of_a_chain_that_has_left_this_server_count_for_no_length() {
    let world = spread(107);
    world.share_chains(&[&[1, 2, 3], &[2, 1, 3], &[3, 1, 2]]);
    let mut client = Client::new(&world);
    let (inode, capability) = file(&mut client, "f");
    let near = chunk_headed_by(inode, ONE, 0);
    let far = chunk_headed_by(inode, TWO, near + 1);
    client.grant(inode, near, 1);
    client.grant(inode, far, 1);
    client.write_at(ONE, &capability, offset(near), b"kept").unwrap();
    world.deafen(ONE, THREE);
    world.deafen(TWO, THREE);
    let (weak, mut left) = (Arc::downgrade(&world), 20);
    world.set_hook(Some(Box::new(move |_| {
        left -= 1;
        if left == 0
            && let Some(world) = weak.upgrade()
        {
            world.share_chains(&[&[1, 2, 3], &[3], &[3, 1, 2]]);
            world.heal();
        }
    })));
    let lost = client.write_at(TWO, &capability, offset(far), b"never kept");
    world.set_hook(None);
    assert!(lost.is_err(), "nobody acknowledges it: {lost:?}");
    world.run(300);
    let end = offset(near) + 4;
    assert_eq!(len_at(&mut client, ONE, View::NOW), end);
    let then = View { at: Some(world.time(ONE).wall().0 - (100_000 << 12)), user_at: None };
    assert_eq!(len_at(&mut client, ONE, then), end, "when it had left");
    assert_eq!(client.append_at(ONE, &capability, end, b"more").unwrap().offset, end, "of which it places the end");
    settle(&mut client, inode);
    assert_eq!(client.len("f"), end + 4, "settled");
}

/// The server that is asked first knows that it left, and has the bytes of then.
#[test]
fn who_has_left_tells_nothing_of_an_instant_after_that() {
    let world = spread(111);
    let mut client = Client::new(&world);
    let (_, capability, chunk) = file_elsewhere(&mut client);
    client.write_at(TWO, &capability, offset(chunk), b"old").unwrap();
    world.run(100);
    world.share_chains(&[&[1, 2, 3], &[3], &[3, 1, 2]]);
    client.write_at(THREE, &capability, offset(chunk), b"newer").unwrap();
    world.run(100);
    let then = View { at: Some(world.engine(ONE).planes.newest().0), user_at: None };
    assert_eq!(len_at(&mut client, ONE, then), offset(chunk) + 5);
}

/// An answer about an instant is what was then, and stays so: nothing is stamped below it any more, however slow a
/// clock.
#[test]
fn what_is_asked_about_an_instant_is_told_of_it_and_closed() {
    let world = spread(112);
    let mut client = Client::new(&world);
    let (_, capability, chunk) = file_elsewhere(&mut client);
    client.write_at(TWO, &capability, offset(chunk), b"one").unwrap();
    world.run(50);
    let first = View { at: Some(world.engine(ONE).planes.newest().0), user_at: None };
    world.run(50);
    client.write_at(TWO, &capability, offset(chunk), b"longer").unwrap();
    assert_eq!(len_at(&mut client, ONE, first), offset(chunk) + 3, "as it was");
    world.time(ONE).jump_wall_us(200_000);
    let ahead = View { at: Some(world.time(ONE).wall().0), user_at: None };
    assert_eq!(len_at(&mut client, ONE, ahead), offset(chunk) + 6);
    client.write_at(TWO, &capability, offset(chunk), b"longer still").unwrap();
    for node in [ONE, TWO, THREE] {
        assert_eq!(len_at(&mut client, node, ahead), offset(chunk) + 6, "at {node}");
    }
    assert_eq!(client.len("f"), offset(chunk) + 12);
}

/// It was removed and does not know: its flush covers none of the acknowledged records.
#[test]
fn who_has_no_lease_flushes_for_nobody() {
    for late in [0, 17, 34] {
        let world = spread(113);
        let mut client = Client::new(&world);
        let (inode, capability, chunk) = file_elsewhere(&mut client);
        world.run(late);
        world.engine(TWO).renew_lease(MonoTime(0));
        world.share_chains_at(&[ONE, THREE], &[&[1, 2, 3], &[3], &[3, 1, 2]]);
        client.write_at(THREE, &capability, offset(chunk), b"synced").unwrap();
        client.ask_at(ONE, Request::Sync(Sync { inode: inode.0 }), &[], 0).0.unwrap();
        world.crash(THREE, CrashKind::Power);
        world.start(THREE).unwrap();
        world.share_chains(&[&[1, 2], &[3], &[1, 2]]);
        world.run(300);
        assert_eq!(
            client.read_from(THREE, &capability, offset(chunk), 6),
            Ok(b"synced".to_vec()),
            "after {late} steps"
        );
    }
}

/// The leader's clock is ahead. A server that knows that it left cannot ensure that the head stamps above.
#[test]
fn who_has_left_orders_nothing() {
    let world = spread(114);
    let mut client = Client::new(&world);
    let (_, capability, chunk) = file_elsewhere(&mut client);
    client.write_at(TWO, &capability, offset(chunk), b"before").unwrap();
    world.run(50);
    world.share_chains(&[&[1, 2, 3], &[3], &[3, 1, 2]]);
    world.time(ONE).jump_wall_us(300_000);
    world.run(50);
    client.txn(truncate(0)).unwrap();
    client.write_at(THREE, &capability, offset(chunk), b"after").unwrap();
    assert_eq!(client.len("f"), offset(chunk) + 5);
    assert_eq!(client.read_from(THREE, &capability, offset(chunk), 10).unwrap(), b"after");
}

/// Every chain continues without the first server.
const WITHOUT_ONE: &[&[u32]] = &[&[2, 3], &[2, 3], &[3, 2]];

/// The first server gets a lease, with configurations without it, as soon as it asks others about lengths.
fn leaves_while_it_asks(world: &Arc<World>) {
    let asked = Arc::new(AtomicBool::new(false));
    let asks = asked.clone();
    world.steal(move |_, told| {
        let is_about_length =
            matches!(told, ServerMessage::Question(PeerRequest { about: Some(PeerRequestKind::Reach(_)), .. }));
        asks.fetch_or(is_about_length, Ordering::Relaxed);
        false
    });
    let weak = Arc::downgrade(world);
    world.set_hook(Some(Box::new(move |_| {
        if asked.swap(false, Ordering::Relaxed)
            && let Some(world) = weak.upgrade()
        {
            world.share_chains_at(&[ONE], WITHOUT_ONE);
        }
    })));
}

/// Its lease had ended, and it gets another while it asks another server about the rest: with a configuration without
/// it.
#[test]
fn who_hears_that_it_has_left_while_it_looks_does_not_say_what_it_saw() {
    let (world, mut client, _, capability, start) = longer_than_the_leader_knows(116);
    leaves_while_it_asks(&world);
    let read = client.read_from(ONE, &capability, start + 4, 5);
    world.set_hook(None);
    let told = read.map_err(|fault| fault.reason);
    assert_eq!(told, Err(Reason::Unavailable), "it was shown what is not so any more, or was never asked");
    assert_eq!(client.read_from(TWO, &capability, start + 4, 5), Ok(b" more".to_vec()));
}

/// A file with bytes at the first server, which leads, and their place. The chain has continued without it since, and
/// the file ends later than it knows.
fn longer_than_the_leader_knows(seed: u64) -> (Arc<World>, Client, InodeId, Vec<u8>, u64) {
    let world = spread(seed);
    let mut client = Client::new(&world);
    let (inode, capability) = file(&mut client, "f");
    let far = chunk_headed_by(inode, TWO, 0);
    let near = chunk_headed_by(inode, ONE, far + 1);
    client.grant(inode, far, 1);
    client.grant(inode, near, 1);
    client.write_at(ONE, &capability, offset(near), b"some").unwrap();
    world.run(100);
    world.engine(ONE).renew_lease(MonoTime(0));
    world.share_chains_at(&[TWO, THREE], WITHOUT_ONE);
    client.write_at(TWO, &capability, offset(near), b"some more").unwrap();
    (world, client, inode, capability, offset(near))
}

/// The size it would settle omits later acknowledged writes, for ever: the grant by which they count ends with it.
#[test]
fn a_leader_without_its_lease_settles_no_length_of_what_it_has() {
    let (world, mut client, inode, _, start) = longer_than_the_leader_knows(118);
    let settle_it = || Op::Settle(Settle { inode: inode.0, ..Settle::default() });
    let refused = client.txn_once(ONE, settle_it()).map(drop).map_err(|fault| fault.reason);
    assert_eq!(refused, Err(Reason::Unavailable));
    let close = Op::CloseSession(CloseSession::default());
    let refused = client.twin(client.seq()).txn_once(ONE, close).map(drop).map_err(|fault| fault.reason);
    assert_eq!(refused, Err(Reason::Unavailable), "a session is not ended with it either");
    world.share_chains_at(&[ONE], WITHOUT_ONE);
    client.txn_again(settle_it()).unwrap();
    assert_eq!(client.len("f"), start + 9);
}

#[test]
fn who_hears_that_it_has_left_while_it_measures_settles_nothing_of_what_it_saw() {
    let (world, mut client, inode, _, start) = longer_than_the_leader_knows(119);
    leaves_while_it_asks(&world);
    let settle_it = || Op::Settle(Settle { inode: inode.0, ..Settle::default() });
    let refused = client.txn_once(ONE, settle_it());
    world.set_hook(None);
    assert!(refused.is_err_and(|fault| fault.kind() == ErrorKind::Unavailable), "it was settled, or nobody was asked");
    client.txn_again(settle_it()).unwrap();
    assert_eq!(client.len("f"), start + 9);
}

/// Its head has the record; the tail, which is asked, does not: the size settled meanwhile covers only earlier stamps.
#[test]
fn a_settled_length_forgets_no_record_on_its_way_elsewhere() {
    let world = spread(115);
    // What the first heads gets to the third without the second.
    world.share_chains(&[&[1, 3], &[2, 3], &[3, 1]]);
    let (mut one, mut other) = (Client::new(&world), Client::new(&world));
    let (inode, capability) = file(&mut one, "f");
    let near = chunk_headed_by(inode, ONE, 0);
    let far = chunk_headed_by(inode, TWO, near + 1);
    let (_, others) = other.open("f");
    one.grant(inode, near, 1);
    other.grant(inode, far, 1);
    world.time(ONE).jump_wall_us(200_000);
    world.run(100);
    world.deafen(TWO, THREE);
    let (weak, mut client) = (Arc::downgrade(&world), Some(one));
    let settled = Arc::new(Mutex::new(None));
    let (to, mut left) = (settled.clone(), 3);
    world.set_hook(Some(Box::new(move |_| {
        left -= 1;
        if left == 0
            && let (Some(world), Some(mut one)) = (weak.upgrade(), client.take())
        {
            let wrote = one.write_at(ONE, &capability, offset(near), b"near");
            let done = one.txn_once(ONE, Op::Settle(Settle { inode: inode.0, ..Settle::default() }));
            world.heal();
            *to.lock().unwrap() = Some((one, wrote, done.map(drop)));
        }
    })));
    let wrote = other.write_at(TWO, &others, offset(far), b"far");
    world.set_hook(None);
    let (mut one, near_wrote, done) = settled.lock().unwrap().take().expect("it was settled meanwhile");
    assert_eq!((near_wrote, done), (Ok(()), Ok(())));
    wrote.unwrap();
    assert_eq!(one.len("f"), offset(far) + 3);
    other.txn(Op::Settle(Settle { inode: inode.0, ..Settle::default() })).unwrap();
    assert_eq!(one.len("f"), offset(far) + 3, "settled");
}
