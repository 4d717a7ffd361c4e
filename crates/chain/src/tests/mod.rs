//! Stories of one replica, random lives, and what a driver may never do.

mod driver;
mod joining;
mod members;
mod random;
mod story;

use frieze_base::{ChainEpoch, ChunkId, InodeId, Seq, SessionId};
use frieze_hlc::Hlc;
use frieze_wire::message::Durability;

use crate::{RequestId, WriteRequest};

/// A byte at the beginning of a chunk, asked for by a session under a number that names the request as well.
fn write_of(session: u64, seq: u64) -> WriteRequest {
    WriteRequest {
        request: RequestId(seq),
        session: SessionId(session),
        seq: Seq(seq),
        acked: Seq(0),
        epoch: ChainEpoch(1),
        seen: Hlc::ZERO,
        chunk: ChunkId { inode: InodeId(7), index: 0 },
        offset: 0,
        len: 1,
        file_offset: 0,
        part: 0,
        parts: 1,
        user_time: None,
        uid: 0,
        durability: Durability::Async,
        chunk_version: 0,
        newest_user_time: None,
        times_after: Hlc::ZERO,
    }
}
