//! A whole frieze in one thread under a seed.
//!
//! The real server ([`frieze_node::ServerParts`], built by the constructor that the command uses) runs on a simulated
//! disk, a simulated store and a simulated clock; simulated clients call it over a network that delays, loses and
//! duplicates messages; the seed places the faults: a crash in the middle of any effect on the disk, a power loss that
//! tears and drops unsynced writes, clocks that jump and stop, a full disk, bit rot, failing syncs. A witness keeps a
//! second, simplest record of everything, and compares every answer.
//!
//! Guarantees: the same plan gives the same run, to the last byte of every message ([`ServerOutcome::trace_hash`]); a
//! run that ends without a [`Violation`] broke none of the promises of [`Rule`]. Leaves to others: threads and sockets
//! (the tests of `node` and `client`), rights (those of `namespace`).
//!
//! Where to look: `schedule` (the queue of events), `world` (one server under it) and `world::faults` (the faults),
//! `client` and `workload` (requests), `exchange` (requests and responses), `witness` and `journal` (what the server
//! did), `model` (its expected state), `judge` (the allowed answers), `past_answers` and `auditor` (earlier answers),
//! `cache_leases` (clients that cache names), `metalog` (its members, by themselves), `calvin` (the scheduler of
//! names), `shards` (the namespace in shards under it), `fabric` (payloads by one-sided transfers), `cluster` (several
//! servers), `machine` and `store` (the server's environment), `breakage` (how it is broken to test the tester).

mod auditor;
mod breakage;
mod cache_leases;
mod calvin;
mod client;
mod cluster;
mod exchange;
mod fabric;
mod journal;
mod judge;
mod machine;
mod metalog;
mod model;
mod past_answers;
mod plan;
mod scenarios;
mod schedule;
mod scheduled;
mod shards;
mod stage;
mod store;
mod trace;
mod violation;
mod witness;
mod workload;
mod world;

pub use breakage::ServerBreak;
pub use calvin::{CalvinBreak, CalvinCounts, CalvinOutcome, CalvinPlan, run_calvin};
pub use cluster::{ClusterBreak, ClusterCounts, ClusterOutcome, ClusterPlan, run_cluster};
pub use fabric::{FabricBreak, FabricCounts, FabricOutcome, FabricPlan, run_fabric};
pub use metalog::{MetalogBreak, MetalogOutcome, MetalogPlan, run_metalog};
pub use plan::{ServerCounts, ServerOutcome, ServerPlan};
pub use scenarios::{SCENARIOS, Scenario};
pub use shards::{ShardBreak, ShardCounts, ShardOutcome, ShardPlan, run_shards};
pub use violation::{Rule, Verdict, Violation};
pub use world::run_one_server;
