//! `now` and `snapshot`: instants and their names.

use anyhow::{Error, Result};
use frieze_base::Reason;
use frieze_client::Hlc;
use serde_json::json;

use crate::args::{self, NowArgs};
use crate::failure::UsageError;
use crate::format::{self, TextTable};
use crate::run::CommandRun;

/// `frieze now`.
pub(crate) fn now(run: &mut CommandRun, args: &NowArgs) -> Result<()> {
    let asked = args.at.as_deref().map(|text| run.instant(text)).transpose()?;
    let reply = run.client()?.clock()?;
    let at = asked.unwrap_or(Hlc(reply.at));
    let (earliest, stable) = (Hlc(reply.earliest), Hlc(reply.stable));
    if reply.without_lease && at > stable {
        run.say(&format!(
            "warning: the cluster has no leader: {at} cannot be read before it has one; instants up to {stable} ({}) \
             can",
            format::time_of(stable)
        ));
    }
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
                "without_lease": reply.without_lease,
            })
        },
        || Some(at.to_string()),
    )
}

/// `frieze snapshot`.
pub(crate) fn snapshot(run: &mut CommandRun, command: &args::SnapshotCommand) -> Result<()> {
    match command {
        args::SnapshotCommand::Create { name, at } => create(run, name, at.as_deref()),
        args::SnapshotCommand::List => list(run),
        args::SnapshotCommand::Delete { names } => {
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

fn create(run: &mut CommandRun, name: &str, at: Option<&str>) -> Result<()> {
    frieze_hlc::check_snapshot_name(name).map_err(|error| UsageError(error.to_string()))?;
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

fn list(run: &mut CommandRun) -> Result<()> {
    let snapshots = run.client()?.snapshots_with_bytes()?;
    let now = run.client()?.now()?;
    let mut table = TextTable::new(&[false, false, false, true, true, false]);
    if !run.json() && !snapshots.is_empty() {
        table.row(["NAME", "INSTANT", "STAMP", "AGE", "HELD", "MADE BY"].map(str::to_owned));
    }
    for snapshot in &snapshots {
        let (at, made) = (Hlc(snapshot.at), Hlc(snapshot.made));
        let user = run.names.user(snapshot.uid).to_owned();
        let held = snapshot.bytes_held.unwrap_or_default();
        let age_ms = now.micros().saturating_sub(at.micros()) / 1000;
        if !run.json() {
            let more = if snapshot.held_at_least { "+" } else { "" };
            table.row([
                format::printable(snapshot.name.as_bytes()),
                format::time_of(at),
                at.to_string(),
                format::duration_ms(age_ms),
                format!("{}{more}", format::size(held)),
                user,
            ]);
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
            "age_ms": age_ms,
            "bytes_held": held,
            "held_at_least": snapshot.held_at_least,
        });
        run.print_json(item)?;
    }
    table.lines().try_for_each(|line| run.print(&line))
}
