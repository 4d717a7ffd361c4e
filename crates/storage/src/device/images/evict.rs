//! Evicting images: their bytes are overwritten before their slot is reused, or before history is reported as expired.

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::{Fault, InodeId};
use frieze_multilog::image::{ENTRY_BYTES, SLOT_BYTES, SLOT_HEAD_BYTES};
use frieze_multilog::{ImageKey, ImagePlace};

use super::super::Device;
use super::{FreeSlots, ImageStore, drop_pages, image_name};

impl Device {
    /// Evicts useless images: those that could not be read or belong to other records, those above the limit, and
    /// remains of a crash in free slots.
    ///
    /// # Errors
    /// The disk's: the next call continues.
    pub(super) fn evict_useless(&self) -> Result<(), Fault> {
        let mut free_slots = self.images.slots.lock();
        self.wipe_strays(&mut free_slots)?;
        self.erase_lost(&mut free_slots)?;
        self.evict_forgotten(&mut free_slots)?;
        let unfit = self.images().unfit();
        self.evict_listed(&mut free_slots, &unfit, false)?;
        while self.images.bytes() > self.image_bytes_max() && self.evict_file(&mut free_slots)? {}
        Ok(())
    }

    /// Removes the bytes of dead records of these files from all images, on stable storage on return.
    ///
    /// # Errors
    /// The disk's: then no read uses those images any more, and the next call of this or [`Device::make_images`]
    /// removes the rest.
    pub fn forget_images(&self, inodes: impl IntoIterator<Item = InodeId>) -> Result<(), Fault> {
        self.images.to_forget.lock().extend(inodes);
        // The thread that writes an image of records not yet dead has this lock until the image is listed.
        let mut free_slots = self.images.slots.lock();
        self.wipe_strays(&mut free_slots)?;
        self.erase_lost(&mut free_slots)?;
        self.evict_forgotten(&mut free_slots)?;
        if free_slots.removed {
            self.disk.sync_dir()?;
            free_slots.removed = false;
        }
        Ok(())
    }

    /// Evicts these images, on stable storage.
    ///
    /// # Errors
    /// As [`Device::forget_images`].
    pub(in crate::device) fn evict_images(&self, keys: &[ImageKey]) -> Result<(), Fault> {
        let mut free_slots = self.images.slots.lock();
        self.evict_listed(&mut free_slots, keys, false)
    }

    fn evict_forgotten(&self, free_slots: &mut FreeSlots) -> Result<(), Fault> {
        let due = self.images.to_forget.lock().clone();
        let mut keys = Vec::new();
        for inode in &due {
            if self.images().of_file(*inode).next().is_some() {
                let log = self.log_of([*inode])?;
                keys.extend(log.images_of_dead(&self.images(), *inode));
            }
        }
        self.evict_listed(free_slots, &keys, false)?;
        let mut to_forget = self.images.to_forget.lock();
        to_forget.retain(|inode| !due.contains(inode));
        Ok(())
    }

