//! A server: a scheduler, the trunk, some shards, and the tasks that wait to be run, in any order.

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::{LogIndex, MonoTime};
use frieze_calvin::{
    ExecutionPlace, Position, Registry, Scheduler, SchedulerEffect, SchedulerInput, SchedulerSettings, ShardId, Slot,
    SlotValue, TxnEnvelope,
};

use super::breakage::CalvinBreak;
use super::draft::{Action, PreparedChange};
use super::facts::{Fact, Facts, decode, encode};
use super::op::{Answer, Body, TreeOp, TreeSettings};
use super::slots::{SlotFiles, decide};
use super::stages::{StageChange, StageId};
use super::trunk::Trunk;
use crate::scheduled::ScheduledServer;

/// A message to another server.
#[derive(Clone, Debug)]
pub(super) enum ValueMessage {
    /// The value of a slot.
    Value(Position, Slot, SlotValue),
    /// A question for one: what the asking server wants to know.
    Ask(Position, Slot, BTreeSet<Fact>),
}

/// What a server reports to the world.
#[derive(Debug)]
pub(super) enum Report {
    /// The outcome of a transaction at a place.
    Outcome(Position, Answer),
    /// A transaction is a repetition of this one.
    Again(Position, Position),
    /// It does not run.
    Refused(Position, frieze_calvin::RegistryError),
    /// Two servers say different things.
    Diverged(Position, Slot),
    /// To every other server.
    Send(ValueMessage),
    /// To one of them.
    SendTo(usize, ValueMessage),
}

/// Something that the scheduler has asked for.
#[derive(Clone, Debug)]
enum ServerTask {
    Prepare(Position),
    Read(Position, ShardId),
    Run(Position, ExecutionPlace, Vec<(Slot, SlotValue)>),
}

/// A state on its disk from which it starts again.
#[derive(Clone, Debug)]
struct Base {
    /// Entries up to here.
    index: LogIndex,
    registry: Registry,
}

/// A server.
pub(super) struct NamesServer {
    settings: SchedulerSettings,
    shards: BTreeSet<ShardId>,
    breakage: Option<CalvinBreak>,
    pub(super) scheduler: Scheduler,
    pub(super) trunk: Trunk,
    pub(super) files: SlotFiles,
    /// Entries given to the scheduler.
    pub(super) fed: LogIndex,
    bodies: BTreeMap<Position, Body>,
    prepared: BTreeMap<Position, PreparedChange>,
    /// Values read too early, of a breakage.
    early: BTreeMap<(Position, Slot), SlotValue>,
    tasks: Vec<ServerTask>,
    base: Base,
    /// To be the base once it is executed.
    next_base: Option<Base>,
}

impl ScheduledServer for NamesServer {
    type Entry = Vec<(TxnEnvelope, Body)>;
    type Message = ValueMessage;
    type Report = Report;

    fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    fn fed(&self) -> LogIndex {
        self.fed
    }

    fn tasks(&self) -> usize {
        self.tasks.len()
    }

    fn feed(&mut self, now: MonoTime, entry: &Vec<(TxnEnvelope, Body)>, reports: &mut Vec<Report>) {
        self.fed = LogIndex(self.fed.0 + 1);
        let index = self.fed;
        let numbered = (0..).zip(entry);
        self.bodies.extend(numbered.map(|(item, (_, body))| (Position { index, item }, body.clone())));
        let envelopes = entry.iter().map(|(envelope, _)| *envelope).collect();
        self.step(now, SchedulerInput::Entry { index, envelopes }, reports);
    }

    fn tick(&mut self, now: MonoTime, reports: &mut Vec<Report>) {
        self.step(now, SchedulerInput::Tick, reports);
    }

    fn receive(&mut self, now: MonoTime, from: usize, message: ValueMessage, reports: &mut Vec<Report>) {
        match message {
            ValueMessage::Value(position, slot, value) => {
                self.step(now, SchedulerInput::Received { position, slot, value }, reports);
            }
            ValueMessage::Ask(position, slot, facts) => {
                let shard = ShardId::of(slot, self.settings.shards);
                // What is not read yet is sent when it is.
                if self.scheduler.has_read(position, shard) {
                    let now = self.breakage == Some(CalvinBreak::ValuesOfNow);
                    let value = self.value(position, &facts, now);
                    reports.push(Report::SendTo(from, ValueMessage::Value(position, slot, value)));
                }
            }
        }
    }

