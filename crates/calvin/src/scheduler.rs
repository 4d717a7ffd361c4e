//! The scheduler: its state, its `step`, and its queries.

mod parts;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use frieze_base::{LogIndex, MonoTime};

use self::parts::{OpenTxn, PartState};
use crate::exchange::EarlyValues;
use crate::lane::PartLane;
use crate::message::{SchedulerEffect, SchedulerInput, SlotValue, TxnEnvelope, TxnPlan};
use crate::place::{ExecutionPlace, KeyAccess, Position, ShardId, Slot, TxnKey};
use crate::registry::{Registry, TxnAdmission};
use crate::settings::SchedulerSettings;

/// Each question for a value comes after twice the time of the one before, up to eight times the first.
const DOUBLINGS_MAX: u32 = 3;

/// Executes the transactions of a log on one server.
#[derive(Debug)]
pub struct Scheduler {
    settings: SchedulerSettings,
    /// The last entry.
    last: LogIndex,
    registry: Registry,
    /// Transactions whose trunk phase has not begun.
    incoming: VecDeque<(Position, TxnEnvelope)>,
    /// The trunk phase under way.
    preparing: Option<OpenTrunkPhase>,
    /// All transactions below have passed their trunk phase.
    prepared_to: Position,
    /// Transactions with unfinished parts on this server.
    txns: BTreeMap<Position, OpenTxn>,
    trunk: PartLane,
    /// The shards that this server has.
    shards: BTreeMap<ShardId, PartLane>,
    early: EarlyValues,
    /// Parts that have waited for a value of another server since.
    waiting: BTreeMap<(Position, ExecutionPlace), LateValues>,
}

#[derive(Debug)]
struct OpenTrunkPhase {
    position: Position,
    envelope: TxnEnvelope,
    /// The parked key that it met: it begins again when the key is free.
    blocked: Option<TxnKey>,
}

/// What a part that waits for values has asked for.
#[derive(Clone, Copy, Debug)]
struct LateValues {
    /// When it began to wait, or last asked.
    since: MonoTime,
    asks: u32,
}

impl Scheduler {
    /// A scheduler that continues behind entry `base`, of a server that has these shards. `registry` is as it was
    /// there.
    ///
    /// # Panics
    /// If the number of shards is 0 or above that of slots.
    pub fn new(
        settings: SchedulerSettings,
        base: LogIndex,
        registry: Registry,
        shards: impl IntoIterator<Item = ShardId>,
    ) -> Scheduler {
        assert!((1..=crate::SLOTS).contains(&settings.shards), "1 to {} shards", crate::SLOTS);
        Scheduler {
            settings,
            last: base,
            registry,
            incoming: VecDeque::new(),
            preparing: None,
            prepared_to: Position { index: LogIndex(base.0 + 1), item: 0 },
            txns: BTreeMap::new(),
            trunk: PartLane::default(),
            shards: shards.into_iter().map(|shard| (shard, PartLane::default())).collect(),
            early: EarlyValues::default(),
            waiting: BTreeMap::new(),
        }
    }

    /// Advances the scheduler by one input; `out` receives the driver's tasks, in order.
    ///
    /// # Panics
    /// If the driver breaks its part: entries out of order, a trunk phase or a part that was not asked for.
    pub fn step(&mut self, now: MonoTime, input: SchedulerInput, out: &mut Vec<SchedulerEffect>) {
        match input {
            SchedulerInput::Entry { index, envelopes } => {
                assert_eq!(index.0, self.last.0 + 1, "entries come in order");
                self.last = index;
                let numbered = (0..).zip(envelopes);
                self.incoming.extend(numbered.map(|(item, envelope)| (Position { index, item }, envelope)));
            }
            SchedulerInput::Prepared { position, plan } => {
                let phase = self.preparing.take().expect("a trunk phase was asked for");
                assert_eq!((phase.position, phase.blocked), (position, None), "that one was asked for");
                self.prepared_to = position.next();
                self.registry.note(&phase.envelope, Some(position));
                if let Some(session) = plan.ends {
                    self.registry.end_session(session);
                }
                self.dispatch(now, position, plan, out);
            }
            SchedulerInput::Blocked { position, key } => {
                let phase = self.preparing.as_mut().expect("a trunk phase was asked for");
                assert_eq!(phase.position, position, "that one was asked for");
                assert!(self.trunk.is_parked(key, KeyAccess::Exclusive), "the key is parked, or it would not block");
                phase.blocked = Some(key);
            }
            SchedulerInput::Values { position, shard, values } => self.on_values(now, position, shard, values, out),
            SchedulerInput::Received { position, slot, value } => self.on_received(now, position, slot, value, out),
            SchedulerInput::Done { position, place } => self.on_done(now, position, place, out),
            SchedulerInput::Tick => self.ask_for_late(now, out),
        }
        self.advance(out);
    }

