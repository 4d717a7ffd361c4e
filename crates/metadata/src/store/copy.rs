//! The store of names of a data directory that no server uses, or that a server is about to use.
//!
//! Guarantees: opening a copy changes nothing in the directory, and what fails is named as in the directory.
//! Leaves to others: the lock that keeps servers out (`disk`).

use std::path::{Path, PathBuf};

use frieze_base::{Fault, Reason};
use frieze_disk::{Disk, TreeCopy};
use frieze_storage::Identity;

use super::lsm::LsmStore;
use super::version_store::VersionStore;

/// Directory of the store of names within the data directory.
pub const STORE_DIRECTORY: &str = "namespace";
/// Memory for a store of which a copy is opened.
const COPY_BYTES: u64 = 96 << 20;

/// Refuses a data directory without its store of names.
///
/// # Errors
/// `Corrupt`: put the store back. The disk's.
pub fn check_store(disk: &dyn Disk, dir: &Path) -> Result<(), Fault> {
    let store = dir.join(STORE_DIRECTORY);
    // The store is made before the identity.
    let is_used = Identity::load(disk)?.is_some();
    let is_empty = std::fs::read_dir(&store).is_ok_and(|mut entries| entries.next().is_none());
    match is_used && (is_empty || !store.exists()) {
        false => Ok(()),
        true => Err(Fault::new(
            Reason::Corrupt,
            format!(
                "{}, the directory of the store of names, is missing or empty: put it back from a backup. Without it \
                 the names of the files cannot be read",
                store.display()
            ),
        )),
    }
}

/// A copy of the small files of the store of names of a data directory; tables are those of the directory. Removed when
/// dropped.
#[derive(Debug)]
pub struct StoreCopy {
    copy: TreeCopy,
    original: PathBuf,
}

impl StoreCopy {
    /// Copies the store of names of the data directory `dir`.
    ///
    /// # Errors
    /// The system's: there is no room where temporary files are kept, for instance.
    pub fn of(dir: &Path) -> Result<StoreCopy, Fault> {
        let original = dir.join(STORE_DIRECTORY);
        // Tables are written once; the store may change its other files when it is opened.
        let is_table = |path: &Path| path.parent().is_some_and(|above| above.ends_with("tables"));
        Ok(StoreCopy { copy: TreeCopy::of(&original, &is_table)?, original })
    }

    /// Opens the copy and gives it to `begin`.
    ///
    /// # Errors
    /// As [`LsmStore::open`]; those of `begin`. Both name files of the original.
    pub fn open<T>(&self, begin: impl FnOnce(Box<dyn VersionStore>) -> Result<T, Fault>) -> Result<T, Fault> {
        let opened = LsmStore::open(self.copy.path(), COPY_BYTES).and_then(|store| begin(Box::new(store)));
        opened.map_err(|fault| Fault::new(fault.reason, self.original_words(&fault.message)))
    }

    /// Words about files of the copy, as words about those of the original.
    pub fn original_words(&self, words: &str) -> String {
        words.replace(&*self.copy.path().to_string_lossy(), &self.original.to_string_lossy())
    }
}
