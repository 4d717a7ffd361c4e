//! Nodes, clients, the network between them, and faults: one event after the other, in the order of the seed.

mod bootstrap;
mod chains;
mod clients;
mod faults;
mod health;
mod machine_losses;
mod minority;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use frieze_base::{Fault, LogIndex, NodeId, Reason, Rng};
use frieze_disk::CrashKind;
use frieze_node::{ClusterState, Engine, MetalogStatus, PeerPayload, Settings};
use frieze_wire::control::{DeviceProto, NodeInfoProto};
use frieze_wire::frame::FrameHeader;
use frieze_wire::message::ReplicaStatus;

use super::breakage;
use super::chain_text::{self, chain_words};
use super::client::{OutgoingRequest, Port};
use super::history::History;
use super::judge;
use super::machine_events::{MachineEvent, once_in};
use super::net::{Envelope, Net, SendOutcome};
use super::node::{SimNode, address};
use super::outbox::{NodeConnId, NodeResponse, Post};
use super::plan::{CHAINS, ClusterCounts, ClusterOutcome, ClusterPlan};
use super::swarm::{ClusterRepair, Swarm};
use super::tasks::Task;
use super::work::{CHUNK_BYTES, ClusterMix, Worker};
use crate::schedule::Schedule;
use crate::trace::Trace;
use crate::violation::{Rule, Verdict, Violation, broken};

/// Something that will happen.
enum ClusterEvent {
    /// Periodic work of a server's threads; of one process.
    Beat(usize, u64),
    Control(usize, u64),
    Pulse(usize, u64),
    Tend(usize, u64),
    Flush(usize, u64),
    Journal(usize, u64),
    /// A server that was opened begins to serve.
    Serve(usize, u64),
    Start(usize),
    Told {
        envelope: Box<Envelope>,
        connection: u64,
    },
    /// A node is notified that its connection with another broke, or is up.
    Link {
        node: usize,
        other: NodeId,
        stands: bool,
    },
    Ask {
        outgoing: Box<OutgoingRequest>,
        client: usize,
    },
    Gone {
        node: NodeId,
        conn: u64,
    },
    Answered(Box<NodeResponse>),
    /// A client is notified that one of its connections has ended.
    Ended {
        client: usize,
        conn: NodeConnId,
    },
    Alarm {
        client: usize,
        at_us: u64,
    },
    Heal(ClusterRepair),
    /// Another server asks to join.
    Join,
    /// A node is lost for ever, with its disk.
    Lose(usize),
    /// A bit of a node's disk rots.
    Rot(usize),
    Audit,
}

/// A client, and the data exchanged with the world.
struct ClientTask {
    port: Arc<Mutex<Port>>,
    task: Option<Task>,
}

struct ClusterWorld {
    plan: ClusterPlan,
    rng: Rng,
    net: Net,
    post: Post,
    nodes: Vec<SimNode>,
    clients: Vec<ClientTask>,
    history: Arc<Mutex<History>>,
    schedule: Schedule<ClusterEvent>,
    now_us: u64,
    swarm: Swarm,
    /// Operations after which the next faults come, last first.
    faults: Vec<u64>,
    /// Events that happen once, and after how many operations, last first.
    once: Vec<(u64, MachineEvent)>,
    calm: bool,
    /// Operations that clients have finished, and whether a client has been resumed since the last check.
    operations: u64,
    has_woken: bool,
    /// Digest of the nodes' state at a place of the log.
    digests: BTreeMap<LogIndex, (u64, NodeId)>,
    /// Machines that were started or are about to: the founders, those that join, and those that take the place of a
    /// lost one.
    machines: usize,
    /// The newest epoch of each chain that a crashed node knew.
    epochs: BTreeMap<u32, u64>,
    /// In which life, and up to which entry, a node was compared last.
    audited: BTreeMap<NodeId, (u64, LogIndex)>,
    counts: ClusterCounts,
    broken: breakage::ClusterBreakState,
    /// One server continues alone.
    has_gone_on: bool,
}

/// Runs a plan to its end, or to the first promise that is broken.
pub fn run_cluster(plan: &ClusterPlan) -> ClusterOutcome {
    let mut world = ClusterWorld::new(*plan);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.live()));
    let violation = match caught {
        Ok(verdict) => verdict.err(),
        Err(panic) => {
            let words = panic.downcast_ref::<String>().cloned();
            let words = words.or_else(|| panic.downcast_ref::<&str>().map(|words| (*words).to_owned()));
            Some(Violation { rule: Rule::NoPanic, what: words.unwrap_or_else(|| "a panic without words".to_owned()) })
        }
    };
    let (trace_hash, trace) = {
        let mut history = world.history();
        (history.trace.hash(), history.trace.take_lines())
    };
    world.counts.simulated_ms = world.now_us / 1000;
    ClusterOutcome { violation, trace_hash, trace, counts: std::mem::take(&mut world.counts) }
}

