//! Checksums of spans of records that were recently written or sent: states of a chunk that are close in time share
//! most of their pieces, and reading the checksums of a small piece costs as much as looking up the piece.
//!
//! Guarantees: a cached checksum was once stored beside the bytes; the receiver compares it with the bytes all the
//! same. Bounded: of two spans with one slot the newer stays.

use std::hash::{DefaultHasher, Hash, Hasher};

/// Smallest span of a record that the kernel sends from the file: a smaller one is read faster than its checksums are
/// looked up.
pub const SENDFILE_BYTES_MIN: u64 = 32 << 10;

use frieze_base::{SegmentId, crc32c_combine};
use frieze_hlc::Hlc;
use frieze_locks::{Mutex, MutexGuard, levels};
use frieze_multilog::StoredSpan;

/// The cache. Uses no memory before the first span, and grows with the count of spans.
#[derive(Default)]
pub(super) struct SpanChecksums(Mutex<levels::SpanChecksums, Table>);

/// Slots, a power of two or none: each holds one of the spans whose hashes begin with its number.
#[derive(Default)]
struct Table {
    slots: Vec<ChecksumSlot>,
    /// Count of slots with a span.
    used: usize,
}

/// A span by its hash, in two halves (so that a slot is 12 bytes), and its checksum. A hash of 0 means no span.
#[derive(Clone, Copy, Default)]
struct ChecksumSlot {
    hash: [u32; 2],
    crc: u32,
}

/// A byte range of a record.
#[derive(Clone, Copy, Hash)]
pub(super) struct CachedSpan {
    segment: SegmentId,
    /// Offset of the first one in the segment.
    offset: u64,
    len: u64,
    /// Stamp of the record: a record that is written where another was refused differs by it.
    stamp: Hlc,
}

impl CachedSpan {
    /// `len` bytes from where `source` begins.
    pub(super) fn of(source: &StoredSpan, len: u64) -> CachedSpan {
        CachedSpan {
            segment: source.segment,
            offset: source.data_offset + u64::from(source.skip),
            len,
            stamp: source.stamp,
        }
    }

    /// All `len` bytes of a record that begin at `offset` of a segment.
    pub(super) fn whole(segment: SegmentId, offset: u64, len: u64, stamp: Hlc) -> CachedSpan {
        CachedSpan { segment, offset, len, stamp }
    }

    fn hash(&self) -> [u32; 2] {
        let mut hasher = DefaultHasher::new();
        Hash::hash(self, &mut hasher);
        let hash = hasher.finish().max(1);
        [(hash >> 32) as u32, hash as u32]
    }
}

impl SpanChecksums {
    /// The checksum of a span. Two spans share a hash once in 2^64 pairs: the receiver compares bytes and checksum, and
    /// retries the read.
    pub(super) fn get(&self, span: &CachedSpan) -> Option<u32> {
        let hash = span.hash();
        let table = self.table();
        table.slots.get(table.slot_of(hash)).filter(|slot| slot.hash == hash).map(|slot| slot.crc)
    }

    /// Drops all entries: a checksum that was stored beside bytes was rewritten.
    pub(super) fn clear(&self) {
        *self.table() = Table::default();
    }

    /// Sets the checksum of a span.
    pub(super) fn put(&self, span: CachedSpan, crc: u32) {
        self.table().put(ChecksumSlot { hash: span.hash(), crc });
    }

    #[track_caller]
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock()
    }
}

impl Table {
    /// The slot for the upper bits of a hash.
    fn slot_of(&self, [upper, _]: [u32; 2]) -> usize {
        ((u64::from(upper) * self.slots.len() as u64) >> u32::BITS) as usize
    }

    fn put(&mut self, slot: ChecksumSlot) {
        // It grows when a quarter is used, so few spans displace another while there is space.
        if self.used >= self.slots.len() / 4 && self.slots.len() < SLOTS_MAX {
            let before = std::mem::take(self);
            self.slots = vec![ChecksumSlot::default(); (2 * before.slots.len()).max(SLOTS_MIN)];
            before.slots.into_iter().filter(|slot| slot.hash != [0; 2]).for_each(|slot| self.place(slot));
        }
        self.place(slot);
    }

