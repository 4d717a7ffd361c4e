//! `chmod`, `chown` and `touch`: attributes of files and directories.

use anyhow::{Error, Result};
use frieze_base::Reason;
use frieze_client::{Attr, CreateMode, FileKind, Fs, SetAttr, TimeValue};
use nix::unistd::{Group, User};
use serde_json::json;

use crate::args::{ChmodArgs, ChownArgs, TouchArgs};
use crate::copy::{self, target};
use crate::entry;
use crate::failure::UsageError;
use crate::mode::ModeSpec;
use crate::path::FsPath;
use crate::progress::ProgressLine;
use crate::run::CommandRun;

/// `frieze chmod`.
pub(crate) fn chmod(run: &mut CommandRun, args: &ChmodArgs) -> Result<()> {
    args.no_past.refuse()?;
    let mode = ModeSpec::parse(&args.mode)?;
    let umask = copy::umask();
    change_all(run, &args.paths, args.recursive, true, |attr| {
        // A symbolic link has no mode of its own.
        (attr.kind() != FileKind::Symlink).then(|| SetAttr {
            mode: Some(mode.of(attr.mode, attr.kind() == FileKind::Directory, umask)),
            ..SetAttr::default()
        })
    })
}

/// `frieze chown`.
pub(crate) fn chown(run: &mut CommandRun, args: &ChownArgs) -> Result<()> {
    args.no_past.refuse()?;
    let (uid, gid) = owner_of(&args.owner)?;
    change_all(run, &args.paths, args.recursive, !args.no_dereference, |_| {
        Some(SetAttr { uid, gid, ..SetAttr::default() })
    })
}

/// Changes each path, and what is below it if requested. `follow`: a path that is a symbolic link means its target;
/// links below are changed themselves, or left.
fn change_all(
    run: &mut CommandRun,
    paths: &[std::ffi::OsString],
    recursive: bool,
    follow: bool,
    change: impl Fn(&Attr) -> Option<SetAttr>,
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
            Ok(reply) => change_tree(run, &fs, path, &reply.attr, (recursive, follow), &change)?,
            Err(error) => run.report(&path.to_string(), error.into())?,
        }
    }
    Ok(())
}

fn change_tree(
    run: &mut CommandRun,
    fs: &Fs,
    path: &FsPath,
    attr: &Attr,
    (recursive, follow): (bool, bool),
    change: &dyn Fn(&Attr) -> Option<SetAttr>,
) -> Result<()> {
    if let Some(wanted) = change(attr) {
        let wanted = SetAttr { target: target(path, follow || path.wants_directory), ..wanted };
        let (mode, uid, gid) = (wanted.mode, wanted.uid, wanted.gid);
        match fs.set_attr(wanted) {
            Ok(_) => {
                run.progress(|progress| progress.advance(1));
                let item = || {
                    json!({
                        "path": path.to_string(),
                        "kind": entry::kind_word(attr.kind()),
                        "mode": format!("{:04o}", mode.unwrap_or(attr.mode)),
                        "uid": uid.unwrap_or(attr.uid),
                        "gid": gid.unwrap_or(attr.gid),
                    })
                };
                run.item(item, || None)?;
            }
            Err(error) => run.report(&path.to_string(), error.into())?,
        }
    }
    if !recursive || attr.kind() != FileKind::Directory {
        return Ok(());
    }
    let below = match fs.entries_with_attrs(&target(path, false)) {
        Ok(below) => below,
        Err(error) => return run.report(&path.to_string(), error.into()),
    };
    for entry in below {
        if let Some(attr) = &entry.attr {
            change_tree(run, fs, &path.join(&entry.name), attr, (true, false), change)?;
        }
    }
    Ok(())
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
