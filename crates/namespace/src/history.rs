//! Versions of the past: what a store must answer, and an implementation in memory.

use frieze_base::Fault;
use frieze_hlc::Hlc;

/// A version: from `stamp` on the key has this value, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyVersion {
    /// Sortable key without the stamp (module `key`).
    pub key: Vec<u8>,
    /// Inclusive start.
    pub stamp: Hlc,
    /// The value; `None`: absent from then on.
    pub value: Option<Vec<u8>>,
}

/// The stamp of a version found, and its value or absence; `None` if there is no version.
pub type NewestVersion = Option<(Hlc, Option<Vec<u8>>)>;
/// What a live key shows to a visitor: key, stamp of the version, value. False ends the visit.
pub type VisitValue<'a> = dyn FnMut(&[u8], Hlc, &[u8]) -> bool + 'a;
/// What a version shows to a visitor: key, stamp, value or absence. False ends the visit.
pub type VisitVersion<'a> = dyn FnMut(&[u8], Hlc, Option<&[u8]>) -> bool + 'a;

/// What the index of time shows to a visitor: stamp and key. False ends the visit.
pub type VisitChanged<'a> = dyn FnMut(Hlc, &[u8]) -> bool + 'a;

/// Every version of every key, current ones included.
pub trait VersionHistory {
    /// The newest version of `key` stamped <= `at`, and its stamp; `None` if there is none.
    ///
    /// # Errors
    /// `InputOutput` or `Corrupt` when the store cannot answer.
    fn newest(&self, key: &[u8], at: Hlc) -> Result<NewestVersion, Fault>;

    /// Visits in key order every key that starts with `prefix`, is greater than the whole key `after` (empty: from the
    /// start) and has a value at `at`.
    ///
    /// # Errors
    /// As [`VersionHistory::newest`].
    fn scan(&self, prefix: &[u8], after: &[u8], at: Hlc, visit: &mut VisitValue<'_>) -> Result<(), Fault>;

    /// Visits all versions stamped in (`after`, `upto`] of keys that start with `prefix` and are greater than the whole
    /// key `above` (empty: from the start), by key, then by stamp.
    ///
    /// # Errors
    /// As [`VersionHistory::newest`].
    fn versions(
        &self,
        prefix: &[u8],
        above: &[u8],
        after: Hlc,
        upto: Hlc,
        visit: &mut VisitVersion<'_>,
    ) -> Result<(), Fault>;

    /// Visits the versions of one key stamped in (`after`, `upto`], by stamp. It reads those and no others.
    ///
    /// # Errors
    /// As [`VersionHistory::newest`].
    fn versions_of(&self, key: &[u8], after: Hlc, upto: Hlc, visit: &mut VisitVersion<'_>) -> Result<(), Fault>;

    /// The index of time: visits by stamp the keys of all versions stamped in (`after`, `upto`] of which
    /// [`crate::is_timed`] is true. Returns how many entries of the index it read.
    ///
    /// # Errors
    /// As [`VersionHistory::newest`].
    ///
    /// # Cost
    /// That of the interval's changes, whatever else there is.
    fn changed(&self, after: Hlc, upto: Hlc, visit: &mut VisitChanged<'_>) -> Result<u64, Fault>;

    /// As [`VersionHistory::changed`], the newest first.
    ///
    /// # Errors
    /// As [`VersionHistory::newest`].
    ///
    /// # Cost
    /// That of the changes visited.
    fn changed_back(&self, after: Hlc, upto: Hlc, visit: &mut VisitChanged<'_>) -> Result<u64, Fault>;
}
