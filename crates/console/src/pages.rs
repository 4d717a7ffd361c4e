//! The pages: one file for each, and what all of them have around them.

mod activity;
mod changes;
mod cluster;
mod compare;
mod deleted;
mod edit;
mod files;
mod raw;
mod sessions;
pub(crate) mod sign_in;
mod space;
mod step;
mod time_bar;

use askama::Template;

use crate::error::{PageRefusal, not_there};
use crate::frame::{Frame, render};
use crate::paths::PagePath;
use crate::query::Params;
use crate::reply::ConsoleReply;
use crate::visit::Visit;

#[derive(Template)]
#[template(path = "refusal.html")]
struct RefusalPage<'a> {
    frame: Frame,
    refusal: &'a PageRefusal,
}

/// A page that says why there is no other.
pub(crate) fn refused(refusal: &PageRefusal, visit: Option<&Visit<'_>>) -> ConsoleReply {
    let title = "Not possible";
    let frame = visit.map_or_else(|| Frame::signed_out("", title), |visit| Frame::new(visit, "", title));
    render(&RefusalPage { frame, refusal }).status(refusal.status)
}

/// True if people look at what this address shows; scripts of the pages ask for the others.
pub(crate) fn is_page(path: &str) -> bool {
    !["/activity", "/instant", "/cluster.json"].iter().any(|data| path.starts_with(data))
}

/// Answers a request for a page.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn answer(visit: &Visit<'_>, path: &str, query: &Params) -> Result<ConsoleReply, PageRefusal> {
    let (page, rest) = divided(path);
    let file = || PagePath::parse(rest);
    match page {
        "" => Ok(ConsoleReply::see("/files/")),
        "files" => files::page(visit, &file()?, query),
        "raw" => raw::bytes(visit, &file()?, query),
        "compare" => compare::page(visit, &file()?, query),
        "changes" => changes::page(visit, &file()?, query),
        "deleted" => deleted::page(visit, &file()?, query),
        "space" => space::page(visit, &file()?, query),
        "sessions" => sessions::page(visit, rest.trim_matches('/'), query),
        "cluster" if rest.is_empty() => cluster::page(visit),
        "cluster.json" if rest.is_empty() => cluster::figures(visit),
        "restore" => edit::restore_plan(visit, &file()?, query),
        "undo" => edit::undo_plan(visit, &file()?, query),
        "activity" => activity::heat(visit, &file()?, query),
        "step" => step::step(visit, &file()?, query),
        "instant" if rest.is_empty() => step::instant(visit, query),
        _ => Err(not_there(path)),
    }
}

/// Makes a change that a form asks for.
///
/// # Errors
/// What is wrong with it; the server's refusal.
pub(crate) fn change(visit: &Visit<'_>, path: &str, query: &Params) -> Result<ConsoleReply, PageRefusal> {
    let (page, rest) = divided(path);
    match page {
        "restore" => edit::restore(visit, &PagePath::parse(rest)?, query),
        "undo" => edit::undo(visit, &PagePath::parse(rest)?, query),
        _ => Err(not_there(path)),
    }
}

/// The name of a page, and what follows it.
fn divided(path: &str) -> (&str, &str) {
    let path = path.strip_prefix('/').unwrap_or(path);
    path.find('/').map_or((path, ""), |slash| path.split_at(slash))
}
