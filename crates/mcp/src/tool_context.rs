//! What all tools share: the connection, made when first needed, the tree, instants and sessions by their texts.

use std::sync::{Mutex, PoisonError};

use frieze_base::Reason;
use frieze_client::{Client, Fs, HistoryInterval, Hlc, Options, SessionInfo, SessionName, Target, ZonePolicy};

use crate::error::ToolError;
use crate::page_cursor::PageCursor;
use crate::scoped_path::{ScopedPath, ToolScope};
use crate::words::time_of;

/// Whether tools may change the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToolAccess {
    ReadOnly,
    ReadWrite,
}

/// The way of all tools to the file system.
#[derive(Debug)]
pub(crate) struct ToolContext {
    options: Options,
    client: Mutex<Option<Client>>,
    pub(crate) scope: ToolScope,
    access: ToolAccess,
}

impl ToolContext {
    /// A context that has not connected yet.
    pub(crate) fn new(options: Options, scope: ToolScope, access: ToolAccess) -> ToolContext {
        ToolContext { options, client: Mutex::new(None), scope, access }
    }

    /// The connection. A server that is down when the program starts may be there later.
    ///
    /// # Errors
    /// `Client` if no server answers.
    pub(crate) fn client(&self) -> Result<Client, ToolError> {
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = &*client {
            return Ok(client.clone());
        }
        let subject = format!("frieze server {}", self.options.server);
        let connected = Client::connect(self.options.clone()).map_err(ToolError::about(subject))?;
        Ok(client.insert(connected).clone())
    }

