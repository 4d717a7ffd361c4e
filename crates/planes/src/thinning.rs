//! Instants that policies of retention do not keep: whether something died there, and which records did.
//!
//! Guarantees: what died is a matter of the rule, not of what is still on disk, so an answer is the same before and
//! after reclaiming and a restart. A record survives if it is newest for a byte between two kept instants.
//! Leaves to others: which instants are kept (`namespace`, `retention`), freeing space (`service`).
//!
//! Bytes are compared chunk by chunk, since a chunk is on one chain: what another chunk's record covers beyond its end
//! counts for neither. Truncates, holes and shared ranges cover what is older.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use frieze_base::{ByteRange, ChainId, Fault, InodeId, Reason};
use frieze_hlc::{Hlc, format_instant};
use frieze_multilog::{DeadRecord, FileRecord};
use frieze_namespace::{Inode, InodeRetention, MAY_EXECUTE, MAY_READ, NoReadSet};
use frieze_retention::{GridPeriod, KeptSet, RANGES_MAX, RetentionEpoch, RetentionPolicy, surviving_records};
use frieze_wire::message::View;
use frieze_wire::retention::{RetainedClass, RetainedInstant, Retention, RetentionPreview, RetentionReply};
use frieze_wire::txn::Caller;

use crate::gc_state::{DeadRecords, Needs};
use crate::planes::Planes;
use crate::principal::Principal;

/// Entries of a directory that are read at once.
const PAGE: usize = 4096;

/// What changes of names cover in an epoch: stamp, and bytes of the file.
type Covers = Vec<(Hlc, ByteRange)>;

impl Planes {
    /// Refuses an instant of a file that policies do not keep, if something between its neighbours that they keep has
    /// died.
    ///
    /// # Errors
    /// `HistoryExpired`, with both neighbours: final. Those of the store and of the device.
    ///
    /// # Cost
    /// None while no file has a policy, or for a kept instant; else the records between the neighbours.
    pub fn check_exact(&self, id: InodeId, at: Hlc) -> Result<(), Fault> {
        self.check_exact_called(id, at, format!("inode {id}").as_bytes())
    }

    /// As [`Planes::check_exact`], and the words name `path`: the caller has to be allowed to know it.
    ///
    /// # Errors
    /// As [`Planes::check_exact`].
    pub fn check_exact_called(&self, id: InodeId, at: Hlc, path: &[u8]) -> Result<(), Fault> {
        let Some(epoch) = self.thinned_to(id, at)? else { return Ok(()) };
        if self.meta.is_removal_expired(id) {
            let (what, at) = (String::from_utf8_lossy(path), format_instant(at));
            let words =
                format!("{what} was removed, and its policy of retention keeps no instant that shows it: not {at}");
            return Err(Fault::new(Reason::HistoryExpired, words));
        }
        Err(thinned(&String::from_utf8_lossy(path), at, epoch))
    }

    /// The kept instants on both sides of one that is not known exactly; `None` if it is.
    ///
    /// # Errors
    /// Those of the store and of the device.
    pub fn thinned_to(&self, id: InodeId, at: Hlc) -> Result<Option<RetentionEpoch>, Fault> {
        let Some(epoch) = self.stretch_of(id, at)? else { return Ok(None) };
        Ok(self.has_death(id, epoch)?.then_some(epoch))
    }

    /// The kept instants on both sides of one that is not kept; without one before the file was made.
    fn stretch_of(&self, id: InodeId, at: Hlc) -> Result<Option<RetentionEpoch>, Fault> {
        let Some(epoch) = self.meta.thinned_epoch(id, at)? else { return Ok(None) };
        let born = self.version_at_end(id, epoch)?.map_or(Hlc::MAX, |inode| inode.born);
        Ok(Some(RetentionEpoch { after: epoch.after.filter(|after| *after >= born), ..epoch }))
    }

