//! When records are packed: as soon as enough of a chain's old records died.
//!
//! Guarantees: a pack has records that are committed and on stable storage here, below the newest mark of retention,
//! and all that any kept instant shows of them. So it answers as the records did, whatever other members of the chain
//! have packed.
//! Leaves to others: which records died (`thinning`), writing packs (`storage`).
//!
//! # The algorithm
//! Dead records between live ones give back whole pages only, and keep their entries in memory. Once enough has died,
//! the old records of each chain are written anew without the dead. Packs of like size become one, as index runs do; a
//! pack of which a quarter died since is made anew alone. So a byte is written about as often as its history is
//! thinned.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

use frieze_base::{ChainId, Fault, InodeId, MonoTime, SegmentId};
use frieze_hlc::Hlc;
use frieze_multilog::{FileToPack, PackIndex, PackKey};
use frieze_storage::PackOrder;
use frieze_wire::message::ThinnedStatus;
use tracing::{debug, warn};

use crate::planes::Planes;

/// When it is worth to pack.
#[derive(Clone, Copy, Debug)]
pub struct PackLimits {
    /// Bytes that have to have died before records are packed.
    pub least_bytes: u64,
    /// Of the bytes to be written anew, one in so many has to have died.
    pub dead_part: u64,
    /// A reader may use places of records for so long after they were packed, ns.
    pub readers_ns: u64,
}

impl PackLimits {
    /// Those of a log with segments of so many bytes.
    pub fn of(segment_bytes: u64) -> PackLimits {
        PackLimits { least_bytes: segment_bytes / 4, dead_part: 4, readers_ns: 30_000_000_000 }
    }
}

/// Most numbers that are packed at once: what is known of their records is in memory meanwhile, some 150 bytes each.
const NUMBERS_MAX: u64 = 1 << 20;
/// Most bytes of payload in a pack. More: fewer packs to look in; less: less to write anew where something died.
const PACK_BYTES_MAX: u64 = 1 << 30;
/// Wait until a pack that could not be made is tried again.
const PUT_OFF_NS: u64 = 30_000_000_000;
/// Longest wait between two files.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Most bytes of an entry in the index of a pack, twice.
const ENTRY_BYTES: u64 = 256;

/// What is known of a pack before it is made.
struct PackPlan {
    order: PackOrder,
    /// There are more records that could be packed.
    has_more: bool,
    files: Vec<InodeId>,
    live_bytes: u64,
    bytes_max: u64,
}

/// The files that a pack is made of.
struct FoundFiles {
    files: Vec<InodeId>,
    /// Their records that stay, and the bytes of those that are live.
    records: u64,
    live_bytes: u64,
    /// The most that a pack of them takes.
    bytes_max: u64,
}

impl Planes {
    /// Packs old records where enough of them died, and gives back the space of what was packed before. `goes_on` is
    /// asked now and then with the bytes written since; if it returns false, the pack is given up. Returns the bytes
    /// freed. Call it now and then, on a thread that may block for long.
    ///
    /// # Errors
    /// Those of the store, the disk's; `Corrupt` if a record that should be packed is damaged: it is to be mended
    /// first. Then everything is as before.
    ///
    /// # Cost
    /// Reads and writes all live records of the numbers that it packs.
    pub fn pack(&self, limits: PackLimits, goes_on: &mut dyn FnMut(u64) -> bool) -> Result<u64, Fault> {
        let device = self.data.device();
        let freed = device.release_packed(self.clock.reading().mono, limits.readers_ns)?;
        if self.durability.failure().is_some() || !self.meta.has_policies() || !self.knows_dead() {
            return Ok(freed);
        }
        let (fresh, pack_at, mut worn) = {
            let state = self.gc.lock();
            let worn: BTreeSet<SegmentId> =
                state.dead_in_packs.iter().filter(|(_, bytes)| **bytes > 0).map(|(id, _)| *id).collect();
            (state.dead_since_pack, state.pack_at.max(limits.least_bytes), worn)
        };
        worn.retain(|id| {
            let live = device.log().packs().find(|pack| pack.place().id == *id).map(|pack| pack.live_bytes());
            let dead = self.gc.lock().dead_in_packs.get(id).copied().unwrap_or(0);
            live.is_some_and(|live| dead.saturating_mul(limits.dead_part) >= live)
        });
        if (fresh < pack_at && worn.is_empty()) || self.clock.reading().mono < self.gc.lock().pack_after {
            return Ok(freed);
        }
        let upto = self.meta.policies().iter().map(|(_, marked)| marked.marks.end()).max().unwrap_or_default();
        let mut plans = Vec::new();
        for chain in (0..self.data.chain_count()).map(ChainId).filter(|chain| self.data.is_member(*chain)) {
            plans.extend(self.plan_pack(chain, upto, fresh >= pack_at, &worn)?);
        }
        let live: u64 = plans.iter().map(|plan| plan.live_bytes).sum();
        if worn.is_empty() && fresh.saturating_mul(limits.dead_part) < live {
            // Not yet: much would be written for little. It is looked at again when twice as much has died.
            self.gc.lock().pack_at = 2 * fresh;
            return Ok(freed);
        }
        let has_more = plans.iter().any(|plan| plan.has_more);
        for plan in plans {
            if !self.write_pack(&plan, goes_on)? {
                self.put_packing_off();
                return Ok(freed);
            }
            debug!("packed {}: {} bytes live", plan.order.key, plan.live_bytes);
            let mut state = self.gc.lock();
            state.dead_in_packs.retain(|id, _| !plan.order.old.contains(id));
        }
        if !has_more {
            let mut state = self.gc.lock();
            (state.dead_since_pack, state.pack_at) = (0, 0);
            state.pack_trouble.clear();
            self.gc.note(&state);
        }
        Ok(freed)
    }

