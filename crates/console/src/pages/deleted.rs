//! Names that once were in a directory.

use askama::Template;
use frieze_client::{DeletedObject, Hlc};

use super::files::address;
use super::time_bar::TimeBar;
use crate::error::{PageRefusal, about};
use crate::frame::{Frame, render};
use crate::paths::PagePath;
use crate::query::Params;
use crate::reply::ConsoleReply;
use crate::visit::{Visit, target};
use crate::words::{PageAuthors, bytes, shown, time_of};

/// Names of one page.
const NAMES_MAX: u32 = 200;

/// A name that is not there any more.
struct DeletedRow {
    name: String,
    kind: &'static str,
    size: String,
    time: String,
    by: String,
    session: u64,
    session_name: String,
    /// Where it was moved; empty if it was not.
    moved_to: String,
    moved_href: String,
    /// Its last state, and the plan that brings it back.
    href: String,
    restore: String,
}

#[derive(Template)]
#[template(path = "deleted.html")]
struct DeletedNamesPage {
    frame: Frame,
    time: TimeBar,
    crumbs: Vec<(String, String)>,
    rows: Vec<DeletedRow>,
    more: String,
    may_write: bool,
}

pub(super) fn page(visit: &Visit<'_>, path: &PagePath, query: &Params) -> Result<ConsoleReply, PageRefusal> {
    let at = visit.instant_of(query, "at")?;
    let hex = query.text("after").unwrap_or_default();
    let after = data_encoding::HEXLOWER_PERMISSIVE
        .decode(hex.as_bytes())
        .map_err(|_| PageRefusal::bad(format!("after is {hex:?}, which is no name in hexadecimal")))?;
    let fs = visit.view(at);
    let reply = fs.deleted(&target(path), &after, NAMES_MAX).map_err(about(path.shown()))?;
    let mut authors = PageAuthors::default();
    authors.learn(reply.sessions);
    let time = TimeBar::new(visit, "deleted", path, at);
    let joined = |query: &str| if time.is_now() { format!("?{query}") } else { format!("?at={}&{query}", time.at) };
    let more = match reply.next.is_empty() {
        true => String::new(),
        false => {
            let next = format!("after={}", data_encoding::HEXLOWER.encode(&reply.next));
            format!("/deleted{}{}", path.escaped(), joined(&next))
        }
    };
    Ok(render(&DeletedNamesPage {
        frame: Frame::new(visit, "deleted", format!("Deleted in {}", path.shown())),
        crumbs: path.crumbs(),
        rows: reply.names.iter().map(|object| row(object, &mut authors)).collect(),
        more,
        may_write: visit.may_write(path),
        time,
    }))
}

fn row(object: &DeletedObject, authors: &mut PageAuthors) -> DeletedRow {
    let last = Hlc(object.stamp).previous();
    let path = PagePath::of(&object.was.path);
    DeletedRow {
        name: shown(path.name()),
        kind: object.was.kind().word(),
        size: bytes(object.was.size),
        time: time_of(Hlc(object.stamp)),
        by: authors.user(object.uid),
        session: object.session,
        session_name: authors.session(object.session),
        moved_to: shown(&object.moved_to),
        moved_href: address(&object.moved_to, None),
        href: address(&object.was.path, Some(last)),
        restore: format!("/restore{}?to={last}", path.escaped()),
    }
}
