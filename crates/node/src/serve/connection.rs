//! The life of one connection, on a thread of its own: its requests, and the messages of another server.
//!
//! Guarantees: garbage, half a frame or silence ends the connection, with the reason for the peer if it still reads.
//! Leaves to others: accepting it (`accept`), the meaning of a request (`parts`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use frieze_base::{Fault, NodeId, Reason};
use frieze_fabric::{HopReceiver, ServedClient};
use frieze_locks::Mutex;
use frieze_net::{
    FrameReader, FrameWriter, LINGER, Limits, PEER_SILENCE_MAX, PeerPayload, Peers, ReceivedPayload, Seat, Stream,
};
use frieze_service::{Conn, Responder, Scratch, class_of};
use frieze_trace::OpenSpan;
use frieze_wire::RemoteMemory;
use frieze_wire::frame::{FrameHeader, FrameKind};
use frieze_wire::message::{Request, RequestBody};
use frieze_wire::peer::{HopAnswer, PeerBody, ServerMessage};
use prost::Message;
use tracing::{debug, info, warn};

use super::handshake::Handshake;
use super::partial_payloads::{self, PartialPayloads, PayloadError};
use super::replies::{SocketReplies, refuse};
use super::shared::{SHARED_BYTES_MIN, Shared, TEND_EVERY_NS};

/// Payload buffer of a connection that sends no payload.
const IDLE_BUFFER_BYTES: usize = 64 << 10;
/// After so many requests without a payload a connection counts as sending none: a client that writes one file after
/// the other sends a few between two writes, and a large buffer that is allocated again costs a fault for each of its
/// pages.
const IDLE_REQUESTS: u64 = 16;

/// Limits of a connection on which another server sends: it is never silent for long.
const LISTENING: Limits = Limits { idle: Some(PEER_SILENCE_MAX), frame: Duration::from_secs(10) };

pub(super) fn serve(shared: &Shared, stream: &Stream, conn: &Conn, seat: Seat) {
    match converse(shared, stream, conn, seat) {
        Ok(()) => {}
        Err(fault @ (frieze_net::Error::Frame { .. } | frieze_net::Error::Checksum { .. })) => {
            debug!("{} is closed: {fault}", stream.peer());
            refuse(stream, fault.into());
        }
        Err(fault) => debug!("{} is closed: {fault}", stream.peer()),
    }
    stream.shutdown();
    shared.parts.service.sessions.disconnected(conn);
    if let Some(node) = conn.node().filter(|_| !shared.stopping.load(Ordering::Acquire)) {
        shared.parts.hung_up(node);
    }
}

/// When a conversation ends, held replies are flushed, and its turn goes to the next reader.
struct ConnectionReplies {
    writer: FrameWriter,
    replies: Arc<SocketReplies>,
}

impl Drop for ConnectionReplies {
    fn drop(&mut self) {
        self.replies.holder().release();
        if let Err(fault) = self.writer.release() {
            debug!("answers were not delivered: {fault}");
        }
    }
}

