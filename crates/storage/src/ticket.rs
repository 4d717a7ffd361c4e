//! A position in both logs of a server.

use frieze_base::LogIndex;
use frieze_multilog::LogPosition;

/// Position up to which both logs must be durable for a request to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticket {
    /// The device log.
    pub data: LogPosition,
    /// The metalog.
    pub meta: LogIndex,
}
