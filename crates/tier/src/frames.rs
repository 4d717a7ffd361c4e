//! A cache of frames of 64 KiB, of which some pages of 4 KiB are there, under one of five policies.
//!
//! Guarantees: the same requests give the same decisions; the pages of all frames together never exceed the room.
//! Leaves to others: bytes, and what a key means. A caller that wants to decide about single pages gives each a key of
//! its own and the mask 1.
//!
//! # The algorithm
//! All entries lie in one arena of 32 bytes each, linked by index into lists whose newest end takes new entries; a
//! table of fingerprints beside it finds them. The policies differ in what a request moves and what leaves:
//!
//! | policy | a request for what is there | what leaves |
//! |---|---|---|
//! | [`Policy::Lru`] | moves it to the newest end | the oldest |
//! | [`Policy::Fifo`] | nothing | the oldest |
//! | [`Policy::Clock`] | marks it | the oldest without a mark; a marked one loses it and becomes the newest |
//! | [`Policy::Sieve`] | marks it | the hand goes from old to new, takes marks away, and removes the first without |
//! | [`Policy::S3Fifo`] | counts to 3 | see [`crate::CachePolicy`]: equal for entries of one size, which a test holds |
//!
//! # Source
//! SIEVE: Zhang, Yang, Yue, Vigfusson, Rashmi (NSDI'24), algorithm 1. S3-FIFO: Yang et al. (SOSP'23), algorithm 1.

use crate::slots::FrameSlots;

/// What decides which frame leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Policy {
    /// The least recently used one.
    #[default]
    Lru,
    /// The oldest one.
    Fifo,
    /// The oldest one without a mark, marked ones go round.
    Clock,
    /// The first one without a mark before a hand that never goes back.
    Sieve,
    /// Three queues: small, main, and ghosts of what left the small one.
    S3Fifo,
}

impl Policy {
    /// All of them.
    pub const ALL: &[Policy] = &[Policy::Lru, Policy::Fifo, Policy::Clock, Policy::Sieve, Policy::S3Fifo];

    /// Its word in options and tables.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Lru => "lru",
            Policy::Fifo => "fifo",
            Policy::Clock => "clock",
            Policy::Sieve => "sieve",
            Policy::S3Fifo => "s3-fifo",
        }
    }
}

/// Pages of a frame that left a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvictedPages {
    /// The frame.
    pub key: u64,
    /// A bit for each page.
    pub pages: u16,
    /// What the caller gave with the frame when it came in.
    pub class: u8,
}

/// Frames under a policy. Keys are chosen by the caller.
#[derive(Clone, Debug)]
pub struct FrameCache {
    policy: Policy,
    pages_max: u64,
    /// Pages of all frames in the first two lists.
    pages: u64,
    arena: Vec<FrameEntry>,
    table: FrameSlots,
    lists: [FrameList; LISTS],
    /// Entries of the arena that are free, linked by `older`.
    free: u32,
    /// SIEVE: the entry that is looked at next; `NONE` for the oldest.
    hand: u32,
}

/// 32 bytes, so that an entry is within one line of the processor's cache.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct FrameEntry {
    key: u64,
    newer: u32,
    older: u32,
    pages: u16,
    frequency: u8,
    list: u8,
    class: u8,
}

#[derive(Clone, Copy, Debug)]
struct FrameList {
    newest: u32,
    oldest: u32,
    pages: u64,
    count: u32,
}

impl FrameCache {
    /// An empty cache with room for `pages_max` pages.
    pub fn new(policy: Policy, pages_max: u64) -> FrameCache {
        FrameCache {
            policy,
            pages_max,
            pages: 0,
            arena: Vec::new(),
            table: FrameSlots::new(),
            lists: [FrameList::EMPTY; LISTS],
            free: NONE,
            hand: NONE,
        }
    }

