//! Reading images, and requests for missing ones.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use frieze_base::{Fault, crc32c};
use frieze_disk::DiskFile;
use frieze_locks::RwLockReadGuard;
use frieze_multilog::image::{
    BLOCK_BYTES, BLOCKS, ImageFile, PAGE_BYTES, SLOT_BYTES, SLOT_HEAD_BYTES, SLOT_HEAD_USED, SlotHead,
};
use frieze_multilog::{FragmentedPage, ImageKey, ImagePlace, ImageSpan, Images, Piece, PieceSource};

use super::super::Device;
use super::{ImageStats, drop_pages};

/// Most pages whose images readers have requested; a further request is dropped, and repeated by the next read.
const REQUESTS_MAX: usize = 1024;
/// Blocks at the beginning of an image that are read together with its head, if later blocks are needed.
const AHEAD: usize = 4;

impl Device {
    /// The existing images, for a plan. Locked after the index, if both are needed.
    #[track_caller]
    pub fn images(&self) -> RwLockReadGuard<'_, Images> {
        self.images.set.read()
    }

    /// Fills the parts of `pieces` that come from images; the first piece starts at the beginning of `out`. False if an
    /// image could not be used and was evicted: the caller has to plan again.
    ///
    /// # Cost
    /// One read of up to 68 KiB for each image.
    pub fn read_images(&self, pieces: &[Piece], out: &mut [u8], scratch: &mut Vec<u8>) -> bool {
        let start = pieces.first().map_or(0, |piece| piece.at);
        let mut rest = pieces;
        while let Some((piece, after)) = rest.split_first() {
            let PieceSource::Image(image) = &piece.source else {
                rest = after;
                continue;
            };
            // A page is read once, for all pieces that need it.
            let of_page =
                |piece: &&Piece| !matches!(&piece.source, PieceSource::Image(other) if other.key != image.key);
            let count = rest.iter().take_while(of_page).count();
            let (page, after) = rest.split_at(count);
            if !self.read_image(image, page, start, out, scratch) {
                return false;
            }
            rest = after;
        }
        true
    }

    fn read_image(
        &self,
        image: &ImageSpan,
        pieces: &[Piece],
        start: u64,
        out: &mut [u8],
        scratch: &mut Vec<u8>,
    ) -> bool {
        let wanted = pieces.iter().filter_map(|piece| match &piece.source {
            PieceSource::Image(image) => Some((piece, image.skip as usize)),
            _ => None,
        });
        let first = wanted.clone().map(|(_, skip)| skip / BLOCK_BYTES).min().unwrap_or(0);
        let end = wanted.clone().map(|(piece, skip)| (skip + piece.len as usize).div_ceil(BLOCK_BYTES)).max();
        let end = end.unwrap_or(first).min(BLOCKS);
        let page = match self.image_blocks(image, first, end, scratch) {
            Ok(page) => page,
            Err(why) => {
                self.evict_unreadable(image, why);
                return false;
            }
        };
        for (piece, skip) in wanted {
            let from = (piece.at - start) as usize;
            let skip = skip - first * BLOCK_BYTES;
            out[from..from + piece.len as usize].copy_from_slice(&page[skip..skip + piece.len as usize]);
        }
        true
    }

    /// Reads blocks of an image and compares them with their checksums.
    fn image_blocks<'a>(
        &self,
        image: &ImageSpan,
        first: usize,
        end: usize,
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], ImageFault> {
        let ImagePlace { file, slot } = image.place;
        let (head, file) = self.images.file(file).ok_or(ImageFault::Evicted)?;
        let at = head.slot_at(slot);
        let len = (end - first) * BLOCK_BYTES;
        let blocks_at = SLOT_HEAD_BYTES + first * BLOCK_BYTES;
        let from = if first <= AHEAD {
            scratch.resize(blocks_at + len, 0);
            read_whole(&*file, at, scratch)?;
            blocks_at
        } else {
            scratch.resize(SLOT_HEAD_USED + len, 0);
            let (head, blocks) = scratch.split_at_mut(SLOT_HEAD_USED);
            read_whole(&*file, at, head)?;
            read_whole(&*file, at + blocks_at as u64, blocks)?;
            SLOT_HEAD_USED
        };
        drop_pages(&*file, at, SLOT_BYTES);
        let crcs = match head.slot_head(slot, &image.key, scratch) {
            SlotHead::Image(crcs) => crcs,
            SlotHead::Gone => return Err(ImageFault::Evicted),
            SlotHead::Damaged => return Err(ImageFault::Damaged("its head fails its checksum".to_owned())),
        };
        let blocks = &scratch[from..from + len];
        match blocks.chunks(BLOCK_BYTES).zip(&crcs[first..end]).all(|(block, crc)| crc32c(block) == *crc) {
            true => Ok(blocks),
            false => Err(ImageFault::Damaged("a block of it fails its checksum".to_owned())),
        }
    }

    /// Evicts an image that could not be read, unless another thread has done so: then the bytes read were no damage.
    fn evict_unreadable(&self, image: &ImageSpan, why: ImageFault) {
        let mut images = self.images.set.write();
        if images.place_of(&image.key) != Some(image.place) {
            return;
        }
        images.remove(&image.key);
        drop(images);
        self.images.lost.lock().push(image.place);
        self.images.cursor.note_evicted(image.key.stamp, 2 * self.images.budget.pieces_max as usize);
        let ImageFault::Damaged(why) = why else { return };
        self.images.lost_count.fetch_add(1, Ordering::Relaxed);
        let ImageKey { chunk, page, stamp } = image.key;
        self.images.words.lock().push(format!(
            "the image of page {page} of chunk {chunk} at {stamp} was damaged and is given up, its records say the \
             same: {why}"
        ));
    }

    /// Damage found in images since the last call, as sentences.
    pub fn take_image_damage(&self) -> Vec<String> {
        std::mem::take(&mut *self.images.words.lock())
    }

    /// Requests images of pages that readers had to collect from too many places.
    pub fn request_images(&self, crowded: &[FragmentedPage]) {
        if crowded.is_empty() || self.images.budget.percent == 0 {
            return;
        }
        let mut requests = self.images.requests.lock();
        for page in crowded {
            if requests.len() >= REQUESTS_MAX {
                return;
            }
            requests.insert(*page);
        }
    }

    /// Count and size of images.
    pub fn image_stats(&self) -> ImageStats {
        let (images, heap_bytes) = {
            let images = self.images();
            (images.len() as u64, images.heap_bytes())
        };
        let (looked_upto, pieces_most) = self.images.cursor.progress();
        ImageStats {
            images,
            heap_bytes,
            bytes: self.images.bytes(),
            bytes_max: self.image_bytes_max(),
            pieces_max: self.images.budget.pieces_max.into(),
            pieces_most,
            looked_upto,
            lost: self.images.lost_count.load(Ordering::Relaxed),
            requests: self.images.requests.lock().len() as u64,
        }
    }

    /// Limit of the bytes of image files.
    pub(super) fn image_bytes_max(&self) -> u64 {
        let log_bytes = self.log().log_bytes();
        (u128::from(log_bytes) * u128::from(self.images.budget.percent) / 100) as u64
    }

    /// The images of a file, in the order of their places, with the offset of each: the scrub compares them with their
    /// checksums.
    pub fn images_in(&self, number: u32) -> Vec<(ImageSpan, u64)> {
        let Some((head, _)) = self.images.file(number) else { return Vec::new() };
        let images = self.images();
        let of_file = images.iter().filter(|(_, place)| place.file == number);
        let mut found: Vec<(ImageSpan, u64)> =
            of_file.map(|(key, place)| (ImageSpan { key: *key, place, skip: 0 }, head.slot_at(place.slot))).collect();
        found.sort_by_key(|(_, at)| *at);
        found
    }

    /// Evicts an image if these bytes, [`IMAGE_SLOT_BYTES`] from its offset on, differ from what was written.
    pub fn check_image(&self, image: &ImageSpan, bytes: Result<&[u8], Fault>) {
        let Some((head, _)) = self.images.file(image.place.file) else { return };
        let checked = match bytes {
            Ok(bytes) => check_slot(&head, image, bytes),
            Err(fault) => Err(ImageFault::Damaged(fault.message)),
        };
        if let Err(why) = checked {
            self.evict_unreadable(image, why);
        }
    }

    /// The image files.
    pub fn image_files(&self) -> Vec<(u32, Arc<dyn DiskFile>)> {
        let files = self.images.files.read();
        files.iter().map(|(number, (_, file))| (*number, file.clone())).collect()
    }
}

