//! Time plug-ins: where the user time is in the data (FFFS §6.4, design §5, protocols §8).
//!
//! A directory is bound by setting its attribute `user.frieze.time` to a text such as
//! `binary:offset=0,width=8,order=little,signed=false,size=24,epoch=unix,unit=us`, `json:/meta/time,unit=ms`,
//! `csv:event_time` or `jsonl:/t`; what is made in it inherits the binding. There are two shapes. *Record* (`binary`
//! without a size, `json`): one write is one record with one user time. *Rows* (`csv`, `jsonl`, `binary` with a size,
//! in [`rows`]): one line, or so many bytes, is one row with one user time, and a write holds any number of them, the
//! last line perhaps in part. The plug-in runs in the server that takes the write; that user time never goes backwards
//! is checked by the chain.
//!
//! The seam for other plug-ins: a new shape is a line in [`TimePlugin::from_str`], and either a [`TimePlace`] whose
//! time [`TimePlugin::user_time`] finds in a record, or one for [`TimePlugin::row_time`]. Both are pure functions of
//! bytes.

mod pointer;
pub mod rows;

use std::fmt;
use std::str::FromStr;

use frieze_base::{Fault, Reason};
use frieze_hlc::{TooLarge, UserTime};

/// Name of the attribute that binds a directory.
pub const BINDING_XATTR: &[u8] = b"user.frieze.time";

/// How an integer counts time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Nanoseconds,
    Microseconds,
    Milliseconds,
    Seconds,
}

impl Unit {
    /// Digits behind the point down to the nanosecond.
    fn digits(self) -> u32 {
        match self {
            Unit::Nanoseconds => 0,
            Unit::Microseconds => 3,
            Unit::Milliseconds => 6,
            Unit::Seconds => 9,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Unit::Nanoseconds => "ns",
            Unit::Microseconds => "us",
            Unit::Milliseconds => "ms",
            Unit::Seconds => "s",
        }
    }
}

/// Zero of the count, in seconds from the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Epoch {
    Unix,
    /// 1980-01-06, GPS week 0. Leap seconds are not applied: the count is taken as UTC seconds since then.
    Gps,
    /// 2000-01-01T12:00 UTC.
    J2000,
    /// 1601-01-01, Windows file time.
    Windows,
    /// 1900-01-01, NTP.
    Ntp,
}

const EPOCHS: [(Epoch, &str, i64); 5] = [
    (Epoch::Unix, "unix", 0),
    (Epoch::Gps, "gps", 315_964_800),
    (Epoch::J2000, "j2000", 946_728_000),
    (Epoch::Windows, "windows", -11_644_473_600),
    (Epoch::Ntp, "ntp", -2_208_988_800),
];

impl Epoch {
    fn entry(self) -> &'static (Epoch, &'static str, i64) {
        EPOCHS.iter().find(|entry| entry.0 == self).expect("every epoch has a line in the table")
    }
}

/// Where the user time is in the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimePlugin {
    place: TimePlace,
    unit: Unit,
    epoch: Epoch,
    /// True: a text without a zone is in UTC. False: it is refused.
    utc: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TimePlace {
    Binary { offset: u32, width: u8, big_endian: bool, signed: bool, size: Size },
    Json { pointer: String },
    Csv { column: Column, header: bool, delimiter: Delimiter },
    JsonLines { pointer: String },
}

/// How long a binary record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    /// One write is one record, if it is shorter than [`UNSAID_BYTES_MAX`].
    Unsaid,
    /// One write is one record, of whatever length.
    Any,
    /// So many bytes, as many records a write as there are.
    Fixed(u32),
}

/// From this size on a write of binary data is more likely a program's buffer, or a file being copied, than one record:
/// a user that means one record sets `size=any`.
const UNSAID_BYTES_MAX: usize = 4096;

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Column {
    /// As the first line of the file calls it.
    Named(String),
    /// Counted from 1.
    Numbered(u32),
}

