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

use super::replies::reply_header;
use super::shared::{SHARED_BYTES_MIN, Shared};

/// The server, for callers in its process. It may end before they do.
pub(super) struct InProcessServer(Weak<Shared>);

impl InProcessServer {
    pub(super) fn new(shared: &Arc<Shared>) -> InProcessServer {
        InProcessServer(Arc::downgrade(shared))
    }
}

impl InProcess for InProcessServer {
    fn connect(&self, inbox: Arc<Inbox>) -> Result<Box<dyn InProcessConn>, Fault> {
        let shared = self.0.upgrade().filter(|shared| !shared.stopping.load(Ordering::Acquire)).ok_or_else(stopping)?;
        // As the kernel would prove for a socket of this process.
        let caller = user_of(rustix::process::getuid().as_raw())?;
        let replies = Arc::new(InboxReplies {
            inbox,
            clock: shared.parts.planes.clock.clone(),
            epoch: shared.parts.planes.data.epoch(),
        });
        let conn = Conn::new(Some(caller), random_nonce()?);
        Ok(Box::new(InProcessConnection { shared: self.0.clone(), conn, replies, scratch: Scratch::default() }))
    }
}

impl fmt::Debug for InProcessServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server in this process")
    }
}

/// A connection.
struct InProcessConnection {
    shared: Weak<Shared>,
    conn: Conn,
    replies: Arc<InboxReplies>,
    scratch: Scratch,
}

impl InProcessConn for InProcessConnection {
    fn ask(&mut self, header: &FrameHeader, body: RequestBody, payload: &[u8]) {
        let Some(shared) = self.shared.upgrade() else { return self.replies.inbox.end() };
        let under_way = RequestUnderWay::begin(&shared);
        if shared.stopping.load(Ordering::Acquire) {
            return self.replies.inbox.end();
        }
        let responder: Arc<dyn Responder> = self.replies.clone();
        let timed = shared.metrics.as_ref().map(|metrics| metrics.timed(body.request.as_ref(), &responder));
        let responder = timed.as_ref().unwrap_or(&responder);
        let span = shared.spans.as_ref().and_then(|spans| spans.begin(header, &body, responder));
        let _within = span.as_ref().map(|open| open.span.enter());
        let traced = span.clone().map(|open| open as Arc<dyn Responder>);
        let responder = traced.as_ref().unwrap_or(responder);
        let copied;
        let is_sent_on = payload.len() >= SHARED_BYTES_MIN && shared.parts.planes.data.forwards_any();
        let payload: ReceivedPayload<'_> = if is_sent_on {
            // The payload may be forwarded, or sent again, after the caller has reused its buffer.
            let mut room = shared.pool.take(payload.len());
            room.clear();
            room.extend_from_slice(payload);
            copied = shared.pool.lend(room, payload.len());
            (&copied).into()
        } else {
            payload.into()
        };
        let header = FrameHeader { payload_len: payload.len() as u32, ..*header };
        shared.parts.handle(&self.conn, &header, body, payload.unsent(), responder, &mut self.scratch);
        drop(under_way);
    }
}

impl Drop for InProcessConnection {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            let _under_way = RequestUnderWay::begin(&shared);
            if !shared.stopping.load(Ordering::Acquire) {
                shared.parts.service.sessions.disconnected(&self.conn);
            }
        }
    }
}

impl fmt::Debug for InProcessConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a connection within this process")
    }
}

/// Keeps the server from stopping until it is dropped.
struct RequestUnderWay<'a>(&'a Shared);

impl RequestUnderWay<'_> {
    fn begin(shared: &Shared) -> RequestUnderWay<'_> {
        // Counted before `stopping` is read: the server sets `stopping` before it reads this count.
        shared.requests_under_way.fetch_add(1, Ordering::SeqCst);
        RequestUnderWay(shared)
    }
}

impl Drop for RequestUnderWay<'_> {
    fn drop(&mut self) {
        self.0.requests_under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Replies of one connection.
struct InboxReplies {
    inbox: Arc<Inbox>,
    clock: Arc<NodeClock>,
    epoch: ChainEpoch,
}

impl InboxReplies {
    fn put(&self, request: &FrameHeader, result: Result<Reply, Fault>, payload: Vec<u8>, parts: Vec<PayloadPart>) {
        let kind = if result.is_ok() { FrameKind::Reply } else { FrameKind::Refusal };
        let header = reply_header(request, kind, self.epoch, &self.clock);
        self.inbox.put(Response { header, result, payload, parts });
    }

    /// An empty buffer.
    fn room(&self) -> Vec<u8> {
        let mut room = self.inbox.room();
        room.clear();
        room
    }
}

impl Responder for InboxReplies {
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
        let read = steps.portions(&mut |portion, _| {
            parts.push(match portion {
                Portion::Read(bytes) => {
                    room.extend_from_slice(bytes);
                    PayloadPart::Read(bytes.len())
                }
                Portion::UnverifiedSpan { held, stored, len } => {
                    let file: Arc<dyn AsFd + Send + Sync> = Arc::new(SharedFile(held.file.clone()));
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
        match read {
            Ok(()) => self.put(request, Ok(reply), room, parts),
            Err(fault) => self.put(request, Err(fault), Vec::new(), Vec::new()),
        }
    }
}

/// An open file of the system.
struct SharedFile(Arc<dyn DiskFile>);

impl AsFd for SharedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.handle().expect("it has one")
    }
}

fn stopping() -> Fault {
    Fault::new(Reason::Unavailable, "the server is stopping")
}
