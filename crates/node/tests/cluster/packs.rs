//! Members of a chain that have packed, and members that have not: all answer alike, and a member that lacks records
//! gets them from one that has packed.

use std::collections::BTreeMap;
use std::sync::Arc;

use frieze_base::{InodeId, MonoTime, NodeId, Reason, Rng};
use frieze_disk::{CrashKind, Disk};
use frieze_hlc::Hlc;
use frieze_testkit::bytes::random_bytes;
use frieze_testkit::cluster::{FailoverClient, TestCluster};
use frieze_wire::chain::Configuration;
use frieze_wire::edit::ChangeTree;
use frieze_wire::forget::Forget;
use frieze_wire::message::{Open, Reply, Request, View};
use frieze_wire::txn::{CloseSession, Op, Remove, Target};

use crate::remote_heads::{chunk_headed_by, spread_over};
use crate::writers::{file, offset};
use crate::{ONE, THREE, TWO};

const BYTES: u32 = 64 << 10;

/// A file on a chain of two servers, thinned, and instants between its writes.
struct Thinned {
    cluster: Arc<TestCluster>,
    client: FailoverClient,
    capability: Vec<u8>,
    at: u64,
    instants: Vec<u64>,
    /// What the file was at each of them, before anything was thinned.
    whole: BTreeMap<u64, Vec<u8>>,
}

fn set_policy(client: &mut FailoverClient) {
    let policy = Some("all 1s, 1/s forever".to_owned());
    let set = ChangeTree { target: Target::path("f"), policy, ..ChangeTree::default() };
    client.change(&Request::ChangeTree(set)).unwrap();
}

type Answers = Vec<Result<Vec<u8>, Reason>>;

impl Thinned {
    fn new(seed: u64, is_text: bool) -> Thinned {
        Thinned::over(seed, is_text, &[&[1, 2, 3], &[2, 3], &[3, 1, 2]], true)
    }

    fn over(seed: u64, is_text: bool, chains: &[&[u32]], has_policy: bool) -> Thinned {
        let cluster = spread_over(seed, chains);
        let mut client = FailoverClient::new(&cluster);
        let (inode, capability) = file(&mut client, "f");
        if has_policy {
            set_policy(&mut client);
        }
        let chunk = chunk_headed_by(inode, TWO, 1);
        client.grant(inode, chunk, 1);
        let (at, mut instants, mut rng) = (offset(chunk), Vec::new(), Rng::new(seed));
        for round in 0..120 {
            let (from, len) = (rng.below(u64::from(BYTES) - 4096), 1 + rng.below(4096));
            let mut bytes = random_bytes(rng.next(), len as usize);
            if is_text {
                bytes.iter_mut().for_each(|byte| *byte = b"frieze"[*byte as usize % 6]);
            }
            client.write_at(TWO, &capability, at + from, &bytes).unwrap();
            cluster.run(30);
            instants.push(cluster.server(ONE).newest().0);
            if round % 20 == 19 {
                for node in [ONE, TWO, THREE] {
                    cluster.server(node).close_segment();
                }
                cluster.run(50);
            }
        }
        cluster.run(3000);
        let second = |stamp: u64| Hlc(stamp).micros() / 1_000_000;
        let seconds = second(instants[0]) + 1..=second(*instants.last().unwrap());
        instants.extend(seconds.map(|count| Hlc::last_of_micros(count * 1_000_000).0));
        let mut thinned = Thinned { cluster, client, capability, at, instants, whole: BTreeMap::new() };
        let whole = thinned.answers(TWO);
        thinned.whole = thinned.instants.iter().copied().zip(whole.into_iter().map(Result::unwrap)).collect();
        thinned
    }

    fn thin(&self) {
        for node in [ONE, TWO, THREE] {
            self.cluster.server(node).reclaim().unwrap();
            self.cluster.server(node).thin().unwrap();
            self.cluster.run(100);
        }
    }

    fn pack(&self, node: NodeId) -> usize {
        let server = self.cluster.server(node);
        server.shelve_all();
        server.pack().unwrap();
        server.pack().unwrap();
        server.packs()
    }

    /// What was shown is shown, and the rest is refused, or is as it was: a server without a part in some chain shows
    /// kept instants only.
    fn check(&mut self, node: NodeId, expected: &Answers, when: &str) {
        let found = self.answers(node);
        for (at, (found, expected)) in self.instants.iter().zip(found.iter().zip(expected)) {
            let is_as_before = match expected {
                Err(Reason::HistoryExpired) => found == expected || found.as_ref().ok() == self.whole.get(at),
                _ => found == expected,
            };
            let (why, other) = (found.as_ref().err(), expected.as_ref().err());
            assert!(is_as_before, "{when}, at {node}: {at}: {why:?}, {other:?}");
        }
    }

