//! The slots of the small file system: files and their names, what they say of a change, and what it does to them.

use std::collections::BTreeMap;

use frieze_base::LogIndex;
use frieze_calvin::{Position, ShardId, Slot};

use super::breakage::CalvinBreak;
use super::draft::Action;
use super::facts::{Fact, Facts};
use super::op::{Answer, DirectoryName, FileState, Ino, LINKS_MAX, Name};
use super::rooms::{RoomPlan, ShardRoom, divide};
use super::stages::{EditId, SlotStage, StageChange, StageId, StageRecord, StagedRange};
use super::versions::{VersionedMap, VersionedSums};

/// What a shard has at a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ShardState {
    pub(super) names: BTreeMap<DirectoryName, Ino>,
    pub(super) files: BTreeMap<Ino, FileState>,
    pub(super) staged: BTreeMap<(StageId, Slot), SlotStage>,
    /// Of each limit of which it has something.
    pub(super) rooms: BTreeMap<Ino, ShardRoom>,
}

/// The files of all slots that a server has.
#[derive(Clone, Debug, Default)]
pub(super) struct SlotFiles {
    pub(super) names: VersionedMap<DirectoryName, Ino>,
    pub(super) files: VersionedMap<Ino, FileState>,
    /// Names of files by directory. Sums, for changes of other names may come in any order.
    counts: VersionedSums<Ino>,
    /// By limit and shard: names below it, room for more, and whether the limit is closed.
    used: VersionedSums<(Ino, ShardId)>,
    room: VersionedSums<(Ino, ShardId)>,
    closed: VersionedMap<(Ino, ShardId), ()>,
    /// What the slots have of staged edits.
    pub(super) staged: VersionedMap<(StageId, Slot), SlotStage>,
    /// Numbers given where a breakage gives them.
    given: BTreeMap<Slot, u64>,
    breakage: Option<CalvinBreak>,
}

impl SlotFiles {
    /// No files.
    pub(super) fn new(breakage: Option<CalvinBreak>) -> SlotFiles {
        SlotFiles { breakage, ..SlotFiles::default() }
    }

    /// Drops what is at or above a position.
    pub(super) fn cut(&mut self, at: Position) {
        self.names.cut(at);
        self.files.cut(at);
        self.staged.cut(at);
        self.counts.cut(at);
        self.used.cut(at);
        self.room.cut(at);
        self.closed.cut(at);
    }

    /// A fact just below a position; `now`: as it is.
    pub(super) fn fact(&self, fact: Fact, at: Position, now: bool) -> u64 {
        let at = if now { END } else { at };
        match fact {
            Fact::Entry(place) if self.breakage == Some(CalvinBreak::StagesVisible) && self.is_staged(place, at) => 0,
            Fact::Entry(place) => self.names.before(place, at).map_or(0, |ino| ino.0),
            Fact::Links(ino) => self.files.before(ino, at).map_or(0, |file| u64::from(file.names)),
            Fact::Staged(edit, slot) => u64::from(self.is_as_staged(edit, slot, at)),
            Fact::Count(ino) => self.counts.before(ino, at) as u64,
            Fact::Room(limit, shard) => {
                let at = if self.breakage == Some(CalvinBreak::GatherOfNow) { END } else { at };
                let ShardRoom { used, room, .. } = self.room_before(limit, shard, at);
                (used as u64 & COUNT_MASK) << 32 | (room as u64 & COUNT_MASK)
            }
        }
    }

    /// Keeps or drops what slots of this server have of stages.
    pub(super) fn change_stages(
        &mut self,
        at: Position,
        change: StageChange,
        part: &[StagedRange],
        is_here: &dyn Fn(Slot) -> bool,
    ) {
        if let StageChange::Keep(stage) = change {
            for slot in StageRecord::of(part).slots.into_iter().filter(|slot| is_here(*slot)) {
                // Nothing is there before, but where a breakage keeps a stage twice.
                let before = self.staged.newest((stage, slot)).unwrap_or_default();
                self.staged.set((stage, slot), at, Some(before.join(SlotStage::of(part, slot))));
            }
        }
        let dropped = self.staged.all().map(|(key, _)| key).filter(|(stage, _)| change.drops(*stage));
        for key in dropped.collect::<Vec<_>>() {
            self.staged.set(key, at, None);
        }
    }

