//! The names in shards in one thread under a seed: the real namespace, divided into a trunk and slots, over the
//! scheduler of `calvin`, with no engine.
//!
//! Servers with a trunk each and shards in any division, 1 to 16, that execute one log in any order that the scheduler
//! allows; front-ends that find the footprint of a transaction in an older state; values that are lost or late between
//! servers; proposals that come twice; processes that end and start again from an older state.
//!
//! The judge executes the log in order in one namespace that is not divided, and compares: every outcome at every place
//! of every server, every version that a place makes, and at the end the whole history of every shard and trunk.
//!
//! Where to look: `store` (what a server has of a part), `server` (a driver of the scheduler), `draw` (transactions),
//! `world` (log, network, judge), `breakage`.

mod breakage;
mod draw;
mod plan;
mod server;
mod store;
mod world;

pub use breakage::ShardBreak;
pub use plan::{ShardCounts, ShardOutcome, ShardPlan};
pub use world::run_shards;
