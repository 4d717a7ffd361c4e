//! One connection to the server: handshake, requests out, replies in.

use std::sync::Arc;
use std::time::Duration;

use frieze_base::{Fault, Reason};
use frieze_net::{
    CRC_BYTES, FrameReader, FrameWriter, Limits, Payload, ServerAddr, Stream, encode_frame, random_nonce,
};
use frieze_wire::message::{Hello, HelloReply, Prove, Refusal, Reply, ReplyBody, Request, RequestBody};
use frieze_wire::{FrameHeader, FrameKind};
use prost::Message;

use crate::pool::Pool;
use crate::servers::Route;
use crate::session::Numbered;
use crate::{Error, Options};

/// A connection that has shaken hands.
#[derive(Debug)]
pub(crate) struct Connection {
    reader: FrameReader,
    writer: FrameWriter,
    server: String,
    sent: Vec<u8>,
    /// Requests that go out together.
    together: Vec<u8>,
    received: Vec<u8>,
    /// The payload of the last reply ends in its checksum.
    crc_behind: bool,
    /// Where it goes, and who is to answer on it: looked at while nobody does.
    pub(crate) asked: Option<(Arc<Pool>, Route)>,
    limit: Duration,
    /// Requests whose answers nobody waits for, and their numbers, which count as answered when the connection ends.
    pub(crate) owed: Vec<(u64, Numbered)>,
}

/// A reply frame whose payload, if any, is still to be taken.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) header: FrameHeader,
    pub(crate) result: Result<Reply, Fault>,
}

impl Connection {
    /// Connects and shakes hands. `cluster` is the one expected, empty for any.
    pub(crate) fn open_at(
        server: &ServerAddr,
        options: &Options,
        cluster: &str,
        limit: Duration,
    ) -> Result<(Connection, HelloReply), Error> {
        let limit = limit.min(Limits::HANDSHAKE.frame).max(Duration::from_millis(1));
        let stream = Stream::connect(server, limit)?;
        let limits = Limits { idle: Some(limit), frame: limit };
        let mut connection = Connection {
            reader: FrameReader::new(stream.clone(), limits)?,
            writer: FrameWriter::new(stream, Limits { frame: options.timeout, ..limits }),
            server: server.to_string(),
            sent: Vec::new(),
            together: Vec::new(),
            received: Vec::new(),
            crc_behind: false,
            asked: None,
            limit,
            owed: Vec::new(),
        };
        let hello = connection.shake_hands(options, cluster)?;
        Ok((connection, hello))
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
        let reply = match self.ask_once(Request::Hello(hello))? {
            Reply::Hello(reply) => reply,
            other => return Err(self.unexpected("a greeting", &other)),
        };
        let Some(key) = options.key.as_ref().filter(|_| !reply.challenge.is_empty()) else { return Ok(reply) };
        let prove = Prove { mac: key.prove(&reply.challenge, &nonce).to_vec() };
        match self.ask_once(Request::Prove(prove))? {
            // What the connection is proven as now.
            Reply::Hello(proven) => Ok(proven),
            Reply::Done(_) => Ok(reply),
            other => Err(self.unexpected("a proof", &other)),
        }
    }

    fn ask_once(&mut self, request: Request) -> Result<Reply, Error> {
        let body = RequestBody { caller: None, request: Some(request) };
        if let Err(error) = self.send(FrameHeader::of(FrameKind::Request), &body, Payload::None) {
            // A server that has too many connections says so and hangs up before it hears anything.
            return match self.receive() {
                Ok(Answer { result: Err(fault), .. }) => Err(Error::Refused(fault)),
                _ => Err(error),
            };
        }
        self.receive()?.result.map_err(Error::Refused)
    }

    /// Waits at most `limit` for each of the replies to come.
    pub(crate) fn set_limit(&mut self, limit: Duration) {
        self.limit = limit;
        self.reader.set_limits(Limits { idle: Some(limit), frame: limit });
    }

    /// Sends a request.
    pub(crate) fn send(&mut self, header: FrameHeader, body: &RequestBody, payload: Payload<'_>) -> Result<(), Error> {
        self.sent.clear();
        // A Vec grows as needed, so encoding into it cannot fail.
        body.encode_raw(&mut self.sent);
        Ok(self.writer.send(header, &self.sent, payload)?)
    }

