//! Questions about names and attributes.

use crate::target::Target;
use crate::view::{Attr, FileKind, InstantInfo, View};

/// Asks for the attributes of a file.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Stat {
    /// The file.
    #[prost(message, required, tag = "1")]
    pub target: Target,
    /// When.
    #[prost(message, required, tag = "2")]
    pub view: View,
    /// Of now: as the answering server has executed it, which may be older than answers of other servers. For displays
    /// that have to work without a leader.
    #[prost(bool, tag = "3")]
    pub recent: bool,
}

/// Attributes.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StatReply {
    /// The attributes.
    #[prost(message, required, tag = "1")]
    pub attr: Attr,
    /// About the answer.
    #[prost(message, required, tag = "2")]
    pub answered: InstantInfo,
}

/// Asks for entries of a directory in byte order of their names.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct List {
    /// The directory.
    #[prost(message, required, tag = "1")]
    pub target: Target,
    /// When.
    #[prost(message, required, tag = "2")]
    pub view: View,
    /// Start after this name; empty for the beginning.
    #[prost(bytes = "vec", tag = "3")]
    pub after: Vec<u8>,
    /// At most this many; 0 leaves it to the server (1,000, and 10,000 at most).
    #[prost(uint32, tag = "4")]
    pub count_max: u32,
    /// True: every entry with its attributes.
    #[prost(bool, tag = "5")]
    pub with_attrs: bool,
    /// True: the rights of the reader were checked when the directory was opened.
    #[prost(bool, tag = "6")]
    pub by_handle: bool,
}

/// One name in a directory.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DirEntry {
    /// Name.
    #[prost(bytes = "vec", tag = "1")]
    pub name: Vec<u8>,
    /// Inode it names.
    #[prost(uint64, tag = "2")]
    pub inode: u64,
    /// Kind of that inode.
    #[prost(enumeration = "FileKind", tag = "3")]
    pub kind: i32,
    /// Attributes, if asked for.
    #[prost(message, optional, tag = "4")]
    pub attr: Option<Attr>,
}

/// Entries.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListReply {
    /// In byte order.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<DirEntry>,
    /// True if more follow the last one.
    #[prost(bool, tag = "2")]
    pub more: bool,
    /// About the answer.
    #[prost(message, required, tag = "3")]
    pub answered: InstantInfo,
    /// The directory listed and its parent.
    #[prost(uint64, tag = "4")]
    pub inode: u64,
    /// Parent of the directory listed; itself for the root.
    #[prost(uint64, tag = "5")]
    pub parent: u64,
}

/// Asks for the target of a symbolic link.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ReadLink {
    /// The link; `follow` is ignored for the last place.
    #[prost(message, required, tag = "1")]
    pub target: Target,
    /// When.
    #[prost(message, required, tag = "2")]
    pub view: View,
}

/// Bytes of a link target or of an extended attribute.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct BytesReply {
    /// The bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub value: Vec<u8>,
}

/// Asks whether the caller may do something with a file (`R_OK` 4, `W_OK` 2, `X_OK` 1).
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Access {
    /// The file.
    #[prost(message, required, tag = "1")]
    pub target: Target,
    /// When.
    #[prost(message, required, tag = "2")]
    pub view: View,
    /// Bits asked for.
    #[prost(uint32, tag = "3")]
    pub mask: u32,
}

/// The extended attribute, of now and of the past and never listed, with the path of an object, or one of them. A user
/// that may not list the directory does not see it.
pub const PATH_XATTR: &[u8] = b"user.frieze.path";

/// Asks for an extended attribute, or with an empty name for the names of all, each ended by NUL.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetXattr {
    /// The file.
    #[prost(message, required, tag = "1")]
    pub target: Target,
    /// When.
    #[prost(message, required, tag = "2")]
    pub view: View,
    /// Name; empty lists the names.
    #[prost(bytes = "vec", tag = "3")]
    pub name: Vec<u8>,
}
