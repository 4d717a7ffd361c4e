//! `quota` and `df`: how much may lie below directories, how much does, and how much room is left.

use anyhow::{Error, Result};
use frieze_base::{Fault, Reason};
use frieze_client::{FileKind, FreeSpace, Fs, Quota, QuotaUse, Target};
use serde_json::json;

use crate::args::{DfArgs, SetQuotaArgs};
use crate::copy::{self, target};
use crate::format::{self, TextTable};
use crate::path::FsPath;
use crate::run::CommandRun;

/// `frieze quota`.
pub(crate) fn quota(run: &mut CommandRun, args: &SetQuotaArgs) -> Result<()> {
    args.no_past.refuse()?;
    let paths = copy::parse_all(&args.paths)?;
    let fs = run.fs()?;
    let mut table = TextTable::new(&[true, true, true, true, true, true, false]);
    table.row(["FILES", "OF", "BYTES", "OF", "KEPT", "OF", "PATH"].map(str::to_owned));
    let mut found = Vec::new();
    for path in paths {
        match set(&fs, &path, args) {
            Ok(quota) => found.push((path, quota)),
            Err(error) => run.report(&path.to_string(), error)?,
        }
    }
    for (path, quota) in found {
        let most = |most: Option<u64>, shown: fn(u64) -> String| most.map_or("-".to_owned(), shown);
        table.row(match quota {
            None => ["-"; 6].map(str::to_owned).into_iter().chain([path.to_string()]).collect::<Vec<_>>(),
            Some(QuotaUse { quota, used, kept }) => vec![
                used.files.to_string(),
                most(quota.files_max, |most| most.to_string()),
                format::human(used.bytes),
                most(quota.bytes_max, format::human),
                most(kept, format::human),
                most(quota.kept_max, format::human),
                path.to_string(),
            ],
        });
        run.item(
            || {
                json!({
                    "path": path.to_string(),
                    "files": quota.map(|usage| usage.used.files),
                    "files_max": quota.and_then(|usage| usage.quota.files_max),
                    "bytes": quota.map(|usage| usage.used.bytes),
                    "bytes_max": quota.and_then(|usage| usage.quota.bytes_max),
                    "kept": quota.and_then(|usage| usage.kept),
                    "kept_max": quota.and_then(|usage| usage.quota.kept_max),
                })
            },
            || None,
        )?;
    }
    if !run.json() {
        table.lines().try_for_each(|line| run.print(&line))?;
    }
    Ok(())
}

/// `frieze df`.
pub(crate) fn df(run: &mut CommandRun, args: &DfArgs) -> Result<()> {
    args.no_past.refuse()?;
    let paths = copy::parse_all(&args.paths)?;
    let fs = run.fs()?;
    let device = FreeSpace::on_device(&run.client()?.status()?);
    let mut table = TextTable::new(&[true, true, true, true, false]);
    let (all, free) = if args.inodes { ("INODES", "IFREE") } else { ("SIZE", "AVAIL") };
    table.row([all, "USED", free, "USE%", "PATH"].map(str::to_owned));
    for path in paths {
        let room = match room(&fs, &path, device) {
            Ok(room) => room,
            Err(error) => {
                run.report(&path.to_string(), error)?;
                continue;
            }
        };
        let (used, inodes_used) = (room.capacity_bytes - room.free_bytes, room.inodes - room.inodes_free);
        let item = || {
            json!({
                "path": path.to_string(),
                "bytes": room.capacity_bytes,
                "bytes_used": used,
                "bytes_free": room.free_bytes,
                "inodes": room.inodes,
                "inodes_used": inodes_used,
                "inodes_free": room.inodes_free,
            })
        };
        run.item(item, || None)?;
        let shown = |number: u64| if args.human { format::human(number) } else { number.to_string() };
        let (all, used, free) = match args.inodes {
            true => (room.inodes, inodes_used, room.inodes_free),
            false => (room.capacity_bytes, used, room.free_bytes),
        };
        // As df(1): what is begun counts.
        let percent = (u128::from(used) * 100).div_ceil(u128::from(all.max(1)));
        table.row([shown(all), shown(used), shown(free), format!("{percent}%"), path.to_string()]);
    }
    if !run.json() {
        table.lines().try_for_each(|line| run.print(&line))?;
    }
    Ok(())
}

/// The room at a path that is there.
fn room(fs: &Fs, path: &FsPath, device: FreeSpace) -> Result<FreeSpace> {
    fs.stat(&target(path, true))?;
    let mut room = device;
    for place in FreeSpace::prefixes(path.as_bytes()) {
        // A user that may not read a directory above gets those below.
        if let Ok(Some(usage)) = fs.quota(&Target::path(place)) {
            room = room.under(&usage);
        }
    }
    Ok(room)
}

/// Sets the quota, and returns the resulting one.
fn set(fs: &Fs, path: &FsPath, args: &SetQuotaArgs) -> Result<Option<QuotaUse>> {
    let directory = target(path, true);
    if fs.stat(&directory)?.attr.kind() != FileKind::Directory {
        return Err(Fault::new(Reason::NotDirectory, "not a directory: a quota is that of one").into());
    }
    let is = fs.quota(&directory)?;
    if args.files.is_none() && args.bytes.is_none() && args.kept.is_none() {
        return Ok(is);
    }
    let mut quota = is.map_or(Quota::default(), |usage| usage.quota);
    if let Some(most) = args.files {
        quota.files_max = most.0;
    }
    // History may take as much again, unless it has a bound of its own.
    let with_history = |bytes_max: Option<u64>| bytes_max.map(|bytes| bytes.saturating_mul(2));
    let has_own = quota.kept_max.is_some() && quota.kept_max != with_history(quota.bytes_max);
    if let Some(most) = args.bytes {
        quota.bytes_max = most.0;
        if !has_own {
            quota.kept_max = with_history(most.0);
        }
    }
    if let Some(most) = args.kept {
        quota.kept_max = most.0;
    }
    if is.is_none() && quota == Quota::default() {
        return Err(Error::msg("it has no quota: there is none to take away"));
    }
    fs.set_quota(&directory, &quota)?;
    Ok(fs.quota(&directory)?)
}
