//! The multi-log: placement, the visible state, and what is asked of it.

use std::ops::RangeInclusive;

use frieze_base::{ByteRange, ChainId, ChunkId, InodeId};
use frieze_hlc::{Hlc, UserTime};

use crate::recover::{Report, SegmentSource};
use crate::segment::{LogPosition, Placed, Seal, Spot};
use crate::{Error, Horizon, Piece, RecordMeta, UserCut};

/// How a log is laid out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Length of a segment file in bytes, at most 4 GiB - 1. More: fewer files and footers; less: less to scan after a crash, smaller
    /// files on a small disk. A group of records must fit in one.
    pub segment_bytes: u64,
    /// Bytes of payload under one checksum. More: less space for checksums; less: a small read verifies less.
    pub block_bytes: u32,
    /// Drawn anew at each start, so that nobody can write bytes that would pass for a record of a coming segment.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { segment_bytes: 64 << 20, block_bytes: 16 << 10, seed: 0 }
    }
}

/// The newest that a chain has on this device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainState {
    /// Largest number; 0 if there is no record.
    pub n: u64,
    /// Largest stamp.
    pub stamp: Hlc,
}

/// How far an interval's records reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// The last chunk that a write of the interval reached, and the largest end of such a write in it, in bytes.
    pub highest: Option<(u32, u32)>,
    /// Stamp of the newest record of the interval, punches included.
    pub newest: Option<Hlc>,
}

/// Sizes of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Visible records.
    pub records: u64,
    /// Bytes that they take in segments, headers included.
    pub log_bytes: u64,
    /// Memory of the index, allocator overhead included.
    pub index_bytes: u64,
    /// Segments in use.
    pub segments: u64,
}

/// The log of a device.
#[derive(Debug)]
pub struct MultiLog {
    settings: Settings,
}

impl MultiLog {
    /// An empty log.
    pub fn new(settings: Settings) -> MultiLog {
        MultiLog { settings }
    }

    /// Rebuilds a log from its segments; `on_record` sees every record in log order.
    pub fn recover(
        settings: Settings,
        source: &mut dyn SegmentSource,
        on_record: &mut dyn FnMut(&RecordMeta),
    ) -> Result<(MultiLog, Report), Error> {
        let _ = (source, on_record, settings);
        unimplemented!()
    }

    /// Finds room for a group of records with these payload lengths (0 for a punch), adjacent in one segment.
    pub fn place(&mut self, lens: &[u32]) -> Placed {
        let _ = lens;
        unimplemented!()
    }

    /// The bytes that go before the payload: header and block checksums.
    pub fn encode(&self, meta: &RecordMeta, spot: &Spot, block_crcs: &[u32]) -> Vec<u8> {
        let _ = (meta, spot, block_crcs);
        unimplemented!()
    }

    /// Makes a record visible: header and payload are whole in the page cache.
    pub fn publish(&mut self, meta: &RecordMeta, spot: &Spot) {
        let _ = (meta, spot);
        unimplemented!()
    }

    /// Gives back the room of the group placed last: writing it failed.
    pub fn abandon(&mut self, placed: Placed) {
        let _ = placed;
        unimplemented!()
    }

    /// Footers of segments that are full and durable up to `durable`; each is given once.
    pub fn sealable(&mut self, durable: LogPosition) -> Vec<Seal> {
        let _ = durable;
        unimplemented!()
    }

    /// Appends to `out` what a read of `range` of `chunk` at `at` has to fetch.
    pub fn plan(&self, chunk: ChunkId, range: ByteRange, at: Hlc, horizons: &[Horizon], out: &mut Vec<Piece>) {
        let _ = (chunk, range, at, horizons, out);
        unimplemented!()
    }

    /// How far the records stamped in `(after, upto]` reach in these chunks.
    pub fn newest_in(&self, inode: InodeId, chunks: RangeInclusive<u32>, after: Hlc, upto: Hlc) -> Tail {
        let _ = (inode, chunks, after, upto);
        unimplemented!()
    }

    /// Bytes of a file that hold data now, truncates not considered.
    pub fn live_bytes(&self, inode: InodeId) -> u64 {
        let _ = inode;
        unimplemented!()
    }

    /// Records of a file stamped in `(after, upto]`, oldest first, at most `max`.
    pub fn versions(&self, inode: InodeId, after: Hlc, upto: Hlc, max: usize) -> Vec<RecordMeta> {
        let _ = (inode, after, upto, max);
        unimplemented!()
    }

    /// The stamp at which the file is read to see it at user time `user`, among records stamped up to `upto`.
    pub fn by_user_time(&self, inode: InodeId, user: UserTime, upto: Hlc) -> Option<UserCut> {
        let _ = (inode, user, upto);
        unimplemented!()
    }

    /// Newest user time in a file.
    pub fn newest_user_time(&self, inode: InodeId) -> Option<UserTime> {
        let _ = inode;
        unimplemented!()
    }

    /// Newest version of a chunk, 0 without records.
    pub fn chunk_version(&self, chunk: ChunkId) -> u64 {
        let _ = chunk;
        unimplemented!()
    }

    /// The newest number and stamp of a chain.
    pub fn chain_state(&self, chain: ChainId) -> ChainState {
        let _ = chain;
        unimplemented!()
    }

    /// End of the last published record.
    pub fn end(&self) -> LogPosition {
        unimplemented!()
    }

    /// Sizes.
    pub fn stats(&self) -> Stats {
        unimplemented!()
    }

    /// The settings in effect.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}
