//! Events of one machine, once in some seeds.

use std::cmp::Reverse;

use frieze_base::Rng;

use super::plan::ClusterPlan;

/// An event of one machine, once in some seeds.
#[derive(Clone, Copy)]
pub(super) enum MachineEvent {
    Join,
    Lose,
    Rot,
}

/// Events that happen once in a run, and after how many operations, last first.
pub(super) fn once_in(plan: &ClusterPlan) -> Vec<(u64, MachineEvent)> {
    let mut rng = Rng::new(plan.seed ^ 0x1055_0000);
    let all = [(plan.replaces, MachineEvent::Lose), (plan.rots, MachineEvent::Rot)];
    let joins = (0..plan.joins).map(|_| (true, MachineEvent::Join));
    let happens = all.into_iter().chain(joins).filter(|(is_so, _)| *is_so);
    let mut once: Vec<(u64, MachineEvent)> =
        happens.map(|(_, once)| (rng.between(5, plan.operations.max(10) / 2), once)).collect();
    once.sort_unstable_by_key(|(at, _)| Reverse(*at));
    once
}
