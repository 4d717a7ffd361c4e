//! The log, the network, faults, and the judge.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use frieze_base::{LogIndex, MonoTime, Reason, Rng, Seq, SessionId};
use frieze_calvin::{ExecutionPlace, Position, RequestName, ShardId, Slot, TxnEnvelope};
use frieze_hlc::Hlc;
use frieze_namespace::{
    Footprint, KeyVersion, MemoryHistory, Namespace, NoReadSet, StateItem, StatePart, find_footprint,
};
use frieze_wire::txn::{Caller, Format, Op, Outcome, Transaction};

use super::draw::TxnDraw;
use super::plan::{ShardCounts, ShardOutcome, ShardPlan};
use super::server::{ItemMessage, LoggedTxn, ShardReport, ShardServer};
use super::store::PartStore;
use crate::scheduled::{ScheduledServers, draw_division};
use crate::trace::Trace;
use crate::violation::{Rule, Verdict, broken};

const STEPS_MAX: u64 = 20_000;
const STEPS_TO_END: u64 = 60_000;
/// One message of so many that are on their way arrives at a time.
const DELIVERED_OF: usize = 8;
/// Requests of a client without an answer.
const OPEN_MAX: usize = 4;
/// One restart in so many chances.
const RESTART_ONE_IN: u64 = 12;
/// How many entries older a state is, at most, that a front-end looks at.
const OLD_MAX: u64 = 4;
const ATTEMPTS_MAX: u32 = 16;
/// Looks at an item at an instant, at the end.
const INSTANTS: usize = 100;

/// What the judge knows of a transaction.
#[derive(Clone, Debug)]
enum TxnFate {
    /// Its outcome, none if it is superseded, and its changes.
    Runs(Option<Outcome>, Vec<(StatePart, KeyVersion)>),
    Again(Position),
}

/// A request that has no answer yet.
#[derive(Debug)]
struct ShardRequest {
    txn: Transaction,
    attempt: u32,
}

#[derive(Debug, Default)]
struct ShardClient {
    next: u64,
    open: BTreeMap<u64, ShardRequest>,
    /// What comes after its last request.
    left: VecDeque<Transaction>,
}

/// The state in the order of the log, in one piece and in parts.
struct UndividedState {
    namespace: Namespace,
    history: MemoryHistory,
    /// All of it in one, and its parts.
    whole: PartStore,
    trunk: PartStore,
    shards: BTreeMap<ShardId, PartStore>,
    /// What was read or changed so far.
    items: BTreeSet<StateItem>,
}

struct ShardWorld {
    rng: Rng,
    trace: Trace,
    counts: ShardCounts,
    now_ms: u64,
    asks_left: u64,
    clients: Vec<ShardClient>,
    requests: u64,
    servers: ScheduledServers<ShardServer>,
    shards: u16,
    proposed: Vec<(RequestName, Transaction, Footprint)>,
    log: Vec<Vec<Rc<LoggedTxn>>>,
    faults: bool,
    stamp: Hlc,
    judge: UndividedState,
    /// The parts of the state before the last entries, oldest first.
    old: VecDeque<(PartStore, BTreeMap<ShardId, PartStore>)>,
    fates: BTreeMap<Position, TxnFate>,
    names: BTreeMap<RequestName, Position>,
    requests_of: BTreeMap<Position, RequestName>,
}

/// Plays a plan.
pub fn run_shards(plan: &ShardPlan) -> ShardOutcome {
    let mut world = ShardWorld::new(plan);
    let violation = world.play().err();
    ShardOutcome { trace_hash: world.trace.hash(), trace: world.trace.take_lines(), counts: world.counts, violation }
}

