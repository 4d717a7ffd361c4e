//! Latencies of a network and of an object store: lognormal, with a tail.
//!
//! Guarantees: the number of a request decides its latency, so that all systems of a sweep meet the same ones.
//!
//! # Source
//! Lognormal bodies and polynomial tails are what is published of services: Dean and Barroso, The Tail at Scale
//! (CACM 2013); Harchol-Balter, Performance Modeling and Design of Computer Systems (2013), on Pareto tails.

use crate::hardware::HardwareProfile;

/// A lognormal distribution of which some requests are in a Pareto tail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TailedLatency {
    /// The median of the body, in nanoseconds.
    pub median_ns: f64,
    /// Standard deviation of the body's logarithm.
    pub sigma: f64,
    /// Part of the requests that are in the tail, 0 to 1.
    pub tail: f64,
    /// Exponent of the tail, above 1: the smaller, the longer. It begins at the 99th percentile of the body.
    pub alpha: f64,
}

impl TailedLatency {
    /// What `profile` says under `net` or `object`; `None` if it has no latency there.
    pub(crate) fn of(profile: &HardwareProfile, section: &str) -> Option<TailedLatency> {
        let get = |key: &str| profile.get(&format!("{section}.{key}"));
        Some(TailedLatency {
            median_ns: get("latency")? * 1e6,
            sigma: get("sigma").unwrap_or(0.0),
            tail: get("tail").unwrap_or(0.0) / 100.0,
            alpha: get("alpha").unwrap_or(ALPHA),
        })
    }

    /// Nanoseconds of the request with this number.
    pub fn draw(&self, number: u64) -> u64 {
        let uniform = |stream: u64| {
            let bits = mixed(number.wrapping_mul(4).wrapping_add(stream)) >> 11;
            // Never 0, whose logarithm is infinite.
            (bits as f64 + 0.5) / (1u64 << 53) as f64
        };
        if uniform(0) < self.tail {
            return (self.tail_begin_ns() * uniform(1).powf(-1.0 / self.alpha)) as u64;
        }
        let normal = (-2.0 * uniform(2).ln()).sqrt() * (std::f64::consts::TAU * uniform(3)).cos();
        (self.median_ns * (self.sigma * normal).exp()) as u64
    }

    /// Nanoseconds on average, by the closed forms of both distributions.
    pub fn mean_ns(&self) -> f64 {
        let body = self.median_ns * (self.sigma * self.sigma / 2.0).exp();
        let tail = self.tail_begin_ns() * self.alpha / (self.alpha - 1.0);
        (1.0 - self.tail) * body + self.tail * tail
    }

    fn tail_begin_ns(&self) -> f64 {
        self.median_ns * (self.sigma * NORMAL_99).exp()
    }
}

/// SplitMix64 of a counter.
fn mixed(number: u64) -> u64 {
    let mut bits = number.wrapping_add(SEED).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

/// The same latencies in each run.
const SEED: u64 = 0x7a11;
/// The 99th percentile of the normal distribution.
const NORMAL_99: f64 = 2.326_347_9;
/// A tail whose variance is finite, where a profile names none.
const ALPHA: f64 = 2.5;
