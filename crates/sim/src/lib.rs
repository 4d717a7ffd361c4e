//! A whole frieze in one thread under a seed.
//!
//! The real server ([`frieze_node::Engine`], built by the constructor that the command uses) runs on a simulated disk,
//! a simulated store and a simulated clock; simulated clients speak to it over a network that delays, loses and doubles
//! messages; faults come where the seed puts them: a crash in the middle of any effect on the disk, a loss of power
//! that tears and forgets what was not synced, clocks that jump and stand still, a full disk, rotten bits, syncs that
//! fail. A witness writes everything down a second time, in the simplest way, and compares every answer.
//!
//! Guarantees: the same plan gives the same run, to the last byte of every message ([`Outcome::trace_hash`]); a run
//! that ends without a [`Violation`] broke none of the promises of [`Rule`]. Leaves to others: threads and sockets (the
//! tests of `node` and `client`), rights (those of `namespace`).
//!
//! Where to look: `world` (what happens when, and `world::faults` what goes wrong), `client` and `workload` (who asks
//! what), `witness` and `journal` (what the server did), `model` (what it should hold), `judge` (what it may answer),
//! `memory` and `auditor` (what it said before), `metalog` (its members, by themselves), `machine` and `store` (what it
//! runs on), `breakage` (how it is broken to test the tester).

mod auditor;
mod breakage;
mod caches;
mod client;
mod cluster;
mod journal;
mod judge;
mod machine;
mod memory;
mod metalog;
mod model;
mod plan;
mod scenarios;
mod stage;
mod store;
mod trace;
mod violation;
mod witness;
mod workload;
mod world;

pub use breakage::Break;
pub use cluster::{ClusterBreak, ClusterCounts, ClusterOutcome, ClusterPlan, run_cluster};
pub use metalog::{MetalogBreak, MetalogOutcome, MetalogPlan, run_metalog};
pub use plan::{Counts, Outcome, Plan};
pub use scenarios::{SCENARIOS, Scenario};
pub use violation::{Rule, Verdict, Violation};
pub use world::run;