fn converse(shared: &Shared, stream: &Stream, conn: &Conn, mut seat: Seat) -> Result<(), frieze_net::Error> {
    let mut reader = FrameReader::guarded(stream.clone(), Limits::HANDSHAKE)?;
    let writer = FrameWriter::new(stream.clone(), Limits::SERVING);
    let replies = Arc::new(SocketReplies {
        writer: writer.clone(),
        clock: shared.parts.planes.clock.clone(),
        epoch: shared.parts.planes.data.epoch(),
        slots: shared.slots.clone(),
        holder: Mutex::default(),
        client: shared.parts.fabric.get().cloned().filter(|_| !stream.is_unix()).map(ServedClient::new),
    });
    let responder: Arc<dyn Responder> = replies.clone();
    let open = ConnectionReplies { writer, replies };
    let (mut body, mut payload) = (Vec::new(), Vec::new());
    let (mut pieces, mut hops) = (PartialPayloads::default(), HopReceiver::default());
    let mut scratch = Scratch::default();
    let mut handshake = Some(Handshake::new());
    let (mut is_listening, mut plain) = (false, 0u64);
    let mut looked = frieze_net::mono();
    loop {
        if let Some(handshake) = &handshake {
            let Some(limits) = handshake.limits() else {
                refuse(
                    stream,
                    Fault::new(Reason::Unproven, "nothing has proven whose the connection is: it is closed"),
                );
                return Ok(());
            };
            reader.set_limits(limits);
        }
        let at_rest = || {
            payload = Vec::new();
            scratch.rest();
            open.writer.rest();
        };
        let Some(mut header) = reader.read_frame_or_rest(&mut body, at_rest)? else { return Ok(()) };
        if let (FrameKind::Peer, Some(node)) = (header.kind, conn.node()) {
            if !std::mem::replace(&mut is_listening, true) {
                reader.set_limits(LISTENING);
                if let Some(links) = shared.links.get() {
                    links.on_contact(node);
                }
            }
            match on_peer_message(shared, node, &header, &body, &mut reader, (&mut pieces, &mut hops), &mut payload) {
                Ok(()) => {}
                Err(PayloadError::Connection(error)) => return Err(error),
                Err(PayloadError::Malformed(fault)) => {
                    warn!("node {node} is not listened to any more: {fault}");
                    refuse(stream, fault);
                    return Ok(());
                }
            }
            if shared.stopping.load(Ordering::Acquire) {
                return Ok(());
            }
            // A removed server connects again, and receives the reason why its messages are refused.
            if frieze_net::mono().since_ns(looked) > TEND_EVERY_NS {
                looked = frieze_net::mono();
                if let Err(fault) = shared.parts.check_is_node(node) {
                    info!("node {node} is not listened to any more: {fault}");
                    refuse(stream, fault);
                    return Ok(());
                }
            }
            continue;
        }
        let request = RequestBody::decode(body.as_slice());
        let len = header.payload_len as usize;
        let (whole, fetched);
        let received: ReceivedPayload<'_> = if len >= SHARED_BYTES_MIN && shared.parts.planes.data.forwards_any() {
            // The payload may be forwarded, or sent again, when the next is received.
            let decoded = request.as_ref().ok().and_then(|body| body.request.as_ref());
            let goes_to = partial_payloads::goes_to(shared, &header, decoded, len);
            whole = partial_payloads::receive(shared, &mut reader, len, goes_to)?;
            whole.received()
        } else if let Some((slot, crc)) = slot_of(&request).filter(|_| len == 0) {
            let client = open.replies.client.as_ref();
            let failed = || Fault::new(Reason::FabricFailed, "this server has no fabric for this connection");
            match client.ok_or_else(failed).and_then(|client| client.fetch(&slot)) {
                Ok(bytes) => fetched = bytes,
                Err(fault) => {
                    responder.respond(&header, Err(fault), &[], 0);
                    // Replies before it may be held.
                    if !reader.has_frame() {
                        open.writer.release()?;
                    }
                    continue;
                }
            }
            (header.payload_len, header.payload_crc) = (slot.len, crc);
            (&fetched).into()
        } else {
            receive_small(&mut reader, len, &mut payload)?
        };
        if header.kind != FrameKind::Request {
            let fault = Fault::new(Reason::BadFrame, "malformed frame: a client sends requests, nothing else");
            responder.respond(&header, Err(fault), &[], 0);
            return Ok(());
        }
        // Replies to requests that arrived together are sent together.
        if reader.has_frame() {
            open.writer.hold();
        }
        match request {
            Ok(request) => {
                if !request.request.as_ref().is_some_and(|request| class_of(&header, request).may_stream) {
                    // It may wait for something else.
                    open.replies.holder().release();
                }
                let timed = shared.metrics.as_ref().map(|metrics| metrics.timed(request.request.as_ref(), &responder));
                let responder = timed.as_ref().unwrap_or(&responder);
                let span = shared.spans.as_ref().and_then(|spans| spans.begin(&header, &request, responder));
                let _within = span.as_ref().map(|open| open.span.enter());
                let traced = span.clone().map(|open| open as Arc<dyn Responder>);
                let responder = traced.as_ref().unwrap_or(responder);
                shared.parts.handle(conn, &header, request, received, responder, &mut scratch);
            }
            Err(error) => {
                let fault = Fault::new(Reason::BadFrame, format!("malformed frame: the body is no request: {error}"));
                responder.respond(&header, Err(fault), &[], 0);
            }
        }
        if !reader.has_frame() {
            open.writer.release()?;
        }
        // Where chains have other members the reader may ask those for more.
        let stays = open.replies.holder().has_slot() && !shared.parts.planes.data.forwards_any();
        if !(stays && reader.await_frame(LINGER)? && reader.has_frame()) {
            open.replies.holder().release();
        }
        if let Some(unproven) = &mut handshake {
            unproven.count_request();
            if let Some(origin) = conn.origin() {
                if let Err(refused) = seat.belongs_to(origin) {
                    refuse(stream, Fault::new(Reason::Overloaded, refused.to_string()));
                    return Ok(());
                }
                reader.admit(Limits::SERVING);
                handshake = None;
            }
        }
        if shared.stopping.load(Ordering::Acquire) {
            return Ok(());
        }
        plain = if header.payload_len > 0 { 0 } else { plain + 1 };
        if plain == IDLE_REQUESTS && payload.capacity() > IDLE_BUFFER_BYTES {
            payload = Vec::new();
        }
    }
}

