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

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use frieze_base::{Fault, InodeId};
use frieze_hlc::Hlc;
use frieze_locks::RwLockWriteGuard;

use crate::upkeep::Upkeep;

/// Most times a full pass is put off while edits are under way: ten seconds, as [`Upkeep::reclaim`] is called.
const PUT_OFF_MAX: u32 = 20;

impl Upkeep {
    /// Runs the pass over expired records. At the first call after a start and after a snapshot was deleted, it checks
    /// every inode again; it frees what is due in segments that are closed by now. Call it about twice a second, on a
    /// thread that may block for long.
    ///
    /// # Errors
    /// Those of the store and the disk's: the next call continues.
    pub fn reclaim(&self) -> Result<(), Fault> {
        // Without a lease some records here may not be the chain's: nothing dies by them.
        if self.planes.durability.failure().is_some() || self.planes.data.check_lease().is_err() {
            return Ok(());
        }
        let _alone = self.thinning.lock();
        // What was forgotten by way of another server has to go here, too.
        if self.planes.gc.lock().expiries != self.planes.expiries() {
            self.planes.gc.want();
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
            self.planes.give_back(&mut state)?;
        }
        Ok(())
    }

    /// Frees what has expired, thins, and counts what is kept of trees with a quota of it: a step of each. Call it
    /// about twice a second, on a thread that may block for long.
    ///
    /// # Errors
    /// Those of the store and the disk's: the next call continues.
    pub fn tend_history(&self) -> Result<(), Fault> {
        self.reclaim()?;
        self.thin()?;
        self.files.count_kept()
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
        let (expiries, horizons) = {
            let Some(_alone) = self.without_edits() else {
                self.planes.gc.want();
                return Ok(());
            };
            (self.planes.expiries(), self.planes.meta.horizons())
        };
        if horizons.is_empty() {
            state.expiries = expiries;
            self.planes.gc.known.store(true, Ordering::Release);
            return Ok(());
        }
        let needs = self.files.needs(&horizons)?;
        let device = self.planes.data.device();
        let mut ids: BTreeSet<InodeId> = horizons.inodes().collect();
        if horizons.has_expired_removals() {
            // Of all that were ever removed, those of which there is something left.
            let (files, _) = device.log().files_with_records(Hlc::ZERO, Hlc::MAX);
            ids.extend(files.into_iter().filter(|id| horizons.is_removal_expired(*id)));
        }
        for &id in &ids {
            let dead = self.files.dead_of(&horizons, &needs, id)?;
            self.planes.mark_dead(&mut state, id, &dead)?;
        }
        device.forget_images(ids)?;
        (state.expiries, state.removals_upto) = (expiries, horizons.newest_expired_removal());
        self.planes.gc.note(&state);
        self.planes.gc.known.store(true, Ordering::Release);
        self.planes.give_back(&mut state).map(drop)
    }
}
