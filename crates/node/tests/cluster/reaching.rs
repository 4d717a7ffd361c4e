//! Appends over the ends of chunks that different servers head: each is one record.

use std::sync::{Arc, Mutex};

use frieze_base::{ErrorKind, Fault, InodeId, NodeId, Reason};
use frieze_disk::CrashKind;
use frieze_testkit::cluster::{FailoverClient, TestCluster, make_op};
use frieze_wire::edit::{CloneTree, CopyRange, Restore, Undo};
use frieze_wire::forget::Forget;
use frieze_wire::message::{Open, Punch, Read, Reply, Request, View};
use frieze_wire::txn::{MakeKind, Op, SetAttr, SetXattr, Settle, Target};

use crate::remote_heads::spread_over;
use crate::writers::{CHUNK, file, head, offset, three};
use crate::{ONE, THREE, TWO};

/// Three chains with two of three servers each: a server with a chunk lacks the one before it, or the one behind.
const PAIRS: [[u32; 2]; 3] = [[1, 2], [2, 3], [3, 1]];

fn pairs(seed: u64) -> Arc<TestCluster> {
    spread_over(seed, &[&PAIRS[0], &PAIRS[1], &PAIRS[2]])
}

/// Members of a chunk's chain.
fn members(inode: InodeId, index: u32) -> [NodeId; 2] {
    PAIRS[head(inode, index).0 as usize - 1].map(NodeId)
}

/// A file that ends `short` bytes before the end of chunk `chunk`, of which nothing else was written, to be appended
/// to.
fn file_up_to(client: &mut FailoverClient, path: &str, chunk: u32, short: u64) -> (InodeId, Vec<u8>, u64) {
    let (inode, capability) = file(client, path);
    client.grant_append(inode, chunk, 3);
    let end = offset(chunk + 1) - short;
    client.write_at(head(inode, chunk), &capability, end - 1, b"|").unwrap();
    (inode, capability, end)
}

fn settle(client: &mut FailoverClient, inode: InodeId) {
    client.txn(Op::Settle(Settle { inode: inode.0, ..Settle::default() })).unwrap();
}

fn truncate(path: &str, len: u64) -> Op {
    Op::SetAttr(SetAttr { target: Target::path(path), size: Some(len), ..SetAttr::default() })
}

fn len_at(client: &mut FailoverClient, node: NodeId, path: &str, view: View) -> u64 {
    match client.stat_at(node, path, view) {
        Ok(Reply::Stat(reply)) => reply.attr.size,
        other => panic!("node {node}: {other:?}"),
    }
}

fn view(at: u64) -> View {
    View { at: Some(at), user_at: None }
}

fn bytes(len: u64, seed: u64) -> Vec<u8> {
    (0..len).map(|at| ((at * 7 + seed * 31) % 251 + 1) as u8).collect()
}

