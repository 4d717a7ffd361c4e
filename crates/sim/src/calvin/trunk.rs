//! The trunk of the small file system: directories, and the trunk phase of each change.

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::SessionId;
use frieze_calvin::{KeyAccess, Position, Slot, TxnKey};

use super::breakage::CalvinBreak;
use super::draft::{Action, KeyOf, PlanDraft, PreparedChange, S, X};
use super::facts::Fact;
use super::op::{Answer, Body, ChangePath, DirectoryName, EditChange, Ino, TreeOp, TreeSettings};
use super::slots::SlotFiles;
use super::stages::{EditId, SlotStage, StageChange, StageId, StageRecord};
use super::versions::VersionedMap;

/// The directories of a server.
#[derive(Clone, Debug, Default)]
pub(super) struct Trunk {
    pub(super) names: VersionedMap<DirectoryName, Ino>,
    /// Where each lies, and whether it is open to walks.
    pub(super) directories: VersionedMap<Ino, (Ino, bool)>,
    pub(super) given: VersionedMap<Option<Slot>, u64>,
    /// Sessions that have ended. The others are there from the beginning.
    pub(super) ended: VersionedMap<SessionId, ()>,
    /// Limits of the files below directories.
    pub(super) limits: VersionedMap<Ino, u64>,
    /// The parts of edits that are not committed.
    pub(super) stages: VersionedMap<StageId, StageRecord>,
    settings: TreeSettings,
}

/// A trunk phase that met a parked key.
pub(super) struct Parked(pub(super) TxnKey);

/// Why a trunk phase ends early.
enum Stop {
    Parked(TxnKey),
    Answer(Answer),
}

/// A directory that a broken server does not have: its state shows that.
const UNKNOWN: (Ino, bool) = (Ino::ROOT, true);
/// Directories above each other. More are a loop, which only a broken server makes.
const DEPTH_MAX: usize = 1000;

impl Trunk {
    /// A root and nothing in it, from the beginning.
    pub(super) fn new(settings: TreeSettings) -> Trunk {
        let mut trunk = Trunk { settings, ..Trunk::default() };
        trunk.directories.set(Ino::ROOT, Position::default(), Some((Ino::ROOT, true)));
        trunk
    }

    /// Drops what is at or above a position.
    pub(super) fn cut(&mut self, at: Position) {
        self.names.cut(at);
        self.directories.cut(at);
        self.given.cut(at);
        self.ended.cut(at);
        self.limits.cut(at);
        self.stages.cut(at);
    }

    /// The trunk phase of a change; `files` for what this server's slots have of a staged edit.
    pub(super) fn prepare(
        &mut self,
        at: Position,
        body: &Body,
        files: &SlotFiles,
        is_parked: &dyn Fn(TxnKey, KeyAccess) -> bool,
        breakage: Option<CalvinBreak>,
    ) -> Result<PreparedChange, Parked> {
        let parked =
            |key: KeyOf, access| breakage != Some(CalvinBreak::ParkedUnchecked) && is_parked(key.key(), access);
        let decided = |answer| (Action::Decided(answer), PlanDraft::default());
        let (action, draft) = match self.try_prepare(at, body, files, &parked, breakage) {
            Ok(found) => found,
            Err(Stop::Answer(answer)) => decided(answer),
            Err(Stop::Parked(key)) => return Err(Parked(key)),
        };
        let mut prepared = draft.finish(action, breakage);
        let answer = if let Action::Decided(answer) = prepared.action { Some(answer) } else { None };
        if answer == Some(Answer::UnknownSession) || answer == Some(Answer::Done) && body.op == TreeOp::EndSession {
            prepared.plan.ends = Some(body.session);
        }
        prepared.stages = self.change_stages(at, body, answer, breakage);
        Ok(prepared)
    }

