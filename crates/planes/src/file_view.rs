//! The bytes of a file as one version of its inode shows them: its own records, and the ranges it shares.
//!
//! Guarantees: an answer computed under one `Look` is one state; a byte under a patch is the file's own if it was
//! written after the patch (at the same stamp: before it), else it is what the patch says, through as many files as
//! share it.
//! Leaves to others: access rights, and the choice of the instant (`service`, `read`).

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use frieze_base::{ByteRange, ChainId, ChunkId, Fault, InodeId, Reason};
use frieze_hlc::Hlc;
use frieze_locks::RwLockReadGuard;
use frieze_multilog::{FragmentedPage, Images, MultiLog, Piece, PieceSource};
use frieze_namespace::PatchSource;
use frieze_replication::{Cuts, DataPlane, Layout, REACH_BYTES_MAX};
use frieze_wire::message::FileKind;

use crate::file_version::{FileVersion, Layer, Sources, layout_of, parts};
use crate::remote_chains::{Fetch, Wanted};
use crate::remote_reach::{RemoteReach, not_whole_here};

/// Most states behind each other under one byte. An edit that would exceed it shares the state below instead.
pub const DEPTH_MAX: u32 = 16;

/// A consistent view of the data plane for one answer: it blocks publishing of records.
pub struct Look<'a> {
    /// The index of the device log.
    pub log: RwLockReadGuard<'a, MultiLog>,
    /// For each chain the newest stamp that is committed.
    pub cuts: Cuts<'a>,
    pub(crate) data: &'a DataPlane,
    /// On this chain uncommitted records count too.
    pub(crate) dirty_of: Option<ChainId>,
    /// Answers of other servers about chains that are not here.
    pub(crate) remote: RemoteReach,
}

/// What a plan for a read uses.
pub struct ThroughImages<'a> {
    /// Pages that are stored whole.
    pub images: &'a Images,
    /// Pages that consist of too many pieces.
    pub crowded: &'a mut Vec<FragmentedPage>,
    /// Ranges to fetch from other servers; `None`: a plan that needs one fails.
    pub fetch: Option<&'a mut Fetch>,
}

/// Purpose of the search for records that reach into a chunk.
enum Whence<'t, 'i> {
    /// The records stored here, complete or not.
    Stored,
    /// A read, or its plan.
    Read(&'t mut Option<ThroughImages<'i>>),
}

/// The end of a file.
pub struct Extent {
    /// Bytes.
    pub size: u64,
    /// When bytes last changed, nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Newest record that is not settled yet.
    pub data: Option<Hlc>,
}

