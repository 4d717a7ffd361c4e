//! Clients, the log, the network, faults, and the judge.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use frieze_base::{LogIndex, MonoTime, Rng, Seq, SessionId};
use frieze_calvin::{ExecutionPlace, Position, RequestName, SchedulerSettings, ShardId, Slot, TxnEnvelope};

use super::breakage::CalvinBreak;
use super::op::{Answer, Body, ChangePath, ExpectedTree, Ino, Name, TreeOp};
use super::oracle::Oracle;
use super::plan::{CalvinCounts, CalvinOutcome, CalvinPlan};
use super::server::{NamesServer, Report, ValueMessage};
use crate::trace::Trace;
use crate::violation::{Rule, Verdict, broken};

/// A request of a client that has no answer yet.
#[derive(Clone, Debug)]
struct AskedChange {
    op: TreeOp,
    attempt: u32,
    /// When it was last sent.
    sent: u64,
}

#[derive(Debug, Default)]
struct NamesClient {
    next: u64,
    open: BTreeMap<u64, AskedChange>,
}

/// What the judge knows of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    Runs(Answer),
    Again(Position),
    Refused,
}

struct CalvinWorld {
    rng: Rng,
    trace: Trace,
    counts: CalvinCounts,
    breakage: Option<CalvinBreak>,
    now_ms: u64,
    asks_left: u64,
    clients: BTreeMap<SessionId, NamesClient>,
    servers: Vec<NamesServer>,
    shards: u16,
    /// Sent and not ordered yet.
    proposed: Vec<(TxnEnvelope, Body)>,
    log: Vec<Vec<(TxnEnvelope, Body)>>,
    network: VecDeque<(usize, usize, ValueMessage)>,
    /// Faults still come.
    faults: bool,
    oracle: Oracle,
    /// The oracle before each entry, from the first.
    states: Vec<Oracle>,
    fates: BTreeMap<Position, Fate>,
    /// The newest attempt of each request, as the log has it: its number and position.
    attempts: BTreeMap<(SessionId, u64), (u32, Position)>,
    acked: BTreeMap<SessionId, u64>,
    /// Which request each transaction is of.
    requests: BTreeMap<Position, RequestName>,
    /// Requests that have changed something, with the number that the client knows.
    effects: BTreeMap<(SessionId, u64), Position>,
    /// Numbers that a breakage gives to repeated requests, and what they stand for.
    aliases: BTreeMap<(SessionId, u64), u64>,
}

/// Plays a plan.
pub fn run_calvin(plan: &CalvinPlan) -> CalvinOutcome {
    let mut world = CalvinWorld::new(plan);
    let violation = world.play().err();
    CalvinOutcome { trace_hash: world.trace.hash(), trace: world.trace.take_lines(), counts: world.counts, violation }
}

impl CalvinWorld {
    fn new(plan: &CalvinPlan) -> CalvinWorld {
        let mut rng = Rng::new(plan.seed);
        let shards = *rng.choose(&[1, 2, 4, 16]);
        let count = rng.between(1, 3) as usize;
        let settings = SchedulerSettings {
            shards,
            parked_max: *rng.choose(&[2, 8, 1024]),
            early_max: *rng.choose(&[1, 4, 4096]),
            unacknowledged_max: 4,
            ..SchedulerSettings::default()
        };
        // Each shard has a server, and perhaps others.
        let mut places = vec![BTreeSet::new(); count];
        for shard in (0..shards).map(ShardId) {
            places[rng.below(count as u64) as usize].insert(shard);
            places.iter_mut().filter(|_| rng.chance(2)).for_each(|place| {
                place.insert(shard);
            });
        }
        let servers =
            places.into_iter().map(|place| NamesServer::new(settings.clone(), place, plan.breakage)).collect();
        CalvinWorld {
            trace: Trace::new(plan.keep_trace),
            counts: CalvinCounts::default(),
            breakage: plan.breakage,
            now_ms: 1,
            asks_left: plan.asks,
            clients: (1..=rng.between(1, 4)).map(|session| (SessionId(session), NamesClient::default())).collect(),
            servers,
            shards,
            proposed: Vec::new(),
            log: Vec::new(),
            network: VecDeque::new(),
            faults: true,
            oracle: Oracle::new(),
            states: vec![Oracle::new()],
            fates: BTreeMap::new(),
            attempts: BTreeMap::new(),
            acked: BTreeMap::new(),
            requests: BTreeMap::new(),
            effects: BTreeMap::new(),
            aliases: BTreeMap::new(),
            rng,
        }
    }

