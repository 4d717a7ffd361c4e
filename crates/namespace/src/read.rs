//! Reads at any instant: attributes, listings, extended attributes, versions.

use std::sync::Arc;

use frieze_base::{Fault, InodeId};
use frieze_hlc::Hlc;
use frieze_wire::acl::ACCESS_ACL_XATTR;
use frieze_wire::message::{FileKind, Version, VersionKind};
use frieze_wire::quota::{QuotaUse, USAGE_XATTR, format_quota};
use frieze_wire::txn::Caller;

use crate::attributes::{XattrClass, check_xattr_name};
use crate::error::{Error, lossy};
use crate::history::VersionHistory;
use crate::inode::{Inode, MAY_READ};
use crate::key::VersionKey;
use crate::model::NameEntry;
use crate::namespace::Namespace;
use crate::stored::{StoredInode, StoredXattr, decode, read_entry};

/// One entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedEntry {
    /// Name.
    pub name: Vec<u8>,
    /// Inode it names.
    pub inode: InodeId,
    /// Its kind.
    pub kind: FileKind,
}

impl Namespace {
    /// The version of an inode at an instant (`None`: now). No rights are asked.
    ///
    /// # Errors
    /// `NotFound` before it was made; `StaleHandle` if it never was; those of the store.
    pub fn inode(&self, history: &dyn VersionHistory, id: InodeId, at: Option<Hlc>) -> Result<Inode, Fault> {
        Ok(self.version(history, id, at)?.into_owned())
    }

    /// Checks rights ([`crate::MAY_READ`] and its like) on an inode at an instant: by its version of then and, if that
    /// is the past, by its newest too.
    ///
    /// # Errors
    /// `AccessDenied`; as [`Namespace::inode`].
    pub fn check_access(
        &self,
        history: &dyn VersionHistory,
        id: InodeId,
        at: Option<Hlc>,
        caller: &Caller,
        mask: u32,
    ) -> Result<(), Fault> {
        let version = self.version(history, id, at)?;
        let name = format!("inode {id}");
        Ok(self.check_both(history, id, &version, at, caller, mask, name.as_bytes())?)
    }

    /// At most `max` entries of a directory at an instant, in byte order, after the name `after` (empty: from the
    /// start). No rights are asked: reading needs [`MAY_READ`] on the directory.
    ///
    /// # Errors
    /// `NotDirectory`; as [`Namespace::inode`].
    ///
    /// # Cost
    /// One range read: in memory if nothing in the directory changed since, else of the history, which holds current
    /// versions too.
    pub fn list(
        &self,
        history: &dyn VersionHistory,
        directory: InodeId,
        at: Option<Hlc>,
        after: &[u8],
        max: usize,
    ) -> Result<Vec<ListedEntry>, Fault> {
        if !self.version(history, directory, at)?.is_directory() {
            return Err(Error::not_directory(format!("inode {directory}").as_bytes()).into());
        }
        let listed = |name: &[u8], entry: NameEntry| ListedEntry {
            name: name.to_vec(),
            inode: entry.inode(),
            kind: entry.kind(),
        };
        let unchanged = |at| self.current(directory).is_some_and(|now| now.size_as_of <= at);
        let Some(at) = at.filter(|&at| !unchanged(at)) else {
            let Some(names) = self.directories.get(directory) else { return Ok(Vec::new()) };
            let mut cursor = names.cursor_after(after);
            let mut entries = Vec::with_capacity(max.min(names.count()));
            while entries.len() < max
                && let Some((name, entry)) = cursor.next_name()
            {
                entries.push(listed(name, entry));
            }
            return Ok(entries);
        };
        let prefix = VersionKey::Entry(directory, b"").encode();
        let start = VersionKey::Entry(directory, after).encode();
        let mut entries = Vec::new();
        let mut broken = Ok(());
        history.scan(&prefix, &start, at, &mut |key, from, value| {
            if entries.len() == max {
                return false;
            }
            match read_entry(from, value) {
                Ok(entry) => entries.push(listed(&key[prefix.len()..], entry)),
                Err(error) => broken = Err(error),
            }
            broken.is_ok()
        })?;
        broken?;
        Ok(entries)
    }

