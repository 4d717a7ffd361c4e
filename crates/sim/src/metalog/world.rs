//! The schedule: events in the order of simulated time, and the clients.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use frieze_base::{LogIndex, NodeId, Rng};
use frieze_disk::CrashKind;
use frieze_hlc::Hlc;
use frieze_metalog::{
    Error, MemberChange, MemberInput, MemberSettings, Members, PeerKind, PeerMessage, RaftRole, SnapshotMeta,
};

use super::breakage::MetalogBreak;
use super::fault_plan::MetalogFaults;
use super::host::{Host, HostEffect};
use super::judge::Judge;
use super::plan::MetalogPlan;
use super::requests::{MemberResponse, MetalogClient, MetalogRequest, PendingRequests, is_barrier, is_sync};
use super::state::{self, MemberState};
use crate::schedule::Schedule;
use crate::trace::Trace;
use crate::violation::{Rule, Verdict, broken};

/// How long the faults last.
const CHAOS_US: u64 = 6_000_000;
/// An election after them: a few rounds of the longest timeout, and more where all voters are needed.
const ELECTION_US_MAX: u64 = 4_000_000;
/// Everything is answered and equal.
const QUIET_US_MAX: u64 = 15_000_000;
const CLIENTS: u64 = 4;
/// Members that vote; of up to [`MEMBERS_MAX`](super::fault_plan::MEMBERS_MAX).
pub(super) const VOTERS_MAX: usize = 5;
const SEGMENT_BYTES: u64 = 8 << 10;

#[derive(Clone, Debug)]
pub(super) enum MetalogEvent {
    Tick { host: NodeId, life: u64 },
    Peer { message: PeerMessage, state: Option<Rc<MemberState>> },
    FlushEnds { host: NodeId, life: u64, through: LogIndex },
    StoreFlush { host: NodeId, life: u64 },
    Restart { host: NodeId },
    Blink { host: NodeId },
    Gone { host: NodeId, peer: NodeId },
    Fault,
    Heal { cut: u64 },
    Asked { host: NodeId, client: u64, attempt: u64, what: MetalogRequest },
    Told { client: u64, attempt: u64, answer: MemberResponse },
    Wake { client: u64, attempt: u64 },
    SnapshotSent { host: NodeId, life: u64, to: NodeId, whole: bool },
}

pub(super) struct MetalogWorld {
    pub(super) now_us: u64,
    pub(super) schedule: Schedule<MetalogEvent>,
    pub(super) rng: Rng,
    pub(super) hosts: BTreeMap<NodeId, Host>,
    /// One way each.
    pub(super) cuts: BTreeMap<u64, BTreeSet<(NodeId, NodeId)>>,
    pub(super) paused: BTreeMap<NodeId, u64>,
    pub(super) flushing: BTreeSet<NodeId>,
    pub(super) waiting: BTreeMap<NodeId, PendingRequests>,
    pub(super) clients: BTreeMap<u64, MetalogClient>,
    pub(super) faults: MetalogFaults,
    pub(super) judge: Judge,
    pub(super) trace: Trace,
    pub(super) founders: Members,
    pub(super) settings: MemberSettings,
    pub(super) breakage: Option<MetalogBreak>,
    pub(super) quiet: bool,
    pub(super) next_token: u64,
    pub(super) answered: u64,
    pub(super) elections: u64,
    pub(super) losses: u64,
    pub(super) installs: u64,
    pub(super) changes: u64,
    pub(super) asks: u64,
}

