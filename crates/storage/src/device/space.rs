//! Space of the disk: what data, names and all other files may use.
//!
//! | free | refused |
//! |---|---|
//! | less than the reserve and a segment | data: files are not written further than the open segment and the spares |
//! | less than three quarters of the reserve | changes that make names or inodes more |
//! | less than a quarter of that | nothing more; a spare segment gives its space to other files |
//!
//! Removing, forgetting and a start write too: records of the metalog, tables of the store. The last part of the
//! reserve is theirs. Of a disk smaller than four reserves, names leave a quarter of the disk free.

use std::sync::atomic::Ordering;

use frieze_base::{Fault, Reason};
use frieze_disk::Space;

use super::Device;

impl Device {
    /// Checks that so many segments can be added.
    pub(super) fn check_room(&self, segments: u64) -> Result<(), Fault> {
        let space = self.disk.space()?;
        let needed = segments * self.settings.segment_bytes + self.budget.reserve_bytes;
        if space.free_bytes < needed {
            return Err(self.no_space("data", space, self.budget.reserve_bytes));
        }
        Ok(())
    }

    /// True if no segment can be added: writes fill the rest of the open segment, and are then refused.
    pub fn is_full(&self) -> bool {
        self.spares.is_empty() && self.check_room(1).is_err()
    }

    /// What a full disk refuses, as a sentence; `None` if it has space.
    pub fn space_trouble(&self) -> Option<&'static str> {
        match () {
            () if self.refuses_names() => Some(
                "the disk is full: what is left is for removing, forgetting and restarting; more names are refused",
            ),
            () if self.is_full() => {
                Some("the disk is full: it has no room for another segment of the log, and refuses writes")
            }
            () => None,
        }
    }

    /// True if there is space for a file that is not data.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.disk.space().is_ok_and(|space| space.free_bytes >= self.budget.reserve_bytes + bytes)
    }

    /// True if names and inodes may not become more, as of the last [`Device::watch_space`].
    pub fn refuses_names(&self) -> bool {
        self.refuses_names.load(Ordering::Relaxed)
    }

    /// Looks again whether names and inodes may become more; for a change that [`Device::refuses_names`] would refuse.
    ///
    /// # Errors
    /// `NoSpace`, with the commands that free space.
    ///
    /// # Cost
    /// A system call.
    pub fn check_room_for_names(&self) -> Result<(), Fault> {
        let (space, left_free) = self.space_beside_names()?;
        if self.refuses_names() { Err(self.no_space("more names", space, left_free)) } else { Ok(()) }
    }

    /// Looks how much space there is. To be called at a start, and about twice a second: in between, 50,000 creates a
    /// second use 10 MB.
    ///
    /// # Errors
    /// The disk's.
    pub fn watch_space(&self) -> Result<(), Fault> {
        let (space, left_free) = self.space_beside_names()?;
        // Another program may have used the reserve up.
        if space.free_bytes < left_free / 4 && self.spares.release(&*self.disk)? {
            tracing::warn!(
                "the disk is full: {} MiB are free; a spare segment is removed for what is not data",
                space.free_bytes >> 20
            );
        }
        Ok(())
    }

    /// The disk's space, and what names leave free of it. Notes whether more names are refused.
    fn space_beside_names(&self) -> Result<(Space, u64), Fault> {
        let space = self.disk.space()?;
        let left_free = (self.budget.reserve_bytes / 4 * 3).min(space.capacity_bytes / 4);
        self.refuses_names.store(space.free_bytes < left_free, Ordering::Relaxed);
        Ok((space, left_free))
    }

    /// What would free how much, in words that refusals of a full disk end with; empty for nothing.
    pub fn set_space_advice(&self, words: String) {
        *self.space_advice.lock() = words;
    }

    fn no_space(&self, what: &str, space: Space, kept_bytes: u64) -> Fault {
        let advice = self.space_advice.lock().clone();
        let also = if advice.is_empty() { "" } else { "; " };
        let words = format!(
            "no space for {what}: {} MiB free of {} MiB, and {} MiB are kept back so that removing, forgetting and \
             restarting work. To free space: `frieze du --history /` shows where history is, `frieze forget --before \
             7d-ago PATH` gives it up, `frieze snapshot delete NAME` lets go of what a snapshot holds; or make the \
             device larger{also}{advice}",
            space.free_bytes >> 20,
            space.capacity_bytes >> 20,
            kept_bytes >> 20
        );
        Fault::new(Reason::NoSpace, words)
    }
}
