//! The rules of the simulator by name, so that each can be taken away.
//!
//! A test takes each rule away once and finds the case that notices (`tests/rules.rs`). Some are choices where the
//! study is ambiguous: with them taken away a sensitivity can be printed.

/// A rule that a simulation follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SimRule {
    /// A disk leaves a file after a slice if others wait.
    Slices,
    /// Requests of a file are served upward from the last one, then from the lowest again.
    SweepUpward,
    /// The next file of a disk is the one that waits longest, not one chosen by its number.
    RoundRobin,
    /// A request for another file costs a whole seek.
    SeekToOtherFile,
    /// Within a file a seek costs the transfer of the distance, at most a whole seek.
    SeekByDistance,
    /// Bytes cost their transfer.
    Transfer,
    /// Requests wait while the disk is busy.
    Waiting,
    /// A write of a part of a page writes the page.
    WholePages,
    /// New local files go to the disks in turn.
    DisksInTurn,
    /// HDFS files are cut into local files of the block's size.
    Blocks,
    /// Every replica is written.
    Replicas,
    /// What is written at a remote replica crosses the network.
    NetworkOfReplicas,
    /// Reads go to the first replica alone (HDFS beside HBase).
    ReadsAtFirstReplica,
    /// Replicas of other machines' files arrive at other times than the machine's own.
    ReplicasShifted,
    /// Local compaction reads the inputs at every replica.
    CompactionReadsEverywhere,
    /// Local compaction sends no output over the network.
    CompactionSendsNothing,
    /// Combined logs are one file.
    LogsInOneFile,
    /// Combined logs have a disk of their own.
    LogsOnOwnDisk,
    /// A page found in flash costs the latency of flash.
    FlashLatency,
    /// Whole files below a threshold are placed in flash.
    BufferBelow,
    /// The bytes of buffered files are taken from the cache in flash.
    BufferTakesCache,
    /// Buffered files leave flash when they are removed.
    BufferReleased,
    /// Only output of flushes and compactions is buffered.
    BufferBackgroundOnly,
    /// A crash empties memory.
    CrashEmptiesMemory,
    /// Latency counts what a get waits for, not background work.
    ForegroundOnly,
    /// With durable puts a put waits for its log.
    DurablePutsWait,
    /// What happens before the end of the warm-up is not counted.
    WarmUp,
    /// Every write to flash is wear, those of buffered files too.
    WearOfBuffer,
    /// Hints are given for the first replica alone.
    HintsAtFirstReplica,
    /// Hints are given for flushes and for files that are compacted soon.
    HintsBySoon,
    /// Files are cut into the parts of an erasure code, each on a machine of its own.
    PartsOfCode,
    /// A read of several parts waits for the slowest.
    SlowestPart,
    /// What a get reads at another machine costs a hop of the network.
    NetworkHop,
    /// An object store answers each read after its own latency.
    ObjectLatency,
    /// Writes go to an object store in parts of many writes.
    ObjectParts,
    /// An object store makes its copies itself.
    ObjectCopies,
    /// A flash device writes more than it is given.
    DeviceAmplification,
}

impl SimRule {
    /// All of them.
    pub const ALL: &[SimRule] = &[
        SimRule::Slices,
        SimRule::SweepUpward,
        SimRule::RoundRobin,
        SimRule::SeekToOtherFile,
        SimRule::SeekByDistance,
        SimRule::Transfer,
        SimRule::Waiting,
        SimRule::WholePages,
        SimRule::DisksInTurn,
        SimRule::Blocks,
        SimRule::Replicas,
        SimRule::NetworkOfReplicas,
        SimRule::ReadsAtFirstReplica,
        SimRule::ReplicasShifted,
        SimRule::CompactionReadsEverywhere,
        SimRule::CompactionSendsNothing,
        SimRule::LogsInOneFile,
        SimRule::LogsOnOwnDisk,
        SimRule::FlashLatency,
        SimRule::BufferBelow,
        SimRule::BufferTakesCache,
        SimRule::BufferReleased,
        SimRule::BufferBackgroundOnly,
        SimRule::CrashEmptiesMemory,
        SimRule::ForegroundOnly,
        SimRule::DurablePutsWait,
        SimRule::WarmUp,
        SimRule::WearOfBuffer,
        SimRule::HintsAtFirstReplica,
        SimRule::HintsBySoon,
        SimRule::PartsOfCode,
        SimRule::SlowestPart,
        SimRule::NetworkHop,
        SimRule::ObjectLatency,
        SimRule::ObjectParts,
        SimRule::ObjectCopies,
        SimRule::DeviceAmplification,
    ];
}

/// The rules that a simulation follows: all, unless some are taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleSet(u64);

impl RuleSet {
    /// Every rule.
    pub const ALL: RuleSet = RuleSet(u64::MAX);

    /// These without `rule`.
    #[must_use]
    pub fn without(self, rule: SimRule) -> RuleSet {
        RuleSet(self.0 & !(1 << rule as u8))
    }

    /// True if `rule` is followed.
    #[inline]
    pub fn has(self, rule: SimRule) -> bool {
        self.0 >> (rule as u8) & 1 == 1
    }
}

impl Default for RuleSet {
    fn default() -> RuleSet {
        RuleSet::ALL
    }
}