impl MetalogWorld {
    pub(super) fn new(plan: &MetalogPlan) -> MetalogWorld {
        let mut rng = Rng::new(plan.seed ^ 0x006d_6574_616c_6f67);
        let faults = MetalogFaults::draw(&mut rng);
        let count = if rng.chance(3) { 5 } else { 3 };
        let voters: Vec<NodeId> = (1..=count).map(NodeId).collect();
        let slow = if plan.breakage == Some(MetalogBreak::ElectionsSlow) { 10 } else { 1 };
        let settings = MemberSettings {
            segment_bytes: SEGMENT_BYTES,
            promote_lag: 4,
            voters_max: if plan.breakage == Some(MetalogBreak::MoreVote) { 16 } else { VOTERS_MAX },
            message_bytes: *rng.choose(&[200, 2000, 1 << 20]),
            election_ticks: MemberSettings::default().election_ticks * slow,
            ..MemberSettings::default()
        };
        MetalogWorld {
            now_us: 1_000_000,
            schedule: Schedule::default(),
            rng,
            hosts: BTreeMap::new(),
            cuts: BTreeMap::new(),
            paused: BTreeMap::new(),
            flushing: BTreeSet::new(),
            waiting: BTreeMap::new(),
            clients: BTreeMap::new(),
            faults,
            judge: Judge::new(LogIndex(1)),
            trace: Trace::new(plan.keep_trace),
            founders: Members { voters, learners: Vec::new() },
            settings,
            breakage: plan.breakage,
            quiet: false,
            next_token: 0,
            answered: 0,
            elections: 0,
            losses: 0,
            installs: 0,
            changes: 0,
            asks: plan.asks,
        }
    }

    fn begin(&mut self) -> Verdict {
        let from = SnapshotMeta { index: LogIndex(1), term: 1, stamp: Hlc(1), members: self.founders.clone() };
        for id in self.founders.voters.clone() {
            let (disk_seed, seed) = (self.rng.next(), self.rng.next());
            let mut host = Host::new(id, disk_seed, self.settings.clone(), self.breakage);
            host.skew_us = self.faults.skew_us(&mut self.rng);
            let doings = host.found(seed, &from);
            self.hosts.insert(id, host);
            self.started(id, doings)?;
        }
        for client in 0..CLIENTS {
            let host = *self.rng.choose(&self.founders.voters);
            let asks = self.asks;
            self.clients.insert(
                client,
                MetalogClient {
                    host,
                    what: MetalogRequest::Read,
                    seq: 0,
                    attempt: 0,
                    floor: 0,
                    left: asks,
                    on_request: host,
                },
            );
            let at = self.rng.below(400_000);
            self.after(at, MetalogEvent::Wake { client, attempt: 0 });
        }
        self.after(300_000, MetalogEvent::Fault);
        Ok(())
    }

    pub(super) fn play(&mut self) -> Verdict {
        self.run_for(CHAOS_US)?;
        self.calm_down()?;
        let healed = self.now_us;
        let mut elected = false;
        while !self.is_over() {
            self.run_for(50_000)?;
            elected |= self.leader().is_some();
            if !elected && self.now_us > healed + ELECTION_US_MAX {
                return broken(Rule::Live, format!("no leader {ELECTION_US_MAX} us after the faults were over"));
            }
            if self.now_us > healed + QUIET_US_MAX {
                return broken(Rule::Live, self.what_is_left());
            }
        }
        self.hosts
            .values()
            .filter(|host| host.member.is_some())
            .try_for_each(|host| self.judge.same_state(host, host.mark()))
    }

    /// Plays so much time.
    pub(super) fn run_for(&mut self, us: u64) -> Verdict {
        if self.hosts.is_empty() {
            self.begin()?;
        }
        let until = self.now_us + us;
        while self.schedule.next_at_us().is_some_and(|at_us| at_us <= until) {
            let Some((at, event)) = self.schedule.pop() else { break };
            self.now_us = at;
            self.trace.at(at);
            self.handle_event(event)?;
        }
        self.now_us = until;
        Ok(())
    }

    pub(super) fn after(&mut self, us: u64, event: MetalogEvent) {
        self.schedule.add(self.now_us + us, event);
    }

