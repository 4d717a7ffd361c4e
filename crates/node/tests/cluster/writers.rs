//! Writers at several heads, and decisions of other servers about their files.

use std::sync::Arc;

use frieze_base::{ChainEpoch, ChainId, ChunkId, InodeId, NodeId, Reason};
use frieze_cluster::{ChainStep, Decision, LostInterval, NodeDevice, NodeInfo, NodeStep};
use frieze_disk::CrashKind;
use frieze_testkit::cluster::{FailoverClient, TestCluster, make_op};
use frieze_wire::edit::CopyRange;
use frieze_wire::message::{Punch, Reply, Request, View};
use frieze_wire::peer::ServerMessage;
use frieze_wire::txn::{CloseSession, MakeKind, Op, SetAttr, Settle, Target};

use crate::{ONE, THREE, TWO};

/// Bytes of a chunk in these tests.
pub(crate) const CHUNK: u64 = 64 << 10;

/// Three servers, of which the first leads, and three chains with all of them, each headed by another.
pub(crate) fn three(seed: u64) -> Arc<TestCluster> {
    let cluster = TestCluster::of(seed, 3);
    cluster.set_chain_members(&[&[1, 2, 3], &[2, 3, 1], &[3, 1, 2]]);
    cluster.until("node 1 leads", || cluster.leader() == Some(ONE));
    cluster
}

/// Head of a chunk.
pub(crate) fn head(inode: InodeId, index: u32) -> NodeId {
    NodeId(ChunkId { inode, index }.chain(3).0 + 1)
}

/// The first chunk of a file but its beginning that this node heads.
fn headed_by(inode: InodeId, node: NodeId) -> u32 {
    (1..64).find(|index| head(inode, *index) == node).expect("chunks are spread over all chains")
}

pub(crate) fn file(client: &mut FailoverClient, path: &str) -> (InodeId, Vec<u8>) {
    client.txn(make_op(path, MakeKind::File(true))).unwrap();
    client.open(path)
}

fn truncate(path: &str, len: u64) -> Op {
    Op::SetAttr(SetAttr { target: Target::path(path), size: Some(len), ..SetAttr::default() })
}

pub(crate) fn offset(chunk: u32) -> u64 {
    u64::from(chunk) * CHUNK
}

/// The clock of the leader is ahead of that of a head which receives nothing from the leader.
#[test]
fn a_truncate_is_answered_only_when_every_head_writes_above_it() {
    let cluster = three(11);
    let mut client = FailoverClient::new(&cluster);
    let (inode, capability) = file(&mut client, "f");
    let chunk = headed_by(inode, TWO);
    client.grant(inode, chunk, 1);
    client.write_at(TWO, &capability, offset(chunk), b"before").unwrap();
    cluster.time(ONE).jump_wall_us(300_000);
    cluster.run(50);
    cluster.cut_link(ONE, TWO);
    // A writer of its own, which knows nothing of the truncate but that it was answered.
    let answered = client.txn_once(ONE, truncate("f", 0));
    if let Err(fault) = &answered {
        assert_eq!(fault.reason, Reason::Unavailable, "{fault}");
        cluster.heal();
        client.txn_again(truncate("f", 0)).unwrap();
    }
    client.write_at(TWO, &capability, offset(chunk), b"after").unwrap();
    cluster.heal();
    assert_eq!(client.len("f"), offset(chunk) + 5, "{answered:?}");
    for node in [ONE, TWO, THREE] {
        cluster.run(100);
        let found = client.read_from(node, &capability, offset(chunk), 10).unwrap();
        assert_eq!(found, b"after", "node {node}");
    }
    assert!(answered.is_err(), "a head that was not heard cannot have known");
}

#[test]
fn what_was_acknowledged_before_a_truncate_is_hidden_by_it() {
    for seed in 20..26 {
        let cluster = three(seed);
        let mut client = FailoverClient::new(&cluster);
        let (inode, capability) = file(&mut client, "f");
        let chunk = headed_by(inode, TWO);
        client.grant(inode, chunk, 1);
        // The head's clock is ahead.
        cluster.time(TWO).jump_wall_us(50_000 * (seed as i64 - 20));
        client.write_at(TWO, &capability, offset(chunk), b"before").unwrap();
        client.txn(truncate("f", 1)).unwrap();
        assert_eq!(client.len("f"), 1);
        client.txn(truncate("f", offset(chunk) + 100)).unwrap();
        let found = client.read_from(ONE, &capability, offset(chunk), 6).unwrap();
        assert_eq!(found, [0; 6], "seed {seed}");
    }
}