    /// The policy of a file or directory, what was thinned, and whether an instant of it is known exactly.
    ///
    /// # Errors
    /// As [`Planes::resolve`]; those of the store and of the device.
    pub fn retention(&self, principal: &Principal, ask: &Retention) -> Result<RetentionReply, Fault> {
        let at = (ask.at != 0).then_some(Hlc(ask.at));
        at.map_or(Ok(()), |at| self.answer(View::exact(at)).map(drop))?;
        // What had the name at the instant; if nothing had, what has it now.
        let found = match self.meta.resolve(&ask.target, at, &principal.caller, &NoReadSet) {
            Err(fault) if fault.reason == Reason::NotFound && at.is_some() => {
                self.meta.resolve(&ask.target, None, &principal.caller, &NoReadSet)?
            }
            found => found?,
        };
        let InodeRetention { policy, thinning } = self.meta.retention_of(&self.meta.inode(found.id, None)?);
        let mut reply = RetentionReply {
            policy: policy.map_or(String::new(), |policy| policy.to_string()),
            as_of: self.newest().0,
            ..RetentionReply::default()
        };
        for period in GridPeriod::all().map(Some).chain([None]) {
            let below = thinning.mark(period).0;
            if below > 0 {
                let period = period.map_or("none".to_owned(), |period| period.to_string());
                reply.classes.push(RetainedClass { period, below, ..RetainedClass::default() });
            }
        }
        if !ask.preview.is_empty() {
            if principal.caller.uid != 0 && principal.caller.uid != found.inode.uid {
                let words = "only the owner of a file or directory, or the superuser, learns what a policy would keep";
                return Err(Fault::new(Reason::NotPermitted, words));
            }
            reply.preview = Some(self.preview(&principal.caller, found.id, &ask.preview.parse()?, &|| true)?);
        }
        if let Some(at) = at {
            let thinned = self.stretch_of(found.id, at)?;
            let ends = thinned.unwrap_or(RetentionEpoch { after: Some(at), upto: at });
            let is_exact = thinned.map_or(Ok(true), |epoch| self.has_death(found.id, epoch).map(|dead| !dead))?;
            let before = ends.after.map_or(0, |after| after.0);
            reply.instant = Some(RetainedInstant { at: at.0, is_exact, before, after: ends.upto.0 });
        }
        Ok(reply)
    }

