//! A few servers in one process and one thread: simulated disks, a clock moved by hand, and a network that loses,
//! delays, doubles and reorders under a seed. A server that waits runs the other servers meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use frieze_base::{ChainEpoch, ChainId, Fault, LogIndex, MonoTime, NodeId, Rng, crc32c};
use frieze_disk::{CrashKind, SimDisk, SimTime};
use frieze_node::{
    Joining, MemoryStore, MetalogStatus, PeerPayload, Peers, ProcessStats, Seams, ServerParts, Settings, no_wake,
};
use frieze_wire::chain::Configuration;
use frieze_wire::frame::{FrameHeader, FrameKind};
use frieze_wire::peer::ServerMessage;
use frieze_wire::txn::Caller;

/// Virtual microseconds of one step.
const STEP_US: u64 = 1_000;
/// Most steps that anything may take: a longer wait would last for ever.
const STEPS_MAX: u64 = 120_000;

/// A message on its way.
struct Letter {
    due_us: u64,
    from: NodeId,
    to: NodeId,
    header: FrameHeader,
    told: ServerMessage,
    payload: PeerPayload,
}

/// How bad the network is: one in so many.
#[derive(Clone, Copy)]
pub(crate) struct Weather {
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) late_us: u64,
}

pub(crate) const FAIR: Weather = Weather { lost: u64::MAX, doubled: u64::MAX, late_us: 0 };
pub(crate) const FOUL: Weather = Weather { lost: 25, doubled: 25, late_us: 20_000 };

struct Net {
    rng: Rng,
    weather: Weather,
    now_us: u64,
    letters: Vec<Letter>,
    /// Nodes that neither send nor receive.
    cut_off: BTreeSet<NodeId>,
    /// Pairs of sender and receiver without any messages.
    deaf: BTreeSet<(NodeId, NodeId)>,
    /// Pairs of sender and receiver without messages of the log.
    behind: BTreeSet<(NodeId, NodeId)>,
    /// Decides which other messages are lost, by their content.
    thief: Option<Thief>,
}

/// Inspects a message to a node: true if it is lost.
type Thief = Box<dyn FnMut(NodeId, &ServerMessage) -> bool + Send>;

/// What outlives a server.
pub(crate) struct Machine {
    pub(crate) disk: SimDisk,
    pub(crate) store: MemoryStore,
    pub(crate) time: SimTime,
    boot: u32,
    /// It has chains of its own.
    has_chains: bool,
    lives: u8,
    joining: Option<NodeId>,
    engine: Option<Arc<ServerParts>>,
    settings: Settings,
}

pub(crate) struct World {
    net: Arc<Mutex<Net>>,
    machines: Mutex<BTreeMap<NodeId, Machine>>,
    steps: AtomicU64,
    tending: AtomicBool,
    /// Nothing is flushed but what journals need.
    flushes_held: AtomicBool,
    /// Called in every step, to make things happen while a server waits.
    hook: Mutex<Option<Hook>>,
    /// Epoch of the chains that were given to all.
    epoch: Mutex<u64>,
}

/// Receives the number of the step.
type Hook = Box<dyn FnMut(u64) + Send>;

struct Way {
    from: NodeId,
    world: std::sync::Weak<World>,
    net: Arc<Mutex<Net>>,
}

