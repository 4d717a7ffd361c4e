//! Instants and intervals of a query about the past.

use frieze_hlc::Hlc;
use frieze_wire::message::View;

/// (after, upto]: what was stamped later than the one and not later than the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    /// Exclusive start.
    pub(crate) after: Hlc,
    /// Inclusive end.
    pub(crate) upto: Hlc,
}

/// An exact instant as a view.
pub(crate) fn exact(at: Hlc) -> View {
    View { at: Some(at.0), user_at: None }
}
