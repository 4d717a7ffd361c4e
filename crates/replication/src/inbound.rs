//! Messages of other members.
//!
//! Guarantees: the stamps and promises that a message names lie within the clock's durable bound before they are
//! forwarded or acknowledged; a payload that does not match the writer's checksum is not appended. Leaves to others:
//! the transport ([`frieze_net::Peers`]), what a replica does with a message (`effects`).

use std::sync::atomic::Ordering;

use frieze_base::{ChainEpoch, ChainId, Fault, NodeId};
use frieze_chain::{Message, ReplicaInput};
use frieze_net::ReceivedPayload;
use frieze_storage::block_checksums;
use frieze_wire::peer::ServerMessage;

use crate::chain_state::Out;
use crate::codec::{What, heard, malformed};
use crate::incoming::Incoming;
use crate::plane::DataPlane;
use crate::report::Report;

impl DataPlane {
    /// Handles a message of node `from`, whose identity the connection has proven. `crc` is the payload's checksum
    /// according to the sender. True if it was a message about a chain.
    ///
    /// # Errors
    /// `BadFrame` for a message that no correct member sends: the connection is to be closed. Other faults: the message
    /// is lost, and the member sends it again.
    pub fn told(
        &self,
        from: NodeId,
        told: ServerMessage,
        crc: u32,
        payload: ReceivedPayload<'_>,
    ) -> Result<bool, Fault> {
        let lacks = match &told {
            ServerMessage::ChainRecord(record) => Some(record.left_bytes),
            _ => None,
        };
        let Some(heard) = heard(told, payload.len())? else { return Ok(false) };
        let chain = heard.chain;
        if chain.0 >= self.chain_count() {
            return Err(malformed(format!("there is no chain {chain}")));
        }
        if let Some(lacks) = lacks {
            self.shown.lacks[chain.0 as usize].store(lacks, Ordering::Relaxed);
        }
        let mut out = Out::default();
        let taken = match heard.what {
            What::Message(message) => self.hear(from, chain, heard.epoch, message, false, (crc, payload), &mut out),
            What::Punch(message) => {
                self.hear(from, chain, heard.epoch, message, true, (0, ReceivedPayload::from(&[][..])), &mut out)
            }
            What::Persist(n) => {
                self.hear_persist(from, chain, heard.epoch, n, &mut out);
                Ok(())
            }
            What::Persisted(n) => {
                self.hear_persisted(from, chain, heard.epoch, n, &mut out);
                Ok(())
            }
            What::CloseAfter(after) => self.hear_close_after(from, chain, after, &mut out),
            What::ClosedAfter(after) => {
                self.hear_closed_after(chain, after, &mut out);
                Ok(())
            }
            What::Unknown => Ok(()),
        };
        self.finish_out(out);
        taken.map(|()| true)
    }

    #[expect(clippy::too_many_arguments, reason = "what a message consists of, handed on once")]
    fn hear(
        &self,
        from: NodeId,
        chain: ChainId,
        epoch: ChainEpoch,
        message: Message,
        punch: bool,
        (crc, payload): (u32, ReceivedPayload<'_>),
        out: &mut Out,
    ) -> Result<(), Fault> {
        let incoming = match &message {
            Message::Record(record) => {
                if !self.device.fits(payload.len()) {
                    return Err(malformed(format!("record {} is longer than a segment", record.n)));
                }
                let (block_crcs, found) = block_checksums(&payload, self.device.block_bytes());
                if !punch && found != crc {
                    return Err(crate::fault::damaged());
                }
                Some(Incoming { payload, block_crcs, crc: found, punch })
            }
            _ => None,
        };
        // Stamps are within the durable bound before they are forwarded or acknowledged (protocols §3).
        self.clock.adopt(message.newest())?;
        let held = match &message {
            Message::Ack { held, .. } => Some(*held),
            _ => None,
        };
        let mut appender = self.hold_writes();
        if !appender.members[chain.0 as usize].shared {
            // A directory of one server has no other members.
            return Ok(());
        }
        appender.heard.insert(from, self.clock.reading().mono);
        if appender.members[chain.0 as usize].silent == Some(from) {
            appender.members[chain.0 as usize].silent = None;
            out.reports.push(Report::Silent { chain, node: None });
        }
        let is_close = matches!(message, Message::AskClose { .. });
        let input = ReplicaInput::Receive { from, epoch, message };
        self.step(&mut appender, chain, input, incoming.as_ref(), out);
        let now = self.clock.reading().mono;
        let member = &mut appender.members[chain.0 as usize];
        if is_close {
            member.asked_at = Some(now);
        }
        if let (Some(held), Some(supply)) = (held, &mut member.supply)
            && supply.heard(from, epoch, held)
        {
            out.supplies.push(chain);
        }
        Ok(())
    }
}