fn check_slot(head: &ImageFile, image: &ImageSpan, bytes: &[u8]) -> Result<(), ImageFault> {
    let crcs = match head.slot_head(image.place.slot, &image.key, bytes) {
        SlotHead::Image(crcs) => crcs,
        SlotHead::Gone => return Err(ImageFault::Evicted),
        SlotHead::Damaged => return Err(ImageFault::Damaged("its head fails its checksum".to_owned())),
    };
    let page = bytes.get(SLOT_HEAD_BYTES..SLOT_HEAD_BYTES + PAGE_BYTES);
    let sound = page.is_some_and(|page| page.chunks(BLOCK_BYTES).map(crc32c).eq(crcs));
    if sound { Ok(()) } else { Err(ImageFault::Damaged("a block of it fails its checksum".to_owned())) }
}

/// Why an image cannot be used.
enum ImageFault {
    /// It was evicted.
    Evicted,
    /// It is damaged.
    Damaged(String),
}

fn read_whole(file: &dyn DiskFile, at: u64, into: &mut [u8]) -> Result<(), ImageFault> {
    match file.read_at(at, into) {
        Ok(read) if read == into.len() => Ok(()),
        Ok(_) => Err(ImageFault::Damaged("its file was cut".to_owned())),
        Err(error) => Err(ImageFault::Damaged(Fault::from(error).message)),
    }
}
