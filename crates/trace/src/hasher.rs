//! Hashes of paths outside of a recorder: for traces of other programs.

use std::fmt;
use std::path::Path;

use crate::error::TraceError;
use crate::key;
use crate::words::{HashKey, hash_of};

/// Hashes paths of other programs' traces as recorders do.
#[derive(Clone, Copy)]
pub struct PathHasher {
    key: HashKey,
}

impl fmt::Debug for PathHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PathHasher").finish_non_exhaustive()
    }
}

impl PathHasher {
    /// With a key of its own: hashes of one trace match those of no other.
    pub fn new(key: (u64, u64)) -> PathHasher {
        PathHasher { key }
    }

    /// With the key of a directory of rings, both made if they are not there: hashes match those of the rings.
    ///
    /// # Errors
    /// `System`; `Foreign` for a file that is no key.
    pub fn of_rings(dir: &Path) -> Result<PathHasher, TraceError> {
        Ok(PathHasher { key: key::load(dir)? })
    }

    /// Fingerprint of the key.
    pub fn fingerprint(&self) -> u64 {
        hash_of(self.key, 0, b"frieze trace")
    }

    /// Hash of a name in a directory with this hash; [`crate::words::ROOT`] for the root.
    pub fn name(&self, parent: u64, name: &[u8]) -> u64 {
        hash_of(self.key, parent, name)
    }

    /// Hash of a word that is no path.
    pub fn word(&self, word: &[u8]) -> u64 {
        hash_of(self.key, 0, word)
    }
}
