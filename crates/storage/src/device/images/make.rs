//! Writing images: for pages that readers requested, and for all of history in its order.

use frieze_base::{Fault, InodeId, Reason};
use frieze_hlc::Hlc;
use frieze_multilog::image::{ENTRY_BYTES, ImageFile, PAGE_BYTES, SLOT_BYTES, SLOTS_MAX};
use frieze_multilog::{ImageKey, ImagePlace, ScanCursor};

use frieze_tier::Heat;

use super::super::Device;
use super::{FreeSlots, ImageStore, drop_pages, image_name};

/// Requests of readers that one round handles.
const REQUESTS_AT_ONCE: usize = 64;
/// The space limit of images is divided into at least this many files.
const FILES_MIN: u64 = 16;
/// Slots of the smallest file.
const SLOTS_MIN: u32 = 8;
/// Attempts to plan a page whose images are evicted meanwhile.
const TRIES: usize = 4;
/// The search for missing images restarts once this part of their space limit is free.
const ROOM_PART: u64 = 4;

/// Returns whether to continue, after a pause if one is due.
pub(crate) type ContinueCheck<'a> = dyn Fn() -> bool + 'a;

impl Device {
    /// Writes images in one round: pages that readers requested, then the states up to `upto` that need one, while
    /// there is space. True if there may be more to do.
    ///
    /// # Errors
    /// The disk's: the next round continues. `Corrupt` if the index cannot be read.
    pub fn make_images(&self, upto: Hlc, may_continue: &ContinueCheck<'_>) -> Result<bool, Fault> {
        let store = &self.images;
        store.set.read().next_round();
        self.evict_useless()?;
        if store.budget.percent == 0 {
            return Ok(false);
        }
        let handled = self.handle_requests(may_continue)?;
        let room = self.image_bytes_max().saturating_sub(store.bytes());
        if room >= self.image_bytes_max() / ROOM_PART && room >= SLOT_BYTES * u64::from(SLOTS_MIN) && self.has_free() {
            store.cursor.restart_if_missing();
        }
        let more = self.search_history(upto, may_continue);
        store.cursor.write(&*self.disk)?;
        Ok(more? || handled)
    }

    /// True if an image could be written without evicting another.
    fn has_free(&self) -> bool {
        let slots = self.images.slots.lock();
        slots.free.values().any(|free| !free.is_empty()) || self.next_image_file().is_some()
    }

    fn handle_requests(&self, may_continue: &ContinueCheck<'_>) -> Result<bool, Fault> {
        let mut handled = false;
        for _ in 0..REQUESTS_AT_ONCE {
            let request = self.images.requests.lock().pop_first();
            let Some(request) = request else { return Ok(false) };
            let key = {
                let log = self.log_of([request.chunk.inode])?;
                log.image_for(&self.images(), &request)
            };
            if let Some(key) = key {
                self.write_images(&[key], true)?;
            }
            handled = true;
            if !may_continue() {
                return Ok(false);
            }
        }
        Ok(handled)
    }

    /// Searches the changes of one segment of the log, or of the part that is due.
    fn search_history(&self, upto: Hlc, may_continue: &ContinueCheck<'_>) -> Result<bool, Fault> {
        let cursor = &self.images.cursor;
        let after = cursor.upto();
        let end = self.log().end_of_segment_after(after).map_or(upto, |end| end.min(upto));
        if end <= after {
            return Ok(false);
        }
        let (files, _) = self.log().files_with_records(after, end);
        if files.is_empty() {
            cursor.skip_to(end);
            return Ok(end < upto);
        }
        let (mut most, mut make) = (0, true);
        for inode in files {
            let pieces = self.search_file(inode, (after, end), &mut make, may_continue)?;
            let Some(pieces) = pieces else { return Ok(false) };
            most = most.max(pieces);
        }
        cursor.advance_to(end, most, !make);
        Ok(end < upto)
    }

    /// Searches an interval of a file, and writes the images that are due. Returns the most pieces of a page; `None` if
    /// the round has to stop here.
    fn search_file(
        &self,
        inode: InodeId,
        interval: (Hlc, Hlc),
        make: &mut bool,
        may_continue: &ContinueCheck<'_>,
    ) -> Result<Option<usize>, Fault> {
        let (mut looking, mut most) = (ScanCursor::default(), 0);
        loop {
            let looked = {
                let log = self.log_of([inode])?;
                log.scan_for_images(&self.images(), inode, interval, looking, *make)
            };
            if *make && self.write_images(&looked.due, false)? < looked.due.len() {
                // No space: from here on pages are only counted, beginning with the current one.
                *make = false;
                continue;
            }
            most = most.max(looked.pieces_most);
            if !may_continue() {
                return Ok(None);
            }
            match looked.next {
                Some(next) => looking = next,
                None => return Ok(Some(most)),
            }
        }
    }

