//! What the log is asked about images.

use frieze_base::{ByteRange, ChunkId, InodeId};
use frieze_hlc::Hlc;

use crate::image::{ImageDigest, ImageKey, Images};
use crate::index::{FragmentedPage, ImageScan, ImageUse, PAGE_BYTES, ScanCursor};
use crate::log::MultiLog;
use crate::plan::{Piece, Planner};

/// What an image to be made consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedImage {
    /// The page: nothing of it from dead records.
    pub pieces: Vec<Piece>,
    /// Where the first of them begins in the chunk, in bytes.
    pub start: u64,
    /// Tells later whether it is what the index says.
    pub of: ImageDigest,
}

impl MultiLog {
    /// As [`MultiLog::plan`], to be read: where a page consists of more pieces than it may, those of an image are taken
    /// from it. Pages that consist of too many all the same are added to `fragmented`.
    pub fn plan_to_read(
        &self,
        images: &Images,
        chunk: ChunkId,
        range: ByteRange,
        (at, after): (Hlc, Hlc),
        out: &mut Vec<Piece>,
        fragmented: &mut Vec<FragmentedPage>,
    ) {
        self.plan_through(chunk, range, (at, after), ImageUse { images, chunk, fragmented: Some(fragmented) }, out);
    }

    fn plan_through(
        &self,
        chunk: ChunkId,
        range: ByteRange,
        (at, after): (Hlc, Hlc),
        mut image_use: ImageUse<'_>,
        out: &mut Vec<Piece>,
    ) {
        assert!(range.end() <= 1 << 32, "{range} is beyond any chunk");
        let mut planner = Planner::new(self.record_files(), range.start(), out);
        if let Some(file) = self.file(chunk.inode).filter(|_| !range.is_empty()) {
            file.plan(chunk.index, range, at, after, Some(&mut image_use), &mut planner);
        }
        planner.hole(range.end());
    }

    /// What an image is to be made of; `None` if there is no such page, or no record of that stamp.
    pub fn plan_image(&self, images: &Images, key: &ImageKey) -> Option<PlannedImage> {
        let file = self.file(key.chunk.inode)?;
        let of = file.made_of(key)?;
        let start = u64::from(key.page) * PAGE_BYTES;
        let range = ByteRange::new(start, start + PAGE_BYTES);
        let mut pieces = Vec::new();
        let image_use = ImageUse { images, chunk: key.chunk, fragmented: None };
        self.plan_through(key.chunk, range, (key.stamp, Hlc::ZERO), image_use, &mut pieces);
        Some(PlannedImage { pieces, start, of })
    }

    /// Looks which images the states need that records of a file stamped in `(after, upto]` made. With `make` false, it
    /// only counts pieces. A look is short: [`ImageScan::next`] says where the next one goes on.
    ///
    /// # Cost
    /// About a millisecond at most.
    pub fn scan_for_images(
        &self,
        images: &Images,
        inode: InodeId,
        interval: (Hlc, Hlc),
        cursor: ScanCursor,
        make: bool,
    ) -> ImageScan {
        let file = self.file(inode);
        file.map_or(ImageScan::default(), |file| file.scan_for_images(images, inode, interval, cursor, make))
    }

    /// The image that a reader was in want of, unless it is there by now.
    pub fn image_for(&self, images: &Images, fragmented: &FragmentedPage) -> Option<ImageKey> {
        self.file(fragmented.chunk.inode)?.image_for(images, fragmented)
    }

    /// Most pieces that a page consists of at the instants that an image was for which is not there any more; of very
    /// many records, at the first of them.
    pub fn pieces_without(&self, images: &Images, gone: &ImageKey) -> usize {
        let before = images.stamps(gone.chunk, gone.page).find(|stamp| *stamp > gone.stamp).unwrap_or(Hlc::MAX);
        let file = self.file(gone.chunk.inode);
        file.map_or(0, |file| file.pieces_between(images, gone.chunk, gone.page, gone.stamp, before))
    }

    /// Images of a file that hold bytes of dead records, and those that the index says nothing of.
    pub fn images_of_dead(&self, images: &Images, inode: InodeId) -> Vec<ImageKey> {
        let Some(file) = self.file(inode) else { return images.of_file(inode).copied().collect() };
        let differs = |key: &&ImageKey| file.made_of(key) != images.made_of(key);
        images.of_file(inode).filter(differs).copied().collect()
    }

    /// Stamp of the last record of the segment in which the first record stamped after `after` lies; `None` without
    /// one.
    pub fn end_of_segment_after(&self, after: Hlc) -> Option<Hlc> {
        let at = self.segments.partition_point(|segment| segment.stamp <= after);
        self.segments.get(at).map(|segment| segment.stamp)
    }
}
