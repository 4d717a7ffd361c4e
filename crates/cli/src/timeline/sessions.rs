//! `sessions`: who is or was connected.

use anyhow::Result;
use frieze_client::Hlc;
use serde_json::json;

use crate::args::Sessions;
use crate::format::{self, Table};
use crate::run::Run;

/// `frieze sessions`.
pub(crate) fn sessions(run: &mut Run, args: &Sessions) -> Result<()> {
    let since = match &args.since {
        Some(text) => run.instant(text)?,
        None => Hlc::ZERO,
    };
    let sessions = run.client()?.sessions(since)?;
    let mut table = Table::new(&[false, false, false, false, false, false, false]);
    if !run.json() && !sessions.is_empty() {
        table.row(["SESSION", "USER", "HOST", "OPENED", "LAST CHANGE", "ENDED", "COMMAND"].map(str::to_owned));
    }
    let known = |stamp: u64| (stamp != 0).then_some(Hlc(stamp));
    for session in &sessions {
        let (last, ended) = (known(session.last), known(session.ended));
        let user = run.names.user(session.uid).to_owned();
        if run.json() {
            let item = json!({
                "session": session.id,
                "uid": session.uid,
                "user": user,
                "host": session.host,
                "command": session.command,
                "opened": Hlc(session.id).to_string(),
                "opened_time": format::time_of(Hlc(session.id)),
                "last": last.map(|stamp| stamp.to_string()),
                "last_time": last.map(format::time_of),
                "ended": ended.map(|stamp| stamp.to_string()),
                "ended_time": ended.map(format::time_of),
            });
            run.print(&item.to_string())?;
            continue;
        }
        table.row([
            session.id.to_string(),
            user,
            format::printable(session.host.as_bytes()),
            format::time_of(Hlc(session.id)),
            last.map(format::time_of).unwrap_or_default(),
            ended.map_or("open".to_owned(), format::time_of),
            format::printable(session.command.as_bytes()),
        ]);
    }
    table.lines().try_for_each(|line| run.print(&line))
}
