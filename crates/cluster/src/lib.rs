//! The control plane: which nodes there are, who keeps which chain, under which epoch, and who holds a lease.
//!
//! [`State`] is what the log has decided. Every node executes every [`Decision`], so that at one position of the log all have
//! the same state. What protects a chain's records is checked there, whoever proposed the decision.
//!
//! # Guarantees
//! - A decision that no longer fits has no effect, and says so; epochs only rise; ids of nodes never come again.
//! - A chain never loses the last member that kept its memory, unless an operator declared the missing ones dead.
//! - A tail that is joining is never left alone with the chain.
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
mod message;
mod node;
mod overseer;
mod placement;
mod settings;
mod state;
mod tenant;
#[cfg(test)]
mod tests;

pub use chain::{Chain, Configuration, Resumed, Role, Target, TargetState};
pub use decision::{ChainStep, Change, Decision, NodeStep};
pub use error::Error;
pub use message::{Assignment, Clock, Grant, Health, Heartbeat, Moment, Report};
pub use node::{Device, Newcomer, Node, NodeState};
pub use overseer::{Answer, Ask, ChainStatus, Effect, Input, NodeStatus, Overseer, Status, TargetStatus, Waits};
pub use settings::Settings;
pub use state::{CHAINS_MAX, DEVICES_MAX, NODES_MAX, REPLICAS_MAX, State, TARGETS_MAX};
pub use tenant::{Identity, News, Tenant, TenantEffect, TenantInput};
