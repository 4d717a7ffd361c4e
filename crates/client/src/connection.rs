//! One connection to the server: handshake, requests out, replies in.

use std::sync::Arc;
use std::time::Duration;

use frieze_base::{Fault, Reason};
use frieze_net::{
    Asked, CRC_BYTES, FrameReader, FrameWriter, Inbox, Limits, Lot, Payload, ServerAddr, Stream, Within, encode_frame,
    random_nonce,
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
    way: Way,
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

/// How requests go to the server and answers come back.
#[derive(Debug)]
enum Way {
    /// In frames, over a socket.
    Socket { reader: FrameReader, writer: FrameWriter },
    /// The server runs in this process. `payload` is that of the last answer, from where it is not taken yet, and `lots` what its bytes are
    /// where not all were read.
    Within { asked: Box<dyn Asked>, inbox: Arc<Inbox>, payload: Vec<u8>, lots: Vec<Lot> },
}

/// What ends a connection from another thread.
#[derive(Clone, Debug)]
pub(crate) enum Cord {
    Socket(Stream),
    Within(Arc<Inbox>),
}

impl Cord {
    /// Ends the connection: whoever waits for an answer stops waiting.
    pub(crate) fn pull(&self) {
        match self {
            Cord::Socket(stream) => stream.shutdown(),
            Cord::Within(inbox) => inbox.end(),
        }
    }
}

/// The cluster of the server at an address. The server is believed: this proves nothing, neither of the server nor of who asks.
///
/// # Errors
/// `Unreachable` and its like if no server of frieze answers there within `limit`.
///
/// # Cost
/// One connection and one round.
pub fn cluster_at(server: &ServerAddr, limit: Duration) -> Result<String, Error> {
    let options = Options { server: server.clone(), timeout: limit, ..Options::default() };
    Ok(Connection::open_at(server, &options, "", limit)?.1.cluster)
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
        let way = Way::Socket {
            reader: FrameReader::guarded(stream.clone(), limits)?,
            writer: FrameWriter::new(stream, Limits { frame: options.timeout, ..limits }),
        };
        Connection::open_by(way, server, options, cluster, limit)
    }

    /// The same, to a server in this process.
    pub(crate) fn open_within(
        within: &dyn Within,
        options: &Options,
        cluster: &str,
        limit: Duration,
    ) -> Result<(Connection, HelloReply), Error> {
        let inbox = Arc::<Inbox>::default();
        let asked = within.connect(inbox.clone()).map_err(Error::Refused)?;
        Connection::open_by(
            Way::Within { asked, inbox, payload: Vec::new(), lots: Vec::new() },
            &options.server,
            options,
            cluster,
            limit,
        )
    }

    fn open_by(
        way: Way,
        server: &ServerAddr,
        options: &Options,
        cluster: &str,
        limit: Duration,
    ) -> Result<(Connection, HelloReply), Error> {
        let mut connection = Connection {
            way,
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
        if let Way::Socket { reader, .. } = &mut connection.way {
            reader.admit(Limits { idle: Some(limit), frame: limit });
        }
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
        if let Err(error) = self.send(FrameHeader::of(FrameKind::Request), &body, &[]) {
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
        if let Way::Socket { reader, .. } = &mut self.way {
            reader.set_limits(Limits { idle: Some(limit), frame: limit });
        }
    }

    /// Sends a request.
    pub(crate) fn send(&mut self, header: FrameHeader, body: &RequestBody, payload: &[u8]) -> Result<(), Error> {
        match &mut self.way {
            Way::Socket { writer, .. } => {
                self.sent.clear();
                // A Vec grows as needed, so encoding into it cannot fail.
                body.encode_raw(&mut self.sent);
                let payload = if payload.is_empty() { Payload::None } else { Payload::Bytes(payload) };
                writer.send(header, &self.sent, payload)?;
            }
            Way::Within { asked, .. } => asked.ask(&header, body.clone(), payload),
        }
        Ok(())
    }

    /// Adds a small request to those that [`Connection::send_together`] sends.
    pub(crate) fn put(&mut self, header: FrameHeader, body: &RequestBody, payload: &[u8]) {
        match &mut self.way {
            Way::Socket { .. } => {
                self.sent.clear();
                body.encode_raw(&mut self.sent);
                encode_frame(header, &self.sent, payload, &mut self.together);
            }
            // There is nothing to be saved.
            Way::Within { asked, .. } => asked.ask(&header, body.clone(), payload),
        }
    }

    /// Sends the requests put so far.
    pub(crate) fn send_together(&mut self) -> Result<(), Error> {
        let Way::Socket { writer, .. } = &mut self.way else { return Ok(()) };
        let sent = writer.send_encoded(&self.together);
        self.together.clear();
        Ok(sent?)
    }

    /// True if the next answer is here: receiving it does not wait.
    pub(crate) fn has_answer(&self) -> bool {
        match &self.way {
            Way::Socket { reader, .. } => reader.has_frame(),
            Way::Within { inbox, .. } => inbox.has_answer(),
        }
    }

    /// What [`Connection::set_limit`] set.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// Waits until the next reply begins, or the connection ends; false if neither has happened after `limit`.
    pub(crate) fn await_answer(&mut self, limit: Duration) -> Result<bool, Error> {
        match &mut self.way {
            Way::Socket { reader, .. } => Ok(reader.await_frame(limit)?),
            Way::Within { inbox, .. } => Ok(inbox.wait(limit)),
        }
    }

    /// Nobody answered in time.
    pub(crate) fn silent(&self, waited: Duration) -> Error {
        Error::Transport(frieze_net::Error::Silent { peer: self.server.clone(), waited })
    }

    /// True if the server is in this process.
    pub(crate) fn is_within(&self) -> bool {
        matches!(self.way, Way::Within { .. })
    }

    /// What ends it from another thread.
    pub(crate) fn cord(&self) -> Cord {
        match &self.way {
            Way::Socket { reader, .. } => Cord::Socket(reader.stream().clone()),
            Way::Within { inbox, .. } => Cord::Within(inbox.clone()),
        }
    }

    /// Receives the next reply. Its payload is taken by [`Connection::take_payload`], or passed over.
    pub(crate) fn receive(&mut self) -> Result<Answer, Error> {
        let closed = || Error::Transport(frieze_net::Error::Closed { peer: self.server.clone() });
        let reader = match &mut self.way {
            Way::Socket { reader, .. } => reader,
            Way::Within { inbox, payload, lots, .. } => {
                self.crc_behind = false;
                if payload.capacity() > 0 {
                    inbox.give_back(std::mem::take(payload));
                }
                if !inbox.wait(self.limit) {
                    return Err(self.silent(self.limit));
                }
                let came = inbox.take().ok_or_else(closed)?;
                let header = FrameHeader { payload_len: came.payload_len() as u32, ..came.header };
                (*payload, *lots) = (came.payload, came.lots);
                return Ok(Answer { header, result: came.result });
            }
        };
        let Some(mut header) = reader.read_frame(&mut self.received)? else { return Err(closed()) };
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
            FrameKind::Request | FrameKind::Peer => {
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
    ///
    /// # Panics
    /// If `into` is not as long as the header of the answer says.
    pub(crate) fn take_payload(&mut self, into: &mut [u8]) -> Result<(), Error> {
        match &mut self.way {
            Way::Socket { reader, .. } => read_payload(reader, self.crc_behind, into)?,
            Way::Within { payload, .. } => into.copy_from_slice(payload),
        }
        Ok(())
    }

    /// The payload of the last reply, `len` bytes: where it lies if that is in this process, else in `room`, which is made if there is
    /// none.
    pub(crate) fn payload<'a>(
        &'a mut self,
        len: usize,
        room: &'a mut Option<Vec<u8>>,
        make: impl FnOnce() -> Vec<u8>,
    ) -> Result<&'a [u8], Error> {
        match &mut self.way {
            Way::Within { payload, .. } => Ok(payload),
            Way::Socket { reader, .. } => {
                let into = &mut room.get_or_insert_with(make)[..len];
                read_payload(reader, self.crc_behind, into)?;
                Ok(into)
            }
        }
    }

    /// Receives the payload of the last reply, `len` bytes, in exchange for another buffer, and what the bytes are where not all were read, in
    /// exchange for nothing.
    pub(crate) fn take_lots(&mut self, len: usize, into: &mut Vec<u8>, what: &mut Vec<Lot>) -> Result<(), Error> {
        match &mut self.way {
            Way::Within { payload, lots, .. } => {
                std::mem::swap(payload, into);
                std::mem::swap(lots, what);
            }
            Way::Socket { reader, .. } => {
                into.resize(len, 0);
                read_payload(reader, self.crc_behind, into)?;
            }
        }
        Ok(())
    }

    fn unexpected(&self, asked: &'static str, found: &Reply) -> Error {
        Error::Protocol { server: self.server.clone(), asked, found: name_of(found).to_owned() }
    }
}

fn read_payload(reader: &mut FrameReader, crc_behind: bool, into: &mut [u8]) -> Result<(), frieze_net::Error> {
    if crc_behind { reader.read_payload_before_crc(into) } else { reader.read_payload(into) }
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
