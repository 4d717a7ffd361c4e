//! Wall and CPU time of this process.

use std::time::{Duration, Instant};

use anyhow::Result;

/// Measures from its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch {
    wall: Instant,
    cpu_ns: u64,
}

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "measuring is what this crate is for")]
    pub(crate) fn start() -> Stopwatch {
        Stopwatch { wall: Instant::now(), cpu_ns: cpu_ns() }
    }

    /// Seconds since the start.
    pub(crate) fn seconds(&self) -> f64 {
        self.wall.elapsed().as_secs_f64()
    }

    /// CPU seconds of this process since the start.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        (cpu_ns() - self.cpu_ns) as f64 / 1e9
    }
}

fn cpu_ns() -> u64 {
    let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64
}

/// Does `one` so many times, each begun `interval` seconds after the one before, or when that is done. Milliseconds
/// that each took, in order of size.
///
/// # Errors
/// The first of `one`.
pub(crate) fn at_intervals(count: u64, interval: f64, mut one: impl FnMut(u64) -> Result<()>) -> Result<Vec<f64>> {
    let watch = Stopwatch::start();
    let mut times = Vec::new();
    for index in 0..count {
        let due = index as f64 * interval - watch.seconds();
        if due > 0.0 {
            std::thread::park_timeout(Duration::from_secs_f64(due));
        }
        let begun = Stopwatch::start();
        one(index)?;
        times.push(begun.seconds() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}
