//! What tests of several crates share. A dev-dependency only: no crate is built with it.
//!
//! | module | for tests of | gives |
//! |---|---|---|
//! | [`story`] | one core | commands and their effects in a text file |
//! | [`seeds`] | one core | random histories, and the shortest beginning of one that fails |
//! | [`bytes`] | all | bytes to write and compare |
//! | `server` | one server | a server on a simulated machine, and a connection that sends it requests |
//! | `cluster` | several servers | servers, a network under a seed, a client that asks one server after the other |
//! | `local` | gateways, mounts | a real server in the test's process, on a scratch directory |
//! | `process` | the command | a child process that ends with its test, and whose log a failing test prints |
//! | `wait` | the command | waiting for another process, with a deadline and a message |
//!
//! Guarantees: no fixture reads a clock, sleeps or draws unseeded numbers, unless its documentation says so. A fixture
//! that fails panics with the reason, since a test has no use for an error of its fixture.
//!
//! Leaves to the tests: what is right. A fixture asserts only what holds in every test.

#![cfg_attr(
    feature = "process",
    expect(clippy::unwrap_used, reason = "a fixture may stop where something is not as it says")
)]

pub mod bytes;
#[cfg(feature = "server")]
pub mod cluster;
#[cfg(feature = "server")]
pub mod local;
#[cfg(feature = "process")]
pub mod process;
pub mod seeds;
#[cfg(feature = "server")]
pub mod server;
pub mod story;
#[cfg(feature = "process")]
pub mod wait;