/// The delimiter between two fields of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delimiter {
    Comma,
    Semicolon,
    Tab,
    Pipe,
}

const DELIMITERS: [(Delimiter, &str, u8); 4] = [
    (Delimiter::Comma, "comma", b','),
    (Delimiter::Semicolon, "semicolon", b';'),
    (Delimiter::Tab, "tab", b'\t'),
    (Delimiter::Pipe, "pipe", b'|'),
];

impl Delimiter {
    fn entry(self) -> &'static (Delimiter, &'static str, u8) {
        DELIMITERS.iter().find(|entry| entry.0 == self).expect("every delimiter has a line in the table")
    }
}

const EXAMPLES: &str = "write for instance binary:offset=0,width=8,order=little,signed=false,epoch=unix,unit=us \
                        or json:/meta/time or json:/t,unit=ms or csv:event_time or csv:1,unit=s or jsonl:/t";

fn refused(what: impl fmt::Display) -> Fault {
    Fault::new(Reason::InvalidArgument, format!("not a time plug-in: {what}; {EXAMPLES}"))
}

impl FromStr for TimePlugin {
    type Err = Fault;

    fn from_str(text: &str) -> Result<TimePlugin, Fault> {
        let (shape, rest) =
            text.split_once(':').ok_or_else(|| refused("it has no `binary:`, `json:`, `csv:` or `jsonl:` in front"))?;
        let mut fields = rest.split(',');
        let mut plugin = match shape {
            "binary" => TimePlugin {
                place: TimePlace::Binary { offset: 0, width: 8, big_endian: false, signed: false, size: Size::Unsaid },
                unit: Unit::Microseconds,
                epoch: Epoch::Unix,
                utc: false,
            },
            "json" | "jsonl" => {
                let pointer = fields.next().unwrap_or_default().to_owned();
                if !pointer.starts_with('/') {
                    return Err(refused(format_args!(
                        "the JSON pointer {pointer:?} does not start with `/` (RFC 6901)"
                    )));
                }
                TimePlugin::of_text(if shape == "json" {
                    TimePlace::Json { pointer }
                } else {
                    TimePlace::JsonLines { pointer }
                })
            }
            "csv" => {
                let name = fields.next().unwrap_or_default();
                let column = match name.parse() {
                    Ok(0) => return Err(refused("columns are counted from 1")),
                    Ok(number) => Column::Numbered(number),
                    Err(_) if name.is_empty() => return Err(refused("`csv:` needs a column, by name or by number")),
                    Err(_) => Column::Named(name.to_owned()),
                };
                let header = matches!(column, Column::Named(_));
                TimePlugin::of_text(TimePlace::Csv { column, header, delimiter: Delimiter::Comma })
            }
            other => return Err(refused(format_args!("unknown shape {other:?}"))),
        };
        for field in fields.filter(|field| !field.is_empty()) {
            plugin.set(field)?;
        }
        if let TimePlace::Binary { offset, width, size: Size::Fixed(size), .. } = plugin.place
            && u64::from(size) < u64::from(offset) + u64::from(width)
        {
            let field = format!("{offset}..{}", u64::from(offset) + u64::from(width));
            return Err(refused(format_args!(
                "a record of size={size} ends before its time, which is at bytes {field}"
            )));
        }
        Ok(plugin)
    }
}

impl TimePlugin {
    fn of_text(place: TimePlace) -> TimePlugin {
        TimePlugin { place, unit: Unit::Seconds, epoch: Epoch::Unix, utc: false }
    }

    /// True: a write holds any number of rows: lines (`csv`, `jsonl`), or records of one size (`binary`). False: one
    /// write is one record.
    pub fn has_rows(&self) -> bool {
        self.has_lines() || self.record_bytes().is_some()
    }

    /// True: one line is one row, and a write may end in the midst of one.
    pub fn has_lines(&self) -> bool {
        matches!(self.place, TimePlace::Csv { .. } | TimePlace::JsonLines { .. })
    }

