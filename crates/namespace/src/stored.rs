//! Values of the versions on disk. Protobuf, so that fields can be added; stamps as differences to the version's own
//! stamp, so that a file just made costs about 45 bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use frieze_base::{InodeId, SessionId};
use frieze_hlc::Hlc;
use frieze_wire::acl::Acl;
use frieze_wire::forget::OwnedInodes;
use frieze_wire::message::FileKind;
use prost::Message;

use crate::cause::StoredCause;
use crate::error::Error;
use crate::horizons::{Expiry, Pins};
use crate::inode::{Extra, FileLayout, Inode, VersionAuthor, WriteGrant};
use crate::model::{NameEntry, SessionState};
use crate::patch::{Patch, PatchSource, lay};

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct StoredEntry {
    #[prost(uint64, tag = "1")]
    pub(crate) inode: u64,
    #[prost(enumeration = "FileKind", tag = "2")]
    pub(crate) kind: i32,
    #[prost(uint64, tag = "3")]
    pub(crate) session: u64,
    #[prost(uint32, tag = "4")]
    pub(crate) uid: u32,
}

/// A truncate: the patch that has no end and shows a hole.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct StoredHorizon {
    #[prost(sint64, tag = "1")]
    before: i64,
    #[prost(uint64, tag = "2")]
    len: u64,
}

