//! The log, the network, faults, and the judge.

use std::collections::BTreeMap;

use frieze_base::{LogIndex, MonoTime, Rng, Seq, SessionId};
use frieze_calvin::{ExecutionPlace, Position, RequestName, SchedulerSettings, ShardId, TxnEnvelope};

use super::breakage::CalvinBreak;
use super::clients::NamesClient;
use super::op::{Answer, Body, NUMBER_MAX, TreeOp, TreeSettings};
use super::oracle::Oracle;
use super::plan::{CalvinCounts, CalvinOutcome, CalvinPlan};
use super::server::{NamesServer, Report, ValueMessage};
use super::stages::StageRecord;
use crate::scheduled::{ScheduledServers, draw_division};
use crate::trace::Trace;
use crate::violation::{Rule, Verdict, broken};

/// What the judge knows of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    Runs(Answer),
    Again(Position),
    Refused,
}

pub(super) struct CalvinWorld {
    pub(super) rng: Rng,
    pub(super) trace: Trace,
    pub(super) counts: CalvinCounts,
    pub(super) breakage: Option<CalvinBreak>,
    pub(super) now_ms: u64,
    pub(super) asks_left: u64,
    pub(super) clients: BTreeMap<SessionId, NamesClient>,
    /// The newest session that a client has.
    pub(super) newest_session: u64,
    /// Plans of an edit.
    pub(super) plans_max: u32,
    pub(super) servers: ScheduledServers<NamesServer>,
    shards: u16,
    /// Sent and not ordered yet.
    pub(super) proposed: Vec<(TxnEnvelope, Body)>,
    log: Vec<Vec<(TxnEnvelope, Body)>>,
    /// Faults still come.
    faults: bool,
    pub(super) oracle: Oracle,
    /// The oracle before each entry, from the first.
    states: Vec<Oracle>,
    fates: BTreeMap<Position, Fate>,
    /// The newest attempt of each request, as the log has it: its number and position.
    attempts: BTreeMap<(SessionId, u64), (u32, Position)>,
    acked: BTreeMap<SessionId, u64>,
    /// Which request each transaction is of.
    pub(super) requests: BTreeMap<Position, RequestName>,
    /// Requests that have changed something, with the number that the client knows.
    pub(super) effects: BTreeMap<(SessionId, u64), Position>,
    /// Numbers that a breakage gives to repeated requests, and what they stand for.
    pub(super) aliases: BTreeMap<(SessionId, u64), u64>,
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
        let (settings, places) = draw_division(&mut rng);
        let settings = SchedulerSettings { unacknowledged_max: UNACKNOWLEDGED_MAX, ..settings };
        let shards = settings.shards;
        let numbers_max = *rng.choose(&[2, 6, NUMBER_MAX, NUMBER_MAX, NUMBER_MAX]);
        let tree = TreeSettings { stages_max: *rng.choose(&[3, 8, 1024]), numbers_max, shards };
        let servers =
            places.into_iter().map(|place| NamesServer::new(settings.clone(), tree, place, plan.breakage)).collect();
        let sessions = rng.between(1, 4);
        CalvinWorld {
            trace: Trace::new(plan.keep_trace),
            counts: CalvinCounts::default(),
            breakage: plan.breakage,
            now_ms: 1,
            asks_left: plan.asks,
            clients: (1..=sessions).map(|session| (SessionId(session), NamesClient::default())).collect(),
            newest_session: sessions,
            plans_max: *rng.choose(&[1, 3, 16]),
            servers: ScheduledServers::new(servers),
            shards,
            proposed: Vec::new(),
            log: Vec::new(),
            faults: true,
            oracle: Oracle::new(tree),
            states: vec![Oracle::new(tree)],
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
        let marks = self.servers.watermarks();
        broken(
            Rule::Live,
            format!(
                "after {STEPS_TO_END} steps without faults: {open:?} have no answer, {marks:?} of {}",
                self.log.len()
            ),
        )
    }

    fn is_done(&self) -> bool {
        self.clients.values().all(|client| client.open.is_empty() && client.edits.is_empty())
            && self.proposed.is_empty()
            && self.servers.have_executed(self.log.len())
    }

