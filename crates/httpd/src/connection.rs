//! A connection: hyper's state machine, its socket and the thread that they have to themselves.
//!
//! hyper reads and writes what it is given and says when it waits; it needs no runtime. It waits for the socket alone,
//! so the thread polls that. Requests are answered on the same thread, which may wait for the server: no other
//! connection waits for it (ADR 0003, ADR 0042).
//!
//! Guarantees: a connection that exceeds its [`ConnectionLimits`] is closed; a head that is too long is answered 431;
//! an answer is not cut off by bytes that its client sent without being asked.

use std::error::Error as StdError;
use std::future::Future;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Buf;
use frieze_net::mono;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::limits::ConnectionLimits;
use crate::socket::{HyperSocket, PollInterest, RequestGuard, RequestPhase, uninterrupted};

/// The answer to a head that is too long.
const HEAD_TOO_LONG: &[u8] =
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
/// Bytes that a client still sends after its answer are read and discarded, up to so many and for so long.
const DISCARDED_BYTES_MAX: usize = 4 << 20;
const DISCARD_MAX: Duration = Duration::from_secs(2);
/// How often a waiting connection looks whether its server stops.
const STOP_CHECK_EVERY: Duration = Duration::from_millis(100);

/// Serves a connection on this thread until it ends. `answer` gets each request with a guard, which its answer has to
/// keep until it has been sent. The connection ends within 100 ms after `stopping` is set; without one the caller shuts
/// the socket down.
///
/// # Errors
/// The socket's; `TimedOut` for a client that is too slow, and where the server stops; what hyper says of malformed
/// requests.
pub fn serve<A, F, B>(
    stream: &TcpStream,
    limits: ConnectionLimits,
    stopping: Option<&AtomicBool>,
    answer: A,
) -> io::Result<()>
where
    A: Fn(Request<Incoming>, RequestGuard) -> F,
    F: Future<Output = Response<B>>,
    B: Body + 'static,
    B::Data: Buf,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    stream.set_nonblocking(true)?;
    let phase = RequestPhase::new(limits);
    let interest = Rc::new(PollInterest::default());
    let socket = HyperSocket::new(stream.try_clone()?, interest.clone(), phase.clone());
    let of_requests = phase.clone();
    let service = service_fn(move |request| {
        let answered = answer(request, of_requests.begin());
        async move { Ok::<_, std::convert::Infallible>(answered.await) }
    });
    let connection = http1::Builder::new()
        .max_buf_size(limits.buffer_bytes_max)
        .max_headers(limits.head_lines_max)
        .keep_alive(limits.keep_alive)
        // A client may close its half behind its request, and is still answered.
        .half_close(true)
        // As Hadoop's documentation writes them, for scripts that look for `Location:`.
        .title_case_headers(true)
        .serve_connection(socket, service);
    let waiter = Waiter { stream, phase: &phase, stopping };
    let ended = waiter.run(&interest, pin!(connection));
    if phase.is_head_too_long() {
        // To hyper the received bytes are one stream: it does not know that this is a head. The answer fits into the
        // socket's buffer.
        let mut writer = stream;
        let _sent = uninterrupted(|| writer.write(HEAD_TOO_LONG));
    }
    waiter.discard();
    ended
}

/// Waits for the socket of a connection.
struct Waiter<'c> {
    stream: &'c TcpStream,
    phase: &'c RequestPhase,
    stopping: Option<&'c AtomicBool>,
}

impl Waiter<'_> {
    fn run(
        &self,
        interest: &PollInterest,
        mut connection: Pin<&mut impl Future<Output = hyper::Result<()>>>,
    ) -> io::Result<()> {
        let woken = Arc::new(WakeFlag(AtomicBool::new(false)));
        let waker = Waker::from(woken.clone());
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(ended) = connection.as_mut().poll(&mut context) {
                return ended.map_err(io::Error::other);
            }
            // hyper wants to be polled again at once.
            if woken.0.swap(false, Ordering::AcqRel) {
                continue;
            }
            let flags = interest.flags();
            assert!(!flags.is_empty(), "a connection waits for its socket, or says that it does not wait");
            let ready = self.wait(flags, self.phase.wait_max())?.ok_or(io::ErrorKind::TimedOut)?;
            interest.clear(ready);
        }
    }

    /// Ends a connection whose client may still be sending: closed over bytes that were not read it would be reset, and
    /// the answer with it.
    fn discard(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
        let limit = DISCARD_MAX.min(self.phase.total_left());
        let until = mono().0 + limit.as_nanos() as u64;
        let mut room = [0; 16 << 10];
        let mut discarded = 0;
        while discarded < DISCARDED_BYTES_MAX {
            let mut reader = self.stream;
            match uninterrupted(|| reader.read(&mut room)) {
                Ok(0) => return,
                Ok(count) => discarded += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let left = Duration::from_nanos(until.saturating_sub(mono().0));
                    if left.is_zero() || !matches!(self.wait(PollFlags::IN, left), Ok(Some(_))) {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
    }

    /// Waits until the socket is ready for one of `flags`; `None` if that takes too long, or the server stops.
    fn wait(&self, flags: PollFlags, wait_max: Duration) -> io::Result<Option<PollFlags>> {
        let until = mono().0.saturating_add(u64::try_from(wait_max.as_nanos()).unwrap_or(u64::MAX));
        loop {
            if self.stopping.is_some_and(|stopping| stopping.load(Ordering::Acquire)) {
                return Ok(None);
            }
            let left = Duration::from_nanos(until.saturating_sub(mono().0));
            let once = if self.stopping.is_some() { left.min(STOP_CHECK_EVERY) } else { left };
            let mut sockets = [PollFd::new(self.stream, flags)];
            let timeout = Timespec { tv_sec: once.as_secs() as i64, tv_nsec: once.subsec_nanos().into() };
            let count = uninterrupted(|| poll(&mut sockets, Some(&timeout)).map_err(io::Error::from))?;
            if count > 0 {
                return Ok(Some(sockets[0].revents()));
            }
            if once == left {
                return Ok(None);
            }
        }
    }
}

struct WakeFlag(AtomicBool);

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
