//! Write grants: the chunks of files that the session may write, as far as the client knows.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use frieze_base::InodeId;

/// The files that the session has open for writing. Handles of one file share its grants, and the last one to close
/// settles the file.
#[derive(Debug, Default)]
pub(crate) struct WriteGrants {
    open: Mutex<GrantTable>,
    settled: Condvar,
}

#[derive(Debug, Default)]
struct GrantTable {
    files: BTreeMap<InodeId, GrantEntry>,
    /// Files whose last handle is closed and whose settling is not answered yet. Settling returns the grant, and a
    /// write under that grant which it does not count would be beyond the end of the file.
    settling: BTreeSet<InodeId>,
}

#[derive(Debug)]
struct GrantEntry {
    grants: Arc<FileGrants>,
    handles: usize,
}

/// The grants of one file that is open for writing.
#[derive(Debug, Default)]
pub(crate) struct FileGrants(Mutex<GrantedRanges>);

#[derive(Debug, Default)]
struct GrantedRanges {
    /// Ranges of chunk indexes, disjoint and in order.
    ranges: Vec<Range<u32>>,
    /// Written to since the last settling.
    is_dirty: bool,
}

impl GrantedRanges {
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
        // At most 16 at a time: a write of more chunks makes another request.
        let end = wanted.end.max(first.saturating_add(ahead)).min(first.saturating_add(GRANT_CHUNKS_MAX));
        Some(first..end)
    }
}

impl WriteGrants {
    /// The grants of a file for one more handle, which ends with [`WriteGrants::release`].
    pub(crate) fn of(&self, inode: InodeId) -> Arc<FileGrants> {
        let mut open = self.lock();
        let entry = open.files.entry(inode).or_insert_with(|| GrantEntry { grants: Arc::default(), handles: 0 });
        entry.handles += 1;
        entry.grants.clone()
    }

    /// Ends a handle. True if it was the last of its file. With `settles` the file is then to be settled, and no handle
    /// opened later writes to it before [`WriteGrants::settled`].
    pub(crate) fn release(&self, inode: InodeId, settles: bool) -> bool {
        let mut open = self.lock();
        let Some(entry) = open.files.get_mut(&inode) else { return true };
        entry.handles -= 1;
        let is_last = entry.handles == 0;
        if is_last {
            open.files.remove(&inode);
            if settles {
                open.settling.insert(inode);
            }
        }
        is_last
    }

    /// Notes that files are settled, or that the outcome is unknown.
    pub(crate) fn settled(&self, inodes: impl IntoIterator<Item = InodeId>) {
        let mut open = self.lock();
        if !open.settling.is_empty() {
            for inode in inodes {
                open.settling.remove(&inode);
            }
            self.settled.notify_all();
        }
    }

    /// Waits until a closed file is settled, at most `limit`.
    pub(crate) fn await_settled(&self, inode: InodeId, limit: Duration) {
        let open = self.lock();
        let settles = |open: &mut GrantTable| open.settling.contains(&inode);
        drop(self.settled.wait_timeout_while(open, limit, settles).unwrap_or_else(PoisonError::into_inner));
    }

    fn lock(&self) -> MutexGuard<'_, GrantTable> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FileGrants {
    /// The range to request before chunks `wanted` are written; `None` if they are granted.
    ///
    /// A write at the end of the granted range requests as many chunks again as that range has, up to
    /// [`GRANT_CHUNKS_MAX`]; a write elsewhere requests its own chunks (protocols §4).
    pub(crate) fn missing(&self, wanted: Range<u32>) -> Option<Range<u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).missing(wanted)
    }

    /// Adds a range that the server granted.
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

    /// Drops the grants of chunks from `first` on, after a truncate.
    pub(crate) fn drop_from(&self, first: u32) {
        let mut granted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        granted.ranges.retain_mut(|range| {
            range.end = range.end.min(first);
            range.start < range.end
        });
    }

    /// Marks the file as written to.
    pub(crate) fn mark_dirty(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_dirty = true;
    }

    /// True once after each write.
    pub(crate) fn take_dirty(&self) -> bool {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).is_dirty)
    }

    /// True if the session holds a grant.
    pub(crate) fn holds_any(&self) -> bool {
        !self.0.lock().unwrap_or_else(PoisonError::into_inner).ranges.is_empty()
    }
}

/// Chunks that one transaction grants at most.
pub(crate) const GRANT_CHUNKS_MAX: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequential_writer_requests_as_many_chunks_as_it_has_filled() {
        let writer = FileGrants::default();
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
        let writer = FileGrants::default();
        writer.add(0..8);
        assert_eq!(writer.missing(100..101), Some(100..101));
        assert_eq!(writer.missing(6..10), Some(8..16));
        assert_eq!(writer.missing(3..5), None);
    }

    #[test]
    fn a_wide_write_asks_for_sixteen_at_a_time() {
        let writer = FileGrants::default();
        assert_eq!(writer.missing(0..40), Some(0..16));
        writer.add(0..16);
        assert_eq!(writer.missing(0..40), Some(16..32));
    }

    #[test]
    fn a_truncate_drops_what_lies_above() {
        let writer = FileGrants::default();
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
        let writers = WriteGrants::default();
        let (a, b) = (writers.of(InodeId(7)), writers.of(InodeId(7)));
        a.add(0..1);
        assert!(b.holds_any());
        assert!(!writers.release(InodeId(7), false));
        assert!(writers.release(InodeId(7), false));
        assert!(!writers.of(InodeId(7)).holds_any());
    }

    #[test]
    fn a_file_is_written_to_again_only_after_it_is_settled() {
        let (writers, file) = (WriteGrants::default(), InodeId(7));
        let (_one, _two) = (writers.of(file), writers.of(file));
        assert!(!writers.release(file, true));
        // Another handle keeps its grants.
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
        let writer = FileGrants::default();
        for range in [4..6, 0..2, 2..4, 8..9] {
            writer.add(range);
        }
        assert_eq!(writer.missing(0..6), None);
        assert_eq!(writer.0.lock().unwrap().ranges, [0..6, 8..9]);
    }
}
