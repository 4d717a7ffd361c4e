//! A histogram of sizes that gives their median in little memory.

/// Steps per doubling: the median is right to within an eighth.
const STEPS: u32 = 8;

/// Counts sizes by their magnitude.
#[derive(Debug)]
pub(crate) struct SizeHistogram {
    counts: [u64; 64 * STEPS as usize],
    count: u64,
}

impl Default for SizeHistogram {
    fn default() -> SizeHistogram {
        SizeHistogram { counts: [0; 64 * STEPS as usize], count: 0 }
    }
}

impl SizeHistogram {
    /// Counts one size; 0 is ignored.
    pub(crate) fn add(&mut self, bytes: u64) {
        if bytes > 0 {
            self.counts[step_of(bytes)] += 1;
            self.count += 1;
        }
    }

    /// Count of sizes.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Lower bound of the median, at most an eighth too small; 0 if there are no sizes.
    pub(crate) fn median(&self) -> u64 {
        let mut smaller = 0;
        for (step, count) in self.counts.iter().enumerate() {
            smaller += count;
            if smaller * 2 > self.count {
                return least_of(step);
            }
        }
        0
    }
}

/// The step of a size: its doubling, and the eighth of it.
fn step_of(bytes: u64) -> usize {
    let doubling = bytes.ilog2();
    let eighth = ((u128::from(bytes) << 3) >> doubling) as usize & (STEPS as usize - 1);
    doubling as usize * STEPS as usize + eighth
}

fn least_of(step: usize) -> u64 {
    let (doubling, eighth) = (step / STEPS as usize, step % STEPS as usize);
    (((8 + eighth as u128) << doubling) >> 3) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_lies_in_its_own_step() {
        for bytes in (0..64).flat_map(|bit| [1u64 << bit, (1 << bit) + (1 << bit) / 3, (1 << bit) | ((1 << bit) - 1)]) {
            let least = least_of(step_of(bytes));
            assert!(least <= bytes && bytes - least <= bytes / 8, "{bytes}: {least}");
        }
    }

    #[test]
    fn the_median_is_that_of_what_was_counted() {
        let mut sizes = SizeHistogram::default();
        assert_eq!((sizes.count(), sizes.median()), (0, 0));
        [0, 4096, 4096, 2 << 20, 2 << 20, 3 << 20].into_iter().for_each(|bytes| sizes.add(bytes));
        assert_eq!((sizes.count(), sizes.median()), (5, 2 << 20));
        (0..10).for_each(|_| sizes.add(u64::MAX));
        assert_eq!(sizes.median(), 15 << 60);
    }
}
