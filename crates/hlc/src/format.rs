//! Times as text.

use crate::stamp::Hlc;

/// The stamp's microsecond as RFC 3339 in UTC, always with six digits. The counter is left out.
pub fn format_instant(stamp: Hlc) -> String {
    match jiff::Timestamp::from_nanosecond(i128::from(stamp.micros()) * 1000) {
        Ok(timestamp) => format!("{timestamp:.6}"),
        Err(_) => format_unix_ns(stamp.unix_ns()),
    }
}

/// Nanoseconds since 1970 as RFC 3339 in UTC with as many digits as needed, or bare where no calendar reaches.
pub(crate) fn format_unix_ns(ns: i64) -> String {
    match jiff::Timestamp::from_nanosecond(ns.into()) {
        Ok(timestamp) => timestamp.to_string(),
        Err(_) => format!("{ns}ns"),
    }
}