    /// Writes these images in order, as many as there is space for; with `may_evict`, evicts others if there is none.
    /// Returns how many of them exist now, or cannot be written because their records cannot be read.
    fn write_images(&self, keys: &[ImageKey], may_evict: bool) -> Result<usize, Fault> {
        let mut slots = self.images.slots.lock();
        let (mut count, mut sealed) = (0, Vec::new());
        let mut done = Ok(());
        for key in keys {
            if self.images().place_of(key).is_some() {
                count += 1;
                continue;
            }
            let Some(place) = self.room_for_image(&mut slots, may_evict)? else { break };
            let written = self.write_image(key, place);
            if !matches!(written, Ok(Some(_))) {
                slots.free.entry(place.file).or_default().push(place.slot);
            }
            match written {
                Ok(Some(entry)) => sealed.push((place, entry)),
                Ok(None) => {}
                Err(fault) => {
                    done = Err(fault);
                    break;
                }
            }
            count += 1;
        }
        self.seal_images(&sealed)?;
        done.map(|()| count)
    }

    /// Reads the pieces of an image and writes it. `None` if they cannot be read, or exist no more: a scrub or a reader
    /// will report that.
    fn write_image(&self, key: &ImageKey, place: ImagePlace) -> Result<Option<[u8; ENTRY_BYTES]>, Fault> {
        let (mut page, mut scratch) = (vec![0; PAGE_BYTES], Vec::new());
        for _ in 0..TRIES {
            let planned = {
                let log = self.log_of([key.chunk.inode])?;
                log.plan_image(&self.images(), key)
            };
            let Some(planned) = planned else { return Ok(None) };
            if !self.read_images(&planned.pieces, &mut page, &mut scratch) {
                continue;
            }
            // Reads as a scan: pages in use stay in memory.
            let pinned = self.pin(&planned.pieces, Heat::Scan);
            let read = self.read_pieces(&planned.pieces, planned.start, &mut page, &mut scratch);
            self.unpin(pinned, read.is_err());
            if read.is_err() {
                return Ok(None);
            }
            let Some((head, file)) = self.images.file(place.file) else { return Ok(None) };
            let (entry, slot) = head.seal(place.slot, key, &planned.of, &page);
            file.write_at(head.slot_at(place.slot), &[&slot, &page])?;
            let mut images = self.images.set.write();
            let before = images.add(*key, place, planned.of);
            debug_assert_eq!(before, None, "an image that was not there");
            return Ok(Some(entry));
        }
        Ok(None)
    }

    /// Writes the entries of images whose pages are written, after making the pages durable.
    fn seal_images(&self, sealed: &[(ImagePlace, [u8; ENTRY_BYTES])]) -> Result<(), Fault> {
        let mut numbers: Vec<u32> = sealed.iter().map(|(place, _)| place.file).collect();
        numbers.dedup();
        for number in numbers {
            let Some((head, file)) = self.images.file(number) else { continue };
            file.sync()?;
            for (place, _) in sealed.iter().filter(|(place, _)| place.file == number) {
                drop_pages(&*file, head.slot_at(place.slot), SLOT_BYTES);
            }
            for (place, entry) in sealed.iter().filter(|(place, _)| place.file == number) {
                file.write_at(head.entry_at(place.slot), &[entry])?;
            }
        }
        Ok(())
    }

    /// A slot that is free, or can be freed.
    fn room_for_image(&self, slots: &mut FreeSlots, may_evict: bool) -> Result<Option<ImagePlace>, Fault> {
        let found = slots.take();
        if found.is_some() {
            return Ok(found);
        }
        if let Some(head) = self.next_image_file() {
            match self.make_image_file(slots, head) {
                Err(fault) if fault.reason == Reason::NoSpace => {}
                made => {
                    made?;
                    return Ok(slots.take());
                }
            }
        }
        if may_evict {
            let count = self.images().len();
            let least = self.images().least_useful((count / 64).clamp(1, 64), |_| false);
            self.evict_listed(slots, &least, true)?;
        }
        Ok(slots.take())
    }

    /// The next image file, if there is space for it: number and slots.
    fn next_image_file(&self) -> Option<ImageFile> {
        let (most, taken) = (self.image_bytes_max(), self.images.bytes());
        let slots = (most / FILES_MIN / SLOT_BYTES).clamp(SLOTS_MIN.into(), SLOTS_MAX.into()) as u32;
        let head = ImageFile { file: 0, slots };
        // Images must not take the space of data.
        (taken + head.bytes() <= most && self.has_room(head.bytes() + self.settings.segment_bytes)).then_some(head)
    }

    fn make_image_file(&self, slots: &mut FreeSlots, head: ImageFile) -> Result<(), Fault> {
        let head = ImageFile { file: slots.next_file, ..head };
        slots.next_file += 1;
        let name = image_name(head.file);
        let file = self.disk.create(&name, head.bytes())?;
        file.write_at(0, &[&head.encode()])?;
        file.sync()?;
        self.images.files.write().insert(head.file, (head, file));
        // The last element is used first.
        slots.free.insert(head.file, (0..head.slots).rev().collect());
        Ok(())
    }
}

impl FreeSlots {
    /// Allocates an empty slot.
    fn take(&mut self) -> Option<ImagePlace> {
        let (file, free) = self.free.iter_mut().find(|(_, free)| !free.is_empty())?;
        free.pop().map(|slot| ImagePlace { file: *file, slot })
    }
}

impl ImageStore {
    /// Slots of a file that are free.
    pub(super) fn free_slots(slots: &FreeSlots, file: u32) -> usize {
        slots.free.get(&file).map_or(0, Vec::len)
    }
}
