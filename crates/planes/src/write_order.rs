//! The order of changes of metadata among the writes of a file, at every head where its writers write.
//!
//! Guarantees: a truncate, once it is answered, hides every write acknowledged before it and none begun after it,
//! whatever the clocks. Leaves to others: closing an instant on a chain (`frieze_replication`).

use std::collections::BTreeSet;

use frieze_base::{ChainId, Fault, InodeId, Reason};
use frieze_hlc::Hlc;
use frieze_locks::MutexGuard;
use frieze_metadata::FileChunks;
use frieze_namespace::Inode;
use frieze_replication::Appender;

use crate::chain_parts::{chains_of_grants, granted_chains};
use crate::files::Files;

impl Files {
    /// Keeps every write out, if this server alone orders writes and transactions. A member of a cluster may not: an
    /// entry that it orders has to be received and flushed by other servers and by this one first, and the writes kept
    /// out would delay that; besides, heads on other servers would still write.
    #[track_caller]
    pub fn hold_alone(&self) -> Option<MutexGuard<'_, Appender>> {
        let held = self.planes.data.lock_appender();
        // Founding a cluster waits for this lock.
        (!self.planes.meta.is_member()).then_some(held)
    }

    /// As [`Files::hold_alone`], for a change of metadata that runs under the lock ([`frieze_metadata::Metadata`],
    /// `execute_with_room`): waits until memory has room for it first. The flush that makes room needs the lock.
    ///
    /// # Errors
    /// `NoSpace`, `Overloaded`: there is no room. Ask again later.
    #[track_caller]
    pub fn hold_for_change(&self) -> Result<Option<MutexGuard<'_, Appender>>, Fault> {
        self.planes.meta.await_room()?;
        Ok(self.hold_alone())
    }

    /// Orders a change stamped `at`, which decides what the bytes of these files are, among the writes of their
    /// writers, at every head where they write. On a single server the change was ordered when it ran.
    ///
    /// # Errors
    /// `Unavailable` if the head of one of their chains does not answer: the change has run, and has to be ordered
    /// before a client learns of it.
    pub fn order_writers(&self, at: Hlc, files: &[InodeId]) -> Result<(), Fault> {
        let chains: BTreeSet<ChainId> = {
            let granted = |(id, chunks): &(InodeId, FileChunks)| chains_of_grants(*id, chunks);
            self.planes.meta.chunks_of_files(files).iter().flat_map(granted).collect()
        };
        self.order(at, self.planes.meta.appended(), &chains)
    }

    /// As [`Files::order_writers`], for a change that has run before. Whether it was ordered is unknown, and so are
    /// its files.
    ///
    /// # Errors
    /// As [`Files::order_writers`].
    pub fn order_again(&self, at: Hlc) -> Result<(), Fault> {
        let chains: BTreeSet<ChainId> = (0..self.planes.data.chain_count()).map(ChainId).collect();
        if self.planes.data.has_closed(at, &chains) {
            return Ok(());
        }
        self.order(at, self.planes.meta.appended(), &chains)
    }

    /// Once under each configuration of a chain, waits until this server has executed every entry answered before: the
    /// earlier head may have ordered a change that is not known here.
    ///
    /// # Errors
    /// `Elsewhere`, `Unavailable`: no majority answers.
    pub fn catch_up_once(&self, chains: &BTreeSet<ChainId>) -> Result<(), Fault> {
        let new = {
            let known = self.caught_up.lock();
            let now = chains.iter().map(|chain| (*chain, self.planes.data.epoch_of(*chain)));
            now.filter(|(chain, epoch)| known.get(chain) != Some(epoch)).collect::<Vec<_>>()
        };
        if new.is_empty() {
            return Ok(());
        }
        self.planes.meta.linearizable()?;
        self.caught_up.lock().extend(new);
        Ok(())
    }

    /// Checks that [`Files::catch_up_once`] ran under the configurations in force. While no other write can run, no
    /// configuration changes: this write runs under them.
    ///
    /// # Errors
    /// `Unavailable` if there are later configurations: try again.
    pub fn check_caught_up(&self, chains: &BTreeSet<ChainId>) -> Result<(), Fault> {
        let known = self.caught_up.lock();
        match chains.iter().find(|chain| known.get(chain) != Some(&self.planes.data.epoch_of(**chain))) {
            None => Ok(()),
            Some(chain) => {
                let words = format!("the members of chain {chain} have just changed: send it again");
                Err(Fault::new(Reason::Unavailable, words))
            }
        }
    }

    /// Orders the truncate of a file that an answer is about to show: the server that ran it may have failed before it
    /// ordered it. A write that begins after this answer must not lie before the truncate.
    ///
    /// # Errors
    /// As [`Files::order_writers`].
    pub fn order_patches(&self, id: InodeId, inode: &Inode) -> Result<(), Fault> {
        if inode.grants().is_empty() || inode.patches().is_empty() {
            return Ok(());
        }
        let at = inode.patches().iter().map(|patch| patch.at).max().unwrap_or(Hlc::ZERO);
        let chains = granted_chains(id, inode);
        if self.planes.data.has_closed(at, &chains) {
            return Ok(());
        }
        self.order(at, self.planes.meta.appended(), &chains)
    }
}
