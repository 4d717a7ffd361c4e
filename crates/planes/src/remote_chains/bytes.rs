//! Bytes of remote chains: those that a clone or a copied range shares with a file on chains that are not here.
//!
//! Guarantees: a fetched part holds what the records of the chunk show at a closed instant, so it is the same from
//! every server, or, for a read of now, what is committed after the request. It lists its holes: the ranges without a
//! record. A request asks for no more, and the server holds no more, than one read may show. Leaves to others: what
//! lies under a hole (`seen`).
//!
//! A plan cannot send requests while it holds the index. It notes what it lacks, and is made again after the fetch.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use frieze_base::{ByteRange, ChainId, ChunkId, ErrorKind, Fault, InodeId, Reason};
use frieze_hlc::Hlc;
use frieze_multilog::{ExternalSpan, Piece, PieceSource};
use frieze_tier::Heat;
use frieze_wire::frame::PAYLOAD_BYTES_MAX;
use frieze_wire::peer::{BytesAsk, BytesPart, Holes, PeerRequestKind};

use super::client::Inquiry;
use crate::files::Files;

/// A part of a chunk, as its records show it at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The chunk.
    pub chunk: ChunkId,
    /// Number of chains that the file is spread over.
    pub chain_count: u32,
    /// Range in the chunk, in bytes.
    pub range: ByteRange,
    /// Records stamped up to this count, inclusive; MAX: those that are committed now.
    pub at: Hlc,
    /// Records stamped above this count, exclusive.
    pub after: Hlc,
}

/// The parts that one plan got from other servers, and those that it lacks.
#[derive(Default)]
pub struct Fetch {
    arrived: Vec<Arrived>,
    missing: Vec<Wanted>,
    /// The parts that were looked up here again.
    looked: Vec<Wanted>,
}

struct Arrived {
    wanted: Wanted,
    /// Ranges without a record: first byte in the part, and length.
    holes: Vec<(u32, u32)>,
    bytes: Bytes,
}

impl Wanted {
    fn chain(&self) -> ChainId {
        self.chunk.chain(self.chain_count)
    }
}

impl Fetch {
    /// Drops all parts, fetched or missing.
    pub fn clear(&mut self) {
        *self = Fetch::default();
    }

    /// A part that is here may hold newer committed records than this server knows: the next fetch asks about it, once.
    pub fn look(&mut self, wanted: Wanted) {
        if !self.looked.contains(&wanted) {
            self.missing.push(wanted);
        }
    }

    /// True if the last plan lacked a part.
    pub fn lacks(&self) -> bool {
        !self.missing.is_empty()
    }

    /// Adds the pieces of a part of a chunk, with offsets in the chunk. Notes a part that is not here.
    pub fn plan(&mut self, wanted: Wanted, pieces: &mut Vec<Piece>) {
        let (start, len) = (wanted.range.start(), wanted.range.len() as u32);
        let mut add = |from: u32, to: u32, source: PieceSource| {
            if from < to {
                pieces.push(Piece { at: start + u64::from(from), len: to - from, source });
            }
        };
        let Some(number) = self.arrived.iter().position(|arrived| arrived.wanted == wanted) else {
            self.missing.push(wanted);
            return add(0, len, PieceSource::External(ExternalSpan { number: u32::MAX, skip: 0 }));
        };
        let bytes = |skip| PieceSource::External(ExternalSpan { number: number as u32, skip });
        let mut at = 0;
        for &(from, count) in &self.arrived[number].holes {
            add(at, from, bytes(at));
            add(from, from + count, PieceSource::Hole);
            at = from + count;
        }
        add(at, len, bytes(at));
    }

    /// Copies the bytes of the pieces to their places in `out`, which they cover from `start` on.
    pub fn fill(&self, pieces: &[Piece], start: u64, out: &mut [u8]) {
        for piece in pieces {
            let PieceSource::External(ExternalSpan { number, skip }) = piece.source else { continue };
            let from = (piece.at - start) as usize;
            let (len, skip) = (piece.len as usize, skip as usize);
            let bytes = &self.arrived[number as usize].bytes;
            out[from..from + len].copy_from_slice(&bytes[skip..skip + len]);
        }
    }
}

