//! The limits of a member.

/// How fast a member is to act and how much it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberSettings {
    /// Time between two [`crate::MemberInput::Tick`] in microseconds. More: slower elections. Less: more wake-ups.
    pub tick_us: u64,
    /// Ticks between two heartbeats of a leader. At least 1.
    pub heartbeat_ticks: u32,
    /// Ticks without a leader before a member stands for election: drawn between this and twice as many, so that seldom
    /// two stand at once. More than `heartbeat_ticks`; a few times as many, so that a late message deposes no leader.
    pub election_ticks: u32,
    /// Ticks until an unanswered question about reads has failed.
    pub read_ticks: u32,
    /// Questions about reads under way. Beyond it one is refused as overloaded.
    pub reads_max: usize,
    /// Instants that wait to close. Beyond it one is refused as overloaded.
    pub closing_max: usize,
    /// Bytes of entries in one message; one entry always fits.
    pub message_bytes: u32,
    /// Messages with entries on their way to one member.
    pub messages_in_flight: usize,
    /// Bytes proposed and not yet committed. Beyond it a proposal is refused as overloaded.
    pub uncommitted_bytes_max: u64,
    /// Records given to the driver and not yet on stable storage. Beyond it proposals are refused as overloaded and
    /// entries of the leader are dropped, to be sent again.
    pub records_in_flight_max: usize,
    /// The same of an only voter, whose answers wait for no disk. More: some bytes of memory for each.
    pub unflushed_records_max: usize,
    /// Entries that a learner may lack when it is made a voter. Beyond it that is refused.
    pub promote_lag: u64,
    /// Voters at most: one more is refused, and further members get the log as learners. More: more failures are
    /// survived, and each entry waits for more disks.
    pub voters_max: usize,
    /// Largest encoded batch in bytes. Beyond it a proposal is refused.
    pub body_bytes_max: u32,
    /// Length of a segment file in bytes.
    pub segment_bytes: u64,
}

impl Default for MemberSettings {
    /// Heartbeats every 50 ms; an election begins 250 to 500 ms after the last one: it ends within half a lease of 2 s.
    /// Shorter leases want shorter ticks.
    fn default() -> MemberSettings {
        MemberSettings {
            tick_us: 25_000,
            heartbeat_ticks: 2,
            election_ticks: 10,
            read_ticks: 40,
            reads_max: 4096,
            closing_max: 4096,
            message_bytes: 1 << 20,
            messages_in_flight: 64,
            uncommitted_bytes_max: 64 << 20,
            records_in_flight_max: 1024,
            unflushed_records_max: 1 << 20,
            promote_lag: 64,
            voters_max: 5,
            body_bytes_max: 32 << 20,
            segment_bytes: 16 << 20,
        }
    }
}
