//! One connection to a server: the handshake, then requests and replies.

use std::sync::Arc;
use std::time::Duration;

use frieze_fabric::FabricHost;
use frieze_net::{
    CancelHandle, Limits, PayloadPart, ServerAddr, SocketTransport, Transport, TransportConn, TransportLimits,
    TransportReply, random_nonce,
};
use frieze_wire::fabric::FabricOffer;
use frieze_wire::message::{Hello, HelloReply, Prove, Reply, Request, RequestBody};
use frieze_wire::{FrameHeader, FrameKind};

use crate::fabric_conn::FabricConn;
use crate::route::ServerRoute;
use crate::sequence::RequestNumber;
use crate::{Error, Options};

/// A connection whose handshake is complete.
#[derive(Debug)]
pub(crate) struct Connection {
    transport: Box<dyn TransportConn>,
    server: String,
    limit: Duration,
    /// Set while a request is in flight to one of several servers.
    pub(crate) watch: Option<ServerWatch>,
    /// Requests whose replies no call waits for. Their numbers count as answered when the connection ends.
    pub(crate) owed: Vec<(u64, RequestNumber)>,
}

/// The server that a request in flight was sent to, to be checked while it does not answer.
#[derive(Clone, Debug)]
pub(crate) struct ServerWatch {
    /// Address of the server.
    pub(crate) server: Arc<ServerAddr>,
    /// Route of the request.
    pub(crate) route: ServerRoute,
}

/// The cluster of the server at an address. This proves the identity of neither end.
///
/// # Errors
/// `Unreachable` and its like if no server of frieze answers there within `limit`.
///
/// # Cost
/// One connection and one round trip.
pub fn cluster_at(server: &ServerAddr, limit: Duration) -> Result<String, Error> {
    let options = Options { server: server.clone(), timeout: limit, ..Options::default() };
    Ok(Connection::open(&SocketTransport::new(server.clone()), &options, "", limit)?.1.cluster)
}

impl Connection {
    /// Connects and shakes hands. `cluster` is the one expected, empty for any.
    pub(crate) fn open(
        transport: &dyn Transport,
        options: &Options,
        cluster: &str,
        limit: Duration,
    ) -> Result<(Connection, HelloReply), Error> {
        let limit = limit.min(Limits::HANDSHAKE.frame).max(Duration::from_millis(1));
        let limits = TransportLimits { connect: limit, send: options.timeout };
        let mut connection = Connection {
            transport: transport.connect(limits)?,
            server: transport.server(),
            limit,
            watch: None,
            owed: Vec::new(),
        };
        let hello = connection.shake_hands(options, cluster)?;
        connection.transport.admit();
        match hello.fabric.clone().filter(|offer| options.fabric.takes(&offer.provider)) {
            Some(offer) => Ok((connection.with_fabric(&options.fabric, offer), hello)),
            None => {
                let server = &connection.server;
                // A socket of this machine needs none.
                if !server.starts_with("unix:")
                    && let Some(name) = options.fabric.named_once()
                {
                    tracing::warn!("payloads go by TCP: the server at {server} does not offer the fabric {name}");
                }
                Ok((connection, hello))
            }
        }
    }

    fn with_fabric(self, host: &Arc<FabricHost>, offer: FabricOffer) -> Connection {
        let transport = Box::new(FabricConn::over(self.transport, host.clone(), offer));
        Connection { transport, ..self }
    }

    fn shake_hands(&mut self, options: &Options, cluster: &str) -> Result<HelloReply, Error> {
        let nonce = random_nonce()?;
        let hello = Hello {
            software: SOFTWARE.to_owned(),
            key_name: options.key.as_ref().map_or(String::new(), |key| key.name().to_owned()),
            nonce: nonce.to_vec(),
            cluster: cluster.to_owned(),
            node: 0,
        };
        let reply = match self.call(Request::Hello(hello))? {
            Reply::Hello(reply) => reply,
            other => return Err(self.unexpected("a greeting", &other)),
        };
        let Some(key) = options.key.as_ref().filter(|_| !reply.challenge.is_empty()) else { return Ok(reply) };
        let prove = Prove { mac: key.prove(&reply.challenge, &nonce).to_vec() };
        match self.call(Request::Prove(prove))? {
            // The user that the connection is proven as now.
            Reply::Hello(proven) => Ok(proven),
            Reply::Done(_) => Ok(reply),
            other => Err(self.unexpected("a proof", &other)),
        }
    }

    fn call(&mut self, request: Request) -> Result<Reply, Error> {
        let body = RequestBody { caller: None, trace: None, request: Some(request) };
        if let Err(error) = self.send(&FrameHeader::of(FrameKind::Request), &body, &[]) {
            // A server with too many connections sends a refusal and closes before it reads the request.
            return match self.receive() {
                Ok(TransportReply { result: Err(fault), .. }) => Err(Error::Refused(fault)),
                _ => Err(error),
            };
        }
        self.receive()?.result.map_err(Error::Refused)
    }

    /// Limits the wait for each of the replies to come.
    pub(crate) fn set_limit(&mut self, limit: Duration) {
        self.limit = limit;
    }