impl Peers for Way {
    fn tell(&self, to: NodeId, told: ServerMessage, payload: PeerPayload) {
        let Some(world) = self.world.upgrade() else { return };
        // A real link stamps a frame with its engine's clock when it is sent; here the machine's wall clock will do.
        let hlc = world.machines().get(&self.from).map_or(frieze_hlc::Hlc::ZERO, |machine| machine.time.wall());
        let mut net = self.net.lock().unwrap();
        let of_log = matches!(told, ServerMessage::Metalog(_) | ServerMessage::MetalogClose(_));
        let is_deaf = net.deaf.contains(&(self.from, to)) || of_log && net.behind.contains(&(self.from, to));
        let is_stolen = net.thief.as_mut().is_some_and(|steals| steals(to, &told));
        if net.cut_off.contains(&self.from) || net.cut_off.contains(&to) || is_deaf || is_stolen {
            return;
        }
        let Weather { lost, doubled, late_us } = net.weather;
        let copies = if net.rng.chance(lost) { 0 } else { 1 + u64::from(net.rng.chance(doubled)) };
        for _ in 0..copies {
            let due_us = net.now_us + 100 + if late_us > 0 && net.rng.chance(4) { net.rng.below(late_us) } else { 0 };
            let payload_crc = payload.crc.unwrap_or_else(|| crc32c(&payload.bytes));
            let header = FrameHeader { hlc, payload_crc, ..FrameHeader::of(FrameKind::Peer) };
            let (told, payload) = (told.clone(), payload.clone());
            net.letters.push(Letter { due_us, from: self.from, to, header, told, payload });
        }
    }
}

pub(crate) fn settings() -> Settings {
    Settings {
        dir: "simulated".into(),
        segment_bytes: 8 << 20,
        chunk_bytes: 64 << 10,
        chain_count: 3,
        reserve_bytes: 1 << 20,
        root_mode: Some(0o1777),
        session_timeout: Duration::from_secs(20),
        ..Settings::default()
    }
}

impl World {
    pub(crate) fn new(seed: u64) -> Arc<World> {
        let net = Net {
            rng: Rng::new(seed),
            weather: FAIR,
            now_us: 0,
            letters: Vec::new(),
            cut_off: BTreeSet::new(),
            deaf: BTreeSet::new(),
            behind: BTreeSet::new(),
            thief: None,
        };
        Arc::new(World {
            net: Arc::new(Mutex::new(net)),
            machines: Mutex::default(),
            steps: AtomicU64::new(0),
            tending: AtomicBool::new(false),
            flushes_held: AtomicBool::new(false),
            hook: Mutex::default(),
            epoch: Mutex::new(1000),
        })
    }

    /// A world whose node 1 has founded a metalog, with these others in it, all of which have caught up.
    pub(crate) fn of(seed: u64, nodes: u32) -> Arc<World> {
        let world = World::new(seed);
        world.add_machine(NodeId(1), None);
        world.engine(NodeId(1)).found_metalog().unwrap();
        for node in 2..=nodes {
            world.grow(NodeId(node));
        }
        world
    }

