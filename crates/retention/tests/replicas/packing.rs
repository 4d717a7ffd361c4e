//! When a member packs, damage, reads, and the end of a run.

use frieze_base::{ChainEpoch, InodeId, LogIndex};
use frieze_hlc::Hlc;
use frieze_retention::{
    DroppedRun, InstantAnswer, LogPart, PackContent, PackName, RecordExtent, RetentionError, answer_at,
};

use crate::breakage::RetentionBreak as Break;
use crate::judge::state;
use crate::names::{FILES, NamesEntry};
use crate::node::{NodeRole, PackCandidate};
use crate::world::{NODES, ReplicaWorld};

impl ReplicaWorld {
    /// The orders that a server has executed.
    fn orders(&self, position: usize) -> Vec<PackName> {
        let committed = self.names.entries.iter().map(|(_, entry)| entry);
        let proposed = self.proposed.iter().filter(|_| self.is(Break::MarkUncommitted));
        let position = if self.is(Break::MarkUncommitted) { usize::MAX } else { position };
        let numbered = (1..).zip(committed.chain(proposed)).take_while(|(place, _)| *place <= position);
        numbered
            .filter_map(|(place, entry)| match *entry {
                NamesEntry::Pack(first, last) => Some(PackName { first, last, mark: LogIndex(place as u64) }),
                _ => None,
            })
            .collect()
    }

    /// Makes the pack of one of the orders, if the server is ready for it.
    pub(crate) fn start_pack(&mut self, node: usize) {
        let orders = self.orders(self.nodes[node].position);
        if orders.is_empty() {
            return;
        }
        // Mostly one that no newer order makes useless.
        let overlap = |a: &PackName, b: &PackName| a.first <= b.last && b.first <= a.last;
        let is_packed = |order: &PackName| self.nodes[node].packs.iter().any(|pack| pack.name == *order);
        let is_newest =
            |order: &&PackName| !orders.iter().any(|other| other.mark > order.mark && overlap(other, order));
        let newest: Vec<PackName> =
            orders.iter().filter(is_newest).filter(|order| !is_packed(order)).copied().collect();
        let choices = if newest.is_empty() || self.rng.chance(5) { &orders } else { &newest };
        let name = *self.rng.choose(choices);
        if let Some(candidate) = &self.nodes[node].candidate {
            let made = candidate.made.name;
            let overlaps =
                |name: &PackName| name.mark > made.mark && name.first <= made.last && made.first <= name.last;
            if orders.iter().any(overlaps) && self.rng.chance(3) {
                // A newer order makes it useless: the others may have skipped it.
                self.nodes[node].candidate = None;
            }
        }
        let this = &self.nodes[node];
        let may_pack = match this.role {
            NodeRole::Member | NodeRole::Removed { .. } => true,
            NodeRole::Syncing { .. } => self.is(Break::PackedWhileSyncing),
            NodeRole::Out => false,
        };
        let is_clean = this.clean >= name.last || self.is(Break::PackedDirty) || self.is(Break::PackedWhileSyncing);
        let is_synced = this.unsynced.range(..=name.last).next().is_none();
        let is_new = this.newest_mark <= name.mark.0 as usize || self.is(Break::PackedOlderOrder);
        let is_done = this
            .packs
            .iter()
            .any(|pack| pack.name == name || pack.name.first < name.first && pack.name.last >= name.first)
            || this.packs.iter().any(|pack| pack.name.first <= name.last && pack.name.last > name.last);
        let is_rotten = this.rotten.range(name.first..=name.last).next().is_some();
        let is_busy = this.candidate.is_some() || !this.is_up || this.last() < name.last;
        if is_busy || !may_pack || !is_clean || !is_synced || !is_new || is_done {
            return;
        }
        if is_rotten && !self.is(Break::RottenPacked) {
            return self.reach("packs that wait for a record to be mended");
        }
        let parts = this.parts().into_iter().filter(|part| (name.first..=name.last).contains(&part.first()));
        let parts: Vec<LogPart> = parts.collect();
        let at = match self.is(Break::PackOfNow) {
            true => LogIndex(self.nodes[node].position as u64),
            false => name.mark,
        };
        let made = match self.made(PackName { mark: at, ..name }, &parts) {
            Ok(made) => made,
            Err(error) if self.is(Break::PackedWhileSyncing) || self.is(Break::PackedDirty) => {
                _ = error;
                match self.made(name, &filled(name, &parts)) {
                    Ok(made) => made,
                    Err(_) => return,
                }
            }
            Err(error) => return self.judge.fail(format!("server {node} cannot make {name:?}: {error}")),
        };
        let mut made = PackContent { name, ..made };
        self.breaks(&mut made, is_rotten);
        let mut written = made.clone();
        if self.nodes[node].is_full {
            self.reach("packs that met a full disk");
            if !self.is(Break::CutPackCounts) {
                return;
            }
            written.parts.truncate(written.parts.len() / 2);
        } else if self.rng.chance(20) {
            // The disk has not what was written, and says nothing.
            written.parts.pop();
        }
        if self.is(Break::DroppedBeforeSync) {
            self.nodes[node].drop_packed(name);
        }
        let candidate = PackCandidate { made, written, is_synced: false, is_read_back: false };
        self.nodes[node].candidate = Some(candidate);
    }

