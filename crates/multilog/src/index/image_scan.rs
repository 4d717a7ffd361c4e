//! Which pages come from images, and which images are due: the one walk along the records of a page.

use frieze_base::ChunkId;
use frieze_hlc::Hlc;

use super::chunk::Chunk;
use super::file::FileIndex;
use super::image_use::FragmentedPage;
use super::page::{Fragment, PageHistory, PageSlot, overlay};
use crate::image::{ImageDigest, ImageKey, Images};

/// Where a look for images goes on within a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScanCursor {
    chunk: u32,
    page: u32,
    record: u32,
}

/// What a look for images found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageScan {
    /// Images to be made, in the order in which each makes use of the one before.
    pub due: Vec<ImageKey>,
    /// Most pieces of any page looked at, at any instant, once those are made.
    pub pieces_most: usize,
    /// There is more to look at, from here on, once those are made.
    pub next: Option<ScanCursor>,
}

/// One walk along the records of a page.
struct PageWalk<'a> {
    chunk: &'a Chunk,
    number: u32,
    page: &'a PageHistory,
    /// Stamps of the images that it has.
    have: Vec<Hlc>,
    pieces_max: usize,
    /// Images may be made.
    make: bool,
}

/// Where a walk ended.
struct PageWalkEnd {
    due: Vec<Hlc>,
    pieces_most: usize,
    /// The record that it did not come to.
    next: Option<u32>,
    /// What it cost: entries looked at, about.
    steps: usize,
}

fn lay(fragments: &mut Vec<Fragment>, group: &[Fragment]) {
    for delta in group {
        overlay(fragments, *delta);
    }
}

impl PageWalk<'_> {
    /// Walks over the records numbered `from..to`, `steps_max` of them and a group at most.
    fn run(&self, from: u32, to: u32, steps_max: usize) -> PageWalkEnd {
        let deltas = &self.page.deltas;
        let at = |record: u32| deltas.partition_point(|delta| *delta < record);
        let (first, end) = (at(from), at(to));
        let stamp_of = |delta: usize| self.chunk.records.stamp(deltas[delta] as usize);
        let of = |record| self.chunk.fragment(self.number, record);
        let mut last = first.checked_sub(1).map(stamp_of);
        let mut image = last.and_then(|last| self.have.iter().rev().find(|stamp| **stamp <= last)).copied();
        // What comes after the image.
        let mut unsealed: Vec<Fragment> = Vec::new();
        if last.is_some() {
            let kept = image.map_or(Hlc::ZERO, Hlc::next);
            let shown = self.page.visible(from, (0, u16::MAX), &of, &mut Vec::new()).to_vec();
            unsealed.extend(shown.into_iter().filter(|fragment| self.chunk.stamp_of(*fragment) >= kept));
        }
        let mut walked = PageWalkEnd { due: Vec::new(), pieces_most: 0, next: None, steps: unsealed.len() };
        let mut pieces = self.pieces(&unsealed, image, 0);
        if let Some(stamp) = last.filter(|_| self.make && pieces > self.pieces_max) {
            walked.due.push(stamp);
            image = Some(stamp);
            unsealed.clear();
            pieces = 1;
        }
        walked.pieces_most = pieces;
        let mut upto = first;
        let mut group: Vec<Fragment> = Vec::new();
        while upto < end {
            // One group at least, or it would never come further.
            if upto > first && (walked.steps >= steps_max || walked.due.len() >= DUE_MAX) {
                walked.next = Some(deltas[upto]);
                break;
            }
            let stamp = stamp_of(upto);
            group.clear();
            while upto < end && (group.is_empty() || stamp_of(upto) == stamp) {
                group.push(of(deltas[upto]));
                upto += 1;
            }
            walked.steps += group.len();
            lay(&mut unsealed, &group);
            let known = if self.make { self.pieces_max.min(walked.pieces_most) } else { walked.pieces_most };
            pieces = self.pieces(&unsealed, image, known);
            if let Some(before) = last.filter(|_| self.make && pieces > self.pieces_max) {
                walked.due.push(before);
                image = Some(before);
                unsealed.clear();
                lay(&mut unsealed, &group);
                pieces = self.pieces(&unsealed, image, 0);
            }
            walked.pieces_most = walked.pieces_most.max(pieces);
            if self.have.binary_search(&stamp).is_ok() {
                image = Some(stamp);
                unsealed.clear();
            }
            last = Some(stamp);
        }
        walked
    }

    /// Pieces of a page of an image and what came after it; not counted where they can be no more than `known`.
    fn pieces(&self, unsealed: &[Fragment], image: Option<Hlc>, known: usize) -> usize {
        let image = usize::from(image.is_some());
        match unsealed.len() + image <= known {
            true => 0,
            false => self.chunk.pieces(unsealed, Hlc::ZERO) + image,
        }
    }
}