#[test]
fn an_append_over_the_end_of_a_chunk_is_one_record_at_every_server() {
    for (seed, sides) in [(201, 3), (202, 2)] {
        for chunk in 0..3 {
            let cluster = if sides == 3 { three(seed) } else { pairs(seed) };
            let mut client = FailoverClient::new(&cluster);
            let (inode, capability, end) = file_up_to(&mut client, "f", chunk, 10);
            let before = client.len("f");
            assert_eq!(before, end);
            let appended = bytes(1000, 1);
            let first = client.append_at(head(inode, chunk), &capability, end, &appended).unwrap();
            assert_eq!(first.offset, end);
            // The answer was lost: the number is the same, and so is the result.
            assert_eq!(client.append_again(head(inode, chunk), &capability, end, &appended).unwrap(), first);
            // An append that expects the old end is refused, and nothing is written.
            let fault = client.append_at(head(inode, chunk), &capability, end, b"rest").unwrap_err();
            assert_eq!(fault.reason, Reason::Busy, "{fault}");
            assert_eq!(client.len("f"), end + 1000);
            let next = client.append_at(head(inode, chunk + 1), &capability, end + 1000, b"next").unwrap();
            assert_eq!(next.offset, end + 1000);
            let over = [&appended[10..], b"next"].concat();
            let readers = if sides == 3 { vec![ONE, TWO, THREE] } else { members(inode, chunk + 1).to_vec() };
            for settled in [false, true] {
                if settled {
                    settle(&mut client, inode);
                }
                assert_eq!(client.len("f"), end + 1004, "chunk {chunk}, settled: {settled}");
                for node in [ONE, TWO, THREE] {
                    cluster.run(100);
                    assert_eq!(len_at(&mut client, node, "f", view(first.stamp - 1)), end, "node {node}");
                    assert_eq!(len_at(&mut client, node, "f", view(first.stamp)), end + 1000, "node {node}");
                }
                for &node in &readers {
                    let read = client.read_from(node, &capability, offset(chunk + 1), 5000).unwrap();
                    assert_eq!(read, over, "chunk {chunk}, node {node}, settled: {settled}");
                    let part = client.read_from(node, &capability, offset(chunk + 1) + 985, 7).unwrap();
                    assert_eq!(part, over[985..992], "chunk {chunk}, node {node}, settled: {settled}");
                    let then = client.read_past(node, "f", first.stamp, offset(chunk + 1), 5000).unwrap();
                    assert_eq!(then, appended[10..], "chunk {chunk}, node {node}, settled: {settled}");
                    let then = client.read_past(node, "f", first.stamp - 1, offset(chunk + 1), 5000).unwrap();
                    assert!(then.is_empty(), "chunk {chunk}, node {node}, settled: {settled}");
                }
            }
        }
    }
}

#[test]
fn what_is_written_over_the_end_of_an_append_shows_and_what_was_cut_off_does_not() {
    for sides in [3, 2] {
        let cluster = if sides == 3 { three(211) } else { pairs(211) };
        let mut client = FailoverClient::new(&cluster);
        let (inode, capability, end) = file_up_to(&mut client, "f", 0, 10);
        let (here, next) = (head(inode, 0), head(inode, 1));
        let punch = |client: &mut FailoverClient, at: u64, len: u64| {
            let punch = Punch { capability: capability.clone(), offset: at, len, ..Punch::default() };
            match client.change_once(next, &Request::Punch(punch)) {
                Ok(Reply::Punch(reply)) => reply.stamp,
                other => panic!("{other:?}"),
            }
        };
        let check = |client: &mut FailoverClient, expect: &[u8], why: &str| {
            let readers = if sides == 3 { vec![ONE, TWO, THREE] } else { members(inode, 1).to_vec() };
            for node in readers {
                cluster.run(50);
                assert_eq!(client.read_from(node, &capability, CHUNK, 5000).unwrap(), expect, "{why}: node {node}");
            }
        };
        // A hole where there is nothing yet, by a clock that is ahead.
        cluster.time(next).jump_wall_us(200_000);
        punch(&mut client, CHUNK, 50);
        let first = bytes(1000, 1);
        client.append_at(here, &capability, end, &first).unwrap();
        let mut expect = first[10..].to_vec();
        check(&mut client, &expect, "appended behind a hole");
        client.write_at(next, &capability, CHUNK + 5, b"over").unwrap();
        assert_eq!(client.len("f"), end + 1000, "the record below reaches further");
        assert_eq!(client.append_at(next, &capability, end + 1000, b"!").unwrap().offset, end + 1000);
        expect.push(b'!');
        expect[5..9].copy_from_slice(b"over");
        check(&mut client, &expect, "written over");
        let held = punch(&mut client, CHUNK + 7, 20);
        expect[7..27].fill(0);
        check(&mut client, &expect, "punched");
        client.txn(truncate("f", CHUNK + 8)).unwrap();
        expect.truncate(8);
        check(&mut client, &expect, "cut within what reached over");
        client.txn(truncate("f", end + 5)).unwrap();
        let second = bytes(300, 2);
        assert_eq!(client.append_at(here, &capability, end + 5, &second).unwrap().offset, end + 5);
        check(&mut client, &second[5..], "cut, and appended again");
        let then = client.read_past(members(inode, 1)[0], "f", held, CHUNK, 5000).unwrap();
        assert_eq!(then.len(), 991, "before it was cut");
        assert_eq!(then[27..990], first[37..], "before it was cut");
    }
}

