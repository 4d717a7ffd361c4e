//! A few hundred bytes in one allocation, shared with snapshots, and copied before a change while they are shared; or a
//! place in a checkpoint that has them ([`super::place`]), or both.
//!
//! Bytes that have a place may leave memory. A read through a shared reference brings them back, and they stay, with
//! their place, until [`PackedBytes::evict`]. A change gives new bytes without a place.

use std::fmt;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use frieze_base::varint;
use frieze_hlc::Hlc;

use super::place::{ColdFile, ColdReader, PiecePlace, USED};

/// Bytes of the two counters that come before the content of an [`Arc`].
const COUNTERS_BYTES: usize = 16;
/// Bytes that say how many of the others are used.
const LENGTH_BYTES: usize = 2;
const CACHE_LINE_BYTES: usize = 64;
/// Most bytes that fit.
pub(super) const PACKED_BYTES_MAX: usize = u16::MAX as usize;

/// At most [`PACKED_BYTES_MAX`] bytes. The allocation is as large as the allocator's size class, so the room up to the
/// class is free, and most changes fit into it.
pub(super) struct PackedBytes {
    /// Empty: they are cold.
    bytes: OnceLock<Arc<[u8]>>,
    /// The checkpoint that has them too; `None`: memory alone has them.
    file: Option<Arc<ColdFile>>,
    /// The place in the file ([`PiecePlace`]), and [`USED`] if they were read since the last pass of evictions. Written
    /// only if it changes, so that readers do not take the cache line from each other.
    place: AtomicU64,
}

const _: () = assert!(size_of::<PackedBytes>() == 40);

impl PackedBytes {
    pub(super) fn new(content: &[u8]) -> PackedBytes {
        let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, capacity_of(content.len())).collect();
        fill(Arc::get_mut(&mut bytes).expect("it was made just now"), content);
        PackedBytes { bytes: OnceLock::from(bytes), file: None, place: AtomicU64::new(USED) }
    }

    #[inline]
    pub(super) fn content(&self) -> &[u8] {
        if self.place.load(Ordering::Relaxed) & USED == 0 {
            self.place.fetch_or(USED, Ordering::Relaxed);
        }
        match self.bytes.get() {
            Some(bytes) => content_of(bytes),
            None => self.load(),
        }
    }

    /// The content, all cache lines of which are on their way: a search alone would wait for one after the other.
    #[inline]
    pub(super) fn fetched(&self) -> &[u8] {
        let content = self.content();
        black_box(content.iter().step_by(CACHE_LINE_BYTES).fold(0, |all, byte| all | byte));
        content
    }

    /// The content; cold bytes are read into `reader` and stay cold, and nothing counts as used.
    pub(super) fn peek<'a>(&'a self, reader: &'a mut ColdReader) -> &'a [u8] {
        match self.bytes.get() {
            Some(bytes) => content_of(bytes),
            None => {
                let (file, place) = self.place().expect("cold bytes have a place");
                reader.content(file, place)
            }
        }
    }

    /// Length of the content, without a look at cold bytes.
    #[inline]
    pub(super) fn len(&self) -> usize {
        match self.bytes.get() {
            Some(bytes) => content_of(bytes).len(),
            None => self.place().expect("cold bytes have a place").1.content_bytes(),
        }
    }

    /// Bytes of memory that they take, or would take if they were not cold. Signed, for sums of differences.
    pub(super) fn memory_bytes(&self) -> i64 {
        memory_of(self.len())
    }

    /// Replaces the content: in its place if it fits well and no snapshot shares it.
    pub(super) fn store(&mut self, content: &[u8]) {
        if let Some(shared) = self.bytes.get_mut()
            && shared.len() == capacity_of(content.len())
            && let Some(bytes) = Arc::get_mut(shared)
        {
            fill(bytes, content);
            // The file has the bytes of before.
            if self.file.take().is_some() {
                *self.place.get_mut() = USED;
            }
        } else {
            *self = PackedBytes::new(content);
        }
    }

    /// Notes that a file has these bytes. Until they are used again they may leave memory.
    pub(super) fn set_place(&mut self, file: &Arc<ColdFile>, place: PiecePlace) {
        let used = *self.place.get_mut() & USED;
        self.file = Some(Arc::clone(file));
        *self.place.get_mut() = place.word() | used;
    }

    /// True if both are the same bytes without a look at them: the same in memory, or the same place.
    pub(super) fn is_same(&self, other: &PackedBytes) -> bool {
        if let (Some(ours), Some(others)) = (self.bytes.get(), other.bytes.get())
            && Arc::ptr_eq(ours, others)
        {
            return true;
        }
        match (self.place(), other.place()) {
            (Some((file, place)), Some((of_other, other))) => Arc::ptr_eq(file, of_other) && place == other,
            _ => false,
        }
    }

    /// True if they can leave memory: a file has them, and they were not used since the last call. The call takes the
    /// mark away that says so.
    pub(super) fn is_idle(&self) -> bool {
        if !self.may_leave() {
            return false;
        }
        let is_used = self.place.load(Ordering::Relaxed) & USED != 0;
        if is_used {
            self.place.fetch_and(!USED, Ordering::Relaxed);
        }
        !is_used
    }

    /// True if they are in memory, and a file has them too.
    pub(super) fn may_leave(&self) -> bool {
        self.file.is_some() && self.bytes.get().is_some()
    }

    /// Removes them from memory if a file has them. Returns how many bytes of memory that gives back.
    pub(super) fn evict(&mut self) -> i64 {
        if self.file.is_none() {
            return 0;
        }
        *self.place.get_mut() &= !USED;
        self.bytes.take().map_or(0, |bytes| memory_of(content_of(&bytes).len()))
    }

    /// True if they are in a file alone.
    #[cfg(test)]
    pub(super) fn is_cold(&self) -> bool {
        self.bytes.get().is_none()
    }

    fn place(&self) -> Option<(&Arc<ColdFile>, PiecePlace)> {
        Some((self.file.as_ref()?, PiecePlace::of_word(self.place.load(Ordering::Relaxed))))
    }

    #[cold]
    fn load(&self) -> &[u8] {
        let bytes = self.bytes.get_or_init(|| {
            let (file, place) = self.place().expect("cold bytes have a place");
            let mut reader = ColdReader::of_one();
            let content = reader.content(file, place);
            file.count_load(memory_of(content.len()));
            let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, capacity_of(content.len())).collect();
            fill(Arc::get_mut(&mut bytes).expect("it was made just now"), content);
            bytes
        });
        content_of(bytes)
    }
}

