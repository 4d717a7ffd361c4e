//! A whole cluster in one thread under a seed: machines with clocks of their own that die, restart, sleep and are cut
//! off, a network that loses, doubles and delays, a log whose leader changes, and chains whose records are numbers in a
//! list.
//!
//! Replicas are modelled coarsely: a write is acknowledged only if every member of an epoch has it, a syncing target
//! gets its tail's log at some moment, a restarting one loses the end of its own. The test checks what the control
//! plane has to guarantee: a node that may answer has every acknowledged write.

mod chains;
mod checks;
mod faults;

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::{ChainEpoch, ChainId, ClusterId, Fault, MonoTime, NodeId, Rng};
use frieze_wire::chain::Configuration;

use super::STAMP;
use super::states::GIB;
use crate::{
    Assignment, ClusterChange, ClusterState, Controller, ControllerEffect, ControllerInput, Decision, Heartbeat,
    LeaseGrant, NodeDevice, NodeInfo, NodeLease, NodeLeaseEffect, NodeLeaseInput, OperatorReply, OperatorRequest,
    ProcessIdentity, ReplicaEvent, Settings, WallMoment,
};

pub(super) const MS: u64 = 1_000_000;

/// What is on its way.
#[derive(Clone, Debug)]
enum Packet {
    Heartbeat(Heartbeat),
    Grant(LeaseGrant),
    Refusal(Fault),
    /// Configurations on their way into the replicas of a process.
    Install(u64, u64, Vec<Assignment>),
    /// A proposal on its way to a majority, of a leader of this term.
    Proposal(u64, Vec<Decision>),
    /// A question about leadership, and which process asked.
    Confirm(u64, u64),
    Ask(u64, OperatorRequest),
    /// The metalog's member reports the leader.
    Leader(u64, usize),
}

/// A replica of a chain, in the large.
#[derive(Clone, Debug, Default)]
struct Replica {
    installed: Configuration,
    /// Epoch and number of each record.
    log: Vec<(ChainEpoch, u64)>,
    durable: usize,
}

/// A machine and the process on it.
struct ControlMachine {
    node: Option<NodeId>,
    is_up: bool,
    is_destroyed: bool,
    asleep_until: u64,
    incarnation: u64,
    offset: u64,
    /// Of its clock, in millionths.
    rate_ppm: i64,
    term: u64,
    /// The newest term in which it was told to lead.
    leads: u64,
    state: ClusterState,
    applied: usize,
    controller: Controller,
    tenant: Option<NodeLease>,
    chains: BTreeMap<ChainId, Replica>,
    next_tick: u64,
}

pub(super) struct ControlCluster {
    pub(super) rng: Rng,
    settings: Settings,
    now: u64,
    packets: BTreeMap<(u64, u64), (usize, usize, Packet)>,
    sent: u64,
    pub(super) is_faulty: bool,
    machines: Vec<ControlMachine>,
    cut: BTreeSet<(usize, usize)>,
    /// The leader of the metalog, and its term.
    leader: Option<usize>,
    term: u64,
    /// The former leader that is to lead again, and when.
    again: Option<(u64, usize)>,
    log: Vec<Decision>,
    /// The state after the whole log.
    truth: ClusterState,
    acknowledged: BTreeMap<ChainId, Vec<u64>>,
    written: u64,
    /// Nodes that truly have caught up, or are ready, under which epoch.
    caught_up: BTreeSet<(ChainId, ChainEpoch, NodeId)>,
    ready: BTreeSet<(ChainId, ChainEpoch, NodeId)>,
    asked: u64,
    declared_dead: BTreeSet<NodeId>,
    /// Chains without a known member that may have kept its memory, and since when.
    stuck: BTreeMap<ChainId, u64>,
    pub(super) counts: Counts,
}

#[derive(Clone, Default, Debug)]
pub(super) struct Counts {
    pub(super) writes: u64,
    pub(super) reads: u64,
    pub(super) refused_reads: u64,
    pub(super) offline: u64,
    pub(super) returned: u64,
    pub(super) taken_out: u64,
    pub(super) left: u64,
    pub(super) served: u64,
    pub(super) resumed: u64,
    pub(super) moved: u64,
    pub(super) answers: u64,
    pub(super) leaders: u64,
    pub(super) removed: u64,
}

