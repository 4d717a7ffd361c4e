//! Open files and directories by number.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Numbers for things, in shards so that many threads look up at once. A number is used again after its release.
pub(crate) struct Handles<T> {
    shards: [RwLock<Shard<T>>; SHARDS],
    turn: AtomicUsize,
}

struct Shard<T> {
    things: Vec<Option<Arc<T>>>,
    free: Vec<usize>,
}

const SHARDS: usize = 16;

impl<T> Handles<T> {
    pub(crate) fn new() -> Handles<T> {
        let shards = std::array::from_fn(|_| RwLock::new(Shard { things: Vec::new(), free: Vec::new() }));
        Handles { shards, turn: AtomicUsize::new(0) }
    }

    /// Keeps `thing` and gives its number.
    pub(crate) fn insert(&self, thing: T) -> u64 {
        let which = self.turn.fetch_add(1, Ordering::Relaxed) % SHARDS;
        let mut shard = self.shards[which].write().unwrap_or_else(PoisonError::into_inner);
        let place = shard.free.pop().unwrap_or_else(|| {
            shard.things.push(None);
            shard.things.len() - 1
        });
        shard.things[place] = Some(Arc::new(thing));
        (place * SHARDS + which) as u64
    }

    /// The thing with this number.
    pub(crate) fn get(&self, number: u64) -> Option<Arc<T>> {
        let (which, place) = split(number);
        let shard = self.shards[which].read().unwrap_or_else(PoisonError::into_inner);
        shard.things.get(place)?.clone()
    }

    /// Gives the thing up; a caller that still holds it keeps it alive.
    pub(crate) fn remove(&self, number: u64) -> Option<Arc<T>> {
        let (which, place) = split(number);
        let mut shard = self.shards[which].write().unwrap_or_else(PoisonError::into_inner);
        let thing = shard.things.get_mut(place)?.take()?;
        shard.free.push(place);
        Some(thing)
    }

    /// Gives everything up.
    pub(crate) fn drain(&self) -> Vec<Arc<T>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
            shard.free.clear();
            all.extend(shard.things.drain(..).flatten());
        }
        all
    }
}

fn split(number: u64) -> (usize, usize) {
    (number as usize % SHARDS, number as usize / SHARDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_names_its_thing_until_it_is_given_up() {
        let handles = Handles::new();
        let numbers: Vec<u64> = (0..100).map(|thing| handles.insert(thing)).collect();
        for (thing, &number) in numbers.iter().enumerate() {
            assert_eq!(handles.get(number).as_deref(), Some(&thing));
        }
        assert_eq!(handles.remove(numbers[7]).as_deref(), Some(&7));
        assert_eq!(handles.get(numbers[7]), None);
        assert_eq!(handles.remove(numbers[7]), None);
        assert_eq!(handles.drain().len(), 99);
        assert_eq!(handles.get(numbers[8]), None);
        assert_eq!(handles.get(u64::MAX), None);
    }
}
