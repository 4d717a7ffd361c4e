//! Writes events and words into a ring.
//!
//! Guarantees: no thread waits for another; a thread whose block the ring has nearly reached again claims a new one
//! before its next event; the words that events name are repeated in each eighth of a lap. A small read or write right
//! behind the one before it, by the same thread, is added to that event, in its slot: nothing waits to be written.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use frieze_hlc::Hlc;
use rustix::time::{ClockId, clock_gettime};

use crate::error::{RING_BYTES_MAX, RING_BYTES_MIN};
use crate::event::{Event, SLOT_WORDS, encode_end};
use crate::mapped::MappedWords;
use crate::ring::{
    BLOCK_BYTES, BLOCK_SLOTS, BLOCKS_WORD, CLAIMED_WORD, CLOCK_READINGS, FORMAT_WORD, HEADER_WORDS, KEY_WORD, MAGIC,
    OFFSET_WORD, PROCESS_WORD, PROGRAM_BYTES_MAX, PROGRAM_WORDS, READING_WORDS, READINGS_WORD, START_WORD, VERSION,
    slot_word,
};
use crate::words::{self, HashKey, WORD_SLOTS_MAX, WordKind};
use crate::{TraceError, words::ROOT};

/// Words whose presence in the ring is remembered.
const KNOWN_WORDS: usize = 4096;
/// Words are written again in each such part of a lap.
const PARTS_OF_A_LAP: u64 = 8;
/// Rings of ended processes that stay in a directory when a new one is made.
const ENDED_RINGS_MAX: usize = 8;
/// The same for rings whose events no trace has taken yet.
const ENDED_LIVE_RINGS_MAX: usize = 32;
/// Time between two readings of the clocks in the header, ns.
const READING_EVERY_NS: u64 = 1_000_000_000;

/// What a ring is to be.
#[derive(Clone, Debug)]
pub struct RingSettings {
    /// Bytes of the file, rounded down to whole blocks. 256 MiB hold four million events.
    pub bytes: u64,
    /// The directory for the file, and for the key of hashes. Made if it is not there.
    pub dir: PathBuf,
    /// The program that is recorded, for readers.
    pub program: String,
    /// A trace takes the events out of the ring, and removes it then: until then it is needed, and lies in `live` below
    /// the directory.
    pub is_live: bool,
}

/// Records calls into a ring. Cheap to clone; all clones write to the same ring.
#[derive(Clone, Debug)]
pub struct Recorder(Arc<RingWriter>);

/// A program whose calls are recorded.
#[derive(Clone, Debug)]
pub struct Program {
    hash: u64,
    command: Vec<u8>,
}

#[derive(Debug)]
struct RingWriter {
    map: MappedWords,
    path: PathBuf,
    blocks: u64,
    key: HashKey,
    /// Distinguishes the rings of a process.
    number: u64,
    /// Added to the monotonic clock: ns since 1970.
    offset_ns: i64,
    /// Each: a word's hash, mixed with the part of the lap in which the word was written.
    known: Box<[AtomicU64]>,
    read_clocks_at: AtomicU64,
    newest: AtomicU64,
}

/// A thread's place in a ring.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Cursor {
    ring: u64,
    /// The claimed block, counted from the start.
    block: u64,
    /// Slots of it that are used.
    used: u64,
}

/// The event that a thread wrote last, and the place behind it.
#[derive(Clone, Copy)]
struct LastEvent {
    event: Event,
    behind: Cursor,
}

thread_local! {
    static CURSOR: Cell<Cursor> = const { Cell::new(Cursor { ring: 0, block: 0, used: 0 }) };
    static LAST: Cell<Option<LastEvent>> = const { Cell::new(None) };
}

static RINGS: AtomicU64 = AtomicU64::new(0);

