//! The files of a tree, where one of them fails: which file it is, and what it is called in an error.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use frieze_base::{Fault, Reason};
use lsm_tree::checksum::ChecksummedWriter;
use lsm_tree::{Cache, Checksum, Error, Table};

const TABLES: &str = "tables";
const ROOT_FILE: &str = "current";
/// Number of the list of tables, its checksum, and the kind of that.
const ROOT_BYTES: usize = 25;

/// The file of a table.
pub(super) fn table_path(tree: &Path, id: u64) -> PathBuf {
    tree.join(TABLES).join(id.to_string())
}

/// The fault of a tree. A damaged file is named by `find_damaged`, as far as that can be found.
pub(super) fn fault(doing: &str, error: &Error, find_damaged: impl FnOnce() -> Option<PathBuf>) -> Fault {
    let (reason, place) = match error {
        Error::Io(cause) if cause.kind() == io::ErrorKind::StorageFull => (Reason::NoSpace, None),
        Error::Io(cause) if cause.kind() == io::ErrorKind::UnexpectedEof => (Reason::Corrupt, find_damaged()),
        Error::Io(_) => (Reason::InputOutput, None),
        _ => (Reason::Corrupt, find_damaged()),
    };
    let words = match place {
        None => format!("the namespace's store failed while {doing}: {error}"),
        Some(path) => format!(
            "the namespace's store failed while {doing}: {} is damaged ({error}): restore the file from a copy",
            path.display()
        ),
    };
    Fault::new(reason, words)
}

/// A system's error about a file of the store.
pub(super) fn system_fault(doing: &str, error: io::Error) -> Fault {
    fault(doing, &Error::Io(error), || None)
}

/// Checks the list of tables against its checksum. A tree that is opened with a damaged list may take tables for left
/// over, and remove them.
///
/// # Errors
/// `Corrupt`, naming the file; the system's.
pub(super) fn check_root(tree: &Path) -> Result<(), Fault> {
    let path = tree.join(ROOT_FILE);
    let root = fs::read(&path).map_err(|error| system_fault("opening", error))?;
    let damaged = |what: &str| {
        let words =
            format!("the namespace's store failed while opening: {what} is damaged: restore the file from a copy");
        Fault::new(Reason::Corrupt, words)
    };
    let fields: [u8; ROOT_BYTES] = root.as_slice().try_into().map_err(|_| damaged(&path.display().to_string()))?;
    let (number, rest) = fields.split_first_chunk::<8>().ok_or_else(|| damaged(&path.display().to_string()))?;
    let expected = rest.first_chunk::<16>().map(|bytes| Checksum::from_raw(u128::from_le_bytes(*bytes)));
    let list = tree.join(format!("v{}", u64::from_le_bytes(*number)));
    match checksum(&list) {
        Ok(found) if Some(found) == expected => Ok(()),
        // Its checksum is in the other.
        Ok(_) => Err(damaged(&format!("{} or {}", list.display(), path.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(damaged(&path.display().to_string())),
        Err(error) => Err(system_fault("opening", error)),
    }
}

/// The number of the list of tables that the next start reads.
pub(super) fn root_number(tree: &Path) -> Option<u64> {
    let root = fs::read(tree.join(ROOT_FILE)).ok()?;
    root.first_chunk().map(|number| u64::from_le_bytes(*number))
}

/// The first of these tables whose file does not have its checksum. Reads all of them.
pub(super) fn damaged_of(tree: &Path, tables: impl Iterator<Item = (u64, Checksum)>) -> Option<PathBuf> {
    tables.map(|(id, expected)| (table_path(tree, id), expected)).find_map(|(path, expected)| {
        let is_whole = checksum(&path).is_ok_and(|found| found == expected);
        (!is_whole).then_some(path)
    })
}

/// The first table of a tree that cannot be opened.
pub(super) fn unreadable(tree: &Path) -> Option<PathBuf> {
    let cache = Arc::new(Cache::with_capacity_bytes(0));
    let mut files: Vec<PathBuf> = fs::read_dir(tree.join(TABLES)).ok()?.flatten().map(|entry| entry.path()).collect();
    files.sort();
    files.into_iter().find(|path| {
        Table::recover(path.clone(), Checksum::from_raw(0), 0, 0, cache.clone(), None, false, true).is_err()
    })
}

fn checksum(path: &Path) -> io::Result<Checksum> {
    let mut writer = ChecksummedWriter::new(io::sink());
    io::copy(&mut File::open(path)?, &mut writer)?;
    Ok(writer.checksum())
}
