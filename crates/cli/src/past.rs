//! From `--at` and `--user-at` to a view, and the notes about an answer from the past.
//!
//! An instant is made exact once a run: every later read, however long it takes, is of that one cut.

use anyhow::{Error, Result};
use frieze_base::{Fault, Reason};
use frieze_client::Fs;
use frieze_client::InstantInfo;
use frieze_hlc::{Hlc, Instant, UserTime, ZonePolicy};
use serde_json::{Value, json};

use crate::args::{NoPastArgs, OldIntervals, PastArgs};
use crate::failure::UsageError;
use crate::format;
use crate::run::CommandRun;

impl PastArgs {
    /// True if now is read.
    pub(crate) fn is_now(&self) -> bool {
        self.at.is_none() && self.user_at.is_none()
    }
}

impl NoPastArgs {
    /// Refuses `--at` of a command that changes something.
    ///
    /// # Errors
    /// `ReadOnly`, with a hint for the alternative.
    pub(crate) fn refuse(&self) -> Result<()> {
        if self.at.is_none() && self.user_at.is_none() {
            return Ok(());
        }
        let words = "the past cannot be changed; 'frieze cp --at INSTANT' copies from it into the present";
        Err(Fault::new(Reason::ReadOnly, words).into())
    }
}

impl OldIntervals {
    /// Refuses an interval as it was spelled.
    ///
    /// # Errors
    /// [`UsageError`] with the new spelling.
    pub(crate) fn refuse(&self) -> Result<()> {
        let told = [
            (self.since.is_some(), "--since INSTANT is --from INSTANT"),
            (self.until.is_some(), "--until INSTANT is --to INSTANT"),
            (self.changed_since.is_some(), "--changed-since INSTANT is --from INSTANT"),
            (!self.changed_between.is_empty(), "--changed-between INSTANT INSTANT is --from INSTANT --to INSTANT"),
        ];
        let found: Vec<&str> = told.iter().filter(|(is_there, _)| *is_there).map(|(_, words)| *words).collect();
        if found.is_empty() { Ok(()) } else { Err(UsageError(format!("{} now", found.join(", "))).into()) }
    }
}

impl CommandRun {
    /// The file system as `past` asks for it, its instant made exact.
    ///
    /// # Errors
    /// [`UsageError`] if a text is no instant; else the server's error: in the future, expired, no such snapshot.
    pub(crate) fn view(&mut self, past: &PastArgs) -> Result<Fs> {
        let (at, user_at) = self.instants(past)?;
        let mut fs = self.fs()?;
        if let Some(at) = at {
            fs = fs.at(at);
        }
        if let Some(user_at) = user_at {
            fs = fs.user_at(user_at);
        }
        Ok(fs)
    }

    /// System time and user time of `past`, made exact.
    ///
    /// # Errors
    /// As [`CommandRun::view`].
    pub(crate) fn instants(&mut self, past: &PastArgs) -> Result<(Option<Hlc>, Option<UserTime>)> {
        // Both texts are checked before any request to the server.
        let user_at = past.user_at.as_deref().map(|text| self.user_time(text)).transpose()?;
        let at = match (&past.at, user_at) {
            (Some(text), _) if past.nearest => Some(self.nearest_instant(text)?),
            (Some(text), _) => Some(self.instant(text)?),
            // A cut by user time of a file that is being written is exact only under an exact system time.
            (None, Some(_)) => Some(self.client()?.now()?),
            (None, None) => None,
        };
        Ok((at, user_at))
    }

    /// The exact instant that a text means.
    ///
    /// # Errors
    /// As [`CommandRun::view`].
    pub(crate) fn instant(&mut self, text: &str) -> Result<Hlc> {
        let parsed = Instant::parse(text, ZonePolicy::Local).map_err(|error| UsageError(error.to_string()))?;
        if let (Instant::System(at), Err(_)) = (parsed, Instant::parse(text, ZonePolicy::Refuse)) {
            self.say(&format!("{text} in the zone of this machine is {}", format::time_of(at)));
        }
        match self.client()?.resolve(text, ZonePolicy::Local) {
            // No file is meant: the server's words, not those of a missing file.
            Err(error) if error.reason() == Reason::NotFound => Err(Error::msg(error.to_string())),
            at => Ok(at?),
        }
    }