    /// The pack of some parts, as of its mark. What is not committed, a broken member takes for committed.
    fn made(&self, name: PackName, parts: &[LogPart]) -> Result<PackContent, RetentionError> {
        let position = name.mark.0 as usize;
        let truncates = match self.is(Break::TruncatesIgnored) {
            true => &self.names.truncates[0],
            false => &self.names.truncates[position.min(self.names.end())],
        };
        let mut made = if position <= self.names.end() {
            PackContent::make(name, parts, &self.names.pack_table(position), truncates)?
        } else {
            let mut table = self.names.tables[self.names.end()].clone();
            for entry in &self.proposed {
                if let NamesEntry::Retain(entry) = entry {
                    let _ = table.apply(entry);
                }
            }
            PackContent::make(name, parts, &table, truncates)?
        };
        if self.is(Break::RunsSpanEpochs) {
            let mut spanned: Vec<LogPart> = Vec::new();
            for part in made.parts {
                match (spanned.last_mut(), part) {
                    (Some(LogPart::Dropped(before)), LogPart::Dropped(run)) => {
                        let deaths = before.deaths.union(&run.deaths).copied().collect();
                        *before = DroppedRun { first: before.first, deaths, ..run };
                    }
                    (_, part) => spanned.push(part),
                }
            }
            made.parts = spanned;
        }
        Ok(made)
    }

    /// Faults of the member or its memory.
    fn breaks(&mut self, made: &mut PackContent, is_rotten: bool) {
        let last_record = made.parts.iter().rposition(|part| matches!(part, LogPart::Record(_)));
        let first_run = made.parts.iter().position(|part| matches!(part, LogPart::Dropped(_)));
        let is_flipped = self.flips_left > 0 && self.rng.chance(3);
        let drops = self.is(Break::OneTooFew) || is_rotten || is_flipped;
        if let Some(place) = last_record.filter(|_| drops) {
            let LogPart::Record(RecordExtent { number, stamp, epoch, .. }) = made.parts[place] else { unreachable!() };
            let run = DroppedRun { first: number, last: number, stamp, epoch, deaths: Default::default() };
            made.parts[place] = LogPart::Dropped(run);
            if is_flipped {
                self.flips_left -= 1;
                self.flipped.insert(made.name);
                self.reach("packs that a fault of memory changed");
            }
        }
        if let Some(place) = first_run.filter(|_| self.is(Break::OneTooMany))
            && let LogPart::Dropped(run) = &made.parts[place]
            && run.first == run.last
        {
            made.parts[place] = LogPart::Record(self.judge.truth[run.first as usize - 1]);
        }
    }

    /// Reads a synced pack back and reports its hash.
    pub(crate) fn read_back(&mut self, node: usize) {
        let skips = self.is(Break::DroppedBeforeReadBack) || self.is(Break::CutPackCounts);
        let this = &mut self.nodes[node];
        let Some(candidate) = this.candidate.as_mut().filter(|candidate| this.is_up && candidate.is_synced) else {
            return;
        };
        if candidate.written != candidate.made && !skips {
            this.candidate = None;
            return self.reach("packs that the disk had changed");
        }
        candidate.is_read_back = true;
        let made = candidate.made.clone();
        let name = made.name;
        let reports = self.reports.entry(name).or_default();
        if reports.values().any(|other| *other != made) && !self.flipped.contains(&name) {
            self.judge.fail(format!("two members made different packs {name:?}"));
        }
        self.reports.entry(name).or_default().insert(node, made);
    }

