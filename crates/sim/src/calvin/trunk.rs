//! The trunk of the small file system: directories, and the trunk phase of each change.

use std::collections::{BTreeMap, BTreeSet};

use frieze_calvin::{KeyAccess, Position, Slot, SlotPart, TrunkPart, TxnKey, TxnPlan};

use super::breakage::CalvinBreak;
use super::op::{Answer, Body, ChangePath, ExpectedTree, Ino, Name, TreeOp};
use super::slots::Fact;
use super::versions::VersionedMap;

/// A name in a directory.
pub(super) type DirectoryName = (Ino, Name);

/// The directories of a server.
#[derive(Clone, Debug, Default)]
pub(super) struct Trunk {
    pub(super) names: VersionedMap<DirectoryName, Ino>,
    /// Where each lies, and whether it is open to walks.
    pub(super) directories: VersionedMap<Ino, (Ino, bool)>,
    pub(super) given: VersionedMap<Option<Slot>, u64>,
}

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
    /// The directory, its name, and what is to be in it.
    RemoveTree(Ino, DirectoryName, ExpectedTree),
    /// The directory, from where, to where, and the directory that it replaces.
    MoveDirectory(Ino, DirectoryName, DirectoryName, Option<Ino>),
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
}

/// A trunk phase that met a parked key.
pub(super) struct Parked(pub(super) TxnKey);

/// Why a trunk phase ends early.
enum Stop {
    Parked(TxnKey),
    Answer(Answer),
}

/// What a key is of.
#[derive(Clone, Copy, Debug)]
enum KeyOf {
    /// A name that a directory may have.
    Name(DirectoryName),
    Directory(Ino),
    /// A name that a file may have.
    FileName(DirectoryName),
    /// The files of a directory.
    Content(Ino),
    Inode(Ino),
}

impl KeyOf {
    fn key(self) -> TxnKey {
        let (kind, ino, name) = match self {
            KeyOf::Name((ino, name)) => (1, ino, name),
            KeyOf::Directory(ino) => (2, ino, 0),
            KeyOf::FileName((ino, name)) => (3, ino, name),
            KeyOf::Content(ino) => (4, ino, 0),
            KeyOf::Inode(ino) => (5, ino, 0),
        };
        let mixed = (ino.0 ^ u64::from(name) << 56 ^ kind << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // Few bits: some keys are equal by chance.
        TxnKey(mixed >> 48)
    }
}

/// A directory that a broken server does not have: its state shows that.
const UNKNOWN: (Ino, bool) = (Ino::ROOT, true);
/// Directories above each other. More are a loop, which only a broken server makes.
const DEPTH_MAX: usize = 1000;

const X: KeyAccess = KeyAccess::Exclusive;
const S: KeyAccess = KeyAccess::Shared;

/// Collects the parts of a plan.
#[derive(Default)]
struct PlanDraft {
    slots: BTreeMap<Slot, DraftPart>,
    trunk: Option<Vec<(KeyOf, KeyAccess)>>,
}

#[derive(Default)]
struct DraftPart {
    keys: Vec<(KeyOf, KeyAccess)>,
    facts: BTreeSet<Fact>,
    /// It changes or answers something, so it has to know what the others say.
    acts: bool,
}

impl PlanDraft {
    /// A part that says something.
    fn asks(mut self, slot: Slot, keys: impl IntoIterator<Item = (KeyOf, KeyAccess)>, fact: Fact) -> PlanDraft {
        let part = self.slots.entry(slot).or_default();
        part.keys.extend(keys);
        part.facts.insert(fact);
        self
    }

    /// A part that changes or answers something.
    fn acts(mut self, slot: Slot, keys: impl IntoIterator<Item = (KeyOf, KeyAccess)>) -> PlanDraft {
        let part = self.slots.entry(slot).or_default();
        part.keys.extend(keys);
        part.acts = true;
        self
    }

