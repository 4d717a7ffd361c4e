//! `retention`: which instants of the past are kept.

use anyhow::Result;
use frieze_client::{Hlc, RetainedClass, RetainedInstant, RetentionReply};
use serde_json::{Map, Value, json};

use crate::args::{RetentionCommand, RetentionPreviewArgs, RetentionSetArgs, RetentionShowArgs};
use crate::copy::{self, target};
use crate::format::{self, TextTable};
use crate::path::FsPath;
use crate::run::CommandRun;
use crate::sharing::would_be_refused;

/// `frieze retention`.
pub(crate) fn retention(run: &mut CommandRun, command: &RetentionCommand) -> Result<()> {
    match command {
        RetentionCommand::Set(args) => set(run, args),
        RetentionCommand::Show(args) => show(run, args),
        RetentionCommand::Preview(args) => preview(run, args),
    }
}

fn set(run: &mut CommandRun, args: &RetentionSetArgs) -> Result<()> {
    let paths = copy::parse_all(&args.paths)?;
    let fs = run.fs()?;
    for path in paths {
        let reply = match fs.set_retention(&target(&path, true), &args.policy, args.dry_run) {
            Ok(reply) => reply,
            Err(error) => {
                run.report(&path.to_string(), error.into())?;
                continue;
            }
        };
        if let Err(refused) = would_be_refused(&reply) {
            run.report(&path.to_string(), refused)?;
            continue;
        }
        let names = if reply.count == 1 { "1 name".to_owned() } else { format!("{} names", reply.count) };
        let text = match (args.dry_run, reply.count) {
            (_, 0) => format!("{path}: all of it has this policy already"),
            (true, _) => format!("{path}: {names} would get the policy"),
            (false, _) => format!("{path}: {names} got the policy"),
        };
        let item = || {
            let at = Some(Hlc(reply.stamp)).filter(|at| *at != Hlc::ZERO);
            let mut item = json!({ "path": path.to_string(), "policy": args.policy, "changed": reply.count });
            put_instant(item.as_object_mut().expect("it is an object"), "at", at);
            item
        };
        run.item(item, || Some(text))?;
    }
    Ok(())
}

fn show(run: &mut CommandRun, args: &RetentionShowArgs) -> Result<()> {
    let paths = copy::parse_all(&args.paths)?;
    let at = args.at.as_ref().map(|at| run.instant(at)).transpose()?;
    let fs = run.fs()?;
    for path in paths {
        match fs.retention(&target(&path, true), at) {
            Ok(reply) => run.item(|| shown_json(&path, &reply), || Some(shown(&path, &reply)))?,
            Err(error) => run.report(&path.to_string(), error.into())?,
        }
    }
    Ok(())
}

fn shown(path: &FsPath, reply: &RetentionReply) -> String {
    let policy = if reply.policy.is_empty() { "everything is kept for ever" } else { &reply.policy };
    let mut lines = vec![format!("{path}: {policy}")];
    lines.extend(reply.classes.iter().map(|class| {
        let below = format::time_of(Hlc(class.below));
        match class.period.as_str() {
            "none" => format!("  before {below} nothing is kept but what snapshots name"),
            period => format!("  before {below} {period} is kept"),
        }
    }));
    if let Some(instant) = &reply.instant {
        lines.push(format!("  {}", instant_words(instant)));
    }
    lines.join("\n")
}

fn instant_words(instant: &RetainedInstant) -> String {
    let named = |at: u64| format!("{} ({})", format::time_of(Hlc(at)), Hlc(at));
    let at = named(instant.at);
    let before = match instant.before {
        0 => "nothing older is kept".to_owned(),
        before => format!("before it {} is kept", named(before)),
    };
    match (instant.is_exact, instant.before == instant.at) {
        (true, true) => format!("{at} is exact: it is kept"),
        (true, false) => format!("{at} is exact: nothing changed twice between the kept instants beside it"),
        (false, _) => format!("{at} is not exact: {before}, after it {}", named(instant.after)),
    }
}

fn shown_json(path: &FsPath, reply: &RetentionReply) -> Value {
    let policy = (!reply.policy.is_empty()).then_some(&reply.policy);
    let classes: Vec<Value> = reply.classes.iter().map(|class| class_json(class, false)).collect();
    let mut item = json!({ "path": path.to_string(), "policy": policy, "classes": classes });
    let fields = item.as_object_mut().expect("it is an object");
    fields.insert("as_of".to_owned(), json!(Hlc(reply.as_of).to_string()));
    if let Some(instant) = &reply.instant {
        put_instant(fields, "at", Some(Hlc(instant.at)));
        fields.insert("exact".to_owned(), json!(instant.is_exact));
        put_instant(fields, "before", Some(Hlc(instant.before)).filter(|before| *before != Hlc::ZERO));
        put_instant(fields, "after", Some(Hlc(instant.after)));
    }
    item
}

fn preview(run: &mut CommandRun, args: &RetentionPreviewArgs) -> Result<()> {
    let paths = copy::parse_all(&args.paths)?;
    let fs = run.fs()?;
    for path in paths {
        let preview = match fs.preview_retention(&target(&path, true), &args.policy) {
            Ok(preview) => preview,
            Err(error) => {
                run.report(&path.to_string(), error.into())?;
                continue;
            }
        };
        let item = || {
            let classes: Vec<Value> = preview.classes.iter().map(|class| class_json(class, true)).collect();
            json!({
                "path": path.to_string(),
                "policy": args.policy,
                "files": preview.files,
                "classes": classes,
                "freed_writes": preview.freed_writes,
                "freed_bytes": preview.freed_bytes,
            })
        };
        run.item(item, || None)?;
        if run.json() {
            continue;
        }
        run.print(&format!("{path}: {} with history", format::count(preview.files, "file")))?;
        let mut table = TextTable::new(&[false, true, true, false]);
        table.row(["CLASS", "WRITES", "BYTES", "OF INSTANTS"].map(str::to_owned));
        for class in &preview.classes {
            let of = match (class.period.as_str(), class.below) {
                ("all", _) => "younger than those below".to_owned(),
                (_, below) => format!("before {}", format::time_of(Hlc(below))),
            };
            table.row([class.period.clone(), class.writes.to_string(), format::human(class.bytes), of]);
        }
        let freed = format::human(preview.freed_bytes);
        table.row(["freed".to_owned(), preview.freed_writes.to_string(), freed, "shown by no kept instant".to_owned()]);
        table.lines().try_for_each(|line| run.print(&line))?;
    }
    Ok(())
}

fn class_json(class: &RetainedClass, with_counts: bool) -> Value {
    let mut item = json!({ "period": class.period });
    let fields = item.as_object_mut().expect("it is an object");
    put_instant(fields, "below", Some(Hlc(class.below)).filter(|below| *below != Hlc::ZERO));
    if with_counts {
        fields.insert("writes".to_owned(), json!(class.writes));
        fields.insert("bytes".to_owned(), json!(class.bytes));
    }
    item
}

/// Adds a stamp, and its time under the name with `_time` behind.
fn put_instant(fields: &mut Map<String, Value>, name: &str, at: Option<Hlc>) {
    fields.insert(name.to_owned(), json!(at.map(|at| at.to_string())));
    fields.insert(format!("{name}_time"), json!(at.map(format::time_of)));
}
