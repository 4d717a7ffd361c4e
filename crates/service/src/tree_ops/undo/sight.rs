//! What an undo may reveal to its caller: names in directories that the caller may list, and the caller's own changes.

use std::collections::BTreeSet;

use frieze_base::{Fault, InodeId};
use frieze_hlc::Hlc;
use frieze_metadata::NameHistory;
use frieze_namespace::TreeAt;
use frieze_wire::txn::Caller;

/// One caller, now.
pub(super) struct Sight<'a> {
    history: NameHistory<'a>,
    caller: &'a Caller,
    now: TreeAt<'a>,
}

impl<'a> Sight<'a> {
    pub(super) fn new(history: NameHistory<'a>, now: Hlc, caller: &'a Caller) -> Sight<'a> {
        Sight { history, caller, now: history.tree_at(now, caller) }
    }

    /// True if the caller may learn a name in a directory that only these users changed.
    pub(super) fn tells(&mut self, directory: InodeId, by: &BTreeSet<u32>) -> Result<bool, Fault> {
        if by.iter().all(|&uid| uid == self.caller.uid) || self.now.may_list(directory)? {
            return Ok(true);
        }
        // For a deleted directory, the rights at its deletion count.
        match self.now.last_names(directory)? {
            Some((last, _)) => self.history.tree_at(last, self.caller).may_list(directory),
            None => Ok(false),
        }
    }

    /// As [`Sight::tells`], of an object with names in these directories: one readable directory is enough.
    pub(super) fn tells_any(&mut self, directories: &[InodeId], by: &BTreeSet<u32>) -> Result<bool, Fault> {
        for &directory in directories {
            if self.tells(directory, by)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
