//! `log`: what happened to a file, or to a directory and the names in it.

use anyhow::{Error, Result};
use frieze_base::Reason;
use frieze_client::{Difference, FileKind, Forgotten, Fs, Hlc, Interval, LogReply, UserTime, Version, VersionKind};
use serde_json::{Map, Value};

use super::deleted::back;
use super::{Change, Commands, Who, details, named, paths, to_json};
use crate::args::Log;
use crate::copy::target;
use crate::format::{self, Table};
use crate::path::FsPath;
use crate::progress::Progress;
use crate::run::Run;

/// Versions or events in a request: a screenful of pages, and far below the largest body.
const PAGE_MAX: u64 = 1000;

/// `frieze log`.
pub(crate) fn log(run: &mut Run, args: &Log) -> Result<()> {
    let path = FsPath::parse(&args.path)?;
    let asked_at = args.at.as_deref().map(|text| run.instant(text)).transpose()?;
    let after = args.since.as_deref().map(|text| run.instant(text)).transpose()?;
    let upto = args.until.as_deref().map(|text| run.instant(text)).transpose()?;
    let now = run.client()?.clock()?;
    let mut fs = run.fs()?;
    if let Some(at) = asked_at {
        fs = fs.at(at);
    }
    let newest = match now.without_lease {
        true => {
            let stable = Hlc(now.stable);
            run.say(&format!("note: nobody leads the cluster: this ends with {stable} ({})", format::time_of(stable)));
            if asked_at.is_none() {
                fs = fs.at(stable);
            }
            stable
        }
        false => Hlc(now.at),
    };
    let interval = Interval { after: after.unwrap_or(Hlc::ZERO), upto: upto.unwrap_or(newest) };
    let found = match fs.stat(&target(&path, false)) {
        Err(error) if error.reason() == Reason::NotFound && asked_at.is_none() => {
            // A name that is gone is looked for in the past.
            match last_seen(run, &fs, &path, Commands::of(args.full)) {
                Ok(at) => fs = fs.at(at),
                Err(error) => return run.report(&path.to_string(), error),
            }
            fs.stat(&target(&path, false))
        }
        found => found,
    };
    let told = match found {
        Ok(found) if found.attr.kind() == FileKind::Directory => directory(run, args, &fs, &path, interval),
        Ok(_) => file(run, args, &fs, &path, interval),
        Err(error) => Err(error.into()),
    };
    told.or_else(|error| run.report(&path.to_string(), error))
}

/// Says when a name was last there and who took it; returns the instant.
fn last_seen(run: &mut Run, fs: &Fs, path: &FsPath, commands: Commands) -> Result<Hlc> {
    let reply = match fs.last_seen(path.as_bytes()) {
        Err(error) if error.reason() == Reason::NotFound => {
            return Err(Error::msg("there is and was no such file or directory"));
        }
        reply => reply?,
    };
    let mut who = Who::new(commands);
    who.learn(reply.sessions);
    let (at, gone) = (Hlc(reply.at), &reply.was);
    let by = who.words(run, gone.uid, gone.session);
    let how = match gone.moved_to.is_empty() {
        true => "removed".to_owned(),
        false => format!("moved to {}", format::printable(&gone.moved_to)),
    };
    run.say(&format!("{path} was {how} at {} by {by}", format::time_of(Hlc(gone.stamp))));
    if gone.moved_to.is_empty() {
        let words = back(fs, gone)?;
        run.say(&format!("to get it back: {words}"));
    }
    Ok(at)
}

fn file(run: &mut Run, args: &Log, fs: &Fs, path: &FsPath, interval: Interval) -> Result<()> {
    let (mut after, mut left) = (interval.after, args.limit.unwrap_or(u64::MAX));
    let (mut heading, mut told) = (!run.json(), false);
    let mut who = Who::new(Commands::of(args.full));
    while left > 0 {
        let count_max = u32::try_from(left.min(PAGE_MAX)).expect("a page fits");
        let mut page = fs.log(&target(path, false), Interval { after, ..interval }, count_max)?;
        who.learn(std::mem::take(&mut page.sessions));
        let last = page.versions.last().map(|last| Hlc(last.stamp));
        left -= page.versions.len() as u64;
        if let Some(forgotten) = page.forgotten.take().filter(|_| !std::mem::replace(&mut told, true)) {
            tell_forgotten(run, &forgotten)?;
        }
        print_versions(run, &who, &page, std::mem::take(&mut heading))?;
        match last {
            Some(last) if page.more => after = last,
            _ => break,
        }
    }
    Ok(())
}

/// One line for all that is not told any more.
fn tell_forgotten(run: &mut Run, forgotten: &Forgotten) -> Result<()> {
    let (before, stamp) = (Hlc(forgotten.before), Hlc(forgotten.stamp));
    let user = run.names.user(forgotten.uid).to_owned();
    let (before_time, time) = (format::time_of(before), format::time_of(stamp));
    run.item(
        || {
            serde_json::json!({
                "kind": "forgotten",
                "before": before.to_string(),
                "before_time": before_time,
                "stamp": stamp.to_string(),
                "time": time,
                "uid": forgotten.uid,
                "user": user,
            })
        },
        || Some(format!("before {before_time}: forgotten by {user} at {time}")),
    )
}

