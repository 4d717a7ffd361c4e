//! What has to be known of a node's part in chains at its next start: the newest configuration of each chain that it has taken,
//! and what was discarded.
//!
//! Guarantees: after a restart a node takes no configuration that it has had before, so it has no role until a newer one names
//! it; what was discarded stays discarded. A directory that was never part of a cluster has no such file.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use frieze_base::{ChainEpoch, ChainId, Fault, Reason, SegmentId};
use frieze_disk::{Disk, StateFile};
use frieze_hlc::Hlc;
use frieze_multilog::{Discarded, LogPosition};
use prost::Message;

/// The file that holds the record.
const FILE: &str = "chains";
/// Its longest record: some thousand chains and discards.
const FILE_BYTES: usize = 256 << 10;

/// The stored record.
#[derive(Clone, PartialEq, Message)]
struct Kept {
    /// Of each chain that has a configuration: its number and its epoch.
    #[prost(uint64, repeated, tag = "1")]
    epochs: Vec<u64>,
    /// Of each discard: chain, number of the last record that stays, segment and offset of the end of the log then.
    #[prost(uint64, repeated, tag = "2")]
    discarded: Vec<u64>,
    /// Of each chain that a loss of power took something of, since its newest configuration: its number, the stamps before and after.
    #[prost(uint64, repeated, tag = "3")]
    lost: Vec<u64>,
}

/// The record and its file.
pub(crate) struct Roles {
    disk: Arc<dyn Disk>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    file: Option<StateFile>,
    epochs: BTreeMap<ChainId, ChainEpoch>,
    discarded: Vec<Discarded>,
    lost: BTreeMap<ChainId, (Hlc, Hlc)>,
}

impl Roles {
    /// Reads the record of a directory, if there is one.
    ///
    /// # Errors
    /// `Corrupt` if it cannot be read; the disk's.
    pub(crate) fn load(disk: Arc<dyn Disk>) -> Result<Roles, Fault> {
        let mut inner = Inner::default();
        if disk.list()?.iter().any(|name| name == FILE) {
            let file = StateFile::open_or_create_sized(&*disk, FILE, FILE_BYTES)?;
            let kept = Kept::decode(file.read().unwrap_or_default().as_slice())
                .map_err(|error| Fault::new(Reason::Corrupt, format!("the {FILE} file is malformed: {error}")))?;
            let epochs = kept.epochs.as_chunks().0.iter();
            inner.epochs = epochs.map(|&[chain, epoch]| (ChainId(chain as u32), ChainEpoch(epoch))).collect();
            let discarded = kept.discarded.as_chunks().0.iter().map(|&[chain, after, segment, offset]| Discarded {
                chain: ChainId(chain as u32),
                after,
                before: LogPosition { segment: SegmentId(segment), offset },
            });
            inner.discarded = discarded.collect();
            let lost = kept.lost.as_chunks().0.iter();
            inner.lost = lost.map(|&[chain, from, to]| (ChainId(chain as u32), (Hlc(from), Hlc(to)))).collect();
            inner.file = Some(file);
        }
        Ok(Roles { disk, inner: Mutex::new(inner) })
    }

    /// The newest configuration that this node has taken of a chain; `None` if nobody has ever given it one.
    pub(crate) fn epoch(&self, chain: ChainId) -> Option<ChainEpoch> {
        self.lock().epochs.get(&chain).copied()
    }

    /// Every record that was discarded.
    pub(crate) fn discarded(&self) -> Vec<Discarded> {
        self.lock().discarded.clone()
    }

    /// Remembers configurations that are about to be taken. Durable on return.
    ///
    /// # Errors
    /// The disk's.
    pub(super) fn take(&self, taken: &[(ChainId, ChainEpoch)]) -> Result<(), Fault> {
        self.change(|inner| {
            inner.epochs.extend(taken.iter().copied());
            // What this node lacked the chain supplies again, or it is known to be lost.
            inner.lost.retain(|chain, _| taken.iter().all(|(taken, _)| taken != chain));
        })
    }

    /// Remembers that the power took what was stamped between these, of chains of several members. Durable on return.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) fn lose(&self, lost: &[(ChainId, Hlc, Hlc)]) -> Result<(), Fault> {
        self.change(|inner| {
            for &(chain, from, to) in lost {
                let before = inner.lost.entry(chain).or_insert((from, to));
                *before = (before.0.min(from), before.1.max(to));
            }
        })
    }

    /// What the power took of chains since their newest configuration: the stamps before and after it.
    pub(crate) fn lost(&self) -> Vec<(ChainId, Hlc, Hlc)> {
        self.lock().lost.iter().map(|(chain, (from, to))| (*chain, *from, *to)).collect()
    }

    /// Remembers that records were discarded. Durable on return. Returns all that were.
    ///
    /// # Errors
    /// The disk's.
    pub(super) fn discard(&self, discarded: Discarded) -> Result<Vec<Discarded>, Fault> {
        self.change(|inner| {
            // What it holds need not be told twice.
            inner.discarded.retain(|old| old.chain != discarded.chain || old.after < discarded.after);
            inner.discarded.push(discarded);
        })?;
        Ok(self.discarded())
    }

    fn change(&self, change: impl FnOnce(&mut Inner)) -> Result<(), Fault> {
        let mut inner = self.lock();
        let (epochs, discarded, lost) = (inner.epochs.clone(), inner.discarded.clone(), inner.lost.clone());
        let mut changed = Inner { file: None, epochs, discarded, lost };
        change(&mut changed);
        if inner.file.is_none() {
            inner.file = Some(StateFile::open_or_create_sized(&*self.disk, FILE, FILE_BYTES)?);
        }
        let epochs = changed.epochs.iter().flat_map(|(chain, epoch)| [chain.0.into(), epoch.0]);
        let discarded = changed.discarded.iter().flat_map(|one| {
            let Discarded { chain, after, before: LogPosition { segment, offset } } = *one;
            [chain.0.into(), after, segment.0, offset]
        });
        let lost = changed.lost.iter().flat_map(|(chain, (from, to))| [chain.0.into(), from.0, to.0]);
        let kept = Kept { epochs: epochs.collect(), discarded: discarded.collect(), lost: lost.collect() };
        inner.file.as_ref().expect("it was just made").write(&kept.encode_to_vec())?;
        (inner.epochs, inner.discarded, inner.lost) = (changed.epochs, changed.discarded, changed.lost);
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use frieze_disk::SimDisk;

    use super::*;

    #[test]
    fn what_the_power_took_is_told_until_the_chain_goes_on() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let open = || Roles::load(disk.clone()).expect("readable roles");
        let (one, other) = (ChainId(1), ChainId(2));
        open().take(&[(one, ChainEpoch(3)), (other, ChainEpoch(3))]).expect("a disk that works");
        open().lose(&[(one, Hlc(10), Hlc(20)), (other, Hlc(11), Hlc(20))]).expect("a disk that works");
        // It goes off again before anybody has told it anything.
        open().lose(&[(one, Hlc(15), Hlc(30))]).expect("a disk that works");
        assert_eq!(open().lost(), [(one, Hlc(10), Hlc(30)), (other, Hlc(11), Hlc(20))]);
        open().take(&[(one, ChainEpoch(4))]).expect("a disk that works");
        assert_eq!(open().lost(), [(other, Hlc(11), Hlc(20))]);
    }
}
