//! The images that there are: which one a read takes, which one goes first.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use frieze_base::{ChunkId, InodeId};
use frieze_hlc::Hlc;

use super::key::{ImageDigest, ImageKey, ImagePlace};

/// All images of a device. In memory whole: about 90 bytes an image of 64 KiB.
#[derive(Debug)]
pub struct Images {
    pieces_max: usize,
    all: BTreeMap<ImageKey, Image>,
    /// Number of the round of image building: a use is dated by it.
    round: AtomicU32,
    /// Images that were found to be of other records than the index has.
    unfit: AtomicU32,
}

/// One image.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) place: ImagePlace,
    pub(crate) of: ImageDigest,
    fitness: AtomicU8,
    /// The round of its last use, 0 for never.
    used: AtomicU32,
}

impl Images {
    /// None, where a page is to consist of at most `pieces_max` pieces.
    ///
    /// # Panics
    /// If that is less than 2: an image and what comes after it.
    pub fn new(pieces_max: u32) -> Images {
        assert!(pieces_max >= PIECES_MIN, "a page of at most {pieces_max} pieces");
        Images {
            pieces_max: pieces_max as usize,
            all: BTreeMap::new(),
            round: AtomicU32::new(1),
            unfit: AtomicU32::new(0),
        }
    }

    /// Most pieces that a page is to consist of.
    pub fn pieces_max(&self) -> usize {
        self.pieces_max
    }

    /// Takes in an image. Returns where another one of the same page and stamp lies, which is not used any more.
    pub fn add(&mut self, key: ImageKey, place: ImagePlace, of: ImageDigest) -> Option<ImagePlace> {
        let image = Image { place, of, fitness: AtomicU8::new(UNKNOWN), used: AtomicU32::new(0) };
        self.all.insert(key, image).map(|before| before.place)
    }

    /// Removes an image. Returns where it lay.
    pub fn remove(&mut self, key: &ImageKey) -> Option<ImagePlace> {
        self.all.remove(key).map(|image| image.place)
    }

    /// Where an image lies.
    pub fn place_of(&self, key: &ImageKey) -> Option<ImagePlace> {
        self.all.get(key).map(|image| image.place)
    }

    /// What an image was made of.
    pub fn made_of(&self, key: &ImageKey) -> Option<ImageDigest> {
        self.all.get(key).map(|image| image.of)
    }

    /// Number of images.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// True without one.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Memory held, in bytes.
    pub fn heap_bytes(&self) -> u64 {
        // Leaves of a B-tree are about two thirds full.
        (self.all.len() * size_of::<(ImageKey, Image)>() * 3 / 2) as u64
    }

    /// Every image and where it lies.
    pub fn iter(&self) -> impl Iterator<Item = (&ImageKey, ImagePlace)> {
        self.all.iter().map(|(key, image)| (key, image.place))
    }

    /// The images of a file.
    pub fn of_file(&self, inode: InodeId) -> impl Iterator<Item = &ImageKey> {
        let first = ImageKey { chunk: ChunkId { inode, index: 0 }, ..ImageKey::default() };
        self.all.range(first..).map(|(key, _)| key).take_while(move |key| key.chunk.inode == inode)
    }

    /// Stamps of the images of a page that may be used, in order.
    pub(crate) fn stamps(&self, chunk: ChunkId, page: u32) -> impl Iterator<Item = Hlc> {
        let within = of_page(chunk, page, Hlc::ZERO)..=of_page(chunk, page, Hlc::MAX);
        let fit = self.all.range(within).filter(|(_, image)| image.fitness.load(Ordering::Relaxed) != UNFIT);
        fit.map(|(key, _)| key.stamp)
    }

    /// The newest image of a page with records stamped up to `at` that the index confirms: `made_of` says what the
    /// page consists of at a stamp. `None` too where images are as good as gone.
    pub(crate) fn newest(
        &self,
        chunk: ChunkId,
        page: u32,
        at: Hlc,
        made_of: impl Fn(Hlc) -> ImageDigest,
    ) -> Option<(Hlc, &Image)> {
        let within = of_page(chunk, page, Hlc::ZERO)..=of_page(chunk, page, at);
        let mut older = self.all.range(within).rev();
        let (key, image) = older.find(|(_, image)| image.fitness.load(Ordering::Relaxed) != UNFIT)?;
        if image.fitness.load(Ordering::Relaxed) == UNKNOWN {
            let found = made_of(key.stamp);
            if found.digest != image.of.digest {
                // Of records that a loss of power took, or that are missing from a damaged log.
                if image.fitness.swap(UNFIT, Ordering::Relaxed) != UNFIT {
                    self.unfit.fetch_add(1, Ordering::Relaxed);
                }
                return None;
            }
            // What is dead is not known yet right after a start, or is about to take the image with it.
            if found.left_out != image.of.left_out {
                return None;
            }
            image.fitness.store(FIT, Ordering::Relaxed);
        }
        Some((key.stamp, image))
    }

    /// Notes that an image is used by a reader.
    pub(crate) fn touch(&self, image: &Image) {
        let round = self.round.load(Ordering::Relaxed);
        // Most readers find the value that they would write: a cache line without a writer is shared by all cores.
        if image.used.load(Ordering::Relaxed) != round {
            image.used.store(round, Ordering::Relaxed);
        }
    }

