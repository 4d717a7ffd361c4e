//! Throttle for log lines that a peer can cause at will: one line in ten seconds, with the number of events.

use std::time::Duration;

use frieze_base::MonoTime;
use frieze_locks::{Mutex, levels};

use crate::mono;

/// Decides when such a line is written.
#[derive(Debug, Default)]
pub struct LogThrottle(Mutex<levels::LogThrottle, ThrottleState>);

#[derive(Debug, Default)]
struct ThrottleState {
    last: Option<MonoTime>,
    count: u64,
}

impl LogThrottle {
    /// At most one line in this time.
    pub const EVERY: Duration = Duration::from_secs(10);

    /// Counts an event. Returns the number of events since the last line if a line is due.
    pub fn happened(&self) -> Option<u64> {
        self.happened_at(mono())
    }

    fn happened_at(&self, now: MonoTime) -> Option<u64> {
        let mut state = self.0.lock();
        state.count += 1;
        if state.last.is_some_and(|last| now.since_ns(last) < LogThrottle::EVERY.as_nanos() as u64) {
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_said_at_once_and_the_others_are_counted_until_it_is_time() {
        let (seldom, s) = (LogThrottle::default(), 1_000_000_000);
        assert_eq!(seldom.happened_at(MonoTime(s)), Some(1));
        assert_eq!([2, 3, 10].map(|at| seldom.happened_at(MonoTime(at * s))), [None; 3]);
        assert_eq!(seldom.happened_at(MonoTime(11 * s)), Some(4));
        assert_eq!(seldom.happened_at(MonoTime(12 * s)), None);
    }
}
