//! Members and leaders that are broken on purpose: the judge has to notice every one.

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetentionBreak {
    /// A member executes marks that the log of names has not committed.
    MarkUncommitted,
    /// A member serves before it has executed what records have died by, here or where they came from.
    ServesBehindExpiries,
    /// A member notes nothing before its records die: after a crash its names are behind.
    ExpiriesNotNoted,
    /// It notes that in memory only.
    ExpiriesNotStored,
    /// A member takes records that died at another without noting by what.
    SupplyWithoutExpiries,
    /// Records die at a member that was removed, by records that the chain never has.
    DiesWithoutLease,
    /// A supply leaves dead records out.
    SupplySkipsDead,
    /// Records are dropped before their pack is on stable storage.
    DroppedBeforeSync,
    /// A pack is listed that is not read back.
    ListedBeforeReadBack,
    /// A pack lacks a record that survives.
    OneTooFew,
    /// A pack has no dead record.
    PackWithoutDead,
    /// No dead record stays in the index.
    IndexWithoutDead,
    /// A member packs records that are not known to be committed.
    PackedDirty,
    /// A mark below the last one counts.
    MarkGoesBack,
    /// A mark counts ages by the leader's clock, not from what is closed.
    MarkBeyondClosed,
    /// Records that only pins show die.
    PinIgnored,
    /// An instant that marks have thinned is pinned as long as its records are there.
    PinOfThinned,
    /// Of a file that came from another policy only the new one counts.
    EraForgotten,
    /// Truncates cover nothing where an instant is asked for.
    TruncatesIgnored,
    /// A record that fails its checksum is packed.
    RottenPacked,
    /// A pack that a full disk has cut counts as whole.
    CutPackCounts,
    /// An instant is refused when records of it are known to be dead, and not before.
    ExactByPresence,
}

impl RetentionBreak {
    /// Every one, for the test of the tester.
    pub(crate) const ALL: &'static [RetentionBreak] = &[
        RetentionBreak::MarkUncommitted,
        RetentionBreak::ServesBehindExpiries,
        RetentionBreak::ExpiriesNotNoted,
        RetentionBreak::ExpiriesNotStored,
        RetentionBreak::SupplyWithoutExpiries,
        RetentionBreak::DiesWithoutLease,
        RetentionBreak::SupplySkipsDead,
        RetentionBreak::DroppedBeforeSync,
        RetentionBreak::ListedBeforeReadBack,
        RetentionBreak::OneTooFew,
        RetentionBreak::PackWithoutDead,
        RetentionBreak::IndexWithoutDead,
        RetentionBreak::PackedDirty,
        RetentionBreak::MarkGoesBack,
        RetentionBreak::MarkBeyondClosed,
        RetentionBreak::PinIgnored,
        RetentionBreak::PinOfThinned,
        RetentionBreak::EraForgotten,
        RetentionBreak::TruncatesIgnored,
        RetentionBreak::RottenPacked,
        RetentionBreak::CutPackCounts,
        RetentionBreak::ExactByPresence,
    ];
}
