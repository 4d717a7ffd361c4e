//! Messages of other members.
//!
//! Guarantees: the stamps and promises that a message names lie within the clock's durable bound before they are
//! forwarded or acknowledged; a payload that does not match the writer's checksum is not appended. Leaves to others:
//! the transport ([`frieze_net::Peers`]), what a replica does with a message (`effects`).

use std::sync::atomic::Ordering;

use frieze_base::{ChainEpoch, ChainId, Fault, LogIndex, NodeId};
use frieze_chain::{ForwardedRecord, Message, ReplicaEffect, ReplicaInput};
use frieze_multilog::RecordKind;
use frieze_net::ReceivedPayload;
use frieze_storage::block_checksums;
use frieze_wire::peer::ServerMessage;

use crate::appender::Appender;
use crate::chain_state::DeferredWork;
use crate::codec::{ChainContent, from_wire, malformed};
use crate::incoming::Incoming;
use crate::plane::DataPlane;
use crate::report::ChainEvent;

impl DataPlane {
    /// Handles a message of node `from`, whose identity the connection has proven. `crc` is the payload's checksum
    /// according to the sender. True if it was a message about a chain.
    ///
    /// # Errors
    /// `BadFrame` for a message that no correct member sends: the connection is to be closed. Other faults: the message
    /// is lost, and the member sends it again.
    pub fn on_message(
        &self,
        from: NodeId,
        message: ServerMessage,
        crc: u32,
        payload: ReceivedPayload<'_>,
    ) -> Result<bool, Fault> {
        let (lag_bytes, expired_index) = match &message {
            ServerMessage::ChainRecord(record) => (Some(record.left_bytes), LogIndex(record.expired_index)),
            _ => (None, LogIndex(0)),
        };
        let Some(decoded) = from_wire(message, payload.len())? else { return Ok(false) };
        let chain = decoded.chain;
        if chain.0 >= self.chain_count() {
            return Err(malformed(format!("there is no chain {chain}")));
        }
        // Before a record is taken that has no bytes.
        self.raise_expired_index(expired_index)?;
        if let Some(lag_bytes) = lag_bytes {
            self.views.lag_bytes[chain.0 as usize].store(lag_bytes, Ordering::Relaxed);
        }
        let mut out = DeferredWork::default();
        let taken = match decoded.content {
            ChainContent::Message(message) => {
                self.on_chain_message(from, chain, decoded.epoch, message, (crc, payload), &mut out)
            }
            ChainContent::Persist(n) => {
                self.on_persist_request(from, chain, decoded.epoch, n, &mut out);
                Ok(())
            }
            ChainContent::Persisted(n) => {
                self.on_persisted_report(from, chain, decoded.epoch, n, &mut out);
                Ok(())
            }
            ChainContent::CloseAfter(after) => self.on_close_after(from, chain, after, &mut out),
            ChainContent::ClosedAfter(after) => {
                self.on_closed_after(chain, after, &mut out);
                Ok(())
            }
            ChainContent::Unknown => Ok(()),
        };
        self.run_deferred(out);
        taken.map(|()| true)
    }

    fn on_chain_message(
        &self,
        from: NodeId,
        chain: ChainId,
        epoch: ChainEpoch,
        message: Message,
        (crc, payload): (u32, ReceivedPayload<'_>),
        out: &mut DeferredWork,
    ) -> Result<(), Fault> {
        if let Message::Record(record) = &message {
            let incoming = self.check_payload(chain, record, crc, payload)?;
            return self.on_record(from, chain, epoch, message, incoming, out);
        }
        // Stamps are within the durable bound before they are forwarded or acknowledged (protocols §3).
        self.clock.adopt(message.newest())?;
        let held = match &message {
            Message::Ack { held, .. } => Some(*held),
            _ => None,
        };
        // A replica handles these while appends are under way; the others may change its log.
        let is_among_fills = matches!(
            message,
            Message::Ack { .. }
                | Message::Promise { .. }
                | Message::AskClean { .. }
                | Message::Clean { .. }
                | Message::AskClose { .. }
        );
        let mut appender = if is_among_fills { self.lock_among_fills() } else { self.lock_appender() };
        if !self.note_sender(&mut appender, from, chain, out) {
            return Ok(());
        }
        let is_close = matches!(message, Message::AskClose { .. });
        self.step(&mut appender, chain, ReplicaInput::Receive { from, epoch, message }, out);
        let now = self.clock.reading().mono;
        let state = &mut appender.states[chain.0 as usize];
        if is_close {
            state.asked_at = Some(now);
        }
        if let (Some(held), Some(supply)) = (held, &mut state.supply)
            && supply.on_ack(from, epoch, held)
        {
            out.supplies.push(chain);
        }
        Ok(())
    }

    /// Handles the next record of the predecessor.
    fn on_record(
        &self,
        from: NodeId,
        chain: ChainId,
        epoch: ChainEpoch,
        message: Message,
        incoming: Incoming<'_>,
        out: &mut DeferredWork,
    ) -> Result<(), Fault> {
        let Message::Record(record) = &message else { unreachable!("the caller has a record") };
        let inode = record.header.chunk.inode;
        self.clock.adopt(message.newest())?;
        let mut appender = self.lock_beside_fills(inode);
        if !self.note_sender(&mut appender, from, chain, out) {
            return Ok(());
        }
        let mut effects = self.advance(&mut appender, chain, ReplicaInput::Receive { from, epoch, message });
        let append = effects.extract_if(.., |effect| matches!(effect, ReplicaEffect::AppendForwarded { .. })).next();
        self.apply_effects(&mut appender, chain, effects, out);
        if let Some(ReplicaEffect::AppendForwarded { token, record }) = append {
            self.append_incoming(appender, chain, (token, &record), incoming, out);
        }
        Ok(())
    }

    /// Checks a record's payload before the appender is locked.
    fn check_payload<'a>(
        &self,
        chain: ChainId,
        record: &ForwardedRecord,
        crc: u32,
        payload: ReceivedPayload<'a>,
    ) -> Result<Incoming<'a>, Fault> {
        if !self.device.fits(payload.len()) {
            return Err(malformed(format!("record {} is longer than a segment", record.header.n)));
        }
        let (block_crcs, found) = block_checksums(&payload, self.device.block_bytes());
        if record.header.kind == RecordKind::Write && found != crc {
            return Err(crate::fault::damaged());
        }
        let kept = self.forwards(chain).then(|| payload.keep(&payload));
        Ok(Incoming { payload, block_crcs, crc: found, kept })
    }

    /// Notes that a member is there. False if the chain has no other members: a directory of one server.
    fn note_sender(&self, appender: &mut Appender, from: NodeId, chain: ChainId, out: &mut DeferredWork) -> bool {
        if !appender.states[chain.0 as usize].shared {
            return false;
        }
        appender.last_message.insert(from, self.clock.reading().mono);
        if appender.states[chain.0 as usize].silent == Some(from) {
            appender.states[chain.0 as usize].silent = None;
            out.reports.push(ChainEvent::Silent { chain, node: None });
        }
        true
    }
}
