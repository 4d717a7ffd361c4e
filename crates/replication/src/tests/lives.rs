//! Random runs of three nodes and two chains: writes, reads, loss and reordering of messages, crashes with and without
//! power loss, returns.
//!
//! Checks: acknowledged writes stay, each request has one record, a repeated read at an instant gives the same bytes,
//! and in the end every member gives the same bytes at every instant.

use std::collections::BTreeMap;

use frieze_base::{ChainId, NodeId, Seq};
use frieze_disk::CrashKind;
use frieze_hlc::Hlc;
use frieze_testkit::seeds::SeedPlan;
use frieze_wire::message::Durability;

use super::replica_cluster::{CHAINS, CHUNK_BYTES, LAYOUT, Outcome, ReplicaCluster, bytes_of, outcome};
use crate::ChainEvent;

/// A write and its known outcome.
struct Asked {
    seq: Seq,
    offset: u64,
    len: usize,
    durability: Durability,
    outcome: Outcome,
}

struct Lives {
    cluster: ReplicaCluster,
    asked: Vec<Asked>,
    /// Content of a chunk at an instant, once it was read.
    seen: BTreeMap<(u32, Hlc), Vec<u8>>,
    /// Nodes that kept their memory since they last served, by chain.
    serving: Vec<Vec<u32>>,
    steps: [u64; 6],
}

impl Lives {
    fn new(seed: u64) -> Lives {
        let mut cluster = ReplicaCluster::new(3, seed);
        cluster.configure_all(&[1]);
        for chain in 0..CHAINS {
            cluster.bring_in(chain, 2);
            cluster.bring_in(chain, 3);
        }
        let serving = vec![vec![1, 2, 3]; CHAINS as usize];
        Lives { cluster, asked: Vec::new(), seen: BTreeMap::new(), serving, steps: [0; 6] }
    }

    fn step(&mut self) {
        let kind = self.cluster.rng.below(100);
        match kind {
            0..30 => self.write(),
            30..38 => self.write_again(),
            38..50 => self.read(),
            50..56 => {
                let on: Vec<u32> = (1..=3).filter(|id| self.cluster.is_on(NodeId(*id))).collect();
                let id = on[self.cluster.rng.below(on.len() as u64) as usize];
                self.cluster.flush(id);
            }
            56..58 => self.die(),
            58..61 => self.come_back(),
            61..70 => {
                let micros = self.cluster.rng.below(60_000);
                self.cluster.pass(micros);
            }
            _ => {
                for _ in 0..self.cluster.rng.below(12) {
                    self.cluster.deliver();
                }
            }
        }
        self.look_after();
    }

    fn head(&self, chain: u32) -> Option<u32> {
        let head = self.cluster.configurations[chain as usize].head()?;
        self.cluster.is_on(head).then_some(head.0)
    }

    fn write(&mut self) {
        let index = self.cluster.rng.below(4);
        let Some(head) = self.head(LAYOUT.chain(index as u32).0) else { return };
        let len = 1 + self.cluster.rng.below(3000) as usize;
        let offset = index * CHUNK_BYTES + self.cluster.rng.below(CHUNK_BYTES - len as u64);
        let durability = if self.cluster.rng.chance(4) { Durability::Sync } else { Durability::Async };
        let (seq, outcome) = self.cluster.write(head, offset, len, durability);
        self.asked.push(Asked { seq, offset, len, durability, outcome });
        self.steps[0] += 1;
    }

    /// A client without an answer retries at the current head.
    fn write_again(&mut self) {
        let open: Vec<usize> = (0..self.asked.len()).filter(|at| !self.is_done(*at)).collect();
        if open.is_empty() {
            return;
        }
        let at = open[self.cluster.rng.below(open.len() as u64) as usize];
        let Asked { seq, offset, len, durability, .. } = self.asked[at];
        let Some(head) = self.head(LAYOUT.chain((offset / CHUNK_BYTES) as u32).0) else { return };
        self.asked[at].outcome = self.cluster.write_again(head, seq, offset, len, durability);
        self.steps[1] += 1;
    }

