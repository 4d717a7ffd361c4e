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

/// The fault of the tree in the directory `tree`. A damaged file is named by `find_damaged`, as far as that can be
/// found.
pub(super) fn fault(doing: &str, tree: &Path, error: &Error, find_damaged: impl FnOnce() -> Option<PathBuf>) -> Fault {
    let (reason, place) = match error {
        Error::Io(cause) if cause.kind() == io::ErrorKind::StorageFull => (Reason::NoSpace, None),
        Error::Io(cause) if cause.kind() == io::ErrorKind::UnexpectedEof => (Reason::Corrupt, find_damaged()),
        Error::Io(_) => (Reason::InputOutput, None),
        _ => (Reason::Corrupt, find_damaged()),
    };
    let cause = cause_of(error);
    let words = match (place, reason) {
        (Some(path), _) => format!(
            "the namespace's store failed while {doing}: {} is damaged ({cause}): restore the file from a copy",
            path.display()
        ),
        (None, Reason::NoSpace) => format!(
            "the namespace's store failed while {doing} in {}: {cause}: free space on the disk, or enlarge it; the \
             store tries again",
            tree.display()
        ),
        (None, Reason::InputOutput) => format!(
            "the namespace's store failed while {doing} in {}: {cause}: check the disk (dmesg, SMART) and the rights \
             on the directory",
            tree.display()
        ),
        (None, _) => format!(
            "the namespace's store failed while {doing}: a file in {} is damaged ({cause}), and a check of the \
             tables does not find which: start the server again; if that fails, restore the directory from a copy",
            tree.display()
        ),
    };
    Fault::new(reason, words)
}

/// What is wrong, in words: those of the library are for its authors.
fn cause_of(error: &Error) -> String {
    match error {
        Error::Io(cause) => cause.to_string(),
        Error::ChecksumMismatch { .. } => "a block fails its checksum".to_owned(),
        Error::Decompress(_) => "a block cannot be decompressed".to_owned(),
        Error::InvalidVersion(version) => format!("it has format version {version}, of another build"),
        Error::Unrecoverable => "a file that it names is missing or not readable".to_owned(),
        Error::InvalidTag((what, _)) => format!("a field has no known value: {what}"),
        Error::InvalidTrailer => "the end of a block is malformed".to_owned(),
        Error::InvalidHeader(what) => format!("the header of a block is malformed: {what}"),
        Error::Utf8(_) => "a name in it is no text".to_owned(),
        _ => "it cannot be read".to_owned(),
    }
}

/// A system's error about a file of the store in the directory `tree`.
pub(super) fn system_fault(doing: &str, tree: &Path, error: io::Error) -> Fault {
    fault(doing, tree, &Error::Io(error), || None)
}

/// Checks the list of tables against its checksum. A tree that is opened with a damaged list may take tables for left
/// over, and remove them.
///
/// # Errors
/// `Corrupt`, naming the file; the system's.
pub(super) fn check_root(tree: &Path) -> Result<(), Fault> {
    let path = tree.join(ROOT_FILE);
    let root = fs::read(&path).map_err(|error| system_fault("opening", tree, error))?;
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
        Err(error) => Err(system_fault("opening", tree, error)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_says_what_failed_on_which_file_and_what_to_do() {
        let tree = Path::new("/data/namespace/versions-1");
        let kinds = [
            (Error::Io(io::ErrorKind::StorageFull.into()), None, Reason::NoSpace, "free space"),
            (Error::Io(io::ErrorKind::PermissionDenied.into()), None, Reason::InputOutput, "check the disk"),
            (Error::Unrecoverable, None, Reason::Corrupt, "restore the directory"),
            (Error::InvalidTrailer, Some(table_path(tree, 7)), Reason::Corrupt, "/tables/7 is damaged"),
            (Error::InvalidTag(("BlockType", 9)), Some(table_path(tree, 7)), Reason::Corrupt, "restore the file"),
        ];
        for (error, place, reason, remedy) in kinds {
            let found = fault("reading", tree, &error, || place);
            assert_eq!(found.reason, reason, "{found}");
            let words = &found.message;
            assert!(words.contains("while reading") && words.contains("/data/namespace/versions-1"), "{words}");
            assert!(words.contains(remedy) && !words.contains("LsmTreeError"), "{words}");
        }
    }
}
