//! A connection that speaks frames by hand.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use frieze_base::{Fault, Seq, SessionId, crc32c};
use frieze_wire::message::{Hello, HelloReply, Refusal, Reply, ReplyBody, Request, RequestBody, Txn};
use frieze_wire::txn::{Caller, Op, OpenSession};
use frieze_wire::{FRAME_HEADER_BYTES, FrameHeader, FrameKind};
use prost::Message;

use frieze_testkit::wait::patience;

/// One TCP connection.
pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
    /// The session that requests name.
    pub(crate) session: SessionId,
    last_request: u64,
}

impl Raw {
    pub(crate) fn connect(address: &str) -> Raw {
        let stream = TcpStream::connect(address).unwrap();
        // A server that does not answer fails the test instead of holding it up.
        stream.set_read_timeout(Some(patience())).unwrap();
        stream.set_nodelay(true).unwrap();
        Raw { stream, session: SessionId(0), last_request: 0 }
    }

    /// Connected and greeted.
    pub(crate) fn greeted(address: &str) -> Raw {
        let mut raw = Raw::connect(address);
        raw.greet();
        raw
    }

    pub(crate) fn greet(&mut self) -> HelloReply {
        match self.ask(hello()) {
            Ok(Reply::Hello(reply)) => reply,
            other => panic!("a greeting is answered: {other:?}"),
        }
    }

    /// With a session of its own.
    pub(crate) fn in_session(address: &str) -> Raw {
        let mut raw = Raw::greeted(address);
        let open = OpenSession { command: "by hand".to_owned(), host: String::new(), uid: 0, keeps: false };
        match raw.ask(txn(Op::OpenSession(open))) {
            Ok(Reply::Txn(reply)) => raw.session = SessionId(reply.id),
            other => panic!("a session is opened: {other:?}"),
        }
        raw
    }

    /// Sends bytes as they are. The other end may have hung up already.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Asks, and waits for the answer.
    pub(crate) fn ask(&mut self, request: Request) -> Result<Reply, Fault> {
        self.ask_as(None, request)
    }

    /// Asks on a new connection, which may be refused before it is heard.
    pub(crate) fn ask_or_be_refused(&mut self, request: Request) -> Result<Reply, Fault> {
        let body = RequestBody { caller: None, trace: None, request: Some(request) }.encode_to_vec();
        let header = self.header();
        // The server may have hung up already.
        let _sent = self.send(&frame(header, &body, &[]));
        self.receive().expect("a connection is answered, or refused in words").1
    }

    /// Sends a request on behalf of a user.
    pub(crate) fn ask_as(&mut self, caller: Option<Caller>, request: Request) -> Result<Reply, Fault> {
        let body = RequestBody { caller, trace: None, request: Some(request) }.encode_to_vec();
        self.ask_bytes(&body, &[])
    }

    /// Asks with a body and a payload as they are.
    pub(crate) fn ask_bytes(&mut self, body: &[u8], payload: &[u8]) -> Result<Reply, Fault> {
        let header = self.header();
        self.send(&frame(header, body, payload)).unwrap();
        let (answered, result) = self.receive().expect("a request is answered");
        assert_eq!(answered.request_id, header.request_id, "the answer is to what was asked: {result:?}");
        result
    }

    /// A header with the next numbers.
    pub(crate) fn header(&mut self) -> FrameHeader {
        self.last_request += 1;
        FrameHeader {
            request_id: self.last_request,
            session: self.session,
            seq: Seq(self.last_request),
            ..FrameHeader::of(FrameKind::Request)
        }
    }

    /// The next answer; `None` if the other end has hung up.
    pub(crate) fn receive(&mut self) -> Option<(FrameHeader, Result<Reply, Fault>)> {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        match self.stream.read_exact(&mut bytes) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => {
                return None;
            }
            Err(error) => panic!("no answer: {error}"),
        }
        let header = FrameHeader::decode(&bytes).unwrap();
        let mut body = vec![0; header.body_len as usize];
        self.stream.read_exact(&mut body).unwrap();
        let mut payload = vec![0; header.payload_len as usize];
        self.stream.read_exact(&mut payload).unwrap();
        assert_eq!((crc32c(&body), crc32c(&payload)), (header.body_crc, header.payload_crc));
        let result = match header.kind {
            FrameKind::Reply => Ok(ReplyBody::decode(&body[..]).unwrap().reply.expect("a reply says something")),
            FrameKind::Refusal => Err(Refusal::decode(&body[..]).unwrap().into()),
            FrameKind::Request | FrameKind::Peer => panic!("a server asks nothing"),
        };
        Some((header, result))
    }

    /// The refusal that comes next.
    pub(crate) fn refusal(&mut self) -> Fault {
        let (_, result) = self.receive().expect("the server says why before it hangs up");
        result.expect_err("a refusal")
    }
}

pub(crate) fn hello() -> Request {
    let hello = Hello {
        software: "by hand".to_owned(),
        key_name: String::new(),
        nonce: vec![1; 32],
        cluster: String::new(),
        node: 0,
    };
    Request::Hello(hello)
}

pub(crate) fn txn(op: Op) -> Request {
    Request::Txn(Txn { op: Some(op), ..Txn::default() })
}

/// A frame with right lengths and checksums.
pub(crate) fn frame(header: FrameHeader, body: &[u8], payload: &[u8]) -> Vec<u8> {
    let header = FrameHeader {
        body_len: body.len() as u32,
        payload_len: payload.len() as u32,
        body_crc: crc32c(body),
        payload_crc: crc32c(payload),
        ..header
    };
    [&header.encode()[..], body, payload].concat()
}

/// The bytes of a header with its checksum made right again.
pub(crate) fn sealed(mut header: [u8; FRAME_HEADER_BYTES]) -> [u8; FRAME_HEADER_BYTES] {
    let crc = crc32c(&header[..76]);
    header[76..].copy_from_slice(&crc.to_le_bytes());
    header
}
