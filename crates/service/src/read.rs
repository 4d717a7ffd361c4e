//! Queries: attributes, names, bytes and versions, now and at any instant.
//!
//! Guarantees: an answer at an exact instant is the same for ever, outside gaps; the rights of then and the rights of
//! now are both checked; an answer of now is one state, not a mixture of two.

pub mod bytes;
mod differ;
mod holes;
mod user_time;

use std::sync::Arc;

use frieze_base::{Fault, InodeId, Reason, SessionId};
use frieze_coherence::CacheKey;
use frieze_hlc::Hlc;
use frieze_namespace::{Cached, Inode, Resolved, SessionState};
use frieze_planes::{Extent, FileVersion, Files, Planes, Principal};
use frieze_wire::message::{
    Access, Attr, BytesReply, DirEntry, FileKind, GetXattr, List, ListReply, Open, OpenReply, PATH_XATTR, ReadLink,
    Stat, StatReply, View,
};
use frieze_wire::quota::{QuotaUse, USAGE_XATTR, format_quota, parse_quota};
use frieze_wire::txn::{Caller, Target};
use frieze_wire::writers::{self, FileWriter, WRITERS_XATTR};

use crate::session::cache_leases::CacheLeaseRequest;
use crate::session::capability::{Bearer, Capability};
use crate::session::{Sessions, unknown_session};

/// Entries of a listing and versions of a log in one answer, unless the client asks for fewer.
const PAGE: usize = 1000;
/// Most entries that a client may ask for.
const PAGE_MAX: usize = 10_000;

pub(crate) fn page(count_max: u32) -> usize {
    if count_max == 0 { PAGE } else { (count_max as usize).min(PAGE_MAX) }
}

/// Answers about names, attributes and bytes, now and at any instant.
pub struct Reader {
    /// Names and bytes.
    pub planes: Arc<Planes>,
    /// Files over both planes.
    pub files: Arc<Files>,
    /// Sessions and what they hold.
    pub sessions: Arc<Sessions>,
}

impl Reader {
    /// Grants the session of `asking` a cache lease on an inode, if the lease can be recalled in time.
    pub(crate) fn give_inode(&self, asking: &mut CacheLeaseRequest, id: InodeId) {
        if !self.may_be_written_remotely(id) {
            self.sessions.caching.give_inode(asking, id);
        }
    }

    /// True if heads on other servers may answer writes to the inode: they do not know the cache leases of this server.
    /// So files are not cached in a cluster; names and directories, which only the leader changes, are.
    fn may_be_written_remotely(&self, id: InodeId) -> bool {
        self.planes.meta.is_member() && self.planes.meta.kind(id).is_none_or(|kind| kind == FileKind::File)
    }

    /// Resolves, and grants the session a cache lease on the entry, or on its absence, if it asked.
    fn resolve_granted(
        &self,
        principal: &Principal,
        target: &Target,
        view: View,
        asking: &mut CacheLeaseRequest,
    ) -> Result<Resolved, Fault> {
        if asking.session.is_none() || view.is_past() {
            return self.planes.resolve(principal, target, view.instant(), asking.reads());
        }
        // The lease before the answer: a change in between recalls it.
        if !target.path.is_empty() && !target.path.contains(&b'/') {
            self.sessions.caching.give_names(asking, InodeId(target.base));
        }
        let found = self.planes.resolve(principal, target, None, asking.reads())?;
        self.give_inode(asking, found.id);
        let inode = self.planes.meta.current(found.id);
        Ok(Resolved { inode: inode.unwrap_or(found.inode), ..found })
    }

    /// The inode in the version whose bytes `view` reads.
    fn version(&self, id: InodeId, inode: Inode, view: View) -> Result<FileVersion, Fault> {
        let at = view.instant();
        let Some(user) = view.user_time().filter(|_| inode.kind() == FileKind::File) else {
            return Ok(FileVersion::at(id, inode, at));
        };
        self.version_by_user_time(id, inode, user, at)
    }

