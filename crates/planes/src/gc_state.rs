//! Records that expired history has left dead, and how much of their space is free.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use frieze_base::{Fault, InodeId, MonoTime, SegmentId};
use frieze_hlc::Hlc;
use frieze_locks::{Mutex, MutexGuard, levels};
use frieze_multilog::DeadRecord;

/// RecordPlace of a record.
pub type RecordPlace = (SegmentId, u64);

/// The dead records, and the space of them that is not freed yet.
#[derive(Default)]
pub struct GcState {
    state: Mutex<levels::DeadRecords, DeadSpace>,
    /// A full pass is due: after a start, or after a snapshot was deleted.
    pub wanted: AtomicBool,
    /// A full pass has finished since the start: every dead record is known.
    pub known: AtomicBool,
    /// A pass over what policies thin has finished since the start.
    pub thinned: AtomicBool,
    /// Bytes that died outside of packs since records were packed last.
    pub unpacked_bytes: AtomicU64,
    /// Files that the pass over what policies thin has still to look at.
    pub thinning_left: AtomicU64,
    /// Times the full pass was put off because edits were under way.
    pub put_off: AtomicU32,
    /// Bytes of dead records.
    pub buried_bytes: AtomicU64,
    /// Those of them that are not freed yet.
    pub waiting_bytes: AtomicU64,
    progress: ExpiryProgress,
}

/// ExpiryProgress of a command that expires history, for the thread that waits for it. One such command runs at a time.
#[derive(Default)]
pub struct ExpiryProgress {
    looked_at: AtomicU64,
    to_look_at: AtomicU64,
}

impl ExpiryProgress {
    /// Counts one more file as checked.
    pub fn step(&self) {
        self.looked_at.fetch_add(1, Ordering::Relaxed);
    }

    /// Sets how many files there are to check.
    pub fn expect(&self, count: u64) {
        self.to_look_at.store(count, Ordering::Relaxed);
    }

    /// Files checked, and files to check.
    pub fn now(&self) -> (u64, u64) {
        (self.looked_at.load(Ordering::Relaxed), self.to_look_at.load(Ordering::Relaxed))
    }

    /// Begins; when the answer is dropped, the progress ends.
    pub fn begin(&self) -> impl Drop + '_ {
        struct Under<'a>(&'a ExpiryProgress);
        impl Drop for Under<'_> {
            fn drop(&mut self) {
                self.0.looked_at.store(0, Ordering::Relaxed);
                self.0.to_look_at.store(0, Ordering::Relaxed);
            }
        }
        Under(self)
    }
}

/// Counts what makes records die other than marks of policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpiryCount {
    /// Transactions that forgot something.
    pub forgettings: usize,
    /// Instants that lost their last name since the start, and changes of policies.
    pub policies: u64,
}

/// DeadSpace of [`GcState`].
#[derive(Default)]
pub struct DeadSpace {
    /// Stretches of a segment without a live record, from first byte to end: neighbours merge.
    pub graves: BTreeMap<SegmentId, BTreeMap<u64, u64>>,
    /// Segments with more dead bytes than freed ones, and the difference.
    pub due: BTreeMap<SegmentId, u64>,
    /// Transactions by which records may die of which the directory has noted that they count here: see
    /// [`frieze_replication::DataPlane::expired_index`].
    pub noted_changes: Option<u64>,
    /// The expiries whose dead records are known.
    pub expiries: ExpiryCount,
    /// What policies let go of in transactions up to this stamp is marked dead.
    pub removals_upto: Hlc,
    /// Bytes that died in packs since they were made.
    pub dead_in_packs: BTreeMap<SegmentId, u64>,
    /// Bytes that died outside of packs since records were packed last.
    pub dead_since_pack: u64,
    /// So many of them are looked at again: less was not worth it.
    pub pack_at: u64,
    /// No pack is made before.
    pub pack_after: MonoTime,
    /// Why no pack was made last.
    pub pack_trouble: String,
    /// What would free a full disk is not looked for before.
    pub advise_after: MonoTime,
    /// Why space cannot be freed.
    pub trouble: Option<Fault>,
}

/// Older states of inodes with expired history that other files share: instants, each with ranges.
pub type Needs = BTreeMap<InodeId, BTreeMap<Hlc, Vec<(u64, u64)>>>;

/// The dead records of one inode.
#[derive(Clone, Debug, Default)]
pub struct DeadRecords {
    /// The dead records.
    pub graves: Vec<DeadRecord>,
    /// Upper bound of the stamps that were checked.
    pub upto: Hlc,
    /// Bytes that would be dead but for snapshots and shared ranges.
    pub held_bytes: u64,
    /// Those of `held_bytes` that the snapshots of an instant show, by instant.
    pub held_by_pin: BTreeMap<Hlc, u64>,
    /// True if every record of the file is dead: it is deleted, and no snapshot and no shared range shows it.
    pub is_all: bool,
    /// Readable instants up to `upto`, ascending. Empty for a deleted file: the index keeps all of its instants, since
    /// a client that has the file open may still ask for its content.
    pub kept: Vec<Hlc>,
}

impl DeadRecords {
    /// Bytes of the dead records.
    pub fn bytes(&self) -> u64 {
        self.graves.iter().map(|grave| u64::from(grave.bytes)).sum()
    }
}

impl GcState {
    /// Locks the lists of dead space.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, DeadSpace> {
        self.state.lock()
    }

    /// Requests a full pass, soon.
    pub fn want(&self) {
        self.wanted.store(true, Ordering::Release);
    }

    /// ExpiryProgress of the command that expires history.
    pub fn progress(&self) -> &ExpiryProgress {
        &self.progress
    }

    /// Bytes of dead records, and those of them that are not freed yet.
    pub fn bytes(&self) -> (u64, u64) {
        (self.buried_bytes.load(Ordering::Relaxed), self.waiting_bytes.load(Ordering::Relaxed))
    }

    /// Publishes the figures of `state` for the status report.
    pub fn note(&self, state: &DeadSpace) {
        let len = |runs: &BTreeMap<u64, u64>| runs.iter().map(|(start, end)| end - start).sum::<u64>();
        self.buried_bytes.store(state.graves.values().map(len).sum(), Ordering::Relaxed);
        self.waiting_bytes.store(state.due.values().sum(), Ordering::Relaxed);
        self.unpacked_bytes.store(state.dead_since_pack, Ordering::Relaxed);
    }
}

impl DeadSpace {
    /// Adds dead records; neighbours merge.
    pub fn add(&mut self, graves: &[DeadRecord]) {
        for grave in graves {
            if grave.segment.is_pack() {
                // Its space comes back when the pack is made anew.
                *self.dead_in_packs.entry(grave.segment).or_default() += u64::from(grave.bytes);
                continue;
            }
            self.dead_since_pack += grave.end - grave.start;
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
    pub fn graves_in(&self, segment: SegmentId) -> BTreeMap<u64, u64> {
        self.graves.get(&segment).cloned().unwrap_or_default()
    }

    /// Why space cannot be freed, if it cannot.
    pub fn trouble(&self) -> Option<&Fault> {
        self.trouble.as_ref()
    }

    /// Bytes that wait until their segments are closed.
    pub fn waiting_bytes(&self) -> u64 {
        self.due.values().sum()
    }
}
