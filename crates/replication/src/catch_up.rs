//! Records of the past, out of the log, for a member that lacks them.
//!
//! Guarantees: they go in the order of their numbers, each as it was stamped; at most [`crate::Bounds::supply_bytes`]
//! are on their way at once, and the next go when those are held; of all that this node supplies no more goes in a
//! second than [`Pace`] allows.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use frieze_base::{ChainEpoch, ChainId, ErrorKind, Fault, MonoTime, NodeId, Reason};
use frieze_chain::{Forwarded, Message};
use frieze_multilog::{NumberedRecord, RecordKind};
use frieze_wire::message::Durability;
use frieze_wire::peer::ServerMessage;

use crate::chains::Report;
use crate::codec::to_told;
use crate::plane::DataPlane;
use frieze_net::{PeerPayload, Peers};

/// What a member is being sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Supply {
    pub(crate) to: NodeId,
    pub(crate) epoch: ChainEpoch,
    /// Number of the last record that was sent, or that it has.
    pub(crate) sent: u64,
    /// Number of the last one to be sent.
    pub(crate) upto: u64,
    /// Number up to which it has said that it holds them.
    pub(crate) held: u64,
    /// Some are being sent just now, or all have been.
    pub(crate) busy: bool,
    /// More go when there is time for them, without being asked for.
    pub(crate) waits: bool,
    /// Number of the last record that could not be read, which was told once; 0 for none. It is tried again whenever
    /// who lacks it says what it holds: it may have been mended.
    pub(crate) damaged: u64,
    /// Where it was at which moment when it moved last: what was sent, and what is held there.
    moved: Option<(u64, u64, MonoTime)>,
}

impl Supply {
    /// What follows on record `after` is to go, up to `upto`.
    pub(crate) fn new(to: NodeId, epoch: ChainEpoch, after: u64, upto: u64) -> Supply {
        Supply { to, epoch, sent: after, upto, held: after, busy: true, waits: false, damaged: 0, moved: None }
    }

    /// True if records are on their way and none has arrived for so long, once in that time: they may be lost.
    pub(crate) fn stands_still(&mut self, now: MonoTime, bound: Duration) -> bool {
        match self.moved {
            Some((sent, held, since)) if self.is_under_way() && (sent, held) == (self.sent, self.held) => {
                let is_late = u128::from(now.since_ns(since)) >= bound.as_nanos();
                self.moved = Some((sent, held, if is_late { now } else { since }));
                is_late
            }
            _ => {
                self.moved = Some((self.sent, self.held, now));
                false
            }
        }
    }

    /// A member holds every record up to `held`. True if the next are to go now.
    pub(crate) fn heard(&mut self, from: NodeId, epoch: ChainEpoch, held: u64) -> bool {
        if (from, epoch) != (self.to, self.epoch) {
            return false;
        }
        self.held = self.held.max(held);
        self.begin()
    }

    /// True while records are on their way to who lacks them.
    pub(crate) fn is_under_way(&self) -> bool {
        self.held < self.sent
    }

    /// True if more waited for time to pass and are to go now.
    pub(crate) fn goes_on(&mut self, pace: &Pace, now: MonoTime) -> bool {
        self.waits && pace.allows(now) > 0 && self.begin()
    }

    /// The next may go when nothing is under way.
    fn begin(&mut self) -> bool {
        let may_go = !self.busy && self.held >= self.sent;
        self.busy |= may_go;
        may_go
    }
}

/// How fast others are brought up to date.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Bytes a second; 0 for as fast as it goes.
    rate: AtomicU64,
    /// When it was looked at last, and what may go from then on; below 0 what went too early.
    credit: Mutex<(MonoTime, i64)>,
}

impl Pace {
    fn limit(&self, bytes_per_s: u64) {
        self.rate.store(bytes_per_s, Ordering::Relaxed);
    }

    /// Bytes a second; 0 for as fast as it goes.
    pub(crate) fn rate(&self) -> u64 {
        self.rate.load(Ordering::Relaxed)
    }

    /// Bytes that may go now.
    pub(crate) fn allows(&self, now: MonoTime) -> u64 {
        let rate = self.rate();
        if rate == 0 {
            return u64::MAX;
        }
        let mut credit = self.credit.lock().unwrap_or_else(PoisonError::into_inner);
        let (looked, left) = *credit;
        let more = u128::from(now.since_ns(looked)) * u128::from(rate) / 1_000_000_000;
        // What was not used is not saved up: a node that comes back is not to get an hour's worth at once.
        let left = i64::try_from(more).unwrap_or(i64::MAX).saturating_add(left).min((rate / BURST).max(1) as i64);
        *credit = (now, left);
        left.max(0) as u64
    }

