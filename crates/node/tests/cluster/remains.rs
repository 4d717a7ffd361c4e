//! Replica garbage: a server's data of a chain that it left is dropped when the log shows that no server needs it, and
//! its space is freed.

use std::sync::Arc;

use frieze_base::{ChainId, InodeId, NodeId, Reason};
use frieze_cluster::{ChainStep, ClusterState, Decision, NodeStep};
use frieze_disk::{CrashKind, Disk};
use frieze_hlc::Hlc;
use frieze_testkit::cluster::{FailoverClient, TestCluster};
use frieze_wire::chain::Configuration;

use crate::remote_heads::{chunk_headed_by, spread};
use crate::writers::{file, offset};
use crate::{ONE, THREE, TWO};

/// Bytes of each write.
const BYTES: usize = 48 << 10;
/// The chain that the third server leaves.
const GONE: ChainId = ChainId(1);

/// A file with bytes on all three chains, each of three servers, at the instants after each round of writes.
struct Told {
    cluster: Arc<TestCluster>,
    client: FailoverClient,
    inode: InodeId,
    capability: Vec<u8>,
    /// A chunk of the chain that it leaves, and one of a chain that it keeps.
    chunks: [u32; 2],
    rounds: Vec<Hlc>,
}

fn bytes_of(round: usize, chunk: u32) -> Vec<u8> {
    (0..BYTES).map(|at| (round * 31 + chunk as usize * 7 + at) as u8).collect()
}

impl Told {
    fn new(seed: u64) -> Told {
        let cluster = spread(seed);
        cluster.set_chain_members(&[&[1, 2, 3], &[2, 3, 1], &[3, 1, 2]]);
        let mut client = FailoverClient::new(&cluster);
        let (inode, capability) = file(&mut client, "f");
        let chunks = [chunk_headed_by(inode, TWO, 0), chunk_headed_by(inode, ONE, 0)];
        let mut told = Told { cluster, client, inode, capability, chunks, rounds: Vec::new() };
        (0..12).for_each(|round| told.write(round));
        told
    }

    fn write(&mut self, round: usize) {
        for (chunk, head) in self.chunks.into_iter().zip([TWO, ONE]) {
            self.client.grant(self.inode, chunk, 1);
            self.client.write_at(head, &self.capability, offset(chunk), &bytes_of(round, chunk)).unwrap();
        }
        self.cluster.run(5);
        // It is closed at every server.
        let at = self.cluster.server(ONE).newest();
        for node in [ONE, TWO, THREE] {
            for chunk in self.chunks {
                drop(self.read(node, chunk, at));
            }
        }
        self.rounds.push(at);
    }

    fn read(&mut self, node: NodeId, chunk: u32, at: Hlc) -> Result<Vec<u8>, Reason> {
        let found = self.client.read_past(node, "f", at.0, offset(chunk), BYTES as u32);
        found.map_err(|fault| fault.reason)
    }

    fn decide(&self, decision: impl Fn(&ClusterState) -> Decision) {
        let leader = self.cluster.server(ONE);
        let mut decided = None;
        leader.look_at_control(&mut |state| decided = Some(decision(state)));
        leader.decide(self.cluster.status(ONE).term, &[decided.unwrap()]);
        self.cluster.run(100);
    }

    fn decide_step(&self, step: ChainStep) {
        self.decide(|state| Decision::Chain { chain: GONE, revision: state.chain(GONE).unwrap().revision, step });
    }

    fn drain(&self) {
        self.decide(|state| {
            let revision = state.node(THREE).unwrap().revision;
            Decision::Node { node: THREE, revision, step: NodeStep::Drain }
        });
    }

    /// The third server leaves a chain, here and in the log.
    fn leave(&mut self) {
        self.cluster.set_chain_members(&[&[1, 2, 3], &[2, 1], &[3, 1, 2]]);
        for step in [ChainStep::TakeOut(THREE), ChainStep::Left(THREE), ChainStep::Drop(THREE)] {
            self.decide_step(step);
        }
        self.drain();
    }

    /// Number of the last record that the third server has of the chain.
    fn last(&self) -> u64 {
        self.cluster.server(THREE).chain_ends()[GONE.0 as usize].n
    }

    fn free(&self) -> u64 {
        self.cluster.disk(THREE).space().unwrap().free_bytes
    }

    /// Frees everything that is due.
    fn give_back(&self) {
        for _ in 0..10 {
            self.cluster.server(THREE).give_back_remains().unwrap();
            self.cluster.run(60);
        }
    }

