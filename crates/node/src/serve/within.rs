//! Connections of gateways in this process: the calling thread runs the parts, and replies go into an inbox.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use frieze_base::{ChainEpoch, Fault, Reason};
use frieze_disk::DiskFile;
use frieze_net::{
    FileRange, InProcess, InProcessConn, Inbox, PayloadPart, ReceivedPayload, Response, random_nonce, user_of,
};
use frieze_service::{Conn, Portion, Responder, Scratch, Steps};
use frieze_storage::NodeClock;
use frieze_wire::frame::{FrameHeader, FrameKind};
use frieze_wire::message::{Reply, RequestBody};

use super::{SHARED_BYTES_MIN, Shared, header_of_answer};

/// The server, for callers in its process. It may end before they do.
pub(super) struct Here(Weak<Shared>);

impl Here {
    pub(super) fn new(shared: &Arc<Shared>) -> Here {
        Here(Arc::downgrade(shared))
    }
}

impl InProcess for Here {
    fn connect(&self, inbox: Arc<Inbox>) -> Result<Box<dyn InProcessConn>, Fault> {
        let shared = self.0.upgrade().filter(|shared| !shared.stopping.load(Ordering::Acquire)).ok_or_else(stopping)?;
        // As the kernel would prove for a socket of this process.
        let caller = user_of(rustix::process::getuid().as_raw())?;
        let answers = Arc::new(Answers {
            inbox,
            clock: shared.parts.planes.clock.clone(),
            epoch: shared.parts.planes.data.epoch(),
        });
        let conn = Conn::new(Some(caller), random_nonce()?);
        Ok(Box::new(Line { shared: self.0.clone(), conn, answers, scratch: Scratch::default() }))
    }
}

impl fmt::Debug for Here {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server in this process")
    }
}

/// A connection.
struct Line {
    shared: Weak<Shared>,
    conn: Conn,
    answers: Arc<Answers>,
    scratch: Scratch,
}

impl InProcessConn for Line {
    fn ask(&mut self, header: &FrameHeader, body: RequestBody, payload: &[u8]) {
        let Some(shared) = self.shared.upgrade() else { return self.answers.inbox.end() };
        let asking = Asking::begin(&shared);
        if shared.stopping.load(Ordering::Acquire) {
            return self.answers.inbox.end();
        }
        let responder: Arc<dyn Responder> = self.answers.clone();
        let timed = shared.door.as_ref().map(|door| door.timed(body.request.as_ref(), &responder));
        let responder = timed.as_ref().unwrap_or(&responder);
        let kept;
        let brought: ReceivedPayload<'_> = if payload.len() >= SHARED_BYTES_MIN && shared.parts.planes.is_in_chains() {
            // The payload may be forwarded, or sent again, after the caller has reused its buffer.
            let mut room = shared.pool.take(payload.len());
            room.clear();
            room.extend_from_slice(payload);
            kept = shared.pool.lend(room, payload.len());
            (&kept).into()
        } else {
            payload.into()
        };
        let header = FrameHeader { payload_len: payload.len() as u32, ..*header };
        shared.parts.handle(&self.conn, &header, body, brought.unsent(), responder, &mut self.scratch);
        drop(asking);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            let _asking = Asking::begin(&shared);
            if !shared.stopping.load(Ordering::Acquire) {
                shared.parts.service.sessions.disconnected(&self.conn);
            }
        }
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a connection within this process")
    }
}

/// Keeps the server from stopping until it is dropped.
struct Asking<'a>(&'a Shared);

impl Asking<'_> {
    fn begin(shared: &Shared) -> Asking<'_> {
        // Counted before `stopping` is read: the server sets `stopping` before it reads this count.
        shared.asking.fetch_add(1, Ordering::SeqCst);
        Asking(shared)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.asking.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Replies of one connection.
struct Answers {
    inbox: Arc<Inbox>,
    clock: Arc<NodeClock>,
    epoch: ChainEpoch,
}

impl Answers {
    fn put(&self, request: &FrameHeader, result: Result<Reply, Fault>, payload: Vec<u8>, parts: Vec<PayloadPart>) {
        let kind = if result.is_ok() { FrameKind::Reply } else { FrameKind::Refusal };
        let header = header_of_answer(request, kind, self.epoch, &self.clock);
        self.inbox.put(Response { header, result, payload, parts });
    }

    /// An empty buffer.
    fn room(&self) -> Vec<u8> {
        let mut room = self.inbox.room();
        room.clear();
        room
    }
}

impl Responder for Answers {
    fn respond(&self, request: &FrameHeader, result: Result<Reply, Fault>, payload: &[u8], _: u32) {
        let mut room = if payload.is_empty() { Vec::new() } else { self.room() };
        room.extend_from_slice(payload);
        self.put(request, result, room, Vec::new());
    }

    fn respond_with(&self, request: &FrameHeader, result: Result<Reply, Fault>, payload: &mut Vec<u8>, _: u32) {
        let room = self.inbox.room();
        self.put(request, result, std::mem::replace(payload, room), Vec::new());
    }

    /// Ranges that files of the system hold are not read: the reply names them.
    fn respond_in_steps(&self, request: &FrameHeader, mut reply: Reply, steps: &mut Steps<'_>) {
        if steps.end_with_a_record()
            && let Reply::Read(read) = &mut reply
        {
            read.end_of_file = false;
        }
        let (mut room, mut parts) = (self.room(), Vec::new());
        let brought = steps.portions(&mut |portion, _| {
            parts.push(match portion {
                Portion::Read(bytes) => {
                    room.extend_from_slice(bytes);
                    PayloadPart::Read(bytes.len())
                }
                Portion::UnverifiedSpan { held, stored, len } => {
                    let file: Arc<dyn AsFd + Send + Sync> = Arc::new(Kept(held.file.clone()));
                    PayloadPart::File(FileRange {
                        file,
                        offset: held.offset,
                        len,
                        stamp: stored.stamp,
                        skip: stored.skip,
                    })
                }
            });
            Ok(())
        });
        match brought {
            Ok(()) => self.put(request, Ok(reply), room, parts),
            Err(fault) => self.put(request, Err(fault), Vec::new(), Vec::new()),
        }
    }
}

/// An open file of the system.
struct Kept(Arc<dyn DiskFile>);

impl AsFd for Kept {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.handle().expect("it has one")
    }
}

fn stopping() -> Fault {
    Fault::new(Reason::Unavailable, "the server is stopping")
}
