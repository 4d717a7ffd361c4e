//! Connections within a process: who asks runs the server's code on its own thread, and no byte passes through a socket.
//!
//! For doors that live in the server's process. What a request is, who asks and what is answered are as over a socket: the same
//! header and body, greeting first, an [`Inbox`] in place of the way back. What is gone is the encoding, four system calls and two
//! switches of threads.
//!
//! Guarantees: an answer is there when [`Inbox::wait`] says so, whichever thread it came from; a connection that has ended says so to
//! whoever waits. Payloads are not checked again: they do not leave the process. What nobody has read is said to be so ([`Lot::Lies`]).
//! Leaves to others: what is answered (`node`), which requests are under way (`client`). How many answers may wait is bounded by who
//! asks: it has so many requests under way.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use frieze_base::{Fault, MonoTime};
use frieze_hlc::Hlc;
use frieze_wire::FrameHeader;
use frieze_wire::message::{Reply, RequestBody};

use crate::mono;

/// A server in this process.
pub trait Within: Send + Sync + fmt::Debug {
    /// Begins a connection of the user whom this process runs as. Its answers go to `inbox`.
    ///
    /// # Errors
    /// `Unavailable` if the server is stopping.
    fn connect(&self, inbox: Arc<Inbox>) -> Result<Box<dyn Asked>, Fault>;
}

/// The server's end of a connection. Dropped, the connection has ended.
pub trait Asked: Send + fmt::Debug {
    /// Takes a request, with the beginning of a frame as it would have come in one. Its answer may have come when this returns, and
    /// may come later.
    fn ask(&mut self, header: &FrameHeader, body: RequestBody, payload: &[u8]);
}

/// Answers that have come and are not taken yet.
#[derive(Debug, Default)]
pub struct Inbox {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    answers: VecDeque<Came>,
    has_ended: bool,
    /// Somebody waits: waking nobody would be a system call, too.
    is_awaited: bool,
    /// A buffer whose bytes were taken.
    spare: Vec<u8>,
}

/// An answer.
#[derive(Debug)]
pub struct Came {
    /// As a frame would have begun.
    pub header: FrameHeader,
    /// The answer itself.
    pub result: Result<Reply, Fault>,
    /// Bytes beside it, that were read.
    pub payload: Vec<u8>,
    /// What all the bytes beside it are, in order; if there is none, `payload`.
    pub lots: Vec<Lot>,
}

impl Came {
    /// Bytes beside it, read or not.
    pub fn payload_len(&self) -> usize {
        if self.lots.is_empty() { self.payload.len() } else { self.lots.iter().map(Lot::len).sum() }
    }
}

/// Some of the bytes beside an answer.
#[derive(Clone, Debug)]
pub enum Lot {
    /// So many that were read and verified, the next ones of the payload.
    Read(usize),
    /// Bytes that nobody has looked at, where they lie.
    Lies(Lies),
}

impl Lot {
    /// Bytes of it.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        match self {
            Lot::Read(len) => *len,
            Lot::Lies(lies) => lies.len,
        }
    }
}

/// Where the system holds bytes of a record, so that it can hand them on. Who gets them has to compare them with a checksum that is older
/// than they are: they may have been damaged.
#[derive(Clone)]
pub struct Lies {
    /// In which file.
    pub file: Arc<dyn AsFd + Send + Sync>,
    /// Where in it, in bytes.
    pub offset: u64,
    /// How many bytes.
    pub len: usize,
    /// When the record was written. The records of a file that begin at one place have different stamps.
    pub stamp: Hlc,
    /// Bytes of the record before these.
    pub skip: u32,
}

impl fmt::Debug for Lies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {} of a file, {} into the record of {}", self.len, self.offset, self.skip, self.stamp)
    }
}

impl Inbox {
    /// An answer has come.
    pub fn put(&self, came: Came) {
        let mut state = self.lock();
        state.answers.push_back(came);
        let is_awaited = state.is_awaited;
        drop(state);
        if is_awaited {
            self.changed.notify_all();
        }
    }

    /// Nothing comes any more.
    pub fn end(&self) {
        self.lock().has_ended = true;
        self.changed.notify_all();
    }

    /// True if an answer is here.
    pub fn has_answer(&self) -> bool {
        !self.lock().answers.is_empty()
    }

    /// Waits until an answer is here or the connection has ended; false if neither has happened after `limit`.
    pub fn wait(&self, limit: Duration) -> bool {
        let mut state = self.lock();
        if !state.answers.is_empty() {
            return true;
        }
        let until = MonoTime(mono().0.saturating_add(limit.as_nanos() as u64));
        while state.answers.is_empty() && !state.has_ended {
            let left = until.since_ns(mono());
            if left == 0 {
                return false;
            }
            state.is_awaited = true;
            let waited = self.changed.wait_timeout(state, Duration::from_nanos(left));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.is_awaited = false;
        }
        true
    }

    /// The first answer that is here.
    pub fn take(&self) -> Option<Came> {
        self.lock().answers.pop_front()
    }

    /// A buffer for a payload: one that was used before, as it was left, so that who fills as much need not make it zeros first; else
    /// an empty one.
    pub fn room(&self) -> Vec<u8> {
        std::mem::take(&mut self.lock().spare)
    }

    /// Keeps a buffer for the next payload.
    pub fn give_back(&self, buffer: Vec<u8>) {
        let mut state = self.lock();
        if buffer.capacity() > state.spare.capacity() {
            state.spare = buffer;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use frieze_base::Reason;
    use frieze_wire::FrameKind;

    use super::*;

    fn came(id: u64) -> Came {
        let header = FrameHeader { request_id: id, ..FrameHeader::of(FrameKind::Refusal) };
        Came { header, result: Err(Fault::new(Reason::NotFound, "nothing")), payload: Vec::new(), lots: Vec::new() }
    }

    #[test]
    fn who_waits_is_woken_by_an_answer_of_another_thread() {
        let inbox = Arc::new(Inbox::default());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| inbox.wait(Duration::from_secs(60)) && inbox.has_answer());
            inbox.put(came(1));
            assert!(waits.join().unwrap());
        });
        inbox.put(came(2));
        let taken: Vec<u64> = std::iter::from_fn(|| inbox.take()).map(|came| came.header.request_id).collect();
        assert_eq!(taken, [1, 2]);
    }

    #[test]
    fn who_waits_for_nothing_stops_waiting() {
        let inbox = Inbox::default();
        assert!(!inbox.wait(Duration::from_millis(1)));
        inbox.put(came(1));
        inbox.end();
        assert!(inbox.wait(Duration::ZERO) && inbox.take().is_some(), "what came before the end is there");
        assert!(inbox.wait(Duration::from_secs(60)) && inbox.take().is_none());
    }

    #[test]
    fn the_larger_of_two_buffers_is_kept() {
        let inbox = Inbox::default();
        inbox.give_back(vec![1; 1000]);
        inbox.give_back(vec![1; 10]);
        let room = inbox.room();
        assert_eq!(room, [1; 1000], "as it was left");
        assert_eq!(inbox.room().capacity(), 0, "it is lent");
    }
}
