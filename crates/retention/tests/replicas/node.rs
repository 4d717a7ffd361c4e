//! What one server has of the chain: records, packs, and a pack that does not count yet.

use std::collections::{BTreeMap, BTreeSet};

use frieze_retention::{LogPart, PackContent, PackName};

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

/// A pack that does not count yet: the records that it is made of are still there.
#[derive(Clone, Debug)]
pub(crate) struct PackCandidate {
    /// As it was made: its hash goes to the others.
    pub(crate) made: PackContent,
    /// As the disk has it.
    pub(crate) written: PackContent,
    pub(crate) is_synced: bool,
    pub(crate) is_read_back: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct ReplicaNode {
    pub(crate) is_up: bool,
    pub(crate) role: NodeRole,
    /// Records and supplied runs, by first number.
    pub(crate) log: BTreeMap<u64, LogPart>,
    /// Parts of the log that a crash takes.
    pub(crate) unsynced: BTreeSet<u64>,
    /// Packs that count. No two have a common number.
    pub(crate) packs: Vec<PackContent>,
    pub(crate) candidate: Option<PackCandidate>,
    /// Numbers whose record fails its checksum.
    pub(crate) rotten: BTreeSet<u64>,
    /// Committed as far as it knows.
    pub(crate) clean: u64,
    /// Entries of the log of names that it has executed, and how many of them a restart finds executed.
    pub(crate) position: usize,
    pub(crate) stored_position: usize,
    /// The newest mark by which something here is thinned.
    pub(crate) newest_mark: usize,
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
            log: BTreeMap::new(),
            unsynced: BTreeSet::new(),
            packs: Vec::new(),
            candidate: None,
            rotten: BTreeSet::new(),
            clean: 0,
            position: 0,
            stored_position: 0,
            newest_mark: 0,
            is_full: false,
            clock_offset,
            slowness,
        }
    }

    /// Everything that it has, by number.
    pub(crate) fn parts(&self) -> Vec<LogPart> {
        let mut parts: Vec<LogPart> =
            self.packs.iter().flat_map(|pack| &pack.parts).chain(self.log.values()).cloned().collect();
        parts.sort_by_key(LogPart::first);
        parts
    }

    pub(crate) fn part_of(&self, number: u64) -> Option<LogPart> {
        let has = |part: &&LogPart| (part.first()..=part.last()).contains(&number);
        self.packs.iter().flat_map(|pack| &pack.parts).chain(self.log.values()).find(has).cloned()
    }

    pub(crate) fn pack_of(&self, number: u64) -> Option<&PackContent> {
        self.packs.iter().find(|pack| (pack.name.first..=pack.name.last).contains(&number))
    }

    /// The last number before the first hole.
    pub(crate) fn whole_upto(&self) -> u64 {
        let mut upto = 0;
        for part in self.parts() {
            if part.first() > upto + 1 {
                break;
            }
            upto = upto.max(part.last());
        }
        upto
    }

    /// The largest number.
    pub(crate) fn last(&self) -> u64 {
        let packed = self.packs.iter().map(|pack| pack.name.last).max().unwrap_or(0);
        self.log.last_key_value().map_or(0, |(_, part)| part.last()).max(packed)
    }

    pub(crate) fn add(&mut self, part: LogPart) {
        self.unsynced.insert(part.first());
        self.log.insert(part.first(), part);
    }

    /// Drops what a pack has.
    pub(crate) fn drop_packed(&mut self, name: PackName) {
        let is_in = |number: u64| (name.first..=name.last).contains(&number);
        self.log.retain(|first, _| !is_in(*first));
        self.unsynced.retain(|first| !is_in(*first));
        self.rotten.retain(|number| !is_in(*number));
        self.packs.retain(|pack| !is_in(pack.name.first));
    }

    /// Counts a pack in place of the records and packs that it was made of.
    pub(crate) fn adopt(&mut self, pack: PackContent) {
        self.drop_packed(pack.name);
        self.newest_mark = self.newest_mark.max(pack.name.mark.0 as usize);
        self.packs.push(pack);
    }

    pub(crate) fn discard_above(&mut self, number: u64) {
        self.log.retain(|_, part| part.last() <= number);
        self.unsynced.retain(|first| *first <= number);
        self.rotten.retain(|rotten| *rotten <= number);
        self.packs.retain(|pack| pack.name.last <= number);
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
        self.log.retain(|first, _| !lost.contains(first));
        self.candidate = self.candidate.take().filter(|candidate| candidate.is_synced);
        self.position = self.stored_position;
        self.clean = self.clean.min(self.whole_upto());
    }
}
