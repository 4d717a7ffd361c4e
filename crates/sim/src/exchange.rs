//! Requests and responses between a simulated client and the server.

use std::sync::Arc;

use frieze_base::Fault;
use frieze_hlc::Hlc;
use frieze_wire::frame::FrameHeader;
use frieze_wire::message::{Reply, RequestBody, View};

/// Names a connection, never used twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnId(pub(crate) u64);

/// An answer on its way out of the server.
#[derive(Clone, Debug)]
pub(crate) struct MachineResponse {
    pub(crate) conn: ConnId,
    pub(crate) header: FrameHeader,
    pub(crate) result: Result<Reply, Fault>,
    pub(crate) payload: Vec<u8>,
    pub(crate) payload_crc: u32,
    /// Newest stamp of the server when it answered.
    pub(crate) hlc: Hlc,
}

/// A request on its way in.
#[derive(Clone, Debug)]
pub(crate) struct ClientRequest {
    pub(crate) header: FrameHeader,
    pub(crate) body: RequestBody,
    pub(crate) payload: Arc<[u8]>,
    /// The open file it goes through.
    pub(crate) handle: Option<Handle>,
    /// The open file that a range is copied from.
    pub(crate) source: Option<Handle>,
}

/// An open file as the client that opened it knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    pub(crate) session: u64,
    pub(crate) inode: u64,
    /// Stamp of creation: distinguishes the file from another with its number.
    pub(crate) born: Hlc,
    pub(crate) view: View,
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) capability: Vec<u8>,
}
