//! Users: where their rows lie, and how active they are.

use frieze_base::Rng;

/// A number in `[0, 1)`.
pub(crate) fn unit(rng: &mut Rng) -> f64 {
    (rng.next() >> 11) as f64 / (1u64 << 53) as f64
}

/// An exponentially distributed number with this mean.
pub(crate) fn exponential(rng: &mut Rng, mean: f64) -> f64 {
    -mean * (1.0 - unit(rng)).ln()
}

/// A user.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    pub(crate) region: u32,
    /// Where in the region's key range the row lies, from 0 up to 1.
    pub(crate) position: f64,
    /// Share of all visits.
    pub(crate) activity: f64,
}

/// All users, and a draw by activity.
#[derive(Debug)]
pub(crate) struct Users {
    users: Vec<User>,
    /// Alias method (Walker): below `threshold` of 2^32 the slot itself, else its alias.
    slots: Vec<(u32, u32)>,
}

impl Users {
    pub(crate) fn new(rng: &mut Rng, count: usize, regions: u32, exponent: f64, cap: f64) -> Users {
        // Quantiles of the bounded Pareto distribution instead of draws: two seeds have the same hottest user.
        let tail = 1.0 - cap.powf(-exponent);
        let weights: Vec<f64> =
            (0..count).map(|i| (1.0 - (i as f64 + 0.5) / count as f64 * tail).powf(-1.0 / exponent)).collect();
        let sum: f64 = weights.iter().sum();
        let users: Vec<User> = (weights.iter().enumerate())
            .map(|(i, weight)| User { region: (i as u32) % regions, position: unit(rng), activity: weight / sum })
            .collect();
        let slots = alias(&users);
        Users { users, slots }
    }

    pub(crate) fn draw(&self, rng: &mut Rng) -> u32 {
        let word = rng.next();
        let slot = ((u128::from(word) * self.slots.len() as u128) >> 64) as usize;
        let (threshold, other) = self.slots[slot];
        if (word as u32) < threshold { slot as u32 } else { other }
    }

    pub(crate) fn get(&self, user: u32) -> User {
        self.users[user as usize]
    }
}

fn alias(users: &[User]) -> Vec<(u32, u32)> {
    let count = users.len();
    let mut left: Vec<f64> = users.iter().map(|user| user.activity * count as f64).collect();
    let mut slots = vec![(u32::MAX, 0u32); count];
    let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..count).partition(|&i| left[i] < 1.0);
    for (i, slot) in slots.iter_mut().enumerate() {
        slot.1 = i as u32;
    }
    while let (Some(&low), Some(&high)) = (small.last(), large.last()) {
        small.pop();
        slots[low] = ((left[low] * f64::from(u32::MAX)) as u32, high as u32);
        left[high] -= 1.0 - left[low];
        if left[high] < 1.0 {
            large.pop();
            small.push(high);
        }
    }
    slots
}