    /// The leader that a majority follows.
    pub(super) fn leader(&self) -> Option<NodeId> {
        let live = || self.hosts.values().filter_map(|host| host.member.as_ref());
        let leads = live().filter(|member| member.role() == RaftRole::Leader).max_by_key(|member| member.term())?;
        let voters = &leads.members().voters;
        let follows = |member: &&frieze_metalog::RaftMember| {
            voters.contains(&member.id()) && member.term() == leads.term() && member.leader() == Some(leads.id())
        };
        (live().filter(follows).count() * 2 > voters.len()).then(|| leads.id())
    }

    /// The members as the leader has them.
    pub(super) fn members(&self) -> Option<Members> {
        let leader = self.hosts.get(&self.leader()?)?;
        leader.member.as_ref().map(|member| member.members().clone())
    }

    fn is_over(&self) -> bool {
        let Some(members) = self.members() else { return false };
        let all = members.voters.iter().chain(&members.learners);
        let same = |id: &NodeId| self.hosts.get(id).is_some_and(|host| host.state.applied.0 == self.judge.last());
        let votes = members.voters.len() == VOTERS_MAX.min(all.clone().count());
        self.clients.values().all(|client| client.left == 0) && votes && all.clone().all(same)
    }

    fn what_is_left(&self) -> String {
        let places: Vec<_> = self.hosts.values().map(|host| (host.id, host.state.applied, &host.member)).collect();
        let left: Vec<u64> = self.clients.values().map(|client| client.left).collect();
        format!(
            "long after the faults were over, clients wait for {left:?}, members are {places:?} of {}",
            self.judge.last()
        )
    }

    /// Faults end; stopped members are started.
    fn calm_down(&mut self) -> Verdict {
        self.quiet = true;
        self.cuts.clear();
        self.paused.clear();
        self.hosts.values_mut().for_each(|host| host.disk.fail_after(u64::MAX));
        for id in self.hosts.keys().copied().collect::<Vec<_>>() {
            if self.hosts.get(&id).is_some_and(|host| host.member.is_none()) {
                self.start(id)?;
            }
        }
        Ok(())
    }

    fn handle_event(&mut self, event: MetalogEvent) -> Verdict {
        if let Some(id) = host_of(&event)
            && let Some(until) = self.paused.get(&id).copied()
        {
            if until > self.now_us {
                self.after(until - self.now_us, event);
                return Ok(());
            }
            self.paused.remove(&id);
        }
        match event {
            MetalogEvent::Tick { host, life } => {
                let Some(one) = self.alive(host, life) else { return Ok(()) };
                let wait = one.tick_us();
                let wait = wait + self.rng.below(wait / 10 + 1);
                self.after(wait, MetalogEvent::Tick { host, life });
                self.give(host, MemberInput::Tick)?;
                self.promote(host)
            }
            MetalogEvent::Peer { message, state } => {
                let id = message.to;
                self.trace.numbers(
                    &[
                        id.0.into(),
                        message.from.0.into(),
                        message.kind as u64,
                        message.term,
                        message.index.0,
                        message.commit.0,
                    ],
                    || format!("{} -> {id} {message:?}", message.from),
                );
                let now = self.now_us;
                let Some(host) = self.hosts.get_mut(&id).filter(|host| host.member.is_some()) else { return Ok(()) };
                let doings = host.receive(now, message, state);
                self.did(id, doings)
            }
            MetalogEvent::FlushEnds { host, life, through } => {
                let now = self.now_us;
                let Some(one) = self.alive(host, life) else { return Ok(()) };
                let doings = one.flush_ends(now, through);
                self.flushing.remove(&host);
                self.did(host, doings)
            }
            MetalogEvent::StoreFlush { host, life } => {
                let (kept, wait) = self.faults.store(&mut self.rng);
                let now = self.now_us;
                let Some(one) = self.alive(host, life) else { return Ok(()) };
                let doings = one.store_flush(now, kept);
                self.after(wait, MetalogEvent::StoreFlush { host, life });
                self.did(host, doings)
            }
            MetalogEvent::SnapshotSent { host, life, to, whole } => {
                if self.alive(host, life).is_none() {
                    return Ok(());
                }
                self.give(host, MemberInput::SnapshotSent { to, whole })
            }
            MetalogEvent::Restart { host } => match self.hosts.get(&host) {
                Some(one) if one.member.is_none() => self.start(host),
                _ => Ok(()),
            },
            MetalogEvent::Blink { host } => {
                // A vote that is forgotten with the rest of the memory does no harm.
                let kind = if self.rng.chance(2) { CrashKind::Process } else { CrashKind::Power };
                self.down(host, kind, 800);
                Ok(())
            }
            MetalogEvent::Gone { host, peer } => match self.hosts.get(&host) {
                Some(one) if one.member.is_some() => self.give(host, MemberInput::Gone { peer }),
                _ => Ok(()),
            },
            MetalogEvent::Fault => self.fault(),
            MetalogEvent::Heal { cut } => {
                self.cuts.remove(&cut);
                Ok(())
            }
            MetalogEvent::Asked { host, client, attempt, what } => self.on_request(host, client, attempt, what),
            MetalogEvent::Told { client, attempt, answer } => self.on_response(client, attempt, answer),
            MetalogEvent::Wake { client, attempt } => self.wake(client, attempt),
        }
    }

