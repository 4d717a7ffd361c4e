//! The commands about time itself: changes, their actors, and deleted names.

mod compare;
mod deleted;
mod diff;
mod log;
mod private;
mod sessions;
mod usage;

pub(crate) use deleted::ls_deleted;
pub(crate) use diff::{diff, find};
pub(crate) use log::log;
pub(crate) use private::run_with;
pub(crate) use sessions::sessions;
pub(crate) use usage::du_history;

use std::collections::BTreeMap;

use frieze_client::{Difference, Hlc, SessionInfo, SessionName, Side, flags};
use serde_json::{Map, Value, json};

use crate::format;
use crate::run::CommandRun;

/// Sessions by number, as answers bring them along.
#[derive(Debug)]
pub(crate) struct SessionNames {
    sessions: BTreeMap<u64, SessionInfo>,
    commands: Commands,
}

/// How much of a session's command line is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Commands {
    /// The program's name.
    Program,
    /// All that the server keeps of it.
    Whole,
}

impl Commands {
    /// By the option `--full`.
    pub(crate) fn of(full: bool) -> Commands {
        if full { Commands::Whole } else { Commands::Program }
    }

    /// The name of a session, and the part of its command line that is shown.
    pub(crate) fn parts(self, description: &str) -> (Option<&str>, &str) {
        let (name, command) = SessionName::split(description);
        match self {
            Commands::Program => (name, format::program(command)),
            Commands::Whole => (name, command),
        }
    }

    /// Both as a person reads them: `[refactor] make`.
    pub(crate) fn shown(self, description: &str) -> String {
        match self.parts(description) {
            (Some(name), command) => format!("[{name}] {}", format::printable(command.as_bytes())),
            (None, command) => format::printable(command.as_bytes()),
        }
    }
}

impl SessionNames {
    /// No sessions yet.
    pub(crate) fn new(commands: Commands) -> SessionNames {
        SessionNames { sessions: BTreeMap::new(), commands }
    }

    /// Adds the sessions of an answer.
    pub(crate) fn learn(&mut self, sessions: Vec<SessionInfo>) {
        self.sessions.extend(sessions.into_iter().map(|session| (session.id, session)));
    }

    /// A session of which something is shown: not one of another user, and not one that is forgotten.
    fn shown(&self, session: u64) -> Option<&SessionInfo> {
        self.sessions.get(&session).filter(|info| !info.hidden && !info.command.is_empty())
    }

    /// `root on laptop, session 123: make`; the server's own changes have no session.
    pub(crate) fn words(&self, run: &mut CommandRun, uid: u32, session: u64) -> String {
        let user = run.names.user(uid).to_owned();
        match self.shown(session) {
            Some(info) => format!(
                "{user} on {}, session {session}: {}",
                format::printable(info.host.as_bytes()),
                self.commands.shown(&info.command)
            ),
            None if session == 0 => format!("{user}, the server itself"),
            None => format!("{user}, session {session}"),
        }
    }

    /// Session, host and command for a table, empty where they are not known.
    pub(crate) fn cells(&self, session: u64) -> [String; 3] {
        match self.shown(session) {
            Some(info) => {
                let host = format::printable(info.host.as_bytes());
                [session.to_string(), host, self.commands.shown(&info.command)]
            }
            None if session == 0 => Default::default(),
            None => [session.to_string(), String::new(), String::new()],
        }
    }

    /// Adds `session`, `user`, `host`, `command` and `session_name`, null where they are not known, and the user's
    /// number under `uid_field`.
    pub(crate) fn put_json(
        &self,
        run: &mut CommandRun,
        item: &mut Map<String, Value>,
        uid_field: &str,
        uid: u32,
        session: u64,
    ) {
        let shown = self.shown(session);
        item.insert("session".to_owned(), session.into());
        item.insert(uid_field.to_owned(), uid.into());
        item.insert("user".to_owned(), run.names.user(uid).into());
        let parts = shown.map(|info| self.commands.parts(&info.command));
        item.insert("host".to_owned(), shown.map(|info| info.host.as_str()).into());
        item.insert("command".to_owned(), parts.map(|(_, command)| command).into());
        item.insert("session_name".to_owned(), parts.and_then(|(name, _)| name).into());
    }
}

/// The kind of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    Added,
    Removed,
    Renamed,
    Modified,
}

impl ChangeKind {
    /// Of a difference.
    pub(crate) fn of(difference: &Difference) -> ChangeKind {
        match (&difference.before, &difference.after) {
            (None, _) => ChangeKind::Added,
            (_, None) => ChangeKind::Removed,
            (Some(before), Some(after)) if before.path != after.path => ChangeKind::Renamed,
            _ => ChangeKind::Modified,
        }
    }

    /// As JSON names it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            ChangeKind::Added => "added",
            ChangeKind::Removed => "removed",
            ChangeKind::Renamed => "renamed",
            ChangeKind::Modified => "modified",
        }
    }

    /// As a line of `diff` begins.
    pub(crate) fn letter(self) -> char {
        match self {
            ChangeKind::Added => 'A',
            ChangeKind::Removed => 'D',
            ChangeKind::Renamed => 'R',
            ChangeKind::Modified => 'M',
        }
    }
}

