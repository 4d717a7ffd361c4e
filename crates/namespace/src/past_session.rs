//! Sessions as history knows them.

use frieze_base::{Fault, SessionId};
use frieze_hlc::Hlc;

use crate::error::Error;
use crate::history::VersionHistory;
use crate::key::VersionKey;
use crate::stored::{StoredSession, decode};

/// A session as history knows it, whether or not it is still open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastSession {
    /// Its number, which is the stamp at which it was opened.
    pub id: SessionId,
    /// The user proven by the server.
    pub uid: u32,
    /// Program, as the client told it.
    pub command: String,
    /// Host, as the client told it.
    pub host: String,
    /// When it ended; `None` while it is open.
    pub ended: Option<Hlc>,
}

impl PastSession {
    /// A session by its number; `None` if there never was one.
    ///
    /// # Errors
    /// `Corrupt`; those of the store.
    pub fn find(history: &dyn VersionHistory, id: SessionId) -> Result<Option<PastSession>, Fault> {
        let key = VersionKey::Session(id).encode();
        let mut ended = None;
        let mut found = history.newest(&key, Hlc::MAX)?;
        if let Some((stamp, None)) = found {
            ended = Some(stamp);
            found = history.newest(&key, stamp.previous())?;
        }
        let Some((_, Some(value))) = found else { return Ok(None) };
        Ok(Some(PastSession::read(id, &value, ended)?))
    }

    /// The sessions numbered above `after` that were open after `since`, oldest first, at most `max`.
    ///
    /// # Errors
    /// `Corrupt`; those of the store.
    ///
    /// # Cost
    /// All sessions above `after`: about 60 bytes each.
    pub fn list(
        history: &dyn VersionHistory,
        after: SessionId,
        since: Hlc,
        max: usize,
    ) -> Result<Vec<PastSession>, Fault> {
        let above = if after.0 == 0 { Vec::new() } else { VersionKey::Session(after).encode() };
        let mut found: Vec<PastSession> = Vec::new();
        let mut broken = Ok(());
        history.versions(b"S", &above, Hlc::ZERO, Hlc::MAX, &mut |key, stamp, value| {
            let Some(VersionKey::Session(id)) = VersionKey::decode(key) else {
                broken = Err(Error::Corrupt { what: "key of a session" });
                return false;
            };
            match value {
                None => {
                    if let Some(last) = found.last_mut().filter(|last| last.id == id) {
                        last.ended = Some(stamp);
                    }
                }
                Some(value) => {
                    // Whether the one before counts is known now.
                    if found.last().is_some_and(|last| last.ended.is_some_and(|ended| ended <= since)) {
                        found.pop();
                    }
                    if found.len() > max {
                        return false;
                    }
                    match PastSession::read(id, value, None) {
                        Ok(session) => found.push(session),
                        Err(error) => broken = Err(error),
                    }
                }
            }
            broken.is_ok()
        })?;
        broken?;
        if found.last().is_some_and(|last| last.ended.is_some_and(|ended| ended <= since)) {
            found.pop();
        }
        found.truncate(max);
        Ok(found)
    }

    fn read(id: SessionId, value: &[u8], ended: Option<Hlc>) -> Result<PastSession, Error> {
        let StoredSession { uid, command, host, ended: within, .. } = decode(value, "session")?;
        let ended = ended.or((within != 0).then_some(Hlc(within)));
        Ok(PastSession { id, uid, command, host, ended })
    }
}
