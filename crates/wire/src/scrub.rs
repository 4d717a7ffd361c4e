//! Scrubbing: everything stored is read, and damage is reported.

/// Asks for the findings of a scrub, or for one to begin or end.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Scrub {
    /// See [`ScrubAction`].
    #[prost(enumeration = "ScrubAction", tag = "1")]
    pub action: i32,
    /// To start: bytes a second at most; 0 for the server's setting.
    #[prost(uint64, tag = "2")]
    pub bytes_per_s: u64,
    /// True: return every finding, not only their number.
    #[prost(bool, tag = "3")]
    pub with_findings: bool,
}

/// The action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum ScrubAction {
    /// Nothing.
    Look = 0,
    /// Begin, unless one is under way.
    Start = 1,
    /// End the one that is under way.
    Stop = 2,
}

/// How far the scrub is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum ScrubState {
    /// There never was one.
    Never = 0,
    /// Under way; after a restart of the server it continues where it was.
    Running = 1,
    /// Ended before it had read everything.
    Stopped = 2,
    /// It has read everything that was stored when it came by.
    Finished = 3,
}

/// State of the newest scrub, and the known damage.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ScrubReply {
    /// See [`ScrubState`].
    #[prost(enumeration = "ScrubState", tag = "1")]
    pub state: i32,
    /// When it began.
    #[prost(uint64, tag = "2")]
    pub started: u64,
    /// When it ended; 0 while it runs.
    #[prost(uint64, tag = "3")]
    pub ended: u64,
    /// Bytes read.
    #[prost(uint64, tag = "4")]
    pub done_bytes: u64,
    /// Bytes to read: what is stored now.
    #[prost(uint64, tag = "5")]
    pub all_bytes: u64,
    /// Records read.
    #[prost(uint64, tag = "6")]
    pub records: u64,
    /// Bytes a second at most.
    #[prost(uint64, tag = "7")]
    pub bytes_per_s: u64,
    /// Damaged places known: by this scrub and, until it has finished, by those before.
    #[prost(uint64, tag = "8")]
    pub damaged: u64,
    /// The findings, at most 500; empty unless asked for.
    #[prost(message, repeated, tag = "9")]
    pub findings: Vec<Finding>,
    /// When a scrub last finished; 0 for never.
    #[prost(uint64, tag = "10")]
    pub finished: u64,
    /// Why findings are kept in memory only, if they are.
    #[prost(string, tag = "11")]
    pub trouble: String,
    /// Pieces of the index on disk that this scrub found damaged and made anew: nothing is lost.
    #[prost(uint64, tag = "12")]
    pub mended: u64,
}

/// A damaged place.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Finding {
    /// See [`FindingKind`].
    #[prost(enumeration = "FindingKind", tag = "1")]
    pub kind: i32,
    /// The segment of the device log.
    #[prost(uint64, tag = "2")]
    pub segment: u64,
    /// First byte in the segment's file.
    #[prost(uint64, tag = "3")]
    pub at: u64,
    /// Bytes from there on that may be damaged.
    #[prost(uint64, tag = "4")]
    pub len: u64,
    /// Path of the file: as it is named now, else as it was named last; empty if no file is known.
    #[prost(bytes = "vec", tag = "5")]
    pub path: Vec<u8>,
    /// When the file lost its last name; 0 if it has one.
    #[prost(uint64, tag = "6")]
    pub deleted: u64,
    /// The file; 0 if none is known.
    #[prost(uint64, tag = "7")]
    pub inode: u64,
    /// First byte in the file.
    #[prost(uint64, tag = "8")]
    pub start: u64,
    /// The byte of the file after the last.
    #[prost(uint64, tag = "9")]
    pub end: u64,
    /// Stamp of the write: reads at it or later show these bytes, and fail.
    #[prost(uint64, tag = "10")]
    pub from: u64,
    /// From this stamp on the file does not show them any more; 0: it shows them now.
    #[prost(uint64, tag = "11")]
    pub until: u64,
    /// When it was found last.
    #[prost(uint64, tag = "12")]
    pub found: u64,
    /// The device's error, if it could not read them.
    #[prost(string, tag = "13")]
    pub unread: String,
}

/// The kind of the damaged data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum FindingKind {
    /// Nothing.
    None = 0,
    /// Bytes of a file: reads of them fail.
    Data = 1,
    /// The header of a write. Its bytes can be read while the segment's footer is whole.
    Header = 2,
    /// A segment's header, of which the footer has a copy.
    SegmentHeader = 3,
    /// A segment's footer.
    Footer = 4,
    /// Writes that cannot be identified.
    Records = 5,
    /// The index of writes from this segment on, on disk, and a footer from which it could be made anew.
    Index = 6,
}
