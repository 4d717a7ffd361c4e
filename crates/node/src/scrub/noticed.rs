//! Damage that readers meet.
//!
//! Guarantees: where a read fails for damage, its segment is looked at soon, whether a scrub is under way or not, and what is
//! found there is told like the findings of a scrub. However often readers come back, a segment is looked at once in a while.
//! Leaves to others: refusing the bytes (`device`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use frieze_base::{ErrorKind, Fault, MonoTime, Reason, SegmentId};
use frieze_multilog::CheckStop;

use super::kept::found;
use crate::engine::Engine;

/// Segments that are remembered; damage in more of them is found by the next scrub.
const SEGMENTS_MAX: usize = 64;
/// A segment is not looked at again for this long: ten minutes.
const REST_NS: u64 = 600_000_000_000;

/// Where readers met damage.
#[derive(Default)]
pub(crate) struct Noticed {
    /// Reads that failed for it.
    reads: AtomicU64,
    /// With the time at which each was looked at.
    segments: Mutex<BTreeMap<SegmentId, Option<MonoTime>>>,
}

impl Noticed {
    /// Notes a read that failed.
    pub(crate) fn note(&self, segment: SegmentId, fault: &Fault) {
        if fault.kind() != ErrorKind::Corrupt && fault.reason != Reason::InputOutput {
            return;
        }
        self.reads.fetch_add(1, Ordering::Relaxed);
        let mut segments = self.segments.lock().unwrap_or_else(PoisonError::into_inner);
        if segments.len() < SEGMENTS_MAX {
            segments.entry(segment).or_default();
        }
    }

    /// Reads that failed so far.
    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// True if a segment waits to be looked at; those that have rested are forgotten.
    pub(super) fn waits(&self, now: MonoTime) -> bool {
        let mut segments = self.segments.lock().unwrap_or_else(PoisonError::into_inner);
        segments.retain(|_, looked| looked.is_none_or(|looked| now.since_ns(looked) < REST_NS));
        segments.values().any(Option::is_none)
    }

    /// What was damaged in a segment is whole again: what a reader meets there from now on is something else.
    pub(super) fn forget(&self, segment: SegmentId) {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner).remove(&segment);
    }

    fn next(&self) -> Option<SegmentId> {
        let segments = self.segments.lock().unwrap_or_else(PoisonError::into_inner);
        segments.iter().find(|(_, looked)| looked.is_none()).map(|(segment, _)| *segment)
    }

    fn looked_at(&self, segment: SegmentId, now: MonoTime) {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner).insert(segment, Some(now));
    }
}

impl Engine {
    /// Looks at the segments in which readers met damage.
    ///
    /// # Errors
    /// `Stop` if `pause` said so.
    pub(super) fn look_at_what_readers_met(&self, pause: &dyn Fn(Duration) -> bool) -> Result<(), CheckStop> {
        let noticed = self.data.device().noticed();
        while let Some(segment) = noticed.next() {
            let hit = self.look_at(None, segment, pause)?;
            noticed.looked_at(segment, self.clock.reading().mono);
            let now = self.clock.now();
            let mut state = self.scrub.lock();
            let before = state.kept.damaged();
            for damage in hit.places {
                // Known until a later scrub has finished and not found it.
                let run = state.kept.run;
                state.kept.add(found(damage, run, now));
            }
            if state.kept.damaged() != before {
                self.scrub.keep(&mut state);
            }
        }
        Ok(())
    }
}
