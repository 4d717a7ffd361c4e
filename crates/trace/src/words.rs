//! Words beside events: names of paths, programs and their users.
//!
//! An event names its path by a hash: that of each name is made of the hash of the directory and the name, by SipHash
//! 2-4 with a key of the machine. So parents and siblings are known without names, and names cannot be tried without
//! the key. The words themselves lie in slots of their own and are left out where a trace is given away.
//!
//! A word fills consecutive slots of one block:
//!
//! | bytes of each slot | content |
//! |---|---|
//! | 0..8 | the word's hash |
//! | 8..12 | its length, bytes |
//! | 12; 13 | 251; [`WordKind`] |
//! | 14; 15 | number of this slot; count of slots |
//! | 16..24 | hash of the directory that a name lies in, or of an actor's program; 0 for others |
//! | 24..60 | up to 36 of its bytes |
//! | 60..64 | as in an event |

use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::event::{SLOT_WORDS, WORD_SLOT, seal};

/// Hash of the root directory.
pub const ROOT: u64 = 1;
/// Bytes of a word in a slot.
const PART_BYTES: usize = 36;
/// Longest word: longer ones are cut.
pub(crate) const WORD_BYTES_MAX: usize = 255;
/// Most slots of a word.
pub(crate) const WORD_SLOTS_MAX: usize = WORD_BYTES_MAX.div_ceil(PART_BYTES);

/// What a word is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum WordKind {
    /// A name in a directory.
    Name = 1,
    /// A user (`uid`, 4 bytes, little-endian) of the program that is its parent.
    Actor = 2,
    /// The number of a directory's inode, where a path began at it.
    Directory = 3,
    /// A program and its arguments.
    Program = 4,
}

/// A word of a trace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Word {
    /// What it is.
    pub kind: WordKind,
    /// Its hash: `path`, or in its lower half `actor`, of events.
    pub hash: u64,
    /// Hash of the directory that a name lies in, or of the program of an actor; 0 for others.
    pub parent: u64,
    /// Its bytes; of a longer one the first 255.
    pub bytes: Vec<u8>,
}

/// The key of hashes: two halves.
pub(crate) type HashKey = (u64, u64);

/// Hash of a name in a directory, or of another word beside `parent` 0. Never 0 or [`ROOT`].
pub(crate) fn hash_of(key: HashKey, parent: u64, word: &[u8]) -> u64 {
    let mut hasher = SipHasher24::new_with_keys(key.0, key.1);
    hasher.write_u64(parent);
    hasher.write(word);
    hasher.finish().max(ROOT + 1)
}

/// The names of a path.
pub(crate) fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".")
}

/// The slots of a word. Its bytes are cut at [`WORD_BYTES_MAX`].
pub(crate) fn encode(
    kind: WordKind,
    hash: u64,
    parent: u64,
    bytes: &[u8],
    lap: u16,
) -> impl Iterator<Item = [u64; SLOT_WORDS]> {
    let bytes = &bytes[..bytes.len().min(WORD_BYTES_MAX)];
    let count = bytes.len().div_ceil(PART_BYTES).max(1);
    (0..count).map(move |part| {
        let mut raw = [0; SLOT_WORDS * 8];
        raw[..8].copy_from_slice(&hash.to_le_bytes());
        raw[8..12].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        (raw[12], raw[13], raw[14], raw[15]) = (WORD_SLOT, kind as u8, part as u8, count as u8);
        raw[16..24].copy_from_slice(&parent.to_le_bytes());
        let piece = bytes.chunks(PART_BYTES).nth(part).unwrap_or_default();
        raw[24..24 + piece.len()].copy_from_slice(piece);
        let mut slot = [0; SLOT_WORDS];
        for (word, bytes) in slot.iter_mut().zip(raw.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        }
        seal(slot, lap)
    })
}

/// Puts a word together from its slots.
#[derive(Debug, Default)]
pub(crate) struct WordParts {
    begun: Option<(Word, usize, u8, u8)>,
}

impl WordParts {
    /// The next slot of a block; returns the word that it completes. A slot that does not continue the word before it
    /// drops that one.
    pub(crate) fn put(&mut self, slot: &[u64; SLOT_WORDS]) -> Option<Word> {
        let mut raw = [0; SLOT_WORDS * 8];
        for (bytes, word) in raw.chunks_exact_mut(8).zip(slot) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let (hash, parent, len) = (slot[0], slot[2], (slot[1] as u32 as usize).min(WORD_BYTES_MAX));
        let (part, count) = (raw[14], raw[15]);
        let kind = match raw[13] {
            1 => WordKind::Name,
            2 => WordKind::Actor,
            3 => WordKind::Directory,
            4 => WordKind::Program,
            _ => return None,
        };
        let begun = self.begun.take();
        let (mut word, len, count) = match begun {
            _ if part == 0 => (Word { kind, hash, parent, bytes: Vec::with_capacity(len) }, len, count),
            Some((word, len, next, count)) if next == part && word.hash == hash => (word, len, count),
            _ => return None,
        };
        let piece = (len - word.bytes.len()).min(PART_BYTES);
        word.bytes.extend_from_slice(&raw[24..24 + piece]);
        if part + 1 >= count {
            return (word.bytes.len() == len).then_some(word);
        }
        self.begun = Some((word, len, part + 1, count));
        None
    }

    /// The block ends, or a slot of another kind follows.
    pub(crate) fn drop_begun(&mut self) {
        self.begun = None;
    }
}