    /// The part of an inode, if the front-end saw one.
    fn inode(self, ino: Option<Ino>) -> PlanDraft {
        match ino {
            Some(ino) => self.acts(ino.slot(), [(KeyOf::Inode(ino), X)]),
            None => self,
        }
    }

    fn trunk(mut self, keys: Vec<(KeyOf, KeyAccess)>) -> PlanDraft {
        self.trunk = Some(keys);
        self
    }

    fn finish(self, action: Action, breakage: Option<CalvinBreak>) -> PreparedChange {
        let asked: Vec<Slot> =
            self.slots.iter().filter(|(_, part)| !part.facts.is_empty()).map(|(slot, _)| *slot).collect();
        let is_whole = self.slots.len() == 1 && self.trunk.is_none();
        let counts = |(key, access): &(KeyOf, KeyAccess)| match breakage {
            Some(CalvinBreak::KeysForgotten) => false,
            Some(CalvinBreak::InodesUnkeyed) => !matches!(key, KeyOf::Inode(_)),
            Some(CalvinBreak::ContentUnkeyed) => !matches!(key, KeyOf::Content(_)),
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
        PreparedChange { action, plan, facts, acting }
    }
}

impl Trunk {
    /// A root and nothing in it, from the beginning.
    pub(super) fn new() -> Trunk {
        let mut trunk = Trunk::default();
        trunk.directories.set(Ino::ROOT, Position::default(), Some((Ino::ROOT, true)));
        trunk
    }

    /// Drops what is at or above a position.
    pub(super) fn cut(&mut self, at: Position) {
        self.names.cut(at);
        self.directories.cut(at);
        self.given.cut(at);
    }

    /// The trunk phase of a change.
    pub(super) fn prepare(
        &mut self,
        at: Position,
        body: &Body,
        is_parked: &dyn Fn(TxnKey, KeyAccess) -> bool,
        breakage: Option<CalvinBreak>,
    ) -> Result<PreparedChange, Parked> {
        let decided = |answer| PlanDraft::default().finish(Action::Decided(answer), breakage);
        let parked =
            |key: KeyOf, access| breakage != Some(CalvinBreak::ParkedUnchecked) && is_parked(key.key(), access);
        match self.try_prepare(at, body, &parked, breakage) {
            Ok((action, draft)) => Ok(draft.finish(action, breakage)),
            Err(Stop::Answer(answer)) => Ok(decided(answer)),
            Err(Stop::Parked(key)) => Err(Parked(key)),
        }
    }

