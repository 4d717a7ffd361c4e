//! `chmod`, `chown` and `touch`: attributes of files and directories.

use anyhow::{Error, Result};
use frieze_base::Reason;
use frieze_client::{
    Attr, CreateMode, Error as ClientError, FileKind, FileRights, Fs, RightsChange, SetAttr, TimeValue,
};
use nix::unistd::{Group, User};
use serde_json::json;

use crate::args::{ChmodArgs, ChownArgs, TouchArgs};
use crate::copy::{self, target};
use crate::failure::UsageError;
use crate::mode;
use crate::path::FsPath;
use crate::progress::ProgressLine;
use crate::run::CommandRun;

/// `frieze chmod`.
pub(crate) fn chmod(run: &mut CommandRun, args: &ChmodArgs) -> Result<()> {
    args.no_past.refuse()?;
    let modes = mode::parse(&args.mode, copy::umask())?;
    change_all(run, &args.paths, args.recursive, true, &RightsChange { modes, ..RightsChange::default() })
}

/// `frieze chown`.
pub(crate) fn chown(run: &mut CommandRun, args: &ChownArgs) -> Result<()> {
    args.no_past.refuse()?;
    let (uid, gid) = owner_of(&args.owner)?;
    let change = RightsChange { uid, gid, ..RightsChange::default() };
    change_all(run, &args.paths, args.recursive, !args.no_dereference, &change)
}

/// Changes each path, and what is below it if requested. `follow`: a path that is a symbolic link means its target;
/// links below are changed themselves, or left.
fn change_all(
    run: &mut CommandRun,
    paths: &[std::ffi::OsString],
    recursive: bool,
    follow: bool,
    change: &RightsChange,
) -> Result<()> {
    let paths = copy::parse_all(paths)?;
    let fs = run.fs()?;
    if recursive {
        run.show(|wanted| ProgressLine::items(wanted, "changed"));
    }
    for path in &paths {
        // As chmod -R and chown -R do: the tree is walked without following any link.
        let follow = follow && !recursive;
        match fs.stat(&target(path, follow || path.wants_directory)) {
            Ok(reply) if recursive && reply.attr.kind() == FileKind::Directory => {
                change_tree(run, &fs, path, &reply.attr, change)?;
            }
            Ok(reply) => change_one(run, &fs, path, &reply.attr, follow, change)?,
            Err(error) => run.report(&path.to_string(), error.into())?,
        }
    }
    Ok(())
}

/// In one change, if all of it may be changed and fits into one; else as much as may, from the root of the tree down,
/// each failure with its own message.
fn change_tree(run: &mut CommandRun, fs: &Fs, path: &FsPath, attr: &Attr, change: &RightsChange) -> Result<()> {
    run.progress(|progress| progress.at(path.to_string()));
    let changed = match fs.change_tree(&target(path, false), change, false) {
        Ok(changed) => changed,
        Err(ClientError::Refused(_)) => return change_from_root(run, fs, path, attr, change),
        Err(error) => return run.report(&path.to_string(), error.into()),
    };
    run.progress(|progress| progress.advance(changed.count));
    let listed = changed.actions.len() as u64;
    for action in changed.actions {
        let rights = action.rights.unwrap_or_default();
        print_change(run, &String::from_utf8_lossy(&action.path), action.file_kind(), rights)?;
    }
    match changed.count - listed {
        0 => Ok(()),
        more => run.item(|| json!({ "path": path.to_string(), "more": more }), || None),
    }
}

fn change_from_root(run: &mut CommandRun, fs: &Fs, path: &FsPath, attr: &Attr, change: &RightsChange) -> Result<()> {
    change_one(run, fs, path, attr, false, change)?;
    if attr.kind() != FileKind::Directory {
        return Ok(());
    }
    let below = match fs.entries_with_attrs(&target(path, false)) {
        Ok(below) => below,
        Err(error) => return run.report(&path.to_string(), error.into()),
    };
    for entry in below {
        if let Some(attr) = &entry.attr {
            change_from_root(run, fs, &path.join(&entry.name), attr, change)?;
        }
    }
    Ok(())
}