/// Appends until it succeeds: at the head of the chunk in which the file ends, under one number until it is refused.
fn append(
    cluster: &Arc<TestCluster>,
    client: &mut FailoverClient,
    heads: &dyn Fn(u32) -> NodeId,
    ask: (&[u8], &[u8]),
    again: bool,
) -> u64 {
    let (capability, bytes) = ask;
    let (mut end, mut again) = (client.end, again);
    for _ in 0..1000 {
        let node = heads((end / CHUNK) as u32);
        let answer = match again {
            true => client.append_again(node, capability, end, bytes),
            false => client.append_at(node, capability, end, bytes),
        };
        again = match answer {
            Ok(reply) => return reply.offset,
            Err(fault) if fault.reason == Reason::Busy => {
                end = client.len("f");
                client.end = end;
                false
            }
            Err(fault) if [ErrorKind::Unavailable, ErrorKind::StaleEpoch].contains(&fault.kind()) => true,
            Err(fault) => panic!("{fault}"),
        };
        cluster.run(10);
    }
    panic!("it is never appended")
}

/// What a file of appends holds: nothing of it twice, nothing of it in two places, and nothing between.
fn check_appended(found: &[u8], appended: &[(u64, Vec<u8>)], why: &str) {
    let mut rest = appended.to_vec();
    rest.sort_by_key(|(offset, _)| *offset);
    let mut expect = b"|".to_vec();
    rest.iter().for_each(|(_, bytes)| expect.extend_from_slice(bytes));
    assert_eq!(
        found.len(),
        expect.len(),
        "{why}: {:?}",
        rest.iter().map(|(at, bytes)| (at, bytes.len())).collect::<Vec<_>>()
    );
    assert!(found == expect, "{why}");
}

