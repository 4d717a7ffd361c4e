//! Wall and CPU time of this process.

use std::collections::BTreeMap;
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

/// Times of operations of one load, each by the second in which it ended. Takes 8 bytes an operation.
#[derive(Debug, Default)]
pub(crate) struct Latencies(Vec<(u32, f32)>);

impl Latencies {
    /// An operation that ended `at_s` seconds after the load began, and took `ms`.
    pub(crate) fn add(&mut self, at_s: f64, ms: f64) {
        self.0.push((at_s as u32, ms as f32));
    }

    /// Adds those of another client.
    pub(crate) fn append(&mut self, mut other: Latencies) {
        self.0.append(&mut other.0);
    }

    /// Milliseconds: half of the operations, 99 of 100, and 99 of 100 of the second in which that is worst. The first
    /// and the last second are no whole ones, and count only if there are no others.
    pub(crate) fn quantiles(&self) -> (f64, f64, f64) {
        let of = |times: &mut Vec<f32>, share: f64| {
            times.sort_by(f32::total_cmp);
            let at = (times.len() as f64 * share) as usize;
            times.get(at.min(times.len().saturating_sub(1))).map_or(0.0, |ms| f64::from(*ms))
        };
        let mut seconds: BTreeMap<u32, Vec<f32>> = BTreeMap::new();
        for (second, ms) in &self.0 {
            seconds.entry(*second).or_default().push(*ms);
        }
        let mut all: Vec<f32> = self.0.iter().map(|(_, ms)| *ms).collect();
        let (half, most) = (of(&mut all, 0.5), of(&mut all, 0.99));
        if seconds.len() > 2 {
            seconds.pop_first();
            seconds.pop_last();
        }
        let worst = seconds.into_values().map(|mut times| of(&mut times, 0.99)).fold(0.0, f64::max);
        (half, most, worst)
    }
}

/// CPU seconds of the calling thread.
pub(crate) fn thread_cpu_s() -> f64 {
    let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_second_is_a_whole_one() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantiles(), (0.0, 0.0, 0.0));
        for second in 0..5u32 {
            let mut one = Latencies::default();
            for op in 0..100u32 {
                // The last ten of each second take longer, those of second 3 more than the others, of the last most.
                let slow = [2.0, 2.0, 2.0, 7.0, 50.0][second as usize];
                one.add(f64::from(second) + f64::from(op) / 100.0, if op < 90 { 1.0 } else { slow });
            }
            latencies.append(one);
        }
        assert_eq!(latencies.quantiles(), (1.0, 50.0, 7.0));
    }
}