    fn one_step(&mut self) -> Verdict {
        self.now_ms += self.rng.below(4);
        self.trace.at(self.now_ms);
        let which = self.rng.below(self.servers.len() as u64) as usize;
        match self.rng.below(if self.faults { 99 } else { 96 }) {
            0..8 => self.ask_or_go_on(),
            8..16 => self.repeat(),
            16..26 => self.order()?,
            26..40 => {
                let reports = self.servers.feed(which, self.now(), &self.log);
                self.judge(which, reports)?;
            }
            40..76 => {
                let reports = self.servers.run_task(which, self.now(), &mut self.rng);
                self.judge(which, reports)?;
            }
            76..90 => self.deliver()?,
            90..93 => {
                let reports = self.servers.tick(which, self.now());
                self.judge(which, reports)?;
            }
            93..95 => self.servers[which].store(),
            95 => self.compare(which)?,
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

    /// The log orders what was proposed; the judge executes it.
    fn order(&mut self) -> Verdict {
        if self.proposed.is_empty() {
            return Ok(());
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
        match self.oracle.check_limits() {
            Some(wrong) => broken(Rule::Tree, format!("the judge's own tree after {index} entries: {wrong}")),
            None => Ok(()),
        }
    }

    fn execute(&mut self, at: Position, envelope: &TxnEnvelope, body: &Body) {
        self.counts.transactions += 1;
        let RequestName { session, seq: Seq(seq), attempt } = envelope.request;
        self.requests.insert(at, envelope.request);
        let known = self.acked.get(&session).copied();
        let acked = known.unwrap_or(1).max(envelope.acked.0);
        let last = self.attempts.get(&(session, seq)).copied();
        let open = self.attempts.range((session, acked)..=(session, u64::MAX)).count();
        let fate = match last {
            _ if seq < acked => Fate::Refused,
            Some((number, first)) if attempt <= number => Fate::Again(first),
            last if attempt != last.map_or(0, |(number, _)| number) + 1 => Fate::Refused,
            None if seq > acked && open >= UNACKNOWLEDGED_MAX => Fate::Refused,
            _ => {
                self.attempts.insert((session, seq), (attempt, at));
                Fate::Runs(self.oracle.execute(at, body))
            }
        };
        if known.is_some() || matches!(fate, Fate::Runs(_)) {
            self.acked.insert(session, acked);
        }
        let is_end = fate == Fate::Runs(Answer::Done) && body.op == TreeOp::EndSession;
        if is_end || fate == Fate::Runs(Answer::UnknownSession) {
            self.acked.remove(&session);
            self.attempts.retain(|(other, _), _| *other != session);
            self.counts.sessions_ended += u64::from(is_end);
        }
        match fate {
            Fate::Again(_) => self.counts.again += 1,
            Fate::Runs(Answer::Superseded) => self.counts.superseded += 1,
            Fate::Runs(Answer::Ok(_)) => {
                self.counts.changes += 1;
                self.counts.limits += u64::from(matches!(body.op, TreeOp::Limit(..)));
                self.counts.edits += u64::from(matches!(body.op, TreeOp::Commit(..)));
            }
            Fate::Runs(Answer::NeedsRoom) => self.counts.gathers += 1,
            Fate::Runs(Answer::NumbersUsedUp) => self.counts.numbers_used_up += 1,
            Fate::Runs(Answer::QuotaFull) => self.counts.quota_full += 1,
            Fate::Runs(Answer::StagesMissing) => self.counts.stages_missing += 1,
            Fate::Runs(Answer::Done) => self.counts.stages += u64::from(matches!(body.op, TreeOp::Stage(..))),
            _ => {}
        }
        self.trace.line(|| format!("{at}: {:?} {:?} {fate:?}", envelope.request, body.op));
        self.fates.insert(at, fate);
    }

    /// Some of the messages that are on their way arrive: more of many, for questions for values that do not come in
    /// time would be asked faster than they are carried.
    fn deliver(&mut self) -> Verdict {
        for _ in 0..self.servers.on_their_way().div_ceil(DELIVERED_OF) {
            let (to, reports) = self.servers.deliver(self.now(), &mut self.rng);
            self.judge(to, reports)?;
        }
        Ok(())
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
                    self.servers.send_to_others(which, &message);
                }
                Report::SendTo(other, message) => self.servers.send(which, other, message),
            }
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
        self.compare_at(which, place, entries)?;
        let entries = (0..self.shards).map(|shard| self.furthest(ShardId(shard)).0).min().unwrap_or_default();
        self.compare_limits(entries)
    }

    /// How many entries a shard has executed, and the server that says so.
    fn furthest(&self, shard: ShardId) -> (u64, &NamesServer) {
        let with = self.servers.iter().filter(|server| server.shards().any(|other| other == shard));
        let marks =
            with.map(|server| (server.watermark(ExecutionPlace::Shard(shard)).index.0.saturating_sub(1), server));
        marks.max_by_key(|(entries, _)| *entries).expect("each shard has a server")
    }

    /// No limit is exceeded by names and the room that shards have, whatever the judge's tree has: names and room are
    /// what servers say.
    fn compare_limits(&self, entries: u64) -> Verdict {
        let at = Position { index: LogIndex(entries + 1), item: 0 };
        for (limit, max) in &self.states[entries as usize].limits {
            let of = |shard| self.furthest(ShardId(shard)).1.files.room_before(*limit, ShardId(shard), at);
            let (used, room) =
                (0..self.shards).map(of).fold((0, 0), |(used, room), shard| (used + shard.used, room + shard.room));
            if used + room > *max as i64 && room > 0 {
                let wrong = format!("limit {max} of {limit:?} after {entries} entries: {used} names, room for {room}");
                return broken(Rule::Tree, wrong);
            }
        }
        Ok(())
    }

    /// After so many entries.
    fn compare_at(&mut self, which: usize, place: ExecutionPlace, entries: u64) -> Verdict {
        self.counts.compared += 1;
        let (server, oracle) = (&self.servers[which], &self.states[entries as usize]);
        let at = Position { index: LogIndex(entries + 1), item: 0 };
        let is_same = match place {
            ExecutionPlace::Trunk => {
                let names = oracle.entries.iter().filter(|(_, ino)| ino.is_directory());
                let records = oracle.stages.iter().map(|(stage, part)| (*stage, StageRecord::of(part)));
                server.trunk.names.all_before(at) == names.map(|(place, ino)| (*place, *ino)).collect()
                    && server.trunk.directories.all_before(at) == oracle.directories
                    && server.trunk.given.all_before(at) == oracle.given
                    && server.trunk.ended.all_before(at).into_keys().eq(oracle.ended.iter().copied())
                    && server.trunk.limits.all_before(at) == oracle.limits
                    && server.trunk.stages.all_before(at).into_iter().eq(records)
            }
            ExecutionPlace::Shard(shard) => {
                server.files.before(at, shard, self.shards, &oracle.limits) == oracle.shard(shard, self.shards)
            }
        };
        if is_same {
            return Ok(());
        }
        broken(Rule::SameForEver, format!("server {which} has another state of {place:?} after {entries} entries"))
    }

    fn compare_all(&mut self) -> Verdict {
        // What is remembered of a session ends with it, though requests of it come later.
        let sessions = self.acked.len();
        let of_server = self.servers.iter().map(|server| server.scheduler.registry().sessions());
        if let Some(found) = of_server.filter(|found| *found != sessions).max() {
            return broken(Rule::Once, format!("a registry has requests of {found} sessions, not of {sessions}"));
        }
        // All edits are committed or given up.
        if let Some(stage) = self.oracle.stages.keys().next() {
            return broken(Rule::Live, format!("{stage:?} is kept, and no edit will commit it"));
        }
        let entries = self.log.len() as u64;
        self.compare_limits(entries)?;
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

/// Requests of a session without an acknowledgement, beside the oldest.
const UNACKNOWLEDGED_MAX: usize = 4;
/// Of the steps that may restart a server, so many do not.
const RESTART_ONE_IN: u64 = 12;
/// Of so many messages on their way, one more arrives at a time.
const DELIVERED_OF: usize = 16;
/// Steps with faults; clients then ask no more.
const STEPS_MAX: usize = 100_000;
/// Steps in which all is done once faults have stopped.
const STEPS_TO_END: usize = 60_000;