/// The head of the chunk where the file ends receives everything but what was ordered.
#[test]
fn an_append_after_a_truncate_goes_to_the_end_that_it_left() {
    let cluster = three(31);
    let mut client = FailoverClient::new(&cluster);
    // The creator of a file may write its first chunk.
    let made = (0..64).map(|number| format!("f{number}"));
    let mut made = made.map(|path| (file(&mut client, &path), path));
    let ((_, capability), path) = made.find(|((inode, _), _)| head(*inode, 0) == TWO).unwrap();
    drop(made);
    let path = path.as_str();
    client.write_at(TWO, &capability, 0, b"0123456789").unwrap();
    // Its first append under a configuration looks at everything that was ordered before.
    client.append_at(TWO, &capability, 0, b"abc").unwrap();
    cluster.cut_log(ONE, TWO);
    let answered = client.txn_once(ONE, truncate(path, 4));
    if answered.is_err() {
        cluster.heal();
        client.txn_again(truncate(path, 4)).unwrap();
        cluster.cut_log(ONE, TWO);
    }
    let reply = client.append_at(TWO, &capability, 0, b"xyz").unwrap();
    assert_eq!(reply.offset, 4);
    cluster.heal();
    assert_eq!(client.read_from(THREE, &capability, 0, 100).unwrap(), b"0123xyz");
    // A new head has received nothing.
    cluster.cut_log(ONE, THREE);
    let answered = client.txn_once(ONE, truncate(path, 2));
    assert_eq!(answered.map(drop), Ok(()), "it heads no chunk of the file");
    cluster.set_chain_members(&[&[3, 1, 2], &[3, 1, 2], &[3, 1, 2]]);
    let answered = client.append_at(THREE, &capability, 0, b"-");
    assert_eq!(
        answered.map_err(|fault| fault.reason),
        Err(Reason::Unavailable),
        "it does not know where the file ends"
    );
    cluster.heal();
    cluster.run(300);
    assert_eq!(client.append_at(THREE, &capability, 0, b"-").unwrap().offset, 2);
}

/// Records with the stamps of two clocks, one of them on its way when the length is settled.
#[test]
fn a_settled_length_forgets_no_write_on_its_way_from_another_head() {
    for seed in [41, 42] {
        let cluster = three(seed);
        // Node 3 receives nothing of what node 2 heads.
        cluster.set_chain_members(&[&[1, 2, 3], &[2, 1], &[3, 1, 2]]);
        let (mut one, mut other) = (FailoverClient::new(&cluster), FailoverClient::new(&cluster));
        let (inode, capability) = file(&mut one, "f");
        let (near, far) = (headed_by(inode, TWO), headed_by(inode, THREE) + 64);
        let far = (far..far + 64).find(|index| head(inode, *index) == THREE).unwrap();
        let (_, others) = other.open("f");
        one.grant(inode, near, 1);
        other.grant(inode, far, 1);
        cluster.time(TWO).jump_wall_us(200_000);
        // Stamped by the slow clock. Only then comes what is stamped by the fast one, and the file is settled.
        cluster.run(100);
        cluster.cut_link(THREE, ONE);
        let (weak, mut client) = (Arc::downgrade(&cluster), Some(one));
        let settled = Arc::new(std::sync::Mutex::new(None));
        let to = settled.clone();
        let mut left = 3;
        cluster.set_step_hook(Some(Box::new(move |_| {
            left -= 1;
            if left == 0
                && let (Some(cluster), Some(mut one)) = (weak.upgrade(), client.take())
            {
                one.write_at(TWO, &capability, offset(near), b"near").unwrap();
                let done = one.txn(Op::Settle(Settle { inode: inode.0, ..Settle::default() }));
                cluster.heal();
                *to.lock().unwrap() = Some((one, done));
            }
        })));
        other.write_at(THREE, &others, offset(far), b"far").unwrap();
        cluster.set_step_hook(None);
        let (mut one, done) = settled.lock().unwrap().take().expect("it was settled meanwhile");
        done.unwrap();
        assert_eq!(one.len("f"), offset(far) + 3, "seed {seed}");
        other.txn(Op::Settle(Settle { inode: inode.0, ..Settle::default() })).unwrap();
        assert_eq!(one.len("f"), offset(far) + 3, "seed {seed}: settled");
    }
}