/// Where the payload of a write is to be fetched, and its CRC32C.
fn slot_of(request: &Result<RequestBody, prost::DecodeError>) -> Option<(RemoteMemory, u32)> {
    match request.as_ref().ok()?.request.as_ref()? {
        Request::Write(write) => Some((write.src_slot?, write.src_crc)),
        _ => None,
    }
}

/// A payload in a buffer that the next frame overwrites.
fn receive_small<'a>(
    reader: &mut FrameReader,
    len: usize,
    payload: &'a mut Vec<u8>,
) -> Result<ReceivedPayload<'a>, frieze_net::Error> {
    Ok(if len > 0 { (&*reader.read_payload_unchecked(payload)?).into() } else { [][..].into() })
}

/// Handles one message of a server. If it cannot be processed now it is dropped (the server sends it again); a
/// malformed message closes the connection.
fn on_peer_message(
    shared: &Shared,
    node: NodeId,
    header: &FrameHeader,
    body: &[u8],
    reader: &mut FrameReader,
    (pieces, hops): (&mut PartialPayloads, &mut HopReceiver),
    payload: &mut Vec<u8>,
) -> Result<(), PayloadError> {
    let malformed = |what: String| Fault::new(Reason::BadFrame, format!("malformed frame: {what}"));
    let decoded = PeerBody::decode(body);
    let decoded =
        decoded.map_err(|error| PayloadError::Malformed(malformed(format!("the body is no message: {error}"))))?;
    // A message that only a newer server knows is optional: it is ignored.
    let Some(message) = decoded.message else { return Ok(()) };
    let len = header.payload_len as usize;
    shared.traffic.received(&message, len + body.len());
    match &message {
        ServerMessage::ChainPiece(piece) => {
            let goes = |chain, len| partial_payloads::next_of(shared, chain, len);
            pieces.take(&shared.pool, goes, reader, piece, len)
        }
        ServerMessage::HopOffer(offer) => {
            let answer = hops.accept(shared.parts.fabric.get().map(|host| &**host), offer);
            respond_to_peer(shared, node, answer);
            Ok(())
        }
        ServerMessage::HopAnswer(answer) => {
            shared.links.get().into_iter().for_each(|links| links.on_hop_answer(node, answer));
            Ok(())
        }
        ServerMessage::ChainRecord(record) if record.src_slot.is_some() => {
            let memory = record.src_slot.expect("just found");
            match hops.fetch(&memory) {
                Ok(bytes) => {
                    let header = FrameHeader { payload_crc: record.crc, payload_len: memory.len, ..*header };
                    deliver(shared, node, &header, message, (&bytes).into())
                }
                Err((error, answer)) => {
                    debug!("a record of node {node} is lost: its payload cannot be fetched: {error}");
                    respond_to_peer(shared, node, answer);
                    Ok(())
                }
            }
        }
        ServerMessage::ChainRecord(record) if record.ahead != 0 => {
            match pieces.finish(&shared.pool, reader, record, len)? {
                Some(whole) => {
                    let header = FrameHeader { payload_crc: record.crc, ..*header };
                    deliver(shared, node, &header, message, whole.received())
                }
                None => {
                    debug!("record {} of chain {} has come without its pieces: it is lost", record.n, record.chain);
                    Ok(())
                }
            }
        }
        _ if len >= SHARED_BYTES_MIN => {
            let whole = partial_payloads::receive(shared, reader, len, None)?;
            deliver(shared, node, header, message, whole.received())
        }
        _ => deliver(shared, node, header, message, receive_small(reader, len, payload)?),
    }
}

fn respond_to_peer(shared: &Shared, node: NodeId, answer: HopAnswer) {
    if let Some(links) = shared.links.get() {
        links.send(node, ServerMessage::HopAnswer(answer), PeerPayload::none());
    }
}

fn deliver(
    shared: &Shared,
    node: NodeId,
    header: &FrameHeader,
    message: ServerMessage,
    payload: ReceivedPayload<'_>,
) -> Result<(), PayloadError> {
    let span = shared.spans.as_ref().and_then(|spans| spans.begin_record(&message));
    let _within = span.as_ref().map(OpenSpan::enter);
    match shared.parts.on_peer_message(node, header, message, payload) {
        Err(fault) if fault.reason == Reason::BadFrame => Err(PayloadError::Malformed(fault)),
        Err(fault) => {
            debug!("a message of node {node} is lost: {fault}");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}
