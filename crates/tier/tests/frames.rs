//! Five policies and two tiers, held against models that are too slow to be wrong.

use std::collections::VecDeque;

use frieze_base::Rng;
use frieze_tier::{
    CachePolicy, FlashAdmission, FrameCache, Heat, MovedPages, OnFlashHit, PagesFound, Policy, TierPlace, TierSettings,
    Tiered, Weigh, Writes,
};
use proptest::prelude::*;

/// A thing of one page, for the server's own cache.
#[derive(Clone, Copy, Debug, Default)]
struct OnePage;

impl Weigh for OnePage {
    fn weight(&self) -> u64 {
        1
    }
}

/// Requests with reuse at every distance: keys of a power law over `keys`.
fn requests(seed: u64, count: usize, keys: u64) -> Vec<u64> {
    let mut rng = Rng::new(seed);
    (0..count)
        .map(|_| {
            let bound = 1 + rng.below(keys);
            rng.below(bound)
        })
        .collect()
}

/// Hits of each request under a model with a plain queue, oldest first.
fn model(policy: Policy, room: usize, keys: &[u64]) -> Vec<bool> {
    let mut queue = VecDeque::<(u64, bool)>::new();
    let mut hand = 0;
    keys.iter()
        .map(|key| {
            let at = queue.iter().position(|(there, _)| there == key);
            if let Some(at) = at {
                match policy {
                    Policy::Lru => {
                        let entry = queue.remove(at).expect("it was found");
                        queue.push_back(entry);
                    }
                    _ => queue[at].1 = true,
                }
                return true;
            }
            if room == 0 {
                return false;
            }
            while queue.len() >= room {
                match policy {
                    Policy::Clock if queue[0].1 => {
                        let (key, _) = queue.pop_front().expect("it is full");
                        queue.push_back((key, false));
                    }
                    Policy::Sieve => {
                        if queue[hand].1 {
                            queue[hand].1 = false;
                            hand += 1;
                        } else {
                            queue.remove(hand);
                        }
                        if hand >= queue.len() {
                            hand = 0;
                        }
                    }
                    _ => {
                        queue.pop_front();
                    }
                }
            }
            queue.push_back((*key, false));
            false
        })
        .collect()
}

fn hits(policy: Policy, room: u64, keys: &[u64]) -> Vec<bool> {
    let (mut cache, mut out) = (FrameCache::new(policy, room), Vec::new());
    let hits = keys.iter().map(|key| cache.request(*key, 1, 0, &mut out) == 1).collect();
    assert!(cache.pages() <= room);
    hits
}

proptest! {
    #[test]
    fn four_policies_decide_as_their_models(seed: u64, room in 0usize..40) {
        let keys = requests(seed, 600, 80);
        for policy in [Policy::Lru, Policy::Fifo, Policy::Clock, Policy::Sieve] {
            prop_assert_eq!(hits(policy, room as u64, &keys), model(policy, room, &keys), "{:?}", policy);
        }
    }

    #[test]
    fn s3_fifo_decides_as_the_cache_of_the_server(seed: u64, room in 1u64..60) {
        let keys = requests(seed, 800, 120);
        let (mut cache, mut out) = (CachePolicy::<u64, OnePage>::new(room), Vec::new());
        let mut there = std::collections::BTreeSet::new();
        let expected: Vec<bool> = keys.iter().map(|key| {
            let was_there = there.contains(key);
            cache.touch(*key, Heat::Wanted, |_| was_there, &mut out);
            there.insert(*key);
            out.drain(..).for_each(|(key, _)| { there.remove(&key); });
            was_there
        }).collect();
        prop_assert_eq!(hits(Policy::S3Fifo, room, &keys), expected);
    }

    #[test]
    fn a_larger_lru_cache_has_every_page_of_a_smaller_one(seed: u64, room in 0u64..40, more in 0u64..40) {
        let keys = requests(seed, 600, 80);
        for (small, large) in hits(Policy::Lru, room, &keys).iter().zip(hits(Policy::Lru, room + more, &keys)) {
            prop_assert!(!small | large);
        }
    }

    #[test]
    fn promotion_makes_memory_and_flash_one_lru_list(seed: u64, ram in 1u64..30, flash in 0u64..30) {
        let keys = requests(seed, 600, 80);
        let settings = TierSettings { ram_pages: ram, flash_pages: flash, ..TierSettings::default() };
        let mut tiered = Tiered::new(settings);
        let any: Vec<bool> = keys.iter().map(|key| tiered.read(*key, 1, 0).missed == 0).collect();
        prop_assert_eq!(any, hits(Policy::Lru, ram + flash, &keys));
        if flash > 0 {
            // Every page that left memory was written, however much flash there is.
            let misses = hits(Policy::Lru, ram, &keys).iter().filter(|hit| !**hit).count() as u64;
            prop_assert_eq!(tiered.flash_pages_written(), misses - tiered.pages().0);
        }
    }

    #[test]
    fn without_writes_every_write_policy_is_the_same(seed: u64, ram in 0u64..30, flash in 0u64..30) {
        let keys = requests(seed, 400, 80);
        let run = |writes| {
            let settings = TierSettings { ram_pages: ram, flash_pages: flash, writes, ..TierSettings::default() };
            let mut tiered = Tiered::new(settings);
            keys.iter().map(|key| tiered.read(*key, 1, 0)).collect::<Vec<PagesFound>>()
        };
        prop_assert_eq!(run(Writes::Allocate), run(Writes::NoAllocate));
        prop_assert_eq!(run(Writes::Hinted), run(Writes::NoAllocate));
    }

    #[test]
    fn a_page_is_in_one_place_and_pages_are_conserved(
        seed: u64, ram in 0u64..60, flash in 0u64..60, keep: bool, policy in 0usize..5,
    ) {
        let policy = Policy::ALL[policy];
        let on_flash_hit = if keep { OnFlashHit::Keep } else { OnFlashHit::Promote };
        let settings = TierSettings {
            policy, ram_pages: ram, flash_pages: flash, on_flash_hit, writes: Writes::Hinted, ..TierSettings::default()
        };
        let (mut tiered, mut rng) = (Tiered::new(settings), Rng::new(seed));
        for _ in 0..600 {
            let (key, pages) = (rng.below(20), rng.next() as u16 | 1);
            if rng.chance(4) {
                tiered.write(key, pages, 0, rng.chance(2));
            } else {
                let found = tiered.read(key, pages, 0);
                prop_assert_eq!(found.ram | found.flash | found.missed, pages);
                prop_assert_eq!(found.ram & found.flash, 0);
                prop_assert_eq!((found.ram | found.flash) & found.missed, 0);
            }
            let (in_ram, in_flash) = tiered.pages();
            prop_assert!(in_ram <= ram && in_flash <= flash);
        }
    }
}