    /// Opened and read at this server alone.
    fn answers_of(&mut self, node: NodeId) -> Answers {
        let mut answers = Vec::new();
        for at in self.instants.clone() {
            let view = View { at: Some(at), user_at: None };
            let open = Open { target: Target::path("f"), read: true, view, ..Open::default() };
            let opened = match self.client.ask_at(node, Request::Open(open), &[], 0).0 {
                Ok(Reply::Open(opened)) => opened,
                Ok(other) => panic!("{other:?}"),
                Err(fault) => {
                    answers.push(Err(fault.reason));
                    continue;
                }
            };
            let found = self.client.read_from(node, &opened.capability, self.at, BYTES);
            answers.push(found.map_err(|fault| fault.reason));
        }
        answers
    }

    fn answers(&mut self, node: NodeId) -> Answers {
        let mut answers = Vec::new();
        for at in self.instants.clone() {
            let found = self.client.read_past(node, "f", at, self.at, BYTES);
            answers.push(found.map_err(|fault| fault.reason));
        }
        answers
    }
}

#[test]
fn members_that_packed_and_members_that_did_not_answer_alike() {
    let mut thinned = Thinned::new(401, false);
    thinned.thin();
    let expected = thinned.answers(THREE);
    let refused = expected.iter().filter(|answer| **answer == Err(Reason::HistoryExpired)).count();
    assert!(refused > 20 && refused < expected.len(), "{refused} instants are refused");
    assert!(thinned.pack(TWO) > 0, "the head packs");
    for node in [TWO, THREE] {
        thinned.check(node, &expected, "packed");
    }
    thinned.cluster.crash(TWO, CrashKind::Power);
    thinned.cluster.start(TWO).unwrap();
    thinned.cluster.set_chain_members(&[&[1, 2, 3], &[2, 3], &[3, 1, 2]]);
    thinned.cluster.run(500);
    thinned.thin();
    thinned.check(TWO, &expected, "after a start");
}

#[test]
fn a_member_gets_records_from_one_that_packed_and_packs_them_itself() {
    for is_text in [false, true] {
        from_a_member_that_packed(is_text);
    }
}

fn from_a_member_that_packed(is_text: bool) {
    let mut thinned = Thinned::new(402, is_text);
    thinned.thin();
    let expected = thinned.answers(TWO);
    assert!(thinned.pack(TWO) > 0);
    let of =
        |members: &[NodeId], syncing| Configuration { members: members.to_vec(), syncing, ..Configuration::default() };
    let all = of(&[ONE, TWO, THREE], None);
    let both = [all.clone(), of(&[TWO, ONE], None), all.clone()];
    thinned.cluster.set_chains(&[all.clone(), of(&[TWO], Some(ONE)), all]);
    let last = |node| thinned.cluster.server(node).chains()[1].last;
    thinned.cluster.until("node 1 has all of it", || last(ONE) == last(TWO));
    thinned.cluster.set_chains(&both);
    thinned.cluster.run(500);
    thinned.thin();
    thinned.check(ONE, &expected, "as it was sent");
    // What it got is in sealed segments, enough for an index run.
    for round in 0..8 {
        thinned.cluster.server(ONE).close_segment();
        thinned.cluster.run(50);
        thinned.client.write_at(TWO, &thinned.capability, thinned.at + round, b"more").unwrap();
        thinned.cluster.run(50);
    }
    thinned.thin();
    assert!(thinned.pack(ONE) > 0, "the newcomer packs");
    thinned.check(ONE, &expected, "packed");
    // A record that rots in a pack comes from another member.
    let disk = thinned.cluster.disk(TWO);
    let name = disk.list().unwrap().into_iter().find(|name| name.starts_with("pack-")).unwrap();
    disk.flip_bit(&name, 8192 + 3000, 4).unwrap();
    let mut flag = [0];
    disk.open(&name).unwrap().read_at(5, &mut flag).unwrap();
    assert_eq!(flag[0] == 1, is_text, "only what gains by it is compressed");
    // Nothing of it is in memory.
    thinned.cluster.crash(TWO, CrashKind::Process);
    thinned.cluster.start(TWO).unwrap();
    thinned.cluster.set_chains(&both);
    thinned.cluster.run(500);
    let refused = thinned.answers(TWO).into_iter().filter(|answer| *answer == Err(Reason::Corrupt)).count();
    assert!(refused > 0, "a reader meets it");
    for _ in 0..3 {
        // All records of the block have to come.
        thinned.cluster.server(TWO).scrub(&|_| true).unwrap();
        thinned.cluster.run(2000);
    }
    thinned.check(TWO, &expected, "mended");
}

