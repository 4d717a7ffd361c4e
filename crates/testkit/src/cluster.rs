//! A few servers in one process and one thread: simulated disks, a clock moved by hand, and a network that loses,
//! delays, doubles and reorders under a seed. A server that waits runs the other servers meanwhile.

mod client;
mod network;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use frieze_base::{ChainEpoch, ChainId, Fault, LogIndex, MonoTime, NodeId};
use frieze_disk::{CrashKind, SimDisk, SimTime};
use frieze_node::{Joining, MetalogStatus, Settings};
use frieze_wire::chain::Configuration;
use frieze_wire::peer::ServerMessage;

use crate::server::{SimMachine, TestServer};

pub use client::{FailoverClient, make_op};
pub use network::NetFaults;

use network::{PeerLinks, PeerNetwork, PeerPacket};

/// Virtual microseconds of one step.
const STEP_US: u64 = 1_000;
/// Most steps that anything may take: a longer wait would last for ever.
const STEPS_MAX: u64 = 120_000;

/// A machine of the cluster and its server, if that runs.
struct ClusterMachine {
    machine: SimMachine,
    /// It has chains of its own.
    has_chains: bool,
    /// Starts of its server.
    starts: u8,
    joining: Option<NodeId>,
    server: Option<TestServer>,
}

/// Servers, their machines, and the network between them.
pub struct TestCluster {
    network: Arc<Mutex<PeerNetwork>>,
    machines: Mutex<BTreeMap<NodeId, ClusterMachine>>,
    steps: AtomicU64,
    tending: AtomicBool,
    /// Nothing is flushed but what journals need.
    flushes_held: AtomicBool,
    /// Called in every step, to make things happen while a server waits.
    hook: Mutex<Option<StepHook>>,
    /// Epoch of the newest configurations of chains.
    epoch: Mutex<u64>,
}

/// Receives the number of the step.
type StepHook = Box<dyn FnMut(u64) + Send>;

fn settings() -> Settings {
    Settings { session_timeout: Duration::from_secs(20), ..crate::server::test_settings() }
}

impl TestCluster {
    /// A cluster without machines.
    pub fn new(seed: u64) -> Arc<TestCluster> {
        Arc::new(TestCluster {
            network: Arc::new(Mutex::new(PeerNetwork::new(seed))),
            machines: Mutex::default(),
            steps: AtomicU64::new(0),
            tending: AtomicBool::new(false),
            flushes_held: AtomicBool::new(false),
            hook: Mutex::default(),
            epoch: Mutex::new(1000),
        })
    }

    /// A cluster whose node 1 has founded a metalog; the nodes up to `nodes` vote in it and have caught up.
    pub fn of(seed: u64, nodes: u32) -> Arc<TestCluster> {
        let cluster = TestCluster::new(seed);
        cluster.add_machine(NodeId(1), None);
        cluster.server(NodeId(1)).found_metalog().unwrap();
        for node in 2..=nodes {
            cluster.add_voter(NodeId(node));
        }
        cluster
    }

    fn machines(&self) -> MutexGuard<'_, BTreeMap<NodeId, ClusterMachine>> {
        self.machines.lock().unwrap()
    }

    fn network(&self) -> MutexGuard<'_, PeerNetwork> {
        self.network.lock().unwrap()
    }
}

/// Faults.
impl TestCluster {
    /// How bad the network is from now on.
    pub fn set_faults(&self, faults: NetFaults) {
        self.network().faults = faults;
    }

    /// The node neither sends nor receives any more.
    pub fn isolate(&self, node: NodeId) {
        self.network().isolated.insert(node);
    }

    /// `to` receives no messages of `from` any more.
    pub fn cut_link(&self, from: NodeId, to: NodeId) {
        self.network().cut.insert((from, to));
    }

    /// `to` receives no messages of the log from `from` any more.
    pub fn cut_log(&self, from: NodeId, to: NodeId) {
        self.network().cut_for_log.insert((from, to));
    }

