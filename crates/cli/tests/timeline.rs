//! The commands about time itself, end to end: their output, the rights to it, their cost, and a random history against
//! a tree that was copied at every step.

#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

#[expect(dead_code, reason = "the other acceptance tests use the rest of it")]
mod support;

#[path = "timeline/back.rs"]
mod back;
#[path = "timeline/cost.rs"]
mod cost;
#[path = "timeline/forgotten.rs"]
mod forgotten;
#[path = "timeline/model.rs"]
mod model;
#[path = "timeline/newest.rs"]
mod newest;
#[path = "timeline/rights.rs"]
mod rights;
#[path = "timeline/run.rs"]
mod run;
#[path = "timeline/script.rs"]
mod script;
#[path = "timeline/watch.rs"]
mod watch;
