//! Values that came before their transactions did: another server may be ahead.

use std::collections::BTreeMap;

use crate::message::SlotValue;
use crate::place::{Position, Slot};

/// Early values, by transaction; those of the latest are dropped if there are too many, for they are asked for later.
#[derive(Debug, Default)]
pub(crate) struct EarlyValues {
    values: BTreeMap<Position, BTreeMap<Slot, SlotValue>>,
}

impl EarlyValues {
    /// Notes a value of a transaction that is not prepared here yet.
    pub(crate) fn add(&mut self, position: Position, slot: Slot, value: SlotValue, max: usize) {
        self.values.entry(position).or_default().entry(slot).or_insert(value);
        while self.values.len() > max {
            self.values.pop_last();
        }
    }

    /// Those of a transaction that is prepared now. Those of earlier ones go.
    pub(crate) fn take(&mut self, position: Position) -> BTreeMap<Slot, SlotValue> {
        while self.values.first_key_value().is_some_and(|(first, _)| *first < position) {
            self.values.pop_first();
        }
        self.values.remove(&position).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use frieze_base::LogIndex;

    use super::*;

    #[test]
    fn the_latest_are_dropped_and_the_first_value_of_a_slot_stays() {
        let at = |index| Position { index: LogIndex(index), item: 0 };
        let mut early = EarlyValues::default();
        for index in [3, 1, 2] {
            early.add(at(index), Slot(9), vec![index as u8], 2);
        }
        early.add(at(1), Slot(9), vec![7], 2);
        assert_eq!(early.take(at(1)), BTreeMap::from([(Slot(9), vec![1])]));
        assert_eq!(early.take(at(3)), BTreeMap::new());
        assert_eq!(early.values, BTreeMap::new());
    }
}
