//! Capabilities: what a client shows with every read and write instead of asking for its rights again.
//!
//! Rights are checked once, at open. The answer is a short token, authenticated with a key that only this data
//! directory holds (keyed BLAKE3), so that checking it costs no look-up, survives a restart and cannot be made up
//! (design §12). It names its bearer: the session that opened a file as it is now, or the user that opened a state of
//! the past, for which no session has to be begun. Any other presenter is refused. It also names the user on whose
//! behalf a file of now was opened, so that writes are recorded as that user's.

use frieze_base::{Fault, InodeId, Reason, SessionId};
use frieze_hlc::Hlc;
use frieze_wire::message::View;

/// What the bearer may do, and what a data server needs to know of the file to do it without asking the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// Whose it is.
    pub bearer: Bearer,
    /// The file.
    pub inode: InodeId,
    /// Reading allowed.
    pub read: bool,
    /// Writing allowed.
    pub write: bool,
    /// The instants that reads see.
    pub view: View,
    /// On whose behalf a file of now was opened: what is written with it is that user's, whichever user began the
    /// session. `None` of an instant, to which nothing is written, and in what a server of before sealed.
    pub opener: Option<u32>,
}

/// The bearer of a capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bearer {
    /// The session that opened the file: of a file as it is now.
    Session(SessionId),
    /// The proven user of the connection over which the file was opened: of an instant of the past, which needs no
    /// session.
    User(u32),
}

/// The presenter of a capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Presenter {
    /// The session that the request names; 0 if it names none.
    session: SessionId,
    /// The proven user of the connection, where a state of the past may be shown.
    uid: Option<u32>,
}

impl Presenter {
    /// Of a request that is about files as they are now.
    pub fn of_now(session: SessionId) -> Presenter {
        Presenter { session, uid: None }
    }

    /// Of a request that may be about an instant of the past as well.
    pub fn of_any(session: SessionId, uid: u32) -> Presenter {
        Presenter { session, uid: Some(uid) }
    }

    fn is(self, bearer: Bearer) -> bool {
        match bearer {
            Bearer::Session(session) => session == self.session,
            Bearer::User(uid) => Some(uid) == self.uid,
        }
    }
}

/// True if a token claims an instant of the past. The claim is not verified here: opening the token verifies it.
pub fn claims_past(token: &[u8]) -> bool {
    token.len() == TOKEN_BYTES && token[FLAGS_AT] & AT != 0
}

/// Makes and checks capabilities.
#[derive(Clone)]
pub struct Mint {
    key: [u8; 32],
}

/// The token that a connection presented last, and its capability: presented again, as with each of many small writes,
/// it need not be verified again.
#[derive(Default)]
pub struct Shown(Option<([u8; TOKEN_BYTES], Capability)>);

const BODY_BYTES: usize = 35;
const MAC_BYTES: usize = 16;
const TOKEN_BYTES: usize = BODY_BYTES + MAC_BYTES;
const READ: u8 = 1;
const WRITE: u8 = 2;
const AT: u8 = 4;
const USER_AT: u8 = 8;
const OF_USER: u8 = 16;
const OPENER: u8 = 32;
/// Where the rights stand in a token.
const FLAGS_AT: usize = 2;

impl Mint {
    /// A mint with the secret key of the data directory.
    pub fn new(key: [u8; 32]) -> Mint {
        Mint { key }
    }

