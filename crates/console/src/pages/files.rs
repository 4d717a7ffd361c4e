//! A directory or a file at an instant.

use askama::Template;
use frieze_client::{
    Attr, Difference, DirEntry, FileKind, Fs, HistoryInterval, Hlc, InodeId, Reason, Side, Version, VersionKind,
};
use hyper::StatusCode;

use super::time_bar::TimeBar;
use crate::error::{PageRefusal, about};
use crate::frame::{Frame, render};
use crate::paths::{PagePath, escaped};
use crate::preview::{Preview, preview};
use crate::query::Params;
use crate::reply::ConsoleReply;
use crate::visit::{Visit, target};
use crate::words::{PageAuthors, bytes, grouped, mode, shown, time_of};

/// Names of one page.
const NAMES_MAX: u32 = 200;
/// Versions of one page.
const VERSIONS_MAX: u32 = 50;

/// A name in a directory.
struct NameRow {
    name: String,
    href: String,
    /// `directory`, `file`, `link` or `special`.
    kind: &'static str,
    size: String,
    modified: String,
    mode: String,
}

/// The names of a directory.
struct Listing {
    rows: Vec<NameRow>,
    /// The address of the next names; empty if there are none.
    more: String,
    /// The address of the first names, if these are others.
    first: String,
    /// Where the directory above is; empty for the root.
    up: String,
}

/// A version of a file.
struct VersionRow {
    /// The exact instant.
    at: String,
    time: String,
    what: String,
    by: String,
    session: u64,
    session_name: String,
    /// The state that the page shows is this one.
    is_shown: bool,
    /// The state that it is compared with unless another is chosen.
    is_before: bool,
}

/// A file.
struct FileView {
    size: String,
    modified: String,
    mode: String,
    owner: String,
    preview: Preview,
    raw: String,
    versions: Vec<VersionRow>,
    older: String,
    forgotten: String,
}

