//! Requests of browsers: which page asks, which user is signed in, which page answers.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use frieze_client::{AcceptedConnection, Client, ConnectionHandler, Guest, Proof, host_name, mono};
use frieze_httpd::{ConnectionLimits, HttpBody, RequestGuard, origin};
use hyper::body::{Body, Incoming};
use hyper::header::{COOKIE, HeaderMap};
use hyper::http::request::Parts;
use hyper::http::uri::Authority;
use hyper::{Method, Request, Response, StatusCode};
use serde_json::json;

use crate::error::{PageRefusal, not_there};
use crate::listen::Audience;
use crate::pages;
use crate::query::Params;
use crate::reply::{BodyError, ConsoleReply};
use crate::sign_in::{IDLE_S, LINK_S, SignIns, SignedIn};
use crate::visit::Visit;
use crate::words::user_name;

/// A program of a user asks here for a link that signs a browser in.
pub const LINKS: &str = "/links";
/// A program of a user asks here to sign all of its browsers out.
pub const LOGOUT: &str = "/sign-out-all";

/// Bytes of a form.
const FORM_BYTES_MAX: usize = 64 << 10;
/// Time that a form may take, and silence in the middle of any request.
const FORM_TIME_MAX: Duration = Duration::from_secs(20);

/// What all connections share.
pub(crate) struct Gateway {
    pub(crate) client: Client,
    pub(crate) sign_ins: SignIns,
    /// The host in the address that it listens on.
    host: String,
    audience: Audience,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
struct BrowserPeer {
    proof: Proof,
    reached: SocketAddr,
}

impl BrowserPeer {
    /// The user that the kernel reports.
    fn uid(self) -> Option<u32> {
        match self.proof {
            Proof::User(uid) => Some(uid),
            Proof::Unproven => None,
        }
    }
}

impl ConnectionHandler for Gateway {
    const NAME: &'static str = "console";
    // A browser has up to six.
    const CONNECTIONS_MAX: usize = 256;

    fn serve(&self, accepted: AcceptedConnection) {
        if let Err(error) = self.converse(accepted) {
            tracing::debug!("a connection of a browser ended: {error}");
        }
    }
}

impl Gateway {
    pub(crate) fn new(client: Client, host: String, audience: Audience) -> Gateway {
        Gateway { client, sign_ins: SignIns::default(), host, audience }
    }

    fn converse(&self, accepted: AcceptedConnection) -> io::Result<()> {
        let AcceptedConnection { stream, local, guest, .. } = accepted;
        let peer =
            BrowserPeer { proof: guest.proof, reached: SocketAddr::new(local.ip().to_canonical(), local.port()) };
        let guest = RefCell::new(guest);
        let respond = |request, guard| self.respond(peer, guard, &guest, request);
        // The acceptor shuts the socket down when the console closes.
        let limits = ConnectionLimits { silence: FORM_TIME_MAX, ..ConnectionLimits::default() };
        frieze_httpd::serve(&stream, limits, None, respond)
    }

    async fn respond(
        &self,
        peer: BrowserPeer,
        guard: RequestGuard,
        guest: &RefCell<Guest>,
        request: Request<Incoming>,
    ) -> Response<HttpBody<BodyError>> {
        let (head, body) = request.into_parts();
        let wants_page = !origin::is_browser(&head.headers) || pages::is_page(head.uri.path());
        let reply = match self.answer(peer, guest, &head, body).await {
            Ok(reply) => reply,
            Err(refusal) => {
                tracing::debug!("a browser is refused {}: {}", head.uri.path(), refusal.words);
                match wants_page {
                    true => pages::refused(&refusal, None),
                    false => ConsoleReply::json(&json!({ "error": refusal.words, "remedy": refusal.remedy }))
                        .status(refusal.status),
                }
            }
        };
        reply.response(guard)
    }