/// What the leader lets go of, and what is forgotten by way of it, goes on every member.
#[test]
fn members_give_back_what_is_removed_or_forgotten_by_way_of_another() {
    let cluster = spread_over(403, &[&[1, 2, 3], &[1, 2, 3], &[1, 2, 3]]);
    let mut client = FailoverClient::new(&cluster);
    let bytes = random_bytes(5, 50_000);
    let write = |client: &mut FailoverClient, path: &str, policy: Option<&str>| {
        let inode = InodeId(client.make(path).unwrap().id);
        let set = ChangeTree { target: Target::path(path), policy: policy.map(str::to_owned), ..ChangeTree::default() };
        client.change(&Request::ChangeTree(set)).unwrap();
        let chunk = chunk_headed_by(inode, ONE, 0);
        client.grant(inode, chunk, 1);
        let (_, capability) = client.open(path);
        client.write_at(ONE, &capability, offset(chunk), &bytes).unwrap();
    };
    let remove = |client: &mut FailoverClient, path: &str| {
        client.txn(Op::Remove(Remove { target: Target::path(path), directory: false })).unwrap();
    };
    write(&mut client, "removed", Some("all 1s, 1/s 2s"));
    write(&mut client, "forgotten", None);
    remove(&mut client, "removed");
    remove(&mut client, "forgotten");
    let before = cluster.server(ONE).newest().0;
    client.txn(Op::CloseSession(CloseSession::default())).unwrap();
    cluster.run(5000);
    let tidy = || {
        for node in [ONE, TWO, THREE] {
            cluster.server(node).thin().unwrap();
            cluster.run(200);
        }
        [ONE, TWO, THREE].map(|node| cluster.server(node).dead_bytes().0)
    };
    tidy();
    let removed = tidy();
    assert!(removed.iter().all(|bytes| (50_000..60_000).contains(bytes)), "{removed:?}");
    let mut client = FailoverClient::new(&cluster);
    client.open_session();
    let forget = Forget { target: Target::path("/"), before, ..Forget::default() };
    client.change(&Request::Forget(forget)).unwrap();
    cluster.run(200);
    let both = tidy();
    assert!(both.iter().all(|bytes| (100_000..120_000).contains(bytes)), "{both:?}");
}

/// A member may get records that died before it has executed the mark by which they did. It shows none of the instants
/// that need them.
#[test]
fn a_member_whose_names_are_behind_the_marks_shows_no_hole_where_a_record_died() {
    let mut thinned = Thinned::over(404, false, &[&[1, 2, 3], &[2, 1], &[3, 1, 2]], false);
    for node in [ONE, TWO] {
        thinned.cluster.cut_log(node, THREE);
    }
    set_policy(&mut thinned.client);
    thinned.cluster.run(100);
    for node in [ONE, TWO, ONE, TWO] {
        thinned.cluster.server(node).thin().unwrap();
        thinned.cluster.run(100);
    }
    assert!(thinned.pack(TWO) > 0);
    // It asks a member that is ahead for the bytes.
    let all = std::mem::take(&mut thinned.instants);
    thinned.instants = all[5..8].to_vec();
    assert_eq!(thinned.answers_of(THREE), vec![Err(Reason::Unavailable); 3]);
    thinned.instants = all;
    let of =
        |members: &[NodeId], syncing| Configuration { members: members.to_vec(), syncing, ..Configuration::default() };
    let (first, last) = (of(&[ONE, TWO, THREE], None), of(&[THREE, ONE, TWO], None));
    thinned.cluster.set_chains(&[first.clone(), of(&[TWO, ONE], Some(THREE)), last.clone()]);
    let run = |thinned: &mut Thinned| {
        for _ in 0..4 {
            thinned.cluster.run(500);
            thinned.client.keep();
        }
    };
    run(&mut thinned);
    let last_of = |node| thinned.cluster.server(node).chains()[1].last;
    assert_eq!(last_of(THREE), last_of(TWO), "it has all");
    thinned.cluster.set_chains(&[first.clone(), of(&[TWO, ONE, THREE], None), last.clone()]);
    run(&mut thinned);
    assert!(thinned.answers_of(THREE).iter().all(|answer| *answer == Err(Reason::Unavailable)));
    // So it is after a start.
    thinned.cluster.crash(THREE, CrashKind::Power);
    thinned.cluster.start(THREE).unwrap();
    thinned.cluster.set_chains(&[first, of(&[TWO, ONE, THREE], None), last]);
    thinned.cluster.run(50);
    for answer in thinned.answers_of(THREE) {
        assert!(matches!(answer, Err(Reason::Unavailable | Reason::UnknownSession)), "{:?}", answer.err());
    }
    thinned.cluster.heal();
    run(&mut thinned);
    let expected = thinned.answers_of(TWO);
    let refused = expected.iter().filter(|answer| **answer == Err(Reason::HistoryExpired)).count();
    assert!(refused > 20, "{refused} are refused");
    let found = thinned.answers_of(THREE);
    for ((at, found), expected) in thinned.instants.iter().zip(&found).zip(&expected) {
        assert!(found == expected, "{at}: {:?}, {:?}", found.as_ref().err(), expected.as_ref().err());
    }
}

/// A member without a lease may have records that its chain never has.
#[test]
fn nothing_dies_at_a_member_without_a_lease() {
    let thinned = Thinned::new(405, false);
    let three = thinned.cluster.server(THREE);
    for node in [ONE, TWO] {
        thinned.cluster.server(node).thin().unwrap();
        thinned.cluster.run(100);
    }
    assert!(thinned.cluster.server(TWO).dead_bytes().0 > 0);
    three.renew_lease(MonoTime(1));
    three.thin().unwrap();
    assert_eq!(three.dead_bytes().0, 0);
    three.renew_lease(MonoTime(u64::MAX));
    three.thin().unwrap();
    assert!(three.dead_bytes().0 > 0);
}
