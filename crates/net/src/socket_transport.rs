//! The transport over TCP and Unix sockets: requests and replies in frames.

use std::sync::Arc;
use std::time::Duration;

use frieze_base::{Fault, Reason};
use frieze_wire::message::{Refusal, Reply, ReplyBody, RequestBody};
use frieze_wire::{FrameHeader, FrameKind};
use prost::Message;

use crate::frame_reader::FrameReader;
use crate::frame_writer::FrameWriter;
use crate::frames::{CRC_BYTES, FramePayload, Limits, encode_frame};
use crate::payload_part::PayloadPart;
use crate::transport::{Cancel, CancelHandle, Transport, TransportConn, TransportLimits, TransportReply};
use crate::{Error, ServerAddr, Stream};

/// A server at an address.
#[derive(Clone, Debug)]
pub struct SocketTransport(ServerAddr);

/// One connection over a socket.
#[derive(Debug)]
struct SocketConn {
    server: String,
    reader: FrameReader,
    writer: FrameWriter,
    connect_limit: Duration,
    /// Body of the request being sent.
    sent: Vec<u8>,
    /// Frames of the queued requests.
    queued: Vec<u8>,
    /// Body of the reply being received.
    received: Vec<u8>,
    /// The payload of the last reply ends in its checksum.
    crc_behind: bool,
}

impl SocketTransport {
    /// The server at `address`.
    pub fn new(address: ServerAddr) -> SocketTransport {
        SocketTransport(address)
    }
}

impl Transport for SocketTransport {
    fn server(&self) -> String {
        self.0.to_string()
    }

    fn connect(&self, limits: TransportLimits) -> Result<Box<dyn TransportConn>, Error> {
        let stream = Stream::connect(&self.0, limits.connect)?;
        let handshake = both(limits.connect);
        Ok(Box::new(SocketConn {
            server: self.0.to_string(),
            reader: FrameReader::guarded(stream.clone(), handshake)?,
            writer: FrameWriter::new(stream, Limits { frame: limits.send, ..handshake }),
            connect_limit: limits.connect,
            sent: Vec::new(),
            queued: Vec::new(),
            received: Vec::new(),
            crc_behind: false,
        }))
    }
}

impl TransportConn for SocketConn {
    fn admit(&mut self) {
        self.reader.admit(both(self.connect_limit));
    }

    fn send(&mut self, header: &FrameHeader, body: &RequestBody, payload: &[u8]) -> Result<(), Error> {
        self.encode(body);
        let payload = if payload.is_empty() { FramePayload::None } else { FramePayload::Bytes(payload) };
        self.writer.send(*header, &self.sent, payload)
    }

    fn queue(&mut self, header: &FrameHeader, body: &RequestBody, payload: &[u8]) {
        self.encode(body);
        encode_frame(*header, &self.sent, payload, &mut self.queued);
    }

    fn send_queued(&mut self) -> Result<(), Error> {
        let sent = self.writer.send_encoded(&self.queued);
        self.queued.clear();
        sent
    }

    fn has_reply(&self) -> bool {
        self.reader.has_frame()
    }

    fn await_reply(&mut self, limit: Duration) -> Result<bool, Error> {
        self.reader.await_frame(limit)
    }

    fn receive(&mut self, limit: Duration) -> Result<TransportReply, Error> {
        self.reader.set_limits(both(limit));
        let Some(mut header) = self.reader.read_frame(&mut self.received)? else {
            return Err(Error::Closed { peer: self.server.clone() });
        };
        let malformed =
            |what: String| Error::Frame { peer: self.server.clone(), fault: Fault::new(Reason::BadFrame, what) };
        let result = match header.kind {
            FrameKind::Reply => {
                let body = ReplyBody::decode(&self.received[..])
                    .map_err(|error| malformed(format!("malformed reply: {error}")))?;
                Ok(body.reply.ok_or_else(|| malformed("a reply without content".to_owned()))?)
            }
            FrameKind::Refusal => {
                let refusal = Refusal::decode(&self.received[..])
                    .map_err(|error| malformed(format!("malformed refusal: {error}")))?;
                Err(refusal.into())
            }
            FrameKind::Request | FrameKind::Peer => {
                return Err(malformed("the server sent a frame that only servers receive".to_owned()));
            }
        };
        self.crc_behind = matches!(&result, Ok(Reply::Read(read)) if read.crc_behind);
        if self.crc_behind {
            let without = header.payload_len.checked_sub(CRC_BYTES as u32);
            header.payload_len = without.ok_or_else(|| malformed("a payload shorter than its checksum".to_owned()))?;
        }
        Ok(TransportReply { header, result })
    }

    fn read_payload(&mut self, into: &mut [u8]) -> Result<(), Error> {
        if self.crc_behind { self.reader.read_payload_before_crc(into) } else { self.reader.read_payload(into) }
    }

    fn payload_in_memory(&self) -> Option<&[u8]> {
        None
    }

    fn read_payload_parts(&mut self, len: usize, bytes: &mut Vec<u8>, _: &mut Vec<PayloadPart>) -> Result<(), Error> {
        bytes.resize(len, 0);
        self.read_payload(bytes)
    }

    fn runs_on_caller(&self) -> bool {
        false
    }

    fn cancel_handle(&self) -> CancelHandle {
        CancelHandle::new(Arc::new(self.reader.stream().clone()))
    }
}

impl SocketConn {
    fn encode(&mut self, body: &RequestBody) {
        self.sent.clear();
        // A Vec grows as needed, so encoding into it cannot fail.
        body.encode_raw(&mut self.sent);
    }
}

impl Cancel for Stream {
    fn cancel(&self) {
        self.shutdown();
    }
}

/// One limit for the beginning and for the rest of a frame.
fn both(limit: Duration) -> Limits {
    Limits { idle: Some(limit), frame: limit }
}
