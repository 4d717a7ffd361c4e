//! The hybrid logical clock, instants as people write them, and user time.
//!
//! Guarantees: pure values and state machines, no OS clock. A stamp is taken once, at the serialisation point, and is
//! greater than every stamp that happened before it (Kulkarni et al., HLC; FFFS §4).
//! Leaves to others: reading the machine's clock and its error bound (`disk`), keeping the persisted bound (`node`).

mod clock;
mod decimal;
mod error;
mod fence;
mod format;
mod instant;
mod stamp;
mod user_time;
mod written;

pub use clock::{ClockHealth, ClockReading, ClockSettings, HlcClock, UnknownError};
pub use decimal::{TooLarge, decimal_ns};
pub use error::Error;
pub use fence::Fence;
pub use format::format_instant;
pub use instant::{Instant, check_snapshot_name, looks_like_instant};
pub use stamp::{Hlc, ParseHlcError};
pub use user_time::UserTime;
pub use written::{Zone, ZonePolicy, clamp_leap_second};

#[cfg(test)]
frieze_harness::count_allocations!();