/// What the instant has at the path.
enum State {
    Directory(Listing),
    File(Box<FileView>),
    /// A symbolic link, and where it leads.
    Link(String),
    /// A device, a socket, a pipe.
    Special(&'static str),
    /// Nothing, and when there was something.
    Absent {
        words: String,
        last: Option<LastState>,
        then: Option<(String, String)>,
    },
}

/// When a path last existed.
struct LastState {
    at: String,
    time: String,
    by: String,
}

#[derive(Template)]
#[template(path = "files.html")]
struct FilesPage {
    frame: Frame,
    time: TimeBar,
    crumbs: Vec<(String, String)>,
    path: String,
    state: State,
    may_write: bool,
    is_root: bool,
    /// A new file system: the page shows what it is for.
    is_new: bool,
    wave: String,
}

#[derive(Template)]
#[template(path = "files_state.html")]
struct FilesPart {
    time: TimeBar,
    path: String,
    state: State,
    may_write: bool,
    is_root: bool,
}

/// The page, or with `part=state` what the slider changes of it.
pub(super) fn page(visit: &Visit<'_>, path: &PagePath, query: &Params) -> Result<ConsoleReply, PageRefusal> {
    let at = visit.instant_of(query, "at")?;
    let time = TimeBar::new(visit, "files", path, at);
    let fs = visit.view(at);
    let state = state_of(visit, &fs, path, at, &time, query)?;
    let status = if matches!(state, State::Absent { .. }) { StatusCode::NOT_FOUND } else { StatusCode::OK };
    let may_write = at.is_some() && visit.may_write(&path.parent());
    if query.text("part") == Some("state") {
        let part = FilesPart { time, path: path.shown(), state, may_write, is_root: path.is_root() };
        return Ok(render(&part).status(status));
    }
    let is_empty = matches!(&state, State::Directory(listing) if listing.rows.is_empty());
    let page = FilesPage {
        frame: Frame::new(visit, "files", path.shown()),
        crumbs: path.crumbs(),
        path: path.shown(),
        may_write,
        is_root: path.is_root(),
        is_new: is_empty && path.is_root() && is_untouched(&fs, visit.now()),
        wave: crate::assets::address("wave.js"),
        time,
        state,
    };
    Ok(render(&page).status(status))
}

/// True if nothing was ever made in the file system but its root.
fn is_untouched(fs: &Fs, now: Hlc) -> bool {
    let root = target(&PagePath::of(b"/"));
    let is_root = |side: &Option<Side>| side.as_ref().is_none_or(|side| InodeId(side.inode) == InodeId::ROOT);
    let only_root = |event: &Difference| is_root(&event.before) && is_root(&event.after);
    let whole = HistoryInterval { after: Hlc::ZERO, upto: now };
    fs.story_newest(&root, whole, true, 8).is_ok_and(|reply| reply.events.iter().all(only_root))
}

fn state_of(
    visit: &Visit<'_>,
    fs: &Fs,
    path: &PagePath,
    at: Option<Hlc>,
    time: &TimeBar,
    query: &Params,
) -> Result<State, PageRefusal> {
    let stat = match fs.stat(&target(path)) {
        Ok(stat) => stat.attr,
        Err(error) if error.reason() == Reason::NotFound => return Ok(absent(visit, fs, path, at, &error.to_string())),
        Err(error) => return Err(PageRefusal::of(&path.shown(), &error)),
    };
    Ok(match stat.kind() {
        FileKind::Directory => State::Directory(listing(fs, path, time, query)?),
        FileKind::File => State::File(Box::new(file(visit, fs, path, &stat, at, query)?)),
        FileKind::Symlink => State::Link(shown(&fs.read_link(&target(path)).map_err(about(path.shown()))?)),
        kind => State::Special(kind.word()),
    })
}

/// What a page says where there is nothing.
fn absent(visit: &Visit<'_>, fs: &Fs, path: &PagePath, at: Option<Hlc>, words: &str) -> State {
    // What is there now may have had another name then.
    let now = visit.fs().stat(&target(path)).ok();
    let then = now.and_then(|stat| fs.path_of(InodeId(stat.attr.inode)).ok());
    let then = then.filter(|_| at.is_some()).map(|name| (shown(&name), address(&name, at)));
    let found = visit.fs().last_existed(path.as_bytes()).ok();
    let last = found.map(|reply| {
        let mut authors = PageAuthors::default();
        authors.learn(reply.sessions);
        // It is there now: at the instant that is shown it was not yet, or not any more.
        let at = if reply.at == 0 { visit.now() } else { Hlc(reply.at) };
        let by = if reply.at == 0 { String::new() } else { authors.user(reply.was.uid) };
        LastState { at: at.to_string(), time: time_of(at), by }
    });
    State::Absent { words: words.to_owned(), last, then }
}

fn listing(fs: &Fs, path: &PagePath, time: &TimeBar, query: &Params) -> Result<Listing, PageRefusal> {
    let after = match query.text("after") {
        None => Vec::new(),
        Some(hex) => data_encoding::HEXLOWER_PERMISSIVE
            .decode(hex.as_bytes())
            .map_err(|_| PageRefusal::bad(format!("after is {hex:?}, which is no name in hexadecimal")))?,
    };
    let reply = fs.list(&target(path), &after, NAMES_MAX, true).map_err(about(path.shown()))?;
    let here = format!("/files{}", path.escaped());
    let joined = |query: &str| if time.is_now() { format!("?{query}") } else { format!("?at={}&{query}", time.at) };
    let more = match reply.entries.last().filter(|_| reply.more) {
        Some(last) => format!("{here}{}", joined(&format!("after={}", data_encoding::HEXLOWER.encode(&last.name)))),
        None => String::new(),
    };
    Ok(Listing {
        rows: reply.entries.iter().map(|entry| name_row(path, entry, time)).collect(),
        more,
        first: if after.is_empty() { String::new() } else { format!("{here}{}", time.query()) },
        up: if path.is_root() { String::new() } else { format!("/files{}{}", path.parent().escaped(), time.query()) },
    })
}

fn name_row(directory: &PagePath, entry: &DirEntry, time: &TimeBar) -> NameRow {
    let attr = entry.attr.clone().unwrap_or_default();
    let (kind, size) = match entry.kind() {
        FileKind::Directory => ("directory", String::new()),
        FileKind::File => ("file", bytes(attr.size)),
        FileKind::Symlink => ("link", String::new()),
        _ => ("special", String::new()),
    };
    NameRow {
        name: shown(&entry.name),
        href: format!("/files{}{}", directory.join(&entry.name).escaped(), time.query()),
        kind,
        size,
        modified: time_of(modified(&attr)),
        mode: mode(entry.kind(), attr.mode),
    }
}

fn modified(attr: &Attr) -> Hlc {
    Hlc::first_of_micros(u64::try_from(attr.mtime_ns / 1000).unwrap_or(0))
}

fn file(
    visit: &Visit<'_>,
    fs: &Fs,
    path: &PagePath,
    attr: &Attr,
    at: Option<Hlc>,
    query: &Params,
) -> Result<FileView, PageRefusal> {
    let mut authors = PageAuthors::default();
    let owner = authors.user(attr.uid);
    let upto = visit.instant_of(query, "upto")?.unwrap_or(visit.now());
    let interval = HistoryInterval { after: Hlc::ZERO, upto };
    let reply = fs.log_newest(&target(path), interval, VERSIONS_MAX).map_err(about(path.shown()))?;
    authors.learn(reply.sessions);
    let shown_at = at.unwrap_or(visit.now());
    let newest = reply.versions.iter().map(|version| Hlc(version.stamp)).find(|stamp| *stamp <= shown_at);
    let mut rows: Vec<VersionRow> =
        reply.versions.iter().map(|version| version_row(version, &mut authors, newest)).collect();
    // What another session left; a session that writes a file anew leaves an empty one in between.
    let before = rows.iter().position(|row| row.session != rows[0].session).unwrap_or(1);
    if let Some(row) = rows.get_mut(before) {
        row.is_before = true;
    }
    let query_at = at.map_or_else(String::new, |at| format!("at={at}&"));
    let raw = format!("/raw{}?{query_at}", path.escaped());
    Ok(FileView {
        size: format!("{} ({} bytes)", bytes(attr.size), grouped(attr.size)),
        modified: time_of(modified(attr)),
        mode: mode(FileKind::File, attr.mode),
        owner,
        preview: preview(fs, path, attr.size)?,
        raw,
        versions: rows,
        older: match reply.more {
            true => format!("/files{}?{query_at}upto={}", path.escaped(), Hlc(reply.after)),
            false => String::new(),
        },
        forgotten: reply.forgotten.map_or_else(String::new, |forgotten| time_of(Hlc(forgotten.before))),
    })
}

fn version_row(version: &Version, authors: &mut PageAuthors, newest: Option<Hlc>) -> VersionRow {
    let stamp = Hlc(version.stamp);
    let span = |verb: &str| format!("{verb} {} at {}", bytes(version.len), grouped(version.offset));
    let what = match version.kind() {
        VersionKind::Write => span("wrote"),
        VersionKind::Punch => span("punched out"),
        VersionKind::Truncate => format!("length set to {}", bytes(version.len)),
        VersionKind::Make => "created".to_owned(),
        VersionKind::SetAttr => "attributes changed".to_owned(),
        VersionKind::Named => format!("named {}", shown(&version.name)),
        VersionKind::Unnamed => format!("name {} removed", shown(&version.name)),
        VersionKind::Cloned => "cloned".to_owned(),
        VersionKind::Restored => "restored".to_owned(),
        VersionKind::Undone => "undone".to_owned(),
        VersionKind::Shared => span("copied by sharing"),
    };
    VersionRow {
        at: stamp.to_string(),
        time: time_of(stamp),
        what,
        by: authors.user(version.uid),
        session: version.session,
        session_name: authors.session(version.session),
        is_shown: newest == Some(stamp),
        is_before: false,
    }
}

/// The address of a file at an instant.
pub(super) fn address(path: &[u8], at: Option<Hlc>) -> String {
    let query = at.map_or_else(String::new, |at| format!("?at={at}"));
    format!("/files{}{query}", escaped(path))
}
