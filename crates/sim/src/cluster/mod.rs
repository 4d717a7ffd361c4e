//! A whole cluster in one thread under a seed: real servers on simulated disks, clocks and networks, and clients that
//! check their promises.
//!
//! Each node is a [`frieze_node::ServerParts`], created and joined as real ones are: the metalog, the control plane and
//! the chains are those that `frieze serve` runs. A call that waits for other servers is suspended and resumed later
//! ([`tasks`]). The periodic work of a server's threads (beats, leases, ticks of chains, flushes) are events here.
//!
//! Guarantees: the same plan gives the same run ([`ClusterOutcome::trace_hash`]); a run that ends without a violation
//! broke none of the promises that [`judge`] checks. Leaves to others: threads and sockets (the tests of `node`, the
//! lab of real processes), one server's own disk (`one_server`), members of the metalog under faults that no connection
//! has (`metalog`).
//!
//! Where to look: `world` (the schedule of events) and `world/faults` (the faults), `node` (a server and its machine),
//! `net` (the fate of messages), `client` and `work` (requests), `history` and `judge` (observations, and whether they
//! are allowed), `breakage` (how it is broken to test the tester).

mod breakage;
mod chain_text;
mod client;
mod clock;
mod history;
mod judge;
mod logs;
mod lost_names;
mod machine_events;
mod net;
mod node;
mod outbox;
mod plan;
mod swarm;
mod tasks;
mod work;
mod world;

pub use breakage::ClusterBreak;
pub use plan::{ClusterCounts, ClusterOutcome, ClusterPlan};
pub use world::run_cluster;
