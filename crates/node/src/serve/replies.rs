//! Replies of a connection over a socket, and the refusal that ends one.

use std::cell::RefCell;
use std::sync::Arc;

use frieze_base::{ChainEpoch, Fault, Reason};
use frieze_fabric::ServedClient;
use frieze_locks::{Mutex, MutexGuard, levels};
use frieze_net::{FramePayload, FrameWriter, Limits, ReplySlots, SlotHolder, Stream};
use frieze_service::{Responder, Steps};
use frieze_storage::NodeClock;
use frieze_wire::fabric::ConnectFabric;
use frieze_wire::frame::{FrameHeader, FrameKind};
use frieze_wire::message::{Refusal, Reply, ReplyBody};
use prost::Message;
use tracing::debug;

use super::landing::{Landing, land};

/// Replies of one connection.
pub(super) struct SocketReplies {
    pub(super) writer: FrameWriter,
    pub(super) clock: Arc<NodeClock>,
    pub(super) epoch: ChainEpoch,
    pub(super) slots: Arc<ReplySlots>,
    pub(super) holder: Mutex<levels::ReadPlace, SlotHolder>,
    /// Transfers instead of payloads; none over a Unix socket.
    pub(super) client: Option<ServedClient>,
}

impl SocketReplies {
    pub(super) fn holder(&self) -> MutexGuard<'_, SlotHolder> {
        self.holder.lock()
    }

    fn header(&self, request: &FrameHeader, kind: FrameKind) -> FrameHeader {
        reply_header(request, kind, self.epoch, &self.clock)
    }
}

/// Header of the reply to `request`.
pub(super) fn reply_header(
    request: &FrameHeader,
    kind: FrameKind,
    epoch: ChainEpoch,
    clock: &NodeClock,
) -> FrameHeader {
    FrameHeader {
        request_id: request.request_id,
        session: request.session,
        seq: request.seq,
        epoch,
        hlc: clock.newest(),
        // Duration of the cache lease, which the parts put in place of the request for one.
        holds: request.holds,
        ..FrameHeader::of(kind)
    }
}

impl Responder for SocketReplies {
    fn respond(&self, request: &FrameHeader, mut result: Result<Reply, Fault>, payload: &[u8], payload_crc: u32) {
        if let Ok(Reply::Hello(greeting)) = &mut result {
            greeting.fabric = self.client.as_ref().and_then(ServedClient::offer);
        }
        let (kind, body) = match result {
            Ok(reply) => (FrameKind::Reply, ReplyBody { reply: Some(reply) }.encode_to_vec()),
            Err(fault) => (FrameKind::Refusal, Refusal::from(fault).encode_to_vec()),
        };
        let header = self.header(request, kind);
        let sent = if payload.is_empty() {
            self.writer.post(header, &body)
        } else {
            // The send may block until the reader reads. A large reply that is under way belongs to another thread.
            if let Some(mut holder) = self.holder.try_lock() {
                holder.release();
            }
            self.writer.send(header, &body, FramePayload::Checked { pieces: &[payload], crc: payload_crc })
        };
        if let Err(fault) = sent {
            debug!("an answer was not delivered: {fault}");
        }
    }

    fn connect_fabric(&self, ask: &ConnectFabric) -> Result<(), Fault> {
        let none = || Fault::new(Reason::FabricFailed, "this server has no fabric for this connection");
        self.client.as_ref().ok_or_else(none)?.connect(ask)
    }

    fn respond_in_steps(&self, request: &FrameHeader, mut reply: Reply, steps: &mut Steps<'_>) {
        let mut holder = self.holder();
        let slot = RefCell::new(self.slots.take(&mut holder, steps.len));
        let lands = steps.dest_slot.zip(self.client.as_ref());
        let landing = lands.map_or(Landing::Untouched, |(slot, client)| land(client, slot, steps));
        if let Landing::Damaged(fault) = landing {
            holder.keep(slot.into_inner());
            drop(holder);
            return self.respond(request, Err(fault), &[], 0);
        }
        if let Reply::Read(read) = &mut reply {
            match landing {
                Landing::Landed(len, crc) => (read.landed, read.landed_crc) = (len as u32, crc),
                _ => (read.crc_behind, read.is_slot_abandoned) = (true, matches!(landing, Landing::Abandoned)),
            }
        }
        let body = ReplyBody { reply: Some(reply) }.encode_to_vec();
        let header = self.header(request, FrameKind::Reply);
        if let Landing::Landed(..) = landing {
            holder.keep(slot.into_inner());
            if let Err(fault) = self.writer.post(header, &body) {
                debug!("an answer was not delivered: {fault}");
            }
            return;
        }
        steps.exchange_buffer(&mut slot.borrow_mut().buffer);
        let stalled = || slot.borrow_mut().yield_slot();
        let sent = self.writer.send_in_steps(header, &body, steps.len, &stalled, |step| {
            steps.hand_on(&mut |part, crc| {
                step(part, crc)?;
                if crc.is_none() {
                    slot.borrow_mut().retake();
                }
                Ok(())
            })
        });
        steps.exchange_buffer(&mut slot.borrow_mut().buffer);
        holder.keep(slot.into_inner());
        if let Err(fault) = sent {
            debug!("an answer was not delivered whole: {fault}");
        }
    }
}

/// Sends the peer the reason why its connection ends, if it still reads, and closes the connection.
pub(super) fn refuse(stream: &Stream, fault: Fault) {
    let body = Refusal::from(fault).encode_to_vec();
    let writer = FrameWriter::new(stream.clone(), Limits::HANDSHAKE);
    if writer.post(FrameHeader::of(FrameKind::Refusal), &body).is_err() {
        debug!("{} had closed the connection before it could be refused", stream.peer());
    }
    stream.shutdown();
}