/// Servers that vote, at most.
const VOTERS_MAX: usize = 5;
/// How long a lease is.
const LEASE: Duration = Duration::from_secs(1);
/// Simulated time in which a cluster is founded, and in which everything is answered and whole once faults have
/// stopped.
const FOUNDING_US_MAX: u64 = 60_000_000;
const CALM_US_MAX: u64 = 120_000_000;
/// Time between two checks of a wait, in microseconds.
const LOOK_US: u64 = 5_000;
/// Events of a run: some fifty times those of a long one. More are something that goes round in a circle.
const EVENTS_MAX: u64 = 3_000_000;
/// Without one operation for so long faults stop.
const STALLED_US_MAX: u64 = 60_000_000;

/// True if a node says that it is a member of a chain and no newcomer to it.
fn is_whole_member(id: NodeId, status: &ReplicaStatus) -> bool {
    let is_tail = status.members.last() == Some(&id.0);
    status.members.contains(&id.0) && !(status.joining && is_tail)
}

fn settings_of(plan: &ClusterPlan) -> Settings {
    Settings {
        session_timeout: Duration::from_secs(plan.session_timeout_s),
        // Sessions without changes are erased while other clients still ask.
        ended_sessions_kept: Duration::from_secs(2),
        dir: "sim".into(),
        segment_bytes: 8 << 20,
        chunk_bytes: CHUNK_BYTES,
        chain_count: CHAINS,
        young_bytes_max: 256 << 10,
        old_bytes_max: 512 << 10,
        dirty_bytes_max: 8 << 20,
        reserve_bytes: 1 << 20,
        lease: LEASE,
        replicas: plan.copies,
        root_mode: Some(0o777),
        ..Settings::default()
    }
}

/// Description of the machine at this place.
fn newcomer(index: usize) -> NodeInfoProto {
    NodeInfoProto {
        name: format!("node{}", index + 1),
        site: String::new(),
        machine: format!("machine{}", index / 2),
        address: address(NodeId(index as u32 + 1)),
        token: vec![index as u8 + 1; 16],
        incarnation: 1,
        devices: vec![DeviceProto { device: 0, capacity_bytes: 1 << 40, has_failed: false, is_full: false }],
    }
}

