//! `forget`: the history that is given up, and the space that it frees.

use std::time::Duration;

use anyhow::Result;
use frieze_client::{ForgetOptions, ForgetReply, ForgottenFile, Hlc, SnapshotLoss, Target};
use serde_json::{Value, json};

use crate::args::ForgetArgs;
use crate::copy::target;
use crate::format;
use crate::path::FsPath;
use crate::progress::ProgressLine;
use crate::run::CommandRun;

/// `frieze forget`.
pub(crate) fn forget(run: &mut CommandRun, args: &ForgetArgs) -> Result<()> {
    let path = FsPath::parse(&args.path)?;
    let before = run.instant(&args.before)?;
    let how = ForgetOptions { dry_run: args.dry_run, with_snapshots: args.with_snapshots };
    let reply = forget_and_show(run, &target(&path, false), before, how);
    let reply = reply.map_err(|error| run.reported(&path, error))?;
    for file in &reply.biggest {
        run.item(|| file_to_json(file), || Some(line(file)))?;
    }
    if run.json() {
        let item = to_json(run, &reply, args.dry_run);
        return run.print_json(item);
    }
    let snapshots = snapshot_words(run, &reply, args.dry_run);
    words(&reply, args.dry_run).iter().chain(&snapshots).try_for_each(|line| run.print(line))
}