impl ShardWorld {
    fn new(plan: &ShardPlan) -> ShardWorld {
        let mut rng = Rng::new(plan.seed);
        let (settings, places) = draw_division(&mut rng);
        let shards = settings.shards;
        let servers =
            places.into_iter().map(|place| ShardServer::new(settings.clone(), place, plan.breakage)).collect();
        let clients = rng.between(1, 4);
        let judge = UndividedState {
            namespace: Namespace::new(),
            history: MemoryHistory::new(),
            whole: PartStore::default(),
            trunk: PartStore::default(),
            items: BTreeSet::new(),
            shards: (0..shards).map(|shard| (ShardId(shard), PartStore::default())).collect(),
        };
        let mut world = ShardWorld {
            trace: Trace::new(plan.keep_trace),
            counts: ShardCounts::default(),
            now_ms: 1,
            asks_left: plan.asks,
            clients: (0..clients).map(|_| ShardClient::default()).collect(),
            requests: 0,
            servers: ScheduledServers::new(servers),
            shards,
            proposed: Vec::new(),
            log: Vec::new(),
            faults: true,
            stamp: Hlc::first_of_micros(1_000_000),
            old: VecDeque::from([(judge.trunk.clone(), judge.shards.clone())]),
            judge,
            fates: BTreeMap::new(),
            names: BTreeMap::new(),
            requests_of: BTreeMap::new(),
            rng,
        };
        let format = Format { chunk_bytes: 4096, chain_count: 4, uid: 0, gid: 0, mode: 0o777 };
        let format = Transaction { caller: Caller::root(), op: Some(Op::Format(format)), ..Transaction::default() };
        world.ask(0, format);
        world
    }

    fn play(&mut self) -> Verdict {
        for _ in 0..STEPS_MAX {
            if self.asks_left == 0 {
                break;
            }
            self.one_step()?;
        }
        (self.faults, self.asks_left) = (false, 0);
        for _ in 0..STEPS_TO_END {
            if self.is_done() {
                return self.compare_all();
            }
            self.one_step()?;
        }
        let marks = self.servers.watermarks();
        broken(Rule::Live, format!("after {STEPS_TO_END} steps without faults: {marks:?} of {}", self.log.len()))
    }

    fn is_done(&self) -> bool {
        self.clients.iter().all(|client| client.open.is_empty() && client.left.is_empty())
            && self.proposed.is_empty()
            && self.servers.have_executed(self.log.len())
    }

