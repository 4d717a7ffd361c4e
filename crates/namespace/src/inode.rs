//! One version of an inode, as small in memory as it can be: what every file has is inline, what few have is boxed.

use std::ops::Range;
use std::sync::Arc;

use frieze_base::{Fault, InodeId, SessionId};
use frieze_hlc::Hlc;
use frieze_wire::acl::{Acl, AclNamedEntry};
use frieze_wire::frame::PAYLOAD_BYTES_MAX;
use frieze_wire::message::FileKind;
use frieze_wire::txn::Caller;

use crate::cause::StoredCause;
use crate::error::Error;
use crate::patch::{Patch, PatchSource, lay};

/// Bit of `check_access`: to read.
pub const MAY_READ: u32 = 4;
/// Bit of `check_access`: to write.
pub const MAY_WRITE: u32 = 2;
/// Bit of `check_access`: to execute, or to search a directory.
pub const MAY_EXECUTE: u32 = 1;

/// Set-user-id bit of a mode.
pub(crate) const SET_UID: u16 = 0o4000;
/// Set-group-id bit of a mode.
pub(crate) const SET_GID: u16 = 0o2000;
/// Sticky bit of a mode.
pub(crate) const STICKY: u16 = 0o1000;
/// Group-execute bit of a mode.
pub(crate) const GROUP_EXECUTE: u16 = 0o0010;
/// Directories of further names that an inode remembers; a file with more is reachable from anywhere.
const PLACES_KEPT_MAX: usize = 15;

/// The chunks that one session may write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteGrant {
    /// The session.
    pub session: SessionId,
    /// Chunk indexes, half-open, sorted, apart from each other.
    pub chunks: Vec<Range<u32>>,
    /// The session may write no more. What it has written counts for the length as before.
    pub is_stopped: bool,
}

/// How a file's bytes are laid out and what time they tell; inherited from the directory a file is made in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileLayout {
    /// Chunk size in bytes, a power of two.
    pub chunk_bytes: u64,
    /// Number of chains that chunks are spread over.
    pub chain_count: u32,
    /// Time plug-in as text; empty for none.
    pub plugin: String,
    /// Number of the policy of retention with what earlier ones have thinned; 0 for none.
    pub regime: u32,
}

/// One version of an inode. The id is that of the lookup and is not repeated here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Stamp of the change that made this version: it holds from then (inclusive) until the next.
    pub from: Hlc,
    /// Stamp of creation.
    pub born: Hlc,
    /// Stamp of the last change of attributes or names that POSIX counts. Data newer than it counts too.
    pub ctime: Hlc,
    /// Modification time as settled or set, in ns since the Unix epoch.
    pub mtime_ns: i64,
    /// Data stamped after it makes a newer mtime.
    pub mtime_stamp: Hlc,
    /// Access time, ns.
    pub atime_ns: i64,
    /// Settled length in bytes; of a symbolic link: of its target.
    pub size: u64,
    /// Data stamped after it may make the file longer. Of a directory: when its entries last changed.
    pub size_as_of: Hlc,
    /// Stamp of the version whose cause has the name in the home; ZERO if only links have its names. See
    /// [`crate::names_at`].
    pub named: Hlc,
    /// Directory that holds the (first known) name: the home. Its own id for the root, 0 when unknown.
    pub parent: InodeId,
    /// Chunk size, chains and time plug-in.
    pub layout: Arc<FileLayout>,
    /// Number of names; of a directory 2 and one for each subdirectory; 0 once the last name is gone.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Permission bits, with set-id and sticky bits, without the type.
    pub mode: u16,
    pub(crate) kind: u8,
    pub(crate) extra: Option<Box<Extra>>,
}

