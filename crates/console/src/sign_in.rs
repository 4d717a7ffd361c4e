//! Links that sign a browser in, and the browsers that are signed in.
//!
//! A link is made for the user that the kernel reports of a connection, works once and for five minutes. What it gives
//! is a cookie. Only hashes of both are kept, in memory: a restart signs everybody out.
//!
//! Guarantees: both are bounded for each user and for all; a used, old or invented link says what it is.
//! Leaves to others: which connection asks (`gateway`).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use data_encoding::BASE64URL_NOPAD;
use frieze_base::MonoTime;
use frieze_client::{Hlc, mono};

/// How long a link works.
pub(crate) const LINK_S: u64 = 300;
/// How long a browser stays signed in without a request.
pub(crate) const IDLE_S: u64 = 12 * 3600;
/// How long it stays signed in at most.
const SIGNED_IN_S: u64 = 7 * 24 * 3600;
/// Links of one user; one more replaces the oldest.
const USER_LINKS_MAX: usize = 8;
/// Signed-in browsers of one user; one more signs the oldest out.
const USER_SESSIONS_MAX: usize = 32;
/// Links, and browsers, of all users.
const ALL_MAX: usize = 4096;
/// Changes that a user sees as made here.
const DONE_MAX: usize = 16;

/// A secret of a link or a cookie, as its hash.
type SecretHash = [u8; 32];

/// A change that was made by a page.
#[derive(Clone, Debug)]
pub(crate) struct DoneEdit {
    /// What it was, on which path.
    pub(crate) words: String,
    /// Its stamp.
    pub(crate) at: Hlc,
}

/// A signed-in browser.
#[derive(Clone, Debug)]
pub(crate) struct SignedIn {
    /// The user.
    pub(crate) uid: u32,
    /// Forms of this browser carry it: a page of another origin cannot know it.
    pub(crate) form_token: String,
}

/// Why a link does not sign in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkFault {
    /// It signed a browser in, so many seconds ago.
    Used { ago_s: u64 },
    /// It was made too long ago.
    Old,
    /// No such link was made, or the server was started again since.
    Unknown,
    /// It is the link of another user than the one whose browser asks.
    Foreign { uid: u32 },
}

/// All links and browsers.
#[derive(Debug, Default)]
pub(crate) struct SignIns {
    tables: Mutex<SignInTables>,
}

#[derive(Debug, Default)]
struct SignInTables {
    links: BTreeMap<SecretHash, LoginLink>,
    browsers: BTreeMap<SecretHash, Browser>,
    done: BTreeMap<u32, Vec<DoneEdit>>,
}

#[derive(Debug)]
struct LoginLink {
    uid: u32,
    made: MonoTime,
    used: Option<MonoTime>,
}

#[derive(Debug)]
struct Browser {
    signed_in: SignedIn,
    since: MonoTime,
    last: MonoTime,
}

impl SignIns {
    /// A new link for a user: its secret.
    ///
    /// # Errors
    /// The system's, if it has no random bytes.
    pub(crate) fn new_link(&self, uid: u32) -> std::io::Result<String> {
        let (secret, hash) = new_secret()?;
        let mut tables = self.lock();
        let now = mono();
        tables.links.retain(|_, link| seconds(link.made, now) < 2 * LINK_S);
        bound(&mut tables.links, USER_LINKS_MAX, |link| (link.uid == uid, link.made));
        tables.links.insert(hash, LoginLink { uid, made: now, used: None });
        Ok(secret)
    }

    /// The user of a link that still works for a browser that the kernel reports as `proven`'s; root's may use any.
    ///
    /// # Errors
    /// Why it does not work.
    pub(crate) fn link(&self, secret: &str, proven: Option<u32>) -> Result<u32, LinkFault> {
        let tables = self.lock();
        let link = tables.links.get(&hash_of(secret)).ok_or(LinkFault::Unknown)?;
        link.check(proven, mono()).map(|()| link.uid)
    }

    /// Signs a browser in by a link: the secret of its cookie.
    ///
    /// # Errors
    /// Why it does not work.
    pub(crate) fn sign_in(&self, secret: &str, proven: Option<u32>) -> Result<String, LinkFault> {
        let (Ok((cookie, cookie_hash)), Ok((form_token, _))) = (new_secret(), new_secret()) else {
            return Err(LinkFault::Unknown);
        };
        let mut tables = self.lock();
        let now = mono();
        let link = tables.links.get_mut(&hash_of(secret)).ok_or(LinkFault::Unknown)?;
        link.check(proven, now)?;
        link.used = Some(now);
        let uid = link.uid;
        tables.browsers.retain(|_, browser| browser.is_valid(now));
        bound(&mut tables.browsers, USER_SESSIONS_MAX, |browser| (browser.signed_in.uid == uid, browser.last));
        let signed_in = SignedIn { uid, form_token };
        tables.browsers.insert(cookie_hash, Browser { signed_in, since: now, last: now });
        Ok(cookie)
    }

    /// The browser that a cookie belongs to, if the kernel does not report it as another user's.
    pub(crate) fn browser(&self, cookie: &str, proven: Option<u32>) -> Option<SignedIn> {
        let mut tables = self.lock();
        let now = mono();
        let browser = tables.browsers.get_mut(&hash_of(cookie)).filter(|browser| browser.is_valid(now))?;
        if !may_be(proven, browser.signed_in.uid) {
            return None;
        }
        browser.last = now;
        Some(browser.signed_in.clone())
    }

    /// Signs one browser out.
    pub(crate) fn sign_out(&self, cookie: &str) {
        self.lock().browsers.remove(&hash_of(cookie));
    }

