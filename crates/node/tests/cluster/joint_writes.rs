//! Bytes written to several places at one stamp, each at other servers.

use std::sync::{Arc, Mutex};

use frieze_base::{Fault, InodeId, NodeId};
use frieze_disk::CrashKind;
use frieze_testkit::cluster::{FailoverClient, TestCluster};
use frieze_wire::edit::{CopyRange, Undo};
use frieze_wire::message::{Reply, Request};
use frieze_wire::txn::{MakeNameless, Op, Target};

use crate::writers::{CHUNK, file, head, offset, three};
use crate::{ONE, THREE, TWO};

/// Bytes for a place of an open file.
type Part<'a> = (&'a [u8], u64, &'a [u8]);

/// The bytes wait at the heads of a file without a name; the request shows them.
fn wait_together(client: &mut FailoverClient, beside: InodeId, parts: &[Part<'_>]) -> Request {
    let waiting = client.txn(Op::MakeNameless(MakeNameless { beside: beside.0 })).unwrap();
    let id = InodeId(waiting.id);
    client.grant(id, 0, 8);
    let mut ranges = Vec::new();
    let mut at = 0;
    for (target, target_offset, bytes) in parts {
        let source = waiting.capability.clone();
        let len = bytes.len() as u64;
        ranges.push(CopyRange {
            source,
            source_offset: at,
            target: target.to_vec(),
            target_offset: *target_offset,
            len,
            also: Vec::new(),
        });
        let mut rest = *bytes;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min((CHUNK - at % CHUNK) as usize));
            client.write_at(head(id, (at / CHUNK) as u32), &waiting.capability, at, piece).unwrap();
            (rest, at) = (after, at + piece.len() as u64);
        }
    }
    let also = ranges.split_off(1);
    Request::CopyRange(CopyRange { also, ..ranges.remove(0) })
}