    /// The value of an extended attribute at an instant, with the rights of then and of now.
    ///
    /// # Errors
    /// `NoAttribute`, also for what the caller may not know of; `AccessDenied`; `Unsupported` for a class that is not
    /// kept; as [`Namespace::inode`].
    pub fn xattr(
        &self,
        history: &dyn VersionHistory,
        id: InodeId,
        name: &[u8],
        at: Option<Hlc>,
        caller: &Caller,
    ) -> Result<Vec<u8>, Fault> {
        let absent = || Error::NoAttribute { name: lossy(name) };
        let version = self.version(history, id, at)?;
        match check_xattr_name(name)? {
            XattrClass::User => {
                if !matches!(version.kind(), FileKind::File | FileKind::Directory) {
                    return Err(absent().into());
                }
                self.check_both(history, id, &version, at, caller, MAY_READ, name)?;
            }
            XattrClass::Trusted if caller.uid != 0 => return Err(absent().into()),
            XattrClass::Trusted | XattrClass::Security | XattrClass::Acl => {}
        }
        if name == ACCESS_ACL_XATTR {
            let acl = version.acl().map(|_| version.access_list());
            return Ok(acl.ok_or_else(absent)?.encode());
        }
        if name == USAGE_XATTR {
            let (quota, used) = self.quota(id).filter(|_| at.is_none()).ok_or_else(absent)?;
            // How much is kept is known to the planes.
            return Ok(format_quota(&QuotaUse { quota, used, kept: None }).into_bytes());
        }
        if let Some(current) = self.current(id)
            && at.is_none_or(|at| current.from <= at)
        {
            let value = self.xattrs.get(&id).and_then(|all| all.get(name)).ok_or_else(absent)?;
            return Ok(value.to_vec());
        }
        match history.newest(&VersionKey::Xattr(id, name).encode(), at.unwrap_or(Hlc::MAX))? {
            Some((_, Some(value))) => Ok(decode::<StoredXattr>(&value, "extended attribute")?.value),
            _ => Err(absent().into()),
        }
    }

    /// The names of the extended attributes at an instant, in byte order; `trusted.` ones only for the superuser.
    ///
    /// # Errors
    /// As [`Namespace::inode`].
    pub fn xattr_names(
        &self,
        history: &dyn VersionHistory,
        id: InodeId,
        at: Option<Hlc>,
        caller: &Caller,
    ) -> Result<Vec<Vec<u8>>, Fault> {
        self.version(history, id, at)?;
        let shown = |name: &[u8]| caller.uid == 0 || !name.starts_with(b"trusted.");
        if let Some(current) = self.current(id)
            && at.is_none_or(|at| current.from <= at)
        {
            let names = self.xattrs.get(&id).into_iter().flat_map(|all| all.keys());
            return Ok(names.filter(|name| shown(name)).map(|name| name.to_vec()).collect());
        }
        let prefix = VersionKey::Xattr(id, b"").encode();
        let mut names = Vec::new();
        history.scan(&prefix, &[], at.unwrap_or(Hlc::MAX), &mut |key, _, _| {
            let name = &key[prefix.len()..];
            if shown(name) {
                names.push(name.to_vec());
            }
            true
        })?;
        Ok(names)
    }

    /// What happened to an inode in (`after`, `upto`], as metadata knows it: made, named, unnamed, truncated,
    /// attributes set; in order of stamp. Stops once there are `max`, but never between versions of one stamp, so that
    /// the last stamp is the next `after`.
    ///
    /// # Errors
    /// `Corrupt`; those of the store.
    pub fn log(
        &self,
        history: &dyn VersionHistory,
        id: InodeId,
        after: Hlc,
        upto: Hlc,
        max: usize,
    ) -> Result<Vec<Version>, Fault> {
        let mut versions = Vec::new();
        let mut broken = Ok(());
        history.versions_of(&VersionKey::Inode(id).encode(), after, upto, &mut |_, stamp, value| {
            if versions.len() >= max {
                return false;
            }
            let read = value.map(|value| StoredInode::read(stamp, value, Arc::new));
            match read.transpose() {
                Ok(Some((inode, stored))) => versions.extend(stored.causes.into_iter().map(|cause| Version {
                    len: if cause.kind == VersionKind::Truncate as i32 { inode.size } else { 0 },
                    kind: cause.kind,
                    stamp: stamp.0,
                    user_time: None,
                    session: stored.session,
                    uid: stored.by_uid,
                    offset: 0,
                    name: cause.name,
                })),
                Ok(None) => {}
                Err(error) => broken = Err(error),
            }
            broken.is_ok()
        })?;
        broken?;
        Ok(versions)
    }
}
