//! Everything that ever lay below a directory, and when it changed: found from the directory, where that is less than
//! all that changed in the whole tree.
//!
//! Guarantees: whatever was below the directory at any instant is in it, and every transaction of the interval that
//! changed one of them; there may be more of both. No more is read than was allowed.
//! Leaves to others: whether something was within at an instant that is asked about ([`crate::TreeAt`]).

use std::collections::BTreeSet;

use frieze_base::{Fault, InodeId};
use frieze_hlc::Hlc;
use frieze_wire::message::FileKind;

use crate::history::VersionHistory;
use crate::key::VersionKey;
use crate::stored::read_entry;
use crate::timeline::changes_of;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeExtent {
    inodes: BTreeSet<InodeId>,
    /// In order, each once.
    stamps: Vec<Hlc>,
}

impl TreeExtent {
    /// What ever lay below `root`, which is part of it, and the transactions of (`after`, `upto`] that changed any of
    /// that; `None` if more than `max` versions of names and inodes would have to be read.
    ///
    /// # Errors
    /// `Corrupt`; those of the store.
    ///
    /// # Cost
    /// At most `max` versions, whatever there is elsewhere.
    pub fn find(
        history: &dyn VersionHistory,
        root: InodeId,
        after: Hlc,
        upto: Hlc,
        max: usize,
    ) -> Result<Option<TreeExtent>, Fault> {
        let mut extent = TreeExtent { inodes: BTreeSet::from([root]), stamps: Vec::new() };
        let (mut read, mut directories, mut broken) = (0, vec![root], Ok(()));
        while let Some(directory) = directories.pop() {
            let names = VersionKey::Entry(directory, b"").encode();
            // The names of every instant: those that ended before the interval cost a version, too, and so are counted.
            history.versions(&names, &[], Hlc::ZERO, Hlc::MAX, &mut |_, stamp, value| {
                read += 1;
                match value.map(|value| read_entry(stamp, value)).transpose() {
                    Ok(Some(entry)) if extent.inodes.insert(entry.inode()) && entry.kind() == FileKind::Directory => {
                        directories.push(entry.inode());
                    }
                    Ok(_) => {}
                    Err(error) => broken = Err(error),
                }
                broken.is_ok() && read <= max
            })?;
            broken.clone()?;
            if read > max {
                return Ok(None);
            }
        }
        for &id in &extent.inodes {
            let left = max - read;
            let changes = changes_of(history, id, after, upto, left.saturating_add(1))?;
            if changes.len() > left {
                return Ok(None);
            }
            read += changes.len();
            extent.stamps.extend(changes);
        }
        extent.stamps.sort_unstable();
        extent.stamps.dedup();
        Ok(Some(extent))
    }

    /// The inodes, the root included.
    pub fn inodes(&self) -> impl Iterator<Item = InodeId> {
        self.inodes.iter().copied()
    }

    /// True if this inode may ever have lain below the root.
    pub fn holds(&self, inode: InodeId) -> bool {
        self.inodes.contains(&inode)
    }

    /// Stamps in (`after`, `upto`] of transactions that changed something of it, oldest first.
    pub fn stamps(&self, after: Hlc, upto: Hlc) -> &[Hlc] {
        let start = self.stamps.partition_point(|stamp| *stamp <= after);
        let end = self.stamps.partition_point(|stamp| *stamp <= upto);
        &self.stamps[start..end.max(start)]
    }
}
