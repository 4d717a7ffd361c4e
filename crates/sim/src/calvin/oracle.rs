//! The same file system as one tree, executed in log order: what every server has to agree with.

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::SessionId;
use frieze_calvin::{Position, ShardId, Slot};

use super::op::{Answer, Body, ChangePath, EditChange, FileState, Ino, LINKS_MAX, Name, TreeOp, TreeSettings};
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
        }
    }

    fn try_execute(&mut self, at: Position, body: &Body) -> Result<Answer, Answer> {
        let Body { session, op, expects, part } = body;
        if self.ended.contains(session) {
            return Err(Answer::UnknownSession);
        }
        Ok(Answer::Ok(match op {
            TreeOp::Make(target) => {
                let directory = self.walk(target)?;
                self.check_no_directory((directory, target.name), Answer::Exists)?;
                let slot = directory.slot();
                let ino = Ino::file(slot, self.give(Some(slot)));
                if self.entries.contains_key(&(directory, target.name)) {
                    return Err(Answer::Exists);
                }
                self.entries.insert((directory, target.name), ino);
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
                self.directories.remove(&ino);
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
                ino
            }
            TreeOp::Set(target, value) => {
                let place = (self.walk(target)?, target.name);
                let ino = self.file_of(place, expects[0])?;
                let file = self.files.get_mut(&ino).expect("it has a name");
                (file.value, file.changed) = (*value, at);
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
                let file = self.files.get_mut(&ino).expect("it has a name");
                if file.names >= LINKS_MAX {
                    return Err(Answer::TooManyLinks);
                }
                (file.names, file.changed) = (file.names + 1, at);
                self.entries.insert(to, ino);
                ino
            }
            TreeOp::Rename(from, to) => {
                let (from, to) = ((self.walk(from)?, from.name), (self.walk(to)?, to.name));
                match (self.directory_at(from), self.directory_at(to)) {
                    (Some(moved), replaced) => self.move_directory(moved, from, to, replaced)?,
                    (None, Some(_)) if self.entries.contains_key(&from) => return Err(Answer::IsDirectory),
                    (None, Some(_)) => return Err(Answer::NotFound),
                    (None, None) => self.move_file(from, to, *expects, at)?,
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
            Some(replaced) => drop(self.directories.remove(&replaced)),
            None => {}
        }
        self.entries.remove(&from);
        self.entries.insert(to, moved);
        self.directories.get_mut(&moved).expect("it has a name").0 = to.0;
        Ok(moved)
    }

    fn move_file(
        &mut self,
        from: (Ino, Name),
        to: (Ino, Name),
        expects: [Option<Ino>; 2],
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
        if let Some(replaced) = replaced {
            self.lose_name(replaced, at);
        }
        self.entries.remove(&from);
        self.entries.insert(to, ino);
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
                for (directory, _) in directories {
                    self.directories.remove(&directory);
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
