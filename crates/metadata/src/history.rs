//! Questions about the history of names and inodes. They do not block changes.
//!
//! Guarantees: an answer about instants that are closed is the same for ever. No lock of the namespace is taken.
//! Leaves to others: closing the instants of a question; rights, but where a question names a caller.

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::{Fault, InodeId, SessionId};
use frieze_hlc::Hlc;
use frieze_namespace::{
    self as namespace, ChangeSubject, Changed, CheckCounts, EntryVersion, PastSession, Paths, PlaceName, SharedState,
    TreeAt, TreeExtent, TxnChanges, VersionHistory,
};
use frieze_wire::txn::Caller;

use super::facts::InodeHome;
use super::metadata::Metadata;
use crate::store::NameVersions;

/// Takes an inode, where its newest version lies, and the sessions that ever changed it.
pub type VisitAuthorship<'a> = dyn FnMut(InodeId, InodeHome, &BTreeSet<SessionId>) + 'a;

/// The history of names and inodes.
#[derive(Clone, Copy)]
pub struct NameHistory<'a>(&'a NameVersions);

/// True of what changes are wanted of.
pub type WantsSubject<'a> = dyn FnMut(&ChangeSubject) -> Result<bool, Fault> + 'a;
/// Takes a name and its versions, oldest first. False ends the visit.
pub type VisitName<'a> = dyn FnMut(&[u8], &[EntryVersion]) -> bool + 'a;

impl Metadata {
    /// The history, to be questioned.
    pub fn history(&self) -> NameHistory<'_> {
        NameHistory(&self.state.versions)
    }
}

/// Trees and names at an instant.
impl<'a> NameHistory<'a> {
    /// The tree at `at` as `caller` may see it.
    pub fn tree_at(self, at: Hlc, caller: &'a Caller) -> TreeAt<'a> {
        TreeAt::new(self.0, at, caller)
    }

    /// Paths at `instants`, for `caller`.
    pub fn paths(self, instants: &[Hlc], caller: &'a Caller) -> Paths<'a> {
        Paths::new(self.0, instants, caller)
    }

    /// What a name stood for.
    ///
    /// # Errors
    /// The store's.
    pub fn entry(self, directory: InodeId, name: &[u8], at: Hlc) -> Result<Option<InodeId>, Fault> {
        namespace::entry_at(self.0, directory, name, at)
    }

    /// The names that an inode had.
    ///
    /// # Errors
    /// The store's.
    pub fn names(self, id: InodeId, at: Hlc) -> Result<Vec<PlaceName>, Fault> {
        namespace::names_at(self.0, id, at)
    }

    /// The version of a name at an instant.
    ///
    /// # Errors
    /// The store's.
    pub fn name_version(self, directory: InodeId, name: &[u8], at: Hlc) -> Result<Option<EntryVersion>, Fault> {
        namespace::version_of_name(self.0, directory, name, at)
    }

    /// Calls `visit` with every name that a directory ever had up to `upto`, after the name `after`, and its versions.
    ///
    /// # Errors
    /// The store's.
    pub fn visit_names(
        self,
        directory: InodeId,
        after: &[u8],
        upto: Hlc,
        visit: &mut VisitName<'_>,
    ) -> Result<(), Fault> {
        namespace::visit_names(self.0, directory, after, upto, visit)
    }

    /// True if there ever was such an inode.
    ///
    /// # Errors
    /// The store's.
    pub fn has_inode(self, id: InodeId) -> Result<bool, Fault> {
        let key = [&[namespace::INODES][..], &id.0.to_be_bytes()].concat();
        Ok(self.0.newest(&key, Hlc::MAX)?.is_some())
    }

    /// The session and the user that made the version of an inode stamped `stamp`.
    ///
    /// # Errors
    /// The store's.
    pub fn author(self, id: InodeId, stamp: Hlc) -> Result<(SessionId, u32), Fault> {
        namespace::author(self.0, id, stamp)
    }
}

/// Changes of an interval.
impl NameHistory<'_> {
    /// What changed in (`after`, `upto`], of subjects that `wants` is true of; see [`Changed::read`].
    ///
    /// # Errors
    /// As [`Changed::read`].
    pub fn changed(
        self,
        (after, upto): (Hlc, Hlc),
        stamps: Option<&[Hlc]>,
        max: usize,
        wants: &mut WantsSubject<'_>,
    ) -> Result<Changed, Fault> {
        Changed::read(self.0, after, upto, stamps, max, wants)
    }

    /// What a transaction changed, of subjects that `wants` is true of.
    ///
    /// # Errors
    /// Those of the store and of `wants`.
    pub fn changed_by(self, transaction: &TxnChanges, wants: &mut WantsSubject<'_>) -> Result<Changed, Fault> {
        Changed::by(self.0, transaction, wants)
    }

    /// True if names, inodes and attributes have at most `max` changes in (`after`, `upto`].
    ///
    /// # Errors
    /// The store's.
    pub fn has_few_changes(self, (after, upto): (Hlc, Hlc), max: usize) -> Result<bool, Fault> {
        let mut changes = 0;
        self.0.changed(after, upto, &mut |_, _| {
            changes += 1;
            changes <= max
        })?;
        Ok(changes <= max)
    }

    /// The inodes with changes in (`after`, `upto`], of about the `max` oldest changes, and up to when these are all.
    ///
    /// # Errors
    /// The store's.
    pub fn changed_inodes(self, (after, upto): (Hlc, Hlc), max: usize) -> Result<(BTreeSet<InodeId>, Hlc), Fault> {
        let (mut found, mut count, mut reached) = (BTreeSet::new(), 0, after);
        let mut is_all = true;
        self.0.changed(after, upto, &mut |stamp, key| {
            if count >= max && stamp > reached {
                is_all = false;
                return false;
            }
            (count, reached) = (count + 1, stamp);
            found.extend(namespace::inode_of(key));
            true
        })?;
        Ok((found, if is_all { upto } else { reached }))
    }

    /// The transactions of (`after`, `upto`], oldest first, and up to when these are all; see [`TxnChanges::list`].
    ///
    /// # Errors
    /// The store's.
    pub fn transactions(
        self,
        (after, upto): (Hlc, Hlc),
        max: usize,
        subjects_max: usize,
    ) -> Result<(Vec<TxnChanges>, Hlc), Fault> {
        TxnChanges::list(self.0, after, upto, max, subjects_max)
    }

    /// An instant after which about `max` transactions of the interval follow; see [`TxnChanges::newest_since`].
    ///
    /// # Errors
    /// The store's.
    pub fn newest_transactions_since(
        self,
        (after, upto): (Hlc, Hlc),
        max: usize,
        subjects_max: usize,
    ) -> Result<Hlc, Fault> {
        TxnChanges::newest_since(self.0, after, upto, max, subjects_max)
    }

    /// Stamps of the oldest versions of an inode in (`after`, `upto`], at most `max`.
    ///
    /// # Errors
    /// The store's.
    pub fn changes_of(self, id: InodeId, (after, upto): (Hlc, Hlc), max: usize) -> Result<Vec<Hlc>, Fault> {
        namespace::changes_of(self.0, id, after, upto, max)
    }

    /// An instant after which about `max` versions of an inode follow in (`after`, `upto`].
    ///
    /// # Errors
    /// The store's.
    pub fn newest_changes_since(self, id: InodeId, (after, upto): (Hlc, Hlc), max: usize) -> Result<Hlc, Fault> {
        namespace::newest_changes_since(self.0, id, after, upto, max)
    }

    /// What ever lay below `root`, and when it changed in (`after`, `upto`]; see [`TreeExtent::find`].
    ///
    /// # Errors
    /// As [`TreeExtent::find`].
    pub fn extent(self, root: InodeId, (after, upto): (Hlc, Hlc), max: usize) -> Result<Option<TreeExtent>, Fault> {
        TreeExtent::find(self.0, root, after, upto, max)
    }
}

/// Sessions there ever were, and passes over the whole history.
impl NameHistory<'_> {
    /// A session, open or ended.
    ///
    /// # Errors
    /// The store's.
    pub fn session(self, id: SessionId) -> Result<Option<PastSession>, Fault> {
        PastSession::find(self.0, id)
    }