    /// What was read in each round is read again, at each server that may answer.
    fn check(&mut self, has_gone: bool) {
        for (round, at) in self.rounds.clone().into_iter().enumerate() {
            let [gone, stays] = self.chunks;
            for node in [ONE, TWO, THREE] {
                assert!(self.read(node, stays, at) == Ok(bytes_of(round, stays)), "round {round} at {node}");
            }
            for node in [ONE, TWO] {
                assert!(self.read(node, gone, at) == Ok(bytes_of(round, gone)), "round {round} at {node}");
            }
            let found = self.read(THREE, gone, at);
            match has_gone {
                true => assert_eq!(found.map(drop), Err(Reason::Elsewhere), "round {round}"),
                false => assert!(found == Ok(bytes_of(round, gone)), "round {round}"),
            }
        }
    }

    /// The third server is a member of all chains again.
    fn come_back(&self) {
        let of = |members: &[u32], syncing: Option<u32>, joining| Configuration {
            members: members.iter().copied().map(NodeId).collect(),
            syncing: syncing.map(NodeId),
            joining,
            ..Configuration::default()
        };
        // Of the other servers, too: this one may have been restarted.
        let two: [&[u32]; 3] = [&[1, 2], &[2, 1], &[1, 2]];
        let three: [&[u32]; 3] = [&[1, 2, 3], &[2, 1, 3], &[1, 2, 3]];
        self.cluster.set_chains(&two.map(|members| of(members, Some(3), false)));
        self.cluster.run(1500);
        self.cluster.set_chains(&three.map(|members| of(members, None, true)));
        self.cluster.run(1500);
        self.cluster.set_chains(&three.map(|members| of(members, None, false)));
        self.cluster.run(300);
    }
}

#[test]
fn a_former_member_drops_its_records_when_the_log_and_a_majority_allow_it() {
    let mut told = Told::new(201);
    let last = told.last();
    let give_up = |told: &Told| told.cluster.server(THREE).drop_remains().unwrap();
    assert!(last >= 12);
    give_up(&told);
    assert_eq!(told.last(), last, "it has its part");
    told.cluster.set_chain_members(&[&[1, 2, 3], &[2, 1], &[3, 1, 2]]);
    give_up(&told);
    assert_eq!(told.last(), last, "the log says that it has its part");
    for step in [ChainStep::TakeOut(THREE), ChainStep::Left(THREE), ChainStep::Drop(THREE)] {
        told.decide_step(step);
        give_up(&told);
        assert_eq!(told.last(), last, "two have it where three are wanted: {step:?}");
    }
    told.drain();
    // It knows all of that, and cannot know that it still holds.
    told.cluster.isolate(THREE);
    give_up(&told);
    assert_eq!(told.last(), last, "nobody has said that it is so now");
    told.cluster.heal();
    told.cluster.run(2000);
    told.check(false);
    give_up(&told);
    assert_eq!(told.last(), 0);
    told.check(true);
}

#[test]
fn what_is_given_up_is_given_back_to_the_disk_and_comes_again() {
    let mut told = Told::new(202);
    told.leave();
    let before = told.free();
    told.cluster.server(THREE).drop_remains().unwrap();
    told.give_back();
    let freed = told.free() - before;
    let written = 12 * BYTES as u64;
    assert!(freed > written * 9 / 10, "{freed} of {written}");
    told.check(true);
    for kind in [CrashKind::Process, CrashKind::Power] {
        told.cluster.crash(THREE, kind);
        told.cluster.start(THREE).unwrap();
        told.cluster.run(500);
        assert_eq!(told.last(), 0);
    }
    told.come_back();
    told.check(false);
    told.cluster.crash(THREE, CrashKind::Power);
    told.cluster.start(THREE).unwrap();
    told.cluster.run(500);
    told.come_back();
    told.check(false);
}

/// Wherever it stops, the rest is freed after the restart, and nothing else.
#[test]
fn a_crash_while_it_is_given_back_leaves_what_a_restart_goes_on_with() {
    for (kind, step) in [(CrashKind::Process, 2), (CrashKind::Power, 1)] {
        let (mut kept, mut gone) = (0, 0);
        for change in (1..40).step_by(step) {
            let mut told = Told::new(203);
            told.leave();
            let before = told.free();
            told.cluster.disk(THREE).fail_after(change);
            for _ in 0..6 {
                // Its thread logs the error and continues; the disk accepts nothing more.
                drop(told.cluster.server(THREE).drop_remains());
                drop(told.cluster.server(THREE).give_back_remains());
                told.cluster.run(60);
            }
            let is_over = !told.cluster.disk(THREE).is_crashed();
            told.cluster.crash(THREE, kind);
            told.cluster.start(THREE).unwrap();
            told.cluster.run(500);
            if told.last() == 0 {
                gone += 1
            } else {
                kept += 1
            }
            told.cluster.server(THREE).drop_remains().unwrap();
            told.give_back();
            assert_eq!(told.last(), 0, "after {change} changes");
            let freed = told.free().saturating_sub(before);
            assert!(freed > 11 * BYTES as u64, "after {change} changes {freed} bytes");
            told.come_back();
            told.check(false);
            if is_over {
                break;
            }
        }
        assert!(kept > 0 && gone > 2, "{kind:?}: {kept}, {gone}");
    }
}
