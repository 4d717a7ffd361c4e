//! Instants as people write them.

use std::fmt;

use jiff::tz::TimeZone;

use crate::written::{Complaint, FORMS, InstantText, Zone, ZonePolicy, shortened};
use crate::{Error, Hlc};

/// An instant as it was asked for. [`Instant::resolve`] makes it exact; a server knows the snapshots and `last-whole`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instant {
    /// `now`.
    Now,
    /// An exact stamp, or the last stamp of a microsecond that was written as a time.
    System(Hlc),
    /// `5m-ago`: that long before now.
    Ago {
        /// How long before now, in microseconds.
        micros: u64,
    },
    /// `yesterday`: 24 hours before now.
    Yesterday,
    /// `last-whole`: the newest instant at which everything was whole at the last crash.
    LastWhole,
    /// The name of a saved snapshot.
    Named(String),
}

impl Instant {
    /// Reads an instant; the forms are those of the table in this crate's grammar. A time covers every event whose
    /// microsecond is at most the one written; fewer digits mean that exact microsecond, and digits beyond the
    /// microsecond are cut. A text that looks like no time is the name of a snapshot.
    ///
    /// # Errors
    /// `NotInstant` says what is wrong and what to write instead. A text that begins like an instant
    /// ([`looks_like_instant`]) and is none is an error, never a name.
    pub fn parse(text: &str, zone: ZonePolicy) -> Result<Instant, Error> {
        Instant::parse_in(text, zone.zone().as_ref())
    }

    /// As [`Instant::parse`]; a date and time without zone is in `zone`.
    ///
    /// # Errors
    /// As [`Instant::parse`].
    pub fn parse_in_zone(text: &str, zone: &Zone) -> Result<Instant, Error> {
        Instant::parse_in(text, Some(zone.zone()))
    }

    fn parse_in(text: &str, zone: Option<&TimeZone>) -> Result<Instant, Error> {
        Instant::read(text, zone).map_err(|Complaint { wrong, instead }| Error::NotInstant {
            text: shortened(text),
            wrong,
            instead,
        })
    }

    fn read(text: &str, zone: Option<&TimeZone>) -> Result<Instant, Complaint> {
        match text {
            "now" => return Ok(Instant::Now),
            "yesterday" => return Ok(Instant::Yesterday),
            "last-whole" => return Ok(Instant::LastWhole),
            _ => {}
        }
        match InstantText::read(text, zone)? {
            Some(InstantText::Stamp(stamp)) => Ok(Instant::System(stamp)),
            Some(InstantText::Ago { micros }) => Ok(Instant::Ago { micros }),
            Some(InstantText::At { ns }) => {
                if ns < 0 {
                    return Err(Complaint::new("it lies before 1970, when nothing was written", "write a later time"));
                }
                let micros = u64::try_from(ns / 1000).unwrap_or(u64::MAX);
                if micros > Hlc::MICROS_MAX {
                    return Err(Complaint::new(
                        "it lies beyond the year 2112, where stamps end",
                        "write an earlier time",
                    ));
                }
                Ok(Instant::System(Hlc::last_of_micros(micros)))
            }
            None => match name_complaint(text) {
                None => Ok(Instant::Named(text.to_owned())),
                Some(wrong) => {
                    Err(Complaint::new(format!("it is no time, and as the name of a snapshot {wrong}"), FORMS))
                }
            },
        }
    }

    /// True if the text means another instant when it is read later: a mount shows it as a symbolic link. A snapshot's
    /// name does not move while the snapshot is there.
    pub fn is_moving(&self) -> bool {
        match self {
            Instant::Now | Instant::Ago { .. } | Instant::Yesterday | Instant::LastWhole => true,
            Instant::System(_) | Instant::Named(_) => false,
        }
    }

    /// The exact instant, seen from `now`; `None` for a snapshot's name and `last-whole`, which only the server knows.
    pub fn resolve(&self, now: Hlc) -> Option<Hlc> {
        let ago = |micros: u64| match now.micros().checked_sub(micros) {
            Some(then) => Hlc::last_of_micros(then).min(now),
            None => Hlc::ZERO,
        };
        match self {
            Instant::Now => Some(now),
            Instant::System(stamp) => Some(*stamp),
            Instant::Ago { micros } => Some(ago(*micros)),
            Instant::Yesterday => Some(ago(24 * 3_600_000_000)),
            Instant::LastWhole | Instant::Named(_) => None,
        }
    }
}

impl fmt::Display for Instant {
    /// A text that parses to the same instant.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Instant::Now => f.write_str("now"),
            Instant::System(stamp) => write!(f, "{stamp}"),
            Instant::Ago { micros } => {
                let units = [(3_600_000_000, "h"), (60_000_000, "m"), (1_000_000, "s"), (1_000, "ms")];
                let fits = units.into_iter().find(|(size, _)| micros % size == 0 && *micros > 0);
                let (size, unit) = fits.unwrap_or((1, "us"));
                write!(f, "{}{unit}-ago", micros / size)
            }
            Instant::Yesterday => f.write_str("yesterday"),
            Instant::LastWhole => f.write_str("last-whole"),
            Instant::Named(name) => f.write_str(name),
        }
    }
}

/// True if the text begins like an instant: with a digit, `@` or `hlc-`. Such a text is an instant or an error, never
/// the name of a snapshot.
pub fn looks_like_instant(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit() || c == '@') || text.starts_with("hlc-")
}

/// Checks that `name` can name a snapshot: one path component that no instant, present or future, is written like.
///
/// # Errors
/// `NotSnapshotName` says what is wrong and what to write instead.
pub fn check_snapshot_name(name: &str) -> Result<(), Error> {
    match name_complaint(name) {
        None => Ok(()),
        Some(wrong) => Err(Error::NotSnapshotName {
            text: shortened(name),
            wrong: wrong.to_owned(),
            instead: "choose a name that begins with a letter, such as before-upgrade".to_owned(),
        }),
    }
}

fn name_complaint(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        return Some("it is empty");
    }
    if name.len() > frieze_base::NAME_BYTES_MAX {
        return Some("it is longer than 255 bytes");
    }
    if looks_like_instant(name) {
        return Some("it begins like an instant (a digit, @ or hlc-)");
    }
    if RESERVED.contains(&name) {
        return Some("the word has a meaning of its own");
    }
    if name.starts_with("user-") {
        return Some("it begins like a user time (user-)");
    }
    if name.ends_with("-ago") {
        return Some("it ends like a span (-ago)");
    }
    if name.contains('/') || name.chars().any(char::is_control) {
        return Some("it holds a slash or a control character");
    }
    if name.starts_with(['-', '+', '.', ' ']) || name.ends_with(' ') {
        return Some("it begins with one of - + . or a space, or ends with a space");
    }
    None
}

/// Words that instants use, and those kept for later.
const RESERVED: [&str; 6] = ["now", "yesterday", "today", "last-whole", "earliest", "stable"];

#[cfg(test)]
mod tests;