impl Files {
    /// Fetches the parts that a plan lacked, or learns here what is committed or closed.
    ///
    /// # Errors
    /// `Unavailable` if no server that has them answers.
    pub fn fetch(&self, fetch: &mut Fetch) -> Result<(), Fault> {
        let mut by_instant: BTreeMap<Hlc, Vec<Wanted>> = BTreeMap::new();
        for wanted in std::mem::take(&mut fetch.missing) {
            by_instant.entry(wanted.at).or_default().push(wanted);
        }
        for (at, parts) in by_instant {
            let at = (at != Hlc::MAX).then_some(at);
            // A part that is here may only lack the closed timestamp of that instant. A server that cannot close the
            // instant is no member of the chain.
            let is_learned = |part: &Wanted| {
                let chain = part.chain();
                self.planes.data.is_member(chain)
                    && self.planes.data.refresh(&BTreeSet::from([chain]), at, CLOSING_MAX).is_ok()
            };
            let (learned, parts): (Vec<Wanted>, Vec<Wanted>) = parts.into_iter().partition(is_learned);
            fetch.looked.extend(learned);
            let concerned = |chains: &BTreeSet<ChainId>| -> Vec<Wanted> {
                parts.iter().filter(|part| chains.contains(&part.chain())).copied().collect()
            };
            let about = |chains: &BTreeSet<ChainId>| {
                PeerRequestKind::Bytes(BytesAsk { parts: concerned(chains).iter().map(part_out).collect() })
            };
            let all = parts.iter().map(Wanted::chain).collect();
            for reply in self.ask_members(all, &Inquiry { at, about: &about })? {
                let told = concerned(&reply.asked);
                let len: u64 = told.iter().map(|part| part.range.len()).sum();
                if told.len() != reply.answer.holes.len() || len != reply.payload.len() as u64 {
                    return Err(Fault::new(Reason::BadFrame, "malformed frame: other bytes than were asked for"));
                }
                let mut payload = Bytes::from(reply.payload);
                for (wanted, holes) in told.into_iter().zip(reply.answer.holes) {
                    let bytes = payload.split_to(wanted.range.len() as usize);
                    let holes = holes_in(&holes, bytes.len())?;
                    if reply.chains.contains(&wanted.chain()) {
                        fetch.arrived.push(Arrived { wanted, holes, bytes });
                    }
                }
            }
        }
        Ok(())
    }

    /// The bytes of parts of chunks that are here, one behind the other, and the holes of each.
    pub(super) fn bytes_of(
        &self,
        ask: &BytesAsk,
        chains: &BTreeSet<ChainId>,
        at: Option<Hlc>,
    ) -> Result<(Vec<Holes>, Vec<u8>), Fault> {
        let len: u64 = ask.parts.iter().map(|part| u64::from(part.len)).sum();
        let is_theirs = |part: &BytesPart| {
            let chunk = ChunkId { inode: InodeId(part.inode), index: part.index };
            chains.contains(&chunk.chain(part.chain_count.max(1))) && part.offset.checked_add(part.len).is_some()
        };
        if len > PAYLOAD_BYTES_MAX.into() || !ask.parts.iter().all(is_theirs) {
            return Err(Fault::new(Reason::InvalidArgument, format!("{len} bytes of chunks are asked for")));
        }
        let (mut payload, mut from) = (vec![0; len as usize], 0);
        let (mut holes, mut pieces, mut block) = (Vec::new(), Vec::new(), Vec::new());
        for part in &ask.parts {
            let id = InodeId(part.inode);
            let start = u64::from(part.offset);
            let range = ByteRange::new(start, start + u64::from(part.len));
            pieces.clear();
            let chunk = ChunkId { inode: id, index: part.index };
            {
                let log = self.planes.data.device().log_of([id])?;
                let upto = at.unwrap_or_else(|| self.planes.data.cuts().of(chunk.chain(part.chain_count.max(1))));
                log.plan(chunk, range, upto, Hlc(part.after), &mut pieces);
            }
            let gone = pieces.iter().filter(|piece| piece.source == PieceSource::Hole);
            holes.push(Holes { runs: gone.flat_map(|piece| [(piece.at - start) as u32, piece.len]).collect() });
            let device = self.planes.data.device();
            let lease = device.pin(&pieces, Heat::Wanted);
            let read = device.read(&pieces, start, &mut payload[from..from + part.len as usize], &mut block);
            device.unpin(lease, read.is_err());
            read.map_err(another_may_have_it)?;
            from += part.len as usize;
        }
        Ok((holes, payload))
    }
}

