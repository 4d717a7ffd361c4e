//! Reads a ring, in use or left by a process that has ended.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use frieze_base::PATH_BYTES_MAX;
use frieze_hlc::Hlc;

use crate::TraceError;
use crate::error::RING_BYTES_MAX;
use crate::event::{Event, SECOND_SLOT, SLOT_WORDS, WORD_SLOT, kind_of, lap_of};
use crate::kinds::CallKind;
use crate::recorder::lap_of_block;
use crate::ring::{
    BLOCK_BYTES, BLOCK_SLOTS, BLOCKS_WORD, CLAIMED_WORD, CLOCK_READINGS, FORMAT_WORD, HEADER_WORDS, KEY_WORD, MAGIC,
    PROCESS_WORD, PROGRAM_BYTES_MAX, PROGRAM_WORDS, READING_WORDS, READINGS_WORD, VERSION, slot_word,
};
use crate::words::{ROOT, Word, WordKind, WordParts};

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

/// Reads the ring in a file.
///
/// # Errors
/// `System`; `Foreign` for a file that is no ring, is cut, or has a newer version.
pub fn read_ring(path: &Path) -> Result<RingContent, TraceError> {
    let system = |error| TraceError::System { what: "read", path: path.to_owned(), error };
    let foreign = |why| TraceError::Foreign { path: PathBuf::from(path), why };
    let len = std::fs::metadata(path).map_err(system)?.len();
    if len > RING_BYTES_MAX + HEADER_WORDS as u64 * 8 {
        return Err(foreign(format!("it has {len} bytes, and the largest ring {RING_BYTES_MAX}")));
    }
    decode_ring(&std::fs::read(path).map_err(system)?).map_err(foreign)
}

/// Reads the bytes of a ring, or says what is wrong with them.
pub(crate) fn decode_ring(bytes: &[u8]) -> Result<RingContent, String> {
    let word_at = |at: usize| match bytes.get(at * 8..at * 8 + 8) {
        Some(bytes) => u64::from_le_bytes(bytes.try_into().unwrap_or_default()),
        None => 0,
    };
    if bytes.len() < HEADER_WORDS * 8 || word_at(0) != MAGIC {
        return Err("it does not begin as one".to_owned());
    }
    let (version, block_slots) = (word_at(FORMAT_WORD) as u32, word_at(FORMAT_WORD) >> 32);
    if version != VERSION || block_slots != BLOCK_SLOTS {
        return Err(format!("version {version} with blocks of {block_slots} slots, not {VERSION} and {BLOCK_SLOTS}"));
    }
    let (blocks, claimed) = (word_at(BLOCKS_WORD), word_at(CLAIMED_WORD));
    let has_room = blocks.checked_mul(BLOCK_BYTES).and_then(|body| body.checked_add(HEADER_WORDS as u64 * 8));
    if blocks == 0 || has_room.is_none_or(|len| len > bytes.len() as u64) {
        return Err(format!("its header names {blocks} blocks, and its {} bytes have fewer", bytes.len()));
    }
    let program: Vec<u8> = (PROGRAM_WORDS + 1..HEADER_WORDS).flat_map(|at| word_at(at).to_le_bytes()).collect();
    let program_len = (word_at(PROGRAM_WORDS) as usize).min(PROGRAM_BYTES_MAX);
    let mut content = RingContent {
        program: String::from_utf8_lossy(&program[..program_len]).into_owned(),
        process: word_at(PROCESS_WORD) as u32,
        key: word_at(KEY_WORD),
        overwritten: claimed.saturating_sub(blocks).saturating_mul(BLOCK_SLOTS),
        clocks: read_clocks(&word_at),
        ..RingContent::default()
    };
    for block in claimed.saturating_sub(blocks)..claimed {
        let (place, lap) = (block % blocks, lap_of_block(block, blocks));
        let (mut parts, mut wants_second) = (WordParts::default(), false);
        for slot in place * BLOCK_SLOTS..(place + 1) * BLOCK_SLOTS {
            let mut words = [0; SLOT_WORDS];
            words.iter_mut().enumerate().for_each(|(index, word)| *word = word_at(slot_word(slot) + index));
            let is_word = content.put(&words, lap, &mut parts, &mut wants_second);
            if !is_word {
                parts.drop_begun();
            }
        }
    }
    content.events.sort_by_key(|event| event.start_ns);
    content.words.sort();
    content.words.dedup();
    Ok(content)
}

fn read_clocks(word_at: &impl Fn(usize) -> u64) -> Vec<(u64, i64, Hlc)> {
    let count = word_at(READINGS_WORD);
    let reading = |number: u64| {
        let at = READING_WORDS + (number % CLOCK_READINGS) as usize * 3;
        (word_at(at), word_at(at + 1) as i64, Hlc(word_at(at + 2)))
    };
    (count.saturating_sub(CLOCK_READINGS)..count).map(reading).collect()
}

impl RingContent {
    /// Takes a slot of a block that was written in `lap`. True if it is part of a word. `wants_second`: the slot before
    /// was an event that has two.
    fn put(&mut self, slot: &[u64; SLOT_WORDS], lap: u16, parts: &mut WordParts, wants_second: &mut bool) -> bool {
        let is_second = std::mem::take(wants_second);
        let Some(found) = lap_of(slot) else {
            self.torn += u64::from(slot.iter().any(|word| *word != 0));
            return false;
        };
        if found != lap {
            // Its thread has not filled the block: the slot is one of an earlier lap.
            return false;
        }
        if kind_of(slot) == WORD_SLOT {
            self.words.extend(parts.put(slot));
            return true;
        }
        match (kind_of(slot), self.events.last_mut()) {
            (SECOND_SLOT, Some(event)) if is_second => event.extend(slot),
            // Its first slot is torn.
            (SECOND_SLOT, _) => self.torn += 1,
            _ => match Event::decode(slot) {
                Some((event, has_second)) => {
                    self.events.push(event);
                    *wants_second = has_second;
                }
                None => self.unknown += 1,
            },
        }
        false
    }

    /// Names and directories by their hashes, for [`PathIndex::path_of`].
    pub fn paths(&self) -> PathIndex<'_> {
        let named = self.words.iter().filter(|word| word.kind != WordKind::Actor);
        let at_names = |call| matches!(call, CallKind::Mkdir | CallKind::Lookup | CallKind::Stat);
        let found = self.events.iter().filter(|event| at_names(event.call) && event.path != 0 && event.result == 0);
        PathIndex {
            words: named.map(|word| (word.hash, word)).collect(),
            directories: found.map(|event| (event.inode, event.path)).collect(),
        }
    }
}

/// The paths of a trace.
#[derive(Debug)]
pub struct PathIndex<'a> {
    words: BTreeMap<u64, &'a Word>,
    /// Paths of inodes that were made or looked up.
    directories: BTreeMap<u64, u64>,
}

impl PathIndex<'_> {
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
