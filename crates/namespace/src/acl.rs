//! Access lists: set, removed, inherited. Semantics are those of Linux (`acl(5)`, `posix_acl(9)`), the check is in
//! [`crate::inode`].
//!
//! Guarantees: mode and access list never contradict each other, for each bit is kept once. An access list that says no
//! more than a mode is a change of the mode and nothing else. One that says more is an extended attribute, with all of
//! the history that these have, whose entries of owner, mask and others are left blank: these are the mode's, so a
//! chmod changes the mode alone. The inode of each version repeats it, for a check of rights looks at an inode and
//! nothing else.

use std::borrow::Cow;

use frieze_base::InodeId;
use frieze_wire::acl::{ACCESS_ACL_XATTR, Acl, DEFAULT_ACL_XATTR};
use frieze_wire::message::{FileKind, VersionKind};
use frieze_wire::txn::{RemoveXattr, SetAcl, SetXattr};
use prost::Message;

use crate::apply::{OpResult, TxnRun};
use crate::attributes::check_xattrs_size;
use crate::error::Error;
use crate::inode::{Extra, Inode, SET_GID, check_owns};
use crate::key::VersionKey;
use crate::namespace::Namespace;
use crate::stored::StoredXattr;

/// The access lists of a file: its own, and that of what is made in it.
#[derive(Debug, Default)]
struct AclChange {
    /// Set to none: the mode stays and says all.
    access: Option<Option<Acl>>,
    /// Set to none: removed.
    default: Option<Option<Acl>>,
}

impl Namespace {
    pub(crate) fn set_acl(&mut self, run: &mut TxnRun<'_>, op: &SetAcl) -> Result<OpResult, Error> {
        let (id, inode) = self.subject(run, &op.target)?;
        let superseded = || Error::Superseded { what: format!("the access list of inode {id}") };
        if op.expect_access.as_ref().is_some_and(|expect| *expect != inode.access_list().encode()) {
            return Err(superseded());
        }
        let default = self.xattrs.get(&id).and_then(|all| all.get(DEFAULT_ACL_XATTR)).map_or(&[][..], |value| value);
        if op.expect_default.as_ref().is_some_and(|expect| *expect != default) {
            return Err(superseded());
        }
        let kind = inode.kind();
        let read = |name, bytes: &[u8]| if bytes.is_empty() { Ok(None) } else { check_acl(kind, name, bytes) };
        let access = op.access.as_deref().map(|bytes| read(ACCESS_ACL_XATTR, bytes)).transpose()?;
        let default = op.default_list.as_deref().map(|bytes| read(DEFAULT_ACL_XATTR, bytes)).transpose()?;
        self.set_lists(run, id, AclChange { access, default })
    }

    /// As Linux sets one: a list without entries removes it.
    pub(crate) fn set_acl_xattr(
        &mut self,
        run: &mut TxnRun<'_>,
        id: InodeId,
        op: &SetXattr,
    ) -> Result<OpResult, Error> {
        let acl = check_acl(self.live_inode(id)?.kind(), &op.name, &op.value)?;
        self.set_list(run, id, &op.name, acl)
    }

    /// Nothing happens if there is none, as on other file systems.
    pub(crate) fn remove_acl_xattr(
        &mut self,
        run: &mut TxnRun<'_>,
        id: InodeId,
        op: &RemoveXattr,
    ) -> Result<OpResult, Error> {
        self.set_list(run, id, &op.name, None)
    }

    fn set_list(
        &mut self,
        run: &mut TxnRun<'_>,
        id: InodeId,
        name: &[u8],
        acl: Option<Acl>,
    ) -> Result<OpResult, Error> {
        let lists = match name == ACCESS_ACL_XATTR {
            true => AclChange { access: Some(acl), ..AclChange::default() },
            false => AclChange { default: Some(acl), ..AclChange::default() },
        };
        self.set_lists(run, id, lists)
    }