    fn try_prepare(
        &mut self,
        at: Position,
        Body { op, expects, tree }: &Body,
        parked: &dyn Fn(KeyOf, KeyAccess) -> bool,
        breakage: Option<CalvinBreak>,
    ) -> Result<(Action, PlanDraft), Stop> {
        let phase = TrunkReads { trunk: self, parked };
        let draft = PlanDraft::default();
        let answer = |answer| Err(Stop::Answer(answer));
        let in_directory =
            |place: DirectoryName, access| [(KeyOf::FileName(place), access), (KeyOf::Content(place.0), S)];
        Ok(match op {
            TreeOp::Make(target) => {
                let place = phase.place(target)?;
                if phase.directory_at(place)?.is_some() {
                    return answer(Answer::Exists);
                }
                let slot = place.0.slot();
                let ino = Ino::file(slot, self.give(Some(slot), at));
                let keys = [(KeyOf::Inode(ino), X)].into_iter().chain(in_directory(place, X));
                (Action::Make(place, ino), draft.acts(slot, keys).asks(slot, [], Fact::Entry(place)))
            }
            TreeOp::Mkdir(target) => {
                let place = phase.place(target)?;
                phase.check_free(KeyOf::Name(place), X)?;
                if phase.directory_at(place)?.is_some() {
                    return answer(Answer::Exists);
                }
                let ino = Ino::directory(self.give(None, at));
                let keys = vec![(KeyOf::Name(place), X), (KeyOf::Directory(place.0), S), (KeyOf::Directory(ino), X)];
                let draft = draft.asks(place.0.slot(), [(KeyOf::FileName(place), S)], Fact::Entry(place));
                (Action::Mkdir(place, ino), draft.trunk(keys))
            }
            TreeOp::Rmdir(target) => {
                let place = phase.place(target)?;
                phase.check_free(KeyOf::Name(place), X)?;
                let Some(ino) = phase.directory_at(place)? else {
                    return Ok(no_directory(place, Answer::NotDirectory));
                };
                phase.check_free(KeyOf::Directory(ino), X)?;
                if self.has_directories(ino) {
                    return answer(Answer::NotEmpty);
                }
                let keys = vec![(KeyOf::Name(place), X), (KeyOf::Directory(ino), X), (KeyOf::Directory(place.0), S)];
                let draft = draft.asks(ino.slot(), [(KeyOf::Content(ino), X)], Fact::Count(ino));
                (Action::Rmdir(place, ino), draft.trunk(keys))
            }
            TreeOp::RemoveTree(target) => {
                let place = phase.place(target)?;
                phase.check_free(KeyOf::Name(place), X)?;
                let Some(ino) = phase.directory_at(place)? else {
                    return Ok(no_directory(place, Answer::NotDirectory));
                };
                return self.prepare_removal(ino, place, tree, parked);
            }
            TreeOp::Chmod(target, open) => {
                let place = phase.place(target)?;
                let Some(ino) = phase.directory_at(place)? else {
                    return Ok(no_directory(place, Answer::NotDirectory));
                };
                phase.check_free(KeyOf::Directory(ino), X)?;
                let (parent, _) = self.directories.newest(ino).unwrap_or(UNKNOWN);
                self.directories.set(ino, at, Some((parent, *open)));
                return answer(Answer::Ok(ino));
            }
            TreeOp::Unlink(target) | TreeOp::Set(target, _) => {
                let place = phase.place(target)?;
                if phase.directory_at(place)?.is_some() {
                    return answer(Answer::IsDirectory);
                }
                let slot = place.0.slot();
                let (action, keys) = match op {
                    TreeOp::Set(_, value) => {
                        (Action::Set(place, expects[0], *value), vec![(KeyOf::FileName(place), S)])
                    }
                    _ => (Action::Unlink(place, expects[0]), in_directory(place, X).to_vec()),
                };
                (action, draft.acts(slot, keys).asks(slot, [], Fact::Entry(place)).inode(expects[0]))
            }
            TreeOp::Link(from, to) => {
                let (from, to) = (phase.place(from)?, phase.place(to)?);
                if phase.directory_at(from)?.is_some() {
                    return answer(Answer::IsDirectory);
                }
                if phase.directory_at(to)?.is_some() {
                    return answer(Answer::Exists);
                }
                let mut draft = draft
                    .asks(from.0.slot(), [(KeyOf::FileName(from), S)], Fact::Entry(from))
                    .acts(to.0.slot(), in_directory(to, X))
                    .asks(to.0.slot(), [], Fact::Entry(to));
                if let Some(ino) = expects[0] {
                    draft = draft.inode(Some(ino)).asks(ino.slot(), [], Fact::Links(ino));
                }
                (Action::Link(from, to, expects[0]), draft)
            }
            TreeOp::Rename(from, to) => {
                let (from, to) = (phase.place(from)?, phase.place(to)?);
                match (phase.directory_at(from)?, phase.directory_at(to)?) {
                    (Some(moved), _) if from == to => return answer(Answer::Ok(moved)),
                    (Some(moved), replaced) => {
                        return self.prepare_move((moved, from, to, replaced), parked, breakage);
                    }
                    (None, Some(_)) => no_directory(from, Answer::IsDirectory),
                    (None, None) if from == to => {
                        let slot = from.0.slot();
                        let draft = draft.acts(slot, [(KeyOf::FileName(from), S)]).asks(slot, [], Fact::Entry(from));
                        (Action::Stay(from), draft)
                    }
                    (None, None) => {
                        let draft = draft
                            .acts(from.0.slot(), in_directory(from, X))
                            .asks(from.0.slot(), [], Fact::Entry(from))
                            .acts(to.0.slot(), in_directory(to, X))
                            .asks(to.0.slot(), [], Fact::Entry(to));
                        (Action::MoveFile(from, to, *expects), draft.inode(expects[0]).inode(expects[1]))
                    }
                }
            }
        })
    }

