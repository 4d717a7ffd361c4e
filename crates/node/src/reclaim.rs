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
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use frieze_base::{Fault, InodeId, Reason, SegmentId};
use frieze_hlc::Hlc;
use frieze_locks::{Mutex, MutexGuard, RwLockWriteGuard, levels};
use frieze_multilog::{DeadRecord, PieceSource};
use frieze_namespace::{Expiries, Inode, SharedState};

use crate::elsewhere::Elsewhere;
use crate::engine::Engine;
use crate::seen::{Layer, Look, Seen, parts};
use frieze_replication::REACH_BYTES_MAX;

/// Most times a full pass is put off while edits are under way: ten seconds, as `reclaim` is called.
const PUT_OFF_MAX: u32 = 20;

/// Place of a record.
pub(crate) type Place = (SegmentId, u64);

/// The dead records, and the space of them that is not freed yet.
#[derive(Default)]
pub(crate) struct Reclaim {
    state: Mutex<levels::DeadRecords, State>,
    /// A full pass is due: after a start, or after a snapshot was deleted.
    wanted: AtomicBool,
    /// A full pass has finished since the start: every dead record is known.
    known: AtomicBool,
    /// Times the full pass was put off because edits were under way.
    put_off: AtomicU32,
    buried_bytes: AtomicU64,
    waiting_bytes: AtomicU64,
    progress: Progress,
}

/// Progress of a command that expires history, for the thread that waits for it. One such command runs at a time.
#[derive(Default)]
pub(crate) struct Progress {
    looked_at: AtomicU64,
    to_look_at: AtomicU64,
}

impl Progress {
    /// Counts one more file as checked.
    pub(crate) fn step(&self) {
        self.looked_at.fetch_add(1, Ordering::Relaxed);
    }

    /// Sets how many files there are to check.
    pub(crate) fn expect(&self, count: u64) {
        self.to_look_at.store(count, Ordering::Relaxed);
    }

    /// Files checked, and files to check.
    pub(crate) fn now(&self) -> (u64, u64) {
        (self.looked_at.load(Ordering::Relaxed), self.to_look_at.load(Ordering::Relaxed))
    }

    /// Begins; when the answer is dropped, the progress ends.
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

/// State of [`Reclaim`].
#[derive(Default)]
pub(crate) struct State {
    /// Stretches of a segment without a live record, from first byte to end: neighbours merge.
    graves: BTreeMap<SegmentId, BTreeMap<u64, u64>>,
    /// Segments with more dead bytes than freed ones, and the difference.
    due: BTreeMap<SegmentId, u64>,
    /// Why space cannot be freed.
    trouble: Option<Fault>,
}

/// Older states of inodes with expired history that other files share: instants, each with ranges.
pub(crate) type Needs = BTreeMap<InodeId, BTreeMap<Hlc, Vec<(u64, u64)>>>;

/// The dead records of one inode.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dead {
    pub(crate) graves: Vec<DeadRecord>,
    /// Upper bound of the stamps that were checked.
    pub(crate) upto: Hlc,
    /// Bytes that would be dead but for snapshots and shared ranges.
    pub(crate) held_bytes: u64,
    /// Those of `held_bytes` that the snapshots of an instant show, by instant.
    pub(crate) held_by_pin: BTreeMap<Hlc, u64>,
    /// True if every record of the file is dead: it is deleted, and no snapshot and no shared range shows it.
    pub(crate) is_all: bool,
    /// Readable instants up to `upto`, ascending. Empty for a deleted file: the index keeps all of its instants, since
    /// a client that has the file open may still ask for its content.
    pub(crate) kept: Vec<Hlc>,
}

impl Dead {
    pub(crate) fn bytes(&self) -> u64 {
        self.graves.iter().map(|grave| u64::from(grave.bytes)).sum()
    }
}

impl Reclaim {
    #[track_caller]
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Requests a full pass, soon.
    pub(crate) fn want(&self) {
        self.wanted.store(true, Ordering::Release);
    }

    /// True once every record that had expired before this start is known again.
    pub(crate) fn is_known(&self) -> bool {
        self.known.load(Ordering::Acquire)
    }

