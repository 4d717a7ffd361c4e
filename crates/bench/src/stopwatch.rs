//! Wall and CPU time of this process.

use std::time::Instant;

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
