//! A transaction on the items of its footprint alone. The simulator's scenario `shards` compares all kinds of them.

#![expect(clippy::unwrap_used, reason = "a test")]

mod common;

use std::collections::BTreeMap;

use common::{NamespaceWorld, root};
use frieze_base::{InodeId, Reason};
use frieze_hlc::Hlc;
use frieze_namespace::{
    FOOTPRINT_ITEMS_MAX, ItemValue, MemoryHistory, PartialRun, PartialState, StateItem, find_footprint,
};
use frieze_wire::edit::{Edit, EditKind, SetName};
use frieze_wire::txn::{Make, MakeKind, Op, Target, Transaction};

/// What an item holds in a world without edits of numbers: fewer than a hundred of each slot are given.
fn read(history: &MemoryHistory, item: &StateItem) -> ItemValue {
    let number = if matches!(item, StateItem::DirectoryNumbers | StateItem::FileNumbers(_)) { 100 } else { 0 };
    let value = item.read(history, Hlc::MAX).unwrap();
    ItemValue { number: value.number + number, ..value }
}

fn of_session(world: &NamespaceWorld, op: Op) -> Transaction {
    Transaction { session: world.session.0, caller: root(), op: Some(op), ..Transaction::default() }
}

fn create(world: &NamespaceWorld, path: &str) -> Transaction {
    let make = Make { target: Target::path(path), mode: 0o644, kind: Some(MakeKind::File(false)), ..Make::default() };
    of_session(world, Op::Make(make))
}

/// The raw versions of what the world has done.
fn parts(world: &NamespaceWorld) -> MemoryHistory {
    let mut history = MemoryHistory::of_part();
    let mut ns = frieze_namespace::Namespace::new();
    for (txn, stamp, _) in &world.log {
        let mut changes = Vec::new();
        ns.apply(txn, *stamp, &mut changes, &frieze_namespace::NoReadSet);
        history.commit(&changes);
    }
    history
}

#[test]
fn a_create_reads_its_way_its_name_and_the_numbers_of_its_slot() {
    let mut world = NamespaceWorld::new();
    let directory = world.directory("/d");
    world.file("/d/other");
    let (history, txn) = (parts(&world), create(&world, "/d/new"));
    let found = find_footprint(&txn, world.stamp.next(), &mut |item| Ok(read(&history, item))).unwrap();
    let (footprint, done) = found;
    assert_eq!(done.outcome.reason, 0, "{}", done.outcome.message);
    let name = |id, name: &str| (StateItem::DirectoryName(id, name.into()), StateItem::FileName(id, name.into()));
    let ((way, _), (as_directory, as_file)) = (name(InodeId::ROOT, "d"), name(directory, "new"));
    let expected = [
        StateItem::Globals,
        StateItem::Session(world.session),
        StateItem::Inode(InodeId::ROOT),
        StateItem::Inode(directory),
        way,
        as_directory,
        as_file.clone(),
        StateItem::FileNumbers(directory.slot()),
    ];
    assert_eq!(footprint.reads, expected.into());
    assert_eq!(footprint.writes, [StateItem::Times(directory), as_file, StateItem::Files(directory)].into());
}

#[test]
fn a_look_at_what_was_not_given_ends_a_transaction_and_names_it() {
    let mut world = NamespaceWorld::new();
    let directory = world.directory("/d");
    let (history, txn, stamp) = (parts(&world), create(&world, "/d/new"), world.stamp.next());
    let (footprint, done) = find_footprint(&txn, stamp, &mut |item| Ok(read(&history, item))).unwrap();
    let all: BTreeMap<StateItem, ItemValue> =
        footprint.reads.iter().map(|item| (item.clone(), read(&history, item))).collect();
    assert_eq!(PartialState::new(&all).unwrap().run(&txn, stamp), PartialRun::Done(done));
    // What a transaction is always given is no look: whether its session is open, and what holds for all.
    for missing in all.keys().filter(|item| item.inode().is_some()) {
        let mut items = all.clone();
        items.remove(missing);
        assert_eq!(PartialState::new(&items).unwrap().run(&txn, stamp), PartialRun::Outside(missing.clone()));
    }
    let numbers = StateItem::FileNumbers(directory.slot());
    let mut items = all;
    items.remove(&numbers);
    assert_eq!(PartialState::new(&items).unwrap().run(&txn, stamp), PartialRun::Outside(numbers));
}

#[test]
fn a_footprint_of_too_many_items_is_refused() {
    let mut world = NamespaceWorld::new();
    world.directory("/d");
    let set = |number: usize| SetName { directory: 1, name: format!("{number}").into(), expect: 0, inode: 0 };
    let names = (0..=FOOTPRINT_ITEMS_MAX).map(set).collect();
    let txn = of_session(&world, Op::Edit(Edit { kind: EditKind::Remove as i32, names, ..Edit::default() }));
    let history = parts(&world);
    let refused = find_footprint(&txn, world.stamp.next(), &mut |item| Ok(read(&history, item))).unwrap_err();
    assert_eq!(refused.reason, Reason::TooLarge);
}