    /// Attributes of an inode in this view, and whether later writes may still change what its user time shows.
    ///
    /// # Errors
    /// `Unavailable` if a server with a part of the file does not answer; those of the store.
    pub fn attr(&self, id: InodeId, inode: &Inode, view: View) -> Result<(Attr, bool), Fault> {
        let mut open = false;
        self.files.order_patches(id, inode)?;
        let (extent, bytes_live) = match self.version(id, inode.clone(), view) {
            Ok(seen) => {
                open = seen.user_time_open;
                let sources = self.files.sources(&seen.inode, 0, u64::MAX)?;
                let look = self.files.look_through(&[&seen], &[&sources])?;
                let extent = look.extent(&seen);
                let bytes_live = look.bytes_live(&seen, &sources, extent.size)?;
                (extent, bytes_live)
            }
            // A listing also shows a file without user time, or whose rows of then have expired; only opening it is
            // refused.
            Err(fault)
                if view.user_time().is_some()
                    && matches!(fault.reason, Reason::NoUserTime | Reason::HistoryExpired) =>
            {
                (Extent { size: 0, mtime_ns: inode.born.unix_ns(), data: None }, 0)
            }
            Err(fault) => return Err(fault),
        };
        // Writing changes a file's ctime as it does its mtime.
        let ctime_ns = extent.data.map_or(0, Hlc::unix_ns).max(inode.ctime_ns());
        let attr = Attr {
            inode: id.0,
            kind: inode.kind() as i32,
            mode: inode.mode.into(),
            has_acl: inode.has_acl(),
            links: inode.links,
            uid: inode.uid,
            gid: inode.gid,
            size: extent.size,
            bytes_live,
            atime_ns: inode.atime_ns,
            mtime_ns: extent.mtime_ns,
            ctime_ns,
            born: inode.born.0,
            rdev: inode.rdev(),
            chunk_bytes: inode.chunk_bytes(),
            time_plugin: inode.plugin().to_owned(),
            changed: extent.data.unwrap_or(Hlc::ZERO).max(inode.from).0,
        };
        Ok((attr, open))
    }

    pub(crate) fn stat(
        &self,
        principal: &Principal,
        ask: &Stat,
        asking: &mut CacheLeaseRequest,
    ) -> Result<StatReply, Fault> {
        let mut answered = self.planes.answer(ask.view)?;
        let found = self.resolve_granted(principal, &ask.target, ask.view, asking)?;
        if ask.recent && !found.inode.is_directory() {
            // Only the servers with its chains know the current length of a file.
            let words =
                "only a directory can be shown as it was last known: ask for a file as it is now, or at an instant";
            return Err(Fault::new(Reason::NotDirectory, words));
        }
        self.files.look_at_length(found.id, &found.inode, ask.view)?;
        let (attr, open) = self.attr(found.id, &found.inode, ask.view)?;
        answered.user_time_open = open;
        Ok(StatReply { attr, answered })
    }

    pub(crate) fn list(
        &self,
        principal: &Principal,
        ask: &List,
        asking: &mut CacheLeaseRequest,
    ) -> Result<ListReply, Fault> {
        let answered = self.planes.answer(ask.view)?;
        let at = ask.view.instant();
        let found = self.planes.resolve(principal, &ask.target, at, asking.reads())?;
        if !found.inode.is_directory() {
            return Err(Reason::NotDirectory.into());
        }
        if !(ask.by_handle && principal.privileged) {
            self.planes.check(principal, found.id, at, frieze_namespace::MAY_READ)?;
        }
        // A page with attributes is as many lookups: every entry may be cached, or none.
        let mut grants = asking.session.filter(|_| ask.with_attrs && !ask.view.is_past());
        if grants.is_some() {
            self.sessions.caching.give_names(asking, found.id);
            asking.holds.files_ms = u16::MAX;
        }
        asking.reads().add(Cached::Names(found.id));
        let max = page(ask.count_max);
        let mut listed = self.planes.meta.list(found.id, at, &ask.after, max.saturating_add(1))?;
        let more = listed.len() > max;
        listed.truncate(max);
        let mut entries = Vec::with_capacity(listed.len());
        for entry in listed {
            if let Some(session) = grants {
                let ms = match self.may_be_written_remotely(entry.inode) {
                    true => 0,
                    false => self.sessions.caching.give(session, CacheKey::inode(entry.inode)),
                };
                asking.holds.files_ms = asking.holds.files_ms.min(ms);
                grants = grants.filter(|_| asking.holds.files_ms > 0);
            }
            let attr = match ask.with_attrs {
                true => match self.planes.inode_at(entry.inode, at) {
                    Ok(inode) => Some(self.attr(entry.inode, &inode, ask.view)?.0),
                    // Removed since it was listed, or expired: the name is known, the attributes are not.
                    Err(fault) if matches!(fault.reason, Reason::NotFound | Reason::HistoryExpired) => None,
                    Err(fault) => return Err(fault),
                },
                false => None,
            };
            entries.push(DirEntry { name: entry.name, inode: entry.inode.0, kind: entry.kind as i32, attr });
        }
        // If history expired meanwhile, the page would mix attributes of before and after: check again.
        self.planes.check_kept(found.id, at)?;
        Ok(ListReply { entries, more, answered, inode: found.id.0, parent: found.inode.parent.0 })
    }

