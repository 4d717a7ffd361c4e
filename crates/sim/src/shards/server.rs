//! A server: a scheduler, the trunk, some shards, and the tasks that wait to be run, in any order.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use frieze_base::{InodeId, LogIndex, MonoTime};
use frieze_calvin::{
    ExecutionPlace, KeyAccess, Position, Registry, SLOTS, Scheduler, SchedulerEffect, SchedulerInput,
    SchedulerSettings, ShardId, Slot, SlotPart, SlotValue, TrunkPart, TxnEnvelope, TxnKey, TxnPlan,
};
use frieze_hlc::Hlc;
use frieze_namespace::{Footprint, ItemAccess, ItemValue, KeyVersion, PartialRun, PartialState, StateItem, StatePart};
use frieze_wire::quota::TreeUsage;
use frieze_wire::txn::{Outcome, Transaction};

use super::breakage::ShardBreak;
use super::store::PartStore;
use crate::scheduled::ScheduledServer;

/// A transaction in the log.
#[derive(Debug)]
pub(super) struct LoggedTxn {
    pub(super) envelope: TxnEnvelope,
    pub(super) txn: Transaction,
    /// What the front-end found that it reads and changes.
    pub(super) footprint: Footprint,
    pub(super) stamp: Hlc,
}

/// A message to another server.
#[derive(Clone, Debug)]
pub(super) enum ItemMessage {
    /// The value of a slot.
    Value(Position, Slot, SlotValue),
    /// A question for one.
    Ask(Position, Slot),
}

/// What a server reports to the world.
#[derive(Debug)]
pub(super) enum ShardReport {
    /// A transaction ran at a place: its outcome, none if it was superseded, and the changes of the place.
    Ran(Position, ExecutionPlace, Option<Outcome>, Vec<KeyVersion>),
    /// A transaction is a repetition of this one.
    Again(Position, Position),
    /// It does not run.
    Refused(Position, frieze_calvin::RegistryError),
    /// Two servers say different things.
    Diverged(Position, Slot),
    /// To every other server.
    Send(ItemMessage),
    /// To one of them.
    SendTo(usize, ItemMessage),
}

/// Something that the scheduler has asked for.
#[derive(Clone, Debug)]
enum ShardTask {
    Prepare(Position),
    Read(Position, ShardId),
    Run(Position, ExecutionPlace, Vec<(Slot, SlotValue)>),
}

type Items = BTreeMap<StateItem, ItemValue>;

/// A transaction between its trunk phase and its last part.
#[derive(Clone, Debug)]
struct PreparedTxn {
    /// What the trunk holds for it, at its position.
    trunk: Items,
    /// What each slot is asked.
    reads: BTreeMap<Slot, Vec<StateItem>>,
}

/// What a process that starts again goes on from.
#[derive(Clone, Debug)]
struct StoredShards {
    /// Entries up to here.
    index: LogIndex,
    registry: Registry,
    trunk: PartStore,
    shards: BTreeMap<ShardId, PartStore>,
    sent: BTreeMap<(Position, Slot), SlotValue>,
}

/// A server.
pub(super) struct ShardServer {
    settings: SchedulerSettings,
    breakage: Option<ShardBreak>,
    pub(super) scheduler: Scheduler,
    pub(super) trunk: PartStore,
    pub(super) shards: BTreeMap<ShardId, PartStore>,
    /// Entries given to the scheduler.
    pub(super) fed: LogIndex,
    txns: BTreeMap<Position, Rc<LoggedTxn>>,
    open: BTreeMap<Position, PreparedTxn>,
    /// Values that were sent, and may be asked for again: the versions that they were read from may be written again in
    /// their place, without a grant that was not used.
    sent: BTreeMap<(Position, Slot), SlotValue>,
    tasks: Vec<ShardTask>,
    base: StoredShards,
}

impl ScheduledServer for ShardServer {
    type Entry = Vec<Rc<LoggedTxn>>;
    type Message = ItemMessage;
    type Report = ShardReport;

    fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    fn fed(&self) -> LogIndex {
        self.fed
    }

    fn tasks(&self) -> usize {
        self.tasks.len()
    }

