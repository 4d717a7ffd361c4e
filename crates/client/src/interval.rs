//! Intervals of history.

use frieze_hlc::Hlc;

/// The interval (after, upto] of stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryInterval {
    /// Exclusive start.
    pub after: Hlc,
    /// Inclusive end.
    pub upto: Hlc,
}

impl HistoryInterval {
    /// Everything until now.
    pub const WHOLE: HistoryInterval = HistoryInterval { after: Hlc::ZERO, upto: Hlc::MAX };
}
