//! Where and when: positions of the log, slots, shards, and the keys of what a transaction touches.

use std::fmt;

use frieze_base::{InodeId, LogIndex};

/// Slots of the namespace, the unit of placement: fixed for ever, for a number of an inode says its slot.
pub const SLOTS: u16 = InodeId::SLOTS;

/// A transaction's place in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The entry.
    pub index: LogIndex,
    /// Which transaction of the entry, from 0.
    pub item: u32,
}

impl Position {
    /// The smallest position above this one.
    pub fn next(self) -> Position {
        Position { index: self.index, item: self.item + 1 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.item)
    }
}

/// One of the [`SLOTS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u16);

/// A run of slots that one thread executes. The same on every server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

impl ShardId {
    /// The shard of `slot` where all slots are divided evenly into `shards`.
    pub fn of(slot: Slot, shards: u16) -> ShardId {
        ShardId((u32::from(slot.0) * u32::from(shards) / u32::from(SLOTS)) as u16)
    }
}

/// What executes a part of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExecutionPlace {
    /// The directories.
    Trunk,
    /// The files of some slots.
    Shard(ShardId),
}

/// What a part touches, as a hash: a name in a directory, an inode, the content of a directory. Parts that touch two
/// things with one hash only wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxnKey(pub u64);

/// How a part touches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyAccess {
    /// Others may do the same at the same time.
    Shared,
    /// No other part touches it meanwhile.
    Exclusive,
}