    fn prepare_removal(
        &self,
        top: Ino,
        place: DirectoryName,
        tree: &ExpectedTree,
        parked: &dyn Fn(KeyOf, KeyAccess) -> bool,
    ) -> Result<(Action, PlanDraft), Stop> {
        let phase = TrunkReads { trunk: self, parked };
        let (mut keys, mut found) = (vec![(KeyOf::Directory(place.0), S)], BTreeSet::new());
        let mut todo = vec![(place, top)];
        while let Some((name, directory)) = todo.pop() {
            phase.check_free(KeyOf::Name(name), X)?;
            phase.check_free(KeyOf::Directory(directory), X)?;
            keys.extend([(KeyOf::Name(name), X), (KeyOf::Directory(directory), X)]);
            found.insert(directory);
            todo.extend(self.names.all().filter(|((parent, _), _)| *parent == directory));
        }
        if !found.iter().eq(tree.keys()) {
            return Err(Stop::Answer(Answer::Superseded));
        }
        let mut draft = PlanDraft::default();
        for (directory, files) in tree {
            draft = draft.acts(directory.slot(), [(KeyOf::Content(*directory), X)]).asks(
                directory.slot(),
                [],
                Fact::Names(*directory),
            );
            for (name, file) in files {
                draft = draft.acts(directory.slot(), [(KeyOf::FileName((*directory, *name)), X)]).inode(Some(*file));
            }
        }
        Ok((Action::RemoveTree(top, place, tree.clone()), draft.trunk(keys)))
    }

    fn prepare_move(
        &self,
        (moved, from, to, replaced): (Ino, DirectoryName, DirectoryName, Option<Ino>),
        parked: &dyn Fn(KeyOf, KeyAccess) -> bool,
        breakage: Option<CalvinBreak>,
    ) -> Result<(Action, PlanDraft), Stop> {
        let phase = TrunkReads { trunk: self, parked };
        for key in [KeyOf::Name(from), KeyOf::Name(to), KeyOf::Directory(moved)] {
            phase.check_free(key, X)?;
        }
        if phase.above(to.0)?.contains(&moved) {
            return Err(Stop::Answer(Answer::Loop));
        }
        // A directory above the new place that moved below this one meanwhile would make a loop of both. Its trunk
        // phase climbs over this one and meets its key, so those above need none.
        let mut keys = vec![(KeyOf::Name(from), X), (KeyOf::Name(to), X)];
        keys.extend([(KeyOf::Directory(from.0), S), (KeyOf::Directory(to.0), S)]);
        if breakage != Some(CalvinBreak::MovedUnkeyed) {
            keys.push((KeyOf::Directory(moved), X));
        }
        let draft = match replaced {
            Some(replaced) => {
                if phase.above(from.0)?.contains(&replaced) {
                    return Err(Stop::Answer(Answer::NotEmpty));
                }
                phase.check_free(KeyOf::Directory(replaced), X)?;
                if self.has_directories(replaced) {
                    return Err(Stop::Answer(Answer::NotEmpty));
                }
                keys.push((KeyOf::Directory(replaced), X));
                PlanDraft::default().asks(replaced.slot(), [(KeyOf::Content(replaced), X)], Fact::Count(replaced))
            }
            None => PlanDraft::default().asks(to.0.slot(), [(KeyOf::FileName(to), S)], Fact::Entry(to)),
        };
        Ok((Action::MoveDirectory(moved, from, to, replaced), draft.trunk(keys)))
    }

