//! Rings as traces: what programs recorded, saved before the ring is written over.

use frieze_hlc::Hlc;
use frieze_trace::RingContent;
use frieze_trace::words::WordKind;

use crate::error::TraceFileError;
use crate::manifest::{LostTime, TracedProgram};
use crate::row::TraceRow;
use crate::writer::{TraceNames, TraceWriter, TracedActor, TracedPath};

/// Readings of both clocks that differ by more are a step of the wall clock, ns.
const CLOCK_STEP_NS: i64 = 50_000_000;

/// Adds what a ring holds from `since_ns` (ns since 1970) on to a trace; its words to `names`.
///
/// # Errors
/// As [`TraceWriter::push`].
pub fn add_ring(
    trace: &mut TraceWriter,
    ring: &RingContent,
    names: &mut TraceNames,
    since_ns: i64,
) -> Result<(), TraceFileError> {
    let begin = ring.events.first().map(|event| event.start_ns);
    let steps = ring.clocks.windows(2).filter(|pair| {
        let elapsed = |at: &(u64, i64, Hlc)| at.1.saturating_sub(at.0 as i64);
        elapsed(&pair[1]).saturating_sub(elapsed(&pair[0])).abs() > CLOCK_STEP_NS
    });
    let steps = steps.count() as u64;
    let manifest = trace.manifest();
    let program = TracedProgram { program: ring.program.clone(), process: ring.process };
    if !manifest.programs.contains(&program) {
        manifest.programs.push(program);
    }
    // Times of events go on from the monotonic clock.
    manifest.note("steps of the wall clock", steps);
    manifest.lost.torn += ring.torn;
    manifest.lost.unknown += ring.unknown;
    if let (true, Some(begin)) = (ring.overwritten > 0 && begin.is_some_and(|begin| begin > since_ns), begin) {
        // What was written over came before what is left.
        manifest.lost.overwritten += ring.overwritten;
        let first = ring.clocks.first().map_or(begin, |(_, wall, _)| *wall).max(since_ns).min(begin);
        manifest.add_lost_time(LostTime { from_ns: first, to_ns: begin, events: Some(ring.overwritten) });
    }
    for event in ring.events.iter().filter(|event| event.start_ns >= since_ns) {
        let row = TraceRow::of(event);
        for hash in row.path.into_iter().chain(row.path2) {
            names.paths.entry(hash).or_default();
        }
        trace.push(row)?;
    }
    let paths = ring.paths();
    for word in &ring.words {
        match word.kind {
            WordKind::Name | WordKind::Directory => {
                let text = paths.path_of(word.hash);
                let parent = (word.parent != 0).then_some(word.parent);
                names.paths.insert(word.hash, TracedPath { text, parent, kind: None });
            }
            WordKind::Actor => {
                let program =
                    ring.words.iter().find(|other| other.kind == WordKind::Program && other.hash == word.parent);
                let actor = TracedActor {
                    uid: word.bytes.as_slice().try_into().ok().map(u32::from_le_bytes),
                    program: program.map(|program| String::from_utf8_lossy(&program.bytes).into_owned()),
                    host: None,
                };
                names.actors.insert(u64::from(word.hash as u32), actor);
            }
            WordKind::Program => {}
        }
    }
    Ok(())
}
