//! Which of the trees in the store's directory is the store: one small file, replaced as a whole.
//!
//! # Format
//! Integers are little-endian.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `FRZSTORE` |
//! | 8 | 4 | version, 1 |
//! | 12 | 4 | CRC32C of bytes 16..24 |
//! | 16 | 8 | number of the tree: its directory is `versions-NUMBER` |

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use frieze_base::{Fault, Reason, crc32c};
use frieze_disk::{DIRECTORY_MODE, FILE_MODE};

const MAGIC: [u8; 8] = *b"FRZSTORE";
const VERSION: u32 = 1;
const MANIFEST_BYTES: usize = 24;
const MANIFEST_FILE: &str = "store";
const UNFINISHED_FILE: &str = "store.unfinished";
const TREE_PREFIX: &str = "versions-";
/// What a tree begins with, and has from then on.
const TREE_ROOT_FILE: &str = "current";

/// The directory of a tree.
pub(super) fn tree_directory(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{TREE_PREFIX}{number}"))
}

/// The number of the tree that is the store; `None` if the directory holds no store yet.
///
/// # Errors
/// `Corrupt`: the manifest is damaged, or the tree that it names is missing. `WrongVersion`: the directory is of an
/// older build. The system's.
pub(super) fn read(directory: &Path) -> Result<Option<u64>, Fault> {
    let path = directory.join(MANIFEST_FILE);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return check_is_new(directory).map(|()| None);
        }
        Err(error) => return Err(failed("reading", &path, &error)),
    };
    let damaged = |what: &str| {
        let words = format!(
            "{} is damaged ({what}): restore the file from a copy; the trees beside it are as they were",
            path.display()
        );
        Fault::new(Reason::Corrupt, words)
    };
    let field = bytes.get(16..MANIFEST_BYTES).and_then(|field| field.try_into().ok()).map(u64::from_le_bytes);
    let number = field.ok_or_else(|| damaged("it is cut off"))?;
    if bytes != encode(number) {
        return Err(damaged("its checksum, or a version of another build"));
    }
    let root = tree_directory(directory, number).join(TREE_ROOT_FILE);
    match root.try_exists() {
        Ok(true) => Ok(Some(number)),
        Ok(false) => {
            let words =
                format!("{} is missing, which {} names: versions of names are lost", root.display(), path.display());
            Err(Fault::new(Reason::Corrupt, words))
        }
        Err(error) => Err(failed("looking for", &root, &error)),
    }
}

/// Refuses a directory without a manifest that holds anything but what a first start makes before it.
fn check_is_new(directory: &Path) -> Result<(), Fault> {
    for name in names(directory)? {
        if name == UNFINISHED_FILE {
            continue;
        }
        let tables = match name.strip_prefix(TREE_PREFIX) {
            Some(_) => names(&directory.join(&name).join("tables"))?,
            None => {
                let words = format!(
                    "{} holds {name}, which no store of this build has: it is of an older build. Formats changed \
                     before the first release; begin with an empty directory",
                    directory.display()
                );
                return Err(Fault::new(Reason::WrongVersion, words));
            }
        };
        if !tables.is_empty() {
            let words = format!(
                "{} is missing, and {name} beside it holds tables: restore the file from a copy",
                directory.join(MANIFEST_FILE).display()
            );
            return Err(Fault::new(Reason::Corrupt, words));
        }
    }
    Ok(())
}

/// Makes `number` the number of the store's tree, durably and at once.
///
/// # Errors
/// The system's: the one before counts.
pub(super) fn write(directory: &Path, number: u64) -> Result<(), Fault> {
    let (path, unfinished) = (directory.join(MANIFEST_FILE), directory.join(UNFINISHED_FILE));
    let write = || -> io::Result<()> {
        let mut file = File::options().write(true).create(true).truncate(true).mode(FILE_MODE).open(&unfinished)?;
        file.write_all(&encode(number))?;
        file.sync_all()?;
        fs::rename(&unfinished, &path)?;
        File::open(directory)?.sync_all()
    };
    write().map_err(|error| failed("writing", &path, &error))
}