#[test]
fn pages_of_a_frame_come_one_by_one_and_leave_together() {
    let (mut cache, mut out) = (FrameCache::new(Policy::Lru, 4), Vec::new());
    assert_eq!(cache.request(7, 0b0011, 0, &mut out), 0);
    assert_eq!(cache.request(7, 0b0110, 0, &mut out), 0b0010);
    assert_eq!((cache.pages(), cache.pages_of(7)), (3, 0b0111));
    assert_eq!(cache.request(8, 0b11, 0, &mut out), 0);
    assert_eq!(out.iter().map(|out| (out.key, out.pages)).collect::<Vec<_>>(), [(7, 0b0111)]);
    assert_eq!(cache.take(8, 0b01), 0b01);
    assert_eq!(cache.pages(), 1);
}

#[test]
fn what_is_larger_than_all_of_the_room_passes_by() {
    let (mut cache, mut out) = (FrameCache::new(Policy::Sieve, 2), Vec::new());
    cache.request(1, 1, 0, &mut out);
    assert_eq!(cache.request(2, 0b111, 9, &mut out), 0);
    assert_eq!(out.len(), 1);
    assert_eq!((out[0].key, out[0].class, cache.pages_of(1)), (2, 9, 1));
}

#[test]
fn a_crash_empties_memory_and_not_flash() {
    let mut tiered = Tiered::new(TierSettings { ram_pages: 1, flash_pages: 4, ..TierSettings::default() });
    tiered.read(1, 1, 0);
    tiered.read(2, 1, 0);
    assert_eq!(
        tiered.moved(),
        [MovedPages { key: 1, pages: 1, from: TierPlace::Ram, to: TierPlace::Flash }],
        "what leaves memory goes to flash"
    );
    tiered.crash();
    assert_eq!(tiered.read(1, 1, 0).flash, 1);
    assert_eq!(tiered.read(2, 1, 0).missed, 1);
}

#[test]
fn a_hit_in_flash_moves_or_stays() {
    let run = |on_flash_hit| {
        let settings = TierSettings { ram_pages: 1, flash_pages: 4, on_flash_hit, ..TierSettings::default() };
        let mut tiered = Tiered::new(settings);
        for key in [1, 2, 1] {
            tiered.read(key, 1, 0);
        }
        (tiered.read(1, 1, 0), tiered.flash_pages_written())
    };
    assert_eq!(run(OnFlashHit::Promote), (PagesFound { ram: 1, flash: 0, missed: 0 }, 2));
    assert_eq!(run(OnFlashHit::Keep), (PagesFound { ram: 0, flash: 1, missed: 0 }, 1));
}

#[test]
fn writes_come_in_as_the_policy_says() {
    let found = |writes, hinted| {
        let mut tiered = Tiered::new(TierSettings { ram_pages: 8, writes, ..TierSettings::default() });
        tiered.write(1, 1, 0, hinted);
        tiered.read(1, 1, 0).ram
    };
    assert_eq!(found(Writes::Allocate, false), 1);
    assert_eq!(found(Writes::NoAllocate, true), 0);
    assert_eq!((found(Writes::Hinted, true), found(Writes::Hinted, false)), (1, 0));
    // What is there stays, and does not become the newest.
    let mut tiered = Tiered::new(TierSettings { ram_pages: 2, ..TierSettings::default() });
    for key in [1, 2] {
        tiered.read(key, 1, 0);
    }
    tiered.write(1, 1, 0, false);
    tiered.read(3, 1, 0);
    assert_eq!((tiered.read(2, 1, 0).ram, tiered.read(1, 1, 0).missed), (1, 1));
}

#[test]
fn flash_takes_what_its_admission_lets_in() {
    let written = |admission, class| {
        let settings = TierSettings { ram_pages: 1, flash_pages: 64, admission, ..TierSettings::default() };
        let mut tiered = Tiered::new(settings);
        for key in [1, 2, 3, 4, 1, 2, 3, 4, 1] {
            tiered.read(key, 1, class);
        }
        tiered.flash_pages_written()
    };
    assert_eq!(written(FlashAdmission::All, 20), 8);
    assert_eq!(written(FlashAdmission::SecondRequest, 20), 4);
    assert_eq!((written(FlashAdmission::ClassMax(20), 20), written(FlashAdmission::ClassMax(19), 20)), (8, 0));
    assert_eq!((written(FlashAdmission::OneIn(1), 20), written(FlashAdmission::OneIn(u32::MAX), 20)), (8, 0));
}
