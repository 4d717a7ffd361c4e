//! What questions about metadata are answered with: values of a few fields, copied while the namespace is looked at.

use std::collections::BTreeSet;
use std::ops::Range;

use frieze_base::{InodeId, SessionId};
use frieze_hlc::Hlc;
use frieze_namespace::Inode;
use frieze_wire::forget::ForgottenHistory;
use frieze_wire::message::FileKind;

/// How the bytes of a file are cut into chunks, and those spread over chains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkLayout {
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Number of chains, at least 1.
    pub chain_count: u32,
}

/// A file as the writes of one session see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteTarget {
    /// What it is.
    pub kind: FileKind,
    /// How its bytes are spread.
    pub layout: ChunkLayout,
    /// The whole inode if the file has a time plug-in.
    pub timed: Option<Inode>,
    /// The chunks that the session may write.
    pub granted: Vec<Range<u32>>,
    /// The session is open. All grants of a session end with it.
    pub is_open: bool,
    /// As [`Inode::reaches_from`].
    pub reaches_from: Option<u32>,
    /// As [`Inode::origin`].
    pub origin: Option<(InodeId, Hlc)>,
    /// As [`Inode::times_after`].
    pub times_after: Hlc,
    /// [`Metadata::change_count`] of the look: all of this holds until it is another.
    ///
    /// [`Metadata::change_count`]: crate::Metadata::change_count
    pub change_count: u64,
}

impl WriteTarget {
    /// The first of these chunks that the session may not write.
    pub fn missing_grant(&self, mut chunks: impl Iterator<Item = u32>) -> Option<MissingGrant> {
        let chunk = chunks.find(|chunk| !self.granted.iter().any(|granted| granted.contains(chunk)))?;
        Some(MissingGrant { chunk, is_open: self.is_open })
    }

    /// True if the session may write the bytes from `offset` on, `len` of them; if it `appends`: the chunk of the first
    /// one, and over the end of that chunk where the bytes reach over it.
    pub fn may_write_range(&self, (offset, len): (u64, u64), appends: bool) -> bool {
        let chunk_bytes = self.layout.chunk_bytes.max(1);
        let (first, last) = (offset / chunk_bytes, offset.saturating_add(len.max(1) - 1) / chunk_bytes);
        let may = |chunk| u32::try_from(chunk).is_ok_and(|chunk| self.missing_grant(std::iter::once(chunk)).is_none());
        let reaches = || first == last || self.reaches_from.is_some_and(|from| u64::from(from) <= first);
        match appends {
            true => may(first) && reaches(),
            false => (first..=last).all(may),
        }
    }
}

/// A chunk that a session may not write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingGrant {
    /// Index of the chunk.
    pub chunk: u32,
    /// The session is open. All grants of a session end with it.
    pub is_open: bool,
}

/// Another session with write grants on a file that has a time plug-in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherWriter {
    /// The session.
    pub session: SessionId,
    /// The plug-in, as text.
    pub plugin: String,
}

/// Where bytes of a file may lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChunks {
    /// How its bytes are spread.
    pub layout: ChunkLayout,
    /// Settled length in bytes.
    pub size: u64,
    /// A session has a write grant: the file may be longer than settled.
    pub has_writers: bool,
    /// Chunks that sessions may write, half-open.
    pub granted: Vec<Range<u32>>,
    /// The file has patches.
    pub is_patched: bool,
    /// The first chunk over whose end a record may reach.
    pub reaches_from: Option<u32>,
}

/// What a session may write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionGrants {
    /// The session is open.
    pub is_open: bool,
    /// Files that it has grants on, by number: also those on which it was stopped.
    pub files: Vec<InodeId>,
    /// It may still write one of them.
    pub may_write: bool,
}

/// The open sessions, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenSessions {
    /// All of them.
    pub all: Vec<SessionId>,
    /// Those that may keep something: cache leases and locks.
    pub keeping: Vec<SessionId>,
}

/// What an inode has forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InodeHorizon {
    /// Nothing of it is left but what snapshots show.
    pub is_wholly_expired: bool,
    /// How far back its newest forgetting reaches.
    pub forgotten: Option<ForgottenHistory>,
    /// Instants before the horizon that snapshots keep readable.
    pub pins: BTreeSet<Hlc>,
}

/// How many transactions have forgotten something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForgettingCount {
    /// All of them.
    pub count: usize,
    /// Stamp of the last one; ZERO for none.
    pub last: Hlc,
}

/// Where an inode lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeHome {
    /// It is a directory.
    pub is_directory: bool,
    /// The directory of its first name.
    pub parent: InodeId,
}

/// Where an inode is in the tree, and what holds it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeNode {
    /// It is a directory.
    pub is_directory: bool,
    /// As [`Inode::links`].
    pub links: u32,
    /// The directory of its first name.
    pub parent: InodeId,
    /// Names in it.
    pub entry_count: usize,
}

impl ChunkLayout {
    /// That of an inode.
    pub fn of(inode: &Inode) -> ChunkLayout {
        ChunkLayout { chunk_bytes: inode.layout.chunk_bytes, chain_count: inode.layout.chain_count.max(1) }
    }
}

impl OtherWriter {
    /// The first session beside `session` that may write a chunk of `inode`, if that has a time plug-in.
    pub fn of(inode: &Inode, session: SessionId) -> Option<OtherWriter> {
        let other = inode.grants().iter().find(|grant| grant.session != session && !grant.chunks.is_empty())?;
        let plugin = Some(inode.plugin()).filter(|plugin| !plugin.is_empty())?;
        Some(OtherWriter { session: other.session, plugin: plugin.to_owned() })
    }
}

impl FileChunks {
    /// Those of an inode.
    pub fn of(inode: &Inode) -> FileChunks {
        FileChunks {
            layout: ChunkLayout::of(inode),
            size: inode.size,
            has_writers: !inode.grants().is_empty(),
            granted: inode.granted_chunks(),
            is_patched: !inode.patches().is_empty(),
            reaches_from: inode.reaches_from(),
        }
    }
}
