//! The same file system as one tree, executed in log order: what every server has to agree with.

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::SessionId;
use frieze_calvin::{Position, ShardId, Slot};

use super::op::{Answer, Body, ChangePath, EditChange, FileState, Ino, LINKS_MAX, Name, TreeOp, TreeSettings};
use super::rooms::{ShardRoom, divide};
use super::slots::ShardState;
use super::stages::{EditId, SlotStage, StageId, StageRecord, StagedRange};

/// The state.
#[derive(Clone, Debug, Default)]
pub(super) struct Oracle {
    /// Directories: where they lie, and whether they are open to walks.
    pub(super) directories: BTreeMap<Ino, (Ino, bool)>,
    pub(super) entries: BTreeMap<(Ino, Name), Ino>,
    pub(super) files: BTreeMap<Ino, FileState>,
    /// Numbers given: of directories, and of files by slot.
    pub(super) given: BTreeMap<Option<Slot>, u64>,
    pub(super) ended: BTreeSet<SessionId>,
    /// Limits of the files below directories.
    pub(super) limits: BTreeMap<Ino, u64>,
    /// Room of shards, as the log has divided it.
    rooms: BTreeMap<(Ino, ShardId), u64>,
    /// Limits that were below what was used when they were divided.
    closed: BTreeSet<Ino>,
    /// The parts of edits that are not committed.
    pub(super) stages: BTreeMap<StageId, Vec<StagedRange>>,
    settings: TreeSettings,
}

/// What is below a directory: it and its directories with their modes, and the names of files.
type FoundTree = (BTreeSet<(Ino, bool)>, Vec<(Ino, Name, Ino)>);

impl Oracle {
    /// A root and nothing in it.
    pub(super) fn new(settings: TreeSettings) -> Oracle {
        Oracle { directories: BTreeMap::from([(Ino::ROOT, (Ino::ROOT, true))]), settings, ..Oracle::default() }
    }

    /// Executes a change at its position.
    pub(super) fn execute(&mut self, at: Position, body: &Body) -> Answer {
        self.try_execute(at, body).unwrap_or_else(|answer| answer)
    }

    /// What a shard has to have.
    pub(super) fn shard(&self, shard: ShardId, shards: u16) -> ShardState {
        let is_here = |slot: Slot| ShardId::of(slot, shards) == shard;
        let names = self.entries.iter().filter(|((parent, _), ino)| is_here(parent.slot()) && !ino.is_directory());
        let files = self.files.iter().filter(|(ino, _)| is_here(ino.slot()));
        let staged = self.stages.iter().flat_map(|(stage, part)| {
            let slots = StageRecord::of(part).slots.into_iter().filter(|slot| is_here(*slot));
            slots.map(|slot| ((*stage, slot), SlotStage::of(part, slot))).collect::<Vec<_>>()
        });
        ShardState {
            names: names.map(|(place, ino)| (*place, *ino)).collect(),
            files: files.map(|(ino, file)| (*ino, *file)).collect(),
            staged: staged.collect(),
            rooms: self
                .limits
                .keys()
                .map(|limit| (*limit, self.room(*limit, shard)))
                .filter(|(_, room)| *room != ShardRoom::default())
                .collect(),
        }
    }

    fn room(&self, limit: Ino, shard: ShardId) -> ShardRoom {
        ShardRoom {
            used: self.used(limit, Some(shard)) as i64,
            room: self.rooms.get(&(limit, shard)).copied().unwrap_or_default() as i64,
            closed: self.closed.contains(&limit),
        }
    }

    /// Names of files below a directory: those in the directories of a shard, or all.
    fn used(&self, limit: Ino, shard: Option<ShardId>) -> u64 {
        let counts = |directory: Ino| {
            self.is_within(directory, limit) && shard.is_none_or(|shard| self.shard_of(directory) == shard)
        };
        self.entries.iter().filter(|((directory, _), ino)| !ino.is_directory() && counts(*directory)).count() as u64
    }

    fn shard_of(&self, directory: Ino) -> ShardId {
        ShardId::of(directory.slot(), self.settings.shards)
    }

    fn limits_above(&self, mut directory: Ino) -> BTreeSet<Ino> {
        let mut found = BTreeSet::new();
        loop {
            found.extend(self.limits.contains_key(&directory).then_some(directory));
            if directory == Ino::ROOT {
                return found;
            }
            directory = self.directories[&directory].0;
        }
    }

