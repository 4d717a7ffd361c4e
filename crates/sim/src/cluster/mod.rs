//! A whole cluster in one thread under a seed: real servers on simulated disks, clocks and networks, and clients that
//! hold them to what they promise.
//!
//! Each node is a [`frieze_node::Engine`], founded and joined as real ones are: the metalog, the control plane and the
//! chains are those that `frieze serve` runs. Where a call waits for other servers it is left and gone on with later
//! ([`tasks`]). What a server's threads do from time to time (beats, leases, ticks of chains, flushes) are events here.
//!
//! Guarantees: the same plan gives the same run ([`ClusterOutcome::trace_hash`]); a run that ends without a violation
//! broke none of the promises that [`judge`] looks after. Leaves to others: threads and sockets (the tests of `node`,
//! the lab of real processes), one server's own disk (`one_server`), what members of the metalog do to each other in
//! weather that no connection has (`metalog`).
//!
//! Where to look: `world` (what happens when) and `world/faults` (what goes wrong), `node` (a server and what it stands
//! on), `net` (what becomes of messages), `client` and `work` (who asks what), `history` and `judge` (what was seen,
//! and whether it may be), `breakage` (how it is broken to test the tester).

mod breakage;
mod client;
mod clock;
mod history;
mod judge;
mod logs;
mod net;
mod node;
mod plan;
mod tasks;
mod work;
mod world;

pub use breakage::ClusterBreak;
pub use plan::{ClusterCounts, ClusterOutcome, ClusterPlan};
pub use world::run_cluster;
