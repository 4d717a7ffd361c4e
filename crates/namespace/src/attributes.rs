//! Attributes: mode, owner, length, times, extended attributes. Checks are those of Linux (`setattr_prepare`,
//! `xattr(7)`).

use frieze_base::{InodeId, NAME_BYTES_MAX};
use frieze_hlc::Hlc;
use frieze_wire::acl::is_acl;
use frieze_wire::message::{FileKind, VersionKind};
use frieze_wire::quota::{QUOTA_XATTR, Quota, TreeUsage, USAGE_XATTR};
use frieze_wire::txn::{Caller, RemoveXattr, SetAttr, SetXattr, Settle, TimeValue};
use prost::Message;

use crate::apply::{OpResult, TxnRun};
use crate::error::{Error, lossy};
use crate::inode::{FileLayout, Inode, MAY_WRITE, SET_GID, STICKY, allows, check_owns, without_set_id};
use crate::key::VersionKey;
use crate::model::Xattrs;
use crate::namespace::Namespace;
use crate::patch::{Patch, lay};
use crate::stored::StoredXattr;

/// The extended attribute of a directory that binds a time plug-in to what is made in it.
pub const PLUGIN_XATTR: &[u8] = b"user.frieze.time";
/// Longest value of an extended attribute, bytes (Linux: `XATTR_SIZE_MAX`).
const XATTR_BYTES_MAX: usize = 64 << 10;
/// Names and values of all extended attributes of one inode, bytes.
const XATTRS_BYTES_MAX: usize = 256 << 10;
/// Longest text of a time plug-in, bytes: it is repeated in every version of what inherits it.
const PLUGIN_BYTES_MAX: usize = 1024;

/// Flag of `SetXattr`: the attribute must be new.
const XATTR_CREATE: u32 = 1;
/// Flag of `SetXattr`: the attribute must be there.
const XATTR_REPLACE: u32 = 2;

/// Classes of extended attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum XattrClass {
    User,
    Trusted,
    Security,
    /// An access list.
    Acl,
}

impl Namespace {
    pub(crate) fn set_attr(&mut self, run: &mut TxnRun<'_>, op: &SetAttr) -> Result<OpResult, Error> {
        let (id, inode) = self.subject(run, &op.target)?;
        check_set_attr(run.caller, &inode, op)?;
        let settled = op.settled.as_ref().filter(|settled| settled.inode == id.0 && is_current(&inode, settled));
        let size = op.size.filter(|len| !op.extend || *len > length_of(&inode, settled));
        let nothing = size.is_none() && op.mode.is_none() && op.uid.is_none() && op.gid.is_none();
        if nothing && op.atime.is_none() && op.mtime.is_none() {
            return Ok(OpResult::with(id));
        }
        let grows = size.map_or(0, |len| len.saturating_sub(length_of(&inode, settled)));
        if grows > 0 && inode.orphaned().is_none() && inode.parent.0 != 0 {
            self.check_room(inode.parent, TreeUsage { files: 0, bytes: grows }, None)?;
        }
        let (caller, stamp) = (run.caller, run.stamp);
        let inode = self.edit(run, id);
        if let Some(settled) = settled {
            absorb(inode, settled);
        }
        if op.uid.is_some() || op.gid.is_some() {
            inode.uid = op.uid.unwrap_or(inode.uid);
            inode.gid = op.gid.unwrap_or(inode.gid);
            if !inode.is_directory() {
                inode.mode = without_set_id(inode.mode);
            }
        }
        if let Some(mode) = op.mode {
            inode.mode = (mode & 0o7777) as u16;
            if caller.uid != 0 && !caller.in_group(inode.gid) {
                inode.mode &= !SET_GID;
            }
        }
        if let Some(len) = size {
            let races = op.settled.as_ref().is_some_and(|settled| settled.complete.is_some());
            match op.extend && races {
                true => extend(inode, stamp, len),
                false => truncate(inode, stamp, len, op.settled.is_some() && !races),
            }
            if op.times_anew && len == 0 {
                // No row is left: the first one of now need not come behind the last one of before.
                inode.begin_times(stamp, None);
            }
            if caller.uid != 0 && op.mode.is_none() {
                inode.mode = without_set_id(inode.mode);
            }
        }
        let ns = |value: TimeValue| if value.now { stamp.unix_ns() } else { value.ns };
        if let Some(atime) = op.atime {
            inode.atime_ns = ns(atime);
        }
        if let Some(mtime) = op.mtime {
            inode.mtime_ns = ns(mtime);
            inode.mtime_stamp = stamp;
        }
        inode.ctime = stamp;
        let kind = if size.is_some() { VersionKind::Truncate } else { VersionKind::SetAttr };
        run.note_cause(id, kind, b"");
        Ok(OpResult::with(id))
    }

