//! Connections within one process: the client's thread runs the server's code, and no byte passes through a socket.
//!
//! For gateways that run in the server's process. Requests, identity and replies are those of a socket: the same header
//! and body, the greeting first, and an [`Inbox`] in place of the way back. The encoding, four system calls and two
//! switches of threads are saved.
//!
//! Guarantees: a reply is in the inbox when [`Inbox::wait`] returns true, whichever thread put it there; after the end
//! of the connection every wait returns. Payloads are not checked again: they do not leave the process. Unverified
//! bytes are marked ([`PayloadPart::File`]).
//! Leaves to others: the replies (`node`), the client's side (`in_process_transport`). The number of replies that wait
//! is bounded by the requests that the client has in flight.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use frieze_base::{Fault, MonoTime};
use frieze_locks::{Condvar, Mutex, MutexGuard, levels};
use frieze_wire::FrameHeader;
use frieze_wire::message::{Reply, RequestBody};

use crate::mono;
use crate::payload_part::PayloadPart;

/// A server in this process.
pub trait InProcess: Send + Sync + fmt::Debug {
    /// Opens a connection for the user that this process runs as. Its replies go to `inbox`.
    ///
    /// # Errors
    /// `Unavailable` if the server is stopping.
    fn connect(&self, inbox: Arc<Inbox>) -> Result<Box<dyn InProcessConn>, Fault>;
}

/// The server's end of a connection. Dropping it ends the connection.
pub trait InProcessConn: Send + fmt::Debug {
    /// Handles a request, with the header that a frame would have. The reply is put into the inbox before this returns,
    /// or later.
    fn ask(&mut self, header: &FrameHeader, body: RequestBody, payload: &[u8]);
}

/// Replies of one connection that the client has not taken yet.
#[derive(Debug, Default)]
pub struct Inbox {
    state: Mutex<levels::Inbox, InboxState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct InboxState {
    replies: VecDeque<Response>,
    has_ended: bool,
    /// A thread waits. Without one, a notification would be a system call for nothing.
    is_awaited: bool,
    /// A buffer for the next payload.
    spare: Vec<u8>,
}

/// A reply with its payload.
#[derive(Debug)]
pub struct Response {
    /// The header that a frame would have.
    pub header: FrameHeader,
    /// The reply itself.
    pub result: Result<Reply, Fault>,
    /// Bytes that were read.
    pub payload: Vec<u8>,
    /// The parts of the whole payload in order; empty if `payload` is all of it.
    pub parts: Vec<PayloadPart>,
}

impl Response {
    /// Length of the payload in bytes, with those that stay in files.
    pub fn payload_len(&self) -> usize {
        if self.parts.is_empty() { self.payload.len() } else { self.parts.iter().map(PayloadPart::len).sum() }
    }
}

impl Inbox {
    /// Adds a reply.
    pub fn put(&self, response: Response) {
        let mut state = self.lock();
        state.replies.push_back(response);
        let is_awaited = state.is_awaited;
        drop(state);
        if is_awaited {
            self.changed.notify_all();
        }
    }

    /// Ends the connection: no reply follows.
    pub fn end(&self) {
        self.lock().has_ended = true;
        self.changed.notify_all();
    }

    /// True if it holds a reply.
    pub fn has_reply(&self) -> bool {
        !self.lock().replies.is_empty()
    }

    /// Waits for a reply or the end of the connection; false if neither has happened after `limit`.
    pub fn wait(&self, limit: Duration) -> bool {
        let mut state = self.lock();
        if !state.replies.is_empty() {
            return true;
        }
        let until = MonoTime(mono().0.saturating_add(limit.as_nanos() as u64));
        while state.replies.is_empty() && !state.has_ended {
            let left = until.since_ns(mono());
            if left == 0 {
                return false;
            }
            state.is_awaited = true;
            state = self.changed.wait_timeout(state, Duration::from_nanos(left)).0;
            state.is_awaited = false;
        }
        true
    }

    /// Removes the first reply.
    pub fn take(&self) -> Option<Response> {
        self.lock().replies.pop_front()
    }

    /// A buffer for a payload: the spare one with its old content, which need not be zeroed before it is overwritten,
    /// else an empty one.
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

    #[track_caller]
    fn lock(&self) -> MutexGuard<'_, InboxState> {
        self.state.lock()
    }
}

#[cfg(test)]
mod tests {
    use frieze_base::Reason;
    use frieze_wire::FrameKind;

    use super::*;

    fn response(id: u64) -> Response {
        let header = FrameHeader { request_id: id, ..FrameHeader::of(FrameKind::Refusal) };
        Response {
            header,
            result: Err(Fault::new(Reason::NotFound, "nothing")),
            payload: Vec::new(),
            parts: Vec::new(),
        }
    }

    #[test]
    fn a_waiting_thread_is_woken_by_a_reply_of_another_thread() {
        let inbox = Arc::new(Inbox::default());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| inbox.wait(Duration::from_secs(60)) && inbox.has_reply());
            inbox.put(response(1));
            assert!(waits.join().unwrap());
        });
        inbox.put(response(2));
        let taken: Vec<u64> = std::iter::from_fn(|| inbox.take()).map(|response| response.header.request_id).collect();
        assert_eq!(taken, [1, 2]);
    }

    #[test]
    fn a_wait_returns_at_its_limit_and_at_the_end_of_the_connection() {
        let inbox = Inbox::default();
        assert!(!inbox.wait(Duration::from_millis(1)));
        inbox.put(response(1));
        inbox.end();
        assert!(inbox.wait(Duration::ZERO) && inbox.take().is_some(), "a reply from before the end is kept");
        assert!(inbox.wait(Duration::from_secs(60)) && inbox.take().is_none());
    }

    #[test]
    fn the_larger_of_two_buffers_is_kept() {
        let inbox = Inbox::default();
        inbox.give_back(vec![1; 1000]);
        inbox.give_back(vec![1; 10]);
        let room = inbox.room();
        assert_eq!(room, [1; 1000], "with its old content");
        assert_eq!(inbox.room().capacity(), 0, "it is lent");
    }
}
