//! What dies at a member and when it packs, damage, reads, and the end of a run.

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::InodeId;
use frieze_hlc::Hlc;
use frieze_retention::RetentionTable;

use crate::breakage::RetentionBreak as Break;
use crate::common::{InstantAnswer, RecordExtent, TruncateList, answer_at, dead_numbers};
use crate::judge::state;
use crate::names::{FILES, NamesEntry};
use crate::node::{ModelPack, NodeRole, PackCandidate, RecordBytes};
use crate::world::{NODES, ReplicaWorld};

impl ReplicaWorld {
    /// Policies, marks and pins by which records die at a position of the log.
    fn rules_at(&self, position: usize) -> (RetentionTable, TruncateList) {
        let mut table = self.names.pass_table(position);
        if self.is(Break::MarkUncommitted) {
            for entry in &self.proposed {
                if let NamesEntry::Retain(entry) = entry {
                    let _ = table.apply(entry);
                }
            }
        }
        (table, self.names.truncates[position].clone())
    }

    /// The dead of the index, by file and epoch.
    fn dead_in(&self, node: usize, position: usize) -> Vec<Vec<u64>> {
        let (table, truncates) = self.rules_at(position);
        let records: Vec<RecordExtent> = self.nodes[node].index().values().map(|entry| entry.extent).collect();
        // Above the marks nothing dies, not even what a group covers of itself.
        let of_file = |inode| {
            let kept = table.kept_set(inode);
            let below: Vec<RecordExtent> =
                records.iter().filter(|record| record.stamp <= kept.end()).copied().collect();
            dead_numbers(&below, &kept, &truncates, inode)
        };
        (1..=FILES).map(InodeId).flat_map(|inode| of_file(inode).into_values()).collect()
    }

    /// Finds what is dead by what the server has executed, and frees some of it.
    pub(crate) fn pass(&mut self, node: usize) {
        // Without a lease some records may not be the chain's: nothing dies by them.
        let has_lease = matches!(self.nodes[node].role, NodeRole::Member | NodeRole::Syncing { .. })
            || self.is(Break::DiesWithoutLease);
        if !self.nodes[node].is_up || !has_lease {
            return;
        }
        let position = self.nodes[node].position;
        let epochs = self.dead_in(node, position);
        let all: BTreeSet<u64> = epochs.iter().flatten().copied().collect();
        let frees = !self.rng.chance(3);
        let drops_all = self.is(Break::IndexWithoutDead);
        let (is_noted, is_stored) = (!self.is(Break::ExpiriesNotNoted), !self.is(Break::ExpiriesNotStored));
        let this = &mut self.nodes[node];
        if all.is_subset(&this.dead) {
            return;
        }
        // The names are flushed first, and what was executed is noted, durably.
        if is_noted && is_stored {
            this.expired = this.expired.max(position);
        } else if is_noted {
            this.unstored_expired = position;
        }
        this.dead.extend(&all);
        for number in &all {
            let is_packed = this.packs.iter().any(|pack| pack.has(*number));
            if let Some(record) = this.records.get_mut(number).filter(|_| frees && !is_packed) {
                record.bytes = RecordBytes::Freed;
            }
        }
        for dead in epochs {
            let newest = dead.iter().max().copied().filter(|_| !drops_all);
            this.unindexed.extend(dead.into_iter().filter(|number| Some(*number) != newest));
        }
        self.reach("passes that found something dead");
    }