impl Clone for PackedBytes {
    fn clone(&self) -> PackedBytes {
        let place = AtomicU64::new(self.place.load(Ordering::Relaxed));
        PackedBytes { bytes: self.bytes.clone(), file: self.file.clone(), place }
    }
}

impl fmt::Debug for PackedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x?}", self.content())
    }
}

#[inline]
fn content_of(bytes: &[u8]) -> &[u8] {
    let (length, rest) = bytes.split_first_chunk::<LENGTH_BYTES>().expect("the length is always there");
    &rest[..usize::from(u16::from_le_bytes(*length))]
}

/// Memory of so many bytes of content.
fn memory_of(content_bytes: usize) -> i64 {
    (capacity_of(content_bytes) + COUNTERS_BYTES) as i64
}

fn fill(bytes: &mut [u8], content: &[u8]) {
    let length = u16::try_from(content.len()).expect("the caller splits what is larger");
    bytes[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
    bytes[LENGTH_BYTES..][..content.len()].copy_from_slice(content);
}

/// Length of the allocation's content, so that with the counters it is a whole size class of jemalloc: multiples of 16
/// bytes up to 128, then four classes for each power of two.
fn capacity_of(content_bytes: usize) -> usize {
    let all = COUNTERS_BYTES + LENGTH_BYTES + content_bytes;
    let spacing = if all <= 128 { 16 } else { all.next_power_of_two() / 8 };
    all.next_multiple_of(spacing) - COUNTERS_BYTES
}

/// Appends a stamp as its difference in microseconds to `last`, and its counter if it has one.
#[inline]
pub(super) fn put_stamp(bytes: &mut Vec<u8>, last: Hlc, stamp: Hlc) {
    let difference = stamp.micros().wrapping_sub(last.micros()) as i64;
    let head = ((difference << 1 ^ difference >> 63) as u64) << 1;
    match stamp.counter() {
        0 => varint::put(bytes, head),
        counter => {
            varint::put(bytes, head | 1);
            varint::put(bytes, counter.into());
        }
    }
}

/// Takes what [`put_stamp`] appended; `None` if it is no stamp.
#[inline]
pub(super) fn take_stamp(bytes: &mut &[u8], last: Hlc) -> Option<Hlc> {
    let head = varint::take(bytes)?;
    let counter = if head & 1 == 0 { 0 } else { varint::take(bytes)? };
    let zigzag = head >> 1;
    let micros = last.micros().wrapping_add((zigzag >> 1) ^ (zigzag & 1).wrapping_neg());
    if micros > Hlc::MICROS_MAX || counter > u64::from(Hlc::MAX.counter()) {
        return None;
    }
    Some(Hlc(Hlc::first_of_micros(micros).0 | counter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_is_a_whole_size_class_that_fits() {
        for (content, class) in [(0, 32), (14, 32), (15, 48), (110, 128), (111, 160), (1006, 1024), (1007, 1280)] {
            assert_eq!(capacity_of(content) + COUNTERS_BYTES, class, "{content}");
        }
        for content in 0..5000 {
            let capacity = capacity_of(content);
            assert!(capacity >= content + LENGTH_BYTES && capacity <= content + LENGTH_BYTES + 16 + content / 4);
        }
    }

    #[test]
    fn shared_bytes_stay_as_they_were_when_a_copy_changes() {
        let mut bytes = PackedBytes::new(b"one");
        let address = |bytes: &PackedBytes| bytes.bytes.get().map(|bytes| bytes.as_ptr());
        let allocation = address(&bytes);
        bytes.store(b"two");
        assert_eq!((bytes.content(), address(&bytes)), (&b"two"[..], allocation), "changed in its place");
        let snapshot = bytes.clone();
        bytes.store(b"three");
        assert_eq!((snapshot.content(), bytes.content()), (&b"two"[..], &b"three"[..]));
        bytes.store(&[7; 1000]);
        assert_eq!(bytes.content(), [7; 1000]);
    }

    #[test]
    fn stamps_of_every_distance_come_back() {
        let stamps = [0, 1, 4095, 4096, 1 << 40, (1 << 52) + 77, u64::MAX - 1, u64::MAX].map(Hlc);
        for last in stamps {
            for stamp in stamps {
                let mut bytes = Vec::new();
                put_stamp(&mut bytes, last, stamp);
                let rest = &mut bytes.as_slice();
                assert_eq!((take_stamp(rest, last), rest.len()), (Some(stamp), 0));
            }
        }
        let mut bytes = Vec::new();
        varint::put(&mut bytes, u64::MAX - 1);
        assert_eq!(take_stamp(&mut bytes.as_slice(), Hlc::ZERO), None, "beyond every stamp");
    }
}
