//! Durable record of a node's part in chains: the newest configuration of each chain that it has taken, the discarded
//! records, and how far their space was given back.
//!
//! Guarantees: after a restart a node takes no configuration that it had before, so it has no role until a newer one
//! names it; discarded records stay discarded. A directory that was never part of a cluster has no such file.

use std::collections::BTreeMap;
use std::sync::Arc;

use frieze_base::{ChainEpoch, ChainId, Fault, Reason, SegmentId};
use frieze_disk::{Disk, StateFile};
use frieze_hlc::Hlc;
use frieze_locks::{Mutex, MutexGuard, levels};
use frieze_multilog::{Discards, LogPosition};
use prost::Message;

/// The file that holds the record.
const FILE: &str = "chains";
/// Largest size of the record in bytes: some thousand chains and discards.
const FILE_BYTES: usize = 256 << 10;

/// The stored record.
#[derive(Clone, PartialEq, Message)]
struct StoredConfigs {
    /// Of each chain that has a configuration: its number and its epoch.
    #[prost(uint64, repeated, tag = "1")]
    epochs: Vec<u64>,
    /// Of each discard: chain, number of the last record that stays, segment and offset of the end of the log then.
    #[prost(uint64, repeated, tag = "2")]
    discarded: Vec<u64>,
    /// For each chain that lost records to a power loss since its newest configuration: its number, the stamps before
    /// and after.
    #[prost(uint64, repeated, tag = "3")]
    lost: Vec<u64>,
    /// For each chain with discarded records: its number, and the segment up to which their space was given back.
    #[prost(uint64, repeated, tag = "4")]
    given_back: Vec<u64>,
}

/// The record and its file.
pub struct ConfigStore {
    disk: Arc<dyn Disk>,
    inner: Mutex<levels::ConfigStore, ConfigStoreState>,
}

#[derive(Default)]
struct ConfigStoreState {
    file: Option<StateFile>,
    known: ConfigStoreContent,
    /// Count of discards since the process began.
    discards: u64,
}

/// Content of the file.
#[derive(Clone, Default)]
struct ConfigStoreContent {
    epochs: BTreeMap<ChainId, ChainEpoch>,
    discarded: Vec<Discards>,
    lost: BTreeMap<ChainId, (Hlc, Hlc)>,
    given_back: BTreeMap<ChainId, SegmentId>,
}

/// Discarded records whose space is not given back yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiscardedSpace {
    /// The space of everything discarded in segments up to this one was given back.
    pub upto: SegmentId,
    /// No later segment contains discarded records.
    pub end: SegmentId,
    /// Value of the count of discards at that time.
    pub discards: u64,
}

impl ConfigStore {
    /// Reads the record of a directory, if there is one.
    ///
    /// # Errors
    /// `Corrupt` if it cannot be read; the disk's.
    pub fn load(disk: Arc<dyn Disk>) -> Result<ConfigStore, Fault> {
        let mut inner = ConfigStoreState::default();
        if disk.list()?.iter().any(|name| name == FILE) {
            let file = StateFile::open_or_create_sized(&*disk, FILE, FILE_BYTES)?;
            let kept = StoredConfigs::decode(file.read().unwrap_or_default().as_slice())
                .map_err(|error| Fault::new(Reason::Corrupt, format!("the {FILE} file is malformed: {error}")))?;
            inner.known = ConfigStoreContent::of(&kept);
            inner.file = Some(file);
        }
        Ok(ConfigStore { disk, inner: Mutex::new(inner) })
    }

    /// The newest configuration that this node has taken of a chain; `None` if it never had one.
    pub fn epoch(&self, chain: ChainId) -> Option<ChainEpoch> {
        self.lock().known.epochs.get(&chain).copied()
    }

    /// True if this node has never taken a configuration of any chain.
    pub fn is_empty(&self) -> bool {
        self.lock().known.epochs.is_empty()
    }

    /// All discards.
    pub fn discarded(&self) -> Vec<Discards> {
        self.lock().known.discarded.clone()
    }

