//! What happened in a tree: events, newest first, or the differences between two instants.

use askama::Template;
use frieze_client::{Difference, HistoryInterval, Hlc, Side, flags};

use super::files::address;
use super::time_bar::TimeBar;
use crate::error::{PageRefusal, about};
use crate::frame::{Frame, render};
use crate::paths::{PagePath, escaped};
use crate::query::Params;
use crate::reply::ConsoleReply;
use crate::visit::{Visit, target};
use crate::words::{PageAuthors, bytes, count, shown, time_of};

/// Events, or differences, of one page.
const ROWS_MAX: u32 = 100;

/// One change.
pub(super) struct ChangeRow {
    /// `added`, `removed`, `renamed`, `changed`.
    pub(super) kind: &'static str,
    pub(super) path: String,
    /// The path before a rename; else empty.
    pub(super) was: String,
    pub(super) details: String,
    /// When it was made.
    pub(super) time: String,
    /// Where the object is after it, or where it was before.
    pub(super) href: String,
    /// The two states side by side; empty if there are not two of a file.
    pub(super) compare: String,
    pub(super) by: String,
    pub(super) session: u64,
    pub(super) session_name: String,
}

#[derive(Template)]
#[template(path = "changes.html")]
struct ChangesPage {
    frame: Frame,
    time: TimeBar,
    crumbs: Vec<(String, String)>,
    rows: Vec<ChangeRow>,
    /// The start of the interval, if the page has one.
    from: String,
    from_time: String,
    /// The address of the next rows; empty if there are none.
    more: String,
    /// Something happened where the user may not look.
    hidden: bool,
    /// Before this time history was forgotten; else empty.
    forgotten: String,
    /// The plan that takes all of it back; empty if the user may not write there.
    undo: String,
}

pub(super) fn page(visit: &Visit<'_>, path: &PagePath, query: &Params) -> Result<ConsoleReply, PageRefusal> {
    let at = visit.instant_of(query, "at")?;
    let upto = at.unwrap_or(visit.now());
    let mut page = ChangesPage {
        frame: Frame::new(visit, "changes", format!("Changes in {}", path.shown())),
        time: TimeBar::new(visit, "changes", path, at),
        crumbs: path.crumbs(),
        rows: Vec::new(),
        from: String::new(),
        from_time: String::new(),
        more: String::new(),
        hidden: false,
        forgotten: String::new(),
        undo: String::new(),
    };
    match visit.instant_of(query, "from")? {
        None => events(visit, path, query, upto, &mut page)?,
        Some(from) if from > upto => {
            return Err(PageRefusal::bad("the interval ends before it begins: swap its two instants"));
        }
        Some(from) => differences(visit, path, query, HistoryInterval { after: from, upto }, &mut page)?,
    }
    Ok(render(&page))
}

/// The newest events up to an instant.
fn events(
    visit: &Visit<'_>,
    path: &PagePath,
    query: &Params,
    upto: Hlc,
    page: &mut ChangesPage,
) -> Result<(), PageRefusal> {
    let end = visit.instant_of(query, "before")?.unwrap_or(upto);
    let interval = HistoryInterval { after: Hlc::ZERO, upto: end };
    let fs = visit.view(Some(end));
    let reply = fs.story_newest(&target(path), interval, true, ROWS_MAX).map_err(about(path.shown()))?;
    let mut authors = PageAuthors::default();
    authors.learn(reply.sessions);
    page.rows = reply.events.iter().filter_map(|event| change_row(event, &mut authors)).collect();
    page.hidden = reply.hidden;
    page.forgotten = reply.forgotten.map_or_else(String::new, |forgotten| time_of(Hlc(forgotten.before)));
    // The newest page ends where the older one begins.
    let oldest = Hlc(reply.after);
    if !reply.events.is_empty() && oldest > Hlc::ZERO && oldest < end {
        let at = if page.time.is_now() { String::new() } else { format!("at={}&", page.time.at) };
        page.more = format!("/changes{}?{at}before={oldest}", path.escaped());
    }
    Ok(())
}

