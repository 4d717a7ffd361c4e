//! Tests of the control plane.

mod decisions;
mod leading;
mod lives;
mod placing;
mod states;
mod tenancy;
mod world;
