//! Rings as traces: what programs recorded, taken before the ring is written over.

use std::collections::{BTreeMap, BTreeSet};

use frieze_hlc::Hlc;
use frieze_trace::words::{Word, WordKind};
use frieze_trace::{PathIndex, RingContent};

use crate::error::TraceFileError;
use crate::manifest::{LostTime, Manifest, TracedProgram};
use crate::row::TraceRow;
use crate::writer::{TraceNames, TraceWriter, TracedActor, TracedPath};

/// Readings of both clocks that differ by more are a step of the wall clock, ns.
const CLOCK_STEP_NS: i64 = 50_000_000;
/// Paths, and users of programs, that a trace which is recorded names at most.
const PATHS_MAX: usize = 1 << 20;
const ACTORS_MAX: usize = 1 << 16;

/// Adds what one ring holds to a trace, in one piece or in several.
#[derive(Debug, Default)]
pub struct RingImporter {
    paths: PathIndex,
    actors: BTreeMap<u64, Word>,
    /// Path hashes of events.
    used: BTreeSet<u64>,
    /// Start of the newest event of earlier pieces.
    newest_ns: Option<i64>,
    has_new_words: bool,
}

impl RingImporter {
    /// Adds what a piece of the ring holds from `since_ns` (ns since 1970) on.
    ///
    /// # Errors
    /// As [`TraceWriter::push`].
    pub fn add(&mut self, trace: &mut TraceWriter, ring: &RingContent, since_ns: i64) -> Result<(), TraceFileError> {
        self.note_losses(trace.manifest(), ring, since_ns);
        self.add_words(ring);
        for event in ring.events.iter().filter(|event| event.start_ns >= since_ns) {
            let row = TraceRow::of(event);
            for hash in row.path.into_iter().chain(row.path2) {
                if self.used.len() < PATHS_MAX && self.used.insert(hash) {
                    self.has_new_words = true;
                }
            }
            trace.push(row)?;
        }
        let newest = ring.events.last().map(|event| event.start_ns);
        self.newest_ns = self.newest_ns.max(newest);
        Ok(())
    }

    fn note_losses(&self, manifest: &mut Manifest, ring: &RingContent, since_ns: i64) {
        let begin = ring.events.first().map(|event| event.start_ns);
        let steps = ring.clocks.windows(2).filter(|pair| {
            let elapsed = |at: &(u64, i64, Hlc)| at.1.saturating_sub(at.0 as i64);
            elapsed(&pair[1]).saturating_sub(elapsed(&pair[0])).abs() > CLOCK_STEP_NS
        });
        let steps = steps.count() as u64;
        manifest.add_program(TracedProgram { program: ring.program.clone(), process: ring.process });
        // Times of events go on from the monotonic clock.
        manifest.note("steps of the wall clock", steps);
        manifest.lost.torn += ring.torn;
        manifest.lost.unknown += ring.unknown;
        if let (true, Some(begin)) = (ring.overwritten > 0 && begin.is_some_and(|begin| begin > since_ns), begin) {
            // What was written over came before what is left.
            manifest.lost.overwritten += ring.overwritten;
            let first = self.newest_ns.or(ring.clocks.first().map(|(_, wall, _)| *wall)).unwrap_or(begin);
            let from_ns = first.max(since_ns).min(begin);
            // Slots that a thread left empty count as lost, too: they are not known to have been empty.
            manifest.add_lost_time(LostTime { from_ns, to_ns: begin, events: Some(ring.overwritten) });
        }
    }

    /// Adds the words of a piece alone.
    pub(crate) fn add_words(&mut self, ring: &RingContent) {
        self.paths.add(ring);
        for word in ring.words.iter().filter(|word| word.kind == WordKind::Actor) {
            if self.actors.len() < ACTORS_MAX {
                self.actors.insert(word.hash, word.clone());
            }
        }
        self.has_new_words |= !ring.words.is_empty();
    }

    /// True if words came that are not written yet.
    pub(crate) fn has_new_words(&self) -> bool {
        self.has_new_words
    }

    /// All words so far are in the trace.
    pub(crate) fn words_are_written(&mut self) {
        self.has_new_words = false;
    }

    /// Adds the words of all pieces so far to `names`. A trace of more than a million paths leaves names out, and
    /// counts them in `manifest`.
    pub fn name(&self, names: &mut TraceNames, manifest: &mut Manifest) {
        for word in self.paths.words().filter(|word| matches!(word.kind, WordKind::Name | WordKind::Directory)) {
            let text = self.paths.path_of(word.hash);
            let parent = (word.parent != 0).then_some(word.parent);
            put(names, word.hash, TracedPath { text, parent, kind: None });
        }
        for hash in &self.used {
            put(names, *hash, TracedPath::default());
        }
        for word in self.actors.values() {
            let program = self.paths.word(word.parent);
            let actor = TracedActor {
                uid: word.bytes.as_slice().try_into().ok().map(u32::from_le_bytes),
                program: program.map(|program| String::from_utf8_lossy(&program.bytes).into_owned()),
                host: None,
            };
            if names.actors.len() < ACTORS_MAX {
                names.actors.insert(u64::from(word.hash as u32), actor);
            }
        }
        if self.paths.left_out() > 0 || names.paths.len() >= PATHS_MAX {
            let what = "names are left out: the trace has more paths than it may name";
            manifest.notes.retain(|note| note.what != what);
            manifest.note(what, self.paths.left_out().max(1));
        }
    }
}

/// Adds a path, unless there is no room; what is known already stays.
fn put(names: &mut TraceNames, hash: u64, path: TracedPath) {
    if names.paths.len() >= PATHS_MAX && !names.paths.contains_key(&hash) {
        return;
    }
    let known = names.paths.entry(hash).or_default();
    if path.text.is_some() {
        // The kind follows from the name.
        known.kind = None;
        known.text = path.text;
    }
    known.parent = path.parent.or(known.parent);
}
