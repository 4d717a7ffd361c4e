//! What a ring holds, and the paths that its words name.

use std::collections::BTreeMap;

use frieze_base::PATH_BYTES_MAX;
use frieze_hlc::Hlc;

use crate::event::Event;
use crate::kinds::CallKind;
use crate::words::{ROOT, Word, WordKind};

/// What a ring holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingContent {
    /// The program that was recorded.
    pub program: String,
    /// Its process.
    pub process: u32,
    /// Fingerprint of the key of hashes: rings with the same one have the same hash for the same path.
    pub key: u64,
    /// Events, by their start.
    pub events: Vec<Event>,
    /// Words, by kind and hash, each once.
    pub words: Vec<Word>,
    /// Slots that were written and then written over by a later lap of the ring, at most: blocks may not have been
    /// full.
    pub overwritten: u64,
    /// Slots that were being written when the ring was read or its process ended, or that are damaged.
    pub torn: u64,
    /// Slots of kinds that this version does not know.
    pub unknown: u64,
    /// Readings of both clocks, oldest first: ns of the monotonic clock, ns since 1970, newest stamp.
    pub clocks: Vec<(u64, i64, Hlc)>,
}

impl RingContent {
    /// Names and directories by their hashes, for [`PathIndex::path_of`].
    pub fn paths(&self) -> PathIndex {
        let mut paths = PathIndex::default();
        paths.add(self);
        paths
    }
}

/// Names and directories that a [`PathIndex`] has at most: some 200 MiB.
const NAMES_MAX: usize = 1 << 20;

/// The paths of a trace.
#[derive(Debug, Default)]
pub struct PathIndex {
    words: BTreeMap<u64, Word>,
    /// Paths of inodes that were made or looked up.
    directories: BTreeMap<u64, u64>,
    left_out: u64,
}

impl PathIndex {
    /// Adds what a ring says. Beyond a million names further ones are left out.
    pub fn add(&mut self, ring: &RingContent) {
        for word in ring.words.iter().filter(|word| word.kind != WordKind::Actor) {
            match self.words.len() < NAMES_MAX || self.words.contains_key(&word.hash) {
                true => drop(self.words.insert(word.hash, word.clone())),
                false => self.left_out += 1,
            }
        }
        let at_names = |call| matches!(call, CallKind::Mkdir | CallKind::Lookup | CallKind::Stat);
        for event in ring.events.iter().filter(|event| at_names(event.call) && event.path != 0 && event.result == 0) {
            if self.directories.len() < NAMES_MAX || self.directories.contains_key(&event.inode) {
                self.directories.insert(event.inode, event.path);
            }
        }
    }

    /// Words that found no room; one may be counted each time it was met.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The words, by hash.
    pub fn words(&self) -> impl Iterator<Item = &Word> {
        self.words.values()
    }

    /// The word of a hash.
    pub fn word(&self, hash: u64) -> Option<&Word> {
        self.words.get(&hash)
    }

    /// The path with this hash; one that was called from a directory of which the ring has no path begins with `inode`
    /// and its number. `None` unless all of its names are in the ring.
    pub fn path_of(&self, hash: u64) -> Option<Vec<u8>> {
        let (mut names, mut at, mut path, mut steps) = (Vec::new(), hash, Vec::new(), 0);
        while at != ROOT {
            let word = self.words.get(&at)?;
            if word.kind == WordKind::Directory {
                let number = u64::from_le_bytes(word.bytes.as_slice().try_into().ok()?);
                match self.directories.get(&number) {
                    Some(directory) => at = *directory,
                    None => {
                        path.extend_from_slice(format!("inode {number}").as_bytes());
                        break;
                    }
                }
            } else {
                names.push(&word.bytes);
                at = word.parent;
            }
            // Hashes that a foreign file made to form a ring.
            steps += 1;
            if steps > 2 * PATH_BYTES_MAX {
                return None;
            }
        }
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        if path.is_empty() {
            path.push(b'/');
        }
        Some(path)
    }
}