    /// Adds a small request to those that [`Connection::send_together`] sends.
    pub(crate) fn put(&mut self, header: FrameHeader, body: &RequestBody, payload: &[u8]) {
        self.sent.clear();
        body.encode_raw(&mut self.sent);
        encode_frame(header, &self.sent, payload, &mut self.together);
    }

    /// Sends the requests put so far.
    pub(crate) fn send_together(&mut self) -> Result<(), Error> {
        let sent = self.writer.send_encoded(&self.together);
        self.together.clear();
        Ok(sent?)
    }

    /// True if the next answer is here: receiving it does not wait.
    pub(crate) fn has_answer(&self) -> bool {
        self.reader.has_frame()
    }

    /// What [`Connection::set_limit`] set.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// Waits until the next reply begins, or the connection ends; false if neither has happened after `limit`.
    pub(crate) fn await_answer(&mut self, limit: Duration) -> Result<bool, Error> {
        Ok(self.reader.await_frame(limit)?)
    }

    /// Nobody answered in time.
    pub(crate) fn silent(&self, waited: Duration) -> Error {
        Error::Transport(frieze_net::Error::Silent { peer: self.server.clone(), waited })
    }

    /// The socket.
    pub(crate) fn stream(&self) -> &Stream {
        self.reader.stream()
    }

    /// Receives the next reply. Its payload is taken by [`Connection::take_payload`], or passed over.
    pub(crate) fn receive(&mut self) -> Result<Answer, Error> {
        let closed = || frieze_net::Error::Closed { peer: self.server.clone() };
        let Some(mut header) = self.reader.read_frame(&mut self.received)? else { return Err(closed().into()) };
        let wrong = |what: String| {
            Error::Transport(frieze_net::Error::Frame {
                peer: self.server.clone(),
                fault: Fault::new(Reason::BadFrame, what),
            })
        };
        let result = match header.kind {
            FrameKind::Reply => {
                let body = ReplyBody::decode(&self.received[..])
                    .map_err(|error| wrong(format!("malformed reply: {error}")))?;
                Ok(body.reply.ok_or_else(|| wrong("a reply without content".to_owned()))?)
            }
            FrameKind::Refusal => {
                let refusal = Refusal::decode(&self.received[..])
                    .map_err(|error| wrong(format!("malformed refusal: {error}")))?;
                Err(refusal.into())
            }
            FrameKind::Request | FrameKind::Told => {
                return Err(wrong("the server sent what only clients and servers send to a server".to_owned()));
            }
        };
        self.crc_behind = matches!(&result, Ok(Reply::Read(read)) if read.crc_behind);
        if self.crc_behind {
            let without = header.payload_len.checked_sub(CRC_BYTES as u32);
            header.payload_len = without.ok_or_else(|| wrong("a payload shorter than its checksum".to_owned()))?;
        }
        Ok(Answer { header, result })
    }

    /// Receives the payload of the last reply.
    pub(crate) fn take_payload(&mut self, into: &mut [u8]) -> Result<(), Error> {
        let taken =
            if self.crc_behind { self.reader.read_payload_before_crc(into) } else { self.reader.read_payload(into) };
        Ok(taken?)
    }

    fn unexpected(&self, asked: &'static str, found: &Reply) -> Error {
        Error::Protocol { server: self.server.clone(), asked, found: name_of(found).to_owned() }
    }
}

/// What a reply is called in messages.
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
        Reply::Forgot(_) => "what was forgotten",
        Reply::Edited(_) => "a clone, restore, undo or copy",
        Reply::Recalls(_) => "recalls",
        Reply::Lock(_) | Reply::TestLock(_) => "a lock",
        Reply::Diff(_) => "differences",
        Reply::Story(_) => "events",
        Reply::LastSeen(_) => "when a name was there",
        Reply::Deleted(_) => "names that went",
        Reply::Sessions(_) => "sessions",
        Reply::Usage(_) => "what history takes",
        Reply::Scrub(_) => "a scrub",
        Reply::ClusterMap(_) => "a map of the cluster",
        Reply::Join(_) => "a new server",
        Reply::Cluster(_) => "how the cluster is",
    }
}

/// How this library names itself to the server.
const SOFTWARE: &str = concat!("frieze/", env!("CARGO_PKG_VERSION"));