    /// All that a slot has of an edit: just below a position, or now.
    pub(super) fn staged_of(&self, edit: EditId, slot: Slot, at: Option<Position>) -> SlotStage {
        let is_of = |(stage, of): &(StageId, Slot)| {
            let is_first = stage.part == 0 || at.is_none() || self.breakage != Some(CalvinBreak::CommitFirstPart);
            stage.edit == edit && *of == slot && is_first
        };
        let stages: Vec<SlotStage> = match at {
            Some(at) => {
                self.staged.all_before(at).into_iter().filter(|(key, _)| is_of(key)).map(|(_, stage)| stage).collect()
            }
            None => self.staged.all().filter(|(key, _)| is_of(key)).map(|(_, stage)| stage).collect(),
        };
        stages.into_iter().fold(SlotStage::default(), SlotStage::join)
    }

    /// True if the names of the staged directories are those that were staged, each once.
    fn is_as_staged(&self, edit: EditId, slot: Slot, at: Position) -> bool {
        let SlotStage { directories, names: mut staged, .. } = self.staged_of(edit, slot, Some(at));
        let names = self.names.all_before(at).into_iter().filter(|((parent, _), _)| directories.contains(parent));
        let mut found: Vec<(Ino, Name, Ino)> = names.map(|((parent, name), ino)| (parent, name, ino)).collect();
        if self.breakage == Some(CalvinBreak::CommitFirstPart) {
            found.retain(|name| staged.contains(name));
        }
        staged.sort_unstable();
        found.sort_unstable();
        staged == found
    }

    fn is_staged(&self, place: DirectoryName, at: Position) -> bool {
        let staged = self.staged.all_before(at);
        staged.values().any(|stage| stage.names.iter().any(|(directory, name, _)| (*directory, *name) == place))
    }

    /// Makes the part of a change that lies in one shard.
    pub(super) fn apply(
        &mut self,
        at: Position,
        (action, answer): (&Action, Answer),
        facts: &Facts,
        is_here: &dyn Fn(Slot) -> bool,
    ) {
        let Answer::Ok(ino) = answer else { return };
        let here = |ino: Ino| is_here(ino.slot());
        match *action {
            Action::Make(place, mut ino) if here(place.0) => {
                if self.breakage == Some(CalvinBreak::NumbersAtExecution) {
                    let given = self.given.entry(ino.slot()).or_default();
                    *given += 1;
                    ino = Ino::file(ino.slot(), *given);
                }
                self.files.set(ino, at, Some(FileState { names: 1, changed: at, ..FileState::default() }));
                self.set_name(at, place, Some(ino));
            }
            Action::Unlink(place, _) => {
                if here(place.0) {
                    self.set_name(at, place, None);
                }
                if here(ino) {
                    self.lose_name(at, ino);
                }
            }
            Action::Set(_, _, value) if here(ino) => {
                self.files.set(ino, at, Some(FileState { value, changed: at, ..self.file(ino) }));
            }
            Action::Link(_, to, _) => {
                if here(to.0) {
                    self.set_name(at, to, Some(ino));
                }
                if here(ino) {
                    let file = self.file(ino);
                    self.files.set(ino, at, Some(FileState { names: file.names + 1, changed: at, ..file }));
                }
            }
            Action::RemoveTree(edit, ..) => {
                for stage in self.staged_here(edit, at, is_here) {
                    for (directory, name, _) in stage.names {
                        self.set_name(at, (directory, name), None);
                    }
                    stage.inodes.into_iter().for_each(|ino| self.lose_name(at, ino));
                }
            }
            Action::ChmodTree(edit, _, _, open) => {
                let here = self.staged_here(edit, at, is_here);
                for ino in here.into_iter().flat_map(|stage| stage.inodes) {
                    self.files.set(ino, at, Some(FileState { open, changed: at, ..self.file(ino) }));
                }
            }
            Action::MoveFile(from, to, _) => {
                let replaced = Some(Ino(facts[&Fact::Entry(to)])).filter(|ino| ino.0 != 0);
                if replaced != Some(ino) {
                    self.move_file(at, (from, to), ino, replaced, &here);
                }
            }
            _ => {}
        }
    }