    /// Signs every browser of a user out and voids its links; how many browsers there were.
    pub(crate) fn sign_out_all(&self, uid: u32) -> usize {
        let mut tables = self.lock();
        tables.links.retain(|_, link| link.uid != uid);
        let before = tables.browsers.len();
        tables.browsers.retain(|_, browser| browser.signed_in.uid != uid);
        before - tables.browsers.len()
    }

    /// Keeps a change that a user made by a page.
    pub(crate) fn note_done(&self, uid: u32, edit: DoneEdit) {
        let mut tables = self.lock();
        if tables.done.len() >= ALL_MAX && !tables.done.contains_key(&uid) {
            tables.done.pop_first();
        }
        let done = tables.done.entry(uid).or_default();
        done.insert(0, edit);
        done.truncate(DONE_MAX);
    }

    /// The changes that a user made by pages, newest first.
    pub(crate) fn done(&self, uid: u32) -> Vec<DoneEdit> {
        self.lock().done.get(&uid).cloned().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, SignInTables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LoginLink {
    fn check(&self, proven: Option<u32>, now: MonoTime) -> Result<(), LinkFault> {
        match self.used {
            Some(used) => Err(LinkFault::Used { ago_s: seconds(used, now) }),
            None if seconds(self.made, now) >= LINK_S => Err(LinkFault::Old),
            None if !may_be(proven, self.uid) => Err(LinkFault::Foreign { uid: self.uid }),
            None => Ok(()),
        }
    }
}

impl Browser {
    fn is_valid(&self, now: MonoTime) -> bool {
        seconds(self.last, now) < IDLE_S && seconds(self.since, now) < SIGNED_IN_S
    }
}

/// True if a connection that the kernel reports as `proven`'s may be of a browser of `uid`. Nothing is reported of a
/// connection from another machine.
fn may_be(proven: Option<u32>, uid: u32) -> bool {
    proven.is_none_or(|proven| proven == uid || proven == 0)
}

/// Removes the oldest entries of a user, and of all, until one more fits.
fn bound<V>(table: &mut BTreeMap<SecretHash, V>, user_max: usize, key: impl Fn(&V) -> (bool, MonoTime)) {
    loop {
        let of_user = table.values().filter(|value| key(value).0).count();
        if of_user < user_max && table.len() < ALL_MAX {
            return;
        }
        let only_own = of_user >= user_max;
        let oldest = table.iter().filter(|(_, value)| !only_own || key(value).0).min_by_key(|(_, value)| key(value).1);
        let Some(hash) = oldest.map(|(hash, _)| *hash) else { return };
        table.remove(&hash);
    }
}

fn new_secret() -> std::io::Result<(String, SecretHash)> {
    let mut bytes = [0; 32];
    // Up to 256 bytes are never cut short (getrandom(2)).
    rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())?;
    let secret = BASE64URL_NOPAD.encode(&bytes);
    let hash = hash_of(&secret);
    Ok((secret, hash))
}

fn hash_of(secret: &str) -> SecretHash {
    blake3::hash(secret.as_bytes()).into()
}

fn seconds(from: MonoTime, to: MonoTime) -> u64 {
    to.0.saturating_sub(from.0) / 1_000_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_signs_in_once() {
        let sign_ins = SignIns::default();
        let link = sign_ins.new_link(7).expect("there are random bytes");
        assert_eq!(sign_ins.link(&link, Some(7)), Ok(7));
        let cookie = sign_ins.sign_in(&link, Some(7)).expect("it is new");
        assert!(matches!(sign_ins.sign_in(&link, Some(7)), Err(LinkFault::Used { .. })));
        assert_eq!(sign_ins.sign_in("invented", None), Err(LinkFault::Unknown));
        let browser = sign_ins.browser(&cookie, Some(7)).expect("it is signed in");
        assert_eq!(browser.uid, 7);
        sign_ins.sign_out(&cookie);
        assert!(sign_ins.browser(&cookie, Some(7)).is_none());
    }

    #[test]
    fn a_stolen_link_or_cookie_is_of_no_use_to_another_user_of_the_machine() {
        let sign_ins = SignIns::default();
        let link = sign_ins.new_link(7).expect("there are random bytes");
        assert_eq!(sign_ins.sign_in(&link, Some(8)), Err(LinkFault::Foreign { uid: 7 }));
        let cookie = sign_ins.sign_in(&link, None).expect("a connection by ssh from another machine");
        assert!(sign_ins.browser(&cookie, Some(8)).is_none());
        assert!(sign_ins.browser(&cookie, Some(7)).is_some(), "the theft signs nobody out");
    }

    #[test]
    fn links_and_browsers_are_bounded_and_signed_out_together() {
        let sign_ins = SignIns::default();
        let first = sign_ins.new_link(7).expect("there are random bytes");
        let links: Vec<String> = (0..USER_LINKS_MAX).map(|_| sign_ins.new_link(7).expect("random bytes")).collect();
        assert_eq!(sign_ins.link(&first, None), Err(LinkFault::Unknown), "the oldest went");
        let mut cookies = Vec::new();
        for _ in 0..=USER_SESSIONS_MAX {
            let link = sign_ins.new_link(7).expect("random bytes");
            cookies.push(sign_ins.sign_in(&link, None).expect("it is new"));
        }
        assert!(sign_ins.browser(&cookies[0], None).is_none(), "the oldest was signed out");
        assert_eq!(sign_ins.sign_out_all(7), USER_SESSIONS_MAX);
        assert!(sign_ins.browser(&cookies[1], None).is_none());
        assert_eq!(sign_ins.link(&links[7], None), Err(LinkFault::Unknown));
    }
}