    fn place(&mut self, slot: ChecksumSlot) {
        let at = self.slot_of(slot.hash);
        self.used += usize::from(self.slots[at].hash == [0; 2]);
        self.slots[at] = slot;
    }
}

/// The CRC32C of `len` bytes, from the CRC32Cs of their blocks.
pub(super) fn combined(crcs: &[u32], len: u64, block_bytes: u64) -> u32 {
    let (first, others) = crcs.split_first().expect("no span is empty");
    let mut left = len - block_bytes.min(len);
    others.iter().fold(*first, |before, crc| {
        let own = block_bytes.min(left);
        left -= own;
        crc32c_combine(before, *crc, own)
    })
}

/// Initial count of slots.
const SLOTS_MIN: usize = 256;
/// Maximum count of slots: 3 MiB hold most of 128 chunks in pieces of 32 KiB, and of 128 GiB in pieces of 1 MiB.
const SLOTS_MAX: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(offset: u64, skip: u32, wall_ns: u64) -> StoredSpan {
        StoredSpan {
            segment: SegmentId(3),
            data_offset: offset,
            record_len: 64 << 10,
            skip,
            crcs_offset: offset - 64,
            block_bytes: 4096,
            stamp: Hlc(wall_ns),
        }
    }

    #[test]
    fn a_span_is_found_by_its_place_its_length_and_its_stamp() {
        let cache = SpanChecksums::default();
        let source = stored(1 << 20, 4096, 7);
        let span = CachedSpan::of(&source, 32 << 10);
        assert_eq!(cache.get(&span), None);
        cache.put(span, 0xfeed);
        assert_eq!(cache.get(&span), Some(0xfeed));
        assert_eq!(cache.get(&CachedSpan::of(&source, 28 << 10)), None, "fewer bytes");
        assert_eq!(cache.get(&CachedSpan::of(&stored(1 << 20, 8192, 7), 32 << 10)), None, "another place");
        assert_eq!(
            cache.get(&CachedSpan::of(&stored(1 << 20, 4096, 8), 32 << 10)),
            None,
            "another record in the same place"
        );
    }

    #[test]
    fn the_checksum_of_a_span_is_that_of_its_bytes_however_long_the_last_block_is() {
        let bytes: Vec<u8> = (0..40_000u32).map(|at| (at * 7) as u8).collect();
        for len in [1, 4095, 4096, 4097, 32 << 10, 40_000] {
            let crcs: Vec<u32> = bytes[..len].chunks(4096).map(frieze_base::crc32c).collect();
            assert_eq!(combined(&crcs, len as u64, 4096), frieze_base::crc32c(&bytes[..len]), "{len} bytes");
        }
    }

    #[test]
    fn the_cache_grows_to_its_bound_and_always_has_the_newest_span() {
        let cache = SpanChecksums::default();
        let span = |number: u64| CachedSpan::of(&stored(128 + number * (33 << 10), 0, number), 32 << 10);
        for number in 0..3 * SLOTS_MAX as u64 {
            cache.put(span(number), number as u32);
            assert_eq!(cache.get(&span(number)), Some(number as u32));
            if number == 999 {
                assert!(cache.table().slots.len() <= 4096, "{} slots for 1,000 spans", cache.table().slots.len());
                // While there is space few spans displace others.
                let kept = (0..1000).filter(|number| cache.get(&span(*number)) == Some(*number as u32)).count();
                assert!(kept > 800, "{kept} of 1,000");
            }
        }
        let table = cache.table();
        assert_eq!((table.slots.len(), size_of::<ChecksumSlot>()), (SLOTS_MAX, 12));
        let used = table.slots.iter().filter(|slot| slot.hash != [0; 2]).count();
        assert_eq!(used, table.used);
        assert!(used > SLOTS_MAX / 10 * 9, "{used} slots are used");
        drop(table);
        cache.clear();
        assert_eq!((cache.get(&span(3 * SLOTS_MAX as u64 - 1)), cache.table().slots.capacity()), (None, 0));
    }
}