    fn run(&mut self, now: MonoTime, which: usize, reports: &mut Vec<Report>) {
        let input = match self.tasks.remove(which) {
            ServerTask::Prepare(position) => self.prepare(position, reports),
            ServerTask::Read(position, shard) => self.read(position, shard),
            ServerTask::Run(position, place, values) => self.execute(position, place, &values, reports),
        };
        self.step(now, input, reports);
    }
}

impl NamesServer {
    pub(super) fn new(
        settings: SchedulerSettings,
        tree: TreeSettings,
        shards: BTreeSet<ShardId>,
        breakage: Option<CalvinBreak>,
    ) -> NamesServer {
        let base = Base { index: LogIndex(0), registry: Registry::default() };
        let scheduler = Scheduler::new(settings.clone(), base.index, Registry::default(), shards.iter().copied());
        NamesServer {
            settings,
            shards,
            breakage,
            scheduler,
            trunk: Trunk::new(tree),
            files: SlotFiles::new(breakage),
            fed: LogIndex(0),
            bodies: BTreeMap::new(),
            prepared: BTreeMap::new(),
            early: BTreeMap::new(),
            tasks: Vec::new(),
            base,
            next_base: None,
        }
    }

    /// True if it has the slot.
    pub(super) fn has(&self, slot: Slot) -> bool {
        self.shards.contains(&ShardId::of(slot, self.settings.shards))
    }

