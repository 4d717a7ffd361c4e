//! The unfinished parts of one place, the trunk or a shard, in log order: which of them wait for which.
//!
//! Guarantees: of two parts with a common key, one of them exclusive, the earlier one finishes before the later one
//! reads. Parts without a common key do not wait for each other. Leaves to others: values, and running.

use std::collections::BTreeMap;

use frieze_base::FastMap;

use crate::place::{KeyAccess, Position, TxnKey};

/// The unfinished parts of a place.
#[derive(Debug, Default)]
pub(crate) struct PartLane {
    parts: BTreeMap<Position, LanePart>,
    /// By key: the parts that have it, in log order. The first ones of them, as far as they are compatible, do not wait
    /// for it.
    holders: FastMap<TxnKey, BTreeMap<Position, KeyAccess>>,
}

#[derive(Debug)]
struct LanePart {
    /// Each key once, with its stronger access.
    keys: Vec<(TxnKey, KeyAccess)>,
    /// Keys that it waits for.
    waits: usize,
}

impl PartLane {
    /// Adds a part, later than all that are here. Returns true if it waits for none.
    ///
    /// # Cost
    /// O(log n) a key for n parts that have it.
    pub(crate) fn add(&mut self, position: Position, mut keys: Vec<(TxnKey, KeyAccess)>) -> bool {
        assert!(self.parts.last_key_value().is_none_or(|(last, _)| *last < position), "parts come in log order");
        // The stronger access of a key comes first, and stays.
        keys.sort_unstable_by(|a, b| (a.0, b.1).cmp(&(b.0, a.1)));
        keys.dedup_by_key(|(key, _)| *key);
        let mut waits = 0;
        for (key, access) in &keys {
            let holders = self.holders.entry(*key).or_default();
            let is_free = match access {
                KeyAccess::Exclusive => holders.is_empty(),
                KeyAccess::Shared => holders.values().all(|access| *access == KeyAccess::Shared),
            };
            waits += usize::from(!is_free);
            holders.insert(position, *access);
        }
        self.parts.insert(position, LanePart { keys, waits });
        waits == 0
    }

    /// Removes a part that has run; appends those that wait for none any more to `free`.
    pub(crate) fn finish(&mut self, position: Position, free: &mut Vec<Position>) {
        let part = self.parts.remove(&position).expect("only a part that was added finishes");
        assert_eq!(part.waits, 0, "a part runs when it waits for none");
        for (key, _) in part.keys {
            let holders = self.holders.get_mut(&key).expect("each key of a part has it as a holder");
            let was_shared = leading(holders).any(|other| other != position);
            holders.remove(&position);
            if holders.is_empty() {
                self.holders.remove(&key);
                continue;
            }
            // While other readers go on, those behind them wait for these.
            if was_shared {
                continue;
            }
            for next in leading(holders) {
                let next_part = self.parts.get_mut(&next).expect("a holder is a part");
                next_part.waits -= 1;
                if next_part.waits == 0 {
                    free.push(next);
                }
            }
        }
    }

    /// True if a part here has the key in a way that keeps `access` out.
    pub(crate) fn is_parked(&self, key: TxnKey, access: KeyAccess) -> bool {
        let Some(holders) = self.holders.get(&key) else { return false };
        access == KeyAccess::Exclusive || holders.values().any(|holder| *holder == KeyAccess::Exclusive)
    }

    /// The first part.
    pub(crate) fn first(&self) -> Option<Position> {
        self.parts.first_key_value().map(|(position, _)| *position)
    }

    /// How many parts there are.
    pub(crate) fn len(&self) -> usize {
        self.parts.len()
    }
}

/// The holders of a key that do not wait for it: the first one, or all readers before the first writer.
fn leading(holders: &BTreeMap<Position, KeyAccess>) -> impl Iterator<Item = Position> + '_ {
    let first = holders.first_key_value().map(|(position, access)| (*position, *access));
    let readers = holders.iter().take_while(move |(position, access)| match first {
        Some((first, KeyAccess::Exclusive)) => **position == first,
        _ => **access == KeyAccess::Shared,
    });
    readers.map(|(position, _)| *position)
}

#[cfg(test)]
mod tests {
    use frieze_base::LogIndex;

    use super::*;

    fn at(index: u64) -> Position {
        Position { index: LogIndex(index), item: 0 }
    }

    /// A key and how, as `r1` or `w1`.
    fn keys(words: &str) -> Vec<(TxnKey, KeyAccess)> {
        let key = |word: &str| {
            let access = if word.starts_with('w') { KeyAccess::Exclusive } else { KeyAccess::Shared };
            (TxnKey(word[1..].parse().expect("a number")), access)
        };
        words.split_whitespace().map(key).collect()
    }

    fn finish(lane: &mut PartLane, index: u64) -> Vec<u64> {
        let mut free = Vec::new();
        lane.finish(at(index), &mut free);
        free.into_iter().map(|position| position.index.0).collect()
    }

    #[test]
    fn parts_wait_for_earlier_ones_with_a_common_key_alone() {
        let mut lane = PartLane::default();
        assert!(lane.add(at(1), keys("w1 w2")));
        assert!(!lane.add(at(2), keys("w2 w3")));
        assert!(lane.add(at(3), keys("w4")));
        assert!(!lane.add(at(4), keys("w3")), "behind one that waits");
        assert_eq!(finish(&mut lane, 3), []);
        assert_eq!(finish(&mut lane, 1), [2]);
        assert_eq!(finish(&mut lane, 2), [4]);
        assert_eq!(finish(&mut lane, 4), []);
        assert_eq!((lane.len(), lane.holders.len()), (0, 0));
    }

    #[test]
    fn readers_share_and_a_writer_waits_for_all_of_them() {
        let mut lane = PartLane::default();
        assert!(lane.add(at(1), keys("r1")));
        assert!(lane.add(at(2), keys("r1")));
        assert!(!lane.add(at(3), keys("w1")));
        assert!(!lane.add(at(4), keys("r1")), "a reader behind a writer waits for it");
        assert!(!lane.add(at(5), keys("r1")));
        assert_eq!(finish(&mut lane, 2), []);
        assert_eq!(finish(&mut lane, 1), [3]);
        assert_eq!(finish(&mut lane, 3), [4, 5]);
    }

    #[test]
    fn the_stronger_access_of_a_key_counts() {
        let mut lane = PartLane::default();
        assert!(lane.add(at(1), keys("r1 w1 r1")));
        assert!(!lane.add(at(2), keys("r1")));
        assert!(lane.is_parked(TxnKey(1), KeyAccess::Shared) && !lane.is_parked(TxnKey(2), KeyAccess::Exclusive));
        assert_eq!(finish(&mut lane, 1), [2]);
        assert!(!lane.is_parked(TxnKey(1), KeyAccess::Shared) && lane.is_parked(TxnKey(1), KeyAccess::Exclusive));
    }

    #[test]
    fn a_part_that_waits_for_several_keys_is_free_after_the_last() {
        let mut lane = PartLane::default();
        assert!(lane.add(at(1), keys("w1")));
        assert!(lane.add(at(2), keys("w2")));
        assert!(!lane.add(at(3), keys("w1 w2")));
        assert_eq!(finish(&mut lane, 2), []);
        assert_eq!(finish(&mut lane, 1), [3]);
    }
}
