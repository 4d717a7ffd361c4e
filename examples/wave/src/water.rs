//! Water in a square tank: the shallow-water equations on a staggered grid, and the drops that fall into it.
//!
//! Guarantees: one seed gives the same heights for ever, bit for bit, in any language with IEEE 754 doubles. Only
//! `+ - * /` are used, each value is computed in the order written here, and nothing is fused or reordered.
//! `recompute.py` is the same physics written a second time, by which the films are judged. Leaves to others: cutting
//! the surface into images (`camera`), pictures (`render`).
//!
//! Heights stand in the middle of the cells, the two velocities on the faces between them (Arakawa's C grid). A step
//! moves the velocities by the slope of the surface, then the heights by what flows through the faces, so heights and
//! velocities leap over each other. Nothing flows through a wall: waves are thrown back. A wave runs at
//! sqrt(9.81 m/s2 * 25 mm) = 0.5 m/s = 25 cells a second, 0.41 cells a step, below the 0.7 at which the scheme would
//! break.

use frieze_base::Rng;

/// Cells along each side of the tank.
pub(crate) const CELLS: usize = 100;
/// Cells of the tank.
pub(crate) const CELLS_ALL: usize = CELLS * CELLS;
/// Microseconds between two samples: 20 a second.
pub(crate) const SAMPLE_US: u64 = 50_000;

const CELL_M: f64 = 0.02;
const DEPTH_M: f64 = 0.025;
const GRAVITY: f64 = 9.81;
const STEPS_PER_SAMPLE: u32 = 3;
const STEPS_PER_SECOND: f64 = 60.0;
/// What friction leaves of a velocity after one step.
const KEPT: f64 = 0.995;

/// The tank at one sample.
pub(crate) struct Water {
    /// Index of the sample that the heights show.
    sample: u32,
    /// Height of the surface above rest, metres, row by row.
    height: Vec<f64>,
    /// Velocity through the face between cells x-1 and x of a row, m/s; `CELLS + 1` a row, walls included.
    across: Vec<f64>,
    /// Velocity through the face between rows y-1 and y, m/s; `CELLS + 1` rows, walls included.
    along: Vec<f64>,
    drops: Drops,
}

/// One drop: a smooth hill of water that appears at a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Drop {
    sample: u32,
    x: u64,
    y: u64,
    radius: u64,
    /// Height of the hill in units of 0.1 mm.
    tenths: u64,
}

/// The drops of a seed, one after the other.
struct Drops {
    rng: Rng,
    next: Drop,
}

impl Water {
    /// The tank of a seed at sample 0: at rest but for the first drop.
    pub(crate) fn new(seed: u64) -> Water {
        let mut rng = Rng::new(seed);
        let first = Drop { sample: 0, ..Drops::draw(&mut rng, 0) };
        Water::at_rest(Drops { rng, next: first })
    }

    /// Moves on to the next sample, 50 ms later.
    pub(crate) fn advance(&mut self) {
        for _ in 0..STEPS_PER_SAMPLE {
            self.step();
        }
        self.sample += 1;
        self.let_drops_fall();
    }

    /// Heights above rest in metres, row by row.
    pub(crate) fn heights(&self) -> &[f64] {
        &self.height
    }

    fn at_rest(drops: Drops) -> Water {
        let mut water = Water {
            sample: 0,
            height: vec![0.0; CELLS_ALL],
            across: vec![0.0; CELLS * (CELLS + 1)],
            along: vec![0.0; (CELLS + 1) * CELLS],
            drops,
        };
        water.let_drops_fall();
        water
    }

