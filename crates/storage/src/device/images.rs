//! Images on the device: pages of old states stored in one place, so that a read of such a state needs few disk
//! accesses.
//!
//! Guarantees: no data depends on an image. Bytes from an image have passed their checksums and equal the bytes of the
//! records; an image that is damaged, torn, lost or of other records is evicted, and the read uses the records. Bytes
//! of expired history are removed from every image, on stable storage, when [`Device::forget_images`] returns. Leaves
//! to others: which pages need an image (`multilog`), when to look for them (`service`, `image_builder`).
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
mod read;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use frieze_base::{Fault, InodeId};
use frieze_disk::{Disk, DiskFile};
use frieze_hlc::Hlc;
use frieze_locks::{Mutex, RwLock, levels};
use frieze_multilog::image::{ENTRY_BYTES, HEAD_BYTES, ImageEntry, ImageFile, PAGE_BYTES, SLOT_HEAD_BYTES};
use frieze_multilog::{FragmentedPage, ImagePlace, Images};
use frieze_wire::message::ImageStatus;

use image_cursor::ImageCursor;

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
    set: RwLock<levels::ImageSet, Images>,
    files: RwLock<levels::ImageFiles, ImageFileMap>,
    /// Locked while images are written or evicted.
    slots: Mutex<levels::ImageSlots, FreeSlots>,
    requests: Mutex<levels::ImageRequests, BTreeSet<FragmentedPage>>,
    /// Images that readers could not use: their slots are to be evicted.
    lost: Mutex<levels::LostImages, Vec<ImagePlace>>,
    lost_count: AtomicU64,
    /// Damage that was found, as sentences.
    words: Mutex<levels::ImageDamage, Vec<String>>,
    /// ImageFileMap with expired bytes that images may still hold.
    to_forget: Mutex<levels::ImagesToForget, BTreeSet<InodeId>>,
    cursor: ImageCursor,
}

/// Open image files by number.
type ImageFileMap = BTreeMap<u32, (ImageFile, Arc<dyn DiskFile>)>;

/// Slots available to images.
#[derive(Default)]
struct FreeSlots {
    /// Empty slots of each file.
    free: BTreeMap<u32, Vec<u32>>,
    next_file: u32,
    /// Free slots that may hold remains of a crash.
    strays: Vec<ImagePlace>,
    /// ImageFileMap were removed, and a power loss may restore them.
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
    pub(crate) requests: u64,
}

impl ImageStats {
    /// The same in the form of a status reply.
    pub fn to_wire(self) -> ImageStatus {
        ImageStatus {
            count: self.images,
            bytes: self.bytes,
            bytes_max: self.bytes_max,
            pieces_max: self.pieces_max,
            pieces_most: self.pieces_most,
            looked_upto: self.looked_upto.0,
            lost: self.lost,
            wishes: self.requests,
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
        let (mut files, mut slots) = (ImageFileMap::new(), FreeSlots { next_file: 1, ..FreeSlots::default() });
        let mut lost = Vec::new();
        for number in disk.list()?.iter().filter_map(|name| image_of(name)) {
            slots.next_file = slots.next_file.max(number.saturating_add(1));
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
                        slots.strays.extend(images.add(key, place, of));
                    }
                    ImageEntry::Free => slots.strays.push(place),
                    ImageEntry::Image(..) | ImageEntry::Damaged => lost.push(place),
                }
            }
            let damaged = lost.len() - before;
            if damaged > 0 {
                // A crash tears them too: this is no sign of bit rot.
                notes
                    .push(format!("{damaged} of the images in {name} are torn and given up: the records say the same"));
            }
            slots.free.insert(number, Vec::new());
            files.insert(number, (head, file));
        }
        let cursor = ImageCursor::open(disk, budget.pieces_max, notes);
        Ok(ImageStore {
            budget,
            set: RwLock::new(images),
            files: RwLock::new(files),
            slots: Mutex::new(slots),
            requests: Mutex::default(),
            words: Mutex::default(),
            lost_count: AtomicU64::new(lost.len() as u64),
            lost: Mutex::new(lost),
            to_forget: Mutex::default(),
            cursor,
        })
    }

    fn bytes(&self) -> u64 {
        let files = self.files.read();
        files.values().map(|(head, _)| head.bytes()).sum()
    }

    fn file(&self, number: u32) -> Option<(ImageFile, Arc<dyn DiskFile>)> {
        self.files.read().get(&number).cloned()
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

/// Drops an image's pages from memory: images take one disk access, and memory is for data that takes more. A kernel
/// that ignores the advice keeps these pages too.
fn drop_pages(file: &dyn DiskFile, at: u64, len: u64) {
    let _ = file.advise_dont_need(at, len);
}
