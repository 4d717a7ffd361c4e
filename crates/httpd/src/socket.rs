//! The socket of a connection as hyper reads and writes it, and where the connection is: between two requests, or in
//! one.

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use frieze_base::MonoTime;
use frieze_net::mono;
use hyper::rt::ReadBufCursor;
use rustix::event::PollFlags;

use crate::limits::ConnectionLimits;

/// Bytes of a body that are read from a socket at once.
const BODY_READ_BYTES: usize = 64 << 10;
/// Bytes of a head that are read from a socket at once.
const HEAD_READ_BYTES: usize = 4 << 10;

/// Where a connection is: between two requests, or in one.
#[derive(Debug)]
pub(crate) struct RequestPhase {
    limits: ConnectionLimits,
    began: MonoTime,
    in_request: Cell<bool>,
    /// Bytes of the head that is being received; 0 between two requests.
    head_bytes: Cell<usize>,
    is_first: Cell<bool>,
    since: Cell<MonoTime>,
}

impl RequestPhase {
    pub(crate) fn new(limits: ConnectionLimits) -> Rc<RequestPhase> {
        let (in_request, head_bytes, is_first) = (Cell::new(false), Cell::new(0), Cell::new(true));
        let began = mono();
        Rc::new(RequestPhase { limits, began, in_request, head_bytes, is_first, since: Cell::new(began) })
    }

    /// Begins a request. It lasts until the guard is dropped.
    pub(crate) fn begin(self: &Rc<RequestPhase>) -> RequestGuard {
        self.in_request.set(true);
        RequestGuard(self.clone())
    }

    /// Counts received bytes. The time of a head runs from its first byte; that of the first head from the beginning of
    /// the connection.
    ///
    /// # Errors
    /// `InvalidData` if a head becomes too long.
    fn count_received(&self, count: usize) -> io::Result<()> {
        if self.in_request.get() {
            return Ok(());
        }
        let before = self.head_bytes.get();
        if before == 0 && !self.is_first.get() {
            self.since.set(mono());
        }
        self.head_bytes.set(before + count);
        if self.is_head_too_long() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the head of a request is too long"));
        }
        Ok(())
    }

    /// True if a head has become too long.
    pub(crate) fn is_head_too_long(&self) -> bool {
        !self.in_request.get() && self.head_bytes.get() > self.limits.head_bytes_max
    }

    /// How long the connection may wait for its socket now.
    pub(crate) fn wait_max(&self) -> Duration {
        let now = mono();
        let left_of =
            |limit: Duration, since: MonoTime| limit.saturating_sub(Duration::from_nanos(now.since_ns(since)));
        let left = if self.in_request.get() {
            self.limits.silence
        } else if self.is_first.get() || self.head_bytes.get() > 0 {
            left_of(self.limits.head, self.since.get())
        } else {
            left_of(self.limits.idle, self.since.get())
        };
        left.min(self.total_left())
    }

    /// What is left of the time of the whole connection.
    pub(crate) fn total_left(&self) -> Duration {
        let spent = Duration::from_nanos(mono().since_ns(self.began));
        self.limits.total.map_or(Duration::MAX, |total| total.saturating_sub(spent))
    }
}

/// A request that is being answered: it ends when its answer is sent and this is dropped.
#[derive(Debug)]
pub struct RequestGuard(Rc<RequestPhase>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.in_request.set(false);
        self.0.is_first.set(false);
        self.0.head_bytes.set(0);
        self.0.since.set(mono());
    }
}

/// What hyper waits for.
#[derive(Debug, Default)]
pub(crate) struct PollInterest {
    readable: Cell<bool>,
    writable: Cell<bool>,
}

impl PollInterest {
    pub(crate) fn flags(&self) -> PollFlags {
        let flag = |wanted: &Cell<bool>, flag| if wanted.get() { flag } else { PollFlags::empty() };
        flag(&self.readable, PollFlags::IN) | flag(&self.writable, PollFlags::OUT)
    }

    /// Forgets what the socket is ready for, as a reactor does: hyper sets it again if it still waits. An error ends
    /// both waits.
    pub(crate) fn clear(&self, ready: PollFlags) {
        let failed = ready.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL);
        self.readable.set(self.readable.get() && !(failed || ready.intersects(PollFlags::IN)));
        self.writable.set(self.writable.get() && !(failed || ready.intersects(PollFlags::OUT)));
    }
}

/// The socket as hyper reads and writes it.
pub(crate) struct HyperSocket {
    stream: TcpStream,
    interest: Rc<PollInterest>,
    phase: Rc<RequestPhase>,
    buffer: Vec<u8>,
}

impl HyperSocket {
    pub(crate) fn new(stream: TcpStream, interest: Rc<PollInterest>, phase: Rc<RequestPhase>) -> HyperSocket {
        HyperSocket { stream, interest, phase, buffer: Vec::new() }
    }
}

impl hyper::rt::Read for HyperSocket {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, mut into: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let HyperSocket { stream, buffer, phase, .. } = &mut *self;
        let len = if phase.in_request.get() { BODY_READ_BYTES } else { HEAD_READ_BYTES };
        if buffer.len() != len {
            *buffer = vec![0; len];
        }
        let room = into.remaining().min(buffer.len());
        let count = match uninterrupted(|| stream.read(&mut buffer[..room])) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.interest.readable.set(true);
                return Poll::Pending;
            }
            other => other?,
        };
        into.put_slice(&buffer[..count]);
        Poll::Ready(self.phase.count_received(count))
    }
}

impl hyper::rt::Write for HyperSocket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match uninterrupted(|| self.stream.write_vectored(slices)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.interest.writable.set(true);
                Poll::Pending
            }
            other => Poll::Ready(other),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.stream.shutdown(Shutdown::Write))
    }
}

/// Repeats a system call that a signal interrupted.
pub(crate) fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
