//! The limits of a scheduler.

/// Limits of a scheduler. Each limit is tested when full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulerSettings {
    /// Shards that the slots are divided into, 1 to 4,096. More: more threads may execute. Fewer: fewer transactions
    /// over several of them. The same on every server.
    pub shards: u16,
    /// Parts that wait in one lane. Beyond it trunk phases stand until one has run. More: one late value delays less.
    /// Fewer: less memory (about 200 bytes each).
    pub parked_max: usize,
    /// Transactions whose values came before the transaction did. Beyond it values are dropped, and asked for when they
    /// are needed.
    pub early_max: usize,
    /// Requests of one session without an acknowledgement, beside the oldest. Beyond it one is refused.
    pub unacknowledged_max: usize,
    /// Nanoseconds after which a late value is asked for; each question after it comes after twice the time of the one
    /// before, up to eight times this. More: fewer questions while another server is slow. Less: a lost message delays
    /// less.
    pub ask_after_ns: u64,
}

impl Default for SchedulerSettings {
    fn default() -> SchedulerSettings {
        SchedulerSettings {
            shards: 1,
            parked_max: 1024,
            early_max: 4096,
            unacknowledged_max: 4096,
            ask_after_ns: 50_000_000,
        }
    }
}
