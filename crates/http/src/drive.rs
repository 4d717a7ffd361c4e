//! A connection: hyper's state machine, its socket and the thread that they have to themselves.
//!
//! hyper reads and writes what it is given and says when it waits; it needs no runtime. What it waits for here is the socket
//! alone, so the thread asks the kernel for that and goes on. Requests are answered on the same thread, which may wait for the
//! server: nobody else waits for it (ADR 0003, ADR 0042).
//!
//! Guarantees: who sends no whole head in time, or neither takes nor sends anything for long in the middle of a request, is closed
//! ([`Patience`]); a head, which says whose request it is, has [`HEAD_BYTES_MAX`], and a connection without a request a small buffer; an
//! answer is not cut off by what its client sent without being asked.

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use frieze_base::MonoTime;
use frieze_client::mono;
use hyper::rt::ReadBufCursor;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Bytes of a request that are taken from a socket at once.
const READ_BYTES: usize = 64 << 10;
/// The same of a head.
const HEAD_READ_BYTES: usize = 4 << 10;
/// Bytes of a head: a path of 4,096 bytes, each written as three, and some lines.
pub(crate) const HEAD_BYTES_MAX: usize = 16 << 10;
/// What is said to whoever sends a longer one.
const HEAD_TOO_LONG: &[u8] =
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
/// What a client still sends when its answer has gone is passed over, up to so many bytes and for so long.
const PASSED_OVER_MAX: usize = 4 << 20;
const PASSED_OVER_FOR: Duration = Duration::from_secs(2);

/// How long a client is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patience {
    /// A request's head is there within so long, the first since the connection began.
    pub(crate) head: Duration,
    /// A connection is kept so long without a further request.
    pub(crate) idle: Duration,
    /// A client that neither takes nor sends anything for so long in the middle of a request is gone.
    pub(crate) silence: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { head: Duration::from_secs(10), idle: Duration::from_secs(30), silence: Duration::from_secs(60) }
    }
}

/// Where a connection is: between requests, or in one.
#[derive(Debug)]
pub(crate) struct Phase {
    patience: Patience,
    in_request: Cell<bool>,
    /// Of the head that comes; nothing between two requests.
    head_bytes: Cell<usize>,
    is_first: Cell<bool>,
    since: Cell<MonoTime>,
}

impl Phase {
    pub(crate) fn new(patience: Patience) -> Rc<Phase> {
        let (in_request, head_bytes, is_first) = (Cell::new(false), Cell::new(0), Cell::new(true));
        Rc::new(Phase { patience, in_request, head_bytes, is_first, since: Cell::new(mono()) })
    }

    /// A request has come. It lasts until what is returned is dropped.
    pub(crate) fn begin(self: &Rc<Phase>) -> InRequest {
        self.in_request.set(true);
        InRequest(self.clone())
    }

    /// So many bytes have come. The first byte of a head has its own time, but for the first head, which has that of the connection.
    ///
    /// # Errors
    /// `InvalidData` if a head becomes too long.
    fn came(&self, count: usize) -> io::Result<()> {
        if self.in_request.get() {
            return Ok(());
        }
        let before = self.head_bytes.get();
        if before == 0 && !self.is_first.get() {
            self.since.set(mono());
        }
        self.head_bytes.set(before + count);
        if before + count > HEAD_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the head of a request is too long"));
        }
        Ok(())
    }

    /// True if a head has become too long.
    fn is_too_long(&self) -> bool {
        !self.in_request.get() && self.head_bytes.get() > HEAD_BYTES_MAX
    }

    /// How long the socket is waited for now.
    fn patience(&self) -> Duration {
        if self.in_request.get() {
            return self.patience.silence;
        }
        let at_most = match self.is_first.get() || self.head_bytes.get() > 0 {
            true => self.patience.head,
            false => self.patience.idle,
        };
        at_most.saturating_sub(Duration::from_nanos(mono().0.saturating_sub(self.since.get().0)))
    }
}

/// A request is being answered.
#[derive(Debug)]
pub(crate) struct InRequest(Rc<Phase>);

impl Drop for InRequest {
    fn drop(&mut self) {
        self.0.in_request.set(false);
        self.0.is_first.set(false);
        self.0.head_bytes.set(0);
        self.0.since.set(mono());
    }
}

/// The socket as hyper reads and writes it.
pub(crate) struct Wire {
    stream: TcpStream,
    waits: Rc<Waits>,
    phase: Rc<Phase>,
    buffer: Vec<u8>,
}