/// The tail of one chain is cut off, and a write is under way there.
#[test]
fn an_open_waits_only_for_the_chains_of_the_writers_of_the_file() {
    let cluster = three(55);
    cluster.set_chain_members(&[&[1, 2, 3], &[2, 1, 3], &[1, 2, 3]]);
    let (mut writer, mut reader) = (FailoverClient::new(&cluster), FailoverClient::new(&cluster));
    let (busy, capability) = file(&mut writer, "busy");
    let chunk = headed_by(busy, TWO);
    writer.grant(busy, chunk, 1);
    // The creator of a file may write its first chunk.
    let made = (0..64).map(|number| format!("f{number}"));
    let mut made = made.map(|path| (file(&mut writer, &path), path));
    let ((_, other), path) = made.find(|((inode, _), _)| head(*inode, 0) != TWO).unwrap();
    drop(made);
    writer.write_at(ONE, &other, 0, b"quiet").unwrap();
    reader.open_session();
    cluster.cut_link(THREE, ONE);
    let (weak, told, mut left) = (Arc::downgrade(&cluster), Arc::new(std::sync::Mutex::new(Vec::new())), 20);
    let to = told.clone();
    cluster.set_step_hook(Some(Box::new(move |_| {
        left -= 1;
        if left == 0
            && let Some(cluster) = weak.upgrade()
        {
            let size = |answer: Result<Reply, frieze_base::Fault>| match answer {
                Ok(Reply::Stat(reply)) => Ok(reply.attr.size),
                Ok(other) => panic!("{other:?}"),
                Err(fault) => Err(fault.reason),
            };
            let mut to = to.lock().unwrap();
            to.push(size(reader.stat_at(ONE, &path, View::NOW)));
            to.push(Ok(reader.open(&path).0.0));
            to.push(size(reader.stat_at(ONE, "busy", View::NOW)));
            cluster.heal();
            to.push(size(reader.stat_at(ONE, "busy", View::NOW)));
        }
    })));
    writer.write_at(TWO, &capability, offset(chunk), b"on its way").unwrap();
    cluster.set_step_hook(None);
    let told = told.lock().unwrap();
    assert_eq!(told[0], Ok(5), "nobody writes to it through that chain");
    assert!(told[1].is_ok());
    assert_eq!(told[2], Err(Reason::Unavailable), "what is committed is not known here");
    assert_eq!(told[3], Ok(offset(chunk) + 10));
}

#[test]
fn an_append_reaches_over_the_end_of_its_chunk_only_where_the_file_says_so() {
    let cluster = three(51);
    let mut client = FailoverClient::new(&cluster);
    let (inode, capability) = file(&mut client, "f");
    client.grant(inode, 0, 3);
    let bytes: Vec<u8> = (0..CHUNK + 1000).map(|at| (at % 251) as u8).collect();
    let fault = client.append_at(head(inode, 0), &capability, 0, &bytes).unwrap_err();
    assert_eq!((fault.reason, client.len("f")), (Reason::Busy, 0), "{fault}");
    client.grant_append(inode, 0, 1);
    let first = client.append_at(head(inode, 0), &capability, 0, &bytes).unwrap();
    assert_eq!(first.offset, 0);
    assert_eq!(client.len("f"), CHUNK + 1000);
    assert_eq!(client.read_from(TWO, &capability, CHUNK - 10, 2000).unwrap(), bytes[CHUNK as usize - 10..]);
    // Up to the last byte that may be appended at once, over many chunks.
    let wide: Vec<u8> = (0..4u64 << 20).map(|at| (at % 241) as u8).collect();
    let next = client.append_at(head(inode, 1), &capability, CHUNK + 1000, &wide).unwrap();
    assert_eq!(next.offset, CHUNK + 1000);
    for node in [ONE, TWO, THREE] {
        let found = client.read_from(node, &capability, CHUNK + 1000, 4 << 20).unwrap();
        assert!(found == wide, "node {node}");
        let last = client.read_from(node, &capability, CHUNK + 1000 + (4 << 20) - 7, 100).unwrap();
        assert_eq!(last, wide[wide.len() - 7..], "node {node}");
    }
}