impl Counts {
    fn all(&mut self) -> [(&'static str, &mut u64, u64); 13] {
        [
            ("writes", &mut self.writes, 200),
            ("reads", &mut self.reads, 200),
            ("reads without a right to", &mut self.refused_reads, 200),
            ("nodes found offline", &mut self.offline, 1),
            ("returns", &mut self.returned, 4),
            ("targets taken out", &mut self.taken_out, 10),
            ("targets that left alive", &mut self.left, 4),
            ("targets that came to serve", &mut self.served, 20),
            ("chains gone on from a log", &mut self.resumed, 5),
            ("targets to be moved", &mut self.moved, 5),
            ("answers to operators", &mut self.answers, 3),
            ("leaders", &mut self.leaders, 2),
            ("nodes removed, in ten lives", &mut self.removed, 0),
        ]
    }

    pub(super) fn add(&mut self, other: &Counts) {
        let mut other = other.clone();
        for ((_, mine, _), (_, theirs, _)) in self.all().into_iter().zip(other.all()) {
            *mine += *theirs;
        }
    }

    /// What the lives are about has happened in them.
    pub(super) fn assert_enough(&mut self, lives: u64) {
        for (what, count, least) in self.all() {
            assert!(*count >= least * lives && *count * 10 >= lives, "{what}: {count} in {lives} lives");
        }
    }
}

fn settings() -> Settings {
    Settings {
        // Far more than real clocks, so that little mistakes show.
        rate_error_ppm: 200_000,
        return_patience_ns: 8_000 * MS,
        replace_after_ns: 15_000 * MS,
        sync_patience_ns: 5_000 * MS,
        request_ns: 4_000 * MS,
        ..Settings::default()
    }
}

impl ControlCluster {
    pub(super) fn new(seed: u64) -> ControlCluster {
        let mut rng = Rng::new(seed);
        let settings = settings();
        let mut cluster = ControlCluster {
            settings,
            now: 1_000 * MS,
            packets: BTreeMap::new(),
            sent: 0,
            is_faulty: true,
            machines: Vec::new(),
            cut: BTreeSet::new(),
            leader: None,
            term: 0,
            again: None,
            log: Vec::new(),
            truth: ClusterState::default(),
            acknowledged: BTreeMap::new(),
            written: 0,
            caught_up: BTreeSet::new(),
            ready: BTreeSet::new(),
            asked: 0,
            declared_dead: BTreeSet::new(),
            stuck: BTreeMap::new(),
            counts: Counts::default(),
            rng: rng.split(),
        };
        let (machines, chain_count) = (rng.between(3, 6), rng.between(8, 32) as u32);
        (0..machines).for_each(|_| cluster.add_machine());
        let first = cluster.newcomer(0);
        let epoch = ChainEpoch(rng.between(1, 9));
        let replicas = rng.between(2, 3) as u32;
        cluster.machines[0].node = Some(NodeId(1));
        cluster.start(0);
        cluster.append(Decision::Found { cluster: ClusterId(7), replicas, chain_count, epoch, first, gaps: vec![] });
        cluster.elect(0);
        cluster
    }

    fn add_machine(&mut self) {
        let at = self.machines.len();
        // The fastest against the slowest stays within the error.
        let half = self.settings.rate_error_ppm * 45 / 100;
        let rng = &mut self.rng;
        self.machines.push(ControlMachine {
            node: None,
            is_up: true,
            is_destroyed: false,
            asleep_until: 0,
            incarnation: 1,
            offset: rng.below(1 << 50),
            rate_ppm: *rng.choose(&[-1, 0, 1]) * rng.between(half / 2, half) as i64,
            term: 0,
            leads: 0,
            state: ClusterState::default(),
            applied: 0,
            controller: Controller::new(NodeId(at as u32 + 1), self.settings.clone()),
            tenant: None,
            chains: BTreeMap::new(),
            next_tick: 0,
        });
    }