/// The side that names it: that of the end, else that of the start.
pub(crate) fn named(difference: &Difference) -> &Side {
    static NOTHING: std::sync::LazyLock<Side> = std::sync::LazyLock::new(Side::default);
    difference.after.as_ref().or(difference.before.as_ref()).unwrap_or(&NOTHING)
}

/// A path for a person, a directory with `/` at its end; of a rename both.
pub(crate) fn paths(difference: &Difference) -> String {
    let shown = |side: &Side| {
        let slash = if side.kind() == frieze_client::FileKind::Directory && side.path.len() > 1 { "/" } else { "" };
        format!("{}{slash}", format::printable(&side.path))
    };
    match (&difference.before, &difference.after) {
        (Some(before), Some(after)) if before.path != after.path => format!("{} -> {}", shown(before), shown(after)),
        _ => shown(named(difference)),
    }
}

/// The differences besides the name, as text: `120 bytes at 0, mode 0644 -> 0600`; empty if there are none.
pub(crate) fn details(run: &mut CommandRun, difference: &Difference) -> String {
    let (Some(before), Some(after)) = (&difference.before, &difference.after) else { return String::new() };
    let has = |bit: u32| difference.flags & bit != 0;
    let mut parts = Vec::new();
    if has(flags::REPLACED) {
        parts.push("replaced by another file".to_owned());
    }
    if has(flags::CONTENT) {
        parts.push(content(difference, before, after));
    }
    if has(flags::MODE) {
        parts.push(format!("mode {:04o} -> {:04o}", before.mode, after.mode));
    }
    if has(flags::OWNER) {
        let mut owner = |side: &Side| format!("{}:{}", run.names.user(side.uid).to_owned(), run.names.group(side.gid));
        parts.push(format!("owner {} -> {}", owner(before), owner(after)));
    }
    if has(flags::TIMES) {
        parts.push(format!("time {} -> {}", format::time_ns(before.mtime_ns), format::time_ns(after.mtime_ns)));
    }
    if has(flags::XATTRS) {
        parts.push("extended attributes".to_owned());
    }
    if has(flags::ACL) {
        parts.push("access list".to_owned());
    }
    parts.join(", ")
}

fn content(difference: &Difference, before: &Side, after: &Side) -> String {
    let size = if before.size == after.size {
        String::new()
    } else {
        format!(", {} -> {} bytes long", before.size, after.size)
    };
    match &difference.spans[..] {
        [] => format!("contents{size}"),
        [only] => format!("{} bytes at {}{size}", only.len, only.offset),
        spans => {
            let sum: u64 = spans.iter().map(|span| span.len).sum();
            let more = if difference.more_spans { "more than " } else { "" };
            format!("{more}{sum} bytes in {} places{size}", spans.len())
        }
    }
}

/// One difference as JSON.
pub(crate) fn to_json(run: &mut CommandRun, who: &SessionNames, difference: &Difference) -> Map<String, Value> {
    let what = difference.words();
    let spans: Vec<Value> =
        difference.spans.iter().map(|span| json!({ "offset": span.offset, "len": span.len })).collect();
    let stamp = Hlc(difference.stamp);
    let mut item = Map::new();
    item.insert("change".to_owned(), ChangeKind::of(difference).word().into());
    item.insert("what".to_owned(), what.into());
    put_path(&mut item, &named(difference).path);
    item.insert("before".to_owned(), difference.before.as_ref().map(side_json).into());
    item.insert("after".to_owned(), difference.after.as_ref().map(side_json).into());
    item.insert("spans".to_owned(), spans.into());
    item.insert("more_spans".to_owned(), difference.more_spans.into());
    item.insert("stamp".to_owned(), stamp.to_string().into());
    item.insert("time".to_owned(), format::time_of(stamp).into());
    who.put_json(run, &mut item, "uid", difference.uid, difference.session);
    item
}

/// Adds `path`, and `path_hex` if it is not UTF-8.
pub(crate) fn put_path(item: &mut Map<String, Value>, path: &[u8]) {
    item.insert("path".to_owned(), String::from_utf8_lossy(path).into());
    if std::str::from_utf8(path).is_err() {
        item.insert("path_hex".to_owned(), format::hex(path).into());
    }
}

fn side_json(side: &Side) -> Value {
    let mut item = Map::new();
    put_path(&mut item, &side.path);
    put_side(&mut item, side);
    item.into()
}

/// Adds `kind`, `inode`, `mode`, `uid`, `gid`, `size`, `mtime` and `made`.
pub(crate) fn put_side(item: &mut Map<String, Value>, side: &Side) {
    item.insert("kind".to_owned(), side.kind().word().into());
    item.insert("inode".to_owned(), side.inode.into());
    item.insert("mode".to_owned(), format!("{:04o}", side.mode).into());
    item.insert("uid".to_owned(), side.uid.into());
    item.insert("gid".to_owned(), side.gid.into());
    item.insert("size".to_owned(), side.size.into());
    item.insert("mtime".to_owned(), format::time_ns(side.mtime_ns).into());
    item.insert("made".to_owned(), Hlc(side.born).to_string().into());
}