    /// True if an unfinished part in the trunk keeps a trunk phase from touching `key` that way: the phase ends with
    /// [`SchedulerInput::Blocked`].
    pub fn is_parked(&self, key: TxnKey, access: KeyAccess) -> bool {
        self.trunk.is_parked(key, access)
    }

    /// True if this server has read what `shard` says of a transaction, executed or not: a read just below its position
    /// gives the same, and answers [`SchedulerEffect::Ask`] of another server.
    pub fn has_read(&self, position: Position, shard: ShardId) -> bool {
        let part = self.txns.get(&position).and_then(|txn| txn.parts.get(&ExecutionPlace::Shard(shard)));
        let has_read = part.is_none_or(|part| matches!(part.state, PartState::Waiting | PartState::Running));
        self.shards.contains_key(&shard) && position < self.prepared_to && has_read
    }

    /// Every transaction below is executed at `place`. For a shard that this server does not have: 0.
    pub fn watermark(&self, place: ExecutionPlace) -> Position {
        let lane = match place {
            ExecutionPlace::Trunk => Some(&self.trunk),
            ExecutionPlace::Shard(shard) => self.shards.get(&shard),
        };
        lane.map_or_else(Position::default, |lane| lane.first().unwrap_or(self.prepared_to))
    }

    /// Every transaction below is executed at every place of this server.
    pub fn whole_watermark(&self) -> Position {
        self.txns.first_key_value().map_or(self.prepared_to, |(first, _)| *first)
    }

    /// The registry as it is behind [`Scheduler::prepared_to`]. Stored with a state of the trunk and the shards of that
    /// position, once they have reached it.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// All transactions below have passed their trunk phase.
    pub fn prepared_to(&self) -> Position {
        self.prepared_to
    }

    /// Transactions that wait for their trunk phase: a driver with many holds entries back.
    pub fn incoming(&self) -> usize {
        self.incoming.len()
    }

    /// Begins the next trunk phase, if it can.
    fn advance(&mut self, out: &mut Vec<SchedulerEffect>) {
        if let Some(OpenTrunkPhase { position, blocked, .. }) = &mut self.preparing {
            if blocked.is_some_and(|key| !self.trunk.is_parked(key, KeyAccess::Exclusive)) {
                *blocked = None;
                out.push(SchedulerEffect::Prepare { position: *position });
            }
            return;
        }
        let max = self.settings.parked_max;
        while self.trunk.len() < max && self.shards.values().all(|lane| lane.len() < max) {
            let Some((position, envelope)) = self.incoming.pop_front() else {
                // The next entry's first transaction is the next one.
                self.prepared_to = self.prepared_to.max(Position { index: LogIndex(self.last.0 + 1), item: 0 });
                return;
            };
            match self.registry.look_up(&envelope, self.settings.unacknowledged_max) {
                Ok(TxnAdmission::Run) => {
                    self.preparing = Some(OpenTrunkPhase { position, envelope, blocked: None });
                    out.push(SchedulerEffect::Prepare { position });
                    return;
                }
                Ok(TxnAdmission::Again(first)) => out.push(SchedulerEffect::Again { position, first }),
                Err(error) => out.push(SchedulerEffect::Refuse { position, error }),
            }
            self.registry.note(&envelope, None);
            self.prepared_to = position.next();
        }
    }

    /// Gives each place of this server its part.
    fn dispatch(&mut self, now: MonoTime, position: Position, plan: TxnPlan, out: &mut Vec<SchedulerEffect>) {
        let early = self.early.take(position);
        let shards = self.settings.shards;
        let is_here = |shard: ShardId| self.shards.contains_key(&shard);
        let parts = parts::of_plan(&plan, shards, is_here);
        // Every server has the trunk, and waits for what its part needs.
        let goes_out = plan.trunk.is_some() || plan.slots.iter().any(|part| !is_here(ShardId::of(part.slot, shards)));
        let mut txn = OpenTxn { values: early, goes_out, parts: BTreeMap::new() };
        let mut free = Vec::new();
        for (place, (part, keys)) in parts {
            let lane = self.lane(place).expect("it is a place of this server");
            if lane.add(position, keys) {
                free.push(place);
            }
            txn.add_part(place, part);
        }
        if txn.parts.is_empty() {
            out.push(SchedulerEffect::Finished { position });
            return;
        }
        self.txns.insert(position, txn);
        free.into_iter().for_each(|place| self.begin(now, position, place, out));
    }

    fn lane(&mut self, place: ExecutionPlace) -> Option<&mut PartLane> {
        match place {
            ExecutionPlace::Trunk => Some(&mut self.trunk),
            ExecutionPlace::Shard(shard) => self.shards.get_mut(&shard),
        }
    }

