//! Evicting images: their bytes are overwritten before their slot is reused, or before history is reported as expired.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;

use frieze_base::{Fault, InodeId};
use frieze_multilog::image::{ENTRY_BYTES, SLOT_BYTES};
use frieze_multilog::{ImageKey, ImagePlace};

use super::super::Device;
use super::{ImageStore, Making, image_name, let_go};

impl Device {
    /// Evicts useless images: those that could not be read or belong to other records, those above the limit, and
    /// remains of a crash in free slots.
    ///
    /// # Errors
    /// The disk's: the next call continues.
    pub(super) fn clear_up(&self) -> Result<(), Fault> {
        let mut making = self.images.making.lock().unwrap_or_else(PoisonError::into_inner);
        self.wipe_strays(&mut making)?;
        self.erase_lost(&mut making)?;
        self.forget_due(&mut making)?;
        let unfit = self.images().unfit();
        self.give_up_images(&mut making, &unfit, false)?;
        while self.images.bytes() > self.image_bytes_max() && self.give_up_file(&mut making)? {}
        Ok(())
    }

    /// Removes the bytes of dead records of these files from all images, on stable storage on return.
    ///
    /// # Errors
    /// The disk's: then no read uses those images any more, and the next call of this or [`Device::make_images`]
    /// removes the rest.
    pub fn forget_images(&self, inodes: impl IntoIterator<Item = InodeId>) -> Result<(), Fault> {
        self.images.to_forget.lock().unwrap_or_else(PoisonError::into_inner).extend(inodes);
        // The thread that writes an image of records not yet dead has this lock until the image is listed.
        let mut making = self.images.making.lock().unwrap_or_else(PoisonError::into_inner);
        self.wipe_strays(&mut making)?;
        self.erase_lost(&mut making)?;
        self.forget_due(&mut making)?;
        if making.removed {
            self.disk.sync_dir()?;
            making.removed = false;
        }
        Ok(())
    }

    /// Evicts these images, on stable storage.
    ///
    /// # Errors
    /// As [`Device::forget_images`].
    pub(in crate::device) fn give_up(&self, keys: &[ImageKey]) -> Result<(), Fault> {
        let mut making = self.images.making.lock().unwrap_or_else(PoisonError::into_inner);
        self.give_up_images(&mut making, keys, false)
    }

    fn forget_due(&self, making: &mut Making) -> Result<(), Fault> {
        let due = self.images.to_forget.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut keys = Vec::new();
        for inode in &due {
            if self.images().of_file(*inode).next().is_some() {
                let log = self.log_of([*inode])?;
                keys.extend(log.images_of_dead(&self.images(), *inode));
            }
        }
        self.give_up_images(making, &keys, false)?;
        let mut to_forget = self.images.to_forget.lock().unwrap_or_else(PoisonError::into_inner);
        to_forget.retain(|inode| !due.contains(inode));
        Ok(())
    }

