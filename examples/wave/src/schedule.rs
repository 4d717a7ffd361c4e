//! When each image of each camera reaches frieze: the network between them, drawn from a seed.

use frieze_base::Rng;

use crate::film::SAMPLES;
use crate::water::SAMPLE_US;

/// Longest delay of a camera's connection, milliseconds.
pub(crate) const DELAY_MS_MAX: u64 = 120;

/// For each sample of `camera`, the microseconds after the first sample at which it is sent on.
///
/// Every image is delayed by a time of its own; one that is late holds up those behind it, as in a TCP connection, so
/// the order within a camera stays.
pub(crate) fn arrivals(seed: u64, camera: usize) -> Vec<u64> {
    let mut rng = Rng::new(seed ^ ((camera as u64 + 1) << 32));
    let mut last = 0;
    (0..SAMPLES as u64)
        .map(|sample| {
            last = last.max(sample * SAMPLE_US + rng.below(DELAY_MS_MAX * 1000));
            last
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_arrive_in_order_and_late() {
        for camera in 0..100 {
            let arrivals = arrivals(3, camera);
            assert!(arrivals.is_sorted());
            let delays = arrivals.iter().enumerate().map(|(sample, at)| at - sample as u64 * SAMPLE_US);
            assert!(delays.max().is_some_and(|most| (100_000..120_000).contains(&most)));
        }
        assert_ne!(arrivals(3, 0), arrivals(3, 1));
    }
}
