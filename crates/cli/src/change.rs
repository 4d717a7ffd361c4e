//! `mv`, `ln`, `rm`, `mkdir` and `rmdir`: changes of names.

use std::os::unix::ffi::OsStrExt;

use anyhow::{Error, Result};
use frieze_base::{Fault, Reason};
use frieze_client::{Error as ClientError, FileKind, Fs, RenameMode};
use serde_json::json;

use crate::args::{LnArgs, MkdirArgs, MvArgs, RmArgs, RmdirArgs};
use crate::copy::{self, RemoteSide, about, target};
use crate::failure::{ReportedError, UsageError, is};
use crate::path::FsPath;
use crate::progress::ProgressLine;
use crate::run::CommandRun;

/// `frieze mv`.
pub(crate) fn mv(run: &mut CommandRun, args: &MvArgs) -> Result<()> {
    args.no_past.refuse()?;
    let paths = copy::parse_all(&args.paths)?;
    let Some((to, from)) = paths.split_last() else { return Ok(()) };
    let fs = run.fs()?;
    let mode = match (args.exchange, args.no_clobber) {
        (true, _) => RenameMode::Exchange,
        (false, true) => RenameMode::NoReplace,
        (false, false) => RenameMode::Replace,
    };
    // An exchange names both ends itself.
    let named = args.no_target_directory || args.exchange;
    if named && from.len() > 1 {
        return Err(UsageError("one SOURCE and one PATH: the last path is a name, not a directory".to_owned()).into());
    }
    let there = kind_of(&fs, to)?;
    let into = !named && there == Some(FileKind::Directory);
    if !into && (from.len() > 1 || (to.wants_directory && there.is_some())) {
        let reason = if there.is_some() { Reason::NotDirectory } else { Reason::NotFound };
        run.report(&to.to_string(), Fault::from(reason).into())?;
        return Err(ReportedError.into());
    }
    for path in from {
        let place = match path.name() {
            Some(name) if into => to.join(name),
            _ => to.clone(),
        };
        match fs.rename(&target(path, false), &target(&place, false), mode) {
            Ok(_) => run.item(|| json!({ "from": path.to_string(), "to": place.to_string() }), || None)?,
            Err(error) => {
                let error = Error::from(error);
                // The subject of the error: the new name, where that is known.
                let is_of_place = is(&error, Reason::Exists)
                    || is(&error, Reason::NotEmpty)
                    || is(&error, Reason::NotFound) && fs.stat(&target(path, false)).is_ok();
                let error = if is_of_place { about(&RemoteSide { fs: fs.clone() }, &place, error) } else { error };
                run.report(&path.to_string(), error)?;
            }
        }
    }
    Ok(())
}

/// `frieze ln`.
pub(crate) fn ln(run: &mut CommandRun, args: &LnArgs) -> Result<()> {
    args.no_past.refuse()?;
    let name = FsPath::parse(&args.name)?;
    let text = args.target.as_bytes();
    let file = if args.symbolic { None } else { Some(FsPath::parse(&args.target)?) };
    if text.is_empty() {
        return Err(UsageError("the text of a symbolic link cannot be empty".to_owned()).into());
    }
    let fs = run.fs()?;
    let place = match (kind_of(&fs, &name)?, file.as_ref().map_or(last_name(text), |file| file.name())) {
        (Some(FileKind::Directory), Some(last)) => name.join(last),
        _ => name,
    };
    let (made, kind) = match &file {
        Some(file) => (fs.link(&target(file, false), &target(&place, false)).map(drop), "hard"),
        None => (fs.symlink(text, &target(&place, false)).map(drop), "symbolic"),
    };
    if let Err(error) = made {
        let error = Error::from(error);
        // The file that gets one more name may be missing.
        return match file.filter(|file| is(&error, Reason::NotFound) && fs.stat(&target(file, false)).is_err()) {
            Some(file) => run.report(&file.to_string(), error),
            None => run.report(&place.to_string(), about(&RemoteSide { fs }, &place, error)),
        };
    }
    let target = String::from_utf8_lossy(text);
    run.item(|| json!({ "target": target, "name": place.to_string(), "kind": kind }), || None)
}

