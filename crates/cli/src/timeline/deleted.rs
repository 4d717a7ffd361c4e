//! `ls --deleted`: names that once were in a directory.

use anyhow::{Error, Result};
use frieze_client::{DeletedObject, FileKind, Fs, HistoryInterval, Hlc, Target};
use serde_json::{Map, Value};

use super::{ChangeKind, Commands, SessionNames, named, put_path, put_side};
use crate::args::LsArgs;
use crate::copy::{self, target};
use crate::format::{self, TextTable};
use crate::path::FsPath;
use crate::run::CommandRun;

/// `frieze ls --deleted`.
pub(crate) fn ls_deleted(run: &mut CommandRun, args: &LsArgs) -> Result<()> {
    let paths = copy::parse_all(&args.paths)?;
    let fs = run.view(&args.past)?;
    for (number, path) in paths.iter().enumerate() {
        if paths.len() > 1 && !run.json() {
            if number > 0 {
                run.print("")?;
            }
            run.print(&format!("{path}:"))?;
        }
        if let Err(error) = directory(run, &fs, path, args) {
            run.report(&path.to_string(), error)?;
        }
    }
    Ok(())
}

fn directory(run: &mut CommandRun, fs: &Fs, path: &FsPath, args: &LsArgs) -> Result<()> {
    let (mut who, mut after) = (SessionNames::new(Commands::of(args.full)), Vec::new());
    let mut table = TextTable::new(&[false, false, true, false, false, false, false, false, false]);
    if !run.json() {
        let heading = ["NAME", "KIND", "SIZE", "WENT", "LAST AT", "USER", "SESSION", "HOST", "COMMAND"];
        table.row(heading.map(str::to_owned));
    }
    let mut example = None;
    loop {
        let page = fs.deleted(&target(path, true), &after, 0).map_err(Error::from)?;
        who.learn(page.sessions);
        for gone in &page.names {
            if run.json() {
                let item = to_json(run, &who, gone);
                run.print_json(item)?;
                continue;
            }
            if gone.moved_to.is_empty() {
                example = Some(gone.clone());
            }
            table.row(row(run, &who, gone, args.human));
        }
        if page.next.is_empty() {
            break;
        }
        after = page.next;
    }
    if let (None, false) = (&example, run.json())
        && table.lines().count() == 1
    {
        return Ok(());
    }
    table.lines().try_for_each(|line| run.print(&line))?;
    if let Some(gone) = example {
        let words = back(fs, &gone)?;
        run.say(&format!("to get a name back: {words}"));
    }
    Ok(())
}

/// The command that brings a name back.
pub(super) fn back(fs: &Fs, gone: &DeletedObject) -> Result<String> {
    Ok(format!("frieze restore {} --to {}", format::printable(&gone.was.path), last_filled(fs, gone)?))
}

/// The instant to restore a name to: just before it went. A directory was emptied first (`rm -rf`): then the instant
/// before the first of the removals below it that ended with its own.
fn last_filled(fs: &Fs, gone: &DeletedObject) -> Result<Hlc> {
    let went = Hlc(gone.stamp).previous();
    let past = fs.at(went);
    let path = Target::path(gone.was.path.clone());
    if gone.was.kind() != FileKind::Directory || !past.entries_with_attrs(&path)?.is_empty() {
        return Ok(went);
    }
    let mut found = went;
    // From the end backwards, in stretches that grow: how long the removals took is not known.
    let mut stretch_us = STRETCH_US;
    loop {
        let after = went.micros().checked_sub(stretch_us).map_or(Hlc::ZERO, Hlc::last_of_micros);
        let mut interval = HistoryInterval { after: after.max(Hlc(gone.was.born)), upto: went };
        let (mut first_removal, mut other) = (None, false);
        while interval.after < interval.upto {
            let page = past.story(&path, interval, true, 0)?;
            for event in &page.events {
                if ChangeKind::of(event) == ChangeKind::Removed && event.session == gone.session {
                    first_removal.get_or_insert(Hlc(event.stamp));
                } else if named(event).path != gone.was.path {
                    (first_removal, other) = (None, true);
                }
            }
            interval.after = Hlc(page.upto).max(interval.after.next());
        }
        found = first_removal.map_or(found, Hlc::previous);
        if other || after <= Hlc(gone.was.born) {
            return Ok(found);
        }
        stretch_us = stretch_us.saturating_mul(STRETCH_GROWTH);
    }
}

/// Removals of one `rm -rf` are looked up in the last ten seconds first; each further request reaches thirty times as
/// far.
const STRETCH_US: u64 = 10_000_000;
const STRETCH_GROWTH: u64 = 30;

fn name_of(gone: &DeletedObject) -> &[u8] {
    gone.was.path.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

fn row(run: &mut CommandRun, who: &SessionNames, gone: &DeletedObject, human: bool) -> [String; 9] {
    let name = match gone.moved_to.is_empty() {
        true => format::printable(name_of(gone)),
        false => format!("{} (moved to {})", format::printable(name_of(gone)), format::printable(&gone.moved_to)),
    };
    let size = if human { format::human(gone.was.size) } else { gone.was.size.to_string() };
    let stamp = Hlc(gone.stamp);
    let [session, host, command] = who.cells(gone.session);
    [
        name,
        gone.was.kind().word().to_owned(),
        if gone.was.kind() == FileKind::File { size } else { String::new() },
        format::time_of(stamp),
        stamp.previous().to_string(),
        run.names.user(gone.uid).to_owned(),
        session,
        host,
        command,
    ]
}

fn to_json(run: &mut CommandRun, who: &SessionNames, gone: &DeletedObject) -> Map<String, Value> {
    let (stamp, at) = (Hlc(gone.stamp), Hlc(gone.stamp).previous());
    let mut item = Map::new();
    put_path(&mut item, &gone.was.path);
    item.insert("name".to_owned(), String::from_utf8_lossy(name_of(gone)).into());
    put_side(&mut item, &gone.was);
    item.insert("at".to_owned(), at.to_string().into());
    item.insert("at_time".to_owned(), format::time_of(at).into());
    item.insert("gone".to_owned(), stamp.to_string().into());
    item.insert("gone_time".to_owned(), format::time_of(stamp).into());
    let moved_to = (!gone.moved_to.is_empty()).then(|| String::from_utf8_lossy(&gone.moved_to).into_owned());
    item.insert("moved_to".to_owned(), moved_to.into());
    who.put_json(run, &mut item, "uid_by", gone.uid, gone.session);
    item
}