    fn feed(&mut self, now: MonoTime, entry: &Vec<Rc<LoggedTxn>>, reports: &mut Vec<ShardReport>) {
        self.fed = LogIndex(self.fed.0 + 1);
        let index = self.fed;
        let numbered = (0..).zip(entry);
        self.txns.extend(numbered.map(|(item, txn)| (Position { index, item }, Rc::clone(txn))));
        let envelopes = entry.iter().map(|txn| txn.envelope).collect();
        self.step(now, SchedulerInput::Entry { index, envelopes }, reports);
    }

    fn tick(&mut self, now: MonoTime, reports: &mut Vec<ShardReport>) {
        self.step(now, SchedulerInput::Tick, reports);
    }

    fn receive(&mut self, now: MonoTime, from: usize, message: ItemMessage, reports: &mut Vec<ShardReport>) {
        match message {
            ItemMessage::Value(position, slot, value) => {
                self.step(now, SchedulerInput::Received { position, slot, value }, reports);
            }
            // What is not read yet is sent when it is.
            ItemMessage::Ask(position, slot) => {
                if let Some(value) = self.sent.get(&(position, slot)) {
                    let value = match (self.breakage, self.open.get(&position)) {
                        (Some(ShardBreak::ValuesOfNow), Some(open)) => self.value(slot, &open.reads[&slot]),
                        _ => value.clone(),
                    };
                    reports.push(ShardReport::SendTo(from, ItemMessage::Value(position, slot, value)));
                }
            }
        }
    }

    fn run(&mut self, now: MonoTime, which: usize, reports: &mut Vec<ShardReport>) {
        let input = match self.tasks.remove(which) {
            ShardTask::Prepare(position) => self.prepare(position, reports),
            ShardTask::Read(position, shard) => self.read(position, shard),
            ShardTask::Run(position, place, values) => self.execute(position, place, &values, reports),
        };
        self.step(now, input, reports);
    }
}

impl ShardServer {
    pub(super) fn new(
        settings: SchedulerSettings,
        shards: BTreeSet<ShardId>,
        breakage: Option<ShardBreak>,
    ) -> ShardServer {
        let stores: BTreeMap<_, _> = shards.iter().map(|shard| (*shard, PartStore::default())).collect();
        let base = StoredShards {
            index: LogIndex(0),
            registry: Registry::default(),
            trunk: PartStore::default(),
            shards: stores.clone(),
            sent: BTreeMap::new(),
        };
        ShardServer {
            scheduler: Scheduler::new(settings.clone(), LogIndex(0), Registry::default(), shards),
            settings,
            breakage,
            trunk: PartStore::default(),
            shards: stores,
            fed: LogIndex(0),
            txns: BTreeMap::new(),
            open: BTreeMap::new(),
            sent: BTreeMap::new(),
            tasks: Vec::new(),
            base,
        }
    }

    /// The process ends, and another one starts from the base.
    pub(super) fn restart(&mut self) {
        let StoredShards { index, registry, trunk, shards, sent } = self.base.clone();
        self.scheduler = Scheduler::new(self.settings.clone(), index, registry, shards.keys().copied());
        (self.trunk, self.shards, self.sent, self.fed) = (trunk, shards, sent, index);
        self.txns.clear();
        self.open.clear();
        self.tasks.clear();
    }

    /// Stores a state, if everything that was prepared is executed and ends an entry.
    pub(super) fn store(&mut self) {
        let at = self.scheduler.prepared_to();
        if self.scheduler.whole_watermark() == at && self.scheduler.incoming() == 0 && self.tasks.is_empty() {
            self.base = StoredShards {
                index: self.fed,
                registry: self.scheduler.registry().clone(),
                trunk: self.trunk.clone(),
                shards: self.shards.clone(),
                sent: self.sent.clone(),
            };
        }
    }

