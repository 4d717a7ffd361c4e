//! Segments made ahead of need: a file system may take some milliseconds to find room for one, and no write waits for
//! that.
//!
//! Guarantees: what is taken from here has the length of a segment and holds nothing that recovery could take for a
//! part of the log. Leaves to others: whether there is room (`device`), the thread that fills up (`serve`).

use std::sync::{Arc, Mutex, PoisonError};

use frieze_base::Fault;
use frieze_disk::{Disk, DiskFile};
use frieze_multilog::SEGMENT_HEADER_BYTES;

use super::TRAILER_BYTES;
use super::recover::wipe;
use crate::wake::Wake;

/// One to be used while the other is made.
pub(super) const COUNT: usize = 2;
const NAMES: [&str; COUNT] = ["spare-segment", "spare-segment-2"];
/// Room for so many segments more has to be left for a spare beyond the first.
const ROOM_FOR_MORE: u64 = 8;

/// The segments made ahead of need.
#[derive(Default)]
pub struct SpareSegments {
    /// Names of those that are there, the next to be used last.
    ready: Mutex<Vec<&'static str>>,
    /// Held by who makes one.
    making: Mutex<()>,
    taken: Arc<Wake>,
}

impl SpareSegments {
    /// Those that an earlier life has left.
    ///
    /// # Errors
    /// The disk's.
    pub(super) fn recover(disk: &dyn Disk, segment_bytes: u64) -> Result<SpareSegments, Fault> {
        let spares = SpareSegments::default();
        let there = disk.list()?;
        for name in NAMES.into_iter().filter(|name| there.iter().any(|there| there == name)) {
            if spares.is_clean(disk, name, segment_bytes)? {
                spares.ready.lock().unwrap_or_else(PoisonError::into_inner).push(name);
            } else {
                disk.remove(name)?;
            }
        }
        Ok(spares)
    }

    /// Makes a spare of a file that recovery does not need; false if it is not of use.
    ///
    /// # Errors
    /// The disk's.
    pub(super) fn put(&self, disk: &dyn Disk, file: &str, segment_bytes: u64) -> Result<bool, Fault> {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(name) = NAMES.into_iter().find(|name| !ready.contains(name)) else { return Ok(false) };
        if !self.is_clean(disk, file, segment_bytes)? {
            return Ok(false);
        }
        disk.rename(file, name)?;
        ready.push(name);
        Ok(true)
    }

    /// True if the file has the right length; then there is nothing of a segment in it afterwards. Also one that was a
    /// spare may have been a segment whose new name was lost: an old header must not come back over new records, nor an
    /// old trailer vouch for them.
    fn is_clean(&self, disk: &dyn Disk, name: &str, segment_bytes: u64) -> Result<bool, Fault> {
        let file = disk.open(name)?;
        if file.len()? != segment_bytes {
            return Ok(false);
        }
        wipe(&*file, 0, SEGMENT_HEADER_BYTES)?;
        wipe(&*file, segment_bytes - TRAILER_BYTES, TRAILER_BYTES as usize)?;
        Ok(true)
    }

    /// Takes one, which is called `name` from then on; `None` if there is none.
    ///
    /// # Errors
    /// The disk's.
    pub(super) fn take(&self, disk: &dyn Disk, name: &str) -> Result<Option<Arc<dyn DiskFile>>, Fault> {
        let ready = || self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if ready().is_empty() {
            // One that is being made is there sooner than one begun now.
            drop(self.making.lock().unwrap_or_else(PoisonError::into_inner));
        }
        let mut ready = ready();
        let Some(spare) = ready.last() else { return Ok(None) };
        disk.rename(spare, name)?;
        ready.pop();
        drop(ready);
        self.taken.wake();
        // By its new name, which is what its errors say.
        Ok(Some(disk.open(name)?))
    }

    /// Makes those that are missing, where `has_room` for so many segments.
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
            // Who finds somebody at it has nothing to add.
            let Ok(_making) = self.making.try_lock() else { return Ok(()) };
            let missing = {
                let ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
                let room = if ready.is_empty() { 1 } else { ROOM_FOR_MORE };
                NAMES.into_iter().find(|name| !ready.contains(name)).filter(|_| has_room(room))
            };
            let Some(name) = missing else { return Ok(()) };
            disk.create(name, segment_bytes)?;
            self.ready.lock().unwrap_or_else(PoisonError::into_inner).insert(0, name);
        }
    }

    /// True if there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Wakes who waits for one to be taken.
    pub fn wake(&self) {
        self.taken.wake();
    }

    /// Waits until one is taken, or for `timeout`.
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
    fn what_is_taken_is_made_again_while_there_is_room() {
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
    fn a_spare_of_an_earlier_life_holds_nothing_of_a_segment_and_has_its_length() {
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