    /// Keeps or drops stages, as the answer says, if the trunk has decided it. A commit drops its edit whatever its
    /// answer is, but if there are stages yet to come.
    fn change_stages(
        &mut self,
        at: Position,
        body: &Body,
        answer: Option<Answer>,
        breakage: Option<CalvinBreak>,
    ) -> StageChange {
        let change = match (&body.op, answer) {
            (_, Some(Answer::UnknownSession)) => StageChange::Nothing,
            (TreeOp::Stage(edit, part, _), Some(Answer::Done)) => {
                StageChange::Keep(StageId { edit: *edit, part: *part })
            }
            (TreeOp::Commit(..), Some(Answer::StagesMissing)) => StageChange::Nothing,
            (TreeOp::Commit(..), _) if breakage == Some(CalvinBreak::StagesOutliveCommit) => StageChange::Nothing,
            (TreeOp::Commit(edit, ..) | TreeOp::DropEdit(edit), _) => StageChange::Drop(*edit),
            (TreeOp::EndSession, _) if breakage == Some(CalvinBreak::StagesOutliveSession) => StageChange::Nothing,
            (TreeOp::EndSession, _) => StageChange::DropAll(body.session),
            _ => StageChange::Nothing,
        };
        if let StageChange::Keep(stage) = change {
            self.stages.set(stage, at, Some(StageRecord::of(&body.part)));
        }
        let dropped = self.stages.all().map(|(stage, _)| stage).filter(|stage| change.drops(*stage));
        for stage in dropped.collect::<Vec<_>>() {
            self.stages.set(stage, at, None);
        }
        change
    }