/// The differences between two instants.
fn differences(
    visit: &Visit<'_>,
    path: &PagePath,
    query: &Params,
    interval: HistoryInterval,
    page: &mut ChangesPage,
) -> Result<(), PageRefusal> {
    let skip = query.number("skip")?.unwrap_or(0);
    let reply = visit.fs().diff(&target(path), interval, skip, ROWS_MAX).map_err(about(path.shown()))?;
    let mut authors = PageAuthors::default();
    authors.learn(reply.sessions);
    let between = |difference| {
        let mut row = change_row(difference, &mut authors)?;
        // Of an interval, not of the newest change in it.
        row.compare = match (&difference.before, &difference.after) {
            (Some(before), Some(after)) if difference.flags & (flags::CONTENT | flags::REPLACED) != 0 => {
                compare_address(before, after, interval.after, interval.upto)
            }
            _ => String::new(),
        };
        Some(row)
    };
    page.rows = reply.differences.iter().filter_map(between).collect();
    page.hidden = reply.hidden;
    page.from = interval.after.to_string();
    page.from_time = time_of(interval.after);
    let at = if page.time.is_now() { String::new() } else { format!("&at={}", page.time.at) };
    if reply.more {
        let next = skip + reply.differences.len() as u64;
        page.more = format!("/changes{}?from={}{at}&skip={next}", path.escaped(), interval.after);
    }
    if visit.may_write(path) {
        page.undo = format!("/undo{}?from={}&to={}", path.escaped(), interval.after, interval.upto);
    }
    Ok(())
}

/// A change as a row; `None` for one without sides, which the server does not send.
pub(super) fn change_row(event: &Difference, authors: &mut PageAuthors) -> Option<ChangeRow> {
    let stamp = Hlc(event.stamp);
    let side = event.after.as_ref().or(event.before.as_ref())?;
    let kind = match (&event.before, &event.after) {
        (None, _) => "added",
        (_, None) => "removed",
        (Some(before), Some(after)) if before.path != after.path => "renamed",
        _ => "changed",
    };
    let was = match (&event.before, &event.after) {
        (Some(before), Some(after)) if before.path != after.path => shown(&before.path),
        _ => String::new(),
    };
    let (just_before, after) = (stamp.previous(), stamp);
    let compare = match (&event.before, &event.after) {
        (Some(before), Some(after_side)) if event.flags & (flags::CONTENT | flags::REPLACED) != 0 => {
            compare_address(before, after_side, just_before, after)
        }
        _ => String::new(),
    };
    Some(ChangeRow {
        kind,
        path: shown(&side.path),
        was,
        details: details(event),
        time: time_of(stamp),
        href: address(&side.path, Some(if event.after.is_some() { after } else { just_before })),
        compare,
        by: authors.user(event.uid),
        session: event.session,
        session_name: authors.session(event.session),
    })
}

fn compare_address(before: &Side, after: &Side, from: Hlc, to: Hlc) -> String {
    let was = if before.path == after.path {
        String::new()
    } else {
        format!("&was={}", escaped(escaped(&before.path).as_bytes()))
    };
    format!("/compare{}?from={from}&to={to}{was}", escaped(&after.path))
}

/// What changed, in words.
fn details(event: &Difference) -> String {
    let written: u64 = event.spans.iter().map(|span| span.len).sum();
    let mut words = Vec::new();
    if written > 0 {
        let at_least = if event.more_spans { "at least " } else { "" };
        let places = if event.spans.len() > 1 {
            format!(" in {}", count(event.spans.len() as u64, "place"))
        } else {
            String::new()
        };
        words.push(format!("{at_least}{}{places}", bytes(written)));
    }
    let is_new = event.before.is_none() || event.after.is_none();
    words.extend(
        event.words().into_iter().filter(|word| !is_new && (*word != "content" || written == 0)).map(str::to_owned),
    );
    words.join(", ")
}
