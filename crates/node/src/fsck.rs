//! Checks a data directory that no server uses.
//!
//! Guarantees: nothing in the directory changes; no server starts on it meanwhile. The check runs a server's start on a
//! view of the directory, in memory. Then it reads every byte stored and compares it as a scrub does, reads every
//! version of every name and inode, and compares names, inodes and records with each other. Leaves to others: repair.
//! There is one copy; a server serves its undamaged part as it is.

use std::path::Path;
use std::sync::Arc;

use frieze_base::Fault;
use frieze_disk::{MachineTime, TimeSource, ViewDisk};
use frieze_metadata::{StoreCopy, check_store};
use frieze_service::{CheckProgress, Checkup};
use frieze_storage::Identity;

use crate::offline;
use crate::parts::ServerParts;

/// Checks the data directory `dir`.
///
/// # Errors
/// What kept it from being checked: it is in use (`Busy`), it is not there or not a data directory (`NotFound`), it may
/// not be read, or there is no room for a copy of the small parts of the store of names where temporary files are kept.
///
/// # Cost
/// Reads everything stored. Memory as a server has it after its start.
pub fn fsck(dir: &Path, progress: &CheckProgress<'_>) -> Result<Checkup, Fault> {
    let view = || ViewDisk::open(dir).map_err(Fault::from);
    let disk = view()?;
    offline::check_is_one(&disk, dir)?;
    let mut checkup = Checkup::default();
    match Identity::load(&disk) {
        Ok(Some(_)) => {}
        Ok(None) => {
            checkup.notes.push("the directory was made and never used".to_owned());
            return Ok(checkup);
        }
        Err(fault) => {
            checkup.add(fault.message);
            return Ok(checkup);
        }
    }
    if let Err(fault) = check_store(&disk, dir) {
        checkup.add(format!("a server refuses to start: {}", fault.message));
        return Ok(checkup);
    }
    let mut copy = StoreCopy::of(dir)?;
    let time: Arc<dyn TimeSource> = Arc::new(MachineTime::new());
    let open = |disk, copy: &StoreCopy, damaged| {
        copy.open(|store| offline::open(Arc::new(disk), store, time.clone(), damaged))
    };
    let parts = match open(disk, &copy, false) {
        Ok(parts) => parts,
        Err(refused) => {
            checkup.add(format!("a server refuses to start: {}", refused.message));
            // The rest may still show where the damage is. The view is new: earlier attempts have no effect on it.
            let disk = view()?;
            copy = StoreCopy::of(dir)?;
            match open(disk, &copy, true) {
                Ok(parts) => parts,
                // One finding, not two: the same keeps what is left from being served.
                Err(fault) if fault.message == refused.message => return Ok(checkup),
                Err(fault) => {
                    checkup.add(format!("what is left cannot be served either: {}", fault.message));
                    return Ok(checkup);
                }
            }
        }
    };
    checkup.note_recovery(parts.notes());
    parts.service.upkeep.check_up(&mut checkup, progress);
    drop(parts);
    for words in checkup.wrong.iter_mut().chain(&mut checkup.notes) {
        *words = copy.original_words(words);
    }
    drop(copy);
    Ok(checkup)
}

impl ServerParts {
    /// As [`fsck`], for the data of these parts, while they serve no client: for tests of simulated machines.
    pub fn check_up(&self) -> Checkup {
        let mut checkup = Checkup::default();
        checkup.note_recovery(self.notes());
        self.service.upkeep.check_up(&mut checkup, &|_, _| ());
        checkup
    }
}
