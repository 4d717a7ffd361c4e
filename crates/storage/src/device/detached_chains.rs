//! Records of chains that other nodes have by now: removed from the log as a whole, and their space given back segment
//! by segment.
//!
//! Guarantees: a chain is removed once the record of that is on stable storage, and not before; records of other chains
//! are untouched, on disk and in memory. Leaves to others: whether other nodes have the chain (`cluster`, through
//! `node`), when to free its space (`service`, `replica_gc`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use frieze_base::{ChainId, Fault, Reason, SegmentId};
use frieze_multilog::{Discards, ImageKey};

use super::{Device, FileKey};

impl Device {
    /// Removes these chains from the log, as a whole. `keep` makes that durable, and returns all discards so far. The
    /// caller locks out all appends; all records of these chains are on stable storage.
    ///
    /// # Errors
    /// `Busy`: retry. The disk's: then nothing has changed.
    ///
    /// # Cost
    /// Visits each file whose index is in memory, less than a microsecond each.
    pub fn remove_chains(
        &self,
        chains: &BTreeSet<ChainId>,
        keep: &mut dyn FnMut() -> Result<Vec<Discards>, Fault>,
    ) -> Result<(), Fault> {
        let busy = || Fault::new(Reason::Busy, "the index is being written: try again");
        // The thread that has this lock may be waiting for the appender, which the caller has locked.
        let Some(_index_run_lock) = self.index_run_lock.try_lock() else { return Err(busy()) };
        let Some(_evicting) = self.evicting.try_lock() else { return Err(busy()) };
        let discarded = keep()?;
        self.removals.fetch_add(1, Ordering::Relaxed);
        self.drop_packs(&|chain| chains.contains(&chain).then_some(0))?;
        self.tips.lock().retain(|chain, _| !chains.contains(chain));
        self.log.write().begin_take_out(chains, discarded);
        let files = self.log().files_in_memory();
        for some in files.chunks(FILES_AT_ONCE) {
            self.log.write().take_out(some, chains);
        }
        Ok(())
    }

    /// The ranges of a segment with discarded records. `None` if that is unknown at the moment.
    ///
    /// # Errors
    /// The disk's.
    pub fn discarded_in(&self, segment: SegmentId) -> Result<Option<BTreeMap<u64, u64>>, Fault> {
        let Some(sealed) = self.log().sealed(segment) else {
            return Ok(self.log().discarded_in(segment, None));
        };
        let file = self.file(segment)?;
        let mut footer = vec![0; (sealed.bytes - sealed.footer_at) as usize];
        let found = file.read_at(sealed.footer_at, &mut footer)?;
        self.tiers.note_untracked(FileKey::Segment(segment));
        footer.truncate(found);
        Ok(self.log().discarded_in(segment, Some(&footer)))
    }

    /// Evicts images of chunks that have no record here.
    ///
    /// # Errors
    /// The disk's: the next call continues.
    pub fn evict_orphan_images(&self) -> Result<(), Fault> {
        let keys: Vec<ImageKey> = self.images().iter().map(|(key, _)| *key).collect();
        let mut gone = Vec::new();
        for of_chunk in keys.chunk_by(|a, b| a.chunk == b.chunk) {
            let chunk = of_chunk[0].chunk;
            let is_here =
                self.log_of([chunk.inode])?.chunks_in(chunk.inode, chunk.index..=chunk.index).next().is_some();
            gone.extend(of_chunk.iter().filter(|_| !is_here).copied());
        }
        if gone.is_empty() { Ok(()) } else { self.evict_images(&gone) }
    }
}

/// Files that are visited under one lock.
const FILES_AT_ONCE: usize = 1024;
