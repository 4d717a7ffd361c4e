//! Names of images: which page, where it lies, what it was made of.

use frieze_base::ChunkId;
use frieze_hlc::Hlc;

/// Which page an image is of, and as of when: stamp of the newest record in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageKey {
    /// The chunk.
    pub chunk: ChunkId,
    /// Which 64 KiB of it.
    pub page: u32,
    /// Stamp of the newest record that the image shows.
    pub stamp: Hlc,
}

/// Where an image lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImagePlace {
    /// Number of the file.
    pub file: u32,
    /// Which slot of it.
    pub slot: u32,
}

/// What an image was made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageDigest {
    /// Tells the page's fragments from any others.
    pub digest: u64,
    /// Tells which of them are left out, 0 for none.
    pub left_out: u32,
}

/// Tells one list of fragments from another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digest(u64);

impl Digest {
    pub(crate) fn new() -> Digest {
        Digest(0)
    }

    pub(crate) fn add(&mut self, value: u64) {
        let mixed = (self.0.rotate_left(29) ^ value).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }

    pub(crate) fn value(self) -> u64 {
        self.0
    }
}