/// Any other patch.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct StoredPatch {
    #[prost(sint64, tag = "1")]
    before: i64,
    #[prost(uint64, tag = "2")]
    start: u64,
    /// 0 for no end.
    #[prost(uint64, tag = "3")]
    len: u64,
    /// File whose older state shows; 0 for a hole.
    #[prost(uint64, tag = "4")]
    inode: u64,
    #[prost(uint64, tag = "5")]
    offset: u64,
    /// Stamp of the version minus the instant of that state.
    #[prost(sint64, tag = "6")]
    source_before: i64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct StoredGrant {
    #[prost(uint64, tag = "1")]
    session: u64,
    /// First and end of every range, alternating.
    #[prost(uint32, repeated, tag = "2")]
    bounds: Vec<u32>,
    #[prost(bool, tag = "3")]
    is_stopped: bool,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct StoredInode {
    #[prost(enumeration = "FileKind", tag = "1")]
    kind: i32,
    #[prost(uint32, tag = "2")]
    mode: u32,
    #[prost(uint32, tag = "3")]
    links: u32,
    #[prost(uint32, tag = "4")]
    uid: u32,
    #[prost(uint32, tag = "5")]
    gid: u32,
    #[prost(uint64, tag = "6")]
    size: u64,
    #[prost(uint64, tag = "7")]
    parent: u64,
    /// Stamp of the version minus that of birth; the next ones alike.
    #[prost(sint64, tag = "8")]
    born_before: i64,
    #[prost(sint64, tag = "9")]
    ctime_before: i64,
    #[prost(sint64, tag = "10")]
    mtime_before: i64,
    #[prost(sint64, tag = "11")]
    size_before: i64,
    /// Modification time minus that of its stamp, ns.
    #[prost(sint64, tag = "12")]
    mtime_off_ns: i64,
    /// Access time minus that of birth, ns.
    #[prost(sint64, tag = "13")]
    atime_off_ns: i64,
    #[prost(uint32, tag = "14")]
    chunk_bytes_log2: u32,
    #[prost(uint32, tag = "15")]
    chain_count: u32,
    #[prost(string, tag = "16")]
    plugin: String,
    #[prost(message, optional, tag = "17")]
    horizon: Option<StoredHorizon>,
    #[prost(message, repeated, tag = "18")]
    grants: Vec<StoredGrant>,
    #[prost(bytes = "vec", tag = "19")]
    target: Vec<u8>,
    #[prost(uint32, tag = "20")]
    rdev: u32,
    #[prost(uint64, repeated, tag = "21")]
    also_in: Vec<u64>,
    #[prost(sint64, optional, tag = "22")]
    orphaned_before: Option<i64>,
    #[prost(uint64, tag = "23")]
    pub(crate) session: u64,
    #[prost(uint32, tag = "24")]
    pub(crate) by_uid: u32,
    #[prost(message, repeated, tag = "25")]
    pub(crate) causes: Vec<StoredCause>,
    #[prost(message, repeated, tag = "26")]
    patches: Vec<StoredPatch>,
    /// The file whose user times come before its own; 0: none.
    #[prost(uint64, tag = "27")]
    origin: u64,
    /// Stamp of birth minus the instant up to which they do.
    #[prost(sint64, tag = "28")]
    origin_before: i64,
    /// The first chunk over whose end a record may reach.
    #[prost(uint32, optional, tag = "29")]
    reaches_from: Option<u32>,
    /// Stamp of the version minus that after which its own user times begin.
    #[prost(sint64, optional, tag = "30")]
    times_before: Option<i64>,
    /// The access list, in the kernel's bytes, where it says more than the mode. What the mode says is left out of it.
    #[prost(bytes = "vec", tag = "31")]
    acl: Vec<u8>,
    /// What is made in it begins with an access list.
    #[prost(bool, tag = "32")]
    has_default_acl: bool,
    /// Number of its policy of retention with what earlier ones have thinned.
    #[prost(uint32, tag = "34")]
    regime: u32,
    /// Stamp of the version minus that of the one whose cause has the name in the home.
    #[prost(sint64, tag = "33")]
    named_before: i64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct StoredXattr {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) value: Vec<u8>,
    #[prost(uint64, tag = "2")]
    pub(crate) session: u64,
    #[prost(uint32, tag = "3")]
    pub(crate) uid: u32,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct StoredSession {
    #[prost(uint32, tag = "1")]
    pub(crate) uid: u32,
    #[prost(string, tag = "2")]
    pub(crate) command: String,
    #[prost(string, tag = "3")]
    pub(crate) host: String,
    #[prost(bool, tag = "4")]
    pub(crate) keeps: bool,
    /// It has changed nothing.
    #[prost(bool, tag = "5")]
    pub(crate) unchanging: bool,
    /// When it ended, of one that changed nothing; 0 while it is open. Of others an absent version is the end.
    #[prost(uint64, tag = "6")]
    pub(crate) ended: u64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct StoredOutcome {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(bool, tag = "2")]
    pub(crate) existed: bool,
    #[prost(uint32, tag = "3")]
    pub(crate) reason: u32,
    #[prost(string, tag = "4")]
    pub(crate) message: String,
    /// Everything of the session below it is acknowledged; never 0, so that no value is empty.
    #[prost(uint64, tag = "5")]
    pub(crate) acked: u64,
    #[prost(uint64, tag = "6")]
    pub(crate) replaced: u64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct StoredSnapshot {
    #[prost(uint64, tag = "1")]
    pub(crate) at: u64,
    #[prost(uint32, tag = "2")]
    pub(crate) uid: u32,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct StoredFormat {
    #[prost(uint64, tag = "1")]
    pub(crate) chunk_bytes: u64,
    #[prost(uint32, tag = "2")]
    pub(crate) chain_count: u32,
    #[prost(uint32, tag = "3")]
    pub(crate) uid: u32,
    #[prost(uint32, tag = "4")]
    pub(crate) gid: u32,
    #[prost(uint32, tag = "5")]
    pub(crate) mode: u32,
}

/// That instants were forgotten, and which are kept all the same.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct StoredForgotten {
    #[prost(uint64, tag = "1")]
    before: u64,
    /// Of the superuser's snapshots.
    #[prost(uint64, repeated, tag = "2")]
    pins: Vec<u64>,
    #[prost(uint64, tag = "3")]
    root: u64,
    #[prost(bytes = "vec", tag = "4")]
    path: Vec<u8>,
    #[prost(uint32, tag = "5")]
    uid: u32,
    #[prost(bool, tag = "6")]
    through: bool,
    #[prost(message, repeated, tag = "7")]
    pins_of: Vec<StoredPins>,
}

/// The instants of the snapshots that another user than the superuser has made.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct StoredPins {
    #[prost(uint32, tag = "1")]
    uid: u32,
    #[prost(uint64, repeated, tag = "2")]
    pins: Vec<u64>,
}

/// Some of the inodes that a forgetting is about, packed.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct StoredForgottenInodes {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) named: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) nameless: Vec<u8>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) owners: Vec<OwnedInodes>,
}

impl StoredSession {
    pub(crate) fn of(session: &SessionState) -> StoredSession {
        let SessionState { opened: _, uid, command, host, keeps, unchanging } = session;
        StoredSession {
            uid: *uid,
            command: command.clone(),
            host: host.clone(),
            keeps: *keeps,
            unchanging: *unchanging,
            ended: 0,
        }
    }
}

impl StoredForgotten {
    pub(crate) fn of(forgetting: &Expiry) -> StoredForgotten {
        let mut of: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for (at, maker) in forgetting.pins.all() {
            of.entry(maker).or_default().push(at.0);
        }
        StoredForgotten {
            before: forgetting.before.0,
            pins: of.remove(&0).unwrap_or_default(),
            root: forgetting.root.0,
            path: forgetting.path.clone(),
            uid: forgetting.uid,
            through: forgetting.through,
            pins_of: of.into_iter().map(|(uid, pins)| StoredPins { uid, pins }).collect(),
        }
    }

    pub(crate) fn read(self) -> Expiry {
        let mut pins = Pins::default();
        let of = self.pins_of.into_iter().chain([StoredPins { uid: 0, pins: self.pins }]);
        for StoredPins { uid, pins: instants } in of {
            instants.into_iter().for_each(|at| pins.add(Hlc(at), uid));
        }
        Expiry {
            before: Hlc(self.before),
            pins,
            through: self.through,
            root: InodeId(self.root),
            path: self.path,
            uid: self.uid,
        }
    }
}

/// Inode numbers that are left out after losses, and up to which stamp grants may be lost.
pub(crate) fn read_loss(value: &[u8]) -> Result<(u64, Hlc), Error> {
    let numbers = value.split_first_chunk().and_then(|(last, rest)| Some((last, rest.try_into().ok()?)));
    let (last, upto) = numbers.ok_or(Error::Corrupt { what: "what losses took" })?;
    Ok((u64::from_le_bytes(*last), Hlc(u64::from_le_bytes(upto))))
}

/// The entry that a version stamped `from` holds.
pub(crate) fn read_entry(from: Hlc, value: &[u8]) -> Result<NameEntry, Error> {
    let corrupt = Error::Corrupt { what: "directory entry" };
    let stored: StoredEntry = decode(value, "directory entry")?;
    let kind = FileKind::try_from(stored.kind).map_err(|_| corrupt.clone())?;
    if !InodeId(stored.inode).is_valid() {
        return Err(corrupt);
    }
    Ok(NameEntry::new(InodeId(stored.inode), kind, from))
}

impl StoredInode {
    /// True if this is the value of a directory: the field of the kind comes first, and is left out of a file's.
    pub(crate) fn is_of_directory(value: &[u8]) -> bool {
        value.starts_with(&[8, FileKind::Directory as u8])
    }

    /// The value of this version, which `session` made on behalf of `by_uid`.
    pub(crate) fn of(inode: &Inode, session: SessionId, by_uid: u32, causes: Vec<StoredCause>) -> StoredInode {
        let before = |stamp: Hlc| inode.from.0.wrapping_sub(stamp.0) as i64;
        let mut stored = StoredInode {
            kind: inode.kind() as i32,
            mode: inode.mode.into(),
            links: inode.links,
            uid: inode.uid,
            gid: inode.gid,
            size: inode.size,
            parent: inode.parent.0,
            born_before: before(inode.born),
            ctime_before: before(inode.ctime),
            mtime_before: before(inode.mtime_stamp),
            size_before: before(inode.size_as_of),
            named_before: before(inode.named),
            mtime_off_ns: inode.mtime_ns.wrapping_sub(inode.mtime_stamp.unix_ns()),
            atime_off_ns: inode.atime_ns.wrapping_sub(inode.born.unix_ns()),
            chunk_bytes_log2: inode.layout.chunk_bytes.trailing_zeros(),
            chain_count: inode.layout.chain_count,
            plugin: inode.layout.plugin.clone(),
            regime: inode.layout.regime,
            session: session.0,
            by_uid,
            causes,
            ..StoredInode::default()
        };
        if let Some(extra) = &inode.extra {
            for patch in &extra.patches {
                let (before_it, start) = (before(patch.at), patch.start);
                let len = if patch.end == u64::MAX { 0 } else { patch.end - start };
                match patch.source {
                    PatchSource::Hole if len == 0 => {
                        stored.horizon = Some(StoredHorizon { before: before_it, len: start });
                    }
                    PatchSource::Hole => {
                        stored.patches.push(StoredPatch { before: before_it, start, len, ..StoredPatch::default() });
                    }
                    PatchSource::Shared { inode, offset, at } => stored.patches.push(StoredPatch {
                        before: before_it,
                        start,
                        len,
                        inode: inode.0,
                        offset,
                        source_before: before(at),
                    }),
                }
            }
            stored.grants = extra.grants.iter().map(StoredGrant::of).collect();
            stored.target = extra.target.to_vec();
            stored.rdev = extra.rdev;
            stored.also_in = extra.also_in.iter().map(|id| id.0).collect();
            if let Some((origin, at)) = extra.origin {
                (stored.origin, stored.origin_before) = (origin.0, inode.born.0.wrapping_sub(at.0) as i64);
            }
            stored.reaches_from = extra.reaches_from;
            stored.times_before = (extra.times_after != Hlc::ZERO).then(|| before(extra.times_after));
            stored.acl = extra.acl.as_ref().map_or(Vec::new(), |acl| acl.encode());
            stored.has_default_acl = extra.has_default_acl;
            stored.orphaned_before = (extra.orphaned != Hlc::ZERO).then(|| before(extra.orphaned));
        }
        stored
    }

    /// The value of the current version of an inode in memory. Its author is in it while there are grants.
    pub(crate) fn of_current(inode: &Inode) -> StoredInode {
        match inode.extra.as_ref().and_then(|extra| extra.made_by.as_deref()) {
            Some(VersionAuthor { session, uid, causes }) => StoredInode::of(inode, *session, *uid, causes.clone()),
            None => StoredInode::of(inode, SessionId(0), 0, Vec::new()),
        }
    }

    /// The author of the version.
    pub(crate) fn into_author(self) -> VersionAuthor {
        VersionAuthor { session: SessionId(self.session), uid: self.by_uid, causes: self.causes }
    }

    /// Reads the version stamped `from`; `share` gives one copy to all inodes of the same layout.
    pub(crate) fn read(
        from: Hlc,
        value: &[u8],
        share: impl FnOnce(FileLayout) -> Arc<FileLayout>,
    ) -> Result<(Inode, StoredInode), Error> {
        let mut stored: StoredInode = decode(value, "inode")?;
        let corrupt = Error::Corrupt { what: "inode" };
        let stamp = |before: i64| Hlc(from.0.wrapping_sub(before as u64));
        if FileKind::try_from(stored.kind).is_err() || stored.chunk_bytes_log2 > 62 || stored.mode > 0o7777 {
            return Err(corrupt);
        }
        let (born, mtime_stamp) = (stamp(stored.born_before), stamp(stored.mtime_before));
        let layout = FileLayout {
            chunk_bytes: 1 << stored.chunk_bytes_log2,
            chain_count: stored.chain_count,
            plugin: std::mem::take(&mut stored.plugin),
            regime: stored.regime,
        };
        let mut patches = Vec::new();
        if let Some(horizon) = &stored.horizon {
            lay(&mut patches, Patch::truncate(stamp(horizon.before), horizon.len));
        }
        for patch in &stored.patches {
            let end = if patch.len == 0 { Some(u64::MAX) } else { patch.start.checked_add(patch.len) };
            let source = match patch.inode {
                0 => PatchSource::Hole,
                inode => {
                    PatchSource::Shared { inode: InodeId(inode), offset: patch.offset, at: stamp(patch.source_before) }
                }
            };
            let end = end.ok_or(corrupt.clone())?;
            lay(&mut patches, Patch { at: stamp(patch.before), start: patch.start, end, source });
        }
        let acl = match stored.acl.as_slice() {
            [] => None,
            bytes => Acl::read(bytes).map_err(|_| corrupt.clone())?.map(Box::new),
        };
        let grants: Vec<WriteGrant> =
            stored.grants.iter().map(StoredGrant::read).collect::<Option<_>>().ok_or(corrupt)?;
        let made_by = (!grants.is_empty()).then(|| Box::new(stored.clone().into_author()));
        let extra = Extra {
            patches,
            grants,
            made_by,
            target: std::mem::take(&mut stored.target).into(),
            rdev: stored.rdev,
            also_in: stored.also_in.iter().map(|&id| InodeId(id)).collect(),
            orphaned: stored.orphaned_before.map_or(Hlc::ZERO, stamp),
            origin: (stored.origin != 0)
                .then(|| (InodeId(stored.origin), Hlc(born.0.wrapping_sub(stored.origin_before as u64)))),
            times_after: stored.times_before.map_or(Hlc::ZERO, stamp),
            reaches_from: stored.reaches_from,
            acl,
            has_default_acl: stored.has_default_acl,
        };
        let inode = Inode {
            from,
            born,
            ctime: stamp(stored.ctime_before),
            mtime_ns: stored.mtime_off_ns.wrapping_add(mtime_stamp.unix_ns()),
            mtime_stamp,
            atime_ns: stored.atime_off_ns.wrapping_add(born.unix_ns()),
            size: stored.size,
            size_as_of: stamp(stored.size_before),
            named: stamp(stored.named_before),
            parent: InodeId(stored.parent),
            layout: share(layout),
            links: stored.links,
            uid: stored.uid,
            gid: stored.gid,
            mode: stored.mode as u16,
            kind: stored.kind as u8,
            extra: (!extra.is_empty()).then(|| Box::new(extra)),
        };
        Ok((inode, stored))
    }
}

impl StoredGrant {
    fn of(grant: &WriteGrant) -> StoredGrant {
        let bounds = grant.chunks.iter().flat_map(|range| [range.start, range.end]).collect();
        StoredGrant { session: grant.session.0, bounds, is_stopped: grant.is_stopped }
    }

    fn read(&self) -> Option<WriteGrant> {
        let (pairs, []) = self.bounds.as_chunks::<2>() else { return None };
        let chunks = pairs.iter().map(|[a, b]| *a..*b).collect();
        Some(WriteGrant { session: SessionId(self.session), chunks, is_stopped: self.is_stopped })
    }
}

pub(crate) fn decode<M: Message + Default>(value: &[u8], what: &'static str) -> Result<M, Error> {
    M::decode(value).map_err(|_| Error::Corrupt { what })
}

#[cfg(test)]
mod tests;