    pub(crate) fn read_link(
        &self,
        principal: &Principal,
        ask: &ReadLink,
        asking: &CacheLeaseRequest,
    ) -> Result<BytesReply, Fault> {
        self.planes.answer(ask.view)?;
        let target = Target { follow: false, ..ask.target.clone() };
        let found = self.planes.resolve(principal, &target, ask.view.instant(), asking.reads())?;
        if found.inode.kind() != FileKind::Symlink {
            return Err(Fault::new(Reason::InvalidArgument, "not a symbolic link"));
        }
        Ok(BytesReply { value: found.inode.symlink_target().to_vec() })
    }

    pub(crate) fn access(&self, principal: &Principal, ask: &Access, asking: &CacheLeaseRequest) -> Result<(), Fault> {
        self.planes.answer(ask.view)?;
        let at = ask.view.instant();
        let found = self.planes.resolve(principal, &ask.target, at, asking.reads())?;
        if ask.mask & frieze_namespace::MAY_WRITE != 0 && ask.view.is_past() {
            return Err(Reason::ReadOnly.into());
        }
        if ask.mask == 0 {
            return Ok(());
        }
        self.planes.check(principal, found.id, at, ask.mask)
    }

    pub(crate) fn get_xattr(
        &self,
        principal: &Principal,
        ask: &GetXattr,
        asking: &CacheLeaseRequest,
    ) -> Result<BytesReply, Fault> {
        self.planes.answer(ask.view)?;
        let at = ask.view.instant();
        let found = self.planes.resolve(principal, &ask.target, at, asking.reads())?;
        if ask.name == PATH_XATTR {
            return Ok(BytesReply { value: self.path_attribute(&principal.caller, found.id, at)? });
        }
        if ask.name == WRITERS_XATTR {
            return Ok(BytesReply { value: self.writers_attribute(principal, found.id, at)? });
        }
        if !ask.name.is_empty() {
            let mut value = self.planes.meta.xattr(found.id, &ask.name, at, &principal.caller)?;
            if ask.name == USAGE_XATTR
                && let Some(usage) = parse_quota(&value).filter(|usage| usage.quota.kept_max.is_some())
            {
                value = format_quota(&QuotaUse { kept: self.planes.kept.of(found.id), ..usage }).into_bytes();
            }
            return Ok(BytesReply { value });
        }
        let names = self.planes.meta.xattr_names(found.id, at, &principal.caller)?;
        let mut value = Vec::new();
        for name in names {
            value.extend_from_slice(&name);
            value.push(0);
        }
        Ok(BytesReply { value })
    }

