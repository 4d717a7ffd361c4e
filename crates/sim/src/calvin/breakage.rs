//! Schedulers, drivers and front-ends that are broken on purpose: the judge has to notice every one.

/// A way to break a server or a front-end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CalvinBreak {
    /// A slot's part walks the trunk as it is when the part runs.
    TrunkAtExecution,
    /// The number of a file is given when its slot executes the change.
    NumbersAtExecution,
    /// A value that is asked for again is one of now.
    ValuesOfNow,
    /// A value is read in the trunk phase, before earlier parts have run.
    ValuesBeforeKeys,
    /// Parts have no keys.
    KeysForgotten,
    /// Parts have no keys of inodes.
    InodesUnkeyed,
    /// Parts have no keys of what a directory holds.
    ContentUnkeyed,
    /// A directory that is moved has no key: another one may move below it meanwhile.
    MovedUnkeyed,
    /// The directory that a name comes to has no key: it may be removed meanwhile.
    ParentsUnkeyed,
    /// Trunk phases pass parked keys.
    ParkedUnchecked,
    /// A server calls positions executed that wait for parked parts.
    WatermarkPassesParked,
    /// A stored state comes without its registry.
    RegistryForgotten,
    /// A stored state comes with a later registry.
    RegistryOfLater,
    /// A front-end sends the next attempt without the word that the one before was superseded.
    AttemptUnproven,
    /// A front-end sends a repeated request under a number of its own.
    RetryIsNew,
    /// A stage that is sent twice is kept twice.
    StageTwice,
    /// Stages stay when their session ends.
    StagesOutliveSession,
    /// Stages stay when their edit is committed.
    StagesOutliveCommit,
    /// A request that comes after the end of its session runs.
    EndedSessionRuns,
    /// A commit runs with the stages that are there.
    CommitIncomplete,
    /// A commit looks whether its first part is what is there, and not at the others.
    CommitFirstPart,
    /// A commit does not look whether its directories have the modes that were staged.
    StagedRightsUnchecked,
    /// The inodes that were staged are no keys of the commit.
    StagedUnkeyed,
    /// Names that are staged to be removed are not there for others any more.
    StagesVisible,
    /// A stored state comes without its stages.
    StagesForgotten,
    /// Of what a change gathers its shard gets a share, and the others keep theirs.
    AllotmentTwice,
    /// A removed name gives its room to the shard of its inode.
    RoomToInode,
    /// A change that gathers reads what shards have now.
    GatherOfNow,
    /// What shards have of a limit is no key.
    RoomUnkeyed,
    /// A directory that comes below a limit is taken to be empty.
    MoveUnweighed,
    /// A directory that leaves a limit gives no room back.
    MoveKeepsRoom,
    /// What is weighed may have directories that come or go meanwhile.
    WeighedUnchecked,
    /// A new limit takes its directory to be empty.
    LimitUnweighed,
    /// A limit that is lowered below what is used leaves shards their room.
    LoweredLimitKeepsRoom,
    /// Removed names give room though there are more than the limit says.
    ClosedGivesRoom,
    /// A file that stays below a limit takes room of it in its new directory's shard.
    RenameTakesRoom,
    /// A slot that has given its last number gives the first one again.
    NumbersWrap,
}

impl CalvinBreak {
    /// Every one, for the test of the tester.
    pub const ALL: &'static [CalvinBreak] = &[
        CalvinBreak::TrunkAtExecution,
        CalvinBreak::NumbersAtExecution,
        CalvinBreak::ValuesOfNow,
        CalvinBreak::ValuesBeforeKeys,
        CalvinBreak::KeysForgotten,
        CalvinBreak::InodesUnkeyed,
        CalvinBreak::ContentUnkeyed,
        CalvinBreak::MovedUnkeyed,
        CalvinBreak::ParentsUnkeyed,
        CalvinBreak::ParkedUnchecked,
        CalvinBreak::WatermarkPassesParked,
        CalvinBreak::RegistryForgotten,
        CalvinBreak::RegistryOfLater,
        CalvinBreak::AttemptUnproven,
        CalvinBreak::RetryIsNew,
        CalvinBreak::StageTwice,
        CalvinBreak::StagesOutliveSession,
        CalvinBreak::StagesOutliveCommit,
        CalvinBreak::EndedSessionRuns,
        CalvinBreak::CommitIncomplete,
        CalvinBreak::CommitFirstPart,
        CalvinBreak::StagedRightsUnchecked,
        CalvinBreak::StagedUnkeyed,
        CalvinBreak::StagesVisible,
        CalvinBreak::StagesForgotten,
        CalvinBreak::AllotmentTwice,
        CalvinBreak::RoomToInode,
        CalvinBreak::GatherOfNow,
        CalvinBreak::RoomUnkeyed,
        CalvinBreak::MoveUnweighed,
        CalvinBreak::MoveKeepsRoom,
        CalvinBreak::WeighedUnchecked,
        CalvinBreak::LimitUnweighed,
        CalvinBreak::LoweredLimitKeepsRoom,
        CalvinBreak::ClosedGivesRoom,
        CalvinBreak::RenameTakesRoom,
        CalvinBreak::NumbersWrap,
    ];
}