/// Two clients append over the end of a chunk at the same time, and any of the servers is lost after any number of
/// steps.
#[test]
fn two_appends_over_a_chunk_end_are_whole_and_run_once_after_the_loss_of_any_server() {
    let (mut were_lost, mut crossed) = (0, 0);
    for lost in [ONE, TWO, THREE] {
        for after in 0..20u64 {
            let cluster = three(300 + 40 * u64::from(lost.0) + after);
            let (mut one, mut other) = (FailoverClient::new(&cluster), FailoverClient::new(&cluster));
            let (inode, capability, end) = file_up_to(&mut one, "f", 0, 150);
            let (_, theirs) = other.open("f");
            other.grant_append(inode, 0, 3);
            (one.end, other.end) = (end, end);
            let (a, b) = (bytes(100 + 10 * after, 1), bytes(250, 2));
            let (weak, mut steps) = (Arc::downgrade(&cluster), 0);
            let second = Arc::new(Mutex::new(Some((other, None))));
            let (to, theirs_too, b_too) = (second.clone(), theirs.clone(), b.clone());
            cluster.set_step_hook(Some(Box::new(move |_| {
                steps += 1;
                let Some(cluster) = weak.upgrade() else { return };
                let hand = if steps == after / 2 + 1 { to.lock().unwrap().take() } else { None };
                if let Some((mut other, _)) = hand {
                    let answer = other.append_at(head(inode, 0), &theirs_too, end, &b_too);
                    *to.lock().unwrap() = Some((other, Some(answer)));
                }
                if steps == after + 2 {
                    cluster.isolate(lost);
                    let rest: Vec<u32> = [1, 2, 3].into_iter().filter(|node| *node != lost.0).collect();
                    cluster.set_chain_members(&[&rest[..], &rest[..], &rest[..]]);
                }
            })));
            let first = one.append_at(head(inode, 0), &capability, end, &a);
            cluster.until("the other was answered", || {
                second.lock().unwrap().as_ref().is_some_and(|(_, answer)| answer.is_some())
            });
            cluster.run(after + 3);
            cluster.set_step_hook(None);
            cluster.crash(lost, CrashKind::Power);
            cluster.until("somebody leads", || cluster.leader().is_some());
            cluster.run(300);
            let (mut other, answer) = second.lock().unwrap().take().unwrap();
            let left = cluster.alive()[0].0;
            let heads = |_: u32| left;
            let again = |answer: &Result<_, Fault>| !answer.as_ref().is_err_and(|fault| fault.reason == Reason::Busy);
            let mut appended = Vec::new();
            // The same request, or another if it was refused.
            appended.push((append(&cluster, &mut one, &heads, (&capability, &a), again(&first)), a));
            let answer = answer.unwrap();
            appended.push((append(&cluster, &mut other, &heads, (&theirs, &b), again(&answer)), b));
            for (before, (now, _)) in [&first, &answer].into_iter().zip(&appended) {
                were_lost += u32::from(before.is_err());
                if let Ok(before) = before {
                    assert_eq!(before.offset, *now, "{lost} lost after {after}: it is asked again");
                }
            }
            crossed += u32::from(one.len("f") > CHUNK + 100);
            for node in cluster.alive().into_iter().map(|(node, _)| node) {
                let found = one.read_from(node, &capability, end - 1, 5000).unwrap();
                check_appended(&found, &appended, &format!("{lost} lost after {after}, node {node}"));
            }
        }
    }
    assert!(were_lost > 10 && crossed > 50, "{were_lost} were not answered, {crossed} reached over the end");
}

/// Nothing else was ever written to the next chunk.
#[test]
fn a_hole_over_the_end_of_a_chunk_hides_what_reaches_over_it() {
    let cluster = three(221);
    cluster.set_chain_members(&[&[1, 2, 3], &[1, 2, 3], &[1, 2, 3]]);
    cluster.run(50);
    let mut client = FailoverClient::new(&cluster);
    let (inode, capability) = file(&mut client, "f");
    client.grant_append(inode, 0, 3);
    client.write_at(ONE, &capability, CHUNK - 11, b"|").unwrap();
    let mut first = bytes(1000, 1);
    let then = client.append_at(ONE, &capability, CHUNK - 10, &first).unwrap().stamp;
    let punched = Punch { capability: capability.clone(), offset: CHUNK - 5, len: 25, ..Punch::default() };
    assert!(client.change_once(ONE, &Request::Punch(punched)).is_ok());
    assert_eq!(shown_by(&cluster, &mut client, ("f", view(then)), CHUNK - 10, 5000), first);
    first[5..30].fill(0);
    assert_eq!(shown_by(&cluster, &mut client, ("f", View::NOW), CHUNK - 10, 5000), first);
}

