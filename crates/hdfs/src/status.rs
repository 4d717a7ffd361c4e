//! What clients are told of a file: attributes, and where its blocks are.

use std::net::IpAddr;

use frieze_client::{Attr, ByteRange, Caller, Error, FileKind, Fs, Target, View};

use crate::blocks::{self, BLOCK_BYTES, Pass, wall_ns};
use crate::locations::BlockLocation;
use crate::paths::shown;
use crate::proto::{
    self, ACL_BIT, DISK, FsPermission, HAS_ACL, HdfsFileStatus, LocatedBlock, LocatedBlocks, file_type,
};
use crate::service::Service;

/// How long a token is good for: as in HDFS.
const PASS_NS: u64 = 10 * 3600 * 1_000_000_000;
/// Generation of the blocks of a file that is read: they are never written again.
const READ_GENERATION: u64 = 1;

/// For whom something is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockClient<'a> {
    /// On whose behalf blocks will be read or written; `None` gives no right to.
    pub(crate) caller: Option<&'a Caller>,
    /// By which of its addresses it reached this server.
    pub(crate) reached: IpAddr,
    /// From which it came.
    pub(crate) peer: IpAddr,
}

impl Service {
    /// A file as clients know it, under a name in a directory; no name for the file that was asked for.
    pub(crate) fn status(&self, attr: &Attr, name: &[u8]) -> HdfsFileStatus {
        let is_directory = attr.kind() == FileKind::Directory;
        HdfsFileStatus {
            file_type: match attr.kind() {
                FileKind::Directory => file_type::DIRECTORY,
                FileKind::Symlink => file_type::SYMLINK,
                _ => file_type::FILE,
            },
            path: shown(name),
            length: if attr.kind() == FileKind::File { attr.size } else { 0 },
            permission: Some(FsPermission { perm: attr.mode & 0o1777 | if attr.has_acl { ACL_BIT } else { 0 } }),
            owner: self.names.user(attr.uid),
            group: self.names.group(attr.gid),
            modification_time: millis(attr.mtime_ns),
            access_time: if is_directory { 0 } else { millis(attr.atime_ns) },
            symlink: None,
            block_replication: Some(u32::from(!is_directory)),
            blocksize: Some(if is_directory { 0 } else { BLOCK_BYTES }),
            locations: None,
            file_id: Some(attr.inode),
            flags: attr.has_acl.then_some(HAS_ACL),
        }
    }

    /// The blocks that hold bytes of a range of a file, at a view.
    pub(crate) fn located(
        &self,
        reader: BlockClient<'_>,
        attr: &Attr,
        view: View,
        offset: u64,
        len: u64,
    ) -> LocatedBlocks {
        let located = |(start, len)| self.readable(reader, attr, view, start, len);
        let last = attr.size.checked_sub(1).map(|last| last / BLOCK_BYTES * BLOCK_BYTES);
        LocatedBlocks {
            file_length: attr.size,
            blocks: blocks::spans(attr.size, offset, len).map(located).collect(),
            under_construction: !view.is_past() && self.leases.is_held(attr.inode),
            last_block: last.map(|start| located((start, attr.size - start))),
            is_last_block_complete: true,
        }
    }

    fn readable(&self, reader: BlockClient<'_>, attr: &Attr, view: View, start: u64, len: u64) -> LocatedBlock {
        let inode = attr.inode;
        let places = self.places_to_read(reader, attr, ByteRange::new(start, start + len));
        let pass = Pass { inode, start, len, at: view.at, user_at: view.user_at, ..Pass::default() };
        self.block(reader, start, blocks::extended(inode, start, len, READ_GENERATION), pass, &places)
    }

    /// A block that is to be written.
    pub(crate) fn writable(
        &self,
        reader: BlockClient<'_>,
        lease: &crate::leases::FileLease,
        block: crate::leases::OpenBlock,
        len: u64,
        places: &[BlockLocation],
    ) -> LocatedBlock {
        let (inode, start) = (lease.inode, block.start);
        let door = self.own_place(reader).at.to_string();
        let pass = Pass { inode, start, len: lease.block_bytes, lease: lease.id, door, ..Pass::default() };
        self.block(reader, start, blocks::extended(inode, start, len, block.generation), pass, places)
    }

    fn block(
        &self,
        reader: BlockClient<'_>,
        offset: u64,
        named: proto::ExtendedBlock,
        pass: Pass,
        places: &[BlockLocation],
    ) -> LocatedBlock {
        let token = reader.caller.cloned().map(|Caller { uid, gid, groups }| {
            let expires_ns = wall_ns() + PASS_NS;
            self.mint.sign(&Pass { uid, gid, groups, expires_ns, ..pass })
        });
        LocatedBlock {
            b: Some(named),
            offset,
            locs: places.iter().map(BlockLocation::told).collect(),
            corrupt: false,
            block_token: Some(token.unwrap_or_default()),
            is_cached: vec![false; places.len()],
            storage_types: vec![DISK; places.len()],
            storage_ids: places.iter().map(|place| place.name.clone()).collect(),
        }
    }
}

/// The mode of what is made, and the umask, which counts only where no default list does: clients name the mode with and without it.
pub(crate) fn new_mode(masked: Option<&FsPermission>, unmasked: Option<&FsPermission>, usual: u32) -> (u32, u32) {
    let masked = masked.map_or(usual, |masked| masked.perm) & 0o1777;
    match unmasked.map(|unmasked| unmasked.perm & 0o1777) {
        Some(unmasked) if unmasked & masked == masked => (unmasked, unmasked & !masked & 0o777),
        _ => (masked, 0),
    }
}

/// What a name in a directory stands for: of a symbolic link, what it leads to, if that is there.
pub(crate) fn followed(fs: &Fs, target: &Target, attr: Attr) -> Result<Attr, Error> {
    if attr.kind() != FileKind::Symlink {
        return Ok(attr);
    }
    match fs.stat(&Target { follow: true, ..target.clone() }) {
        Ok(found) => Ok(found.attr),
        Err(Error::Refused(_)) => Ok(attr),
        Err(error) => Err(error),
    }
}

fn millis(ns: i64) -> u64 {
    u64::try_from(ns.div_euclid(1_000_000)).unwrap_or(0)
}
