//! Which files the client has open, so that the server knows what a forgetting must leave.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use frieze_base::InodeId;

/// Files told with one question for recalls; beyond, none are, and the server goes on believing that all it knows are open.
const TOLD_MAX: usize = 4096;

/// Files that are open now, not at an instant.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// Handles of each file, and what proves that it was opened.
    files: BTreeMap<InodeId, (usize, Vec<u8>)>,
    /// Opens on their way.
    opening: usize,
    /// Number of the last list.
    lists: u64,
}

/// An open on its way.
pub(crate) struct Opening<'a>(&'a OpenFiles);

impl OpenFiles {
    /// An open begins; it ends when the answer is dropped, after [`OpenFiles::add`].
    pub(crate) fn begin(&self) -> Opening<'_> {
        self.lock().opening += 1;
        Opening(self)
    }

    /// One more handle of a file.
    pub(crate) fn add(&self, inode: InodeId, capability: &[u8]) {
        let mut table = self.lock();
        let (handles, proof) = table.files.entry(inode).or_default();
        *handles += 1;
        *proof = capability.to_vec();
    }

    /// One less.
    pub(crate) fn remove(&self, inode: InodeId) {
        let mut table = self.lock();
        let Some((handles, _)) = table.files.get_mut(&inode) else { return };
        *handles -= 1;
        if *handles == 0 {
            table.files.remove(&inode);
        }
    }

    /// All that is open, under a number that rises; 0 and nothing while that is not sure, or too much.
    pub(crate) fn list(&self) -> (u64, Vec<u64>) {
        let mut table = self.lock();
        if table.opening > 0 || table.files.len() > TOLD_MAX {
            return (0, Vec::new());
        }
        table.lists += 1;
        (table.lists, table.files.keys().map(|inode| inode.0).collect())
    }

    /// What proves of each file that it was opened.
    pub(crate) fn proofs(&self) -> Vec<Vec<u8>> {
        self.lock().files.values().map(|(_, proof)| proof.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.0.lock().opening -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_holds_every_open_file_and_is_made_while_none_is_being_opened() {
        let files = OpenFiles::default();
        let opening = files.begin();
        files.add(InodeId(7), b"proof");
        assert_eq!(files.list(), (0, Vec::new()));
        drop(opening);
        files.add(InodeId(7), b"proof");
        files.remove(InodeId(7));
        assert_eq!(files.list(), (1, vec![7]));
        assert_eq!(files.proofs(), [b"proof"]);
        files.remove(InodeId(7));
        assert_eq!(files.list(), (2, Vec::new()));
    }
}
