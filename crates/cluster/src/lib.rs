//! The control plane: which nodes there are, who keeps which chain, under which epoch, and who holds a lease.
//!
//! [`State`] is what the log has decided. Every node executes every [`Decision`], so that at one position of the log all have
//! the same state. What protects a chain's records is checked there, whoever proposed the decision.
//!
//! [`Overseer`] lives at the metalog's leader and is volatile: it counts leases, hears what nodes tell of their replicas, and
//! proposes decisions. [`Tenant`] lives at every node: its own lease, and what it tells.
//!
//! # The life of a lease
//! 1. A tenant sends a [`Heartbeat`]: its process, and of each chain the configuration installed and how the replica is.
//! 2. The overseer has a majority confirm that it leads ([`Effect::Confirm`]); then it answers with a [`Grant`]: a lease from when
//!    the heartbeat was *sent*, and the configuration of every chain in which the node has a part or had one.
//! 3. The tenant has these installed ([`TenantEffect::Install`]); then the lease counts, and [`Tenant::holds`].
//! 4. When no heartbeat came for the length of a lease, and a little longer for clocks that go wrong, the node is decided to be
//!    offline, and each chain that it is in goes on without it.
//!
//! # The life of a target
//! *Waiting* → *syncing* (brought up to date behind the tail) → *joining* (the tail says that it has caught up; it becomes the
//! tail, writes need it, it answers nothing) → *serving* (it says that it is ready). Taken out, because its node is offline, has
//! restarted, drains or is not reached by its neighbour, it is *waiting* or *offline* again. Each arrow is a decision and a new epoch.
//! A target that is to move elsewhere is *retiring*: it goes when another one serves in its place.
//!
//! # Guarantees
//! - A decision that no longer fits has no effect, and says so; epochs only rise; ids of nodes never come again.
//! - A chain never loses the last member that kept its memory, unless an operator declared the missing ones dead.
//! - A tail that is joining is never left alone with the chain, and nobody joins or serves who has not said, under the configuration
//!   in force, that it can.
//! - Who may answer reads of now under a configuration has a part in every newer one that anybody acts under: a member that is
//!   taken out alive has heard of it, or its lease has ended, before those that stay are told.
//! - Once faults stop every chain has the replicas that are wanted, as far as there are nodes.
//! - The same inputs give the same effects; everything is bounded ([`Settings`]).
//!
//! Leaves to others: the order of decisions (`metalog`), the bytes of a chain and what its members say to each other (`chain`),
//! and which of its inputs come when (`node`). It knows no other core: [`Configuration`] is a counterpart of that of `chain`.
//!
//! # Source
//! van Renesse and Schneider, *Chain Replication* (OSDI'04) §3: the master. Protocols §2 and §7. docs/adr/0025-control-plane.md.

mod chain;
mod convert;
mod decision;
mod error;
mod keepers;
mod message;
mod node;
mod overseer;
mod placement;
mod settings;
mod state;
mod tenant;
#[cfg(test)]
mod tests;

pub use chain::{Chain, Configuration, Lost, Resumed, Role, Target, TargetState};
pub use decision::{ChainStep, Change, Decision, NodeStep, Recovered};
pub use error::{Error, LastOf, Left};
pub use keepers::{Keeper, Keepers};
pub use message::{Assignment, Clock, Grant, Health, Heartbeat, Moment, Remains, Report, TROUBLE_BYTES_MAX};
pub use node::{Device, Newcomer, Node, NodeState};
pub use overseer::{
    Answer, Ask, ChainStatus, Contacts, Effect, Input, NodeStatus, Overseer, Status, TargetStatus, Trouble, Waits,
};
pub use settings::Settings;
pub use state::{CHAINS_MAX, DEVICES_MAX, FORMER_MAX, Former, NODES_MAX, REPLICAS_MAX, State, TARGETS_MAX};
pub use tenant::{Identity, News, Tenant, TenantEffect, TenantInput};