/// What of it lies in its own chunk is written over: nothing of that chunk shows it any more, and the next chunk has no
/// record at all.
#[test]
fn what_reaches_over_the_end_of_a_chunk_is_not_forgotten_with_what_lies_in_the_chunk() {
    let cluster = three(231);
    let mut client = FailoverClient::new(&cluster);
    let (inode, capability, end) = file_up_to(&mut client, "f", 0, 10);
    let first = bytes(1000, 1);
    client.append_at(head(inode, 0), &capability, end, &first).unwrap();
    client.write_at(head(inode, 0), &capability, end, &[7; 10]).unwrap();
    let before = client.txn(truncate("f", end + 600)).unwrap().stamp;
    let ask = |dry_run| Request::Forget(Forget { target: Target::path("f"), before, dry_run, with_snapshots: false });
    let Ok(Reply::Forgot(reply)) = client.change(&ask(true)) else { panic!("refused") };
    assert_eq!(reply.writes, 0, "each of its writes shows somewhere");
    assert!(matches!(client.change(&ask(false)), Ok(Reply::Forgot(_))));
    cluster.run(1_500);
    assert_eq!(shown_by(&cluster, &mut client, ("f", View::NOW), CHUNK, 5000), first[10..600]);
    client.txn(truncate("f", CHUNK)).unwrap();
    let before = client.txn(truncate("f", CHUNK - 1)).unwrap().stamp;
    let ask = Request::Forget(Forget { target: Target::path("f"), before, dry_run: true, with_snapshots: false });
    let Ok(Reply::Forgot(reply)) = client.change(&ask) else { panic!("refused") };
    assert_eq!(reply.writes, 1, "nothing shows it any more");
}

/// A range of a file at every server that has the chunk it lies in.
fn shown_by(
    cluster: &Arc<TestCluster>,
    client: &mut FailoverClient,
    (path, view): (&str, View),
    at: u64,
    len: u32,
) -> Vec<u8> {
    let mut shown: Option<Vec<u8>> = None;
    for node in [ONE, TWO, THREE] {
        cluster.run(30);
        let open = Open { target: Target::path(path), read: true, view, ..Open::default() };
        let Ok(Reply::Open(opened)) = client.ask(&Request::Open(open), 0).0 else { panic!("{path} is not opened") };
        let read = Read { capability: opened.capability, offset: at, len, ..Read::default() };
        match client.ask_at(node, Request::Read(read), &[], 0) {
            (Ok(_), payload) => {
                let first = shown.get_or_insert_with(|| payload.clone());
                assert!(*first == payload, "{path}: {node} shows another state");
            }
            (Err(fault), _) => assert_eq!(fault.kind(), ErrorKind::Unavailable, "{path}: {node}: {fault}"),
        }
    }
    shown.expect("somebody has it")
}

