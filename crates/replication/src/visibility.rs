//! Publication of the chains' read state: the steps in which readers see what is committed.
//!
//! Guarantees: a reader that needs no request to the tail reads everything that was committed before; a record is
//! hidden before it is published, and shown before a message about it leaves. Leaves to others: asking the tail
//! (`reads`), the lease (`bounds`).

use std::sync::atomic::Ordering;

use frieze_base::{ByteRange, ChainId, ChunkId, Fault, Reason};
use frieze_hlc::Hlc;

use crate::appender::Appender;
use crate::chain_view::{Cuts, LocalRead};
use crate::plane::DataPlane;

impl DataPlane {
    /// True if a read of now of one of these chains has to ask the tail.
    pub fn has_to_query_tail(&self, mut chains: impl Iterator<Item = ChainId>) -> bool {
        chains.any(|chain| !matches!(self.views.local_read(chain), LocalRead::AtCut | LocalRead::Sole))
    }

    /// True if a read of now of these parts of chunks needs no request to the tail: the uncommitted records of their
    /// chains lie outside the parts.
    pub fn is_clean_in(&self, mut parts: impl Iterator<Item = (ChainId, ChunkId, ByteRange)>) -> bool {
        let appender = self.lock_appender();
        parts.all(|(chain, chunk, range)| {
            let (replica, state) = (&appender.chains[chain.0 as usize], &appender.states[chain.0 as usize]);
            !state.shared || replica.is_clean_in(chunk, range)
        })
    }

    /// The instants at which a read of now reads the chains. An answer about several chunks takes them once: a group is
    /// then visible on all its chains or on none.
    pub fn cuts(&self) -> Cuts<'_> {
        Cuts(self.cuts.read())
    }

    /// Shows readers what is committed on these chains now, on all of them at once.
    pub(crate) fn publish_cuts(&self, appender: &Appender, chains: impl Iterator<Item = ChainId> + Clone) {
        // The tail has reported a commit that may not be recorded here yet.
        let cut =
            |chain: ChainId| appender.chains[chain.0 as usize].now_cut().max(appender.states[chain.0 as usize].seen);
        let note = || chains.clone().for_each(|chain| self.publish_view(appender, chain));
        // An `async` write to a clean chain, by far the usual case, changes nothing: readers are not disturbed.
        if chains.clone().all(|chain| self.cuts().of(chain) == cut(chain)) {
            return note();
        }
        let mut cuts = self.cuts.write();
        // In one step: a reader that needs no request to the tail takes the cuts next, and reads by them.
        note();
        for chain in chains.clone() {
            cuts[chain.0 as usize] = cut(chain);
        }
    }

    /// Publishes how a chain may be read here, to all threads.
    pub(crate) fn publish_view(&self, appender: &Appender, chain: ChainId) {
        let (replica, state) = (&appender.chains[chain.0 as usize], &appender.states[chain.0 as usize]);
        let closed = if replica.is_whole() { replica.closed().min(replica.now_cut()) } else { Hlc::ZERO };
        let remembered = self.views.closed_before_start[chain.0 as usize].load(Ordering::SeqCst);
        self.views.closed[chain.0 as usize].store(closed.0.max(remembered), Ordering::SeqCst);
        let local_read = match () {
            () if !state.shared => LocalRead::Sole,
            () if !replica.configuration().holds(self.me) => LocalRead::NotMember,
            () if replica.is_readable_now() => LocalRead::AtCut,
            () => LocalRead::AskTail,
        };
        let before = self.views.local_reads[chain.0 as usize].swap(local_read as u8, Ordering::SeqCst);
        if (before == LocalRead::NotMember as u8) != (local_read == LocalRead::NotMember) {
            self.views.membership_count.fetch_add(1, Ordering::SeqCst);
        }
        let successor = replica.successor().map_or(0, |node| node.0);
        let before = self.views.successors[chain.0 as usize].swap(successor, Ordering::Relaxed);
        // The appender is locked: no other change of the count comes between.
        match (before, successor) {
            (0, 1..) => drop(self.views.forwarding.fetch_add(1, Ordering::Relaxed)),
            (1.., 0) => drop(self.views.forwarding.fetch_sub(1, Ordering::Relaxed)),
            (0, 0) | (1.., 1..) => {}
        }
        self.views.epochs[chain.0 as usize].store(replica.epoch().0, Ordering::SeqCst);
    }

    /// Count of joins and departures of this node: for [`DataPlane::check_membership`].
    pub fn membership_count(&self) -> u64 {
        self.views.membership_count.load(Ordering::SeqCst)
    }

    /// Checks that a read of this node's chains is still valid: the node has a lease, and its chains are those of the
    /// time when the count was `count`. The lease is checked first: a newer lease may belong to newer chains.
    ///
    /// # Errors
    /// `Unavailable` if not: retry the read.
    pub fn check_lease_and_membership(&self, count: u64) -> Result<(), Fault> {
        self.check_lease()?;
        self.check_membership(count)
    }

    /// Checks that this node's chains are those of the time when the count was `count`. A reader of all chains of that
    /// time has not read a chain that the node joined since; a chain that the node left may have more records by now,
    /// whatever lease came with the change.
    ///
    /// # Errors
    /// `Unavailable` if not: retry the read.
    pub fn check_membership(&self, count: u64) -> Result<(), Fault> {
        match self.membership_count() == count {
            true => Ok(()),
            false => Err(Fault::new(
                Reason::Unavailable,
                "the server has come to have more of the data, or less, while it looked: try again",
            )),
        }
    }
}
