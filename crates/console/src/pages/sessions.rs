//! Sessions: which program of which user changed what.

use askama::Template;
use frieze_client::{HistoryInterval, Hlc, SessionInfo, SessionName};
use hyper::StatusCode;

use super::changes::{ChangeRow, change_row};
use crate::error::{PageRefusal, about};
use crate::frame::{Frame, render};
use crate::paths::PagePath;
use crate::query::Params;
use crate::reply::ConsoleReply;
use crate::visit::{Visit, target};
use crate::words::{PageAuthors, count, grouped, shown, time_of, user_name};

/// Sessions that one page looks through, and shows.
const LOOKED_AT_MAX: usize = 5000;
const ROWS_MAX: usize = 200;
/// Events of a tree that are looked through for those of one session, and shown.
const EVENTS_MAX: usize = 5000;
const EVENT_ROWS_MAX: usize = 100;

/// One session.
struct SessionRow {
    id: u64,
    user: String,
    /// Its name, if it has one.
    name: String,
    command: String,
    host: String,
    opened: String,
    last: String,
    /// When it ended; empty if it is open.
    ended: String,
}

/// A change that this user made by a page.
struct DoneRow {
    words: String,
    time: String,
    undo: String,
}

#[derive(Template)]
#[template(path = "sessions.html")]
struct SessionsPage {
    frame: Frame,
    rows: Vec<SessionRow>,
    done: Vec<DoneRow>,
    /// What was looked through.
    words: String,
    /// The address of the page that shows older ones; empty if all are shown.
    older: String,
}

#[derive(Template)]
#[template(path = "session.html")]
struct OneSessionPage {
    frame: Frame,
    session: SessionRow,
    rows: Vec<ChangeRow>,
    words: String,
    hidden: bool,
}

/// The list, or one session.
pub(super) fn page(visit: &Visit<'_>, id: &str, query: &Params) -> Result<ConsoleReply, PageRefusal> {
    match id {
        "" => list(visit, query),
        id => {
            let id = id.parse().map_err(|_| PageRefusal::bad(format!("{id:?} is no number of a session")))?;
            one(visit, id)
        }
    }
}

fn list(visit: &Visit<'_>, query: &Params) -> Result<ConsoleReply, PageRefusal> {
    let days = query.number("days")?.unwrap_or(1).clamp(1, 36_500);
    let since = Hlc::first_of_micros(visit.now().micros().saturating_sub(days * 86_400_000_000));
    let (mut found, mut after, mut more) = (Vec::new(), 0, true);
    while more && found.len() < LOOKED_AT_MAX {
        let page = visit.fs().sessions_page(since, after, 1000).map_err(about("sessions"))?;
        more = page.more && !page.sessions.is_empty();
        after = page.sessions.last().map_or(after, |session| session.id);
        found.extend(page.sessions);
    }
    let total = found.len();
    found.reverse();
    found.truncate(ROWS_MAX);
    let period = if days == 1 { "day".to_owned() } else { format!("{} days", grouped(days)) };
    let words = match (more, total > ROWS_MAX) {
        (true, _) => format!("Of the last {period}, the newest of the first {} sessions.", grouped(total as u64)),
        (false, true) => format!("The newest {ROWS_MAX} of {} of the last {period}.", count(total as u64, "session")),
        (false, false) => format!("{} of the last {period}.", count(total as u64, "session")),
    };
    let older = if since > visit.earliest() { format!("/sessions?days={}", days * 10) } else { String::new() };
    let done = visit.done().into_iter().map(|done| DoneRow {
        words: done.words,
        time: time_of(done.at),
        undo: format!("/undo/?from={}&to={}", done.at.previous(), done.at),
    });
    Ok(render(&SessionsPage {
        frame: Frame::new(visit, "sessions", "Sessions"),
        rows: found.iter().map(row).collect(),
        done: done.collect(),
        words,
        older,
    }))
}

fn one(visit: &Visit<'_>, id: u64) -> Result<ConsoleReply, PageRefusal> {
    let found = visit.fs().sessions_page(Hlc::ZERO, id.saturating_sub(1), 1);
    let found = found.map_err(about(format!("session {id}")))?.sessions.into_iter().find(|session| session.id == id);
    let Some(info) = found else {
        let words = format!("no session ever had the number {id}");
        return Err(PageRefusal::new(StatusCode::NOT_FOUND, words, "Choose one of the list of sessions."));
    };
    let end = Hlc(if info.last == 0 { info.id } else { info.last }).min(visit.now());
    let root = target(&PagePath::of(b"/"));
    let mut authors = PageAuthors::default();
    let (mut rows, mut looked_at, mut hidden) = (Vec::new(), 0, false);
    let mut upto = end;
    let start = Hlc(info.id).previous();
    while upto > start && looked_at < EVENTS_MAX && rows.len() < EVENT_ROWS_MAX {
        let interval = HistoryInterval { after: start, upto };
        let reply = visit.fs().story_newest(&root, interval, true, 500).map_err(about("/"))?;
        authors.learn(reply.sessions);
        hidden |= reply.hidden;
        looked_at += reply.events.len();
        let own = reply.events.iter().filter(|event| event.session == id);
        rows.extend(own.filter_map(|event| change_row(event, &mut authors)));
        upto = Hlc(reply.after).min(upto.previous());
    }
    rows.truncate(EVENT_ROWS_MAX);
    let words = match upto > start {
        true => {
            format!("The newest of its changes, of {} that were looked through.", count(looked_at as u64, "change"))
        }
        false if rows.is_empty() => "It changed nothing that you may see.".to_owned(),
        false => format!("{}, newest first.", count(rows.len() as u64, "change")),
    };
    let frame = Frame::new(visit, "sessions", format!("Session {id}"));
    Ok(render(&OneSessionPage { frame, session: row(&info), rows, words, hidden }))
}

fn row(info: &SessionInfo) -> SessionRow {
    let known = |stamp: u64| if stamp == 0 { String::new() } else { time_of(Hlc(stamp)) };
    let (name, command) = SessionName::split(&info.command);
    SessionRow {
        id: info.id,
        user: user_name(info.uid),
        name: shown(name.unwrap_or_default().as_bytes()),
        command: if info.hidden { "(another user's)".to_owned() } else { shown(command.as_bytes()) },
        host: shown(info.host.as_bytes()),
        opened: time_of(Hlc(info.id)),
        last: known(info.last),
        ended: known(info.ended),
    }
}