    /// Writes configurations that are about to be taken; the flag says whether this node is a member. Durable on
    /// return.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) fn record_configurations(&self, taken: &[(ChainId, ChainEpoch, bool)]) -> Result<(), Fault> {
        self.change(|known| {
            known.epochs.extend(taken.iter().map(|(chain, epoch, _)| (*chain, *epoch)));
            // The chain has supplied the records that a member lacked, or reported them as lost.
            let is_member = |chain: &ChainId| taken.iter().any(|(taken, _, is_member)| taken == chain && *is_member);
            known.lost.retain(|chain, _| !is_member(chain));
        })
    }

    /// Writes that a power loss took the records between these stamps, of chains of several members. Durable on return.
    ///
    /// # Errors
    /// The disk's.
    pub fn record_lost(&self, lost: &[(ChainId, Hlc, Hlc)]) -> Result<(), Fault> {
        self.change(|known| {
            for &(chain, from, to) in lost {
                let before = known.lost.entry(chain).or_insert((from, to));
                *before = (before.0.min(from), before.1.max(to));
            }
        })
    }

    /// Stamps before and after the records that a power loss took since this node was last a member.
    pub(crate) fn lost_intervals(&self) -> Vec<(ChainId, Hlc, Hlc)> {
        self.lock().known.lost.iter().map(|(chain, (from, to))| (*chain, *from, *to)).collect()
    }

    /// Writes a discard. Durable on return. Returns all discards.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) fn record_discard(&self, discarded: Discards) -> Result<Vec<Discards>, Fault> {
        self.record_discards(&[discarded])
    }

    /// The same for several chains at once.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) fn record_discards(&self, discarded: &[Discards]) -> Result<Vec<Discards>, Fault> {
        self.change(|known| discarded.iter().for_each(|one| known.discard(*one)))?;
        Ok(self.discarded())
    }

    /// Discarded records whose space is not given back yet; `None` if there are none.
    pub(crate) fn discarded_space(&self) -> Option<DiscardedSpace> {
        let inner = self.lock();
        let known = &inner.known;
        let upto_of = |chain: &ChainId| known.given_back.get(chain).copied().unwrap_or_default();
        let ends = known.ends();
        let open: Vec<(SegmentId, SegmentId)> =
            ends.iter().map(|(chain, end)| (upto_of(chain), *end)).filter(|(upto, end)| upto < end).collect();
        let upto = open.iter().map(|(upto, _)| *upto).min()?;
        let end = open.iter().map(|(_, end)| *end).max()?;
        Some(DiscardedSpace { upto, end, discards: inner.discards })
    }

    /// The space of everything in `room` was given back up to this segment. Durable on return.
    ///
    /// # Errors
    /// The disk's: a later scan finds the same space again.
    pub(crate) fn mark_reclaimed(&self, room: DiscardedSpace, upto: SegmentId) -> Result<(), Fault> {
        // Records discarded since then lie before the segment, too.
        let is_all = |inner: &ConfigStoreState| inner.discards == room.discards;
        self.change_if(is_all, |known| {
            for (chain, _) in known.ends() {
                let given = known.given_back.entry(chain).or_default();
                *given = upto.max(*given);
            }
        })
    }

    fn change(&self, change: impl FnOnce(&mut ConfigStoreContent)) -> Result<(), Fault> {
        self.change_if(|_| true, change)
    }

    fn change_if(
        &self,
        is_wanted: impl FnOnce(&ConfigStoreState) -> bool,
        change: impl FnOnce(&mut ConfigStoreContent),
    ) -> Result<(), Fault> {
        let mut inner = self.lock();
        if !is_wanted(&inner) {
            return Ok(());
        }
        let mut changed = inner.known.clone();
        change(&mut changed);
        if inner.file.is_none() {
            inner.file = Some(StateFile::open_or_create_sized(&*self.disk, FILE, FILE_BYTES)?);
        }
        inner.file.as_ref().expect("it was just made").write(&changed.kept().encode_to_vec())?;
        inner.discards += u64::from(changed.discarded != inner.known.discarded);
        inner.known = changed;
        Ok(())
    }

    #[track_caller]
    fn lock(&self) -> MutexGuard<'_, ConfigStoreState> {
        self.inner.lock()
    }
}

impl ConfigStoreContent {
    fn of(kept: &StoredConfigs) -> ConfigStoreContent {
        let epochs = kept.epochs.as_chunks().0.iter();
        let discarded = kept.discarded.as_chunks().0.iter().map(|&[chain, after, segment, offset]| Discards {
            chain: ChainId(chain as u32),
            after,
            before: LogPosition { segment: SegmentId(segment), offset },
        });
        let lost = kept.lost.as_chunks().0.iter();
        let given_back = kept.given_back.as_chunks().0.iter();
        ConfigStoreContent {
            epochs: epochs.map(|&[chain, epoch]| (ChainId(chain as u32), ChainEpoch(epoch))).collect(),
            discarded: discarded.collect(),
            lost: lost.map(|&[chain, from, to]| (ChainId(chain as u32), (Hlc(from), Hlc(to)))).collect(),
            given_back: given_back.map(|&[chain, upto]| (ChainId(chain as u32), SegmentId(upto))).collect(),
        }
    }

    fn kept(&self) -> StoredConfigs {
        let epochs = self.epochs.iter().flat_map(|(chain, epoch)| [chain.0.into(), epoch.0]);
        let discarded = self.discarded.iter().flat_map(|one| {
            let Discards { chain, after, before: LogPosition { segment, offset } } = *one;
            [chain.0.into(), after, segment.0, offset]
        });
        let lost = self.lost.iter().flat_map(|(chain, (from, to))| [chain.0.into(), from.0, to.0]);
        let given_back = self.given_back.iter().flat_map(|(chain, upto)| [chain.0.into(), upto.0]);
        StoredConfigs {
            epochs: epochs.collect(),
            discarded: discarded.collect(),
            lost: lost.collect(),
            given_back: given_back.collect(),
        }
    }

