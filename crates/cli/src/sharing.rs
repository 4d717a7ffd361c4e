//! `clone`, `restore` and `undo`: the changes, line by line, then their instant.

use anyhow::{Error, Result};
use frieze_client::{ActionKind, EditAction, EditReply, FileKind, Hlc, Undo};
use serde_json::{Value, json};

use crate::args::{self, CloneTreeArgs, RestoreArgs, SessionArg};
use crate::copy::target;
use crate::failure::{ReportedError, UsageError};
use crate::format;
use crate::path::FsPath;
use crate::run::CommandRun;
use frieze_base::{Fault, Reason};
use nix::unistd::User;

/// `frieze clone`.
pub(crate) fn clone(run: &mut CommandRun, args: &CloneTreeArgs) -> Result<()> {
    let (source, mut place) = (FsPath::parse(&args.source)?, FsPath::parse(&args.target)?);
    let at = args.at.as_deref().map(|text| run.instant(text)).transpose()?;
    let fs = run.fs()?;
    let there = match fs.stat(&target(&place, true)) {
        Ok(reply) => Some(reply.attr.kind()),
        Err(error) if error.reason() == Reason::NotFound => None,
        Err(error) => return Err(error.into()),
    };
    if let (Some(FileKind::Directory), Some(name)) = (there, source.name()) {
        place = place.join(name);
    }
    let then = at.map_or_else(|| fs.clone(), |at| fs.at(at));
    if let Err(error) = then.stat(&target(&source, true)) {
        return Err(run.reported(&source, error.into()));
    }
    let reply = then.clone_tree(&target(&source, true), &target(&place, false), args.dry_run);
    let reply = reply.map_err(|error| run.reported(&place, error.into()))?;
    print_result(run, &reply, args.dry_run, "cloned")
}

/// `frieze restore`.
pub(crate) fn restore(run: &mut CommandRun, args: &RestoreArgs) -> Result<()> {
    let path = FsPath::parse(&args.path)?;
    let at = run.instant(&args.to)?;
    let reply = match run.fs()?.restore(&target(&path, false), at, args.delete, args.dry_run) {
        // Not that it is missing: that it never was there.
        Err(error) if error.reason() == Reason::NotFound => return Err(Error::msg(error.to_string())),
        reply => reply.map_err(|error| run.reported(&path, error.into()))?,
    };
    let told = print_result(run, &reply, args.dry_run, "restored");
    if left(&reply) > 0 && !args.delete && !run.json() {
        run.print("with --delete, names made since give way")?;
    }
    told
}

/// `frieze undo`.
pub(crate) fn undo(run: &mut CommandRun, args: &args::UndoArgs) -> Result<()> {
    let path = FsPath::parse(&args.path)?;
    let uid = args.user.as_deref().map(uid_of).transpose()?;
    let from = args.from.as_deref().map(|text| run.instant(text)).transpose()?;
    let upto = args.to.as_deref().map(|text| run.instant(text)).transpose()?;
    if args.sessions.is_empty() && uid.is_none() && from.is_none() {
        return Err(
            UsageError("whose changes? name a --session or a --user, or an instant with --from".to_owned()).into()
        );
    }
    let sessions = args.sessions.iter().map(|session| number_of(run, session)).collect::<Result<Vec<u64>>>()?;
    let undo = Undo {
        target: target(&path, false),
        sessions,
        uid,
        after: from.map_or(0, |at| at.0),
        upto: upto.map_or(0, |at| at.0),
        dry_run: args.dry_run,
    };
    let reply = run.fs()?.undo(undo).map_err(|error| run.reported(&path, error.into()))?;
    print_result(run, &reply, args.dry_run, "undone")
}

/// The number of a session. A name has to be that of one session: the newest of several may not be the one that is
/// meant.
fn number_of(run: &mut CommandRun, session: &SessionArg) -> Result<u64> {
    let name = match session {
        SessionArg::Number(number) => {
            let found = run.client()?.session_info(*number)?;
            return found.map(|info| info.id).ok_or_else(|| {
                Error::msg(format!("there is and was no session {number}: `frieze sessions` lists them"))
            });
        }
        SessionArg::Name(name) => name,
    };
    let found = run.client()?.sessions_named(name, Hlc::ZERO)?;
    match &found[..] {
        [] => Err(Error::msg(format!(
            "no session of yours is named {name}: `frieze sessions` lists names, `frieze run --name` gives them"
        ))),
        [only] => Ok(only.id),
        several => {
            let newest = several.iter().rev().take(NAMESAKES_MAX);
            let list: Vec<String> =
                newest.map(|info| format!("{} (of {})", info.id, format::time_of(Hlc(info.id)))).collect();
            Err(Error::msg(format!(
                "{} sessions are named {name}: give the number of one, or --session several times: {}",
                several.len(),
                list.join(", ")
            )))
        }
    }
}