/// What hyper waits for.
#[derive(Debug, Default)]
struct Waits {
    readable: Cell<bool>,
    writable: Cell<bool>,
}

impl Waits {
    fn flags(&self) -> PollFlags {
        let flag = |waits: &Cell<bool>, flag| if waits.get() { flag } else { PollFlags::empty() };
        flag(&self.readable, PollFlags::IN) | flag(&self.writable, PollFlags::OUT)
    }
}

impl hyper::rt::Read for Wire {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, mut into: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let Wire { stream, buffer, phase, .. } = &mut *self;
        let len = if phase.in_request.get() { READ_BYTES } else { HEAD_READ_BYTES };
        if buffer.len() != len {
            *buffer = vec![0; len];
        }
        let room = into.remaining().min(buffer.len());
        let count = match again(|| stream.read(&mut buffer[..room])) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.waits.readable.set(true);
                return Poll::Pending;
            }
            other => other?,
        };
        into.put_slice(&buffer[..count]);
        Poll::Ready(self.phase.came(count))
    }
}

impl hyper::rt::Write for Wire {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match again(|| self.stream.write_vectored(slices)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.waits.writable.set(true);
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

/// Drives a connection to its end: `serve` makes it of the socket.
///
/// # Errors
/// The socket's; `TimedOut` for a client that is too slow; what hyper says of what it was sent.
pub(crate) fn drive<C: Future<Output = hyper::Result<()>>>(
    stream: &TcpStream,
    phase: &Rc<Phase>,
    serve: impl FnOnce(Wire) -> C,
) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    let waits = Rc::new(Waits::default());
    let wire = Wire { stream: stream.try_clone()?, waits: waits.clone(), phase: phase.clone(), buffer: Vec::new() };
    let ended = run(stream, phase, &waits, pin!(serve(wire)));
    if phase.is_too_long() {
        // hyper takes what is read as one stream: that a head ends it is for us to say. It fits into what the kernel takes.
        let mut writer = stream;
        let _sent = again(|| writer.write(HEAD_TOO_LONG));
    }
    pass_over(stream);
    ended
}

fn run(
    stream: &TcpStream,
    phase: &Phase,
    waits: &Waits,
    mut connection: Pin<&mut impl Future<Output = hyper::Result<()>>>,
) -> io::Result<()> {
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let waker = Waker::from(woken.clone());
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(ended) = connection.as_mut().poll(&mut context) {
            return ended.map_err(io::Error::other);
        }
        // It asked to be asked again at once.
        if woken.0.swap(false, Ordering::AcqRel) {
            continue;
        }
        let flags = waits.flags();
        assert!(!flags.is_empty(), "a connection waits for its socket, or says that it does not wait");
        let ready = wait(stream, flags, phase.patience())?.ok_or(io::ErrorKind::TimedOut)?;
        // As a reactor would: whoever still waits for it asks again. An error lets both find it.
        let failed = ready.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL);
        waits.readable.set(waits.readable.get() && !(failed || ready.intersects(PollFlags::IN)));
        waits.writable.set(waits.writable.get() && !(failed || ready.intersects(PollFlags::OUT)));
    }
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

/// Ends a connection whose client may still be sending: closed over bytes that nobody read it would be reset, and the answer
/// with it.
fn pass_over(stream: &TcpStream) {
    let _ = stream.shutdown(Shutdown::Write);
    let until = mono().0 + PASSED_OVER_FOR.as_nanos() as u64;
    let mut room = [0; 16 << 10];
    let mut passed = 0;
    while passed < PASSED_OVER_MAX {
        let mut reader = stream;
        match again(|| reader.read(&mut room)) {
            Ok(0) => return,
            Ok(count) => passed += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let left = Duration::from_nanos(until.saturating_sub(mono().0));
                if left.is_zero() || !matches!(wait(stream, PollFlags::IN, left), Ok(Some(_))) {
                    return;
                }
            }
            Err(_) => return,
        }
    }
}

/// Waits until the socket is ready for one of `flags`; `None` if that takes too long.
fn wait(stream: &TcpStream, flags: PollFlags, at_most: Duration) -> io::Result<Option<PollFlags>> {
    let mut sockets = [PollFd::new(stream, flags)];
    let timeout = Timespec { tv_sec: at_most.as_secs() as i64, tv_nsec: at_most.subsec_nanos().into() };
    let count = again(|| poll(&mut sockets, Some(&timeout)).map_err(io::Error::from))?;
    Ok((count > 0).then(|| sockets[0].revents()))
}

