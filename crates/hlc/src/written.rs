//! The grammar that system time and user time share: one parser for every door.
//!
//! | written | means |
//! |---|---|
//! | `2026-11-21T10:00:00.123Z`, `2026-11-21 11:00:00.123+01:00` | RFC 3339 |
//! | `20261121T100000.123Z` | the same without colons, for paths in which a colon separates |
//! | `2026-11-21T10:00`, `2026-11-21` | in the local zone, if [`ZonePolicy::Local`] allows it; a date is its midnight |
//! | `@1439845200.1` | seconds since 1970-01-01T00:00:00Z |
//! | `5m-ago` (`us ms s m h d w`), `yesterday` | that long before now; yesterday is 24 hours ago |
//! | `hlc-0123456789abcdef` | an exact stamp |
//!
//! Dates, zones and their rules are jiff's; what is ours is the rest, and telling a person what to write instead.

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};

use crate::Hlc;

/// What a date and time without zone means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZonePolicy {
    /// It is refused: in paths and requests, where the reader's zone is not the writer's.
    Refuse,
    /// The zone of this process: in commands typed by a person. The command prints the UTC it used.
    Local,
}

impl ZonePolicy {
    /// The zone of texts without one.
    pub(crate) fn zone(self) -> Option<TimeZone> {
        match self {
            ZonePolicy::Refuse => None,
            ZonePolicy::Local => Some(TimeZone::system()),
        }
    }
}

/// A time zone that a text without one is read in.
#[derive(Clone, Debug)]
pub struct Zone(TimeZone);

impl Zone {
    /// UTC.
    pub const UTC: Zone = Zone(TimeZone::UTC);

    /// The zone of a process whose variable `TZ` is this: a name of the database, or rules as POSIX writes them.
    /// Without the variable, or with a text that is neither: the zone of the machine.
    pub fn of_variable(text: Option<&str>) -> Zone {
        let Some(text) = text else { return Zone(TimeZone::system()) };
        let name = text.strip_prefix(':').unwrap_or(text);
        if name.is_empty() {
            return Zone::UTC;
        }
        let zone = TimeZone::get(name).or_else(|_| TimeZone::posix(name));
        Zone(zone.unwrap_or_else(|_| TimeZone::system()))
    }

    pub(crate) fn zone(&self) -> &TimeZone {
        &self.0
    }
}

/// A text that has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InstantText {
    /// A point in time, in nanoseconds since 1970.
    At { ns: i128 },
    /// An exact stamp.
    Stamp(Hlc),
    /// That long before now.
    Ago { micros: u64 },
}

/// What is wrong with a text, and what to write instead.
#[derive(Debug)]
pub(crate) struct Complaint {
    pub(crate) wrong: String,
    pub(crate) instead: String,
}

impl Complaint {
    pub(crate) fn new(wrong: impl Into<String>, instead: impl Into<String>) -> Complaint {
        Complaint { wrong: wrong.into(), instead: instead.into() }
    }
}

impl InstantText {
    /// Reads `text`; `None` if it does not even look like a time, so that it may be a name. A date and time without
    /// zone is in `zone`, or refused.
    pub(crate) fn read(text: &str, zone: Option<&TimeZone>) -> Result<Option<InstantText>, Complaint> {
        let Some(first) = text.chars().next() else {
            return Err(Complaint::new("it is empty", FORMS));
        };
        if text.len() > TEXT_BYTES_MAX {
            return Err(Complaint::new(format!("it is {} bytes long", text.len()), FORMS));
        }
        if text == "yesterday" {
            return Ok(Some(InstantText::Ago { micros: 24 * 3_600_000_000 }));
        }
        if text.starts_with("hlc-") {
            return text.parse().map(|stamp| Some(InstantText::Stamp(stamp))).map_err(|_| {
                Complaint::new("an exact stamp is hlc- and 1 to 16 hexadecimal digits", "copy it from `frieze now`")
            });
        }
        if let Some(seconds) = text.strip_prefix('@') {
            return unix_seconds(seconds).map(|ns| Some(InstantText::At { ns }));
        }
        if let Some(span) = text.strip_suffix("-ago")
            && (first.is_ascii_digit() || first == '-' || first == '+')
        {
            return ago(span).map(|micros| Some(InstantText::Ago { micros }));
        }
        if !first.is_ascii_digit() {
            return Ok(None);
        }
        date_time(text, zone).map(|ns| Some(InstantText::At { ns }))
    }
}

fn unix_seconds(text: &str) -> Result<i128, Complaint> {
    let refused = || Complaint::new("@ is not followed by seconds since 1970", "write them as in @1439845200.1");
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) || digits.ends_with('.') {
        return Err(refused());
    }
    if fraction.len() > 9 {
        return Err(Complaint::new("it has more than 9 digits after the point", "write nanoseconds at most"));
    }
    let seconds: u64 =
        whole.parse().map_err(|_| Complaint::new("it has too many digits", "write seconds since 1970"))?;
    let nanos: i128 = format!("{fraction:0<9}").parse().map_err(|_| refused())?;
    let ns = i128::from(seconds) * 1_000_000_000 + nanos;
    Ok(if negative { -ns } else { ns })
}

