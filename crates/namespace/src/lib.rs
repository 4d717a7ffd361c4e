//! The metadata state machine: every version of every name and inode.

mod error;
mod history;
mod inode;
mod key;
mod memory;
mod namespace;

pub use error::Error;
pub use history::{Change, History, VisitValue, VisitVersion};
pub use inode::{Horizon, Inode, Layout, MAY_EXECUTE, MAY_READ, MAY_WRITE, WriteGrant, check_access};
pub use key::keeps_versions;
pub use memory::MemoryHistory;
pub use namespace::{Counts, Listed, Namespace, Resolved, Session, Snapshot};