/// What few inodes have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extra {
    pub(crate) patches: Vec<Patch>,
    pub(crate) grants: Vec<WriteGrant>,
    pub(crate) target: Box<[u8]>,
    pub(crate) rdev: u32,
    /// Directories of the further names, one each, as far as known.
    pub(crate) also_in: Vec<InodeId>,
    /// When the last name went; ZERO while there is one.
    pub(crate) orphaned: Hlc,
    /// Whose user times, up to which instant, come before the file's own.
    pub(crate) origin: Option<(InodeId, Hlc)>,
    /// Records stamped up to here are none of the file's own, as to user times.
    pub(crate) times_after: Hlc,
    /// The first chunk over whose end a record may reach.
    pub(crate) reaches_from: Option<u32>,
    /// Its access list, if that says more than the mode. Its owner, mask and others are the mode's business, and
    /// nothing here.
    pub(crate) acl: Option<Box<Acl>>,
    /// What is made in the directory begins with an access list, which is among the extended attributes.
    pub(crate) has_default_acl: bool,
    /// The author of the current version; known while there are grants. A grant under which nothing was written goes
    /// from this version, so that it never was.
    pub(crate) made_by: Option<Box<VersionAuthor>>,
}

/// The author of a version of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VersionAuthor {
    pub(crate) session: SessionId,
    pub(crate) uid: u32,
    pub(crate) causes: Vec<StoredCause>,
}

impl Extra {
    /// True if it has nothing. Not by comparing it with one that has nothing: to compare two empty slices, the C
    /// library loads from where they are said to be, which is no place, and a processor with AVX-512 takes 75 ns to
    /// make nothing of that; twice an inode of a start.
    pub(crate) fn is_empty(&self) -> bool {
        let Extra {
            patches,
            grants,
            target,
            rdev,
            also_in,
            orphaned,
            origin,
            times_after,
            reaches_from,
            acl,
            has_default_acl,
            made_by,
        } = self;
        patches.is_empty()
            && grants.is_empty()
            && target.is_empty()
            && also_in.is_empty()
            && (*rdev, *orphaned, *times_after) == (0, Hlc::ZERO, Hlc::ZERO)
            && origin.is_none()
            && reaches_from.is_none()
            && acl.is_none()
            && !has_default_acl
            && made_by.is_none()
    }
}

impl FileLayout {
    /// True if they are the same; see [`Extra::is_empty`].
    pub(crate) fn is(&self, other: &FileLayout) -> bool {
        let FileLayout { chunk_bytes, chain_count, plugin, regime } = self;
        (*chunk_bytes, *chain_count, plugin.len(), *regime)
            == (other.chunk_bytes, other.chain_count, other.plugin.len(), other.regime)
            && (plugin.is_empty() || *plugin == other.plugin)
    }
}

impl Inode {
    /// In the place of one that a partial namespace does not have: whatever is done with it does not count.
    pub(crate) fn unknown() -> Inode {
        let layout = Arc::new(FileLayout { chunk_bytes: 1, chain_count: 1, plugin: String::new(), regime: 0 });
        Inode {
            from: Hlc::ZERO,
            born: Hlc::ZERO,
            ctime: Hlc::ZERO,
            mtime_ns: 0,
            mtime_stamp: Hlc::ZERO,
            atime_ns: 0,
            size: 0,
            size_as_of: Hlc::ZERO,
            named: Hlc::ZERO,
            parent: InodeId::default(),
            layout,
            links: 1,
            uid: 0,
            gid: 0,
            mode: 0,
            kind: FileKind::File as u8,
            extra: None,
        }
    }

    /// Entries of a directory changed: its times, and nothing else.
    pub(crate) fn change_entries(&mut self, stamp: Hlc) {
        self.from = stamp;
        self.ctime = stamp;
        self.mtime_stamp = stamp;
        self.mtime_ns = stamp.unix_ns();
        self.size_as_of = stamp;
    }

    /// What kind of thing it is.
    pub fn kind(&self) -> FileKind {
        FileKind::try_from(i32::from(self.kind)).expect("only codes of a FileKind are stored")
    }

    /// True for a directory.
    pub fn is_directory(&self) -> bool {
        self.kind() == FileKind::Directory
    }

    /// Ranges that truncates, clones, restores and undos decided, by offset, apart from each other.
    pub fn patches(&self) -> &[Patch] {
        self.extra.as_ref().map_or(&[], |extra| &extra.patches)
    }

