//! Reads of the past at a member that was restarted, before it has a configuration of its chains.
//!
//! Guarantees: an instant that was closed here before the restart, with everything up to it on stable storage, can be
//! read here again, with the same result. For a chain this ends with the first configuration that is taken, and durably
//! before a record of the chain is discarded. Leaves to others: reads of now, which need a lease, and when to write the
//! record (`Engine::tend`, `Engine::stop`).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frieze_base::{ChainId, Fault, Reason};
use frieze_disk::{Disk, StateFile};
use prost::Message;
use tracing::warn;

use crate::plane::DataPlane;

/// The file that holds the record.
const FILE: &str = "closed";
/// Largest size of the record, in bytes.
const FILE_BYTES: usize = 64 << 10;
/// Most chains that the record holds: more would not fit.
const CHAINS_KEPT_MAX: usize = 4096;

/// The stored record.
#[derive(Clone, PartialEq, Message)]
struct Kept {
    /// For each chain that was read here: its number, and the newest instant closed on it with everything up to it on
    /// stable storage.
    #[prost(uint64, repeated, tag = "1")]
    closed: Vec<u64>,
}

/// The record and its file, which only a server of a cluster has.
pub struct Remembered {
    disk: Arc<dyn Disk>,
    inner: Mutex<Inner>,
}

impl fmt::Debug for Remembered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remembered").field("kept", &self.closed()).finish_non_exhaustive()
    }
}

struct Inner {
    /// Created with the first record.
    file: Option<StateFile>,
    kept: Vec<u64>,
    /// Count of chains that were dropped from the record: an observation from before a drop is not written.
    forgotten: u64,
}

impl Remembered {
    /// Reads the record of a directory, if there is one. A damaged record counts as none, and is written anew: it costs
    /// only reads of the past while the cluster has no leader.
    ///
    /// # Errors
    /// The disk's.
    pub fn load(disk: Arc<dyn Disk>) -> Result<Remembered, Fault> {
        let mut inner = Inner { file: None, kept: Vec::new(), forgotten: 0 };
        if disk.list()?.iter().any(|name| name == FILE) {
            match StateFile::open_or_create_sized(&*disk, FILE, FILE_BYTES).map_err(Fault::from) {
                Ok(file) => {
                    match Kept::decode(file.read().unwrap_or_default().as_slice()) {
                        Ok(kept) => inner.kept = kept.closed,
                        Err(error) => warn!("the {FILE} file is malformed and counts for nothing: {error}"),
                    }
                    inner.file = Some(file);
                }
                Err(fault) if fault.reason == Reason::Corrupt => {
                    warn!("the {FILE} file is damaged and is made anew: {fault}");
                    disk.remove(FILE)?;
                }
                Err(fault) => return Err(fault),
            }
        }
        Ok(Remembered { disk, inner: Mutex::new(inner) })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, inner: &mut Inner, closed: Vec<u64>) -> Result<(), Fault> {
        if inner.kept != closed {
            let record = Kept { closed: closed.clone() }.encode_to_vec();
            let file = match inner.file.take() {
                Some(file) => file,
                None => StateFile::open_or_create_sized(&*self.disk, FILE, FILE_BYTES)?,
            };
            inner.file.insert(file).write(&record)?;
            inner.kept = closed;
        }
        Ok(())
    }

    /// The stored record, as pairs of a chain and an instant.
    pub(crate) fn closed(&self) -> Vec<u64> {
        self.lock().kept.clone()
    }

    /// Writes what `look` returns, unless a chain is dropped while `look` runs. Durable on return.
    ///
    /// # Errors
    /// The disk's: the earlier record stays.
    pub fn keep(&self, look: impl FnOnce() -> Vec<u64>) -> Result<(), Fault> {
        let forgotten = self.lock().forgotten;
        let mut closed = look();
        closed.truncate(2 * CHAINS_KEPT_MAX);
        let mut inner = self.lock();
        match inner.forgotten == forgotten {
            true => self.write(&mut inner, closed),
            false => Ok(()),
        }
    }

    /// Drops a chain from the record. Durable on return: records of the chain may be discarded.
    ///
    /// # Errors
    /// The disk's: then they may not be discarded.
    fn forget(&self, chain: ChainId) -> Result<(), Fault> {
        let mut inner = self.lock();
        inner.forgotten += 1;
        let others = inner.kept.as_chunks().0.iter().filter(|&&[kept, _]| kept != u64::from(chain.0));
        let others = others.flatten().copied().collect();
        self.write(&mut inner, others)
    }
}

