//! Images on the device: pages of old states stored in one place, so that a read of such a state needs few disk
//! accesses.
//!
//! Guarantees: no data depends on an image. Bytes from an image have passed their checksums and equal the bytes of the
//! records; an image that is damaged, torn, lost or of other records is evicted, and the read uses the records. Bytes
//! of expired history are removed from every image, on stable storage, when [`Device::forget_images`] returns. Leaves
//! to others: which pages need an image (`multilog`), when to look for them (`engine`).
//!
//! # The files
//! Slots of one image each, in files whose space is reserved when they are created; the length of a file follows from
//! the limit on the space of images. A slot is free, or its entry in the file's directory says what it holds. The page
//! is written first and made durable, then the entry. So an entry whose slot holds something else was restored by a
//! crash. A slot that is evicted is overwritten with zeros before its entry is removed, so free slots are empty, and
//! the entry is removed before the slot is reused.

mod evict;
mod image_cursor;
mod make;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use frieze_base::{Fault, InodeId, crc32c};
use frieze_disk::{Disk, DiskFile};
use frieze_hlc::Hlc;
use frieze_multilog::image::{
    BLOCK_BYTES, BLOCKS, ENTRY_BYTES, HEAD_BYTES, ImageEntry, ImageFile, PAGE_BYTES, SLOT_BYTES, SLOT_HEAD_BYTES,
    SLOT_HEAD_USED, SlotHead,
};
use frieze_multilog::{FragmentedPage, ImageKey, ImagePlace, ImageSpan, Images, Piece, PieceSource};
use frieze_wire::message::ImageStatus;

use super::Device;
use image_cursor::Swept;

/// Most pages whose images readers have requested; a further request is dropped, and repeated by the next read.
const WISHES_MAX: usize = 1024;
/// Blocks at the beginning of an image that are read together with its head, if later blocks are needed.
const AHEAD: usize = 4;

/// Bytes of an image including its head.
pub const IMAGE_SLOT_BYTES: usize = SLOT_HEAD_BYTES + PAGE_BYTES;

/// Limits of images.
#[derive(Clone, Copy)]
pub struct ImageBudget {
    /// Most pieces of a page without an image.
    pub pieces_max: u32,
    /// Space of images in percent of the bytes of the log.
    pub percent: u32,
}

/// The images of a device.
pub(super) struct ImageStore {
    budget: ImageBudget,
    set: RwLock<Images>,
    files: RwLock<Files>,
    /// Locked while images are written or evicted.
    making: Mutex<Making>,
    wishes: Mutex<BTreeSet<FragmentedPage>>,
    /// Images that readers could not use: their slots are to be evicted.
    lost: Mutex<Vec<ImagePlace>>,
    lost_count: AtomicU64,
    /// Damage that was found, as sentences.
    words: Mutex<Vec<String>>,
    /// Files with expired bytes that images may still hold.
    to_forget: Mutex<BTreeSet<InodeId>>,
    swept: Swept,
}

/// Open image files by number.
type Files = BTreeMap<u32, (ImageFile, Arc<dyn DiskFile>)>;

/// Slots available to images.
#[derive(Default)]
struct Making {
    /// Empty slots of each file.
    free: BTreeMap<u32, Vec<u32>>,
    next_file: u32,
    /// Free slots that may hold remains of a crash.
    strays: Vec<ImagePlace>,
    /// Files were removed, and a power loss may restore them.
    removed: bool,
}

/// Count and size of images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageStats {
    pub(crate) images: u64,
    /// Bytes of their files.
    pub(crate) bytes: u64,
    pub(crate) bytes_max: u64,
    pub(crate) pieces_max: u64,
    /// Most pieces of a page at any instant up to `looked_upto`.
    pub(crate) pieces_most: u64,
    pub(crate) looked_upto: Hlc,
    /// Images found damaged since the start.
    pub(crate) lost: u64,
    /// Bytes of memory that they use.
    pub heap_bytes: u64,
    /// Pages whose images readers have requested.
    pub(crate) wishes: u64,
}

impl ImageStats {
    /// The same in the form of a status reply.
    pub fn told(&self) -> ImageStatus {
        ImageStatus {
            count: self.images,
            bytes: self.bytes,
            bytes_max: self.bytes_max,
            pieces_max: self.pieces_max,
            pieces_most: self.pieces_most,
            looked_upto: self.looked_upto.0,
            lost: self.lost,
            wishes: self.wishes,
        }
    }
}

fn image_name(file: u32) -> String {
    format!("image-{file:08x}")
}