    /// Bytes of each record, where all have the same.
    pub fn record_bytes(&self) -> Option<u32> {
        match self.place {
            TimePlace::Binary { size: Size::Fixed(size), .. } => Some(size),
            _ => None,
        }
    }

    /// True: a row is a line of fields (`csv`).
    pub fn is_table(&self) -> bool {
        matches!(self.place, TimePlace::Csv { .. })
    }

    fn set(&mut self, field: &str) -> Result<(), Fault> {
        let (key, value) = field.split_once('=').ok_or_else(|| refused(format_args!("{field:?} has no `=`")))?;
        let bad = || refused(format_args!("{key} cannot be {value:?}"));
        match (key, &mut self.place) {
            ("unit", _) => {
                let units = [Unit::Nanoseconds, Unit::Microseconds, Unit::Milliseconds, Unit::Seconds];
                self.unit = units.into_iter().find(|unit| unit.name() == value).ok_or_else(bad)?;
            }
            ("epoch", _) => self.epoch = EPOCHS.iter().find(|entry| entry.1 == value).ok_or_else(bad)?.0,
            ("offset", TimePlace::Binary { offset, .. }) => *offset = value.parse().map_err(|_| bad())?,
            ("width", TimePlace::Binary { width, .. }) => match value.parse() {
                Ok(bytes @ (1 | 2 | 4 | 8)) => *width = bytes,
                _ => return Err(bad()),
            },
            ("order", TimePlace::Binary { big_endian, .. }) => {
                *big_endian = match value {
                    "little" => false,
                    "big" => true,
                    _ => return Err(bad()),
                }
            }
            ("size", TimePlace::Binary { size, .. }) => {
                *size = match value.parse() {
                    _ if value == "any" => Size::Any,
                    Ok(bytes) if bytes > 0 && bytes as usize <= rows::ROW_BYTES_MAX => Size::Fixed(bytes),
                    _ => return Err(bad()),
                }
            }
            ("signed", TimePlace::Binary { signed, .. }) => *signed = value.parse().map_err(|_| bad())?,
            ("delimiter", TimePlace::Csv { delimiter, .. }) => {
                *delimiter = DELIMITERS.iter().find(|entry| entry.1 == value).ok_or_else(bad)?.0;
            }
            ("header", TimePlace::Csv { header, column, .. })
                if value == "true" || matches!(column, Column::Numbered(_)) =>
            {
                *header = value.parse().map_err(|_| bad())?;
            }
            ("zone", TimePlace::Json { .. } | TimePlace::Csv { .. } | TimePlace::JsonLines { .. })
                if value == "utc" =>
            {
                self.utc = true;
            }
            ("zone", _) => return Err(bad()),
            _ => return Err(refused(format_args!("unknown field {key:?}"))),
        }
        Ok(())
    }

    /// The user time of one record.
    ///
    /// # Errors
    /// `InvalidArgument` if the record is too short, is no JSON document, has nothing at the pointer, or its time does
    /// not fit in signed nanoseconds: mend the record, or write it into a directory without the binding.
    pub fn user_time(&self, record: &[u8]) -> Result<UserTime, Fault> {
        match &self.place {
            TimePlace::Binary { size: Size::Unsaid, .. } if record.len() >= UNSAID_BYTES_MAX => Err(wrong(format!(
                "a write of {} bytes looks like more than one record: bind the directory with size=N for records of N \
                 bytes, or with size=any if each write is one record, of any length",
                record.len()
            ))),
            TimePlace::Binary { offset, width, big_endian, signed, size: _ } => {
                let (start, width) = (*offset as usize, usize::from(*width));
                let field = record.get(start..start + width).ok_or_else(|| {
                    wrong(format!(
                        "a record of {} bytes has no time field at bytes {start}..{}",
                        record.len(),
                        start + width
                    ))
                })?;
                let mut word = [0u8; 8];
                for (i, &byte) in field.iter().enumerate() {
                    word[if *big_endian { width - 1 - i } else { i }] = byte;
                }
                let raw = u64::from_le_bytes(word);
                let unused = 64 - 8 * width as u32;
                let count = if *signed { i128::from((raw << unused) as i64 >> unused) } else { i128::from(raw) };
                self.scaled(count)
            }
            TimePlace::Json { pointer } => self.json_time(rows::without_mark(record)?, pointer),
            TimePlace::JsonLines { pointer } => self.json_time(record, pointer),
            TimePlace::Csv { .. } => Err(wrong("a table has a time for each row, not one for a write".to_owned())),
        }
    }