    fn one_step(&mut self) -> Verdict {
        self.now_ms += self.rng.below(4);
        self.trace.at(self.now_ms);
        let which = self.rng.below(self.servers.len() as u64) as usize;
        match self.rng.below(if self.faults { 99 } else { 96 }) {
            0..12 => self.ask_or_go_on(),
            12..22 => self.order()?,
            22..36 => {
                let reports = self.servers.feed(which, self.now(), &self.log);
                self.judge(which, reports)?;
            }
            36..76 => {
                let reports = self.servers.run_task(which, self.now(), &mut self.rng);
                self.judge(which, reports)?;
            }
            76..90 => self.deliver()?,
            90..93 => {
                let reports = self.servers.tick(which, self.now());
                self.judge(which, reports)?;
            }
            93..96 => self.servers[which].store(),
            96..98 => self.servers.lose_one(),
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

    fn ask_or_go_on(&mut self) {
        let which = self.rng.below(self.clients.len() as u64) as usize;
        if self.clients[which].open.len() >= OPEN_MAX {
            return;
        }
        if let Some(next) = self.clients[which].left.pop_front() {
            return self.ask(which, next);
        }
        if self.asks_left == 0 || self.judge.namespace.format().is_none() {
            return;
        }
        self.asks_left -= 1;
        let mut draw = TxnDraw {
            rng: &mut self.rng,
            namespace: &self.judge.namespace,
            history: &self.judge.history,
            now: self.stamp,
            requests: &mut self.requests,
        };
        let mut txns = draw.draw();
        let first = txns.pop_front().expect("one is drawn");
        self.clients[which].left = txns;
        self.ask(which, first);
    }

    fn ask(&mut self, which: usize, txn: Transaction) {
        let client = &mut self.clients[which];
        client.next += 1;
        let seq = client.next;
        client.open.insert(seq, ShardRequest { txn, attempt: 1 });
        self.send(which, seq, 1);
    }

    /// A front-end looks what the transaction reads and changes in a state that may be old, and proposes it.
    fn send(&mut self, which: usize, seq: u64, attempt: u32) {
        let txn = self.clients[which].open[&seq].txn.clone();
        // Later attempts look at newer states, so that the last ones end.
        let back = if attempt > 3 || !self.faults { 0 } else { self.rng.below(OLD_MAX) };
        let state = self.old.len() - 1 - (back as usize).min(self.old.len() - 1);
        let (trunk, shards) = &self.old[state];
        let stamp = self.stamp.next();
        let found = find_footprint(&txn, stamp, &mut |item| Ok(read(trunk, shards, self.shards, item)));
        let (footprint, _) = found.expect("versions that transactions made can be read");
        let request = RequestName { session: SessionId(which as u64 + 1), seq: Seq(seq), attempt };
        self.proposed.push((request, txn, footprint));
    }

    /// The log orders what was proposed; the judge executes it.
    fn order(&mut self) -> Verdict {
        if self.proposed.is_empty() {
            return Ok(());
        }
        let count = self.rng.between(1, 4).min(self.proposed.len() as u64);
        let index = LogIndex(self.log.len() as u64 + 1);
        let mut entry = Vec::new();
        for _ in 0..count {
            let which = self.rng.below(self.proposed.len() as u64) as usize;
            let (request, txn, footprint) = self.proposed.remove(which);
            let copies = if self.faults && self.rng.chance(12) { 2 } else { 1 };
            for _ in 0..copies {
                self.stamp = Hlc::first_of_micros(self.stamp.micros() + 1);
                let acked = self.clients[request.session.0 as usize - 1].open.keys().next().copied().unwrap_or(1);
                let envelope = TxnEnvelope { request, acked: Seq(acked) };
                let (txn, footprint) = (txn.clone(), footprint.clone());
                let logged = Rc::new(LoggedTxn { envelope, txn, footprint, stamp: self.stamp });
                self.execute(Position { index, item: entry.len() as u32 }, &logged)?;
                entry.push(logged);
            }
        }
        self.log.push(entry);
        self.old.push_back((self.judge.trunk.clone(), self.judge.shards.clone()));
        if self.old.len() as u64 > OLD_MAX {
            self.old.pop_front();
        }
        Ok(())
    }

    fn execute(&mut self, at: Position, logged: &LoggedTxn) -> Verdict {
        self.counts.transactions += 1;
        let request = logged.envelope.request;
        self.requests_of.insert(at, request);
        if let Some(first) = self.names.get(&request) {
            self.fates.insert(at, TxnFate::Again(*first));
            return Ok(());
        }
        self.names.insert(request, at);
        let (txn, stamp) = (&logged.txn, logged.stamp);
        let judge = &mut self.judge;
        let found = find_footprint(txn, stamp, &mut |item| Ok(read(&judge.trunk, &judge.shards, self.shards, item)));
        let (footprint, partial) = found.expect("versions that transactions made can be read");
        if !logged.footprint.contains(&footprint) {
            self.counts.superseded += 1;
            self.trace.line(|| format!("{at}: {request:?} {:?} is superseded", txn.op));
            self.fates.insert(at, TxnFate::Runs(None, Vec::new()));
            return Ok(());
        }
        let mut changes = Vec::new();
        let outcome = judge.namespace.apply(txn, stamp, &mut changes, &NoReadSet);
        let sorted = |mut changes: Vec<KeyVersion>| {
            changes.sort_unstable_by(|one, other| one.key.cmp(&other.key));
            changes
        };
        let in_parts: Vec<KeyVersion> = partial.changes.iter().map(|(_, change)| change.clone()).collect();
        let has_both = |change: &KeyVersion| in_parts.iter().filter(|other| other.key == change.key).count() == 2;
        let is_twice = |change: &KeyVersion| change.value.is_none() && has_both(change);
        let in_parts: Vec<KeyVersion> = in_parts.iter().filter(|change| !is_twice(change)).cloned().collect();
        if partial.outcome != outcome || sorted(in_parts.clone()) != sorted(changes.clone()) {
            return broken(
                Rule::Linearizable,
                format!(
                    "{:?} at {at} gives {:?} and {in_parts:?} on its own items, {outcome:?} and {changes:?} on all",
                    txn.op, partial.outcome
                ),
            );
        }
        self.trace.line(|| format!("{at}: {request:?} {:?} {outcome:?}", txn.op));
        judge.history.commit(&changes);
        judge.whole.commit(&changes);
        judge.items.extend(footprint.reads.iter().chain(&footprint.writes).cloned());
        self.counts.counted += u64::from(!partial.usages.is_empty());
        self.counts.quota_full +=
            u64::from([Reason::FilesQuota as u32, Reason::BytesQuota as u32].contains(&outcome.reason));
        for (part, change) in &partial.changes {
            match part {
                StatePart::Trunk => judge.trunk.commit([change]),
                StatePart::Slot(slot) => {
                    let shard = ShardId::of(Slot(*slot), self.shards);
                    judge.shards.get_mut(&shard).expect("there are all").commit([change]);
                }
                StatePart::Shards => unreachable!("a change lies in one part"),
            }
        }
        for (id, usage) in &partial.usages {
            let shard = ShardId::of(Slot(id.slot()), self.shards);
            judge.shards.get_mut(&shard).expect("there are all").set_usage(*id, *usage);
            let counted = judge.namespace.quota(*id).map(|(_, used)| used);
            if counted != Some(*usage) {
                return broken(Rule::Tree, format!("{usage:?} is used of the quota of {id} at {at}, not {counted:?}"));
            }
        }
        let parts: BTreeSet<StatePart> = partial.changes.iter().map(|(part, _)| *part).collect();
        match outcome.reason {
            0 => self.counts.changes += u64::from(!changes.is_empty()),
            _ => self.counts.refused += 1,
        }
        self.counts.edits += u64::from(outcome.reason == 0 && matches!(txn.op, Some(Op::Edit(_))));
        self.counts.trunk += u64::from(parts.contains(&StatePart::Trunk));
        let slots =
            footprint.reads.iter().chain(&footprint.writes).filter(|item| matches!(item.part(), StatePart::Slot(_)));
        let slots: BTreeSet<StatePart> = slots.map(StateItem::part).collect();
        self.counts.several += u64::from(slots.len() > 1);
        self.fates.insert(at, TxnFate::Runs(Some(outcome), partial.changes));
        Ok(())
    }

    fn deliver(&mut self) -> Verdict {
        for _ in 0..self.servers.on_their_way().div_ceil(DELIVERED_OF) {
            let (to, reports) = self.servers.deliver(self.now(), &mut self.rng);
            self.judge(to, reports)?;
        }
        Ok(())
    }

    fn judge(&mut self, which: usize, reports: Vec<ShardReport>) -> Verdict {
        for report in reports {
            match report {
                ShardReport::Ran(at, place, outcome, changes) => {
                    let TxnFate::Runs(expected, all) = &self.fates[&at] else {
                        return broken(Rule::Once, format!("server {which} runs {at}, which ran before"));
                    };
                    if *expected != outcome {
                        return broken(
                            Rule::Linearizable,
                            format!("server {which} has {outcome:?} at {at} in {place:?}, not {expected:?}"),
                        );
                    }
                    let is_here = |part: &StatePart| match (part, place) {
                        (StatePart::Trunk, ExecutionPlace::Trunk) => true,
                        (StatePart::Slot(slot), ExecutionPlace::Shard(shard)) => {
                            ShardId::of(Slot(*slot), self.shards) == shard
                        }
                        _ => false,
                    };
                    let here: Vec<&KeyVersion> =
                        all.iter().filter(|(part, _)| is_here(part)).map(|(_, change)| change).collect();
                    if here != changes.iter().collect::<Vec<_>>() {
                        return broken(
                            Rule::Linearizable,
                            format!("server {which} changes {changes:?} at {at} in {place:?}, not {here:?}"),
                        );
                    }
                    let is_superseded = outcome.is_none();
                    self.answer(at, is_superseded);
                }
                ShardReport::Again(at, first) => match &self.fates[&at] {
                    TxnFate::Again(expected) if *expected == first => {}
                    expected => {
                        return broken(Rule::Once, format!("server {which}: {at} ran at {first}, not {expected:?}"));
                    }
                },
                ShardReport::Refused(at, error) => {
                    return broken(Rule::Once, format!("server {which} refuses {at}: {error}"));
                }
                ShardReport::Diverged(at, slot) => {
                    return broken(Rule::SameForEver, format!("server {which}: two values of slot {slot:?} for {at}"));
                }
                ShardReport::Send(message) => {
                    self.counts.asks += u64::from(matches!(message, ItemMessage::Ask(..)));
                    self.servers.send_to_others(which, &message);
                }
                ShardReport::SendTo(other, message) => self.servers.send(which, other, message),
            }
        }
        Ok(())
    }

    /// A server has executed it: its client hears of it, the first time.
    fn answer(&mut self, at: Position, is_superseded: bool) {
        let RequestName { session, seq: Seq(seq), attempt } = self.requests_of[&at];
        let which = session.0 as usize - 1;
        let Some(open) = self.clients[which].open.get_mut(&seq).filter(|open| open.attempt == attempt) else { return };
        if is_superseded && attempt < ATTEMPTS_MAX {
            open.attempt += 1;
            self.send(which, seq, attempt + 1);
        } else {
            self.clients[which].open.remove(&seq);
        }
    }

    fn compare_all(&mut self) -> Verdict {
        for (which, server) in self.servers.iter().enumerate() {
            if server.trunk != self.judge.trunk {
                return broken(Rule::SameForEver, format!("the trunk of server {which} has another history"));
            }
            for (shard, store) in &server.shards {
                if *store != self.judge.shards[shard] {
                    return broken(Rule::SameForEver, format!("{shard:?} of server {which} has another history"));
                }
            }
        }
        let items: Vec<StateItem> = self.judge.items.iter().cloned().collect();
        for _ in 0..INSTANTS {
            let at = Hlc(self.rng.between(Hlc::first_of_micros(1_000_000).0, self.stamp.0));
            let item = self.rng.choose(&items);
            let expected = self.judge.whole.read_at(item, at);
            for (which, server) in self.servers.iter().enumerate() {
                let store = match item.part() {
                    StatePart::Trunk => Some(&server.trunk),
                    StatePart::Slot(slot) => server.shards.get(&ShardId::of(Slot(slot), self.shards)),
                    StatePart::Shards => None,
                };
                let Some(found) = store.map(|store| store.read_at(item, at)) else { continue };
                self.counts.compared += 1;
                if found != expected {
                    return broken(
                        Rule::SameForEver,
                        format!("{item:?} is {found:?} at {at} at server {which}, not {expected:?}"),
                    );
                }
            }
        }
        Ok(())
    }
}

/// What an item holds in a state that has all parts.
fn read(
    trunk: &PartStore,
    shards: &BTreeMap<ShardId, PartStore>,
    count: u16,
    item: &StateItem,
) -> frieze_namespace::ItemValue {
    match item.part() {
        StatePart::Trunk => trunk.read(item),
        StatePart::Slot(slot) => shards[&ShardId::of(Slot(slot), count)].read(item),
        StatePart::Shards => {
            let mut all = frieze_namespace::ItemValue::default();
            for store in shards.values() {
                all.inodes.extend(store.read(item).inodes);
            }
            all
        }
    }
}
