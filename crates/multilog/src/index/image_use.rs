//! What a plan that may use images needs to know.

use frieze_base::ChunkId;
use frieze_hlc::Hlc;

use crate::image::Images;

/// A page that is read in more pieces than it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FragmentedPage {
    /// The chunk.
    pub chunk: ChunkId,
    /// Which 64 KiB of it.
    pub page: u32,
    /// The instant that was read.
    pub at: Hlc,
}

/// A plan that uses images.
#[derive(Debug)]
pub(crate) struct ImageUse<'a> {
    pub(crate) images: &'a Images,
    pub(crate) chunk: ChunkId,
    /// Pages that consist of too many pieces all the same are added here. Without it, the plan is of an image to be
    /// made: nothing of dead records.
    pub(crate) fragmented: Option<&'a mut Vec<FragmentedPage>>,
}

impl ImageUse<'_> {
    pub(super) fn is_for_image(&self) -> bool {
        self.fragmented.is_none()
    }
}
