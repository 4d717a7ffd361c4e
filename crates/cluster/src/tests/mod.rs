//! Tests of the control plane.

mod decisions;
mod states;
