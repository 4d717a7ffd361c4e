//! `quota`: how much may lie below directories, and how much does.

use anyhow::{Error, Result};
use frieze_base::{Fault, Reason};
use frieze_client::{FileKind, Fs, Quota, Usage};
use serde_json::json;

use crate::args::SetQuota;
use crate::copy::{self, target};
use crate::format::{self, Table};
use crate::path::FsPath;
use crate::run::Run;

/// `frieze quota`.
pub(crate) fn quota(run: &mut Run, args: &SetQuota) -> Result<()> {
    args.no_past.refuse()?;
    let paths = copy::parse_all(&args.paths)?;
    let fs = run.fs()?;
    let mut table = Table::new(&[true, true, true, true, false]);
    table.row(["FILES", "OF", "BYTES", "OF", "PATH"].map(str::to_owned));
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
            None => ["-", "-", "-", "-"].map(str::to_owned).into_iter().chain([path.to_string()]).collect::<Vec<_>>(),
            Some((quota, used)) => vec![
                used.files.to_string(),
                most(quota.files_max, |most| most.to_string()),
                format::human(used.bytes),
                most(quota.bytes_max, format::human),
                path.to_string(),
            ],
        });
        run.item(
            || {
                json!({
                    "path": path.to_string(),
                    "files": quota.map(|(_, used)| used.files),
                    "files_max": quota.and_then(|(quota, _)| quota.files_max),
                    "bytes": quota.map(|(_, used)| used.bytes),
                    "bytes_max": quota.and_then(|(quota, _)| quota.bytes_max),
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

/// Sets what is to be set, and answers what is so then.
fn set(fs: &Fs, path: &FsPath, args: &SetQuota) -> Result<Option<(Quota, Usage)>> {
    let directory = target(path, true);
    if fs.stat(&directory)?.attr.kind() != FileKind::Directory {
        return Err(Fault::new(Reason::NotDirectory, "not a directory: a quota is that of one").into());
    }
    let is = fs.quota(&directory)?;
    if args.files.is_none() && args.bytes.is_none() {
        return Ok(is);
    }
    let mut quota = is.map_or(Quota::default(), |(quota, _)| quota);
    if let Some(most) = args.files {
        quota.files_max = most.0;
    }
    if let Some(most) = args.bytes {
        quota.bytes_max = most.0;
    }
    if is.is_none() && quota == Quota::default() {
        return Err(Error::msg("it has no quota: there is none to take away"));
    }
    fs.set_quota(&directory, &quota)?;
    Ok(fs.quota(&directory)?)
}
