//! Payloads that are forwarded to the next member of their chain while they arrive, ahead of their record.

use std::sync::Arc;

use bytes::Bytes;
use frieze_base::ChainId;
use frieze_locks::{Mutex, levels};
use frieze_net::{PeerPayload, PrefixClaim};
use frieze_wire::peer::{ChainPiece, PeerBody, ServerMessage};
use frieze_wire::{FrameHeader, FrameKind};
use prost::Message;

use super::link::{LinkSender, PeerLink};

/// Least bytes of a payload worth a message of their own.
const PIECE_BYTES_MIN: usize = 192 << 10;

/// A payload whose beginning is sent before its record.
pub(crate) struct EarlyPayload {
    pub(super) sender: Arc<LinkSender>,
    pub(super) link: Arc<PeerLink>,
    pub(super) connection: u64,
    pub(super) chain: ChainId,
    pub(super) name: u64,
    pub(super) len: usize,
    /// Bytes sent; `None` once the record was sent.
    pub(super) sent: Mutex<levels::RecordProgress, Option<usize>>,
}

impl EarlyPayload {
    /// Sends what arrived since the last piece, if that is worth a message and the connection is free; the last piece
    /// goes with the record. `so_far`: everything that has arrived.
    pub(crate) fn send_arrived(&self, so_far: &[u8]) {
        let mut sent = self.sent.lock();
        let Some(from) = sent.filter(|from| so_far.len() - from >= PIECE_BYTES_MIN && so_far.len() < self.len) else {
            return;
        };
        let Some(writer) = self.link.take_turn_on(self.connection) else { return };
        let piece = &so_far[from..];
        let message =
            ServerMessage::ChainPiece(ChainPiece { chain: self.chain.0, ahead: self.name, len: self.len as u32 });
        self.sender.traffic.sent(&message, piece.len());
        let body = PeerBody { message: Some(message) }.encode_to_vec();
        let header = FrameHeader { hlc: self.sender.clock.newest(), ..FrameHeader::of(FrameKind::Peer) };
        // The record carries the checksum of these bytes.
        match writer.begin(header, &body, piece, Some(0)) {
            Ok(partial) => {
                *sent = Some(so_far.len());
                drop(sent);
                match partial.is_done() {
                    true => self.sender.send_in_turn(&self.link, &writer),
                    false => self.link.leave(Ok(partial.map(Bytes::copy_from_slice))),
                }
            }
            Err(fault) => self.link.leave(Err(fault.into())),
        }
    }
}

impl PrefixClaim for EarlyPayload {
    fn claim(&self, connection: u64) -> Option<(u64, usize)> {
        let mut sent = self.sent.lock();
        if connection != self.connection || sent.is_none_or(|bytes| bytes == 0) {
            return None;
        }
        sent.take().map(|bytes| (self.name, bytes))
    }
}

impl Drop for EarlyPayload {
    fn drop(&mut self) {
        let unclaimed = self.sent.lock().is_some_and(|bytes| bytes > 0);
        self.link.release_early(self.connection);
        if unclaimed && self.link.connection() == self.connection {
            let forget = ChainPiece { chain: self.chain.0, ahead: self.name, len: 0 };
            self.link.send(ServerMessage::ChainPiece(forget), PeerPayload::none());
        }
    }
}