#[test]
fn what_reaches_over_the_end_of_a_chunk_is_shared_restored_and_undone_with_it() {
    for sides in [3, 2] {
        let cluster = if sides == 3 { three(401) } else { pairs(401) };
        let (mut client, mut other) = (FailoverClient::new(&cluster), FailoverClient::new(&cluster));
        let (inode, capability, end) = file_up_to(&mut client, "f", 0, 10);
        let first = bytes(1000, 1);
        let stamp = client.append_at(head(inode, 0), &capability, end, &first).unwrap().stamp;
        let over = (CHUNK, 5000);
        let clone = |client: &mut FailoverClient, at: u64, to: &str| {
            let ask = CloneTree { source: Target::path("f"), at, target: Target::path(to), dry_run: false };
            let answer = client.change(&Request::Clone(ask));
            assert!(matches!(answer, Ok(Reply::Edited(_))), "{answer:?}");
        };
        clone(&mut client, 0, "whole");
        clone(&mut client, stamp - 1, "before");
        assert_eq!((client.len("whole"), client.len("before")), (end + 1000, end));
        assert_eq!(shown_by(&cluster, &mut client, ("whole", View::NOW), over.0, over.1), first[10..]);
        assert_eq!(shown_by(&cluster, &mut client, ("before", View::NOW), over.0, over.1), b"");
        // A part of it, and what lies beside.
        let (into, target) = file(&mut client, "part");
        client.grant(into, 0, 1);
        let (source, source_offset) = (capability.clone(), CHUNK - 20);
        let ask = CopyRange { source, source_offset, target, target_offset: 5, len: 300, also: Vec::new() };
        assert!(client.change(&Request::CopyRange(ask)).is_ok());
        let copied = [&[0; 14][..], b"|", &[0; 0]].concat();
        let part = shown_by(&cluster, &mut client, ("part", View::NOW), 0, 1000);
        assert_eq!((part.len(), &part[14..], &copied[14..]), (305, &[b"|", &first[..290]].concat()[..], &b"|"[..]));
        // Cut, grown in another way, and what it was.
        client.txn(truncate("f", 5)).unwrap();
        let held = client.txn(truncate("f", CHUNK + 50)).unwrap().stamp;
        assert_eq!(shown_by(&cluster, &mut client, ("f", View::NOW), over.0, over.1), [0; 50]);
        let restore = Restore { target: Target::path("f"), at: stamp, ..Restore::default() };
        let answer = client.change(&Request::Restore(restore));
        assert!(matches!(answer, Ok(Reply::Edited(_))), "{answer:?}");
        assert_eq!(client.len("f"), end + 1000);
        assert_eq!(shown_by(&cluster, &mut client, ("f", View::NOW), over.0, over.1), first[10..]);
        assert_eq!(shown_by(&cluster, &mut client, ("f", view(held)), over.0, over.1), [0; 50]);
        // The append of another client over the end of the next chunk is undone.
        let (_, theirs) = other.open("f");
        other.grant_append(inode, 1, 2);
        (other.end, client.end) = (end + 1000, end + 1000);
        let full = bytes(2 * CHUNK - end - 1000 - 7, 3);
        append(&cluster, &mut client, &|chunk| head(inode, chunk), (&capability, &full), false);
        let end = 2 * CHUNK - 7;
        other.append_at(head(inode, 1), &theirs, end, &bytes(500, 4)).unwrap();
        assert_eq!(client.len("f"), end + 500);
        let shown = shown_by(&cluster, &mut client, ("f", View::NOW), 2 * CHUNK, 5000);
        assert_eq!(shown, bytes(500, 4)[7..]);
        let undo = Undo { target: Target::path("/"), sessions: vec![other.session().0], ..Undo::default() };
        let undone = client.change(&Request::Undo(undo));
        assert_eq!(client.len("f"), end, "{undone:?}");
        assert_eq!(shown_by(&cluster, &mut client, ("f", View::NOW), 2 * CHUNK, 5000), b"", "{undone:?}");
    }
}

#[test]
fn what_reaches_over_the_end_of_a_chunk_outlives_the_power_of_all() {
    let cluster = three(411);
    let mut client = FailoverClient::new(&cluster);
    let (inode, capability, end) = file_up_to(&mut client, "f", 0, 10);
    let first = bytes(1000, 1);
    let stamp = client.append_at(head(inode, 0), &capability, end, &first).unwrap().stamp;
    client.append_at(head(inode, 1), &capability, end + 1000, b"next").unwrap();
    cluster.run(500);
    for node in [ONE, TWO, THREE] {
        cluster.crash(node, CrashKind::Power);
    }
    for node in [ONE, TWO, THREE] {
        cluster.start(node).unwrap();
    }
    cluster.set_chain_members(&[&[3, 1, 2], &[1, 2, 3], &[2, 3, 1]]);
    cluster.until("somebody leads", || cluster.leader().is_some());
    cluster.run(300);
    assert_eq!(client.len("f"), end + 1004);
    let expect = [&first[10..], b"next"].concat();
    assert_eq!(shown_by(&cluster, &mut client, ("f", View::NOW), CHUNK, 5000), expect);
    assert_eq!(shown_by(&cluster, &mut client, ("f", view(stamp)), CHUNK, 5000), first[10..]);
    settle(&mut client, inode);
    assert_eq!(client.len("f"), end + 1004);
}

