//! Records of the past, out of the log, for a member that lacks them.
//!
//! Guarantees: they go in the order of their numbers, each as it was stamped; at most [`super::Bounds::supply_bytes`] are on
//! their way at once, and the next go when those are held.

use bytes::Bytes;
use frieze_base::{ChainEpoch, ChainId, ErrorKind, Fault, NodeId, Reason};
use frieze_chain::{Forwarded, Message};
use frieze_multilog::{Numbered, RecordKind};
use frieze_wire::message::Durability;

use super::DataPlane;
use super::chains::Report;
use super::told::to_told;
use crate::peers::{PeerPayload, Peers};

/// What a member is being sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Supply {
    pub(super) to: NodeId,
    pub(super) epoch: ChainEpoch,
    /// Number of the last record that was sent, or that it has.
    pub(super) sent: u64,
    /// Number of the last one to be sent.
    pub(super) upto: u64,
    /// Some are being sent just now, or all have been.
    pub(super) busy: bool,
}

impl DataPlane {
    /// Sends the next records of a supply.
    pub(super) fn supply(&self, chain: ChainId) {
        let Some(supply) = self.hold_writes().members[chain.0 as usize].supply else { return };
        let sent = self.supply_some(chain, supply);
        let sent = sent.unwrap_or_else(|(sent, fault)| {
            self.report(Report::Damaged { chain, n: sent + 1, fault });
            sent
        });
        let mut appender = self.hold_writes();
        let member = &mut appender.members[chain.0 as usize];
        if let Some(going) = &mut member.supply
            && (going.to, going.epoch, going.upto, going.sent) == (supply.to, supply.epoch, supply.upto, supply.sent)
        {
            (going.sent, going.busy) = (sent, sent >= supply.upto);
        }
    }

    /// Returns the number of the last record that was sent.
    fn supply_some(&self, chain: ChainId, supply: Supply) -> Result<u64, (u64, Fault)> {
        let Supply { to, epoch, mut sent, upto, .. } = supply;
        let mut bytes = 0;
        while sent < upto && bytes < self.bounds.supply_bytes {
            let max = (upto - sent).min(AT_ONCE) as usize;
            let records = self.device.records_of(chain, sent, max).map_err(|fault| (sent, fault))?;
            if records.is_empty() {
                return Err((sent, missing(chain, sent + 1)));
            }
            for record in records.into_iter().take_while(|record| record.meta.n <= upto) {
                if bytes >= self.bounds.supply_bytes {
                    break;
                }
                if record.meta.n != sent + 1 {
                    return Err((sent, missing(chain, sent + 1)));
                }
                let (punch, payload, crc) = self.what_is_left(&record).map_err(|fault| (sent, fault))?;
                bytes += payload.len() as u64 + RECORD_BYTES;
                sent = record.meta.n;
                let told = to_told(chain, epoch, Message::Record(Box::new(forwarded(&record))), punch);
                self.way.tell(to, told, PeerPayload { bytes: payload, crc: Some(crc) });
            }
        }
        Ok(sent)
    }

    /// Whether a record leaves a hole, its payload, and that one's checksum. What was forgotten and given back is a hole: every
    /// instant that would show it is refused.
    fn what_is_left(&self, record: &Numbered) -> Result<(bool, Bytes, u32), Fault> {
        match self.device.payload_of(record) {
            Ok((payload, crc)) => Ok((record.meta.kind == RecordKind::Punch, payload, crc)),
            Err(fault) if fault.kind() == ErrorKind::Corrupt && self.device.is_buried(record)? => {
                Ok((true, Bytes::new(), 0))
            }
            Err(fault) => Err(fault),
        }
    }
}

/// A record of the log as it goes to a member. It is on stable storage here, or will be before it counts: so it has to be there.
fn forwarded(record: &Numbered) -> Forwarded {
    let meta = &record.meta;
    Forwarded {
        n: meta.n,
        epoch: meta.epoch,
        version: meta.version,
        stamp: meta.stamp,
        chunk: meta.chunk,
        offset: meta.offset,
        len: meta.len,
        user_time: meta.user_time,
        durability: Durability::Sync,
        session: meta.session,
        seq: meta.seq,
        acked: frieze_base::Seq(0),
        part: meta.part,
        parts: meta.parts,
        uid: meta.uid,
    }
}

fn missing(chain: ChainId, n: u64) -> Fault {
    Fault::new(Reason::Corrupt, format!("record {n} of chain {chain} is not in the log of this device"))
}

/// Records that are looked up at once.
const AT_ONCE: u64 = 64;
/// What a record takes beside its payload.
const RECORD_BYTES: u64 = 128;
