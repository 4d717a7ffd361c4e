//! The stored form of a lease, by which a writer continues after the end of its server.

use frieze_client::Caller;

/// A block that is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenBlock {
    /// Its offset in the file.
    pub(crate) start: u64,
    /// Distinguishes it from earlier blocks at the same offset.
    pub(crate) generation: u64,
    /// Bytes of it that are in the file.
    pub(crate) received: u64,
}

/// A stored lease.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct LeaseRecord {
    /// Its number, as tokens name it.
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    /// The file.
    #[prost(uint64, tag = "2")]
    pub(crate) inode: u64,
    /// Its path when it was opened.
    #[prost(string, tag = "3")]
    pub(crate) path: String,
    /// The holder.
    #[prost(string, tag = "4")]
    pub(crate) holder: String,
    /// Most bytes of a block.
    #[prost(uint64, tag = "5")]
    pub(crate) block_bytes: u64,
    /// The account it writes for: user id.
    #[prost(uint32, tag = "6")]
    pub(crate) uid: u32,
    /// Its group id.
    #[prost(uint32, tag = "7")]
    pub(crate) gid: u32,
    /// Its further groups.
    #[prost(uint32, repeated, tag = "8")]
    pub(crate) groups: Vec<u32>,
    /// Where the next block begins, if none is being written.
    #[prost(uint64, tag = "9")]
    pub(crate) next: u64,
    /// Where the block begins that is being written.
    #[prost(uint64, optional, tag = "10")]
    pub(crate) start: Option<u64>,
    /// Its generation.
    #[prost(uint64, tag = "11")]
    pub(crate) generation: u64,
    /// Number of the block before; 0 for none.
    #[prost(uint64, tag = "12")]
    pub(crate) last_id: u64,
    /// Its generation.
    #[prost(uint64, tag = "13")]
    pub(crate) last_generation: u64,
    /// When its server ended in good order, nanoseconds since 1970; 0 if it has not.
    #[prost(uint64, tag = "14")]
    pub(crate) ended_ns: u64,
}

impl LeaseRecord {
    /// The account that its file is opened for.
    pub(crate) fn caller(&self) -> Caller {
        Caller { uid: self.uid, gid: self.gid, groups: self.groups.clone() }
    }

    /// The block before.
    pub(crate) fn last(&self) -> (u64, u64) {
        (self.last_id, self.last_generation)
    }

    /// The block that was being written, in a file of `size` bytes: everything acknowledged is in it.
    pub(crate) fn block(&self, size: u64) -> Option<OpenBlock> {
        let start = self.start?;
        Some(OpenBlock { start, generation: self.generation, received: size.saturating_sub(start) })
    }
}