    /// Evicts an image file to make space for data. False if there is none.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) fn evict_image_file(&self) -> Result<bool, Fault> {
        let mut free_slots = self.images.slots.lock();
        self.evict_file(&mut free_slots)
    }

    /// Evicts the file with the fewest images.
    fn evict_file(&self, free_slots: &mut FreeSlots) -> Result<bool, Fault> {
        let fewest = {
            let files = self.images.files.read();
            let used = |number: u32, slots: u32| slots as usize - ImageStore::free_slots(free_slots, number);
            files.iter().map(|(number, (head, _))| (used(*number, head.slots), *number)).min()
        };
        let Some((_, number)) = fewest else { return Ok(false) };
        let mut images = self.images.set.write();
        let gone: Vec<ImageKey> =
            images.iter().filter(|(_, place)| place.file == number).map(|(key, _)| *key).collect();
        for key in &gone {
            images.remove(key);
        }
        drop(images);
        if let Some(oldest) = gone.iter().map(|key| key.stamp).min() {
            // The next look at the page counts its pieces.
            self.images.cursor.note_evicted(oldest, 2 * self.images.budget.pieces_max as usize);
        }
        self.remove_image_file(free_slots, number)?;
        Ok(true)
    }

    /// Evicts images; `missed` if they would be of use.
    pub(super) fn evict_listed(
        &self,
        free_slots: &mut FreeSlots,
        keys: &[ImageKey],
        missed: bool,
    ) -> Result<(), Fault> {
        if keys.is_empty() {
            return Ok(());
        }
        let places: Vec<ImagePlace> = {
            let mut images = self.images.set.write();
            keys.iter().filter_map(|key| images.remove(key)).collect()
        };
        for key in keys.iter().filter(|_| missed) {
            let log = self.log_of([key.chunk.inode])?;
            let pieces = log.pieces_without(&self.images(), key);
            drop(log);
            self.images.cursor.note_evicted(key.stamp, pieces);
        }
        self.erase_images(free_slots, &places).inspect_err(|_| {
            // Retried before history is reported as expired.
            self.images.lost.lock().extend(&places);
        })
    }

    fn erase_lost(&self, free_slots: &mut FreeSlots) -> Result<(), Fault> {
        let lost = std::mem::take(&mut *self.images.lost.lock());
        self.erase_images(free_slots, &lost).inspect_err(|_| {
            self.images.lost.lock().extend(lost);
        })
    }

    /// Overwrites slots, durably, and frees them. A file without images is removed.
    fn erase_images(&self, free_slots: &mut FreeSlots, places: &[ImagePlace]) -> Result<(), Fault> {
        let mut of: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for place in places {
            of.entry(place.file).or_default().insert(place.slot);
        }
        let zeros = vec![0; SLOT_BYTES as usize];
        for (number, slots) in of {
            let Some((head, file)) = self.images.file(number) else { continue };
            // The heads first, each within a sector: a power loss finds whole images, and slots that have none; never
            // an image with a head and half of its page, which would be reported as damaged.
            let (no_head, no_page) = zeros.split_at(SLOT_HEAD_BYTES);
            for slot in &slots {
                file.write_at(head.slot_at(*slot), &[no_head])?;
            }
            file.sync()?;
            for slot in &slots {
                file.write_at(head.slot_at(*slot) + SLOT_HEAD_BYTES as u64, &[no_page])?;
                file.write_at(head.entry_at(*slot), &[&zeros[..ENTRY_BYTES]])?;
            }
            // If a power loss restored an old entry, it would find the same image half written in a slot that was used
            // again.
            file.sync()?;
            let free = free_slots.free.entry(number).or_default();
            free.extend(slots);
            if free.len() == head.slots as usize {
                self.remove_image_file(free_slots, number)?;
            }
        }
        Ok(())
    }

    fn remove_image_file(&self, free_slots: &mut FreeSlots, number: u32) -> Result<(), Fault> {
        free_slots.free.remove(&number);
        free_slots.strays.retain(|place| place.file != number);
        free_slots.removed = true;
        self.images.files.write().remove(&number);
        Ok(self.disk.remove(&image_name(number))?)
    }

    /// Overwrites slots without an entry, after a start.
    fn wipe_strays(&self, free_slots: &mut FreeSlots) -> Result<(), Fault> {
        if free_slots.strays.is_empty() {
            return Ok(());
        }
        let strays = std::mem::take(&mut free_slots.strays);
        let (mut filled, mut bytes) = (Vec::new(), vec![0; SLOT_BYTES as usize]);
        for place in &strays {
            let Some((head, file)) = self.images.file(place.file) else { continue };
            let read = file.read_at(head.slot_at(place.slot), &mut bytes);
            drop_pages(&*file, head.slot_at(place.slot), SLOT_BYTES);
            match read.is_ok() && bytes.iter().all(|&byte| byte == 0) {
                true => free_slots.free.entry(place.file).or_default().push(place.slot),
                false => filled.push(*place),
            }
        }
        self.erase_images(free_slots, &filled).inspect_err(|_| free_slots.strays.extend(&filled))
    }
}
