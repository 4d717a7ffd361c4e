//! What questions about metadata are answered with: values of a few fields, copied while the namespace is looked at.

use std::collections::BTreeSet;
use std::ops::Range;

use frieze_base::{InodeId, SessionId};
use frieze_hlc::Hlc;
use frieze_namespace::Inode;
use frieze_wire::forget::Forgotten;
use frieze_wire::message::FileKind;

/// How the bytes of a file are cut into chunks, and those spread over chains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkLayout {
    /// Bytes of a chunk.
    pub(crate) chunk_bytes: u64,
    /// Number of chains, at least 1.
    pub(crate) chain_count: u32,
}

/// What a write asks of its file before anything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WriteTarget {
    /// What it is.
    pub(crate) kind: FileKind,
    /// How its bytes are spread.
    pub(crate) layout: ChunkLayout,
    /// The whole inode if the file has a time plug-in.
    pub(crate) timed: Option<Inode>,
}

/// The right of a session to write some chunks of a file, and where the user times of the file begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WriteRight {
    /// The first of the chunks that the session may not write.
    pub(crate) missing: Option<MissingGrant>,
    /// As [`Inode::origin`].
    pub(crate) origin: Option<(InodeId, Hlc)>,
    /// As [`Inode::times_after`].
    pub(crate) times_after: Hlc,
    /// The whole inode, if it was asked for.
    pub(crate) inode: Option<Inode>,
}

/// A chunk that a session may not write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MissingGrant {
    /// Index of the chunk.
    pub(crate) chunk: u32,
    /// The session is open. All grants of a session end with it.
    pub(crate) is_open: bool,
}

/// Another session with write grants on a file that has a time plug-in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OtherWriter {
    /// The session.
    pub(crate) session: SessionId,
    /// The plug-in, as text.
    pub(crate) plugin: String,
}

/// Where bytes of a file may lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileChunks {
    /// How its bytes are spread.
    pub(crate) layout: ChunkLayout,
    /// Settled length in bytes.
    pub(crate) size: u64,
    /// A session has a write grant: the file may be longer than settled.
    pub(crate) has_writers: bool,
    /// Chunks that sessions may write, half-open.
    pub(crate) granted: Vec<Range<u32>>,
    /// The file has patches.
    pub(crate) is_patched: bool,
    /// The first chunk over whose end a record may reach.
    pub(crate) reaches_from: Option<u32>,
}

/// What a session may write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SessionGrants {
    /// The session is open.
    pub(crate) is_open: bool,
    /// Files that it has grants on, by number: also those on which it was stopped.
    pub(crate) files: Vec<InodeId>,
    /// It may still write one of them.
    pub(crate) may_write: bool,
}

/// The open sessions, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OpenSessions {
    /// All of them.
    pub(crate) all: Vec<SessionId>,
    /// Those that may keep something: cache leases and locks.
    pub(crate) keeping: Vec<SessionId>,
}

/// What an inode has forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InodeHorizon {
    /// Nothing of it is left but what snapshots show.
    pub(crate) is_gone: bool,
    /// How far back its newest forgetting reaches.
    pub(crate) forgotten: Option<Forgotten>,
    /// Instants before the horizon that snapshots keep readable.
    pub(crate) pins: BTreeSet<Hlc>,
}

/// How many transactions have forgotten something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ForgettingCount {
    /// All of them.
    pub(crate) count: usize,
    /// Stamp of the last one; ZERO for none.
    pub(crate) last: Hlc,
}

/// Where an inode lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InodeHome {
    /// It is a directory.
    pub(crate) is_directory: bool,
    /// The directory of its first name.
    pub(crate) parent: InodeId,
}

/// Where an inode is in the tree, and what holds it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TreeNode {
    /// It is a directory.
    pub(crate) is_directory: bool,
    /// As [`Inode::links`].
    pub(crate) links: u32,
    /// The directory of its first name.
    pub(crate) parent: InodeId,
    /// Names in it.
    pub(crate) entry_count: usize,
}

impl ChunkLayout {
    /// That of an inode.
    pub(crate) fn of(inode: &Inode) -> ChunkLayout {
        ChunkLayout { chunk_bytes: inode.layout.chunk_bytes, chain_count: inode.layout.chain_count.max(1) }
    }
}

impl OtherWriter {
    /// The first session beside `session` that may write a chunk of `inode`, if that has a time plug-in.
    pub(crate) fn of(inode: &Inode, session: SessionId) -> Option<OtherWriter> {
        let other = inode.grants().iter().find(|grant| grant.session != session && !grant.chunks.is_empty())?;
        let plugin = Some(inode.plugin()).filter(|plugin| !plugin.is_empty())?;
        Some(OtherWriter { session: other.session, plugin: plugin.to_owned() })
    }
}

impl FileChunks {
    /// Those of an inode.
    pub(crate) fn of(inode: &Inode) -> FileChunks {
        FileChunks {
            layout: ChunkLayout::of(inode),
            size: inode.size,
            has_writers: !inode.grants().is_empty(),
            granted: inode.grants().iter().flat_map(|grant| grant.chunks.iter().cloned()).collect(),
            is_patched: !inode.patches().is_empty(),
            reaches_from: inode.reaches_from(),
        }
    }
}