    /// Makes a pack of some of what is committed, synced and old.
    pub(crate) fn start_pack(&mut self, node: usize) {
        let this = &self.nodes[node];
        let may_pack = matches!(this.role, NodeRole::Member | NodeRole::Removed { .. });
        if !this.is_up || !may_pack || this.candidate.is_some() {
            return;
        }
        let clean = if self.is(Break::PackedDirty) { this.last() } else { this.clean };
        let old = this.records.values().filter(|record| record.extent.stamp <= self.closed.0).count() as u64;
        let old = if self.is(Break::PackedDirty) { clean } else { old };
        let synced = this.unsynced.first().map_or(u64::MAX, |number| number - 1);
        let upto = clean.min(old).min(synced).min(this.whole_upto());
        let mut packs: Vec<(u64, u64)> = this.packs.iter().map(|pack| (pack.first, pack.last)).collect();
        packs.sort_unstable();
        let packed = packs.last().map_or(0, |(_, last)| *last);
        let firsts: Vec<u64> = packs.iter().map(|(first, _)| *first).chain([packed + 1]).collect();
        let first = *self.rng.choose(&firsts);
        let last = match self.rng.chance(2) || upto <= packed {
            true => match packs.iter().filter(|(start, _)| *start >= first).map(|(_, last)| *last).max() {
                Some(last) => last,
                None => return,
            },
            false => self.rng.between(packed + 1, upto),
        };
        if last < first || last > upto.max(packed) {
            return;
        }
        let this = &self.nodes[node];
        if this.rotten.range(first..=last).next().is_some() && !self.is(Break::RottenPacked) {
            return self.reach("packs that wait for a record to be mended");
        }
        let index = this.index();
        // One dead record of each epoch stays.
        let mut newest_dead: BTreeMap<(InodeId, Hlc), u64> = BTreeMap::new();
        let table = self.names.pass_table(this.position);
        let mut made = ModelPack { first, last, ..ModelPack::default() };
        for (number, entry) in index.range(first..=last) {
            if entry.is_dead {
                let upto = table.kept_set(entry.extent.inode).first_at_or_above(entry.extent.stamp);
                newest_dead.insert((entry.extent.inode, upto), *number);
            } else if entry.has_bytes || entry.is_hole {
                made.live.insert(*number, (entry.extent, entry.is_hole));
            } else {
                // It was freed before a start, and is not found dead yet.
                return self.reach("packs that wait until the dead are known");
            }
        }
        if !self.is(Break::PackWithoutDead) {
            made.dead = newest_dead.into_values().map(|number| (number, index[&number].extent)).collect();
        }
        if self.is(Break::OneTooFew) {
            made.live.pop_last();
        }
        // What fails its checksum is none of it.
        made.live.retain(|number, _| !self.nodes[node].rotten.contains(number));
        let mut written = made.clone();
        if self.nodes[node].is_full {
            self.reach("packs that met a full disk");
            if !self.is(Break::CutPackCounts) {
                return;
            }
            written.live.pop_last();
        } else if self.rng.chance(20) {
            // The disk has not what was written, and says nothing.
            written.live.pop_last();
        }
        if self.is(Break::DroppedBeforeSync) {
            self.nodes[node].drop_bytes(&made);
        }
        self.nodes[node].candidate = Some(PackCandidate { made, written, is_synced: false });
    }

    /// Reads a synced pack back and lists it.
    pub(crate) fn list_pack(&mut self, node: usize) {
        let skips = self.is(Break::ListedBeforeReadBack) || self.is(Break::CutPackCounts);
        let this = &mut self.nodes[node];
        if !this.is_up || !this.candidate.as_ref().is_some_and(|candidate| candidate.is_synced) {
            return;
        }
        let PackCandidate { made, written, .. } = this.candidate.take().expect("it is synced");
        if made != written && !skips {
            return self.reach("packs that the disk had changed");
        }
        // What died meanwhile stays known in memory.
        this.list_pack(written);
        self.reach("packs that count");
    }

    /// A record fails its checksum from now on. Another member has it.
    pub(crate) fn rot(&mut self, node: usize) {
        let is_first = self.nodes.iter().all(|node| node.rotten.is_empty());
        let this = &self.nodes[node];
        let is_here = |number: &u64| this.pack_of(*number).is_none() && this.records[number].bytes == RecordBytes::Here;
        let records: Vec<u64> = this.records.keys().copied().filter(is_here).collect();
        if self.chain.len() > 1 && self.chain.contains(&node) && is_first && !records.is_empty() {
            let number = *self.rng.choose(&records);
            if number <= self.committed() {
                self.nodes[node].rotten.insert(number);
            }
        }
    }

    /// Another member gives the record, or it has died.
    pub(crate) fn mend(&mut self, node: usize) {
        let Some(&number) = self.nodes[node].rotten.first() else { return };
        let has = |other: &&usize| {
            **other != node && self.nodes[**other].index().get(&number).is_some_and(|entry| entry.has_bytes)
        };
        if self.nodes[node].dead.contains(&number) || self.chain.iter().any(|other| has(&other)) {
            self.nodes[node].rotten.remove(&number);
        }
    }

    /// Reads at some instants, at a server that may or may not answer them.
    pub(crate) fn read(&mut self, node: usize) {
        let this = &self.nodes[node];
        let is_member = this.role == NodeRole::Member && this.is_up && this.clean >= self.closed.1;
        if !is_member {
            return;
        }
        if this.position < this.expired.max(this.unstored_expired) && !self.is(Break::ServesBehindExpiries) {
            return self.reach("reads that wait for the names");
        }
        for _ in 0..10 {
            let inode = InodeId(1 + self.rng.below(FILES));
            let at = self.instant(inode);
            self.read_at(node, inode, at);
        }
    }