    fn try_prepare(
        &mut self,
        at: Position,
        Body { session, op, expects, gathers, .. }: &Body,
        files: &SlotFiles,
        parked: &dyn Fn(KeyOf, KeyAccess) -> bool,
        breakage: Option<CalvinBreak>,
    ) -> Result<(Action, PlanDraft), Stop> {
        let phase = TrunkReads { trunk: self, parked };
        let draft = PlanDraft::of(self.settings.shards);
        let answer = |answer| Err(Stop::Answer(answer));
        if self.ended.newest(*session).is_some() && breakage != Some(CalvinBreak::EndedSessionRuns) {
            return answer(Answer::UnknownSession);
        }
        let in_directory =
            |place: DirectoryName, access| [(KeyOf::FileName(place), access), (KeyOf::Content(place.0), S)];
        Ok(match op {
            TreeOp::Make(target) => {
                let place = phase.place(target)?;
                if phase.directory_at(place)?.is_some() {
                    return answer(Answer::Exists);
                }
                let slot = place.0.slot();
                let Some(number) = self.give_file(slot, at, breakage) else {
                    return answer(Answer::NumbersUsedUp);
                };
                let ino = Ino::file(slot, number);
                let keys = [(KeyOf::Inode(ino), X)].into_iter().chain(in_directory(place, X));
                let limits = self.limits_above(place.0);
                let draft = draft.acts(slot, keys).asks(slot, [], Fact::Entry(place)).counts(place.0, &limits);
                (Action::Make(place, ino), draft.needs_room(place.0, limits, *gathers))
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
            TreeOp::Limit(target, limit) => {
                let place = phase.place(target)?;
                let Some(ino) = phase.directory_at(place)? else {
                    return Ok(no_directory(place, Answer::NotDirectory));
                };
                return self.prepare_limit(ino, *limit, parked, breakage);
            }
            TreeOp::Stage(edit, part, _) => return answer(self.stage(StageId { edit: *edit, part: *part })),
            TreeOp::Commit(edit, parts, change) => {
                let records = self.records(*edit);
                let is_there = records.iter().map(|(part, _)| *part).eq(0..*parts);
                if !is_there && breakage != Some(CalvinBreak::CommitIncomplete) {
                    return answer(Answer::StagesMissing);
                }
                let place = phase.place(change.target())?;
                phase.check_free(KeyOf::Name(place), X)?;
                let Some(ino) = phase.directory_at(place)? else {
                    return Ok(no_directory(place, Answer::NotDirectory));
                };
                return self.prepare_edit((*edit, change), (ino, place), files, parked, breakage);
            }
            TreeOp::DropEdit(_) => return answer(Answer::Done),
            TreeOp::EndSession => {
                self.ended.set(*session, at, Some(()));
                return answer(Answer::Done);
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
                let draft = draft.asks(slot, [], Fact::Entry(place)).inode(expects[0]);
                match op {
                    TreeOp::Set(_, value) => {
                        let action = Action::Set(place, expects[0], *value);
                        (action, draft.acts(slot, [(KeyOf::FileName(place), S)]))
                    }
                    _ => {
                        let draft = draft.acts(slot, in_directory(place, X));
                        (Action::Unlink(place, expects[0]), draft.counts(place.0, &self.limits_above(place.0)))
                    }
                }
            }
            TreeOp::Link(from, to) => {
                let (from, to) = (phase.place(from)?, phase.place(to)?);
                if phase.directory_at(from)?.is_some() {
                    return answer(Answer::IsDirectory);
                }
                if phase.directory_at(to)?.is_some() {
                    return answer(Answer::Exists);
                }
                let limits = self.limits_above(to.0);
                let mut draft = draft
                    .asks(from.0.slot(), [(KeyOf::FileName(from), S)], Fact::Entry(from))
                    .acts(to.0.slot(), in_directory(to, X))
                    .asks(to.0.slot(), [], Fact::Entry(to))
                    .counts(to.0, &limits)
                    .needs_room(to.0, limits, *gathers);
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
                        let (lost, limits) = (self.limits_above(from.0), self.limits_above(to.0));
                        let mut gained = limits.clone();
                        if breakage != Some(CalvinBreak::RenameTakesRoom) {
                            gained.retain(|limit, _| !lost.contains_key(limit));
                        }
                        let draft = draft
                            .acts(from.0.slot(), in_directory(from, X))
                            .asks(from.0.slot(), [], Fact::Entry(from))
                            .acts(to.0.slot(), in_directory(to, X))
                            .asks(to.0.slot(), [], Fact::Entry(to))
                            .counts(from.0, &lost)
                            .counts(to.0, &limits)
                            .needs_room(to.0, gained, *gathers);
                        (Action::MoveFile(from, to, *expects), draft.inode(expects[0]).inode(expects[1]))
                    }
                }
            }
        })
    }

    /// What becomes of a stage.
    fn stage(&self, stage: StageId) -> Answer {
        if self.stages.newest(stage).is_some() {
            return Answer::Exists;
        }
        let of_session = self.stages.all().filter(|(other, _)| other.edit.session == stage.edit.session);
        if of_session.count() < self.settings.stages_max { Answer::Done } else { Answer::Overloaded }
    }

    /// The stages of an edit by their numbers.
    fn records(&self, edit: EditId) -> Vec<(u32, StageRecord)> {
        let of_edit = self.stages.all().filter(|(stage, _)| stage.edit == edit);
        of_edit.map(|(stage, record)| (stage.part, record)).collect()
    }

    fn prepare_edit(
        &self,
        (edit, change): (EditId, &EditChange),
        (top, place): (Ino, DirectoryName),
        files: &SlotFiles,
        parked: &dyn Fn(KeyOf, KeyAccess) -> bool,
        breakage: Option<CalvinBreak>,
    ) -> Result<(Action, PlanDraft), Stop> {
        let phase = TrunkReads { trunk: self, parked };
        let (mut keys, mut found) = (vec![(KeyOf::Directory(place.0), S)], BTreeSet::new());
        let mut todo = vec![(place, top)];
        while let Some((name, directory)) = todo.pop() {
            phase.check_free(KeyOf::Name(name), X)?;
            phase.check_free(KeyOf::Directory(directory), X)?;
            keys.extend([(KeyOf::Name(name), X), (KeyOf::Directory(directory), X)]);
            found.insert((directory, self.directories.newest(directory).unwrap_or(UNKNOWN).1));
            todo.extend(self.names.all().filter(|((parent, _), _)| *parent == directory));
        }
        let records = self.records(edit);
        let mut staged: BTreeSet<(Ino, bool)> =
            records.iter().flat_map(|(_, record)| record.directories.iter().copied()).collect();
        if breakage == Some(CalvinBreak::StagedRightsUnchecked) {
            staged = staged.into_iter().map(|(directory, _)| (directory, true)).collect();
            found = found.into_iter().map(|(directory, _)| (directory, true)).collect();
        }
        if found != staged {
            return Err(Stop::Answer(Answer::Superseded));
        }
        let directories: BTreeSet<Ino> = found.iter().map(|(directory, _)| *directory).collect();
        let slots: BTreeSet<Slot> = records.iter().flat_map(|(_, record)| record.slots.iter().copied()).collect();
        let mut draft = slots.into_iter().fold(PlanDraft::of(self.settings.shards), |draft, slot| {
            // Of slots of other servers nothing is known but that they take part.
            let stage = match breakage {
                Some(CalvinBreak::StagedUnkeyed) => SlotStage::default(),
                _ => files.staged_of(edit, slot, None),
            };
            draft.edit(slot, edit, &directories, &stage)
        });
        let action = match change {
            EditChange::Remove(_) if found.iter().any(|(_, open)| !open) => return Err(Stop::Answer(Answer::Denied)),
            EditChange::Remove(_) => {
                let limits = self.limits_above(place.0);
                for directory in &directories {
                    draft = draft.acts(directory.slot(), limits.keys().map(|limit| (KeyOf::Room(*limit), S)));
                }
                draft = draft.loses(&limits);
                Action::RemoveTree(edit, top, place, directories)
            }
            EditChange::Chmod(_, open) => Action::ChmodTree(edit, top, directories, *open),
        };
        Ok((action, draft.trunk(keys)))
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
                PlanDraft::of(self.settings.shards).asks(
                    replaced.slot(),
                    [(KeyOf::Content(replaced), X)],
                    Fact::Count(replaced),
                )
            }
            None => PlanDraft::of(self.settings.shards).asks(to.0.slot(), [(KeyOf::FileName(to), S)], Fact::Entry(to)),
        };
        let (mut lost, mut gained) = (self.limits_above(from.0), self.limits_above(to.0));
        let kept: BTreeSet<Ino> = lost.keys().copied().filter(|limit| gained.contains_key(limit)).collect();
        lost.retain(|limit, _| !kept.contains(limit) && breakage != Some(CalvinBreak::MoveKeepsRoom));
        gained.retain(|limit, _| !kept.contains(limit));
        if lost.is_empty() && gained.is_empty() {
            return Ok((Action::MoveDirectory(moved, from, to, replaced), draft.trunk(keys)));
        }
        // What is below it stays as it is: trunk phases that go there climb over this directory, and meet its key.
        let directories = match breakage {
            Some(CalvinBreak::MoveUnweighed) => BTreeSet::new(),
            _ => self.subtree(moved, parked, breakage)?,
        };
        let draft = draft.weighs(directories, &lost).needs_room(to.0, gained, true);
        Ok((Action::MoveDirectory(moved, from, to, replaced), draft.trunk(keys)))
    }

    /// A limit is a part of every shard, and a new one weighs its directory.
    fn prepare_limit(
        &self,
        directory: Ino,
        limit: Option<u64>,
        parked: &dyn Fn(KeyOf, KeyAccess) -> bool,
        breakage: Option<CalvinBreak>,
    ) -> Result<(Action, PlanDraft), Stop> {
        let phase = TrunkReads { trunk: self, parked };
        phase.check_free(KeyOf::Directory(directory), X)?;
        let is_new = self.limits.newest(directory).is_none();
        if is_new && limit.is_none() {
            return Err(Stop::Answer(Answer::Ok(directory)));
        }
        let mut draft = PlanDraft::of(self.settings.shards);
        if is_new && breakage != Some(CalvinBreak::LimitUnweighed) {
            draft = draft.weighs(self.subtree(directory, parked, breakage)?, &BTreeMap::new());
        }
        let limits = BTreeMap::from([(directory, limit.unwrap_or_default())]);
        let draft = draft.needs_room(directory, limits, true);
        Ok((Action::Limit(directory, limit), draft.trunk(vec![(KeyOf::Directory(directory), X)])))
    }

    /// A directory and all below it, whose directories no unfinished part changes.
    fn subtree(
        &self,
        top: Ino,
        parked: &dyn Fn(KeyOf, KeyAccess) -> bool,
        breakage: Option<CalvinBreak>,
    ) -> Result<BTreeSet<Ino>, Stop> {
        let phase = TrunkReads { trunk: self, parked };
        let (mut found, mut todo) = (BTreeSet::new(), vec![top]);
        while let Some(directory) = todo.pop() {
            if breakage != Some(CalvinBreak::WeighedUnchecked) {
                phase.check_free(KeyOf::Directory(directory), X)?;
            }
            found.insert(directory);
            todo.extend(self.names.all().filter(|((parent, _), _)| *parent == directory).map(|(_, ino)| ino));
        }
        Ok(found)
    }

    /// The limits of a directory and of those above it. A trunk phase that comes here has met none of their keys.
    fn limits_above(&self, mut directory: Ino) -> BTreeMap<Ino, u64> {
        let mut found = BTreeMap::new();
        for _ in 0..DEPTH_MAX {
            found.extend(self.limits.newest(directory).map(|limit| (directory, limit)));
            if directory == Ino::ROOT {
                break;
            }
            directory = self.directories.newest(directory).unwrap_or(UNKNOWN).0;
        }
        found
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
                self.remove_directory(ino, at);
            }
            Action::RemoveTree(_, _, place, ref directories) => {
                let below = self.names.all().filter(|((parent, _), _)| directories.contains(parent));
                let below: Vec<DirectoryName> = below.map(|(name, _)| name).chain([place]).collect();
                below.into_iter().for_each(|name| self.names.set(name, at, None));
                directories.iter().for_each(|directory| self.remove_directory(*directory, at));
            }
            Action::ChmodTree(_, _, ref directories, open) => {
                for directory in directories {
                    let (parent, _) = self.directories.newest(*directory).unwrap_or(UNKNOWN);
                    self.directories.set(*directory, at, Some((parent, open)));
                }
            }
            Action::MoveDirectory(moved, from, to, replaced) => {
                if let Some(replaced) = replaced {
                    self.remove_directory(replaced, at);
                }
                self.names.set(from, at, None);
                self.names.set(to, at, Some(moved));
                let (_, open) = self.directories.newest(moved).unwrap_or(UNKNOWN);
                self.directories.set(moved, at, Some((to.0, open)));
            }
            Action::Limit(directory, limit) => self.limits.set(directory, at, limit),
            _ => unreachable!("{action:?} changes no directory"),
        }
    }

    /// A directory goes with its limit. What shards have of the limit means nothing any more.
    fn remove_directory(&mut self, directory: Ino, at: Position) {
        self.directories.set(directory, at, None);
        if self.limits.newest(directory).is_some() {
            self.limits.set(directory, at, None);
        }
    }

    /// The number of a file, whether it will be made or not; none if the slot has given its last one.
    fn give_file(&mut self, slot: Slot, at: Position, breakage: Option<CalvinBreak>) -> Option<u64> {
        if self.given.newest(Some(slot)).unwrap_or_default() < self.settings.numbers_max {
            return Some(self.give(Some(slot), at));
        }
        (breakage == Some(CalvinBreak::NumbersWrap)).then(|| {
            self.given.set(Some(slot), at, Some(1));
            1
        })
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
