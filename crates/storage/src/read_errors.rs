//! Damage that readers met.
//!
//! Guarantees: the segment of a read that failed because of damage is remembered until it was looked at. However often
//! readers come back, a segment is due once in [`REST_NS`]. Bounded by [`SEGMENTS_MAX`]. Leaves to others: refusing the
//! bytes (`device`), reading the segment again (the scrub).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use frieze_base::{ErrorKind, Fault, MonoTime, Reason, SegmentId};

/// Segments that are remembered; damage in more of them is found by the next scrub.
const SEGMENTS_MAX: usize = 64;
/// A segment is not looked at again for this long: ten minutes.
const REST_NS: u64 = 600_000_000_000;

/// Where readers met damage.
#[derive(Default)]
pub struct ReadErrors {
    /// Reads that failed for it.
    reads: AtomicU64,
    /// With the time at which each was looked at.
    segments: Mutex<BTreeMap<SegmentId, Option<MonoTime>>>,
}

impl ReadErrors {
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
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// True if a segment waits to be looked at; those that have rested are forgotten.
    pub fn waits(&self, now: MonoTime) -> bool {
        let mut segments = self.segments.lock().unwrap_or_else(PoisonError::into_inner);
        segments.retain(|_, looked| looked.is_none_or(|looked| now.since_ns(looked) < REST_NS));
        segments.values().any(Option::is_none)
    }

    /// What was damaged in a segment is whole again: what a reader meets there from now on is something else.
    pub fn forget(&self, segment: SegmentId) {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner).remove(&segment);
    }

    /// A segment that is due.
    pub fn next(&self) -> Option<SegmentId> {
        let segments = self.segments.lock().unwrap_or_else(PoisonError::into_inner);
        segments.iter().find(|(_, looked)| looked.is_none()).map(|(segment, _)| *segment)
    }

    /// A segment was read again.
    pub fn looked_at(&self, segment: SegmentId, now: MonoTime) {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner).insert(segment, Some(now));
    }
}