    /// Looks for room for one name.
    fn check_room(&self, directory: Ino, limits: &BTreeSet<Ino>, gathers: bool) -> Result<(), Answer> {
        for limit in limits {
            if gathers || self.settings.shards == 1 {
                if self.used(*limit, None) >= self.limits[limit] {
                    return Err(Answer::QuotaFull);
                }
            } else if self.room(*limit, self.shard_of(directory)).room == 0 {
                return Err(Answer::NeedsRoom);
            }
        }
        Ok(())
    }

    /// A name has come, for which there was room.
    fn take_room(&mut self, directory: Ino, limits: &BTreeSet<Ino>, gathers: bool) {
        let shard = self.shard_of(directory);
        for limit in limits {
            if gathers || self.settings.shards == 1 {
                self.divide(*limit, shard);
            } else {
                *self.rooms.get_mut(&(*limit, shard)).expect("there was room") -= 1;
            }
        }
    }

    /// What a change gathered is divided anew, whether it needed it or not.
    fn divide_anew(&mut self, directory: Ino, limits: &BTreeSet<Ino>, gathers: bool) {
        let divided = limits.iter().filter(|_| gathers || self.settings.shards == 1);
        divided.copied().collect::<Vec<_>>().into_iter().for_each(|limit| self.divide(limit, self.shard_of(directory)));
    }

    /// Names were removed.
    fn give_room(&mut self, directory: Ino, limits: &BTreeSet<Ino>, names: u64) {
        let shard = self.shard_of(directory);
        for limit in limits.iter().filter(|limit| names > 0 && !self.closed.contains(limit)) {
            *self.rooms.entry((*limit, shard)).or_default() += names;
        }
    }

    /// Divides what is left of a limit.
    fn divide(&mut self, limit: Ino, first: ShardId) {
        let left = self.limits[&limit].checked_sub(self.used(limit, None));
        let shards = self.settings.shards;
        for shard in (0..shards).map(ShardId) {
            self.rooms.insert((limit, shard), divide(left.unwrap_or_default(), shard, first, shards));
        }
        if left.is_none() {
            self.closed.insert(limit)
        } else {
            self.closed.remove(&limit)
        };
    }

    fn drop_limit(&mut self, limit: Ino) {
        self.limits.remove(&limit);
        self.rooms.retain(|(of, _), _| *of != limit);
        self.closed.remove(&limit);
    }

    fn remove_directory(&mut self, directory: Ino) {
        self.directories.remove(&directory);
        self.drop_limit(directory);
    }

    /// Limits whose rooms and names are not what they say, or more.
    pub(super) fn check_limits(&self) -> Option<String> {
        self.limits.iter().find_map(|(limit, max)| {
            let room: u64 = self.rooms.iter().filter(|((of, _), _)| of == limit).map(|(_, room)| room).sum();
            let (used, is_closed) = (self.used(*limit, None), self.closed.contains(limit));
            let is_kept = if is_closed { room == 0 } else { used + room == *max };
            (!is_kept).then(|| format!("limit {max} of {limit:?}: {used} names, room {room}, closed {is_closed}"))
        })
    }