    /// What a policy would keep of the files below, if they got it now; without directories that the caller may not
    /// list. Once `goes_on` is false, of those that were looked at.
    ///
    /// # Errors
    /// Those of the store and of the device.
    ///
    /// # Cost
    /// A pass over all records of the files.
    pub(crate) fn preview(
        &self,
        caller: &Caller,
        root: InodeId,
        policy: &RetentionPolicy,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<RetentionPreview, Fault> {
        let thinning = policy.thinning_at(self.clock.now());
        let mut preview = RetentionPreview::default();
        let mut classes: BTreeMap<String, RetainedClass> = BTreeMap::new();
        let (mut todo, mut seen) = (vec![root], BTreeSet::new());
        while let Some(id) = todo.pop() {
            if !goes_on() {
                break;
            }
            if !seen.insert(id) {
                continue;
            }
            let inode = self.meta.inode(id, None)?;
            if inode.is_directory() {
                if self.meta.check_access(id, None, caller, MAY_READ | MAY_EXECUTE).is_err() {
                    continue;
                }
                let mut after = Vec::new();
                loop {
                    let page = self.meta.list(id, None, &after, PAGE)?;
                    let Some(last) = page.last() else { break };
                    after.clone_from(&last.name);
                    todo.extend(page.iter().map(|entry| entry.inode));
                }
                continue;
            }
            let kept = self.meta.kept_set_with(&inode, thinning);
            let written = preview.freed_writes + classes.values().map(|class| class.writes).sum::<u64>();
            self.visit_records(id, &kept, Hlc::MAX, &mut |_, record, epoch, survives| {
                let bytes = u64::from(record.place.bytes);
                match (survives, record.is_dead) {
                    (_, true) => {}
                    (true, false) => {
                        let class = classes.entry(kept.thinning().class_at(epoch.upto)).or_default();
                        class.writes += 1;
                        class.bytes += bytes;
                    }
                    (false, false) => {
                        preview.freed_writes += 1;
                        preview.freed_bytes += bytes;
                    }
                }
            })?;
            let now = preview.freed_writes + classes.values().map(|class| class.writes).sum::<u64>();
            preview.files += u64::from(now > written);
        }
        let order = ["all".to_owned()].into_iter().chain(GridPeriod::all().map(|period| period.to_string()));
        for period in order.chain(["none".to_owned()]) {
            let counts = classes.remove(&period);
            let below = thinning.class_end(&period).0;
            if counts.is_some() || below > 0 {
                preview.classes.push(RetainedClass { period, below, ..counts.unwrap_or_default() });
            }
        }
        Ok(preview)
    }

    fn has_death(&self, id: InodeId, epoch: RetentionEpoch) -> Result<bool, Fault> {
        let Some(inode) = self.version_at_end(id, epoch)? else { return Ok(false) };
        if self.meta.is_removal_expired(id) {
            return Ok(true);
        }
        let chunk_bytes = inode.chunk_bytes();
        let covers = covers_in(&inode, epoch);
        let after = epoch.after.unwrap_or(Hlc::ZERO);
        // What died on chains of other servers is not known here: the instant may not be shown.
        if (0..self.data.chain_count()).any(|chain| !self.data.is_member(ChainId(chain))) {
            return Ok(true);
        }
        let chunks = self.data.device().log_of([id])?.records_of_chunks(id, after, epoch.upto);
        Ok(chunks
            .iter()
            .any(|(index, records)| survivors(records, &covers, u64::from(*index) * chunk_bytes).contains(&false)))
    }

    /// True once every record that had expired, or was thinned, before this start is known again.
    pub fn knows_dead(&self) -> bool {
        let is_thinned = self.gc.thinned.load(Ordering::Acquire) || !self.meta.has_policies();
        is_thinned && self.gc.known.load(Ordering::Acquire)
    }

    /// The records of a file that its policy lets go, and all kept instants that tell records apart. What shared ranges
    /// need stays: `needs` has what `shares` changes of them have made needed. `None` if there were more by now.
    ///
    /// # Errors
    /// Those of the store and of the device.
    ///
    /// # Cost
    /// A pass over the file's records that marks thin.
    pub fn thinned_records(&self, needs: &Needs, shares: u64, id: InodeId) -> Result<Option<DeadRecords>, Fault> {
        let (kept, newest) = match self.meta.kept_set_and_shares(id) {
            // Of a file that the names do not know there are no reads.
            Err(fault) if matches!(fault.reason, Reason::NotFound | Reason::StaleHandle) => (None, shares),
            kept => kept?,
        };
        let Some(kept) = kept else { return Ok(Some(DeadRecords::default())) };
        // A mark may have come since, and before it an edit that shares what the mark does not keep.
        if newest != shares {
            return Ok(None);
        }
        let upto = kept.end();
        let needed = needs.get(&id).into_iter().flat_map(|needs| needs.keys().copied());
        let forgotten = self.meta.inode_horizon(id).forgotten.map(|forgotten| Hlc(forgotten.before));
        let kept = kept.with(needed.chain(forgotten));
        match self.records_between(id, &kept, upto) {
            // Its index is damaged, as a scrub reports: nothing of it goes, and the pass does not end here.
            Err(fault) if fault.reason == Reason::Corrupt => Ok(Some(DeadRecords::default())),
            dead => dead.map(Some),
        }
    }

    /// The records of a file in an interval that its policy lets go: chunk, stamp and first byte; `None` if the file is
    /// not thinned there.
    ///
    /// # Errors
    /// Those of the store and of the device.
    pub(crate) fn dead_within(&self, id: InodeId, after: Hlc, upto: Hlc) -> Result<Option<DeadWrites>, Fault> {
        let kept = match self.meta.has_policies() {
            true => self.meta.kept_set(id)?.filter(|kept| after < kept.end()),
            false => None,
        };
        let Some(kept) = kept else { return Ok(None) };
        // Whole epochs are looked at, and the interval of them is asked for.
        let end = kept.first_at_or_above(upto.min(kept.end()));
        let mut dead = DeadWrites::new();
        self.visit_records(id, &kept, end, &mut |chunk, record, _, survives| {
            if !survives && record.stamp > after && record.stamp <= upto {
                dead.insert((chunk, record.stamp, record.range.start() as u32));
            }
        })?;
        Ok(Some(dead))
    }

    fn records_between(&self, id: InodeId, kept: &KeptSet, upto: Hlc) -> Result<DeadRecords, Fault> {
        let (mut graves, mut ends): (Vec<DeadRecord>, BTreeSet<Hlc>) = (Vec::new(), BTreeSet::from([upto]));
        self.visit_records(id, kept, upto, &mut |_, record, epoch, survives| {
            ends.insert(epoch.upto);
            if !survives && !record.is_dead {
                graves.push(record.place);
            }
        })?;
        Ok(DeadRecords { graves, upto, kept: ends.into_iter().collect(), ..DeadRecords::default() })
    }

    /// Shows each record of a file stamped up to `upto` with its epoch, and whether it survives.
    fn visit_records(&self, id: InodeId, kept: &KeptSet, upto: Hlc, visit: &mut VisitRecord<'_>) -> Result<(), Fault> {
        let chunks = self.data.device().log_of([id])?.records_of_chunks(id, Hlc::ZERO, upto);
        for (index, records) in &chunks {
            let mut rest = &records[..];
            while let Some(first) = rest.first() {
                let epoch = kept.epoch_of(first.stamp);
                let (within, later) = rest.split_at(rest.partition_point(|record| record.stamp <= epoch.upto));
                rest = later;
                let survives = match self.version_at_end(id, epoch)? {
                    Some(inode) => {
                        let start = u64::from(*index) * inode.chunk_bytes();
                        survivors(within, &covers_in(&inode, epoch), start)
                    }
                    None => vec![true; within.len()],
                };
                within.iter().zip(survives).for_each(|(record, survives)| visit(*index, record, epoch, survives));
            }
        }
        Ok(())
    }

    /// The version of a file at the end of an epoch; `None` if it was not made by then.
    fn version_at_end(&self, id: InodeId, epoch: RetentionEpoch) -> Result<Option<Inode>, Fault> {
        match self.meta.inode(id, Some(epoch.upto)) {
            Err(fault) if fault.reason == Reason::NotFound => Ok(None),
            inode => inode.map(Some),
        }
    }
}

/// Takes a record, the chunk and the epoch that it is of, and whether it survives.
type VisitRecord<'a> = dyn FnMut(u32, &FileRecord, RetentionEpoch, bool) + 'a;
/// Writes that a policy lets go: chunk, stamp, first byte in the chunk.
type DeadWrites = BTreeSet<(u32, Hlc, u32)>;

/// What changes of names cover of a file in an epoch, as its version at the end says it.
fn covers_in(inode: &Inode, epoch: RetentionEpoch) -> Covers {
    let is_within = |stamp: Hlc| epoch.after.is_none_or(|after| stamp > after) && stamp <= epoch.upto;
    // The removal of the last name covers nothing: a file that is open, or is brought back, has its last state.
    let patches = inode.patches().iter().filter(|patch| is_within(patch.at));
    patches.map(|patch| (patch.at, ByteRange::new(patch.start, patch.end))).collect()
}

/// Which records of a chunk in one epoch, oldest first, are newest for a byte. The chunk begins at byte `start`.
fn survivors(records: &[FileRecord], covers: &Covers, start: u64) -> Vec<bool> {
    let of_chunk =
        |range: &ByteRange| ByteRange::new(range.start().saturating_sub(start), range.end().saturating_sub(start));
    let mut covers: Vec<(Hlc, ByteRange)> = covers.iter().map(|(at, range)| (*at, of_chunk(range))).collect();
    covers.retain(|(_, range)| !range.is_empty());
    covers.sort_unstable_by_key(|(at, _)| *at);
    let mut ranges = Vec::with_capacity(records.len() + covers.len());
    let mut numbers = Vec::with_capacity(records.len());
    for record in records.iter().rev() {
        // A change of names comes behind the records of its stamp.
        while let Some((_, range)) = covers.pop_if(|(at, _)| *at >= record.stamp) {
            ranges.push(range);
        }
        numbers.push(ranges.len());
        ranges.push(record.range);
    }
    let survives = surviving_records(&ranges, RANGES_MAX);
    numbers.iter().rev().map(|number| survives[*number]).collect()
}

/// The refusal of an instant that is not kept.
fn thinned(what: &str, at: Hlc, epoch: RetentionEpoch) -> Fault {
    let before = epoch.after.map_or(String::new(), |after| format!("{after} ({}) or ", format_instant(after)));
    let (at, upto) = (format_instant(at), format!("{} ({})", epoch.upto, format_instant(epoch.upto)));
    let words = format!(
        "{what} is not kept as it was at {at}: read it at {before}{upto}, the instants beside it, or with --nearest"
    );
    Fault::new(Reason::HistoryExpired, words)
}
