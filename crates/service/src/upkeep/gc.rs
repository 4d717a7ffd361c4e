//! Reclaims the space of expired records.
//!
//! Guarantees: one idempotent function of what is stored (horizons, snapshots, shared ranges) selects the records that
//! no read needs any more; after a crash or a restart it selects the same ones. Space is freed only when the horizon is
//! on stable storage and the segment's footer has been read back whole, so a crash at any moment leaves a log that
//! recovers.
//! Leaves to others: refusing reads below the horizon (`namespace`), the index and the footers (`multilog`).
//!
//! # The algorithm
//! An inode whose history before a horizon has expired stays readable at the horizon, now, at the snapshots before it,
//! and wherever another file shares a range of an older state of it. Each of these states is planned as a read is;
//! records that no plan names are marked dead. Records are not moved: whole pages between live records are returned to
//! the file system, which needs no spare room, so reclaiming works on a full disk.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use frieze_base::{Fault, InodeId, Reason, SegmentId};
use frieze_hlc::Hlc;
use frieze_locks::RwLockWriteGuard;
use frieze_multilog::DeadRecord;
use frieze_namespace::{Expiries, SharedState};
use frieze_planes::{DeadRecords, DeadSpace, FileVersion, Needs, RecordPlace, RemoteReach};

use crate::upkeep::Upkeep;

/// Most times a full pass is put off while edits are under way: ten seconds, as [`Upkeep::reclaim`] is called.
const PUT_OFF_MAX: u32 = 20;

impl Upkeep {
    /// Older states of inodes with expired history, or that policies may thin, that readable states share.
    ///
    /// # Errors
    /// Those of the store.
    ///
    /// # Cost
    /// A pass over all versions of all inodes.
    pub(crate) fn needs(&self, horizons: &Expiries) -> Result<Needs, Fault> {
        let states = self.planes.meta.history().shared_states()?;
        let has_policies = self.planes.meta.has_policies();
        let mut needs = Needs::new();
        let mut seen: BTreeSet<(InodeId, Hlc)> = BTreeSet::new();
        let mut todo: Vec<&SharedState> = Vec::new();
        for (&holder, states) in &states {
            let horizon = horizons.of(holder).map(|forgotten| Hlc(forgotten.before));
            let (gone, pins) = (horizons.is_wholly_expired(holder), horizons.pins(holder));
            for state in states {
                let shown = match horizon {
                    None => true,
                    Some(before) => {
                        (!gone && state.until > before) || pins.range(state.from..state.until).next().is_some()
                    }
                };
                if shown && seen.insert((holder, state.from)) {
                    todo.push(state);
                }
            }
        }
        while let Some(state) = todo.pop() {
            for &(source, at, start, end) in &state.sources {
                if has_policies || horizons.of(source).is_some() {
                    needs.entry(source).or_default().entry(at).or_default().push((start, end));
                }
                let below = states.get(&source).into_iter().flatten();
                for below in below.filter(|below| below.from <= at && at < below.until) {
                    if seen.insert((source, below.from)) {
                        todo.push(below);
                    }
                }
            }
        }
        Ok(needs)
    }

