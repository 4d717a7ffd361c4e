//! Tests of the control plane.

mod decisions;
mod lives;
mod placing;
mod states;
mod world;