    /// The parts of them in `start..end`, by offset.
    pub fn patches_in(&self, start: u64, end: u64) -> impl Iterator<Item = Patch> + '_ {
        let patches = self.patches();
        let from = patches.partition_point(|patch| patch.end <= start);
        patches[from..].iter().map_while(move |patch| patch.cut(start, end))
    }

    /// Which session may write which chunks. Not empty: length and mtime may be newer than settled, ask the data plane.
    pub fn grants(&self) -> &[WriteGrant] {
        self.extra.as_ref().map_or(&[], |extra| &extra.grants)
    }

    /// The chunks that any session may write, in order and apart from each other: many sessions that append to one file
    /// have grants on the same ones.
    pub fn granted_chunks(&self) -> Vec<Range<u32>> {
        let all = self.grants().iter().flat_map(|grant| &grant.chunks).filter(|chunks| !chunks.is_empty());
        let mut all: Vec<Range<u32>> = all.cloned().collect();
        all.sort_unstable_by_key(|chunks| chunks.start);
        all.dedup_by(|next, before| {
            let meets = next.start <= before.end;
            if meets {
                before.end = before.end.max(next.end);
            }
            meets
        });
        all
    }

    /// Where a symbolic link leads; empty for anything else.
    pub fn symlink_target(&self) -> &[u8] {
        self.extra.as_ref().map_or(&[], |extra| &extra.target)
    }

    /// Device number of a special file.
    pub fn rdev(&self) -> u32 {
        self.extra.as_ref().map_or(0, |extra| extra.rdev)
    }

    /// Time plug-in of the file, or of what is made in the directory; empty for none.
    pub fn plugin(&self) -> &str {
        &self.layout.plugin
    }

    /// Chunk size in bytes.
    pub fn chunk_bytes(&self) -> u64 {
        self.layout.chunk_bytes
    }

    /// Change time as metadata knows it, ns.
    pub fn ctime_ns(&self) -> i64 {
        self.ctime.unix_ns()
    }

    /// Of a clone or a restored file: the file and the instant whose user times come before its own; `None` if there
    /// were none.
    pub fn origin(&self) -> Option<(InodeId, Hlc)> {
        self.extra.as_ref().and_then(|extra| extra.origin)
    }

    /// The stamp after which records have user times of the file's own: of its newest cut to nothing, or restore; ZERO
    /// without.
    pub fn times_after(&self) -> Hlc {
        self.extra.as_ref().map_or(Hlc::ZERO, |extra| extra.times_after)
    }

    /// From `stamp` on the order of the file's user times begins anew, behind those of `origin`. A file without a time
    /// plug-in has none.
    pub(crate) fn begin_times(&mut self, stamp: Hlc, origin: Option<(InodeId, Hlc)>) {
        if !self.plugin().is_empty() {
            let extra = self.extra_mut();
            (extra.times_after, extra.origin) = (stamp, origin);
        }
    }

    /// True if a record of chunk `index` may hold bytes beyond the chunk's end: of the chunks after it.
    pub fn reaches_over(&self, index: u32) -> bool {
        self.reaches_from().is_some_and(|first| first <= index)
    }

    /// The first chunk over whose end a record may reach.
    pub fn reaches_from(&self) -> Option<u32> {
        self.extra.as_ref().and_then(|extra| extra.reaches_from)
    }

    /// Its access list, as far as it says more than the mode: owner, mask and others are those of the mode.
    pub(crate) fn acl(&self) -> Option<&Acl> {
        self.extra.as_ref().and_then(|extra| extra.acl.as_deref())
    }

    /// What users and groups may do with it: its access list, or the one that its mode stands for.
    pub fn access_list(&self) -> Acl {
        let mode = u32::from(self.mode);
        self.acl().map_or_else(|| Acl::of_mode(mode), |acl| acl.clone().with_mode(mode))
    }

    /// True if what is made in it begins with an access list.
    pub(crate) fn has_default_acl(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.has_default_acl)
    }

    /// True if it has an access list that says more than its mode, or one for what is made in it.
    pub fn has_acl(&self) -> bool {
        self.acl().is_some() || self.has_default_acl()
    }

    /// When it lost its last name; `None` while it has one.
    pub fn orphaned(&self) -> Option<Hlc> {
        self.extra.as_ref().map(|extra| extra.orphaned).filter(|&since| since != Hlc::ZERO)
    }

    pub(crate) fn extra_mut(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    /// True if it has a box with nothing in it, or an author that nothing needs.
    pub(crate) fn is_untrimmed(&self) -> bool {
        self.extra
            .as_deref()
            .is_some_and(|extra| extra.is_empty() || extra.grants.is_empty() && extra.made_by.is_some())
    }

    /// Gives back the box when nothing is in it: a file that was written and closed is as small as before.
    pub(crate) fn trim(&mut self) {
        if let Some(extra) = &mut self.extra {
            extra.made_by.take_if(|_| extra.grants.is_empty());
        }
        if self.extra.as_deref().is_some_and(Extra::is_empty) {
            self.extra = None;
        }
    }

    /// Directories known to hold a name of it, home first.
    pub(crate) fn places(&self) -> impl Iterator<Item = InodeId> {
        let also = self.extra.as_ref().map_or(&[][..], |extra| &extra.also_in);
        [self.parent].into_iter().filter(|home| home.0 != 0).chain(also.iter().copied())
    }

    /// A name was given to it in `directory`.
    pub(crate) fn add_place(&mut self, directory: InodeId) {
        if self.parent.0 == 0 {
            self.parent = directory;
        } else if self.extra.as_ref().is_none_or(|extra| extra.also_in.len() < PLACES_KEPT_MAX) {
            self.extra_mut().also_in.push(directory);
        }
    }

    /// One of several names was taken from it in `directory`.
    pub(crate) fn drop_place(&mut self, directory: InodeId) {
        if self.parent == directory {
            self.parent = self.extra.as_mut().and_then(|extra| extra.also_in.pop()).unwrap_or_default();
        } else if let Some(extra) = &mut self.extra
            && let Some(at) = extra.also_in.iter().position(|&place| place == directory)
        {
            extra.also_in.swap_remove(at);
        }
    }

    /// A name of it moved.
    pub(crate) fn move_place(&mut self, from: InodeId, to: InodeId) {
        if self.parent == from {
            self.parent = to;
        } else if let Some(extra) = &mut self.extra
            && let Some(place) = extra.also_in.iter_mut().find(|place| **place == from)
        {
            *place = to;
        }
    }

    /// True if this version lets a record of these bytes of the file count: it lies within the settled length, or where
    /// a session may write.
    pub fn counts_record(&self, start: u64, end: u64) -> bool {
        end <= self.size || self.granted_bytes().iter().any(|bytes| bytes.start <= start && end <= bytes.end)
    }

    /// Where sessions may write: the bytes of their chunks, and those that an append has over the end of the last. In
    /// order and apart from each other: a record may lie where one session may write, and another one behind it.
    fn granted_bytes(&self) -> Vec<Range<u64>> {
        let (chunk_bytes, reaches_from) = (self.chunk_bytes(), self.reaches_from().unwrap_or(u32::MAX));
        let mut all: Vec<Range<u64>> = Vec::new();
        for chunks in self.granted_chunks() {
            let reach = if chunks.end > reaches_from { PAYLOAD_BYTES_MAX.into() } else { 0 };
            let start = u64::from(chunks.start).saturating_mul(chunk_bytes);
            let end = u64::from(chunks.end).saturating_mul(chunk_bytes).saturating_add(reach);
            match all.last_mut().filter(|last| start <= last.end) {
                Some(last) => last.end = last.end.max(end),
                None => all.push(start..end),
            }
        }
        all
    }

    /// Hides what was written up to `upto` under grants that were lost: it lies beyond the settled length, in chunks
    /// without a grant. Bytes that count are not hidden. True if it is a file from before `upto`.
    ///
    /// Without any grant those records do not count for the length either. If there are grants they do, and read as
    /// zeros: what was written under the others is not settled yet.
    pub(crate) fn hide_lost(&mut self, upto: Hlc) -> bool {
        if self.kind() != FileKind::File || self.born >= upto {
            return false;
        }
        let mut granted: Vec<(u64, u64)> =
            self.granted_bytes().into_iter().map(|bytes| (bytes.start, bytes.end)).collect();
        if granted.is_empty() {
            self.size_as_of = self.size_as_of.max(upto);
        }
        // What a change of metadata shows there, it shows with the bytes before it. What is newer hides all of it.
        let stays = |patch: &&Patch| patch.at >= upto || patch.source != PatchSource::Hole;
        granted.extend(self.patches().iter().filter(stays).map(|patch| (patch.start, patch.end)));
        granted.push((u64::MAX, u64::MAX));
        granted.sort_unstable();
        let mut from = self.size;
        for (start, end) in granted {
            lay(&mut self.extra_mut().patches, Patch { at: upto, start: from, end: start, source: PatchSource::Hole });
            from = from.max(end);
        }
        true
    }

    /// True if `session` may write chunk `index`.
    pub fn may_write_chunk(&self, session: SessionId, index: u32) -> bool {
        let mut grants = self.grants().iter().filter(|grant| grant.session == session && !grant.is_stopped);
        grants.any(|grant| grant.chunks.iter().any(|r| r.contains(&index)))
    }
}