    /// Progress of the command that expires history.
    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Bytes of dead records, and those of them that are not freed yet.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.buried_bytes.load(Ordering::Relaxed), self.waiting_bytes.load(Ordering::Relaxed))
    }

    /// Publishes the figures of `state` for the status report.
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

    /// Stretches of a segment without a live record: first byte and end.
    pub(crate) fn graves_in(&self, segment: SegmentId) -> BTreeMap<u64, u64> {
        self.graves.get(&segment).cloned().unwrap_or_default()
    }

    /// Why space cannot be freed, if it cannot.
    pub(crate) fn trouble(&self) -> Option<&Fault> {
        self.trouble.as_ref()
    }

    /// Bytes that wait until their segments are closed.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.due.values().sum()
    }
}

impl Engine {
    /// Older states of inodes with expired history that readable states share.
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

    /// The records of an inode that no read needs any more, given the horizons. None for an inode without expired
    /// history.
    ///
    /// # Errors
    /// Those of the store.
    ///
    /// # Cost
    /// A plan of the whole file for each readable instant.
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

    /// Adds the places of the records that ranges of a file show at an instant (`None`: now).
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
        // Each server frees its own records. The length of the file does not matter.
        let look = self.look_with(&[&Seen::at(id, inode.clone(), at)], &[], Elsewhere::default())?;
        for &(start, end) in ranges {
            look.own_places(id, &inode, at.unwrap_or(Hlc::MAX), (start, end), places);
        }
        Ok(())
    }

    /// Marks the records of `dead`: no plan names them any more, and their space is due. [`Reclaim::note`] publishes
    /// it.
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

    /// Frees what is due in closed segments. Returns the bytes freed on the device.
    ///
    /// # Errors
    /// The disk's. What was not freed stays due.
    pub(crate) fn give_back(&self, state: &mut State) -> Result<u64, Fault> {
        if state.due.is_empty() {
            return Ok(0);
        }
        // The horizon is durable before the bytes are freed: after a crash no read may ask for them.
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
        self.reclaim.note(state);
        Ok(freed)
    }

    /// Runs the pass over expired records. At the first call after a start and after a snapshot was deleted, it checks
    /// every inode again; it frees what is due in segments that are closed by now. Call it about twice a second, on a
    /// thread that may block for long.
    ///
    /// # Errors
    /// Those of the store and the disk's: the next call continues.
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

    /// Moves the index of sealed segments to shelves, or merges shelves, if there is work, and returns memory. Call it
    /// about twice a second, on a thread that may block for long, and again while it returns true: there may be more
    /// work.
    ///
    /// # Errors
    /// The disk's: nothing has changed, and the next call tries again.
    pub fn shelve(&self) -> Result<bool, Fault> {
        if self.durability.failure().is_some() {
            return Ok(false);
        }
        let device = self.data.device();
        let lives = |session| self.meta.has_session(session);
        device.write_index_runs(&|tips| self.data.encode_dedupe(tips, &lives))
    }

    /// The next write begins a new segment, so that the old one can be shelved or freed after the next flushes. The
    /// rest of the old segment stays unused.
    pub fn close_segment(&self) {
        let _held = self.data.lock_appender();
        self.data.device().close_open();
    }

    /// In words, what was damaged since the last call: indexes on disk that were rebuilt, and images that were dropped.
    pub fn mended(&self) -> Vec<String> {
        let device = self.data.device();
        [device.take_repairs(), device.take_image_damage()].concat()
    }

    /// Keeps edits out. A clone of a snapshot that was deleted after the clone was planned has to finish first, so that
    /// `needs` sees what it shares; a clone planned later is refused the deleted snapshot. While an edit is under way
    /// the pass is put off a few times; after that it waits for the edit.
    #[track_caller]
    fn without_edits(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        let alone = match self.forgetting.try_write() {
            Some(alone) => alone,
            None if self.reclaim.put_off.fetch_add(1, Ordering::Relaxed) < PUT_OFF_MAX => {
                return None;
            }
            None => self.forgetting.write(),
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
            // The records of this chunk may reach over its end.
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
