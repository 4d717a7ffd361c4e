//! Tests of the control plane.

mod control_cluster;
mod decisions;
mod health;
mod leading;
mod lives;
mod placing;
mod states;
mod survivors;
mod tenancy;

/// Of decisions whose stamp does not matter.
const STAMP: u64 = 1 << 30;