    fn move_file(
        &mut self,
        at: Position,
        (from, to): (DirectoryName, DirectoryName),
        ino: Ino,
        replaced: Option<Ino>,
        here: &dyn Fn(Ino) -> bool,
    ) {
        if here(from.0) {
            self.set_name(at, from, None);
        }
        if here(to.0) {
            self.set_name(at, to, Some(ino));
        }
        if here(ino) {
            self.files.set(ino, at, Some(FileState { changed: at, ..self.file(ino) }));
        }
        if let Some(replaced) = replaced.filter(|replaced| here(*replaced)) {
            self.lose_name(at, replaced);
        }
    }

    /// What slots of a shard have of an edit just below a position.
    fn staged_here(&self, edit: EditId, at: Position, is_here: &dyn Fn(Slot) -> bool) -> Vec<SlotStage> {
        let staged = self.staged.all_before(at).into_iter();
        staged.filter(|((stage, slot), _)| stage.edit == edit && is_here(*slot)).map(|(_, stage)| stage).collect()
    }

    /// A file that a name leads to. A broken server may not have it; its state shows that.
    fn file(&self, ino: Ino) -> FileState {
        self.files.newest(ino).unwrap_or_default()
    }

    /// A file loses a name.
    fn lose_name(&mut self, at: Position, ino: Ino) {
        let file = self.file(ino);
        let left = (file.names > 1).then(|| FileState { names: file.names - 1, changed: at, ..file });
        self.files.set(ino, at, left);
    }

    fn set_name(&mut self, at: Position, place: DirectoryName, ino: Option<Ino>) {
        let before = i64::from(self.names.newest(place).is_some());
        let more = i64::from(ino.is_some()) - before;
        self.counts.add(place.0, at, more);
        self.names.set(place, at, ino);
    }

    /// What a shard has below a position, of limits those that are there.
    pub(super) fn before(&self, at: Position, shard: ShardId, shards: u16, limits: &BTreeMap<Ino, u64>) -> ShardState {
        let is_here = |ino: Ino| ShardId::of(ino.slot(), shards) == shard;
        let names = self.names.all_before(at).into_iter().filter(|((parent, _), _)| is_here(*parent)).collect();
        let files = self.files.all_before(at).into_iter().filter(|(ino, _)| is_here(*ino)).collect();
        let staged = self.staged.all_before(at).into_iter();
        let staged = staged.filter(|((_, slot), _)| ShardId::of(*slot, shards) == shard).collect();
        let rooms = self.used.keys_before(at).chain(self.room.keys_before(at));
        let rooms = rooms.filter(|(limit, of)| *of == shard && limits.contains_key(limit));
        let rooms = rooms.map(|(limit, _)| (limit, self.room_before(limit, shard, at)));
        ShardState { names, files, staged, rooms: rooms.filter(|(_, room)| *room != ShardRoom::default()).collect() }
    }

    /// What a shard has of a limit below a position.
    pub(super) fn room_before(&self, limit: Ino, shard: ShardId, at: Position) -> ShardRoom {
        ShardRoom {
            used: self.used.before((limit, shard), at),
            room: self.room.before((limit, shard), at),
            closed: self.closed.before((limit, shard), at).is_some(),
        }
    }

