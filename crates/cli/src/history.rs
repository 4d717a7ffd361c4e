//! `log`, `now` and `snapshot`: instants and what happened at them.

use anyhow::{Error, Result};
use frieze_base::Reason;
use frieze_client::{Hlc, LogReply, UserTime, Version, VersionKind};
use serde_json::{Value, json};

use crate::args::{self, Log, Now};
use crate::copy::target;
use crate::failure::Usage;
use crate::format::{self, Table};
use crate::path::FsPath;
use crate::run::Run;

/// `frieze log`.
pub(crate) fn log(run: &mut Run, args: &Log) -> Result<()> {
    let path = FsPath::parse(&args.path)?;
    let mut fs = run.fs()?;
    if let Some(text) = &args.at {
        fs = fs.at(run.instant(text)?);
    }
    let mut after = match &args.since {
        Some(text) => run.instant(text)?,
        None => Hlc::ZERO,
    };
    let mut left = args.limit.unwrap_or(u64::MAX);
    let mut heading = !run.json();
    while left > 0 {
        let count_max = u32::try_from(left.min(PAGE_MAX)).expect("a page fits");
        let page = match fs.log(&target(&path, false), after, count_max) {
            Ok(page) => page,
            Err(error) if error.reason() == Reason::NotFound && args.at.is_none() => {
                let words = "no such file or directory now; --at INSTANT names a file that was there then";
                return run.report(&path.to_string(), Error::msg(words));
            }
            Err(error) => return run.report(&path.to_string(), error.into()),
        };
        left -= page.versions.len() as u64;
        print_page(run, &page, std::mem::take(&mut heading))?;
        match page.versions.last() {
            Some(last) if page.more => after = Hlc(last.stamp),
            _ => break,
        }
    }
    Ok(())
}

/// Versions in a request: a screenful of pages, and far below the largest body.
const PAGE_MAX: u64 = 1000;

fn print_page(run: &mut Run, page: &LogReply, heading: bool) -> Result<()> {
    let mut table = Table::new(&[false, false, false, true, true, false, false, false]);
    if heading {
        table.row(["TIME", "STAMP", "KIND", "OFFSET", "LENGTH", "USER", "SESSION", "DATA TIME"].map(str::to_owned));
    }
    for version in &page.versions {
        if run.json() {
            let item = version_to_json(run, version);
            run.print(&item.to_string())?;
            continue;
        }
        let stamp = Hlc(version.stamp);
        let (offset, len) = match version.kind() {
            VersionKind::Write | VersionKind::Punch => (version.offset.to_string(), version.len.to_string()),
            VersionKind::Truncate => (String::new(), version.len.to_string()),
            _ => (String::new(), String::new()),
        };
        let last = match version.user_time {
            Some(ns) => UserTime(ns).to_string(),
            None => format::printable(&version.name),
        };
        let session = if version.session == 0 { String::new() } else { version.session.to_string() };
        table.row([
            format::time_of(stamp),
            stamp.to_string(),
            kind_word(version.kind()).to_owned(),
            offset,
            len,
            run.names.user(version.uid).to_owned(),
            session,
            last,
        ]);
    }
    table.lines().try_for_each(|line| run.print(&line))
}

fn version_to_json(run: &mut Run, version: &Version) -> Value {
    let stamp = Hlc(version.stamp);
    json!({
        "stamp": stamp.to_string(),
        "time": format::time_of(stamp),
        "kind": kind_word(version.kind()),
        "user_time": version.user_time.map(|ns| UserTime(ns).to_string()),
        "session": version.session,
        "uid": version.uid,
        "user": run.names.user(version.uid),
        "offset": version.offset,
        "len": version.len,
        "name": (!version.name.is_empty()).then(|| String::from_utf8_lossy(&version.name)),
    })
}

fn kind_word(kind: VersionKind) -> &'static str {
    match kind {
        VersionKind::Write => "write",
        VersionKind::Make => "make",
        VersionKind::Truncate => "truncate",
        VersionKind::SetAttr => "set-attr",
        VersionKind::Named => "named",
        VersionKind::Unnamed => "unnamed",
        VersionKind::Punch => "punch",
        VersionKind::Cloned => "cloned",
        VersionKind::Restored => "restored",
        VersionKind::Undone => "undone",
        VersionKind::Shared => "copied",
    }
}

/// `frieze now`.
pub(crate) fn now(run: &mut Run, args: &Now) -> Result<()> {
    let asked = args.at.as_deref().map(|text| run.instant(text)).transpose()?;
    let reply = run.client()?.clock()?;
    let at = asked.unwrap_or(Hlc(reply.at));
    let (earliest, stable) = (Hlc(reply.earliest), Hlc(reply.stable));
    run.say_more(&format!("{at} is {}, {}", format::time_of(at), format::precision(reply.precision_us)));
    run.item(
        || {
            json!({
                "at": at.to_string(),
                "at_time": format::time_of(at),
                "precision_us": format::precision_json(reply.precision_us),
                "earliest": earliest.to_string(),
                "earliest_time": format::time_of(earliest),
                "stable": stable.to_string(),
                "stable_time": format::time_of(stable),
            })
        },
        || Some(at.to_string()),
    )
}

/// `frieze snapshot`.
pub(crate) fn snapshot(run: &mut Run, command: &args::Snapshot) -> Result<()> {
    match command {
        args::Snapshot::Create { name, at } => create(run, name, at.as_deref()),
        args::Snapshot::List => list(run),
        args::Snapshot::Delete { names } => {
            for name in names {
                match run.client()?.delete_snapshot(name) {
                    Ok(_) => run.item(|| json!({ "deleted": name }), || None)?,
                    Err(error) => {
                        let error = match error.reason() {
                            Reason::NotFound => Error::msg("no such snapshot"),
                            _ => error.into(),
                        };
                        run.report(name, error)?;
                    }
                }
            }
            Ok(())
        }
    }
}

fn create(run: &mut Run, name: &str, at: Option<&str>) -> Result<()> {
    frieze_hlc::check_snapshot_name(name).map_err(|error| Usage(error.to_string()))?;
    let at = at.map(|text| run.instant(text)).transpose()?;
    let at = match run.client()?.make_snapshot(name, at) {
        Ok(at) => at,
        Err(error) if error.reason() == Reason::Exists => {
            return run.report(name, Error::msg("a snapshot has that name"));
        }
        Err(error) => return Err(error.into()),
    };
    run.item(
        || json!({ "name": name, "at": at.to_string(), "at_time": format::time_of(at) }),
        || Some(format!("{name} is {at} ({})", format::time_of(at))),
    )
}

fn list(run: &mut Run) -> Result<()> {
    let snapshots = run.client()?.snapshots()?;
    let mut table = Table::new(&[false, false, false, false]);
    if !run.json() && !snapshots.is_empty() {
        table.row(["NAME", "INSTANT", "STAMP", "MADE BY"].map(str::to_owned));
    }
    for snapshot in &snapshots {
        let (at, made) = (Hlc(snapshot.at), Hlc(snapshot.made));
        let user = run.names.user(snapshot.uid).to_owned();
        if !run.json() {
            table.row([format::printable(snapshot.name.as_bytes()), format::time_of(at), at.to_string(), user]);
            continue;
        }
        let item = json!({
            "name": snapshot.name,
            "at": at.to_string(),
            "at_time": format::time_of(at),
            "made": made.to_string(),
            "made_time": format::time_of(made),
            "uid": snapshot.uid,
            "user": user,
        });
        run.print(&item.to_string())?;
    }
    table.lines().try_for_each(|line| run.print(&line))
}