/// What was refused is asked under another number: a double of it that comes late is not written as well.
#[test]
fn a_double_of_an_append_that_was_refused_comes_to_nothing() {
    let cluster = three(52);
    let mut client = FailoverClient::new(&cluster);
    let (inode, capability) = file(&mut client, "f");
    let (head, other) = (head(inode, 0), head(inode, 1));
    assert_ne!(head, other);
    client.grant(inode, 0, 3);
    // It reaches over the end of its chunk, which the file does not say yet.
    let bytes = vec![7; CHUNK as usize + 1000];
    let fault = client.append_at(head, &capability, 0, &bytes).unwrap_err();
    assert_eq!(fault.reason, Reason::Busy, "{fault}");
    // A server that is not the head of the chain cannot know whether it was written.
    let fault = client.append_again(other, &capability, 0, &bytes).unwrap_err();
    assert_eq!(fault.reason, Reason::Elsewhere, "{fault}");
    let mut double = client.twin(client.seq());
    client.grant_append(inode, 0, 1);
    let fault = double.append_again(head, &capability, 0, &bytes).unwrap_err();
    assert_eq!((fault.reason, client.len("f")), (Reason::Busy, 0), "{fault}");
    assert_eq!(client.append_at(head, &capability, 0, &bytes).unwrap().offset, 0);
    assert_eq!(client.len("f"), CHUNK + 1000);
}

/// What a session has acknowledged is remembered no longer: it is refused as often as it asks.
#[test]
fn a_session_whose_appends_are_refused_again_and_again_gets_every_refusal() {
    let cluster = three(53);
    let mut client = FailoverClient::new(&cluster);
    let (inode, capability) = file(&mut client, "f");
    let twin = &mut FailoverClient::new(&cluster);
    let (_, mine) = twin.open("f");
    client.grant(inode, 0, 3);
    for _ in 0..200 {
        let fault = twin.append_at(head(inode, 0), &mine, 0, b"not mine").unwrap_err();
        assert_eq!(fault.reason, Reason::Busy, "{fault}");
    }
    assert_eq!(client.append_at(head(inode, 0), &capability, 0, b"mine").unwrap().offset, 0);
}

/// The tail has it; the head does not know so and is lost: a retry at the next head is the same append.
#[test]
fn an_append_that_is_sent_again_to_the_next_head_is_one() {
    let cluster = three(61);
    let mut client = FailoverClient::new(&cluster);
    let (inode, capability) = file(&mut client, "f");
    client.grant(inode, 0, 2);
    let old = head(inode, 0);
    let next = NodeId(old.0 % 3 + 1);
    let full = vec![7; CHUNK as usize - 10];
    client.append_at(old, &capability, 0, &full).unwrap();
    // It fills the chunk to the last byte.
    cluster.cut_link(next, old);
    let weak = Arc::downgrade(&cluster);
    let (mut steps, old_members) = (0, [old.0, next.0, next.0 % 3 + 1]);
    cluster.set_step_hook(Some(Box::new(move |_| {
        steps += 1;
        if steps == 20
            && let Some(cluster) = weak.upgrade()
        {
            let others = &old_members[1..];
            cluster.set_chain_members(&[others, others, others]);
            cluster.cut_link(NodeId(others[1]), NodeId(others[0]));
        }
    })));
    let lost = client.append_at(old, &capability, CHUNK - 10, b"0123456789");
    assert!(lost.is_err(), "{lost:?}");
    // The next head has the record, and does not know yet that it is committed: the file ends where that ends.
    let weak = Arc::downgrade(&cluster);
    let mut steps = 0;
    cluster.set_step_hook(Some(Box::new(move |_| {
        steps += 1;
        if steps == 20
            && let Some(cluster) = weak.upgrade()
        {
            cluster.heal();
        }
    })));
    let again = client.append_again(next, &capability, CHUNK - 10, b"0123456789").unwrap();
    cluster.set_step_hook(None);
    assert_eq!(again.offset, CHUNK - 10);
    assert_eq!(client.append_again(next, &capability, CHUNK - 10, b"0123456789").unwrap(), again);
    assert_eq!(client.len("f"), CHUNK);
}

