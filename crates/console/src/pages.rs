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
use hyper::StatusCode;

use crate::assets;
use crate::error::Refusal;
use crate::gateway::not_there;
use crate::paths::PagePath;
use crate::query::Params;
use crate::reply::ConsoleReply;
use crate::visit::Visit;

/// What is around a page.
pub(crate) struct Frame {
    title: String,
    /// The part of the console that it belongs to, as the navigation names it.
    part: &'static str,
    /// The user; empty if the browser is not signed in.
    user: String,
    token: String,
    css: String,
    js: String,
    icon: String,
}

impl Frame {
    fn new(visit: &Visit<'_>, part: &'static str, title: impl Into<String>) -> Frame {
        let (user, token) = (visit.user(), visit.signed_in.form_token.clone());
        Frame { user, token, ..Frame::signed_out(part, title) }
    }

    fn signed_out(part: &'static str, title: impl Into<String>) -> Frame {
        let [css, js, icon] = ["console.css", "console.js", "icon.svg"].map(assets::address);
        Frame { title: title.into(), part, user: String::new(), token: String::new(), css, js, icon }
    }
}

#[derive(Template)]
#[template(path = "refusal.html")]
struct RefusalPage<'a> {
    frame: Frame,
    refusal: &'a Refusal,
}

/// A page that says why there is no other.
pub(crate) fn refused(refusal: &Refusal) -> ConsoleReply {
    let frame = Frame::signed_out("", "Not possible");
    render(&RefusalPage { frame, refusal }).status(refusal.status)
}

/// Renders a template.
fn render(template: &impl Template) -> ConsoleReply {
    match template.render() {
        Ok(html) => ConsoleReply::page(html),
        Err(error) => {
            tracing::error!("a page of the console cannot be rendered: {error}");
            ConsoleReply::text(format!("the page cannot be rendered: {error}\n"))
                .status(StatusCode::INTERNAL_SERVER_ERROR)
        }
    }
}

/// True if people look at what this address shows; scripts of the pages ask for the others.
pub(crate) fn is_page(path: &str) -> bool {
    !["/activity", "/instant", "/cluster.json"].iter().any(|data| path.starts_with(data))
}

/// Answers a request for a page.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn answer(visit: &Visit<'_>, path: &str, query: &Params) -> Result<ConsoleReply, Refusal> {
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
pub(crate) fn change(visit: &Visit<'_>, path: &str, query: &Params) -> Result<ConsoleReply, Refusal> {
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
