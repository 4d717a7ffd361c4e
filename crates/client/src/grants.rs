//! Which chunks of which files the session may write, as far as it knows.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use frieze_base::InodeId;

/// The files that the session has open for writing. Handles of one file share what they were granted, and the last one
/// to close settles for all.
#[derive(Debug, Default)]
pub(crate) struct Writers {
    open: Mutex<Open>,
    settled: Condvar,
}

#[derive(Debug, Default)]
struct Open {
    files: BTreeMap<InodeId, Shared>,
    /// Files whose last handle is closed and whose settling is not answered yet. It gives the grant back, and a write by that grant
    /// which it does not count would be beyond the end of the file.
    settling: BTreeSet<InodeId>,
}

#[derive(Debug)]
struct Shared {
    writer: Arc<Writer>,
    handles: usize,
}

/// One file open for writing.
#[derive(Debug, Default)]
pub(crate) struct Writer(Mutex<Granted>);

#[derive(Debug, Default)]
struct Granted {
    /// Chunk indexes, apart and in order.
    ranges: Vec<Range<u32>>,
    /// Written to since the last settling.
    is_dirty: bool,
}

impl Granted {
    fn missing(&self, wanted: Range<u32>) -> Option<Range<u32>> {
        let mut first = wanted.start;
        let mut run = 0;
        for range in &self.ranges {
            if range.start <= first && first <= range.end {
                run = range.len() as u32;
                first = range.end;
            }
        }
        if first >= wanted.end {
            return None;
        }
        let ahead = run.clamp(1, GRANT_CHUNKS_MAX);
        // At most 16 at a time: a write of more chunks asks again.
        let end = wanted.end.max(first.saturating_add(ahead)).min(first.saturating_add(GRANT_CHUNKS_MAX));
        Some(first..end)
    }
}

impl Writers {
    /// A handle's writer of a file, shared with the other handles. Ends with [`Writers::release`].
    pub(crate) fn of(&self, inode: InodeId) -> Arc<Writer> {
        let mut open = self.lock();
        let shared = open.files.entry(inode).or_insert_with(|| Shared { writer: Arc::default(), handles: 0 });
        shared.handles += 1;
        shared.writer.clone()
    }

    /// A handle ends. True if it was the last of its file. `settles`: then the file is to be settled, and nobody writes to it anew
    /// before [`Writers::settled`].
    pub(crate) fn release(&self, inode: InodeId, settles: bool) -> bool {
        let mut open = self.lock();
        let Some(shared) = open.files.get_mut(&inode) else { return true };
        shared.handles -= 1;
        let is_last = shared.handles == 0;
        if is_last {
            open.files.remove(&inode);
            if settles {
                open.settling.insert(inode);
            }
        }
        is_last
    }

    /// Files are settled, or it cannot be known whether they are.
    pub(crate) fn settled(&self, inodes: impl IntoIterator<Item = InodeId>) {
        let mut open = self.lock();
        if !open.settling.is_empty() {
            for inode in inodes {
                open.settling.remove(&inode);
            }
            self.settled.notify_all();
        }
    }

    /// Waits until a file that was closed before is settled; not longer than `limit`.
    pub(crate) fn await_settled(&self, inode: InodeId, limit: Duration) {
        let open = self.lock();
        let settles = |open: &mut Open| open.settling.contains(&inode);
        drop(self.settled.wait_timeout_while(open, limit, settles).unwrap_or_else(PoisonError::into_inner));
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writer {
    /// What to ask for before chunks `wanted` are written; `None` if they are granted.
    ///
    /// A writer that goes on where its grant ends asks for as many chunks again as it holds there, up to
    /// [`GRANT_CHUNKS_MAX`]; a far write asks for its own (protocols §4).
    pub(crate) fn missing(&self, wanted: Range<u32>) -> Option<Range<u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).missing(wanted)
    }

