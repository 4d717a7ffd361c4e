//! Catch-up: records read from the log, for a member that lacks them.
//!
//! Guarantees: records are sent in the order of their numbers, each with its original stamp; at most
//! [`crate::Bounds::supply_bytes`] are in flight, and the next are sent when the member has acknowledged those; all
//! supplies of this node together stay within the bytes a second of [`crate::supply::CatchUpPace`].

use std::sync::atomic::Ordering;

use bytes::Bytes;
use frieze_base::{ChainId, ErrorKind, Fault, LogIndex, Reason};
use frieze_chain::{ForwardedRecord, Message};
use frieze_multilog::{NumberedRecord, RecordKind};
use frieze_net::{PeerPayload, Peers};
use frieze_wire::chain::RecordHeader;
use frieze_wire::message::Durability;
use frieze_wire::peer::ServerMessage;

use crate::codec::to_wire;
use crate::plane::DataPlane;
use crate::report::ChainEvent;
use crate::supply::Supply;

impl DataPlane {
    /// Limits catch-up to so many bytes a second; 0 for no limit.
    pub fn limit_catch_up(&self, bytes_per_s: u64) {
        self.pace.limit(bytes_per_s);
    }

    /// The limit in bytes a second; 0 for no limit.
    pub fn catch_up_limit(&self) -> u64 {
        self.pace.rate()
    }

    /// Bytes sent by catch-up since the process began.
    pub fn catch_up_bytes(&self) -> u64 {
        self.supplied.load(Ordering::Relaxed)
    }

    /// The entry of the metalog up to which records here may have died, or have come without their bytes: nothing of
    /// the past is shown before it is executed.
    pub fn expired_index(&self) -> LogIndex {
        LogIndex(self.expired_index.load(Ordering::Acquire))
    }

    /// Raises [`DataPlane::expired_index`]. Durable on return. To be called before a record dies, or is taken without
    /// its bytes.
    ///
    /// # Errors
    /// The disk's.
    pub fn raise_expired_index(&self, index: LogIndex) -> Result<(), Fault> {
        if index > self.expired_index() {
            self.clock.raise_expired_index(index)?;
            self.expired_index.fetch_max(index.0, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Mean size of a record here, in bytes, estimated.
    pub fn mean_record_bytes(&self) -> u64 {
        let stats = self.device.log().stats();
        stats.log_bytes.checked_div(stats.records).unwrap_or(0)
    }

    /// Bytes of a chain that this node still lacks, estimated; 0 unless it is catching up.
    pub fn lag_bytes(&self, chain: ChainId) -> u64 {
        self.views.lag_bytes[chain.0 as usize].load(Ordering::Relaxed)
    }

    /// Sends the next records of a supply.
    pub(crate) fn supply(&self, chain: ChainId) {
        let (supply, clean) = {
            let appender = self.lock_appender();
            let Some(supply) = appender.states[chain.0 as usize].supply else { return };
            (supply, appender.chains[chain.0 as usize].clean())
        };
        let sent = self.supply_some(chain, supply, clean);
        let (mut waits, mut damaged) = (true, 0);
        let sent = sent.unwrap_or_else(|(sent, fault)| {
            (waits, damaged) = (false, sent + 1);
            if damaged != supply.damaged {
                self.report(ChainEvent::Damaged { chain, n: damaged, fault });
            }
            sent
        });
        let mut appender = self.lock_appender();
        let state = &mut appender.states[chain.0 as usize];
        if let Some(going) = &mut state.supply
            && (going.to, going.epoch, going.upto, going.sent) == (supply.to, supply.epoch, supply.upto, supply.sent)
        {
            (going.sent, going.busy, going.damaged) = (sent, sent >= supply.upto, damaged);
            going.waits = waits && !going.busy;
        }
    }

    /// Sends records, and returns the number of the last one. `clean`: the chain's newest committed number.
    fn supply_some(&self, chain: ChainId, supply: Supply, clean: u64) -> Result<u64, (u64, Fault)> {
        let Supply { to, epoch, mut sent, upto, .. } = supply;
        let mut bytes = 0;
        let bytes_max = self.bounds.supply_bytes.min(self.pace.available(self.clock.reading().mono));
        if bytes_max == 0 {
            return Ok(sent);
        }
        let mean = self.mean_record_bytes();
        while sent < upto && bytes < bytes_max {
            let max = (upto - sent).min(AT_ONCE) as usize;
            let records = self.device.records_of(chain, sent, max).map_err(|fault| (sent, fault))?;
            if records.is_empty() {
                return Err((sent, missing(chain, sent + 1)));
            }
            for record in records.into_iter().take_while(|record| record.header.n <= upto) {
                if bytes >= bytes_max {
                    break;
                }
                if record.header.n != sent + 1 {
                    return Err((sent, missing(chain, sent + 1)));
                }
                let (kind, payload, crc) = self.payload_to_send(&record).map_err(|fault| (sent, fault))?;
                let has_died = kind != record.header.kind;
                let len = payload.len() as u64 + RECORD_BYTES;
                self.pace.charge(len);
                self.supplied.fetch_add(len, Ordering::Relaxed);
                bytes += len;
                sent = record.header.n;
                let mut message = to_wire(chain, epoch, Message::Record(Box::new(forwarded(&record, kind))));
                if let ServerMessage::ChainRecord(record) = &mut message {
                    record.left_bytes = upto.max(clean).saturating_sub(sent) * mean;
                    record.expired_index = if has_died { self.expired_index().0 } else { 0 };
                }
                self.peers.send(to, message, PeerPayload { bytes: payload, crc: Some(crc), ahead: None });
            }
        }
        Ok(sent)
    }

    /// The kind of a record, its payload, and the payload's checksum. An expired record whose space was given
    /// back is a hole: every instant that would show it is refused.
    fn payload_to_send(&self, record: &NumberedRecord) -> Result<(RecordKind, Bytes, u32), Fault> {
        match self.device.payload_of(record) {
            Ok((payload, crc)) => Ok((record.header.kind, payload, crc)),
            Err(fault) if fault.kind() == ErrorKind::Corrupt && self.device.is_dead(record)? => {
                Ok((RecordKind::Punch, Bytes::new(), 0))
            }
            Err(fault) => Err(fault),
        }
    }
}

/// A log record as it is sent to a member. It is on stable storage here, or will be before it counts towards a commit:
/// so the member has to make it durable.
fn forwarded(record: &NumberedRecord, kind: RecordKind) -> ForwardedRecord {
    let header = RecordHeader { kind, ..record.header.clone() };
    ForwardedRecord { header, durability: Durability::Sync, acked: frieze_base::Seq(0) }
}

fn missing(chain: ChainId, n: u64) -> Fault {
    Fault::new(Reason::Corrupt, format!("record {n} of chain {chain} is not in the log of this device"))
}

/// Records that are read from the index in one step.
const AT_ONCE: u64 = 64;

/// Bytes of a record besides its payload.
const RECORD_BYTES: u64 = 128;