/// Its client reaches the head, but not the leader, for which it counts as lost.
#[test]
fn a_session_that_is_ended_loses_nothing_that_a_head_acknowledged() {
    let cluster = three(71);
    let mut client = FailoverClient::new(&cluster);
    let (inode, capability) = file(&mut client, "f");
    let chunk = headed_by(inode, TWO);
    client.grant(inode, chunk, 2);
    client.write_at(TWO, &capability, offset(chunk), b"1").unwrap();
    cluster.cut_log(ONE, TWO);
    // Longer than the leader waits for a session without a connection.
    let mut written = 1;
    for _ in 0..60 {
        cluster.run(500);
        let byte = [b'1'; 1];
        if client.write_at(TWO, &capability, offset(chunk) + written, &byte).is_ok() {
            written += 1;
        }
    }
    assert!(written > 50, "{written}");
    cluster.heal();
    cluster.run(6_000);
    let late = client.write_at(TWO, &capability, offset(chunk) + written, b"2").unwrap_err();
    assert_eq!(late.reason, Reason::UnknownSession, "{late}");
    let mut reader = FailoverClient::new(&cluster);
    reader.open_session();
    assert_eq!(reader.len("f"), offset(chunk) + written);
}

/// Its client reaches a server which becomes head and does not know that the session has ended: the size of its file
/// was settled without what it would write now.
#[test]
fn a_session_that_has_ended_writes_nothing_at_a_head_that_does_not_know_of_it() {
    let cluster = three(74);
    let mut client = FailoverClient::new(&cluster);
    let (inode, capability) = file(&mut client, "f");
    let chunk = headed_by(inode, TWO);
    client.grant(inode, chunk, 2);
    client.write_at(TWO, &capability, offset(chunk), b"12").unwrap();
    // It knows of the right, and looks under this configuration.
    let elsewhere = client.write_at(THREE, &capability, offset(chunk), b"12").unwrap_err();
    assert_eq!(elsewhere.reason, Reason::Elsewhere, "{elsewhere}");
    cluster.cut_log(ONE, THREE);
    client.txn(Op::CloseSession(CloseSession::default())).unwrap();
    let mut reader = FailoverClient::new(&cluster);
    reader.open_session();
    assert_eq!(reader.len("f"), offset(chunk) + 2);
    cluster.set_chain_members(&[&[3, 1, 2], &[3, 1, 2], &[3, 1, 2]]);
    let late = |client: &mut FailoverClient| {
        let written = client.write_at(THREE, &capability, offset(chunk), b"34567").map_err(|fault| fault.reason);
        let hole = Punch { capability: capability.clone(), offset: offset(chunk), len: 1, ..Punch::default() };
        let punched = client.change_once(THREE, &Request::Punch(hole)).map_err(|fault| fault.reason);
        [written, punched.map(drop)]
    };
    assert_eq!(late(&mut client), [Err(Reason::Unavailable); 2], "it does not know who may write");
    cluster.heal();
    cluster.run(300);
    assert_eq!(late(&mut client), [Err(Reason::UnknownSession); 2]);
    assert_eq!(reader.len("f"), offset(chunk) + 2);
    let (_, capability) = reader.open("f");
    assert_eq!(reader.read_from(THREE, &capability, offset(chunk), 10).unwrap(), b"12");
}

