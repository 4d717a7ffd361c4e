//! What a transaction reads and changes of the state, item by item.
//!
//! Guarantees: a footprint is a function of the transaction and the state; two transactions whose footprints do not
//! meet may run in any order.
//! Leaves to others: running a transaction on the items of its footprint alone ([`crate::PartialState`]), the order of
//! transactions (`calvin`), which server has which slot.
//!
//! # Source
//! Read and write sets that are found by a run in advance, and checked by the run that counts: Calvin (SIGMOD'12)
//! §3.2.1, dependent transactions.

use std::collections::BTreeSet;

use frieze_base::SessionId;
use frieze_wire::txn::{Op, Transaction};

use crate::state_item::StateItem;

/// What a transaction reads and what it changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Items whose values decide what it does.
    pub reads: BTreeSet<StateItem>,
    /// Items that it changes. An inode that it makes is none of them: it comes with the number.
    pub writes: BTreeSet<StateItem>,
}

/// How a transaction holds an item while it waits: others that hold it shared may do so at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ItemAccess {
    /// It reads it.
    Shared,
    /// It changes it.
    Exclusive,
}

impl Footprint {
    /// The items that every transaction of this kind reads.
    pub fn of_kind(txn: &Transaction) -> Footprint {
        let mut reads = BTreeSet::from([StateItem::Globals]);
        if txn.session != 0 {
            reads.insert(StateItem::Session(SessionId(txn.session)));
        }
        match &txn.op {
            Some(Op::OpenSession(_) | Op::EraseSessions(_)) => drop(reads.insert(StateItem::Sessions)),
            Some(Op::CloseSession(_)) => {
                reads.extend([StateItem::Sessions, StateItem::StagedEdits, StateItem::Grants(SessionId(txn.session))]);
            }
            Some(Op::MakeSnapshot(_) | Op::DeleteSnapshot(_)) => drop(reads.insert(StateItem::Snapshots)),
            Some(Op::Forget(_)) => reads.extend([StateItem::Snapshots, StateItem::Sessions]),
            Some(Op::StageEdit(_)) => drop(reads.insert(StateItem::StagedEdits)),
            Some(Op::Edit(edit)) if edit.staged.is_some() => drop(reads.insert(StateItem::StagedEdits)),
            _ => {}
        }
        Footprint { reads, writes: BTreeSet::new() }
    }

    /// True if it has all of another one.
    pub fn contains(&self, other: &Footprint) -> bool {
        self.reads.is_superset(&other.reads) && self.writes.is_superset(&other.writes)
    }

    /// What it holds while it waits, so that those it must not pass wait for it. Of a directory, changes of two names
    /// pass each other; its times and the number of its names are read when no such change is under way.
    pub fn holds(&self) -> impl Iterator<Item = (StateItem, ItemAccess)> {
        let reads = self.reads.iter().flat_map(|item| match item {
            StateItem::Files(id) | StateItem::AllFiles(id) => {
                [Some((StateItem::Files(*id), ItemAccess::Exclusive)), None]
            }
            StateItem::AllDirectories(id) => [Some((StateItem::Directories(*id), ItemAccess::Shared)), None],
            // A version of the directory may have newer ones.
            StateItem::Times(id) => {
                [(StateItem::Files(*id), ItemAccess::Exclusive), (StateItem::Links(*id), ItemAccess::Shared)].map(Some)
            }
            StateItem::FileNumbers(_) | StateItem::DirectoryNumbers | StateItem::Grants(_) => {
                [Some((item.clone(), ItemAccess::Exclusive)), None]
            }
            _ => [Some((item.clone(), ItemAccess::Shared)), None],
        });
        let writes = self.writes.iter().map(|item| match item {
            StateItem::Times(id) | StateItem::Files(id) => (StateItem::Files(*id), ItemAccess::Shared),
            // Grants of two files pass each other.
            StateItem::Grants(_) => (item.clone(), ItemAccess::Shared),
            _ => (item.clone(), ItemAccess::Exclusive),
        });
        reads.flatten().chain(writes)
    }
}
