//! One page by HTTP on an address of its own, for programs that read something now and then, and speak nothing else.
//!
//! Guarantees: one request a connection, 8 KiB of head, [`TOTAL_MAX`] for everything; a wrong request is answered with
//! how to ask.
//! Leaves to others: what the page holds, how many connections are served at a time.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::ready;
use std::io::{self, ErrorKind, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use frieze_net::{Error, Origin, Proof, ServerAddr, tcp_proof};
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Version};

use crate::connection::serve;
use crate::http_body::{BodyContent, HttpBody};
use crate::limits::ConnectionLimits;
use crate::socket::RequestGuard;

/// Time for a connection, from its first byte to its last.
const TOTAL_MAX: Duration = Duration::from_secs(5);
/// Prometheus sends some 300 bytes.
const LIMITS: ConnectionLimits = ConnectionLimits {
    head: TOTAL_MAX,
    idle: TOTAL_MAX,
    silence: TOTAL_MAX,
    total: Some(TOTAL_MAX),
    head_bytes_max: 8 << 10,
    head_lines_max: 64,
    buffer_bytes_max: 16 << 10,
    keep_alive: false,
};
/// What a refusal is written in.
const WORDS: &str = "text/plain; charset=utf-8";

/// The listening socket of a page.
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
        let refused = |source: io::Error| match source.kind() {
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

    /// Waits for the next connection; `None` once [`PageListener::stop`] was called.
    ///
    /// # Errors
    /// `Listen` if the connection broke, or the system has no more descriptors: call again.
    pub fn accept(&self) -> Result<Option<PageConnection>, Error> {
        let accepted = self.listener.accept();
        if self.stopped.load(Ordering::Acquire) {
            return Ok(None);
        }
        match accepted {
            Ok((stream, peer)) => Ok(Some(PageConnection { stream, peer })),
            Err(source) => Err(Error::Listen { addr: self.address.to_string(), source }),
        }
    }

    /// Stops listening, from any thread.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        // It fails only if the socket is shut down already.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

/// A connection that has not been served yet.
#[derive(Debug)]
pub struct PageConnection {
    stream: TcpStream,
    peer: SocketAddr,
}

impl PageConnection {
    /// Whose the connection is, as the kernel knows it.
    pub fn origin(&self) -> Origin {
        let proof = self.stream.local_addr().ok().and_then(|local| tcp_proof(self.peer, local).ok());
        Origin::of(proof.unwrap_or(Proof::Unproven), self.peer.ip().to_canonical())
    }

    /// Answers a `GET` of `path` with what `page` makes: its content type and its text, or why there is none. Any other
    /// request is answered with how to ask. Ends early when `stopping` is set.
    ///
    /// # Errors
    /// Those of [`serve`].
    pub fn serve(
        &self,
        path: &str,
        stopping: &AtomicBool,
        page: impl FnOnce() -> Result<(&'static str, String), String>,
    ) -> io::Result<()> {
        // One request a connection, so it is made once.
        let page = RefCell::new(Some(page));
        let answer = |request: Request<Incoming>, guard| {
            let answer = match check(&request, path) {
                Ok(()) => match page.take().map(|page| page()) {
                    Some(Ok((kind, text))) => PageAnswer { kind, ..PageAnswer::new(StatusCode::OK, text) },
                    Some(Err(words)) => PageAnswer::new(StatusCode::INTERNAL_SERVER_ERROR, words + "\n"),
                    None => PageAnswer::new(StatusCode::BAD_REQUEST, "one request a connection\n".to_owned()),
                },
                Err(refused) => refused,
            };
            ready(answer.response(guard))
        };
        serve(&self.stream, LIMITS, Some(stopping), answer)
    }

    /// Answers 503 without reading the request.
    ///
    /// # Errors
    /// The connection's.
    pub fn refuse(&self, why: &str) -> io::Result<()> {
        let len = why.len() + 1;
        let head = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n";
        let answer = format!("{head}Content-Type: {WORDS}\r\nContent-Length: {len}\r\n\r\n{why}\n");
        // It fits into the empty send buffer of a new connection.
        self.stream.set_nonblocking(true)?;
        (&self.stream).write_all(answer.as_bytes())?;
        self.stream.shutdown(Shutdown::Write)
    }
}

/// Whether a request is a `GET` or `HEAD` of the page; else how to ask.
fn check<B>(request: &Request<B>, page: &str) -> Result<(), PageAnswer> {
    // HTTP/1.0 has no Host.
    if request.version() == Version::HTTP_11 && !request.headers().contains_key(HOST) {
        return Err(PageAnswer::new(StatusCode::BAD_REQUEST, "a request of HTTP/1.1 names its host\n".to_owned()));
    }
    if request.uri().path() != page {
        return Err(PageAnswer::new(StatusCode::NOT_FOUND, format!("there is nothing here but {page}\n")));
    }
    match *request.method() {
        Method::GET | Method::HEAD => Ok(()),
        _ => Err(PageAnswer::new(StatusCode::METHOD_NOT_ALLOWED, format!("it is only read: GET {page}\n"))),
    }
}

/// A status and a text.
#[derive(Debug, PartialEq, Eq)]
struct PageAnswer {
    status: StatusCode,
    kind: &'static str,
    text: String,
}

impl PageAnswer {
    fn new(status: StatusCode, text: String) -> PageAnswer {
        PageAnswer { status, kind: WORDS, text }
    }

    fn response(self, guard: RequestGuard) -> Response<HttpBody<Infallible>> {
        let mut response = Response::new(HttpBody::new(BodyContent::Whole(self.text.into()), guard));
        *response.status_mut() = self.status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(self.kind));
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        response
    }
}

#[cfg(test)]
mod tests;
