//! Payloads of requests, borrowed or reference-counted, and the pool of receive buffers.
//!
//! Guarantees: bytes in a buffer of their own are shared with the code that keeps or forwards them, never copied; a
//! free buffer is used again with its pages; the number and bytes of free buffers are bounded.
//! Leaves to others: receiving (`frame_reader`), and when a payload gets a buffer of its own (`node`).

use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use frieze_locks::{Mutex, MutexGuard, levels};

use crate::peers::SentPrefix;

/// The payload of a request or message.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedPayload<'a> {
    bytes: &'a [u8],
    /// The buffer that holds all of them, if they have one: a clone of it keeps the bytes.
    shared: Option<&'a Bytes>,
    /// The prefix that was already sent to the next member of the chain.
    ahead: Option<&'a SentPrefix>,
    /// They are from within this process.
    unsent: bool,
}

impl<'a> ReceivedPayload<'a> {
    /// The same for bytes from within this process.
    pub fn unsent(self) -> ReceivedPayload<'a> {
        ReceivedPayload { unsent: true, ..self }
    }

    /// The expected CRC32C of bytes that were sent with `said`; none for bytes that never left the process.
    pub fn expected(self, said: u32) -> Option<u32> {
        (!self.unsent).then_some(said)
    }

    /// The bytes.
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// The same with a prefix that was sent ahead.
    pub fn behind(self, ahead: Option<&'a SentPrefix>) -> ReceivedPayload<'a> {
        ReceivedPayload { ahead, ..self }
    }

    /// The prefix that was already sent to the next member of the chain.
    pub fn ahead(self) -> Option<SentPrefix> {
        self.ahead.cloned()
    }

    /// A part of them to be kept: shared if they have a buffer of their own, else copied.
    ///
    /// # Panics
    /// If the range is not within them.
    pub fn keep(self, part: &[u8]) -> Bytes {
        match self.shared {
            Some(shared) => shared.slice_ref(part),
            None => Bytes::copy_from_slice(part),
        }
    }
}

impl<'a> From<&'a [u8]> for ReceivedPayload<'a> {
    fn from(bytes: &'a [u8]) -> ReceivedPayload<'a> {
        ReceivedPayload { bytes, shared: None, ahead: None, unsent: false }
    }
}

impl<'a> From<&'a Bytes> for ReceivedPayload<'a> {
    fn from(shared: &'a Bytes) -> ReceivedPayload<'a> {
        ReceivedPayload { bytes: shared, shared: Some(shared), ahead: None, unsent: false }
    }
}

impl Deref for ReceivedPayload<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

/// A pool of buffers. A new buffer of a mebibyte takes a fault for each of its pages, which costs more than writing
/// into it (a third of the work of a chain member for each record).
#[derive(Debug, Default)]
pub struct BufferPool(Mutex<levels::BufferPool, Free>);

#[derive(Debug, Default)]
struct Free {
    rooms: Vec<Vec<u8>>,
    bytes: usize,
    /// Smallest number of free buffers since the last [`BufferPool::trim`].
    idle: usize,
}

/// A buffer in use. Dropping the last reference returns it to the pool.
struct Lent {
    room: Vec<u8>,
    len: usize,
    pool: Arc<BufferPool>,
}

impl BufferPool {
    /// A buffer for a payload of `len` bytes: the one used last if it is not far too large.
    pub fn take(&self, len: usize) -> Vec<u8> {
        let mut free = self.free();
        let fits = |room: &Vec<u8>| (len..=len.saturating_mul(SPARE_TIMES)).contains(&room.capacity());
        let Some(at) = free.rooms.iter().rposition(fits) else {
            drop(free);
            return Vec::with_capacity(len);
        };
        let room = free.rooms.remove(at);
        free.bytes -= room.capacity();
        free.idle = free.idle.min(free.rooms.len());
        room
    }

    /// Shares the first `len` bytes of `room`.
    pub fn lend(self: &Arc<BufferPool>, room: Vec<u8>, len: usize) -> Bytes {
        Bytes::from_owner(Lent { room, len, pool: self.clone() })
    }

    /// Frees the buffers that were not needed since the last call.
    pub fn trim(&self) {
        let mut free = self.free();
        let idle = free.idle;
        let gone: Vec<Vec<u8>> = free.rooms.drain(..idle).collect();
        free.bytes -= gone.iter().map(Vec::capacity).sum::<usize>();
        free.idle = free.rooms.len();
        drop(free);
    }

    fn give_back(&self, room: Vec<u8>) {
        let mut free = self.free();
        if free.bytes + room.capacity() <= FREE_BYTES_MAX {
            free.bytes += room.capacity();
            free.rooms.push(room);
        }
    }

    #[track_caller]
    fn free(&self) -> MutexGuard<'_, Free> {
        self.0.lock()
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.room[..self.len]
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.pool.give_back(std::mem::take(&mut self.room));
    }
}

/// A buffer is lent only to a payload that fills at least this part of it: kept records count by their own length.
const SPARE_TIMES: usize = 2;
/// Bytes of free buffers at most: more than are in flight at once while no payload waits.
const FREE_BYTES_MAX: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(pool: &BufferPool, len: usize) -> Vec<u8> {
        let mut room = pool.take(len);
        room.resize(len, 7);
        room
    }

    #[test]
    fn what_came_in_a_buffer_of_its_own_is_kept_without_a_copy() {
        let pool = Arc::new(BufferPool::default());
        let bytes = pool.lend(filled(&pool, 1000), 900);
        let brought = ReceivedPayload::from(&bytes);
        let part = brought.keep(&brought.bytes()[100..200]);
        assert_eq!((part.len(), part.as_ptr()), (100, bytes[100..].as_ptr()));
        let copied = ReceivedPayload::from(&bytes[..]);
        assert_ne!(copied.keep(&copied[100..200]).as_ptr(), part.as_ptr());
    }

    #[test]
    fn a_buffer_is_reused_when_its_last_reference_is_dropped() {
        let pool = Arc::new(BufferPool::default());
        let bytes = pool.lend(filled(&pool, 1000), 1000);
        let (at, part) = (bytes.as_ptr(), bytes.slice(10..20));
        drop(bytes);
        let other = pool.take(1000);
        assert_ne!(other.as_ptr(), at, "a part of it is held");
        drop(part);
        let again = pool.take(600);
        assert_eq!(again.as_ptr(), at);
    }

    #[test]
    fn a_small_payload_does_not_hold_a_large_buffer() {
        let pool = Arc::new(BufferPool::default());
        drop(pool.lend(filled(&pool, 10_000), 10_000));
        assert!(pool.take(1000).capacity() < 10_000);
        assert!(pool.take(20_000).capacity() >= 20_000);
    }

    #[test]
    fn free_buffers_are_bounded_and_released_when_unused() {
        let pool = Arc::new(BufferPool::default());
        let lent: Vec<Bytes> = (0..40).map(|_| pool.lend(filled(&pool, 1 << 20), 1)).collect();
        drop(lent);
        let kept = || {
            let free = pool.free();
            (free.rooms.len(), free.bytes)
        };
        let (rooms, bytes) = kept();
        assert!(bytes <= FREE_BYTES_MAX && rooms >= 15, "{rooms} rooms, {bytes} bytes");
        let least = pool.take(1 << 20);
        pool.trim();
        assert!(kept().0 >= 14, "what was free all the time is not known yet");
        drop(pool.lend(least, 1));
        pool.trim();
        assert_eq!(kept().0, 1, "one came back since");
        pool.trim();
        assert_eq!(kept(), (0, 0));
    }
}
