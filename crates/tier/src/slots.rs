//! Where the entry of a key lies in an arena: a hash table of fingerprints and indices, without the keys.
//!
//! A slot is 8 bytes: the upper 32 bits of the key's hash, and the index plus one. The home of a slot follows from the
//! fingerprint alone, so that growth and removal never read the arena. Linear probing, removal by shifting back.

/// The table. The arena keeps the keys; `is_key` compares the key at an index.
#[derive(Clone, Debug)]
pub(crate) struct FrameSlots {
    slots: Vec<u64>,
    bits: u32,
    used: usize,
}

impl FrameSlots {
    /// A table without keys.
    pub(crate) fn new() -> FrameSlots {
        FrameSlots { slots: vec![0; 1 << BITS_MIN], bits: BITS_MIN, used: 0 }
    }

    /// The slot of `key` and its index.
    #[inline]
    pub(crate) fn find(&self, key: u64, is_key: impl Fn(u32) -> bool) -> Option<(usize, u32)> {
        let print = fingerprint(key);
        let mut at = self.home(print);
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                return None;
            }
            let index = (slot as u32) - 1;
            if (slot >> 32) as u32 == print && is_key(index) {
                return Some((at, index));
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    /// Adds a key that is not there.
    pub(crate) fn insert(&mut self, key: u64, index: u32) {
        // Below 5/8 of the slots a miss looks at 4 slots on average, half a line of the processor's cache.
        if (self.used + 1) * 8 > self.slots.len() * 5 {
            self.grow();
        }
        self.place(u64::from(fingerprint(key)) << 32 | (u64::from(index) + 1));
        self.used += 1;
    }

    /// Removes what lies in the slot `at`.
    pub(crate) fn remove(&mut self, at: usize) {
        let wrap = self.slots.len() - 1;
        let (mut hole, mut next) = (at, (at + 1) & wrap);
        while self.slots[next] != 0 {
            let home = self.home((self.slots[next] >> 32) as u32);
            // It may move into the hole if the hole lies on its way from home.
            if next.wrapping_sub(home) & wrap >= next.wrapping_sub(hole) & wrap {
                self.slots[hole] = self.slots[next];
                hole = next;
            }
            next = (next + 1) & wrap;
        }
        self.slots[hole] = 0;
        self.used -= 1;
    }

    /// Reads the home slot of `key` without waiting for it: the index that lies there plus one, or 0.
    #[inline]
    pub(crate) fn glance(&self, key: u64) -> u32 {
        self.slots[self.home(fingerprint(key))] as u32
    }

    /// Bytes of the table.
    pub(crate) fn bytes(&self) -> u64 {
        self.slots.len() as u64 * 8
    }

    fn home(&self, print: u32) -> usize {
        (print >> (32 - self.bits)) as usize
    }

    fn place(&mut self, slot: u64) {
        let mut at = self.home((slot >> 32) as u32);
        while self.slots[at] != 0 {
            at = (at + 1) & (self.slots.len() - 1);
        }
        self.slots[at] = slot;
    }

    fn grow(&mut self) {
        assert!(self.bits < 31, "2^31 slots hold all that an index of 32 bits can name");
        self.bits += 1;
        let old = std::mem::replace(&mut self.slots, vec![0; 1 << self.bits]);
        for slot in old.into_iter().filter(|slot| *slot != 0) {
            self.place(slot);
        }
    }
}

#[inline]
fn fingerprint(key: u64) -> u32 {
    // 2^64 / golden ratio, odd (Knuth, TAOCP 6.4). Files in the upper half of a key are folded into the lower one.
    ((key ^ (key >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

const BITS_MIN: u32 = 8;
