//! Payloads that arrive in pieces ahead of their record, and are forwarded while they arrive.
//!
//! Guarantees: a piece has no effect until its record arrives, with the checksum of all pieces; the pieces kept are
//! bounded for each connection; if a piece is missing, the record is lost, as any message may be.
//! Leaves to others: the record (`data`), the choice of pieces to forward to the next member (`links`).

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use frieze_base::{ChainId, Fault, NodeId, Reason};
use frieze_net::{BufferPool, FrameReader, ReceivedPayload, SentPrefix};
use frieze_wire::frame::{FrameHeader, PAYLOAD_BYTES_MAX};
use frieze_wire::message::Request;
use frieze_wire::peer::{ChainPiece, ChainRecord};

use super::links::{AHEAD_MAX, EarlyPayload};
use super::shared::Shared;

/// Received pieces of one connection, by the name of their payload there.
#[derive(Default)]
pub(super) struct PartialPayloads(BTreeMap<u64, PartialPayload>);

struct PartialPayload {
    room: Vec<u8>,
    filled: usize,
    len: usize,
    early: Option<Arc<EarlyPayload>>,
}

/// A complete payload, in a buffer of its own.
pub(super) struct WholePayload {
    bytes: Bytes,
    ahead: Option<SentPrefix>,
}

impl WholePayload {
    pub(super) fn received(&self) -> ReceivedPayload<'_> {
        ReceivedPayload::from(&self.bytes).behind(self.ahead.as_ref())
    }
}

/// Why a payload did not arrive as it should.
pub(super) enum PayloadError {
    Connection(frieze_net::Error),
    Malformed(Fault),
}

impl From<frieze_net::Error> for PayloadError {
    fn from(error: frieze_net::Error) -> PayloadError {
        PayloadError::Connection(error)
    }
}

impl PartialPayloads {
    /// Receives a piece of `len` bytes that follows `piece`, and forwards it to the node that `goes` returned for the
    /// first piece of the payload.
    pub(super) fn take(
        &mut self,
        pool: &BufferPool,
        goes: impl FnOnce(ChainId, usize) -> Option<Arc<EarlyPayload>>,
        reader: &mut FrameReader,
        piece: &ChainPiece,
        len: usize,
    ) -> Result<(), PayloadError> {
        let whole = piece.len as usize;
        if whole == 0 {
            self.0.remove(&piece.ahead);
            return Ok(());
        }
        if whole > PAYLOAD_BYTES_MAX as usize {
            return Err(malformed("more comes ahead of its record than may"));
        }
        if !self.0.contains_key(&piece.ahead) && self.0.len() > AHEAD_MAX {
            // The message that drops an earlier payload may arrive behind this piece. The record of this payload is
            // then lost, and the sender repeats it.
            return Ok(());
        }
        let arriving = self.0.entry(piece.ahead).or_insert_with(|| {
            let early = goes(ChainId(piece.chain), whole);
            PartialPayload { room: pool.take(whole), filled: 0, len: whole, early }
        });
        if arriving.len != whole || len == 0 || arriving.filled + len > whole {
            return Err(malformed("the pieces of a payload do not fit together"));
        }
        Ok(arriving.receive(reader, len)?)
    }

    /// The payload of a record that arrived behind its pieces, with `rest` bytes beside it; `None` if the pieces are
    /// missing.
    pub(super) fn finish(
        &mut self,
        pool: &Arc<BufferPool>,
        reader: &mut FrameReader,
        record: &ChainRecord,
        rest: usize,
    ) -> Result<Option<WholePayload>, PayloadError> {
        let Some(mut arriving) = self.0.remove(&record.ahead) else { return Ok(None) };
        if arriving.filled + rest != arriving.len {
            return Err(malformed("a record does not consist of its pieces"));
        }
        arriving.receive(reader, rest)?;
        Ok(Some(arriving.whole(pool)))
    }
}

impl PartialPayload {
    /// Receives `len` bytes more, and forwards them as they arrive.
    fn receive(&mut self, reader: &mut FrameReader, len: usize) -> Result<(), frieze_net::Error> {
        let PartialPayload { room, filled, early, .. } = self;
        reader.read_payload_behind(room, *filled, |so_far| {
            if let Some(early) = early {
                early.send_arrived(so_far);
            }
        })?;
        *filled += len;
        Ok(())
    }

    fn whole(self, pool: &Arc<BufferPool>) -> WholePayload {
        WholePayload { bytes: pool.lend(self.room, self.len), ahead: self.early.map(|early| SentPrefix::of(early)) }
    }
}

/// Receives a payload of `len` bytes into a buffer of its own; if it will be a record, it is forwarded meanwhile.
pub(super) fn receive(
    shared: &Shared,
    reader: &mut FrameReader,
    len: usize,
    goes_to: Option<(ChainId, NodeId)>,
) -> Result<WholePayload, frieze_net::Error> {
    let early = goes_to.and_then(|(chain, to)| shared.links.get()?.send_early(to, chain, len));
    let mut arriving = PartialPayload { room: shared.pool.take(len), filled: 0, len, early };
    arriving.receive(reader, len)?;
    Ok(arriving.whole(&shared.pool))
}

/// Forwards pieces to the next member of their chain.
pub(super) fn next_of(shared: &Shared, chain: ChainId, len: usize) -> Option<Arc<EarlyPayload>> {
    shared.parts.planes.data.successor_of(chain).and_then(|to| shared.links.get()?.send_early(to, chain, len))
}

/// Destination of the payload of a request, if it is worth forwarding ahead.
pub(super) fn goes_to(
    shared: &Shared,
    header: &FrameHeader,
    request: Option<&Request>,
    len: usize,
) -> Option<(ChainId, NodeId)> {
    if len < AHEAD_BYTES_MIN { None } else { shared.parts.service.write.goes_to(header, request?, len) }
}

fn malformed(what: &str) -> PayloadError {
    PayloadError::Malformed(Fault::new(Reason::BadFrame, format!("malformed frame: {what}")))
}

/// Least bytes of a payload that is sent ahead of its record.
const AHEAD_BYTES_MIN: usize = 384 << 10;

#[cfg(test)]
mod tests;