    /// Messages for which `is_lost` returns true are lost from now on.
    pub fn lose_if(&self, is_lost: impl FnMut(NodeId, &ServerMessage) -> bool + Send + 'static) {
        self.network().loss_rule = Some(Box::new(is_lost));
    }

    /// Every node reaches every other again; lossy links stay lossy.
    pub fn heal(&self) {
        let mut network = self.network();
        network.isolated.clear();
        network.cut.clear();
        network.cut_for_log.clear();
    }

    /// While held, data is flushed only if a client waits for it.
    pub fn hold_flushes(&self, held: bool) {
        self.flushes_held.store(held, Ordering::Relaxed);
    }

    /// Sets a function to be called in every step, also while a server waits.
    pub fn set_step_hook(&self, hook: Option<StepHook>) {
        *self.hook.lock().unwrap() = hook;
    }

    /// The process, or the power, of a machine is lost.
    pub fn crash(&self, id: NodeId, kind: CrashKind) {
        let mut machines = self.machines();
        let machine = machines.get_mut(&id).unwrap();
        let server = machine.server.take();
        machine.machine.crash(kind);
        drop(machines);
        drop(server);
        self.network().packets.retain(|packet| packet.to != id && packet.from != id);
    }
}

/// Chains.
impl TestCluster {
    /// Each chain has these members from now on, in this order, at all servers that run.
    pub fn set_chain_members(&self, members: &[&[u32]]) {
        let all: Vec<NodeId> = self.alive().into_iter().map(|(id, _)| id).collect();
        self.set_chain_members_at(&all, members);
    }

    /// As `set_chain_members`, at these servers only.
    pub fn set_chain_members_at(&self, nodes: &[NodeId], members: &[&[u32]]) {
        let of = |members: &[u32]| Configuration {
            members: members.iter().copied().map(NodeId).collect(),
            ..Configuration::default()
        };
        self.configure(nodes, members.iter().map(|members| of(members)));
    }

    /// Each chain has this configuration from now on, under a new epoch, at all servers that run.
    pub fn set_chains(&self, configurations: &[Configuration]) {
        let all: Vec<NodeId> = self.alive().into_iter().map(|(id, _)| id).collect();
        self.configure(&all, configurations.iter().cloned());
    }

    fn configure(&self, nodes: &[NodeId], configurations: impl Iterator<Item = Configuration>) {
        let epoch = {
            let mut epoch = self.epoch.lock().unwrap();
            *epoch += 1;
            ChainEpoch(*epoch)
        };
        let of_epoch = |configuration| Configuration { epoch, ..configuration };
        let chains: Vec<_> = (0..).map(ChainId).zip(configurations.map(of_epoch)).collect();
        for server in nodes.iter().map(|node| self.server(*node)) {
            server.configure(&chains).unwrap();
            server.renew_lease(MonoTime(u64::MAX));
        }
    }
}

/// Machines and servers.
impl TestCluster {
    /// An empty machine, alone or about to join others.
    pub fn add_machine(self: &Arc<TestCluster>, id: NodeId, joining: Option<NodeId>) {
        self.add_machine_with(id, joining, true);
    }

    fn add_machine_with(self: &Arc<TestCluster>, id: NodeId, joining: Option<NodeId>, has_chains: bool) {
        let now_us = self.network().now_us;
        let time = SimTime::new(1_700_000_000_000_000 + now_us);
        let machine = SimMachine { time, settings: settings(), ..SimMachine::new(u64::from(id.0) * 77) };
        self.machines().insert(id, ClusterMachine { machine, has_chains, starts: 0, joining, server: None });
        self.start(id).unwrap();
    }

    /// Adds a machine that joins, is added by the leader, catches up and votes.
    pub fn add_voter(self: &Arc<TestCluster>, id: NodeId) {
        self.add_learner(id);
        self.promote(id);
    }