    fn took(&self, bytes: u64) {
        self.credit.lock().unwrap_or_else(PoisonError::into_inner).1 -= bytes as i64;
    }
}

impl DataPlane {
    /// Gives at most so many bytes a second to those that are brought up to date; 0 for as many as it can.
    pub fn limit_supplies(&self, bytes_per_s: u64) {
        self.pace.limit(bytes_per_s);
    }

    /// What was set so.
    pub fn supplies_limit(&self) -> u64 {
        self.pace.rate()
    }

    /// Bytes that were given to such since the process began.
    pub fn supplied_bytes(&self) -> u64 {
        self.supplied.load(Ordering::Relaxed)
    }

    /// About how many bytes a record takes here.
    pub fn mean_record_bytes(&self) -> u64 {
        let stats = self.device.log().stats();
        stats.log_bytes.checked_div(stats.records).unwrap_or(0)
    }

    /// About how many bytes of a chain this node is to be given before it has all; 0 unless it is brought up to date.
    pub fn lacks(&self, chain: ChainId) -> u64 {
        self.shown.lacks[chain.0 as usize].load(Ordering::Relaxed)
    }

    /// Sends the next records of a supply.
    pub(crate) fn supply(&self, chain: ChainId) {
        let (supply, clean) = {
            let appender = self.hold_writes();
            let Some(supply) = appender.members[chain.0 as usize].supply else { return };
            (supply, appender.chains[chain.0 as usize].clean())
        };
        let sent = self.supply_some(chain, supply, clean);
        let (mut waits, mut damaged) = (true, 0);
        let sent = sent.unwrap_or_else(|(sent, fault)| {
            (waits, damaged) = (false, sent + 1);
            if damaged != supply.damaged {
                self.report(Report::Damaged { chain, n: damaged, fault });
            }
            sent
        });
        let mut appender = self.hold_writes();
        let member = &mut appender.members[chain.0 as usize];
        if let Some(going) = &mut member.supply
            && (going.to, going.epoch, going.upto, going.sent) == (supply.to, supply.epoch, supply.upto, supply.sent)
        {
            (going.sent, going.busy, going.damaged) = (sent, sent >= supply.upto, damaged);
            going.waits = waits && !going.busy;
        }
    }

    /// Returns the number of the last record that was sent. `clean`: how far the chain is.
    fn supply_some(&self, chain: ChainId, supply: Supply, clean: u64) -> Result<u64, (u64, Fault)> {
        let Supply { to, epoch, mut sent, upto, .. } = supply;
        let mut bytes = 0;
        let bytes_max = self.bounds.supply_bytes.min(self.pace.allows(self.clock.reading().mono));
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
            for record in records.into_iter().take_while(|record| record.meta.n <= upto) {
                if bytes >= bytes_max {
                    break;
                }
                if record.meta.n != sent + 1 {
                    return Err((sent, missing(chain, sent + 1)));
                }
                let (punch, payload, crc) = self.what_is_left(&record).map_err(|fault| (sent, fault))?;
                let len = payload.len() as u64 + RECORD_BYTES;
                self.pace.took(len);
                self.supplied.fetch_add(len, Ordering::Relaxed);
                bytes += len;
                sent = record.meta.n;
                let mut told = to_told(chain, epoch, Message::Record(Box::new(forwarded(&record))), punch);
                if let ServerMessage::ChainRecord(told) = &mut told {
                    told.left_bytes = upto.max(clean).saturating_sub(sent) * mean;
                }
                self.way.tell(to, told, PeerPayload { bytes: payload, crc: Some(crc), ahead: None });
            }
        }
        Ok(sent)
    }

    /// Whether a record leaves a hole, its payload, and that one's checksum. What was forgotten and given back is a
    /// hole: every instant that would show it is refused.
    fn what_is_left(&self, record: &NumberedRecord) -> Result<(bool, Bytes, u32), Fault> {
        match self.device.payload_of(record) {
            Ok((payload, crc)) => Ok((record.meta.kind == RecordKind::Punch, payload, crc)),
            Err(fault) if fault.kind() == ErrorKind::Corrupt && self.device.is_dead(record)? => {
                Ok((true, Bytes::new(), 0))
            }
            Err(fault) => Err(fault),
        }
    }
}

/// A record of the log as it goes to a member. It is on stable storage here, or will be before it counts: so it has to
/// be there.
fn forwarded(record: &NumberedRecord) -> Forwarded {
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
/// What was not given in time may be given later: this part of a second's worth.
const BURST: u64 = 10;
/// What a record takes beside its payload.
const RECORD_BYTES: u64 = 128;