fn ago(span: &str) -> Result<u64, Complaint> {
    let unit_at = span.find(|c: char| !c.is_ascii_digit()).unwrap_or(span.len());
    let (digits, unit) = span.split_at(unit_at);
    if digits.is_empty() {
        return Err(Complaint::new("a signed span has no meaning before -ago", "write it without sign, as in 5m-ago"));
    }
    let micros_each: u64 = match unit {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 24 * 3_600_000_000,
        "w" => 7 * 24 * 3_600_000_000,
        "" => return Err(Complaint::new("it has no unit", "add one of us ms s m h d w, as in 5m-ago")),
        _ if unit.starts_with('.') || unit.starts_with(',') => {
            return Err(Complaint::new("the number is not whole", "use a smaller unit, as in 90m-ago for 1.5 hours"));
        }
        _ if unit.bytes().any(|b| b.is_ascii_digit()) => {
            return Err(Complaint::new("it has more than one unit", "use the smaller one, as in 90m-ago for 1h30m"));
        }
        _ => {
            return Err(Complaint::new(
                format!("the unit {unit:?} is not known"),
                "write one of us ms s m h d w (m is a minute), as in 5m-ago",
            ));
        }
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|count| count.checked_mul(micros_each))
        .ok_or_else(|| Complaint::new("the span is too long", "write a span that begins after 1970, as in 52w-ago"))
}

fn date_time(text: &str, zone: Option<&TimeZone>) -> Result<i128, Complaint> {
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Complaint::new(
            "a bare number has no unit",
            format!(
                "write @{text} for seconds since 1970, {text}m-ago for minutes ago, or a date as 2026-11-21T10:00:00Z"
            ),
        ));
    }
    if text.contains('[') {
        return Err(Complaint::new("names of zones are not read", "write the offset, as in 2026-11-21T10:00:00+01:00"));
    }
    if let Ok(timestamp) = text.parse::<jiff::Timestamp>() {
        return Ok(clamp_leap_second(text, timestamp.as_nanosecond()));
    }
    let Ok(local) = text.parse::<DateTime>() else {
        return Err(not_a_date(text));
    };
    let Some(zone) = zone else {
        return Err(Complaint::new(
            "it has no zone",
            format!("add Z for UTC, as in {}Z, or an offset such as +01:00", local.strftime("%Y-%m-%dT%H:%M:%S%.f")),
        ));
    };
    let ambiguous = zone.to_ambiguous_timestamp(local);
    let offsets = match ambiguous.offset() {
        AmbiguousOffset::Unambiguous { .. } => None,
        AmbiguousOffset::Gap { .. } => Some("clocks were set forward over it"),
        AmbiguousOffset::Fold { .. } => Some("clocks were set back, so it came twice"),
    };
    if let Some(why) = offsets {
        return Err(Complaint::new(
            format!("in the local zone {why}"),
            "add the offset that you mean, as in 2026-10-25T02:30:00+01:00, or Z for UTC",
        ));
    }
    let timestamp = ambiguous.unambiguous().map_err(|error| Complaint::new(error.to_string(), FORMS))?;
    Ok(clamp_leap_second(text, timestamp.as_nanosecond()))
}

/// `ns`, which a calendar without leap seconds made of the date and time `text`: if that is within a leap second
/// (`23:59:60`), the last nanosecond of the second before it. So it is earlier than nothing that came before it, and
/// later than nothing that comes after.
pub fn clamp_leap_second(text: &str, ns: i128) -> i128 {
    let time = text.split_once(['T', 't', ' ']).map_or("", |(_, time)| time);
    let digits: Vec<u8> = time.bytes().take_while(|byte| *byte == b':' || byte.is_ascii_digit()).collect();
    let is_leap = match digits.len() {
        // 235960, 23:59:60
        6 | 8 => digits.ends_with(b"60"),
        _ => false,
    };
    if is_leap { ns.div_euclid(SECOND_NS) * SECOND_NS + SECOND_NS - 1 } else { ns }
}

const SECOND_NS: i128 = 1_000_000_000;

/// Why a text that begins with a digit is no date, as well as it can be told.
fn not_a_date(text: &str) -> Complaint {
    let number_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    if matches!(&text[number_end..], "us" | "ms" | "s" | "m" | "h" | "d" | "w") {
        return Complaint::new("a span alone is no instant", format!("write {text}-ago for that long before now"));
    }
    if text[number_end..].trim_start().ends_with("ago") {
        return Complaint::new("it is not written as a path needs it", "write one word, as in 5m-ago");
    }
    // jiff's sentences name the part that is out of range; they are kept where the text is a date at all.
    match text.parse::<DateTime>() {
        Err(error) if text.len() >= 8 && number_end >= 4 => Complaint::new(
            format!("it is not a date and time ({error})"),
            "write it as 2026-11-21T10:00:00Z or 20261121T100000Z",
        ),
        _ => Complaint::new("it is not a date and time", FORMS),
    }
}

/// The text as it goes into a message: a very long one is cut.
pub(crate) fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((cut, _)) => format!("{}...", &text[..cut]),
        None => text.to_owned(),
    }
}

pub(crate) const FORMS: &str = "write a date and time with zone (2026-11-21T10:00:00Z or 20261121T100000Z), seconds \
                                since 1970 (@1439845200.1), a span (5m-ago), yesterday, or a stamp (hlc-...)";

/// Longest text that is read: a name in a directory is no longer.
const TEXT_BYTES_MAX: usize = frieze_base::NAME_BYTES_MAX;
const SHOWN_CHARS_MAX: usize = 80;