    /// Adds a machine that joins and is added by the leader: it gets the log, and does not vote.
    pub fn add_learner(self: &Arc<TestCluster>, id: NodeId) {
        self.add_machine(id, Some(id));
        self.as_leader(|server| server.add_member(id));
    }

    /// As `add_learner`, and no chain has a copy there.
    pub fn add_learner_without_chains(self: &Arc<TestCluster>, id: NodeId) {
        self.add_machine_with(id, Some(id), false);
        self.as_leader(|server| server.add_member(id));
    }

    /// Waits until a learner has caught up and votes.
    pub fn promote(&self, id: NodeId) {
        self.as_leader(|server| match server.promote_member(id) {
            Err(_) if server.metalog().is_some_and(|status| status.members.voters.contains(&id)) => Ok(()),
            other => other,
        });
        self.until(&format!("node {id} votes"), || self.status(id).members.voters.contains(&id));
    }

    /// Runs something at the current leader, until it works.
    pub fn as_leader(&self, ask: impl Fn(&TestServer) -> Result<(), Fault>) {
        for _ in 0..1000 {
            if let Some(leader) = self.leader()
                && ask(&self.server(leader)).is_ok()
            {
                return;
            }
            self.run(20);
        }
        panic!("no leader did it: {:?}", self.statuses());
    }

    /// Starts a machine's server.
    ///
    /// # Errors
    /// The directory is refused, or the disk fails.
    pub fn start(self: &Arc<TestCluster>, id: NodeId) -> Result<(), Fault> {
        let (settings, seams, joining) = {
            let mut machines = self.machines();
            let ClusterMachine { machine, starts, joining, .. } = machines.get_mut(&id).unwrap();
            *starts += 1;
            let entropy = [id.0 as u8 * 16 + *starts; 64];
            let seams = machine.seams(Arc::new(machine.disk.clone()), Box::new(machine.store.clone()), entropy);
            (machine.settings.clone(), seams, *joining)
        };
        let server = match joining {
            Some(node) => {
                let founder = self.machines()[&NodeId(1)].server.clone();
                let cluster = founder.map(|founder| founder.cluster()).unwrap_or_default();
                // The key that node 1 drew when its directory was made.
                let secret = [17; 32];
                let joining = Joining { cluster, node, secret, chain_count: 3, known: Vec::new() };
                TestServer::join(settings, seams, &joining)?
            }
            None => TestServer::open(settings, seams)?,
        };
        if id != NodeId(1) && self.machines()[&id].has_chains {
            // Bytes do not matter here: each machine has chains of its own, and needs no lease from a leader.
            let epoch = ChainEpoch(self.machines()[&id].starts.into());
            let alone = Configuration { epoch, members: vec![id], ..Configuration::default() };
            let chains: Vec<_> = (0..3).map(|chain| (ChainId(chain), alone.clone())).collect();
            server.configure(&chains)?;
            server.renew_lease(MonoTime(u64::MAX));
        }
        let links = PeerLinks { from: id, time: self.time(id), network: self.network.clone() };
        server.connect(Arc::new(links));
        let cluster = Arc::downgrade(self);
        server.while_waiting(Box::new(move || {
            if let Some(cluster) = cluster.upgrade() {
                cluster.run(1);
            }
        }));
        // Time passes for all of them.
        while server.restart_wait_us() > 0 {
            self.step();
        }
        if let Some(machine) = self.machines().get_mut(&id) {
            // From now on its directory says which cluster it belongs to.
            machine.joining = None;
            machine.server = Some(server);
        }
        Ok(())
    }

    /// The disk of a machine.
    pub fn disk(&self, id: NodeId) -> SimDisk {
        self.machines()[&id].machine.disk.clone()
    }

    /// The clocks of a machine.
    pub fn time(&self, id: NodeId) -> SimTime {
        self.machines()[&id].machine.time.clone()
    }

    /// The server of a machine, which runs.
    pub fn server(&self, id: NodeId) -> TestServer {
        self.machines()[&id].server.clone().unwrap()
    }