/// Old bytes in two files, one of them over chunks of two heads, and what is to be there together.
struct Stage {
    client: FailoverClient,
    files: [(&'static str, Vec<u8>); 2],
    ask: Request,
}

const LEN: usize = 40_000;
/// Where in the first file: over the boundary of its first two chunks.
const AT: u64 = CHUNK - 20_000;

fn stage(cluster: &Arc<TestCluster>) -> Stage {
    let mut client = FailoverClient::new(cluster);
    let ((one, a), (other, b)) = (file(&mut client, "one"), file(&mut client, "other"));
    client.grant(one, 0, 2);
    let half = LEN / 2;
    client.write_at(head(one, 0), &a, AT, &vec![1; half]).unwrap();
    client.write_at(head(one, 1), &a, CHUNK, &vec![1; LEN - half]).unwrap();
    client.write_at(head(other, 0), &b, 0, &[1; LEN]).unwrap();
    let ask = wait_together(&mut client, one, &[(&a, AT, &[2; LEN]), (&b, 0, &[2; LEN])]);
    Stage { client, files: [("one", a), ("other", b)], ask }
}

/// Which of the two states all places show, read of now at one server.
fn shown(client: &mut FailoverClient, node: NodeId, files: &[(&str, Vec<u8>)]) -> Result<u8, Fault> {
    let mut all = Vec::new();
    for ((_, capability), at) in files.iter().zip([AT, 0]) {
        all.extend(client.read_from(node, capability, at, LEN as u32)?);
    }
    assert_eq!(all.len(), 2 * LEN);
    assert!(all.iter().all(|byte| *byte == all[0]), "a part of what was written together");
    Ok(all[0])
}

#[test]
fn what_is_written_together_is_shown_so_by_every_server_at_every_instant() {
    let cluster = three(81);
    let Stage { mut client, files, ask } = stage(&cluster);
    assert_eq!(shown(&mut client, TWO, &files), Ok(1));
    let Ok(Reply::Edited(reply)) = client.change(&ask) else { panic!("refused") };
    assert_eq!(reply.len, 2 * LEN as u64);
    for node in [ONE, TWO, THREE] {
        cluster.run(100);
        assert_eq!(shown(&mut client, node, &files), Ok(2), "node {node}");
        for (at, wanted) in [(reply.stamp - 1, 1), (reply.stamp, 2)] {
            for ((path, _), from) in files.iter().zip([AT, 0]) {
                let found = client.read_past(node, path, at, from, LEN as u32).unwrap();
                assert!(found == vec![wanted; LEN], "node {node}: {path} at {at}");
            }
        }
    }
}

#[test]
fn what_was_written_together_is_undone_together_and_its_length_too() {
    let cluster = three(95);
    let (mut client, mut other) = (FailoverClient::new(&cluster), FailoverClient::new(&cluster));
    let (one, a) = file(&mut client, "f");
    client.write_at(head(one, 0), &a, 0, b"begin").unwrap();
    let (_, b) = other.open("f");
    let ask = wait_together(&mut other, one, &[(&b, 2, b"gone"), (&b, CHUNK + 100, b"far")]);
    assert!(other.change(&ask).is_ok());
    assert_eq!(client.len("f"), CHUNK + 103);
    let undo = Undo { target: Target::path("/"), sessions: vec![other.session().0], ..Undo::default() };
    let undone = client.change(&Request::Undo(undo)).unwrap();
    assert_eq!((client.len("f"), client.read_at(TWO, &a, 20).unwrap()), (5, b"begin".to_vec()), "{undone:?}");
}

/// The server that is asked, or one with a chunk of the waiting bytes or of their destination, is lost after any number
/// of steps.
#[test]
fn a_joint_write_shows_whole_or_not_at_all_after_the_loss_of_any_server() {
    let (mut shown_late, mut never) = (0, 0);
    for lost in [ONE, TWO, THREE] {
        for after in 0..12u64 {
            let cluster = three(100 + 20 * u64::from(lost.0) + after);
            let Stage { mut client, files, ask } = stage(&cluster);
            let (weak, mut steps) = (Arc::downgrade(&cluster), 0);
            cluster.set_step_hook(Some(Box::new(move |_| {
                steps += 1;
                if steps == after * 4 + 1
                    && let Some(cluster) = weak.upgrade()
                {
                    cluster.isolate(lost);
                    let rest: Vec<u32> = [1, 2, 3].into_iter().filter(|node| *node != lost.0).collect();
                    cluster.set_chain_members(&[&rest[..], &rest[..], &rest[..]]);
                }
            })));
            let answer = client.change_once(ONE, &ask);
            cluster.run(after * 4 + 1);
            cluster.set_step_hook(None);
            cluster.crash(lost, CrashKind::Power);
            cluster.until("somebody leads", || cluster.leader().is_some());
            cluster.run(300);
            // Before the retry: all remaining servers show the same state.
            let left = cluster.alive().into_iter().map(|(node, _)| node);
            let states: Vec<u8> = left.map(|node| shown(&mut client, node, &files).unwrap()).collect();
            assert_eq!(states[0], states[1], "{lost} lost after {after}");
            match (&answer, states[0]) {
                (Ok(Reply::Edited(_)), 2) => {}
                (Err(_), 2) => shown_late += 1,
                (Err(_), 1) => never += 1,
                (answer, state) => panic!("{lost} lost after {after}: {answer:?}, and state {state} is shown"),
            }
            // The same request, at the new leader: it is shown, once.
            let Ok(Reply::Edited(again)) = client.change_again(&ask) else { panic!("refused") };
            if let Ok(Reply::Edited(first)) = &answer {
                assert_eq!((again.stamp, again.repeated), (first.stamp, true));
            }
            let Ok(Reply::Edited(third)) = client.change_again(&ask) else { panic!("refused") };
            assert_eq!((third.stamp, third.repeated), (again.stamp, true));
            let node = cluster.alive()[0].0;
            assert_eq!(shown(&mut client, node, &files), Ok(2));
            for (at, wanted) in [(again.stamp - 1, 1), (again.stamp, 2)] {
                let found = client.read_past(node, "one", at, AT, LEN as u32).unwrap();
                assert!(found == vec![wanted; LEN], "{lost} lost after {after}: at {at}");
            }
        }
    }
    assert!(shown_late + never > 0, "nobody was lost before the answer: {shown_late}, {never}");
}

/// The edit extends the file while another client writes beyond, at a head whose clock is behind and which, after any
/// number of steps, receives nothing of the edit. And a retry is answered only when that head knows of it.
#[test]
fn what_others_write_beyond_meanwhile_is_neither_hidden_nor_forgotten() {
    let (mut decided, mut asked_again) = (0, 0);
    for after in 1..24 {
        let cluster = three(200 + after);
        let (mut client, mut other) = (FailoverClient::new(&cluster), FailoverClient::new(&cluster));
        let (one, a) = file(&mut client, "f");
        let far = (4..64).find(|index| head(one, *index) == TWO).unwrap();
        let (_, b) = other.open("f");
        other.grant(one, far, 1);
        client.write_at(head(one, 0), &a, 0, b"begin").unwrap();
        // The first write under a configuration looks at everything that was ordered before.
        other.write_at(TWO, &b, offset(far) + 50, b"early").unwrap();
        let ask = wait_together(&mut client, one, &[(&a, 2, b"gone"), (&a, offset(far) + 50, b"more")]);
        cluster.time(ONE).jump_wall_us(300_000);
        cluster.run(50);
        let (weak, mut steps, again, seq) = (Arc::downgrade(&cluster), 0, ask.clone(), client.seq() + 1);
        let mut hands = Some((other, client.twin(seq)));
        let done = Arc::new(Mutex::new(None));
        let to = done.clone();
        cluster.set_step_hook(Some(Box::new(move |_| {
            steps += 1;
            let Some(cluster) = weak.upgrade() else { return };
            if steps == after {
                cluster.cut_link(ONE, TWO);
            }
            if steps == after + 2
                && let Some((mut other, mut twin)) = hands.take()
            {
                // Acknowledged, perhaps below the stamp of the change, and not known to the server that ran it.
                other.write_at(TWO, &b, offset(far) + 60, b"beyond").unwrap();
                cluster.cut_link(THREE, TWO);
                let answer = twin.change_again_at(ONE, &again);
                cluster.heal();
                if answer.is_ok() {
                    // Begun after the answer: it lies above.
                    other.write_at(TWO, &b, offset(far) + 50, b"after").unwrap();
                }
                *to.lock().unwrap() = Some((other, answer.is_ok()));
            }
        })));
        let answer = client.change_once(ONE, &ask);
        cluster.until("others have written", || done.lock().unwrap().is_some());
        cluster.set_step_hook(None);
        let (mut other, is_over) = done.lock().unwrap().take().unwrap();
        let Ok(Reply::Edited(reply)) = client.change_again(&ask) else { panic!("refused") };
        if !is_over {
            let (_, b) = other.open("f");
            other.write_at(TWO, &b, offset(far) + 50, b"after").unwrap();
        }
        decided += u64::from(answer.is_err() && reply.repeated);
        asked_again += u64::from(is_over);
        assert_eq!(client.len("f"), offset(far) + 66, "after {after}: {answer:?}");
        let found = client.read_from(THREE, &a, offset(far) + 49, 100).unwrap();
        assert_eq!(found, b"\0after\0\0\0\0\0beyond", "after {after}: {answer:?}, {is_over}");
        assert_eq!(client.read_from(THREE, &a, 0, 8).unwrap(), b"begone\0\0");
    }
    assert!(decided > 0, "it was never decided before the head had heard of it: {asked_again}");
}
