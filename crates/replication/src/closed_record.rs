//! Durable record of the instants that were closed at this node, by chain.
//!
//! Guarantees: an instant in it was closed here with everything up to it on stable storage; a chain is dropped from it
//! durably before a record of the chain is discarded. Leaves to others: what is read by it (`closed_reads`), and when
//! to write it (`ServerParts::tend`, `ServerParts::stop`).

use std::fmt;
use std::sync::Arc;

use frieze_base::{ChainId, Fault, Reason};
use frieze_disk::{Disk, StateFile};
use frieze_locks::{Mutex, MutexGuard, levels};
use prost::Message;
use tracing::warn;

/// The file that holds the record.
const FILE: &str = "closed";
/// Largest size of the record, in bytes.
const FILE_BYTES: usize = 64 << 10;
/// Most chains that the record holds: more would not fit.
const CHAINS_KEPT_MAX: usize = 4096;

/// The stored record.
#[derive(Clone, PartialEq, Message)]
struct StoredClosed {
    /// For each chain that was read here: its number, and the newest instant closed on it with everything up to it on
    /// stable storage.
    #[prost(uint64, repeated, tag = "1")]
    closed: Vec<u64>,
}

/// The record and its file, which only a server of a cluster has.
pub struct ClosedRecord {
    disk: Arc<dyn Disk>,
    inner: Mutex<levels::ClosedRecord, ClosedRecordFile>,
}

impl fmt::Debug for ClosedRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClosedRecord").field("kept", &self.closed()).finish_non_exhaustive()
    }
}

struct ClosedRecordFile {
    /// Created with the first record.
    file: Option<StateFile>,
    kept: Vec<u64>,
    /// Count of chains that were dropped from the record: an observation from before a drop is not written.
    drops: u64,
}

impl ClosedRecord {
    /// Reads the record of a directory, if there is one. A damaged record counts as none, and is written anew: it costs
    /// only reads of the past while the cluster has no leader.
    ///
    /// # Errors
    /// The disk's.
    pub fn load(disk: Arc<dyn Disk>) -> Result<ClosedRecord, Fault> {
        let mut inner = ClosedRecordFile { file: None, kept: Vec::new(), drops: 0 };
        if disk.list()?.iter().any(|name| name == FILE) {
            match StateFile::open_or_create_sized(&*disk, FILE, FILE_BYTES).map_err(Fault::from) {
                Ok(file) => {
                    match StoredClosed::decode(file.read().unwrap_or_default().as_slice()) {
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
        Ok(ClosedRecord { disk, inner: Mutex::new(inner) })
    }

    #[track_caller]
    fn lock(&self) -> MutexGuard<'_, ClosedRecordFile> {
        self.inner.lock()
    }

    fn write(&self, inner: &mut ClosedRecordFile, closed: Vec<u64>) -> Result<(), Fault> {
        if inner.kept != closed {
            let record = StoredClosed { closed: closed.clone() }.encode_to_vec();
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
        let drops = self.lock().drops;
        let mut closed = look();
        closed.truncate(2 * CHAINS_KEPT_MAX);
        let mut inner = self.lock();
        match inner.drops == drops {
            true => self.write(&mut inner, closed),
            false => Ok(()),
        }
    }

    /// Drops a chain from the record. Durable on return: records of the chain may be discarded.
    ///
    /// # Errors
    /// The disk's: then they may not be discarded.
    pub(crate) fn drop_chain(&self, chain: ChainId) -> Result<(), Fault> {
        let mut inner = self.lock();
        inner.drops += 1;
        let others = inner.kept.as_chunks().0.iter().filter(|&&[kept, _]| kept != u64::from(chain.0));
        let others = others.flatten().copied().collect();
        self.write(&mut inner, others)
    }
}

#[cfg(test)]
mod tests {
    use frieze_disk::SimDisk;

    use super::*;

    #[test]
    fn the_record_is_read_back_and_bounded() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let load = || ClosedRecord::load(disk.clone()).unwrap();
        assert!(load().closed().is_empty());
        load().keep(|| vec![0, 7, 3, u64::MAX]).unwrap();
        assert_eq!(load().closed(), [0, 7, 3, u64::MAX]);
        // More chains than a cluster should have.
        let many: Vec<u64> = (0..100_000).flat_map(|chain| [chain, u64::MAX]).collect();
        load().keep(|| many.clone()).unwrap();
        assert_eq!(load().closed(), many[..2 * CHAINS_KEPT_MAX]);
    }

    #[test]
    fn a_damaged_record_counts_as_none_and_is_written_anew() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        ClosedRecord::load(disk.clone()).unwrap().keep(|| vec![0, 7]).unwrap();
        let file = disk.open(FILE).unwrap();
        for slot in 0..2 {
            file.write_at(slot * FILE_BYTES as u64, &[&[7; 100]]).unwrap();
        }
        let remembered = ClosedRecord::load(disk.clone()).unwrap();
        assert!(remembered.closed().is_empty());
        remembered.keep(|| vec![1, 9]).unwrap();
        assert_eq!(ClosedRecord::load(disk).unwrap().closed(), [1, 9]);
    }

    #[test]
    fn a_dropped_chain_is_not_written_by_an_earlier_observation() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let remembered = ClosedRecord::load(disk.clone()).unwrap();
        remembered.keep(|| vec![0, 7, 3, 9]).unwrap();
        remembered.drop_chain(ChainId(3)).unwrap();
        assert_eq!(ClosedRecord::load(disk.clone()).unwrap().closed(), [0, 7]);
        let looked_before = || {
            remembered.drop_chain(ChainId(0)).unwrap();
            vec![0, 8]
        };
        remembered.keep(looked_before).unwrap();
        assert!(ClosedRecord::load(disk).unwrap().closed().is_empty());
    }

    #[test]
    fn any_bytes_are_a_record_of_closed_instants_or_count_as_none() {
        let seed = StoredClosed { closed: vec![0, 7, 3, u64::MAX] }.encode_to_vec();
        frieze_harness::fuzz!([seed], |bytes: &[u8]| {
            frieze_harness::check_stable(bytes, |bytes| StoredClosed::decode(bytes).ok(), StoredClosed::encode_to_vec);
            let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
            StateFile::open_or_create(&*disk, FILE).unwrap().write(bytes).unwrap();
            let remembered = ClosedRecord::load(disk.clone()).unwrap();
            remembered.drop_chain(ChainId(3)).unwrap();
            assert!(ClosedRecord::load(disk).unwrap().closed().as_chunks().0.iter().all(|&[chain, _]| chain != 3));
        });
    }
}
