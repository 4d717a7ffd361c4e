//! Calls that change names and attributes.

use frieze_client::{Error, FileKind, Fs, InodeId, Reason, RenameMode, SetAttr, Target, TimeValue};

use crate::accounts::{gid_of, uid_of};
use crate::attributes::{is_absent, new_mode};
use crate::directories::{make_directories, make_directory};
use crate::exception::Exception;
use crate::exclusive_file::{ExclusiveFile, exclusive_file};
use crate::file_names::FileNames;
use crate::file_writers::FileWriters;
use crate::paths::split;
use crate::proto::{self, ResultResponse};
use crate::remote_user::CallContext;
use crate::snapshots::check_no_snapshots;

/// Calls that change names and attributes.
#[derive(Clone, Copy)]
pub(crate) struct Mutations<'s> {
    pub(crate) names: &'s FileNames,
    pub(crate) writers: &'s FileWriters,
}

impl Mutations<'_> {
    /// Creates a directory, with its missing parents if the request says so.
    pub(crate) fn mkdirs(
        &self,
        context: CallContext<'_>,
        request: &proto::MkdirsRequest,
    ) -> Result<ResultResponse, Exception> {
        let target = self.names.resolve_for_change(context, &request.src)?;
        let (mode, umask) = new_mode(request.masked.as_ref(), request.unmasked.as_ref(), 0o755);
        let fs = self.names.fs(context).with_umask(umask);
        if request.create_parent {
            make_directories(&fs, &target.path, mode, &request.src)?;
        } else {
            make_directory(&fs, &target.path, mode).map_err(|error| Exception::of(error, &request.src))?;
        }
        Ok(ResultResponse { result: true })
    }

    /// Renames as Hadoop's older call does: into a directory that exists; false if it is not possible.
    pub(crate) fn rename(
        &self,
        context: CallContext<'_>,
        request: &proto::RenameRequest,
    ) -> Result<ResultResponse, Exception> {
        let (from, mut to) = (
            self.names.resolve_for_change(context, &request.src)?,
            self.names.resolve_for_change(context, &request.dst)?,
        );
        let fs = self.names.fs(context);
        let no = Ok(ResultResponse { result: false });
        let failed = |error| Exception::of(error, &request.src);
        let source = match fs.stat(&from) {
            Ok(found) => found.attr,
            Err(error) if is_absent(&error) => return no,
            Err(error) => return Err(failed(error)),
        };
        if from.path == to.path {
            return Ok(ResultResponse { result: source.kind() != FileKind::Directory });
        }
        if is_below(&to.path, &from.path) || from.path == b"/" {
            return no;
        }
        match fs.stat(&to) {
            Ok(found) if found.attr.kind() == FileKind::Directory => {
                to.path = [to.path.strip_suffix(b"/").unwrap_or(&to.path), b"/", split(&from.path).1].concat();
            }
            Ok(_) => return no,
            Err(error) if error.reason() == Reason::NotFound => {}
            Err(error) => return Err(Exception::of(error, &request.dst)),
        }
        match fs.rename(&from, &to, RenameMode::NoReplace) {
            Ok(_) => Ok(ResultResponse { result: true }),
            Err(error) if [Reason::Exists, Reason::NotFound].contains(&error.reason()) => no,
            Err(error) => Err(failed(error)),
        }
    }

    /// Renames, or fails with the reason.
    pub(crate) fn rename_or_fail(
        &self,
        context: CallContext<'_>,
        request: &proto::Rename2Request,
    ) -> Result<(), Exception> {
        let (src, dst) = (&request.src, &request.dst);
        let (from, to) = (self.names.resolve_for_change(context, src)?, self.names.resolve_for_change(context, dst)?);
        let fs = self.names.fs(context);
        let source = fs.stat(&from).map_err(|error| Exception::of(error, src))?.attr;
        if from.path == to.path {
            return Err(Exception::already_exists(format!("The source {src} and destination {dst} are the same")));
        }
        if is_below(&to.path, &from.path) {
            return Err(Exception::io(format!("Rename destination {dst} is a directory or file under source {src}")));
        }
        let mode = if request.overwrite_dest { RenameMode::Replace } else { RenameMode::NoReplace };
        match fs.stat(&to) {
            Ok(found) => {
                let is_directory = |kind: FileKind| kind == FileKind::Directory;
                if is_directory(found.attr.kind()) != is_directory(source.kind()) {
                    return Err(Exception::io(format!(
                        "Source {src} and destination {dst} must both be directories, or both files"
                    )));
                }
                if !request.overwrite_dest {
                    return Err(Exception::already_exists(format!("rename destination {dst} already exists")));
                }
            }
            Err(error) if error.reason() == Reason::NotFound => {}
            Err(error) => return Err(Exception::of(error, dst)),
        }
        match fs.rename(&from, &to, mode) {
            Ok(_) => Ok(()),
            Err(error) if error.reason() == Reason::NotEmpty => {
                Err(Exception::io(format!("rename destination directory is not empty: {dst}")))
            }
            Err(error) if error.reason() == Reason::NotFound => {
                Err(Exception::not_found(format!("rename destination parent of {dst} not found, or source {src} gone")))
            }
            Err(error) => Err(Exception::of(error, dst)),
        }
    }

    /// Removes a file, or a directory and its content. False if it does not exist.
    pub(crate) fn delete(
        &self,
        context: CallContext<'_>,
        request: &proto::DeleteRequest,
    ) -> Result<ResultResponse, Exception> {
        let path = &request.src;
        let target = self.names.resolve_for_change(context, path)?;
        let fs = self.names.fs(context);
        let failed = |error| Exception::of(error, path);
        let attr = match fs.stat(&target) {
            Ok(found) => found.attr,
            Err(error) if is_absent(&error) => return Ok(ResultResponse { result: false }),
            Err(error) => return Err(failed(error)),
        };
        if attr.kind() == FileKind::Directory {
            // The root stays, as in HDFS.
            if target.path == b"/" {
                let is_empty = fs.list(&target, b"", 1, false).map_err(failed)?.entries.is_empty();
                if !request.recursive && !is_empty {
                    return Err(Exception::not_empty(format!("`{path} is non empty': Directory is not empty")));
                }
                return Ok(ResultResponse { result: false });
            }
            check_no_snapshots(self.names, &attr, path)?;
            match fs.rmdir(&target) {
                Err(error) if error.reason() == Reason::NotEmpty && request.recursive => self.remove_tree(&fs, target),
                other => other.map(drop),
            }
        } else {
            fs.unlink(&target).map(|_| {
                self.writers.leases.end(attr.inode);
            })
        }
        .map_err(failed)?;
        Ok(ResultResponse { result: true })
    }

    /// Removes a directory and everything below it, in one change. If that is too large, or changes all the time, it is
    /// removed from the leaves up.
    fn remove_tree(&self, fs: &Fs, target: Target) -> Result<(), Error> {
        let removed = match fs.remove_tree(&target, false) {
            Err(error) if [Reason::TooLarge, Reason::Busy, Reason::Unsupported].contains(&error.reason()) => {
                return self.remove_from_leaves(fs, target);
            }
            removed => removed?,
        };
        if removed.actions.len() as u64 == removed.count && !removed.repeated {
            removed.actions.iter().for_each(|action| drop(self.writers.leases.end(action.inode)));
            return Ok(());
        }
        // The removed files are not listed: end the lease of every file that has no name any more.
        for inode in self.writers.leases.files() {
            let found = self.names.client.fs().stat(&Target::inode(InodeId(inode)));
            if found.is_ok_and(|found| found.attr.links == 0) {
                self.writers.leases.end(inode);
            }
        }
        Ok(())
    }

    /// Removes a directory from the leaves up. What the caller may not remove stays, with its parents; what comes
    /// before it is removed.
    fn remove_from_leaves(&self, fs: &Fs, target: Target) -> Result<(), Error> {
        // A stack of directories to empty; the last one is emptied first.
        let mut way = vec![target];
        while let Some(directory) = way.last().cloned() {
            let page = match fs.list(&directory, b"", 0, false) {
                Ok(page) => page,
                Err(error) if is_absent(&error) => {
                    way.pop();
                    continue;
                }
                Err(error) => return Err(error),
            };
            let mut below = None;
            for entry in page.entries {
                let entry_target = Target::under(InodeId(page.inode), entry.name.as_slice());
                let removed = if entry.kind() == FileKind::Directory {
                    fs.rmdir(&entry_target)
                } else {
                    fs.unlink(&entry_target)
                };
                match removed {
                    Ok(_) => drop(self.writers.leases.end(entry.inode)),
                    Err(error) if is_absent(&error) => {}
                    Err(error) if error.reason() == Reason::NotEmpty => {
                        below = Some(entry_target);
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
            if let Some(below) = below {
                way.push(below);
                continue;
            }
            match fs.rmdir(&directory) {
                Ok(_) => {}
                // There was another page, or a name was created meanwhile.
                Err(error) if error.reason() == Reason::NotEmpty => continue,
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(error),
            }
            way.pop();
        }
        Ok(())
    }

    /// Changes the permission bits.
    pub(crate) fn set_permission(
        &self,
        context: CallContext<'_>,
        request: &proto::SetPermissionRequest,
    ) -> Result<(), Exception> {
        let mode = request.permission.as_ref().map(|permission| permission.perm & 0o1777);
        self.set(context, &request.src, |change| SetAttr { mode, ..change })
    }

    /// Changes owner and group.
    pub(crate) fn set_owner(
        &self,
        context: CallContext<'_>,
        request: &proto::SetOwnerRequest,
    ) -> Result<(), Exception> {
        let known = |name: &Option<String>, id: fn(&str) -> Option<u32>| match name
            .as_deref()
            .filter(|name| !name.is_empty())
        {
            Some(name) => {
                id(name).map(Some).ok_or_else(|| Exception::io(format!("{name} is not known on the frieze server")))
            }
            None => Ok(None),
        };
        let (uid, gid) = (known(&request.username, uid_of)?, known(&request.groupname, gid_of)?);
        self.set(context, &request.src, |change| SetAttr { uid, gid, ..change })
    }

    /// Changes times; -1 leaves one unchanged.
    pub(crate) fn set_times(
        &self,
        context: CallContext<'_>,
        request: &proto::SetTimesRequest,
    ) -> Result<(), Exception> {
        let time = |millis: u64| {
            let ns = i64::try_from(millis).ok()?.saturating_mul(1_000_000);
            Some(TimeValue { now: false, ns })
        };
        let (mtime, atime) = (time(request.mtime), time(request.atime));
        self.set(context, &request.src, |change| SetAttr { mtime, atime, ..change })
    }

    /// The cluster decides about replication: true for a file that exists, as HDFS answers if it agrees.
    pub(crate) fn set_replication(
        &self,
        context: CallContext<'_>,
        request: &proto::SetReplicationRequest,
    ) -> Result<ResultResponse, Exception> {
        let target = self.names.resolve_for_change(context, &request.src)?;
        let target = Target { follow: true, ..target };
        match self.names.fs(context).stat(&target) {
            Ok(found) => Ok(ResultResponse { result: found.attr.kind() == FileKind::File }),
            Err(error) if is_absent(&error) => Ok(ResultResponse { result: false }),
            Err(error) => Err(Exception::of(error, &request.src)),
        }
    }

    /// Cuts a file that no client writes; never extends it.
    pub(crate) fn truncate(
        &self,
        context: CallContext<'_>,
        request: &proto::TruncateRequest,
    ) -> Result<ResultResponse, Exception> {
        let path = &request.src;
        let ExclusiveFile { fs, target, attr } =
            exclusive_file(self.names, self.writers, context, path, &request.client_name)?;
        if request.new_length > attr.size {
            return Err(Exception::illegal_argument(format!(
                "Cannot truncate to a larger file size. Current size: {}, truncate size: {}.",
                attr.size, request.new_length
            )));
        }
        let change = SetAttr { target, size: Some(request.new_length), ..SetAttr::default() };
        fs.set_attr(change).map_err(|error| Exception::of(error, path))?;
        Ok(ResultResponse { result: true })
    }

    fn set(
        &self,
        context: CallContext<'_>,
        path: &str,
        with: impl FnOnce(SetAttr) -> SetAttr,
    ) -> Result<(), Exception> {
        let target = Target { follow: true, ..self.names.resolve_for_change(context, path)? };
        let change = with(SetAttr { target, ..SetAttr::default() });
        if (change.mode, change.uid, change.gid) == (None, None, None)
            && change.mtime.is_none()
            && change.atime.is_none()
        {
            return Ok(());
        }
        self.names.fs(context).set_attr(change).map(|_| ()).map_err(|error| Exception::of(error, path))
    }
}

/// True if `path` lies below `directory`.
fn is_below(path: &[u8], directory: &[u8]) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.starts_with(b"/"))
}