    /// The path of an inode at an instant (`None`: now), or one of them, in a directory that the caller may list, then
    /// and now.
    ///
    /// # Errors
    /// `NoAttribute` if it has none.
    fn path_attribute(&self, caller: &Caller, id: InodeId, at: Option<Hlc>) -> Result<Vec<u8>, Fault> {
        if id == InodeId::ROOT {
            return Ok(b"/".to_vec());
        }
        let mut cut = self.planes.meta.history().tree_at(at.unwrap_or(Hlc::MAX), caller);
        for named in cut.names(id)? {
            if cut.may_list(named.parent)?
                && let Some(directory) = cut.path(named.parent)?
            {
                return Ok([&directory[..], b"/", &named.name].concat());
            }
        }
        let words = format!("inode {id} has no name that the caller may know: look for it with `frieze find`");
        Err(Fault::new(Reason::NoAttribute, words))
    }

    /// Sessions with write access to a regular file now.
    ///
    /// # Errors
    /// `NoAttribute` at a past instant, and for an inode that is no regular file; `AccessDenied` if the caller may
    /// neither read nor write it.
    fn writers_attribute(&self, principal: &Principal, id: InodeId, at: Option<Hlc>) -> Result<Vec<u8>, Fault> {
        let none = |words: &str| Err(Fault::new(Reason::NoAttribute, words));
        if at.is_some() {
            return none("who writes is told of now, not of the past: `frieze log` tells who has written");
        }
        self.planes
            .check(principal, id, None, frieze_namespace::MAY_READ)
            .or_else(|_| self.planes.check(principal, id, None, frieze_namespace::MAY_WRITE))?;
        let Some(sessions) = self.planes.meta.writers(id) else { return none("only a regular file has writers") };
        let writer = |(id, SessionState { uid, host, command, .. }): (SessionId, SessionState)| {
            let (host, command) =
                if self.planes.may_know_command(principal, uid) { (host, command) } else { Default::default() };
            FileWriter { session: id, uid, host, command }
        };
        let writers: Vec<FileWriter> = sessions.into_iter().map(writer).collect();
        Ok(writers::format_writers(&writers).into_bytes())
    }

    pub(crate) fn open_file(
        &self,
        principal: &Principal,
        session: SessionId,
        ask: &Open,
        asking: &mut CacheLeaseRequest,
    ) -> Result<OpenReply, Fault> {
        // An open file of now belongs to a session, which keeps it alive; a past state does not change.
        let bearer = match ask.view.at {
            Some(_) => Bearer::User(principal.uid),
            None if session == SessionId(0) => return Err(unknown_session(session)),
            None => Bearer::Session(session),
        };
        let mut answered = self.planes.answer(ask.view)?;
        let at = ask.view.instant();
        let found = self.resolve_granted(principal, &ask.target, ask.view, asking)?;
        match found.inode.kind() {
            FileKind::File => {}
            FileKind::Directory => return Err(Reason::IsDirectory.into()),
            FileKind::Symlink => return Err(Reason::SymlinkLoop.into()),
            _ => return Err(Fault::new(Reason::Unsupported, "a special file is opened by the kernel, not by frieze")),
        }
        if ask.write && ask.view.is_past() {
            return Err(Reason::ReadOnly.into());
        }
        let made_here =
            ask.made_at != 0 && found.inode.born.0 == ask.made_at && found.inode.uid == principal.caller.uid;
        if !made_here {
            let bit = |wanted: bool, bit: u32| if wanted { bit } else { 0 };
            let mask = bit(ask.read, frieze_namespace::MAY_READ) | bit(ask.write, frieze_namespace::MAY_WRITE);
            self.planes.check(principal, found.id, at, mask)?;
        }
        self.files.look_at_length(found.id, &found.inode, ask.view)?;
        // A file without user time cannot be opened at one.
        self.version(found.id, found.inode.clone(), ask.view)?;
        let (attr, open) = self.attr(found.id, &found.inode, ask.view)?;
        answered.user_time_open = open;
        if ask.view.at.is_none() {
            self.sessions.opened.add(session, found.id);
        }
        let opener = Some(principal.caller.uid).filter(|_| ask.view.at.is_none());
        let capability =
            Capability { bearer, inode: found.id, read: ask.read, write: ask.write, view: ask.view, opener };
        Ok(OpenReply { attr, capability: self.sessions.mint.seal(&capability), answered })
    }
}