impl Recorder {
    /// Makes a ring in a file of its own, `<program>-<process>-<number>.ring`. Of the rings of ended processes in the
    /// directory the newest eight stay.
    ///
    /// # Errors
    /// `Size`; `FileSystem`: name another directory; `System`, such as a full disk. Nothing is recorded then.
    pub fn create(settings: &RingSettings) -> Result<Recorder, TraceError> {
        if !(RING_BYTES_MIN..=RING_BYTES_MAX).contains(&settings.bytes) {
            return Err(TraceError::Size { bytes: settings.bytes });
        }
        let system = |what, path: &Path, error| TraceError::System { what, path: path.to_owned(), error };
        let key = crate::key::load(&settings.dir)?;
        let (dir, ended_max) = match settings.is_live {
            true => (settings.dir.join("live"), ENDED_LIVE_RINGS_MAX),
            false => (settings.dir.clone(), ENDED_RINGS_MAX),
        };
        std::fs::create_dir_all(&dir).map_err(|error| system("create", &dir, error))?;
        remove_old(&dir, ended_max).map_err(|error| system("make room in", &dir, error))?;
        let number = RINGS.fetch_add(1, Ordering::Relaxed) + 1;
        let (process, blocks) = (std::process::id(), settings.bytes / BLOCK_BYTES);
        let name: String = settings.program.chars().filter(|c| c.is_ascii_alphanumeric()).take(32).collect();
        let path = dir.join(format!("{name}-{process}-{number}.ring"));
        // It gets its name when it is one.
        let partial = dir.join(format!("{name}-{process}-{number}.partial"));
        let map = MappedWords::create(&partial, HEADER_WORDS + blocks as usize * BLOCK_SLOTS as usize * SLOT_WORDS)?;
        let (mono, wall) = (mono_ns(), wall_ns());
        let offset_ns = wall - mono as i64;
        let words = map.words();
        let put = |at: usize, value: u64| words[at].store(value, Ordering::Relaxed);
        put(FORMAT_WORD, u64::from(VERSION) | BLOCK_SLOTS << 32);
        put(BLOCKS_WORD, blocks);
        put(OFFSET_WORD, offset_ns as u64);
        put(START_WORD, mono);
        put(PROCESS_WORD, process.into());
        put(KEY_WORD, words::hash_of(key, 0, b"frieze trace"));
        let program = &settings.program.as_bytes()[..settings.program.len().min(PROGRAM_BYTES_MAX)];
        put(PROGRAM_WORDS, program.len() as u64);
        for (index, bytes) in program.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            put(PROGRAM_WORDS + 1 + index, u64::from_le_bytes(word));
        }
        // Last: a file without it is none yet.
        words[0].store(MAGIC, Ordering::Release);
        std::fs::rename(&partial, &path).map_err(|error| system("name", &partial, error))?;
        let known = (0..KNOWN_WORDS).map(|_| AtomicU64::new(0)).collect();
        let (read_clocks_at, newest) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Recorder(Arc::new(RingWriter { map, path, blocks, key, number, offset_ns, known, read_clocks_at, newest })))
    }

    /// The file of the ring.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The hash of a path from the directory with this inode, 1 for the root; its names are written beside the events.
    pub fn path_hash(&self, directory: u64, path: &[u8]) -> u64 {
        let begin = match directory {
            0 | 1 => ROOT,
            inode => {
                let number = inode.to_le_bytes();
                let hash = words::hash_of(self.0.key, 0, &number);
                self.0.note_word(WordKind::Directory, hash, 0, &number);
                hash
            }
        };
        words::names(path).fold(begin, |parent, name| {
            let hash = words::hash_of(self.0.key, parent, name);
            self.0.note_word(WordKind::Name, hash, parent, name);
            hash
        })
    }

    /// A program whose calls are recorded, for [`Recorder::actor`]: its name and arguments.
    pub fn program(&self, command: &str) -> Program {
        let command = command.as_bytes().to_vec();
        Program { hash: words::hash_of(self.0.key, 0, &command), command }
    }

    /// The hash of a user of a program; both are written beside the events.
    pub fn actor(&self, program: &Program, uid: u32) -> u32 {
        self.0.note_word(WordKind::Program, program.hash, 0, &program.command);
        let user = uid.to_le_bytes();
        let hash = words::hash_of(self.0.key, program.hash, &user);
        self.0.note_word(WordKind::Actor, hash, program.hash, &user);
        hash as u32
    }

    /// Notes the newest stamp that this process knows: readings of the clocks in the header carry it.
    pub fn note_stamp(&self, stamp: Hlc) {
        self.0.newest.fetch_max(stamp.0, Ordering::Relaxed);
    }

    /// Writes an event.
    ///
    /// # Cost
    /// Some 20 ns; the first of 64 events of a thread may touch a new page.
    pub fn record(&self, event: &Event) {
        if !event.call.moves_bytes() {
            LAST.set(None);
            return self.0.put_event(event);
        }
        if let Some(last) = LAST.get()
            && last.behind == CURSOR.get()
            && let Some(both) = last.event.collapsed_with(event)
            && self.0.replace(last.behind, &both)
        {
            LAST.set(Some(LastEvent { event: both, ..last }));
            return;
        }
        self.0.put_event(event);
        LAST.set(Some(LastEvent { event: *event, behind: CURSOR.get() }));
    }

    /// The words of the file, for a reader in this process.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        self.0.map.words()
    }

    /// `mono`, a reading of [`mono_ns`], in ns since 1970.
    pub(crate) fn wall_of(&self, mono: u64) -> i64 {
        mono as i64 + self.0.offset_ns
    }
}

