//! Per-client state of files: cache leases, locks, open files.
//!
//! Guarantees: no answer shows a state older than a change that was answered: a change is answered when every session
//! that cached the state before it has dropped that state, or its lease has expired. Leaves to others: time, messages
//! and threads (the server), what is read and changed (`metadata`, `replication`).

mod cache_lease_types;
mod cache_leases;
mod file_locks;
mod open_files;

pub use cache_lease_types::{
    AnswerKeys, AnswerTicket, CacheKey, CacheLeaseSettings, LeaseEffect, PollId, Recall, RequestKey,
};
pub use cache_leases::CacheLeases;
pub use file_locks::{FileLocks, GrantedLocks};
pub use open_files::OpenFiles;
