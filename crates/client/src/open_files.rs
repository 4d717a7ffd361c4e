//! The files that the client has open, so that the server knows which ones `forget` must spare.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use frieze_base::InodeId;

/// Files listed in one request for recalls. With more open, none are listed, and the server assumes that all it knows
/// are open.
const LISTED_MAX: usize = 4096;

/// Files that are open in the present, not at an instant.
#[derive(Debug, Default)]
pub(crate) struct OpenFileList(Mutex<OpenFileTable>);

#[derive(Debug, Default)]
struct OpenFileTable {
    /// Number of handles of each file, and its capability.
    files: BTreeMap<InodeId, (usize, Vec<u8>)>,
    /// Opens in flight.
    opening: usize,
    /// Number of the last list.
    lists: u64,
}

/// An open in flight. Dropping it ends it.
pub(crate) struct PendingOpen<'a>(&'a OpenFileList);

impl OpenFileList {
    /// Begins an open, which ends after [`OpenFileList::add`].
    pub(crate) fn begin(&self) -> PendingOpen<'_> {
        self.lock().opening += 1;
        PendingOpen(self)
    }

    /// Adds a handle of a file.
    pub(crate) fn add(&self, inode: InodeId, capability: &[u8]) {
        let mut table = self.lock();
        let (handles, proof) = table.files.entry(inode).or_default();
        *handles += 1;
        *proof = capability.to_vec();
    }

    /// Removes a handle of a file.
    pub(crate) fn remove(&self, inode: InodeId) {
        let mut table = self.lock();
        let Some((handles, _)) = table.files.get_mut(&inode) else { return };
        *handles -= 1;
        if *handles == 0 {
            table.files.remove(&inode);
        }
    }

    /// All open files, under a number that rises; 0 and none while an open is in flight, or if there are too many.
    pub(crate) fn list(&self) -> (u64, Vec<u64>) {
        let mut table = self.lock();
        if table.opening > 0 || table.files.len() > LISTED_MAX {
            return (0, Vec::new());
        }
        table.lists += 1;
        (table.lists, table.files.keys().map(|inode| inode.0).collect())
    }

    /// The capability of each open file.
    pub(crate) fn capabilities(&self) -> Vec<Vec<u8>> {
        self.lock().files.values().map(|(_, proof)| proof.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, OpenFileTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PendingOpen<'_> {
    fn drop(&mut self) {
        self.0.lock().opening -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_holds_every_open_file_and_is_made_while_none_is_being_opened() {
        let files = OpenFileList::default();
        let opening = files.begin();
        files.add(InodeId(7), b"proof");
        assert_eq!(files.list(), (0, Vec::new()));
        drop(opening);
        files.add(InodeId(7), b"proof");
        files.remove(InodeId(7));
        assert_eq!(files.list(), (1, vec![7]));
        assert_eq!(files.capabilities(), [b"proof"]);
        files.remove(InodeId(7));
        assert_eq!(files.list(), (2, Vec::new()));
    }
}
