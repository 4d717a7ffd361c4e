//! One version of a file, and how its chunks lie.

use std::collections::BTreeMap;

use frieze_base::InodeId;
use frieze_hlc::Hlc;
use frieze_metadata::ChunkLayout;
use frieze_namespace::Inode;
use frieze_replication::Layout;

/// An inode in the version that a read uses.
pub struct FileVersion {
    /// The file.
    pub id: InodeId,
    /// Version whose size, patches and grants hold for the bytes.
    pub inode: Inode,
    /// Records stamped later are hidden; `None`: now.
    pub upto: Option<Hlc>,
    /// The file holds no record at that user time yet.
    pub empty: bool,
    /// The rows of that user time end here.
    pub size_max: Option<u64>,
    /// Later writes may still change what is shown at this user time.
    pub user_time_open: bool,
}

impl FileVersion {
    /// An inode with its bytes at an instant (`None`: now), whatever their user time.
    pub fn at(id: InodeId, inode: Inode, upto: Option<Hlc>) -> FileVersion {
        FileVersion { id, inode, upto, empty: false, size_max: None, user_time_open: false }
    }
}

/// The states that a range of a file shares, by file and instant. They are fetched before the `Look`: the namespace
/// must not be queried while the index of the device is locked.
pub type Sources = BTreeMap<(InodeId, Hlc), Inode>;

/// One file at one instant within a plan.
#[derive(Clone, Copy)]
pub struct Layer<'a> {
    /// The file.
    pub id: InodeId,
    /// Version whose patches and grants hold for the bytes.
    pub inode: &'a Inode,
    /// Records stamped later are hidden; `None`: now.
    pub upto: Option<Hlc>,
}

/// The layout of a file.
pub fn layout_of(id: InodeId, inode: &Inode) -> Layout {
    spread_of(id, ChunkLayout::of(inode))
}

/// The layout of a file's chunks over chains.
pub fn spread_of(id: InodeId, ChunkLayout { chunk_bytes, chain_count }: ChunkLayout) -> Layout {
    Layout { chunk_bytes, chain_count, inode: id }
}

/// Splits `start..end` where another patch, or none, decides.
pub fn parts(inode: &Inode, start: u64, end: u64) -> Vec<(u64, u64, Option<frieze_namespace::Patch>)> {
    let mut parts = Vec::new();
    let mut at = start;
    for patch in inode.patches_in(start, end) {
        if at < patch.start {
            parts.push((at, patch.start, None));
        }
        at = patch.end;
        parts.push((patch.start, patch.end, Some(patch)));
    }
    if at < end {
        parts.push((at, end, None));
    }
    parts
}

impl FileVersion {
    /// The part of it that a plan needs.
    pub fn layer(&self) -> Layer<'_> {
        Layer { id: self.id, inode: &self.inode, upto: self.upto }
    }
}