fn print_versions(run: &mut Run, who: &Who, page: &LogReply, heading: bool) -> Result<()> {
    let mut table = Table::new(&[false, false, false, true, true, false, false, false, false, false]);
    if heading {
        let names =
            ["TIME", "STAMP", "KIND", "OFFSET", "LENGTH", "NAME OR DATA TIME", "USER", "SESSION", "HOST", "COMMAND"];
        table.row(names.map(str::to_owned));
    }
    for version in &page.versions {
        if run.json() {
            let item = version_to_json(run, who, version);
            run.print_json(item)?;
            continue;
        }
        let stamp = Hlc(version.stamp);
        let (offset, len) = match version.kind() {
            VersionKind::Write | VersionKind::Punch => (version.offset.to_string(), version.len.to_string()),
            VersionKind::Truncate => (String::new(), version.len.to_string()),
            _ => (String::new(), String::new()),
        };
        let what = match version.user_time {
            Some(ns) => UserTime(ns).to_string(),
            None => format::printable(&version.name),
        };
        let [session, host, command] = who.cells(version.session);
        table.row([
            format::time_of(stamp),
            stamp.to_string(),
            kind_word(version.kind()).to_owned(),
            offset,
            len,
            what,
            run.names.user(version.uid).to_owned(),
            session,
            host,
            command,
        ]);
    }
    table.lines().try_for_each(|line| run.print(&line))
}

fn version_to_json(run: &mut Run, who: &Who, version: &Version) -> Map<String, Value> {
    let stamp = Hlc(version.stamp);
    let mut item = Map::new();
    item.insert("stamp".to_owned(), stamp.to_string().into());
    item.insert("time".to_owned(), format::time_of(stamp).into());
    item.insert("kind".to_owned(), kind_word(version.kind()).into());
    item.insert("user_time".to_owned(), version.user_time.map(|ns| UserTime(ns).to_string()).into());
    who.put_json(run, &mut item, "uid", version.uid, version.session);
    item.insert("offset".to_owned(), version.offset.into());
    item.insert("len".to_owned(), version.len.into());
    let name = (!version.name.is_empty()).then(|| String::from_utf8_lossy(&version.name).into_owned());
    item.insert("name".to_owned(), name.into());
    item
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

fn directory(run: &mut Run, args: &Log, fs: &Fs, path: &FsPath, whole: Interval) -> Result<()> {
    let (mut interval, mut left) = (whole, args.limit.unwrap_or(u64::MAX));
    let (mut who, mut heading, mut told) = (Who::new(Commands::of(args.full)), !run.json(), false);
    let (mut told_hidden, mut told_left_out) = (false, false);
    run.show(|wanted| Progress::items(wanted, "events"));
    while left > 0 && interval.after < interval.upto {
        let count_max = u32::try_from(left.min(PAGE_MAX)).expect("a page fits");
        let mut page = fs.story(&target(path, true), interval, args.recursive, count_max)?;
        if page.hidden && !std::mem::replace(&mut told_hidden, true) {
            run.say("something else happened in directories that you may not read");
        }
        if page.left_out && !std::mem::replace(&mut told_left_out, true) {
            run.say("something else happened that a file or another directory has forgotten since");
        }
        if let Some(forgotten) = page.forgotten.filter(|_| !std::mem::replace(&mut told, true)) {
            tell_forgotten(run, &forgotten)?;
        }
        who.learn(page.sessions);
        page.events.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        left -= page.events.len() as u64;
        run.progress(|progress| progress.advance(page.events.len() as u64));
        print_events(run, &who, &page.events, std::mem::take(&mut heading))?;
        interval.after = Hlc(page.upto).max(interval.after.next());
    }
    Ok(())
}

fn print_events(run: &mut Run, who: &Who, events: &[Difference], heading: bool) -> Result<()> {
    let mut table = Table::new(&[false, false, false, false, false, false, false, false]);
    if heading {
        let names = ["TIME", "STAMP", "WHAT", "NAME", "USER", "SESSION", "HOST", "COMMAND"];
        table.row(names.map(str::to_owned));
    }
    for event in events {
        if run.json() {
            let item = to_json(run, who, event);
            run.print_json(item)?;
            continue;
        }
        let details = details(run, event);
        let name = if details.is_empty() { paths(event) } else { format!("{} ({details})", paths(event)) };
        let [session, host, command] = who.cells(event.session);
        table.row([
            format::time_of(Hlc(event.stamp)),
            Hlc(event.stamp).to_string(),
            event_word(event).to_owned(),
            name,
            run.names.user(event.uid).to_owned(),
            session,
            host,
            command,
        ]);
    }
    table.lines().try_for_each(|line| run.print(&line))
}

/// What one transaction, or one run of writes, did to a name.
fn event_word(event: &Difference) -> &'static str {
    let made_now = named(event).born == event.stamp;
    match Change::of(event) {
        Change::Added if made_now => "made",
        Change::Added => "named",
        Change::Removed => "removed",
        Change::Renamed => "renamed",
        Change::Modified if event.flags & frieze_client::flags::REPLACED != 0 => "replaced",
        Change::Modified if event.flags == frieze_client::flags::CONTENT => "written",
        Change::Modified => "changed",
    }
}
