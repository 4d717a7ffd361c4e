//! One reading of the hybrid logical clock.

use std::fmt;
use std::str::FromStr;

/// A hybrid logical clock reading: microseconds since the Unix epoch shifted left by 12, plus a counter.
///
/// Sorts as an integer and as big-endian bytes. 52 bits of microseconds reach the year 2112. Prints as `hlc-` and 16
/// hexadecimal digits, and parses back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hlc(pub u64);

const COUNTER_BITS: u32 = 12;
const COUNTER_MASK: u64 = (1 << COUNTER_BITS) - 1;

impl Hlc {
    /// Before every stamp.
    pub const ZERO: Hlc = Hlc(0);
    /// After every stamp; as the instant of a read it means now.
    pub const MAX: Hlc = Hlc(u64::MAX);
    /// Largest number of microseconds that fits.
    pub const MICROS_MAX: u64 = u64::MAX >> COUNTER_BITS;

    /// The first stamp of a microsecond. Saturates at [`Hlc::MICROS_MAX`].
    pub fn first_of_micros(micros: u64) -> Hlc {
        Hlc(micros.min(Self::MICROS_MAX) << COUNTER_BITS)
    }

    /// The last stamp of a microsecond: as an instant it covers every event whose physical part is at most `micros`.
    pub fn last_of_micros(micros: u64) -> Hlc {
        Hlc((micros.min(Self::MICROS_MAX) << COUNTER_BITS) | COUNTER_MASK)
    }

    /// Microseconds since the Unix epoch.
    pub fn micros(self) -> u64 {
        self.0 >> COUNTER_BITS
    }

    /// Nanoseconds since the Unix epoch, as mtime shows them. The counter is left out: an mtime names the whole
    /// microsecond, and the state at that microsecond holds the write.
    pub fn unix_ns(self) -> i64 {
        // 2^52 us is 4.5e18 ns, below i64::MAX.
        (self.micros() * 1000) as i64
    }

    /// The logical part.
    pub fn counter(self) -> u16 {
        (self.0 & COUNTER_MASK) as u16
    }

    /// The next stamp: the counter carries into the microseconds when it is full.
    pub fn next(self) -> Hlc {
        Hlc(self.0.saturating_add(1))
    }

    /// The stamp before.
    pub fn previous(self) -> Hlc {
        Hlc(self.0.saturating_sub(1))
    }
}

impl fmt::Display for Hlc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hlc-{:016x}", self.0)
    }
}

/// The text is not a stamp.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an exact stamp: expected hlc- and 1 to 16 hexadecimal digits")]
pub struct ParseHlcError(pub String);

impl FromStr for Hlc {
    type Err = ParseHlcError;

    fn from_str(text: &str) -> Result<Hlc, ParseHlcError> {
        let refused = || ParseHlcError(text.to_owned());
        let digits = text.strip_prefix("hlc-").ok_or_else(refused)?;
        if digits.is_empty() || digits.len() > 16 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(refused());
        }
        u64::from_str_radix(digits, 16).map(Hlc).map_err(|_| refused())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_prints_and_parses_back() {
        let stamp = Hlc(0x0051_9000_abcd_e123);
        assert_eq!(stamp.to_string().parse(), Ok(stamp));
        assert!("hlc-+1".parse::<Hlc>().is_err());
        assert!("hlc-".parse::<Hlc>().is_err());
    }

    #[test]
    fn the_last_stamp_of_a_microsecond_is_followed_by_the_first_of_the_next() {
        assert_eq!(Hlc::last_of_micros(5).next(), Hlc::first_of_micros(6));
        assert_eq!(Hlc::last_of_micros(5).counter(), 4095);
    }

    #[test]
    fn any_text_is_a_stamp_that_prints_and_parses_back_or_none() {
        frieze_harness::fuzz!(["hlc-0", "hlc-00519000abcde123", "hlc-FFFFFFFFFFFFFFFF"], |bytes: &[u8]| {
            frieze_harness::check_text(bytes, |text| text.parse::<Hlc>().ok());
        });
    }
}