impl Look<'_> {
    /// Up to which stamp records of a chain count for a length of now.
    fn counted_upto(&self, chain: ChainId) -> Hlc {
        if self.dirty_of == Some(chain) { Hlc::MAX } else { self.cuts.of(chain) }
    }

    fn reach(&self, seen: &FileVersion, layout: Layout, chunks: RangeInclusive<u32>) -> frieze_multilog::Tail {
        let log = &self.log;
        let after = seen.inode.size_as_of;
        if let Some((away, _)) = self.remote.of(seen) {
            return self.reach_here(seen, layout, chunks, away);
        }
        if let Some(upto) = seen.upto {
            let tail = log.newest_in(seen.id, chunks.clone(), after, upto);
            return self.reach_over(seen, layout, chunks, tail, &|_| upto);
        }
        // Now: everything committed. Only a chain with a `sync` write in flight hides something.
        let count = (chunks.end() - chunks.start() + 1).min(layout.chain_count);
        let dirty = (0..count).any(|i| self.counted_upto(layout.chain(chunks.start() + i)) != Hlc::MAX);
        if !dirty {
            let tail = log.newest_in(seen.id, chunks.clone(), after, Hlc::MAX);
            return self.reach_over(seen, layout, chunks, tail, &|_| Hlc::MAX);
        }
        let mut tail = frieze_multilog::Tail::default();
        for chunk in chunks {
            let part = log.newest_in(seen.id, chunk..=chunk, after, self.counted_upto(layout.chain(chunk)));
            tail.highest = tail.highest.max(part.highest.map(|end| layout.end_in_chunk(end)));
            tail.newest = tail.newest.max(part.newest);
        }
        tail
    }

    /// A tail of these chunks, including records that reach over the end of their own chunk: the farthest may be of a
    /// chunk below.
    fn reach_over(
        &self,
        seen: &FileVersion,
        layout: Layout,
        chunks: RangeInclusive<u32>,
        tail: frieze_multilog::Tail,
        upto: &dyn Fn(u32) -> Hlc,
    ) -> frieze_multilog::Tail {
        let Some((last, _)) = tail.highest.filter(|(last, _)| seen.inode.reaches_over(*last)) else { return tail };
        let below = last.saturating_sub(layout.reach()).max(*chunks.start())..=last;
        let ends = below
            .filter_map(|chunk| self.log.newest_in(seen.id, chunk..=chunk, seen.inode.size_as_of, upto(chunk)).highest);
        frieze_multilog::Tail { highest: ends.map(|end| layout.end_in_chunk(end)).max(), ..tail }
    }

    /// As `reach_over`, for the chunks that are here. The other chunks may have records here too, but not all of
    /// theirs.
    fn reach_here(
        &self,
        seen: &FileVersion,
        layout: Layout,
        chunks: RangeInclusive<u32>,
        away: &BTreeSet<ChainId>,
    ) -> frieze_multilog::Tail {
        let mut tail = frieze_multilog::Tail::default();
        for chunk in self.log.chunks_in(seen.id, chunks) {
            let chain = layout.chain(chunk);
            if away.contains(&chain) {
                continue;
            }
            let upto = seen.upto.unwrap_or_else(|| self.counted_upto(chain));
            let part = self.log.newest_in(seen.id, chunk..=chunk, seen.inode.size_as_of, upto);
            tail.highest = tail.highest.max(part.highest.map(|end| layout.end_in_chunk(end)));
            tail.newest = tail.newest.max(part.newest);
        }
        tail
    }

    /// Length and time of a file.
    pub fn extent(&self, seen: &FileVersion) -> Extent {
        let inode = &seen.inode;
        if seen.empty {
            return Extent { size: 0, mtime_ns: inode.born.unix_ns(), data: None };
        }
        let mut extent = Extent { size: inode.size, mtime_ns: inode.mtime_ns, data: None };
        if inode.kind() != FileKind::File {
            return extent;
        }
        let layout = layout_of(seen.id, inode);
        for chunks in inode.granted_chunks() {
            let tail = self.reach(seen, layout, chunks.start..=chunks.end - 1);
            if let Some((chunk, end)) = tail.highest {
                extent.size = extent.size.max(u64::from(chunk) * layout.chunk_bytes + u64::from(end));
            }
            extent.data = extent.data.max(tail.newest);
        }
        if let Some((_, tail)) = self.remote.of(seen) {
            if let Some((chunk, end)) = tail.highest {
                extent.size = extent.size.max(u64::from(chunk) * layout.chunk_bytes + u64::from(end));
            }
            extent.data = extent.data.max(tail.newest);
        }
        extent.size = extent.size.min(seen.size_max.unwrap_or(u64::MAX));
        // A time that was set by hand holds until a later write.
        if let Some(newest) = extent.data.filter(|newest| *newest > inode.mtime_stamp) {
            extent.mtime_ns = newest.unix_ns();
        }
        extent
    }

    /// Where the bytes of `range` of a file lie; pieces, with offsets in the file, are added to `pieces`.
    ///
    /// # Errors
    /// `Internal` if `sources` were not fetched for this range.
    pub fn plan(
        &self,
        seen: &FileVersion,
        sources: &Sources,
        range: ByteRange,
        pieces: &mut Vec<Piece>,
    ) -> Result<(), Fault> {
        self.plan_layer(seen.layer(), sources, range, range.start(), &mut None, pieces)
    }

    /// Plans a read: pages that consist of many pieces come from images; pages that still consist of too many are
    /// reported.
    ///
    /// # Errors
    /// As [`Look::plan`].
    pub fn plan_to_read(
        &self,
        seen: &FileVersion,
        sources: &Sources,
        range: ByteRange,
        through: ThroughImages<'_>,
        pieces: &mut Vec<Piece>,
    ) -> Result<(), Fault> {
        self.plan_layer(seen.layer(), sources, range, range.start(), &mut Some(through), pieces)
    }

    /// Plans `range` of one file; its first byte goes to `out_at` of the file asked for.
    fn plan_layer(
        &self,
        layer: Layer<'_>,
        sources: &Sources,
        range: ByteRange,
        out_at: u64,
        through: &mut Option<ThroughImages<'_>>,
        pieces: &mut Vec<Piece>,
    ) -> Result<(), Fault> {
        let mut own = Vec::new();
        for (start, end, patch) in parts(layer.inode, range.start(), range.end()) {
            let after = patch.map_or(Hlc::ZERO, |patch| patch.at);
            let out = |at: u64| out_at + (at - range.start());
            let Some((from, (inode, offset, at))) = patch.and_then(|patch| Some((patch.start, shared(patch.source)?)))
            else {
                let first = pieces.len();
                self.plan_own_through(layer, (start, end), after, through, pieces)?;
                pieces[first..].iter_mut().for_each(|piece| piece.at = out(piece.at));
                continue;
            };
            own.clear();
            self.plan_own_through(layer, (start, end), after, through, &mut own)?;
            for piece in own.drain(..) {
                if piece.source != PieceSource::Hole {
                    pieces.push(Piece { at: out(piece.at), ..piece });
                    continue;
                }
                let version = sources.get(&(inode, at)).ok_or_else(not_fetched)?;
                let below = Layer { id: inode, inode: version, upto: Some(at) };
                let first = offset + (piece.at - from);
                let shared = ByteRange::new(first, first + u64::from(piece.len));
                self.plan_layer(below, sources, shared, out(piece.at), through, pieces)?;
            }
        }
        Ok(())
    }

    /// Bytes of `start..end` of a file that hold data.
    ///
    /// # Errors
    /// As [`Look::plan`].
    ///
    /// # Cost
    /// As a plan's, and memory for one only where bytes are shared: this is asked for at every change of a file.
    pub fn data_in(&self, layer: Layer<'_>, sources: &Sources, start: u64, end: u64) -> Result<u64, Fault> {
        let mut bytes = 0;
        for (start, end, patch) in parts(layer.inode, start, end) {
            if patch.is_some_and(|patch| shared(patch.source).is_some()) {
                let mut pieces = Vec::new();
                self.plan_layer(layer, sources, ByteRange::new(start, end), start, &mut None, &mut pieces)?;
                let data = pieces.iter().filter(|piece| matches!(piece.source, PieceSource::Data(_)));
                bytes += data.map(|piece| u64::from(piece.len)).sum::<u64>();
                continue;
            }
            let after = patch.map_or(Hlc::ZERO, |patch| patch.at);
            for (chunk, chunk_start, range, at) in self.by_chunk(layer, start, end) {
                self.check_here(layer, chunk.index)?;
                if self.is_reached(layer, chunk.index)? {
                    let (mut pieces, first) = (Vec::new(), chunk_start + range.start());
                    self.plan_own(layer, first, first + range.len(), after, &mut pieces)?;
                    let data = pieces.iter().filter(|piece| matches!(piece.source, PieceSource::Data(_)));
                    bytes += data.map(|piece| u64::from(piece.len)).sum::<u64>();
                    continue;
                }
                bytes += self.log.data_in(chunk, range, at, after);
            }
        }
        Ok(bytes)
    }

    /// The first byte from `from` on that may hold data, or `end`: before it, neither this file nor a file whose bytes
    /// it shares was ever written.
    ///
    /// # Errors
    /// As [`Look::plan`].
    pub fn next_written(&self, seen: &FileVersion, sources: &Sources, from: u64, end: u64) -> Result<u64, Fault> {
        self.next_written_of(seen.layer(), sources, from, end)
    }

    fn next_written_of(&self, layer: Layer<'_>, sources: &Sources, from: u64, end: u64) -> Result<u64, Fault> {
        if from >= end {
            return Ok(end);
        }
        let chunk_bytes = layer.inode.chunk_bytes();
        let chunks = (from / chunk_bytes) as u32..=((end - 1) / chunk_bytes) as u32;
        // This server knows nothing of a chunk whose chain is not here: the answer ends there. Consecutive chunks lie
        // on consecutive chains.
        let every = layer.inode.layout.chain_count as usize;
        let away = chunks.clone().take(every).find(|index| self.check_here(layer, *index).is_err());
        // The answer also ends at a chunk that a record of such a chunk reaches into.
        let is_evicted = |before: &u32| layer.inode.reaches_over(*before) && self.check_here(layer, *before).is_err();
        let first =
            layout_of(layer.id, layer.inode).reached_by(*chunks.start()).find(is_evicted).map(|_| *chunks.start());
        let end = first.or(away).map_or(end, |index| end.min(from.max(u64::from(index) * chunk_bytes)));
        let own = self.log.chunks_in(layer.id, chunks.clone()).next();
        let mut next = own.map_or(end, |index| from.max(u64::from(index) * chunk_bytes)).min(end);
        next = self.next_reached(layer, (from, next), own.unwrap_or(*chunks.end()));
        for patch in layer.inode.patches_in(from, end) {
            if patch.start >= next {
                break;
            }
            if let PatchSource::Shared { inode, offset, at } = patch.source {
                let version = sources.get(&(inode, at)).ok_or_else(not_fetched)?;
                let below = Layer { id: inode, inode: version, upto: Some(at) };
                let len = patch.end.min(next) - patch.start;
                let found = self.next_written_of(below, sources, offset, offset + len)?;
                next = next.min(patch.start + (found - offset));
            }
        }
        Ok(next)
    }

    /// The instant at which chunk `index` of a file is read.
    pub fn shown_upto(&self, seen: &FileVersion, index: u32) -> Hlc {
        self.shown_upto_of(seen.layer(), index)
    }

    /// The newest stamp of a record of this chunk that the plan may show.
    pub fn shown_upto_of(&self, layer: Layer<'_>, index: u32) -> Hlc {
        // A settled size is shown whether its records are committed or not: a reader must not find zeros within it.
        let chain = layout_of(layer.id, layer.inode).chain(index);
        layer.upto.unwrap_or_else(|| self.cuts.of(chain).max(layer.inode.size_as_of))
    }

    /// Plans `start..end` from the file's own records stamped above `after`.
    ///
    /// # Errors
    /// `Unsupported` if a chunk of it is not here.
    pub fn plan_own(
        &self,
        layer: Layer<'_>,
        start: u64,
        end: u64,
        after: Hlc,
        pieces: &mut Vec<Piece>,
    ) -> Result<(), Fault> {
        self.plan_own_through(layer, (start, end), after, &mut None, pieces)
    }

    /// Plans a range from the records stored here, complete or not.
    pub fn plan_stored(&self, layer: Layer<'_>, start: u64, end: u64, after: Hlc, pieces: &mut Vec<Piece>) {
        for (chunk, chunk_start, range, at) in self.by_chunk(layer, start, end) {
            let first = pieces.len();
            self.log.plan(chunk, range, at, after, pieces);
            // No record of another server is missed: none is asked for.
            let planned = self.plan_reached(layer, chunk, after, Whence::Stored, pieces, first);
            debug_assert!(planned.is_ok(), "what is stored is here");
            pieces[first..].iter_mut().for_each(|piece| piece.at += chunk_start);
        }
    }

    /// Whether a chunk of a file can be read here, as it was at the layer's instant.
    ///
    /// # Errors
    /// `Unsupported` if it cannot.
    pub fn check_here(&self, layer: Layer<'_>, index: u32) -> Result<(), Fault> {
        let chain = layout_of(layer.id, layer.inode).chain(index);
        let here = self.data.check_here(chain, layer.upto.filter(|upto| *upto != Hlc::MAX));
        here.map_err(|_| not_whole_here(layer.id))
    }

    fn plan_own_through(
        &self,
        layer: Layer<'_>,
        (start, end): (u64, u64),
        after: Hlc,
        through: &mut Option<ThroughImages<'_>>,
        pieces: &mut Vec<Piece>,
    ) -> Result<(), Fault> {
        for (chunk, chunk_start, range, at) in self.by_chunk(layer, start, end) {
            let first = pieces.len();
            match (self.check_here(layer, chunk.index), &mut *through) {
                (Err(fault), through) => self.plan_away(layer, (chunk, range), after, through, pieces).ok_or(fault)?,
                (Ok(()), through) => self.plan_here((chunk, range), (at, after), through, pieces),
            }
            self.plan_reached(layer, chunk, after, Whence::Read(through), pieces, first)?;
            for piece in &mut pieces[first..] {
                piece.at += chunk_start;
            }
        }
        Ok(())
    }

    fn plan_here(
        &self,
        (chunk, range): (ChunkId, ByteRange),
        (at, after): (Hlc, Hlc),
        through: &mut Option<ThroughImages<'_>>,
        pieces: &mut Vec<Piece>,
    ) {
        match through {
            None => self.log.plan(chunk, range, at, after, pieces),
            Some(ThroughImages { images, crowded, .. }) => {
                self.log.plan_to_read(images, chunk, range, (at, after), pieces, crowded);
            }
        }
    }

    /// Fills the parts of a chunk without a record from the records that reach into it from the chunks before: updates
    /// the pieces from number `first` on, which are those of the chunk, with offsets in it.
    ///
    /// A chunk's own bytes lie over a record that reaches into it: that record was placed at the end of the file, so a
    /// byte of the chunk beyond it was written later, or at the same time ([ADR
    /// 38](../../../docs/adr/0038-appends-over-chunks.md)). A hole is younger or older than the record.
    fn plan_reached(
        &self,
        layer: Layer<'_>,
        chunk: ChunkId,
        after: Hlc,
        mut whence: Whence<'_, '_>,
        pieces: &mut Vec<Piece>,
        first: usize,
    ) -> Result<(), Fault> {
        let says_nothing = |piece: &Piece| {
            piece.at < REACH_BYTES_MAX && matches!(piece.source, PieceSource::Hole | PieceSource::Punched(_))
        };
        if chunk.index == 0 || !layer.inode.reaches_over(chunk.index - 1) || !pieces[first..].iter().any(says_nothing) {
            return Ok(());
        }
        for piece in pieces.split_off(first) {
            let after = match piece.source {
                PieceSource::Hole => after,
                PieceSource::Punched(stamp) => after.max(stamp),
                _ => {
                    pieces.push(piece);
                    continue;
                }
            };
            let upto = piece.end().min(REACH_BYTES_MAX);
            if piece.at < upto {
                self.plan_before(layer, (chunk, 1), (piece.part(piece.at, upto), after), &mut whence, pieces)?;
            }
            if upto < piece.end() {
                pieces.push(piece.part(piece.at.max(upto), piece.end()));
            }
        }
        Ok(())
    }

    /// As `plan_reached`, for one piece. No record of a chunk less than `back` before covers it.
    fn plan_before(
        &self,
        layer: Layer<'_>,
        (chunk, back): (ChunkId, u32),
        (piece, after): (Piece, Hlc),
        whence: &mut Whence<'_, '_>,
        pieces: &mut Vec<Piece>,
    ) -> Result<(), Fault> {
        let layout = layout_of(layer.id, layer.inode);
        let (ahead, reach) = (u64::from(back) * layout.chunk_bytes, layout.chunk_bytes + REACH_BYTES_MAX);
        let before = chunk.index.checked_sub(back).filter(|index| layer.inode.reaches_over(*index));
        let (Some(index), true) = (before, ahead + piece.at < reach) else {
            pieces.push(piece);
            return Ok(());
        };
        let before = ChunkId { index, ..chunk };
        let upto = piece.end().min(reach - ahead);
        let range = ByteRange::new(ahead + piece.at, ahead + upto);
        let mut found = Vec::new();
        let at = self.shown_upto_of(layer, index);
        match (self.check_here(layer, index), &mut *whence) {
            (_, Whence::Stored) => self.log.plan(before, range, at, after, &mut found),
            (Ok(()), Whence::Read(through)) => {
                let is_over = |end: (u32, u32)| layout.end_in_chunk(end).0 >= chunk.index;
                if layer.upto.is_none()
                    && let Some(fetch) = through.as_mut().and_then(|through| through.fetch.as_mut())
                    && self.log.newest_in(layer.id, index..=index, at, Hlc::MAX).highest.is_some_and(is_over)
                {
                    // The record may be committed by now, and this chunk may show a write behind it.
                    fetch.look(Wanted { chunk: before, chain_count: layout.chain_count, range, at: Hlc::MAX, after });
                }
                self.plan_here((before, range), (at, after), through, &mut found);
            }
            (Err(fault), Whence::Read(through)) => {
                let fetch = through.as_mut().and_then(|through| through.fetch.as_mut()).ok_or(fault)?;
                let at = layer.upto.unwrap_or(Hlc::MAX);
                fetch.plan(Wanted { chunk: before, chain_count: layout.chain_count, range, at, after }, &mut found);
            }
        }
        for mut below in found {
            below.at -= ahead;
            match below.source {
                PieceSource::Hole => {
                    let rest = Piece { source: piece.source, ..below };
                    self.plan_before(layer, (chunk, back + 1), (rest, after), whence, pieces)?;
                }
                _ => pieces.push(below),
            }
        }
        if upto < piece.end() {
            pieces.push(piece.part(upto, piece.end()));
        }
        Ok(())
    }

    /// Whether a record of a chunk before may hold bytes of this one.
    ///
    /// # Errors
    /// `Unsupported` if such a chunk is not here.
    pub fn is_reached(&self, layer: Layer<'_>, index: u32) -> Result<bool, Fault> {
        let layout = layout_of(layer.id, layer.inode);
        for before in layout.reached_by(index).filter(|before| layer.inode.reaches_over(*before)) {
            self.check_here(layer, before)?;
            let highest = self.log.newest_in(layer.id, before..=before, Hlc::ZERO, Hlc::MAX).highest;
            if highest.is_some_and(|end| layout.end_in_chunk(end).0 >= index) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The first byte of `from..next` that a record of a chunk up to `last` may hold beyond its own chunk; else `next`.
    fn next_reached(&self, layer: Layer<'_>, (from, next): (u64, u64), last: u32) -> u64 {
        let layout = layout_of(layer.id, layer.inode);
        let chunk = (from / layout.chunk_bytes) as u32;
        if !layer.inode.reaches_over(last) {
            return next;
        }
        let mut found = next;
        for index in self.log.chunks_in(layer.id, chunk.saturating_sub(layout.reach())..=last) {
            let highest = self.log.newest_in(layer.id, index..=index, Hlc::ZERO, Hlc::MAX).highest;
            let Some((reached, end)) = highest.map(|end| layout.end_in_chunk(end)) else { continue };
            let (start, end) =
                (u64::from(index + 1) * layout.chunk_bytes, u64::from(reached) * layout.chunk_bytes + u64::from(end));
            if start.max(from) < end.min(found) {
                found = start.max(from);
            }
        }
        found
    }

    /// The answers of other servers for a part of a chunk; `None` if this plan does not ask them.
    fn plan_away(
        &self,
        layer: Layer<'_>,
        (chunk, range): (ChunkId, ByteRange),
        after: Hlc,
        through: &mut Option<ThroughImages<'_>>,
        pieces: &mut Vec<Piece>,
    ) -> Option<()> {
        let fetch = through.as_mut()?.fetch.as_mut()?;
        // For bytes of now, and of files that are written while they are read, clients ask the servers that have them.
        let at = layer.upto.filter(|at| *at != Hlc::MAX)?;
        let chain_count = layout_of(layer.id, layer.inode).chain_count;
        fetch.plan(Wanted { chunk, chain_count, range, at, after }, pieces);
        Some(())
    }

    /// The chunks that `start..end` of a file reaches into: each with its first byte in the file, the range of it, and
    /// the instant at which it is read.
    fn by_chunk<'l>(
        &'l self,
        layer: Layer<'l>,
        start: u64,
        end: u64,
    ) -> impl Iterator<Item = (ChunkId, u64, ByteRange, Hlc)> + 'l {
        let chunk_bytes = layout_of(layer.id, layer.inode).chunk_bytes;
        let chunks = start / chunk_bytes..end.div_ceil(chunk_bytes);
        chunks.filter(move |_| start < end).map(move |index| {
            let chunk_start = index * chunk_bytes;
            let upto = (chunk_start + chunk_bytes).min(end);
            let range = ByteRange::new(start.max(chunk_start) - chunk_start, upto - chunk_start);
            let index = index as u32;
            (ChunkId { inode: layer.id, index }, chunk_start, range, self.shown_upto_of(layer, index))
        })
    }
}

/// What a patch shares: the file, where in it, and the instant.
fn shared(source: PatchSource) -> Option<(InodeId, u64, Hlc)> {
    match source {
        PatchSource::Hole => None,
        PatchSource::Shared { inode, offset, at } => Some((inode, offset, at)),
    }
}

/// The error of a plan that needs a state which was not fetched before it.
pub fn not_fetched() -> Fault {
    Fault::new(Reason::Internal, "a read met a shared range that was not looked up before")
}
