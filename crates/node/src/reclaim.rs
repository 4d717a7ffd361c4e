//! Giving back the space of what was forgotten.
//!
//! Guarantees: one idempotent function of what is stored (horizons, snapshots, shared ranges) says which records no
//! read needs any more; run again, after a crash or a restart, it says the same. Space is given back only when the
//! horizon is on stable storage and the segment's footer has been read back whole, so a crash at any moment leaves a
//! log that recovers. Leaves to others: what is refused to readers (`namespace`), the index and the footers
//! (`multilog`).
//!
//! # The algorithm
//! An inode that has forgotten what was before an instant is still read at that instant, at now, at the snapshots of
//! before, and wherever another file shares a range of an older state of it. Each of these is planned as a read is;
//! what no plan names is buried. Records are not moved: whole pages between records that stay are given back to the
//! file system, which needs no room to work in, so it works on a full disk.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLockWriteGuard, TryLockError};

use frieze_base::{Fault, InodeId, Reason, SegmentId};
use frieze_hlc::Hlc;
use frieze_multilog::{DeadRecord, PieceSource};
use frieze_namespace::{Expiries, Inode, SharedState};

use crate::elsewhere::Elsewhere;
use crate::engine::Engine;
use crate::seen::{Layer, Look, Seen, parts};
use frieze_replication::REACH_BYTES_MAX;

/// How often looking at everything is put off while edits are under way: ten seconds, as `reclaim` is called.
const PUT_OFF_MAX: u32 = 20;

/// Where a record lies.
pub(crate) type Place = (SegmentId, u64);

/// What is buried, and what of it waits to be given back.
#[derive(Default)]
pub(crate) struct Reclaim {
    state: Mutex<State>,
    /// Everything is to be looked at again: after a start, or when a snapshot went.
    wanted: AtomicBool,
    /// Everything was looked at since the start: every grave is known.
    known: AtomicBool,
    /// How often that was put off, since edits were under way.
    put_off: AtomicU32,
    buried_bytes: AtomicU64,
    waiting_bytes: AtomicU64,
    progress: Progress,
}

/// How far a forgetting has come, for whoever waits for it. There is one at a time.
#[derive(Default)]
pub(crate) struct Progress {
    looked_at: AtomicU64,
    to_look_at: AtomicU64,
}

impl Progress {
    /// One more was looked at.
    pub(crate) fn step(&self) {
        self.looked_at.fetch_add(1, Ordering::Relaxed);
    }

    /// So many are to be looked at in all.
    pub(crate) fn expect(&self, count: u64) {
        self.to_look_at.store(count, Ordering::Relaxed);
    }

    /// Looked at, and to be looked at.
    pub(crate) fn now(&self) -> (u64, u64) {
        (self.looked_at.load(Ordering::Relaxed), self.to_look_at.load(Ordering::Relaxed))
    }

    /// Nothing is under way from when the answer is dropped.
    pub(crate) fn begin(&self) -> impl Drop + '_ {
        struct Under<'a>(&'a Progress);
        impl Drop for Under<'_> {
            fn drop(&mut self) {
                self.0.looked_at.store(0, Ordering::Relaxed);
                self.0.to_look_at.store(0, Ordering::Relaxed);
            }
        }
        Under(self)
    }
}

/// See [`Reclaim`].
#[derive(Default)]
pub(crate) struct State {
    /// Stretches without a record that stays, by their first byte: they grow together.
    graves: BTreeMap<SegmentId, BTreeMap<u64, u64>>,
    /// Segments in which more was buried than was given back, and how much.
    due: BTreeMap<SegmentId, u64>,
    /// Why space cannot be given back.
    trouble: Option<Fault>,
}

/// Older states of forgotten inodes that others share: instants, each with ranges.
pub(crate) type Needs = BTreeMap<InodeId, BTreeMap<Hlc, Vec<(u64, u64)>>>;

