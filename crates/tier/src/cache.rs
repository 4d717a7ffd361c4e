//! Which parts of old history stay in memory.
//!
//! # The algorithm
//! S3-FIFO: three queues, first in, first out. What comes in waits in a *small* queue, a tenth of the room. What was
//! asked for twice or more while it waited goes on into the *main* queue; the rest leaves, and its key alone is
//! remembered in a *ghost* queue. What comes back while it is remembered goes to the main queue at once. In the main
//! queue what was asked for since it came, or since it last came round, goes round again.
//!
//! So a scan, which asks for everything once, passes through a tenth of the room. A reader known to be sequential
//! ([`Heat::Scan`]) raises nothing by it: a program that reads a file in small steps asks for the same part many times,
//! and has no use for it afterwards. What he has added to something that is in use leaves before anything that is.
//!
//! # Source
//! Yang, Zhang, Qiu, Yue, Rashmi: FIFO queues are all you need for cache eviction (SOSP'23), algorithm 1: small queue
//! of a tenth, frequencies of two bits, promotion from the third request on. Ours differs in that things have weights
//! that may grow, in what scans raise, and in that the ghost queue is bounded by the weights of what it remembers.
//! `hdfs-under-hbase` §5 compares LRU by size only; a scan of history flushes an LRU cache of any size that is bounded.

use std::collections::VecDeque;
use std::hash::Hash;

use frieze_base::FastMap;

/// What a cache holds has a weight, in bytes.
pub trait Weigh: Sized {
    /// Bytes that it takes now. May change only while the cache is told ([`CachePolicy::touch`]).
    fn weight(&self) -> u64;

    /// Takes out what only scans have asked for, so that the rest can stay without it; `None` if that is nothing.
    /// Things that are one piece need not know of it.
    fn shed(&mut self) -> Option<Self> {
        None
    }
}

/// How a request counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heat {
    /// This part is asked for: if it is asked for again, it should be there.
    Wanted,
    /// Part of a pass over a lot, or read ahead: being there is no reason to stay.
    Scan,
}

/// Keys of what is in memory, and what leaves next. The caller keeps the values.
#[derive(Clone, Debug)]
pub struct CachePolicy<K, V> {
    bytes_max: u64,
    small_bytes_max: u64,
    entries: FastMap<K, CacheEntry<V>>,
    /// Oldest first. A ticket that is not that of the entry any more is one of something that has left.
    small: CacheQueue<K>,
    main: CacheQueue<K>,
    ghosts: FastMap<K, Ghost>,
    ghost: CacheQueue<K>,
    next_ticket: u64,
    stats: CacheStats,
}

#[derive(Clone, Debug)]
struct CacheEntry<V> {
    value: V,
    weight: u64,
    ticket: u64,
    frequency: u8,
    is_main: bool,
}

#[derive(Clone, Copy, Debug)]
struct Ghost {
    ticket: u64,
    weight: u64,
}

#[derive(Clone, Debug)]
struct CacheQueue<K> {
    keys: VecDeque<(K, u64)>,
    /// Weights of what is in it.
    bytes: u64,
    /// Things in it, those that have left not counted.
    count: usize,
}

/// What a cache holds and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Weights of all that it holds.
    pub bytes: u64,
    /// Things that it holds.
    pub count: u64,
    /// Things that came in.
    pub admitted: u64,
    /// Things that were pushed out by others.
    pub evicted: u64,
    /// Things heavier than all of the room.
    pub refused: u64,
    /// Things that went from the small queue, or from being remembered, to the main queue.
    pub promoted: u64,
}

impl<K: Copy + Eq + Hash, V: Default + Weigh> CachePolicy<K, V> {
    /// An empty cache with room for `bytes_max` bytes.
    pub fn new(bytes_max: u64) -> CachePolicy<K, V> {
        CachePolicy::with_small(bytes_max, bytes_max / SMALL_PART)
    }