impl FileIndex {
    /// What a page is made of as of a stamp; `None` if one record or none touched it.
    pub(crate) fn made_of(&self, key: &ImageKey) -> Option<ImageDigest> {
        let chunk = self.chunk(key.chunk.index)?;
        Some(chunk.made_of((key.page, chunk.page(key.page)?), key.stamp))
    }

    /// Looks for the images that the states made by records stamped in `(after, upto]` need.
    pub(crate) fn scan_for_images(
        &self,
        images: &Images,
        id: frieze_base::InodeId,
        (after, upto): (Hlc, Hlc),
        cursor: ScanCursor,
        make: bool,
    ) -> ImageScan {
        let mut scan = ImageScan::default();
        let mut left = STEPS_MAX;
        let place = (cursor.chunk, cursor.page);
        for (index, chunk) in &self.chunks[self.position_of(cursor.chunk)..] {
            let (from, to) = (chunk.count_upto(after) as u32, chunk.count_upto(upto) as u32);
            if from >= to {
                continue;
            }
            let first = if *index == cursor.chunk { cursor.page } else { 0 };
            let id = ChunkId { inode: id, index: *index };
            for (number, slot) in &chunk.pages[chunk.position_of(first)..] {
                let next = ScanCursor { chunk: *index, page: *number, record: from };
                if left == 0 || scan.due.len() >= DUE_MAX {
                    scan.next = Some(next);
                    return scan;
                }
                // One record is one piece.
                let PageSlot::Often(page) = slot else {
                    scan.pieces_most = scan.pieces_most.max(1);
                    continue;
                };
                let from = if (*index, *number) == place { cursor.record.max(from) } else { from };
                if page.deltas.last().is_none_or(|newest| *newest < from) {
                    continue;
                }
                let have = images.stamps(id, *number).collect();
                let walk = PageWalk { chunk, number: *number, page, have, pieces_max: images.pieces_max(), make };
                let walked = walk.run(from, to, left);
                left = left.saturating_sub(walked.steps.max(1));
                scan.pieces_most = scan.pieces_most.max(walked.pieces_most);
                let key = |stamp| ImageKey { chunk: id, page: *number, stamp };
                scan.due.extend(walked.due.into_iter().map(key));
                if let Some(record) = walked.next {
                    scan.next = Some(ScanCursor { record, ..next });
                    return scan;
                }
            }
        }
        scan
    }

    /// The image that a read of a page was in want of, if it still is.
    pub(crate) fn image_for(&self, images: &Images, fragmented: &FragmentedPage) -> Option<ImageKey> {
        let chunk = self.chunk(fragmented.chunk.index)?;
        let page = chunk.page(fragmented.page)?;
        let to = chunk.count_upto(fragmented.at) as u32;
        let end = page.deltas.partition_point(|delta| *delta < to);
        let have: Vec<Hlc> = images.stamps(fragmented.chunk, fragmented.page).collect();
        let newest = have.iter().rev().find(|stamp| **stamp <= fragmented.at);
        let image_scan = newest.map_or(0, |stamp| chunk.count_upto(*stamp) as u32);
        // From the image before, or from not so far before that the walk is long.
        let from = *page.deltas[end.saturating_sub(STEPS_MAX)..end].first()?.max(&image_scan);
        let walk = PageWalk { chunk, number: fragmented.page, page, have, pieces_max: images.pieces_max(), make: true };
        let mut walked = walk.run(from, to, usize::MAX);
        let mut due = walked.due.pop();
        while let Some(next) = walked.next {
            // So many are missing that not all of them were told: only the last is wanted.
            let have = due.into_iter().collect();
            let rest =
                PageWalk { chunk, number: fragmented.page, page, have, pieces_max: images.pieces_max(), make: true };
            walked = rest.run(next, to, usize::MAX);
            due = walked.due.pop().or(due);
        }
        due.map(|stamp| ImageKey { chunk: fragmented.chunk, page: fragmented.page, stamp })
    }

    /// Most pieces of a page at the instants in `[from, before)`.
    pub(crate) fn pieces_between(&self, images: &Images, chunk: ChunkId, page: u32, from: Hlc, before: Hlc) -> usize {
        let Some(chunk_index) = self.chunk(chunk.index) else { return 0 };
        let Some(found) = chunk_index.page(page) else { return 0 };
        let have = images.stamps(chunk, page).collect();
        let walk = PageWalk {
            chunk: chunk_index,
            number: page,
            page: found,
            have,
            pieces_max: images.pieces_max(),
            make: false,
        };
        let (first, end) = (chunk_index.count_upto(from) as u32, chunk_index.count_upto(before.previous()) as u32);
        walk.run(first, end, STEPS_MAX).pieces_most
    }
}

/// Records that one look walks over, at most, about a millisecond: writers wait for it.
const STEPS_MAX: usize = 4096;
/// Images that one look names, at most.
const DUE_MAX: usize = 32;