    /// The pages `wanted` of `key` are asked for. Returns those that are there; the others come in, and what leaves for
    /// them goes to `out`: `wanted` itself, if it is more than all of the room. `class` is kept with a new frame.
    ///
    /// # Cost
    /// O(1) amortised; three to five lines of memory where the table is larger than the processor's caches.
    pub fn request(&mut self, key: u64, wanted: u16, class: u8, out: &mut Vec<EvictedPages>) -> u16 {
        let Some((slot, index)) = self.find(key) else {
            self.insert(key, wanted, class, MAIN_UNLESS_S3, out);
            return 0;
        };
        if self.entry(index).list == GHOST {
            self.unlink(index);
            self.release(slot, index);
            self.insert(key, wanted, class, MAIN, out);
            return 0;
        }
        let present = self.entry(index).pages & wanted;
        self.note(index, present == wanted);
        let missing = wanted & !present;
        if missing != 0 {
            self.extend(index, missing, out);
        }
        present
    }

    /// As [`FrameCache::request`], but what is missing does not come in.
    pub fn touch(&mut self, key: u64, wanted: u16) -> u16 {
        let Some((_, index)) = self.find(key).filter(|(_, index)| self.entry(*index).list != GHOST) else { return 0 };
        let present = self.entry(index).pages & wanted;
        if present != 0 {
            self.note(index, present == wanted);
        }
        present
    }

    /// Which pages of `key` are there. Asking does not count.
    pub fn pages_of(&self, key: u64) -> u16 {
        match self.find(key) {
            Some((_, index)) if self.entry(index).list != GHOST => self.entry(index).pages,
            _ => 0,
        }
    }

    /// Takes the pages `wanted` of `key` out. Returns those that were there.
    pub fn take(&mut self, key: u64, wanted: u16) -> u16 {
        let Some((slot, index)) = self.find(key).filter(|(_, index)| self.entry(*index).list != GHOST) else {
            return 0;
        };
        let taken = self.entry(index).pages & wanted;
        if self.entry(index).pages == taken {
            self.unlink(index);
            self.release(slot, index);
        } else {
            let count = u64::from(taken.count_ones());
            let entry = &mut self.arena[index as usize];
            entry.pages &= !taken;
            self.lists[usize::from(entry.list)].pages -= count;
            self.pages -= count;
        }
        taken
    }

    /// Changes the room. What does not fit any more goes to `out`.
    pub fn resize(&mut self, pages_max: u64, out: &mut Vec<EvictedPages>) {
        self.pages_max = pages_max;
        self.make_room(0, out);
    }

    /// Forgets everything, as a memory without current does.
    pub fn clear(&mut self) {
        *self = FrameCache::new(self.policy, self.pages_max);
    }

    /// Reads the lines of memory that requests for `keys` will need, all at once instead of one after another.
    ///
    /// # Cost
    /// For 16 keys about the time of one miss of the processor's cache. Decisions are the same without it.
    #[inline]
    pub fn warm(&self, keys: &[u64]) {
        let mut indices = [0u32; WARMED_MAX];
        for (index, key) in indices.iter_mut().zip(keys) {
            *index = self.table.glance(*key);
        }
        let mut sum = 0u64;
        for index in indices.iter().filter(|index| **index != 0) {
            sum ^= self.arena[*index as usize - 1].key;
        }
        std::hint::black_box(sum);
    }

    /// Room in pages.
    pub fn pages_max(&self) -> u64 {
        self.pages_max
    }

    /// Pages that are there.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Bytes that the cache itself takes.
    pub fn bytes(&self) -> u64 {
        self.table.bytes() + self.arena.len() as u64 * size_of::<FrameEntry>() as u64
    }

    fn entry(&self, index: u32) -> &FrameEntry {
        &self.arena[index as usize]
    }

    #[inline]
    fn find(&self, key: u64) -> Option<(usize, u32)> {
        self.table.find(key, |index| self.arena[index as usize].key == key)
    }

