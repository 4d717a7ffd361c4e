//! Checks everything that is stored, as `frieze fsck` reports it.
//!
//! Guarantees: every stored byte is read and compared as a scrub does, every version of every name and inode is read,
//! and names, inodes and records are compared with each other. Leaves to others: opening the directory, repair.

use std::time::Duration;

use frieze_base::Fault;
use frieze_hlc::Hlc;
use frieze_namespace::CheckCounts;
use frieze_wire::scrub::ScrubReply;

use super::Upkeep;

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
    /// Adds the notes of the recovery that came before: after a crash a start correctly reports torn ends and lost
    /// intervals.
    pub fn note_recovery(&mut self, notes: &[String]) {
        for note in notes {
            match ["corrupt", "damaged", "missing"].iter().any(|word| note.contains(word)) {
                true => self.add(note.clone()),
                false => self.notes.push(note.clone()),
            }
        }
    }

    /// Number of findings.
    pub fn found(&self) -> u64 {
        self.wrong.len() as u64 + self.wrong_more + self.scrub.damaged
    }

    /// Adds a finding.
    pub fn add(&mut self, words: impl Into<String>) {
        match self.wrong.len() < WRONG_MAX {
            true => self.wrong.push(words.into()),
            false => self.wrong_more += 1,
        }
    }
}

/// How far a check is: bytes of the device looked at, and to look at.
pub type CheckProgress<'a> = dyn Fn(u64, u64) + 'a;

impl Upkeep {
    /// Compares all that is stored here: bytes as a scrub does, then every version of names and inodes with each other
    /// and with the records.
    ///
    /// # Cost
    /// Reads everything stored.
    pub fn check_up(&self, checkup: &mut Checkup, progress: &CheckProgress<'_>) {
        // Before the scrub, which rebuilds them.
        match self.planes.data.device().damaged_index_runs() {
            Ok(damaged) => damaged.iter().for_each(|key| {
                checkup.add(format!(
                    "the index of segments {key} is damaged: a server makes it anew from their footers when it needs it"
                ));
            }),
            Err(fault) => checkup.add(format!("the index of old segments cannot be read: {}", fault.message)),
        }
        self.planes.data.device().damaged_pack_copies().into_iter().for_each(|words| checkup.add(words));
        // From before the check: a reader that met a device's error, for instance.
        self.planes.data.device().take_image_damage();
        let goes_on = |_: Duration| {
            let done = self.scrub.summary().done_bytes;
            progress(done.unwrap_or(0), self.stored_bytes());
            true
        };
        match self.scrub_everything(NO_RATE, &goes_on) {
            Ok(reply) => checkup.scrub = reply,
            Err(fault) => checkup.add(format!("stored bytes could not be looked at: {}", fault.message)),
        }
        // The scrub dropped damaged images, in its view of the directory.
        self.planes.data.device().take_image_damage().into_iter().for_each(|words| checkup.add(words));
        let mut wrong = Vec::new();
        let mut more = 0;
        let mut report = |words: String| match wrong.len() < WRONG_MAX {
            true => wrong.push(words),
            false => more += 1,
        };
        match self.planes.meta.history().check(Hlc::MAX, &mut report) {
            Ok(counts) => checkup.counts = counts,
            Err(fault) => report(format!("names and inodes cannot be read: {}", fault.message)),
        }
        if let Err(fault) = self.check_records(&mut report) {
            report(format!("records cannot be compared with inodes: {}", fault.message));
        }
        wrong.into_iter().for_each(|words| checkup.add(words));
        checkup.wrong_more += more;
    }

    /// Every file that has records must have existed.
    fn check_records(&self, report: &mut dyn FnMut(String)) -> Result<(), Fault> {
        let (files, _) = self.planes.data.device().log().files_with_records(Hlc::ZERO, Hlc::MAX);
        let history = self.planes.meta.history();
        for id in files {
            if !history.has_inode(id)? {
                report(format!("there are writes to inode {id}, which there never was"));
            }
        }
        Ok(())
    }
}