    /// The trunk phase: what the trunk holds is taken along, and the parts follow from the footprint.
    fn prepare(&mut self, position: Position, reports: &mut Vec<ShardReport>) -> SchedulerInput {
        let txn = Rc::clone(&self.txns[&position]);
        let mut draft = PartDraft::default();
        let mut holds: BTreeMap<StateItem, ItemAccess> = BTreeMap::new();
        for (item, access) in txn.footprint.holds().filter(|(item, _)| self.holds_item(item)) {
            let held = holds.entry(item).or_insert(access);
            *held = access.max(*held);
        }
        for (item, access) in &holds {
            let (key, access) = (key_of(item), access_of(*access));
            match item.part() {
                StatePart::Trunk => {
                    if self.breakage != Some(ShardBreak::TrunkUnchecked) && self.scheduler.is_parked(key, access) {
                        return SchedulerInput::Blocked { position, key };
                    }
                    if access == KeyAccess::Exclusive {
                        draft.trunk.push((key, access));
                    }
                }
                StatePart::Slot(slot) => draft.slot(slot).keys.push((key, access)),
                StatePart::Shards if access == KeyAccess::Exclusive => {
                    for shard in 0..self.settings.shards {
                        let slot = first_slot(shard, self.settings.shards);
                        draft.slot(slot).keys.push((key, access));
                    }
                }
                StatePart::Shards => {}
            }
        }
        for item in &txn.footprint.reads {
            match item.part() {
                StatePart::Trunk => {}
                StatePart::Slot(slot) => draft.slot(slot).reads.push(item.clone()),
                StatePart::Shards => {
                    for shard in 0..self.settings.shards {
                        draft.slot(first_slot(shard, self.settings.shards)).reads.push(item.clone());
                    }
                }
            }
        }
        // Whatever slot the grants of a session change in.
        for (item, _) in
            holds.iter().filter(|(item, access)| item.part() == StatePart::Shards && **access == ItemAccess::Shared)
        {
            draft.slots.values_mut().for_each(|part| part.keys.push((key_of(item), KeyAccess::Shared)));
        }
        if self.breakage != Some(ShardBreak::NewUnheld)
            && let Err(key) = self.await_new(&txn.footprint, &mut draft)
        {
            return SchedulerInput::Blocked { position, key };
        }
        let is_trunk = |item: &&StateItem| item.part() == StatePart::Trunk;
        let trunk: Items =
            txn.footprint.reads.iter().filter(is_trunk).map(|item| (item.clone(), self.trunk.read(item))).collect();
        let (plan, reads) = draft.finish();
        let is_decided = plan.slots.is_empty() && plan.trunk.is_none();
        self.open.insert(position, PreparedTxn { trunk, reads });
        if is_decided {
            drop(self.execute(position, ExecutionPlace::Trunk, &[], reports));
        }
        SchedulerInput::Prepared { position, plan }
    }

    /// An inode whose number was not given here may be about to be made by a transaction that waits; a session that was
    /// not opened here, to be opened.
    fn await_new(&self, footprint: &Footprint, draft: &mut PartDraft) -> Result<(), TxnKey> {
        let sessions = footprint.reads.iter().filter(|item| matches!(item, StateItem::Session(_)));
        for session in sessions {
            let key = key_of(&StateItem::Sessions);
            if self.trunk.read(session).versions.is_empty() && self.scheduler.is_parked(key, KeyAccess::Shared) {
                return Err(key);
            }
        }
        let inodes: BTreeSet<InodeId> = footprint.reads.iter().filter_map(StateItem::inode).collect();
        for id in inodes {
            if id.is_directory() {
                let key = key_of(&StateItem::DirectoryNumbers);
                if !self.trunk.was_given(id) && self.scheduler.is_parked(key, KeyAccess::Shared) {
                    return Err(key);
                }
            } else if self.shard(id.slot()).is_some_and(|shard| !shard.was_given(id)) {
                let key = key_of(&StateItem::FileNumbers(id.slot()));
                draft.slot(id.slot()).keys.push((key, KeyAccess::Shared));
            }
        }
        Ok(())
    }

    fn holds_item(&self, item: &StateItem) -> bool {
        match self.breakage {
            Some(ShardBreak::HoldsForgotten) => item.part() == StatePart::Trunk,
            Some(ShardBreak::InodesUnheld) => !matches!(item, StateItem::Inode(id) if !id.is_directory()),
            Some(ShardBreak::NamesUnheld) => !matches!(item, StateItem::FileName(..)),
            Some(ShardBreak::ContentUnheld) => !matches!(item, StateItem::Files(_)),
            Some(ShardBreak::NumbersUnheld) => !matches!(item, StateItem::FileNumbers(_)),
            Some(ShardBreak::GrantsUnheld) => !matches!(item, StateItem::Grants(_)),
            _ => true,
        }
    }