    fn newcomer(&self, at: usize) -> NodeInfo {
        NodeInfo {
            name: format!("m{at}"),
            site: ["", "east", "west"][at % 3].to_owned(),
            machine: ["", "box"][at % 2].to_owned(),
            address: format!("m{at}:7410"),
            token: at as u128 + 1,
            incarnation: self.machines[at].incarnation,
            devices: vec![NodeDevice {
                device: 0,
                capacity_bytes: GIB * (1 + at as u64 % 2),
                has_failed: false,
                is_full: false,
            }],
        }
    }

    fn moment(&self, at: usize) -> WallMoment {
        let ControlMachine { offset, rate_ppm, .. } = self.machines[at];
        let mono = self.now as i64 + (self.now / 1_000_000) as i64 * rate_ppm;
        WallMoment { mono: MonoTime(offset + mono as u64), wall_us: self.now / 1000 }
    }

    fn is_awake(&self, at: usize) -> bool {
        self.machines[at].is_up && self.machines[at].asleep_until <= self.now
    }

    fn of(&self, node: NodeId) -> Option<usize> {
        self.machines.iter().position(|machine| machine.node == Some(node))
    }

    fn pick(&mut self) -> usize {
        self.rng.below(self.machines.len() as u64) as usize
    }

    // ---- time and messages ----

    /// Lets some time go by, with what happens in it.
    pub(super) fn play(&mut self) {
        self.now += self.rng.between(1, 12) * MS;
        while let Some(entry) = self.packets.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let (from, to, packet) = entry.remove();
            self.arrive(from, to, packet);
        }
        for at in 0..self.machines.len() {
            if self.is_awake(at) && self.machines[at].next_tick <= self.now {
                self.machines[at].next_tick = self.now + self.rng.between(20, 60) * MS;
                self.tick(at);
            }
        }
        if let Some((_, next)) = self.again.take_if(|(when, _)| *when <= self.now)
            && self.may_lead(next)
        {
            self.elect(next);
        }
        for _ in 0..3 {
            let at = self.pick();
            self.work(at);
        }
        self.check_parts();
    }

    fn send(&mut self, from: usize, to: usize, packet: Packet) {
        let is_inner = from == to;
        if self.is_faulty && !is_inner && self.rng.chance(15) {
            return;
        }
        let count = if self.is_faulty && !is_inner && self.rng.chance(15) { 2 } else { 1 };
        for _ in 0..count {
            let mut delay = self.rng.between(MS / 10, 20 * MS);
            // A flush may take long, and a message may wait in a queue for longer than a lease.
            let (one_in, longest) = match (&packet, is_inner) {
                (Packet::Proposal(..) | Packet::Confirm(..), _) => (6, 1_500),
                (_, true) => (0, 0),
                _ if self.rng.chance(4) => (12, 12_000),
                _ => (12, 3_000),
            };
            if self.is_faulty && one_in > 0 && self.rng.chance(one_in) {
                delay += self.rng.below(longest * MS);
            }
            self.sent += 1;
            self.packets.insert((self.now + delay, self.sent), (from, to, packet.clone()));
        }
    }