    fn alive(&mut self, host: NodeId, life: u64) -> Option<&mut Host> {
        self.hosts.get_mut(&host).filter(|one| one.life == life && one.member.is_some())
    }

    /// Gives a member an input.
    pub(super) fn give(&mut self, id: NodeId, input: MemberInput) -> Verdict {
        let now = self.now_us;
        let Some(host) = self.hosts.get_mut(&id) else { return Ok(()) };
        let doings = host.input(now, input);
        self.did(id, doings)
    }

    /// Work of the leader's driver: makes a learner a voter that is ready, if there is room for one more.
    fn promote(&mut self, id: NodeId) -> Verdict {
        let Some(member) = self.hosts.get(&id).and_then(|host| host.member.as_ref()) else { return Ok(()) };
        let has_room = member.members().voters.len() < member.voters_max();
        match member.caught_up().first().copied().filter(|_| has_room) {
            Some(learner) => self.give(id, MemberInput::Change(MemberChange::Promote(learner))),
            None => Ok(()),
        }
    }

    /// A process has come up.
    pub(super) fn started(&mut self, id: NodeId, doings: Vec<HostEffect>) -> Verdict {
        let life = self.hosts.get(&id).map_or(0, |host| host.life);
        self.flushing.remove(&id);
        let wait = self.rng.below(25_000);
        self.after(wait, MetalogEvent::Tick { host: id, life });
        let (_, wait) = self.faults.store(&mut self.rng);
        self.after(wait, MetalogEvent::StoreFlush { host: id, life });
        self.did(id, doings)
    }

    /// Starts a machine that is down.
    pub(super) fn start(&mut self, id: NodeId) -> Verdict {
        let seed = self.rng.next();
        let Some(host) = self.hosts.get_mut(&id) else { return Ok(()) };
        match host.restart(seed) {
            Ok(doings) => {
                self.trace.numbers(&[id.0.into(), 77], || format!("member {id} starts: {:?}", self.hosts[&id].member));
                self.started(id, doings)
            }
            // The disk fails just now: the machine goes down once more.
            Err(Error::Source(_)) => {
                self.take_down(id, CrashKind::Power);
                self.after(50_000, MetalogEvent::Restart { host: id });
                Ok(())
            }
            Err(error) => broken(Rule::Restarts, format!("member {id} does not start again: {error}")),
        }
    }

    /// Takes a machine down.
    pub(super) fn take_down(&mut self, id: NodeId, kind: CrashKind) {
        let Some(host) = self.hosts.get_mut(&id) else { return };
        host.crash(kind);
        self.waiting.remove(&id);
        self.flushing.remove(&id);
        self.trace.numbers(&[id.0.into(), 78, kind as u64], || format!("member {id} goes down: {kind:?}"));
        // A process that ends closes its connections; a machine without power sends nothing.
        if kind == CrashKind::Process {
            self.break_connections(id);
        }
    }

