//! Names of things: newtypes that print and parse back to themselves.

use std::fmt;
use std::str::FromStr;

/// The text is not an id of the kind asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {kind}: expected {expected}")]
pub struct ParseIdError {
    /// The text that was given.
    pub text: String,
    /// The kind of id wanted.
    pub kind: &'static str,
    /// How such an id is written.
    pub expected: &'static str,
}

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;
            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                text.parse().map($name).map_err(|_| ParseIdError {
                    text: text.to_owned(),
                    kind: $what,
                    expected: "a decimal number",
                })
            }
        }
    };
}

number_id!(
    /// A file, directory or symbolic link. Never reused; 1 is the root directory, 0 is none.
    ///
    /// | number | of |
    /// |---|---|
    /// | 2 * count + 1 | a directory: its count among all directories, 0 for the root |
    /// | 8192 * count + 2 * slot | anything else: the slot, and its count there, from 1 |
    ///
    /// It says for ever in which slot it lies: a file in that of the directory in which it was made, a directory in one
    /// that follows from its count, so that directories spread over all slots. A double holds every number.
    /// Within a slot, and among directories, numbers rise with time.
    InodeId(u64), "an inode id");
number_id!(
    /// A chain of replicas.
    ChainId(u32), "a chain id");
number_id!(
    /// A configuration number of a chain: members of an older one are fenced.
    ChainEpoch(u64), "a chain epoch");
number_id!(
    /// A batch number of the sequencer.
    BatchEpoch(u64), "a batch epoch");
number_id!(
    /// A client session, opened by the metalog.
    SessionId(u64), "a session id");
number_id!(
    /// The number of a state-changing request within its session; 0 means the request changes nothing.
    Seq(u64), "a request number");
number_id!(
    /// A server process's identity within its cluster.
    NodeId(u32), "a node id");
number_id!(
    /// A segment of a device's log. Rises with each use of the file, so an old record can never pass for a new one.
    /// With bit 63, a pack of the device ([`SegmentId::pack`]).
    SegmentId(u64), "a segment id");
number_id!(
    /// A position in the metalog: 1 is the first entry.
    LogIndex(u64), "a log index");

impl SegmentId {
    const PACK: u64 = 1 << 63;

    /// The pack with a serial number, among the files that records lie in.
    pub fn pack(serial: u64) -> SegmentId {
        SegmentId(serial | Self::PACK)
    }

    /// True if it is no segment of the log but a pack.
    pub fn is_pack(self) -> bool {
        self.0 & Self::PACK != 0
    }

    /// The serial number of a pack; `None` for a segment of the log.
    pub fn pack_serial(self) -> Option<u64> {
        self.is_pack().then_some(self.0 & !Self::PACK)
    }

    /// Its kind and number, for people: `segment 7`, or the name of a pack's file.
    pub fn in_words(self) -> String {
        match self.pack_serial() {
            Some(serial) => format!("pack-{serial:016x}"),
            None => format!("segment {self}"),
        }
    }
}

impl InodeId {
    /// The root directory.
    pub const ROOT: InodeId = InodeId(1);
    /// Largest number.
    pub const MAX: InodeId = InodeId((1 << 52) - 1);
    /// Slots of the namespace. Fixed for ever.
    pub const SLOTS: u16 = 4096;
    /// Largest count of files in a slot, and of directories.
    pub const COUNT_MAX: u64 = (1 << 39) - 1;
    const FILE_SHIFT: u32 = 1 + Self::SLOTS.ilog2();

    /// The file of this count in a slot.
    ///
    /// # Panics
    /// If there is no such slot or count.
    pub fn file(slot: u16, count: u64) -> InodeId {
        assert!(slot < Self::SLOTS && count <= Self::COUNT_MAX, "file {count} of slot {slot}");
        InodeId(count << Self::FILE_SHIFT | u64::from(slot) << 1)
    }

    /// The directory of this count.
    ///
    /// # Panics
    /// If there is no such count.
    pub fn directory(count: u64) -> InodeId {
        assert!(count <= Self::COUNT_MAX, "directory {count}");
        InodeId(count << 1 | 1)
    }

    /// Where it lies.
    pub fn slot(self) -> u16 {
        match self.is_directory() {
            // Fibonacci hashing: the highest bits of the product spread consecutive counts evenly.
            true => (self.count().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - Self::SLOTS.ilog2())) as u16,
            false => (self.0 >> 1) as u16 & (Self::SLOTS - 1),
        }
    }

    /// Which one it is of the files of its slot, or of all directories.
    pub fn count(self) -> u64 {
        if self.is_directory() { self.0 >> 1 } else { self.0 >> Self::FILE_SHIFT }
    }

    /// True for a directory, by the number alone.
    pub fn is_directory(self) -> bool {
        self.0 & 1 != 0
    }

    /// True for a number that an inode can have.
    pub fn is_valid(self) -> bool {
        self.0 != 0 && self <= InodeId::MAX && self.count() <= Self::COUNT_MAX
    }
}