    fn play(&mut self) -> Verdict {
        for _ in 0..STEPS_MAX {
            if self.asks_left == 0 {
                break;
            }
            self.one_step()?;
        }
        // Everything is well now: all is executed and answered in time.
        (self.faults, self.asks_left) = (false, 0);
        for _ in 0..STEPS_TO_END {
            if self.is_done() {
                return self.compare_all();
            }
            self.one_step()?;
        }
        let open: Vec<_> =
            self.clients.iter().map(|(session, client)| (session, client.open.keys().collect::<Vec<_>>())).collect();
        let marks: Vec<_> = self.servers.iter().map(|server| server.scheduler.whole_watermark()).collect();
        broken(
            Rule::Live,
            format!(
                "after {STEPS_TO_END} steps without faults: {open:?} have no answer, {marks:?} of {}",
                self.log.len()
            ),
        )
    }

    fn is_done(&self) -> bool {
        let end = Position { index: LogIndex(self.log.len() as u64 + 1), item: 0 };
        self.clients.values().all(|client| client.open.is_empty())
            && self.proposed.is_empty()
            && self.servers.iter().all(|server| server.scheduler.whole_watermark() == end)
    }

    fn one_step(&mut self) -> Verdict {
        self.now_ms += self.rng.below(4);
        self.trace.at(self.now_ms);
        let which = self.rng.below(self.servers.len() as u64) as usize;
        match self.rng.below(if self.faults { 99 } else { 96 }) {
            0..8 => self.ask(),
            8..16 => self.repeat(),
            16..26 => self.order(),
            26..40 => self.feed(which)?,
            40..76 => self.run_task(which)?,
            76..90 => self.deliver()?,
            90..93 => self.tick(which)?,
            93..95 => self.servers[which].store(),
            95 => self.compare(which)?,
            96..98 => drop(self.network.pop_front()),
            _ if !self.rng.chance(RESTART_ONE_IN) => {}
            _ => {
                self.counts.restarts += 1;
                self.trace.line(|| format!("server {which} starts again"));
                self.servers[which].restart();
            }
        }
        Ok(())
    }

    fn now(&self) -> MonoTime {
        MonoTime(self.now_ms * 1_000_000)
    }

    /// A client asks for something new.
    fn ask(&mut self) {
        if self.asks_left == 0 {
            return;
        }
        let sessions: Vec<_> = self.clients.keys().copied().collect();
        let session = *self.rng.choose(&sessions);
        if self.clients[&session].open.len() >= 6 {
            return;
        }
        self.asks_left -= 1;
        let op = self.draw_op();
        let client = self.clients.get_mut(&session).expect("it was chosen");
        client.next += 1;
        let seq = client.next;
        client.open.insert(seq, AskedChange { op, attempt: 1, sent: self.now_ms });
        self.send(session, seq);
    }

    /// A client sends a request again, which may be on its way, by another front-end.
    fn repeat(&mut self) {
        let open: Vec<_> =
            self.clients.iter().flat_map(|(session, client)| client.open.keys().map(|seq| (*session, *seq))).collect();
        if open.is_empty() {
            return;
        }
        let (session, seq) = *self.rng.choose(&open);
        let request = self.clients.get_mut(&session).and_then(|client| client.open.get_mut(&seq)).expect("it is open");
        if self.now_ms < request.sent + REPEAT_MS {
            return;
        }
        request.sent = self.now_ms;
        match self.breakage {
            Some(CalvinBreak::AttemptUnproven) => request.attempt += 1,
            Some(CalvinBreak::RetryIsNew) => {
                let request = request.clone();
                let client = self.clients.get_mut(&session).expect("it is open");
                client.next += 1;
                let number = client.next;
                client.open.remove(&seq);
                client.open.insert(number, request);
                let first = self.aliases.get(&(session, seq)).copied().unwrap_or(seq);
                self.aliases.insert((session, number), first);
                return self.send(session, number);
            }
            _ => {}
        }
        self.send(session, seq);
    }