    /// What is packed of thinned history, and what is still to be done; `None` while no file has a policy.
    pub fn thinned_status(&self) -> Option<Box<ThinnedStatus>> {
        if !self.meta.has_policies() {
            return None;
        }
        // A pass may hold the lists of the dead for long.
        let mut status = ThinnedStatus {
            unpacked_dead_bytes: self.gc.unpacked_bytes.load(Ordering::Relaxed),
            files_left: self.gc.thinning_left.load(Ordering::Relaxed),
            ..ThinnedStatus::default()
        };
        for pack in self.data.device().log().packs() {
            status.packs += 1;
            status.packed_bytes += pack.live_bytes();
        }
        Some(Box::new(status))
    }

    /// Packs nothing for a while: there is no room, a record is damaged, or other work comes first.
    fn put_packing_off(&self) {
        self.gc.lock().pack_after = MonoTime(self.clock.reading().mono.0 + PUT_OFF_NS);
    }

    /// As [`Planes::pack`], and yields to requests: while there are any, it waits as long as it works. `pause` waits as
    /// long as it is told and returns whether to go on. What is wrong is logged; the next call tries again.
    pub fn pack_beside_requests(&self, pause: &dyn Fn(Duration) -> bool) {
        let limits = PackLimits::of(self.data.device().log().settings().segment_bytes);
        let mono = || self.clock.reading().mono;
        let (mut began, mut served) = (mono(), self.data.device().served());
        let mut goes_on = |_| {
            let (now, asked) = (mono(), self.data.device().served());
            let worked = Duration::from_nanos(now.since_ns(began)).min(PAUSE_MAX);
            let goes_on = pause(if asked == served { Duration::ZERO } else { worked });
            (began, served) = (mono(), asked);
            goes_on
        };
        if let Err(fault) = self.pack(limits, &mut goes_on) {
            self.put_packing_off();
            let mut state = self.gc.lock();
            if state.pack_trouble != fault.message {
                warn!("old records are not packed: {fault}");
                state.pack_trouble = fault.message;
            }
        }
    }

    /// What of a chain is packed next: old records behind its packs, if there is something `fresh`, and the packs that
    /// are made anew with them.
    fn plan_pack(
        &self,
        chain: ChainId,
        upto: Hlc,
        fresh: bool,
        worn: &BTreeSet<SegmentId>,
    ) -> Result<Option<PackPlan>, Fault> {
        let device = self.data.device();
        let removals = device.removals();
        let packs: Vec<_> = {
            let log = device.log();
            let of_chain = log.packs().filter(|pack| pack.key().chain == chain);
            let sizes = |pack: &PackIndex| (pack.records(), pack.live_bytes());
            of_chain.map(|pack| (pack.place(), pack.key(), sizes(pack), pack.newest())).collect()
        };
        let after_of = |at: usize| if at == 0 { Hlc::ZERO } else { packs[at - 1].3 };
        let plan_of = |old: Range<usize>, key: PackKey, newest: Hlc, found: FoundFiles, has_more: bool| {
            let old = packs[old].iter().map(|(place, ..)| place.id).collect();
            let FoundFiles { files, live_bytes, bytes_max, .. } = found;
            PackPlan { order: PackOrder { key, newest, old, removals }, has_more, files, live_bytes, bytes_max }
        };
        if let Some(at) = packs.iter().position(|(place, ..)| worn.contains(&place.id)) {
            let (place, key, _, newest) = packs[at];
            let key = PackKey { last: place.upto, ..key };
            let found = self.find_files(key, (after_of(at), newest))?;
            return Ok(Some(plan_of(at..at + 1, key, newest, found, true)));
        }
        let packed = packs.last().map_or(0, |(place, ..)| place.upto);
        let clean = self.data.committed(chain);
        let new = if fresh { device.number_upto(chain, packed, upto)?.filter(|(n, _)| *n <= clean) } else { None };
        let Some((end, mut newest)) = new else { return Ok(None) };
        let mut key = PackKey { chain, first: packed + 1, last: end };
        if end - packed > NUMBERS_MAX
            && let Some(cut) = self.cut_at(chain, packed, packed + NUMBERS_MAX)?
        {
            (key.last, newest) = cut;
        }
        let mut found = self.find_files(key, (after_of(packs.len()), newest))?;
        // On a disk that is nearly full, in small pieces: each gives back more than it takes.
        let free_bytes = device.space()?.free_bytes.saturating_sub(self.settings.reserve_bytes);
        let bytes_max = PACK_BYTES_MAX.min(free_bytes / 4);
        while found.live_bytes > bytes_max
            && key.last > packed + 1
            && let Some(cut) = self.cut_at(chain, packed, packed + (key.last - packed) / 2)?
            && cut.0 < key.last
        {
            // A part of it now, the rest in the next pack.
            (key.last, newest) = cut;
            found = self.find_files(key, (after_of(packs.len()), newest))?;
        }
        let (mut first_old, mut live_bytes, mut records) = (packs.len(), found.live_bytes, found.records);
        while let Some((_, _, (more_records, bytes), _)) = first_old.checked_sub(1).map(|at| packs[at])
            && bytes <= 2 * live_bytes
            && bytes + live_bytes <= bytes_max
            && records + more_records <= NUMBERS_MAX
        {
            first_old -= 1;
            (live_bytes, records) = (live_bytes + bytes, records + more_records);
        }
        let has_more = key.last < end;
        if first_old < packs.len() {
            key.first = packs[first_old].1.first;
            found = self.find_files(key, (after_of(first_old), newest))?;
        }
        Ok(Some(plan_of(first_old..packs.len(), key, newest, found, has_more)))
    }

