//! What clients may keep of a file and use by themselves: cache leases, locks, open files.
//!
//! Guarantees: no answer shows a state older than a change that was answered: a change is answered when every session
//! that cached the state before has dropped it, or its lease has run out. Leaves to others: time, messages and threads
//! (the server), what is read and changed (`metadata`, `replication`).

mod cache_leases;
mod file_locks;
mod open_files;

pub use cache_leases::{
    AnswerKeys, AnswerTicket, CacheKey, CacheLeaseSettings, CacheLeases, LeaseEffect, PollId, Recall, RequestKey,
};
pub use file_locks::{FileLocks, GrantedLocks};
pub use open_files::OpenFiles;
