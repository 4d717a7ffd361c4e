//! The bytes of open files.

use crate::fabric::RemoteMemory;
use crate::target::Target;
use crate::view::{Attr, InstantInfo, View};

/// Opens a regular file: checks rights once and answers a capability for its bytes.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Open {
    /// The file.
    #[prost(message, required, tag = "1")]
    pub target: Target,
    /// When. Writing needs now.
    #[prost(message, required, tag = "2")]
    pub view: View,
    /// To read.
    #[prost(bool, tag = "3")]
    pub read: bool,
    /// To write.
    #[prost(bool, tag = "4")]
    pub write: bool,
    /// True: the inode was created by this session's transaction with this stamp, so rights are not checked (POSIX: a
    /// file created read-only is open for writing in the process that created it).
    #[prost(uint64, tag = "5")]
    pub made_at: u64,
}

/// An open file.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct OpenReply {
    /// Attributes at the view.
    #[prost(message, required, tag = "1")]
    pub attr: Attr,
    /// Opaque bytes that prove the right to read or write the file's chunks. Good for this session, across restarts.
    #[prost(bytes = "vec", tag = "2")]
    pub capability: Vec<u8>,
    /// About the answer.
    #[prost(message, required, tag = "3")]
    pub answered: InstantInfo,
}

/// When a write or transaction is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum Durability {
    /// When it is in the memory of every replica.
    Async = 0,
    /// When it is on stable storage.
    Sync = 1,
}

/// Reads a range of bytes; the payload of the reply contains them, holes as zeros, cut at the end of the file. With no
/// bytes at offset `u64::MAX`, where none can be, it reports to the leader that the session has the file open, and
/// waits for nothing.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Read {
    /// From [`OpenReply`].
    #[prost(bytes = "vec", tag = "1")]
    pub capability: Vec<u8>,
    /// Offset in the file, bytes.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    /// Bytes wanted, at most `PAYLOAD_BYTES_MAX`.
    #[prost(uint32, tag = "3")]
    pub len: u32,
    /// The answer may begin before all of it has been read and verified, its checksum then behind it
    /// ([`ReadReply::crc_behind`]). If stored bytes prove damaged, the connection ends in the middle of the payload:
    /// ask again without this, to get the error. (Number 4 asked for the same with the checksum in the header.)
    #[prost(bool, tag = "5")]
    pub in_steps: bool,
    /// For an instant of the past: a number that the reader has drawn. Read-ahead follows the reads of one number, as
    /// it follows those of a session where there is one.
    #[prost(uint64, tag = "6")]
    pub reader: u64,
    /// Memory of the client that the server may write the bytes into instead of sending them, until its reply.
    #[prost(message, optional, tag = "7")]
    pub dest_slot: Option<RemoteMemory>,
}

/// The payload holds the bytes.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ReadReply {
    /// True if the range met the end of the file.
    #[prost(bool, tag = "1")]
    pub end_of_file: bool,
    /// About the answer.
    #[prost(message, required, tag = "2")]
    pub answered: InstantInfo,
    /// The last 4 bytes of the payload are not the file's, but the CRC32C of all before them, little-endian; that of
    /// the whole payload, which the header has, is the same for any.
    #[prost(bool, tag = "3")]
    pub crc_behind: bool,
    /// Bytes that lie in [`Read::dest_slot`]; there is no other payload then.
    #[prost(uint32, tag = "4")]
    pub landed: u32,
    /// Their CRC32C.
    #[prost(fixed32, tag = "5")]
    pub landed_crc: u32,
    /// The server could not write the payload into [`Read::dest_slot`], where bytes may still arrive, and makes no more
    /// transfers until it is asked for a new test. The payload is beside this reply.
    #[prost(bool, tag = "6")]
    pub is_slot_abandoned: bool,
}

/// Writes the payload.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Write {
    /// From [`OpenReply`].
    #[prost(bytes = "vec", tag = "1")]
    pub capability: Vec<u8>,
    /// Offset in the file; with `append` where its end is believed to be: of several servers the one that heads that
    /// chunk is asked, and appends there or answers with the true end. A single server ignores it then.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    /// True: at the end of the file, chosen by the server, contiguous.
    #[prost(bool, tag = "3")]
    pub append: bool,
    /// When to acknowledge.
    #[prost(enumeration = "Durability", tag = "4")]
    pub durability: i32,
    /// User on whose behalf, for `log`; the right itself is in the capability.
    #[prost(uint32, tag = "5")]
    pub uid: u32,
    /// Memory of the client that the payload is fetched from; it is not in the frame then.
    #[prost(message, optional, tag = "6")]
    pub src_slot: Option<RemoteMemory>,
    /// CRC32C of those bytes.
    #[prost(fixed32, tag = "7")]
    pub src_crc: u32,
}

/// A write has happened.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WriteReply {
    /// Its stamp (of the last record if it crossed chunks).
    #[prost(uint64, tag = "1")]
    pub stamp: u64,
    /// Where it landed.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
}

/// Punches a hole: the range reads as zeros from then on and takes no room; its former bytes stay readable in the past.
/// The length of the file stays. One request reaches as far as the server decides, at least over one chunk.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Punch {
    /// From [`OpenReply`].
    #[prost(bytes = "vec", tag = "1")]
    pub capability: Vec<u8>,
    /// Offset in the file, bytes.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    /// Bytes, at least 1.
    #[prost(uint64, tag = "3")]
    pub len: u64,
    /// When to acknowledge.
    #[prost(enumeration = "Durability", tag = "4")]
    pub durability: i32,
}

/// A hole was punched.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PunchReply {
    /// Its stamp.
    #[prost(uint64, tag = "1")]
    pub stamp: u64,
    /// Everything from the requested offset up to here is a hole: continue from here if it lies before the end of the
    /// range.
    #[prost(uint64, tag = "2")]
    pub upto: u64,
}

/// Makes everything the session wrote to a file, and the metadata that names it, durable. Inode 0: everything.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Sync {
    /// The file or directory; 0 for all.
    #[prost(uint64, tag = "1")]
    pub inode: u64,
}

/// Finds data or holes.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Seek {
    /// From [`OpenReply`].
    #[prost(bytes = "vec", tag = "1")]
    pub capability: Vec<u8>,
    /// Start, bytes.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    /// True: the next data; false: the next hole.
    #[prost(bool, tag = "3")]
    pub data: bool,
}
