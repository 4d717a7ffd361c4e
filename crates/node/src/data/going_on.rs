//! Writes that go on where the last one of the same writer ended.
//!
//! Where chains have one member, such a write is one record behind the others. What the one before looked at (rights, configuration, cuts, who
//! waits) is still so while nobody but such writers, and readers who close an instant, has held the appender: so it is not looked at again, and
//! record, number and commit are one step ([`frieze_chain::Replica::wrote`]). Anything else sends the next write the usual way, which looks at
//! everything and remembers where it ended; the flusher alone sees to that many times a second.

use frieze_base::{ChainId, ChunkId, InodeId, Seq, SessionId};
use frieze_chain::{WriteDone, WroteAlone};
use frieze_hlc::Hlc;
use frieze_multilog::{RecordKind, RecordMeta};

use super::{Appender, DataPlane, Few};
use crate::device::block_checksums;

/// Where a write ended, and what it was.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Names the writer among those that go on.
    writer: u64,
    /// Of the appender when the write had happened.
    turn: u64,
    session: SessionId,
    uid: u32,
    chain: ChainId,
    chunk: ChunkId,
    chunk_bytes: u64,
    /// Where in the chunk it ended.
    end: u32,
    version: u64,
}

/// A write that goes on there.
pub(crate) struct GoOn<'a> {
    pub(crate) seq: Seq,
    pub(crate) acked: Seq,
    pub(crate) seen: Hlc,
    /// Where in the file.
    pub(crate) offset: u64,
    pub(crate) payload: &'a [u8],
    /// Its CRC32C, if it is known.
    pub(crate) crc: Option<u32>,
    /// Whether all that the engine looked at is still so; asked while nobody else can write.
    pub(crate) still: &'a dyn Fn() -> bool,
}

impl Ended {
    /// Of a write that is one record, after it was appended.
    pub(super) fn at(appender: &mut Appender, meta: &RecordMeta, chunk_bytes: u64) -> Ended {
        appender.writers += 1;
        appender.went_on = appender.writers;
        Ended {
            writer: appender.writers,
            turn: appender.turn,
            session: meta.session,
            uid: meta.uid,
            chain: meta.chain,
            chunk: meta.chunk,
            chunk_bytes,
            end: meta.offset + meta.len,
            version: meta.version,
        }
    }

    /// Whose, and of which file.
    pub(crate) fn of(&self) -> (SessionId, InodeId) {
        (self.session, self.chunk.inode)
    }

    /// Where in the file it ended.
    fn file_offset(&self) -> u64 {
        u64::from(self.chunk.index) * self.chunk_bytes + u64::from(self.end)
    }
}

impl DataPlane {
    /// Writes on. Returns the stamp of the record, which is whole in the log and seen by every read, or `None`: nothing has happened,
    /// and the write is to go the usual way.
    pub(crate) fn go_on(&self, ended: &mut Ended, ask: &GoOn<'_>) -> Option<Hlc> {
        let len = u32::try_from(ask.payload.len()).ok().filter(|len| *len > 0)?;
        let fits = u64::from(ended.end) + u64::from(len) <= ended.chunk_bytes;
        if self.is_shared() || !fits || ask.offset != ended.file_offset() {
            return None;
        }
        let crcs: Few<u32> = match ask.crc.filter(|_| ask.payload.len() <= self.device.block_bytes()) {
            Some(crc) => Few::from_buf([crc]),
            None => Few::from_vec(block_checksums(ask.payload, self.device.block_bytes()).0),
        };
        let mut appender = self.hold_appender();
        if appender.turn != ended.turn
            || !(ask.still)()
            || ask.seq < appender.acknowledge(ended.session, ask.acked, ask.seq)
        {
            return None;
        }
        let (n, epoch) = appender.chains[ended.chain.0 as usize].next_alone(ended.session, ask.seq)?;
        if appender.went_on != ended.writer {
            // Others have written since, perhaps to the same chunk.
            ended.version = self.device.log_of([ended.chunk.inode]).ok()?.chunk_version(ended.chunk);
            appender.went_on = ended.writer;
        }
        let _publishing = match self.caching.get() {
            Some(caching) => Some(caching.publish_unwatched(ended.session, ended.chunk.inode)?),
            None => None,
        };
        let (stamp, _) = self.clock.tick().ok().filter(|(stamp, _)| *stamp > ask.seen)?;
        let meta = RecordMeta {
            kind: RecordKind::Write,
            chain: ended.chain,
            epoch,
            n,
            chunk: ended.chunk,
            version: ended.version + 1,
            stamp,
            user_time: None,
            session: ended.session,
            seq: ask.seq,
            uid: ended.uid,
            offset: ended.end,
            len,
            part: 0,
            parts: 1,
        };
        self.device.append_behind(&meta, ask.payload, crcs).ok()?;
        let done = WriteDone { stamp, chunk: meta.chunk, offset: meta.offset };
        let wrote = WroteAlone { n, session: meta.session, seq: meta.seq, acked: ask.acked, done };
        appender.chains[ended.chain.0 as usize].wrote(&wrote);
        (ended.end, ended.version) = (ended.end + len, meta.version);
        Some(stamp)
    }
}
