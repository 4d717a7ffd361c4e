//! Random lives of whole clusters: see `world`.

use super::world::World;

/// Says which seed failed.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}", self.0);
        }
    }
}

fn live(seed: u64) -> World {
    let _seed = Seed(seed);
    let mut world = World::new(seed);
    // First it grows, then it is troubled, now more and now less.
    let calm = world.rng.between(0, 1500);
    let every = world.rng.between(8, 120);
    for step in 0..4000 {
        world.play();
        if step > calm && world.rng.chance(every) {
            world.trouble();
        }
    }
    world.finish();
    world
}

#[test]
fn whoever_may_answer_has_all_that_was_acknowledged_and_every_chain_is_whole_again() {
    let seeds = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(60);
    let from = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    for seed in from..from + seeds {
        let world = live(seed);
        if std::env::var("SHOW").is_ok() {
            eprintln!("{seed}: {:?}", world.counts);
        }
    }
}
