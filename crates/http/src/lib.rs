//! The WebHDFS gateway: the calls of Hadoop's file system by HTTP, for curl and other programs without Hadoop, in the
//! present and in the past.
//!
//! ```text
//! frieze serve --dir /srv/frieze --webhdfs 127.0.0.1:9870
//! curl -L 'http://127.0.0.1:9870/webhdfs/v1/.at/5m-ago/logs/today?op=OPEN'
//! ```
//!
//! A request arrives on a connection with its own thread (`frieze_httpd`), is parsed ([`web_request`]), is answered by
//! a call of the HDFS gateway in the same process ([`ops`]) or by bytes ([`transfers`]), and encoded in JSON ([`json`],
//! [`reply`]). The HDFS gateway decides what a call does and refuses, and what paths and instants mean: it is the same
//! function.
//!
//! Guarantees: a file is never in memory as a whole; if a client vanishes, the file has the bytes that arrived, and is
//! closed; a client that sends garbage, too much, too little or nothing gets an error or is disconnected, and affects
//! no other client; a web page in a browser cannot use this gateway in the name of its reader. ADR 0042 has the
//! decisions.
//! Leaves to others: HTTP (`hyper`), the calls (`frieze-hdfs`), rights, history and bytes (the server), starting and
//! stopping (`cli`).

mod json;
mod ops;
mod recorded;
mod reply;
mod transfers;
mod web_request;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use frieze_client::{AcceptedConnection, Acceptor, Admission, ConnectionHandler, Guest, Proof};
use frieze_hdfs::{Account, Calls, Exception, RemoteUser, account, listen};
pub use frieze_hdfs::{Error, Trust};
use frieze_httpd::origin::{self, OriginFault};
use frieze_httpd::{ConnectionLimits, RequestGuard};
use hyper::body::Incoming;
use hyper::{HeaderMap, Request};

use crate::recorded::recorded_op;
use crate::reply::HttpReply;
use crate::web_request::WebRequest;

/// Where the gateway listens, and whose word it takes for a user's name.
#[derive(Clone, Debug)]
pub struct WebHdfsOptions {
    /// Where it listens, as `HOST:PORT`.
    pub listen: String,
    /// Whose word it takes for a user's name.
    pub trust: Trust,
    /// The connection limits of the server that this is a gateway of.
    pub admission: Admission,
}

/// An open gateway. Dropped, it is closed.
pub struct WebHdfsGateway {
    acceptor: Acceptor,
}

impl WebHdfsGateway {
    /// Opens the gateway. `calls` gets the address and returns the calls. It is ready when this returns.
    ///
    /// # Errors
    /// `Listen`, `Beyond`: choose another address. Those of `calls`.
    pub fn open<E: From<Error>>(
        options: &WebHdfsOptions,
        calls: impl FnOnce(SocketAddr) -> Result<Calls, E>,
    ) -> Result<WebHdfsGateway, E> {
        let listener = listen(&options.listen, options.trust)?;
        let address = listener.local_addr().map_err(|source| Error::System { doing: "ask for an address", source })?;
        let host = options.listen.rsplit_once(':').map_or("", |(host, _)| host).to_ascii_lowercase();
        let service = WebHdfsService { calls: calls(address)?, trust: options.trust, host };
        let acceptor = Acceptor::start(listener, Arc::new(service), options.admission.clone());
        let acceptor = acceptor.map_err(|source| Error::System { doing: "start a thread", source })?;
        Ok(WebHdfsGateway { acceptor })
    }

    /// Where it listens, with the port that was chosen.
    pub fn address(&self) -> SocketAddr {
        self.acceptor.address()
    }
}

struct WebHdfsService {
    calls: Calls,
    trust: Trust,
    /// The host in the address that it listens on.
    host: String,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
struct Peer {
    proof: Proof,
    reached: SocketAddr,
    from: IpAddr,
}

impl ConnectionHandler for WebHdfsService {
    const NAME: &'static str = "webhdfs";
    // Each may have a piece of a file in memory.
    const CONNECTIONS_MAX: usize = 512;

    fn serve(&self, accepted: AcceptedConnection) {
        if let Err(error) = self.converse(accepted) {
            tracing::debug!("a connection of a WebHDFS client ended: {error}");
        }
    }
}

impl WebHdfsService {
    fn converse(&self, accepted: AcceptedConnection) -> std::io::Result<()> {
        let AcceptedConnection { stream, peer: from, local: reached, guest } = accepted;
        let reached = SocketAddr::new(reached.ip().to_canonical(), reached.port());
        let peer = Peer { proof: guest.proof, reached, from: from.ip().to_canonical() };
        let guest = RefCell::new(guest);
        let respond = |request, guard| self.respond(peer, guard, &guest, request);
        // The acceptor shuts the socket down when the gateway closes.
        frieze_httpd::serve(&stream, ConnectionLimits::default(), None, respond)
    }

    async fn respond(
        &self,
        peer: Peer,
        guard: RequestGuard,
        guest: &RefCell<Guest>,
        request: Request<Incoming>,
    ) -> hyper::Response<reply::SentBody> {
        let reply = self.answer(peer, guest, request).await.unwrap_or_else(|exception| {
            tracing::debug!("a WebHDFS client is refused: {exception}");
            HttpReply::refused(&exception)
        });
        reply.response(guard)
    }

    async fn answer(
        &self,
        peer: Peer,
        guest: &RefCell<Guest>,
        request: Request<Incoming>,
    ) -> Result<HttpReply, Exception> {
        let (head, body) = request.into_parts();
        let host = self.host_of(peer, &head.headers)?;
        let web_request = WebRequest::read(&head.method, head.uri.path(), head.uri.query().unwrap_or_default())?;
        let user =
            RemoteUser { account: self.account(peer, &web_request)?, reached: peer.reached.ip(), peer: peer.from };
        let belongs = guest.borrow_mut().belongs_to(user.account.caller.uid);
        belongs.map_err(|refused| Exception::io(refused.to_string()))?;
        match transfers::kind_of(&web_request) {
            Some(kind) => transfers::answer(&self.calls, &user, &web_request, &host, kind, body).await,
            None => recorded_op(&self.calls, &web_request.op, || ops::answer(&self.calls, &user, &web_request)),
        }
    }

    /// The name by which the client reached this gateway, for redirects. Pages of other origins are refused.
    fn host_of(&self, peer: Peer, headers: &HeaderMap) -> Result<String, Exception> {
        let host = origin::host_of(headers, peer.reached).map_err(|fault| Exception::argument(fault.to_string()))?;
        let refused = |fault: OriginFault| Exception::authorization(fault.to_string());
        if self.trust == Trust::Kernel {
            origin::check_host(&host, &self.host).map_err(refused)?;
        }
        origin::check_page(headers, &host).map_err(refused)?;
        Ok(host.to_string())
    }

    /// The account of a request.
    fn account(&self, peer: Peer, web_request: &WebRequest) -> Result<Account, Exception> {
        if web_request.text("delegation").is_some() {
            return Err(Exception::security("frieze gives no delegation tokens, so it knows none"));
        }
        let name = web_request.text("user.name");
        if name.is_none() && peer.proof == Proof::Unproven {
            return Err(Exception::security("Authentication required: the request has no user.name"));
        }
        let own = account(peer.proof, name, self.trust)?;
        match web_request.text("doas") {
            // Root may name others; any other user only itself.
            Some(other) => account(Proof::User(own.caller.uid), Some(other), self.trust),
            None => Ok(own),
        }
    }
}

#[cfg(test)]
frieze_harness::count_allocations!();
