//! A record of another member, before it is appended.

use frieze_net::ReceivedPayload;

/// A received record with its payload, whose checksums are computed.
pub(crate) struct Incoming<'a> {
    pub(crate) payload: ReceivedPayload<'a>,
    pub(crate) block_crcs: Vec<u32>,
    pub(crate) crc: u32,
}