    fn is_done(&self, at: usize) -> bool {
        matches!(outcome(&self.asked[at].outcome), Some(Ok(_)))
    }

    /// Reads at some node: a read of now contains every acknowledged write, and an earlier read at an instant is
    /// repeated.
    fn read(&mut self) {
        let index = self.cluster.rng.below(4) as u32;
        let chain = LAYOUT.chain(index).0;
        let id = 1 + self.cluster.rng.below(3) as u32;
        if !self.cluster.is_on(NodeId(id)) {
            return;
        }
        if self.cluster.rng.chance(2) {
            let before = self.newest_acknowledged(index);
            let Ok(bytes) = self.cluster.read(id, index, None) else { return };
            if let Some(at) = before {
                // By now, at the latest, the node has all of it.
                let log = self.cluster.log(id, chain);
                assert!(log.iter().any(|(_, stamp, _)| *stamp >= at), "chunk {index} at node {id} lacks {at}");
            }
            assert_eq!(bytes.len(), CHUNK_BYTES as usize);
        } else {
            let node = &self.cluster.nodes[id as usize - 1];
            let ago = self.cluster.rng.below(3_000_000);
            let at = match self.seen.keys().nth(self.cluster.rng.below(1 + 2 * self.seen.len() as u64) as usize) {
                Some((_, at)) => *at,
                None => Hlc::first_of_micros(node.time.wall().micros() - ago),
            };
            let Ok(bytes) = self.cluster.read(id, index, Some(at)) else { return };
            let first = self.seen.entry((index, at)).or_insert_with(|| bytes.clone());
            assert!(*first == bytes, "chunk {index} at {at} is another at node {id}");
            self.steps[2] += 1;
        }
    }

    fn newest_acknowledged(&self, index: u32) -> Option<Hlc> {
        let of_chunk = self.asked.iter().filter(|asked| asked.offset / CHUNK_BYTES == u64::from(index));
        of_chunk.filter_map(|asked| outcome(&asked.outcome)?.ok()).map(|written| written.stamp).max()
    }

    /// One node crashes; the chains continue without it, unless it is the last that has kept its memory.
    fn die(&mut self) {
        let id = 1 + self.cluster.rng.below(3) as u32;
        if !self.cluster.is_on(NodeId(id)) || self.serving.iter().any(|serving| **serving == [id]) {
            return;
        }
        let kind = if self.cluster.rng.chance(2) { CrashKind::Power } else { CrashKind::Process };
        self.cluster.crash(id, kind);
        self.steps[3] += 1;
        for chain in 0..CHAINS {
            let now = self.cluster.configurations[chain as usize].clone();
            self.serving[chain as usize].retain(|node| *node != id);
            if now.holds(NodeId(id)) || now.syncing == Some(NodeId(id)) {
                let rest: Vec<u32> = now.members.iter().map(|node| node.0).filter(|node| *node != id).collect();
                let joining = now.joining && now.tail() != Some(NodeId(id));
                let syncing = now.syncing.map(|node| node.0).filter(|node| *node != id);
                assert!(!rest.is_empty(), "somebody serves");
                self.cluster.configure(chain, &rest, syncing, joining);
            }
        }
    }

    fn come_back(&mut self) {
        let off: Vec<u32> = (1..=3).filter(|id| !self.cluster.is_on(NodeId(*id))).collect();
        if let Some(id) = off.first() {
            self.cluster.start(*id);
            self.steps[4] += 1;
        }
    }