    fn machines(&self) -> MutexGuard<'_, BTreeMap<NodeId, Machine>> {
        self.machines.lock().unwrap()
    }

    pub(crate) fn set_weather(&self, weather: Weather) {
        self.net.lock().unwrap().weather = weather;
    }

    pub(crate) fn cut_off(&self, node: NodeId) {
        self.net.lock().unwrap().cut_off.insert(node);
    }

    /// `to` receives no messages of `from` any more.
    pub(crate) fn deafen(&self, from: NodeId, to: NodeId) {
        self.net.lock().unwrap().deaf.insert((from, to));
    }

    /// `to` receives no messages of the log from `from` any more.
    pub(crate) fn leave_behind(&self, from: NodeId, to: NodeId) {
        self.net.lock().unwrap().behind.insert((from, to));
    }

    /// Messages for which `steals` returns true are lost from now on.
    pub(crate) fn steal(&self, steals: impl FnMut(NodeId, &ServerMessage) -> bool + Send + 'static) {
        self.net.lock().unwrap().thief = Some(Box::new(steals));
    }

    pub(crate) fn hold_flushes(&self, held: bool) {
        self.flushes_held.store(held, Ordering::Relaxed);
    }

    pub(crate) fn heal(&self) {
        let mut net = self.net.lock().unwrap();
        net.cut_off.clear();
        net.deaf.clear();
        net.behind.clear();
    }

    /// Of each chain these are the members from now on, in this order.
    pub(crate) fn share_chains(&self, members: &[&[u32]]) {
        let all: Vec<NodeId> = self.alive().into_iter().map(|(id, _)| id).collect();
        self.share_chains_at(&all, members);
    }

    /// As `share_chains`, at these servers only.
    pub(crate) fn share_chains_at(&self, nodes: &[NodeId], members: &[&[u32]]) {
        let epoch = {
            let mut epoch = self.epoch.lock().unwrap();
            *epoch += 1;
            ChainEpoch(*epoch)
        };
        let of = |members: &[u32]| Configuration {
            epoch,
            members: members.iter().copied().map(NodeId).collect(),
            ..Configuration::default()
        };
        let chains: Vec<_> = (0..).map(ChainId).zip(members.iter().map(|members| of(members))).collect();
        self.configure(nodes, &chains);
    }

    /// Each chain has this configuration from now on, at all that are on.
    pub(crate) fn share(&self, configurations: &[Configuration]) {
        let epoch = {
            let mut epoch = self.epoch.lock().unwrap();
            *epoch += 1;
            ChainEpoch(*epoch)
        };
        let all: Vec<NodeId> = self.alive().into_iter().map(|(id, _)| id).collect();
        let of = |to: &Configuration| Configuration { epoch, ..to.clone() };
        let chains: Vec<_> = (0..).map(ChainId).zip(configurations.iter().map(of)).collect();
        self.configure(&all, &chains);
    }

    fn configure(&self, nodes: &[NodeId], chains: &[(ChainId, Configuration)]) {
        for engine in nodes.iter().map(|node| self.engine(*node)) {
            engine.configure(chains).unwrap();
            engine.renew_lease(MonoTime(u64::MAX));
        }
    }

    pub(crate) fn set_hook(&self, hook: Option<Hook>) {
        *self.hook.lock().unwrap() = hook;
    }

    /// An empty machine, alone or about to join others.
    pub(crate) fn add_machine(self: &Arc<World>, id: NodeId, joining: Option<NodeId>) {
        self.add_machine_with(id, joining, true);
    }

    fn add_machine_with(self: &Arc<World>, id: NodeId, joining: Option<NodeId>, has_chains: bool) {
        let now_us = self.net.lock().unwrap().now_us;
        let time = SimTime::new(1_700_000_000_000_000 + now_us);
        let machine = Machine {
            disk: SimDisk::new(u64::from(id.0) * 77),
            store: MemoryStore::default(),
            time,
            boot: 1,
            lives: 0,
            joining,
            engine: None,
            settings: settings(),
            has_chains,
        };
        self.machines().insert(id, machine);
        self.start(id).unwrap();
    }

    /// A machine that joins, is added by the leader, and catches up.
    pub(crate) fn grow(self: &Arc<World>, id: NodeId) {
        self.learn(id);
        self.promote(id);
    }

    /// A machine that joins and is added by the leader: it gets the log, and does not vote.
    pub(crate) fn learn(self: &Arc<World>, id: NodeId) {
        self.add_machine(id, Some(id));
        self.as_leader(|engine| engine.add_member(id));
    }

    /// The same, and no chain has a copy there.
    pub(crate) fn learn_names(self: &Arc<World>, id: NodeId) {
        self.add_machine_with(id, Some(id), false);
        self.as_leader(|engine| engine.add_member(id));
    }

    /// A machine that was added votes as soon as it has caught up.
    pub(crate) fn promote(&self, id: NodeId) {
        self.as_leader(|engine| match engine.promote_member(id) {
            Err(_) if engine.metalog().is_some_and(|status| status.members.voters.contains(&id)) => Ok(()),
            other => other,
        });
        self.until(&format!("node {id} votes"), || self.status(id).members.voters.contains(&id));
    }

    /// Runs something at the current leader, until it works.
    pub(crate) fn as_leader(&self, ask: impl Fn(&ServerParts) -> Result<(), Fault>) {
        for _ in 0..1000 {
            if let Some(leader) = self.leader()
                && ask(&self.engine(leader)).is_ok()
            {
                return;
            }
            self.run(20);
        }
        panic!("no leader did it: {:?}", self.statuses());
    }

    /// Starts a machine's server.
    pub(crate) fn start(self: &Arc<World>, id: NodeId) -> Result<(), Fault> {
        let (settings, seams, joining) = {
            let mut machines = self.machines();
            let machine = machines.get_mut(&id).unwrap();
            machine.lives += 1;
            let entropy = [id.0 as u8 * 16 + machine.lives; 64];
            let seams = Seams {
                disk: Arc::new(machine.disk.clone()),
                time: Arc::new(machine.time.clone()),
                store: Box::new(machine.store.clone()),
                boot: format!("boot {}", machine.boot),
                entropy,
                wake: no_wake(),
                process: Box::new(ProcessStats::default),
                keys: BTreeMap::new(),
                owner: Caller::root(),
            };
            (machine.settings.clone(), seams, machine.joining)
        };
        let engine = match joining {
            Some(node) => {
                let cluster = self.machines()[&NodeId(1)].engine.as_ref().map(|engine| engine.planes.cluster());
                let cluster = cluster.unwrap_or_default();
                // The key that node 1 drew when its directory was made.
                let secret = [17; 32];
                ServerParts::join(
                    settings,
                    seams,
                    &Joining { cluster, node, secret, chain_count: 3, known: Vec::new() },
                )?
            }
            None => ServerParts::open(settings, seams)?,
        };
        let engine = Arc::new(engine);
        if id != NodeId(1) && self.machines()[&id].has_chains {
            // Bytes do not matter here: each machine has chains of its own, and needs no lease from a leader.
            let epoch = ChainEpoch(self.machines()[&id].lives.into());
            let alone = Configuration { epoch, members: vec![id], ..Configuration::default() };
            let chains: Vec<_> = (0..3).map(|chain| (ChainId(chain), alone.clone())).collect();
            engine.configure(&chains)?;
            engine.renew_lease(MonoTime(u64::MAX));
        }
        engine.connect(Arc::new(Way { from: id, world: Arc::downgrade(self), net: self.net.clone() }));
        let world = Arc::downgrade(self);
        engine.while_waiting(Box::new(move || {
            if let Some(world) = world.upgrade() {
                world.run(1);
            }
        }));
        // Time goes by for all of them.
        while engine.restart_wait_us() > 0 {
            self.step();
        }
        if let Some(machine) = self.machines().get_mut(&id) {
            // From now on it is what its directory says.
            machine.joining = None;
            machine.engine = Some(engine);
        }
        Ok(())
    }

    /// The process, or the power, of a machine goes.
    pub(crate) fn crash(&self, id: NodeId, kind: CrashKind) {
        let mut machines = self.machines();
        let machine = machines.get_mut(&id).unwrap();
        let engine = machine.engine.take();
        machine.disk.crash(kind);
        machine.disk.restart();
        if kind == CrashKind::Power {
            machine.store.lose_power();
            machine.boot += 1;
        }
        drop(machines);
        drop(engine);
        self.net.lock().unwrap().letters.retain(|letter| letter.to != id && letter.from != id);
    }

    pub(crate) fn disk(&self, id: NodeId) -> SimDisk {
        self.machines()[&id].disk.clone()
    }

    pub(crate) fn time(&self, id: NodeId) -> SimTime {
        self.machines()[&id].time.clone()
    }

    pub(crate) fn engine(&self, id: NodeId) -> Arc<ServerParts> {
        self.machines()[&id].engine.clone().unwrap()
    }

    pub(crate) fn alive(&self) -> Vec<(NodeId, Arc<ServerParts>)> {
        let machines = self.machines();
        machines.iter().filter_map(|(id, machine)| Some((*id, machine.engine.clone()?))).collect()
    }

    pub(crate) fn status(&self, id: NodeId) -> MetalogStatus {
        self.engine(id).metalog().unwrap()
    }

    pub(crate) fn statuses(&self) -> Vec<(NodeId, Option<MetalogStatus>)> {
        self.alive().into_iter().map(|(id, engine)| (id, engine.metalog())).collect()
    }

    /// The leader, if it is not cut off.
    pub(crate) fn leader(&self) -> Option<NodeId> {
        let leads = |(id, engine): &(NodeId, Arc<ServerParts>)| {
            let heard = !self.net.lock().unwrap().cut_off.contains(id);
            heard && engine.metalog().is_some_and(|status| status.leads)
        };
        self.alive().iter().find(|one| leads(one)).map(|(id, _)| *id)
    }

    /// Runs so many steps.
    pub(crate) fn run(&self, steps: u64) {
        for _ in 0..steps {
            self.step();
        }
    }

    /// Runs steps until a condition holds.
    pub(crate) fn until(&self, what: &str, is: impl Fn() -> bool) {
        let from = self.steps.load(Ordering::Relaxed);
        while !is() {
            self.step();
            let steps = self.steps.load(Ordering::Relaxed) - from;
            assert!(steps < STEPS_MAX, "it never comes that {what}: {:?}", self.statuses());
        }
    }

    fn step(&self) {
        let number = self.steps.fetch_add(1, Ordering::Relaxed);
        let now_us = {
            let mut net = self.net.lock().unwrap();
            net.now_us += STEP_US;
            net.now_us
        };
        for machine in self.machines().values() {
            machine.time.advance_us(STEP_US);
        }
        let hook = self.hook.lock().unwrap().take();
        if let Some(mut hook) = hook {
            hook(number);
            self.hook.lock().unwrap().get_or_insert(hook);
        }
        let due: Vec<Letter> = {
            let mut net = self.net.lock().unwrap();
            let mut due: Vec<Letter> = net.letters.extract_if(.., |letter| letter.due_us <= now_us).collect();
            due.sort_by_key(|letter| letter.due_us);
            due
        };
        for letter in due {
            let engine = self.machines().get(&letter.to).and_then(|machine| machine.engine.clone());
            let cut_off = self.net.lock().unwrap().cut_off.contains(&letter.to);
            if let Some(engine) = engine.filter(|_| !cut_off) {
                // A store or a clock may refuse: the sender repeats the message.
                let _ =
                    engine.on_peer_message(letter.from, &letter.header, letter.told, (&letter.payload.bytes).into());
            }
        }
        for (id, engine) in self.alive() {
            engine.beat();
            engine.service.files.answer_what_is_asked();
            if number.is_multiple_of(20) {
                engine.tick_chains();
            }
            // Flushes take a while, and not all the same.
            if self.net.lock().unwrap().rng.chance(2) {
                let _ = engine.journal(Duration::ZERO);
            }
            let held = self.flushes_held.load(Ordering::Relaxed);
            if !held && (number + u64::from(id.0) * 7).is_multiple_of(50) && engine.planes.is_dirty() {
                let _ = engine.planes.flush();
            }
            if (number + u64::from(id.0) * 90).is_multiple_of(500) && !self.tending.swap(true, Ordering::Relaxed) {
                let _ = engine.tend();
                self.tending.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Every server has executed everything, and all hold the same.
    pub(crate) fn settle(&self) -> (LogIndex, u64) {
        self.until("all servers have executed everything", || {
            let all: Vec<MetalogStatus> = self.statuses().into_iter().filter_map(|(_, status)| status).collect();
            let last = all.iter().map(|status| status.last).max();
            self.leader().is_some() && all.iter().all(|status| Some(status.applied) == last)
        });
        let digests: BTreeSet<(LogIndex, u64)> =
            self.alive().iter().map(|(_, engine)| engine.digest().unwrap()).collect();
        assert_eq!(digests.len(), 1, "servers at one place of the log hold the same: {digests:?}");
        digests.into_iter().next().unwrap()
    }
}
