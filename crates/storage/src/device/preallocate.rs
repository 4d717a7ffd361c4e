//! Spare segments, created ahead of need: a file system may take some milliseconds to find space for one, and no write
//! waits for that.
//!
//! Guarantees: a spare has the length of a segment and holds nothing that recovery could mistake for a part of the log.
//! Leaves to others: whether there is space (`device`), the thread that creates spares (`serve`).

use std::sync::Arc;

use frieze_base::Fault;
use frieze_disk::{Disk, DiskFile};
use frieze_locks::{Mutex, levels};
use frieze_multilog::SEGMENT_HEADER_BYTES;

use super::segment_file::{TRAILER_BYTES, wipe};
use crate::wake::Wake;

/// One is in use while the other is created.
pub(super) const COUNT: usize = 2;
const NAMES: [&str; COUNT] = ["spare-segment", "spare-segment-2"];
/// A spare beyond the first is created only if there is space for this many further segments.
const ROOM_FOR_MORE: u64 = 8;

/// The spare segments.
#[derive(Default)]
pub struct SpareSegments {
    /// Names of the spares; the last is used first.
    ready: Mutex<levels::SpareSegments, Vec<&'static str>>,
    /// Locked while a spare is created.
    creating: Mutex<levels::SpareCreation, ()>,
    taken: Arc<Wake>,
}

impl SpareSegments {
    /// The spares of an earlier process.
    ///
    /// # Errors
    /// The disk's.
    pub(super) fn recover(disk: &dyn Disk, segment_bytes: u64) -> Result<SpareSegments, Fault> {
        let spares = SpareSegments::default();
        let there = disk.list()?;
        for name in NAMES.into_iter().filter(|name| there.iter().any(|there| there == name)) {
            if spares.is_clean(disk, name, segment_bytes)? {
                spares.ready.lock().push(name);
            } else {
                disk.remove(name)?;
            }
        }
        Ok(spares)
    }

    /// Makes a spare of a file that recovery does not need; false if the file is not usable.
    ///
    /// # Errors
    /// The disk's.
    pub(super) fn put(&self, disk: &dyn Disk, file: &str, segment_bytes: u64) -> Result<bool, Fault> {
        let mut ready = self.ready.lock();
        let Some(name) = NAMES.into_iter().find(|name| !ready.contains(name)) else { return Ok(false) };
        if !self.is_clean(disk, file, segment_bytes)? {
            return Ok(false);
        }
        disk.rename(file, name)?;
        ready.push(name);
        Ok(true)
    }

    /// True if the file has the right length; then it holds nothing of a segment afterwards. A file named as a spare
    /// may have been a segment whose new name was lost: its old header must not reappear over new records, nor its old
    /// trailer cover them.
    fn is_clean(&self, disk: &dyn Disk, name: &str, segment_bytes: u64) -> Result<bool, Fault> {
        let file = disk.open(name)?;
        if file.len()? != segment_bytes {
            return Ok(false);
        }
        wipe(&*file, 0, SEGMENT_HEADER_BYTES)?;
        wipe(&*file, segment_bytes - TRAILER_BYTES, TRAILER_BYTES as usize)?;
        Ok(true)
    }

    /// Uses up one spare, which is renamed to `name`; `None` if there is none.
    ///
    /// # Errors
    /// The disk's.
    pub(super) fn take(&self, disk: &dyn Disk, name: &str) -> Result<Option<Arc<dyn DiskFile>>, Fault> {
        let ready = || self.ready.lock();
        if ready().is_empty() {
            // A spare in the making is ready sooner than a new one.
            drop(self.creating.lock());
        }
        let mut ready = ready();
        let Some(spare) = ready.last() else { return Ok(None) };
        disk.rename(spare, name)?;
        ready.pop();
        drop(ready);
        self.taken.wake();
        // Opened by its new name, which its errors print.
        Ok(Some(disk.open(name)?))
    }