    /// The token for `capability`.
    pub fn seal(&self, capability: &Capability) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(TOKEN_BYTES);
        let view = capability.view;
        let flag = |on: bool, bit: u8| if on { bit } else { 0 };
        // A state of the past is written by no opener: one place is for either.
        let opener = capability.opener.filter(|_| view.at.is_none());
        // Format version 1, rights, then the two ids and the two times.
        bytes.extend_from_slice(&1u16.to_le_bytes());
        bytes.push(
            flag(capability.read, READ)
                | flag(capability.write, WRITE)
                | flag(view.at.is_some(), AT)
                | flag(view.user_at.is_some(), USER_AT)
                | flag(matches!(capability.bearer, Bearer::User(_)), OF_USER)
                | flag(opener.is_some(), OPENER),
        );
        let bearer = match capability.bearer {
            Bearer::Session(session) => session.0,
            Bearer::User(uid) => uid.into(),
        };
        bytes.extend_from_slice(&bearer.to_le_bytes());
        bytes.extend_from_slice(&capability.inode.0.to_le_bytes());
        bytes.extend_from_slice(&view.at.or(opener.map(u64::from)).unwrap_or(0).to_le_bytes());
        bytes.extend_from_slice(&view.user_at.unwrap_or(0).to_le_bytes());
        let mac = self.mac(&bytes);
        bytes.extend_from_slice(&mac);
        bytes
    }

    /// The capability sealed in `token`.
    ///
    /// # Errors
    /// `StaleHandle` if the token was not made by this data directory or is shown by another session or user: open the
    /// file again.
    pub fn open(&self, token: &[u8], by: Presenter) -> Result<Capability, Fault> {
        let refused =
            |why: &str| Fault::new(Reason::StaleHandle, format!("the capability is {why}: open the file again"));
        if token.len() != TOKEN_BYTES {
            return Err(refused("malformed"));
        }
        let (body, mac) = token.split_at(BODY_BYTES);
        let mut given = [0u8; MAC_BYTES];
        given.copy_from_slice(mac);
        // blake3::Hash compares in constant time; widen both sides to use it.
        let widen = |half: [u8; MAC_BYTES]| {
            let mut whole = [0u8; 32];
            whole[..MAC_BYTES].copy_from_slice(&half);
            blake3::Hash::from_bytes(whole)
        };
        if widen(self.mac(body)) != widen(given) {
            return Err(refused("not of this server"));
        }
        let long = |at: usize| {
            let mut word = [0u8; 8];
            word.copy_from_slice(&body[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let flags = body[FLAGS_AT];
        let bearer = match flags & OF_USER != 0 {
            // Written from 32 bits.
            true => Bearer::User(long(3) as u32),
            false => Bearer::Session(SessionId(long(3))),
        };
        let capability = Capability {
            bearer,
            inode: InodeId(long(11)),
            read: flags & READ != 0,
            write: flags & WRITE != 0,
            view: View {
                at: (flags & AT != 0).then(|| long(19)),
                user_at: (flags & USER_AT != 0).then(|| long(27) as i64),
            },
            // Written from 32 bits.
            opener: (flags & OPENER != 0).then(|| long(19) as u32),
        };
        if !by.is(capability.bearer) {
            let whose = match capability.bearer {
                Bearer::Session(_) => "another session's",
                Bearer::User(_) => "another user's",
            };
            return Err(refused(whose));
        }
        Ok(capability)
    }

    /// The same, for a connection that may present one token many times: `shown` belongs to that connection. The
    /// comparison takes longer the more leading bytes are equal, which reveals to the client only a token that it has
    /// presented itself.
    ///
    /// # Errors
    /// As [`Mint::open`].
    pub fn open_shown(&self, token: &[u8], by: Presenter, shown: &mut Shown) -> Result<Capability, Fault> {
        if let Some((before, capability)) = &shown.0
            && before == token
            && by.is(capability.bearer)
        {
            return Ok(*capability);
        }
        let capability = self.open(token, by)?;
        shown.0 = token.try_into().ok().map(|token| (token, capability));
        Ok(capability)
    }

    fn mac(&self, body: &[u8]) -> [u8; MAC_BYTES] {
        let hash = blake3::keyed_hash(&self.key, body);
        let mut mac = [0u8; MAC_BYTES];
        mac.copy_from_slice(&hash.as_bytes()[..MAC_BYTES]);
        mac
    }
}

impl Capability {
    /// The instant of system time reads see, if not now.
    pub fn at(&self) -> Option<Hlc> {
        self.view.instant()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capability() -> Capability {
        Capability {
            bearer: Bearer::Session(SessionId(7)),
            inode: InodeId(9),
            read: true,
            write: false,
            view: View { at: Some(11), user_at: Some(-3) },
            opener: None,
        }
    }

    fn by(session: u64) -> Presenter {
        Presenter { session: SessionId(session), uid: Some(5) }
    }

    #[test]
    fn what_was_opened_of_the_past_is_the_users_and_needs_no_session() {
        let mint = Mint::new([1; 32]);
        let past = Capability { bearer: Bearer::User(5), ..capability() };
        let token = mint.seal(&past);
        assert!(claims_past(&token) && !claims_past(&token[1..]));
        for session in [0, 7, 8] {
            assert_eq!(mint.open(&token, by(session)), Ok(past));
        }
        let other = Presenter { uid: Some(6), ..by(0) };
        assert_eq!(mint.open(&token, other).unwrap_err().reason, Reason::StaleHandle);
        let mut shown = Shown::default();
        assert_eq!(mint.open_shown(&token, by(0), &mut shown), Ok(past));
        assert!(mint.open_shown(&token, other, &mut shown).is_err(), "what another user showed before");
        assert!(mint.open(&token, Presenter::of_now(SessionId(5))).is_err(), "where only what is now may be shown");
        // The number of a session is no user's.
        let present = mint.seal(&Capability { bearer: Bearer::Session(SessionId(5)), ..capability() });
        assert!(mint.open(&present, by(0)).is_err());
        let now = Capability { view: View::NOW, opener: Some(1000), ..capability() };
        let token = mint.seal(&now);
        assert!(!claims_past(&token));
        assert_eq!(mint.open(&token, by(7)), Ok(now), "the view's instant and the opener are not taken for each other");
    }

    #[test]
    fn a_token_opens_to_what_was_sealed() {
        let mint = Mint::new([1; 32]);
        assert_eq!(mint.open(&mint.seal(&capability()), by(7)), Ok(capability()));
    }

    #[test]
    fn every_changed_bit_is_noticed() {
        let mint = Mint::new([1; 32]);
        let token = mint.seal(&capability());
        for bit in 0..token.len() * 8 {
            let mut forged = token.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            assert!(mint.open(&forged, by(7)).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn what_was_shown_before_proves_no_other_token_and_no_other_session() {
        let mint = Mint::new([1; 32]);
        let (token, mut shown) = (mint.seal(&capability()), Shown::default());
        for _ in 0..2 {
            assert_eq!(mint.open_shown(&token, by(7), &mut shown), Ok(capability()));
            assert!(mint.open_shown(&token, by(8), &mut shown).is_err());
            for bit in 0..token.len() * 8 {
                let mut forged = token.clone();
                forged[bit / 8] ^= 1 << (bit % 8);
                assert!(mint.open_shown(&forged, by(7), &mut shown).is_err(), "bit {bit}");
            }
        }
        let other = Capability { write: true, ..capability() };
        assert_eq!(mint.open_shown(&mint.seal(&other), by(7), &mut shown), Ok(other));
        assert_eq!(mint.open_shown(&token, by(7), &mut shown), Ok(capability()));
    }

    #[test]
    fn another_session_and_another_key_are_refused() {
        let mint = Mint::new([1; 32]);
        let token = mint.seal(&capability());
        assert_eq!(mint.open(&token, by(8)).unwrap_err().reason, Reason::StaleHandle);
        assert!(Mint::new([2; 32]).open(&token, by(7)).is_err());
        assert!(mint.open(&token[1..], by(7)).is_err());
    }

    #[test]
    fn any_bytes_are_a_token_of_this_mint_or_refused() {
        let mint = Mint::new([1; 32]);
        let now = Capability { view: View::NOW, opener: Some(1000), ..capability() };
        let tokens = [mint.seal(&capability()), mint.seal(&now)];
        frieze_harness::fuzz!(tokens.clone(), |bytes: &[u8]| {
            claims_past(bytes);
            let mut shown = Shown::default();
            for _ in 0..2 {
                let opened = mint.open_shown(bytes, by(7), &mut shown);
                assert_eq!(opened.is_ok(), tokens.iter().any(|token| token == bytes), "{opened:?}");
            }
        });
    }

    /// What a holder of the key could write.
    #[test]
    fn any_bytes_under_the_key_are_a_capability_or_refused() {
        fn seal(bytes: &mut Vec<u8>) {
            bytes.resize(TOKEN_BYTES, 0);
            let mac = Mint::new([1; 32]).mac(&bytes[..BODY_BYTES]);
            bytes[BODY_BYTES..].copy_from_slice(&mac);
        }
        let mint = Mint::new([1; 32]);
        frieze_harness::fuzz!(
            frieze_harness::Inputs::from([mint.seal(&capability())]).resealed(seal),
            |bytes: &[u8]| {
                let opened = |bytes: &[u8]| mint.open(bytes, by(7)).ok();
                if let Some(capability) = opened(bytes) {
                    assert!(matches!(capability.bearer, Bearer::Session(SessionId(7)) | Bearer::User(5)));
                    if capability.view.at.is_none() || capability.opener.is_none() {
                        assert_eq!(opened(&mint.seal(&capability)), Some(capability));
                    }
                }
            }
        );
    }
}