    /// Ends the session.
    pub(crate) fn close(&self) {
        if let Some(client) = self.client.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // A server that is away ends the session itself.
            let _ = client.close();
        }
    }

    /// Refuses a change where this server only looks.
    ///
    /// # Errors
    /// `ReadOnly`.
    pub(crate) fn check_may_change(&self, what: &'static str) -> Result<(), ToolError> {
        if self.access == ToolAccess::ReadOnly { Err(ToolError::ReadOnly(what)) } else { Ok(()) }
    }

    /// The path of an argument: the text, or bytes in hexadecimal; the root of the tree if there is neither.
    ///
    /// # Errors
    /// `Path`, `Outside`; `Arguments` if both are given, or the digits are wrong.
    pub(crate) fn path(&self, text: Option<&str>, hex: Option<&str>) -> Result<ScopedPath, ToolError> {
        match (text, hex) {
            (None, None) => Ok(self.scope.root().clone()),
            (Some(text), None) => self.scope.path(text.as_bytes()),
            (None, Some(hex)) => match data_encoding::HEXLOWER_PERMISSIVE.decode(hex.as_bytes()) {
                Ok(bytes) => self.scope.path(&bytes),
                Err(_) => Err(ToolError::Arguments(format!("path_hex {hex:?} is not hexadecimal: two digits a byte"))),
            },
            (Some(_), Some(_)) => Err(ToolError::Arguments("give path or path_hex, not both".to_owned())),
        }
    }

    /// The newest instant that can be read.
    ///
    /// # Errors
    /// `Client` as any call.
    pub(crate) fn now(&self) -> Result<Hlc, ToolError> {
        let clock = self.client()?.clock().map_err(ToolError::about("the present instant"))?;
        // Without a leader the present is not readable; what is stable is.
        Ok(Hlc(if clock.without_lease { clock.stable } else { clock.at }))
    }

    /// The exact instant that a text means.
    ///
    /// # Errors
    /// `FutureInstant`; `Client` for a text that names none, and for a snapshot that does not exist.
    pub(crate) fn instant(&self, text: &str) -> Result<Hlc, ToolError> {
        let at =
            self.client()?.resolve(text, ZonePolicy::Refuse).map_err(ToolError::about(format!("instant {text:?}")))?;
        let now = self.now()?;
        // The end of the present microsecond, as a time of day names it, is not far away.
        if at.micros() > now.micros() {
            Err(ToolError::FutureInstant { text: text.to_owned(), now })
        } else {
            Ok(at.min(now))
        }
    }

    /// An exact interval: from an instant to another one, or to now.
    ///
    /// # Errors
    /// As [`ToolContext::instant`]; `Backward`.
    pub(crate) fn interval(&self, from: &str, to: Option<&str>) -> Result<HistoryInterval, ToolError> {
        let after = self.instant(from)?;
        let upto = to.map_or_else(|| self.now(), |to| self.instant(to))?;
        if after > upto {
            Err(ToolError::Backward { from: after, to: upto })
        } else {
            Ok(HistoryInterval { after, upto })
        }
    }

    /// Where to begin: behind an earlier answer, or at the start of the interval that the arguments name.
    ///
    /// # Errors
    /// As [`ToolContext::interval`]; `Arguments` if `next` is none, or there is no start.
    pub(crate) fn position(
        &self,
        next: Option<&str>,
        from: Option<&str>,
        to: Option<&str>,
        page: u32,
    ) -> Result<PageCursor, ToolError> {
        if let Some(next) = next {
            return next.parse();
        }
        let from =
            from.ok_or_else(|| ToolError::Arguments("from is missing: an instant, such as a checkpoint".to_owned()))?;
        let HistoryInterval { after, upto } = self.interval(from, to)?;
        Ok(PageCursor { after, upto, page, skip: 0 })
    }

    /// The numbers of sessions given by number or name.
    ///
    /// # Errors
    /// `NoSession`; `SeveralSessions` if a name is not unique.
    pub(crate) fn sessions(&self, given: &[String]) -> Result<Vec<u64>, ToolError> {
        given.iter().map(|text| self.session(text)).collect()
    }

    fn session(&self, text: &str) -> Result<u64, ToolError> {
        let (client, subject) = (self.client()?, format!("session {text:?}"));
        if let Ok(id) = text.parse::<u64>() {
            let found = client.session_info(id).map_err(ToolError::about(subject))?;
            return found.map(|info| info.id).ok_or_else(|| ToolError::NoSession(text.to_owned()));
        }
        let name: SessionName = text.parse().map_err(|error| ToolError::Arguments(format!("{error}")))?;
        let found = client.sessions_named(&name, Hlc::ZERO).map_err(ToolError::about(subject))?;
        match &found[..] {
            [] => Err(ToolError::NoSession(text.to_owned())),
            [only] => Ok(only.id),
            several => {
                let newest = several.iter().rev().take(LISTED_MAX);
                let list: Vec<String> = newest.map(described).collect();
                Err(ToolError::SeveralSessions { name: text.to_owned(), count: several.len(), list: list.join(", ") })
            }
        }
    }

    /// The object of a path for requests that read an interval: as named at its end, else at its start.
    ///
    /// # Errors
    /// As [`ToolScope::target`].
    pub(crate) fn target_in(&self, path: &ScopedPath, interval: HistoryInterval) -> Result<(Fs, Target), ToolError> {
        let fs = self.client()?.fs();
        let views = [fs.at(interval.upto), fs.at(interval.after)];
        let mut missing = None;
        for view in views {
            let target = match self.scope.target(std::slice::from_ref(&view), path) {
                Err(error) if error.is(Reason::NotFound) => Err(error),
                Err(error) => return Err(error),
                Ok(target) => view.stat(&target).map(|_| target).map_err(ToolError::about(path.to_string())),
            };
            match target {
                Ok(target) => return Ok((view, target)),
                Err(error) => missing = missing.or(Some(error)),
            }
        }
        Err(missing.expect("two views were tried"))
    }
}

fn described(info: &SessionInfo) -> String {
    let opened = time_of(Hlc(info.id));
    match info.ended {
        0 => format!("{} (open since {opened})", info.id),
        ended => format!("{} (from {opened} to {})", info.id, time_of(Hlc(ended))),
    }
}

/// Sessions of one name that a refusal lists.
const LISTED_MAX: usize = 8;
