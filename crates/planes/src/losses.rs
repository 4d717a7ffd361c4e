//! Whether a range of a file may lack bytes that were acknowledged before a chain continued from a stale copy.

use frieze_base::{ByteRange, ChainId, ChunkId, Fault};
use frieze_hlc::Hlc;
use frieze_namespace::PatchSource;
use frieze_replication::REACH_BYTES_MAX;
use frieze_wire::message::Read;

use crate::chain_parts::{parts_before, parts_of};
use crate::file_version::{FileVersion, Layer, Sources, layout_of, parts};
use crate::file_view::Look;
use crate::files::Files;
use crate::gaps::Losses;
use crate::remote_reach::RemoteReach;

impl Files {
    /// True if a range of a file, as it is seen, may lack acknowledged bytes since a chain continued from a stale copy:
    /// no record known to lie above the loss covers the range, and the file is older than the loss.
    ///
    /// # Errors
    /// Those of [`Files::sources`] and [`Files::look_with`].
    pub fn may_lack(&self, losses: &Losses, seen: &FileVersion, ask: &Read) -> Result<bool, Fault> {
        let end = ask.offset.saturating_add(ask.len.into());
        let sources = self.sources(&seen.inode, ask.offset, end)?;
        let look = self.look_with(&[seen], &[&sources], RemoteReach::unasked(seen, self.remote_chains(None)))?;
        Ok(losses
            .may_miss(&look, seen.layer(), &sources, (ask.offset, end), &|chain| self.planes.data.is_member(chain)))
    }
}

impl Losses {
    /// True if a range of a layer may lack lost bytes.
    fn may_miss(
        &self,
        look: &Look<'_>,
        layer: Layer<'_>,
        sources: &Sources,
        (start, end): (u64, u64),
        is_here: &dyn Fn(ChainId) -> bool,
    ) -> bool {
        let layout = layout_of(layer.id, layer.inode);
        parts(layer.inode, start, end).into_iter().any(|(start, end, patch)| {
            let hidden_upto = patch.map_or(Hlc::ZERO, |patch| patch.at);
            // Beyond what a file can hold there is nothing.
            let Some(chunks) = parts_of(layout, start, end) else { return false };
            let covers = |(chain, chunk, range): &(ChainId, ChunkId, ByteRange), after: Hlc| {
                let upto = look.shown_upto_of(layer, chunk.index);
                is_here(*chain) && look.log.data_in(*chunk, *range, upto, after) == range.len()
            };
            // Which part of a chain's loss can concern this layer: a later patch hides it, an older instant precedes
            // it.
            let lost_to = |chain: &ChainId| {
                let lost = self.0.get(chain)?;
                let is_older = layer.inode.born.0 < lost.to && hidden_upto.0 < lost.to;
                (is_older && layer.upto.is_none_or(|upto| upto.0 > lost.from)).then_some(Hlc(lost.to))
            };
            let ask = Read { offset: start, len: (end - start).min(REACH_BYTES_MAX) as u32, ..Read::default() };
            let reaching = parts_before(layout, layer.inode.reaches_from(), &ask);
            let misses = |part: &(ChainId, ChunkId, ByteRange)| lost_to(&part.0).is_some_and(|to| !covers(part, to));
            if chunks.iter().any(misses) || reaching.iter().any(|(chain, ..)| lost_to(chain).is_some()) {
                return true;
            }
            let Some(PatchSource::Shared { inode, offset, at }) = patch.map(|patch| patch.source) else { return false };
            if chunks.iter().all(|part| covers(part, hidden_upto)) {
                return false;
            }
            let Some(version) = sources.get(&(inode, at)) else { return false };
            let source = Layer { id: inode, inode: version, upto: Some(at) };
            self.may_miss(look, source, sources, (offset, offset.saturating_add(end - start)), is_here)
        })
    }
}
