//! Deterministic execution of one log of transactions over a trunk and slots.
//!
//! The *trunk* is all directories; every server has it. Files lie in [`SLOTS`] *slots*, those of a directory in one; a
//! run of slots is a *shard*, the unit that one thread of a server executes. A transaction has a part in each slot that
//! it reads or changes, and one in the trunk if it changes directories.
//!
//! The life of a transaction on a server:
//! 1. [`Registry`] admits it: each (session, seq, attempt) once in the whole log.
//! 2. *Trunk phase*, in log order: the driver resolves paths, checks rights and gives numbers, all against the trunk at
//!    the transaction's position. The result, a [`TxnPlan`], never changes.
//! 3. *Slot phase*, a part for each shard: a part waits until no earlier part in its lane has one of its keys (it is
//!    *parked*), reads what other parts need, waits for what it needs of them, and runs. Parts without common keys run
//!    in any order.
//! 4. All parts decide the same from the same values, and the transaction is finished here when the server's own parts
//!    are.
//!
//! Guarantees: outcomes depend on the log alone, never on when shards run, on the number of shards, or on which server
//! has which; a part runs once; no part waits for a later position, so there is no deadlock; what is below a watermark
//! is executed. Leaves to others: the order (`metalog`), what a transaction means (`namespace`), which server has which
//! shard (`cluster`), messages and threads (the driver).
//!
//! Where to look: [`Scheduler::step`] has the phases, `lane` the keys, `registry` the requests.
//!
//! # Source
//! Calvin (SIGMOD'12) §3 and CalvinFS (FAST'15) §4-5: a deterministic order, and values exchanged in place of a commit
//! in two phases. VLL (VLDB'13): keys that are known in advance need no lock manager. We depart in the trunk phase,
//! which makes reconnaissance local, and in values: they are reads just below the position of a transaction, so any
//! replica answers them again later.

mod error;
mod exchange;
mod lane;
mod message;
mod place;
mod registry;
mod scheduler;
mod settings;

pub use error::RegistryError;
pub use message::{SchedulerEffect, SchedulerInput, SlotPart, SlotValue, TrunkPart, TxnEnvelope, TxnPlan};
pub use place::{ExecutionPlace, KeyAccess, Position, SLOTS, ShardId, Slot, TxnKey};
pub use registry::{Registry, RequestName};
pub use scheduler::Scheduler;
pub use settings::SchedulerSettings;
