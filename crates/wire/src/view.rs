//! The instant that a request reads at, and the properties of files and answers.

/// The instant and user time that a read asks for. Both absent: now.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct View {
    /// System time as an exact `Hlc`, inclusive.
    #[prost(uint64, optional, tag = "1")]
    pub at: Option<u64>,
    /// User time in ns, inclusive: every file is cut at its last record with a user time up to it.
    #[prost(sint64, optional, tag = "2")]
    pub user_at: Option<i64>,
}

/// The kind of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum FileKind {
    /// Regular file.
    File = 0,
    /// Directory.
    Directory = 1,
    /// Symbolic link.
    Symlink = 2,
    /// Named pipe.
    Fifo = 3,
    /// Unix socket.
    Socket = 4,
    /// Character device.
    CharDevice = 5,
    /// Block device.
    BlockDevice = 6,
}

impl FileKind {
    /// As commands and JSON name it.
    pub fn word(self) -> &'static str {
        match self {
            FileKind::File => "file",
            FileKind::Directory => "directory",
            FileKind::Symlink => "symlink",
            FileKind::Fifo => "fifo",
            FileKind::Socket => "socket",
            FileKind::CharDevice => "char-device",
            FileKind::BlockDevice => "block-device",
        }
    }
}

/// Attributes of an inode at an instant.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Attr {
    /// Inode.
    #[prost(uint64, tag = "1")]
    pub inode: u64,
    /// Kind.
    #[prost(enumeration = "FileKind", tag = "2")]
    pub kind: i32,
    /// Permission bits (no type bits).
    #[prost(uint32, tag = "3")]
    pub mode: u32,
    /// Number of names.
    #[prost(uint32, tag = "4")]
    pub links: u32,
    /// Owner.
    #[prost(uint32, tag = "5")]
    pub uid: u32,
    /// Group.
    #[prost(uint32, tag = "6")]
    pub gid: u32,
    /// Length in bytes; of a symbolic link: of its target.
    #[prost(uint64, tag = "7")]
    pub size: u64,
    /// Bytes that hold data (holes left out).
    #[prost(uint64, tag = "8")]
    pub bytes_live: u64,
    /// Access time, ns.
    #[prost(sint64, tag = "9")]
    pub atime_ns: i64,
    /// Modification time, ns.
    #[prost(sint64, tag = "10")]
    pub mtime_ns: i64,
    /// Change time, ns.
    #[prost(sint64, tag = "11")]
    pub ctime_ns: i64,
    /// Stamp of creation.
    #[prost(uint64, tag = "12")]
    pub born: u64,
    /// Device number of a special file.
    #[prost(uint32, tag = "13")]
    pub rdev: u32,
    /// Chunk size of a file, bytes.
    #[prost(uint64, tag = "14")]
    pub chunk_bytes: u64,
    /// Time plug-in of the file or of what is created in the directory, as text; empty for none.
    #[prost(string, tag = "15")]
    pub time_plugin: String,
    /// Newest stamp among metadata and data that made this state: equal stamps mean equal states.
    #[prost(uint64, tag = "16")]
    pub changed: u64,
    /// True if an access list says more than the mode, or the directory has a default list.
    #[prost(bool, tag = "17")]
    pub has_acl: bool,
}

/// Properties of every answer about the past.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct InstantInfo {
    /// Exact instant used; 0 for a read of now.
    #[prost(uint64, tag = "1")]
    pub at: u64,
    /// Clock-error bound of the servers that stamped, in microseconds: the precision. `u64::MAX`: the machine's clock
    /// is not disciplined, and the error is unknown.
    #[prost(uint64, tag = "2")]
    pub precision_us: u64,
    /// True if the instant was closed before the request.
    #[prost(bool, tag = "3")]
    pub was_stable: bool,
    /// True if the instant lies inside a gap: the state is what survived. For bytes, at any instant and now, also if a
    /// chain resumed from a stale copy, so that acknowledged records may be missing.
    #[prost(bool, tag = "4")]
    pub incomplete: bool,
    /// True if an answer by user time may still grow: the file does not yet hold a later user time.
    #[prost(bool, tag = "5")]
    pub user_time_open: bool,
    /// True if the answering server has no lease, for an answer about an instant: it vouches for decisions up to
    /// `executed`, and not for a gap, a right or a forgetting that was declared since.
    #[prost(bool, tag = "6")]
    pub without_lease: bool,
    /// Stamp up to which the server had executed decisions about names, rights, forgetting and chains when it checked
    /// the request; 0 in answers of now.
    #[prost(uint64, tag = "7")]
    pub executed: u64,
}