/// Forgets, and shows the server's progress to a person at a terminal.
fn forget_and_show(run: &mut CommandRun, target: &Target, before: Hlc, how: ForgetOptions) -> Result<ForgetReply> {
    let (client, fs) = (run.client()?.clone(), run.fs()?);
    run.show(|wanted| ProgressLine::known(wanted, "files looked at"));
    if !run.is_shown() {
        return Ok(fs.forget(target, before, how)?);
    }
    std::thread::scope(|scope| {
        let waiting = std::thread::current();
        let work = scope.spawn(move || {
            let reply = fs.forget(target, before, how);
            waiting.unpark();
            reply
        });
        while !work.is_finished() {
            std::thread::park_timeout(LOOK_EVERY);
            // A server that does not answer now is asked again.
            if let Ok(status) = client.status() {
                let (done, all) = (status.forgetting_looked_at, status.forgetting_to_look_at);
                run.progress(|progress| progress.is_at(done, all));
            }
        }
        match work.join() {
            Ok(reply) => Ok(reply?),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Interval between two requests for the progress.
const LOOK_EVERY: Duration = Duration::from_millis(200);

fn line(file: &ForgottenFile) -> String {
    let deleted = if file.deleted { " (deleted)" } else { "" };
    let writes = format::count(file.writes, "write");
    format!("{:>9} in {writes:<12}  {}{deleted}", format::size(file.bytes), format::printable(&file.path))
}

/// The effect on snapshots, a sentence a line.
fn snapshot_words(run: &mut CommandRun, reply: &ForgetReply, dry_run: bool) -> Vec<String> {
    let mut names = |wanted: &dyn Fn(&SnapshotLoss) -> bool| {
        let mut named = Vec::new();
        for snapshot in reply.shown_by.iter().filter(|snapshot| wanted(snapshot)) {
            let user = run.names.user(snapshot.uid).to_owned();
            let held = match snapshot.held_bytes {
                0 => String::new(),
                bytes => format!(", {}", format::size(bytes)),
            };
            named.push(format!("{} (of {user}{held})", format::printable(snapshot.name.as_bytes())));
        }
        named.join(", ")
    };
    let (holding, losing) = (names(&|snapshot| snapshot.holds), names(&|snapshot| snapshot.loses));
    let mut lines = Vec::new();
    if !holding.is_empty() {
        lines.push(format!(
            "stays readable at snapshots: {holding}; `--with-snapshots` forgets it there, too, and `frieze snapshot \
             delete NAME` deletes one"
        ));
    }
    if !losing.is_empty() {
        let from = if dry_run { "would not show all of it any more" } else { "do not show all of it any more" };
        lines.push(format!("snapshots that {from}: {losing}"));
    }
    if reply.more_snapshots > 0 {
        lines.push(format!("and {} more", format::count(reply.more_snapshots, "snapshot")));
    }
    lines
}

/// The summary, a sentence a line.
fn words(reply: &ForgetReply, dry_run: bool) -> Vec<String> {
    let before = Hlc(reply.before);
    let instant = format!("{} ({before})", format::time_of(before));
    let mut lines = Vec::new();
    let files = format::count(reply.files + reply.deleted_files, "file");
    let deleted = match reply.deleted_files {
        0 => String::new(),
        deleted => format!(", {deleted} of them deleted by then"),
    };
    let what = format!("{} in {} of {files}{deleted}", format::size(reply.bytes), format::count(reply.writes, "write"));
    lines.push(match (dry_run, reply.writes) {
        (_, 0) => format!("no byte is shown only before {instant}: nothing to free"),
        (true, _) => format!("would forget {what}: shown only before {instant}"),
        (false, _) => format!("forgot {what}: shown only before {instant}"),
    });
    if !dry_run {
        lines.push(format!("{} of the device are free again", format::size(reply.freed_bytes)));
        if reply.waiting_bytes > 0 && reply.trouble.is_empty() {
            let waiting = format::size(reply.waiting_bytes);
            lines.push(format!(
                "{waiting} more lie beside what is being written, and come back when their segment is full"
            ));
        }
        if !reply.trouble.is_empty() {
            lines.push(reply.trouble.clone());
        }
        lines.push(format!("reading it before {} is refused from now on", format::time_of(before)));
    }
    if reply.held_bytes > 0 {
        let held = format::size(reply.held_bytes);
        lines.push(format!("{held} stay because snapshots, clones or restored files show them"));
    }
    if reply.sessions > 0 {
        let sessions = format::count(reply.sessions, "session");
        lines.push(format!(
            "command lines of {sessions} {}: nothing that they changed can be read any more",
            if dry_run { "would go" } else { "went" }
        ));
    }
    if reply.left > 0 {
        let left = format::count(reply.left, "file");
        lines.push(format!("{left} left alone: of others, or with a name elsewhere too"));
    }
    if reply.open > 0 {
        let open = format::count(reply.open, "deleted file");
        lines.push(format!("{open} may still be open: forget again when they are closed"));
    }
    lines
}

fn file_to_json(file: &ForgottenFile) -> Value {
    json!({
        "path": String::from_utf8_lossy(&file.path),
        "bytes": file.bytes,
        "writes": file.writes,
        "deleted": file.deleted,
    })
}

fn to_json(run: &mut CommandRun, reply: &ForgetReply, dry_run: bool) -> Value {
    let snapshot = |snapshot: &SnapshotLoss| {
        json!({
            "name": snapshot.name,
            "at": Hlc(snapshot.at).to_string(),
            "uid": snapshot.uid,
            "user": run.names.user(snapshot.uid),
            "holds": snapshot.holds,
            "loses": snapshot.loses,
            "held_bytes": snapshot.held_bytes,
        })
    };
    let shown_by: Vec<Value> = reply.shown_by.iter().map(snapshot).collect();
    let stamp = (reply.stamp != 0).then_some(Hlc(reply.stamp));
    json!({
        "stamp": stamp.map(|stamp| stamp.to_string()),
        "time": stamp.map(format::time_of),
        "before": Hlc(reply.before).to_string(),
        "before_time": format::time_of(Hlc(reply.before)),
        "files": reply.files,
        "deleted_files": reply.deleted_files,
        "writes": reply.writes,
        "bytes": reply.bytes,
        "freed_bytes": reply.freed_bytes,
        "waiting_bytes": reply.waiting_bytes,
        "held_bytes": reply.held_bytes,
        "snapshots": reply.snapshots,
        "shown_by": shown_by,
        "more_snapshots": reply.more_snapshots,
        "sessions": reply.sessions,
        "left": reply.left,
        "open": reply.open,
        "trouble": (!reply.trouble.is_empty()).then_some(&reply.trouble),
        "dry_run": dry_run,
    })
}