    fn try_execute(&mut self, at: Position, body: &Body) -> Result<Answer, Answer> {
        let Body { session, op, expects, part, gathers } = body;
        if self.ended.contains(session) {
            return Err(Answer::UnknownSession);
        }
        Ok(Answer::Ok(match op {
            TreeOp::Make(target) => {
                let directory = self.walk(target)?;
                self.check_no_directory((directory, target.name), Answer::Exists)?;
                let slot = directory.slot();
                if self.given.get(&Some(slot)).is_some_and(|given| *given >= self.settings.numbers_max) {
                    return Err(Answer::NumbersUsedUp);
                }
                let ino = Ino::file(slot, self.give(Some(slot)));
                if self.entries.contains_key(&(directory, target.name)) {
                    return Err(Answer::Exists);
                }
                let limits = self.limits_above(directory);
                self.check_room(directory, &limits, *gathers)?;
                self.entries.insert((directory, target.name), ino);
                self.take_room(directory, &limits, *gathers);
                self.files.insert(ino, FileState { names: 1, changed: at, ..FileState::default() });
                ino
            }
            TreeOp::Mkdir(target) => {
                let directory = self.walk(target)?;
                self.check_no_directory((directory, target.name), Answer::Exists)?;
                let ino = Ino::directory(self.give(None));
                if self.entries.contains_key(&(directory, target.name)) {
                    return Err(Answer::Exists);
                }
                self.entries.insert((directory, target.name), ino);
                self.directories.insert(ino, (directory, true));
                ino
            }
            TreeOp::Rmdir(target) => {
                let place = (self.walk(target)?, target.name);
                let ino = self.directory_of(place)?;
                if self.children(ino) > 0 {
                    return Err(Answer::NotEmpty);
                }
                self.entries.remove(&place);
                self.remove_directory(ino);
                ino
            }
            TreeOp::Chmod(target, open) => {
                let place = (self.walk(target)?, target.name);
                let ino = self.directory_of(place)?;
                self.directories.get_mut(&ino).expect("it has a name").1 = *open;
                ino
            }
            TreeOp::Unlink(target) => {
                let place = (self.walk(target)?, target.name);
                let ino = self.file_of(place, expects[0])?;
                self.entries.remove(&place);
                self.lose_name(ino, at);
                self.give_room(place.0, &self.limits_above(place.0), 1);
                ino
            }
            TreeOp::Set(target, value) => {
                let place = (self.walk(target)?, target.name);
                let ino = self.file_of(place, expects[0])?;
                let file = self.files.get_mut(&ino).expect("it has a name");
                (file.value, file.changed) = (*value, at);
                ino
            }
            TreeOp::Limit(target, limit) => {
                let place = (self.walk(target)?, target.name);
                let ino = self.directory_of(place)?;
                match limit {
                    Some(limit) => {
                        self.limits.insert(ino, *limit);
                        self.divide(ino, self.shard_of(ino));
                    }
                    None => self.drop_limit(ino),
                }
                ino
            }
            TreeOp::Stage(edit, number, _) => {
                let stage = StageId { edit: *edit, part: *number };
                if self.stages.contains_key(&stage) {
                    return Err(Answer::Exists);
                }
                if self.stages.keys().filter(|other| other.edit.session == *session).count() >= self.settings.stages_max
                {
                    return Err(Answer::Overloaded);
                }
                self.stages.insert(stage, part.clone());
                return Ok(Answer::Done);
            }
            TreeOp::Commit(edit, parts, change) => {
                let found = self.stages.keys().filter(|stage| stage.edit == *edit).map(|stage| stage.part);
                if !found.eq(0..*parts) {
                    return Err(Answer::StagesMissing);
                }
                let staged = self.drop_edit(*edit);
                return self.commit(at, &staged, change).map(Answer::Ok);
            }
            TreeOp::DropEdit(edit) => {
                self.drop_edit(*edit);
                return Ok(Answer::Done);
            }
            TreeOp::EndSession => {
                self.ended.insert(*session);
                self.stages.retain(|stage, _| stage.edit.session != *session);
                return Ok(Answer::Done);
            }
            TreeOp::Link(from, to) => {
                let (from, to) = ((self.walk(from)?, from.name), (self.walk(to)?, to.name));
                self.check_no_directory(from, Answer::IsDirectory)?;
                self.check_no_directory(to, Answer::Exists)?;
                let ino = self.file_of(from, expects[0])?;
                if self.entries.contains_key(&to) {
                    return Err(Answer::Exists);
                }
                if self.files[&ino].names >= LINKS_MAX {
                    return Err(Answer::TooManyLinks);
                }
                let limits = self.limits_above(to.0);
                self.check_room(to.0, &limits, *gathers)?;
                let file = self.files.get_mut(&ino).expect("it has a name");
                (file.names, file.changed) = (file.names + 1, at);
                self.entries.insert(to, ino);
                self.take_room(to.0, &limits, *gathers);
                ino
            }
            TreeOp::Rename(from, to) => {
                let (from, to) = ((self.walk(from)?, from.name), (self.walk(to)?, to.name));
                match (self.directory_at(from), self.directory_at(to)) {
                    (Some(moved), replaced) => self.move_directory(moved, from, to, replaced)?,
                    (None, Some(_)) if self.entries.contains_key(&from) => return Err(Answer::IsDirectory),
                    (None, Some(_)) => return Err(Answer::NotFound),
                    (None, None) => self.move_file(from, to, body, at)?,
                }
            }
        }))
    }