    async fn answer(
        &self,
        peer: BrowserPeer,
        guest: &RefCell<Guest>,
        head: &Parts,
        body: Incoming,
    ) -> Result<ConsoleReply, PageRefusal> {
        let path = head.uri.path();
        if let Some(rest) = path.strip_prefix("/assets/") {
            // Public: they are the program.
            return crate::assets::asset(rest).ok_or_else(|| not_there(path));
        }
        if is_foreign_link(head) {
            // The browser withholds its cookie, as it should; from a page of ours it does not.
            return Ok(pages::sign_in::go_on(&head.uri));
        }
        let host = self.check_origin(peer, head)?;
        let query = Params::parse(head.uri.query().unwrap_or_default().as_bytes());
        match (&head.method, path) {
            (&Method::POST, LINKS) => return self.link(peer, head, &host),
            (&Method::POST, LOGOUT) => return self.sign_out_all(peer, head),
            (&Method::GET | &Method::HEAD, "/login") => return self.ask_to_sign_in(peer, &query),
            (&Method::POST, "/login") => return self.sign_in(peer, &host, &form(body).await?),
            _ => {}
        }
        let cookie = cookie_of(&head.headers, &cookie_name(&host));
        let signed_in = cookie.as_deref().and_then(|cookie| self.sign_ins.browser(cookie, peer.uid()));
        let Some(signed_in) = signed_in else { return Ok(pages::sign_in::page(&host, cookie.is_some())) };
        let belongs = guest.borrow_mut().belongs_to(signed_in.uid);
        belongs.map_err(|refused| {
            PageRefusal::new(StatusCode::SERVICE_UNAVAILABLE, refused.to_string(), "Close other tabs of the console.")
        })?;
        match head.method {
            Method::GET | Method::HEAD => {
                let visit = self.visit(signed_in, Params::default())?;
                let reply = pages::answer(&visit, path, &query);
                reply.or_else(|refusal| in_frame(&visit, path, refusal))
            }
            Method::POST => {
                let form = form(body).await?;
                check_form(head, &signed_in, &form)?;
                if path == "/sign-out" {
                    self.sign_ins.sign_out(&cookie.unwrap_or_default());
                    return Ok(ConsoleReply::see("/").cookie(&set_cookie(&host, "", 0)));
                }
                let visit = self.visit(signed_in, form)?;
                let reply = pages::change(&visit, path, &query);
                reply.or_else(|refusal| in_frame(&visit, path, refusal))
            }
            _ => Err(PageRefusal::new(
                StatusCode::METHOD_NOT_ALLOWED,
                format!("there is no {} of {path}", head.method),
                "Pages are read by GET, and changed by the forms on them.",
            )),
        }
    }

    /// Refuses pages of other origins, and names that another name server may have led here. A person may follow a link
    /// to the page that signs in from anywhere: it only asks.
    fn check_origin(&self, peer: BrowserPeer, head: &Parts) -> Result<Authority, PageRefusal> {
        let refused = |fault: origin::OriginFault| {
            PageRefusal::new(StatusCode::FORBIDDEN, fault.to_string(), "Open the console by its own address.")
        };
        let host = origin::host_of(&head.headers, peer.reached).map_err(|fault| PageRefusal::bad(fault.to_string()))?;
        let name = host.host().to_ascii_lowercase();
        let here = host_name().to_ascii_lowercase();
        let is_machine = name == here || name.strip_prefix(&here).is_some_and(|rest| rest.starts_with('.'));
        if !(self.audience == Audience::Public && is_machine && !here.is_empty()) {
            origin::check_host(&host, &self.host).map_err(refused)?;
        }
        if !(head.method == Method::GET && head.uri.path() == "/login") {
            origin::check_page(&head.headers, &host).map_err(refused)?;
        }
        Ok(host)
    }

    /// A link for the user whose program asks.
    fn link(&self, peer: BrowserPeer, head: &Parts, host: &Authority) -> Result<ConsoleReply, PageRefusal> {
        let uid = program_user(peer, head)?;
        let secret = self.sign_ins.new_link(uid).map_err(|error| {
            PageRefusal::new(StatusCode::SERVICE_UNAVAILABLE, format!("no random bytes: {error}"), "Try again.")
        })?;
        let url = format!("http://{host}/login?key={secret}");
        Ok(ConsoleReply::json(&json!({ "url": url, "user": user_name(uid), "uid": uid, "expires_s": LINK_S })))
    }

    fn sign_out_all(&self, peer: BrowserPeer, head: &Parts) -> Result<ConsoleReply, PageRefusal> {
        let uid = program_user(peer, head)?;
        let browsers = self.sign_ins.sign_out_all(uid);
        Ok(ConsoleReply::json(&json!({ "user": user_name(uid), "uid": uid, "signed_out": browsers })))
    }

    /// The page behind a link: a person confirms, so that a program that looks at links does not use it up.
    fn ask_to_sign_in(&self, peer: BrowserPeer, query: &Params) -> Result<ConsoleReply, PageRefusal> {
        let secret = query.text("key").unwrap_or_default();
        let found = self.sign_ins.link(secret, peer.uid());
        found.map(|uid| pages::sign_in::confirm(secret, uid)).map_err(pages::sign_in::refused)
    }

