//! What slots say of a change to its other parts.

use std::collections::BTreeMap;

use frieze_base::SessionId;
use frieze_calvin::{ShardId, Slot};

use super::op::{DirectoryName, Ino, Name};
use super::stages::EditId;

/// Something that a slot says: a read just below the change's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fact {
    /// The file of a name; 0: none.
    Entry(DirectoryName),
    /// Names of a file.
    Links(Ino),
    /// Files of a directory.
    Count(Ino),
    /// 1 if what was staged of its directories is what is there.
    Staged(EditId, Slot),
    /// Names that a shard has below a limit, and its room for more.
    Room(Ino, ShardId),
}

impl Fact {
    fn words(self) -> [u64; 4] {
        match self {
            Fact::Entry((ino, name)) => [1, ino.0, u64::from(name), 0],
            Fact::Links(ino) => [2, ino.0, 0, 0],
            Fact::Count(ino) => [3, ino.0, 0, 0],
            Fact::Staged(EditId { session, number }, slot) => [4, session.0, number, u64::from(slot.0)],
            Fact::Room(limit, shard) => [5, limit.0, u64::from(shard.0), 0],
        }
    }

    fn of_words([kind, first, second, third]: [u64; 4]) -> Fact {
        match kind {
            1 => Fact::Entry((Ino(first), second as Name)),
            2 => Fact::Links(Ino(first)),
            3 => Fact::Count(Ino(first)),
            5 => Fact::Room(Ino(first), ShardId(second as u16)),
            _ => Fact::Staged(EditId { session: SessionId(first), number: second }, Slot(third as u16)),
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
    words.chunks_exact(5).map(|five| (Fact::of_words([five[0], five[1], five[2], five[3]]), five[4])).collect()
}
