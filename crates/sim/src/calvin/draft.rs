//! The plan of a change, as its trunk phase puts it together: parts, keys, and what slots are asked.

use std::collections::{BTreeMap, BTreeSet};

use frieze_calvin::{KeyAccess, ShardId, Slot, SlotPart, TrunkPart, TxnKey, TxnPlan};

use super::breakage::CalvinBreak;
use super::facts::Fact;
use super::op::{Answer, DirectoryName, Ino};
use super::rooms::{RoomPlan, slot_of};
use super::stages::{EditId, SlotStage, StageChange};

/// What a trunk phase found a change to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// The trunk alone has decided, and made the change.
    Decided(Answer),
    Make(DirectoryName, Ino),
    Mkdir(DirectoryName, Ino),
    Rmdir(DirectoryName, Ino),
    /// No directory has this name: this answer if a file has it, else that it is not there.
    NoDirectory(DirectoryName, Answer),
    Unlink(DirectoryName, Option<Ino>),
    Set(DirectoryName, Option<Ino>, u64),
    Link(DirectoryName, DirectoryName, Option<Ino>),
    MoveFile(DirectoryName, DirectoryName, [Option<Ino>; 2]),
    /// A file that keeps its name.
    Stay(DirectoryName),
    /// The directory, its name, and all directories that go with it.
    RemoveTree(EditId, Ino, DirectoryName, BTreeSet<Ino>),
    /// The directory, it and all directories below, and their mode.
    ChmodTree(EditId, Ino, BTreeSet<Ino>, bool),
    /// The directory, from where, to where, and the directory that it replaces.
    MoveDirectory(Ino, DirectoryName, DirectoryName, Option<Ino>),
    /// The directory, and its limit.
    Limit(Ino, Option<u64>),
}

/// The result of a trunk phase.
#[derive(Clone, Debug)]
pub(super) struct PreparedChange {
    pub(super) action: Action,
    pub(super) plan: TxnPlan,
    /// What each slot is asked.
    pub(super) facts: BTreeMap<Slot, BTreeSet<Fact>>,
    /// Slots whose parts change or answer something.
    pub(super) acting: BTreeSet<Slot>,
    /// What it does to limits.
    pub(super) rooms: RoomPlan,
    /// What it did to stages.
    pub(super) stages: StageChange,
}

/// What a key is of.
#[derive(Clone, Copy, Debug)]
pub(super) enum KeyOf {
    /// A name that a directory may have.
    Name(DirectoryName),
    Directory(Ino),
    /// A name that a file may have.
    FileName(DirectoryName),
    /// The files of a directory.
    Content(Ino),
    Inode(Ino),
    /// What a shard has of a limit.
    Room(Ino),
}

impl KeyOf {
    pub(super) fn key(self) -> TxnKey {
        let (kind, ino, name) = match self {
            KeyOf::Name((ino, name)) => (1, ino, name),
            KeyOf::Directory(ino) => (2, ino, 0),
            KeyOf::FileName((ino, name)) => (3, ino, name),
            KeyOf::Content(ino) => (4, ino, 0),
            KeyOf::Inode(ino) => (5, ino, 0),
            KeyOf::Room(ino) => (6, ino, 0),
        };
        let mixed = (ino.0 ^ u64::from(name) << 56 ^ kind << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // Few bits: some keys are equal by chance.
        TxnKey(mixed >> 48)
    }
}

pub(super) const X: KeyAccess = KeyAccess::Exclusive;
pub(super) const S: KeyAccess = KeyAccess::Shared;

/// Collects the parts of a plan.
#[derive(Default)]
pub(super) struct PlanDraft {
    slots: BTreeMap<Slot, DraftPart>,
    trunk: Option<Vec<(KeyOf, KeyAccess)>>,
    rooms: RoomPlan,
}

#[derive(Default)]
struct DraftPart {
    keys: Vec<(KeyOf, KeyAccess)>,
    facts: BTreeSet<Fact>,
    /// It changes or answers something, so it has to know what the others say.
    acts: bool,
}

impl PlanDraft {
    /// Of so many shards.
    pub(super) fn of(shards: u16) -> PlanDraft {
        PlanDraft { rooms: RoomPlan { shards, ..RoomPlan::default() }, ..PlanDraft::default() }
    }

    /// A part that says something.
    pub(super) fn asks(
        mut self,
        slot: Slot,
        keys: impl IntoIterator<Item = (KeyOf, KeyAccess)>,
        fact: Fact,
    ) -> PlanDraft {
        let part = self.slots.entry(slot).or_default();
        part.keys.extend(keys);
        part.facts.insert(fact);
        self
    }

    /// A part that changes or answers something.
    pub(super) fn acts(mut self, slot: Slot, keys: impl IntoIterator<Item = (KeyOf, KeyAccess)>) -> PlanDraft {
        let part = self.slots.entry(slot).or_default();
        part.keys.extend(keys);
        part.acts = true;
        self
    }

    /// The part of an inode, if the front-end saw one.
    pub(super) fn inode(self, ino: Option<Ino>) -> PlanDraft {
        match ino {
            Some(ino) => self.acts(ino.slot(), [(KeyOf::Inode(ino), X)]),
            None => self,
        }
    }