    /// A part waits for no other any more.
    fn begin(&mut self, now: MonoTime, position: Position, place: ExecutionPlace, out: &mut Vec<SchedulerEffect>) {
        let part = self.txns.get_mut(&position).and_then(|txn| txn.parts.get_mut(&place)).expect("it is unfinished");
        assert_eq!(part.state, PartState::Parked, "a part begins once");
        match place {
            ExecutionPlace::Shard(shard) if part.gives => {
                part.state = PartState::Reading;
                out.push(SchedulerEffect::Read { position, shard });
            }
            _ => {
                part.state = PartState::Waiting;
                self.run_if_ready(now, position, place, out);
            }
        }
    }

    /// Runs a part that has read, if no value is missing.
    fn run_if_ready(
        &mut self,
        now: MonoTime,
        position: Position,
        place: ExecutionPlace,
        out: &mut Vec<SchedulerEffect>,
    ) {
        let txn = self.txns.get_mut(&position).expect("it is unfinished");
        let part = txn.parts.get_mut(&place).expect("it is one of its parts");
        if part.state != PartState::Waiting {
            return;
        }
        if part.missing > 0 {
            self.waiting.entry((position, place)).or_insert(LateValues { since: now, asks: 0 });
            return;
        }
        part.state = PartState::Running;
        let values = txn.values.iter().map(|(slot, value)| (*slot, value.clone())).collect();
        self.waiting.remove(&(position, place));
        out.push(SchedulerEffect::Run { position, place, values });
    }

    fn on_values(
        &mut self,
        now: MonoTime,
        position: Position,
        shard: ShardId,
        values: Vec<(Slot, SlotValue)>,
        out: &mut Vec<SchedulerEffect>,
    ) {
        let txn = self.txns.get_mut(&position).expect("a read was asked for");
        let part = txn.parts.get_mut(&ExecutionPlace::Shard(shard)).expect("a read was asked for");
        assert_eq!(part.state, PartState::Reading, "a read was asked for");
        part.state = PartState::Waiting;
        for (slot, value) in values {
            if txn.goes_out {
                out.push(SchedulerEffect::Push { position, slot, value: value.clone() });
            }
            if !txn.note_value(slot, &value) {
                out.push(SchedulerEffect::Diverged { position, slot });
            }
        }
        self.run_ready(now, position, out);
    }

    fn on_received(
        &mut self,
        now: MonoTime,
        position: Position,
        slot: Slot,
        value: SlotValue,
        out: &mut Vec<SchedulerEffect>,
    ) {
        if position >= self.prepared_to {
            self.early.add(position, slot, value, self.settings.early_max);
        } else if let Some(txn) = self.txns.get_mut(&position) {
            if !txn.note_value(slot, &value) {
                out.push(SchedulerEffect::Diverged { position, slot });
            }
            self.run_ready(now, position, out);
        }
    }

    fn run_ready(&mut self, now: MonoTime, position: Position, out: &mut Vec<SchedulerEffect>) {
        let places: Vec<ExecutionPlace> = self.txns[&position].parts.keys().copied().collect();
        places.into_iter().for_each(|place| self.run_if_ready(now, position, place, out));
    }

    fn on_done(&mut self, now: MonoTime, position: Position, place: ExecutionPlace, out: &mut Vec<SchedulerEffect>) {
        let txn = self.txns.get_mut(&position).expect("a run was asked for");
        let part = txn.parts.remove(&place).expect("a run was asked for");
        assert_eq!(part.state, PartState::Running, "a run was asked for");
        if txn.parts.is_empty() {
            self.txns.remove(&position);
            out.push(SchedulerEffect::Finished { position });
        }
        let mut free = Vec::new();
        self.lane(place).expect("it has run here").finish(position, &mut free);
        free.into_iter().for_each(|next| self.begin(now, next, place, out));
    }

    fn ask_for_late(&mut self, now: MonoTime, out: &mut Vec<SchedulerEffect>) {
        let mut late = BTreeSet::new();
        for ((position, place), LateValues { since, asks }) in &mut self.waiting {
            // Questions that come faster than answers would keep a server that is behind where it is.
            if now.since_ns(*since) < self.settings.ask_after_ns << (*asks).min(DOUBLINGS_MAX) {
                continue;
            }
            (*since, *asks) = (now, asks.saturating_add(1));
            let txn = &self.txns[position];
            let missing = txn.parts[place].needs.iter().filter(|slot| !txn.values.contains_key(slot));
            late.extend(missing.map(|slot| (*position, *slot)));
        }
        // A slot of this server says its value as soon as its part is free.
        let shards = self.settings.shards;
        let is_here = |slot: &Slot| self.shards.contains_key(&ShardId::of(*slot, shards));
        let asks = late.into_iter().filter(|(_, slot)| !is_here(slot));
        out.extend(asks.map(|(position, slot)| SchedulerEffect::Ask { position, slot }));
    }
}