fn image_of(name: &str) -> Option<u32> {
    let text = name.strip_prefix("image-").filter(|text| text.len() == 8)?;
    u32::from_str_radix(text, 16).ok()
}

impl ImageStore {
    /// Finds the existing images. A damaged image is removed and reported in `notes`.
    ///
    /// # Errors
    /// The disk's, if names cannot be listed or files cannot be removed.
    ///
    /// # Cost
    /// A read of 64 bytes for each image.
    pub(super) fn recover(disk: &dyn Disk, budget: ImageBudget, notes: &mut Vec<String>) -> Result<ImageStore, Fault> {
        let mut images = Images::new(budget.pieces_max);
        let (mut files, mut making) = (Files::new(), Making { next_file: 1, ..Making::default() });
        let mut lost = Vec::new();
        for number in disk.list()?.iter().filter_map(|name| image_of(name)) {
            making.next_file = making.next_file.max(number.saturating_add(1));
            let name = image_name(number);
            let file = disk.open(&name)?;
            let head = match read_head(&*file, number) {
                Ok(head) => head,
                Err(blank) => {
                    // A file whose creation a crash interrupted holds nothing.
                    if !blank {
                        notes.push(format!("the images in {name} are given up: it is damaged, or of another version"));
                    }
                    disk.remove(&name)?;
                    continue;
                }
            };
            let mut directory = vec![0; head.slots as usize * ENTRY_BYTES];
            let read = file.read_at(head.entry_at(0), &mut directory).unwrap_or(0);
            let before = lost.len();
            for (slot, entry) in (0..).zip(directory.chunks_exact(ENTRY_BYTES)) {
                let place = ImagePlace { file: number, slot };
                match head.entry(slot, entry) {
                    ImageEntry::Image(key, of) if read == directory.len() => {
                        // Two images of one state: a crash restored the entry of an evicted one.
                        making.strays.extend(images.add(key, place, of));
                    }
                    ImageEntry::Free => making.strays.push(place),
                    ImageEntry::Image(..) | ImageEntry::Damaged => lost.push(place),
                }
            }
            let damaged = lost.len() - before;
            if damaged > 0 {
                // A crash tears them too: this is no sign of bit rot.
                notes
                    .push(format!("{damaged} of the images in {name} are torn and given up: the records say the same"));
            }
            making.free.insert(number, Vec::new());
            files.insert(number, (head, file));
        }
        let swept = Swept::open(disk, &budget, notes);
        Ok(ImageStore {
            budget,
            set: RwLock::new(images),
            files: RwLock::new(files),
            making: Mutex::new(making),
            wishes: Mutex::default(),
            words: Mutex::default(),
            lost_count: AtomicU64::new(lost.len() as u64),
            lost: Mutex::new(lost),
            to_forget: Mutex::default(),
            swept,
        })
    }

    fn bytes(&self) -> u64 {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        files.values().map(|(head, _)| head.bytes()).sum()
    }

    fn file(&self, number: u32) -> Option<(ImageFile, Arc<dyn DiskFile>)> {
        self.files.read().unwrap_or_else(PoisonError::into_inner).get(&number).cloned()
    }
}

/// The head of a file, or whether the file is still empty: a torn head stands before a directory without entries.
fn read_head(file: &dyn DiskFile, number: u32) -> Result<ImageFile, bool> {
    const DIRECTORY_AT: usize = frieze_disk::PAGE_BYTES as usize;
    let mut first = [0; 2 * DIRECTORY_AT];
    let blank = file.read_at(0, &mut first).is_ok() && first[DIRECTORY_AT..].iter().all(|&byte| byte == 0);
    let len = file.len().unwrap_or(0);
    ImageFile::decode(&first[..HEAD_BYTES]).filter(|head| head.file == number && head.bytes() == len).ok_or(blank)
}

