//! Until when chains of several members are answered for, and what waits for others how long.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use frieze_base::MonoTime;

/// Permission to answer for chains of several members, which ends by itself.
#[derive(Debug, Default)]
pub struct Lease(AtomicU64);

impl Lease {
    /// From now on it holds until this time; not, if that has passed.
    pub fn renew(&self, until: MonoTime) {
        self.0.store(until.0, Ordering::SeqCst);
    }

    /// Nanoseconds for which it holds if it is not renewed.
    pub fn left_ns(&self, now: MonoTime) -> u64 {
        MonoTime(self.0.load(Ordering::SeqCst)).since_ns(now)
    }

    /// True if it holds. Asked after what is answered was read.
    pub(crate) fn holds(&self, now: MonoTime) -> bool {
        now.0 < self.0.load(Ordering::SeqCst)
    }
}

/// How much waits for others, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Bytes of one chain's records that are not committed. More: a successor that stands still for a moment holds up
    /// fewer writers. Less: less memory. Beyond it writers wait, and after `wait` they are refused.
    pub(crate) flight_bytes_max: u64,
    /// How long a reader or a writer waits for other members.
    pub(crate) wait: Duration,
    /// Bytes sent at once to a member that lacks them.
    pub(crate) supply_bytes: u64,
    /// After so long without progress what may have been lost is said again.
    pub(crate) again: Duration,
    /// The same where records of the past are on their way to who lacks them: said again, they go again, all of them.
    pub(crate) supply_again: Duration,
    /// After so long without a word from a successor that was asked again and again it is said to be out of reach.
    pub(crate) silent: Duration,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            flight_bytes_max: 64 << 20,
            wait: Duration::from_secs(5),
            supply_bytes: 8 << 20,
            again: Duration::from_millis(200),
            supply_again: Duration::from_secs(1),
            silent: Duration::from_secs(3),
        }
    }
}