    fn shard(&self, slot: u16) -> Option<&PartStore> {
        self.shards.get(&ShardId::of(Slot(slot), self.settings.shards))
    }

    fn value(&self, slot: Slot, items: &[StateItem]) -> SlotValue {
        let shard = self.shard(slot.0).expect("it is read where it is");
        ItemValue::encode_all(items.iter().map(|item| shard.read(item)))
    }

    fn read(&mut self, position: Position, shard: ShardId) -> SchedulerInput {
        let reads = self.open[&position].reads.iter();
        let here = reads.filter(|(slot, _)| ShardId::of(**slot, self.settings.shards) == shard);
        let values: Vec<_> = here.map(|(slot, items)| (*slot, self.value(*slot, items))).collect();
        self.sent.extend(values.iter().map(|(slot, value)| ((position, *slot), value.clone())));
        SchedulerInput::Values { position, shard, values }
    }

    fn execute(
        &mut self,
        position: Position,
        place: ExecutionPlace,
        values: &[(Slot, SlotValue)],
        reports: &mut Vec<ShardReport>,
    ) -> SchedulerInput {
        let txn = Rc::clone(&self.txns[&position]);
        let PreparedTxn { trunk: mut items, reads } = self.open[&position].clone();
        if self.breakage == Some(ShardBreak::TrunkAtExecution) {
            items.iter_mut().for_each(|(item, value)| *value = self.trunk.read(item));
        }
        for (slot, asked) in &reads {
            let sent = values.iter().find(|(from, _)| from == slot).map(|(_, value)| value);
            // A part reads its own slot when it runs, unless it has read it before for others.
            let own = || self.sent.get(&(position, *slot)).cloned().unwrap_or_else(|| self.value(*slot, asked));
            let sent = sent.cloned().unwrap_or_else(own);
            for (item, value) in asked.iter().zip(ItemValue::decode_all(&sent).expect("a server has encoded it")) {
                let all = items.entry(item.clone()).or_default();
                all.versions.extend(value.versions);
                all.number += value.number;
                all.inodes.extend(value.inodes);
                all.usage = value.usage;
            }
        }
        let state = PartialState::new(&items).expect("versions that transactions made can be read");
        let done = match state.run(&txn.txn, txn.stamp) {
            PartialRun::Done(done) => Some(done),
            // Whatever it would read besides is not there.
            PartialRun::Outside(item) if self.breakage == Some(ShardBreak::ReadsUnchecked) => {
                let mut items = items;
                items.insert(item, ItemValue::default());
                let state = PartialState::new(&items).expect("it could be read before");
                match state.run(&txn.txn, txn.stamp) {
                    PartialRun::Done(done) => Some(done),
                    PartialRun::Outside(_) => None,
                }
            }
            PartialRun::Outside(_) => None,
        };
        let is_declared = |writes: &BTreeSet<StateItem>| {
            writes.is_subset(&txn.footprint.writes) || self.breakage == Some(ShardBreak::WritesUnchecked)
        };
        let done = done.filter(|done| is_declared(&done.writes));
        let shards = self.settings.shards;
        let is_here = |part: &StatePart| match (part, place) {
            (StatePart::Trunk, ExecutionPlace::Trunk) => true,
            (StatePart::Slot(slot), ExecutionPlace::Shard(shard)) => ShardId::of(Slot(*slot), shards) == shard,
            _ => false,
        };
        let (outcome, changes, usages) = match done {
            Some(done) => (Some(done.outcome), done.changes, done.usages),
            None => (None, Vec::new(), BTreeMap::new()),
        };
        let changes: Vec<KeyVersion> =
            changes.into_iter().filter(|(part, _)| is_here(part)).map(|(_, change)| change).collect();
        match place {
            ExecutionPlace::Trunk => self.trunk.commit(&changes),
            ExecutionPlace::Shard(shard) => {
                let store = self.shards.get_mut(&shard).expect("it runs where it is");
                store.commit(&changes);
                let is_of_shard = |(id, _): &(&InodeId, &TreeUsage)| ShardId::of(Slot(id.slot()), shards) == shard;
                usages.iter().filter(is_of_shard).for_each(|(id, usage)| store.set_usage(*id, *usage));
            }
        }
        reports.push(ShardReport::Ran(position, place, outcome, changes));
        SchedulerInput::Done { position, place }
    }