    fn json_time(&self, document: &[u8], pointer: &str) -> Result<UserTime, Fault> {
        let found = pointer::find(document, pointer)
            .map_err(|error| wrong(format!("the record is not one JSON document: {error}")))?
            .ok_or_else(|| wrong(format!("nothing stands at {pointer}")))?;
        match found.as_bytes() {
            [b'"', ..] => {
                let text: String = serde_json::from_str(found)
                    .map_err(|error| wrong(format!("the text at {pointer} cannot be read: {error}")))?;
                self.text_time(&text)
            }
            [b'-' | b'0'..=b'9', ..] => self.number_time(found).unwrap_or_else(|| self.text_time(found)),
            _ => Err(wrong(format!("what stands at {pointer} is neither a string nor a number"))),
        }
    }

    /// The time that a number counts; `None` if the text is no decimal number.
    fn number_time(&self, text: &str) -> Option<Result<UserTime, Fault>> {
        let ns = frieze_hlc::decimal_ns(text, self.unit.digits())?;
        Some(match ns {
            Ok(ns) => self.shifted(ns),
            Err(TooLarge) => Err(wrong(format!("a time of {text} {} is out of range", self.unit.name()))),
        })
    }

    fn text_time(&self, text: &str) -> Result<UserTime, Fault> {
        let timestamp: jiff::Timestamp = match text.parse() {
            Ok(timestamp) => timestamp,
            Err(error) => match text.parse::<jiff::civil::DateTime>() {
                Ok(civil) if self.utc => civil
                    .to_zoned(jiff::tz::TimeZone::UTC)
                    .map_err(|error| wrong(format!("{text:?} is out of range: {error}")))?
                    .timestamp(),
                Ok(_) => {
                    let words =
                        format!("{text:?} has no zone; if such times are UTC, bind the directory with zone=utc");
                    return Err(wrong(words));
                }
                Err(_) => return Err(wrong(format!("{text:?} is not an RFC 3339 time with a zone: {error}"))),
            },
        };
        let ns = frieze_hlc::clamp_leap_second(text, timestamp.as_nanosecond());
        i64::try_from(ns).map(UserTime).map_err(|_| wrong(format!("{text:?} is out of range")))
    }

    fn scaled(&self, count: i128) -> Result<UserTime, Fault> {
        self.shifted(count * 10i128.pow(self.unit.digits()))
    }

    fn shifted(&self, ns_from_epoch: i128) -> Result<UserTime, Fault> {
        let ns = ns_from_epoch + i128::from(self.epoch.entry().2) * 1_000_000_000;
        i64::try_from(ns)
            .map(UserTime)
            .map_err(|_| wrong(format!("a time of {ns} ns since 1970 does not fit in 64 bits; check unit and epoch")))
    }
}

fn wrong(what: String) -> Fault {
    Fault::new(Reason::InvalidArgument, format!("no user time in the record: {what}"))
}