    pub(crate) fn set_xattr(&mut self, run: &mut TxnRun<'_>, op: &SetXattr) -> Result<OpResult, Error> {
        let (id, inode) = self.subject(run, &op.target)?;
        check_xattr_change(run.caller, &inode, &op.name)?;
        if is_acl(&op.name) {
            return self.set_acl_xattr(run, id, op);
        }
        if op.value.len() > XATTR_BYTES_MAX {
            let (bytes, bytes_max) = (op.value.len() as u64, XATTR_BYTES_MAX as u64);
            return Err(Error::TooLarge { what: "an attribute value", bytes, bytes_max });
        }
        let all = self.xattrs.get(&id);
        let present = all.and_then(|all| all.get(op.name.as_slice()));
        match present {
            _ if op.flags > XATTR_CREATE | XATTR_REPLACE => {
                return Err(Error::InvalidArgument { why: "unknown flags of an extended attribute" });
            }
            Some(_) if op.flags & XATTR_CREATE != 0 => return Err(Error::exists(&op.name)),
            None if op.flags & XATTR_REPLACE != 0 => return Err(Error::NoAttribute { name: lossy(&op.name) }),
            _ => {}
        }
        let others = all.into_iter().flatten().filter(|(name, _)| ***name != *op.name);
        let bytes = others.map(|(n, v)| n.len() + v.len()).sum::<usize>() + op.name.len() + op.value.len();
        if bytes > XATTRS_BYTES_MAX {
            return Err(Error::AttributesFull { bytes, bytes_max: XATTRS_BYTES_MAX });
        }
        if op.name == QUOTA_XATTR {
            check_quota(&inode, &op.value)?;
        }
        if op.name == PLUGIN_XATTR {
            let plugin = check_plugin(&inode, &op.value)?;
            self.bind_plugin(run, id, plugin);
        }
        self.xattrs.entry(id).or_default().insert(op.name.as_slice().into(), op.value.as_slice().into());
        if op.name == QUOTA_XATTR {
            self.quota_changed(id);
        }
        let stored = StoredXattr { value: op.value.clone(), session: run.session.0, uid: run.caller.uid };
        run.change(VersionKey::Xattr(id, &op.name), Some(stored.encode_to_vec()));
        self.xattrs_changed(run, id);
        Ok(OpResult::with(id))
    }

    pub(crate) fn remove_xattr(&mut self, run: &mut TxnRun<'_>, op: &RemoveXattr) -> Result<OpResult, Error> {
        let (id, inode) = self.subject(run, &op.target)?;
        check_xattr_change(run.caller, &inode, &op.name)?;
        if is_acl(&op.name) {
            return self.remove_acl_xattr(run, id, op);
        }
        let Some(all) = self.xattrs.get_mut(&id).filter(|all| all.contains_key(op.name.as_slice())) else {
            return Err(Error::NoAttribute { name: lossy(&op.name) });
        };
        all.remove(op.name.as_slice());
        if all.is_empty() {
            self.xattrs.remove(&id);
        }
        if op.name == PLUGIN_XATTR {
            self.bind_plugin(run, id, String::new());
        }
        if op.name == QUOTA_XATTR {
            self.quota_changed(id);
        }
        run.change(VersionKey::Xattr(id, &op.name), None);
        self.xattrs_changed(run, id);
        Ok(OpResult::with(id))
    }

    fn xattrs_changed(&mut self, run: &mut TxnRun<'_>, id: InodeId) {
        let stamp = run.stamp;
        self.edit(run, id).ctime = stamp;
        run.note_cause(id, VersionKind::SetAttr, b"");
    }

