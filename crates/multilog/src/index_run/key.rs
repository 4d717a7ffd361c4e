//! The name of an index run.

use frieze_base::SegmentId;

/// Which segments an index run is about: its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunKey {
    /// The first.
    pub first: SegmentId,
    /// The last.
    pub last: SegmentId,
}

impl std::fmt::Display for RunKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}
