//! The parts of one transaction on one server.

use std::collections::{BTreeMap, BTreeSet};

use crate::message::{SlotValue, TxnPlan};
use crate::place::{ExecutionPlace, KeyAccess, ShardId, Slot, TxnKey};

/// A transaction with unfinished parts.
#[derive(Debug)]
pub(super) struct OpenTxn {
    /// Of slots that have said theirs.
    pub(super) values: BTreeMap<Slot, SlotValue>,
    /// Parts of other servers need values too.
    pub(super) goes_out: bool,
    /// The unfinished ones.
    pub(super) parts: BTreeMap<ExecutionPlace, TxnPart>,
}

/// A part of it.
#[derive(Debug)]
pub(super) struct TxnPart {
    pub(super) state: PartState,
    /// Other parts need values of it.
    pub(super) gives: bool,
    /// Slots of other places whose values it needs.
    pub(super) needs: BTreeSet<Slot>,
    /// How many of these values are not there yet.
    pub(super) missing: usize,
}

/// How far a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartState {
    /// An earlier part has one of its keys.
    Parked,
    /// The driver reads its values.
    Reading,
    /// It needs values.
    Waiting,
    /// The driver executes it.
    Running,
}

impl OpenTxn {
    /// Adds a part; it misses what has not come early.
    pub(super) fn add_part(&mut self, place: ExecutionPlace, mut part: TxnPart) {
        part.missing = part.needs.iter().filter(|slot| !self.values.contains_key(slot)).count();
        self.parts.insert(place, part);
    }

    /// Notes the value of a slot, and counts it for the parts that need it. False if another one is known.
    ///
    /// # Cost
    /// O(log n) a part for n values that it needs: a transaction over many shards has many parts and many values.
    pub(super) fn note_value(&mut self, slot: Slot, value: &SlotValue) -> bool {
        if let Some(known) = self.values.get(&slot) {
            return known == value;
        }
        self.values.insert(slot, value.clone());
        for part in self.parts.values_mut().filter(|part| part.needs.contains(&slot)) {
            part.missing -= 1;
        }
        true
    }
}

/// A part, and its keys.
pub(super) type KeyedPart = (TxnPart, Vec<(TxnKey, KeyAccess)>);

/// The parts of a plan that this server has, by place: slots of one shard are executed together.
pub(super) fn of_plan(
    plan: &TxnPlan,
    shards: u16,
    is_here: impl Fn(ShardId) -> bool,
) -> BTreeMap<ExecutionPlace, KeyedPart> {
    let mut parts: BTreeMap<ExecutionPlace, KeyedPart> = BTreeMap::new();
    let empty = || (TxnPart { state: PartState::Parked, gives: false, needs: BTreeSet::new(), missing: 0 }, Vec::new());
    for part in &plan.slots {
        let shard = ShardId::of(part.slot, shards);
        if !is_here(shard) {
            continue;
        }
        let (whole, keys) = parts.entry(ExecutionPlace::Shard(shard)).or_insert_with(empty);
        whole.gives |= part.gives;
        // What lies in the same shard is read with the part itself.
        whole.needs.extend(part.needs.iter().filter(|slot| ShardId::of(**slot, shards) != shard));
        keys.extend(&part.keys);
    }
    if let Some(trunk) = &plan.trunk {
        let (whole, keys) = parts.entry(ExecutionPlace::Trunk).or_insert_with(empty);
        whole.needs.extend(&trunk.needs);
        keys.extend(&trunk.keys);
    }
    parts
}
