//! Real time of the demo: the streams and the copy run as time passes, and stop together if one of them fails.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maps microseconds since the first sample to real time.
pub(crate) struct StreamPace {
    begins: Instant,
    stopped: Mutex<bool>,
    stop: Condvar,
}

/// Another thread failed and printed why; there is nothing left to wait for.
#[derive(Debug)]
pub(crate) struct PaceStopped;

impl std::fmt::Display for PaceStopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("stopped because another part failed")
    }
}

impl std::error::Error for PaceStopped {}

impl StreamPace {
    /// A pace whose microsecond 0 comes `lead` from now.
    #[expect(clippy::disallowed_methods, reason = "the cameras stream in real time: that is what the demo shows")]
    pub(crate) fn starting_in(lead: Duration) -> StreamPace {
        StreamPace { begins: Instant::now() + lead, stopped: Mutex::new(false), stop: Condvar::new() }
    }

    /// Waits until `after_us` microseconds after the first sample; at once if that has passed.
    pub(crate) fn wait_until(&self, after_us: u64) -> Result<(), PaceStopped> {
        let due = self.begins + Duration::from_micros(after_us);
        let mut stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if *stopped {
                return Err(PaceStopped);
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

    /// Ends the waits of all threads.
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
        let pace = StreamPace::starting_in(Duration::from_secs(3600));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| pace.wait_until(0));
            pace.stop();
            assert!(waiting.join().expect("it does not panic").is_err());
        });
    }

    #[test]
    fn what_has_passed_is_not_waited_for() {
        assert!(StreamPace::starting_in(Duration::ZERO).wait_until(0).is_ok());
    }
}