    /// The records of an inode that no read needs any more, given the horizons. None for an inode without expired
    /// history.
    ///
    /// # Errors
    /// Those of the store.
    ///
    /// # Cost
    /// A plan of the whole file for each readable instant.
    pub(crate) fn dead_of(&self, horizons: &Expiries, needs: &Needs, id: InodeId) -> Result<DeadRecords, Fault> {
        let Some(forgotten) = horizons.of(id) else { return Ok(DeadRecords::default()) };
        let gone = horizons.is_wholly_expired(id);
        let upto = if gone { Hlc::MAX } else { Hlc(forgotten.before) };
        if gone && self.planes.data.device().log().is_wholly_dead(id) {
            return Ok(DeadRecords::default());
        }
        let pins = horizons.pins(id);
        let is_all = gone && pins.is_empty() && !needs.contains_key(&id);
        let none = BTreeSet::new();
        if self.planes.data.device().log_of([id])?.dead_records(id, upto, &none).is_empty() {
            return Ok(DeadRecords { is_all, ..DeadRecords::default() });
        }
        let mut live = BTreeSet::new();
        if !gone {
            self.add_places(id, Some(upto), &[(0, u64::MAX)], &mut live)?;
            self.add_places(id, None, &[(0, u64::MAX)], &mut live)?;
        }
        let free = self.planes.data.device().log_of([id])?.dead_records(id, upto, &live);
        let mut held_by_pin = BTreeMap::new();
        let bytes =
            |graves: &mut dyn Iterator<Item = &DeadRecord>| graves.map(|grave| u64::from(grave.bytes)).sum::<u64>();
        for &pin in &pins {
            let mut places = BTreeSet::new();
            self.add_places(id, Some(pin), &[(0, u64::MAX)], &mut places)?;
            let held = bytes(&mut free.iter().filter(|grave| places.contains(&(grave.segment, grave.place))));
            if held > 0 {
                held_by_pin.insert(pin, held);
            }
            live.append(&mut places);
        }
        for (at, ranges) in needs.get(&id).into_iter().flatten() {
            self.add_places(id, Some(*at), ranges, &mut live)?;
        }
        let graves: Vec<DeadRecord> =
            free.iter().filter(|grave| !live.contains(&(grave.segment, grave.place))).copied().collect();
        let held_bytes = bytes(&mut free.iter()) - bytes(&mut graves.iter());
        let mut kept = BTreeSet::new();
        if !gone {
            let shared = needs.get(&id).into_iter().flat_map(|needs| needs.keys().copied());
            kept.extend(shared.chain(pins).filter(|at| *at < upto));
            kept.insert(upto);
        }
        Ok(DeadRecords { graves, upto, held_bytes, held_by_pin, is_all, kept: kept.into_iter().collect() })
    }

    /// Adds the places of the records that ranges of a file show at an instant (`None`: now).
    fn add_places(
        &self,
        id: InodeId,
        at: Option<Hlc>,
        ranges: &[(u64, u64)],
        places: &mut BTreeSet<RecordPlace>,
    ) -> Result<(), Fault> {
        let inode = match self.planes.meta.inode(id, at) {
            Err(fault) if fault.reason == Reason::NotFound => return Ok(()),
            inode => inode?,
        };
        // Each server frees its own records. The length of the file does not matter.
        let look = self.files.look_with(&[&FileVersion::at(id, inode.clone(), at)], &[], RemoteReach::default())?;
        for &(start, end) in ranges {
            look.own_places(id, &inode, at.unwrap_or(Hlc::MAX), (start, end), places);
        }
        Ok(())
    }

    /// Marks the records of `dead`: no plan names them, and their space is due. [`GcState::note`] publishes it.
    ///
    /// # Errors
    /// Of the device, where the index of the inode has to be fetched.
    pub(crate) fn mark_dead(&self, state: &mut DeadSpace, id: InodeId, dead: &DeadRecords) -> Result<(), Fault> {
        if !dead.graves.is_empty() || dead.is_all {
            self.planes.data.device().mark_dead(id, dead.upto, &dead.graves, dead.is_all, &dead.kept)?;
            state.add(&dead.graves);
        }
        Ok(())
    }

    /// Frees what is due in closed segments. Returns the bytes freed on the device.
    ///
    /// # Errors
    /// The disk's. What was not freed stays due.
    pub(crate) fn give_back(&self, state: &mut DeadSpace) -> Result<u64, Fault> {
        if state.due.is_empty() {
            return Ok(0);
        }
        // The horizon is durable before the bytes are freed: after a crash no read may ask for them.
        self.planes.flush()?;
        let device = self.planes.data.device();
        let open = device.log().end().segment;
        if state.due.get(&open).is_some_and(|bytes| *bytes >= device.worth_closing()) {
            self.close_segment();
            self.planes.flush()?;
        }
        let due: Vec<SegmentId> = state.due.keys().copied().collect();
        let mut freed = 0;
        for segment in due {
            match device.punch_dead(segment, state.graves.get(&segment).into_iter().flatten()) {
                Ok(None) => {}
                Ok(Some(bytes)) => {
                    freed += bytes;
                    state.due.remove(&segment);
                    state.trouble = None;
                }
                Err(fault) if fault.reason == Reason::Unsupported => {
                    let words = format!(
                        "the file system below the data directory cannot free parts of files, so what was forgotten \
                         still takes its space (ext4, xfs, btrfs and tmpfs can): {}",
                        fault.message
                    );
                    state.trouble = Some(Fault::new(Reason::Unsupported, words));
                    break;
                }
                Err(fault) => return Err(fault),
            }
        }
        self.planes.gc.note(state);
        Ok(freed)
    }

