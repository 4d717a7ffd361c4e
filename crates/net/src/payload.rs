//! Payloads as they came, and the buffers of those that outlive the message they came with.
//!
//! Guarantees: bytes that came in a buffer of their own are shared with whoever keeps them or sends them on, never copied; a buffer
//! that nobody needs any more is used again, pages and all; what is kept of such is bounded in number and bytes.
//! Leaves to others: receiving (`net`), and when a payload deserves a buffer of its own (`serve`).

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::peers::SentPrefix;

/// Bytes beside a request or a message.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedPayload<'a> {
    bytes: &'a [u8],
    /// They lie in here as a whole, and may be kept by keeping it.
    shared: Option<&'a Bytes>,
    /// What of them has gone to the chain's next member already.
    ahead: Option<&'a SentPrefix>,
    /// They came over no connection.
    unsent: bool,
}

impl<'a> ReceivedPayload<'a> {
    /// The same, from within this process.
    pub fn unsent(self) -> ReceivedPayload<'a> {
        ReceivedPayload { unsent: true, ..self }
    }

    /// What their CRC32C has to be, if they were sent with `said`: what never left the process was not damaged on its way.
    pub fn expected(self, said: u32) -> Option<u32> {
        (!self.unsent).then_some(said)
    }

    /// The bytes.
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// The same, of which some has gone ahead.
    pub fn behind(self, ahead: Option<&'a SentPrefix>) -> ReceivedPayload<'a> {
        ReceivedPayload { ahead, ..self }
    }

    /// What of them has gone to the chain's next member already.
    pub fn ahead(self) -> Option<SentPrefix> {
        self.ahead.cloned()
    }

    /// A part of them, to be kept.
    ///
    /// # Panics
    /// If it is none.
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

/// Buffers that are used again: one of a mebibyte that is made anew takes a fault for each of its pages, which costs more than
/// what is written into it (a third of what a member of a chain did with each record).
#[derive(Debug, Default)]
pub struct BufferPool(Mutex<Free>);

#[derive(Debug, Default)]
struct Free {
    rooms: Vec<Vec<u8>>,
    bytes: usize,
    /// So many were free all the time since [`BufferPool::trim`].
    idle: usize,
}

/// A buffer somebody holds bytes in; it comes back when nobody does any more.
struct Lent {
    room: Vec<u8>,
    len: usize,
    pool: Arc<BufferPool>,
}

impl BufferPool {
    /// Room for a payload of `len` bytes, the one that was used last if it is not far too large.
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

    /// The first `len` bytes of `room`, to be shared.
    pub fn lend(self: &Arc<BufferPool>, room: Vec<u8>, len: usize) -> Bytes {
        Bytes::from_owner(Lent { room, len, pool: self.clone() })
    }

    /// Gives up what nobody has needed since it was called last.
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

    fn free(&self) -> MutexGuard<'_, Free> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

/// A buffer is taken for what needs this part of it at least: what is kept of records counts by their own length.
const SPARE_TIMES: usize = 2;
/// Bytes of free buffers: more than are under way at once where nothing waits.
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
    fn a_buffer_comes_back_when_nobody_holds_any_of_it() {
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
    fn free_buffers_are_bounded_and_go_when_nobody_needs_them() {
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