/// A piece of a file of fixed size: the unit of placement and replication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkId {
    /// The file.
    pub inode: InodeId,
    /// Which piece, from 0.
    pub index: u32,
}

impl ChunkId {
    /// The chain that it lies on, where a file's chunks are spread over `chain_count` chains, at least 1. Consecutive
    /// chunks of a file go round the chains.
    pub fn chain(self, chain_count: u32) -> ChainId {
        // Fibonacci hashing spreads the consecutive numbers of new files over the chains.
        let first = self.inode.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        ChainId(((first + u64::from(self.index)) % u64::from(chain_count)) as u32)
    }
}

impl fmt::Display for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.inode, self.index)
    }
}

impl FromStr for ChunkId {
    type Err = ParseIdError;
    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        text.split_once('.')
            .and_then(|(inode, index)| Some(ChunkId { inode: inode.parse().ok()?, index: index.parse().ok()? }))
            .ok_or_else(|| ParseIdError { text: text.to_owned(), kind: "a chunk id", expected: "INODE.INDEX" })
    }
}

/// The identity of a cluster, drawn when its first data directory is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(pub u128);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for ClusterId {
    type Err = ParseIdError;
    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let refused = || ParseIdError { text: text.to_owned(), kind: "a cluster id", expected: "32 hex digits" };
        // `from_str_radix` reads a sign as well.
        if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(refused());
        }
        u128::from_str_radix(text, 16).map(ClusterId).map_err(|_| refused())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_print_and_parse_back_to_themselves() {
        let chunk = ChunkId { inode: InodeId(77), index: 3 };
        assert_eq!(chunk.to_string().parse(), Ok(chunk));
        assert!("+000000000000000000000000000feed".parse::<ClusterId>().is_err(), "a sign is no digit");
        let cluster = ClusterId(0xfeed);
        assert_eq!(cluster.to_string().parse(), Ok(cluster));
        assert_eq!("12".parse(), Ok(SessionId(12)));
    }

    #[test]
    fn the_slot_of_an_inode_stays_what_it_was() {
        // Stored data depends on it.
        assert_eq!((InodeId::ROOT, InodeId::ROOT.slot()), (InodeId::directory(0), 0));
        assert_eq!([1, 2, 3, 500].map(|count| InodeId::directory(count).slot()), [2531, 966, 3498, 69]);
        for (slot, count) in [(0, 1), (0, InodeId::COUNT_MAX), (4095, 1), (4095, InodeId::COUNT_MAX)] {
            let id = InodeId::file(slot, count);
            assert_eq!((id.slot(), id.count(), id.is_directory()), (slot, count, false));
            assert!(id.is_valid() && InodeId::directory(count).is_valid());
        }
        assert_eq!(InodeId::file(7, 3), InodeId(3 * 8192 + 14));
        assert_eq!(InodeId::file(4095, InodeId::COUNT_MAX), InodeId(InodeId::MAX.0 - 1));
        assert!(![0, 1 << 41 | 1, 1 << 52].map(InodeId).iter().any(|id| id.is_valid()));
    }

    #[test]
    fn the_chain_of_a_chunk_stays_what_it_was() {
        // Stored data depends on it.
        let chain = |inode, index, count| ChunkId { inode: InodeId(inode), index }.chain(count).0;
        assert_eq!([1, 2, 3, 4].map(|inode| chain(inode, 0, 8)), [1, 2, 4, 5]);
        assert_eq!([0, 1, 7, 8].map(|index| (chain(77, index, 8) + 8 - chain(77, 0, 8)) % 8), [0, 1, 7, 0]);
        assert_eq!(chain(u64::MAX, u32::MAX, 1), 0);
    }

    #[test]
    fn a_wrong_id_says_what_was_expected() {
        let error = "7-3".parse::<ChunkId>().unwrap_err();
        assert_eq!(error.to_string(), "\"7-3\" is not a chunk id: expected INODE.INDEX");
    }

    #[test]
    fn any_text_is_an_id_that_prints_and_parses_back_or_none() {
        let seeds = ["0", "4294967295", "18446744073709551615", "77.3", "0000000000000000000000000000feed"];
        frieze_harness::fuzz!(seeds, |bytes: &[u8]| {
            frieze_harness::check_text(bytes, |text| text.parse::<InodeId>().ok());
            frieze_harness::check_text(bytes, |text| text.parse::<NodeId>().ok());
            frieze_harness::check_text(bytes, |text| text.parse::<ChunkId>().ok());
            if let Some(cluster) = frieze_harness::check_text(bytes, |text| text.parse::<ClusterId>().ok()) {
                assert!(cluster.to_string().as_bytes().eq_ignore_ascii_case(bytes), "one text for one cluster");
            }
        });
    }
}
