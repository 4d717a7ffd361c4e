//! A few hundred bytes in one allocation, shared with snapshots, and copied before a change while they are shared.

use std::fmt;
use std::hint::black_box;
use std::sync::Arc;

use frieze_base::varint;
use frieze_hlc::Hlc;

/// Bytes of the two counters that come before the content of an [`Arc`].
const COUNTERS_BYTES: usize = 16;
/// Bytes that say how many of the others are used.
const LENGTH_BYTES: usize = 2;
const CACHE_LINE_BYTES: usize = 64;
/// Most bytes that fit.
pub(super) const PACKED_BYTES_MAX: usize = u16::MAX as usize;

/// At most [`PACKED_BYTES_MAX`] bytes. The allocation is as large as the allocator's size class, so the room up to the
/// class is free, and most changes fit into it.
#[derive(Clone)]
pub(super) struct PackedBytes(Arc<[u8]>);

impl PackedBytes {
    pub(super) fn new(content: &[u8]) -> PackedBytes {
        let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, capacity_of(content.len())).collect();
        fill(Arc::get_mut(&mut bytes).expect("it was made just now"), content);
        PackedBytes(bytes)
    }

    #[inline]
    pub(super) fn content(&self) -> &[u8] {
        let (length, rest) = self.0.split_first_chunk::<LENGTH_BYTES>().expect("the length is always there");
        &rest[..usize::from(u16::from_le_bytes(*length))]
    }

    /// The content, all cache lines of which are on their way: a search alone would wait for one after the other.
    #[inline]
    pub(super) fn fetched(&self) -> &[u8] {
        let content = self.content();
        black_box(content.iter().step_by(CACHE_LINE_BYTES).fold(0, |all, byte| all | byte));
        content
    }

    /// Replaces the content: in its place if it fits well and no snapshot shares it.
    pub(super) fn store(&mut self, content: &[u8]) {
        if self.0.len() == capacity_of(content.len())
            && let Some(bytes) = Arc::get_mut(&mut self.0)
        {
            fill(bytes, content);
        } else {
            *self = PackedBytes::new(content);
        }
    }
}

impl fmt::Debug for PackedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x?}", self.content())
    }
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
        let allocation = bytes.0.as_ptr();
        bytes.store(b"two");
        assert_eq!((bytes.content(), bytes.0.as_ptr()), (&b"two"[..], allocation), "changed in its place");
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
