//! Stories of one replica, random lives, and what a driver may never do.

mod driver;
mod joining;
mod members;
mod random;
mod story;

use frieze_base::{ChainEpoch, ChainId, ChunkId, InodeId, Seq, SessionId};
use frieze_hlc::Hlc;
use frieze_wire::chain::RecordHeader;
use frieze_wire::message::Durability;

use crate::{RequestId, WriteRequest};

/// A byte at the beginning of a chunk, asked for by a session under a number that names the request as well.
fn write_of(session: u64, seq: u64) -> WriteRequest {
    WriteRequest {
        request: RequestId(seq),
        header: RecordHeader {
            chain: ChainId(1),
            session: SessionId(session),
            seq: Seq(seq),
            epoch: ChainEpoch(1),
            chunk: ChunkId { inode: InodeId(7), index: 0 },
            len: 1,
            ..RecordHeader::ZERO
        },
        acked: Seq(0),
        seen: Hlc::ZERO,
        file_offset: 0,
        durability: Durability::Async,
        chunk_version: 0,
        newest_user_time: None,
        times_after: Hlc::ZERO,
    }
}
