//! State of a catch-up: the member, the range of records, and how many bytes a second may be sent.
//!
//! Guarantees: at most one batch is in flight; the next is due when the member has acknowledged the last one, and the
//! pace allows it. Leaves to others: reading and sending records (`catch_up`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use frieze_base::{ChainEpoch, MonoTime, NodeId};
use frieze_locks::{Mutex, levels};

/// State of one catch-up: the member, and the range of records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Supply {
    pub(crate) to: NodeId,
    pub(crate) epoch: ChainEpoch,
    /// Number of the last record that was sent, or that the member has.
    pub(crate) sent: u64,
    /// Number of the last record to send.
    pub(crate) upto: u64,
    /// Number up to which the member has acknowledged records.
    pub(crate) held: u64,
    /// Records are being sent at the moment, or all have been sent.
    pub(crate) busy: bool,
    /// The next records are sent when the pace allows it, without a request.
    pub(crate) waits: bool,
    /// Number of the last record that could not be read, reported once; 0 for none. Whenever the member that lacks it
    /// acknowledges records, the read is retried: a repair may have restored the record.
    pub(crate) damaged: u64,
    /// Last progress: number sent, number acknowledged, and the time of that.
    moved: Option<(u64, u64, MonoTime)>,
}

impl Supply {
    /// Starts a supply of the records after `after`, up to `upto`.
    pub(crate) fn new(to: NodeId, epoch: ChainEpoch, after: u64, upto: u64) -> Supply {
        Supply { to, epoch, sent: after, upto, held: after, busy: true, waits: false, damaged: 0, moved: None }
    }

    /// True if records are in flight and none was acknowledged for `bound`, once per `bound`: they may be lost.
    pub(crate) fn is_stalled(&mut self, now: MonoTime, bound: Duration) -> bool {
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

    /// Records that the member holds every record up to `held`. True if the next are to be sent now.
    pub(crate) fn on_ack(&mut self, from: NodeId, epoch: ChainEpoch, held: u64) -> bool {
        if (from, epoch) != (self.to, self.epoch) {
            return false;
        }
        self.held = self.held.max(held);
        self.begin()
    }

    /// True while records are in flight to the member that lacks them.
    pub(crate) fn is_under_way(&self) -> bool {
        self.held < self.sent
    }

    /// True if records waited for the pace and are to be sent now.
    pub(crate) fn resume(&mut self, pace: &CatchUpPace, now: MonoTime) -> bool {
        self.waits && pace.available(now) > 0 && self.begin()
    }

    /// Starts a batch if none is being sent.
    fn begin(&mut self) -> bool {
        let may_go = !self.busy && self.held >= self.sent;
        self.busy |= may_go;
        may_go
    }
}

/// Rate limit of catch-up.
#[derive(Debug, Default)]
pub(crate) struct CatchUpPace {
    /// Bytes a second; 0 for no limit.
    rate: AtomicU64,
    /// Time of the last update, and the bytes allowed since; below 0: bytes sent in advance.
    credit: Mutex<levels::CatchUpCredit, (MonoTime, i64)>,
}

impl CatchUpPace {
    pub(crate) fn limit(&self, bytes_per_s: u64) {
        self.rate.store(bytes_per_s, Ordering::Relaxed);
    }

    /// Bytes a second; 0 for no limit.
    pub(crate) fn rate(&self) -> u64 {
        self.rate.load(Ordering::Relaxed)
    }

    /// Bytes that may be sent now.
    pub(crate) fn available(&self, now: MonoTime) -> u64 {
        let rate = self.rate();
        if rate == 0 {
            return u64::MAX;
        }
        let mut credit = self.credit.lock();
        let (looked, left) = *credit;
        let more = u128::from(now.since_ns(looked)) * u128::from(rate) / 1_000_000_000;
        // Unused credit is capped at one burst: a node that returns must not receive an hour's worth at once.
        let left = i64::try_from(more).unwrap_or(i64::MAX).saturating_add(left).min((rate / BURST).max(1) as i64);
        *credit = (now, left);
        left.max(0) as u64
    }

    pub(crate) fn charge(&self, bytes: u64) {
        self.credit.lock().1 -= bytes as i64;
    }
}

/// Credit kept for later: this fraction of a second's bytes.
const BURST: u64 = 10;