/// It was head already when the write arrived, or becomes head while it looks: it does not know what was ordered in
/// between.
#[test]
fn what_a_server_looked_at_under_another_configuration_does_not_count() {
    let cluster = three(75);
    let mut client = FailoverClient::new(&cluster);
    let (inode, capability) = file(&mut client, "f");
    let chunk = headed_by(inode, TWO);
    client.grant(inode, chunk, 2);
    let weak = Arc::downgrade(&cluster);
    let mut is_shared = false;
    cluster.set_step_hook(Some(Box::new(move |_| {
        if !std::mem::replace(&mut is_shared, true)
            && let Some(cluster) = weak.upgrade()
        {
            cluster.set_chain_members(&[&[3, 1, 2], &[3, 1, 2], &[3, 1, 2]]);
        }
    })));
    let fault = client.write_at(THREE, &capability, offset(chunk), b"1").unwrap_err();
    cluster.set_step_hook(None);
    assert_eq!(fault.reason, Reason::Unavailable, "{fault}");
    assert!(fault.message.contains("have just changed"), "{fault}");
    client.write_at(THREE, &capability, offset(chunk), b"1").unwrap();
}

/// Its client reaches the head, and the head does not know that the session may write no more.
#[test]
fn what_a_head_acknowledges_to_a_session_that_is_being_ended_counts_at_once() {
    let cluster = three(72);
    let mut client = FailoverClient::new(&cluster);
    let (inode, capability) = file(&mut client, "f");
    let chunk = headed_by(inode, TWO);
    client.grant(inode, chunk, 2);
    client.write_at(TWO, &capability, offset(chunk), b"1").unwrap();
    cluster.cut_log(ONE, TWO);
    let mut reader = FailoverClient::new(&cluster);
    reader.open_session();
    let reading = reader.stay_at(ONE);
    for written in 1..60 {
        cluster.run(500);
        client.write_at(TWO, &capability, offset(chunk) + written, b"1").unwrap();
        assert_eq!(reader.len("f"), offset(chunk) + written + 1);
    }
    // It is back before all heads know.
    let staying = client.stay_at(ONE);
    cluster.heal();
    cluster.run(1_000);
    let refused = client.write_at(TWO, &capability, offset(chunk) + 60, b"1").unwrap_err();
    assert_eq!(refused.reason, Reason::Busy, "{refused}");
    client.grant(inode, chunk, 2);
    client.write_at(TWO, &capability, offset(chunk) + 60, b"1").unwrap();
    cluster.run(3_000);
    assert_eq!(reader.len("f"), offset(chunk) + 61);
    // It goes for good: what it wrote since it was back counts as well.
    cluster.server(ONE).disconnected(&staying);
    cluster.run(30_000);
    let late = client.write_at(TWO, &capability, offset(chunk) + 61, b"2").unwrap_err();
    assert_eq!(late.reason, Reason::UnknownSession, "{late}");
    assert_eq!(reader.len("f"), offset(chunk) + 61);
    drop(reading);
}

/// What another session has on its way dies with its head.
#[test]
fn a_session_that_is_ended_leaves_no_file_longer_than_what_is_committed() {
    let cluster = three(73);
    let (mut gone, mut other) = (FailoverClient::new(&cluster), FailoverClient::new(&cluster));
    let (inode, capability) = file(&mut gone, "f");
    let chunk = headed_by(inode, TWO);
    gone.grant(inode, chunk, 1);
    gone.write_at(TWO, &capability, offset(chunk), b"1").unwrap();
    let (_, others) = other.open("f");
    let staying = other.stay_at(ONE);
    let lost = (chunk + 1..).find(|index| head(inode, *index) == ONE).expect("chunks are spread over all chains");
    other.grant(inode, lost, 1);
    let mut written = 1;
    // Nearly as long as the leader waits.
    cluster.run(19_500);
    let stopped = loop {
        cluster.run(50);
        match gone.write_at(TWO, &capability, offset(chunk) + written, b"1") {
            Ok(()) => written += 1,
            Err(fault) => break fault,
        }
    };
    assert_eq!(stopped.reason, Reason::Busy, "{stopped}");
    // All heads know of it before the leader looks again.
    cluster.run(200);
    cluster.lose_if(move |_, told| matches!(told, ServerMessage::ChainRecord(record) if record.index == lost));
    other.begin_write_at(&staying, ONE, &others, offset(lost), b"lost");
    cluster.run(2_000);
    let late = gone.write_at(TWO, &capability, offset(chunk) + written, b"2").unwrap_err();
    assert_eq!(late.reason, Reason::UnknownSession, "{late}");
    cluster.crash(ONE, CrashKind::Power);
    cluster.set_chain_members(&[&[2, 3], &[2, 3], &[3, 2]]);
    assert_eq!(other.len("f"), offset(chunk) + written);
    drop(staying);
}