fn last_name(text: &[u8]) -> Option<&[u8]> {
    text.rsplit(|&b| b == b'/').find(|name| !name.is_empty() && *name != b"." && *name != b"..")
}

/// `frieze rm`.
pub(crate) fn rm(run: &mut CommandRun, args: &RmArgs) -> Result<()> {
    args.no_past.refuse()?;
    let paths = copy::parse_all(&args.paths)?;
    if paths.iter().any(FsPath::is_root) {
        return Err(UsageError("/ cannot be removed".to_owned()).into());
    }
    let fs = run.fs()?;
    run.show(|wanted| ProgressLine::items(wanted, "removed"));
    for path in &paths {
        let kind = match fs.stat(&target(path, false)) {
            Ok(reply) => reply.attr.kind(),
            Err(error) if args.force && error.reason() == Reason::NotFound => continue,
            Err(error) => {
                run.report(&path.to_string(), error.into())?;
                continue;
            }
        };
        let done = match (kind, args.recursive) {
            (FileKind::Directory, true) => remove_tree(run, &fs, path),
            (FileKind::Directory, false) => {
                Err(Fault::new(Reason::InvalidArgument, "is a directory: -r removes it with everything in it").into())
            }
            (_, _) if path.wants_directory => Err(Fault::from(Reason::NotDirectory).into()),
            (kind, _) => remove_one(run, &fs, path, kind),
        };
        if let Err(error) = done {
            run.report(&path.to_string(), error)?;
        }
    }
    Ok(())
}

fn remove_one(run: &mut CommandRun, fs: &Fs, path: &FsPath, kind: FileKind) -> Result<()> {
    let removed = match kind {
        FileKind::Directory => fs.rmdir(&target(path, false)).map(drop),
        _ => fs.unlink(&target(path, false)).map(drop),
    };
    match removed {
        // It was removed meanwhile: the result is as requested.
        Err(error) if error.reason() == Reason::NotFound => return Ok(()),
        removed => removed?,
    }
    run.progress(|progress| progress.advance(1));
    run.item(|| json!({ "path": path.to_string(), "kind": kind.word() }), || None)
}

/// In one change, if all of it may be removed and fits into one; else as much as may, from the leaves up, each failure
/// with its own message.
fn remove_tree(run: &mut CommandRun, fs: &Fs, path: &FsPath) -> Result<()> {
    run.progress(|progress| progress.at(path.to_string()));
    let removed = match fs.remove_tree(&target(path, false), false) {
        Ok(removed) => removed,
        Err(ClientError::Refused(_)) => return remove_from_leaves(run, fs, path),
        Err(error) => return Err(error.into()),
    };
    run.progress(|progress| progress.advance(removed.count));
    let told = removed.actions.len() as u64;
    for action in removed.actions {
        let (path, kind) = (String::from_utf8_lossy(&action.path).into_owned(), action.file_kind().word());
        run.item(|| json!({ "path": path, "kind": kind }), || None)?;
    }
    match removed.count - told {
        0 => Ok(()),
        more => run.item(|| json!({ "path": path.to_string(), "more": more }), || None),
    }
}

fn remove_from_leaves(run: &mut CommandRun, fs: &Fs, path: &FsPath) -> Result<()> {
    run.progress(|progress| progress.at(path.to_string()));
    let mut failed = false;
    for entry in fs.entries(&target(path, false))? {
        let place = path.join(&entry.name);
        let done = match entry.kind() {
            FileKind::Directory => remove_from_leaves(run, fs, &place),
            kind => remove_one(run, fs, &place, kind),
        };
        if let Err(error) = done {
            run.report(&place.to_string(), error)?;
            failed = true;
        }
    }
    if failed {
        return Err(ReportedError.into());
    }
    remove_one(run, fs, path, FileKind::Directory)
}

