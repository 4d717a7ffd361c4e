//! Finds which states of which files a range of bytes comes from.

use frieze_base::{ByteRange, Fault, InodeId, Reason};
use frieze_hlc::Hlc;
use frieze_multilog::PieceSource;
use frieze_namespace::{Inode, PatchSource};

use crate::file_version::{FileVersion, Layer, Sources, parts};
use crate::file_view::{DEPTH_MAX, Look, not_fetched};

/// A range of the file asked for, and the state that shows it without sharing it from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// First byte, in the file asked for.
    pub start: u64,
    /// The byte after the last one.
    pub end: u64,
    /// The file whose state shows it.
    pub inode: InodeId,
    /// Where in that file the range begins.
    pub offset: u64,
    /// The instant of that state.
    pub at: Hlc,
    /// Number of shared states between the file and this one.
    pub depth: u32,
}

impl Look<'_> {
    /// The origins of `range`, in order; consecutive parts of the same state are one.
    ///
    /// # Errors
    /// As [`Look::plan`].
    pub fn origins(&self, seen: &FileVersion, sources: &Sources, range: ByteRange) -> Result<Vec<Origin>, Fault> {
        let mut found = Vec::new();
        self.origins_of(seen.layer(), sources, range, range.start(), 1, &mut found)?;
        Ok(found)
    }

    fn origins_of(
        &self,
        layer: Layer<'_>,
        sources: &Sources,
        range: ByteRange,
        out_at: u64,
        depth: u32,
        found: &mut Vec<Origin>,
    ) -> Result<(), Fault> {
        let mut own = Vec::new();
        for (start, end, patch) in parts(layer.inode, range.start(), range.end()) {
            let whole = |depth| {
                let start_out = out_at + (start - range.start());
                let at = layer.upto.unwrap_or(Hlc::MAX);
                Origin { start: start_out, end: start_out + (end - start), inode: layer.id, offset: start, at, depth }
            };
            let Some(patch) = patch.filter(|patch| matches!(patch.source, PatchSource::Shared { .. })) else {
                // Holes too: this state reads as zeros there.
                push(found, whole(depth));
                continue;
            };
            own.clear();
            match self.plan_own(layer, start, end, patch.at, &mut own) {
                // Only other servers know which of its bytes are shared: the range is shared from here, with everything
                // below.
                Err(fault) if fault.reason == Reason::Unsupported => {
                    let depth = depth + depth_of(layer.inode, sources, start, end)?;
                    if depth > 2 * DEPTH_MAX {
                        return Err(fault);
                    }
                    push(found, whole(depth));
                    continue;
                }
                planned => planned?,
            }
            for piece in &own {
                let start = out_at + (piece.at - range.start());
                let len = u64::from(piece.len);
                if let (PieceSource::Hole, PatchSource::Shared { inode, offset, at }) = (piece.source, patch.source) {
                    let version = sources.get(&(inode, at)).ok_or_else(not_fetched)?;
                    let below = Layer { id: inode, inode: version, upto: Some(at) };
                    let first = offset + (piece.at - patch.start);
                    self.origins_of(below, sources, ByteRange::new(first, first + len), start, depth + 1, found)?;
                    continue;
                }
                let at = layer.upto.unwrap_or(Hlc::MAX);
                push(found, Origin { start, end: start + len, inode: layer.id, offset: piece.at, at, depth });
            }
        }
        Ok(())
    }
}

/// Upper bound of the shared states below `start..end` of an inode.
fn depth_of(inode: &Inode, sources: &Sources, start: u64, end: u64) -> Result<u32, Fault> {
    let mut depth = 0;
    for (start, end, patch) in parts(inode, start, end) {
        if let Some(PatchSource::Shared { inode, offset, at }) = patch.map(|patch| patch.source) {
            let version = sources.get(&(inode, at)).ok_or_else(not_fetched)?;
            depth = depth.max(1 + depth_of(version, sources, offset, offset + (end - start))?);
        }
    }
    Ok(depth)
}

fn push(found: &mut Vec<Origin>, next: Origin) {
    if let Some(last) = found.last_mut()
        && (last.inode, last.at) == (next.inode, next.at)
        && last.offset + (next.start - last.start) == next.offset
    {
        last.end = next.end;
        last.depth = last.depth.max(next.depth);
        return;
    }
    found.push(next);
}
