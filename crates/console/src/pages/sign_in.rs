//! Pages for a browser that is not signed in.

use askama::Template;
use hyper::StatusCode;
use hyper::Uri;
use hyper::http::uri::Authority;

use crate::error::PageRefusal;
use crate::frame::{Frame, render};
use crate::reply::ConsoleReply;
use crate::sign_in::{LINK_S, LinkFault};
use crate::words::{duration_ms, user_name};

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignInPage {
    frame: Frame,
    /// The command that gives a link.
    command: String,
    port: u16,
    /// The browser was signed in before.
    was_signed_in: bool,
}

/// How to sign in.
pub(crate) fn page(host: &Authority, was_signed_in: bool) -> ConsoleReply {
    let command = match host.as_str() == crate::listen::DEFAULT_ADDRESS {
        true => "frieze console login".to_owned(),
        false => format!("frieze console login --console {host}"),
    };
    let page = SignInPage {
        frame: Frame::signed_out("", "Sign in"),
        command,
        port: host.port_u16().unwrap_or(80),
        was_signed_in,
    };
    render(&page).status(StatusCode::UNAUTHORIZED)
}

#[derive(Template)]
#[template(path = "go_on.html")]
struct GoOnPage {
    frame: Frame,
    address: String,
}

/// A page that goes on to an address of this console by itself: so the request comes from here.
pub(crate) fn go_on(uri: &Uri) -> ConsoleReply {
    let address = uri.path_and_query().map_or("/", |found| found.as_str());
    // `//host` would be another server.
    let address = format!("/{}", address.trim_start_matches('/'));
    render(&GoOnPage { frame: Frame::signed_out("", "frieze"), address })
}

#[derive(Template)]
#[template(path = "confirm.html")]
struct ConfirmPage<'a> {
    frame: Frame,
    user: String,
    secret: &'a str,
}

/// The page of a link that works.
pub(crate) fn confirm(secret: &str, uid: u32) -> ConsoleReply {
    render(&ConfirmPage { frame: Frame::signed_out("", "Sign in"), user: user_name(uid), secret })
}

/// The page of a link that does not work.
pub(crate) fn refused(fault: LinkFault) -> PageRefusal {
    let again = "Run `frieze console login` again for a new link.";
    match fault {
        LinkFault::Used { ago_s } => PageRefusal::new(
            StatusCode::GONE,
            format!("this link signed a browser in {} ago: each link works once", duration_ms(ago_s * 1000)),
            "If that was not your browser, run `frieze console logout`, which signs all of them out. Run `frieze \
             console login` for a new link.",
        ),
        LinkFault::Old => PageRefusal::new(
            StatusCode::GONE,
            format!("this link has expired: it works for {} minutes", LINK_S / 60),
            again,
        ),
        LinkFault::Unknown => PageRefusal::new(
            StatusCode::NOT_FOUND,
            "there is no such link: it was not made here, or the server was started again since",
            again,
        ),
        LinkFault::Foreign { uid } => PageRefusal::new(
            StatusCode::FORBIDDEN,
            format!("this link is for {}, and this browser runs as another user", user_name(uid)),
            "Run `frieze console login` as the user that runs the browser.",
        ),
    }
}