    fn step(&mut self) {
        let pull = GRAVITY / (STEPS_PER_SECOND * CELL_M);
        let flow = 1.0 / (STEPS_PER_SECOND * CELL_M);
        for y in 0..CELLS {
            for x in 1..CELLS {
                let slope = self.height[y * CELLS + x] - self.height[y * CELLS + x - 1];
                let face = &mut self.across[y * (CELLS + 1) + x];
                *face = (*face - pull * slope) * KEPT;
            }
        }
        for y in 1..CELLS {
            for x in 0..CELLS {
                let slope = self.height[y * CELLS + x] - self.height[(y - 1) * CELLS + x];
                let face = &mut self.along[y * CELLS + x];
                *face = (*face - pull * slope) * KEPT;
            }
        }
        // What flows through every face, from the heights before this step: the deeper the water, the more.
        let mut through_across = vec![0.0; self.across.len()];
        for y in 0..CELLS {
            for x in 1..CELLS {
                let both = self.height[y * CELLS + x - 1] + self.height[y * CELLS + x];
                through_across[y * (CELLS + 1) + x] = self.across[y * (CELLS + 1) + x] * (DEPTH_M + 0.5 * both);
            }
        }
        let mut through_along = vec![0.0; self.along.len()];
        for y in 1..CELLS {
            for x in 0..CELLS {
                let both = self.height[(y - 1) * CELLS + x] + self.height[y * CELLS + x];
                through_along[y * CELLS + x] = self.along[y * CELLS + x] * (DEPTH_M + 0.5 * both);
            }
        }
        for y in 0..CELLS {
            for x in 0..CELLS {
                let right = through_across[y * (CELLS + 1) + x + 1] - through_across[y * (CELLS + 1) + x];
                let down = through_along[(y + 1) * CELLS + x] - through_along[y * CELLS + x];
                let cell = &mut self.height[y * CELLS + x];
                *cell -= flow * (right + down);
            }
        }
    }

    fn let_drops_fall(&mut self) {
        while self.drops.next.sample <= self.sample {
            let drop = self.drops.next;
            self.drops.next = Drops::draw(&mut self.drops.rng, drop.sample);
            let top = drop.tenths as f64 / 10_000.0;
            let radius_squared = (drop.radius * drop.radius) as f64;
            for y in 0..CELLS {
                for x in 0..CELLS {
                    let (dx, dy) = (x as f64 - drop.x as f64, y as f64 - drop.y as f64);
                    let near = 1.0 - (dx * dx + dy * dy) / radius_squared;
                    if near > 0.0 {
                        self.height[y * CELLS + x] += top * near * near * near;
                    }
                }
            }
        }
    }
}

impl Drops {
    /// The drop that follows one at `after`: 1.2 to 2.4 s later, away from the walls.
    fn draw(rng: &mut Rng, after: u32) -> Drop {
        Drop {
            sample: after + rng.between(24, 48) as u32,
            x: rng.between(15, 84),
            y: rng.between(15, 84),
            radius: rng.between(8, 12),
            tenths: rng.between(40, 80),
        }
    }
}

/// Heights at the first `samples` samples of the tank of a seed.
pub(crate) fn simulate(seed: u64, samples: usize) -> Vec<Vec<f64>> {
    let mut water = Water::new(seed);
    let mut all = Vec::with_capacity(samples);
    for _ in 0..samples {
        all.push(water.heights().to_vec());
        water.advance();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_water_is_lost_between_drops() {
        let mut water = Water::new(1);
        let volume = |water: &Water| water.heights().iter().sum::<f64>();
        let mut drops = 0;
        for _ in 0..200 {
            let (before, falls) = (volume(&water), water.drops.next.sample == water.sample + 1);
            water.advance();
            let grown = volume(&water) - before;
            assert_eq!(grown > 1e-3, falls, "at sample {}: grown by {grown}", water.sample);
            drops += u32::from(falls);
        }
        assert!(drops >= 3, "the tank saw {drops} drops");
    }

    #[test]
    fn waves_stay_waves_for_twenty_seconds() {
        for seed in 0..5 {
            let last = simulate(seed, 400).pop().expect("400 samples");
            let highest = last.iter().fold(0.0_f64, |high, h| high.max(h.abs()));
            assert!((1e-4..1e-2).contains(&highest), "seed {seed}: highest is {highest} m");
        }
    }

    #[test]
    fn a_wave_runs_25_cells_a_second() {
        // One drop in the middle of still water; the crest after one second stands near 25 cells from it.
        let drop = Drop { sample: 0, x: 50, y: 50, radius: 8, tenths: 10 };
        let mut water = Water::at_rest(Drops { rng: Rng::new(1), next: drop });
        water.drops.next.sample = u32::MAX;
        for _ in 0..20 {
            water.advance();
        }
        let row = &water.heights()[50 * CELLS + 50..51 * CELLS];
        let crest = (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).expect("a row has cells");
        assert!((21..=28).contains(&crest), "the crest is {crest} cells away");
    }
}
