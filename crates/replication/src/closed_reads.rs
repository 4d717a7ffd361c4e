//! Reads of the past at a member that was restarted, before it has a configuration of its chains.
//!
//! Guarantees: an instant that was closed here before the restart, with everything up to it on stable storage, can be
//! read here again, with the same result. For a chain this ends with the first configuration that is taken, and durably
//! before a record of the chain is discarded. Leaves to others: reads of now, which need a lease, and when to write the
//! record (`ServerParts::tend`, `ServerParts::stop`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use frieze_base::{ChainId, Fault};

use crate::closed_record::ClosedRecord;
use crate::plane::DataPlane;

impl DataPlane {
    /// For each chain that is read here: its number, and the newest instant closed on it. Not of a chain that no other
    /// node has: a restart may read all of it.
    /// Called before a flush, and written when the flush has ended.
    pub fn closed_by_chain(&self) -> Vec<u64> {
        let is_recorded = |chain: &ChainId| self.is_readable_here(*chain) && !self.is_sole(*chain);
        let here = (0..self.chain_count()).map(ChainId).filter(is_recorded);
        let closed = here.map(|chain| (chain, self.views.closed[chain.0 as usize].load(Ordering::SeqCst)));
        closed.filter(|(_, closed)| *closed > 0).flat_map(|(chain, closed)| [chain.0.into(), closed]).collect()
    }

    /// The same if all of it is on stable storage now: an idle chain closes instants and writes nothing that needs a
    /// flush.
    pub fn closed_if_durable(&self) -> Option<Vec<u64>> {
        let closed = self.closed_by_chain();
        (self.device.dirty_bytes() == 0).then_some(closed)
    }

    /// The pairs of `earlier` that are still valid: without the chains that were dropped since.
    pub fn still_closed(&self, earlier: &[u64]) -> Vec<u64> {
        let now: BTreeMap<u64, u64> =
            self.closed_by_chain().as_chunks().0.iter().map(|&[chain, upto]| (chain, upto)).collect();
        let still = |&&[chain, closed]: &&[u64; 2]| now.get(&chain).is_some_and(|upto| closed <= *upto);
        earlier.as_chunks().0.iter().filter(still).flatten().copied().collect()
    }

    /// Loads the stored record at the start, and drops chains from it later. Once only.
    pub fn load_closed_record(&self, remembered: &Arc<ClosedRecord>) {
        // Called once, at the start.
        let _ = self.views.closed_record.set(remembered.clone());
        let appender = self.lock_appender();
        for &[chain, closed] in remembered.closed().as_chunks().0 {
            let chain = ChainId(u32::try_from(chain).unwrap_or(u32::MAX));
            if let Some(remembered) = self.views.closed_before_start.get(chain.0 as usize)
                && appender.states[chain.0 as usize].shared
            {
                remembered.store(closed, Ordering::SeqCst);
                self.publish_view(&appender, chain);
            }
        }
    }

    /// True if this node is a member of the chain, or was one before its restart and has no newer configuration.
    pub fn is_readable_here(&self, chain: ChainId) -> bool {
        self.is_member(chain) || self.has_closed_record(chain)
    }

    pub(crate) fn has_closed_record(&self, chain: ChainId) -> bool {
        self.views.closed_before_start[chain.0 as usize].load(Ordering::SeqCst) > 0
    }

    /// A configuration of the chain is taken: from now on it decides what is read.
    pub(crate) fn drop_closed(&self, chain: ChainId) {
        self.views.closed_before_start[chain.0 as usize].store(0, Ordering::SeqCst);
    }

    /// Records of the chain are about to be discarded: a restart must not read them. Durable on return.
    ///
    /// # Errors
    /// The disk's: then they may not be discarded.
    pub(crate) fn drop_closed_durably(&self, chain: ChainId) -> Result<(), Fault> {
        self.drop_closed(chain);
        self.views.closed_record.get().map_or(Ok(()), |remembered| remembered.drop_chain(chain))
    }
}