    /// The newest instant at or before the one that a text means that every policy of retention keeps.
    fn nearest_instant(&mut self, text: &str) -> Result<Hlc> {
        let at = self.instant(text)?;
        let kept = self.client()?.nearest_kept(at)?;
        if kept != at {
            let time = format::time_of(kept);
            self.say(&format!(
                "note: read as of {kept} ({time}), the newest instant before {text} that all policies keep"
            ));
        }
        Ok(kept)
    }

    pub(crate) fn user_time(&mut self, text: &str) -> Result<UserTime> {
        let parsed = UserTime::parse(text, ZonePolicy::Local).map_err(|error| UsageError(error.to_string()))?;
        if UserTime::parse(text, ZonePolicy::Refuse).is_err() {
            self.say(&format!("{text} in the zone of this machine is {parsed}"));
        }
        Ok(parsed)
    }

    /// Prints notes about an answer from the past: a gap always, the instant used with `--verbose`, each once a run.
    pub(crate) fn note_answered(&mut self, answered: &InstantInfo) {
        if answered.incomplete && !self.told.gap {
            self.told.gap = true;
            let at = Hlc(answered.at);
            self.say(&format!(
                "warning: {at} ({}) lies inside a gap: some of what was acknowledged around then may be missing \
                 ('frieze status' lists the gaps)",
                format::time_of(at)
            ));
        }
        if answered.without_lease && !self.told.unvouched {
            self.told.unvouched = true;
            let executed = Hlc(answered.executed);
            self.say(&format!(
                "note: the answering server reaches no leader: it knows decisions up to {executed} ({}), and cannot \
                 vouch \
                 for later ones",
                format::time_of(executed)
            ));
        }
        if self.common.verbose && !self.told.instant && (answered.at != 0 || answered.user_time_open) {
            self.told.instant = true;
            let text = describe(answered);
            self.say(&text);
        }
    }
}

/// The `answered` field of an item, null for a read of now.
pub(crate) fn to_json(answered: &InstantInfo) -> Value {
    if answered.at == 0 {
        return Value::Null;
    }
    let at = Hlc(answered.at);
    json!({
        "at": at.to_string(),
        "at_time": format::time_of(at),
        "precision_us": format::precision_json(answered.precision_us),
        "stable": answered.was_stable,
        "incomplete": answered.incomplete,
        "user_time_open": answered.user_time_open,
        "without_lease": answered.without_lease,
        // With a lease the answer is final, and is the same when it is requested again.
        "executed": answered.without_lease.then(|| Hlc(answered.executed).to_string()),
    })
}

fn describe(answered: &InstantInfo) -> String {
    let mut text = String::from("as of ");
    match answered.at {
        0 => text.push_str("now"),
        at => text.push_str(&format!("{} ({})", Hlc(at), format::time_of(Hlc(at)))),
    }
    text.push_str(&format!(", {}", format::precision(answered.precision_us)));
    text.push_str(if answered.was_stable { ", stable" } else { ", closed for this answer" });
    if answered.incomplete {
        text.push_str(", incomplete");
    }
    if answered.without_lease {
        text.push_str(&format!(", knowing what was decided up to {}", Hlc(answered.executed)));
    }
    if answered.user_time_open {
        text.push_str(", may still grow at that user time");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_what_instant_it_used_and_how_sure_it_is() {
        let answered = InstantInfo {
            at: Hlc::last_of_micros(1_439_845_200_100_000).0,
            precision_us: 12,
            was_stable: false,
            incomplete: true,
            user_time_open: true,
            without_lease: false,
            executed: 0,
        };
        assert_eq!(
            describe(&answered),
            "as of hlc-51d8815aefaa0fff (2015-08-17T21:00:00.100000Z), precise to 12 us, closed for this answer, \
             incomplete, may still grow at that user time"
        );
        let unvouched = InstantInfo { without_lease: true, executed: answered.at, ..answered };
        assert!(describe(&unvouched).contains(", knowing what was decided up to hlc-51d8815aefaa0fff"));
        assert_eq!(to_json(&unvouched)["executed"], "hlc-51d8815aefaa0fff");
        assert_eq!(to_json(&answered)["stable"], false);
        assert_eq!(to_json(&InstantInfo { at: 0, ..answered }), Value::Null);
    }

    #[test]
    fn changing_the_past_is_refused_with_what_to_do_instead() {
        NoPastArgs::default().refuse().unwrap();
        let error = NoPastArgs { at: Some("5m-ago".to_owned()), user_at: None }.refuse().unwrap_err();
        assert!(error.to_string().starts_with("the past cannot be changed"));
    }
}
