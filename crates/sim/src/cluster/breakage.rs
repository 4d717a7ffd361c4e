//! Clusters that are broken on purpose, from outside: the judge has to notice every one.

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterBreak {
    /// A member acknowledges records when it has them, whoever is behind it.
    AcksBeforeTail,
}

impl ClusterBreak {
    /// Every one, for the test of the tester.
    pub const ALL: &'static [ClusterBreak] = &[ClusterBreak::AcksBeforeTail];
}