/// Sessions of one name that a refusal lists, the newest first.
const NAMESAKES_MAX: usize = 8;

fn uid_of(text: &str) -> Result<u32> {
    if let Ok(uid) = text.parse() {
        return Ok(uid);
    }
    match User::from_name(text) {
        Ok(Some(user)) => Ok(user.uid.as_raw()),
        Ok(None) | Err(_) => Err(UsageError(format!("--user {text}: no such user here; give the number")).into()),
    }
}

fn print_result(run: &mut CommandRun, reply: &EditReply, dry_run: bool, done: &str) -> Result<()> {
    for action in &reply.actions {
        run.item(|| to_json(action), || Some(line(action)))?;
    }
    let more = reply.count - reply.actions.len() as u64;
    if more > 0 {
        run.say(&format!("and {more} more that are not listed"));
    }
    let changes = reply.count - left(reply);
    let stamp = Hlc(reply.stamp);
    if run.json() {
        let exact = |at: u64| (at != 0).then(|| Hlc(at).to_string());
        let time = (reply.stamp != 0).then(|| format::time_of(stamp));
        let summary = json!({
            "stamp": exact(reply.stamp),
            "time": time,
            "at": exact(reply.at),
            "count": reply.count,
            "left": left(reply),
            "dry_run": dry_run,
            "refused": (reply.refused != 0).then_some(&reply.refused_words),
        });
        run.print_json(summary)?;
        would_be_refused(reply)?;
        return all_done(reply);
    }
    let words = match (dry_run, reply.stamp) {
        _ if reply.repeated => format!("{done} at {stamp} by an earlier try of this request"),
        (true, _) if changes == 0 => "nothing would change".to_owned(),
        (true, _) => format!("{} would be made", format::count(changes, "change")),
        (false, 0) => "nothing to do".to_owned(),
        (false, _) => {
            format!("{}, {done} at {stamp} ({})", format::count(changes, "change"), format::time_of(stamp))
        }
    };
    run.print(&words)?;
    match left(reply) {
        0 => {}
        1 => run.print("1 left as it is: see the line that says why")?,
        left => run.print(&format!("{left} left as they are: see the lines that say why"))?,
    }
    would_be_refused(reply)?;
    all_done(reply)
}

/// Objects that were left alone were part of the request: exit status 1.
fn all_done(reply: &EditReply) -> Result<()> {
    if left(reply) == 0 { Ok(()) } else { Err(ReportedError.into()) }
}

/// A dry run of a change that would be refused fails in the same way.
pub(crate) fn would_be_refused(reply: &EditReply) -> Result<()> {
    match reply.refused {
        0 => Ok(()),
        code => {
            let words = format!("it would be refused: {}", reply.refused_words);
            Err(frieze_client::Error::Refused(Fault::new(Reason::from_code(code), words)).into())
        }
    }
}

fn left(reply: &EditReply) -> u64 {
    reply.actions.iter().filter(|action| action.kind() == ActionKind::Left).count() as u64
}

fn line(action: &EditAction) -> String {
    let mut line = format!("{:<10}  {}", action.kind().word(), format::printable(&action.path));
    if matches!(action.kind(), ActionKind::Bytes | ActionKind::Left) && action.len > 0 {
        line.push_str(&format!("  {} at {}", format::count(action.len, "byte"), action.offset));
    }
    if !action.words.is_empty() {
        line.push_str(&format!("  ({})", action.words));
    }
    if action.kind() == ActionKind::Left && action.newest != 0 {
        line.push_str(&format!("  newest {}", Hlc(action.newest)));
        if action.older != 0 {
            line.push_str(&format!(", theirs {}", Hlc(action.older)));
        }
    }
    line
}

fn to_json(action: &EditAction) -> Value {
    let exact = |at: u64| (at != 0).then(|| Hlc(at).to_string());
    json!({
        "action": action.kind().word(),
        "path": String::from_utf8_lossy(&action.path),
        "inode": action.inode,
        "offset": action.offset,
        "len": action.len,
        "words": action.words,
        "lives_at": (!action.lives_at.is_empty()).then(|| String::from_utf8_lossy(&action.lives_at)),
        "newest": exact(action.newest),
        "older": exact(action.older),
    })
}
