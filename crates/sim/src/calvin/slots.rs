//! The slots of the small file system: files and their names, what they say of a change, and what it does to them.

use std::collections::BTreeMap;

use frieze_calvin::{Position, ShardId, Slot};

use super::breakage::CalvinBreak;
use super::op::{Answer, Ino, LINKS_MAX, Name};
use super::trunk::{Action, DirectoryName};
use super::versions::VersionedMap;

/// Something that a slot says: a read just below the change's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fact {
    /// The file of a name; 0: none.
    Entry(DirectoryName),
    /// Names of a file.
    Links(Ino),
    /// Files of a directory.
    Count(Ino),
    /// Their names and numbers, as a hash.
    Names(Ino),
}

impl Fact {
    fn words(self) -> [u64; 3] {
        match self {
            Fact::Entry((ino, name)) => [1, ino.0, u64::from(name)],
            Fact::Links(ino) => [2, ino.0, 0],
            Fact::Count(ino) => [3, ino.0, 0],
            Fact::Names(ino) => [4, ino.0, 0],
        }
    }

    fn of_words([kind, ino, name]: [u64; 3]) -> Fact {
        match kind {
            1 => Fact::Entry((Ino(ino), name as Name)),
            2 => Fact::Links(Ino(ino)),
            3 => Fact::Count(Ino(ino)),
            _ => Fact::Names(Ino(ino)),
        }
    }
}

/// What slots have said.
pub(super) type Facts = BTreeMap<Fact, u64>;

/// Facts as bytes.
pub(super) fn encode(facts: &Facts) -> Vec<u8> {
    let words = facts.iter().flat_map(|(fact, value)| fact.words().into_iter().chain([*value]));
    words.flat_map(u64::to_le_bytes).collect()
}

/// Facts of bytes.
pub(super) fn decode(bytes: &[u8]) -> Facts {
    let words: Vec<u64> =
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes"))).collect();
    words.chunks_exact(4).map(|four| (Fact::of_words([four[0], four[1], four[2]]), four[3])).collect()
}

/// A file: how many names it has, its value, and the last change of either.
pub(super) type FileState = (u32, u64, Position);

/// The files of all slots that a server has.
#[derive(Clone, Debug, Default)]
pub(super) struct SlotFiles {
    pub(super) names: VersionedMap<DirectoryName, Ino>,
    pub(super) files: VersionedMap<Ino, FileState>,
    /// By directory: files that came or went, by when. Sums, for changes of other names may come in any order.
    counts: BTreeMap<Ino, BTreeMap<Position, i64>>,
    /// Numbers given where a breakage gives them.
    given: BTreeMap<Slot, u64>,
}

impl SlotFiles {
    /// Drops what is at or above a position.
    pub(super) fn cut(&mut self, at: Position) {
        self.names.cut(at);
        self.files.cut(at);
        self.counts.values_mut().for_each(|counts| drop(counts.split_off(&at)));
    }

    /// A fact just below a position; `now`: as it is.
    pub(super) fn fact(&self, fact: Fact, at: Position, now: bool) -> u64 {
        let at = if now { Position { index: frieze_base::LogIndex(u64::MAX), item: 0 } } else { at };
        match fact {
            Fact::Entry(place) => self.names.before(place, at).map_or(0, |ino| ino.0),
            Fact::Links(ino) => self.files.before(ino, at).map_or(0, |file| u64::from(file.0)),
            Fact::Names(directory) => {
                let names = self.names.all_before(at).into_iter().filter(|((parent, _), _)| *parent == directory);
                hash_names(names.map(|((_, name), ino)| (name, ino)))
            }
            Fact::Count(ino) => {
                let counts = self.counts.get(&ino).into_iter().flatten();
                counts.take_while(|(when, _)| **when < at).map(|(_, count)| count).sum::<i64>() as u64
            }
        }
    }

