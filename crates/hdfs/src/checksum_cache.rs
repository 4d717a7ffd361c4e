//! Cache of the checksums that writers sent, for readers.
//!
//! A writer sends a checksum for each 512 bytes, and a reader compares with the same. From the cache they need not be
//! computed again, and the bytes between them need not enter the process ([`crate::block_sender`]). They are computed
//! again on a miss: after a restart, or after eviction.
//!
//! Guarantees: cached checksums were compared with the bytes of their record when these arrived, or when they were read
//! and verified. The cache is bounded; the oldest entry is evicted first. If a reader of a file does not report
//! success, the server reads and verifies the file the next time, which finds damage, repairs it or names it, as for
//! every other client ([`BlockChecksumCache::doubt`]).
//! Leaves to others: the format of a checksum ([`crate::transfer`]).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frieze_base::{FastMap, FastSet, InodeId};
use frieze_client::Hlc;

use crate::transfer::{CHUNK_BYTES, SUM_BYTES};

/// The cache, for all files.
#[derive(Debug, Default)]
pub(crate) struct BlockChecksumCache(Mutex<CacheEntries>);

#[derive(Debug, Default)]
struct CacheEntries {
    records: FastMap<ChecksumKey, Arc<[u8]>>,
    /// In order of insertion.
    order: VecDeque<ChecksumKey>,
    bytes: usize,
    doubted: FastSet<InodeId>,
    /// In order of insertion.
    doubts: VecDeque<InodeId>,
}

/// A record: bytes that were written to a file at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ChecksumKey {
    pub(crate) inode: InodeId,
    pub(crate) stamp: Hlc,
    /// Offset in the file.
    pub(crate) start: u64,
}

impl BlockChecksumCache {
    /// Caches the checksums of a record, from its beginning.
    pub(crate) fn put(&self, record: ChecksumKey, sums: &[u8]) {
        let mut state = self.lock();
        let state = &mut *state;
        match state.records.insert(record, sums.into()) {
            Some(before) => state.bytes -= before.len() + ENTRY_BYTES,
            None => state.order.push_back(record),
        }
        state.bytes += sums.len() + ENTRY_BYTES;
        while state.bytes > BYTES_MAX
            && let Some(oldest) = state.order.pop_front()
        {
            let gone = state.records.remove(&oldest).map_or(0, |sums| sums.len() + ENTRY_BYTES);
            state.bytes -= gone;
        }
    }

    /// Caches checksums `skip` bytes from the beginning of a record, if those before them are cached.
    pub(crate) fn put_at(&self, record: ChecksumKey, skip: u64, sums: &[u8]) {
        if skip == 0 {
            return self.put(record, sums);
        }
        let before = self.lock().records.get(&record).cloned();
        let spans = skip as usize / CHUNK_BYTES as usize;
        if let Some(before) = before.filter(|before| before.len() == spans * SUM_BYTES) {
            self.put(record, &[&before, sums].concat());
        }
    }

    /// Appends the checksums of `len` bytes of a record, `skip` bytes from its beginning; false on a miss.
    pub(crate) fn add_to(&self, out: &mut Vec<u8>, record: &ChecksumKey, skip: u64, len: usize) -> bool {
        let span = CHUNK_BYTES as usize;
        let Some(sums) = self.lock().records.get(record).cloned() else { return false };
        let from = skip as usize / span * SUM_BYTES;
        let found =
            sums.get(from..from + len.div_ceil(span) * SUM_BYTES).filter(|_| (skip as usize).is_multiple_of(span));
        out.extend_from_slice(found.unwrap_or_default());
        found.is_some()
    }

    /// Marks a file whose reader did not report success.
    pub(crate) fn doubt(&self, inode: InodeId) {
        let mut state = self.lock();
        if state.doubted.insert(inode) {
            state.doubts.push_back(inode);
        }
        while state.doubts.len() > DOUBTS_MAX
            && let Some(oldest) = state.doubts.pop_front()
        {
            state.doubted.remove(&oldest);
        }
    }

    /// True if the next read of the file has to verify it. Clears the mark.
    pub(crate) fn take_doubt(&self, inode: InodeId) -> bool {
        let mut state = self.lock();
        let is_doubted = state.doubted.remove(&inode);
        if is_doubted {
            state.doubts.retain(|doubted| *doubted != inode);
        }
        is_doubted
    }

    fn lock(&self) -> MutexGuard<'_, CacheEntries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checksums of 4 GiB.
const BYTES_MAX: usize = 32 << 20;
/// Approximate size of an entry without its checksums.
const ENTRY_BYTES: usize = 128;
/// Marked files at most. A reader that stops early reports nothing, and is no sign of damage.
const DOUBTS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u64) -> ChecksumKey {
        ChecksumKey { inode: InodeId(7), stamp: Hlc(number), start: 1 << 20 }
    }

    #[test]
    fn cached_checksums_are_found_span_by_span() {
        let cache = BlockChecksumCache::default();
        let sums: Vec<u8> = (0..40).collect();
        cache.put(record(1), &sums);
        let found = |record: ChecksumKey, skip, len| {
            let mut out = Vec::new();
            cache.add_to(&mut out, &record, skip, len).then_some(out)
        };
        assert_eq!(found(record(1), 0, 5120), Some(sums.clone()));
        assert_eq!(found(record(1), 0, 4609), Some(sums.clone()), "the last may be of less");
        assert_eq!(found(record(1), 1024, 512), Some(sums[8..12].to_vec()));
        assert_eq!(found(record(1), 1000, 512), None, "begins within a span");
        assert_eq!(found(record(1), 1024, 4609), None, "more than there is");
        assert_eq!(found(record(2), 0, 512), None);
        assert_eq!(found(ChecksumKey { start: 0, ..record(1) }, 0, 512), None);
        cache.put_at(record(1), 512, &[7; 4]);
        assert_eq!(found(record(1), 0, 5120), Some(sums.clone()), "there are others already");
        cache.put_at(record(1), 5120, &[7; 8]);
        assert_eq!(found(record(1), 4608, 1536), Some([&sums[36..], &[7; 8]].concat()), "what follows is added");
        cache.put_at(record(3), 512, &[7; 4]);
        assert_eq!(found(record(3), 512, 512), None, "its beginning is not here");
        cache.put(record(1), &[9; 8]);
        assert_eq!(found(record(1), 512, 512), Some(vec![9; 4]));
    }

    #[test]
    fn the_oldest_goes_when_there_is_no_room() {
        let cache = BlockChecksumCache::default();
        let sums = vec![1; 1 << 20];
        (0..40).for_each(|number| cache.put(record(number), &sums));
        (35..40).for_each(|number| cache.put(record(number), &sums));
        let state = cache.lock();
        assert_eq!(state.records.len(), 31);
        assert_eq!(state.bytes, 31 * (sums.len() + ENTRY_BYTES));
        assert!(state.records.contains_key(&record(39)) && !state.records.contains_key(&record(8)));
    }

    #[test]
    fn a_doubt_lasts_until_the_file_is_read() {
        let cache = BlockChecksumCache::default();
        cache.doubt(InodeId(1));
        cache.doubt(InodeId(1));
        assert!(!cache.take_doubt(InodeId(2)));
        assert!(cache.take_doubt(InodeId(1)));
        assert!(!cache.take_doubt(InodeId(1)));
        (0..5000).for_each(|number| cache.doubt(InodeId(number)));
        assert_eq!(cache.lock().doubted.len(), DOUBTS_MAX);
        assert!(cache.take_doubt(InodeId(4999)) && !cache.take_doubt(InodeId(0)));
    }
}
