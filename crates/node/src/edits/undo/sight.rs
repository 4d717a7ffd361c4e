//! What of an undo may be told to whom: the names in directories that he may list, and his own doing.

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

    /// True if the caller may be told a name in a directory that was changed on behalf of these users only.
    pub(super) fn tells(&mut self, directory: InodeId, by: &BTreeSet<u32>) -> Result<bool, Fault> {
        if by.iter().all(|&uid| uid == self.caller.uid) || self.now.may_list(directory)? {
            return Ok(true);
        }
        // Of a directory that is gone, the rights when it went count.
        match self.now.last_names(directory)? {
            Some((last, _)) => self.history.tree_at(last, self.caller).may_list(directory),
            None => Ok(false),
        }
    }

    /// As [`Sight::tells`], of something with names in these directories: one that may be told is enough.
    pub(super) fn tells_any(&mut self, directories: &[InodeId], by: &BTreeSet<u32>) -> Result<bool, Fault> {
        for &directory in directories {
            if self.tells(directory, by)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
