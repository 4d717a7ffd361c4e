//! Real time of the demo: the streams and the copy run as time passes, and stop together if one of them fails.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maps microseconds since the first sample to real time.
pub(crate) struct Pace {
    begins: Instant,
    stopped: Mutex<bool>,
    stop: Condvar,
}

/// Somebody else failed and said why; there is nothing left to wait for.
#[derive(Debug)]
pub(crate) struct Stopped;

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("stopped because another part failed")
    }
}

impl std::error::Error for Stopped {}

impl Pace {
    /// A pace whose microsecond 0 comes `lead` from now.
    #[expect(clippy::disallowed_methods, reason = "the cameras stream in real time: that is what the demo shows")]
    pub(crate) fn starting_in(lead: Duration) -> Pace {
        Pace { begins: Instant::now() + lead, stopped: Mutex::new(false), stop: Condvar::new() }
    }

    /// Waits until `after_us` microseconds after the first sample; at once if that has passed.
    pub(crate) fn wait_until(&self, after_us: u64) -> Result<(), Stopped> {
        let due = self.begins + Duration::from_micros(after_us);
        let mut stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if *stopped {
                return Err(Stopped);
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "the cameras stream in real time: that is what the demo shows"
            )]
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            stopped = self.stop.wait_timeout(stopped, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Lets everybody stop waiting.
    pub(crate) fn stop(&self) {
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_ends_every_wait() {
        let pace = Pace::starting_in(Duration::from_secs(3600));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| pace.wait_until(0));
            pace.stop();
            assert!(waiting.join().expect("it does not panic").is_err());
        });
    }

    #[test]
    fn what_has_passed_is_not_waited_for() {
        assert!(Pace::starting_in(Duration::ZERO).wait_until(0).is_ok());
    }
}