    /// Counts names that came or went for limits, and takes or gives room, in one shard.
    pub(super) fn apply_rooms(
        &mut self,
        at: Position,
        shard: ShardId,
        (action, answer): (&Action, Answer),
        rooms: &RoomPlan,
        facts: &Facts,
    ) {
        let Answer::Ok(ino) = answer else { return };
        if let Action::Limit(limit, max) = *action {
            return self.set_limit(at, shard, (limit, max), rooms, facts);
        }
        let names = match *action {
            Action::RemoveTree(edit, ..) => {
                let is_here = |slot: Slot| ShardId::of(slot, rooms.shards) == shard;
                let names = self.staged_here(edit, at, &is_here).into_iter().flat_map(|stage| stage.names);
                names.map(|(directory, ..)| (directory, 1)).collect()
            }
            _ => names_of(action, rooms, facts),
        };
        if names.is_empty() && matches!(action, Action::MoveFile(..)) {
            return;
        }
        for limit in rooms.limits() {
            let here = rooms.change(limit, &names, Some(shard));
            let all = rooms.change(limit, &names, None);
            let before = self.room_before(limit, shard, at);
            self.used.add((limit, shard), at, here);
            let gives_to_inode = self.breakage == Some(CalvinBreak::RoomToInode);
            if let Some(max) = rooms.needs.get(&limit).filter(|_| rooms.gathers) {
                self.divide(at, shard, (limit, *max), rooms, all, facts);
            } else if rooms.needs.contains_key(&limit) && all >= 0 {
                let takes = rooms.first == shard && (all > 0 || self.breakage == Some(CalvinBreak::RenameTakesRoom));
                self.room.add((limit, shard), at, -i64::from(takes));
            } else if all < 0 && (!before.closed || self.breakage == Some(CalvinBreak::ClosedGivesRoom)) {
                let given = if gives_to_inode && matches!(action, Action::Unlink(..)) {
                    -i64::from(ShardId::of(ino.slot(), rooms.shards) == shard)
                } else {
                    here
                };
                self.room.add((limit, shard), at, -given);
            }
        }
    }

    /// Divides what is left of a limit after so many more names.
    fn divide(
        &mut self,
        at: Position,
        shard: ShardId,
        (limit, max): (Ino, u64),
        rooms: &RoomPlan,
        more: i64,
        facts: &Facts,
    ) {
        let of = |shard: ShardId| facts[&Fact::Room(limit, shard)];
        let used: u64 = (0..rooms.shards).map(|shard| of(ShardId(shard)) >> 32).sum();
        let left = (max as i64) - (used as i64 + more);
        if left < 0 && self.breakage == Some(CalvinBreak::LoweredLimitKeepsRoom) {
            return;
        }
        if shard != rooms.first && self.breakage == Some(CalvinBreak::AllotmentTwice) {
            return;
        }
        let room = divide(left.max(0) as u64, shard, rooms.first, rooms.shards);
        self.room.add((limit, shard), at, room as i64 - (of(shard) & COUNT_MASK) as i64);
        if (left < 0) != self.closed.newest((limit, shard)).is_some() {
            self.closed.set((limit, shard), at, (left < 0).then_some(()));
        }
    }

    fn set_limit(
        &mut self,
        at: Position,
        shard: ShardId,
        (limit, max): (Ino, Option<u64>),
        rooms: &RoomPlan,
        facts: &Facts,
    ) {
        let here = facts[&Fact::Room(limit, shard)];
        let Some(max) = max else {
            self.used.add((limit, shard), at, -((here >> 32) as i64));
            self.room.add((limit, shard), at, -((here & COUNT_MASK) as i64));
            return self.closed.set((limit, shard), at, None);
        };
        let names = names_of(&Action::Limit(limit, Some(max)), rooms, facts);
        self.used.add((limit, shard), at, rooms.change(limit, &names, Some(shard)));
        self.divide(at, shard, (limit, max), rooms, rooms.change(limit, &names, None), facts);
    }
}

/// Names that come to directories or go, by what all slots have said; of weighed directories all that they have.
fn names_of(action: &Action, rooms: &RoomPlan, facts: &Facts) -> Vec<(Ino, i64)> {
    match *action {
        Action::Make(place, _) | Action::Link(_, place, _) => vec![(place.0, 1)],
        Action::Unlink(place, _) => vec![(place.0, -1)],
        Action::MoveFile(from, to, _) => match facts[&Fact::Entry(to)] {
            0 => vec![(from.0, -1), (to.0, 1)],
            replaced if replaced == facts[&Fact::Entry(from)] => Vec::new(),
            _ => vec![(from.0, -1)],
        },
        _ => rooms.weighed.iter().map(|directory| (*directory, facts[&Fact::Count(*directory)] as i64)).collect(),
    }
}