/// What one inode gives up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dead {
    pub(crate) graves: Vec<DeadRecord>,
    /// Records stamped up to it are looked at.
    pub(crate) upto: Hlc,
    /// Bytes that would be given up but for snapshots and shared ranges.
    pub(crate) held_bytes: u64,
    /// Bytes of them that the snapshots of an instant show, by instant.
    pub(crate) held_by_pin: BTreeMap<Hlc, u64>,
    /// With it all of the file is buried: it is gone, and no snapshot and no shared range shows it.
    pub(crate) is_all: bool,
    /// The instants up to `upto` that can be asked for, in order. None of a file that is gone: who has it open is told
    /// what it held.
    pub(crate) kept: Vec<Hlc>,
}

impl Dead {
    pub(crate) fn bytes(&self) -> u64 {
        self.graves.iter().map(|grave| u64::from(grave.bytes)).sum()
    }
}

impl Reclaim {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything is to be looked at again, soon.
    pub(crate) fn want(&self) {
        self.wanted.store(true, Ordering::Release);
    }

    /// True once everything that was forgotten before this start has been found again.
    pub(crate) fn is_known(&self) -> bool {
        self.known.load(Ordering::Acquire)
    }

    /// How far a forgetting has come.
    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Bytes of records that are buried, and of those that are not given back yet.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.buried_bytes.load(Ordering::Relaxed), self.waiting_bytes.load(Ordering::Relaxed))
    }

    /// Tells whoever asks for the status.
    pub(crate) fn note(&self, state: &State) {
        let len = |runs: &BTreeMap<u64, u64>| runs.iter().map(|(start, end)| end - start).sum::<u64>();
        self.buried_bytes.store(state.graves.values().map(len).sum(), Ordering::Relaxed);
        self.waiting_bytes.store(state.due.values().sum(), Ordering::Relaxed);
    }
}

impl State {
    fn add(&mut self, graves: &[DeadRecord]) {
        for grave in graves {
            *self.due.entry(grave.segment).or_default() += grave.end - grave.start;
            let runs = self.graves.entry(grave.segment).or_default();
            let (mut start, mut end) = (grave.start, grave.end);
            if let Some((&before, &until)) = runs.range(..start).next_back()
                && until == start
            {
                runs.remove(&before);
                start = before;
            }
            if let Some(after) = runs.remove(&end) {
                end = after;
            }
            runs.insert(start, end);
        }
    }

    /// Stretches of a segment without a record that stays: first byte and end.
    pub(crate) fn graves_in(&self, segment: SegmentId) -> BTreeMap<u64, u64> {
        self.graves.get(&segment).cloned().unwrap_or_default()
    }

    /// Why space cannot be given back, if it cannot.
    pub(crate) fn trouble(&self) -> Option<&Fault> {
        self.trouble.as_ref()
    }

    /// Bytes that wait for their segments to be closed.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.due.values().sum()
    }
}

