//! Tests of the control plane.

mod decisions;
mod health;
mod leading;
mod lives;
mod placing;
mod states;
mod survivors;
mod tenancy;
mod world;

/// Of decisions whose stamp does not matter.
const STAMP: u64 = 1 << 30;