#[test]
fn what_servers_remember_of_sessions_ends_with_them() {
    let cluster = three(81);
    let mut last = None;
    for number in 0..30 {
        let mut client = FailoverClient::new(&cluster);
        let (inode, capability) = file(&mut client, &format!("f{number}"));
        let chunk = headed_by(inode, TWO);
        client.grant(inode, chunk, 1);
        client.write_at(TWO, &capability, offset(chunk), b"some").unwrap();
        client.txn(Op::CloseSession(CloseSession::default())).unwrap();
        last = Some((client, capability, chunk));
    }
    cluster.run(6_000);
    for (id, server) in cluster.alive() {
        assert_eq!(server.sessions_remembered(), 0, "node {id}");
    }
    // It comes late: it is not written again, nor anything else.
    let (mut client, capability, chunk) = last.unwrap();
    for node in [TWO, THREE, ONE] {
        let fault = client.write_again(node, &capability, offset(chunk), b"some").unwrap_err();
        assert!([Reason::UnknownSession, Reason::Elsewhere].contains(&fault.reason), "{fault}");
    }
    cluster.run(6_000);
    assert_eq!(cluster.server(TWO).sessions_remembered(), 0);
}

/// The other servers have what node 2 lost: node 2 reports the gap at no instant. A loss that the log knows every
/// server reports.
#[test]
fn a_gap_belongs_to_its_chain_and_every_server_reports_it() {
    let cluster = three(91);
    let mut client = FailoverClient::new(&cluster);
    let (inode, capability) = file(&mut client, "f");
    let chunk = headed_by(inode, TWO);
    client.grant(inode, chunk, 1);
    client.write_at(TWO, &capability, offset(chunk), b"some").unwrap();
    cluster.run(200);
    let at = cluster.time(ONE).wall();
    let before = frieze_hlc::Hlc(at.0 - (100_000 << 12));
    cluster.run(20);
    cluster.crash(TWO, CrashKind::Power);
    cluster.start(TWO).unwrap();
    cluster.set_chain_members(&[&[1, 3, 2], &[3, 1, 2], &[3, 1, 2]]);
    cluster.run(300);
    let mut incomplete = |instant: frieze_hlc::Hlc| {
        [ONE, TWO, THREE].map(|node| match client.stat_at(node, "f", View { at: Some(instant.0), user_at: None }) {
            Ok(Reply::Stat(reply)) => reply.answered.incomplete,
            other => panic!("node {node}: {other:?}"),
        })
    };
    assert_eq!(incomplete(at), [false; 3], "what it lacked the chain has");
    let device = NodeDevice { device: 0, capacity_bytes: 1 << 40, has_failed: false, is_full: false };
    let (name, site, address) = ("a".to_owned(), String::new(), "127.0.0.1:1".to_owned());
    let first = NodeInfo {
        name,
        site,
        machine: String::new(),
        address: address.clone(),
        token: 5,
        incarnation: 1,
        devices: vec![device.clone()],
    };
    let cluster_id = cluster.server(ONE).cluster();
    let epoch = ChainEpoch(1);
    let found = Decision::Found { cluster: cluster_id, replicas: 1, chain_count: 3, epoch, first, gaps: vec![] };
    let step = NodeStep::Return { incarnation: 2, address, devices: vec![device] };
    let returned = Decision::Node { node: ONE, revision: 1, step };
    let lost = Some(LostInterval { from: before.0, to: at.0 + 1 });
    let step = ChainStep::Resume { node: ONE, incarnation: 2, is_missing: false, lost };
    let resumed = Decision::Chain { chain: ChainId(1), revision: 1, step };
    let leader = cluster.leader().unwrap();
    cluster.server(leader).decide(cluster.status(leader).term, &[found, returned, resumed]);
    cluster.run(300);
    assert_eq!(incomplete(at), [true; 3]);
    assert_eq!(incomplete(before), [false; 3], "up to it nothing is missing");
}

