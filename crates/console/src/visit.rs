//! A request of a signed-in user: the file system with the rights of that user, and the instant that is shown.

use frieze_client::{Caller, Client, Fs, Hlc, NowReply, Target, ZonePolicy, user_of};
use hyper::StatusCode;

use crate::error::{PageRefusal, about};
use crate::paths::PagePath;
use crate::query::Params;
use crate::sign_in::{DoneEdit, SignIns, SignedIn};
use crate::words::user_name;

/// A request of a signed-in user.
pub(crate) struct Visit<'g> {
    client: &'g Client,
    sign_ins: &'g SignIns,
    pub(crate) signed_in: SignedIn,
    pub(crate) caller: Caller,
    /// The form that was sent, if it is one.
    pub(crate) form: Params,
    /// The present: no page shows a later instant.
    pub(crate) clock: NowReply,
}

impl<'g> Visit<'g> {
    pub(crate) fn new(
        client: &'g Client,
        sign_ins: &'g SignIns,
        signed_in: SignedIn,
        form: Params,
    ) -> Result<Visit<'g>, PageRefusal> {
        let unknown = |error: frieze_client::Error| {
            PageRefusal::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string(), "Load the page again in a moment.")
        };
        // At each request: rights that were taken from a user are gone at once.
        let caller = user_of(signed_in.uid).map_err(|error| unknown(error.into()))?;
        let clock = client.clock().map_err(about("the present instant"))?;
        Ok(Visit { client, sign_ins, signed_in, caller, form, clock })
    }

    pub(crate) fn client(&self) -> &Client {
        self.client
    }

    /// The file system, now.
    pub(crate) fn fs(&self) -> Fs {
        self.client().fs().as_caller(self.caller.clone())
    }

    pub(crate) fn user(&self) -> String {
        user_name(self.signed_in.uid)
    }

    /// The newest instant that can be read.
    pub(crate) fn now(&self) -> Hlc {
        // Without a leader the present is not readable; what is stable is.
        Hlc(if self.clock.without_lease { self.clock.stable } else { self.clock.at })
    }

    pub(crate) fn earliest(&self) -> Hlc {
        Hlc(self.clock.earliest)
    }

    /// The exact instant that a text means.
    ///
    /// # Errors
    /// 400 for a text that names none, and for one that is yet to come.
    pub(crate) fn instant(&self, text: &str) -> Result<Hlc, PageRefusal> {
        let resolve = |text: &str| self.client().resolve(text, ZonePolicy::Refuse);
        let at = resolve(text).or_else(|error| resolve(&in_utc(text)).map_err(|_| error)).map_err(|error| {
            let words = format!("{text:?} names no instant: {error}");
            let remedy = "Write 10m-ago, yesterday, 2026-11-30T10:00:00Z, the name of a snapshot, or an hlc- stamp.";
            PageRefusal::new(StatusCode::BAD_REQUEST, words, remedy)
        })?;
        // The end of the present microsecond, as a time of day names it, is not far away.
        if at.micros() <= self.now().micros() {
            return Ok(at.min(self.now()));
        }
        // `1us-ago` counts from a present that is later than that of the page.
        let clock = self.client().clock().map_err(about("the present instant"))?;
        let now = Hlc(if clock.without_lease { clock.stable } else { clock.at });
        if at.micros() > now.micros() {
            let words = format!("{text:?} is yet to come: it is {}", crate::words::exact_time(now));
            return Err(PageRefusal::new(StatusCode::BAD_REQUEST, words, "Choose an instant that has passed."));
        }
        Ok(self.now())
    }

    /// The instant that a parameter names; `None`: now.
    pub(crate) fn instant_of(&self, query: &Params, name: &str) -> Result<Option<Hlc>, PageRefusal> {
        query.text(name).filter(|text| !text.eq_ignore_ascii_case("now")).map(|text| self.instant(text)).transpose()
    }

    /// The view of an instant, or of now.
    pub(crate) fn view(&self, at: Option<Hlc>) -> Fs {
        let fs = self.fs();
        at.map_or_else(|| fs.clone(), |at| fs.at(at))
    }

    /// True if the user may write to a file or directory of now.
    pub(crate) fn may_write(&self, path: &PagePath) -> bool {
        self.fs().access(&target(path), WRITE).is_ok()
    }

    /// Keeps that a page has changed something.
    pub(crate) fn note_done(&self, words: String, at: Hlc) {
        self.sign_ins.note_done(self.signed_in.uid, DoneEdit { words, at });
    }

    /// The changes that this user made by pages.
    pub(crate) fn done(&self) -> Vec<DoneEdit> {
        self.sign_ins.done(self.signed_in.uid)
    }
}

/// A time as pages show it, in UTC, as programs write it: `2026-11-30 10:00:00.123 UTC`, `2026-11-30 10:00`,
/// `2026-11-30`.
fn in_utc(text: &str) -> String {
    let text = text.trim_end_matches("UTC").trim_end();
    match text.split_once([' ', 'T']) {
        None => format!("{text}T00:00:00Z"),
        Some((date, time)) if time.len() == 5 => format!("{date}T{time}:00Z"),
        Some((date, time)) => format!("{date}T{time}Z"),
    }
}

/// The object of a path; a symbolic link itself.
pub(crate) fn target(path: &PagePath) -> Target {
    Target { follow: false, ..Target::path(path.as_bytes().to_vec()) }
}

const WRITE: u32 = 2;
