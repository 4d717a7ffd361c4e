//! A write as the data plane receives it, and its result.

use frieze_base::{ChainEpoch, ChainId, Fault, InodeId, Seq, SessionId};
use frieze_hlc::{Hlc, UserTime};
use frieze_multilog::RecordKind;
use frieze_net::ReceivedPayload;
use frieze_wire::message::Durability;

use crate::striping::{Layout, Spread};

/// A write that the engine has checked.
pub struct WriteAsk<'a> {
    /// Session of the client.
    pub session: SessionId,
    /// Number of the request.
    pub seq: Seq,
    /// Every number below it has been answered.
    pub acked: Seq,
    /// Configuration that the client knows; 0 for the current one.
    pub epoch: ChainEpoch,
    /// Newest stamp that the client has received.
    pub seen: Hlc,
    /// The file.
    pub inode: InodeId,
    /// Its layout.
    pub layout: Layout,
    /// The offset, if it is known in advance.
    pub known_offset: Option<u64>,
    /// For an append where chains have several members: the file has to end in a chunk of this chain, or nothing is
    /// written. So a retry reaches a head of the chain that would have the record.
    pub at_end: Option<ChainId>,
    /// Returns the place of the write, or the reason to refuse it, while no other write can run.
    pub place: &'a dyn Fn() -> Result<WritePlace, Fault>,
    /// Whether the record that an earlier run of the request has become is its answer: where that run wrote, with the
    /// end of the bytes. Called before the answer, if a chain remembers the request. A fault says that the request has
    /// to come again under another number.
    pub recalled: &'a dyn Fn(WriteResult) -> Result<(), Fault>,
    /// New content of the range.
    pub content: Content<'a>,
    /// User of the request.
    pub uid: u32,
    /// Durability level at which the reply is sent.
    pub durability: Durability,
}

/// New content of a range.
#[derive(Clone, Copy)]
pub enum Content<'a> {
    /// Bytes, and their CRC32C as the client computed it, if they were sent.
    Bytes(ReceivedPayload<'a>, Option<u32>),
    /// Nothing: a hole.
    Hole,
}

impl Content<'_> {
    pub(crate) fn kind(&self) -> RecordKind {
        match self {
            Content::Bytes(..) => RecordKind::Write,
            Content::Hole => RecordKind::Punch,
        }
    }
}

/// Values that depend on the place of a write.
pub struct WritePlace {
    /// Chunks and chains of the write.
    pub spread: Spread,
    /// User time of the data, if a plug-in found one: of the record, or of the last row that ends in it.
    pub user_time: Option<UserTime>,
    /// Newest user time that a file has from its origin, if it has none of its own.
    pub inherited: Option<UserTime>,
    /// User times of records stamped up to here do not count.
    pub times_after: Hlc,
    /// Lower bound of its stamp, exclusive: other chains have records up to it.
    pub above: Hlc,
}

/// Result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteResult {
    /// Its stamp.
    pub stamp: Hlc,
    /// Where in the file.
    pub offset: u64,
    /// End of the write in the file. For a retry only the end of its first part is known.
    pub end: u64,
}

/// Called once with the outcome of a write, by the thread that completes it.
pub type WriteCallback = Box<dyn FnOnce(Result<WriteResult, Fault>) + Send>;