    /// The server granted `range`.
    pub(crate) fn add(&self, range: Range<u32>) {
        let mut granted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut merged = range;
        granted.ranges.retain(|other| {
            let touches = other.start <= merged.end && merged.start <= other.end;
            if touches {
                merged = merged.start.min(other.start)..merged.end.max(other.end);
            }
            !touches
        });
        let at = granted.ranges.partition_point(|other| other.start < merged.start);
        granted.ranges.insert(at, merged);
    }

    /// Chunks from `first` on are granted no more: a truncate dropped them.
    pub(crate) fn drop_from(&self, first: u32) {
        let mut granted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        granted.ranges.retain_mut(|range| {
            range.end = range.end.min(first);
            range.start < range.end
        });
    }

    /// Something was written.
    pub(crate) fn mark_dirty(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_dirty = true;
    }

    /// True once after each time that something was written.
    pub(crate) fn take_dirty(&self) -> bool {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).is_dirty)
    }

    /// True if the session holds a grant.
    pub(crate) fn holds_any(&self) -> bool {
        !self.0.lock().unwrap_or_else(PoisonError::into_inner).ranges.is_empty()
    }
}

/// Most chunks that one transaction grants.
pub(crate) const GRANT_CHUNKS_MAX: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequential_writer_asks_for_as_many_again_as_it_has_filled() {
        let writer = Writer::default();
        let mut asked = Vec::new();
        for chunk in 0..64 {
            if let Some(range) = writer.missing(chunk..chunk + 1) {
                asked.push(range.clone());
                writer.add(range);
            }
        }
        assert_eq!(asked, [0..1, 1..2, 2..4, 4..8, 8..16, 16..32, 32..48, 48..64]);
    }

    #[test]
    fn a_far_write_asks_for_its_own_chunk() {
        let writer = Writer::default();
        writer.add(0..8);
        assert_eq!(writer.missing(100..101), Some(100..101));
        assert_eq!(writer.missing(6..10), Some(8..16));
        assert_eq!(writer.missing(3..5), None);
    }

    #[test]
    fn a_wide_write_asks_for_sixteen_at_a_time() {
        let writer = Writer::default();
        assert_eq!(writer.missing(0..40), Some(0..16));
        writer.add(0..16);
        assert_eq!(writer.missing(0..40), Some(16..32));
    }

    #[test]
    fn a_truncate_drops_what_lies_above() {
        let writer = Writer::default();
        writer.add(0..4);
        writer.add(10..12);
        writer.drop_from(3);
        assert_eq!(writer.missing(2..3), None);
        assert_eq!(writer.missing(3..4), Some(3..6));
        writer.drop_from(0);
        assert!(!writer.holds_any());
    }

    #[test]
    fn handles_of_one_file_share_grants_and_the_last_one_settles() {
        let writers = Writers::default();
        let (a, b) = (writers.of(InodeId(7)), writers.of(InodeId(7)));
        a.add(0..1);
        assert!(b.holds_any());
        assert!(!writers.release(InodeId(7), false));
        assert!(writers.release(InodeId(7), false));
        assert!(!writers.of(InodeId(7)).holds_any());
    }

    #[test]
    fn nobody_writes_to_a_file_anew_before_it_is_settled() {
        let (writers, file) = (Writers::default(), InodeId(7));
        let (_one, _two) = (writers.of(file), writers.of(file));
        assert!(!writers.release(file, true));
        // Another handle goes on with what it was granted.
        writers.await_settled(file, Duration::from_secs(3600));
        assert!(writers.release(file, true));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| writers.await_settled(file, Duration::from_secs(3600)));
            writers.settled([InodeId(8)]);
            assert!(!waits.is_finished());
            writers.settled([file]);
            waits.join().unwrap();
        });
    }

    #[test]
    fn ranges_that_touch_become_one() {
        let writer = Writer::default();
        for range in [4..6, 0..2, 2..4, 8..9] {
            writer.add(range);
        }
        assert_eq!(writer.missing(0..6), None);
        assert_eq!(writer.0.lock().unwrap().ranges, [0..6, 8..9]);
    }
}