    fn arrive(&mut self, from: usize, to: usize, packet: Packet) {
        let is_cut = self.cut.contains(&(from, to));
        if is_cut && !matches!(packet, Packet::Proposal(..) | Packet::Leader(..)) || !self.machines[to].is_up {
            return;
        }
        if self.machines[to].asleep_until > self.now {
            // It waits in the machine's socket.
            self.sent += 1;
            self.packets.insert((self.machines[to].asleep_until, self.sent), (from, to, packet));
            return;
        }
        match packet {
            Packet::Heartbeat(heartbeat) => self.step_controller(to, ControllerInput::Heartbeat(heartbeat)),
            Packet::Grant(grant) => self.step_node_lease(to, NodeLeaseInput::Granted(grant)),
            Packet::Install(incarnation, token, chains) => {
                if self.machines[to].incarnation == incarnation {
                    self.install(to, chains);
                    self.step_node_lease(to, NodeLeaseInput::Installed { token });
                }
            }
            Packet::Refusal(fault) => {
                let from = NodeId(from as u32 + 1);
                self.step_node_lease(to, NodeLeaseInput::Refused { from, fault });
            }
            Packet::Proposal(term, decisions) => {
                if self.leader == Some(to) && self.term == term && !(self.is_faulty && self.rng.chance(20)) {
                    decisions.into_iter().for_each(|decision| self.append(decision));
                    if self.rng.chance(2) {
                        self.catch_up(to);
                    }
                }
            }
            Packet::Confirm(token, incarnation) => {
                let machine = &self.machines[to];
                if self.leader == Some(to) && machine.incarnation == incarnation && machine.leads == self.term {
                    self.catch_up(to);
                    self.step_controller(to, ControllerInput::Confirmed { token });
                }
            }
            Packet::Ask(request, ask) => self.step_controller(to, ControllerInput::Request { request, ask }),
            Packet::Leader(term, leader) => self.on_leader(to, term, leader),
        }
    }

    fn tick(&mut self, at: usize) {
        if self.machines[at].applied < self.log.len() && (self.rng.chance(2) || !self.is_faulty) {
            self.catch_up(at);
        }
        self.step_controller(at, ControllerInput::Tick);
        self.report(at);
        self.step_node_lease(at, NodeLeaseInput::Tick);
        if self.machines[at].node.is_none() && self.rng.chance(20) {
            let newcomer = self.newcomer(at);
            self.ask(OperatorRequest::Join { newcomer, cluster: None, clock: None });
        }
    }

    /// What the replicas on a machine tell, as far as they have it.
    fn report(&mut self, at: usize) {
        let told: Vec<_> = self.machines[at].chains.iter().map(|(id, replica)| (*id, replica.last())).collect();
        for (chain, last) in told {
            let left_bytes = 0;
            self.step_node_lease(
                at,
                NodeLeaseInput::Replica { chain, event: ReplicaEvent::Progress { last, newest: last.1, left_bytes } },
            );
        }
    }

    // ---- the log ----

    fn append(&mut self, decision: Decision) {
        let before = self.truth.clone();
        let changes = self.truth.apply(&decision, STAMP);
        self.log.push(decision.clone());
        if !matches!(changes[..], [ClusterChange::NoEffect(_)]) {
            self.check_decision(&before, &decision);
        }
        assert!(self.truth.version() >= before.version());
        let (truth, now) = (&self.truth, self.now);
        let is_over = |target: &crate::ChainTarget| {
            !truth.kept_memory(target) || truth.node(target.node).is_ok_and(|node| node.is_dead)
        };
        for chain in truth.chains() {
            if chain.serving().all(is_over) {
                self.stuck.entry(chain.id).or_insert(now);
            } else {
                self.stuck.remove(&chain.id);
            }
        }
    }

    /// A machine executes what was committed.
    fn catch_up(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        let mut changes = Vec::new();
        for decision in &self.log[machine.applied..] {
            changes.extend(machine.state.apply(decision, STAMP));
        }
        machine.applied = self.log.len();
        let known = machine.state.node_of_token(at as u128 + 1).map(|node| node.id);
        if machine.node.is_none() && known.is_some() {
            machine.node = known;
            self.start(at);
        }
        self.step_controller(at, ControllerInput::Applied(changes));
    }

    fn elect(&mut self, at: usize) {
        self.term += 1;
        self.leader = Some(at);
        self.counts.leaders += 1;
        self.on_leader(at, self.term, at);
        let deaf = self.again.map(|(_, before)| before);
        (0..self.machines.len()).filter(|other| deaf != Some(*other)).for_each(|other| self.announce(other));
    }

    /// Informs a machine, perhaps late, of the leader.
    fn announce(&mut self, to: usize) {
        let Some(leader) = self.leader else { return };
        let delay = if self.is_faulty && self.rng.chance(4) { 5_000 * MS } else { 200 * MS };
        let delay = self.rng.below(delay);
        self.sent += 1;
        self.packets.insert((self.now + delay, self.sent), (leader, to, Packet::Leader(self.term, leader)));
    }

