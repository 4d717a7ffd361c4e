//! Reads a ring piece by piece: what is new since the last time, in the process that records or from the file.
//!
//! Guarantees: every event is given once, and is whole; an event that a small call behind it may still join is given
//! later; what was written over before it was read is counted. Leaves to others: where the pieces go.
//!
//! # How
//! A thread fills one block after the other, and blocks of several threads fill beside each other. So the place of a
//! reader is the first block that was not claimed yet, and for each earlier block that its thread has not filled how
//! many of its slots were read. A block is complete if it is full or has an end, or if its thread has rested while most
//! of the ring went around: then the thread claims another one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use frieze_hlc::Hlc;

use crate::error::RING_BYTES_MAX;
use crate::event::{END_SLOT, Event, SECOND_SLOT, SLOT_WORDS, WORD_SLOT, kind_of, lap_of};
use crate::reader::RingContent;
use crate::recorder::{is_left, lap_of_block};
use crate::ring::{
    BLOCK_BYTES, BLOCK_SLOTS, BLOCKS_WORD, CLAIMED_WORD, CLOCK_READINGS, FORMAT_WORD, HEADER_WORDS, KEY_WORD, MAGIC,
    PROCESS_WORD, PROGRAM_BYTES_MAX, PROGRAM_WORDS, READING_WORDS, READINGS_WORD, START_WORD, VERSION, slot_word,
};
use crate::words::WordParts;
use crate::{Recorder, TraceError};

/// How far a ring was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingPlace {
    /// Blocks that were claimed when it was read.
    pub claimed: u64,
    /// For each earlier block that may still grow: slots of it that were read.
    pub growing: BTreeMap<u64, u8>,
    /// Readings of the clocks that were read.
    pub readings: u64,
}

/// Reads a ring, and goes on where it stopped.
#[derive(Debug)]
pub struct RingFollower {
    source: RingSource,
    header: RingHeader,
    place: RingPlace,
}

/// Where the words of a ring come from.
#[derive(Debug)]
enum RingSource {
    Recorder(Recorder),
    Bytes(Vec<u8>),
}

/// What does not change in a ring.
#[derive(Clone, Debug)]
struct RingHeader {
    blocks: u64,
    started: u64,
    program: String,
    process: u32,
    key: u64,
}

/// What is known of a slot.
enum FoundSlot {
    /// Written in the lap of its block.
    Whole([u64; SLOT_WORDS]),
    /// Not written in this lap, or not yet.
    Empty,
    /// Being written, or damaged.
    Torn,
    /// Written in a later lap.
    Overwritten,
}