/// Slots of one block that this thread has claimed.
struct ClaimedSlots<'a> {
    words: &'a [AtomicU64],
}

impl ClaimedSlots<'_> {
    fn put(&self, slot: u64, content: &[u64; SLOT_WORDS]) {
        let at = slot as usize * SLOT_WORDS;
        let (last, others) = (SLOT_WORDS - 1, &content[..SLOT_WORDS - 1]);
        for (word, value) in self.words[at..].iter().zip(others) {
            word.store(*value, Ordering::Relaxed);
        }
        // The sum, for readers of a ring in use.
        self.words[at + last].store(content[last], Ordering::Release);
    }
}

impl RingWriter {
    fn put_event(&self, event: &Event) {
        match event.has_second() {
            false => self.put(1, |lap, slots| slots.put(0, &event.encode(lap))),
            true => self.put(2, |lap, slots| {
                slots.put(0, &event.encode(lap));
                slots.put(1, &event.encode_second(lap));
            }),
        }
    }

    /// Writes an event in place of the one in front of `behind`. False if the ring has nearly come around.
    fn replace(&self, behind: Cursor, event: &Event) -> bool {
        // What fills a block stays as it is: a reader need not come back to it.
        if behind.ring != self.number || behind.used == BLOCK_SLOTS || self.is_overtaken(behind) {
            return false;
        }
        let slots = self.slots_at(Cursor { used: behind.used - 1, ..behind }, 1);
        slots.put(0, &event.encode(lap_of_block(behind.block, self.blocks)));
        true
    }