    fn on_leader(&mut self, at: usize, term: u64, leader: usize) {
        if term < self.machines[at].term {
            return;
        }
        self.machines[at].term = term;
        let node = self.machines[leader].node;
        if leader == at {
            if self.leader != Some(at) || self.term != term {
                return;
            }
            if self.machines[at].leads < term {
                self.machines[at].leads = term;
                self.catch_up(at);
                self.step_controller(at, ControllerInput::Lead { term });
            }
        } else {
            self.step_controller(at, ControllerInput::Follow(node));
        }
        self.step_node_lease(at, NodeLeaseInput::Leader(node));
    }

    // ---- the cores ----

    fn step_controller(&mut self, at: usize, input: ControllerInput) {
        let moment = self.moment(at);
        let machine = &mut self.machines[at];
        let mut out = Vec::new();
        machine.controller.step(moment, &machine.state, input, &mut out);
        for effect in out {
            match effect {
                ControllerEffect::Confirm { token } => {
                    let incarnation = self.machines[at].incarnation;
                    self.send(at, at, Packet::Confirm(token, incarnation));
                }
                ControllerEffect::Grant { to, grant } => {
                    if let Some(to) = self.of(to) {
                        self.send(at, to, Packet::Grant(grant));
                    }
                }
                ControllerEffect::Refuse { to, error } => {
                    if let Some(to) = self.of(to) {
                        self.send(at, to, Packet::Refusal(error.into()));
                    }
                }
                ControllerEffect::Propose { term, decisions } => {
                    self.send(at, at, Packet::Proposal(term, decisions));
                }
                ControllerEffect::Answer { result, .. } => {
                    self.counts.answers +=
                        u64::from(matches!(result, Ok(OperatorReply::Joined(_) | OperatorReply::Decided)));
                }
                ControllerEffect::StepAside(error) => panic!("the clocks are right: {error}"),
            }
        }
    }

    fn step_node_lease(&mut self, at: usize, input: NodeLeaseInput) {
        let moment = self.moment(at);
        let Some(tenant) = &mut self.machines[at].tenant else { return };
        let mut out = Vec::new();
        tenant.step(moment, input, &mut out);
        for effect in out {
            match effect {
                NodeLeaseEffect::Send { to, heartbeat } => {
                    if let Some(to) = self.of(to) {
                        self.send(at, to, Packet::Heartbeat(heartbeat));
                    }
                }
                NodeLeaseEffect::Install { token, chains } => {
                    let incarnation = self.machines[at].incarnation;
                    self.send(at, at, Packet::Install(incarnation, token, chains));
                }
                NodeLeaseEffect::Refused(_) => {}
            }
        }
    }

    fn install(&mut self, at: usize, chains: Vec<Assignment>) {
        for assignment in chains {
            let next = assignment.configuration.expect("only what is to be installed comes here");
            let replica = self.machines[at].chains.entry(assignment.chain).or_default();
            if next.epoch > replica.installed.epoch {
                replica.installed = next;
            }
        }
    }

    /// A process begins.
    fn start(&mut self, at: usize) {
        let Some(node) = self.machines[at].node else { return };
        let settings = self.settings.clone();
        let seed = self.rng.next();
        let told = self.newcomer(at);
        let machine = &mut self.machines[at];
        let logs: Vec<_> = machine.chains.iter().map(|(id, replica)| (*id, replica.last(), replica.last().1)).collect();
        let (incarnation, address, devices) = (machine.incarnation, told.address, told.devices);
        let identity = ProcessIdentity { cluster: ClusterId(7), node, incarnation, address, devices };
        machine.tenant = Some(NodeLease::new(identity, settings.clone(), seed, logs));
        machine.controller = Controller::new(node, settings);
        (machine.leads, machine.term) = (0, 0);
        self.announce(at);
    }
}

impl Replica {
    fn last(&self) -> (ChainEpoch, u64) {
        self.log.last().map_or((ChainEpoch(0), 0), |(epoch, _)| (*epoch, self.log.len() as u64))
    }
}
