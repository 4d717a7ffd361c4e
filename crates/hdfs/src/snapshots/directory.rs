//! The directory of a snapshot: where it is at an instant, and which users decide about it.

use frieze_client::{Attr, Error, FileKind, Fs, InodeId, Reason, Target};

use crate::attributes::is_absent;
use crate::exception::Exception;
use crate::file_names::FileNames;
use crate::remote_user::CallContext;

/// A directory that the caller owns, or may administer.
pub(crate) fn own_directory(names: &FileNames, context: CallContext<'_>, path: &str) -> Result<(Fs, Attr), Exception> {
    let fs = names.fs(context);
    let attr = directory_of(&fs, names.resolve_for_change(context, path)?, path)?;
    if !owns(names, context, &attr) {
        return Err(Exception::access_control(format!(
            "Permission denied. user={} is not the owner of inode={path}",
            context.user.account.name
        )));
    }
    Ok((fs, attr))
}

pub(crate) fn owns(names: &FileNames, context: CallContext<'_>, attr: &Attr) -> bool {
    [0, names.client.hello().uid, attr.uid].contains(&context.user.account.caller.uid)
}

/// The path of a directory in a view; `None` if it does not exist there, or the caller may not list a parent.
pub(crate) fn path_of(fs: &Fs, directory: u64) -> Result<Option<Vec<u8>>, Error> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut at = directory;
    let is_hidden = |error: &Error| is_absent(error) || error.reason() == Reason::AccessDenied;
    while InodeId(at) != InodeId::ROOT {
        let parent = match fs.list(&Target::inode(InodeId(at)), b"", 1, false) {
            Ok(page) => page.parent,
            Err(error) if is_hidden(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut after = Vec::new();
        let name = loop {
            let page = match fs.list(&Target::inode(InodeId(parent)), &after, 0, false) {
                Ok(page) => page,
                Err(error) if is_hidden(&error) => return Ok(None),
                Err(error) => return Err(error),
            };
            if let Some(entry) = page.entries.iter().find(|entry| entry.inode == at) {
                break entry.name.clone();
            }
            match page.entries.last().filter(|_| page.more) {
                Some(last) => after.clone_from(&last.name),
                // It was removed or renamed meanwhile.
                None => return Ok(None),
            }
        };
        names.push(name);
        at = parent;
    }
    let mut path = Vec::new();
    for name in names.iter().rev() {
        path.push(b'/');
        path.extend(name);
    }
    Ok(Some(path))
}

pub(crate) fn directory_of(fs: &Fs, target: Target, path: &str) -> Result<Attr, Exception> {
    let target = Target { follow: true, ..target };
    let attr = fs.stat(&target).map_err(|error| match error.reason() {
        Reason::NotFound => Exception::not_found(format!("Directory does not exist: {path}")),
        _ => Exception::of(error, path),
    })?;
    match attr.attr.kind() {
        FileKind::Directory => Ok(attr.attr),
        _ => Err(Exception::not_a_directory(format!("Path is not a directory: {path}"))),
    }
}
