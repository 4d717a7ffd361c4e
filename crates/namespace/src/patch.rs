//! Patches: what a change of metadata says about the bytes that a file held before it.
//!
//! A patch of stamp `at` decides a range of bytes: what the data plane wrote there before `at` is hidden from reads at
//! or after it, and the patch's source shows instead, until something newer is written. A truncate is a patch from the
//! new length to the end of the world whose source is a hole; a clone, a restore or an undo is one whose source is an
//! older state of this or another file. No byte is copied.
//!
//! An inode keeps for every byte the newest patch only, as sorted ranges that do not overlap. Older ones cannot be
//! seen: a byte shows what was written after its newest patch, else what that patch says. Older versions of the inode
//! keep their own lists, so the past does not change.

use frieze_base::InodeId;
use frieze_hlc::Hlc;

/// Most ranges that edits may leave in one file. A truncate adds one in any case.
pub const PATCHES_MAX: usize = 256;

/// Where the bytes under a patch come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchSource {
    /// Zeros.
    Hole,
    /// The state of a file at an instant.
    Shared {
        /// The file.
        inode: InodeId,
        /// Where in it the first byte of the patch is found.
        offset: u64,
        /// The instant, inclusive. It was closed when the patch was made, so the bytes never change.
        at: Hlc,
    },
}

/// One range of a file, decided by a change of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch {
    /// Stamp of the change: bytes written before it are hidden.
    pub at: Hlc,
    /// First byte.
    pub start: u64,
    /// One past the last byte; `u64::MAX` for no end.
    pub end: u64,
    /// What shows instead.
    pub source: PatchSource,
}

impl Patch {
    /// A truncate to `len` bytes.
    pub fn truncate(at: Hlc, len: u64) -> Patch {
        Patch { at, start: len, end: u64::MAX, source: PatchSource::Hole }
    }

    /// The part of it in `start..end`, if there is any.
    pub fn cut(&self, start: u64, end: u64) -> Option<Patch> {
        let (from, to) = (self.start.max(start), self.end.min(end));
        let source = match self.source {
            PatchSource::Hole => PatchSource::Hole,
            PatchSource::Shared { inode, offset, at } => {
                PatchSource::Shared { inode, offset: offset.saturating_add(from.max(self.start) - self.start), at }
            }
        };
        (from < to).then_some(Patch { at: self.at, start: from, end: to, source })
    }

    /// True if `next` begins where this ends and goes on with the same.
    fn goes_on_with(&self, next: &Patch) -> bool {
        let continued = self.cut(self.start, u64::MAX).map(|all| all.source_at(next.start - self.start));
        self.end == next.start && self.at == next.at && continued == Some(next.source)
    }

    fn source_at(&self, skip: u64) -> PatchSource {
        match self.source {
            PatchSource::Hole => PatchSource::Hole,
            PatchSource::Shared { inode, offset, at } => {
                PatchSource::Shared { inode, offset: offset.saturating_add(skip), at }
            }
        }
    }
}

/// Lays a new patch over sorted patches that do not overlap: what lies under it goes, cut at its edges.
pub(crate) fn lay(patches: &mut Vec<Patch>, new: Patch) {
    if new.start >= new.end {
        return;
    }
    let from = patches.partition_point(|patch| patch.end <= new.start);
    let to = from + patches[from..].partition_point(|patch| patch.start < new.end);
    let before = patches[from..to].first().and_then(|first| first.cut(0, new.start));
    let after = patches[from..to].last().and_then(|last| last.cut(new.end, u64::MAX));
    patches.splice(from..to, [before, Some(new), after].into_iter().flatten());
    let mut at = patches.partition_point(|patch| patch.start < new.start);
    if at > 0 && patches[at - 1].goes_on_with(&patches[at]) {
        patches[at - 1].end = patches[at].end;
        patches.remove(at);
        at -= 1;
    }
    if at + 1 < patches.len() && patches[at].goes_on_with(&patches[at + 1]) {
        patches[at].end = patches[at + 1].end;
        patches.remove(at + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frieze_base::Rng;

    fn shared(at: u64, start: u64, end: u64, offset: u64) -> Patch {
        let source = PatchSource::Shared { inode: InodeId(9), offset, at: Hlc(1) };
        Patch { at: Hlc(at), start, end, source }
    }

    #[test]
    fn a_truncate_hides_all_later_patches_behind_it() {
        let mut patches = Vec::new();
        lay(&mut patches, shared(10, 0, 100, 0));
        lay(&mut patches, Patch::truncate(Hlc(20), 60));
        assert_eq!(patches, [shared(10, 0, 60, 0), Patch::truncate(Hlc(20), 60)]);
    }

    #[test]
    fn the_rest_of_a_patch_continues_at_the_same_place() {
        let mut patches = vec![shared(10, 0, 100, 7)];
        lay(&mut patches, Patch { at: Hlc(20), start: 30, end: 40, source: PatchSource::Hole });
        assert_eq!(patches.last(), Some(&shared(10, 40, 100, 47)));
    }

    #[test]
    fn parts_of_one_change_that_follow_each_other_are_one() {
        let mut patches = Vec::new();
        lay(&mut patches, shared(10, 0, 50, 0));
        lay(&mut patches, shared(10, 50, 80, 50));
        assert_eq!(patches, [shared(10, 0, 80, 0)]);
        lay(&mut patches, shared(11, 80, 90, 80));
        assert_eq!(patches.len(), 2, "another change hides other bytes");
    }

    #[test]
    fn every_byte_has_its_newest_patch() {
        let mut rng = Rng::new(5);
        for _ in 0..200 {
            let mut patches = Vec::new();
            let mut bytes: Vec<Option<(Hlc, PatchSource)>> = vec![None; 64];
            for at in 1..30 {
                let start = rng.below(60);
                let end = if rng.chance(5) { u64::MAX } else { start + rng.between(1, 20) };
                let new = match rng.chance(3) {
                    true => Patch { at: Hlc(at), start, end, source: PatchSource::Hole },
                    false => shared(at, start, end, rng.below(50)),
                };
                lay(&mut patches, new);
                for byte in start..end.min(64) {
                    bytes[byte as usize] = Some((new.at, new.source_at(byte - start)));
                }
            }
            assert!(patches.windows(2).all(|pair| pair[0].end <= pair[1].start), "{patches:?}");
            for byte in 0..64 {
                let found = patches.iter().find(|patch| (patch.start..patch.end).contains(&byte));
                assert_eq!(found.map(|patch| (patch.at, patch.source_at(byte - patch.start))), bytes[byte as usize]);
            }
        }
    }
}
