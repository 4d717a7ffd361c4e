//! Limits of the files below directories, by escrow: each shard has an allotment of the room that is left.
//!
//! Of each limit a shard knows how many names it has below it (*used*), and its *room*: how many more it may add by
//! itself. As long as a limit is kept, used and room of all shards are the limit. A change that finds no room in its
//! shard is sent again and *gathers*: all shards say what they have, the change is decided by the sum, and what is left
//! is divided anew, in one transaction. A limit below what is used is *closed*: there is no room in any shard, and
//! removed names give none back until a change gathers.
//!
//! # Source
//! O'Neil, The Escrow Transactional Method (TODS 1986). We depart in that shares lie with shards, not with
//! transactions: the log has the order of all takers, so nothing is reserved.

use std::collections::{BTreeMap, BTreeSet};

use frieze_calvin::{SLOTS, ShardId, Slot};

use super::op::Ino;

/// What a change does to limits.
#[derive(Clone, Debug, Default)]
pub(super) struct RoomPlan {
    /// Of each directory whose names change: the limits that count them.
    pub(super) above: BTreeMap<Ino, BTreeSet<Ino>>,
    /// Limits that need room for names, with their values.
    pub(super) needs: BTreeMap<Ino, u64>,
    /// The shard that needs the room: the first when it is divided.
    pub(super) first: ShardId,
    /// All shards say what they have of the limits in `needs`.
    pub(super) gathers: bool,
    /// Directories that are counted, for they come below a limit or leave one.
    pub(super) weighed: BTreeSet<Ino>,
    /// Limits above a tree that goes.
    pub(super) loses: BTreeSet<Ino>,
    pub(super) shards: u16,
}

impl RoomPlan {
    /// All limits that it concerns.
    pub(super) fn limits(&self) -> BTreeSet<Ino> {
        let above = self.above.values().flatten().copied();
        above.chain(self.needs.keys().copied()).chain(self.loses.iter().copied()).collect()
    }

    /// What a limit counts of names that come or go, in one shard or in all.
    pub(super) fn change(&self, limit: Ino, names: &[(Ino, i64)], shard: Option<ShardId>) -> i64 {
        let counts = |directory: Ino| {
            self.above.get(&directory).is_none_or(|limits| limits.contains(&limit))
                && shard.is_none_or(|shard| ShardId::of(directory.slot(), self.shards) == shard)
        };
        let sum: i64 = names.iter().filter(|(directory, _)| counts(*directory)).map(|(_, names)| names).sum();
        if self.loses.contains(&limit) { -sum } else { sum }
    }
}

/// A slot that speaks for a shard: the directory's, if it is there.
pub(super) fn slot_of(shard: ShardId, directory: Ino, shards: u16) -> Slot {
    let first = u32::from(shard.0) * u32::from(SLOTS) / u32::from(shards);
    if ShardId::of(directory.slot(), shards) == shard { directory.slot() } else { Slot(first as u16) }
}

/// The shard's part of the room that is left.
pub(super) fn divide(left: u64, shard: ShardId, first: ShardId, shards: u16) -> u64 {
    let turn = u64::from((shard.0 + shards - first.0) % shards);
    left / u64::from(shards) + u64::from(turn < left % u64::from(shards))
}

/// What a shard has of a limit. A broken server's may be below 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ShardRoom {
    pub(super) used: i64,
    pub(super) room: i64,
    /// The limit is below what is used: removed names give no room.
    pub(super) closed: bool,
}