    /// Some of the other members notice that the connections of a member ended.
    pub(super) fn break_connections(&mut self, peer: NodeId) {
        for host in self.hosts.keys().copied().collect::<Vec<_>>() {
            if !self.rng.chance(4) {
                self.break_connection(host, peer);
            }
        }
    }

    /// One of the other members notices it.
    pub(super) fn break_connection(&mut self, host: NodeId, peer: NodeId) {
        let wait = self.rng.between(50, 20_000);
        self.after(wait, MetalogEvent::Gone { host, peer });
    }

    /// Handles the events of a member.
    pub(super) fn did(&mut self, id: NodeId, doings: Vec<HostEffect>) -> Verdict {
        for doing in doings {
            match doing {
                HostEffect::Sent(message, state) => self.send(id, message, state),
                HostEffect::Executed { from, after, terms, entries } => {
                    let through = after.applied;
                    let host = self.hosts.get(&id).expect("it did something");
                    self.trace.numbers(&[id.0.into(), through.0], || format!("member {id} executes up to {through}"));
                    self.judge.executed(host, (from, after), &terms, &entries)?;
                    for entry in &entries {
                        let Some(ask) = state::decode(&entry.body) else { continue };
                        if is_barrier(ask) {
                            self.judge.durable(entry.index);
                        }
                        let waiting = self.waiting.entry(id).or_default();
                        let waits = waiting.puts.remove(&ask).unwrap_or_default();
                        if is_sync(ask) && !is_barrier(ask) && !waits.is_empty() {
                            waiting.syncs.extend(waits.into_iter().map(|wait| (entry.index, ask, wait)));
                            self.give(id, MemberInput::FlushAll)?;
                            continue;
                        }
                        for (client, attempt) in waits {
                            self.respond(id, client, attempt, MemberResponse::Done(ask));
                        }
                    }
                    self.show(id);
                }
                HostEffect::Installed(mark) => {
                    self.installs += 1;
                    self.trace.numbers(&[id.0.into(), 79, mark.applied.0], || format!("member {id} installs {mark:?}"));
                    self.judge.same_state(self.hosts.get(&id).expect("it did something"), mark)?;
                }
                HostEffect::Durable => self.reply_durable(id)?,
                HostEffect::Role { role, term, leader, lost_after } => {
                    self.trace.numbers(&[id.0.into(), 80, term], || {
                        format!("member {id}: {role:?} in {term}, {leader:?} leads")
                    });
                    if role == RaftRole::Leader {
                        self.elections += 1;
                        if let Some(after) = lost_after {
                            self.losses += 1;
                            let last = self.judge.lost(self.hosts.get(&id).expect("it did something"), after)?;
                            self.clients.values_mut().for_each(|client| client.floor = client.floor.min(last));
                        }
                        self.judge.leads(self.hosts.get(&id).expect("it did something"), term)?;
                    } else {
                        self.redirect_clients(id, leader);
                    }
                }
                HostEffect::Changed => {
                    self.changes += 1;
                    let member = self.hosts.get(&id).and_then(|host| host.member.as_ref());
                    let voters = member.map_or(0, |member| member.members().voters.len());
                    if voters > VOTERS_MAX {
                        return broken(Rule::Whole, format!("member {id} knows {voters} that vote, of {VOTERS_MAX}"));
                    }
                }
                HostEffect::ReadAt { token, index } => {
                    let waiting = self.waiting.entry(id).or_default();
                    if let Some((client, attempt)) = waiting.reads.remove(&token) {
                        waiting.shows.push((index, client, attempt));
                    }
                    self.show(id);
                }
                HostEffect::ReadFailed { token } => {
                    if let Some((client, attempt)) = self.waiting.entry(id).or_default().reads.remove(&token) {
                        self.respond(id, client, attempt, MemberResponse::Again);
                    }
                }
                HostEffect::Closed(at) => {
                    self.judge.closed(at);
                    let waiting = self.waiting.entry(id).or_default();
                    let closed: Vec<_> = waiting.closes.extract_if(.., |close| close.0 == at).collect();
                    for (_, client, attempt) in closed {
                        self.respond(id, client, attempt, MemberResponse::Closed);
                    }
                }
                HostEffect::Refused(_) | HostEffect::NotClosed => {}
                HostEffect::Died | HostEffect::Failed(Error::DeviceFailed { .. }) => {
                    self.take_down(id, CrashKind::Power);
                    let wait = self.rng.between(20_000, 800_000);
                    self.after(wait, MetalogEvent::Restart { host: id });
                    return Ok(());
                }
                HostEffect::Failed(error) => {
                    return broken(Rule::PromisedErrors, format!("member {id} gave up: {error}"));
                }
            }
        }
        self.reply_durable(id)?;
        self.flush(id)
    }

