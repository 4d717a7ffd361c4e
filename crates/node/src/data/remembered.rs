//! What a member that was started again may read before anybody tells it what its part in the chains is.
//!
//! Guarantees: an instant that was closed here before the restart, with everything up to it on stable storage, is read here again: what
//! it shows is what it showed. It ends for a chain with the first configuration that is taken, or if records of it are discarded.
//! Leaves to others: keeping it (`crate::identity`, written with the frontier), and reads of now, for which a lease is needed.

use std::sync::atomic::Ordering;

use frieze_base::ChainId;

use super::DataPlane;

impl DataPlane {
    /// Of each chain that is read here: its number, and the newest instant closed on it; empty for a server that is alone. To be taken
    /// before a flush, and kept when that has ended.
    pub(crate) fn closed_by_chain(&self) -> Vec<u64> {
        if !self.is_shared() {
            return Vec::new();
        }
        let here = (0..self.chain_count()).map(ChainId).filter(|chain| self.is_read_here(*chain));
        let closed = here.map(|chain| (chain, self.shown.closed[chain.0 as usize].load(Ordering::SeqCst)));
        closed.filter(|(_, closed)| *closed > 0).flat_map(|(chain, closed)| [chain.0.into(), closed]).collect()
    }

    /// The same if all of it is on stable storage now: an idle chain closes instants and writes nothing that would be flushed.
    pub(crate) fn closed_if_durable(&self) -> Option<Vec<u64>> {
        let closed = self.closed_by_chain();
        // What is staged is placed, and counts, when somebody looks at the log.
        let _end = self.device.log().end();
        (self.device.dirty_bytes() == 0).then_some(closed)
    }

    /// Takes up what was kept so, at the start.
    pub(crate) fn remember_closed(&self, kept: &[u64]) {
        let appender = self.hold_writes();
        for &[chain, closed] in kept.as_chunks().0 {
            let chain = ChainId(u32::try_from(chain).unwrap_or(u32::MAX));
            if let Some(remembered) = self.shown.remembered.get(chain.0 as usize)
                && appender.members[chain.0 as usize].shared
            {
                remembered.store(closed, Ordering::SeqCst);
                self.note(&appender, chain);
            }
        }
    }

    /// True if this node is a member of the chain, or was one before it was started again and has not been told otherwise.
    pub(crate) fn is_read_here(&self, chain: ChainId) -> bool {
        self.is_here(chain) || self.remembers(chain)
    }

    pub(super) fn remembers(&self, chain: ChainId) -> bool {
        self.shown.remembered[chain.0 as usize].load(Ordering::SeqCst) > 0
    }

    pub(super) fn forget_closed(&self, chain: ChainId) {
        self.shown.remembered[chain.0 as usize].store(0, Ordering::SeqCst);
    }
}
