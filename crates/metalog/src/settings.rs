//! The limits of the log.

/// How the log uses its files and how much it holds before it says no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetalogSettings {
    /// Length of a segment file in bytes. More: fewer files and rolls. Less: space comes back sooner. An entry that
    /// does not fit gets a segment of its own length.
    pub segment_bytes: u64,
    /// Largest encoded batch in bytes. Beyond it a proposal is refused.
    pub body_bytes_max: u32,
    /// Entries proposed and not yet appended. Beyond it a proposal is refused as overloaded.
    pub in_flight_max: usize,
    /// Instants that wait to close. Beyond it one is refused as overloaded.
    pub closing_max: usize,
    /// Spare files kept for use again (making one costs milliseconds, and so does removing one). Beyond it they are
    /// removed.
    pub spare_max: usize,
}

impl Default for MetalogSettings {
    fn default() -> MetalogSettings {
        MetalogSettings {
            segment_bytes: 16 << 20,
            body_bytes_max: 32 << 20,
            in_flight_max: 1024,
            closing_max: 4096,
            spare_max: 4,
        }
    }
}