    /// The next `count` slots at a place.
    fn slots_at(&self, at: Cursor, count: u64) -> ClaimedSlots<'_> {
        let first = slot_word(at.block % self.blocks * BLOCK_SLOTS + at.used);
        ClaimedSlots { words: &self.map.words()[first..first + count as usize * SLOT_WORDS] }
    }

    /// True if others may come around the ring while this thread records nothing: then its block is theirs.
    fn is_overtaken(&self, cursor: Cursor) -> bool {
        is_left(cursor.block, self.map.words()[CLAIMED_WORD].load(Ordering::Relaxed), self.blocks)
    }

    /// Lets `write` fill `count` slots of one block.
    fn put(&self, count: u64, write: impl FnOnce(u16, &ClaimedSlots<'_>)) {
        let claimed = &self.map.words()[CLAIMED_WORD];
        let mut cursor = CURSOR.get();
        if cursor.ring != self.number || cursor.used + count > BLOCK_SLOTS || self.is_overtaken(cursor) {
            if cursor.ring == self.number && cursor.used < BLOCK_SLOTS && !self.is_overtaken(cursor) {
                let slots = self.slots_at(cursor, 1);
                slots.put(0, &encode_end(lap_of_block(cursor.block, self.blocks)));
            }
            cursor = Cursor { ring: self.number, block: claimed.fetch_add(1, Ordering::Relaxed), used: 0 };
            self.note_clocks();
        }
        write(lap_of_block(cursor.block, self.blocks), &self.slots_at(cursor, count));
        cursor.used += count;
        CURSOR.set(cursor);
    }

    /// Writes a word unless this part of the lap has it.
    fn note_word(&self, kind: WordKind, hash: u64, parent: u64, bytes: &[u8]) {
        let part = self.map.words()[CLAIMED_WORD].load(Ordering::Relaxed) / (self.blocks / PARTS_OF_A_LAP).max(1);
        let mark = hash ^ (part + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let known = &self.known[hash as usize % KNOWN_WORDS];
        if known.load(Ordering::Relaxed) == mark {
            return;
        }
        known.store(mark, Ordering::Relaxed);
        let mut encoded = [[0; SLOT_WORDS]; WORD_SLOTS_MAX];
        // The lap is that of the block, which is known when the slots are claimed.
        let count = words::encode(kind, hash, parent, bytes, 0).count() as u64;
        self.put(count, |lap, slots| {
            for (slot, content) in encoded.iter_mut().zip(words::encode(kind, hash, parent, bytes, lap)) {
                *slot = content;
            }
            (0..count).for_each(|slot| slots.put(slot, &encoded[slot as usize]));
        });
    }

    /// Notes both clocks in the header, once a second.
    fn note_clocks(&self) {
        let (mono, last) = (mono_ns(), self.read_clocks_at.load(Ordering::Relaxed));
        if mono.saturating_sub(last) < READING_EVERY_NS {
            return;
        }
        if self.read_clocks_at.compare_exchange(last, mono, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        let words = self.map.words();
        let number = words[READINGS_WORD].load(Ordering::Relaxed);
        let at = READING_WORDS + (number % CLOCK_READINGS) as usize * 3;
        words[at].store(mono, Ordering::Relaxed);
        words[at + 1].store(wall_ns() as u64, Ordering::Relaxed);
        words[at + 2].store(self.newest.load(Ordering::Relaxed), Ordering::Relaxed);
        words[READINGS_WORD].store(number + 1, Ordering::Release);
    }
}

/// Removes rings of processes that have ended, all but the newest.
fn remove_old(dir: &Path, ended_max: usize) -> std::io::Result<()> {
    let mut ended = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let is_ring = |extension: &std::ffi::OsStr| extension == "ring" || extension == "partial";
        let stem = path.extension().filter(|extension| is_ring(extension)).and(path.file_stem());
        // `<program>-<process>-<number>`: no program's name has a hyphen.
        let process = stem.and_then(|stem| stem.to_str()?.split('-').nth(1)?.parse::<u32>().ok());
        if process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
            // Another process may remove it at the same time.
            let Ok(modified) = std::fs::metadata(&path).and_then(|found| found.modified()) else { continue };
            ended.push((modified, path));
        }
    }
    ended.sort();
    let count = ended.len().saturating_sub(ended_max);
    for (_, path) in ended.into_iter().take(count) {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// The lap in which a block is written. The first is 1.
pub(crate) fn lap_of_block(block: u64, blocks: u64) -> u16 {
    (block / blocks + 1) as u16
}

/// True if the thread that claimed a block writes into it no more: `claimed` of a ring's blocks have come since.
pub(crate) fn is_left(block: u64, claimed: u64, blocks: u64) -> bool {
    claimed.wrapping_sub(block) >= blocks - blocks / 4
}

/// The monotonic clock, ns.
pub(crate) fn mono_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The wall clock, ns since 1970.
pub(crate) fn wall_ns() -> i64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}