    /// Counts a pack and drops what it was made of, once another member has reported the same and none another one.
    pub(crate) fn count_pack(&mut self, node: usize) {
        let this = &self.nodes[node];
        let Some(candidate) = this.candidate.as_ref().filter(|candidate| this.is_up && candidate.is_read_back) else {
            return;
        };
        let reports = &self.reports[&candidate.made.name];
        let same = reports.values().filter(|other| **other == candidate.made).count();
        if (same < 2 || same < reports.len()) && !self.is(Break::HashesIgnored) {
            return;
        }
        let written = candidate.written.clone();
        self.nodes[node].candidate = None;
        self.adopt(node, written);
        self.reach("packs that count");
    }

    /// A member whose pack differs from those of two others makes it anew.
    pub(crate) fn resolve_alarms(&mut self) {
        for (name, reports) in &mut self.reports {
            let majority = reports.values().find(|one| reports.values().filter(|other| other == one).count() >= 2);
            let Some(majority) = majority.cloned() else { continue };
            let others: Vec<usize> =
                reports.iter().filter(|(_, made)| **made != majority).map(|(node, _)| *node).collect();
            for node in others {
                reports.remove(&node);
                let candidate = &mut self.nodes[node].candidate;
                *candidate = candidate.take().filter(|candidate| candidate.made.name != *name);
                *self.reached.entry("alarms that a majority resolved").or_default() += 1;
            }
        }
    }

    /// A pack counts at a server. It has to be the one that all committed records give.
    pub(crate) fn adopt(&mut self, node: usize, pack: PackContent) {
        let name = pack.name;
        if name.mark.0 as usize > self.names.end() {
            self.judge.fail(format!("server {node} counts a pack of a mark that is not committed"));
            return;
        }
        // Of a broken format the judge sees only what it leads to.
        let expected = match self.is(Break::RunsSpanEpochs) {
            true => self.made(name, &self.judge.parts(name.first, name.last)),
            false => {
                let at = name.mark.0 as usize;
                let (table, truncates) = (&self.names.tables[at], &self.names.truncates[at]);
                PackContent::make(name, &self.judge.parts(name.first, name.last), table, truncates)
            }
        };
        if expected.as_ref() != Ok(&pack) {
            self.judge.fail(format!("server {node} counts {pack:?}, and all records give {expected:?}"));
        }
        self.nodes[node].adopt(pack);
    }

    /// A record fails its checksum from now on. Another member has it.
    pub(crate) fn rot(&mut self, node: usize) {
        let is_first = self.nodes.iter().all(|node| node.rotten.is_empty());
        let records: Vec<u64> = self.nodes[node].log.values().filter_map(record_number).collect();
        if self.chain.len() > 1 && self.chain.contains(&node) && is_first && !records.is_empty() {
            let number = *self.rng.choose(&records);
            if number <= self.committed() {
                self.nodes[node].rotten.insert(number);
            }
        }
    }

    /// Another member gives the record, or the pack that has taken its place.
    pub(crate) fn mend(&mut self, node: usize) {
        let Some(&number) = self.nodes[node].rotten.first() else { return };
        let Some(&other) = self.chain.iter().find(|other| **other != node) else { return };
        match self.nodes[other].part_of(number) {
            Some(LogPart::Record(_)) => _ = self.nodes[node].rotten.remove(&number),
            Some(LogPart::Dropped(_)) => {
                let pack = self.nodes[other].pack_of(number).cloned();
                let this = &self.nodes[node];
                let fits = |pack: &PackContent| {
                    this.position >= pack.name.mark.0 as usize
                        && this.clean >= pack.name.last
                        && this.candidate.is_none()
                };
                if let Some(pack) = pack.filter(fits) {
                    self.adopt(node, pack);
                    self.reach("records that a pack of another member mended");
                }
            }
            None => {}
        }
    }

    /// Reads at some instants, at a server that may or may not answer them.
    pub(crate) fn read(&mut self, node: usize) {
        if !self.may_serve(node) {
            return;
        }
        let parts = self.nodes[node].parts();
        for _ in 0..10 {
            let inode = InodeId(1 + self.rng.below(FILES));
            let at = self.instant(inode);
            self.read_at(node, &parts, inode, at);
        }
    }

    fn may_serve(&self, node: usize) -> bool {
        let this = &self.nodes[node];
        let is_current = this.position >= this.newest_mark || self.is(Break::ServesBehindMark);
        this.role == NodeRole::Member && this.is_up && this.clean >= self.closed.1 && is_current
    }