    fn flush(&mut self, id: NodeId) -> Verdict {
        let now = self.now_us;
        let Some(host) = self.hosts.get_mut(&id).filter(|host| host.member.is_some() && host.wants_flush()) else {
            return Ok(());
        };
        if !self.flushing.insert(id) {
            return Ok(());
        }
        let (life, (through, doings)) = (host.life, host.flush_begins(now));
        let wait = self.faults.flush_us(&mut self.rng, self.quiet);
        self.after(wait, MetalogEvent::FlushEnds { host: id, life, through });
        if doings.is_empty() { Ok(()) } else { self.did(id, doings) }
    }

    fn send(&mut self, id: NodeId, message: PeerMessage, state: Option<Rc<MemberState>>) {
        if let (Some(_), Some(host)) = (&state, self.hosts.get(&id)) {
            let whole = !self.rng.chance(4);
            let (life, to) = (host.life, message.to);
            let wait = self.rng.between(500, 50_000);
            self.after(wait, MetalogEvent::SnapshotSent { host: id, life, to, whole });
        }
        if message.kind == PeerKind::Vote && !message.reject && self.faults.blinks(&mut self.rng, self.quiet) {
            self.after(50, MetalogEvent::Blink { host: id });
        }
        for wait in self.ways(id, message.to) {
            self.after(wait, MetalogEvent::Peer { message: message.clone(), state: state.clone() });
        }
    }

    /// When a message arrives: never, once, or more than once.
    fn ways(&mut self, from: NodeId, to: NodeId) -> Vec<u64> {
        if self.cuts.values().any(|cut| cut.contains(&(from, to))) {
            return Vec::new();
        }
        self.faults.ways(&mut self.rng, self.quiet)
    }

    /// A machine that waits to be added.
    pub(super) fn add_host(&mut self) -> Verdict<NodeId> {
        let id = NodeId(self.hosts.keys().last().map_or(0, |id| id.0) + 1);
        let (disk_seed, seed) = (self.rng.next(), self.rng.next());
        let mut host = Host::new(id, disk_seed, self.settings.clone(), self.breakage);
        host.skew_us = self.faults.skew_us(&mut self.rng);
        let doings = host.join(seed, &self.founders.clone());
        self.hosts.insert(id, host);
        self.started(id, doings)?;
        Ok(id)
    }
}

/// Whose event it is.
fn host_of(event: &MetalogEvent) -> Option<NodeId> {
    match event {
        MetalogEvent::Tick { host, .. }
        | MetalogEvent::FlushEnds { host, .. }
        | MetalogEvent::StoreFlush { host, .. }
        | MetalogEvent::SnapshotSent { host, .. }
        | MetalogEvent::Gone { host, .. }
        | MetalogEvent::Asked { host, .. } => Some(*host),
        MetalogEvent::Peer { message, .. } => Some(message.to),
        _ => None,
    }
}