    fn read_at(&mut self, node: usize, inode: InodeId, at: Hlc) {
        let this = &self.nodes[node];
        let position = this.position;
        let names_closed = self.names.entries.get(position).is_none_or(|(stamp, _)| *stamp > at);
        if !names_closed || at > self.closed.0 {
            return;
        }
        let (table, truncates) = (&self.names.tables[position], &self.names.truncates[position]);
        let (index, kept) = (this.index(), table.kept_set(inode));
        let records: Vec<RecordExtent> = index.values().map(|entry| entry.extent).collect();
        let answer = match self.is(Break::ExactByPresence) {
            true => {
                let epoch = kept.epoch_of(at);
                let within = |stamp: Hlc| epoch.after.is_none_or(|after| stamp > after) && stamp <= epoch.upto;
                let is_dead = |number: &u64| {
                    let entry = &index[number];
                    entry.is_dead && entry.extent.inode == inode && within(entry.extent.stamp)
                };
                let has_dead = !kept.is_kept(at) && index.keys().any(is_dead);
                if has_dead { InstantAnswer::Thinned(epoch) } else { InstantAnswer::Exact }
            }
            false if self.is(Break::TruncatesIgnored) => answer_at(&kept, &TruncateList::new(), inode, at, &records),
            false => answer_at(&kept, truncates, inode, at, &records),
        };
        let live = index.values().filter(|entry| !entry.is_dead);
        let painted: Vec<RecordExtent> = live.map(|entry| entry.extent).collect();
        let shown = state(painted.iter(), truncates, inode, at);
        let is_rotten = shown.iter().any(|number| this.rotten.contains(number));
        let lost = shown.iter().find(|number| **number != 0 && !index[number].has_bytes).copied();
        let is_exact = answer == InstantAnswer::Exact;
        let expected = self.judge.is_exact(&self.names, inode, at, position);
        if is_exact != expected {
            self.judge.fail(format!("server {node} at {position} says {answer:?} of {inode} at {at}"));
        }
        self.judge.note(inode, at, position, is_exact);
        if !is_exact {
            return self.reach("instants that were refused");
        }
        let all = self.judge.state(&self.names, inode, at);
        if let Some(number) = lost {
            self.judge.fail(format!("server {node} at {position} has no bytes of {number}, of {inode} at {at}"));
        } else if shown != all && !is_rotten {
            self.judge.fail(format!("server {node} at {position} shows {shown:?} of {inode} at {at}, not {all:?}"));
        }
        if position + 3 < self.names.end() {
            self.reach("answers by a member behind the log");
        }
        let is_kept = self.judge.is_kept(inode, at, position);
        self.reach(if is_kept { "kept instants that were read" } else { "instants between that were exact" });
    }

    /// Faults stop: every server has to come to what the rules leave.
    pub(crate) fn end(&mut self) {
        self.proposed.clear();
        for node in 0..NODES {
            self.nodes[node].is_full = false;
            if let NodeRole::Removed { .. } = self.nodes[node].role {
                self.nodes[node].role = NodeRole::Out;
            }
        }
        self.settle();
        let committed = self.committed();
        if committed == 0 || !self.judge.violations.is_empty() {
            return;
        }
        let closed = self.closed.0;
        let due = self.names.tables[self.names.end()].marks_due(closed);
        let marks = due.into_iter().map(|mark| NamesEntry::Retain(frieze_retention::RetentionEntry::Mark(mark)));
        self.append(marks.collect());
        for round in 0.. {
            self.settle();
            let is_packed = |node: &usize| self.nodes[*node].packs.iter().any(|pack| pack.last == committed);
            if self.chain.len() == 3 && self.chain.iter().all(is_packed) || !self.judge.violations.is_empty() {
                break;
            }
            if round == 400 {
                return self.judge.fail(format!("not everything is packed everywhere: {:?}", self.chain));
            }
        }
        for node in self.chain.clone() {
            self.pass(node);
            for place in 0..committed as usize {
                let RecordExtent { stamp, inode, .. } = self.judge.truth[place];
                self.read_at(node, inode, stamp);
            }
        }
    }

    /// Whatever is under way comes to an end.
    fn settle(&mut self) {
        for _ in 0..4 {
            for node in 0..NODES {
                self.nodes[node].position = self.names.end();
                self.mend(node);
                self.rejoin(node);
                self.supply(node);
                self.nodes[node].sync();
                self.pass(node);
                self.start_pack(node);
                self.nodes[node].sync();
                self.list_pack(node);
            }
            self.drain();
        }
    }
}
