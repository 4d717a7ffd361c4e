//! Buffers of finished streams for new ones: memory that was used just now is mapped, and in the cache.

use std::sync::{Mutex, PoisonError};

/// Bytes of one request of a stream: large enough that the cost of a call is lost in that of its bytes (1 MiB at 5 GB/s
/// is 200 us), small enough that buffers stay in the cache.
pub(crate) const REQUEST_BYTES: usize = 1 << 20;

/// A few buffers of one request each.
#[derive(Debug, Default)]
pub(crate) struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    /// A buffer of `len` bytes at least, with arbitrary content.
    pub(crate) fn take(&self, len: usize) -> Vec<u8> {
        let used =
            if len == REQUEST_BYTES { self.0.lock().unwrap_or_else(PoisonError::into_inner).pop() } else { None };
        used.unwrap_or_else(|| vec![0; len])
    }

    /// Keeps a buffer for the next stream, if it has the length of a request.
    pub(crate) fn give_back(&self, buffer: Vec<u8>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if buffer.len() == REQUEST_BYTES && kept.len() < KEPT_MAX {
            kept.push(buffer);
        }
    }
}

/// Streams that one client usually reads at once.
const KEPT_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_are_kept_and_the_last_is_the_first_to_be_used() {
        let buffers = Buffers::default();
        let mut last = buffers.take(REQUEST_BYTES);
        last[0] = 7;
        (0..2 * KEPT_MAX).for_each(|_| buffers.give_back(vec![0; 100]));
        (1..KEPT_MAX).for_each(|_| buffers.give_back(vec![0; REQUEST_BYTES]));
        buffers.give_back(last);
        buffers.give_back(vec![0; REQUEST_BYTES]);
        assert_eq!(buffers.0.lock().unwrap().len(), KEPT_MAX);
        assert_eq!(buffers.take(100).len(), 100);
        assert_eq!(buffers.take(REQUEST_BYTES)[0], 7);
    }
}