impl Engine {
    /// Which older states of forgotten inodes are shared by what can still be read.
    ///
    /// # Errors
    /// Those of the store.
    ///
    /// # Cost
    /// A pass over all versions of all inodes.
    pub(crate) fn needs(&self, horizons: &Expiries) -> Result<Needs, Fault> {
        let states = self.meta.history().shared_states()?;
        let mut needs = Needs::new();
        let mut seen: BTreeSet<(InodeId, Hlc)> = BTreeSet::new();
        let mut todo: Vec<&SharedState> = Vec::new();
        for (&holder, states) in &states {
            let horizon = horizons.of(holder).map(|forgotten| Hlc(forgotten.before));
            let (gone, pins) = (horizons.is_gone(holder), horizons.pins(holder));
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
                if horizons.of(source).is_some() {
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

    /// The records of an inode that no read needs any more, given what is forgotten. Nothing for one that forgot
    /// nothing.
    ///
    /// # Errors
    /// Those of the store.
    ///
    /// # Cost
    /// A plan of the whole file for each instant that is kept.
    pub(crate) fn dead_of(&self, horizons: &Expiries, needs: &Needs, id: InodeId) -> Result<Dead, Fault> {
        let Some(forgotten) = horizons.of(id) else { return Ok(Dead::default()) };
        let gone = horizons.is_gone(id);
        let upto = if gone { Hlc::MAX } else { Hlc(forgotten.before) };
        if gone && self.data.device().log().is_gone(id) {
            return Ok(Dead::default());
        }
        let pins = horizons.pins(id);
        let is_all = gone && pins.is_empty() && !needs.contains_key(&id);
        let none = BTreeSet::new();
        if self.data.device().log_of([id])?.dead_records(id, upto, &none).is_empty() {
            return Ok(Dead { is_all, ..Dead::default() });
        }
        let mut live = BTreeSet::new();
        if !gone {
            self.add_places(id, Some(upto), &[(0, u64::MAX)], &mut live)?;
            self.add_places(id, None, &[(0, u64::MAX)], &mut live)?;
        }
        let free = self.data.device().log_of([id])?.dead_records(id, upto, &live);
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
        Ok(Dead { graves, upto, held_bytes, held_by_pin, is_all, kept: kept.into_iter().collect() })
    }

    /// Adds where the records lie that ranges of a file show at an instant (`None`: now).
    fn add_places(
        &self,
        id: InodeId,
        at: Option<Hlc>,
        ranges: &[(u64, u64)],
        places: &mut BTreeSet<Place>,
    ) -> Result<(), Fault> {
        let inode = match self.meta.inode(id, at) {
            Err(fault) if fault.reason == Reason::NotFound => return Ok(()),
            inode => inode?,
        };
        // What lies elsewhere is given back there, and how long the file is does not matter.
        let look = self.look_with(&[&Seen::at(id, inode.clone(), at)], &[], Elsewhere::default())?;
        for &(start, end) in ranges {
            look.own_places(id, &inode, at.unwrap_or(Hlc::MAX), (start, end), places);
        }
        Ok(())
    }

    /// Buries what an inode gives up: it is not planned any more, and its space is due. [`Reclaim::note`] tells of it.
    ///
    /// # Errors
    /// Of the device, where the index of the inode has to be fetched.
    pub(crate) fn mark_dead(&self, state: &mut State, id: InodeId, dead: &Dead) -> Result<(), Fault> {
        if !dead.graves.is_empty() || dead.is_all {
            self.data.device().mark_dead(id, dead.upto, &dead.graves, dead.is_all, &dead.kept)?;
            state.add(&dead.graves);
        }
        Ok(())
    }

    /// Gives back what is due, as far as segments are closed. Returns by how many bytes the device has more.
    ///
    /// # Errors
    /// The disk's. What is left stays due.
    pub(crate) fn give_back(&self, state: &mut State) -> Result<u64, Fault> {
        if state.due.is_empty() {
            return Ok(0);
        }
        // The horizon before the bytes: what is gone must not be asked for again after a crash.
        self.flush()?;
        let device = self.data.device();
        let open = device.log().end().segment;
        if state.due.get(&open).is_some_and(|bytes| *bytes >= device.worth_closing()) {
            self.close_segment();
            self.flush()?;
        }
        let due: Vec<SegmentId> = state.due.keys().copied().collect();
        let mut freed = 0;
        for segment in due {
            match device.give_back(segment, state.graves.get(&segment).into_iter().flatten()) {
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
        self.reclaim.note(state);
        Ok(freed)
    }

    /// Looks after what is forgotten: at the first call after a start and when a snapshot went, everything is looked at
    /// again; what was due in segments that are closed by now is given back. To be called about twice a second, on a
    /// thread that may take long.
    ///
    /// # Errors
    /// Those of the store and the disk's: the next call goes on.
    pub fn reclaim(&self) -> Result<(), Fault> {
        if self.durability.failure().is_some() {
            return Ok(());
        }
        if self.reclaim.wanted.swap(false, Ordering::AcqRel)
            && let Err(fault) = self.reclaim_all()
        {
            self.reclaim.want();
            return Err(fault);
        }
        let mut state = self.reclaim.lock();
        let open = self.data.device().log().end().segment;
        if state.trouble.is_none() && state.due.keys().any(|segment| *segment != open) {
            self.give_back(&mut state)?;
        }
        Ok(())
    }

    /// Shelves the index of sealed segments, or merges shelves, if there is something to do, and gives memory back. To
    /// be called about twice a second, on a thread that may take long, and again while it says true: there may be more.
    ///
    /// # Errors
    /// The disk's: everything is as before, and the next call tries again.
    pub fn shelve(&self) -> Result<bool, Fault> {
        if self.durability.failure().is_some() {
            return Ok(false);
        }
        let device = self.data.device();
        let lives = |session| self.meta.has_session(session);
        device.shelve(&|tips| self.data.keep_memory(tips, &lives))
    }

    /// The next write begins a new segment, so that what was written can be shelved or given back after the next
    /// flushes. What is left of the old one is not used.
    pub fn close_segment(&self) {
        let _held = self.data.hold_writes();
        self.data.device().close_open();
    }

    /// What was found damaged in the index on disk and made anew, or in images and given up, since the last call, in
    /// words.
    pub fn mended(&self) -> Vec<String> {
        let device = self.data.device();
        [device.take_mended(), device.take_lost_images()].concat()
    }

    /// Keeps edits out. A clone of a snapshot that has gone since it was planned has to be over, so that `needs` sees
    /// what it shares; one that is planned later is refused what went. While one is under way the work is put off, some
    /// times; then it is waited for.
    fn without_edits(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        let alone = match self.forgetting.try_write() {
            Ok(alone) => alone,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if self.reclaim.put_off.fetch_add(1, Ordering::Relaxed) < PUT_OFF_MAX => {
                return None;
            }
            Err(TryLockError::WouldBlock) => self.forgetting.write().unwrap_or_else(PoisonError::into_inner),
        };
        self.reclaim.put_off.store(0, Ordering::Relaxed);
        Some(alone)
    }

    fn reclaim_all(&self) -> Result<(), Fault> {
        let mut state = self.reclaim.lock();
        let horizons = {
            let Some(_alone) = self.without_edits() else {
                self.reclaim.want();
                return Ok(());
            };
            self.meta.horizons()
        };
        if horizons.is_empty() {
            self.reclaim.known.store(true, Ordering::Release);
            return Ok(());
        }
        let needs = self.needs(&horizons)?;
        for id in horizons.inodes() {
            let dead = self.dead_of(&horizons, &needs, id)?;
            self.mark_dead(&mut state, id, &dead)?;
        }
        self.data.device().forget_images(horizons.inodes())?;
        self.reclaim.note(&state);
        self.reclaim.known.store(true, Ordering::Release);
        self.give_back(&mut state).map(drop)
    }
}

impl Look<'_> {
    /// Adds where the file's own records lie that `range` of it shows at an instant, whatever its length is.
    fn own_places(&self, id: InodeId, inode: &Inode, at: Hlc, range: (u64, u64), places: &mut BTreeSet<Place>) {
        let layer = Layer { id, inode, upto: Some(at) };
        let chunk_bytes = inode.chunk_bytes();
        let mut pieces = Vec::new();
        for index in self.log.chunks_in(id, 0..=u32::MAX) {
            let chunk_start = u64::from(index) * chunk_bytes;
            // Its records may reach over its end.
            let reach = if inode.reaches_over(index) { REACH_BYTES_MAX } else { 0 };
            let (start, end) = (range.0.max(chunk_start), range.1.min(chunk_start + chunk_bytes + reach));
            if start >= end {
                continue;
            }
            for (start, end, patch) in parts(inode, start, end) {
                pieces.clear();
                self.plan_stored(layer, start, end, patch.map_or(Hlc::ZERO, |patch| patch.at), &mut pieces);
                places.extend(pieces.iter().filter_map(|piece| match &piece.source {
                    PieceSource::Data(stored) => Some((stored.segment, stored.crcs_offset)),
                    PieceSource::Hole | PieceSource::Punched(_) | PieceSource::Image(_) | PieceSource::External(_) => {
                        None
                    }
                }));
            }
        }
    }
}