    pub(crate) fn bind_plugin(&mut self, run: &mut TxnRun<'_>, id: InodeId, plugin: String) {
        let old = &self.edit(run, id).layout;
        let layout = FileLayout { plugin, ..FileLayout::clone(old) };
        let shared = self.share(layout);
        self.edit(run, id).layout = shared;
    }
}

/// Takes over what the data plane knows of length and mtime, unless something newer is known. True if anything changed.
pub(crate) fn absorb(inode: &mut Inode, settled: &Settle) -> bool {
    let stamp = Hlc(settled.stamp);
    let before = (inode.size, inode.size_as_of, inode.mtime_ns, inode.mtime_stamp);
    if stamp > inode.size_as_of {
        // A change may have made it longer since it was measured (see [`extend`]); what makes it shorter says so in
        // `size_as_of`.
        inode.size = if settled.complete.is_some() { settled.size.max(inode.size) } else { settled.size };
        inode.size_as_of = settled.complete.map_or(stamp, |complete| inode.size_as_of.max(Hlc(complete)));
    }
    if settled.mtime_ns != 0 && stamp > inode.mtime_stamp {
        inode.mtime_ns = settled.mtime_ns;
        inode.mtime_stamp = stamp;
        inode.ctime = inode.ctime.max(stamp);
    }
    before != (inode.size, inode.size_as_of, inode.mtime_ns, inode.mtime_stamp)
}

/// True unless it was measured while writers went on, and the length was settled anew since: what was counted may be
/// hidden now.
pub(crate) fn is_current(inode: &Inode, settled: &Settle) -> bool {
    settled.complete.is_none() || Hlc(settled.since) == inode.size_as_of
}

/// The length of a file, with what the data plane just said of it.
fn length_of(inode: &Inode, settled: Option<&Settle>) -> u64 {
    match settled {
        Some(settled) if Hlc(settled.stamp) > inode.size_as_of => settled.size,
        _ => inode.size,
    }
}

/// Sets the length. `exact`: the server vouches that it just told the length, with no write in between.
fn truncate(inode: &mut Inode, stamp: Hlc, len: u64, exact: bool) {
    // Growing a file hides nothing, unless a writer may already have written beyond.
    if len < inode.size || !(exact || inode.grants().is_empty()) {
        lay(&mut inode.extra_mut().patches, Patch::truncate(stamp, len));
    }
    inode.size = len;
    inode.size_as_of = stamp;
    inode.mtime_ns = stamp.unix_ns();
    inode.mtime_stamp = stamp;
}

/// Makes a file longer while writers may make it longer still: what they have written is neither hidden nor forgotten.
fn extend(inode: &mut Inode, stamp: Hlc, len: u64) {
    inode.size = inode.size.max(len);
    inode.mtime_ns = stamp.unix_ns();
    inode.mtime_stamp = stamp;
}

fn check_set_attr(caller: &Caller, inode: &Inode, op: &SetAttr) -> Result<(), Error> {
    let owns = caller.uid == 0 || caller.uid == inode.uid;
    if let Some(len) = op.size {
        match inode.kind() {
            FileKind::File => {}
            FileKind::Directory => return Err(Error::is_directory(&op.target.path)),
            _ => return Err(Error::InvalidArgument { why: "only a regular file has a length to set" }),
        }
        let bytes_max = file_bytes_max(inode.chunk_bytes());
        if len > bytes_max {
            return Err(Error::TooLarge { what: "a length", bytes: len, bytes_max });
        }
        if !op.by_handle && !allows(inode, caller, MAY_WRITE) {
            return Err(Error::denied("writing", &op.target.path));
        }
    }
    if caller.uid != 0 {
        let keeps_uid = op.uid.is_none_or(|uid| owns && uid == inode.uid);
        let keeps_gid = op.gid.is_none_or(|gid| owns && (gid == inode.gid || caller.in_group(gid)));
        if !keeps_uid || !keeps_gid {
            return Err(Error::NotPermitted { why: "only the superuser gives a file away" });
        }
    }
    if op.mode.is_some() {
        if !owns {
            return Err(Error::NotPermitted { why: "only the owner changes the mode" });
        }
        if inode.kind() == FileKind::Symlink {
            return Err(Error::Unsupported { what: "a mode of a symbolic link" });
        }
    }
    if !owns && (op.atime.is_some() || op.mtime.is_some()) {
        // A truncate brings the time of now along.
        let now = |time: Option<TimeValue>, absent: bool| time.map_or(absent, |time| time.now);
        let absent = op.size.is_some();
        if !(now(op.atime, absent) && now(op.mtime, absent)) {
            return Err(Error::NotPermitted { why: "only the owner sets times other than now" });
        }
        if !op.by_handle && !allows(inode, caller, MAY_WRITE) {
            return Err(Error::denied("touching", &op.target.path));
        }
    }
    Ok(())
}

