//! The context of calls about names: what a path means to a caller, and how attributes are reported to one.

use frieze_client::{Attr, Client, FileKind, Fs, InodeId, Reason, Target};

use crate::accounts::{Account, AccountNames};
use crate::attributes::millis;
use crate::blocks::BLOCK_BYTES;
use crate::exception::Exception;
use crate::moving_instants::{self, MovingInstants};
use crate::paths::{ParsedPath, numbered, place, shown};
use crate::proto::{ACL_BIT, FsPermission, HAS_ACL, HdfsFileStatus, file_type};
use crate::remote_user::CallContext;

/// Names and attributes of files.
pub(crate) struct FileNames {
    pub(crate) client: Client,
    pub(crate) accounts: AccountNames,
    pub(crate) moving: MovingInstants,
}

impl FileNames {
    /// The file system for the caller. A new file belongs to the group of its directory, as in HDFS.
    pub(crate) fn fs(&self, context: CallContext<'_>) -> Fs {
        self.client.fs().as_caller(context.user.account.caller.clone()).sharing_group()
    }

    /// Parses a path. A path by inode number means the current path of that inode, if the caller may list its
    /// directory: otherwise an error message on the way would reveal a name.
    fn place(&self, context: CallContext<'_>, path: &str) -> Result<ParsedPath, Exception> {
        let Some((number, rest)) = numbered(path) else { return place(path) };
        let gone = || Exception::not_found(format!("File for given inode path does not exist: {path}"));
        let found = self.fs(context).path_of(InodeId(number)).map_err(|error| match error.reason() {
            Reason::NoAttribute | Reason::NotFound | Reason::StaleHandle => gone(),
            Reason::AccessDenied => Exception::access_control(format!("Permission denied: {path}")),
            _ => Exception::of(error, path),
        })?;
        let now = String::from_utf8(shown(&found)).map_err(|_| gone())?;
        place(&format!("{now}{rest}"))
    }

    /// What a path names, for reading: a view and a target in it.
    ///
    /// # Errors
    /// As resolving the path.
    pub(crate) fn resolve(&self, context: CallContext<'_>, path: &str) -> Result<ResolvedPath, Exception> {
        let fs = self.fs(context);
        match self.place(context, path)? {
            ParsedPath::Now(path) => Ok(ResolvedPath { fs, target: Target::path(path), shows: DirectoryView::Names }),
            ParsedPath::At(directory) => {
                Ok(ResolvedPath { fs, target: Target::path(directory), shows: DirectoryView::Instants })
            }
            ParsedPath::Snapshots(directory) => {
                Ok(ResolvedPath { fs, target: Target::path(directory), shows: DirectoryView::Snapshots })
            }
            ParsedPath::Past(past) => {
                let (fs, target) = moving_instants::view(&self.client, &self.moving, context.program, &fs, &past)
                    .map_err(|error| Exception::of(error, path))?;
                Ok(ResolvedPath { fs, target, shows: DirectoryView::Names })
            }
        }
    }

    /// What a path names, for a change; its last name is not followed.
    ///
    /// # Errors
    /// `SnapshotAccessControlException` for the past.
    pub(crate) fn resolve_for_change(&self, context: CallContext<'_>, path: &str) -> Result<Target, Exception> {
        match self.place(context, path)? {
            ParsedPath::Now(path) => Ok(Target::under(InodeId::ROOT, path)),
            ParsedPath::At(_) | ParsedPath::Snapshots(_) | ParsedPath::Past(_) => Err(Exception::past_of(path)),
        }
    }

    /// The attributes of a file as clients get them, under a name in a directory; an empty name for the file of the
    /// request itself.
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
            owner: self.accounts.user(attr.uid),
            group: self.accounts.group(attr.gid),
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

    /// Checks that the caller is the superuser, or the user that runs this gateway.
    ///
    /// # Errors
    /// `AccessControlException`.
    pub(crate) fn check_operator(&self, context: CallContext<'_>) -> Result<(), Exception> {
        let Account { name, caller } = &context.user.account;
        match [0, self.client.hello().uid].contains(&caller.uid) {
            true => Ok(()),
            false => Err(Exception::access_control(format!(
                "Access denied for user {name}. Superuser privilege is required"
            ))),
        }
    }
}

/// The meaning of a path.
#[derive(Debug)]
pub(crate) struct ResolvedPath {
    /// The view.
    pub(crate) fs: Fs,
    /// The file there.
    pub(crate) target: Target,
    /// What it lists, if it is a directory.
    pub(crate) shows: DirectoryView,
}

/// What a directory lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirectoryView {
    /// Its names.
    Names,
    /// The named instants: it is the `.at` of the directory.
    Instants,
    /// The snapshots: it is the `.snapshot` of the directory.
    Snapshots,
}
