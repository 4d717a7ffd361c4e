//! `sessions`: the sessions of clients.

use anyhow::Result;
use frieze_client::{Hlc, SessionInfo, SessionName};
use serde_json::json;

use super::Commands;
use crate::args::SessionsArgs;
use crate::format::{self, TextTable};
use crate::run::CommandRun;

/// Sessions in a request.
const PAGE_MAX: u64 = 1000;

/// `frieze sessions`.
pub(crate) fn sessions(run: &mut CommandRun, args: &SessionsArgs) -> Result<()> {
    args.old.refuse()?;
    let since = match &args.from {
        Some(text) => run.instant(text)?,
        None => Hlc::ZERO,
    };
    let commands = Commands::of(args.full);
    if let Some(name) = &args.name {
        let mut found = run.client()?.sessions_named(name, since)?;
        found.retain(|session| session.id > args.after);
        found.truncate(usize::try_from(args.limit).unwrap_or(usize::MAX));
        let heading = !run.json();
        return print_page(run, &found, commands, heading);
    }
    let (mut after, mut left, mut heading) = (args.after, args.limit, !run.json());
    while left > 0 {
        let count_max = u32::try_from(left.min(PAGE_MAX)).expect("a page fits");
        let page = run.client()?.sessions_page(since, after, count_max)?;
        left = left.saturating_sub(page.sessions.len() as u64);
        let Some(last) = page.sessions.last().map(|last| last.id) else { break };
        after = last;
        print_page(run, &page.sessions, commands, std::mem::take(&mut heading))?;
        if !page.more {
            return Ok(());
        }
    }
    if args.limit > 0 && left == 0 {
        run.say(&format!("there are more: `frieze sessions --after {after}` lists them"));
    }
    Ok(())
}

/// Prints sessions in the order in which they come.
fn print_page(run: &mut CommandRun, sessions: &[SessionInfo], commands: Commands, heading: bool) -> Result<()> {
    let mut table = TextTable::new(&[false, false, false, false, false, false, false]);
    if heading {
        table.row(["SESSION", "USER", "HOST", "OPENED", "LAST CHANGE", "ENDED", "COMMAND"].map(str::to_owned));
    }
    let known = |stamp: u64| (stamp != 0).then_some(Hlc(stamp));
    for session in sessions {
        let (last, ended) = (known(session.last), known(session.ended));
        let shown = !session.hidden && !session.command.is_empty();
        let user = run.names.user(session.uid).to_owned();
        if run.json() {
            let item = json!({
                "session": session.id,
                "uid": session.uid,
                "user": user,
                "host": shown.then_some(&session.host),
                "command": shown.then(|| commands.parts(&session.command).1),
                "name": shown.then(|| SessionName::split(&session.command).0),
                "opened": Hlc(session.id).to_string(),
                "opened_time": format::time_of(Hlc(session.id)),
                "last": last.map(|stamp| stamp.to_string()),
                "last_time": last.map(format::time_of),
                "ended": ended.map(|stamp| stamp.to_string()),
                "ended_time": ended.map(format::time_of),
            });
            run.print_json(item)?;
            continue;
        }
        table.row([
            session.id.to_string(),
            user,
            format::printable(session.host.as_bytes()),
            format::time_of(Hlc(session.id)),
            last.map(format::time_of).unwrap_or_default(),
            ended.map_or("open".to_owned(), format::time_of),
            commands.shown(&session.command),
        ]);
    }
    table.lines().try_for_each(|line| run.print(&line))
}
