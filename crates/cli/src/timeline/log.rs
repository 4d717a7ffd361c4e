//! `log`: the events of a file, or of a directory and the names in it.

use std::time::Duration;

use anyhow::{Error, Result};
use frieze_base::Reason;
use frieze_client::{Difference, FileKind, ForgottenHistory, Fs, HistoryInterval, Hlc, UserTime, Version, VersionKind};
use serde_json::{Map, Value};

use super::deleted::back;
use super::{ChangeKind, Commands, SessionNames, details, named, paths, to_json};
use crate::args::LogArgs;
use crate::copy::target;
use crate::format::{self, TextTable};
use crate::path::FsPath;
use crate::progress::ProgressLine;
use crate::run::CommandRun;

/// Versions or events in a request: a screenful of pages, and far below the largest body.
const PAGE_MAX: u64 = 1000;
/// Lines before the followed ones, as `tail` has them.
const FOLLOWED_LINES: u64 = 10;
/// HistoryInterval between two requests for new events.
const FOLLOW_EVERY: Duration = Duration::from_millis(500);

/// `frieze log`.
pub(crate) fn log(run: &mut CommandRun, args: &LogArgs) -> Result<()> {
    let path = FsPath::parse(&args.path)?;
    args.old.refuse()?;
    let asked_at = args.at.as_deref().map(|text| run.instant(text)).transpose()?;
    let after = args.from.as_deref().map(|text| run.instant(text)).transpose()?;
    let upto = args.to.as_deref().map(|text| run.instant(text)).transpose()?;
    let mut fs = run.fs()?;
    if let Some(at) = asked_at {
        fs = fs.at(at);
    }
    let (newest, is_led) = newest(run)?;
    if !is_led {
        run.say(&format!("note: the cluster has no leader: this ends with {newest} ({})", format::time_of(newest)));
        if asked_at.is_none() {
            fs = fs.at(newest);
        }
    }
    let interval = HistoryInterval { after: after.unwrap_or(Hlc::ZERO), upto: upto.unwrap_or(newest) };
    let found = match fs.stat(&target(&path, false)) {
        Err(error) if error.reason() == Reason::NotFound && asked_at.is_none() => {
            // A deleted name is looked up in the past.
            match last_existed(run, &fs, &path, Commands::of(args.full)) {
                Ok(at) => fs = fs.at(at),
                Err(error) => return run.report(&path.to_string(), error),
            }
            fs.stat(&target(&path, false))
        }
        found => found,
    };
    let told = match found {
        Ok(found) => {
            let is_directory = found.attr.kind() == FileKind::Directory;
            let mut shown = LogPrinter::new(run, args, path.clone(), is_directory);
            shown.all(run, args, &fs, interval)
        }
        Err(error) => Err(error.into()),
    };
    told.or_else(|error| run.report(&path.to_string(), error))
}

/// The newest instant that can be shown, and whether the server can answer for now.
fn newest(run: &mut CommandRun) -> Result<(Hlc, bool)> {
    let now = run.client()?.clock()?;
    Ok(if now.without_lease { (Hlc(now.stable), false) } else { (Hlc(now.at), true) })
}

