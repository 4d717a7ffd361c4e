//! Nodes, clients, the network between them, and faults: one event after the other, in the order of the seed.

mod audit;
mod bootstrap;
mod chains;
mod clients;
mod dispatch;
mod faults;
mod health;
mod machine_losses;
mod minority;
mod servers;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use frieze_base::{LogIndex, NodeId, Rng};
use frieze_hlc::Hlc;
use frieze_node::{MetalogStatus, Settings};
use frieze_wire::control::{DeviceProto, NodeInfoProto};

use super::breakage;
use super::chain_text::chain_words;
use super::client::{OutgoingRequest, Port};
use super::history::History;
use super::judge;
use super::machine_events::{MachineEvent, once_in};
use super::net::{Envelope, Net};
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
    /// Another machine takes the place of one that is lost.
    Replace,
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
    digests: BTreeMap<LogIndex, (u64, NodeId, Hlc)>,
    /// Machines that were started or are about to: the founders, those that join, and those that take the place of a
    /// lost one.
    machines: usize,
    /// Lost machines of which none has asked yet to take the place.
    unreplaced: usize,
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
            unreplaced: 0,
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
        let mut history = self.history();
        history.forgive_lost_names()?;
        judge::judge(&history)
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
            let chains = engine.planes.chains().iter().map(chain_words).collect::<Vec<_>>().join(" ");
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
}
