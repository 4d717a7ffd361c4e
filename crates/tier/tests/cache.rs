//! The cache against simple models: what it holds, what scans do to it, and how it compares with LRU.

#![expect(clippy::unwrap_used, reason = "a test may stop where something is not as it says")]

use std::collections::{BTreeMap, VecDeque};

use frieze_base::Rng;
use frieze_tier::{CachePolicy, Heat, Weigh};
use proptest::prelude::*;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct CachedBytes(u64);

impl Weigh for CachedBytes {
    fn weight(&self) -> u64 {
        self.0
    }
}

/// A cache and what a driver would hold for it.
struct Driver {
    cache: CachePolicy<u64, CachedBytes>,
    held: BTreeMap<u64, u64>,
}

impl Driver {
    fn new(bytes_max: u64) -> Driver {
        Driver { cache: CachePolicy::new(bytes_max), held: BTreeMap::new() }
    }

    /// True if all of it was there.
    fn ask(&mut self, key: u64, weight: u64, heat: Heat) -> bool {
        let mut was_there = false;
        let mut out = Vec::new();
        self.cache.touch(
            key,
            heat,
            |value| {
                was_there = value.0 >= weight;
                value.0 = value.0.max(weight);
                was_there
            },
            &mut out,
        );
        let grown = self.held.get(&key).map_or(weight, |held| weight.max(*held));
        self.held.insert(key, grown);
        for (key, value) in out {
            assert_eq!(self.held.remove(&key), Some(value.0), "what goes out was in");
        }
        was_there
    }

    fn check(&self) {
        let stats = self.cache.stats();
        assert_eq!(stats.bytes, self.held.values().sum::<u64>());
        assert_eq!(stats.count, self.held.len() as u64);
        assert!(stats.bytes <= self.cache.bytes_max(), "{stats:?} of {}", self.cache.bytes_max());
        assert!(self.held.iter().all(|(key, weight)| self.cache.get(key).unwrap().0 == *weight));
    }
}

/// What everybody compares with.
struct Lru {
    room: usize,
    keys: VecDeque<u64>,
}

impl Lru {
    fn ask(&mut self, key: u64) -> bool {
        let at = self.keys.iter().position(|held| *held == key);
        if let Some(at) = at {
            self.keys.remove(at);
        } else if self.keys.len() == self.room {
            self.keys.pop_front();
        }
        self.keys.push_back(key);
        at.is_some()
    }
}

#[derive(Clone, Debug)]
enum CacheStep {
    Ask { key: u64, weight: u64, scan: bool },
    Remove(u64),
    Retain(u64),
}

fn steps() -> impl Strategy<Value = Vec<CacheStep>> {
    let step = prop_oneof![
        20 => (0u64..60, 1u64..300, any::<bool>()).prop_map(|(key, weight, scan)| CacheStep::Ask { key, weight, scan }),
        2 => (0u64..60).prop_map(CacheStep::Remove),
        1 => (2u64..7).prop_map(CacheStep::Retain),
    ];
    proptest::collection::vec(step, 0..600)
}

proptest! {
    #[test]
    fn it_never_holds_more_than_it_may_and_tells_of_everything_that_leaves(steps in steps(), room in 0u64..2000) {
        let mut driver = Driver::new(room);
        for step in steps {
            match step {
                CacheStep::Ask { key, weight, scan } => {
                    driver.ask(key, weight, if scan { Heat::Scan } else { Heat::Wanted });
                }
                CacheStep::Remove(key) => {
                    let removed = driver.cache.remove(key).map(|value| value.0);
                    prop_assert_eq!(removed, driver.held.remove(&key));
                }
                CacheStep::Retain(part) => {
                    driver.cache.retain(|key| key % part != 0);
                    driver.held.retain(|key, _| key % part != 0);
                }
            }
            driver.check();
        }
    }
}

/// Draws 0..n with probability like 1 / (rank + 1).
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(n: usize, skew: f64) -> Zipf {
        let mut sum = 0.0;
        let weights = (1..=n).map(|rank| {
            sum += (rank as f64).powf(-skew);
            sum
        });
        Zipf(weights.collect())
    }

    fn draw(&self, rng: &mut Rng) -> u64 {
        let at = rng.below(1 << 40) as f64 / (1u64 << 40) as f64 * self.0.last().unwrap();
        self.0.partition_point(|sum| *sum < at) as u64
    }
}

const ROOM: u64 = 1000;

/// Hits among asks for a hot set of half of the room, in turn.
fn round_of_hot(driver: &mut Driver) -> u64 {
    (0..ROOM / 2).filter(|key| driver.ask(*key, 1, Heat::Wanted)).count() as u64
}

