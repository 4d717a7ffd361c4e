//! Removed files that policies of retention let go of: no instant shows them that their policies keep.
//!
//! Guarantees: what was let go of is so for ever; a file that has a name, or is written to, is not.
//! Leaves to others: which files that is (`planes`), refusing their past (`planes`, from kept instants), freeing space
//! (`service`).
//!
//! Names stay in history, as those of every file do; what goes is bytes.

use frieze_base::{Fault, InodeId};
use frieze_hlc::Hlc;
use frieze_wire::forget::decode_ids;
use frieze_wire::txn::ExpireRemoved;

use crate::apply::{OpResult, TxnRun};
use crate::error::Error;
use crate::forget::FORGET_INODES_MAX;
use crate::history::VersionHistory;
use crate::inode::Inode;
use crate::key::{REMOVED, VersionKey};
use crate::namespace::Namespace;

impl Namespace {
    pub(crate) fn expire_removed(&mut self, run: &mut TxnRun<'_>, op: &ExpireRemoved) -> Result<OpResult, Error> {
        let removed_upto = Hlc(op.removed_upto);
        if removed_upto > run.stamp {
            return Err(Error::Future { at: removed_upto, now: run.stamp });
        }
        let mut ids = decode_removed(&op.inodes)?;
        if ids.len() > FORGET_INODES_MAX {
            return Err(Error::EditTooLarge { steps: ids.len(), steps_max: FORGET_INODES_MAX });
        }
        ids.retain(|id| {
            // It may have come back since, or be written to by a handle that is still open. What is not in memory has
            // had no name for long.
            let is_removed = |inode: &Inode| {
                let since = inode.orphaned().filter(|since| *since <= removed_upto);
                !inode.is_directory() && since.is_some() && inode.grants().is_empty()
            };
            !self.horizons.is_removal_expired(*id) && self.inodes.get(*id).is_none_or(|inode| is_removed(&inode))
        });
        if ids.is_empty() {
            return Ok(OpResult::default());
        }
        let value = frieze_wire::forget::encode_ids(ids.iter().map(|id| id.0));
        run.change(VersionKey::Removed(run.stamp), Some(value));
        self.horizons.add_removed(run.stamp, &ids);
        self.retention.changes.expiries += 1;
        self.drop_expired_orphans(&ids);
        Ok(OpResult::default())
    }

    /// Files without a name of which nothing is left leave memory.
    pub(crate) fn drop_expired_orphans(&mut self, ids: &[InodeId]) {
        for &id in ids {
            let file = self.inodes.unpacked(id).filter(|inode| !inode.is_directory());
            if let Some(since) = file.and_then(Inode::orphaned) {
                self.orphans.remove(&(since, id));
                self.forget_if_done(id);
            }
        }
    }

    pub(crate) fn load_removed(&mut self, stamp: Hlc, value: &[u8]) -> Result<(), Error> {
        self.horizons.add_removed(stamp, &decode_removed(value)?);
        Ok(())
    }
}

pub(crate) fn decode_removed(value: &[u8]) -> Result<Vec<InodeId>, Error> {
    let ids = decode_ids(value).ok_or(Error::Corrupt { what: "removed files" })?;
    Ok(ids.into_iter().map(InodeId).collect())
}

/// The removed files that policies let go of in transactions after `after`, each transaction with its stamp.
///
/// # Errors
/// `Corrupt`; those of the store.
pub fn expired_removals(history: &dyn VersionHistory, after: Hlc) -> Result<Vec<(Hlc, Vec<InodeId>)>, Fault> {
    let (mut found, mut broken) = (Vec::new(), Ok(()));
    let above = VersionKey::Removed(after).encode();
    history.versions(&[REMOVED], &above, Hlc::ZERO, Hlc::MAX, &mut |_, stamp, value| {
        match decode_removed(value.unwrap_or_default()) {
            Ok(ids) => found.push((stamp, ids)),
            Err(error) => broken = Err(error),
        }
        broken.is_ok()
    })?;
    broken?;
    Ok(found)
}
