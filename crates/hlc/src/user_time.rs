//! Time as the data itself tells it.

use std::fmt;

/// Signed nanoseconds since the Unix epoch, found in the data by a time plug-in. Data, not an order of events: no
/// conversion to [`crate::Hlc`] but by looking up which record carried it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserTime(pub i64);

impl fmt::Display for UserTime {
    /// RFC 3339 in UTC with as many digits as needed, or bare nanoseconds where no calendar reaches.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_nanosecond(self.0.into()) {
            Ok(timestamp) => write!(f, "{timestamp}"),
            Err(_) => write!(f, "{}ns", self.0),
        }
    }
}
