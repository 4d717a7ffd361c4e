//! Names of sessions: the first word of a session's description, in brackets.
//!
//! A description is the command line that the client sends in its greeting. `frieze run --name refactor -- make` sends
//! `[refactor] make`. So a name needs no field of its own: older servers keep it, and it is hidden, forgotten and cut
//! as the command line is. Several sessions may have one name.

use std::fmt;
use std::str::FromStr;

use frieze_hlc::Hlc;
use frieze_wire::timeline::SessionInfo;

use crate::{Client, Error};

/// Longest name, in bytes: a column of a table.
const NAME_BYTES_MAX: usize = 64;
/// Sessions in a request.
const PAGE: u32 = 1000;

/// A name of a session: letters, digits and `.`, `_`, `-`, at most 64; not a number, which is a session itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionName(String);

/// The text is no name of a session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} cannot name a session: {why}")]
pub struct SessionNameError {
    /// The text, cut where it is long.
    text: String,
    /// The reason, and what to write instead.
    why: &'static str,
}

impl SessionName {
    /// The description of a session with this name that runs `command`.
    pub fn describe(&self, command: &str) -> String {
        format!("[{}] {command}", self.0)
    }

    /// The name in a description, and the command line behind it.
    pub fn split(description: &str) -> (Option<&str>, &str) {
        let parts = description.strip_prefix('[').and_then(|rest| rest.split_once("] "));
        match parts.filter(|(name, _)| reason_against(name).is_none()) {
            Some((name, command)) => (Some(name), command),
            None => (None, description),
        }
    }
}

impl FromStr for SessionName {
    type Err = SessionNameError;

    fn from_str(text: &str) -> Result<SessionName, SessionNameError> {
        match reason_against(text) {
            None => Ok(SessionName(text.to_owned())),
            Some(why) => {
                let text = text[..text.floor_char_boundary(NAME_BYTES_MAX)].to_owned();
                Err(SessionNameError { text, why })
            }
        }
    }
}

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn reason_against(text: &str) -> Option<&'static str> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    if text.is_empty() || text.len() > NAME_BYTES_MAX {
        return Some("it has 1 to 64 letters");
    }
    if !text.chars().all(is_plain) {
        return Some("use letters, digits, '.', '_' and '-'");
    }
    text.bytes()
        .all(|letter| letter.is_ascii_digit())
        .then_some("a number names the session of that number: add a letter")
}

impl Client {
    /// The sessions with this name that were open after `since`, oldest first: those whose description this caller may
    /// read, which are its own, or all for an administrator.
    ///
    /// # Errors
    /// As any call.
    ///
    /// # Cost
    /// A request for each 1,000 sessions that were open after `since`.
    pub fn sessions_named(&self, name: &SessionName, since: Hlc) -> Result<Vec<SessionInfo>, Error> {
        let (mut found, mut after) = (Vec::new(), 0);
        loop {
            let page = self.sessions_page(since, after, PAGE)?;
            let Some(last) = page.sessions.last().map(|last| last.id) else { return Ok(found) };
            let is_named = |info: &SessionInfo| SessionName::split(&info.command).0 == Some(&name.0);
            found.extend(page.sessions.into_iter().filter(is_named));
            if !page.more {
                return Ok(found);
            }
            after = last;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_gives_back_its_name_and_its_command() {
        let name: SessionName = "turn-12".parse().unwrap();
        let description = name.describe("sh -c 'a] b'");
        assert_eq!(description, "[turn-12] sh -c 'a] b'");
        assert_eq!(SessionName::split(&description), (Some("turn-12"), "sh -c 'a] b'"));
    }

    #[test]
    fn a_command_that_only_begins_like_a_name_has_none() {
        for command in ["", "make", "[ -f x ] && y", "[a b] c", "[12] c", "[a]", "[] x", "[ä] x"] {
            assert_eq!(SessionName::split(command), (None, command));
        }
    }

    #[test]
    fn what_cannot_name_a_session_is_refused_with_what_can() {
        for text in ["", "7353611325287636992", "a b", "a/b", "[x]", "ä", &"x".repeat(65)] {
            let error = text.parse::<SessionName>().unwrap_err();
            assert!(error.to_string().contains("cannot name a session"), "{error}");
        }
        for text in ["a", "0x1", "turn-12", "agent.3_b", &"x".repeat(64)] {
            assert_eq!(text.parse::<SessionName>().unwrap().to_string(), text);
        }
    }
}
