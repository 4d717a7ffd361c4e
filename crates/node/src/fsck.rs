//! Checks a data directory that no server uses.
//!
//! Guarantees: nothing in the directory changes; no server starts on it meanwhile. The check runs a server's start on a
//! view of the directory, in memory. Then it reads every byte stored and compares it as a scrub does, reads every
//! version of every name and inode, and compares names, inodes and records with each other. Leaves to others: repair.
//! There is one copy; a server serves its undamaged part as it is.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use frieze_base::Fault;
use frieze_disk::{MachineTime, TimeSource, ViewDisk};
use frieze_hlc::Hlc;
use frieze_namespace::CheckCounts;
use frieze_storage::Identity;
use frieze_wire::scrub::ScrubReply;

use crate::offline;
use crate::parts::ServerParts;

/// Findings that are listed; the others are only counted.
const WRONG_MAX: usize = 1000;
/// Faster than any device.
const NO_RATE: u64 = 1 << 40;

/// What a check has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkup {
    /// What is wrong, a sentence each, at most 1,000.
    pub wrong: Vec<String>,
    /// Number of findings beyond those.
    pub wrong_more: u64,
    /// Damaged places of the stored bytes, by file where one is known; nothing if the logs could not be read at all.
    pub scrub: ScrubReply,
    /// Notes that a server would print at its start; none of them is an error by itself.
    pub notes: Vec<String>,
    /// Numbers of names and inodes.
    pub counts: CheckCounts,
}

impl Checkup {
    /// Number of findings.
    pub fn found(&self) -> u64 {
        self.wrong.len() as u64 + self.wrong_more + self.scrub.damaged
    }

    fn add(&mut self, words: impl Into<String>) {
        match self.wrong.len() < WRONG_MAX {
            true => self.wrong.push(words.into()),
            false => self.wrong_more += 1,
        }
    }
}

/// How far a check is: bytes of the device looked at, and to look at.
pub type CheckProgress<'a> = dyn Fn(u64, u64) + 'a;

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
    let mut copy = offline::copy_of_store(dir)?;
    let time: Arc<dyn TimeSource> = Arc::new(MachineTime::new());
    let open = |disk, store, damaged| offline::open(Arc::new(disk), store, time.clone(), damaged);
    let opened = offline::open_store(copy.path()).and_then(|store| open(disk, store, false));
    let parts = match opened {
        Ok(parts) => parts,
        Err(fault) => {
            checkup.add(format!("a server refuses to start: {}", fault.message));
            // The rest may still show where the damage is. The view is new: earlier attempts have no effect on it.
            let disk = view()?;
            copy = offline::copy_of_store(dir)?;
            match offline::open_store(copy.path()).and_then(|store| open(disk, store, true)) {
                Ok(parts) => parts,
                Err(fault) => {
                    checkup.add(format!("what is left cannot be served either: {}", fault.message));
                    return Ok(checkup);
                }
            }
        }
    };
    check_engine(&parts, &mut checkup, progress);
    drop(parts);
    drop(copy);
    Ok(checkup)
}

impl ServerParts {
    /// As [`fsck`], for the data of this parts, while it serves no client: for tests of simulated machines.
    pub fn check_up(&self) -> Checkup {
        let mut checkup = Checkup::default();
        check_engine(self, &mut checkup, &|_, _| ());
        checkup
    }
}

fn check_engine(parts: &ServerParts, checkup: &mut Checkup, progress: &CheckProgress<'_>) {
    for note in parts.notes() {
        // After a crash a start correctly reports torn ends and lost intervals.
        match ["corrupt", "damaged", "missing"].iter().any(|word| note.contains(word)) {
            true => checkup.add(note.clone()),
            false => checkup.notes.push(note.clone()),
        }
    }
    // Before the scrub, which rebuilds them.
    match parts.planes.data.device().damaged_index_runs() {
        Ok(damaged) => damaged.iter().for_each(|key| {
            checkup.add(format!(
                "the index of segments {key} is damaged: a server makes it anew from their footers when it needs it"
            ));
        }),
        Err(fault) => checkup.add(format!("the index of old segments cannot be read: {}", fault.message)),
    }
    // From before the check: a reader that met a device's error, for instance.
    parts.planes.data.device().take_image_damage();
    let goes_on = |_: Duration| {
        let done = parts.service.upkeep.scrub.summary().done_bytes;
        progress(done.unwrap_or(0), parts.service.upkeep.stored_bytes());
        true
    };
    match parts.service.upkeep.scrub_everything(NO_RATE, &goes_on) {
        Ok(reply) => checkup.scrub = reply,
        Err(fault) => checkup.add(format!("stored bytes could not be looked at: {}", fault.message)),
    }
    // The scrub dropped damaged images, in its view of the directory.
    parts.planes.data.device().take_image_damage().into_iter().for_each(|words| checkup.add(words));
    let mut wrong = Vec::new();
    let mut more = 0;
    let mut tell = |words: String| match wrong.len() < WRONG_MAX {
        true => wrong.push(words),
        false => more += 1,
    };
    match parts.planes.meta.history().check(Hlc::MAX, &mut tell) {
        Ok(counts) => checkup.counts = counts,
        Err(fault) => tell(format!("names and inodes cannot be read: {}", fault.message)),
    }
    if let Err(fault) = check_records(parts, &mut tell) {
        tell(format!("records cannot be compared with inodes: {}", fault.message));
    }
    wrong.into_iter().for_each(|words| checkup.add(words));
    checkup.wrong_more += more;
}

/// Every file that has records must have existed.
fn check_records(parts: &ServerParts, tell: &mut dyn FnMut(String)) -> Result<(), Fault> {
    let (files, _) = parts.planes.data.device().log().files_with_records(Hlc::ZERO, Hlc::MAX);
    let history = parts.planes.meta.history();
    for id in files {
        if !history.has_inode(id)? {
            tell(format!("there are writes to inode {id}, which there never was"));
        }
    }
    Ok(())
}
