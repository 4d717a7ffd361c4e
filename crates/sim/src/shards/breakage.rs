//! Drivers that are broken on purpose: the judge has to notice every one.

/// A way to break a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardBreak {
    /// Parts hold nothing while they wait.
    HoldsForgotten,
    /// Parts do not hold the inodes of files.
    InodesUnheld,
    /// Parts do not hold names.
    NamesUnheld,
    /// Parts do not hold what a directory has of names as a whole.
    ContentUnheld,
    /// Parts that make files do not hold the numbers of their slots.
    NumbersUnheld,
    /// Parts that change grants do not hold the list of them.
    GrantsUnheld,
    /// Parts with an inode whose number was not given yet here do not wait for it.
    NewUnheld,
    /// Trunk phases pass what is held.
    TrunkUnchecked,
    /// A part reads the trunk when it runs.
    TrunkAtExecution,
    /// A value that is asked for again is read anew.
    ValuesOfNow,
    /// A transaction that would read what it has not said does not stop.
    ReadsUnchecked,
    /// A transaction that changes what it has not said does not stop.
    WritesUnchecked,
}

impl ShardBreak {
    /// All of them.
    pub const ALL: &[ShardBreak] = &[
        ShardBreak::HoldsForgotten,
        ShardBreak::InodesUnheld,
        ShardBreak::NamesUnheld,
        ShardBreak::ContentUnheld,
        ShardBreak::NumbersUnheld,
        ShardBreak::GrantsUnheld,
        ShardBreak::NewUnheld,
        ShardBreak::TrunkUnchecked,
        ShardBreak::TrunkAtExecution,
        ShardBreak::ValuesOfNow,
        ShardBreak::ReadsUnchecked,
        ShardBreak::WritesUnchecked,
    ];
}