impl ClusterWorld {
    fn new(plan: ClusterPlan) -> ClusterWorld {
        let mut rng = Rng::new(plan.seed);
        let post = Post::default();
        let settings = settings_of(&plan);
        let founders = plan.nodes - plan.joins;
        let nodes =
            (1..=founders).map(|id| SimNode::new(NodeId(id), rng.split(), &settings, &post, plan.breakage)).collect();
        let swarm = Swarm::draw(&mut rng);
        let mut faults: Vec<u64> = (0..plan.faults).map(|_| rng.between(5, plan.operations.max(6) - 1)).collect();
        faults.sort_unstable_by_key(|at| Reverse(*at));
        ClusterWorld {
            net: Net::new(rng.split()),
            rng,
            post,
            nodes,
            clients: Vec::new(),
            history: Arc::new(Mutex::new(History::new(Trace::new(plan.keep_trace)))),
            schedule: Schedule::default(),
            now_us: 0,
            swarm,
            faults,
            once: once_in(&plan),
            calm: false,
            operations: 0,
            has_woken: false,
            digests: BTreeMap::new(),
            machines: founders as usize,
            epochs: BTreeMap::new(),
            audited: BTreeMap::new(),
            counts: ClusterCounts::default(),
            broken: breakage::ClusterBreakState::default(),
            has_gone_on: false,
            plan,
        }
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn after(&mut self, delay_us: u64, event: ClusterEvent) {
        self.schedule.add(self.now_us + delay_us, event);
    }

    fn say(&self, words: impl FnOnce() -> String) {
        self.history().trace.line(words);
    }

    fn live(&mut self) -> Verdict {
        self.found()?;
        self.net.weather = self.swarm.weather;
        self.unset_clocks();
        let mix = ClusterMix {
            leave: u64::from(self.plan.leaves),
            together: 2 * u64::from(self.plan.together),
            is_apart: self.plan.breakage == Some(breakage::ClusterBreak::TogetherApart),
            ..self.swarm.mix
        };
        for index in 0..self.plan.clients as usize {
            self.add_client(index, mix, Worker::live);
        }
        let ClusterPlan { operator, copies, nodes, .. } = self.plan;
        if operator || copies < nodes {
            self.add_client(self.clients.len(), mix, move |worker| worker.operate(copies, operator));
        }
        self.after(1_000_000, ClusterEvent::Audit);
        let mut last = (0, self.now_us);
        while self.operations < self.plan.operations || !self.faults.is_empty() {
            self.step()?;
            let operations = self.operations;
            if operations > last.0 {
                last = (operations, self.now_us);
            } else if self.now_us - last.1 > STALLED_US_MAX {
                // Faults come with operations: without them it has to get out of this by itself.
                break;
            }
            while self.faults.last().is_some_and(|at| *at <= operations) {
                self.faults.pop();
                self.all_clocks();
                self.inject()?;
            }
            while let Some((_, once)) = self.once.pop_if(|(at, _)| *at <= operations) {
                let node = self.rng.below(self.nodes.len() as u64) as usize;
                match once {
                    MachineEvent::Join => self.after(0, ClusterEvent::Join),
                    MachineEvent::Lose => self.after(0, ClusterEvent::Lose(node)),
                    MachineEvent::Rot => self.after(0, ClusterEvent::Rot(node)),
                }
            }
        }
        self.counts.operations = self.operations;
        self.calm_down()?;
        if self.plan.loses_majority {
            self.lose_majority(mix)?;
        }
        let index = self.clients.len();
        self.add_client(index, mix, Worker::look_back);
        self.until(CALM_US_MAX, "everything is looked at once more", ClusterWorld::is_idle)?;
        self.settle()?;
        let remembered = self.history().cells_at.len() as u64;
        self.counts.remembered = remembered;
        judge::judge(&self.history())
    }

    fn run_for(&mut self, us: u64) -> Verdict {
        let until = self.now_us + us;
        while self.schedule.next_at_us().is_some_and(|at_us| at_us <= until) {
            self.step()?;
        }
        self.advance(until);
        Ok(())
    }

    fn until(&mut self, within_us: u64, what: &str, is: impl Fn(&ClusterWorld) -> bool) -> Verdict {
        let deadline = self.now_us + within_us;
        while !is(self) {
            // Some answers take as long as many events do.
            let looked_us = self.now_us;
            while self.now_us < looked_us + LOOK_US {
                self.step()?;
            }
            self.all_clocks();
            if self.now_us > deadline {
                let words = format!("it never comes that {what}: {}", self.doing());
                return broken(Rule::Live, words);
            }
        }
        Ok(())
    }

    /// Current operation of each client, for a run that does not end.
    fn doing(&self) -> String {
        let mut words = Vec::new();
        for (index, client) in self.clients.iter().enumerate() {
            let port = client.port.lock().unwrap_or_else(PoisonError::into_inner);
            if client.task.is_some() {
                words.push(format!("client {index}: {}", port.doing));
            }
        }
        for node in &self.nodes {
            let Some(engine) = node.serving() else {
                words.push(format!("{} is down", node.id));
                continue;
            };
            let chains = engine.chains().iter().map(chain_words).collect::<Vec<_>>().join(" ");
            let metalog = engine.metalog();
            let metalog = metalog.map(|status| {
                let MetalogStatus { term, leader, applied, last, members, .. } = status;
                format!("term {term} leader {leader:?} applied {applied} of {last}, {members:?}")
            });
            words.push(format!("{}: {} waiting, {}, {chains}", node.id, node.tasks.len(), metalog.unwrap_or_default()));
        }
        words.join("; ")
    }

    fn leader(&self) -> Option<usize> {
        self.nodes.iter().position(|node| node.serving().is_some_and(|engine| engine.leads()))
    }

    /// Every chain is served by as many nodes as it is to have, and they agree on that.
    fn is_whole(&self) -> bool {
        let living = || self.nodes.iter().filter(|node| !node.is_gone);
        let count = living().count();
        // Each of them knows that all of them have the metalog, and that as many vote as may.
        let is_kept = living().all(|node| {
            let Some(status) = node.serving().and_then(|engine| engine.metalog()) else { return false };
            let (votes, learn) = (status.members.voters.len(), status.members.learners.len());
            let has_all = living().all(|other| status.members.contains(other.id));
            votes == count.min(VOTERS_MAX) && votes + learn == count && has_all
        });
        if !is_kept {
            return false;
        }
        // A machine that is lost has none.
        let of = |node: &SimNode| node.serving().map(|engine| engine.chains()).unwrap_or_default();
        let all: Vec<Vec<ReplicaStatus>> = self.nodes.iter().map(of).collect();
        let at = |node: u32, chain: u32| all[self.index_of(NodeId(node))].iter().find(|status| status.chain == chain);
        let is_served = |chain: u32| {
            // A node that is no member any more knows an older configuration, or none.
            let of_chain = all.iter().flatten().filter(|status| status.chain == chain && !status.members.is_empty());
            let Some(newest) = of_chain.max_by_key(|status| status.epoch) else { return false };
            let same = |status: &ReplicaStatus| (status.epoch, &status.members) == (newest.epoch, &newest.members);
            newest.members.len() == count.min(self.plan.copies as usize)
                && !newest.joining
                && newest.syncing == 0
                && newest.members.iter().all(|node| at(*node, chain).is_some_and(same))
        };
        (0..CHAINS).all(is_served)
    }

    fn is_idle(&self) -> bool {
        self.clients.iter().all(|client| client.task.is_none())
    }

    fn advance(&mut self, now_us: u64) {
        self.now_us = now_us.max(self.now_us);
        self.all_clocks();
    }

    /// A node's clocks are set when an event happens there: before another node reads them, they have to be set too.
    fn all_clocks(&mut self) {
        for node in &mut self.nodes {
            node.advance(self.now_us);
        }
    }

    /// Lets the next event happen.
    fn step(&mut self) -> Verdict {
        let Some((at_us, event)) = self.schedule.pop() else {
            return broken(Rule::Live, "nothing is left to happen");
        };
        self.counts.events += 1;
        if self.counts.events > EVENTS_MAX {
            return broken(Rule::Live, format!("{EVENTS_MAX} events have happened, and the run does not end"));
        }
        self.now_us = at_us.max(self.now_us);
        self.history().trace.at(at_us);
        self.handle_event(event)?;
        // Only clients finish operations, or see violations.
        if std::mem::take(&mut self.has_woken) {
            let mut history = self.history();
            let (violation, operations) = (history.violation.take(), history.operations);
            drop(history);
            self.operations = operations;
            return violation.map_or(Ok(()), Err);
        }
        Ok(())
    }

    fn index_of(&self, id: NodeId) -> usize {
        id.0 as usize - 1
    }

    fn handle_event(&mut self, event: ClusterEvent) -> Verdict {
        let node = match &event {
            ClusterEvent::Beat(node, life)
            | ClusterEvent::Control(node, life)
            | ClusterEvent::Pulse(node, life)
            | ClusterEvent::Tend(node, life)
            | ClusterEvent::Flush(node, life)
            | ClusterEvent::Journal(node, life)
            | ClusterEvent::Serve(node, life) => {
                if self.nodes[*node].life != *life {
                    return Ok(());
                }
                Some(*node)
            }
            ClusterEvent::Start(node) | ClusterEvent::Link { node, .. } => Some(*node),
            ClusterEvent::Told { envelope, .. } => Some(self.index_of(envelope.to)),
            ClusterEvent::Ask { outgoing, .. } => Some(self.index_of(outgoing.to)),
            ClusterEvent::Gone { node, .. } => Some(self.index_of(*node)),
            ClusterEvent::Answered(_)
            | ClusterEvent::Ended { .. }
            | ClusterEvent::Alarm { .. }
            | ClusterEvent::Heal(_) => None,
            ClusterEvent::Join | ClusterEvent::Lose(_) | ClusterEvent::Rot(_) | ClusterEvent::Audit => None,
        };
        let Some(node) = node else {
            self.all_clocks();
            return self.handle_world_event(event);
        };
        self.nodes[node].advance(self.now_us);
        let paused_until_us = self.nodes[node].paused_until_us.max(self.nodes[node].ahead_until_us);
        if paused_until_us > self.now_us {
            self.after(paused_until_us - self.now_us, event);
            return Ok(());
        }
        self.handle_node_event(node, event)?;
        self.settle_node(node)
    }

    fn handle_world_event(&mut self, event: ClusterEvent) -> Verdict {
        match event {
            ClusterEvent::Answered(mut answer) => {
                if let Some(broken) = self.plan.breakage {
                    breakage::answer(broken, self.has_gone_on, &mut answer);
                }
                let index = answer.client;
                let Some(client) = self.clients.get_mut(index) else { return Ok(()) };
                let words = || format!("<- c{index} r{} from {} {:?}", answer.request_id, answer.node, answer.result);
                let reason = answer.result.as_ref().err().map_or(0, |fault| fault.reason as u64);
                let crc = frieze_base::crc32c(&answer.payload).into();
                let numbers = [index as u64, answer.request_id, answer.node.0.into(), reason, crc, answer.hlc.0];
                self.history.lock().unwrap_or_else(PoisonError::into_inner).trace.numbers(&numbers, words);
                client.port.lock().unwrap_or_else(PoisonError::into_inner).answers.push(*answer);
                return self.wake(index);
            }
            ClusterEvent::Ended { client, conn } => {
                let Some(task) = self.clients.get_mut(client) else { return Ok(()) };
                task.port.lock().unwrap_or_else(PoisonError::into_inner).over.push(conn);
                return self.wake(client);
            }
            ClusterEvent::Alarm { client, at_us } => {
                let due = {
                    let port = self.clients[client].port.lock().unwrap_or_else(PoisonError::into_inner);
                    port.alarm_us == at_us
                };
                if due {
                    return self.wake(client);
                }
            }
            ClusterEvent::Heal(healing) => self.heal(healing),
            ClusterEvent::Join => self.ask_to_join(),
            ClusterEvent::Lose(node) => return self.lose(node),
            ClusterEvent::Rot(node) => return self.rot(node),
            ClusterEvent::Audit => {
                self.audit()?;
                self.judge_health()?;
                self.after(1_000_000, ClusterEvent::Audit);
            }
            _ => {}
        }
        Ok(())
    }

    fn handle_node_event(&mut self, node: usize, event: ClusterEvent) -> Verdict {
        match event {
            ClusterEvent::Start(_) => return self.start(node),
            ClusterEvent::Serve(..) => return self.serve(node),
            _ => {}
        }
        if let ClusterEvent::Ask { outgoing, client } = &event
            && self.nodes[node].rejects(outgoing.conn)
        {
            let delay_us = 50 + self.rng.below(200);
            self.after(delay_us, ClusterEvent::Ended { client: *client, conn: outgoing.conn });
            return Ok(());
        }
        let life = self.nodes[node].life;
        let Some(engine) = self.nodes[node].serving().cloned() else { return Ok(()) };
        match event {
            ClusterEvent::Beat(..) => {
                let next = engine.beat().unwrap_or(Duration::from_millis(100));
                self.after(next.as_micros() as u64, ClusterEvent::Beat(node, life));
            }
            ClusterEvent::Control(..) => {
                let next = engine.beat_control().unwrap_or(Duration::from_millis(100));
                self.after(next.as_micros() as u64, ClusterEvent::Control(node, life));
                let node = &mut self.nodes[node];
                let busy = node.control_busy.clone();
                if !busy.swap(true, Ordering::Relaxed) {
                    node.begin(move |engine| {
                        engine.do_control_jobs();
                        busy.store(false, Ordering::Relaxed);
                    });
                }
            }
            ClusterEvent::Pulse(..) => {
                engine.tick_chains();
                engine.tick();
                self.after(20_000, ClusterEvent::Pulse(node, life));
                if self.nodes[node].flush_at_us.is_none() && !self.nodes[node].failed && engine.is_dirty() {
                    self.flush_after(node, self.swarm.flush_delay_us);
                }
            }
            ClusterEvent::Tend(..) => {
                self.after(500_000, ClusterEvent::Tend(node, life));
                let broken = self.plan.breakage;
                let node = &mut self.nodes[node];
                let busy = node.tend_busy.clone();
                let needed = node.needed.clone();
                if !busy.swap(true, Ordering::Relaxed) {
                    node.may_detach = true;
                    node.begin(move |engine| {
                        // A failed step is retried the next time.
                        let _tended = engine.tend();
                        chain_text::lock(&needed).clear();
                        let judge = |state: &ClusterState, chain, node| {
                            if let Some(words) = chain_text::why_needed(state, chain, node) {
                                chain_text::lock(&needed).insert(chain, words);
                            }
                        };
                        let _given_up = breakage::ClusterBreakState::detach(broken, engine, judge);
                        let _given_back = engine.give_back_remains();
                        // Damage that readers met is repaired from other members.
                        let _looked = engine.scrub(&|_| true);
                        busy.store(false, Ordering::Relaxed);
                    });
                }
            }
            ClusterEvent::Flush(..) if self.nodes[node].flush_at_us.is_some_and(|at| at <= self.now_us) => {
                self.nodes[node].flush_at_us = None;
                let flushed = engine.flush();
                self.flushed(node, flushed);
            }
            ClusterEvent::Journal(..) => {
                self.nodes[node].journal_at_us = None;
                let flushed = engine.journal(Duration::ZERO);
                self.flushed(node, flushed);
            }
            ClusterEvent::Told { envelope, connection } if self.net.arrives(envelope.from, envelope.to, connection) => {
                let asks = matches!(envelope.message, frieze_wire::peer::ServerMessage::Question(_));
                self.on_message(&engine, envelope);
                if asks {
                    self.nodes[node].begin(Engine::answer_what_is_asked);
                }
            }
            ClusterEvent::Link { other, stands, .. } => engine.link_changed(other, stands),
            ClusterEvent::Ask { outgoing, client } => {
                let OutgoingRequest { conn, mut header, mut body, payload, .. } = *outgoing;
                if let Some(broken) = self.plan.breakage {
                    self.broken.ask(broken, &mut header, &mut body, &engine);
                }
                self.nodes[node].request(client, conn, header, body, payload);
            }
            ClusterEvent::Gone { conn, .. } => self.nodes[node].disconnect(conn),
            _ => {}
        }
        Ok(())
    }

    fn on_message(&mut self, engine: &Engine, envelope: Box<Envelope>) {
        self.counts.peer_messages += 1;
        let envelope = match self.plan.breakage {
            Some(broken) => self.broken.on_message(broken, envelope, engine),
            None => Some(envelope),
        };
        let Some(envelope) = envelope else { return };
        if self.plan.keep_trace && !matches!(envelope.message, frieze_wire::peer::ServerMessage::Metalog(_)) {
            self.history().trace.words(format!("      {} to {}: {:?}", envelope.from, envelope.to, envelope.message));
        }
        let Envelope { from, header, message, payload, .. } = *envelope;
        if let Err(fault) = engine.told(from, &header, message, (&payload.bytes).into()) {
            self.say(|| format!("{from} was not heard: {fault}"));
        }
    }

    fn flush_after(&mut self, node: usize, delay_us: u64) {
        let at_us = self.now_us + delay_us;
        if self.nodes[node].flush_at_us.is_none_or(|at| at_us < at) {
            self.nodes[node].flush_at_us = Some(at_us);
            let life = self.nodes[node].life;
            self.after(delay_us, ClusterEvent::Flush(node, life));
        }
    }

    /// If the node's call paused, its machine's clocks are ahead of all others, and it has no event until the others
    /// have caught up.
    fn stand_still(&mut self, node: usize) -> u64 {
        let stunned_us = self.nodes[node].take_stunned();
        if stunned_us > 0 {
            self.say(|| format!("a call stood still for {stunned_us} us"));
            self.nodes[node].ahead_until_us = self.nodes[node].ahead_until_us.max(self.now_us) + stunned_us;
        }
        stunned_us
    }

    fn flushed(&mut self, node: usize, flushed: Result<(), Fault>) {
        if let Err(fault) = flushed
            && !self.nodes[node].failed
            && !self.nodes[node].disk.is_crashed()
        {
            let id = self.nodes[node].id;
            self.say(|| format!("{id} is read-only: {fault}"));
            self.nodes[node].failed = true;
        }
    }

    /// Handles the effects of every call of a server: its crash, its messages, its request for a flush, its suspended
    /// calls.
    fn settle_node(&mut self, node: usize) -> Verdict {
        // A resumed call may send a message that others wait for.
        self.nodes[node].resume_tasks();
        self.judge_detached(node)?;
        if self.nodes[node].may_crash && self.nodes[node].disk.is_crashed() {
            self.stand_still(node);
            self.post_of_dead();
            let kind = if self.rng.chance(3) { CrashKind::Power } else { CrashKind::Process };
            self.die(node, kind);
            return Ok(());
        }
        let stunned_us = self.stand_still(node);
        self.carry(node, stunned_us);
        if let (Some(broken), Some(engine)) = (self.plan.breakage, self.nodes[node].serving()) {
            self.broken.after(broken, engine);
        }
        if self.plan.keep_trace {
            self.trace_chains(node);
        }
        if self.nodes[node].serving().is_none() {
            return Ok(());
        }
        if self.nodes[node].woken.swap(false, Ordering::Relaxed) && !self.nodes[node].failed {
            let delay_us = *self.rng.choose(&self.swarm.sync_us);
            self.flush_after(node, delay_us);
        }
        let has_journal = |world: &ClusterWorld| world.nodes[node].serving().is_some_and(|engine| engine.has_journal());
        if self.nodes[node].journal_at_us.is_none() && !self.nodes[node].failed && has_journal(self) {
            let delay_us = *self.rng.choose(&self.swarm.sync_us);
            self.nodes[node].journal_at_us = Some(self.now_us + delay_us);
            let life = self.nodes[node].life;
            self.after(delay_us, ClusterEvent::Journal(node, life));
        }
        Ok(())
    }

    /// Messages of a process during its crash never leave the machine.
    fn post_of_dead(&mut self) {
        let mut post = self.post.lock().unwrap_or_else(PoisonError::into_inner);
        post.messages.clear();
        post.answers.clear();
    }

    /// Sends a node's messages, all of them after its pause, if there was one.
    fn carry(&mut self, node: usize, stunned_us: u64) {
        let (messages, answers) = {
            let mut post = self.post.lock().unwrap_or_else(PoisonError::into_inner);
            if post.messages.is_empty() && post.answers.is_empty() {
                return;
            }
            // Answers for a joining node: it waits for them itself.
            let (joining, answers) =
                std::mem::take(&mut post.answers).into_iter().partition(|answer| answer.client > usize::MAX / 2);
            post.answers = joining;
            (std::mem::take(&mut post.messages), answers)
        };
        let hlc = self.nodes[node].engine.as_ref().map(|engine| engine.newest()).unwrap_or_default();
        for mut envelope in messages {
            if envelope.to.0 == 0 || envelope.to.0 as usize > self.nodes.len() {
                continue;
            }
            let PeerPayload { bytes, crc, .. } = &envelope.payload;
            let (payload_len, payload_crc) = (bytes.len() as u32, crc.unwrap_or_else(|| frieze_base::crc32c(bytes)));
            envelope.header = FrameHeader { hlc, payload_len, payload_crc, ..envelope.header };
            self.send(envelope, stunned_us);
        }
        for mut answer in answers {
            answer.hlc = hlc;
            if let Some(delay_us) = self.client_delay(answer.node, answer.client, answer.conn) {
                self.after(stunned_us + delay_us, ClusterEvent::Answered(Box::new(answer)));
            }
        }
    }

    fn send(&mut self, envelope: Box<Envelope>, later_us: u64) {
        match self.net.send(self.now_us + later_us, &envelope) {
            SendOutcome::Arrives { at_us, connection, twice } => {
                let delay_us = at_us - self.now_us;
                if twice {
                    self.after(delay_us + 500, ClusterEvent::Told { envelope: envelope.clone(), connection });
                }
                self.after(delay_us, ClusterEvent::Told { envelope, connection });
            }
            SendOutcome::Held => {}
            SendOutcome::Broke => self.break_link(envelope.from, envelope.to),
        }
    }

    /// A connection breaks; it is made anew before long.
    fn break_link(&mut self, one: NodeId, other: NodeId) {
        self.net.break_off(one, other);
        for (node, other) in [(one, other), (other, one)] {
            let node = self.index_of(node);
            let noticed = self.rng.between(100, 20_000);
            self.after(noticed, ClusterEvent::Link { node, other, stands: false });
            let again = self.rng.between(1_000, 200_000);
            self.after(noticed + again, ClusterEvent::Link { node, other, stands: true });
        }
    }

    fn start(&mut self, node: usize) -> Verdict {
        let is_away = self.nodes[node].is_gone || self.nodes[node].stays_away;
        if self.nodes[node].engine.is_some() || is_away {
            return Ok(());
        }
        self.counts.restarts += 1;
        let id = self.nodes[node].id;
        self.say(|| format!("{id} starts"));
        match self.nodes[node].start() {
            Ok(()) => {
                self.after(0, ClusterEvent::Serve(node, self.nodes[node].life));
                Ok(())
            }
            Err(_) if self.nodes[node].disk.is_crashed() => {
                self.die(node, CrashKind::Process);
                Ok(())
            }
            Err(fault) if self.nodes[node].is_rotten && fault.reason == Reason::Corrupt => {
                self.say(|| format!("{id} does not start: {fault}"));
                Ok(())
            }
            Err(fault) => broken(Rule::Restarts, format!("{id} does not start: {fault}")),
        }
    }

    fn serve(&mut self, node: usize) -> Verdict {
        let life = self.nodes[node].life;
        match self.nodes[node].serve() {
            Ok(Some(wait)) => self.after(wait.as_micros() as u64, ClusterEvent::Serve(node, life)),
            Ok(None) => {
                self.notify_ended(node);
                for event in [
                    ClusterEvent::Beat(node, life),
                    ClusterEvent::Control(node, life),
                    ClusterEvent::Pulse(node, life),
                    ClusterEvent::Tend(node, life),
                ] {
                    let delay_us = self.rng.between(0, 2_000);
                    self.after(delay_us, event);
                }
                let others: Vec<NodeId> = self.nodes.iter().map(|node| node.id).collect();
                let me = self.nodes[node].id;
                for other in others.into_iter().filter(|other| *other != me) {
                    // Messages in flight to its earlier process are lost.
                    self.net.break_off(me, other);
                    let delay_us = self.rng.between(100, 50_000);
                    let index = self.index_of(other);
                    self.after(delay_us, ClusterEvent::Link { node: index, other: me, stands: true });
                }
            }
            Err(fault) => {
                let id = self.nodes[node].id;
                return broken(Rule::Restarts, format!("{id} does not begin: {fault}"));
            }
        }
        Ok(())
    }

    fn die(&mut self, node: usize, kind: CrashKind) {
        let id = self.nodes[node].id;
        let chains = self.nodes[node].engine.as_ref().map_or_else(Vec::new, |engine| engine.chains());
        for status in &chains {
            let newest = self.epochs.entry(status.chain).or_default();
            *newest = status.epoch.max(*newest);
        }
        if kind == CrashKind::Power {
            self.note_lost(node);
            let whole = chains.iter().filter(|status| is_whole_member(id, status));
            self.nodes[node].short_at.extend(whole.map(|status| (status.chain, status.epoch)));
        }
        self.say(|| format!("{id} dies: {kind:?}"));
        self.nodes[node].die(kind);
        if kind == CrashKind::Process {
            self.notify_ended(node);
        }
        self.post_of_dead();
        let others: Vec<NodeId> = self.nodes.iter().map(|node| node.id).filter(|other| *other != id).collect();
        for other in others {
            self.net.break_off(id, other);
            let delay_us = self.rng.between(50, 2_000);
            let index = self.index_of(other);
            self.after(delay_us, ClusterEvent::Link { node: index, other: id, stands: false });
        }
        let delay_us = if self.calm { 10_000 } else { self.rng.between(10_000, self.swarm.away_us) };
        self.after(delay_us, ClusterEvent::Start(node));
    }

    /// A node is about to lose what it has not flushed. In chains without another known copy, it is lost.
    fn note_lost(&mut self, node: usize) {
        let now_us = self.now_us;
        let lost = self.only_at(node);
        self.history().lost.extend(lost.into_iter().map(|chain| (now_us, chain)));
    }

    /// Chains whose unflushed records are not known to have another copy.
    fn only_at(&self, node: usize) -> Vec<u32> {
        let statuses: Vec<Vec<ReplicaStatus>> = self
            .nodes
            .iter()
            .map(|node| node.engine.as_ref().map_or_else(Vec::new, |engine| engine.chains()))
            .collect();
        let is_only = |chain: &u32| {
            let chain = *chain;
            let of = |statuses: &Vec<ReplicaStatus>| statuses.iter().find(|status| status.chain == chain).cloned();
            let known: Vec<(usize, ReplicaStatus)> =
                statuses.iter().enumerate().filter_map(|(index, statuses)| Some((index, of(statuses)?))).collect();
            let newest = known.iter().map(|(_, status)| status.epoch).max().unwrap_or(0);
            let holds = |index: usize, status: &ReplicaStatus| {
                let is_short = self.nodes[index].short_at.get(&chain).is_some_and(|epoch| status.epoch <= *epoch);
                status.epoch == newest && is_whole_member(NodeId(index as u32 + 1), status) && !is_short
            };
            !known.iter().any(|(index, status)| *index != node && holds(*index, status))
        };
        (0..CHAINS).filter(is_only).collect()
    }

    /// True if another node has the durable part of a chain, which it kept through a power loss while it was a full
    /// member: then the chain can continue from there, and nothing durable is missing.
    fn has_durable_copy(&self, node: usize, chain: u32) -> bool {
        let newest = self.epochs.get(&chain);
        let others = self.nodes.iter().enumerate().filter(|(index, other)| *index != node && !other.is_gone);
        others.into_iter().any(|(_, other)| newest.is_some() && other.short_at.get(&chain) == newest)
    }

    /// Nodes that have executed the same hold the same.
    fn audit(&mut self) -> Verdict {
        for node in &self.nodes {
            let Some(engine) = node.serving() else { continue };
            let voters = engine.metalog().map_or(0, |status| status.members.voters.len());
            if voters > VOTERS_MAX {
                return broken(Rule::Whole, format!("{} knows {voters} that vote, of {VOTERS_MAX}", node.id));
            }
            // A state that was compared since the start, with nothing executed since, is unchanged.
            let executed = engine.metalog().map(|status| (node.life, status.applied));
            if executed.is_some() && self.audited.get(&node.id) == executed.as_ref() {
                continue;
            }
            let Ok((index, digest)) = engine.digest() else { continue };
            self.audited.extend(executed.map(|executed| (node.id, executed)));
            let (known, by) = *self.digests.entry(index).or_insert((digest, node.id));
            if known != digest {
                return broken(
                    Rule::Tree,
                    format!("{} and {by} have executed {index} entries, and hold different names", node.id),
                );
            }
        }
        Ok(())
    }

    /// Faults end; requests are answered before long, and everything becomes whole.
    fn calm_down(&mut self) -> Verdict {
        self.say(|| "no more faults".to_owned());
        self.calm = true;
        self.all_clocks();
        self.end_faults();
        self.until(CALM_US_MAX, "every request is answered", ClusterWorld::is_idle)?;
        // A machine with a rotten disk is removed when other machines have its data: that is the last fault, and not
        // part of the calm.
        let is_over = |world: &ClusterWorld| world.nodes.iter().all(|node| !node.is_rotten || node.is_gone);
        self.until(CALM_US_MAX, "every chain is whole", |world| is_over(world) && world.is_whole())?;
        self.until(CALM_US_MAX, "the leader says so", ClusterWorld::leader_reports_whole)?;
        self.judge_health()
    }

    /// All servers have executed everything, and have the same state.
    fn settle(&mut self) -> Verdict {
        let even = |world: &ClusterWorld| {
            let all: Vec<_> = world.nodes.iter().filter_map(|node| node.serving()?.metalog()).collect();
            let last = all.iter().map(|status| status.last).max();
            world.leader().is_some() && all.iter().all(|status| Some(status.applied) == last)
        };
        for _ in 0..2 {
            self.until(CALM_US_MAX, "everybody has executed everything", even)?;
            self.audit()?;
        }
        for node in &self.nodes {
            let Some(engine) = node.serving() else { continue };
            let checkup = engine.check_up();
            if let Some(wrong) = checkup.wrong.first() {
                return broken(Rule::Whole, format!("{}: {wrong}", node.id));
            }
            if let Some(finding) = checkup.scrub.findings.first() {
                return broken(Rule::Whole, format!("{}: {finding:?}", node.id));
            }
        }
        Ok(())
    }
}
