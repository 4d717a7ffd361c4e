//! `frieze watch`: changes as they happen, as lines, as runs of a command, or as posts to a URL.
//!
//! Guarantees: the kept position is a mark, and every change up to it was passed on: each change arrives at least once.
//! Leaves to others: the feed (`frieze_client::ChangeFeed`).

mod event;
mod position;
mod webhook;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow};
use frieze_client::{ChangeFeed, Difference, Error as ClientError, Hlc, SessionInfo, WatchItem};
use serde_json::{Value, json};

use self::event::{event_json, kind_of};
use self::position::PositionFile;
use self::webhook::Webhook;
use crate::args::WatchArgs;
use crate::copy::target;
use crate::failure::{self, UsageError};
use crate::format::{self, exact};
use crate::path::FsPath;
use crate::run::CommandRun;
use crate::timeline::{Commands, SessionNames, named, paths};

/// `frieze watch`.
pub(crate) fn watch(run: &mut CommandRun, args: &WatchArgs) -> Result<()> {
    let path = FsPath::parse(&args.path)?;
    let mut position = args.position.as_deref().map(PositionFile::open).transpose()?;
    let kept = position.as_ref().and_then(PositionFile::kept);
    let from = match (&args.from, kept) {
        (Some(_), Some(kept)) => {
            let file = args.position.as_deref().unwrap_or_else(|| "".as_ref()).display();
            let words = format!("{file} has the position {kept}: leave out --from, or remove the file to begin anew");
            return Err(UsageError(words).into());
        }
        (Some(text), None) => run.instant(text)?,
        (None, Some(kept)) => kept,
        (None, None) => Hlc(run.client()?.clock()?.at),
    };
    let upto = args.to.as_deref().map(|text| run.instant(text)).transpose()?;
    if let Some(upto) = upto.filter(|upto| *upto < from) {
        return Err(UsageError(format!("the watch would end at {upto}, before it begins at {from}: swap them")).into());
    }
    let sink = match (&args.webhook, args.exec.is_empty()) {
        (Some(url), _) => {
            let secret = args.secret.as_deref().unwrap_or_else(|| "".as_ref());
            FeedSink::Post(Box::new(Webhook::new(url, secret, &path, from)?))
        }
        (None, false) => FeedSink::Run,
        (None, true) => FeedSink::Print,
    };
    let feed = run.fs()?.watch(&target(&path, true), from).map_err(Error::from);
    let feed = match feed {
        Ok(feed) => feed,
        Err(error) => return Err(run.reported(&path, error)),
    };
    let feed = upto.into_iter().fold(feed, ChangeFeed::until);
    // The first change may fail to be passed on, before there is any mark.
    if let Some(position) = position.as_mut().filter(|position| position.kept().is_none()) {
        position.keep(from)?;
    }
    let sessions = SessionNames::new(Commands::of(args.full));
    let mut watching = Watching { args, path, sink, position, sessions, is_silent: false, is_left_out: [false; 2] };
    watching.follow(run, feed)
}

/// Where changes go.
enum FeedSink {
    Print,
    Run,
    Post(Box<Webhook>),
}

struct Watching<'a> {
    args: &'a WatchArgs,
    path: FsPath,
    sink: FeedSink,
    position: Option<PositionFile>,
    sessions: SessionNames,
    /// No server answers; a line says so already.
    is_silent: bool,
    /// A line says already that the caller may not read some, and that some are forgotten.
    is_left_out: [bool; 2],
}