    /// Removes a spare, for the space; false if there is none.
    ///
    /// # Errors
    /// The disk's.
    pub(super) fn release(&self, disk: &dyn Disk) -> Result<bool, Fault> {
        let mut ready = self.ready.lock();
        let Some(spare) = ready.first() else { return Ok(false) };
        disk.remove(spare)?;
        ready.remove(0);
        Ok(true)
    }

    /// Creates missing spares, while `has_room` for so many segments.
    ///
    /// # Errors
    /// The disk's.
    pub(super) fn fill(
        &self,
        disk: &dyn Disk,
        segment_bytes: u64,
        has_room: &dyn Fn(u64) -> bool,
    ) -> Result<(), Fault> {
        loop {
            // If another thread is creating spares, there is nothing to add.
            let Some(_creating) = self.creating.try_lock() else { return Ok(()) };
            let missing = {
                let ready = self.ready.lock();
                let room = if ready.is_empty() { 1 } else { ROOM_FOR_MORE };
                NAMES.into_iter().find(|name| !ready.contains(name)).filter(|_| has_room(room))
            };
            let Some(name) = missing else { return Ok(()) };
            disk.create(name, segment_bytes)?;
            self.ready.lock().insert(0, name);
        }
    }

    /// True if there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.ready.lock().is_empty()
    }

    /// Wakes the thread that waits until a spare is used.
    pub fn wake(&self) {
        self.taken.wake();
    }

    /// Waits until a spare is used, or for `timeout`.
    pub fn await_taken(&self, timeout: std::time::Duration) {
        self.taken.wait(timeout);
    }
}

#[cfg(test)]
mod tests {
    use frieze_disk::SimDisk;

    use super::*;

    const BYTES: u64 = 64 << 10;

    #[test]
    fn used_spares_are_replaced_while_there_is_space() {
        let (disk, spares) = (SimDisk::new(1), SpareSegments::default());
        assert!(spares.take(&disk, "seg-0").expect("a disk that works").is_none());
        spares.fill(&disk, BYTES, &|segments| segments < ROOM_FOR_MORE).expect("a disk that works");
        assert_eq!(disk.list().expect("a disk that works"), NAMES[..1]);
        spares.fill(&disk, BYTES, &|_| true).expect("a disk that works");
        assert_eq!(disk.list().expect("a disk that works"), NAMES);
        let taken = spares.take(&disk, "seg-1").expect("a disk that works").expect("there were two");
        assert_eq!(taken.len(), Ok(BYTES));
        spares.fill(&disk, BYTES, &|_| false).expect("a disk that works");
        assert_eq!(disk.list().expect("a disk that works").len(), 2);
        spares.fill(&disk, BYTES, &|_| true).expect("a disk that works");
        assert_eq!(disk.list().expect("a disk that works").len(), 3);
    }

    #[test]
    fn a_spare_of_an_earlier_process_holds_nothing_of_a_segment_and_has_its_length() {
        let disk = SimDisk::new(1);
        disk.create(NAMES[0], BYTES / 2).expect("there is room");
        let left = disk.create("seg-7", BYTES).expect("there is room");
        left.write_at(0, &[&[1; SEGMENT_HEADER_BYTES]]).expect("a disk that works");
        left.write_at(BYTES - TRAILER_BYTES, &[&[2; 100]]).expect("a disk that works");
        let spares = SpareSegments::recover(&disk, BYTES).expect("a disk that works");
        assert_eq!(disk.list().expect("a disk that works"), ["seg-7"], "one of another length is of no use");
        assert_eq!(spares.put(&disk, "seg-7", BYTES), Ok(true));
        let taken = spares.take(&disk, "seg-8").expect("a disk that works").expect("one was put there");
        let mut bytes = vec![9; BYTES as usize];
        taken.read_at(0, &mut bytes).expect("a disk that works");
        assert_eq!(bytes, vec![0; BYTES as usize]);
    }
}
