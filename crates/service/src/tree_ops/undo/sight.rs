//! What an undo may reveal to its caller: names in directories that the caller may list, and the caller's own changes.

use std::collections::BTreeSet;

use frieze_base::{Fault, InodeId};
use frieze_hlc::Hlc;
use frieze_metadata::NameHistory;
use frieze_namespace::{SubjectChange, TreeAt};
use frieze_wire::txn::Caller;

use super::actor::Actor;
use crate::tree_ops::names::NameKey;

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

    /// As [`Sight::tells`], of a name that the actor changed: with the rights of now, and of before each change.
    pub(super) fn tells_change(
        &mut self,
        actor: &Actor<'_>,
        directory: InodeId,
        change: &SubjectChange,
    ) -> Result<bool, Fault> {
        if self.caller.uid == 0 || actor.uids(change).all(|uid| uid == self.caller.uid) {
            return Ok(true);
        }
        if !self.tells(directory, &actor.uids(change).collect())? {
            return Ok(false);
        }
        let unchanged_since = self.now.inode(directory)?.map_or(Hlc::MAX, |inode| inode.from);
        let made = change.revisions.iter().filter(|revision| actor.made(revision)).map(|revision| revision.stamp);
        for stamp in made.filter(|stamp| *stamp <= unchanged_since) {
            let mut before = self.history.tree_at(stamp.previous(), self.caller);
            if before.inode(directory)?.is_some() && !before.may_list(directory)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The first of an object's names that the caller may learn; names in directories that the caller may list first.
    pub(super) fn first_listable(
        &mut self,
        names: impl Iterator<Item = NameKey>,
        by: &BTreeSet<u32>,
    ) -> Result<Option<NameKey>, Fault> {
        let mut own = None;
        for name in names {
            if self.now.may_list(name.0)? {
                return Ok(Some(name));
            }
            if own.is_none() && self.tells(name.0, by)? {
                own = Some(name);
            }
        }
        Ok(own)
    }
}