/// Prints when a name last existed and which session removed it; returns the instant.
fn last_existed(run: &mut CommandRun, fs: &Fs, path: &FsPath, commands: Commands) -> Result<Hlc> {
    let reply = match fs.last_existed(path.as_bytes()) {
        Err(error) if error.reason() == Reason::NotFound => {
            return Err(Error::msg("there is and was no such file or directory"));
        }
        reply => reply?,
    };
    let mut who = SessionNames::new(commands);
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

/// The output, page by page.
struct LogPrinter {
    path: FsPath,
    /// Events of a directory, of everything below it if it is `recursive`; else versions of a file.
    is_directory: bool,
    recursive: bool,
    who: SessionNames,
    /// The names of the columns come first.
    heading: bool,
    told_forgotten: bool,
    told_hidden: bool,
    told_left_out: bool,
    /// Lines that may still be printed.
    left: u64,
}

/// A part of the events.
#[derive(Debug)]
enum LogItems {
    Versions(Vec<Version>),
    Events(Vec<Difference>),
}

/// The server's answer about an interval, and the rest of it.
struct LogPage {
    items: LogItems,
    forgotten: Option<ForgottenHistory>,
    rest: Option<HistoryInterval>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogOrder {
    NewestFirst,
    OldestFirst,
}

impl LogItems {
    fn len(&self) -> u64 {
        match self {
            LogItems::Versions(versions) => versions.len() as u64,
            LogItems::Events(events) => events.len() as u64,
        }
    }

    fn truncate(&mut self, left: u64) {
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        match self {
            LogItems::Versions(versions) => versions.truncate(left),
            LogItems::Events(events) => events.truncate(left),
        }
    }

    fn reverse(&mut self) {
        match self {
            LogItems::Versions(versions) => versions.reverse(),
            LogItems::Events(events) => events.reverse(),
        }
    }
}

impl LogPrinter {
    fn new(run: &CommandRun, args: &LogArgs, path: FsPath, is_directory: bool) -> LogPrinter {
        LogPrinter {
            path,
            is_directory,
            recursive: args.recursive,
            who: SessionNames::new(Commands::of(args.full)),
            heading: !run.json(),
            told_forgotten: false,
            told_hidden: false,
            told_left_out: false,
            left: args.limit.unwrap_or(u64::MAX),
        }
    }

    /// All requested events.
    fn all(&mut self, run: &mut CommandRun, args: &LogArgs, fs: &Fs, interval: HistoryInterval) -> Result<()> {
        if args.follow {
            return self.follow(run, args, fs, interval);
        }
        if self.is_directory {
            run.show(|wanted| ProgressLine::items(wanted, "events"));
        }
        self.pages(run, fs, interval, if args.reverse { LogOrder::OldestFirst } else { LogOrder::NewestFirst })
    }

    /// The events of an interval, as far as there may be more lines.
    fn pages(&mut self, run: &mut CommandRun, fs: &Fs, interval: HistoryInterval, order: LogOrder) -> Result<()> {
        let (mut rest, mut forgotten) = (Some(interval), None);
        while let Some(interval) = rest.filter(|rest| self.left > 0 && rest.after < rest.upto) {
            let mut page = self.page(run, fs, interval, order)?;
            if order == LogOrder::OldestFirst && page.forgotten.is_some() {
                self.print_forgotten(run, page.forgotten.take())?;
            }
            forgotten = page.forgotten;
            self.print(run, page.items)?;
            rest = page.rest;
        }
        // The oldest that can be shown.
        if self.left > 0 { self.print_forgotten(run, forgotten) } else { Ok(()) }
    }

    /// The newest lines, the oldest of them first, and then new events, until the process is interrupted.
    fn follow(&mut self, run: &mut CommandRun, args: &LogArgs, fs: &Fs, interval: HistoryInterval) -> Result<()> {
        if args.limit.is_none() && args.from.is_some() {
            // All of it, however much that is, goes out as it comes.
            self.pages(run, fs, interval, LogOrder::OldestFirst)?;
            return self.go_on(run, fs, interval.upto);
        }
        self.left = args.limit.unwrap_or(FOLLOWED_LINES);
        let (mut pages, mut rest) = (Vec::new(), Some(interval));
        while let Some(interval) = rest.filter(|rest| self.left > 0 && rest.after < rest.upto) {
            let mut page = self.page(run, fs, interval, LogOrder::NewestFirst)?;
            page.items.truncate(self.left);
            self.left -= page.items.len();
            page.items.reverse();
            rest = page.rest;
            pages.push(page);
        }
        self.left = u64::MAX;
        for page in pages.into_iter().rev() {
            self.print_forgotten(run, page.forgotten)?;
            self.print(run, page.items)?;
        }
        self.go_on(run, fs, interval.upto)
    }

    /// The events after `upto`, until the process is interrupted or the name is removed.
    fn go_on(&mut self, run: &mut CommandRun, fs: &Fs, mut upto: Hlc) -> Result<()> {
        loop {
            run.flush()?;
            std::thread::park_timeout(FOLLOW_EVERY);
            let interval = HistoryInterval { after: upto, upto: newest(run)?.0 };
            match self.pages(run, fs, interval, LogOrder::OldestFirst) {
                // The name is removed: the events until then, and the removal, are all that there is to follow.
                Err(error) if is_absent(&error) => {
                    let at = last_existed(run, fs, &self.path, self.who.commands)?;
                    return self.pages(run, &fs.at(at), interval, LogOrder::OldestFirst);
                }
                shown => shown?,
            }
            upto = interval.upto.max(upto);
        }
    }

    fn page(&mut self, run: &mut CommandRun, fs: &Fs, interval: HistoryInterval, order: LogOrder) -> Result<LogPage> {
        let count_max = u32::try_from(self.left.min(PAGE_MAX)).expect("a page fits");
        let target = target(&self.path, self.is_directory);
        if !self.is_directory {
            let page = match order {
                LogOrder::NewestFirst => fs.log_newest(&target, interval, count_max)?,
                LogOrder::OldestFirst => fs.log(&target, interval, count_max)?,
            };
            self.who.learn(page.sessions);
            let rest = match order {
                _ if !page.more => None,
                LogOrder::NewestFirst => Some(HistoryInterval { upto: Hlc(page.after), ..interval }),
                LogOrder::OldestFirst => {
                    page.versions.last().map(|last| HistoryInterval { after: Hlc(last.stamp), ..interval })
                }
            };
            return Ok(LogPage { items: LogItems::Versions(page.versions), forgotten: page.forgotten, rest });
        }
        let page = match order {
            LogOrder::NewestFirst => fs.story_newest(&target, interval, self.recursive, count_max)?,
            LogOrder::OldestFirst => fs.story(&target, interval, self.recursive, count_max)?,
        };
        if page.hidden && !std::mem::replace(&mut self.told_hidden, true) {
            run.say("something else happened in directories that you may not read");
        }
        if page.left_out && !std::mem::replace(&mut self.told_left_out, true) {
            run.say("something else happened that a file or another directory has forgotten since");
        }
        self.who.learn(page.sessions);
        let rest = match order {
            LogOrder::NewestFirst => {
                HistoryInterval { upto: Hlc(page.after).min(interval.upto.previous()), ..interval }
            }
            LogOrder::OldestFirst => HistoryInterval { after: Hlc(page.upto).max(interval.after.next()), ..interval },
        };
        Ok(LogPage { items: LogItems::Events(page.events), forgotten: page.forgotten, rest: Some(rest) })
    }

    fn print(&mut self, run: &mut CommandRun, mut items: LogItems) -> Result<()> {
        items.truncate(self.left);
        self.left -= items.len();
        let heading = std::mem::take(&mut self.heading);
        match items {
            LogItems::Versions(versions) => print_versions(run, &self.who, &versions, heading),
            LogItems::Events(events) => {
                run.progress(|progress| progress.advance(events.len() as u64));
                print_events(run, &self.who, &events, heading)
            }
        }
    }

    fn print_forgotten(&mut self, run: &mut CommandRun, forgotten: Option<ForgottenHistory>) -> Result<()> {
        match forgotten.filter(|_| !std::mem::replace(&mut self.told_forgotten, true)) {
            Some(forgotten) => print_forgotten(run, &forgotten),
            None => Ok(()),
        }
    }
}

fn is_absent(error: &Error) -> bool {
    error.downcast_ref::<frieze_client::Error>().is_some_and(|error| error.reason() == Reason::NotFound)
}

/// One line for all forgotten events.
fn print_forgotten(run: &mut CommandRun, forgotten: &ForgottenHistory) -> Result<()> {
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

fn print_versions(run: &mut CommandRun, who: &SessionNames, versions: &[Version], heading: bool) -> Result<()> {
    let mut table = TextTable::new(&[false, false, false, true, true, false, false, false, false, false]);
    if heading {
        let names =
            ["TIME", "STAMP", "KIND", "OFFSET", "LENGTH", "NAME OR DATA TIME", "USER", "SESSION", "HOST", "COMMAND"];
        table.row(names.map(str::to_owned));
    }
    for version in versions {
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
            version.kind().word().to_owned(),
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

fn version_to_json(run: &mut CommandRun, who: &SessionNames, version: &Version) -> Map<String, Value> {
    let stamp = Hlc(version.stamp);
    let mut item = Map::new();
    item.insert("stamp".to_owned(), stamp.to_string().into());
    item.insert("time".to_owned(), format::time_of(stamp).into());
    item.insert("kind".to_owned(), version.kind().word().into());
    item.insert("user_time".to_owned(), version.user_time.map(|ns| UserTime(ns).to_string()).into());
    who.put_json(run, &mut item, "uid", version.uid, version.session);
    item.insert("offset".to_owned(), version.offset.into());
    item.insert("len".to_owned(), version.len.into());
    let name = (!version.name.is_empty()).then(|| String::from_utf8_lossy(&version.name).into_owned());
    item.insert("name".to_owned(), name.into());
    item
}

fn print_events(run: &mut CommandRun, who: &SessionNames, events: &[Difference], heading: bool) -> Result<()> {
    let mut table = TextTable::new(&[false, false, false, false, false, false, false, false]);
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

/// The effect of one transaction, or of one run of writes, on a name.
fn event_word(event: &Difference) -> &'static str {
    let made_now = named(event).born == event.stamp;
    match ChangeKind::of(event) {
        ChangeKind::Added if made_now => "made",
        ChangeKind::Added => "named",
        ChangeKind::Removed => "removed",
        ChangeKind::Renamed => "renamed",
        ChangeKind::Modified if event.flags & frieze_client::flags::REPLACED != 0 => "replaced",
        ChangeKind::Modified if event.flags == frieze_client::flags::CONTENT => "written",
        ChangeKind::Modified => "changed",
    }
}
