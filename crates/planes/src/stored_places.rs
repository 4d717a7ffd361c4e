//! Where the records lie that a state of a file shows.

use std::collections::BTreeSet;

use frieze_base::InodeId;
use frieze_hlc::Hlc;
use frieze_multilog::PieceSource;
use frieze_namespace::Inode;
use frieze_replication::REACH_BYTES_MAX;

use crate::file_version::{Layer, parts};
use crate::file_view::Look;
use crate::gc_state::RecordPlace;

impl Look<'_> {
    /// Adds where the file's own records lie that `range` of it shows at an instant, whatever its length is.
    pub fn own_places(
        &self,
        id: InodeId,
        inode: &Inode,
        at: Hlc,
        range: (u64, u64),
        places: &mut BTreeSet<RecordPlace>,
    ) {
        let layer = Layer { id, inode, upto: Some(at) };
        let chunk_bytes = inode.chunk_bytes();
        let mut pieces = Vec::new();
        for index in self.log.chunks_in(id, 0..=u32::MAX) {
            let chunk_start = u64::from(index) * chunk_bytes;
            // The records of this chunk may reach over its end.
            let reach = if inode.reaches_over(index) { REACH_BYTES_MAX } else { 0 };
            let (start, end) = (range.0.max(chunk_start), range.1.min(chunk_start + chunk_bytes + reach));
            if start >= end {
                continue;
            }
            for (start, end, patch) in parts(inode, start, end) {
                pieces.clear();
                self.plan_stored(layer, start, end, patch.map_or(Hlc::ZERO, |patch| patch.at), &mut pieces);
                places.extend(pieces.iter().filter_map(|piece| match &piece.source {
                    PieceSource::Data(stored) => Some((stored.segment, stored.crcs_offset)),
                    PieceSource::Hole | PieceSource::Punched(_) | PieceSource::Image(_) | PieceSource::External(_) => {
                        None
                    }
                }));
            }
        }
    }
}