    fn sign_in(&self, peer: BrowserPeer, host: &Authority, form: &Params) -> Result<ConsoleReply, PageRefusal> {
        let secret = form.text("key").unwrap_or_default();
        let cookie = self.sign_ins.sign_in(secret, peer.uid()).map_err(pages::sign_in::refused)?;
        tracing::info!("a browser was signed in to the console");
        Ok(ConsoleReply::see("/").cookie(&set_cookie(host, &cookie, IDLE_S)))
    }

    fn visit(&self, signed_in: SignedIn, form: Params) -> Result<Visit<'_>, PageRefusal> {
        Visit::new(&self.client, &self.sign_ins, signed_in, form)
    }
}

/// A refusal with the navigation around it; scripts of pages get it as a value.
fn in_frame(visit: &Visit<'_>, path: &str, refusal: PageRefusal) -> Result<ConsoleReply, PageRefusal> {
    match pages::is_page(path) {
        true => Ok(pages::refused(&refusal, Some(visit))),
        false => Err(refusal),
    }
}

/// True if a person follows a link of another page to a page of this one: nothing is shown yet, and nothing is done.
fn is_foreign_link(head: &Parts) -> bool {
    let is = |name: &str, values: &[&str]| {
        head.headers.get(name).and_then(|value| value.to_str().ok()).is_some_and(|value| values.contains(&value))
    };
    head.method == Method::GET
        && head.uri.path() != "/login"
        && pages::is_page(head.uri.path())
        && is("sec-fetch-site", &["cross-site", "same-site"])
        && is("sec-fetch-mode", &["navigate"])
        && is("sec-fetch-dest", &["document"])
}

/// The user of a program that asks for itself: a proven one, and no browser, whatever page it shows.
fn program_user(peer: BrowserPeer, head: &Parts) -> Result<u32, PageRefusal> {
    if origin::is_browser(&head.headers) {
        let words = "links are given to the command `frieze console login`, not to browsers";
        return Err(PageRefusal::new(StatusCode::FORBIDDEN, words, "Run the command in a terminal on the server."));
    }
    peer.uid().ok_or_else(|| {
        PageRefusal::new(
            StatusCode::FORBIDDEN,
            "the kernel does not say whose connection this is, so it gets no link",
            "Run `frieze console login` on the machine of the server, such as by ssh.",
        )
    })
}

/// Refuses a change that no form of this browser asks for.
fn check_form(head: &Parts, signed_in: &SignedIn, form: &Params) -> Result<(), PageRefusal> {
    let is_own = form.text("token").is_some_and(|token| {
        // Their hashes are compared, so the time says nothing about the token.
        blake3::hash(token.as_bytes()) == blake3::hash(signed_in.form_token.as_bytes())
    });
    match is_own && origin::is_browser(&head.headers) {
        true => Ok(()),
        false => Err(PageRefusal::new(
            StatusCode::FORBIDDEN,
            "this form is not of a page that this browser got",
            "Load the page again, and send its form.",
        )),
    }
}

/// Reads a form.
async fn form(mut body: Incoming) -> Result<Params, PageRefusal> {
    let (mut bytes, began) = (Vec::new(), mono());
    while let Some(frame) = std::future::poll_fn(|context| std::pin::Pin::new(&mut body).poll_frame(context)).await {
        let frame = frame.map_err(|error| PageRefusal::bad(format!("the form ends in the middle: {error}")))?;
        if mono().since_ns(began) > FORM_TIME_MAX.as_nanos() as u64 {
            let words = "the form took too long to arrive";
            return Err(PageRefusal::new(StatusCode::REQUEST_TIMEOUT, words, "Send it again."));
        }
        let Ok(piece) = frame.into_data() else { continue };
        if bytes.len() + piece.len() > FORM_BYTES_MAX {
            let words = format!("the form is longer than {FORM_BYTES_MAX} bytes");
            return Err(PageRefusal::new(StatusCode::PAYLOAD_TOO_LARGE, words, "Send the form of a page."));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(Params::parse(&bytes))
}

/// Browsers send cookies to every port of a host: consoles of two servers have two names.
fn cookie_name(host: &Authority) -> String {
    format!("frieze-console-{}", host.port_u16().unwrap_or(80))
}

fn set_cookie(host: &Authority, value: &str, age_s: u64) -> String {
    format!("{}={value}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Strict", cookie_name(host))
}

fn cookie_of(headers: &HeaderMap, name: &str) -> Option<String> {
    let texts = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = texts.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(known, _)| *known == name).map(|(_, value)| value.to_owned())
}
