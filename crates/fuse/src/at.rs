//! The names inside `.at`.

use frieze_base::{Fault, NAME_BYTES_MAX, Reason};
use frieze_hlc::{Hlc, Instant, UserTime, Zone, ZonePolicy, format_instant, looks_like_instant};

use crate::node::ViewTime;

/// The hidden directory of every directory: its past.
pub(crate) const AT_NAME: &[u8] = frieze_base::AT_NAME.as_bytes();

/// Prefix of the name of a cut by user time.
const USER_PREFIX: &str = "user-";

/// Meaning of a name inside `.at`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AtName {
    /// An exact instant: a directory.
    Exact(Hlc),
    /// `user-<instant>`: a directory.
    User(UserTime),
    /// A name whose meaning moves: a symbolic link to an exact instant.
    Moving(Instant),
    /// A time without a zone, or `user-` and one: a symbolic link to the instant in the zone of the calling process.
    Zoneless,
    /// Perhaps a saved snapshot: a directory if the server knows it.
    Snapshot(String),
}

impl AtName {
    /// Reads a name inside the `.at` of a directory shown as it was `outer`. Inside a past directory only user times
    /// have a meaning, and inside a cut by user time nothing has.
    ///
    /// # Errors
    /// `InvalidInstant` for a name written like an instant that is none, or none that is possible here. `NotFound` for
    /// any other name. `Future` for the end of time, which as an instant of the wire would mean now.
    pub(crate) fn read(name: &[u8], outer: ViewTime) -> Result<AtName, Fault> {
        if name.len() > NAME_BYTES_MAX {
            return Err(Reason::NameTooLong.into());
        }
        let unknown = || Fault::new(Reason::NotFound, format!("there is no {} in .at", name.escape_ascii()));
        let text = std::str::from_utf8(name).map_err(|_| unknown())?;
        if let Some(user_time) = text.strip_prefix(USER_PREFIX) {
            if outer.user_at.is_some() {
                return Err(Fault::new(
                    Reason::InvalidInstant,
                    format!("{text}: this directory is cut by user time already"),
                ));
            }
            return match UserTime::parse(user_time, ZonePolicy::Refuse) {
                Ok(user_time) => Ok(AtName::User(user_time)),
                Err(_) if UserTime::parse_in_zone(user_time, &Zone::UTC).is_ok() => Ok(AtName::Zoneless),
                Err(error) => Err(error.into()),
            };
        }
        let like_instant = looks_like_instant(text) || text.ends_with("-ago");
        if outer.is_past() {
            if !like_instant {
                return Err(unknown());
            }
            return Err(Fault::new(
                Reason::InvalidInstant,
                format!("{text}: this directory is past already; in its .at only user-TIME has a meaning"),
            ));
        }
        match Instant::parse(text, ZonePolicy::Refuse) {
            Ok(Instant::System(Hlc::MAX)) => Err(Fault::new(
                Reason::Future,
                format!("{} ({}) lies in the future", Hlc::MAX, format_instant(Hlc::MAX)),
            )),
            Ok(Instant::System(at)) => Ok(AtName::Exact(at)),
            Ok(Instant::Named(name)) => Ok(AtName::Snapshot(name)),
            Ok(moving) => Ok(AtName::Moving(moving)),
            Err(_) if Instant::parse_in_zone(text, &Zone::UTC).is_ok() => Ok(AtName::Zoneless),
            Err(error) if like_instant => Err(error.into()),
            Err(_) => Err(unknown()),
        }
    }
}

/// The target of a time without a zone, read in `zone`: the exact name beside it, as `frieze --at` shows it.
///
/// # Errors
/// `InvalidInstant` for a time that is none in that zone, or two.
pub(crate) fn zoned_target(name: &str, zone: &Zone) -> Result<String, Fault> {
    if let Some(user_time) = name.strip_prefix(USER_PREFIX) {
        return Ok(user_name(UserTime::parse_in_zone(user_time, zone)?));
    }
    match Instant::parse_in_zone(name, zone)? {
        Instant::System(at) => Ok(link_target(at)),
        _ => Err(Reason::InvalidInstant.into()),
    }
}

/// The target of a moving name: the name of the exact instant beside it.
pub(crate) fn link_target(at: Hlc) -> String {
    at.to_string()
}

/// The name in `.at` of a cut by user time.
pub(crate) fn user_name(user_at: UserTime) -> String {
    format!("{USER_PREFIX}{user_at}")
}