    /// Its shards.
    pub(super) fn shards(&self) -> impl Iterator<Item = ShardId> + '_ {
        self.shards.iter().copied()
    }

    /// Everything below is executed, by its own word.
    pub(super) fn watermark(&self, place: ExecutionPlace) -> Position {
        match self.breakage {
            Some(CalvinBreak::WatermarkPassesParked) => self.scheduler.prepared_to(),
            _ => self.scheduler.watermark(place),
        }
    }

    /// The process ends, and another one starts from the base.
    pub(super) fn restart(&mut self) {
        let Base { index, registry } = self.base.clone();
        let behind = Position { index: LogIndex(index.0 + 1), item: 0 };
        self.trunk.cut(behind);
        self.files.cut(behind);
        if self.breakage == Some(CalvinBreak::StagesForgotten) {
            (self.trunk.stages, self.files.staged) = Default::default();
        }
        let registry = match self.breakage {
            Some(CalvinBreak::RegistryForgotten) => Registry::default(),
            _ => registry,
        };
        self.scheduler = Scheduler::new(self.settings.clone(), index, registry, self.shards.iter().copied());
        self.fed = index;
        self.bodies.clear();
        self.prepared.clear();
        self.early.clear();
        self.tasks.clear();
        self.next_base = None;
    }

    /// Begins to store a state, or ends it if everything in it is executed.
    pub(super) fn store(&mut self) {
        let at = self.scheduler.prepared_to();
        match &self.next_base {
            None if at.item == 0 && at.index.0 > self.base.index.0 + 1 => {
                let registry = self.scheduler.registry().clone();
                self.next_base = Some(Base { index: LogIndex(at.index.0 - 1), registry });
            }
            Some(next) if self.scheduler.whole_watermark().index > next.index => {
                self.base = next.clone();
                if self.breakage == Some(CalvinBreak::RegistryOfLater) {
                    self.base.registry = self.scheduler.registry().clone();
                }
                self.next_base = None;
            }
            _ => {}
        }
    }

    fn prepare(&mut self, position: Position, reports: &mut Vec<Report>) -> SchedulerInput {
        let scheduler = &self.scheduler;
        let is_parked = |key, access| scheduler.is_parked(key, access);
        let body = &self.bodies[&position];
        match self.trunk.prepare(position, body, &self.files, &is_parked, self.breakage) {
            Err(parked) => SchedulerInput::Blocked { position, key: parked.0 },
            Ok(prepared) => {
                let (shards, count) = (&self.shards, self.settings.shards);
                let is_here = move |slot: Slot| shards.contains(&ShardId::of(slot, count));
                self.files.change_stages(position, prepared.stages, &body.part, &is_here);
                if let Action::Decided(answer) = prepared.action {
                    reports.push(Report::Outcome(position, answer));
                }
                if self.breakage == Some(CalvinBreak::ValuesBeforeKeys) {
                    for (slot, facts) in &prepared.facts {
                        self.early.insert((position, *slot), self.value(position, facts, false));
                    }
                }
                let plan = prepared.plan.clone();
                self.prepared.insert(position, prepared);
                SchedulerInput::Prepared { position, plan }
            }
        }
    }

    fn stage_again(&mut self, position: Position, body: &Body) {
        let TreeOp::Stage(edit, part, _) = body.op else { return };
        let stage = StageId { edit, part };
        if self.trunk.stages.newest(stage).is_some() {
            let (shards, count) = (&self.shards, self.settings.shards);
            let is_here = move |slot: Slot| shards.contains(&ShardId::of(slot, count));
            self.files.change_stages(position, StageChange::Keep(stage), &body.part, &is_here);
        }
    }

    fn read(&self, position: Position, shard: ShardId) -> SchedulerInput {
        let facts = self.prepared[&position].facts.iter();
        let here =
            facts.filter(|(slot, facts)| ShardId::of(**slot, self.settings.shards) == shard && !facts.is_empty());
        let value = |slot: Slot, facts| {
            self.early.get(&(position, slot)).cloned().unwrap_or_else(|| self.value(position, facts, false))
        };
        SchedulerInput::Values {
            position,
            shard,
            values: here.map(|(slot, facts)| (*slot, value(*slot, facts))).collect(),
        }
    }

    fn value(&self, position: Position, facts: &BTreeSet<Fact>, now: bool) -> SlotValue {
        encode(&facts.iter().map(|fact| (*fact, self.files.fact(*fact, position, now))).collect())
    }

    fn execute(
        &mut self,
        position: Position,
        place: ExecutionPlace,
        values: &[(Slot, SlotValue)],
        reports: &mut Vec<Report>,
    ) -> SchedulerInput {
        let PreparedChange { action, facts: asked, acting, rooms, .. } = self.prepared[&position].clone();
        let shards = self.settings.shards;
        let is_here = move |slot: Slot| place == ExecutionPlace::Shard(ShardId::of(slot, shards));
        if place != ExecutionPlace::Trunk && !acting.iter().any(|slot| is_here(*slot)) {
            // A part that only says something decides nothing.
            return SchedulerInput::Done { position, place };
        }
        let mut facts: Facts = values.iter().flat_map(|(_, value)| decode(value)).collect();
        // A change of one slot alone reads when it runs.
        for fact in asked.iter().filter(|(slot, _)| is_here(**slot)).flat_map(|(_, facts)| facts) {
            facts.entry(*fact).or_insert_with(|| self.files.fact(*fact, position, false));
        }
        let mut answer = decide(&action, &rooms, &facts);
        if self.breakage == Some(CalvinBreak::TrunkAtExecution)
            && let TreeOp::Make(target) | TreeOp::Unlink(target) | TreeOp::Set(target, _) = &self.bodies[&position].op
            && self.trunk.look(target).is_none()
        {
            answer = Answer::NotFound;
        }
        reports.push(Report::Outcome(position, answer));
        match place {
            ExecutionPlace::Trunk if answer.is_change() => self.trunk.apply(position, &action),
            ExecutionPlace::Trunk => {}
            ExecutionPlace::Shard(shard) => {
                self.files.apply_rooms(position, shard, (&action, answer), &rooms, &facts);
                self.files.apply(position, (&action, answer), &facts, &is_here);
            }
        }
        SchedulerInput::Done { position, place }
    }

    fn step(&mut self, now: MonoTime, input: SchedulerInput, reports: &mut Vec<Report>) {
        let mut effects = Vec::new();
        self.scheduler.step(now, input, &mut effects);
        for effect in effects {
            match effect {
                SchedulerEffect::Prepare { position } => self.tasks.push(ServerTask::Prepare(position)),
                SchedulerEffect::Read { position, shard } => self.tasks.push(ServerTask::Read(position, shard)),
                SchedulerEffect::Run { position, place, values } => {
                    self.tasks.push(ServerTask::Run(position, place, values))
                }
                SchedulerEffect::Again { position, first } => {
                    let body = self.bodies.remove(&position).expect("its entry is fed");
                    if self.breakage == Some(CalvinBreak::StageTwice) {
                        self.stage_again(position, &body);
                    }
                    reports.push(Report::Again(position, first));
                }
                SchedulerEffect::Refuse { position, error } => {
                    self.bodies.remove(&position);
                    reports.push(Report::Refused(position, error));
                }
                SchedulerEffect::Push { position, slot, value } => {
                    reports.push(Report::Send(ValueMessage::Value(position, slot, value)));
                }
                SchedulerEffect::Ask { position, slot } => {
                    let facts = self.prepared[&position].facts[&slot].clone();
                    reports.push(Report::Send(ValueMessage::Ask(position, slot, facts)));
                }
                SchedulerEffect::Diverged { position, slot } => reports.push(Report::Diverged(position, slot)),
                SchedulerEffect::Finished { position } => {
                    self.prepared.remove(&position);
                    self.bodies.remove(&position);
                }
            }
        }
    }
}