    /// A request found the frame; `whole` if every page of it was there.
    fn note(&mut self, index: u32, whole: bool) {
        match self.policy {
            Policy::Lru => self.renew(index),
            Policy::Fifo => {}
            Policy::Clock | Policy::Sieve => self.arena[index as usize].frequency = 1,
            Policy::S3Fifo => {
                let entry = &mut self.arena[index as usize];
                entry.frequency = (entry.frequency + u8::from(whole)).min(FREQUENCY_MAX);
            }
        }
    }

    fn insert(&mut self, key: u64, pages: u16, class: u8, list: u8, out: &mut Vec<EvictedPages>) {
        let count = u64::from(pages.count_ones());
        if count > self.pages_max {
            out.push(EvictedPages { key, pages, class });
            return;
        }
        let is_s3 = self.policy == Policy::S3Fifo;
        if !is_s3 {
            // SIEVE's hand may stand at the newest entry: it must not find the one that room is made for.
            self.make_room(count, out);
        }
        let list = if is_s3 && list == MAIN_UNLESS_S3 { SMALL } else { MAIN };
        let entry = FrameEntry { key, newer: NONE, older: NONE, pages, frequency: 0, list, class };
        let index = match self.free {
            NONE => {
                self.arena.push(entry);
                u32::try_from(self.arena.len() - 1).expect("a table of 2^31 slots grows no further")
            }
            index => {
                self.free = self.entry(index).older;
                self.arena[index as usize] = entry;
                index
            }
        };
        self.table.insert(key, index);
        self.link(index, list);
        if is_s3 {
            self.make_room(0, out);
        }
    }

    /// The pages `missing` come into a frame that is there.
    fn extend(&mut self, index: u32, missing: u16, out: &mut Vec<EvictedPages>) {
        let (count, key, class) = (u64::from(missing.count_ones()), self.entry(index).key, self.entry(index).class);
        self.make_room(count, out);
        // It may have left itself to make room.
        let entry = &mut self.arena[index as usize];
        if entry.key != key || entry.list >= GHOST {
            out.push(EvictedPages { key, pages: missing, class });
            return;
        }
        entry.pages |= missing;
        self.lists[usize::from(entry.list)].pages += count;
        self.pages += count;
    }

    fn make_room(&mut self, count: u64, out: &mut Vec<EvictedPages>) {
        while self.pages + count > self.pages_max && self.pages > 0 {
            match self.policy {
                Policy::Lru | Policy::Fifo => self.evict(self.lists[usize::from(MAIN)].oldest, out),
                Policy::Clock => {
                    let oldest = self.lists[usize::from(MAIN)].oldest;
                    match std::mem::take(&mut self.arena[oldest as usize].frequency) {
                        0 => self.evict(oldest, out),
                        _ => self.renew(oldest),
                    }
                }
                Policy::Sieve => self.sweep(out),
                Policy::S3Fifo => self.shrink(out),
            }
        }
    }

    fn sweep(&mut self, out: &mut Vec<EvictedPages>) {
        let at = if self.hand == NONE { self.lists[usize::from(MAIN)].oldest } else { self.hand };
        let entry = &mut self.arena[at as usize];
        self.hand = entry.newer;
        if std::mem::take(&mut entry.frequency) == 0 {
            self.evict(at, out);
        }
    }

    fn shrink(&mut self, out: &mut Vec<EvictedPages>) {
        let (main, small) = (self.lists[usize::from(MAIN)], self.lists[usize::from(SMALL)]);
        if main.count == 0 || small.pages > self.pages_max / SMALL_PART {
            let oldest = small.oldest;
            if self.entry(oldest).frequency < FREQUENCY_TO_STAY {
                self.retire(oldest, out);
                return;
            }
            self.unlink(oldest);
            self.arena[oldest as usize].frequency = 0;
            self.link(oldest, MAIN);
        } else if self.entry(main.oldest).frequency > 0 {
            self.arena[main.oldest as usize].frequency -= 1;
            self.renew(main.oldest);
        } else {
            self.evict(main.oldest, out);
        }
    }

