//! What one server has of the chain: records, packs, what it knows of the dead, and how far its names have to be.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::RecordExtent;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeRole {
    /// Down, or up without a place in the chain.
    Out,
    /// In the chain.
    Member,
    /// Removed from the chain while alive, and not aware of it; the head of which configuration it takes itself for.
    Removed { head_of: Option<u64> },
    /// Receives what it lacks up to `base`, and new records beside.
    Syncing { base: u64 },
}

/// The bytes of a record outside of packs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordBytes {
    Here,
    /// It died, and its space was given back.
    Freed,
    /// It had died at the member that sent it, and is a hole here.
    Hole,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredRecord {
    pub(crate) extent: RecordExtent,
    pub(crate) bytes: RecordBytes,
}

/// A pack: what of a stretch of numbers is in the index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModelPack {
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// Records with their bytes; true: it is a hole.
    pub(crate) live: BTreeMap<u64, (RecordExtent, bool)>,
    /// Dead ones, without bytes: one of each epoch.
    pub(crate) dead: BTreeMap<u64, RecordExtent>,
}

impl ModelPack {
    pub(crate) fn has(&self, number: u64) -> bool {
        (self.first..=self.last).contains(&number)
    }
}

/// A pack that is not listed yet: what it is made of is still there.
#[derive(Clone, Debug)]
pub(crate) struct PackCandidate {
    pub(crate) made: ModelPack,
    /// As the disk has it.
    pub(crate) written: ModelPack,
    pub(crate) is_synced: bool,
}

/// A record in the index of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexEntry {
    pub(crate) extent: RecordExtent,
    pub(crate) is_dead: bool,
    pub(crate) is_hole: bool,
    /// Its bytes can be read.
    pub(crate) has_bytes: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct ReplicaNode {
    pub(crate) is_up: bool,
    pub(crate) role: NodeRole,
    /// Every record by number, dead or not, as footers have them.
    pub(crate) records: BTreeMap<u64, StoredRecord>,
    /// Numbers that a crash takes.
    pub(crate) unsynced: BTreeSet<u64>,
    /// Packs that are listed. No two have a common number.
    pub(crate) packs: Vec<ModelPack>,
    pub(crate) candidate: Option<PackCandidate>,
    /// In memory: records that are known to be dead, and those of them that left the index.
    pub(crate) dead: BTreeSet<u64>,
    pub(crate) unindexed: BTreeSet<u64>,
    /// Numbers whose record fails its checksum.
    pub(crate) rotten: BTreeSet<u64>,
    /// Committed as far as it knows.
    pub(crate) clean: u64,
    /// Entries of the log of names that it has executed, and how many of them a restart finds executed.
    pub(crate) position: usize,
    pub(crate) stored_position: usize,
    /// Nothing of the past is shown before this position. A restart finds it.
    pub(crate) expired: usize,
    /// The same in memory, of a member that is broken.
    pub(crate) unstored_expired: usize,
    pub(crate) is_full: bool,
    /// Its clock, in seconds beside the true time.
    pub(crate) clock_offset: i64,
    /// It executes once in so many turns.
    pub(crate) slowness: u64,
}

impl ReplicaNode {
    pub(crate) fn new(clock_offset: i64, slowness: u64) -> ReplicaNode {
        ReplicaNode {
            is_up: true,
            role: NodeRole::Out,
            records: BTreeMap::new(),
            unsynced: BTreeSet::new(),
            packs: Vec::new(),
            candidate: None,
            dead: BTreeSet::new(),
            unindexed: BTreeSet::new(),
            rotten: BTreeSet::new(),
            clean: 0,
            position: 0,
            stored_position: 0,
            expired: 0,
            unstored_expired: 0,
            is_full: false,
            clock_offset,
            slowness,
        }
    }

    pub(crate) fn extent_of(&self, number: u64) -> Option<RecordExtent> {
        self.records.get(&number).map(|record| record.extent)
    }

    pub(crate) fn pack_of(&self, number: u64) -> Option<&ModelPack> {
        self.packs.iter().find(|pack| pack.has(number))
    }

    /// What the index has, by number.
    pub(crate) fn index(&self) -> BTreeMap<u64, IndexEntry> {
        let mut index = BTreeMap::new();
        for (number, record) in &self.records {
            if self.pack_of(*number).is_none() && !self.unindexed.contains(number) {
                let (is_hole, has_bytes) = (record.bytes == RecordBytes::Hole, record.bytes == RecordBytes::Here);
                let is_dead = self.dead.contains(number);
                index.insert(*number, IndexEntry { extent: record.extent, is_dead, is_hole, has_bytes });
            }
        }
        for pack in &self.packs {
            for (number, (extent, is_hole)) in &pack.live {
                let (is_dead, is_hole) = (self.dead.contains(number), *is_hole);
                index.insert(*number, IndexEntry { extent: *extent, is_dead, is_hole, has_bytes: !is_hole });
            }
            for (number, extent) in &pack.dead {
                let entry = IndexEntry { extent: *extent, is_dead: true, is_hole: false, has_bytes: false };
                index.insert(*number, entry);
            }
        }
        index
    }

    /// The last number before the first that is missing.
    pub(crate) fn whole_upto(&self) -> u64 {
        (1..).zip(self.records.keys()).take_while(|(expected, number)| expected == *number).count() as u64
    }

    /// The largest number.
    pub(crate) fn last(&self) -> u64 {
        self.records.last_key_value().map_or(0, |(number, _)| *number)
    }

    pub(crate) fn add(&mut self, extent: RecordExtent, bytes: RecordBytes) {
        self.unsynced.insert(extent.number);
        self.records.insert(extent.number, StoredRecord { extent, bytes });
    }

    /// Lists a pack in place of the records and packs that it was made of.
    pub(crate) fn list_pack(&mut self, pack: ModelPack) {
        self.drop_bytes(&pack);
        self.packs.retain(|other| !pack.has(other.first));
        self.unindexed.retain(|number| !pack.has(*number));
        self.packs.push(pack);
    }

    /// The bytes outside of a pack go that it has.
    pub(crate) fn drop_bytes(&mut self, pack: &ModelPack) {
        for (_, record) in self.records.range_mut(pack.first..=pack.last) {
            record.bytes = RecordBytes::Freed;
        }
        self.rotten.retain(|number| !pack.has(*number));
    }

    /// A pack has committed records only, and stays.
    pub(crate) fn discard_above(&mut self, number: u64) {
        let packed = self.packs.iter().map(|pack| pack.last).max().unwrap_or(0);
        let number = number.max(packed);
        self.records.retain(|record, _| *record <= number);
        for set in [&mut self.unsynced, &mut self.rotten, &mut self.dead, &mut self.unindexed] {
            set.retain(|record| *record <= number);
        }
        self.clean = self.clean.min(number);
    }

    pub(crate) fn sync(&mut self) {
        self.unsynced.clear();
        self.stored_position = self.position;
        if let Some(candidate) = &mut self.candidate {
            candidate.is_synced = true;
        }
    }

    pub(crate) fn crash(&mut self) {
        self.is_up = false;
        self.role = NodeRole::Out;
        let lost = std::mem::take(&mut self.unsynced);
        self.records.retain(|number, _| !lost.contains(number));
        self.candidate = None;
        // What is dead is found again.
        (self.dead, self.unindexed) = (BTreeSet::new(), BTreeSet::new());
        self.position = self.stored_position;
        self.unstored_expired = 0;
        self.clean = self.clean.min(self.whole_upto());
    }
}
