//! Why a clock gives no stamps.

use std::fmt;

/// Why a clock is fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// The stamps already given lie ahead of the wall clock: it was set back.
    Behind {
        /// How far the wall clock is behind, in microseconds.
        behind_us: u64,
        /// How far it may be.
        max_us: u64,
    },
    /// The wall clock jumped against the monotonic clock (it was set, or the machine stood still).
    Jumped {
        /// By how much, in microseconds; positive is forward.
        by_us: i64,
        /// How long the new time has to hold before it is believed, in microseconds.
        remaining_us: u64,
    },
    /// The error bound of the machine's clock is too large.
    ErrorTooLarge {
        /// The bound, in microseconds.
        error_us: u64,
        /// The largest that is accepted.
        max_us: u64,
    },
    /// Nothing disciplines the machine's clock.
    ErrorUnknown,
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Fence::Behind { behind_us, max_us } => write!(
                f,
                "the wall clock is {} behind the stamps already given (at most {} are accepted); it recovers when the \
                 clock has caught up",
                Micros(behind_us),
                Micros(max_us)
            ),
            Fence::Jumped { by_us, remaining_us } => write!(
                f,
                "the wall clock jumped by {}{}; it is believed if it runs evenly for another {}",
                if by_us < 0 { "-" } else { "+" },
                Micros(by_us.unsigned_abs()),
                Micros(remaining_us)
            ),
            Fence::ErrorTooLarge { error_us, max_us } => write!(
                f,
                "the error bound of the machine's clock is {} (at most {} are accepted): check its time service",
                Micros(error_us),
                Micros(max_us)
            ),
            Fence::ErrorUnknown => {
                f.write_str("the machine's clock is not synchronised: start a time service such as chrony")
            }
        }
    }
}

/// A span of time for people: the largest unit that keeps it readable.
struct Micros(u64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            us if us < 1_000 => write!(f, "{us} us"),
            us if us < 10_000_000 => write!(f, "{} ms", us / 1_000),
            us => write!(f, "{} s", us / 1_000_000),
        }
    }
}