impl fmt::Display for TimePlugin {
    /// The full text, every default written out; parses back to the same plug-in.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (epoch, unit) = (self.epoch.entry().1, self.unit.name());
        match &self.place {
            TimePlace::Binary { offset, width, big_endian, signed, size } => {
                let order = if *big_endian { "big" } else { "little" };
                write!(f, "binary:offset={offset},width={width},order={order},signed={signed}")?;
                match size {
                    Size::Unsaid => {}
                    Size::Any => f.write_str(",size=any")?,
                    Size::Fixed(size) => write!(f, ",size={size}")?,
                }
                write!(f, ",epoch={epoch},unit={unit}")
            }
            TimePlace::Json { pointer } => write!(f, "json:{pointer},epoch={epoch},unit={unit}"),
            TimePlace::JsonLines { pointer } => write!(f, "jsonl:{pointer},epoch={epoch},unit={unit}"),
            TimePlace::Csv { column, header, delimiter } => {
                let delimiter = delimiter.entry().1;
                match column {
                    Column::Named(name) => write!(f, "csv:{name}")?,
                    Column::Numbered(number) => write!(f, "csv:{number}")?,
                }
                write!(f, ",header={header},delimiter={delimiter},epoch={epoch},unit={unit}")
            }
        }?;
        if self.utc { f.write_str(",zone=utc") } else { Ok(()) }
    }
}

#[cfg(test)]
frieze_harness::count_allocations!();

#[cfg(test)]
mod tests {
    use super::*;

    fn time(plugin: &str, record: &[u8]) -> Result<i64, String> {
        let plugin: TimePlugin = plugin.parse().expect("a plug-in");
        plugin.user_time(record).map(|time| time.0).map_err(|fault| fault.message)
    }

    #[test]
    fn a_binary_field_is_read_in_every_shape() {
        assert_eq!(time("binary:unit=us", &5u64.to_le_bytes()), Ok(5_000));
        assert_eq!(time("binary:offset=2,width=4,order=big,unit=s", &[9, 9, 0, 0, 1, 0]), Ok(256_000_000_000));
        assert_eq!(time("binary:width=2,signed=true,unit=ms", &(-3i16).to_le_bytes()), Ok(-3_000_000));
        assert_eq!(time("binary:width=1,unit=ns", &[255]), Ok(255));
        assert_eq!(time("binary:width=1,unit=ns,size=any", &[3; 9000]), Ok(3));
        assert_eq!(time("binary:width=1,unit=ns", &[3; 4095]), Ok(3));
        assert_eq!(time("binary:width=4,unit=s,epoch=gps", &0u32.to_le_bytes()), Ok(315_964_800_000_000_000));
    }