    /// At most `max` sessions after the number `after` that were open after `since`; see [`PastSession::list`].
    ///
    /// # Errors
    /// The store's.
    pub fn sessions(self, after: SessionId, since: Hlc, max: usize) -> Result<Vec<PastSession>, Fault> {
        PastSession::list(self.0, after, since, max)
    }

    /// Every state of an inode that shows bytes of older states; see [`frieze_namespace::shared_states`].
    ///
    /// # Errors
    /// The store's.
    pub fn shared_states(self) -> Result<BTreeMap<InodeId, Vec<SharedState>>, Fault> {
        namespace::shared_states(self.0)
    }

    /// The removed files that policies let go of in transactions after `after`, each transaction with its stamp.
    ///
    /// # Errors
    /// The store's.
    pub fn expired_removals(self, after: Hlc) -> Result<Vec<(Hlc, Vec<InodeId>)>, Fault> {
        namespace::expired_removals(self.0, after)
    }

    /// Calls `visit` with every inode, where it lies, and the sessions that ever changed it.
    ///
    /// # Errors
    /// The store's.
    pub fn visit_authors(self, visit: &mut VisitAuthorship<'_>) -> Result<(), Fault> {
        namespace::visit_authors(self.0, &mut |id, inode, sessions| {
            visit(id, InodeHome { is_directory: inode.is_directory(), parent: inode.parent }, sessions);
        })
    }

    /// Checks all names and inodes as they were at `at`; `wrong` is called with each error, in words.
    ///
    /// # Errors
    /// The store's.
    pub fn check(self, at: Hlc, wrong: &mut dyn FnMut(String)) -> Result<CheckCounts, Fault> {
        namespace::check_history(self.0, at, wrong)
    }
}