    /// Runs the pass over expired records. At the first call after a start and after a snapshot was deleted, it checks
    /// every inode again; it frees what is due in segments that are closed by now. Call it about twice a second, on a
    /// thread that may block for long.
    ///
    /// # Errors
    /// Those of the store and the disk's: the next call continues.
    pub fn reclaim(&self) -> Result<(), Fault> {
        if self.planes.durability.failure().is_some() {
            return Ok(());
        }
        if self.planes.gc.wanted.swap(false, Ordering::AcqRel)
            && let Err(fault) = self.reclaim_all()
        {
            self.planes.gc.want();
            return Err(fault);
        }
        let mut state = self.planes.gc.lock();
        let open = self.planes.data.device().log().end().segment;
        if state.trouble.is_none() && state.due.keys().any(|segment| *segment != open) {
            self.give_back(&mut state)?;
        }
        Ok(())
    }

    /// Moves the index of sealed segments to shelves, or merges shelves, if there is work, and returns memory. Call it
    /// about twice a second, on a thread that may block for long, and again while it returns true: there may be more
    /// work.
    ///
    /// # Errors
    /// The disk's: nothing has changed, and the next call tries again.
    pub fn shelve(&self) -> Result<bool, Fault> {
        if self.planes.durability.failure().is_some() {
            return Ok(false);
        }
        let device = self.planes.data.device();
        let lives = |session| self.planes.meta.has_session(session);
        device.write_index_runs(&|tips| self.planes.data.encode_dedupe(tips, &lives))
    }

    /// The next write begins a new segment, so that the old one can be shelved or freed after the next flushes. The
    /// rest of the old segment stays unused.
    pub fn close_segment(&self) {
        let _held = self.planes.data.lock_appender();
        self.planes.data.device().close_open();
    }

    /// In words, what was damaged since the last call: indexes on disk that were rebuilt, and images that were dropped.
    pub fn mended(&self) -> Vec<String> {
        let device = self.planes.data.device();
        [device.take_repairs(), device.take_image_damage()].concat()
    }

    /// Keeps edits out. A clone of a snapshot that was deleted after the clone was planned has to finish first, so that
    /// `needs` sees what it shares; a clone planned later is refused the deleted snapshot. While an edit is under way
    /// the pass is put off a few times; after that it waits for the edit.
    #[track_caller]
    pub(super) fn without_edits(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        let alone = match self.forgetting.try_write() {
            Some(alone) => alone,
            None if self.planes.gc.put_off.fetch_add(1, Ordering::Relaxed) < PUT_OFF_MAX => {
                return None;
            }
            None => self.forgetting.write(),
        };
        self.planes.gc.put_off.store(0, Ordering::Relaxed);
        Some(alone)
    }

    fn reclaim_all(&self) -> Result<(), Fault> {
        let mut state = self.planes.gc.lock();
        let horizons = {
            let Some(_alone) = self.without_edits() else {
                self.planes.gc.want();
                return Ok(());
            };
            self.planes.meta.horizons()
        };
        if horizons.is_empty() {
            self.planes.gc.known.store(true, Ordering::Release);
            return Ok(());
        }
        let needs = self.needs(&horizons)?;
        for id in horizons.inodes() {
            let dead = self.dead_of(&horizons, &needs, id)?;
            self.mark_dead(&mut state, id, &dead)?;
        }
        self.planes.data.device().forget_images(horizons.inodes())?;
        self.planes.gc.note(&state);
        self.planes.gc.known.store(true, Ordering::Release);
        self.give_back(&mut state).map(drop)
    }
}