    /// A new round: what is used from now on is used later than what was before.
    pub fn next_round(&self) {
        if self.round.fetch_add(1, Ordering::Relaxed) == u32::MAX {
            self.round.store(1, Ordering::Relaxed);
        }
    }

    /// Up to `max` images that are least useful: first those without a read since the start, oldest state first, then
    /// those not read for the longest. `spare` are left out.
    ///
    /// # Cost
    /// A pass over all images.
    pub fn least_useful(&self, max: usize, spare: impl Fn(&ImageKey) -> bool) -> Vec<ImageKey> {
        let mut ranked: Vec<(u32, Hlc, &ImageKey)> = (self.all.iter())
            .filter(|(key, _)| !spare(key))
            .map(|(key, image)| (image.used.load(Ordering::Relaxed), key.stamp, key))
            .collect();
        if ranked.len() > max {
            ranked.select_nth_unstable(max);
            ranked.truncate(max);
        }
        ranked.sort_unstable();
        ranked.into_iter().map(|(_, _, key)| *key).collect()
    }

    /// Images that are of other records than the index has: to be removed.
    ///
    /// # Cost
    /// A pass over all images, if there is one.
    pub fn unfit(&self) -> Vec<ImageKey> {
        if self.unfit.swap(0, Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let unfit = self.all.iter().filter(|(_, image)| image.fitness.load(Ordering::Relaxed) == UNFIT);
        unfit.map(|(key, _)| *key).collect()
    }
}

fn of_page(chunk: ChunkId, page: u32, stamp: Hlc) -> ImageKey {
    ImageKey { chunk, page, stamp }
}

/// An image and one record after it.
const PIECES_MIN: u32 = 2;
const UNKNOWN: u8 = 0;
const FIT: u8 = 1;
const UNFIT: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn key(inode: u64, page: u32, stamp: u64) -> ImageKey {
        ImageKey { chunk: ChunkId { inode: InodeId(inode), index: 0 }, page, stamp: Hlc(stamp) }
    }

    fn with(keys: &[ImageKey]) -> Images {
        let mut images = Images::new(4);
        for (slot, key) in keys.iter().enumerate() {
            let of = ImageDigest { digest: key.stamp.0, left_out: 0 };
            assert_eq!(images.add(*key, ImagePlace { file: 1, slot: slot as u32 }, of), None);
        }
        images
    }

    #[test]
    fn a_read_takes_the_newest_image_at_or_before_it() {
        let images = with(&[key(1, 0, 10), key(1, 0, 20), key(1, 1, 15), key(2, 0, 12)]);
        let found = |inode, page, at| {
            let made_of = |stamp: Hlc| ImageDigest { digest: stamp.0, left_out: 0 };
            images.newest(key(inode, 0, 0).chunk, page, Hlc(at), made_of).map(|(stamp, _)| stamp.0)
        };
        assert_eq!(
            [found(1, 0, 9), found(1, 0, 10), found(1, 0, 19), found(1, 0, 99)],
            [None, Some(10), Some(10), Some(20)]
        );
        assert_eq!(
            [found(1, 1, 14), found(1, 1, 15), found(2, 0, 50), found(3, 0, 50)],
            [None, Some(15), Some(12), None]
        );
    }

    #[test]
    fn an_image_of_other_records_is_never_used_and_goes() {
        let images = with(&[key(1, 0, 10), key(1, 0, 20)]);
        let made_of = |stamp: Hlc| ImageDigest { digest: if stamp == Hlc(20) { 7 } else { stamp.0 }, left_out: 0 };
        let chunk = key(1, 0, 0).chunk;
        assert!(images.newest(chunk, 0, Hlc(30), made_of).is_none());
        assert_eq!(images.newest(chunk, 0, Hlc(30), made_of).map(|(stamp, _)| stamp.0), Some(10), "the one before");
        assert_eq!(images.unfit(), [key(1, 0, 20)]);
        assert_eq!(images.unfit(), []);
        // One from which other records are left out than are dead now may be fit later.
        let images = with(&[key(1, 0, 10)]);
        let dead = |stamp: Hlc| ImageDigest { digest: stamp.0, left_out: 5 };
        assert!(images.newest(chunk, 0, Hlc(30), dead).is_none());
        assert_eq!(images.unfit(), []);
        assert!(images.newest(chunk, 0, Hlc(30), made_of).is_some());
    }

    #[test]
    fn what_was_read_last_goes_last() {
        let images = with(&[key(1, 0, 30), key(1, 1, 10), key(2, 0, 20), key(3, 0, 5)]);
        let made_of = |stamp: Hlc| ImageDigest { digest: stamp.0, left_out: 0 };
        let read = |page, at| {
            let (_, image) = images.newest(key(1, 0, 0).chunk, page, Hlc(at), made_of).expect("an image");
            images.touch(image);
        };
        read(1, 10);
        images.next_round();
        read(0, 30);
        assert_eq!(
            images.least_useful(9, |key| key.chunk.inode == InodeId(3)),
            [key(2, 0, 20), key(1, 1, 10), key(1, 0, 30)]
        );
        assert_eq!(images.least_useful(1, |_| false), [key(3, 0, 5)]);
        let all: Vec<ImageKey> = images.of_file(InodeId(1)).copied().collect();
        assert_eq!(all, [key(1, 0, 30), key(1, 1, 10)]);
    }
}