    fn set_lists(&mut self, run: &mut TxnRun<'_>, id: InodeId, lists: AclChange) -> Result<OpResult, Error> {
        let inode = self.live_inode(id)?;
        check_owns(run.caller, &inode)?;
        let mut all = self.xattrs.get(&id).cloned().unwrap_or_default();
        let mut changes = Vec::new();
        let mut change = |name: &'static [u8], acl: Option<Acl>| {
            let value = acl.map(|acl| acl.encode());
            match &value {
                Some(value) => drop(all.insert(name.into(), value.as_slice().into())),
                None if all.remove(name).is_none() => return,
                None => {}
            }
            changes.push((name, value));
        };
        if let Some(access) = &lists.access {
            change(ACCESS_ACL_XATTR, access.as_ref().and_then(blank));
        }
        if let Some(default) = lists.default {
            change(DEFAULT_ACL_XATTR, default);
        }
        check_xattrs_size(&all)?;
        let (caller, stamp) = (run.caller, run.stamp);
        let inode = self.edit(run, id);
        // An access list that is removed leaves the group the rights of its mask, as on other file systems.
        if let Some(Some(access)) = &lists.access {
            inode.mode = inode.mode & 0o7000 | access.mode() as u16;
            if caller.uid != 0 && !caller.in_group(inode.gid) {
                inode.mode &= !SET_GID;
            }
        }
        inode.ctime = stamp;
        for (name, value) in changes {
            self.bind_acl(run, id, name, value.as_deref());
            let stored = value.map(|value| StoredXattr { value, session: run.session.0, uid: run.caller.uid });
            run.change(VersionKey::Xattr(id, name), stored.map(|stored| stored.encode_to_vec()));
        }
        match all.is_empty() {
            true => self.xattrs.remove(&id),
            false => self.xattrs.insert(id, all),
        };
        run.note_cause(id, VersionKind::SetAttr, b"");
        Ok(OpResult::with(id))
    }

    /// An extended attribute of an inode has another value or none: if it is an access list, the inode repeats it.
    pub(crate) fn bind_acl(&mut self, run: &mut TxnRun<'_>, id: InodeId, name: &[u8], value: Option<&[u8]>) {
        if name == ACCESS_ACL_XATTR {
            let acl = value.and_then(|value| Acl::read(value).ok().flatten());
            self.edit(run, id).extra_mut().acl = acl.as_ref().and_then(blank).map(Box::new);
        } else if name == DEFAULT_ACL_XATTR {
            self.edit(run, id).extra_mut().has_default_acl = value.is_some();
        }
    }

    /// What an inode that is made in `parent` has of its directory's default list: the mode, and in `extra` that it has
    /// lists. The attributes are left to [`Namespace::add_inherited`]. Without a default list the umask takes its bits.
    pub(crate) fn inherit(
        &self,
        (parent, directory): (InodeId, &Inode),
        (kind, mode, umask): (FileKind, u16, u32),
        extra: &mut Extra,
    ) -> u16 {
        if kind == FileKind::Symlink {
            return mode;
        }
        let lists = if directory.has_default_acl() { self.xattrs.get(&parent) } else { None };
        let default = lists.and_then(|all| Acl::read(all.get(DEFAULT_ACL_XATTR)?).ok().flatten());
        let Some(default) = default else { return mode & !(umask & 0o777) as u16 };
        extra.has_default_acl = kind == FileKind::Directory;
        let access = default.inherited(mode.into());
        extra.acl = blank(&access).map(Box::new);
        mode & 0o7000 | access.mode() as u16
    }

    /// Gives an inode that was just made the attributes of the lists that it has inherited.
    pub(crate) fn add_inherited(&mut self, run: &mut TxnRun<'_>, parent: InodeId, id: InodeId) {
        let Some(inode) = self.inodes.unpacked(id).filter(|inode| inode.has_acl()) else { return };
        let access = inode.acl().map(|acl| (ACCESS_ACL_XATTR, acl.encode()));
        let default = self.xattrs.get(&parent).and_then(|all| all.get(DEFAULT_ACL_XATTR));
        let default = default.filter(|_| inode.has_default_acl()).map(|value| (DEFAULT_ACL_XATTR, value.to_vec()));
        for (name, value) in [access, default].into_iter().flatten() {
            self.xattrs.entry(id).or_default().insert(name.into(), value.as_slice().into());
            let stored = StoredXattr { value, session: run.session.0, uid: run.caller.uid };
            run.change(VersionKey::Xattr(id, name), Some(stored.encode_to_vec()));
        }
    }
}

/// Reads the value of an access list that a thing of this kind is to have; `None` for one without entries.
pub(crate) fn check_acl(kind: FileKind, name: &[u8], value: &[u8]) -> Result<Option<Acl>, Error> {
    if kind == FileKind::Symlink {
        return Err(Error::Unsupported { what: "an access list of a symbolic link" });
    }
    let acl = Acl::read(value).map_err(|why| Error::InvalidArgument { why })?;
    if name == DEFAULT_ACL_XATTR && kind != FileKind::Directory && acl.is_some() {
        return Err(Error::AccessDenied { what: "only a directory has a default access list".to_owned() });
    }
    Ok(acl)
}

/// The value that is kept of an extended attribute.
pub(crate) fn kept_value<'a>(name: &[u8], value: &'a [u8]) -> Option<Cow<'a, [u8]>> {
    if name != ACCESS_ACL_XATTR {
        return Some(Cow::Borrowed(value));
    }
    let acl = Acl::read(value).ok().flatten()?;
    blank(&acl).map(|acl| Cow::Owned(acl.encode()))
}

/// What is kept of an access list: what a mode does not say; `None` where that is nothing.
fn blank(acl: &Acl) -> Option<Acl> {
    (!acl.is_minimal()).then(|| acl.clone().with_mode(0))
}

#[cfg(test)]
mod tests;