    /// Makes the part of a change that lies in one shard.
    pub(super) fn apply(
        &mut self,
        at: Position,
        (action, answer): (&Action, Answer),
        facts: &Facts,
        is_here: &dyn Fn(Slot) -> bool,
        breakage: Option<CalvinBreak>,
    ) {
        let Answer::Ok(ino) = answer else { return };
        let here = |ino: Ino| is_here(ino.slot());
        match *action {
            Action::Make(place, mut ino) if here(place.0) => {
                if breakage == Some(CalvinBreak::NumbersAtExecution) {
                    let given = self.given.entry(ino.slot()).or_default();
                    *given += 1;
                    ino = Ino::file(ino.slot(), *given);
                }
                self.files.set(ino, at, Some((1, 0, at)));
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
                let file = self.file(ino);
                self.files.set(ino, at, Some((file.0, value, at)));
            }
            Action::Link(_, to, _) => {
                if here(to.0) {
                    self.set_name(at, to, Some(ino));
                }
                if here(ino) {
                    let file = self.file(ino);
                    self.files.set(ino, at, Some((file.0 + 1, file.1, at)));
                }
            }
            Action::RemoveTree(_, _, ref tree) => {
                for (directory, files) in tree {
                    for (name, file) in files {
                        if here(*directory) {
                            self.set_name(at, (*directory, *name), None);
                        }
                        if here(*file) {
                            self.lose_name(at, *file);
                        }
                    }
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
            let file = self.file(ino);
            self.files.set(ino, at, Some((file.0, file.1, at)));
        }
        if let Some(replaced) = replaced.filter(|replaced| here(*replaced)) {
            self.lose_name(at, replaced);
        }
    }

    /// A file that a name leads to. A broken server may not have it; its state shows that.
    fn file(&self, ino: Ino) -> FileState {
        self.files.newest(ino).unwrap_or_default()
    }

    /// A file loses a name.
    fn lose_name(&mut self, at: Position, ino: Ino) {
        let file = self.file(ino);
        self.files.set(ino, at, (file.0 > 1).then(|| (file.0 - 1, file.1, at)));
    }

    fn set_name(&mut self, at: Position, place: DirectoryName, ino: Option<Ino>) {
        let before = i64::from(self.names.newest(place).is_some());
        let more = i64::from(ino.is_some()) - before;
        *self.counts.entry(place.0).or_default().entry(at).or_default() += more;
        self.names.set(place, at, ino);
    }

    /// Names and files of a shard below a position.
    pub(super) fn before(
        &self,
        at: Position,
        shard: ShardId,
        shards: u16,
    ) -> (BTreeMap<DirectoryName, Ino>, BTreeMap<Ino, FileState>) {
        let is_here = |ino: Ino| ShardId::of(ino.slot(), shards) == shard;
        let names = self.names.all_before(at).into_iter().filter(|((parent, _), _)| is_here(*parent)).collect();
        let files = self.files.all_before(at).into_iter().filter(|(ino, _)| is_here(*ino)).collect();
        (names, files)
    }
}

/// A hash of names, in order, with their inodes.
fn hash_names(names: impl Iterator<Item = (Name, Ino)>) -> u64 {
    names.fold(1, |hash, (name, ino)| (hash ^ ino.0 ^ u64::from(name) << 56).wrapping_mul(0x0000_0100_0000_01b3))
}

/// What a change answers, by what all slots have said: the same at every part of it.
pub(super) fn decide(action: &Action, facts: &Facts) -> Answer {
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
            Action::RemoveTree(top, _, ref tree) => {
                let is_same = |(directory, files): (&Ino, &BTreeMap<Name, Ino>)| {
                    fact(Fact::Names(*directory)) == hash_names(files.iter().map(|(name, ino)| (*name, *ino)))
                };
                if tree.iter().all(is_same) { Ok(top) } else { Err(Answer::Superseded) }
            }
            Action::MoveDirectory(moved, _, _, Some(replaced)) => {
                if fact(Fact::Count(replaced)) == 0 {
                    Ok(moved)
                } else {
                    Err(Answer::NotEmpty)
                }
            }
            Action::MoveDirectory(moved, _, to, None) => entry(to).map_or(Ok(moved), |_| Err(Answer::NotDirectory)),
        }
    };
    decided().map_or_else(|answer| answer, Answer::Ok)
}
