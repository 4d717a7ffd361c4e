//! The index.

use frieze_hlc::Hlc;

/// A user time, translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserCut {
    /// Reading at this stamp is reading at that user time; [`Hlc::ZERO`] before the first user time of the file.
    pub stamp: Hlc,
    /// True while the file holds no later user time: more records may still belong to the answer.
    pub open: bool,
}