    fn discard(&mut self, discarded: Discards) {
        // A discard that the new one includes is removed.
        self.discarded.retain(|old| old.chain != discarded.chain || old.after < discarded.after);
        self.discarded.push(discarded);
        self.given_back.remove(&discarded.chain);
    }

    /// The last segment with discarded records, by chain.
    fn ends(&self) -> BTreeMap<ChainId, SegmentId> {
        let mut ends = BTreeMap::<ChainId, SegmentId>::new();
        for one in &self.discarded {
            let end = ends.entry(one.chain).or_default();
            *end = one.before.segment.max(*end);
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    use frieze_disk::SimDisk;

    use super::*;

    #[test]
    fn room_counts_as_given_back_only_if_nothing_was_discarded_meanwhile() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let open = || ConfigStore::load(disk.clone()).expect("readable roles");
        let gone = |chain, after, segment| Discards {
            chain: ChainId(chain),
            after,
            before: LogPosition { segment: SegmentId(segment), offset: 100 },
        };
        let roles = open();
        assert_eq!(roles.discarded_space(), None);
        roles.record_discard(gone(1, 7, 3)).expect("a disk that works");
        let room = roles.discarded_space().expect("some");
        assert_eq!((room.upto, room.end), (SegmentId(0), SegmentId(3)));
        roles.record_discards(&[gone(2, 0, 5), gone(1, 0, 5)]).expect("a disk that works");
        roles.mark_reclaimed(room, SegmentId(3)).expect("a disk that works");
        let room = open().discarded_space().expect("some");
        assert_eq!((room.upto, room.end), (SegmentId(0), SegmentId(5)), "others were discarded in these segments");
        let roles = open();
        roles.mark_reclaimed(room, SegmentId(4)).expect("a disk that works");
        let room = open().discarded_space().expect("some");
        assert_eq!((room.upto, room.end), (SegmentId(4), SegmentId(5)));
        roles.mark_reclaimed(room, SegmentId(5)).expect("a disk that works");
        assert_eq!(open().discarded_space(), None);
        // The node returns to the chain, and is removed again.
        roles.record_discard(gone(2, 0, 9)).expect("a disk that works");
        assert_eq!(open().discarded_space().map(|room| (room.upto, room.end)), Some((SegmentId(0), SegmentId(9))));
        assert_eq!(open().discarded().len(), 2);
    }

    #[test]
    fn lost_intervals_are_reported_until_the_node_is_a_member_again() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let open = || ConfigStore::load(disk.clone()).expect("readable roles");
        let (one, other) = (ChainId(1), ChainId(2));
        open()
            .record_configurations(&[(one, ChainEpoch(3), true), (other, ChainEpoch(3), true)])
            .expect("a disk that works");
        open().record_lost(&[(one, Hlc(10), Hlc(20)), (other, Hlc(11), Hlc(20))]).expect("a disk that works");
        // The node loses power again before it has a configuration.
        open().record_lost(&[(one, Hlc(15), Hlc(30))]).expect("a disk that works");
        assert_eq!(open().lost_intervals(), [(one, Hlc(10), Hlc(30)), (other, Hlc(11), Hlc(20))]);
        open().record_configurations(&[(one, ChainEpoch(4), false)]).expect("a disk that works");
        assert_eq!(open().lost_intervals().len(), 2, "it is being brought up to date, or has no part");
        open().record_configurations(&[(one, ChainEpoch(5), true)]).expect("a disk that works");
        assert_eq!(open().lost_intervals(), [(other, Hlc(11), Hlc(20))]);
    }

    #[test]
    fn any_bytes_are_a_record_of_chains_or_corrupt() {
        let mut known = ConfigStoreContent::default();
        known.epochs.insert(ChainId(1), ChainEpoch(3));
        known.lost.insert(ChainId(1), (Hlc(10), Hlc(20)));
        let before = LogPosition { segment: SegmentId(3), offset: 100 };
        known.discard(Discards { chain: ChainId(2), after: 7, before });
        known.given_back.insert(ChainId(2), SegmentId(1));
        frieze_harness::fuzz!([known.kept().encode_to_vec()], |bytes: &[u8]| {
            // The record as the store reads it: numbers that make no group are dropped.
            let decode = |bytes: &[u8]| Some(ConfigStoreContent::of(&StoredConfigs::decode(bytes).ok()?).kept());
            if let Some(kept) = frieze_harness::check_stable(bytes, decode, StoredConfigs::encode_to_vec) {
                let mut known = ConfigStoreContent::of(&kept);
                known.discard(Discards { chain: ChainId(2), after: 5, before });
                assert_eq!(known.ends().get(&ChainId(2)).copied().unwrap_or_default(), {
                    let ends = known.discarded.iter().filter(|one| one.chain == ChainId(2));
                    ends.map(|one| one.before.segment).max().unwrap_or_default()
                });
            }
        });
    }
}
