//! Buffers of one connection.

use frieze_planes::Fetch;
use frieze_storage::Device;

use crate::session::cache_leases::CacheLeaseRequest;
use crate::session::capability::Shown;
use crate::session::reply_stream::{Steps, Unread};
use crate::session::write_context::WriteContexts;

/// Buffers of one connection, used again for every request.
#[derive(Default)]
pub struct Scratch {
    /// The bytes of the answer.
    pub payload: Vec<u8>,
    /// CRC32C of `payload`.
    pub(crate) payload_crc: u32,
    pub(crate) block: Vec<u8>,
    pub(crate) pieces: Vec<frieze_multilog::Piece>,
    pub(crate) crowded: Vec<frieze_multilog::FragmentedPage>,
    /// The parts of the answer that other servers have.
    pub(crate) fetch: Fetch,
    /// The capability that came with the last request.
    pub(crate) shown: Shown,
    /// What the last writes looked up.
    pub(crate) write_contexts: WriteContexts,
    /// The cache leases that the request may get for its session.
    pub(crate) asking: CacheLeaseRequest,
    /// The answer may go out before all of it is read.
    pub(crate) may_step: bool,
    /// The payload is still to be read, as `pieces` say.
    pub(crate) unread: Option<Unread>,
}

impl Scratch {
    /// The steps of a payload that `pieces` describe, read into these buffers.
    pub(crate) fn steps<'a>(&'a mut self, device: &'a Device, unread: Unread) -> Steps<'a> {
        Steps::of(device, unread, &self.pieces, [&mut self.payload, &mut self.block])
    }

    /// Called when the connection is idle: frees buffers.
    pub fn rest(&mut self) {
        (self.payload, self.block) = (Vec::new(), Vec::new());
        (self.pieces, self.crowded) = (Vec::new(), Vec::new());
    }
}