    /// The limit that [`Connection::set_limit`] set.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// Sends a request.
    pub(crate) fn send(&mut self, header: &FrameHeader, body: &RequestBody, payload: &[u8]) -> Result<(), Error> {
        Ok(self.transport.send(header, body, payload)?)
    }

    /// Adds a small request to those that [`Connection::send_queued`] sends.
    pub(crate) fn queue(&mut self, header: &FrameHeader, body: &RequestBody, payload: &[u8]) {
        self.transport.queue(header, body, payload);
    }

    /// Sends the queued requests.
    pub(crate) fn send_queued(&mut self) -> Result<(), Error> {
        Ok(self.transport.send_queued()?)
    }

    /// True if the next reply has arrived: receiving it does not wait.
    pub(crate) fn has_reply(&self) -> bool {
        self.transport.has_reply()
    }

    /// Waits until the next reply begins, or the connection ends; false if neither has happened after `limit`.
    pub(crate) fn await_reply(&mut self, limit: Duration) -> Result<bool, Error> {
        Ok(self.transport.await_reply(limit)?)
    }

    /// The error of a server that did not answer in time.
    pub(crate) fn silent(&self, waited: Duration) -> Error {
        Error::Transport(frieze_net::Error::Silent { peer: self.server.clone(), waited })
    }

    /// True if the server does its work on the calling thread.
    pub(crate) fn runs_on_caller(&self) -> bool {
        self.transport.runs_on_caller()
    }

    /// Ends the connection from another thread.
    pub(crate) fn cancel_handle(&self) -> CancelHandle {
        self.transport.cancel_handle()
    }

    /// Receives the next reply. Its payload is taken by [`Connection::read_payload`] and its like, or skipped.
    pub(crate) fn receive(&mut self) -> Result<TransportReply, Error> {
        Ok(self.transport.receive(self.limit)?)
    }

    /// Copies the payload of the last reply.
    ///
    /// # Panics
    /// If `into` is not as long as the header of the reply says.
    pub(crate) fn read_payload(&mut self, into: &mut [u8]) -> Result<(), Error> {
        Ok(self.transport.read_payload(into)?)
    }

    /// The payload of the last reply, `len` bytes: where it lies if that is in this process's memory, else copied to
    /// `room`, which `make` makes if there is none.
    pub(crate) fn payload<'a>(
        &'a mut self,
        len: usize,
        room: &'a mut Option<Vec<u8>>,
        make: impl FnOnce() -> Vec<u8>,
    ) -> Result<&'a [u8], Error> {
        if self.transport.payload_in_memory().is_none() {
            let into = &mut room.get_or_insert_with(make)[..len];
            self.transport.read_payload(into)?;
            return Ok(into);
        }
        Ok(self.transport.payload_in_memory().unwrap_or_default())
    }

    /// Moves the payload of the last reply, `len` bytes, into `bytes` in exchange for another buffer, and its parts
    /// into `parts` if some of it stays in files.
    pub(crate) fn read_payload_parts(
        &mut self,
        len: usize,
        bytes: &mut Vec<u8>,
        parts: &mut Vec<PayloadPart>,
    ) -> Result<(), Error> {
        Ok(self.transport.read_payload_parts(len, bytes, parts)?)
    }

    fn unexpected(&self, asked: &'static str, found: &Reply) -> Error {
        Error::Protocol { server: self.server.clone(), asked, found: name_of(found).to_owned() }
    }
}

/// A name of a reply for messages.
pub(crate) fn name_of(reply: &Reply) -> &'static str {
    match reply {
        Reply::Hello(_) => "a greeting",
        Reply::Done(_) => "done",
        Reply::Stat(_) => "attributes",
        Reply::List(_) => "entries",
        Reply::Bytes(_) => "bytes",
        Reply::Open(_) => "an open file",
        Reply::Read(_) => "file content",
        Reply::Write(_) => "a write",
        Reply::Seek(_) => "an offset",
        Reply::Txn(_) => "a change",
        Reply::Now(_) => "an instant",
        Reply::Snapshots(_) => "snapshots",
        Reply::Log(_) => "versions",
        Reply::Status(_) => "a status",
        Reply::Punch(_) => "a hole",
        Reply::Forgot(_) => "expired history",
        Reply::Retention(_) => "a policy of retention",
        Reply::Edited(_) => "a clone, restore, undo or copy",
        Reply::Recalls(_) => "recalls",
        Reply::AwaitChange(_) => "a change",
        Reply::Lock(_) | Reply::TestLock(_) => "a lock",
        Reply::Diff(_) => "differences",
        Reply::Story(_) => "events",
        Reply::LastExisted(_) => "when a name last existed",
        Reply::Deleted(_) => "deleted names",
        Reply::Sessions(_) => "sessions",
        Reply::Usage(_) => "the size of history",
        Reply::Scrub(_) => "a scrub",
        Reply::ClusterMap(_) => "a map of the cluster",
        Reply::Join(_) => "a new server",
        Reply::Cluster(_) => "the state of the cluster",
    }
}

/// The name of this library in the handshake.
const SOFTWARE: &str = concat!("frieze/", env!("CARGO_PKG_VERSION"));
