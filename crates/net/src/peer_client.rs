//! Requests of one server to another, as a client would send them: to greet it, or to join its cluster.

use frieze_base::{Fault, NodeId, Reason};
use frieze_wire::message::{Hello, HelloReply, Prove, Refusal, Reply, ReplyBody, Request, RequestBody};
use frieze_wire::{FrameHeader, FrameKind};
use prost::Message;

use crate::{FramePayload, FrameReader, FrameWriter, Key, Limits, ServerAddr, Stream, random_nonce};

/// Software and version, in greetings.
const SOFTWARE: &str = concat!("frieze/", env!("CARGO_PKG_VERSION"));

/// A connection to another server, with one request at a time.
#[derive(Debug)]
pub struct PeerClient {
    reader: FrameReader,
    writer: FrameWriter,
    limits: Limits,
}

impl PeerClient {
    /// Connects, within `limits`; `writing` limits the writes.
    ///
    /// # Errors
    /// `Unavailable` and what the system says.
    pub fn connect(address: &ServerAddr, limits: Limits, writing: Limits) -> Result<PeerClient, Fault> {
        let stream = Stream::connect(address, limits.frame)?;
        let reader = FrameReader::guarded(stream.clone(), limits)?;
        Ok(PeerClient { reader, writer: FrameWriter::new(stream, writing), limits })
    }

    /// Sends a client's greeting, and proves a key where the kernel cannot prove the user.
    ///
    /// # Errors
    /// The server's refusal.
    pub fn greet(&mut self, key: Option<&Key>) -> Result<HelloReply, Fault> {
        let nonce = random_nonce()?;
        let key_name = key.map_or(String::new(), |key| key.name().to_owned());
        let hello = Hello { software: SOFTWARE.to_owned(), key_name, nonce: nonce.to_vec(), ..Hello::default() };
        let greeted = self.hello(Request::Hello(hello))?;
        match key.filter(|_| !greeted.challenge.is_empty()) {
            Some(key) => self.hello(Request::Prove(Prove { mac: key.prove(&greeted.challenge, &nonce).to_vec() })),
            None => Ok(greeted),
        }
    }

    /// Asks for the cluster of the server and a proof of it, as a server of any cluster. Returns the reply, with the
    /// nonce that its proof answers.
    ///
    /// # Errors
    /// The server's refusal.
    pub fn identify(&mut self, me: NodeId) -> Result<(HelloReply, Vec<u8>), Fault> {
        let nonce = random_nonce()?.to_vec();
        let hello = Hello { software: SOFTWARE.to_owned(), nonce: nonce.clone(), node: me.0, ..Hello::default() };
        Ok((self.hello(Request::Hello(hello))?, nonce))
    }

    /// One step of a greeting.
    ///
    /// # Errors
    /// As [`PeerClient::ask`].
    pub fn hello(&mut self, request: Request) -> Result<HelloReply, Fault> {
        match self.ask(request)? {
            Reply::Hello(hello) => {
                self.reader.admit(self.limits);
                Ok(hello)
            }
            _ => Err(malformed("the answer to a greeting is none")),
        }
    }

    /// Sends a request, and waits for the response.
    ///
    /// # Errors
    /// The server's refusal; `BadFrame`; `Unavailable` if the server closes the connection.
    pub fn ask(&mut self, request: Request) -> Result<Reply, Fault> {
        let body = RequestBody { caller: None, trace: None, request: Some(request) }.encode_to_vec();
        self.writer.send(FrameHeader::of(FrameKind::Request), &body, FramePayload::None)?;
        let mut answer = Vec::new();
        let closed = || Fault::new(Reason::Unavailable, "the server ended the connection instead of answering");
        let header = self.reader.read_frame(&mut answer)?.ok_or_else(closed)?;
        match header.kind {
            FrameKind::Reply => {
                let reply = ReplyBody::decode(answer.as_slice()).ok().and_then(|body| body.reply);
                reply.ok_or_else(|| malformed("an answer that says nothing"))
            }
            FrameKind::Refusal => {
                let refusal = Refusal::decode(answer.as_slice());
                Err(refusal.map_err(|_| malformed("a refusal that says nothing"))?.into())
            }
            FrameKind::Request | FrameKind::Peer => Err(malformed("the server asks instead of answering")),
        }
    }

    /// The rest of the connection has messages without responses.
    pub fn into_writer(self) -> FrameWriter {
        self.writer
    }
}

fn malformed(what: &str) -> Fault {
    Fault::new(Reason::BadFrame, format!("malformed frame: {what}"))
}