    /// A front-end looks the names up, somewhere, and proposes the request.
    fn send(&mut self, session: SessionId, seq: u64) {
        let client = &self.clients[&session];
        let request = client.open[&seq].clone();
        let acked = Seq(*client.open.keys().next().expect("this one is open"));
        let expects = match &request.op {
            TreeOp::Unlink(target) | TreeOp::Set(target, _) => [self.look(target), None],
            TreeOp::Link(from, _) => [self.look(from), None],
            TreeOp::Rename(from, to) => [self.look(from), self.look(to)],
            _ => [None; 2],
        };
        let tree = match &request.op {
            TreeOp::RemoveTree(target) => self.look_below(target),
            _ => ExpectedTree::new(),
        };
        let name = RequestName { session, seq: Seq(seq), attempt: request.attempt };
        self.trace
            .line(|| format!("{session}.{seq} attempt {} acked {acked}: {:?} {expects:?}", name.attempt, request.op));
        self.proposed.push((TxnEnvelope { request: name, acked }, Body { op: request.op, expects, tree }));
    }

    fn look(&mut self, target: &ChangePath) -> Option<Ino> {
        let trunk = self.rng.below(self.servers.len() as u64) as usize;
        let place = self.servers[trunk].trunk.look(target)?;
        let with = self.servers.iter().filter(|server| server.has(place.0.slot())).collect::<Vec<_>>();
        let server = *self.rng.choose(&with);
        server.files.names.newest(place)
    }

    /// What a front-end sees of a directory and all below it, each directory's files somewhere else.
    fn look_below(&mut self, target: &ChangePath) -> ExpectedTree {
        let trunk = self.rng.below(self.servers.len() as u64) as usize;
        let names: BTreeMap<_, _> = self.servers[trunk].trunk.names.all().collect();
        let top = self.servers[trunk].trunk.look(target).and_then(|place| names.get(&place).copied());
        let (mut tree, mut todo) = (ExpectedTree::new(), Vec::from_iter(top));
        while let Some(directory) = todo.pop() {
            todo.extend(names.iter().filter(|((parent, _), _)| *parent == directory).map(|(_, ino)| *ino));
            let with = self.servers.iter().filter(|server| server.has(directory.slot())).collect::<Vec<_>>();
            let files = self.rng.choose(&with).files.names.all().filter(|((parent, _), _)| *parent == directory);
            tree.insert(directory, files.map(|((_, name), ino)| (name, ino)).collect());
        }
        tree
    }

    fn draw_op(&mut self) -> TreeOp {
        match self.rng.below(20) {
            0..4 => TreeOp::Make(self.target()),
            4..7 => TreeOp::Mkdir(self.target()),
            7..9 => TreeOp::Rmdir(self.named(true)),
            9..11 => TreeOp::Unlink(self.named(false)),
            11..13 => TreeOp::Set(self.named(false), self.rng.next()),
            18 if self.rng.chance(4) => TreeOp::RemoveTree(self.named(true)),
            13 => TreeOp::Chmod(self.named(true), !self.rng.chance(4)),
            14..17 => TreeOp::Rename(self.named(true), self.inside()),
            17 => TreeOp::Rename(self.named(false), self.target()),
            _ => TreeOp::Link(self.named(false), self.target()),
        }
    }

    /// Any name, there or not.
    fn target(&mut self) -> ChangePath {
        let known: Vec<Ino> = self.oracle.directories.keys().copied().collect();
        let base = if self.rng.chance(3) { Ino::ROOT } else { *self.rng.choose(&known) };
        let depth = if self.rng.chance(3) { self.rng.between(1, 2) } else { 0 };
        let way = (0..depth).map(|_| self.rng.below(NAMES) as Name).collect();
        ChangePath { base, way, name: self.rng.below(NAMES) as Name }
    }

    /// A name in a directory that is there: where a directory moves to, below itself perhaps.
    fn inside(&mut self) -> ChangePath {
        let known: Vec<Ino> = self.oracle.directories.keys().copied().collect();
        ChangePath { base: *self.rng.choose(&known), way: Vec::new(), name: self.rng.below(NAMES) as Name }
    }

    /// A name that a directory or a file has, as a rule.
    fn named(&mut self, of_directory: bool) -> ChangePath {
        let entries = self.oracle.entries.iter().filter(|(_, ino)| ino.is_directory() == of_directory);
        let known: Vec<(Ino, Name)> = entries.map(|(place, _)| *place).collect();
        if known.is_empty() || self.rng.chance(5) {
            return self.target();
        }
        let (base, name) = *self.rng.choose(&known);
        ChangePath { base, way: Vec::new(), name }
    }

