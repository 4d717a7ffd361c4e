//! The hybrid logical clock, instants as people write them, and user time.
//!
//! Guarantees: pure values and state machines, no OS clock. A stamp is taken once, at the serialisation point, and is
//! greater than every stamp that happened before it (Kulkarni et al., HLC; FFFS §4).
//! Leaves to others: reading the machine's clock and its error bound (`disk`), keeping the persisted bound (`node`).

mod stamp;
mod user_time;

pub use stamp::{Hlc, ParseHlcError};
pub use user_time::UserTime;