    fn read_at(&mut self, node: usize, parts: &[LogPart], inode: InodeId, at: Hlc) {
        let this = &self.nodes[node];
        let position = this.position;
        let names_closed = self.names.entries.get(position).is_none_or(|(stamp, _)| *stamp > at);
        if !names_closed || at > self.closed.0 {
            return;
        }
        let (table, truncates) = (&self.names.tables[position], &self.names.truncates[position]);
        let answer = match self.is(Break::ExactByPresence) {
            true => {
                let runs: Vec<LogPart> = parts.iter().filter(|part| record(part).is_none()).cloned().collect();
                answer_at(table, truncates, inode, at, &runs)
            }
            false => answer_at(table, truncates, inode, at, parts),
        };
        let shown = state(parts.iter().filter_map(record), truncates, inode, at);
        let is_rotten = shown.iter().any(|number| this.rotten.contains(number));
        let is_exact = answer == InstantAnswer::Exact;
        let expected = self.judge.is_exact(&self.names, inode, at, position);
        if is_exact != expected {
            let (first, last) = (parts.first().map(LogPart::first), parts.last().map(LogPart::last));
            let words =
                format!("server {node} at {position} says {answer:?} of {inode} at {at}, parts {first:?} to {last:?}");
            self.judge.fail(words);
        }
        self.judge.note(inode, at, position, is_exact);
        if !is_exact {
            return self.reach("instants that were refused");
        }
        let all = self.judge.state(&self.names, inode, at);
        if shown != all && !is_rotten {
            self.judge.fail(format!("server {node} at {position} shows {shown:?} of {inode} at {at}, not {all:?}"));
        }
        if position + 3 < self.names.end() {
            self.reach("answers by a member behind the log");
        }
        let is_kept = self.judge.is_kept(inode, at, position);
        self.reach(if is_kept { "kept instants that were read" } else { "instants between that were exact" });
    }

    /// Faults stop: every server has to come to the same, and to what the rules leave.
    pub(crate) fn end(&mut self) {
        self.proposed.clear();
        for node in 0..NODES {
            self.nodes[node].is_full = false;
            if let NodeRole::Removed { .. } = self.nodes[node].role {
                self.nodes[node].role = NodeRole::Out;
            }
        }
        self.flips_left = 0;
        self.settle();
        let committed = self.committed();
        if committed == 0 || !self.judge.violations.is_empty() {
            return;
        }
        let closed = self.closed.0;
        let due = self.names.tables[self.names.end()].marks_due(closed);
        let marks = due.into_iter().map(|mark| NamesEntry::Retain(frieze_retention::RetentionEntry::Mark(mark)));
        let order = NamesEntry::Pack(1, committed);
        self.append(marks.chain([order]).collect());
        let name = PackName { first: 1, last: committed, mark: LogIndex(self.names.end() as u64) };
        for round in 0.. {
            self.settle();
            let is_packed = |node: &usize| self.nodes[*node].packs.iter().any(|pack| pack.name == name);
            if self.chain.len() == 3 && self.chain.iter().all(is_packed) || !self.judge.violations.is_empty() {
                break;
            }
            if round == 400 {
                return self.judge.fail(format!("{name:?} does not count everywhere: {:?}", self.chain));
            }
        }
        for node in self.chain.clone() {
            let parts = self.nodes[node].parts();
            for place in 0..committed as usize {
                let RecordExtent { stamp, inode, .. } = self.judge.truth[place];
                self.read_at(node, &parts, inode, stamp);
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
                self.start_pack(node);
                self.nodes[node].sync();
                self.read_back(node);
                self.count_pack(node);
            }
            self.resolve_alarms();
            self.drain();
        }
    }
}

fn record(part: &LogPart) -> Option<&RecordExtent> {
    match part {
        LogPart::Record(record) => Some(record),
        LogPart::Dropped(_) => None,
    }
}

fn record_number(part: &LogPart) -> Option<u64> {
    record(part).map(|record| record.number)
}

/// The parts of a member that takes what is missing for dropped.
fn filled(name: PackName, parts: &[LogPart]) -> Vec<LogPart> {
    let mut filled = Vec::new();
    let mut next = name.first;
    for part in parts.iter().filter(|part| part.last() <= name.last) {
        if part.first() > next {
            filled.push(missing(next, part.first() - 1));
        }
        next = part.last() + 1;
        filled.push(part.clone());
    }
    if next <= name.last {
        filled.push(missing(next, name.last));
    }
    filled
}

fn missing(first: u64, last: u64) -> LogPart {
    let deaths = Default::default();
    LogPart::Dropped(DroppedRun { first, last, stamp: Hlc::ZERO, epoch: ChainEpoch(0), deaths })
}