fn again<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::net::TcpListener;
    use std::pin::Pin;

    use hyper::body::{Body, Incoming};
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper::{Request, Response};

    use super::*;

    /// Serves one connection, on which every request is read to its end and answered with how long it was; the other end of it.
    fn served(patience: Patience) -> (TcpStream, std::thread::JoinHandle<io::Result<()>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let thread = std::thread::spawn(move || {
            let phase = Phase::new(patience);
            let of_requests = phase.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let in_request = of_requests.begin();
                async move {
                    let mut body = request.into_body();
                    let mut len = 0;
                    while let Some(frame) =
                        std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await
                    {
                        len += frame.map_or(0, |frame| frame.data_ref().map_or(0, bytes::Bytes::len));
                    }
                    drop(in_request);
                    Ok::<_, Infallible>(Response::new(len.to_string()))
                }
            });
            drive(&stream, &phase, |wire| http1::Builder::new().serve_connection(wire, service))
        });
        (client, thread)
    }

    fn soon() -> Patience {
        let soon = Duration::from_millis(50);
        Patience { head: soon, idle: soon, silence: soon }
    }

    fn is_timeout(ended: &io::Result<()>) -> bool {
        ended.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut)
    }

    #[test]
    fn requests_come_one_after_the_other_and_in_pieces() {
        let (mut client, thread) = served(Patience::default());
        for (len, body) in [(0, vec![]), (700_000, vec![7; 700_000])] {
            let head = format!("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: {len}\r\n\r\n");
            for byte in head.bytes() {
                client.write_all(&[byte]).unwrap();
            }
            client.write_all(&body).unwrap();
            let mut answer = String::new();
            while !answer.ends_with(&format!("\r\n\r\n{len}")) {
                let mut byte = [0];
                client.read_exact(&mut byte).unwrap();
                answer.push(char::from(byte[0]));
            }
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        }
        drop(client);
        assert!(thread.join().unwrap().is_ok());
    }

    #[test]
    fn who_says_nothing_or_half_a_head_or_half_a_body_is_closed() {
        for sent in ["", "GET / HT", "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc"] {
            let (mut client, thread) = served(soon());
            client.write_all(sent.as_bytes()).unwrap();
            let mut rest = Vec::new();
            client.read_to_end(&mut rest).unwrap();
            assert_eq!(rest, b"", "{sent}");
            drop(client);
            let ended = thread.join().unwrap();
            assert!(is_timeout(&ended), "{sent}: {ended:?}");
        }
    }

    #[test]
    fn a_head_of_more_than_is_needed_is_refused_and_one_after_a_long_body_is_not() {
        let (mut client, thread) = served(Patience::default());
        let begins = b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n";
        for _ in 0..2 {
            client.write_all(begins).unwrap();
            client.write_all(&[7; 100_000]).unwrap();
            let mut answer = String::new();
            while !answer.ends_with("\r\n\r\n100000") {
                let mut byte = [0];
                client.read_exact(&mut byte).unwrap();
                answer.push(char::from(byte[0]));
            }
        }
        let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(HEAD_BYTES_MAX));
        client.write_all(long.as_bytes()).unwrap();
        let mut rest = String::new();
        client.read_to_string(&mut rest).unwrap();
        assert!(rest.starts_with("HTTP/1.1 431 "), "{rest}");
        drop(client);
        assert!(thread.join().unwrap().is_err());
    }

    #[test]
    fn a_first_head_has_its_time_from_the_beginning_however_slowly_it_comes() {
        let (mut client, thread) = served(soon());
        let mut rest = Vec::new();
        client.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        while client.write_all(b"G").is_ok() && client.read_to_end(&mut rest).is_err() {}
        drop(client);
        assert!(is_timeout(&thread.join().unwrap()));
    }

    #[test]
    fn what_is_no_http_is_told_so_and_closed() {
        let (mut client, thread) = served(Patience::default());
        client.write_all(&[0xff; 5000]).unwrap();
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).unwrap();
        assert!(rest.starts_with(b"HTTP/1.1 400 Bad Request"), "{}", String::from_utf8_lossy(&rest));
        drop(client);
        assert!(thread.join().unwrap().is_err());
    }
}
