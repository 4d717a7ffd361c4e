//! The lease under which a node answers for chains of several members, and the limits of waiting for other members.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use frieze_base::MonoTime;

/// Permission to answer for chains of several members, which ends by itself.
#[derive(Debug)]
pub struct ServingLease(AtomicU64);

/// Until when a lease is that no control plane grants.
const ENDLESS: u64 = u64::MAX;

impl ServingLease {
    /// The lease of a start. Of chains that no control plane configures, this server is the only member: its lease does
    /// not end.
    pub(crate) fn new(any_shared: bool) -> ServingLease {
        ServingLease(AtomicU64::new(if any_shared { 0 } else { ENDLESS }))
    }

    /// The control plane configures a chain here: from now on the lease is what it grants.
    pub(crate) fn limit(&self) {
        // One that it has granted stays.
        let _ = self.0.compare_exchange(ENDLESS, 0, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Extends the lease to `until`. A time in the past changes nothing.
    pub fn renew(&self, until: MonoTime) {
        self.0.store(until.0.min(ENDLESS - 1), Ordering::SeqCst);
    }

    /// Nanoseconds until the lease ends unless it is renewed.
    pub fn left_ns(&self, now: MonoTime) -> u64 {
        MonoTime(self.0.load(Ordering::SeqCst)).since_ns(now)
    }

    /// True if the lease is valid. Checked after the answer was read.
    pub(crate) fn holds(&self, now: MonoTime) -> bool {
        now.0 < self.0.load(Ordering::SeqCst)
    }
}

/// Limits of what waits for other members: bytes and time.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Bytes of one chain's uncommitted records. More: a short stall of the successor blocks fewer writers. Less: less
    /// memory. Above the limit writers wait, and after `wait` they are refused.
    pub(crate) flight_bytes_max: u64,
    /// Longest wait of a reader or a writer for other members.
    pub(crate) wait: Duration,
    /// Bytes of old records in flight to a member that lacks them.
    pub(crate) supply_bytes: u64,
    /// Time without progress after which messages that may be lost are sent again.
    pub(crate) again: Duration,
    /// The same while old records are in flight to a member that lacks them: a repeat sends all of them again.
    pub(crate) supply_again: Duration,
    /// Time without a message from a successor, despite repeats, after which it is reported as unreachable.
    pub(crate) silent: Duration,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            flight_bytes_max: 64 << 20,
            wait: frieze_net::PEER_WAIT_MAX,
            supply_bytes: 8 << 20,
            again: Duration::from_millis(200),
            supply_again: Duration::from_secs(1),
            silent: Duration::from_secs(3),
        }
    }
}