/// What a change finds of room for more names.
fn check_room(action: &Action, rooms: &RoomPlan, facts: &Facts) -> Result<(), Answer> {
    let names = names_of(action, rooms, facts);
    for (limit, max) in &rooms.needs {
        let more = rooms.change(*limit, &names, None);
        let of = |shard: ShardId| facts[&Fact::Room(*limit, shard)];
        if more <= 0 || matches!(action, Action::Limit(..)) {
            continue;
        }
        if rooms.gathers {
            let used: u64 = (0..rooms.shards).map(|shard| of(ShardId(shard)) >> 32).sum();
            if used as i64 + more > *max as i64 {
                return Err(Answer::QuotaFull);
            }
        } else if of(rooms.first) & COUNT_MASK == 0 {
            return Err(Answer::NeedsRoom);
        }
    }
    Ok(())
}

/// Behind all positions.
const END: Position = Position { index: LogIndex(u64::MAX), item: 0 };
/// One of the two counts that a fact about room has.
const COUNT_MASK: u64 = u32::MAX as u64;

/// What a change answers, by what all slots have said: the same at every part of it.
pub(super) fn decide(action: &Action, rooms: &RoomPlan, facts: &Facts) -> Answer {
    let fact = |fact: Fact| facts.get(&fact).copied().unwrap_or_else(|| panic!("{fact:?} of {action:?} is not known"));
    let entry = |place: DirectoryName| Some(fact(Fact::Entry(place))).filter(|ino| *ino != 0).map(Ino);
    let expected = |place: DirectoryName, expect: Option<Ino>| match entry(place) {
        None => Err(Answer::NotFound),
        Some(ino) if Some(ino) == expect => Ok(ino),
        Some(_) => Err(Answer::Superseded),
    };
    let decided = || -> Result<Ino, Answer> {
        match *action {
            Action::Decided(answer) => Err(answer),
            Action::Make(place, ino) | Action::Mkdir(place, ino) => match entry(place) {
                None => Ok(ino),
                Some(_) => Err(Answer::Exists),
            },
            Action::Rmdir(_, ino) => {
                if fact(Fact::Count(ino)) == 0 {
                    Ok(ino)
                } else {
                    Err(Answer::NotEmpty)
                }
            }
            Action::NoDirectory(place, answer) => Err(entry(place).map_or(Answer::NotFound, |_| answer)),
            Action::Unlink(place, expect) | Action::Set(place, expect, _) => expected(place, expect),
            Action::Link(from, to, expect) => {
                let ino = expected(from, expect)?;
                match entry(to) {
                    Some(_) => Err(Answer::Exists),
                    None if fact(Fact::Links(ino)) >= u64::from(LINKS_MAX) => Err(Answer::TooManyLinks),
                    None => Ok(ino),
                }
            }
            Action::Stay(place) => entry(place).ok_or(Answer::NotFound),
            Action::MoveFile(from, to, [expect, replaced]) => {
                let ino = expected(from, expect)?;
                match entry(to) {
                    None => Ok(ino),
                    found if found == replaced => Ok(ino),
                    Some(_) => Err(Answer::Superseded),
                }
            }
            Action::RemoveTree(edit, top, _, ref directories) | Action::ChmodTree(edit, top, ref directories, _) => {
                let is_same = |directory: &Ino| fact(Fact::Staged(edit, directory.slot())) == 1;
                if directories.iter().all(is_same) { Ok(top) } else { Err(Answer::Superseded) }
            }
            Action::MoveDirectory(moved, _, _, Some(replaced)) => {
                if fact(Fact::Count(replaced)) == 0 {
                    Ok(moved)
                } else {
                    Err(Answer::NotEmpty)
                }
            }
            Action::MoveDirectory(moved, _, to, None) => entry(to).map_or(Ok(moved), |_| Err(Answer::NotDirectory)),
            Action::Limit(directory, _) => Ok(directory),
        }
    };
    let decided = decided().and_then(|ino| check_room(action, rooms, facts).map(|()| ino));
    decided.map_or_else(|answer| answer, Answer::Ok)
}