    /// The log orders what was proposed; the judge executes it.
    fn order(&mut self) {
        if self.proposed.is_empty() {
            return;
        }
        let count = self.rng.between(1, 4).min(self.proposed.len() as u64);
        let mut entry = Vec::new();
        for _ in 0..count {
            let which = self.rng.below(self.proposed.len() as u64) as usize;
            let proposal = self.proposed.remove(which);
            // What was proposed may arrive twice.
            if self.faults && self.rng.chance(12) {
                entry.push(proposal.clone());
            }
            entry.push(proposal);
        }
        let index = LogIndex(self.log.len() as u64 + 1);
        for (item, (envelope, body)) in (0..).zip(&entry) {
            self.execute(Position { index, item }, envelope, body);
        }
        self.log.push(entry);
        self.states.push(self.oracle.clone());
    }

    fn execute(&mut self, at: Position, envelope: &TxnEnvelope, body: &Body) {
        self.counts.transactions += 1;
        let RequestName { session, seq: Seq(seq), attempt } = envelope.request;
        self.requests.insert(at, envelope.request);
        let acked = self.acked.entry(session).or_insert(1);
        *acked = (*acked).max(envelope.acked.0);
        let last = self.attempts.get(&(session, seq)).copied();
        let open = self.attempts.range((session, *acked)..=(session, u64::MAX)).count();
        let fate = match last {
            _ if seq < *acked => Fate::Refused,
            Some((number, first)) if attempt <= number => Fate::Again(first),
            last if attempt != last.map_or(0, |(number, _)| number) + 1 => Fate::Refused,
            None if seq > *acked && open >= 4 => Fate::Refused,
            _ => {
                self.attempts.insert((session, seq), (attempt, at));
                Fate::Runs(self.oracle.execute(at, body))
            }
        };
        match fate {
            Fate::Again(_) => self.counts.again += 1,
            Fate::Runs(Answer::Superseded) => self.counts.superseded += 1,
            Fate::Runs(Answer::Ok(_)) => self.counts.changes += 1,
            _ => {}
        }
        self.trace.line(|| format!("{at}: {:?} {:?} {fate:?}", envelope.request, body.op));
        self.fates.insert(at, fate);
    }

    fn feed(&mut self, which: usize) -> Verdict {
        let server = &mut self.servers[which];
        let next = server.fed.0 as usize;
        if next >= self.log.len() || server.scheduler.incoming() > 8 {
            return Ok(());
        }
        let mut reports = Vec::new();
        let now = MonoTime(self.now_ms * 1_000_000);
        server.feed(now, &self.log[next], &mut reports);
        self.judge(which, reports)
    }

    fn run_task(&mut self, which: usize) -> Verdict {
        let now = self.now();
        let tasks = self.servers[which].tasks();
        if tasks == 0 {
            return Ok(());
        }
        let task = self.rng.below(tasks as u64) as usize;
        let mut reports = Vec::new();
        self.servers[which].run(now, task, &mut reports);
        self.judge(which, reports)
    }

    fn tick(&mut self, which: usize) -> Verdict {
        let mut reports = Vec::new();
        let now = self.now();
        self.servers[which].tick(now, &mut reports);
        self.judge(which, reports)
    }

    fn deliver(&mut self) -> Verdict {
        if self.network.is_empty() {
            return Ok(());
        }
        let which = self.rng.below(self.network.len() as u64) as usize;
        let (from, to, message) = self.network.remove(which).expect("it was counted");
        let now = self.now();
        let mut reports = Vec::new();
        self.servers[to].receive(now, from, message, &mut reports);
        self.judge(to, reports)
    }

    fn judge(&mut self, which: usize, reports: Vec<Report>) -> Verdict {
        for report in reports {
            match report {
                Report::Outcome(at, answer) => {
                    self.trace.line(|| format!("server {which}: {at} {answer:?}"));
                    if self.fates[&at] != Fate::Runs(answer) {
                        let expected = &self.fates[&at];
                        return broken(
                            Rule::Linearizable,
                            format!("server {which} has {answer:?} at {at}, not {expected:?}"),
                        );
                    }
                    self.answer(at, answer)?;
                }
                Report::Again(at, first) => {
                    if self.fates[&at] != Fate::Again(first) {
                        let expected = &self.fates[&at];
                        return broken(
                            Rule::Once,
                            format!("server {which} says that {at} ran at {first}, not {expected:?}"),
                        );
                    }
                    // Its outcome is asked for there.
                    if let Fate::Runs(answer) = self.fates[&first] {
                        self.answer(first, answer)?;
                    }
                }
                Report::Refused(at, error) => {
                    if self.fates[&at] != Fate::Refused {
                        let expected = &self.fates[&at];
                        return broken(Rule::Once, format!("server {which} refuses {at}, {error}, not {expected:?}"));
                    }
                }
                Report::Diverged(at, slot) => {
                    return broken(Rule::SameForEver, format!("server {which}: two values of slot {slot:?} for {at}"));
                }
                Report::Send(message) => {
                    self.counts.asks += u64::from(matches!(message, ValueMessage::Ask(..)));
                    let others = (0..self.servers.len()).filter(|other| *other != which);
                    self.network.extend(others.map(|other| (which, other, message.clone())));
                }
                Report::SendTo(other, message) => self.network.push_back((which, other, message)),
            }
        }
        Ok(())
    }