/// Checks that `caller` may do what `mask` asks for ([`MAY_READ`], [`MAY_WRITE`], [`MAY_EXECUTE`]) by mode and access
/// list of this version alone.
///
/// # Errors
/// `AccessDenied`.
pub fn check_access(inode: &Inode, caller: &Caller, mask: u32) -> Result<(), Fault> {
    if allows(inode, caller, mask) {
        return Ok(());
    }
    let list = if inode.acl().is_some() { " and the access list" } else { "" };
    let what = format!("mode {:04o} of user {} and group {}{list}", inode.mode, inode.uid, inode.gid);
    Err(Error::AccessDenied { what }.into())
}

/// Checks that the caller may change the access lists of an inode.
pub(crate) fn check_owns(caller: &Caller, inode: &Inode) -> Result<(), Error> {
    if caller.uid != 0 && caller.uid != inode.uid {
        return Err(Error::NotPermitted { why: "only the owner changes access lists" });
    }
    Ok(())
}

/// The mode after a change of owner or contents by a user without the right to keep set-id bits. Set-group-id
/// without group-execute is not a right to run as the group and stays.
pub(crate) fn without_set_id(mode: u16) -> u16 {
    let mode = mode & !SET_UID;
    if mode & GROUP_EXECUTE != 0 { mode & !SET_GID } else { mode }
}

