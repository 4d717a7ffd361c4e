//! Random lives of whole clusters: see `control_cluster`.

use frieze_testkit::seeds::SeedPlan;

use super::control_cluster::{ControlCluster, Counts};

fn live(seed: u64, steps: usize) -> ControlCluster {
    let mut cluster = ControlCluster::new(seed);
    // First it grows, then it is troubled, now more and now less.
    let calm = cluster.rng.between(0, 1500);
    let every = cluster.rng.between(8, 120);
    for step in 0..steps as u64 {
        cluster.play();
        if step > calm && cluster.rng.chance(every) {
            cluster.trouble();
        }
    }
    cluster.finish();
    cluster
}

#[test]
fn every_answering_member_has_all_acknowledged_records_and_every_chain_is_whole_again() {
    let plan = SeedPlan::new(0, 100, 4000);
    let mut sum = Counts::default();
    for counts in plan.play(|seed, steps| live(seed, steps).counts) {
        sum.add(&counts);
    }
    if plan.is_whole(100, 4000) {
        sum.assert_enough(plan.count);
    }
}