/// Largest length of a file with chunks of this size: 2^32 - 1 chunks, as far as signed offsets go.
pub(crate) fn file_bytes_max(chunk_bytes: u64) -> u64 {
    chunk_bytes.saturating_mul(u32::MAX.into()).min(i64::MAX as u64)
}

/// Checks what an inode's extended attributes would take together.
pub(crate) fn check_xattrs_size(all: &Xattrs) -> Result<(), Error> {
    let bytes = all.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > XATTRS_BYTES_MAX {
        return Err(Error::AttributesFull { bytes, bytes_max: XATTRS_BYTES_MAX });
    }
    Ok(())
}

pub(crate) fn check_xattr_name(name: &[u8]) -> Result<XattrClass, Error> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(Error::AttributeName { bytes: name.len() });
    }
    if is_acl(name) {
        return Ok(XattrClass::Acl);
    }
    let classes: [(&[u8], XattrClass); 3] =
        [(b"user.", XattrClass::User), (b"trusted.", XattrClass::Trusted), (b"security.", XattrClass::Security)];
    match classes.into_iter().find(|(prefix, _)| name.starts_with(prefix)) {
        Some((prefix, _)) if prefix == name || name.contains(&0) => {
            Err(Error::InvalidArgument { why: "an attribute has a name after its class, without NUL" })
        }
        Some((_, class)) => Ok(class),
        None => Err(Error::Unsupported {
            what: "extended attributes other than user, trusted, security and the access lists of POSIX",
        }),
    }
}

pub(crate) fn check_xattr_change(caller: &Caller, inode: &Inode, name: &[u8]) -> Result<(), Error> {
    let owns = caller.uid == 0 || caller.uid == inode.uid;
    if name == USAGE_XATTR {
        return Err(Error::NotPermitted { why: "what is used of a quota is counted, not set" });
    }
    match check_xattr_name(name)? {
        XattrClass::User => {
            if !matches!(inode.kind(), FileKind::File | FileKind::Directory) {
                return Err(Error::NotPermitted { why: "user attributes belong to files and directories only" });
            }
            if inode.is_directory() && inode.mode & STICKY != 0 && !owns {
                return Err(Error::NotPermitted { why: "the directory is sticky: only its owner sets attributes" });
            }
            if !allows(inode, caller, MAY_WRITE) {
                return Err(Error::denied("setting", name));
            }
        }
        XattrClass::Trusted | XattrClass::Security => {
            if caller.uid != 0 {
                return Err(Error::NotPermitted { why: "only the superuser sets trusted and security attributes" });
            }
        }
        XattrClass::Acl => check_owns(caller, inode)?,
    }
    Ok(())
}

fn check_quota(inode: &Inode, value: &[u8]) -> Result<(), Error> {
    if !inode.is_directory() {
        return Err(Error::InvalidArgument { why: "a quota is that of a directory" });
    }
    Quota::parse(value).map(drop).map_err(|why| Error::InvalidArgument { why })
}

pub(crate) fn check_plugin(inode: &Inode, value: &[u8]) -> Result<String, Error> {
    if !inode.is_directory() {
        return Err(Error::InvalidArgument { why: "a time plug-in is bound to a directory" });
    }
    if value.len() > PLUGIN_BYTES_MAX {
        return Err(Error::InvalidArgument { why: "a time plug-in is at most 1,024 bytes of text" });
    }
    let text =
        std::str::from_utf8(value).map_err(|_| Error::InvalidArgument { why: "a time plug-in is UTF-8 text" })?;
    Ok(text.to_owned())
}