/// Length of every [`link_target`]: the size that the link shows.
pub(crate) const LINK_TARGET_BYTES: u64 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    const PRESENT: ViewTime = ViewTime { at: None, user_at: None };
    const PAST: ViewTime = ViewTime { at: Some(Hlc(77)), user_at: None };
    const CUT: ViewTime = ViewTime { at: Some(Hlc(77)), user_at: Some(UserTime(5)) };

    fn read(name: &str, outer: ViewTime) -> Result<AtName, Reason> {
        AtName::read(name.as_bytes(), outer).map_err(|fault| fault.reason)
    }

    #[test]
    fn exact_instants_are_directories_however_they_are_written() {
        let second = Hlc::last_of_micros(1_439_845_200_000_000);
        assert_eq!(read("@1439845200", PRESENT), Ok(AtName::Exact(second)));
        assert_eq!(read("2015-08-17T21:00:00Z", PRESENT), Ok(AtName::Exact(second)));
        assert_eq!(read("20150817T210000Z", PRESENT), Ok(AtName::Exact(second)));
        assert_eq!(read(&second.to_string(), PRESENT), Ok(AtName::Exact(second)));
    }

    #[test]
    fn names_whose_meaning_moves_are_links() {
        for name in ["5m-ago", "yesterday", "last-whole", "now"] {
            assert!(matches!(read(name, PRESENT), Ok(AtName::Moving(_))), "{name}");
        }
        assert_eq!(link_target(Hlc::ZERO).len() as u64, LINK_TARGET_BYTES);
        assert_eq!(link_target(Hlc(u64::MAX - 1)).len() as u64, LINK_TARGET_BYTES);
    }

    #[test]
    fn other_words_may_be_snapshots_and_words_that_cannot_be_are_unknown() {
        assert_eq!(read("before-upgrade", PRESENT), Ok(AtName::Snapshot("before-upgrade".to_owned())));
        assert_eq!(read(".git", PRESENT), Err(Reason::NotFound));
        assert_eq!(AtName::read(b"\xff\xfe", PRESENT).unwrap_err().reason, Reason::NotFound);
        assert_eq!(read(&"n".repeat(256), PRESENT), Err(Reason::NameTooLong));
    }

    #[test]
    fn a_name_written_like_an_instant_that_is_none_is_invalid_not_unknown() {
        for name in
            ["2026-13-45T10:00:00Z", "2026-13-45T10:00:00", "@x", "hlc-xyz", "5parsecs-ago", "user-tuesday", "9"]
        {
            assert_eq!(read(name, PRESENT), Err(Reason::InvalidInstant), "{name}");
        }
    }

    #[test]
    fn a_time_without_a_zone_is_read_in_the_zone_of_the_caller() {
        for name in ["2026-11-21T10:00:00", "2026-11-21", "user-2026-11-21T10:00:00.5"] {
            assert_eq!(read(name, PRESENT), Ok(AtName::Zoneless), "{name}");
        }
        assert_eq!(read("user-2026-11-21", PAST), Ok(AtName::Zoneless));
        assert_eq!(read("2026-11-21", PAST), Err(Reason::InvalidInstant));
        let tokyo = Zone::of_variable(Some("Asia/Tokyo"));
        let target = zoned_target("2026-11-21T10:00:00", &tokyo).unwrap();
        assert_eq!(read(&target, PRESENT), read("2026-11-21T01:00:00Z", PRESENT));
        assert_eq!(zoned_target("user-2026-11-21", &tokyo).unwrap(), "user-2026-11-20T15:00:00Z");
    }

    #[test]
    fn the_end_of_time_lies_in_the_future() {
        assert_eq!(read("hlc-ffffffffffffffff", PRESENT), Err(Reason::Future));
    }

    #[test]
    fn inside_the_past_only_user_time_has_a_meaning() {
        assert_eq!(read("user-1500ns", PRESENT), Ok(AtName::User(UserTime(1500))));
        assert_eq!(read("user-1500ns", PAST), Ok(AtName::User(UserTime(1500))));
        assert_eq!(read("user-1500ns", CUT), Err(Reason::InvalidInstant));
        assert_eq!(read("5m-ago", PAST), Err(Reason::InvalidInstant));
        assert_eq!(read("@1439845200", PAST), Err(Reason::InvalidInstant));
        assert_eq!(read("before-upgrade", PAST), Err(Reason::NotFound));
    }
}
