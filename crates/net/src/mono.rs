//! The machine's monotonic clock, for timers of drivers.

use frieze_base::MonoTime;
use rustix::time::{ClockId, clock_gettime};

/// Reads the monotonic clock. It does not count time that the machine was suspended.
pub fn mono() -> MonoTime {
    let now = clock_gettime(ClockId::Monotonic);
    MonoTime(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_never_runs_backwards() {
        let mut last = mono();
        for _ in 0..1000 {
            let next = mono();
            assert!(next >= last);
            last = next;
        }
    }
}