impl Watching<'_> {
    fn follow(&mut self, run: &mut CommandRun, mut feed: ChangeFeed) -> Result<()> {
        loop {
            match feed.next(WAIT) {
                Ok(Some(item)) => {
                    self.is_silent = false;
                    self.pass_on(run, item)?;
                }
                Ok(None) if feed.has_ended() => return run.flush(),
                Ok(None) => run.flush()?,
                Err(error @ (ClientError::Unanswered { .. } | ClientError::Busy { .. })) => {
                    run.flush()?;
                    if !std::mem::replace(&mut self.is_silent, true) {
                        run.say(&format!("{}; the watch goes on when a server answers", failure::words(&error.into())));
                    }
                }
                Err(error) => return Err(run.reported(&self.path, error.into())),
            }
        }
    }

    fn pass_on(&mut self, run: &mut CommandRun, item: WatchItem) -> Result<()> {
        match item {
            WatchItem::Event { change, session } => self.pass_on_event(run, &change, session),
            WatchItem::Resolved(at) => {
                match &mut self.sink {
                    FeedSink::Print if run.json() => {
                        run.print_json(json!({ "resolved": at.to_string(), "time": format::time_of(at) }))?;
                    }
                    FeedSink::Post(webhook) => webhook.resolved(run, at)?,
                    FeedSink::Print | FeedSink::Run => {}
                }
                run.flush()?;
                self.position.as_mut().map_or(Ok(()), |position| position.keep(at))
            }
            WatchItem::Forgotten(forgotten) => {
                let before = Hlc(forgotten.before);
                self.left_out(run, "forgotten", Some(before))?;
                run.say(&format!("changes before {} were forgotten", format::time_of(before)));
                Ok(())
            }
            WatchItem::LeftOut(is_forgotten) => {
                self.left_out(run, if is_forgotten { "forgotten" } else { "not-permitted" }, None)?;
                if !std::mem::replace(&mut self.is_left_out[usize::from(is_forgotten)], true) {
                    run.say(match is_forgotten {
                        true => "something else happened that a file or another directory has forgotten since",
                        false => "something else happened in directories that you may not read",
                    });
                }
                Ok(())
            }
            WatchItem::Removed => {
                run.say(&format!("{} was removed: nothing more follows", self.path));
                Ok(())
            }
        }
    }

    fn pass_on_event(&mut self, run: &mut CommandRun, change: &Difference, session: Option<SessionInfo>) -> Result<()> {
        self.sessions.learn(session.into_iter().collect());
        if matches!(self.sink, FeedSink::Print) && !run.json() {
            let by = self.sessions.words(run, change.uid, change.session);
            let at = format::time_of(Hlc(change.stamp));
            return run.print(&format!("{at}  {:<10}  {}  ({by})", kind_of(change), paths(change)));
        }
        let line = exact(event_json(run, &self.sessions, change).into());
        match &mut self.sink {
            FeedSink::Print => run.print(&line.to_string()),
            FeedSink::Post(webhook) => webhook.event(run, line),
            FeedSink::Run => run_command(self.args, change, &line),
        }
    }

    fn left_out(&mut self, run: &mut CommandRun, why: &str, before: Option<Hlc>) -> Result<()> {
        let line = json!({ "left_out": why, "before": before.map(|before| before.to_string()) });
        match &mut self.sink {
            FeedSink::Print if run.json() => run.print_json(line),
            FeedSink::Post(webhook) => webhook.event(run, line),
            FeedSink::Print | FeedSink::Run => Ok(()),
        }
    }
}

/// Runs the command of `--exec` for one change. Names are in its environment, never on a line for a shell.
fn run_command(args: &WatchArgs, change: &Difference, line: &Value) -> Result<()> {
    let (program, arguments) = args.exec.split_first().context("--exec names no command")?;
    let shown = program.display();
    let was = change.before.as_ref().map_or(&b""[..], |before| &before.path);
    let status = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .env("FRIEZE_EVENT", line.to_string())
        .env("FRIEZE_KIND", kind_of(change))
        .env("FRIEZE_PATH", OsStr::from_bytes(&named(change).path))
        .env("FRIEZE_WAS", OsStr::from_bytes(was))
        .env("FRIEZE_AT", Hlc(change.stamp).to_string())
        .status()
        .with_context(|| format!("--exec: {shown} cannot be run"))?;
    if status.success() {
        return Ok(());
    }
    let (path, at) = (format::printable(&named(change).path), Hlc(change.stamp));
    Err(anyhow!(
        "--exec: {shown} ended with {status} at the change of {path} stamped {at}; a watch from the kept \
                 position, or from before it, passes that change on again"
    ))
}

/// The feed is asked again after this time without a change; nothing is sent for it.
const WAIT: Duration = Duration::from_secs(3600);