    fn step(&mut self, now: MonoTime, input: SchedulerInput, reports: &mut Vec<ShardReport>) {
        let mut effects = Vec::new();
        self.scheduler.step(now, input, &mut effects);
        for effect in effects {
            match effect {
                SchedulerEffect::Prepare { position } => self.tasks.push(ShardTask::Prepare(position)),
                SchedulerEffect::Read { position, shard } => self.tasks.push(ShardTask::Read(position, shard)),
                SchedulerEffect::Run { position, place, values } => {
                    self.tasks.push(ShardTask::Run(position, place, values));
                }
                SchedulerEffect::Again { position, first } => {
                    self.txns.remove(&position);
                    reports.push(ShardReport::Again(position, first));
                }
                SchedulerEffect::Refuse { position, error } => {
                    self.txns.remove(&position);
                    reports.push(ShardReport::Refused(position, error));
                }
                SchedulerEffect::Push { position, slot, value } => {
                    reports.push(ShardReport::Send(ItemMessage::Value(position, slot, value)));
                }
                SchedulerEffect::Ask { position, slot } => {
                    reports.push(ShardReport::Send(ItemMessage::Ask(position, slot)));
                }
                SchedulerEffect::Diverged { position, slot } => reports.push(ShardReport::Diverged(position, slot)),
                SchedulerEffect::Finished { position } => {
                    self.open.remove(&position);
                    self.txns.remove(&position);
                }
            }
        }
    }
}

/// Collects the parts of a plan.
#[derive(Default)]
struct PartDraft {
    trunk: Vec<(TxnKey, KeyAccess)>,
    slots: BTreeMap<u16, WaitingPart>,
}

#[derive(Default)]
struct WaitingPart {
    keys: Vec<(TxnKey, KeyAccess)>,
    reads: Vec<StateItem>,
}

impl PartDraft {
    fn slot(&mut self, slot: u16) -> &mut WaitingPart {
        self.slots.entry(slot).or_default()
    }

    /// The plan, and what each slot is asked. Every part runs the whole transaction, so it needs what all others say.
    fn finish(self) -> (TxnPlan, BTreeMap<Slot, Vec<StateItem>>) {
        let is_whole = self.slots.len() == 1 && self.trunk.is_empty();
        let giving: Vec<Slot> =
            self.slots.iter().filter(|(_, part)| !part.reads.is_empty()).map(|(slot, _)| Slot(*slot)).collect();
        let part = |(slot, part): (&u16, &WaitingPart)| SlotPart {
            slot: Slot(*slot),
            keys: part.keys.clone(),
            gives: !is_whole && !part.reads.is_empty(),
            needs: giving.iter().copied().filter(|other| other.0 != *slot).collect(),
        };
        let slots = self.slots.iter().map(part).collect();
        let trunk = (!self.trunk.is_empty()).then(|| TrunkPart { keys: self.trunk, needs: giving.clone() });
        let reads = self.slots.into_iter().filter(|(_, part)| !part.reads.is_empty());
        (TxnPlan { slots, trunk, ends: None }, reads.map(|(slot, part)| (Slot(slot), part.reads)).collect())
    }
}

/// The first slot of a shard, which speaks for all of it.
fn first_slot(shard: u16, shards: u16) -> u16 {
    (u32::from(shard) * u32::from(SLOTS)).div_ceil(u32::from(shards)) as u16
}

fn access_of(access: ItemAccess) -> KeyAccess {
    match access {
        ItemAccess::Shared => KeyAccess::Shared,
        ItemAccess::Exclusive => KeyAccess::Exclusive,
    }
}

/// A hash of few bits: some keys are equal by chance.
fn key_of(item: &StateItem) -> TxnKey {
    let mut hasher = DefaultHasher::new();
    item.hash(&mut hasher);
    TxnKey(hasher.finish() >> 48)
}
