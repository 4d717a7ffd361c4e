//! Time as the data itself tells it.

use std::fmt;

use jiff::tz::TimeZone;

use crate::error::Error;
use crate::format::format_unix_ns;
use crate::stamp::Hlc;
use crate::written::{Complaint, InstantText, Zone, ZonePolicy, shortened};

/// Signed nanoseconds since the Unix epoch, found in the data by a time plug-in. Data, not an order of events: no
/// conversion to [`crate::Hlc`] but by looking up which record carried it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserTime(pub i64);

impl UserTime {
    /// The user time that `text` names: a date and time with zone, `@` and seconds since 1970, or nanoseconds since
    /// 1970 as `-1500ns`. Fewer digits mean exactly that nanosecond. What [`fmt::Display`] prints parses back.
    ///
    /// # Errors
    /// `NotUserTime` says what is wrong and what to write instead.
    pub fn parse(text: &str, zone: ZonePolicy) -> Result<UserTime, Error> {
        UserTime::parse_in(text, zone.zone().as_ref())
    }

    /// As [`UserTime::parse`]; a date and time without zone is in `zone`.
    ///
    /// # Errors
    /// As [`UserTime::parse`].
    pub fn parse_in_zone(text: &str, zone: &Zone) -> Result<UserTime, Error> {
        UserTime::parse_in(text, Some(zone.zone()))
    }

    fn parse_in(text: &str, zone: Option<&TimeZone>) -> Result<UserTime, Error> {
        UserTime::read(text, zone).map_err(|Complaint { wrong, instead }| Error::NotUserTime {
            text: shortened(text),
            wrong,
            instead,
        })
    }

    fn read(text: &str, zone: Option<&TimeZone>) -> Result<UserTime, Complaint> {
        if let Some(ns) = text.strip_suffix("ns").and_then(|digits| digits.parse::<i64>().ok()) {
            return Ok(UserTime(ns));
        }
        match InstantText::read(text, zone)? {
            Some(InstantText::At { ns }) => i64::try_from(ns).map(UserTime).map_err(|_| {
                Complaint::new(
                    "it does not fit 64 bits of nanoseconds",
                    "write a time from 1677-09-21T00:12:44Z to 2262-04-11T23:47:16Z",
                )
            }),
            Some(InstantText::Stamp(_)) => Err(Complaint::new(
                "it is a stamp of system time, and user time is what the data says",
                "write a date and time with zone, as 2026-11-21T10:00:00Z, or nanoseconds as 1500ns",
            )),
            Some(InstantText::Ago { .. }) => Err(Complaint::new(
                "it moves with the clock, and user time is what the data says",
                "write a date and time with zone, as 2026-11-21T10:00:00Z, or nanoseconds as 1500ns",
            )),
            None => Err(Complaint::new(
                "it is not a time",
                "write a date and time with zone, as 2026-11-21T10:00:00Z, seconds since 1970 as @1439845200.1, or \
                 nanoseconds as 1500ns",
            )),
        }
    }
}

impl Hlc {
    /// The newest stamp whose physical part is at most `time`, taken as wall-clock time: the instant that a file's
    /// mtime or an RFC 3339 text names. Times before 1970 give [`Hlc::ZERO`].
    pub fn floor_of(time: UserTime) -> Hlc {
        match u64::try_from(time.0.div_euclid(1000)) {
            Ok(micros) => Hlc::last_of_micros(micros),
            Err(_) => Hlc::ZERO,
        }
    }
}

impl fmt::Display for UserTime {
    /// RFC 3339 in UTC with as many digits as needed, or bare nanoseconds where no calendar reaches.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_unix_ns(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, ns: i64) {
        assert_eq!(UserTime::parse(text, ZonePolicy::Refuse), Ok(UserTime(ns)), "{text}");
    }

    #[test]
    fn user_time_is_written_like_an_instant_but_exact_to_the_nanosecond() {
        check("1970-01-01T00:00:01.000000002Z", 1_000_000_002);
        check("19700101T000001Z", 1_000_000_000);
        check("@1439845200.1", 1_439_845_200_100_000_000);
        check("@-1.5", -1_500_000_000);
        check("1500ns", 1500);
        check("-1500ns", -1500);
        check("1969-12-31T23:59:59Z", -1_000_000_000);
    }

    #[test]
    fn a_leap_second_is_the_last_nanosecond_of_the_second_before_it() {
        let last = 1_483_228_799_999_999_999;
        for text in [
            "2016-12-31T23:59:60Z",
            "2016-12-31 23:59:60.5Z",
            "20161231T235960.25Z",
            "2017-01-01T00:59:60.5+01:00",
            "2016-12-31T23:59:59.999999999Z",
        ] {
            check(text, last);
        }
        check("2017-01-01T00:00:00Z", last + 1);
    }

    #[test]
    fn user_time_prints_and_parses_back() {
        for ns in [0, 1, -1, 1_439_845_200_100_000_000, i64::MAX, i64::MIN, -999_999_999_999] {
            check(&UserTime(ns).to_string(), ns);
        }
    }

    #[test]
    fn a_bad_user_time_says_what_was_wrong_and_what_to_write_instead() {
        let wrong = |text: &str| UserTime::parse(text, ZonePolicy::Refuse).unwrap_err().to_string();
        assert_eq!(
            wrong("5m-ago"),
            "\"5m-ago\" is not a user time: it moves with the clock, and user time is what the data says; write a date \
             and time with zone, as 2026-11-21T10:00:00Z, or nanoseconds as 1500ns"
        );
        assert!(wrong("hlc-0123").contains("a stamp of system time"));
        assert!(wrong("tuesday").contains("it is not a time"));
        assert!(wrong("@99999999999").contains("does not fit"));
        assert!(wrong("").contains("it is empty"));
    }

    #[test]
    fn the_floor_of_a_time_covers_its_whole_microsecond() {
        assert_eq!(Hlc::floor_of(UserTime(1_999)), Hlc::last_of_micros(1));
        assert_eq!(Hlc::floor_of(UserTime(-1)), Hlc::ZERO);
        let stamp = Hlc((77 << 12) | 5);
        assert!(Hlc::floor_of(UserTime(stamp.unix_ns())) >= stamp);
        assert!(Hlc::floor_of(UserTime(stamp.unix_ns())) < Hlc::first_of_micros(78));
    }

    #[test]
    fn any_text_is_a_user_time_that_prints_and_parses_back_or_an_error() {
        // The table of instants, its first column.
        let table = include_str!("../testdata/instants.txt");
        let mut seeds: Vec<&str> = table.lines().filter_map(|line| line.split(" | ").next()).collect();
        seeds.extend(["2026-11-21T10:00:00.5Z", "@1439845200.1", "-1500ns", "5 min ago", "yesterday", "hlc-12"]);
        frieze_harness::fuzz!(seeds, |bytes: &[u8]| {
            for zone in [ZonePolicy::Refuse, ZonePolicy::Local] {
                frieze_harness::check_text(bytes, |text| UserTime::parse(text, zone).ok());
            }
        });
    }
}
