//! From change to change, and instants that are typed.

use frieze_client::{HistoryInterval, Hlc};
use serde_json::json;

use crate::error::{PageRefusal, about};
use crate::paths::PagePath;
use crate::query::Params;
use crate::reply::ConsoleReply;
use crate::visit::{Visit, target};
use crate::words::{exact_time, time_of};

/// Pages that have a slider.
const PAGES: [&str; 3] = ["files", "changes", "deleted"];

/// The page of the change before, or after, the instant that is shown.
pub(super) fn step(visit: &Visit<'_>, path: &PagePath, query: &Params) -> Result<ConsoleReply, PageRefusal> {
    let at = visit.instant_of(query, "at")?;
    let page = query.text("page").filter(|page| PAGES.contains(page)).unwrap_or("files");
    let (now, earliest) = (visit.now(), visit.earliest());
    let shown = at.unwrap_or(now);
    let found = match query.text("to") {
        Some("previous") => neighbour(visit, path, shown, Direction::Back)?.map_or(earliest, |stamp| stamp),
        Some("next") => match neighbour(visit, path, shown, Direction::Forward)? {
            Some(stamp) => stamp,
            None => return Ok(ConsoleReply::see(&format!("/{page}{}", path.escaped()))),
        },
        _ => return Err(PageRefusal::bad("to is previous, or next")),
    };
    let found = found.clamp(earliest, now);
    match query.text("as") {
        Some("json") => Ok(ConsoleReply::json(&instant_json(found))),
        _ => Ok(ConsoleReply::see(&format!("/{page}{}?at={found}", path.escaped()))),
    }
}

/// The exact instant that a text means.
pub(super) fn instant(visit: &Visit<'_>, query: &Params) -> Result<ConsoleReply, PageRefusal> {
    let text = query.text("text").unwrap_or("now");
    let at = if text.eq_ignore_ascii_case("now") { visit.now() } else { visit.instant(text)? };
    Ok(ConsoleReply::json(&instant_json(at)))
}

fn instant_json(at: Hlc) -> serde_json::Value {
    json!({ "at": at.to_string(), "us": at.micros(), "time": time_of(at), "exact": exact_time(at) })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Back,
    Forward,
}

/// The stamp of the nearest change: before the state that is shown, or after it.
///
/// The state at the stamp of a change includes the change, so a step back shows what was before the newest one.
fn neighbour(visit: &Visit<'_>, path: &PagePath, shown: Hlc, direction: Direction) -> Result<Option<Hlc>, PageRefusal> {
    let interval = match direction {
        Direction::Back => HistoryInterval { after: Hlc::ZERO, upto: shown },
        Direction::Forward => HistoryInterval { after: shown, upto: visit.now() },
    };
    if interval.after >= interval.upto {
        return Ok(None);
    }
    let fs = visit.fs();
    let views = [fs.at(shown), fs.at(visit.now())];
    // A name that is not there any more is looked up where it last was.
    let last = || fs.last_existed(path.as_bytes()).ok().filter(|last| last.at != 0).map(|last| fs.at(Hlc(last.at)));
    let found = views.iter().find(|view| view.stat(&target(path)).is_ok()).cloned();
    let located = found.or_else(last).unwrap_or_else(|| views[0].clone());
    let mut interval = interval;
    loop {
        let reply = match direction {
            Direction::Back => located.story_newest(&target(path), interval, true, 2),
            Direction::Forward => located.story(&target(path), interval, true, 2),
        };
        let reply = reply.map_err(about(path.shown()))?;
        let stamps = || reply.events.iter().map(|event| Hlc(event.stamp));
        let found = match direction {
            // The newest change is what is shown: the state before it is that of the stamp just below.
            Direction::Back => stamps().max().map(Hlc::previous),
            Direction::Forward => stamps().min(),
        };
        if found.is_some() {
            return Ok(found);
        }
        let rest = match direction {
            Direction::Back => HistoryInterval { upto: Hlc(reply.after), ..interval },
            Direction::Forward => HistoryInterval { after: Hlc(reply.upto), ..interval },
        };
        if rest.after >= rest.upto || rest == interval {
            return Ok(None);
        }
        interval = rest;
    }
}
