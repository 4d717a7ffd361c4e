//! When transfers of a connection are tested. Decides only: it sends nothing.

use std::time::Duration;

use frieze_base::MonoTime;

/// When the transfers of a connection are tested, first and after failures.
#[derive(Clone, Debug)]
pub struct TransferTrial {
    /// When transfers are tested again, and the wait before the test after that one.
    retry_at: MonoTime,
    wait: Duration,
    /// Requests without a reply.
    outstanding: usize,
    /// Slots of earlier tests may be named by requests without a reply.
    has_failed: bool,
}

impl TransferTrial {
    /// Those of a new connection: the first test is due.
    pub fn new(now: MonoTime) -> TransferTrial {
        TransferTrial { retry_at: now, wait: WAIT_MIN, outstanding: 0, has_failed: false }
    }

    /// A request was sent.
    pub fn on_request(&mut self) {
        self.outstanding += 1;
    }

    /// A reply has come.
    pub fn on_reply(&mut self) {
        self.outstanding = self.outstanding.saturating_sub(1);
    }

    /// True if the wait after the last failure is over, and no request under way may name a slot of before.
    pub fn is_due(&self, now: MonoTime) -> bool {
        (self.outstanding == 0 || !self.has_failed) && now >= self.retry_at
    }

    /// The test has succeeded.
    pub fn on_success(&mut self) {
        self.wait = WAIT_MIN;
    }

    /// The test, or a transfer, has failed. Returns how long it is until the next test.
    pub fn on_failure(&mut self, now: MonoTime) -> Duration {
        let wait = self.wait;
        self.has_failed = true;
        self.retry_at = MonoTime(now.0.saturating_add(wait.as_nanos() as u64));
        self.wait = (wait * 2).min(WAIT_MAX);
        wait
    }
}

/// Wait after a failure before transfers are tested again.
const WAIT_MIN: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(60);