    /// The control plane's part: a running node that is no member joins.
    fn look_after(&mut self) {
        for id in 1..=3 {
            if !self.cluster.is_on(NodeId(id)) {
                continue;
            }
            for report in self.cluster.reports(id) {
                match report {
                    ChainEvent::CaughtUp { chain, epoch, node } => {
                        let now = self.cluster.configurations[chain.0 as usize].clone();
                        if now.epoch == epoch && now.syncing == Some(node) {
                            let all: Vec<u32> = now.members.iter().map(|node| node.0).chain([node.0]).collect();
                            self.cluster.configure(chain.0, &all, None, true);
                        }
                    }
                    ChainEvent::Ready { chain, epoch } => {
                        let now = self.cluster.configurations[chain.0 as usize].clone();
                        if now.epoch == epoch && now.joining {
                            let all: Vec<u32> = now.members.iter().map(|node| node.0).collect();
                            self.cluster.configure(chain.0, &all, None, false);
                            self.serving[chain.0 as usize].push(id);
                            self.steps[5] += 1;
                        }
                    }
                    other => panic!("node {id}: {other:?}"),
                }
            }
        }
        for chain in 0..CHAINS {
            let now = self.cluster.configurations[chain as usize].clone();
            let away = (1..=3).find(|id| self.cluster.is_on(NodeId(*id)) && !now.holds(NodeId(*id)));
            if let (Some(id), None, false) = (away, now.syncing, now.joining) {
                let members: Vec<u32> = now.members.iter().map(|node| node.0).collect();
                self.cluster.configure(chain, &members, Some(id), false);
            }
        }
    }

    fn end(&mut self) {
        self.cluster.lossy = 0;
        for id in 1..=3 {
            if !self.cluster.is_on(NodeId(id)) {
                self.cluster.start(id);
            }
        }
        for _ in 0..30 {
            self.look_after();
            self.cluster.settle();
        }
        for chain in 0..CHAINS {
            let now = &self.cluster.configurations[chain as usize];
            assert_eq!((now.members.len(), now.joining), (3, false), "chain {chain} is whole: {now:?}");
            let log = self.cluster.log(1, chain);
            assert!(log.iter().zip(1..).all(|((n, _, _), at)| *n == at), "numbers have no hole");
            for id in 2..=3 {
                assert_eq!(self.cluster.log(id, chain), log, "chain {chain} at node {id}");
            }
        }
        // Each request is one record, at the place of its answer.
        for asked in &self.asked {
            let Some(Ok(written)) = outcome(&asked.outcome) else { continue };
            let chain = LAYOUT.chain((asked.offset / CHUNK_BYTES) as u32);
            let mut of = Vec::new();
            let mut after = 0;
            loop {
                let some = self.cluster.plane(2).device().records_of(ChainId(chain.0), after, 100).unwrap();
                let Some(last) = some.last() else { break };
                after = last.header.n;
                of.extend(some.into_iter().filter(|record| record.header.seq == asked.seq));
            }
            let [record] = &of[..] else { panic!("{} records of request {}", of.len(), asked.seq) };
            assert_eq!((record.header.stamp, written.offset), (written.stamp, asked.offset));
            let (payload, _) = self.cluster.plane(2).device().payload_of(record).unwrap();
            assert_eq!(payload, bytes_of(asked.seq, asked.len));
        }
        let seen = std::mem::take(&mut self.seen);
        for ((index, at), bytes) in &seen {
            for id in 1..=3 {
                assert!(
                    self.cluster.read(id, *index, Some(*at)).unwrap() == *bytes,
                    "chunk {index} at {at}, node {id}"
                );
            }
        }
        for index in 0..4 {
            let at = self.cluster.nodes[0].time.wall();
            let now = self.cluster.read(1, index, None).unwrap();
            for id in 1..=3 {
                assert!(self.cluster.read(id, index, None).unwrap() == now);
                assert!(self.cluster.read(id, index, Some(at)).unwrap() == now);
            }
        }
    }
}

#[test]
fn members_agree_in_every_random_history() {
    let plan = SeedPlan::new(1, 12, 600);
    let played = plan.play(|seed, steps| {
        let mut lives = Lives::new(seed);
        lives.cluster.lossy = [0, 10, 40][seed as usize % 3];
        for _ in 0..steps {
            lives.step();
        }
        lives.end();
        lives.steps
    });
    let mut steps = [0; 6];
    for own in played {
        steps.iter_mut().zip(own).for_each(|(all, own)| *all += own);
    }
    let [writes, again, reads, deaths, returns, served] = steps;
    println!(
        "{writes} writes, {again} asked again, {reads} reads of then, {deaths} deaths, {returns} returns, {served} \
         served again"
    );
    assert!(!plan.is_whole(12, 600) || steps.iter().all(|count| *count > 0), "all of it happens");
}