impl DataPlane {
    /// For each chain that is read here: its number, and the newest instant closed on it; empty for a single server.
    /// Called before a flush, and written when the flush has ended.
    pub fn closed_by_chain(&self) -> Vec<u64> {
        if !self.is_shared() {
            return Vec::new();
        }
        let here = (0..self.chain_count()).map(ChainId).filter(|chain| self.is_read_here(*chain));
        let closed = here.map(|chain| (chain, self.shown.closed[chain.0 as usize].load(Ordering::SeqCst)));
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
    pub fn remember_by(&self, remembered: &Arc<Remembered>) {
        // Called once, at the start.
        let _ = self.shown.remembered_by.set(remembered.clone());
        let appender = self.hold_writes();
        for &[chain, closed] in remembered.closed().as_chunks().0 {
            let chain = ChainId(u32::try_from(chain).unwrap_or(u32::MAX));
            if let Some(remembered) = self.shown.remembered.get(chain.0 as usize)
                && appender.members[chain.0 as usize].shared
            {
                remembered.store(closed, Ordering::SeqCst);
                self.note(&appender, chain);
            }
        }
    }

    /// True if this node is a member of the chain, or was one before its restart and has no newer configuration.
    pub fn is_read_here(&self, chain: ChainId) -> bool {
        self.is_here(chain) || self.remembers(chain)
    }

    pub(crate) fn remembers(&self, chain: ChainId) -> bool {
        self.shown.remembered[chain.0 as usize].load(Ordering::SeqCst) > 0
    }

    /// A configuration of the chain is taken: from now on it decides what is read.
    pub(crate) fn forget_closed(&self, chain: ChainId) {
        self.shown.remembered[chain.0 as usize].store(0, Ordering::SeqCst);
    }

    /// Records of the chain are about to be discarded: a restart must not read them. Durable on return.
    ///
    /// # Errors
    /// The disk's: then they may not be discarded.
    pub(crate) fn forget_closed_for_good(&self, chain: ChainId) -> Result<(), Fault> {
        self.forget_closed(chain);
        self.shown.remembered_by.get().map_or(Ok(()), |remembered| remembered.forget(chain))
    }
}

#[cfg(test)]
mod tests {
    use frieze_disk::SimDisk;

    use super::*;

    #[test]
    fn what_is_kept_is_found_again_and_bounded() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let load = || Remembered::load(disk.clone()).unwrap();
        assert!(load().closed().is_empty());
        load().keep(|| vec![0, 7, 3, u64::MAX]).unwrap();
        assert_eq!(load().closed(), [0, 7, 3, u64::MAX]);
        // More chains than a cluster should have.
        let many: Vec<u64> = (0..100_000).flat_map(|chain| [chain, u64::MAX]).collect();
        load().keep(|| many.clone()).unwrap();
        assert_eq!(load().closed(), many[..2 * CHAINS_KEPT_MAX]);
    }

    #[test]
    fn a_damaged_record_counts_as_none_and_is_made_anew() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        Remembered::load(disk.clone()).unwrap().keep(|| vec![0, 7]).unwrap();
        let file = disk.open(FILE).unwrap();
        for slot in 0..2 {
            file.write_at(slot * FILE_BYTES as u64, &[&[7; 100]]).unwrap();
        }
        let remembered = Remembered::load(disk.clone()).unwrap();
        assert!(remembered.closed().is_empty());
        remembered.keep(|| vec![1, 9]).unwrap();
        assert_eq!(Remembered::load(disk).unwrap().closed(), [1, 9]);
    }

    #[test]
    fn a_chain_that_is_forgotten_is_not_kept_by_who_looked_before() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let remembered = Remembered::load(disk.clone()).unwrap();
        remembered.keep(|| vec![0, 7, 3, 9]).unwrap();
        remembered.forget(ChainId(3)).unwrap();
        assert_eq!(Remembered::load(disk.clone()).unwrap().closed(), [0, 7]);
        let looked_before = || {
            remembered.forget(ChainId(0)).unwrap();
            vec![0, 8]
        };
        remembered.keep(looked_before).unwrap();
        assert!(Remembered::load(disk).unwrap().closed().is_empty());
    }

    #[test]
    fn any_bytes_are_a_record_of_closed_instants_or_count_as_none() {
        let seed = Kept { closed: vec![0, 7, 3, u64::MAX] }.encode_to_vec();
        frieze_harness::fuzz!([seed], |bytes: &[u8]| {
            frieze_harness::check_stable(bytes, |bytes| Kept::decode(bytes).ok(), Kept::encode_to_vec);
            let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
            StateFile::open_or_create(&*disk, FILE).unwrap().write(bytes).unwrap();
            let remembered = Remembered::load(disk.clone()).unwrap();
            remembered.forget(ChainId(3)).unwrap();
            assert!(Remembered::load(disk).unwrap().closed().as_chunks().0.iter().all(|&[chain, _]| chain != 3));
        });
    }
}