    #[test]
    fn a_json_pointer_finds_text_and_numbers() {
        assert_eq!(time("json:/meta/time", br#"{"meta":{"time":"1970-01-01T00:00:01Z"}}"#), Ok(1_000_000_000));
        assert_eq!(time("json:/t,unit=ms", br#"{"t": 12}"#), Ok(12_000_000));
        assert_eq!(time("json:/t", br#"{"t": 1.5}"#), Ok(1_500_000_000));
        assert_eq!(time("json:/t", br#"{"t": 1700000000.123456789}"#), Ok(1_700_000_000_123_456_789));
        assert_eq!(time("json:/t,unit=us", br#"{"t": 1.700000000123456789e15}"#), Ok(1_700_000_000_123_456_789));
        assert_eq!(time("json:/t,unit=ns", br#"{"t": 9223372036854775807}"#), Ok(i64::MAX));
    }

    #[test]
    fn a_record_without_a_time_says_why() {
        let cases: [(&str, &[u8], &str); 9] = [
            ("binary:unit=s", &[0; 4096], "a write of 4096 bytes looks like more than one record"),
            ("binary:offset=4", b"12345678", "a record of 8 bytes has no time field at bytes 4..12"),
            ("json:/t", b"not json", "not one JSON document"),
            ("json:/t", b"{}", "nothing stands at /t"),
            ("json:/t", br#"{"t":[1]}"#, "neither a string nor a number"),
            ("json:/t", br#"{"t":1e99}"#, "1e99 s is out of range"),
            ("json:/t", br#"{"t":true}"#, "neither a string nor a number"),
            ("json:/t", br#"{"t":"yesterday"}"#, "is not an RFC 3339 time"),
            ("binary:unit=s", &[255; 8], "does not fit in 64 bits"),
        ];
        for (plugin, record, words) in cases {
            let message = time(plugin, record).unwrap_err();
            assert!(message.contains(words), "{message:?} should contain {words:?}");
        }
    }

    #[test]
    fn a_wrong_plug_in_is_refused_with_an_example() {
        for text in [
            "tsv:1",
            "csv:",
            "csv:0",
            "csv:t,header=false",
            "csv:1,delimiter=x",
            "jsonl:t",
            "binary",
            "binary:zone=utc",
            "binary:width=3",
            "binary:size=0",
            "binary:size=7",
            "binary:size=1048577",
            "binary:size=16,offset=12",
            "json:/t,size=8",
            "json:t",
            "binary:order=middle",
            "json:/t,width=8",
            "binary:x",
        ] {
            let fault = text.parse::<TimePlugin>().unwrap_err();
            assert!(fault.message.contains("write for instance binary:offset=0"), "{text}: {fault}");
        }
    }

    #[test]
    fn a_plug_in_prints_and_parses_back() {
        for text in [
            "binary:",
            "binary:offset=7,width=2,order=big,signed=true,epoch=ntp,unit=s",
            "binary:size=24",
            "binary:size=any,unit=s",
            "json:/a/b,unit=ns",
            "csv:event_time,delimiter=tab",
            "csv:3,header=true,unit=ms",
            "jsonl:/t,zone=utc",
        ] {
            let plugin: TimePlugin = text.parse().expect("a plug-in");
            assert_eq!(plugin.to_string().parse(), Ok(plugin));
        }
    }

    const PLUGINS: [&str; 8] = [
        "binary:offset=0,width=8,order=little,signed=false,size=24,epoch=unix,unit=us",
        "binary:offset=4,width=2,order=big,signed=true,size=any,epoch=ntp,unit=s",
        "json:/meta/time,unit=ms",
        "json:/t,zone=utc",
        "csv:event_time",
        "csv:2,unit=s,header=true,delimiter=semicolon,zone=utc",
        "jsonl:/t",
        "jsonl:/a/0,unit=ns,epoch=gps",
    ];

    #[test]
    fn any_text_is_a_plug_in_that_prints_and_parses_back_or_refused() {
        frieze_harness::fuzz!(PLUGINS, |bytes: &[u8]| {
            frieze_harness::check_text(bytes, |text| text.parse::<TimePlugin>().ok());
        });
    }

    #[test]
    fn any_bytes_are_records_and_rows_with_times_or_refused() {
        let seeds = [
            &b"\x01\x02\x03\x04\x05\x06\x07\x08 and the rest of it"[..],
            b"{\"meta\":{\"time\":1795255200123.5}, \"t\": \"2026-11-21T10:00:00Z\"}",
            b"\xef\xbb\xbf{\"t\":\"2026-11-21 10:00\",\"a\":[\"1e3\"]}",
            b"id,event_time\n7,2026-11-21T10:00:00Z\n8,\"2026-11-21T10:00:01Z\"\n\n9,x",
            b"id;t\r\n7;1795255200.5\r\n8;-1e9\r\n",
            b"{\"t\":1,\"a\":[5]}\n{\"t\":2.5e300}\n{\"t\":\"2026-11-21T23:59:60Z\"}\n",
        ];
        frieze_harness::fuzz!(seeds, |bytes: &[u8]| {
            rows::ends_lines_by_returns(bytes);
            for plugin in PLUGINS {
                let plugin: TimePlugin = plugin.parse().expect("a plug-in");
                let _time_or_refused = plugin.user_time(bytes);
                if !plugin.has_rows() {
                    continue;
                }
                let first_line = bytes.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default();
                let Ok(rows) = plugin.rows(first_line) else { continue };
                let newest = rows.check(bytes, 0, None);
                let (end, _) = rows.end_of(bytes, 0, UserTime(i64::MAX));
                assert!(end <= bytes.len());
                if newest.is_ok() {
                    assert_eq!(rows.check(&bytes[..end], 0, None), newest, "what is behind the last row has no time");
                }
                rows.time_of_last(first_line, 9);
            }
        });
    }
}