    /// The part of a slot in an edit: its directories that the edit has, and what was staged there.
    pub(super) fn edit(
        mut self,
        slot: Slot,
        edit: EditId,
        directories: &BTreeSet<Ino>,
        stage: &SlotStage,
    ) -> PlanDraft {
        let part = self.slots.entry(slot).or_default();
        part.acts = true;
        let here: Vec<Ino> = directories.iter().copied().filter(|directory| directory.slot() == slot).collect();
        if !here.is_empty() {
            part.facts.insert(Fact::Staged(edit, slot));
        }
        part.keys.extend(here.into_iter().map(|directory| (KeyOf::Content(directory), X)));
        // Names need none: a change of one has a key of its directory's content, or comes over the directory's own.
        part.keys.extend(stage.inodes.iter().map(|ino| (KeyOf::Inode(*ino), X)));
        self
    }

    /// Names of a directory come or go: the part of its slot counts them for limits.
    pub(super) fn counts(mut self, directory: Ino, limits: &BTreeMap<Ino, u64>) -> PlanDraft {
        let part = self.slots.entry(directory.slot()).or_default();
        part.keys.extend(limits.keys().map(|limit| (KeyOf::Room(*limit), S)));
        self.rooms.above.insert(directory, limits.keys().copied().collect());
        self
    }

    /// A directory gets names, below limits that count them for the first time: its shard needs room, or all shards
    /// say what they have.
    pub(super) fn needs_room(mut self, directory: Ino, limits: BTreeMap<Ino, u64>, gathers: bool) -> PlanDraft {
        let shards = self.rooms.shards;
        let first = ShardId::of(directory.slot(), shards);
        // One shard has all the room there is, and knows when it is used up.
        let gathers = gathers || shards == 1;
        for shard in (0..shards).map(ShardId).filter(|shard| gathers || *shard == first) {
            for limit in limits.keys() {
                let slot = slot_of(shard, directory, shards);
                self = self.acts(slot, [(KeyOf::Room(*limit), X)]).asks(slot, [], Fact::Room(*limit, shard));
            }
        }
        self.rooms = RoomPlan { needs: limits, first, gathers, ..self.rooms };
        self
    }

    /// Directories come below limits, or leave them, with all their files.
    pub(super) fn weighs(mut self, directories: BTreeSet<Ino>, loses: &BTreeMap<Ino, u64>) -> PlanDraft {
        for directory in &directories {
            let keys = loses.keys().map(|limit| (KeyOf::Room(*limit), S)).chain([(KeyOf::Content(*directory), X)]);
            self = self.acts(directory.slot(), keys).asks(directory.slot(), [], Fact::Count(*directory));
        }
        self.rooms.weighed = directories;
        self.loses(loses)
    }

    /// The limits above a tree that goes.
    pub(super) fn loses(mut self, limits: &BTreeMap<Ino, u64>) -> PlanDraft {
        self.rooms.loses = limits.keys().copied().collect();
        self
    }

    pub(super) fn trunk(mut self, keys: Vec<(KeyOf, KeyAccess)>) -> PlanDraft {
        self.trunk = Some(keys);
        self
    }

    pub(super) fn finish(self, action: Action, breakage: Option<CalvinBreak>) -> PreparedChange {
        let asked: Vec<Slot> =
            self.slots.iter().filter(|(_, part)| !part.facts.is_empty()).map(|(slot, _)| *slot).collect();
        let is_whole = self.slots.len() == 1 && self.trunk.is_none();
        let counts = |(key, access): &(KeyOf, KeyAccess)| match breakage {
            Some(CalvinBreak::KeysForgotten) => false,
            Some(CalvinBreak::InodesUnkeyed) => !matches!(key, KeyOf::Inode(_)),
            Some(CalvinBreak::ContentUnkeyed) => !matches!(key, KeyOf::Content(_)),
            Some(CalvinBreak::RoomUnkeyed) => !matches!(key, KeyOf::Room(_)),
            Some(CalvinBreak::ParentsUnkeyed) => !matches!(key, KeyOf::Directory(_)) || *access == X,
            _ => true,
        };
        let keyed = |keys: &[(KeyOf, KeyAccess)]| {
            keys.iter().filter(|key| counts(key)).map(|(key, access)| (key.key(), *access)).collect::<Vec<_>>()
        };
        let slots = self.slots.iter().map(|(slot, part)| SlotPart {
            slot: *slot,
            keys: keyed(&part.keys),
            gives: !is_whole && !part.facts.is_empty(),
            needs: if part.acts { asked.iter().copied().filter(|other| other != slot).collect() } else { Vec::new() },
        });
        let trunk = self.trunk.as_ref().map(|keys| TrunkPart { keys: keyed(keys), needs: asked.clone() });
        let plan = TxnPlan { slots: slots.collect(), trunk, ends: None };
        let acting = self.slots.iter().filter(|(_, part)| part.acts).map(|(slot, _)| *slot).collect();
        let facts = self.slots.into_iter().map(|(slot, part)| (slot, part.facts)).collect();
        PreparedChange { action, plan, facts, acting, rooms: self.rooms, stages: StageChange::Nothing }
    }
}