pub(crate) fn allows(inode: &Inode, caller: &Caller, mask: u32) -> bool {
    let mode = u32::from(inode.mode);
    if caller.uid == 0 {
        // The superuser may do all, but execute only what some user may execute.
        return mask & MAY_EXECUTE == 0 || inode.is_directory() || mode & 0o111 != 0;
    }
    let class = if caller.uid == inode.uid {
        mode >> 6
    } else if let Some(acl) = inode.acl() {
        return listed(inode, acl, caller, mask);
    } else if caller.in_group(inode.gid) {
        mode >> 3
    } else {
        mode
    };
    class & mask == mask
}

/// The access check of an access list for anybody but the owner: the caller's own entry decides; else any entry of a
/// group of his that grants all that is asked; else, if no entry of a group is his, what all others may.
///
/// # Source
/// POSIX 1003.1e draft 17, 23.1.5; `acl(5)`. Linux asks an access list only if the mask grants something, and takes the
/// mode where it does not: a named user left nothing by the mask then has the rights of all others there, and none
/// here.
#[cold]
fn listed(inode: &Inode, acl: &Acl, caller: &Caller, mask: u32) -> bool {
    let mode = u32::from(inode.mode);
    let limit = mode >> 3;
    let grants = |permissions: u8| u32::from(permissions) & limit & mask == mask;
    if let Ok(at) = acl.users.binary_search_by_key(&caller.uid, |user| user.id) {
        return grants(acl.users[at].permissions);
    }
    let named =
        acl.groups.iter().filter(|group| caller.in_group(group.id)).map(|group: &AclNamedEntry| group.permissions);
    let mut groups = caller.in_group(inode.gid).then_some(acl.group).into_iter().chain(named).peekable();
    match groups.peek() {
        Some(_) => groups.any(grants),
        None => mode & mask == mask,
    }
}