    /// Its pages leave, its key is remembered.
    fn retire(&mut self, index: u32, out: &mut Vec<EvictedPages>) {
        let FrameEntry { key, pages, class, .. } = *self.entry(index);
        out.push(EvictedPages { key, pages, class });
        self.unlink(index);
        self.link(index, GHOST);
        while self.lists[usize::from(GHOST)].pages > self.pages_max {
            let oldest = self.lists[usize::from(GHOST)].oldest;
            let (slot, _) = self.find(self.entry(oldest).key).expect("an entry in a list is in the table");
            self.unlink(oldest);
            self.release(slot, oldest);
        }
    }

    fn evict(&mut self, index: u32, out: &mut Vec<EvictedPages>) {
        let FrameEntry { key, pages, class, .. } = *self.entry(index);
        out.push(EvictedPages { key, pages, class });
        let (slot, _) = self.find(key).expect("an entry in a list is in the table");
        self.unlink(index);
        self.release(slot, index);
    }

    /// Moves an entry to the newest end of its list.
    fn renew(&mut self, index: u32) {
        let list = self.entry(index).list;
        if self.lists[usize::from(list)].newest != index {
            self.unlink(index);
            self.link(index, list);
        }
    }

    fn link(&mut self, index: u32, list: u8) {
        let ends = &mut self.lists[usize::from(list)];
        let older = std::mem::replace(&mut ends.newest, index);
        let entry = &mut self.arena[index as usize];
        (entry.older, entry.newer, entry.list) = (older, NONE, list);
        let count = u64::from(entry.pages.count_ones());
        (ends.pages, ends.count) = (ends.pages + count, ends.count + 1);
        if list != GHOST {
            self.pages += count;
        }
        match older {
            NONE => self.lists[usize::from(list)].oldest = index,
            older => self.arena[older as usize].newer = index,
        }
    }

    fn unlink(&mut self, index: u32) {
        let FrameEntry { newer, older, pages, list, .. } = *self.entry(index);
        if self.hand == index {
            self.hand = newer;
        }
        let ends = &mut self.lists[usize::from(list)];
        let count = u64::from(pages.count_ones());
        (ends.pages, ends.count) = (ends.pages - count, ends.count - 1);
        if list != GHOST {
            self.pages -= count;
        }
        match newer {
            NONE => ends.newest = older,
            newer => self.arena[newer as usize].older = older,
        }
        match older {
            NONE => self.lists[usize::from(list)].oldest = newer,
            older => self.arena[older as usize].newer = newer,
        }
    }

    /// Gives an entry that is in no list back to the arena.
    fn release(&mut self, slot: usize, index: u32) {
        self.table.remove(slot);
        let entry = &mut self.arena[index as usize];
        (entry.list, entry.older) = (FREE, self.free);
        self.free = index;
    }
}

impl FrameList {
    const EMPTY: FrameList = FrameList { newest: NONE, oldest: NONE, pages: 0, count: 0 };
}

/// No entry.
const NONE: u32 = u32::MAX;
/// The list of every policy, and the main queue of S3-FIFO.
const MAIN: u8 = 0;
const SMALL: u8 = 1;
const GHOST: u8 = 2;
/// Not in a list.
const FREE: u8 = 3;
const LISTS: usize = 3;
/// Where a frame goes that no ghost remembers.
const MAIN_UNLESS_S3: u8 = 1;
/// As in [`crate::CachePolicy`]: a tenth for the small queue, two bits of frequency, stay from the third request on.
const SMALL_PART: u64 = 10;
const FREQUENCY_MAX: u8 = 3;
const FREQUENCY_TO_STAY: u8 = 2;
/// Keys that [`FrameCache::warm`] looks at: as many misses as a core has under way at once, and some.
const WARMED_MAX: usize = 16;
