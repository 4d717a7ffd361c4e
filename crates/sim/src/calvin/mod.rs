//! The scheduler of names (`calvin`) in one thread under a seed, with a small file system and no engine.
//!
//! Servers with a trunk each and shards in any division, 1 to 16, that execute one log in any order that the scheduler
//! allows; front-ends that see old states and guess which inodes a name has; clients whose requests are sent twice, by
//! several front-ends; edits of trees that are staged in parts and committed at one position; sessions that end; limits
//! of files below directories; values that are lost or late between servers; processes that end and start again from an
//! older state.
//!
//! The judge executes the log in order in one tree (`oracle`) and compares: every outcome at every server, the state of
//! every shard and trunk at any instant below its watermark, what clients are answered, that each request has one
//! effect; and at the end that everything is executed and answered.
//!
//! Where to look: `trunk` and `slots` (the file system in its two halves), `stages` (what edits stage in them), `rooms`
//! (limits of files), `draft` (plans), `server` (a driver of the scheduler), `clients`, `world` (log, network, judge),
//! `breakage`.

mod breakage;
mod clients;
mod draft;
mod facts;
mod op;
mod oracle;
mod plan;
mod rooms;
mod server;
mod slots;
mod stages;
mod trunk;
mod versions;
mod world;

pub use breakage::CalvinBreak;
pub use plan::{CalvinCounts, CalvinOutcome, CalvinPlan};
pub use world::run_calvin;
