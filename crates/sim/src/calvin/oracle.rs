//! The same file system as one tree, executed in log order: what every server has to agree with.

use std::collections::BTreeMap;

use frieze_calvin::{Position, Slot};

use super::op::{Answer, Body, ChangePath, ExpectedTree, Ino, LINKS_MAX, Name, TreeOp};

/// The state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Oracle {
    /// Directories: where they lie, and whether they are open to walks.
    pub(super) directories: BTreeMap<Ino, (Ino, bool)>,
    pub(super) entries: BTreeMap<(Ino, Name), Ino>,
    /// Files: names, value, and the last change of either.
    pub(super) files: BTreeMap<Ino, (u32, u64, Position)>,
    /// Numbers given: of directories, and of files by slot.
    pub(super) given: BTreeMap<Option<Slot>, u64>,
}

impl Oracle {
    /// A root and nothing in it.
    pub(super) fn new() -> Oracle {
        Oracle { directories: BTreeMap::from([(Ino::ROOT, (Ino::ROOT, true))]), ..Oracle::default() }
    }

    /// Executes a change at its position.
    pub(super) fn execute(&mut self, at: Position, body: &Body) -> Answer {
        self.try_execute(at, body).unwrap_or_else(|answer| answer)
    }

    fn try_execute(&mut self, at: Position, Body { op, expects, tree }: &Body) -> Result<Answer, Answer> {
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
                self.files.insert(ino, (1, 0, at));
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
                (file.1, file.2) = (*value, at);
                ino
            }
            TreeOp::RemoveTree(target) => {
                let place = (self.walk(target)?, target.name);
                let ino = self.directory_of(place)?;
                if self.tree(ino) != *tree {
                    return Err(Answer::Superseded);
                }
                for (directory, files) in tree {
                    self.directories.remove(directory);
                    self.entries.retain(|(parent, _), _| parent != directory);
                    files.values().for_each(|file| self.lose_name(*file, at));
                }
                self.entries.remove(&place);
                ino
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
                if file.0 >= LINKS_MAX {
                    return Err(Answer::TooManyLinks);
                }
                (file.0, file.2) = (file.0 + 1, at);
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
        self.files.get_mut(&ino).expect("it has a name").2 = at;
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

    /// A directory and all below it, with their files.
    fn tree(&self, top: Ino) -> ExpectedTree {
        let mut tree = ExpectedTree::new();
        let mut todo = vec![top];
        while let Some(directory) = todo.pop() {
            let files = tree.entry(directory).or_default();
            for ((_, name), ino) in self.entries.range((directory, Name::MIN)..=(directory, Name::MAX)) {
                if ino.is_directory() {
                    todo.push(*ino);
                } else {
                    files.insert(*name, *ino);
                }
            }
        }
        tree
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
        (file.0, file.2) = (file.0 - 1, at);
        if file.0 == 0 {
            self.files.remove(&ino);
        }
    }
}
