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

use frieze_client::{Admission, Proof};
use frieze_hdfs::{
    AcceptedConnection, Acceptor, Account, Calls, ConnectionHandler, Exception, Guest, RemoteUser, account, listen,
    plain,
};
pub use frieze_hdfs::{Error, Trust};
use frieze_httpd::{ConnectionLimits, RequestGuard};
use hyper::body::Incoming;
use hyper::header::{HOST, HeaderName, ORIGIN};
use hyper::http::uri::Authority;
use hyper::{HeaderMap, Request};

use crate::recorded::recorded_op;
use crate::reply::HttpReply;
use crate::web_request::WebRequest;

/// By this header browsers tell whether the request comes from a page of the same origin; `none` is the user of the
/// browser.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

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
        Ok(WebHdfsGateway { acceptor: Acceptor::start(listener, Arc::new(service), options.admission.clone())? })
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
        let reached = SocketAddr::new(plain(reached.ip()), reached.port());
        let peer = Peer { proof: guest.proof, reached, from: plain(from.ip()) };
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

    /// The name by which the client reached this gateway, for redirects.
    ///
    /// The kernel reports a browser on this machine as its user, whatever page makes the request: so requests from
    /// pages of other origins are refused, and so is a host name that another name server may have led here.
    fn host_of(&self, peer: Peer, headers: &HeaderMap) -> Result<String, Exception> {
        let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
        let host = match text(HOST) {
            None | Some("") => peer.reached.to_string(),
            Some(host) => host.to_owned(),
        };
        let authority: Authority =
            host.parse().map_err(|_| Exception::argument("the Host of the request is no HOST:PORT"))?;
        let name = authority.host().trim_matches(['[', ']']).to_ascii_lowercase();
        let is_here = name.parse::<IpAddr>().is_ok() || name == "localhost" || name == self.host;
        if self.trust == Trust::Kernel && !is_here {
            return Err(Exception::authorization(format!(
                "{name} is not the name of this gateway: use its address, or localhost"
            )));
        }
        let is_foreign = text(ORIGIN).is_some_and(|origin| origin.strip_prefix("http://") != Some(host.as_str()))
            || text(SEC_FETCH_SITE).is_some_and(|site| !["none", "same-origin"].contains(&site));
        if is_foreign {
            return Err(Exception::authorization("a web page of another origin may not use this gateway"));
        }
        Ok(host)
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