/// Two servers head the chunks; the record has one time.
#[test]
fn a_record_with_a_time_reaches_over_the_end_of_a_chunk() {
    let cluster = three(421);
    let mut client = FailoverClient::new(&cluster);
    client.txn(make_op("/s", MakeKind::Directory(true))).unwrap();
    let (name, value) = (b"user.frieze.time".to_vec(), b"csv:t,unit=ns".to_vec());
    client.txn(Op::SetXattr(SetXattr { target: Target::path("/s"), name, value, flags: 0 })).unwrap();
    let (inode, capability) = file(&mut client, "/s/f");
    client.grant_append(inode, 0, 3);
    let row = |time: u64, len: u64| {
        let mut row = format!("{time},").into_bytes();
        row.resize(len as usize - 1, b'x');
        row.push(b'\n');
        row
    };
    let first = [b"t,more\n".to_vec(), row(1, CHUNK - 500)].concat();
    client.append_at(head(inode, 0), &capability, 0, &first).unwrap();
    let end = first.len() as u64;
    let over = [row(2, 450), row(3, 2000)].concat();
    let reply = client.append_at(head(inode, 0), &capability, end, &over).unwrap();
    assert_eq!(reply.offset, end);
    let backwards = client.append_at(head(inode, 1), &capability, end + 2450, &row(1, 100)).unwrap_err();
    assert_eq!(backwards.reason, Reason::BackwardUserTime, "{backwards}");
    client.append_at(head(inode, 1), &capability, end + 2450, &row(4, 100)).unwrap();
    for (user, len) in [(1, end), (2, end + 450), (3, end + 2450), (4, end + 2550)] {
        let then = View { at: None, user_at: Some(user) };
        let shown = shown_by(&cluster, &mut client, ("/s/f", then), CHUNK - 100, 5000);
        assert_eq!(shown.len() as u64, len.saturating_sub(CHUNK - 100), "at {user}");
    }
}

/// A record on its way through its chain, from the head of the next chunk, may be lost with the servers that have it.
#[test]
fn nothing_is_appended_behind_what_is_not_committed() {
    let cluster = three(431);
    let (mut one, mut other) = (FailoverClient::new(&cluster), FailoverClient::new(&cluster));
    let (inode, capability, end) = file_up_to(&mut one, "f", 0, 10);
    let (_, theirs) = other.open("f");
    other.grant_append(inode, 0, 3);
    let (first, next) = (head(inode, 0), head(inode, 1));
    let third = NodeId(6 - first.0 - next.0);
    let chains = [0, 1, 2].map(|chain| match NodeId(chain + 1) == first {
        true => [first.0, next.0, third.0],
        false => [chain + 1, (chain + 1) % 3 + 1, (chain + 2) % 3 + 1],
    });
    cluster.set_chain_members(&[&chains[0], &chains[1], &chains[2]]);
    cluster.run(50);
    cluster.cut_link(next, third);
    let (weak, mut steps) = (Arc::downgrade(&cluster), 0);
    let told = Arc::new(Mutex::new(None));
    let (to, mut hand) = (told.clone(), Some(other));
    cluster.set_step_hook(Some(Box::new(move |_| {
        steps += 1;
        if steps == 20
            && let (Some(cluster), Some(mut other)) = (weak.upgrade(), hand.take())
        {
            let behind = other.append_at(next, &theirs, end + 100, b"behind");
            let beside = other.append_at(first, &theirs, end, b"beside");
            cluster.heal();
            *to.lock().unwrap() = Some((other, theirs.clone(), behind, beside));
        }
    })));
    let reply = one.append_at(first, &capability, end, &bytes(100, 1)).unwrap();
    cluster.set_step_hook(None);
    assert_eq!(reply.offset, end);
    let (mut other, theirs, behind, beside) = told.lock().unwrap().take().expect("it was tried meanwhile");
    for answer in [behind, beside] {
        let fault = answer.unwrap_err();
        assert_eq!(fault.kind(), ErrorKind::Unavailable, "{fault}");
    }
    other.end = end;
    let at = append(&cluster, &mut other, &|chunk| head(inode, chunk), (&theirs, b"beside"), true);
    assert_eq!(at, end + 100);
}