    /// The last number after `after` of a chain whose stamp is that of number `n` or before it: no group is cut.
    fn cut_at(&self, chain: ChainId, after: u64, n: u64) -> Result<Option<(u64, Hlc)>, Fault> {
        let device = self.data.device();
        let found = device.records_of(chain, n - 1, 1)?.into_iter().next();
        found.map_or(Ok(None), |found| device.number_upto(chain, after, found.header.stamp))
    }

    /// The files with records of some numbers, which are stamped in the interval.
    fn find_files(&self, key: PackKey, (after, newest): (Hlc, Hlc)) -> Result<FoundFiles, Fault> {
        let device = self.data.device();
        let (mut candidates, _) = device.log().files_with_records(after, newest);
        let (mut live, mut count, mut bytes_max) = (0, 0, 1 << 20);
        let mut fault = Ok(());
        candidates.retain(|id| match self.file_to_pack(*id, key, newest) {
            Ok(Some(file)) => {
                count += file.records.len() as u64;
                for record in &file.records {
                    let bytes = record.stored.map_or(0, |stored| u64::from(stored.record_len));
                    live += bytes;
                    bytes_max += bytes + bytes / 1024 + ENTRY_BYTES;
                }
                bytes_max += 16 * ENTRY_BYTES;
                true
            }
            Ok(None) => false,
            Err(failed) => {
                fault = Err(failed);
                false
            }
        });
        fault.map(|()| FoundFiles { files: candidates, records: count, live_bytes: live, bytes_max })
    }

    fn file_to_pack(&self, id: InodeId, key: PackKey, upto: Hlc) -> Result<Option<FileToPack>, Fault> {
        let kept = self.epoch_ends(id, upto)?;
        Ok(self.data.device().log_of([id])?.file_to_pack(id, key, upto, &kept))
    }

    /// The kept instants up to `upto` with records of a file before them, if some of its records may have died.
    fn epoch_ends(&self, id: InodeId, upto: Hlc) -> Result<Vec<Hlc>, Fault> {
        let kept = match self.meta.kept_set(id) {
            Err(fault) if fault.kind() == frieze_base::ErrorKind::NotFound => None,
            kept => kept?,
        };
        let horizon = self.meta.inode_horizon(id);
        let mut instants: BTreeSet<Hlc> =
            horizon.forgotten.map(|forgotten| Hlc(forgotten.before)).into_iter().collect();
        instants.extend(horizon.pins);
        if let Some(kept) = kept {
            let chunks = self.data.device().log_of([id])?.records_of_chunks(id, Hlc::ZERO, upto);
            for record in chunks.iter().flat_map(|(_, records)| records) {
                instants.insert(kept.first_at_or_above(record.stamp));
            }
        }
        Ok(instants.into_iter().collect())
    }

    fn write_pack(&self, plan: &PackPlan, goes_on: &mut dyn FnMut(u64) -> bool) -> Result<bool, Fault> {
        let mut files = plan.files.iter();
        let PackOrder { key, newest, .. } = plan.order;
        let mut next = || -> Result<Option<FileToPack>, Fault> {
            for id in files.by_ref() {
                if let Some(file) = self.file_to_pack(*id, key, newest)? {
                    return Ok(Some(file));
                }
            }
            // The marks by which records died are durable before the pack is used: after a crash without them the
            // instants that need those records would be exact again.
            self.flush()?;
            Ok(None)
        };
        self.data.device().write_pack(&plan.order, plan.bytes_max, &mut next, goes_on)
    }
}
