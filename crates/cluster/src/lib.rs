//! The control plane: the nodes, the targets and configuration of each chain, and the leases.
//!
//! [`ClusterState`] is what the log has decided. Every node executes every [`Decision`], so that at one position of the
//! log all nodes have the same state. The rules that protect a chain's records are checked there, whichever node
//! proposed the decision.
//!
//! [`Controller`] runs at the metalog's leader and is volatile: it counts leases, receives the nodes' reports of their
//! replicas, and proposes decisions. [`NodeLease`] runs at every node: its own lease, and its heartbeats.
//!
//! # The life of a lease
//! 1. A node_lease sends a [`Heartbeat`]: its process, and of each chain the configuration installed and how the
//!    replica is.
//! 2. The controller has a majority confirm that it leads ([`ControllerEffect::Confirm`]); then it answers with a
//!    [`LeaseGrant`]: a lease from when the heartbeat was *sent*, and the configuration of every chain in which the
//!    node has a part or had one.
//! 3. The node_lease has these installed ([`NodeLeaseEffect::Install`]); then the lease counts, and
//!    [`NodeLease::holds`].
//! 4. If no heartbeat came for the length of a lease, and a margin for clock errors, the node is decided to be offline,
//!    and each of its chains continues without it.
//!
//! # The life of a target
//! *Waiting* → *syncing* (receives the missing records behind the tail) → *joining* (the tail has reported that it has
//! caught up; it becomes the tail, writes need it, it answers no reads) → *serving* (it has reported that it is ready).
//! A target whose node is offline, has restarted, drains or is not reached by its neighbour is taken out, and is
//! *waiting* or *offline* again. Each arrow is a decision and a new epoch. A target that is to move to another node is
//! *retiring*: it is dropped when the new one serves in its place.
//!
//! # Guarantees
//! - A decision that no longer fits has no effect, and its result names the reason; epochs only rise; node ids are
//!   never reused.
//! - A chain never loses the last member that kept its memory, unless an operator declared the missing ones dead.
//! - A joining tail is never left alone with the chain. A target joins or serves only after a report, under the
//!   configuration in force, that it can.
//! - A node that may answer reads of now under a configuration has a role in every newer one that is in use: before the
//!   remaining members are sent the new configuration, a member that was taken out alive has acknowledged it, or its
//!   lease has ended.
//! - Once faults stop every chain has the replicas that are wanted, as far as there are nodes.
//! - The same inputs give the same effects; everything is bounded ([`Settings`]).
//!
//! Leaves to others: the order of decisions (`metalog`), the bytes of a chain and the messages of its members
//! (`chain`), and the delivery of its inputs (`node`). It knows no other core.
//!
//! # Source
//! van Renesse and Schneider, *Chain Replication* (OSDI'04) §3: the master. Protocols §2 and §7.
//! docs/adr/0025-control-plane.md.

mod chain;
mod controller;
mod convert;
mod decision;
mod error;
mod message;
mod message_convert;
mod node;
mod node_lease;
mod placement;
mod settings;
mod state;
mod status_convert;
#[cfg(test)]
mod tests;
mod voters;
mod votes;

pub use chain::{Chain, ChainTarget, LostInterval, Resumption, TargetRole, TargetState};
pub use controller::{
    ChainStatus, ClusterStatus, ClusterTrouble, Contacts, Controller, ControllerEffect, ControllerInput, NodeStatus,
    OperatorReply, OperatorRequest, TargetStatus, WaitCause,
};
pub use decision::{ChainStep, ClusterChange, ClusterRecovery, Decision, NodeStep};
pub use error::{Error, LastOf, RemainingCopies};
pub use message::{
    Assignment, ClockOffset, Heartbeat, LeaseGrant, ReplicaGarbage, ReplicaHealth, ReplicaReport, TROUBLE_BYTES_MAX,
    WallMoment,
};
pub use node::{ClusterNode, NodeDevice, NodeInfo, NodeState};
pub use node_lease::{NodeLease, NodeLeaseEffect, NodeLeaseInput, ProcessIdentity, ReplicaEvent};
pub use settings::Settings;
pub use state::{
    CHAINS_MAX, ClusterState, DEVICES_MAX, FORMER_MAX, FormerIdentity, NODES_MAX, REPLICAS_MAX, TARGETS_MAX,
};
pub use voters::{MembershipChange, MetalogMembership};
pub use votes::ReachableVotes;

#[cfg(test)]
frieze_harness::count_allocations!();
