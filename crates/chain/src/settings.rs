//! The limits of a replica.

/// Limits of a replica. Each limit is tested when full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Records appended or being appended and not yet committed. More: more sync writers share a flush. Fewer: less
    /// memory (about 100 bytes each). Beyond it a write is refused as overloaded.
    pub in_flight_max: usize,
    /// Requests of one session that are remembered so that a retry runs once, counted back from the newest number.
    /// More: a client may have more requests in flight. Fewer: less memory (about 100 bytes each).
    pub remembered_max: u64,
    /// Requests that wait for the same record: the first and its retries. Beyond it a retry is refused as overloaded.
    pub retries_max: usize,
    /// Requests that wait for an instant to close. Beyond it one is refused as overloaded.
    pub closing_max: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { in_flight_max: 16_384, remembered_max: 4096, retries_max: 16, closing_max: 4096 }
    }
}