/// `frieze rmdir`.
pub(crate) fn rmdir(run: &mut CommandRun, args: &RmdirArgs) -> Result<()> {
    args.no_past.refuse()?;
    let paths = copy::parse_all(&args.paths)?;
    if paths.iter().any(FsPath::is_root) {
        return Err(UsageError("/ cannot be removed".to_owned()).into());
    }
    let fs = run.fs()?;
    for path in paths {
        let mut next = Some(path);
        while let Some(path) = next.take() {
            match fs.rmdir(&target(&path, false)) {
                Ok(_) => {
                    run.item(|| json!({ "path": path.to_string(), "kind": "directory" }), || None)?;
                    next = path.parent().filter(|parent| args.parents && !parent.is_root());
                }
                Err(error) => run.report(&path.to_string(), error.into())?,
            }
        }
    }
    Ok(())
}

/// `frieze mkdir`.
pub(crate) fn mkdir(run: &mut CommandRun, args: &MkdirArgs) -> Result<()> {
    args.no_past.refuse()?;
    let paths = copy::parse_all(&args.paths)?;
    let umask = copy::umask();
    // A default access list decides for all but the owner, unless a mode is given.
    let (owner, others) = (0o777 & !(umask & copy::OWNER), umask & !copy::OWNER);
    let (mode, mode_of_parents, umask) = match &args.mode {
        None => (owner, owner, others),
        Some(text) => match u32::from_str_radix(text, 8) {
            Ok(mode) if mode <= 0o7777 => (mode, owner & !others, 0),
            _ => return Err(UsageError(format!("--mode {text}: write it in octal, such as 755")).into()),
        },
    };
    let fs = run.fs()?.with_umask(umask);
    for path in &paths {
        let made = match args.parents {
            // A parent can be entered and filled by its owner, whatever the mode of the last directory.
            true => make_with_parents(run, &fs, path, mode, mode_of_parents | 0o300),
            false => make(run, &fs, path, mode),
        };
        if let Err(error) = made {
            run.report(&path.to_string(), error)?;
        }
    }
    Ok(())
}

fn make(run: &mut CommandRun, fs: &Fs, path: &FsPath, mode: u32) -> Result<()> {
    if path.is_root() {
        return Err(Fault::from(Reason::Exists).into());
    }
    let made = fs.mkdir(&target(path, false), mode)?;
    run.item(|| json!({ "path": path.to_string(), "inode": made.id }), || None)
}

fn make_with_parents(run: &mut CommandRun, fs: &Fs, path: &FsPath, mode: u32, mode_of_parents: u32) -> Result<()> {
    // From the longest prefix that is there: a long path that exists costs one request.
    let mut missing = Vec::new();
    let mut prefix = Some(path.clone());
    while let Some(place) = prefix {
        match kind_of(fs, &place)? {
            Some(FileKind::Directory) => break,
            Some(_) => {
                return Err(Fault::from(if place == *path { Reason::Exists } else { Reason::NotDirectory }).into());
            }
            None => prefix = place.parent(),
        }
        missing.push(place);
    }
    for place in missing.iter().rev() {
        let mode = if place.as_bytes() == path.as_bytes() { mode } else { mode_of_parents };
        match make(run, fs, place, mode) {
            // It was made meanwhile.
            Err(error) if is(&error, Reason::Exists) && kind_of(fs, place)? == Some(FileKind::Directory) => {}
            made => made?,
        }
    }
    Ok(())
}

/// The kind of the object at a path, links followed; none if it does not exist.
fn kind_of(fs: &Fs, path: &FsPath) -> Result<Option<FileKind>> {
    match fs.stat(&target(path, true)) {
        Ok(reply) => Ok(Some(reply.attr.kind())),
        Err(error) if error.reason() == Reason::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_into_a_directory_takes_the_last_name_of_its_text() {
        assert_eq!(last_name(b"../a/b/"), Some(b"b".as_slice()));
        assert_eq!(last_name(b"../.."), None);
    }
}
