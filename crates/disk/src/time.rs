//! The clocks: the machine's, and a simulated one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use frieze_base::MonoTime;
use frieze_hlc::{Hlc, Reading};
use rustix::time::{ClockId, clock_gettime};

use crate::adjtime;

/// Where readings come from: the only place of frieze that looks at a clock.
pub trait TimeSource: Send + Sync {
    /// One look at wall clock, monotonic clock and error bound.
    fn reading(&self) -> Reading;
}

/// The clocks of this machine: `CLOCK_REALTIME`, `CLOCK_BOOTTIME` and the error that the kernel estimates for its
/// clock (`adjtimex`, kept by ntpd, chronyd and the like). Costs about 0.3 us; the estimate is asked for once a second.
#[derive(Debug)]
pub struct MachineTime {
    /// Monotonic second in which the estimate was last asked for.
    asked_at_s: AtomicU64,
    /// The estimate in microseconds, `u64::MAX` if nobody knows.
    error_us: AtomicU64,
}

impl MachineTime {
    /// The machine's clocks.
    pub fn new() -> MachineTime {
        MachineTime {
            asked_at_s: AtomicU64::new(mono().0 / 1_000_000_000),
            error_us: AtomicU64::new(adjtime::kernel_error_us().unwrap_or(UNKNOWN)),
        }
    }

    fn error_us(&self, mono: MonoTime) -> Option<u64> {
        let second = mono.0 / 1_000_000_000;
        if self.asked_at_s.swap(second, Ordering::Relaxed) != second {
            let asked = adjtime::kernel_error_us();
            self.error_us.store(asked.unwrap_or(UNKNOWN), Ordering::Relaxed);
        }
        Some(self.error_us.load(Ordering::Relaxed)).filter(|&us| us != UNKNOWN)
    }
}

impl Default for MachineTime {
    fn default() -> Self {
        MachineTime::new()
    }
}

impl TimeSource for MachineTime {
    fn reading(&self) -> Reading {
        let mut before = mono();
        let mut wall_us = wall_us();
        let mut after = mono();
        // A pause of this thread between the two clocks would look like a jump of one of them: look again. A machine
        // that pauses every time is too busy to be exact, and the last look stands.
        for _ in 0..LOOKS_MAX {
            if after.since_ns(before) < PAUSE_NS_MAX {
                break;
            }
            before = mono();
            wall_us = self::wall_us();
            after = mono();
        }
        Reading { wall_us, mono: before, error_us: self.error_us(before) }
    }
}

fn mono() -> MonoTime {
    // It runs while the machine sleeps, as leases do.
    let now = clock_gettime(ClockId::Boottime);
    MonoTime(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

fn wall_us() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000 + now.tv_nsec as u64 / 1000
}

/// Time that stands still until a test moves it. Clones share one clock.
#[derive(Clone, Debug)]
pub struct SimTime {
    state: Arc<Mutex<Reading>>,
}

impl SimTime {
    /// A clock whose wall clock shows `wall_us`, with an error bound of 1 ms.
    pub fn new(wall_us: u64) -> SimTime {
        let reading = Reading { wall_us, mono: MonoTime(1_000_000_000), error_us: Some(1_000) };
        SimTime { state: Arc::new(Mutex::new(reading)) }
    }

    /// Lets `micros` pass on both clocks.
    pub fn advance_us(&self, micros: u64) {
        self.change(|reading| {
            reading.wall_us = reading.wall_us.saturating_add(micros);
            reading.mono.0 += micros * 1000;
        });
    }

    /// Sets the wall clock forward (or back, if negative) by `micros`; the monotonic clock goes on evenly.
    pub fn jump_wall_us(&self, micros: i64) {
        self.change(|reading| reading.wall_us = reading.wall_us.saturating_add_signed(micros));
    }

    /// Sets the error bound; `None`: nobody knows.
    pub fn set_error_us(&self, error_us: Option<u64>) {
        self.change(|reading| reading.error_us = error_us);
    }

    /// The first stamp of the present microsecond of the wall clock.
    pub fn wall(&self) -> Hlc {
        Hlc::first_of_micros(self.reading().wall_us)
    }

    fn change(&self, change: impl FnOnce(&mut Reading)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl TimeSource for SimTime {
    fn reading(&self) -> Reading {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const UNKNOWN: u64 = u64::MAX;
/// A look that took longer had a pause in it: three calls take 0.3 us, a rescheduled thread comes back after a
/// millisecond or more.
const PAUSE_NS_MAX: u64 = 1_000_000;
const LOOKS_MAX: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_clocks_go_forward_together() {
        let time = MachineTime::new();
        let first = time.reading();
        let mut last = first;
        while last.mono.since_ns(first.mono) < 2_000_000 {
            let next = time.reading();
            assert!(next.mono >= last.mono);
            last = next;
        }
        let wall_ns = last.wall_us.abs_diff(first.wall_us) * 1000;
        assert!(wall_ns.abs_diff(last.mono.since_ns(first.mono)) < 500_000_000, "{first:?} {last:?}");
        assert!(first.wall_us > 1_700_000_000_000_000, "the wall clock of this machine is set");
    }

    #[test]
    fn simulated_clocks_move_only_as_told() {
        let time = SimTime::new(1_000_000);
        let twin = time.clone();
        let first = time.reading();
        assert_eq!(twin.reading(), first);
        twin.advance_us(5);
        twin.jump_wall_us(-100);
        twin.set_error_us(None);
        let later = time.reading();
        assert_eq!(later.wall_us, 999_905);
        assert_eq!(later.mono.since_ns(first.mono), 5_000);
        assert_eq!(later.error_us, None);
    }
}
