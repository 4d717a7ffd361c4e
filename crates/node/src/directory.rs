//! Checks of the data directory: that it belongs to a server, and that only its owner can look into it.
//!
//! Guarantees: a directory that holds other things is refused before the server writes into it; if an older server made
//! it with wider modes, its owner alone can open it once this server serves. Leaves to others: its contents
//! (`identity`, `device`, `store`), the lock that keeps other processes out (`disk`).

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use frieze_base::{Fault, Reason};
use frieze_disk::{DIRECTORY_MODE, StateFile, tighten};
use frieze_metadata::STORE_DIRECTORY;
use frieze_storage::STATE_FILE;

/// What a file system makes in its root.
const OF_FILE_SYSTEM: &str = "lost+found";
/// What a server makes first.
const LOCK_FILE: &str = "lock";
/// What may be beside the lock file if the record of the directory was not written, or cannot be read any more.
const BESIDE_LOCK: [&str; 6] = [LOCK_FILE, ".making", "joining", "socket", STORE_DIRECTORY, STATE_FILE];
/// What only a server makes: with these and without the record the directory is damaged, which opening it reports.
const OF_LOGS: [&str; 4] = ["seg-", "meta-", "raft-", "checkpoint-"];

/// Makes sure that `dir` is empty, or missing, or a data directory.
///
/// # Errors
/// `InvalidArgument` naming what else is in it; nothing has been written.
pub(crate) fn check(dir: &Path) -> Result<(), Fault> {
    let cannot = |error: io::Error| {
        Fault::new(Reason::InputOutput, format!("cannot look into the data directory {}: {error}", dir.display()))
    };
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(cannot)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry.map_err(cannot)?.file_name().to_string_lossy().into_owned());
    }
    names.retain(|name| name != OF_FILE_SYSTEM);
    names.sort();
    if is_state(&dir.join(STATE_FILE)).map_err(cannot)? {
        return Ok(());
    }
    let was_begun = names.iter().any(|name| name == LOCK_FILE);
    if was_begun && names.iter().any(|name| OF_LOGS.iter().any(|of| name.starts_with(of))) {
        return Ok(());
    }
    match names.iter().find(|name| !(was_begun && BESIDE_LOCK.contains(&name.as_str()))) {
        None => Ok(()),
        Some(other) => Err(Fault::new(
            Reason::InvalidArgument,
            format!(
                "refusing to serve {}: it is neither empty nor a data directory of frieze, for it holds {other:?}; \
                 give --dir an empty directory, or one that does not exist",
                dir.display()
            ),
        )),
    }
}

/// True if a file is the record of a server, or a record whose space alone was reserved when its server was stopped.
fn is_state(path: &Path) -> io::Result<bool> {
    let of = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        of => of?,
    };
    if !of.is_file() {
        return Ok(false);
    }
    let file = File::open(path)?;
    let mut begins = [[0; StateFile::MAGIC.len()]; 2];
    for (slot, begins) in (0..).zip(&mut begins) {
        if let Err(error) = file.read_exact_at(begins, slot * (of.size() / 2))
            && error.kind() != ErrorKind::UnexpectedEof
        {
            return Err(error);
        }
    }
    Ok(begins.contains(&StateFile::MAGIC) || begins == [[0; 4]; 2])
}

/// Removes the rights of other users from everything in the data directory, and makes the directory of the store of
/// names, for its owner alone, before the store makes files in it.
///
/// # Errors
/// `InputOutput` naming the file.
pub(crate) fn make_private(dir: &Path) -> Result<(), Fault> {
    let store = dir.join(STORE_DIRECTORY);
    match private(&mut fs::DirBuilder::new()).create(&store) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(Fault::new(Reason::InputOutput, format!("cannot make {}: {error}", store.display())));
        }
        _ => {}
    }
    let count = tighten(dir)?;
    if count > 0 {
        tracing::warn!("{count} files and directories in {} could be read by others: not any more", dir.display());
    }
    Ok(())
}

fn private(builder: &mut fs::DirBuilder) -> &mut fs::DirBuilder {
    use std::os::unix::fs::DirBuilderExt;
    builder.mode(DIRECTORY_MODE)
}

#[cfg(test)]
mod tests {
    use frieze_disk::{Disk, FileDisk, FileDiskSettings};

    use super::*;

    fn refused(names: &[(&str, &[u8])]) -> Option<String> {
        let place = tempfile::tempdir().unwrap();
        for (name, bytes) in names {
            match name.strip_suffix('/') {
                Some(directory) => fs::create_dir(place.path().join(directory)).unwrap(),
                None => fs::write(place.path().join(name), bytes).unwrap(),
            }
        }
        check(place.path()).err().map(|fault| fault.message)
    }

    #[test]
    fn only_an_empty_directory_or_a_servers_own_is_served() {
        let none: &[u8] = &[];
        for fine in [
            &[][..],
            &[("lost+found/", none)],
            &[("lock", b"17\n")],
            &[("lock", none), ("namespace/", none), (".making", none), ("lost+found/", none)],
            &[("lock", none), ("joining", b"x")],
            &[("lock", none), ("state", &[0; 8192])],
            // Opening the directory reports what is missing.
            &[("lock", none), ("seg-0", none), ("namespace.left/", none)],
            &[("lock", none), ("checkpoint-0000000000000007", none)],
            &[("state", b"FRZS"), ("notes.txt", none)],
        ] {
            assert_eq!(refused(fine), None, "{fine:?}");
        }
        for (names, word) in [
            (&[("thesis.tex", none)][..], "thesis.tex"),
            (&[("lost+found/", none), (".bashrc", none)], ".bashrc"),
            (&[("lock", none), ("thesis.tex", none)], "thesis.tex"),
            (&[("namespace/", none)], "namespace"),
            (&[("state", b"of affairs")], "state"),
            (&[("state/", none)], "state"),
        ] {
            let words = refused(names).unwrap_or_default();
            assert!(words.contains("neither empty nor a data directory") && words.contains(word), "{names:?}: {words}");
        }
        assert!(check(Path::new("/nowhere/at/all")).is_ok(), "it is made, or said to be nowhere, later");
    }

    #[test]
    fn a_directory_whose_record_was_made_is_a_servers() {
        let place = tempfile::tempdir().unwrap();
        let disk = FileDisk::open(place.path(), FileDiskSettings::default()).unwrap();
        let state = StateFile::open_or_create(&disk, STATE_FILE).unwrap();
        disk.create("seg-1", 10).unwrap();
        assert_eq!(check(place.path()), Ok(()));
        state.write(b"x").unwrap();
        assert_eq!(check(place.path()), Ok(()));
    }
}
