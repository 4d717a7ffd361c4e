//! What an answer about the present was made from.

use crate::key::Cached;

/// Hears what a question or a transaction reads of the present, also if it fails: its answer tells of all that. It may
/// hear of the same thing twice, and of more than the answer tells.
pub trait ReadSet: Sync {
    /// The names of a directory, or an inode, were read.
    fn add(&self, what: Cached);

    /// More was read than can be told one by one.
    fn add_everything(&self);
}

/// What was read is not recorded.
pub struct NoReadSet;

impl ReadSet for NoReadSet {
    fn add(&self, _: Cached) {}

    fn add_everything(&self) {}
}