    fn move_directory(
        &mut self,
        moved: Ino,
        from: (Ino, Name),
        to: (Ino, Name),
        replaced: Option<Ino>,
    ) -> Result<Ino, Answer> {
        if from == to {
            return Ok(moved);
        }
        if self.is_within(to.0, moved) {
            return Err(Answer::Loop);
        }
        match replaced {
            Some(replaced) if self.is_within(from.0, replaced) || self.children(replaced) > 0 => {
                return Err(Answer::NotEmpty);
            }
            None if self.entries.contains_key(&to) => return Err(Answer::NotDirectory),
            _ => {}
        }
        let (lost, gained) = (self.limits_above(from.0), self.limits_above(to.0));
        let (lost, gained): (BTreeSet<Ino>, BTreeSet<Ino>) = (&lost - &gained, &gained - &lost);
        let (directories, names) = self.tree(moved);
        let weight = names.len() as u64;
        if gained.iter().any(|limit| weight > 0 && self.used(*limit, None) + weight > self.limits[limit]) {
            return Err(Answer::QuotaFull);
        }
        if let Some(replaced) = replaced {
            self.remove_directory(replaced);
        }
        self.entries.remove(&from);
        self.entries.insert(to, moved);
        self.directories.get_mut(&moved).expect("it has a name").0 = to.0;
        for limit in gained {
            self.divide(limit, self.shard_of(to.0));
        }
        for (directory, _) in directories {
            let names = names.iter().filter(|(parent, ..)| *parent == directory).count();
            self.give_room(directory, &lost, names as u64);
        }
        Ok(moved)
    }

    fn move_file(
        &mut self,
        from: (Ino, Name),
        to: (Ino, Name),
        Body { expects, gathers, .. }: &Body,
        at: Position,
    ) -> Result<Ino, Answer> {
        if from == to {
            return self.entries.get(&from).copied().ok_or(Answer::NotFound);
        }
        let ino = self.file_of(from, expects[0])?;
        let replaced = self.entries.get(&to).copied();
        if replaced.is_some() && replaced != expects[1] {
            return Err(Answer::Superseded);
        }
        if replaced == Some(ino) {
            return Ok(ino);
        }
        let (lost, gained) = (self.limits_above(from.0), self.limits_above(to.0));
        if let Some(replaced) = replaced {
            self.lose_name(replaced, at);
        } else {
            self.check_room(to.0, &(&gained - &lost), *gathers)?;
        }
        self.entries.remove(&from);
        self.entries.insert(to, ino);
        match replaced {
            // There is one name less, in the directory that it left.
            Some(_) => {
                self.give_room(from.0, &lost, 1);
                self.divide_anew(to.0, &(&gained - &lost), *gathers);
            }
            None => {
                self.give_room(from.0, &(&lost - &gained), 1);
                self.take_room(to.0, &(&gained - &lost), *gathers);
            }
        }
        self.files.get_mut(&ino).expect("it has a name").changed = at;
        Ok(ino)
    }

    /// The directory that a target's name is in.
    fn walk(&self, target: &ChangePath) -> Result<Ino, Answer> {
        let mut directory = target.base;
        let mut above = directory;
        // A base is checked up to the root.
        loop {
            let (parent, open) = *self.directories.get(&above).ok_or(Answer::NotFound)?;
            if !open {
                return Err(Answer::Denied);
            }
            if above == Ino::ROOT {
                break;
            }
            above = parent;
        }
        for name in &target.way {
            directory = self.directory_at((directory, *name)).ok_or(Answer::NotFound)?;
            if !self.directories[&directory].1 {
                return Err(Answer::Denied);
            }
        }
        Ok(directory)
    }

    fn is_within(&self, mut directory: Ino, above: Ino) -> bool {
        while directory != Ino::ROOT {
            if directory == above {
                return true;
            }
            directory = self.directories[&directory].0;
        }
        above == Ino::ROOT
    }