#[test]
fn pages_in_use_survive_a_scan_of_a_hundred_times_the_room() {
    for heat in [Heat::Wanted, Heat::Scan] {
        let mut driver = Driver::new(ROOM);
        for _ in 0..3 {
            round_of_hot(&mut driver);
        }
        assert_eq!(round_of_hot(&mut driver), ROOM / 2, "in use");
        // Each part is asked for five times in a row where the scan goes in small steps.
        let steps = if heat == Heat::Scan { 5 } else { 1 };
        for key in 0..100 * ROOM {
            for _ in 0..steps {
                driver.ask(1_000_000 + key, 1, heat);
            }
        }
        driver.check();
        assert_eq!(round_of_hot(&mut driver), ROOM / 2, "after the scan ({heat:?})");
    }
}

#[test]
fn a_concurrent_scan_evicts_no_page_in_use() {
    let mut driver = Driver::new(ROOM);
    for _ in 0..3 {
        round_of_hot(&mut driver);
    }
    let mut hits = 0;
    for key in 0..100 * ROOM {
        hits += u64::from(driver.ask(key % (ROOM / 2), 1, Heat::Wanted));
        for part in 0..5 {
            driver.ask(1_000_000 + 5 * key + part, 1, Heat::Scan);
        }
    }
    assert_eq!(hits, 100 * ROOM);
}

/// Something of which scans may have asked for a part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Parts {
    wanted: u64,
    scanned: u64,
}

impl Weigh for Parts {
    fn weight(&self) -> u64 {
        self.wanted + self.scanned
    }

    fn shed(&mut self) -> Option<Parts> {
        (self.wanted > 0 && self.scanned > 0).then(|| Parts { wanted: 0, scanned: std::mem::take(&mut self.scanned) })
    }
}

#[test]
fn what_a_scan_adds_to_things_in_use_leaves_before_them() {
    let mut cache: CachePolicy<u64, Parts> = CachePolicy::new(ROOM);
    let mut out = Vec::new();
    let wanted = |cache: &mut CachePolicy<u64, Parts>, out: &mut Vec<(u64, Parts)>| {
        let mut hits = 0;
        for key in 0..ROOM / 20 {
            let ask = |parts: &mut Parts| {
                let was_there = parts.wanted == 10;
                parts.wanted = 10;
                hits += u64::from(was_there);
                was_there
            };
            cache.touch(key, Heat::Wanted, ask, out);
        }
        hits
    };
    for _ in 0..3 {
        wanted(&mut cache, &mut out);
    }
    assert_eq!(wanted(&mut cache, &mut out), ROOM / 20, "in use");
    for round in 0..10 {
        for key in 0..ROOM / 20 {
            let add = |parts: &mut Parts| {
                let was_there = parts.scanned == 150;
                parts.scanned = 150;
                was_there
            };
            cache.touch(key, Heat::Scan, add, &mut out);
            assert!(cache.stats().bytes <= ROOM);
        }
        assert_eq!(wanted(&mut cache, &mut out), ROOM / 20, "after scan {round}");
    }
    assert!(out.iter().any(|(_, part)| part.wanted == 0 && part.scanned == 150), "what was added has left");
}

#[test]
fn on_skewed_requests_it_hits_no_less_than_an_lru() {
    for skew in [0.6, 0.8, 1.0, 1.2] {
        let zipf = Zipf::new(5_000, skew);
        let (mut rng, mut driver) = (Rng::new(1), Driver::new(ROOM / 4));
        let mut lru = Lru { room: ROOM as usize / 4, keys: VecDeque::new() };
        let (mut ours, mut theirs) = (0u32, 0u32);
        for _ in 0..30_000 {
            let key = zipf.draw(&mut rng);
            ours += u32::from(driver.ask(key, 1, Heat::Wanted));
            theirs += u32::from(lru.ask(key));
        }
        driver.check();
        assert!(ours >= theirs, "skew {skew}: {ours} hits, LRU {theirs}, of 30,000");
    }
}

#[test]
fn an_entry_larger_than_the_room_is_refused_and_evicts_nothing() {
    let mut driver = Driver::new(100);
    driver.ask(1, 60, Heat::Wanted);
    assert!(!driver.ask(2, 101, Heat::Wanted));
    driver.check();
    assert_eq!((driver.cache.stats().refused, driver.cache.get(&1)), (1, Some(&CachedBytes(60))));
    // Also one that grows beyond it.
    driver.ask(1, 101, Heat::Wanted);
    driver.check();
    assert_eq!((driver.cache.stats().refused, driver.cache.stats().count), (2, 0));
}

#[test]
fn the_same_requests_give_the_same_decisions() {
    let run = || {
        let (mut rng, mut driver) = (Rng::new(9), Driver::new(500));
        let asks = (0..20_000).map(|_| driver.ask(rng.below(300), 1 + rng.below(9), Heat::Wanted));
        let hits: Vec<bool> = asks.collect();
        (hits, driver.held, driver.cache.stats())
    };
    assert!(run() == run());
}
