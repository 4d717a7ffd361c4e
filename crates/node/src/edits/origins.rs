//! Which states of which files a range of bytes comes from.

use frieze_base::{ByteRange, Fault, InodeId};
use frieze_hlc::Hlc;
use frieze_multilog::Source;
use frieze_namespace::PatchSource;

use crate::seen::{Layer, Look, Seen, Sources, not_fetched, parts};

/// A range of the file asked for, and the state that shows it without sharing it from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) inode: InodeId,
    /// Where in that file the range begins.
    pub(super) offset: u64,
    pub(super) at: Hlc,
    /// States behind each other until there.
    pub(super) depth: u32,
}

impl Look<'_> {
    /// The origins of `range`, in order; those that go on in the same state are one.
    ///
    /// # Errors
    /// As [`Look::plan`].
    pub(super) fn origins(&self, seen: &Seen, sources: &Sources, range: ByteRange) -> Result<Vec<Origin>, Fault> {
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
            own.clear();
            self.plan_own(layer, start, end, patch.map_or(Hlc::ZERO, |patch| patch.at), &mut own)?;
            for piece in &own {
                let start = out_at + (piece.at - range.start());
                let len = u64::from(piece.len);
                if let (Source::Hole, Some((from, PatchSource::Shared { inode, offset, at }))) =
                    (piece.source, patch.map(|patch| (patch.start, patch.source)))
                {
                    let version = sources.get(&(inode, at)).ok_or_else(not_fetched)?;
                    let below = Layer { id: inode, inode: version, upto: Some(at) };
                    let first = offset + (piece.at - from);
                    self.origins_of(below, sources, ByteRange::new(first, first + len), start, depth + 1, found)?;
                    continue;
                }
                // Holes too: what this state says of them is zeros.
                let at = layer.upto.unwrap_or(Hlc::MAX);
                push(found, Origin { start, end: start + len, inode: layer.id, offset: piece.at, at, depth });
            }
        }
        Ok(())
    }
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
