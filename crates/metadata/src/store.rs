//! Where the versions of the namespace live: an overlay in RAM for what is not yet durable in the metalog, and a
//! key-value store on disk for the rest.
//!
//! Guarantees: the store never holds a version whose metalog entry could still be lost, because entries move into it
//! only once they are durable; every commit carries the index it brings the store to, atomically. So after a crash the
//! store is the state of some durable prefix of the metalog, and the rest is replayed.
//!
//! A stored key is the namespace's key with its zero bytes escaped (`00` → `00 ff`), a terminator (`00 00`) and the
//! stamp, big-endian: byte order is key order, then time order. Keys that keep no history (remembered outcomes, `R…`)
//! have stamp 0 and are overwritten and removed in place; their stamp stands before the value. The one version of a
//! session is written again in its place, and removed, as long as nothing names the session.
//!
//! Beside the versions lies the *index of time* (module `times`): which keys changed when, so that the changes of an
//! interval are read without walking the tree. A store from before it had one gets it when it is opened.

mod clean_start_image;
mod keys;
mod load;
mod lsm;
mod memory;
mod merge;
mod overlay;
mod snapshot_store;
mod time_index;
mod version_store;

pub(crate) use load::LoadPart;
pub use lsm::LsmStore;
pub use memory::MemoryStore;
pub use overlay::NameVersions;
pub(crate) use snapshot_store::page_of;
pub use version_store::{
    CleanStartImage, CurrentVersions, ImageSection, LoadVersion, ShowVersions, StoreItem, StoreView, VersionStore,
    VisitItem,
};

#[cfg(test)]
mod tests;