    /// An empty cache with room for `bytes_max` bytes, of which the small queue has `small_bytes_max`.
    pub fn with_small(bytes_max: u64, small_bytes_max: u64) -> CachePolicy<K, V> {
        CachePolicy {
            bytes_max,
            small_bytes_max,
            entries: FastMap::default(),
            small: CacheQueue::default(),
            main: CacheQueue::default(),
            ghosts: FastMap::default(),
            ghost: CacheQueue::default(),
            next_ticket: 0,
            stats: CacheStats::default(),
        }
    }

    /// `key` is asked for. `change` is shown what is known of it, or a default, and may change it; it returns true if
    /// all that was asked for was there already. What is pushed out goes to `out`, whole or the part that was shed:
    /// `key` itself, if it is heavier than all of the room.
    ///
    /// # Cost
    /// O(1) amortised.
    pub fn touch(&mut self, key: K, heat: Heat, change: impl FnOnce(&mut V) -> bool, out: &mut Vec<(K, V)>) {
        if let Some(entry) = self.entries.get_mut(&key) {
            let was_there = change(&mut entry.value);
            if was_there && heat == Heat::Wanted {
                entry.frequency = (entry.frequency + 1).min(FREQUENCY_MAX);
            }
            let (before, after) = (entry.weight, entry.value.weight());
            entry.weight = after;
            let queue = if entry.is_main { &mut self.main } else { &mut self.small };
            queue.bytes = queue.bytes - before + after;
        } else {
            let mut value = V::default();
            change(&mut value);
            self.insert(key, heat, value);
        }
        if self.entries[&key].weight > self.bytes_max {
            self.stats.refused += 1;
            out.extend(self.take(key).map(|value| (key, value)));
        }
        self.shrink(out);
    }

    /// Takes out what is not there any more, or may not be used; nothing is remembered of it.
    pub fn remove(&mut self, key: K) -> Option<V> {
        let value = self.take(key);
        self.tidy();
        value
    }

