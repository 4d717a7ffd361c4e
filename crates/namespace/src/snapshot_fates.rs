//! What becomes of snapshots when history expires.

use std::collections::BTreeMap;

use frieze_base::InodeId;
use frieze_hlc::Hlc;
use frieze_wire::forget::SnapshotLoss;

use crate::horizons::Expiries;
use crate::model::NamedInstant;

/// Snapshots that an answer names.
const SNAPSHOTS_NAMED_MAX: usize = 1000;

/// What becomes of snapshots.
#[derive(Default)]
pub struct SnapshotFates {
    /// Name, instant and maker, by name.
    snapshots: Vec<(String, Hlc, u32)>,
    instants: BTreeMap<Hlc, SnapshotFateAt>,
}

#[derive(Clone, Copy, Default)]
struct SnapshotFateAt {
    holds: bool,
    loses: bool,
    held_bytes: u64,
}

impl SnapshotFates {
    /// The snapshots of instants before `before`, in order of name, with their fate still unknown.
    pub fn of(snapshots: Vec<NamedInstant>, before: Hlc) -> SnapshotFates {
        let mut fates = SnapshotFates::default();
        for snapshot in snapshots.into_iter().filter(|snapshot| snapshot.at < before) {
            fates.instants.entry(snapshot.at).or_default();
            fates.snapshots.push((snapshot.name, snapshot.at, snapshot.uid));
        }
        fates
    }

    /// Adds an inode that was made at `born`, and the bytes of it that snapshots pin.
    pub fn add(&mut self, horizons: &Expiries, id: InodeId, born: Hlc, held: &BTreeMap<Hlc, u64>) {
        // An inode without expired history is readable without them.
        let Some(forgotten) = horizons.of(id) else { return };
        let upto = if horizons.is_wholly_expired(id) { Hlc::MAX } else { Hlc(forgotten.before) };
        let shown = self.instants.range_mut(born..).take_while(|(at, _)| **at < upto);
        for (at, fate) in shown.filter(|(_, fate)| !(fate.holds && fate.loses)) {
            match horizons.expired(id, Some(*at)) {
                None => fate.holds = true,
                Some(_) => fate.loses = true,
            }
        }
        for (at, bytes) in held {
            if let Some(fate) = self.instants.get_mut(at) {
                fate.held_bytes += bytes;
            }
        }
    }

    /// The first snapshots that showed expired history, and how many more there are.
    pub fn snapshot_losses(self) -> (Vec<SnapshotLoss>, u64) {
        let concerned = |(name, at, uid): (String, Hlc, u32)| {
            let SnapshotFateAt { holds, loses, held_bytes } = *self.instants.get(&at)?;
            (holds || loses).then_some(SnapshotLoss { name, at: at.0, uid, holds, loses, held_bytes })
        };
        let mut losses: Vec<SnapshotLoss> = self.snapshots.into_iter().filter_map(concerned).collect();
        let more = losses.len().saturating_sub(SNAPSHOTS_NAMED_MAX) as u64;
        losses.truncate(SNAPSHOTS_NAMED_MAX);
        (losses, more)
    }
}