    /// The servers that run.
    pub fn alive(&self) -> Vec<(NodeId, TestServer)> {
        let machines = self.machines();
        machines.iter().filter_map(|(id, machine)| Some((*id, machine.server.clone()?))).collect()
    }

    /// Status of a server's metalog.
    pub fn status(&self, id: NodeId) -> MetalogStatus {
        self.server(id).metalog().unwrap()
    }

    /// Status of the metalog of every server that runs.
    pub fn statuses(&self) -> Vec<(NodeId, Option<MetalogStatus>)> {
        self.alive().into_iter().map(|(id, server)| (id, server.metalog())).collect()
    }

    /// The leader, if it is not isolated.
    pub fn leader(&self) -> Option<NodeId> {
        let leads = |(id, server): &(NodeId, TestServer)| {
            let is_reached = !self.network().isolated.contains(id);
            is_reached && server.metalog().is_some_and(|status| status.leads)
        };
        self.alive().iter().find(|one| leads(one)).map(|(id, _)| *id)
    }
}

/// Time.
impl TestCluster {
    /// Runs so many steps.
    pub fn run(&self, steps: u64) {
        for _ in 0..steps {
            self.step();
        }
    }

    /// Runs steps until a condition holds; `what` says it for people.
    pub fn until(&self, what: &str, is: impl Fn() -> bool) {
        let from = self.steps.load(Ordering::Relaxed);
        while !is() {
            self.step();
            let steps = self.steps.load(Ordering::Relaxed) - from;
            assert!(steps < STEPS_MAX, "after {STEPS_MAX} steps it does not hold that {what}: {:?}", self.statuses());
        }
    }

    fn step(&self) {
        let number = self.steps.fetch_add(1, Ordering::Relaxed);
        self.network().now_us += STEP_US;
        for machine in self.machines().values() {
            machine.machine.time.advance_us(STEP_US);
        }
        let hook = self.hook.lock().unwrap().take();
        if let Some(mut hook) = hook {
            hook(number);
            self.hook.lock().unwrap().get_or_insert(hook);
        }
        let arrived: Vec<PeerPacket> = self.network().take_arrived();
        for packet in arrived {
            let server = self.machines().get(&packet.to).and_then(|machine| machine.server.clone());
            let is_isolated = self.network().isolated.contains(&packet.to);
            if let Some(server) = server.filter(|_| !is_isolated) {
                // A store or a clock may refuse: the sender repeats the message.
                let _ = server.receive(packet.from, &packet.header, packet.message, (&packet.payload.bytes).into());
            }
        }
        for (id, server) in self.alive() {
            server.beat();
            server.answer_peers();
            server.reply_durable();
            if number.is_multiple_of(20) {
                server.tick_chains();
            }
            // Flushes take a while, and not all the same.
            if self.network().rng.chance(2) {
                let _ = server.journal(Duration::ZERO);
            }
            let held = self.flushes_held.load(Ordering::Relaxed);
            if !held && (number + u64::from(id.0) * 7).is_multiple_of(50) && server.is_dirty() {
                let _ = server.flush();
            }
            if (number + u64::from(id.0) * 90).is_multiple_of(500) && !self.tending.swap(true, Ordering::Relaxed) {
                let _ = server.tend();
                self.tending.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Runs until every server has executed everything, and asserts that all hold the same.
    pub fn settle(&self) -> (LogIndex, u64) {
        self.until("all servers have executed everything", || {
            let all: Vec<MetalogStatus> = self.statuses().into_iter().filter_map(|(_, status)| status).collect();
            let last = all.iter().map(|status| status.last).max();
            self.leader().is_some() && all.iter().all(|status| Some(status.applied) == last)
        });
        let digests: BTreeSet<(LogIndex, u64)> =
            self.alive().iter().map(|(_, server)| server.digest().unwrap()).collect();
        assert_eq!(digests.len(), 1, "servers at one place of the log hold the same: {digests:?}");
        digests.into_iter().next().unwrap()
    }
}