/// Damaged bytes here are undamaged at another member of the chain.
pub(super) fn another_may_have_it(fault: Fault) -> Fault {
    match fault.kind() {
        ErrorKind::Corrupt => Fault::new(Reason::Unavailable, fault.to_string()),
        _ => fault,
    }
}

fn part_out(wanted: &Wanted) -> BytesPart {
    BytesPart {
        inode: wanted.chunk.inode.0,
        index: wanted.chunk.index,
        chain_count: wanted.chain_count,
        offset: wanted.range.start() as u32,
        len: wanted.range.len() as u32,
        after: wanted.after.0,
    }
}

/// Decodes holes; they must be in order, apart, and within a part of `len` bytes.
fn holes_in(told: &Holes, len: usize) -> Result<Vec<(u32, u32)>, Fault> {
    let mut holes = Vec::with_capacity(told.runs.len() / 2);
    let mut at = 0u64;
    for run in told.runs.chunks(2) {
        let end = match run {
            [from, count] if u64::from(*from) >= at => u64::from(*from) + u64::from(*count),
            _ => u64::MAX,
        };
        if end > len as u64 {
            return Err(Fault::new(Reason::BadFrame, "malformed frame: holes that are not in what was asked for"));
        }
        holes.push((run[0], run[1]));
        at = end;
    }
    Ok(holes)
}

/// How long to wait for the other members of a chain until it is closed at an instant.
const CLOSING_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(start: u64, end: u64) -> Wanted {
        let chunk = ChunkId { inode: InodeId(7), index: 2 };
        Wanted { chunk, chain_count: 5, range: ByteRange::new(start, end), at: Hlc(90), after: Hlc(10) }
    }

    #[test]
    fn what_has_come_is_planned_with_its_holes_and_what_has_not_is_noted() {
        let (mut fetch, mut pieces) = (Fetch::default(), Vec::new());
        fetch.plan(wanted(100, 110), &mut pieces);
        assert!(fetch.lacks());
        assert_eq!(pieces.len(), 1);
        let bytes = Bytes::from_static(b"abcdefghij");
        let holes = holes_in(&Holes { runs: vec![2, 3, 8, 2] }, bytes.len()).unwrap();
        fetch.missing.clear();
        fetch.arrived.push(Arrived { wanted: wanted(100, 110), holes, bytes });
        pieces.clear();
        fetch.plan(wanted(100, 110), &mut pieces);
        assert!(!fetch.lacks());
        let planned: Vec<_> =
            pieces.iter().map(|piece| (piece.at, piece.len, piece.source == PieceSource::Hole)).collect();
        assert_eq!(planned, [(100, 2, false), (102, 3, true), (105, 3, false), (108, 2, true)]);
        let mut out = *b"..........";
        fetch.fill(&pieces, 100, &mut out);
        assert_eq!(&out, b"ab...fgh..");
        // A part of a piece.
        let mut out = *b"..";
        fetch.fill(&[pieces[2].part(106, 108)], 106, &mut out);
        assert_eq!(&out, b"gh");
    }

    #[test]
    fn holes_beyond_what_was_asked_for_are_not_believed() {
        for runs in [vec![5, 6], vec![0, 4, 3, 1], vec![1], vec![u32::MAX, u32::MAX]] {
            assert!(holes_in(&Holes { runs: runs.clone() }, 10).is_err(), "{runs:?}");
        }
        assert_eq!(holes_in(&Holes { runs: vec![0, 4, 4, 6] }, 10).unwrap(), [(0, 4), (4, 6)]);
    }
}
