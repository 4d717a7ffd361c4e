//! One page by HTTP: for programs that read something now and then, and speak nothing else.
//!
//! Guarantees: whoever sends garbage, too much, half a request or nothing gets an answer or is closed within [`ANSWER_MAX`]; what
//! is asked wrongly is told how it is asked. One request a connection.
//! Leaves to others: what the page holds, how many are answered at a time, the grammar of a request's head (`httparse`).

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use frieze_base::MonoTime;

use crate::{Error, Origin, Proof, ServerAddr, mono, tcp_proof};

/// An ear for visitors at one address.
#[derive(Debug)]
pub struct PageListener {
    listener: TcpListener,
    address: SocketAddr,
    stopped: AtomicBool,
}

impl PageListener {
    /// Listens on a TCP address; port 0 takes a free one.
    ///
    /// # Errors
    /// `Address` for a socket of this machine, `InUse`, `Listen`.
    pub fn bind(address: &ServerAddr) -> Result<PageListener, Error> {
        let ServerAddr::Tcp { host, port } = address else { return Err(Error::Address { text: address.to_string() }) };
        let refused = |source: std::io::Error| match source.kind() {
            ErrorKind::AddrInUse => Error::InUse { addr: address.to_string() },
            _ => Error::Listen { addr: address.to_string(), source },
        };
        let listener = TcpListener::bind((host.as_str(), *port)).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        Ok(PageListener { listener, address, stopped: AtomicBool::new(false) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for the next visitor; `None` once [`PageListener::stop`] was called.
    ///
    /// # Errors
    /// `Listen` if the connection broke, or the system has no more descriptors: call again.
    pub fn accept(&self) -> Result<Option<Visitor>, Error> {
        let accepted = self.listener.accept();
        if self.stopped.load(Ordering::Acquire) {
            return Ok(None);
        }
        match accepted {
            Ok((stream, peer)) => {
                Ok(Some(Visitor { stream, peer, until: MonoTime(mono().0 + ANSWER_MAX.as_nanos() as u64) }))
            }
            Err(source) => Err(Error::Listen { addr: self.address.to_string(), source }),
        }
    }

    /// Stops listening, from any thread.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        // It fails only if that was done before.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

/// Whoever asks, as long as there is patience with him.
#[derive(Debug)]
pub struct Visitor {
    stream: TcpStream,
    peer: SocketAddr,
    until: MonoTime,
}

impl Visitor {
    /// Whose the connection is, as the kernel knows it.
    pub fn origin(&self) -> Origin {
        let proof = self.stream.local_addr().ok().and_then(|local| tcp_proof(self.peer, local).ok());
        Origin::of(proof.unwrap_or(Proof::Unproven), self.peer.ip().to_canonical())
    }

    /// Answers a `GET` of `path` with what `page` makes, its kind and its text or why there is none; anything else with how to
    /// ask. Ends early when `stopping` is set.
    ///
    /// # Errors
    /// The connection's: the visitor has gone or was given up.
    pub fn show(
        &self,
        path: &str,
        stopping: &AtomicBool,
        page: impl FnOnce() -> Result<(&'static str, String), String>,
    ) -> std::io::Result<()> {
        let mut head = Vec::new();
        let asked = loop {
            match understood(&head, path) {
                Some(asked) => break asked,
                None if self.receive(&mut head, stopping)? == 0 => return Ok(()),
                None => {}
            }
        };
        let bytes = match asked {
            Ok(Asked { only_head }) => match page() {
                Ok((kind, body)) => Answer { status: "200 OK", more: "", kind, body }.bytes(only_head),
                Err(words) => Answer::refused("500 Internal Server Error", words + "\n").bytes(only_head),
            },
            Err(refused) => refused.bytes(false),
        };
        self.send(&bytes, stopping)?;
        self.part(stopping)
    }

    /// Tells the visitor, without hearing what he wants, to come again.
    ///
    /// # Errors
    /// The connection's.
    pub fn turn_away(&self, why: &str) -> std::io::Result<()> {
        let answer = Answer::refused("503 Service Unavailable", format!("{why}\n"));
        // It fits into what the kernel takes of a connection that has just begun.
        self.send(&answer.bytes(false), &AtomicBool::new(true))?;
        self.stream.shutdown(Shutdown::Write)
    }

    /// Adds what comes next to `head`. 0 at the end of what comes.
    fn receive(&self, head: &mut Vec<u8>, stopping: &AtomicBool) -> std::io::Result<usize> {
        let mut room = [0; 4096];
        let came = self.again(stopping, |stream| {
            let mut stream = stream;
            stream.read(&mut room)
        })?;
        head.extend_from_slice(&room[..came]);
        Ok(came)
    }

    fn send(&self, bytes: &[u8], stopping: &AtomicBool) -> std::io::Result<()> {
        let mut left = bytes;
        while !left.is_empty() {
            let went = self.again(stopping, |stream| {
                let mut stream = stream;
                stream.write(left)
            })?;
            left = &left[went..];
        }
        Ok(())
    }

    /// Ends the connection when the answer has been taken: closed over bytes that nobody read, it would be reset.
    fn part(&self, stopping: &AtomicBool) -> std::io::Result<()> {
        self.stream.shutdown(Shutdown::Write)?;
        let mut passed = Vec::new();
        while passed.len() < PASSED_OVER_MAX && self.receive(&mut passed, stopping)? > 0 {}
        Ok(())
    }

    /// Waits in short steps, so that the server can stop, and not for ever.
    fn again(
        &self,
        stopping: &AtomicBool,
        mut once: impl FnMut(&TcpStream) -> std::io::Result<usize>,
    ) -> std::io::Result<usize> {
        self.stream.set_read_timeout(Some(LOOK_EVERY))?;
        self.stream.set_write_timeout(Some(LOOK_EVERY))?;
        loop {
            match once(&self.stream) {
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                done => return done,
            }
            if mono() >= self.until || stopping.load(Ordering::Acquire) {
                return Err(ErrorKind::TimedOut.into());
            }
        }
    }
}

/// A request that is answered.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    /// Without the body.
    only_head: bool,
}

/// What a request that begins with `head` is about, or why it is refused; `None` if more has to come.
fn understood(head: &[u8], page: &str) -> Option<Result<Asked, Answer>> {
    let refused = |status, words: String| Some(Err(Answer::refused(status, words)));
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Partial) if head.len() < HEAD_BYTES_MAX => return None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            let words = format!("a request has at most {HEAD_BYTES_MAX} bytes and {HEADERS_MAX} lines here\n");
            return refused("431 Request Header Fields Too Large", words);
        }
        Err(error) => return refused("400 Bad Request", format!("this is not an HTTP request: {error}\n")),
        Ok(httparse::Status::Complete(_)) => {}
    }
    // A proxy of before 1999 sends none.
    if request.version == Some(1) && !request.headers.iter().any(|header| header.name.eq_ignore_ascii_case("host")) {
        return refused("400 Bad Request", "a request of HTTP/1.1 names its host\n".to_owned());
    }
    let target = request.path.unwrap_or_default();
    // As a proxy is asked (RFC 9112, 3.2.2).
    let path = target.strip_prefix("http://").map_or(target, |rest| rest.find('/').map_or("/", |at| &rest[at..]));
    let path = path.split(['?', '#']).next().unwrap_or_default();
    if path != page {
        return refused("404 Not Found", format!("there is nothing here but {page}\n"));
    }
    match request.method {
        Some("GET") => Some(Ok(Asked { only_head: false })),
        Some("HEAD") => Some(Ok(Asked { only_head: true })),
        _ => {
            let answer = Answer::refused("405 Method Not Allowed", format!("it is only read: GET {page}\n"));
            Some(Err(Answer { more: "Allow: GET, HEAD\r\n", ..answer }))
        }
    }
}

/// What is answered.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: &'static str,
    more: &'static str,
    kind: &'static str,
    body: String,
}

impl Answer {
    fn refused(status: &'static str, body: String) -> Answer {
        Answer { status, more: "", kind: "text/plain; charset=utf-8", body }
    }

    fn bytes(&self, without_body: bool) -> Vec<u8> {
        let Answer { status, more, kind, body } = self;
        let len = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\n{more}Content-Type: {kind}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n"
        );
        if without_body { head.into_bytes() } else { (head + body).into_bytes() }
    }
}

/// A visitor has so long for everything.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// How often it is looked whether the server stops.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Bytes of a request's head; Prometheus sends some 300.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Lines of it.
const HEADERS_MAX: usize = 64;
/// Bytes behind the head that are passed over, so that the answer is read before the connection is reset.
const PASSED_OVER_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests;