    /// Takes all that was staged of an edit.
    fn drop_edit(&mut self, edit: EditId) -> Vec<StagedRange> {
        let (dropped, kept) = std::mem::take(&mut self.stages).into_iter().partition(|(stage, _)| stage.edit == edit);
        self.stages = kept;
        let dropped: BTreeMap<StageId, Vec<StagedRange>> = dropped;
        dropped.into_values().flatten().collect()
    }

    fn commit(&mut self, at: Position, staged: &[StagedRange], change: &EditChange) -> Result<Ino, Answer> {
        let place = (self.walk(change.target())?, change.target().name);
        let top = self.directory_of(place)?;
        let (directories, names) = self.tree(top);
        if directories != staged.iter().map(|range| (range.directory, range.open)).collect() {
            return Err(Answer::Superseded);
        }
        let is_removal = matches!(change, EditChange::Remove(_));
        if is_removal && directories.iter().any(|(_, open)| !open) {
            return Err(Answer::Denied);
        }
        let of_range = |range: &StagedRange| {
            let directory = range.directory;
            range.files.iter().map(|(name, ino)| (directory, *name, *ino)).collect::<Vec<_>>()
        };
        let mut expected: Vec<(Ino, Name, Ino)> = staged.iter().flat_map(of_range).collect();
        expected.sort_unstable();
        if names != expected {
            return Err(Answer::Superseded);
        }
        match change {
            EditChange::Remove(_) => {
                let limits = self.limits_above(place.0);
                for (directory, _) in directories {
                    let removed = names.iter().filter(|(parent, ..)| *parent == directory).count();
                    self.give_room(directory, &limits, removed as u64);
                    self.remove_directory(directory);
                    self.entries.retain(|(parent, _), _| *parent != directory);
                }
                names.into_iter().for_each(|(_, _, file)| self.lose_name(file, at));
                self.entries.remove(&place);
            }
            EditChange::Chmod(_, open) => {
                for (directory, _) in directories {
                    self.directories.get_mut(&directory).expect("it was found").1 = *open;
                }
                for (_, _, file) in names {
                    let file = self.files.get_mut(&file).expect("it has a name");
                    (file.open, file.changed) = (*open, at);
                }
            }
        }
        Ok(top)
    }

    fn tree(&self, top: Ino) -> FoundTree {
        let (mut directories, mut names) = FoundTree::default();
        let mut todo = vec![top];
        while let Some(directory) = todo.pop() {
            directories.insert((directory, self.directories[&directory].1));
            for ((_, name), ino) in self.entries.range((directory, Name::MIN)..=(directory, Name::MAX)) {
                if ino.is_directory() {
                    todo.push(*ino);
                } else {
                    names.push((directory, *name, *ino));
                }
            }
        }
        names.sort_unstable();
        (directories, names)
    }

    fn children(&self, directory: Ino) -> usize {
        self.entries.range((directory, Name::MIN)..=(directory, Name::MAX)).count()
    }

    fn directory_at(&self, place: (Ino, Name)) -> Option<Ino> {
        self.entries.get(&place).copied().filter(|ino| ino.is_directory())
    }

    fn directory_of(&self, place: (Ino, Name)) -> Result<Ino, Answer> {
        match self.entries.get(&place) {
            None => Err(Answer::NotFound),
            Some(ino) if ino.is_directory() => Ok(*ino),
            Some(_) => Err(Answer::NotDirectory),
        }
    }

    fn check_no_directory(&self, place: (Ino, Name), answer: Answer) -> Result<(), Answer> {
        self.directory_at(place).map_or(Ok(()), |_| Err(answer))
    }

    fn file_of(&self, place: (Ino, Name), expected: Option<Ino>) -> Result<Ino, Answer> {
        match self.entries.get(&place) {
            None => Err(Answer::NotFound),
            Some(ino) if ino.is_directory() => Err(Answer::IsDirectory),
            Some(ino) if Some(*ino) == expected => Ok(*ino),
            Some(_) => Err(Answer::Superseded),
        }
    }

    fn give(&mut self, slot: Option<Slot>) -> u64 {
        let given = self.given.entry(slot).or_default();
        *given += 1;
        *given
    }

    fn lose_name(&mut self, ino: Ino, at: Position) {
        let file = self.files.get_mut(&ino).expect("it had a name");
        (file.names, file.changed) = (file.names - 1, at);
        if file.names == 0 {
            self.files.remove(&ino);
        }
    }
}
