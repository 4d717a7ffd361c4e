//! The tree at both ends of an interval, which advances from one transaction to the next.
//!
//! Guarantees: a directory is read once for all changes below it, not once for each; a transaction of the next interval
//! costs the directories that it changed. Leaves to others: the list of transactions (`change_feed`), what they mean
//! (`diff`).

use frieze_base::{Fault, InodeId};
use frieze_hlc::Hlc;
use frieze_metadata::NameHistory;
use frieze_namespace::TreeAt;
use frieze_wire::txn::Caller;

/// (after, upto]: what was stamped later than the one and not later than the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    /// Exclusive start.
    pub(crate) after: Hlc,
    /// Inclusive end.
    pub(crate) upto: Hlc,
}

/// The tree before and after what happened in an interval, as one caller may see it.
pub(crate) struct CutPair<'a> {
    /// At the start of the interval.
    pub(crate) before: TreeAt<'a>,
    /// At its end.
    pub(crate) after: TreeAt<'a>,
    /// Inodes that changed between the two.
    between: Vec<InodeId>,
}

impl<'a> CutPair<'a> {
    /// The ends of `interval`, which has to be closed.
    pub(crate) fn new(history: NameHistory<'a>, interval: Interval, caller: &'a Caller) -> CutPair<'a> {
        CutPair {
            before: history.tree_at(interval.after, caller),
            after: history.tree_at(interval.upto, caller),
            between: Vec::new(),
        }
    }

    /// Both ends before any change: the transactions after `at` follow, one by one.
    pub(crate) fn at(history: NameHistory<'a>, at: Hlc, caller: &'a Caller) -> CutPair<'a> {
        CutPair::new(history, Interval { after: at, upto: at }, caller)
    }

    /// Moves to the next transaction: just before it and just after it. `changed`: the inodes with a version since the
    /// one before.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn advance(&mut self, stamp: Hlc, changed: Vec<InodeId>) -> Result<(), Fault> {
        self.before.advance(stamp.previous(), std::mem::take(&mut self.between))?;
        self.after.advance(stamp, changed.iter().copied())?;
        self.between = changed;
        Ok(())
    }
}