impl Device {
    /// The existing images, for a plan. Locked after the index, if both are needed.
    pub fn images(&self) -> RwLockReadGuard<'_, Images> {
        self.images.set.read().unwrap_or_else(PoisonError::into_inner)
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
                self.lose_image(image, why);
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
    ) -> Result<&'a [u8], Lost> {
        let ImagePlace { file, slot } = image.place;
        let (head, file) = self.images.file(file).ok_or(Lost::Gone)?;
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
        let_go(&*file, at, SLOT_BYTES);
        let crcs = match head.slot_head(slot, &image.key, scratch) {
            SlotHead::Image(crcs) => crcs,
            SlotHead::Gone => return Err(Lost::Gone),
            SlotHead::Damaged => return Err(Lost::Damaged("its head fails its checksum".to_owned())),
        };
        let blocks = &scratch[from..from + len];
        match blocks.chunks(BLOCK_BYTES).zip(&crcs[first..end]).all(|(block, crc)| crc32c(block) == *crc) {
            true => Ok(blocks),
            false => Err(Lost::Damaged("a block of it fails its checksum".to_owned())),
        }
    }

    /// Evicts an image that could not be read, unless another thread has done so: then the bytes read were no damage.
    fn lose_image(&self, image: &ImageSpan, why: Lost) {
        let mut images = self.images.set.write().unwrap_or_else(PoisonError::into_inner);
        if images.place_of(&image.key) != Some(image.place) {
            return;
        }
        images.remove(&image.key);
        drop(images);
        self.images.lost.lock().unwrap_or_else(PoisonError::into_inner).push(image.place);
        self.images.swept.give_up(image.key.stamp, 2 * self.images.budget.pieces_max as usize);
        let Lost::Damaged(why) = why else { return };
        self.images.lost_count.fetch_add(1, Ordering::Relaxed);
        let ImageKey { chunk, page, stamp } = image.key;
        self.images.words.lock().unwrap_or_else(PoisonError::into_inner).push(format!(
            "the image of page {page} of chunk {chunk} at {stamp} was damaged and is given up, its records say the \
             same: {why}"
        ));
    }

    /// Damage found in images since the last call, as sentences.
    pub fn take_lost_images(&self) -> Vec<String> {
        std::mem::take(&mut *self.images.words.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Requests images of pages that readers had to collect from too many places.
    pub fn want_images(&self, crowded: &[FragmentedPage]) {
        if crowded.is_empty() || self.images.budget.percent == 0 {
            return;
        }
        let mut wishes = self.images.wishes.lock().unwrap_or_else(PoisonError::into_inner);
        for page in crowded {
            if wishes.len() >= WISHES_MAX {
                return;
            }
            wishes.insert(*page);
        }
    }

    /// Count and size of images.
    pub fn image_stats(&self) -> ImageStats {
        let (images, heap_bytes) = {
            let images = self.images();
            (images.len() as u64, images.heap_bytes())
        };
        let (looked_upto, pieces_most) = self.images.swept.told();
        ImageStats {
            images,
            heap_bytes,
            bytes: self.images.bytes(),
            bytes_max: self.image_bytes_max(),
            pieces_max: self.images.budget.pieces_max.into(),
            pieces_most,
            looked_upto,
            lost: self.images.lost_count.load(Ordering::Relaxed),
            wishes: self.images.wishes.lock().unwrap_or_else(PoisonError::into_inner).len() as u64,
        }
    }

    /// Limit of the bytes of image files.
    fn image_bytes_max(&self) -> u64 {
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
            Err(fault) => Err(Lost::Damaged(fault.message)),
        };
        if let Err(why) = checked {
            self.lose_image(image, why);
        }
    }

    /// The image files.
    pub fn image_files(&self) -> Vec<(u32, Arc<dyn DiskFile>)> {
        let files = self.images.files.read().unwrap_or_else(PoisonError::into_inner);
        files.iter().map(|(number, (_, file))| (*number, file.clone())).collect()
    }
}

fn check_slot(head: &ImageFile, image: &ImageSpan, bytes: &[u8]) -> Result<(), Lost> {
    let crcs = match head.slot_head(image.place.slot, &image.key, bytes) {
        SlotHead::Image(crcs) => crcs,
        SlotHead::Gone => return Err(Lost::Gone),
        SlotHead::Damaged => return Err(Lost::Damaged("its head fails its checksum".to_owned())),
    };
    let page = bytes.get(SLOT_HEAD_BYTES..SLOT_HEAD_BYTES + PAGE_BYTES);
    let sound = page.is_some_and(|page| page.chunks(BLOCK_BYTES).map(crc32c).eq(crcs));
    if sound { Ok(()) } else { Err(Lost::Damaged("a block of it fails its checksum".to_owned())) }
}

/// Why an image cannot be used.
enum Lost {
    /// It was evicted.
    Gone,
    /// It is damaged.
    Damaged(String),
}

/// Drops an image's pages from memory: images take one disk access, and memory is for data that takes more. A kernel
/// that ignores the advice keeps these pages too.
fn let_go(file: &dyn DiskFile, at: u64, len: u64) {
    let _ = file.let_go(at, len);
}

fn read_whole(file: &dyn DiskFile, at: u64, into: &mut [u8]) -> Result<(), Lost> {
    match file.read_at(at, into) {
        Ok(read) if read == into.len() => Ok(()),
        Ok(_) => Err(Lost::Damaged("its file was cut".to_owned())),
        Err(error) => Err(Lost::Damaged(Fault::from(error).message)),
    }
}
