//! Members and leaders that are broken on purpose: the judge has to notice every one.

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetentionBreak {
    /// A member executes a mark and an order that the log of names has not committed.
    MarkUncommitted,
    /// Records are dropped before their pack is on stable storage.
    DroppedBeforeSync,
    /// Records are dropped before their pack is read back.
    DroppedBeforeReadBack,
    /// Records are dropped before another member has made the same pack.
    HashesIgnored,
    /// A pack lacks a record that survives.
    OneTooFew,
    /// A pack has a record that is dead.
    OneTooMany,
    /// A supply goes on behind a run without a word of it, and the member takes the next number for its next one.
    SupplySkipsRun,
    /// A supplied run does not say what died.
    RunsWithoutDeaths,
    /// A run goes on through several configurations, and says the newest.
    RunsSpanEpochs,
    /// A member packs before it has the records between those it kept and those it gets.
    PackedWhileSyncing,
    /// A member packs records that are not known to be committed.
    PackedDirty,
    /// A member packs an order that is older than what it was supplied with.
    PackedOlderOrder,
    /// A pack is made of marks and pins as they are when it is made.
    PackOfNow,
    /// A member serves before it has executed the marks by which its packs and runs are thinned.
    ServesBehindMark,
    /// A mark below the last one counts.
    MarkGoesBack,
    /// A mark counts ages by the leader's clock, not from what is closed.
    MarkBeyondClosed,
    /// A pack ignores pins.
    PinIgnored,
    /// A pack has the pins that there were at the order before: one that came between mark and reclaim is forgotten.
    PinsOfOlderOrder,
    /// An instant that marks have thinned is pinned as long as its records are there.
    PinOfThinned,
    /// Of a file that came from another policy only the new one counts.
    EraForgotten,
    /// Truncates cover nothing.
    TruncatesIgnored,
    /// A record that fails its checksum is packed.
    RottenPacked,
    /// A pack that a full disk has cut counts as whole.
    CutPackCounts,
    /// An instant is refused when records of it are gone, and not before.
    ExactByPresence,
}

impl RetentionBreak {
    /// Every one, for the test of the tester.
    pub(crate) const ALL: &'static [RetentionBreak] = &[
        RetentionBreak::MarkUncommitted,
        RetentionBreak::DroppedBeforeSync,
        RetentionBreak::DroppedBeforeReadBack,
        RetentionBreak::HashesIgnored,
        RetentionBreak::OneTooFew,
        RetentionBreak::OneTooMany,
        RetentionBreak::SupplySkipsRun,
        RetentionBreak::RunsWithoutDeaths,
        RetentionBreak::RunsSpanEpochs,
        RetentionBreak::PackedWhileSyncing,
        RetentionBreak::PackedDirty,
        RetentionBreak::PackedOlderOrder,
        RetentionBreak::PackOfNow,
        RetentionBreak::ServesBehindMark,
        RetentionBreak::MarkGoesBack,
        RetentionBreak::MarkBeyondClosed,
        RetentionBreak::PinIgnored,
        RetentionBreak::PinsOfOlderOrder,
        RetentionBreak::PinOfThinned,
        RetentionBreak::EraForgotten,
        RetentionBreak::TruncatesIgnored,
        RetentionBreak::RottenPacked,
        RetentionBreak::CutPackCounts,
        RetentionBreak::ExactByPresence,
    ];
}