    /// Takes out what `keep` says no to.
    ///
    /// # Cost
    /// A pass over everything.
    pub fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        let gone: Vec<K> = self.entries.keys().filter(|key| !keep(key)).copied().collect();
        for key in gone {
            self.take(key);
        }
        self.tidy();
    }

    /// What is known of `key`. Asking does not count.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|entry| &entry.value)
    }

    /// Room in bytes.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// What a scan can fill: what is read ahead by all readers together should stay well below.
    pub fn small_bytes_max(&self) -> u64 {
        self.small_bytes_max
    }

    /// What it holds and has done.
    pub fn stats(&self) -> CacheStats {
        CacheStats { bytes: self.small.bytes + self.main.bytes, count: self.entries.len() as u64, ..self.stats }
    }

    fn insert(&mut self, key: K, heat: Heat, value: V) {
        let weight = value.weight();
        // Remembered or not, a scan has no favourites.
        let ghost = self.ghosts.remove(&key);
        if let Some(ghost) = ghost {
            self.ghost.left(ghost.weight);
        }
        let is_main = ghost.is_some() && heat == Heat::Wanted;
        let ticket = self.ticket();
        self.entries.insert(key, CacheEntry { value, weight, ticket, frequency: 0, is_main });
        let queue = if is_main { &mut self.main } else { &mut self.small };
        queue.push(key, ticket, weight);
        self.stats.admitted += 1;
        self.stats.promoted += u64::from(is_main);
    }

    /// Takes `key` out of its queue; its place in it stays behind and is skipped later.
    fn take(&mut self, key: K) -> Option<V> {
        let entry = self.entries.remove(&key)?;
        let queue = if entry.is_main { &mut self.main } else { &mut self.small };
        queue.left(entry.weight);
        Some(entry.value)
    }

    /// Pushes out until the rest fits.
    fn shrink(&mut self, out: &mut Vec<(K, V)>) {
        while self.small.bytes + self.main.bytes > self.bytes_max {
            // Each turn takes one from the small queue, or lowers a frequency or a weight in the main one: it ends.
            let from_small = self.main.count == 0 || self.small.bytes > self.small_bytes_max();
            if from_small { self.shrink_small(out) } else { self.shrink_main(out) }
        }
        self.tidy();
    }

    fn shrink_small(&mut self, out: &mut Vec<(K, V)>) {
        let Some((key, ticket)) = self.small.keys.pop_front() else { return };
        let Some(entry) = self.entries.get_mut(&key).filter(|entry| entry.ticket == ticket) else { return };
        if entry.frequency >= FREQUENCY_TO_STAY {
            (entry.is_main, entry.frequency) = (true, 0);
            self.small.left(entry.weight);
            out.extend(entry.value.shed().map(|part| (key, part)));
            entry.weight = entry.value.weight();
            self.main.push(key, ticket, entry.weight);
            self.stats.promoted += 1;
            return;
        }
        let weight = entry.weight;
        out.extend(self.take(key).map(|value| (key, value)));
        self.stats.evicted += 1;
        let ticket = self.ticket();
        self.ghosts.insert(key, Ghost { ticket, weight });
        self.ghost.push(key, ticket, weight);
        while self.ghost.bytes > self.bytes_max {
            let Some((key, ticket)) = self.ghost.keys.pop_front() else { return };
            if self.ghosts.get(&key).is_some_and(|ghost| ghost.ticket == ticket)
                && let Some(ghost) = self.ghosts.remove(&key)
            {
                self.ghost.left(ghost.weight);
            }
        }
    }

    fn shrink_main(&mut self, out: &mut Vec<(K, V)>) {
        let Some((key, ticket)) = self.main.keys.pop_front() else { return };
        let Some(entry) = self.entries.get_mut(&key).filter(|entry| entry.ticket == ticket) else { return };
        if let Some(part) = entry.value.shed() {
            out.push((key, part));
            let before = std::mem::replace(&mut entry.weight, entry.value.weight());
            self.main.bytes -= before - entry.weight;
            self.main.keys.push_back((key, ticket));
            return;
        }
        if entry.frequency > 0 {
            entry.frequency -= 1;
            self.main.keys.push_back((key, ticket));
            return;
        }
        out.extend(self.take(key).map(|value| (key, value)));
        self.stats.evicted += 1;
    }

    /// Gives up places of what has left, when they are many.
    fn tidy(&mut self) {
        let entries = &self.entries;
        for queue in [&mut self.small, &mut self.main] {
            queue.tidy(|key, ticket| entries.get(key).is_some_and(|entry| entry.ticket == ticket));
        }
        let ghosts = &self.ghosts;
        self.ghost.tidy(|key, ticket| ghosts.get(key).is_some_and(|ghost| ghost.ticket == ticket));
    }

    fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }
}

impl<K> Default for CacheQueue<K> {
    fn default() -> CacheQueue<K> {
        CacheQueue { keys: VecDeque::new(), bytes: 0, count: 0 }
    }
}

impl<K> CacheQueue<K> {
    fn push(&mut self, key: K, ticket: u64, weight: u64) {
        self.keys.push_back((key, ticket));
        self.bytes += weight;
        self.count += 1;
    }

    /// One that weighs so much is not in it any more.
    fn left(&mut self, weight: u64) {
        self.bytes -= weight;
        self.count -= 1;
    }

    fn tidy(&mut self, is_there: impl Fn(&K, u64) -> bool) {
        if self.keys.len() > 2 * self.count + STALE_MAX {
            self.keys.retain(|(key, ticket)| is_there(key, *ticket));
        }
    }
}

/// The small queue has this part of the room (SOSP'23, §4.1: a tenth is best or near it for most of 6,594 traces).
const SMALL_PART: u64 = 10;
/// Frequencies have two bits.
const FREQUENCY_MAX: u8 = 3;
/// Requests after the first that keep what is in the small queue.
const FREQUENCY_TO_STAY: u8 = 2;
/// Places of what has left that a queue keeps besides as many as there are things in it.
const STALE_MAX: usize = 64;
