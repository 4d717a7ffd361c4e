//! What every page has around it, and how a page becomes an answer.

use askama::Template;
use hyper::StatusCode;

use crate::assets;
use crate::reply::ConsoleReply;
use crate::visit::Visit;

/// What is around a page.
pub(crate) struct Frame {
    pub(crate) title: String,
    /// The part of the console that it belongs to, as the navigation names it.
    pub(crate) part: &'static str,
    /// The user; empty if the browser is not signed in.
    pub(crate) user: String,
    pub(crate) token: String,
    pub(crate) css: String,
    pub(crate) js: String,
    pub(crate) icon: String,
}

impl Frame {
    pub(crate) fn new(visit: &Visit<'_>, part: &'static str, title: impl Into<String>) -> Frame {
        let (user, token) = (visit.user(), visit.signed_in.form_token.clone());
        Frame { user, token, ..Frame::signed_out(part, title) }
    }

    pub(crate) fn signed_out(part: &'static str, title: impl Into<String>) -> Frame {
        let [css, js, icon] = ["console.css", "console.js", "icon.svg"].map(assets::address);
        Frame { title: title.into(), part, user: String::new(), token: String::new(), css, js, icon }
    }
}

/// Renders a template.
pub(crate) fn render(template: &impl Template) -> ConsoleReply {
    match template.render() {
        Ok(html) => ConsoleReply::page(html),
        Err(error) => {
            tracing::error!("a page of the console cannot be rendered: {error}");
            ConsoleReply::text(format!("the page cannot be rendered: {error}\n"))
                .status(StatusCode::INTERNAL_SERVER_ERROR)
        }
    }
}