fn change_one(
    run: &mut CommandRun,
    fs: &Fs,
    path: &FsPath,
    attr: &Attr,
    follow: bool,
    change: &RightsChange,
) -> Result<()> {
    let RightsChange { modes, uid, gid } = change;
    // A symbolic link has no mode of its own.
    let has_mode = !modes.is_empty() && attr.kind() != FileKind::Symlink;
    let mode = has_mode.then(|| mode::changed(modes, attr.mode, attr.kind() == FileKind::Directory));
    if (mode, *uid, *gid) == (None, None, None) {
        return Ok(());
    }
    let wanted = SetAttr {
        target: target(path, follow || path.wants_directory),
        mode,
        uid: *uid,
        gid: *gid,
        ..SetAttr::default()
    };
    match fs.set_attr(wanted) {
        Ok(_) => {
            run.progress(|progress| progress.advance(1));
            let rights = FileRights {
                mode: mode.unwrap_or(attr.mode),
                uid: uid.unwrap_or(attr.uid),
                gid: gid.unwrap_or(attr.gid),
            };
            print_change(run, &path.to_string(), attr.kind(), rights)
        }
        Err(error) => run.report(&path.to_string(), error.into()),
    }
}

fn print_change(run: &mut CommandRun, path: &str, kind: FileKind, rights: FileRights) -> Result<()> {
    let item = || {
        json!({
            "path": path,
            "kind": kind.word(),
            "mode": format!("{:04o}", rights.mode),
            "uid": rights.uid,
            "gid": rights.gid,
        })
    };
    run.item(item, || None)
}

/// `OWNER`, `OWNER:GROUP`, `:GROUP`, or `OWNER:` for the group that OWNER begins with; names or numbers.
fn owner_of(text: &str) -> Result<(Option<u32>, Option<u32>)> {
    let (owner, group) = match text.split_once(':') {
        Some((owner, group)) => (owner, Some(group)),
        None => (text, None),
    };
    if owner.is_empty() && group.is_none_or(str::is_empty) {
        return Err(UsageError(format!("owner {text:?}: write OWNER, OWNER:GROUP or :GROUP")).into());
    }
    let user = match owner {
        "" => None,
        name => User::from_name(name).ok().flatten(),
    };
    let unknown = |what: &str, name: &str| UsageError(format!("{name}: no such {what} here; give the number"));
    let uid = match (&user, owner) {
        (_, "") => None,
        (Some(user), _) => Some(user.uid.as_raw()),
        (None, number) => Some(number.parse().map_err(|_| unknown("user", number))?),
    };
    let gid = match group {
        None => None,
        Some("") => Some(user.ok_or_else(|| unknown("user", owner))?.gid.as_raw()),
        Some(name) => Some(match (name.parse(), Group::from_name(name)) {
            (_, Ok(Some(group))) => group.gid.as_raw(),
            (Ok(number), _) => number,
            (Err(_), _) => return Err(unknown("group", name).into()),
        }),
    };
    Ok((uid, gid))
}

/// `frieze touch`.
pub(crate) fn touch(run: &mut CommandRun, args: &TouchArgs) -> Result<()> {
    args.no_past.refuse()?;
    let paths = copy::parse_all(&args.paths)?;
    let time = match &args.date {
        Some(text) => TimeValue { now: false, ns: run.user_time(text)?.0 },
        None => TimeValue { now: true, ns: 0 },
    };
    let both = args.access == args.modification;
    let fs = run.fs()?.with_umask(copy::umask());
    for path in &paths {
        let wanted = SetAttr {
            target: target(path, true),
            atime: (both || args.access).then_some(time),
            mtime: (both || args.modification).then_some(time),
            ..SetAttr::default()
        };
        let changed = match fs.set_attr(wanted.clone()).map(drop) {
            Err(error) if error.reason() == Reason::NotFound && args.no_create => continue,
            Err(error) if error.reason() == Reason::NotFound && !path.wants_directory => make(&fs, path, args, wanted),
            changed => changed.map_err(Error::from),
        };
        match changed {
            Ok(()) => run.item(|| json!({ "path": path.to_string() }), || None)?,
            Err(error) => run.report(&path.to_string(), error)?,
        }
    }
    Ok(())
}

/// Makes the file, with the requested time.
fn make(fs: &Fs, path: &FsPath, args: &TouchArgs, wanted: SetAttr) -> Result<()> {
    fs.create(&target(path, true), 0o666, CreateMode::OpenExisting)?.close()?;
    if args.date.is_some() {
        fs.set_attr(wanted)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_names_or_numbers() {
        let found = |text: &str| owner_of(text).map_err(|error| error.to_string());
        assert_eq!(found("7"), Ok((Some(7), None)));
        assert_eq!(found("root"), Ok((Some(0), None)));
        assert_eq!(found("root:"), Ok((Some(0), Some(0))));
        assert_eq!(found("7:root"), Ok((Some(7), Some(0))));
        assert_eq!(found(":9"), Ok((None, Some(9))));
        for wrong in ["", ":", "nobody-of-this-name", "7:nobody-of-this-name", "7:", "-1"] {
            assert!(found(wrong).is_err(), "{wrong}");
        }
    }
}
