//! The largest value in any interval of a growing sequence.

use crate::slim::{push_slim, reserve_slim};

/// Maxima of 64 values, of 64 of those, and so on: a question looks at no more than 128 entries a layer. Values
/// themselves stay with the caller, which passes a function that reads them. Nothing is kept for the first 64.
#[derive(Debug, Default)]
pub(super) struct Peaks(Vec<Vec<u32>>);

impl Peaks {
    /// Takes in value number `at`, the next one, and returns by how much the memory grew.
    pub(super) fn push(&mut self, at: usize, value: u32, values: impl Fn(usize) -> u32) -> usize {
        let mut grown = 0;
        if at == FAN {
            grown += reserve_slim(&mut self.0, 1);
            let mut layer = Vec::new();
            grown += push_slim(&mut layer, (0..FAN).map(values).max().unwrap_or(0));
            self.0.push(layer);
        }
        let mut position = at;
        for layer in &mut self.0 {
            position /= FAN;
            match layer.get_mut(position) {
                Some(peak) => *peak = value.max(*peak),
                None => grown += push_slim(layer, value),
            }
        }
        if let Some(top) = self.0.last().filter(|top| top.len() > FAN) {
            let mut layer = Vec::new();
            for part in top.chunks(FAN) {
                grown += push_slim(&mut layer, part.iter().copied().max().unwrap_or(0));
            }
            grown += push_slim(&mut self.0, layer);
        }
        grown
    }

    /// The largest of the values numbered `from..to`; 0 if there is none.
    pub(super) fn largest(&self, from: usize, to: usize, values: impl Fn(usize) -> u32) -> u32 {
        let (mut from, mut to, mut best) = (from, to, 0);
        for layer in 0..=self.0.len() {
            let value = |at: usize| if layer == 0 { values(at) } else { self.0[layer - 1][at] };
            if layer == self.0.len() || to.saturating_sub(from) <= FAN {
                return (from..to).map(value).fold(best, u32::max);
            }
            while from % FAN != 0 {
                best = best.max(value(from));
                from += 1;
            }
            while to % FAN != 0 {
                to -= 1;
                best = best.max(value(to));
            }
            from /= FAN;
            to /= FAN;
        }
        best
    }
}

const FAN: usize = 64;

#[cfg(test)]
mod tests {
    use frieze_base::Rng;

    use super::*;

    #[test]
    fn the_largest_of_any_interval_equals_that_of_a_scan() {
        let mut rng = Rng::new(7);
        let values: Vec<u32> = (0..9000).map(|_| rng.below(1 << 30) as u32).collect();
        let mut peaks = Peaks::default();
        for (at, &value) in values.iter().enumerate() {
            peaks.push(at, value, |at| values[at]);
            if at % 97 != 0 {
                continue;
            }
            let from = rng.below(at as u64 + 1) as usize;
            let to = rng.between(from as u64, at as u64 + 1) as usize;
            let expect = values[from..to].iter().copied().max().unwrap_or(0);
            assert_eq!(peaks.largest(from, to, |at| values[at]), expect, "[{from}, {to}) of {}", at + 1);
        }
    }
}