    /// Makes the change of a trunk part.
    pub(super) fn apply(&mut self, at: Position, action: &Action) {
        match *action {
            Action::Mkdir(place, ino) => {
                self.names.set(place, at, Some(ino));
                self.directories.set(ino, at, Some((place.0, true)));
            }
            Action::Rmdir(place, ino) => {
                self.names.set(place, at, None);
                self.directories.set(ino, at, None);
            }
            Action::RemoveTree(_, place, ref tree) => {
                let below = self.names.all().filter(|((parent, _), _)| tree.contains_key(parent));
                let below: Vec<DirectoryName> = below.map(|(name, _)| name).chain([place]).collect();
                below.into_iter().for_each(|name| self.names.set(name, at, None));
                tree.keys().for_each(|directory| self.directories.set(*directory, at, None));
            }
            Action::MoveDirectory(moved, from, to, replaced) => {
                if let Some(replaced) = replaced {
                    self.directories.set(replaced, at, None);
                }
                self.names.set(from, at, None);
                self.names.set(to, at, Some(moved));
                let (_, open) = self.directories.newest(moved).unwrap_or(UNKNOWN);
                self.directories.set(moved, at, Some((to.0, open)));
            }
            _ => unreachable!("{action:?} changes no directory"),
        }
    }

    /// The number after the last one given.
    pub(super) fn give(&mut self, slot: Option<Slot>, at: Position) -> u64 {
        let given = self.given.newest(slot).unwrap_or_default() + 1;
        self.given.set(slot, at, Some(given));
        given
    }

    fn has_directories(&self, directory: Ino) -> bool {
        self.names.all().any(|((parent, _), _)| parent == directory)
    }

    /// The place of a target, whatever is parked.
    pub(super) fn look(&self, target: &ChangePath) -> Option<DirectoryName> {
        TrunkReads { trunk: self, parked: &|_, _| false }.place(target).ok()
    }
}

fn no_directory(place: DirectoryName, answer: Answer) -> (Action, PlanDraft) {
    let slot = place.0.slot();
    let draft = PlanDraft::default().acts(slot, [(KeyOf::FileName(place), S)]).asks(slot, [], Fact::Entry(place));
    (Action::NoDirectory(place, answer), draft)
}

/// Reads of a trunk phase: each looks whether its key is parked.
struct TrunkReads<'a> {
    trunk: &'a Trunk,
    parked: &'a dyn Fn(KeyOf, KeyAccess) -> bool,
}

impl TrunkReads<'_> {
    fn check_free(&self, key: KeyOf, access: KeyAccess) -> Result<(), Stop> {
        if (self.parked)(key, access) { Err(Stop::Parked(key.key())) } else { Ok(()) }
    }

    fn directory(&self, ino: Ino) -> Result<(Ino, bool), Stop> {
        self.check_free(KeyOf::Directory(ino), S)?;
        self.trunk.directories.newest(ino).ok_or(Stop::Answer(Answer::NotFound))
    }

    fn directory_at(&self, place: DirectoryName) -> Result<Option<Ino>, Stop> {
        self.check_free(KeyOf::Name(place), S)?;
        Ok(self.trunk.names.newest(place))
    }

    fn check_open(&self, ino: Ino) -> Result<Ino, Stop> {
        let (parent, open) = self.directory(ino)?;
        if open { Ok(parent) } else { Err(Stop::Answer(Answer::Denied)) }
    }

    fn place(&self, target: &ChangePath) -> Result<DirectoryName, Stop> {
        for above in self.above(target.base)? {
            self.check_open(above)?;
        }
        let mut directory = target.base;
        for name in &target.way {
            directory = self.directory_at((directory, *name))?.ok_or(Stop::Answer(Answer::NotFound))?;
            self.check_open(directory)?;
        }
        Ok((directory, target.name))
    }

    /// The directory and all above it.
    fn above(&self, mut directory: Ino) -> Result<Vec<Ino>, Stop> {
        let mut found = vec![directory];
        while directory != Ino::ROOT {
            if found.len() > DEPTH_MAX {
                return Err(Stop::Answer(Answer::Loop));
            }
            directory = self.directory(directory)?.0;
            found.push(directory);
        }
        Ok(found)
    }
}
