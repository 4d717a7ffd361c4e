//! The metalog of several members in one thread under a seed.
//!
//! Real cores ([`frieze_metalog::RaftMember`]) on simulated disks, with a small state machine; clients that put, read
//! and close instants, and find the leader by themselves; a network that loses, delays, reorders and duplicates
//! messages and is partitioned, one way or both; crashes of processes and power losses in the middle of any write,
//! pauses, clocks that drift apart, membership changes, states that are sent instead of logs. Each seed leaves some of
//! that out (swarm testing).
//!
//! The judge asserts, after every step: one leader a term, which has everything committed before; one order of entries,
//! the same at every member, for ever; answered requests are in it; each request is executed once; a read shows
//! everything answered before it was asked; nothing is stamped at or below an instant that was closed. When the faults
//! are over: an election ends in time, every client is answered, every member has the same state.
//!
//! Where to look: `world` (the schedule of events), `clients`, `faults`, `host` (a machine), `judge` (the invariants),
//! `breakage` (how members are broken to test the tester).

mod breakage;
mod clients;
mod fault_plan;
mod faults;
mod host;
mod judge;
mod plan;
mod requests;
mod run;
mod state;
mod world;

pub use breakage::MetalogBreak;
pub use plan::{MetalogOutcome, MetalogPlan};
pub use run::run_metalog;
pub(crate) use run::{leader_dies, leader_is_killed};