    /// A front-end answers its client, or tries again with what the names have now.
    fn answer(&mut self, at: Position, answer: Answer) -> Verdict {
        let RequestName { session, seq: Seq(seq), attempt } = self.requests[&at];
        if matches!(answer, Answer::Ok(_)) {
            let known = self.aliases.get(&(session, seq)).copied().unwrap_or(seq);
            let first = *self.effects.entry((session, known)).or_insert(at);
            if first != at {
                return broken(Rule::Once, format!("request {known} of {session} ran at {first} and at {at}"));
            }
        }
        let Some(client) = self.clients.get_mut(&session) else { return Ok(()) };
        let Some(request) = client.open.get_mut(&seq).filter(|request| request.attempt == attempt) else {
            return Ok(());
        };
        if answer == Answer::Superseded {
            request.attempt += 1;
            request.sent = self.now_ms;
            self.send(session, seq);
        } else {
            client.open.remove(&seq);
            self.counts.answered += 1;
        }
        Ok(())
    }

    /// Compares a place of a server with the oracle, at an instant below its watermark.
    fn compare(&mut self, which: usize) -> Verdict {
        let shards: Vec<_> = self.servers[which].shards().collect();
        let place = match self.rng.below(shards.len() as u64 + 1) {
            0 => ExecutionPlace::Trunk,
            shard => ExecutionPlace::Shard(shards[shard as usize - 1]),
        };
        let mark = self.servers[which].watermark(place);
        if mark.index.0 < 2 {
            return Ok(());
        }
        let entries = self.rng.between(1, mark.index.0 - 1);
        self.compare_at(which, place, entries)
    }

    /// After so many entries.
    fn compare_at(&mut self, which: usize, place: ExecutionPlace, entries: u64) -> Verdict {
        self.counts.compared += 1;
        let (server, oracle) = (&self.servers[which], &self.states[entries as usize]);
        let at = Position { index: LogIndex(entries + 1), item: 0 };
        let is_same = match place {
            ExecutionPlace::Trunk => {
                let names = oracle.entries.iter().filter(|(_, ino)| ino.is_directory());
                server.trunk.names.all_before(at) == names.map(|(place, ino)| (*place, *ino)).collect()
                    && server.trunk.directories.all_before(at) == oracle.directories
                    && server.trunk.given.all_before(at) == oracle.given
            }
            ExecutionPlace::Shard(shard) => {
                let is_here = |slot: Slot| ShardId::of(slot, self.shards) == shard;
                let names =
                    oracle.entries.iter().filter(|((parent, _), ino)| is_here(parent.slot()) && !ino.is_directory());
                let files = oracle.files.iter().filter(|(ino, _)| is_here(ino.slot()));
                server.files.before(at, shard, self.shards)
                    == (
                        names.map(|(place, ino)| (*place, *ino)).collect(),
                        files.map(|(ino, file)| (*ino, *file)).collect(),
                    )
            }
        };
        if is_same {
            return Ok(());
        }
        broken(Rule::SameForEver, format!("server {which} has another state of {place:?} after {entries} entries"))
    }

    fn compare_all(&mut self) -> Verdict {
        let entries = self.log.len() as u64;
        for which in 0..self.servers.len() {
            let shards: Vec<_> = self.servers[which].shards().map(ExecutionPlace::Shard).collect();
            for place in shards.into_iter().chain([ExecutionPlace::Trunk]) {
                for after in [entries, self.rng.between(0, entries), self.rng.between(0, entries)] {
                    self.compare_at(which, place, after)?;
                }
            }
        }
        Ok(())
    }
}

/// Names in a directory: few, so that changes meet.
const NAMES: u64 = 4;
/// A client waits so long before it sends a request again.
const REPEAT_MS: u64 = 60;
/// Of the steps that may restart a server, so many do not.
const RESTART_ONE_IN: u64 = 12;
/// Steps with faults; clients then ask no more.
const STEPS_MAX: usize = 100_000;
/// Steps in which all is done once faults have stopped.
const STEPS_TO_END: usize = 60_000;