/// Makes the directory of a store.
///
/// # Errors
/// The system's.
pub(super) fn make_directory(directory: &Path) -> Result<(), Fault> {
    let make = || {
        fs::DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory)?;
        directory
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .map_or(Ok(()), |parent| File::open(parent)?.sync_all())
    };
    make().map_err(|error| failed("making", directory, &error))
}

/// Removes all trees but one: those that were received in part, and those that another has taken the place of.
///
/// # Errors
/// The system's.
pub(super) fn remove_other_trees(directory: &Path, number: u64) -> Result<(), Fault> {
    let kept = tree_directory(directory, number);
    for name in names(directory)?.iter().filter(|name| name.starts_with(TREE_PREFIX)) {
        let path = directory.join(name);
        if path != kept {
            fs::remove_dir_all(&path).map_err(|error| failed("removing", &path, &error))?;
        }
    }
    Ok(())
}

fn names(directory: &Path) -> Result<Vec<String>, Fault> {
    let list = || -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(directory)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        Ok(names)
    };
    match list() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed.map_err(|error| failed("listing", directory, &error)),
    }
}

fn failed(doing: &str, path: &Path, error: &io::Error) -> Fault {
    let reason = match error.kind() {
        io::ErrorKind::StorageFull => Reason::NoSpace,
        _ => Reason::InputOutput,
    };
    Fault::new(reason, format!("the namespace's store failed while {doing} {}: {error}", path.display()))
}

fn encode(number: u64) -> Vec<u8> {
    let number = number.to_le_bytes();
    [&MAGIC[..], &VERSION.to_le_bytes(), &crc32c(&number).to_le_bytes(), &number].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(directory: &Path, number: u64) {
        let tree = tree_directory(directory, number);
        fs::create_dir_all(tree.join("tables")).expect("makes it");
        fs::write(tree.join(TREE_ROOT_FILE), b"root").expect("writes");
    }

    #[test]
    fn golden_bytes_of_the_manifest() {
        assert_eq!(encode(7), *b"FRZSTORE\x01\0\0\0\x8e\xb7\x71\x76\x07\0\0\0\0\0\0\0");
    }

    #[test]
    fn every_damaged_byte_of_the_manifest_is_noticed() {
        let directory = tempfile::tempdir().expect("a directory");
        made(directory.path(), 3);
        write(directory.path(), 3).expect("writes");
        assert_eq!(read(directory.path()), Ok(Some(3)));
        let path = directory.path().join(MANIFEST_FILE);
        let whole = fs::read(&path).expect("reads");
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            fs::write(&path, &bytes).expect("writes");
            let fault = read(directory.path()).expect_err("damage");
            assert!(fault.reason == Reason::Corrupt && fault.message.contains("store is damaged"), "{fault}");
            fs::write(&path, &whole[..at]).expect("writes");
            assert_eq!(read(directory.path()).expect_err("damage").reason, Reason::Corrupt);
        }
    }

    #[test]
    fn a_store_without_its_manifest_or_its_tree_is_refused_and_one_that_never_began_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = directory.path();
        assert_eq!(read(&at.join("none")), Ok(None));
        made(at, 1);
        assert_eq!(read(at), Ok(None), "the first start ended before the manifest");
        fs::write(tree_directory(at, 1).join("tables/0"), b"table").expect("writes");
        let fault = read(at).expect_err("tables that nothing names");
        assert!(fault.reason == Reason::Corrupt && fault.message.contains("store is missing"), "{fault}");
        write(at, 2).expect("writes");
        let fault = read(at).expect_err("the tree is missing");
        assert!(fault.reason == Reason::Corrupt && fault.message.contains("versions-2/current is missing"), "{fault}");
    }

    #[test]
    fn a_directory_of_an_older_build_is_refused_in_words() {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("0.jnl"), b"journal").expect("writes");
        let fault = read(directory.path()).expect_err("older");
        assert_eq!(fault.reason, Reason::WrongVersion);
        assert!(fault.message.contains("holds 0.jnl") && fault.message.contains("older build"), "{fault}");
    }
}