impl RingSource {
    fn word(&self, at: usize) -> u64 {
        match self {
            RingSource::Recorder(recorder) => recorder.words().get(at).map_or(0, |word| word.load(Ordering::Acquire)),
            RingSource::Bytes(bytes) => match bytes.get(at * 8..at * 8 + 8) {
                Some(bytes) => u64::from_le_bytes(bytes.try_into().unwrap_or_default()),
                None => 0,
            },
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            RingSource::Recorder(recorder) => recorder.words().len() as u64 * 8,
            RingSource::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// The slot of a block: `lap` is the block's.
    fn slot(&self, at: u64, lap: u16) -> FoundSlot {
        let mut words = [0; SLOT_WORDS];
        words.iter_mut().enumerate().for_each(|(index, word)| *word = self.word(slot_word(at) + index));
        match lap_of(&words) {
            None if words.iter().all(|word| *word == 0) => FoundSlot::Empty,
            None => FoundSlot::Torn,
            Some(found) if found == lap => FoundSlot::Whole(words),
            // Laps are counted in 16 bits.
            Some(found) if found.wrapping_sub(lap) < u16::MAX / 2 => FoundSlot::Overwritten,
            Some(_) => FoundSlot::Empty,
        }
    }
}

impl RingHeader {
    fn read(source: &RingSource) -> Result<RingHeader, String> {
        if source.bytes() < HEADER_WORDS as u64 * 8 || source.word(0) != MAGIC {
            return Err("it does not begin as one".to_owned());
        }
        let (version, block_slots) = (source.word(FORMAT_WORD) as u32, source.word(FORMAT_WORD) >> 32);
        if version != VERSION || block_slots != BLOCK_SLOTS {
            return Err(format!(
                "version {version} with blocks of {block_slots} slots, not {VERSION} and {BLOCK_SLOTS}"
            ));
        }
        let blocks = source.word(BLOCKS_WORD);
        let has_room = blocks.checked_mul(BLOCK_BYTES).and_then(|body| body.checked_add(HEADER_WORDS as u64 * 8));
        if blocks == 0 || has_room.is_none_or(|len| len > source.bytes()) {
            return Err(format!("its header names {blocks} blocks, and its {} bytes have fewer", source.bytes()));
        }
        let program: Vec<u8> = (PROGRAM_WORDS + 1..HEADER_WORDS).flat_map(|at| source.word(at).to_le_bytes()).collect();
        let program_len = (source.word(PROGRAM_WORDS) as usize).min(PROGRAM_BYTES_MAX);
        Ok(RingHeader {
            blocks,
            started: source.word(START_WORD),
            program: String::from_utf8_lossy(&program[..program_len]).into_owned(),
            process: source.word(PROCESS_WORD) as u32,
            key: source.word(KEY_WORD),
        })
    }
}

impl RingFollower {
    /// Follows the ring of this process.
    ///
    /// # Errors
    /// None but those of [`RingFollower::open`], for a ring that another program has damaged.
    pub fn of(recorder: &Recorder) -> Result<RingFollower, TraceError> {
        let foreign = |why| TraceError::Foreign { path: recorder.path().to_owned(), why };
        RingFollower::over(RingSource::Recorder(recorder.clone()), RingPlace::default()).map_err(foreign)
    }

    /// Reads a file as it is now, from a place on that an earlier reader of the same ring returned.
    ///
    /// # Errors
    /// `System`; `Foreign` for a file that is no ring, is cut, or has a newer version.
    pub fn open(path: &Path, place: RingPlace) -> Result<RingFollower, TraceError> {
        let system = |error| TraceError::System { what: "read", path: path.to_owned(), error };
        let foreign = |why| TraceError::Foreign { path: PathBuf::from(path), why };
        let found = std::fs::metadata(path).map_err(system)?;
        if !found.is_file() {
            return Err(foreign("it is no file".to_owned()));
        }
        let len = found.len();
        if len > RING_BYTES_MAX + HEADER_WORDS as u64 * 8 {
            return Err(foreign(format!("it has {len} bytes, and the largest ring {RING_BYTES_MAX}")));
        }
        let bytes = std::fs::read(path).map_err(system)?;
        RingFollower::over(RingSource::Bytes(bytes), place).map_err(foreign)
    }

    #[cfg(test)]
    pub(crate) fn of_bytes(bytes: &[u8]) -> Result<RingFollower, String> {
        RingFollower::over(RingSource::Bytes(bytes.to_vec()), RingPlace::default())
    }

    fn over(source: RingSource, place: RingPlace) -> Result<RingFollower, String> {
        let header = RingHeader::read(&source)?;
        Ok(RingFollower { source, header, place })
    }

    /// How far the ring was read.
    pub fn place(&self) -> &RingPlace {
        &self.place
    }

    /// The monotonic clock when the ring was made, ns: with the process it tells rings of one path apart.
    pub fn started(&self) -> u64 {
        self.header.started
    }

    /// The process that records.
    pub fn process(&self) -> u32 {
        self.header.process
    }

    /// Fingerprint of the key of hashes.
    pub fn key(&self) -> u64 {
        self.header.key
    }

    /// Blocks that were claimed since the last reading, of all that the ring has.
    pub fn ahead(&self) -> (u64, u64) {
        (self.source.word(CLAIMED_WORD).saturating_sub(self.place.claimed), self.header.blocks)
    }

    /// What is new and will not change.
    pub fn read(&mut self) -> RingContent {
        self.read_blocks(false)
    }

    /// All that is new: the process has ended, or nothing is recorded any more.
    pub fn read_to_end(&mut self) -> RingContent {
        self.read_blocks(true)
    }

    fn read_blocks(&mut self, is_end: bool) -> RingContent {
        let (blocks, claimed) = (self.header.blocks, self.source.word(CLAIMED_WORD));
        let mut content = RingContent {
            program: self.header.program.clone(),
            process: self.header.process,
            key: self.header.key,
            clocks: self.read_clocks(),
            ..RingContent::default()
        };
        let oldest = claimed.saturating_sub(blocks);
        let from = self.place.claimed.max(oldest);
        content.overwritten = from.saturating_sub(self.place.claimed).saturating_mul(BLOCK_SLOTS);
        let growing = std::mem::take(&mut self.place.growing);
        for (block, read) in growing.into_iter().chain((from..claimed).map(|block| (block, 0))) {
            if block < oldest {
                // How many of its slots had an event is not known any more.
                let unread = BLOCK_SLOTS.saturating_sub(read.into());
                content.overwritten = content.overwritten.saturating_add(unread);
                continue;
            }
            let is_complete = is_end || is_left(block, claimed, blocks);
            let mut reading = BlockReading { source: &self.source, content: &mut content, blocks, block, is_complete };
            if let Some(read) = reading.read_from(read) {
                self.place.growing.insert(block, read);
            }
        }
        self.place.claimed = claimed.max(self.place.claimed);
        content.events.sort_by_key(|event| event.start_ns);
        content.words.sort();
        content.words.dedup();
        content
    }

    /// The new readings of both clocks, behind the last one that was read before.
    fn read_clocks(&mut self) -> Vec<(u64, i64, Hlc)> {
        let count = self.source.word(READINGS_WORD);
        let reading = |number: u64| {
            let at = READING_WORDS + (number % CLOCK_READINGS) as usize * 3;
            (self.source.word(at), self.source.word(at + 1) as i64, Hlc(self.source.word(at + 2)))
        };
        let from = count.saturating_sub(CLOCK_READINGS).max(self.place.readings.saturating_sub(1));
        let new = if count > self.place.readings { (from..count).map(reading).collect() } else { Vec::new() };
        self.place.readings = count;
        new
    }
}

/// Reads the ring in a file.
///
/// # Errors
/// `System`; `Foreign` for a file that is no ring, is cut, or has a newer version.
pub fn read_ring(path: &Path) -> Result<RingContent, TraceError> {
    Ok(RingFollower::open(path, RingPlace::default())?.read_to_end())
}

/// Reads a block.
struct BlockReading<'a> {
    source: &'a RingSource,
    content: &'a mut RingContent,
    blocks: u64,
    block: u64,
    /// Its thread writes into it no more.
    is_complete: bool,
}

impl BlockReading<'_> {
    /// Reads from a slot on; `Some`, the slots that were read, if the block may still grow.
    fn read_from(&mut self, read: u8) -> Option<u8> {
        let first = self.block % self.blocks * BLOCK_SLOTS;
        let lap = lap_of_block(self.block, self.blocks);
        let slots: Vec<FoundSlot> = (first..first + BLOCK_SLOTS).map(|slot| self.source.slot(slot, lap)).collect();
        let (mut at, mut parts) = (usize::from(read), WordParts::default());
        while at < slots.len() {
            let FoundSlot::Whole(slot) = &slots[at] else {
                if !self.is_complete {
                    return Some(at as u8);
                }
                self.content.torn += u64::from(matches!(slots[at], FoundSlot::Torn));
                let is_overwritten = matches!(slots[at], FoundSlot::Overwritten);
                self.content.overwritten = self.content.overwritten.saturating_add(is_overwritten.into());
                parts.drop_begun();
                at += 1;
                continue;
            };
            match kind_of(slot) {
                END_SLOT => return None,
                WORD_SLOT => {
                    if !self.is_complete && !self.has_word(&slots[at..], slot) {
                        return Some(at as u8);
                    }
                    self.content.words.extend(parts.put(slot));
                    at += 1;
                    continue;
                }
                // Its first slot is torn.
                SECOND_SLOT => self.content.torn += 1,
                _ => {
                    let behind = slots.get(at + 1);
                    // A small call may join the last event of a block that is not full.
                    let is_last = behind.is_some_and(|slot| !matches!(slot, FoundSlot::Whole(_)));
                    if is_last && !self.is_complete {
                        return Some(at as u8);
                    }
                    at += usize::from(self.put_event(slot, behind));
                }
            }
            parts.drop_begun();
            at += 1;
        }
        None
    }

    /// True if all slots of the word that begins here are there.
    fn has_word(&self, slots: &[FoundSlot], first: &[u64; SLOT_WORDS]) -> bool {
        let [.., part, count] = (first[1] >> 32).to_le_bytes()[..4].try_into().unwrap_or([0; 4]);
        let rest = usize::from(count.saturating_sub(part)).max(1);
        slots.iter().take(rest).all(|slot| matches!(slot, FoundSlot::Whole(_)))
    }

    /// Takes an event; true if the slot behind it is its second.
    fn put_event(&mut self, slot: &[u64; SLOT_WORDS], behind: Option<&FoundSlot>) -> bool {
        let Some((mut event, has_second)) = Event::decode(slot) else {
            self.content.unknown += 1;
            return false;
        };
        let second = match behind {
            Some(FoundSlot::Whole(second)) if has_second && kind_of(second) == SECOND_SLOT => Some(second),
            _ => None,
        };
        if let Some(second) = second {
            event.extend(second);
        }
        self.content.events.push(event);
        second.is_some()
    }
}
