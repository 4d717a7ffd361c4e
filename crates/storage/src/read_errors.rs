//! Damage that readers met.
//!
//! Guarantees: the segment of a read that failed because of damage is remembered until the scrub has read it. However
//! often readers return, a segment is due once in [`REST_NS`]. Bounded by [`SEGMENTS_MAX`]. Leaves to others: refusing
//! the bytes (`device`), reading the segment again (the scrub).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use frieze_base::{ErrorKind, Fault, MonoTime, Reason, SegmentId};
use frieze_locks::{Mutex, levels};

/// Most segments remembered; the next full scrub finds damage in others.
const SEGMENTS_MAX: usize = 64;
/// Pause before a segment is due again, in nanoseconds: ten minutes.
const REST_NS: u64 = 600_000_000_000;

/// Segments with damage that readers met.
#[derive(Default)]
pub struct ReadErrors {
    /// Count of reads that failed because of damage.
    reads: AtomicU64,
    /// Segments, with the time of the scrub's last read of each.
    segments: Mutex<levels::ReadErrors, BTreeMap<SegmentId, Option<MonoTime>>>,
}

impl ReadErrors {
    /// Records a failed read.
    pub(crate) fn note(&self, segment: SegmentId, fault: &Fault) {
        if fault.kind() != ErrorKind::Corrupt && fault.reason != Reason::InputOutput {
            return;
        }
        self.reads.fetch_add(1, Ordering::Relaxed);
        let mut segments = self.segments.lock();
        if segments.len() < SEGMENTS_MAX {
            segments.entry(segment).or_default();
        }
    }

    /// Reads that failed so far.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// True if a segment is due; segments whose pause is over are forgotten.
    pub fn is_due(&self, now: MonoTime) -> bool {
        let mut segments = self.segments.lock();
        segments.retain(|_, checked| checked.is_none_or(|checked| now.since_ns(checked) < REST_NS));
        segments.values().any(Option::is_none)
    }

    /// A segment was repaired: a reader that meets damage there later has met new damage.
    pub fn forget(&self, segment: SegmentId) {
        self.segments.lock().remove(&segment);
    }

    /// A segment that is due.
    pub fn next(&self) -> Option<SegmentId> {
        let segments = self.segments.lock();
        segments.iter().find(|(_, checked)| checked.is_none()).map(|(segment, _)| *segment)
    }

    /// The scrub has read a segment.
    pub fn mark_checked(&self, segment: SegmentId, now: MonoTime) {
        self.segments.lock().insert(segment, Some(now));
    }
}
