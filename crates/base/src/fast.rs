//! Maps with a fixed, fast hasher, for places where the order of iteration is never seen.

#![expect(clippy::disallowed_types, reason = "this is the one place that names the standard map, with a fixed hasher")]

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A hash map whose hasher is fixed: the same program run twice does the same.
pub type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<FixedHasher>>;
/// A hash set with the same hasher.
pub type FastSet<K> = HashSet<K, BuildHasherDefault<FixedHasher>>;

/// Multiply-and-rotate hasher for small integer keys that an outsider does not choose freely (ids that frieze hands
/// out).
#[derive(Clone, Copy, Debug, Default)]
pub struct FixedHasher(u64);

// 2^64 / golden ratio, odd: spreads consecutive integers over the high bits (Knuth, TAOCP 6.4).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

impl FixedHasher {
    fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(SPREAD);
    }
}

impl Hasher for FixedHasher {
    fn write(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(8) {
            let mut word = [0u8; 8];
            word[..piece.len()].copy_from_slice(piece);
            self.mix(u64::from_le_bytes(word));
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.mix(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.mix(value);
    }

    fn finish(&self) -> u64 {
        // The table takes low bits for the bucket and high bits for the tag: bring the good high bits down too.
        self.0 ^ (self.0 >> 32)
    }
}
