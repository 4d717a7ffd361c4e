//! What has happened: changes, differences, deleted names, sessions, and what snapshots pin.

pub mod activity;
pub mod change_feed;
mod deleted;
pub mod diff;
mod log;
mod pinned_bytes;
pub mod scope;
pub mod tree_pair;
pub mod unshown;

use std::sync::Arc;

use frieze_base::Fault;
use frieze_hlc::Hlc;
use frieze_planes::{Files, Planes};
use frieze_wire::message::{Snapshot, Snapshots, SnapshotsReply};

pub use self::unshown::Unshown;
use crate::read::{Reader, page};

/// Snapshots in one answer that says how much space each pins: each needs a search for later changes.
const SNAPSHOTS_WEIGHED_MAX: usize = 64;

/// What has happened.
pub struct History {
    /// Names and bytes.
    pub planes: Arc<Planes>,
    /// Files over both planes.
    pub files: Arc<Files>,
    /// Answers about what is.
    pub read: Arc<Reader>,
    /// Changes that the scope of a request hides, by request.
    pub unshown: Unshown,
}

impl History {
    /// A page of the snapshots, by name.
    ///
    /// # Errors
    /// Those of the store, where the space that each pins is asked for.
    pub fn snapshots(&self, ask: &Snapshots) -> Result<SnapshotsReply, Fault> {
        let of = |snapshot: frieze_namespace::NamedInstant| Snapshot {
            name: snapshot.name,
            at: snapshot.at.0,
            made: snapshot.made.0,
            uid: snapshot.uid,
            bytes_held: None,
            held_at_least: false,
        };
        let max = if ask.with_bytes { page(ask.count_max).min(SNAPSHOTS_WEIGHED_MAX) } else { page(ask.count_max) };
        let mut snapshots: Vec<Snapshot> =
            self.planes.meta.snapshots_after(&ask.after, max.saturating_add(1)).into_iter().map(of).collect();
        let more = snapshots.len() > max;
        snapshots.truncate(max);
        for snapshot in snapshots.iter_mut().filter(|_| ask.with_bytes) {
            let held = self.pinned_bytes(Hlc(snapshot.at))?;
            (snapshot.bytes_held, snapshot.held_at_least) = (Some(held.bytes), held.at_least);
        }
        Ok(SnapshotsReply { snapshots, more })
    }
}
