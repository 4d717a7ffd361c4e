//! The clocks: the machine's, and a simulated one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use frieze_base::MonoTime;
use frieze_hlc::{ClockReading, Hlc};
use frieze_locks::{Mutex, levels};
use rustix::time::{ClockId, clock_gettime};

use crate::adjtime;

/// Source of readings: the only place of frieze that reads a clock.
pub trait TimeSource: Send + Sync {
    /// One reading of wall clock, monotonic clock and error bound.
    fn reading(&self) -> ClockReading;
}

/// The clocks of this machine: `CLOCK_REALTIME`, `CLOCK_BOOTTIME` and the kernel's estimate of its clock error
/// (`adjtimex`, updated by ntpd, chronyd and the like). Costs about 0.05 us; the estimate is read once a second.
#[derive(Debug)]
pub struct MachineTime {
    /// Lead of the wall clock over the monotonic one in nanoseconds, from the last pair of readings without a pause in
    /// between.
    apart_ns: AtomicU64,
    /// Monotonic second of the last read of the estimate.
    asked_at_s: AtomicU64,
    /// The estimate in microseconds, `u64::MAX` if there is none.
    error_us: AtomicU64,
}

impl MachineTime {
    /// The machine's clocks.
    pub fn new() -> MachineTime {
        MachineTime {
            apart_ns: AtomicU64::new(wall_ns().wrapping_sub(mono().0)),
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
    fn reading(&self) -> ClockReading {
        let (mono, wall_ns) = together(&self.apart_ns, mono, wall_ns);
        ClockReading { wall_us: wall_ns / 1000, mono, error_us: self.error_us(mono) }
    }
}

/// Reads both clocks. A pause of this thread between the two readings would look like a jump of one clock.
fn together(apart_ns: &AtomicU64, mono: impl Fn() -> MonoTime, wall_ns: impl Fn() -> u64) -> (MonoTime, u64) {
    let (mut before, mut wall) = (mono(), wall_ns());
    let moved_ns = wall.wrapping_sub(before.0).wrapping_sub(apart_ns.load(Ordering::Relaxed)) as i64;
    // Both advanced alike: there was no pause between the readings, and no third reading is needed.
    if moved_ns.unsigned_abs() < PAUSE_NS_MAX {
        return (before, wall);
    }
    // A machine that pauses every time is too busy to be exact: the last reading counts.
    for _ in 0..LOOKS_MAX {
        (before, wall) = (mono(), wall_ns());
        if mono().since_ns(before) < PAUSE_NS_MAX {
            apart_ns.store(wall.wrapping_sub(before.0), Ordering::Relaxed);
            break;
        }
    }
    (before, wall)
}

fn mono() -> MonoTime {
    // It advances while the machine sleeps, as leases do.
    let now = clock_gettime(ClockId::Boottime);
    MonoTime(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

fn wall_ns() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    u64::try_from(now.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64)
}

/// Time that advances only when a test moves it. Clones share one clock.
#[derive(Clone, Debug)]
pub struct SimTime {
    state: Arc<Mutex<levels::SimTime, ClockReading>>,
}

impl SimTime {
    /// A clock whose wall clock shows `wall_us`, with an error bound of 1 ms.
    pub fn new(wall_us: u64) -> SimTime {
        let reading = ClockReading { wall_us, mono: MonoTime(1_000_000_000), error_us: Some(1_000) };
        SimTime { state: Arc::new(Mutex::new(reading)) }
    }

    /// Advances both clocks by `micros`.
    pub fn advance_us(&self, micros: u64) {
        self.change(|reading| {
            reading.wall_us = reading.wall_us.saturating_add(micros);
            reading.mono.0 += micros * 1000;
        });
    }

    /// Moves the wall clock forward (or back, if negative) by `micros`; the monotonic clock is unaffected.
    pub fn jump_wall_us(&self, micros: i64) {
        self.change(|reading| reading.wall_us = reading.wall_us.saturating_add_signed(micros));
    }

    /// Sets the error bound; `None`: unknown.
    pub fn set_error_us(&self, error_us: Option<u64>) {
        self.change(|reading| reading.error_us = error_us);
    }

    /// The first stamp of the present microsecond of the wall clock.
    pub fn wall(&self) -> Hlc {
        Hlc::first_of_micros(self.reading().wall_us)
    }

    fn change(&self, change: impl FnOnce(&mut ClockReading)) {
        change(&mut self.state.lock());
    }
}

impl TimeSource for SimTime {
    fn reading(&self) -> ClockReading {
        *self.state.lock()
    }
}

const UNKNOWN: u64 = u64::MAX;
/// A longer pair of readings had a pause in it: two calls take 0.05 us, a rescheduled thread returns after a
/// millisecond or more.
const PAUSE_NS_MAX: u64 = 1_000_000;
const LOOKS_MAX: u32 = 10;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

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

    /// Two clocks that advance by 50 ns a reading, and by an extra amount before some of them.
    fn scripted(added: &[(usize, u64, u64)]) -> (MonoTime, u64, usize) {
        let (looks, clocks) = (Cell::new(0), Cell::new((1_000_000_000, 5_000_000_000)));
        let look = || {
            let (mut mono, mut wall) = clocks.get();
            for (_, mono_ns, wall_ns) in added.iter().filter(|(at, ..)| *at == looks.get()) {
                (mono, wall) = (mono + mono_ns, wall + wall_ns);
            }
            clocks.set((mono + 50, wall + 50));
            looks.set(looks.get() + 1);
            (mono, wall)
        };
        let apart = AtomicU64::new(4_000_000_000);
        let (mono, wall) = together(&apart, || MonoTime(look().0), || look().1);
        (mono, wall, looks.get())
    }

    #[test]
    fn a_pause_between_the_looks_at_two_clocks_is_no_jump() {
        let apart = |(mono, wall, _): (MonoTime, u64, usize)| wall - mono.0;
        assert_eq!(scripted(&[]).2, 2, "an even clock is read once");
        let paused = scripted(&[(1, 5_000_000, 5_000_000)]);
        assert_eq!(apart(paused), 4_000_000_050, "the pause lies before both looks");
        let again = scripted(&[(1, 5_000_000, 5_000_000), (3, 7_000_000, 7_000_000)]);
        assert_eq!(apart(again), 4_000_000_050);
        let jumped = scripted(&[(0, 0, 3_000_000_000)]);
        assert_eq!((apart(jumped), jumped.2), (7_000_000_050, 5), "a jump is one, and is made sure of once");
    }

    #[test]
    fn simulated_clocks_move_only_by_calls() {
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
