//! Staged parts of edits: what a front-end found below a directory, kept where nothing sees it until the commit.
//!
//! The trunk has a record of each part: which directories and slots it names. A slot has what concerns it: the names
//! in its directories, and its inodes that lose a name. Both are written in the trunk phase of the stage, so the trunk
//! phase of the commit finds every part, and each server takes the keys of its own slots from what these keep.

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::SessionId;
use frieze_calvin::Slot;

use super::op::{Ino, Name};

/// An edit: its number within its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EditId {
    pub(super) session: SessionId,
    pub(super) number: u64,
}

/// A part of an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StageId {
    pub(super) edit: EditId,
    pub(super) part: u32,
}

/// Names of a directory, both ends inclusive: what a part looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NameRange {
    pub(super) directory: Ino,
    pub(super) from: Name,
    pub(super) to: Name,
}

/// What was there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StagedRange {
    pub(super) directory: Ino,
    /// The directory was open to walks.
    pub(super) open: bool,
    pub(super) files: BTreeMap<Name, Ino>,
}

/// What the trunk knows of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StageRecord {
    pub(super) directories: BTreeSet<(Ino, bool)>,
    /// Those of the directories and of the inodes.
    pub(super) slots: BTreeSet<Slot>,
}

impl StageRecord {
    pub(super) fn of(part: &[StagedRange]) -> StageRecord {
        let slots = |range: &StagedRange| {
            let inodes: Vec<Slot> = range.files.values().map(|ino| ino.slot()).collect();
            inodes.into_iter().chain([range.directory.slot()])
        };
        StageRecord {
            directories: part.iter().map(|range| (range.directory, range.open)).collect(),
            slots: part.iter().flat_map(slots).collect(),
        }
    }
}

/// What a slot keeps of a part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SlotStage {
    /// Its directories, with names or without.
    pub(super) directories: BTreeSet<Ino>,
    /// Names in them. A name that two ranges have is there twice, and then the commit finds that there is
    /// another number of names.
    pub(super) names: Vec<(Ino, Name, Ino)>,
    /// Its inodes, once for each name.
    pub(super) inodes: Vec<Ino>,
}

impl SlotStage {
    pub(super) fn of(part: &[StagedRange], slot: Slot) -> SlotStage {
        let mut stage = SlotStage::default();
        for StagedRange { directory, files, .. } in part {
            if directory.slot() == slot {
                stage.directories.insert(*directory);
                stage.names.extend(files.iter().map(|(name, ino)| (*directory, *name, *ino)));
            }
            stage.inodes.extend(files.values().filter(|ino| ino.slot() == slot));
        }
        stage
    }

    /// This part and another one.
    pub(super) fn join(mut self, other: SlotStage) -> SlotStage {
        self.directories.extend(other.directories);
        self.names.extend(other.names);
        self.inodes.extend(other.inodes);
        self
    }
}

/// What a trunk phase does to stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum StageChange {
    #[default]
    Nothing,
    Keep(StageId),
    Drop(EditId),
    DropAll(SessionId),
}

impl StageChange {
    /// True if it drops a stage.
    pub(super) fn drops(self, stage: StageId) -> bool {
        match self {
            StageChange::Nothing | StageChange::Keep(_) => false,
            StageChange::Drop(edit) => edit == stage.edit,
            StageChange::DropAll(session) => session == stage.edit.session,
        }
    }
}