    /// Evicts an image file to make space for data. False if there is none.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) fn make_room_of_images(&self) -> Result<bool, Fault> {
        let mut making = self.images.making.lock().unwrap_or_else(PoisonError::into_inner);
        self.give_up_file(&mut making)
    }

    /// Evicts the file with the fewest images.
    fn give_up_file(&self, making: &mut Making) -> Result<bool, Fault> {
        let fewest = {
            let files = self.images.files.read().unwrap_or_else(PoisonError::into_inner);
            let used = |number: u32, slots: u32| slots as usize - ImageStore::free_slots(making, number);
            files.iter().map(|(number, (head, _))| (used(*number, head.slots), *number)).min()
        };
        let Some((_, number)) = fewest else { return Ok(false) };
        let mut images = self.images.set.write().unwrap_or_else(PoisonError::into_inner);
        let gone: Vec<ImageKey> =
            images.iter().filter(|(_, place)| place.file == number).map(|(key, _)| *key).collect();
        for key in &gone {
            images.remove(key);
        }
        drop(images);
        if let Some(oldest) = gone.iter().map(|key| key.stamp).min() {
            // The next look at the page counts its pieces.
            self.images.swept.give_up(oldest, 2 * self.images.budget.pieces_max as usize);
        }
        self.remove_image_file(making, number)?;
        Ok(true)
    }

    /// Evicts images; `missed` if they would be of use.
    pub(super) fn give_up_images(&self, making: &mut Making, keys: &[ImageKey], missed: bool) -> Result<(), Fault> {
        if keys.is_empty() {
            return Ok(());
        }
        let places: Vec<ImagePlace> = {
            let mut images = self.images.set.write().unwrap_or_else(PoisonError::into_inner);
            keys.iter().filter_map(|key| images.remove(key)).collect()
        };
        for key in keys.iter().filter(|_| missed) {
            let log = self.log_of([key.chunk.inode])?;
            let pieces = log.pieces_without(&self.images(), key);
            drop(log);
            self.images.swept.give_up(key.stamp, pieces);
        }
        self.erase_images(making, &places).inspect_err(|_| {
            // Retried before history is reported as expired.
            self.images.lost.lock().unwrap_or_else(PoisonError::into_inner).extend(&places);
        })
    }

    fn erase_lost(&self, making: &mut Making) -> Result<(), Fault> {
        let lost = std::mem::take(&mut *self.images.lost.lock().unwrap_or_else(PoisonError::into_inner));
        self.erase_images(making, &lost).inspect_err(|_| {
            self.images.lost.lock().unwrap_or_else(PoisonError::into_inner).extend(lost);
        })
    }

    /// Overwrites slots, durably, and frees them. A file without images is removed.
    fn erase_images(&self, making: &mut Making, places: &[ImagePlace]) -> Result<(), Fault> {
        let mut of: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for place in places {
            of.entry(place.file).or_default().insert(place.slot);
        }
        let zeros = vec![0; SLOT_BYTES as usize];
        for (number, slots) in of {
            let Some((head, file)) = self.images.file(number) else { continue };
            for slot in &slots {
                file.write_at(head.slot_at(*slot), &[&zeros])?;
            }
            file.sync()?;
            for slot in &slots {
                file.write_at(head.entry_at(*slot), &[&zeros[..ENTRY_BYTES]])?;
            }
            // If a power loss restored an old entry, it would find the same image half written, and report it as
            // damaged.
            file.sync()?;
            let free = making.free.entry(number).or_default();
            free.extend(slots);
            if free.len() == head.slots as usize {
                self.remove_image_file(making, number)?;
            }
        }
        Ok(())
    }

    fn remove_image_file(&self, making: &mut Making, number: u32) -> Result<(), Fault> {
        making.free.remove(&number);
        making.strays.retain(|place| place.file != number);
        making.removed = true;
        self.images.files.write().unwrap_or_else(PoisonError::into_inner).remove(&number);
        Ok(self.disk.remove(&image_name(number))?)
    }

    /// Overwrites slots without an entry, after a start.
    fn wipe_strays(&self, making: &mut Making) -> Result<(), Fault> {
        if making.strays.is_empty() {
            return Ok(());
        }
        let strays = std::mem::take(&mut making.strays);
        let (mut filled, mut bytes) = (Vec::new(), vec![0; SLOT_BYTES as usize]);
        for place in &strays {
            let Some((head, file)) = self.images.file(place.file) else { continue };
            let read = file.read_at(head.slot_at(place.slot), &mut bytes);
            let_go(&*file, head.slot_at(place.slot), SLOT_BYTES);
            match read.is_ok() && bytes.iter().all(|&byte| byte == 0) {
                true => making.free.entry(place.file).or_default().push(place.slot),
                false => filled.push(*place),
            }
        }
        self.erase_images(making, &filled).inspect_err(|_| making.strays.extend(&filled))
    }
}