/// A chain whose only member was declared dead continued from a stale copy: a read of it as it is now says that it may
/// lack something, through files that share it too, until it is written anew. Later writes lack nothing.
#[test]
fn a_read_of_now_says_what_a_chain_may_have_lost_for_good() {
    let cluster = three(92);
    let mut client = FailoverClient::new(&cluster);
    let (inode, capability) = file(&mut client, "f");
    let chunk = headed_by(inode, TWO);
    client.grant(inode, chunk, 2);
    client.write_at(TWO, &capability, offset(chunk), b"old!").unwrap();
    client.write_at(THREE, &capability, offset(chunk + 1), b"of another chain").unwrap();
    let (_, copy) = file(&mut client, "copy");
    let share = CopyRange {
        source: capability.clone(),
        source_offset: offset(chunk),
        target: copy.clone(),
        target_offset: 0,
        len: 4,
        also: Vec::new(),
    };
    client.change(&Request::CopyRange(share)).unwrap();
    cluster.run(200);
    let lacks = |client: &mut FailoverClient, offset: u64| {
        [ONE, TWO, THREE].map(|node| client.may_lack(node, &capability, offset, 4))
    };
    assert_eq!(lacks(&mut client, offset(chunk)), [false; 3]);
    go_on_from_a_copy_that_was_behind(&cluster, ChainId(1));
    assert_eq!(lacks(&mut client, offset(chunk)), [true; 3]);
    assert_eq!(lacks(&mut client, offset(chunk + 1)), [false; 3], "that is another chain's");
    assert!(client.may_lack(ONE, &copy, 0, 4), "what it shares was lost with it");
    // Above all clocks that may have stamped what is lost.
    cluster.run(700);
    client.write_at(TWO, &capability, offset(chunk), b"ne").unwrap();
    cluster.run(200);
    assert_eq!(lacks(&mut client, offset(chunk)), [true; 3], "two bytes of four are not new");
    client.write_at(TWO, &capability, offset(chunk), b"new!").unwrap();
    cluster.run(200);
    assert_eq!(lacks(&mut client, offset(chunk)), [false; 3]);
    assert!(client.may_lack(ONE, &copy, 0, 4), "it shows what was there before");
    let (young, capability) = file(&mut client, "young");
    let chunk = headed_by(young, TWO);
    client.grant(young, chunk, 1);
    assert!(!client.may_lack(TWO, &capability, offset(chunk), 4));
}

/// The log decides that a chain lost its only member and continued from a copy that had been removed from it.
fn go_on_from_a_copy_that_was_behind(cluster: &TestCluster, chain: ChainId) {
    let device = || NodeDevice { device: 0, capacity_bytes: 1 << 40, has_failed: false, is_full: false };
    let newcomer = |node: u32| NodeInfo {
        name: format!("n{node}"),
        site: String::new(),
        machine: String::new(),
        address: format!("127.0.0.1:{node}"),
        token: node.into(),
        incarnation: 1,
        devices: vec![device()],
    };
    let cluster_id = cluster.server(ONE).cluster();
    let (first, epoch) = (newcomer(1), ChainEpoch(1));
    let found = Decision::Found { cluster: cluster_id, replicas: 1, chain_count: 3, epoch, first, gaps: vec![] };
    let place = ChainStep::Place { node: TWO, device: 0 };
    let resume = ChainStep::Resume { node: TWO, incarnation: 1, is_missing: true, lost: None };
    let decisions = [
        found,
        Decision::Join(newcomer(2)),
        Decision::Chain { chain, revision: 1, step: place },
        Decision::Node { node: ONE, revision: 1, step: NodeStep::Offline },
        Decision::Node { node: ONE, revision: 2, step: NodeStep::DeclareDead { spares: false } },
        Decision::Chain { chain, revision: 2, step: resume },
    ];
    let leader = cluster.leader().unwrap();
    cluster.server(leader).decide(cluster.status(leader).term, &decisions);
    cluster.run(300);
}
