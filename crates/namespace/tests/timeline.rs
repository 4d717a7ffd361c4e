//! The index of time against walks of the tree: what it says of an interval turns the tree of its start into that of
//! its end.

#![expect(clippy::unwrap_used, reason = "a test")]

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{NamespaceWorld, root, user};
use frieze_base::{InodeId, Reason, Rng};
use frieze_hlc::Hlc;
use frieze_namespace::{
    ChangeSubject, Changed, SubjectState, TreeAt, TreeExtent, TxnChanges, VersionHistory, names_at,
};
use frieze_wire::message::{FileKind, VersionKind};
use frieze_wire::txn::{Op, RemoveXattr, SetAttr, SetXattr, Target};
use proptest::prelude::*;

/// Every name that can be reached: by directory and name, what it stands for.
type ReachableNames = BTreeMap<(InodeId, Vec<u8>), InodeId>;

/// The names as a walk finds them, and every path.
fn walk(world: &NamespaceWorld, at: Hlc) -> (ReachableNames, BTreeMap<InodeId, BTreeSet<String>>) {
    let (mut names, mut paths) = (ReachableNames::new(), BTreeMap::<InodeId, BTreeSet<String>>::new());
    let mut todo = vec![(String::new(), InodeId::ROOT)];
    while let Some((path, directory)) = todo.pop() {
        for entry in world.ns.list(&world.history, directory, Some(at), b"", usize::MAX).unwrap() {
            let child = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
            names.insert((directory, entry.name.clone()), entry.inode);
            paths.entry(entry.inode).or_default().insert(child.clone());
            if entry.kind == FileKind::Directory {
                todo.push((child, entry.inode));
            }
        }
    }
    (names, paths)
}

fn all(world: &NamespaceWorld, after: Hlc, upto: Hlc) -> Changed {
    Changed::read(&world.history, after, upto, None, usize::MAX, &mut |_| Ok(true)).unwrap()
}

/// Names that can be reached from the root.
fn reachable(names: &ReachableNames) -> ReachableNames {
    let mut found = ReachableNames::new();
    let mut todo = vec![InodeId::ROOT];
    while let Some(directory) = todo.pop() {
        for ((parent, name), id) in names.range((directory, Vec::new())..) {
            if *parent != directory {
                break;
            }
            found.insert((*parent, name.clone()), *id);
            todo.push(*id);
        }
    }
    found
}

fn step(world: &mut NamespaceWorld, rng: &mut Rng) {
    let paths: Vec<String> = walk(world, world.stamp).1.into_values().flatten().collect();
    let old = |rng: &mut Rng| match rng.below(paths.len() as u64 + 1) {
        0 => "/nothing".to_owned(),
        number => paths[number as usize - 1].clone(),
    };
    let new = |rng: &mut Rng| match (rng.chance(3), rng.below(6)) {
        (true, name) => format!("/n{name}"),
        (false, name) => format!("{}/n{name}", old(rng)),
    };
    let _ = match rng.below(12) {
        0..=2 => world.make(&new(rng), 0o644, frieze_wire::txn::MakeKind::File(false)).map(|_| ()),
        3 | 4 => world.make(&new(rng), 0o755, frieze_wire::txn::MakeKind::Directory(true)).map(|_| ()),
        5 => world.link(&old(rng), &new(rng)).map(|_| ()),
        6 => world.remove(&old(rng), rng.chance(2)).map(|_| ()),
        7 | 8 => world.rename(&old(rng), &new(rng), 0).map(|_| ()),
        9 => world.rename(&old(rng), &old(rng), rng.below(3) as u32).map(|_| ()),
        10 => {
            let target = Target::path(old(rng).as_str());
            let mode = Some(0o600 + rng.below(64) as u32);
            world.run(&root(), Op::SetAttr(SetAttr { target, mode, ..SetAttr::default() })).map(|_| ())
        }
        _ => {
            let (target, name) = (Target::path(old(rng).as_str()), b"user.color".to_vec());
            let op = match rng.chance(2) {
                true => Op::SetXattr(SetXattr { target, name, value: b"red".to_vec(), flags: 0 }),
                false => Op::RemoveXattr(RemoveXattr { target, name }),
            };
            world.run(&root(), op).map(|_| ())
        }
    };
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_changes_of_an_interval_turn_its_start_into_its_end(seed in any::<u64>()) {
        let mut rng = Rng::new(seed);
        let mut world = NamespaceWorld::new();
        let start = world.stamp;
        for _ in 0..150 {
            step(&mut world, &mut rng);
            if rng.chance(50) {
                world.ns = world.reloaded();
            }
        }
        for _ in 0..30 {
            let after = Hlc(rng.between(start.0, world.stamp.0 + 1));
            let upto = Hlc(rng.between(after.0, world.stamp.0 + 5000));
            let (mut names, _) = walk(&world, after);
            let (expect, _) = walk(&world, upto);
            let changed = all(&world, after, upto);
            let mut last = None;
            for change in &changed.subjects {
                prop_assert!(last.as_ref() < Some(&change.subject), "in order, each once");
                last = Some(change.subject.clone());
                prop_assert!(change.revisions.iter().all(|made| made.stamp > after && made.stamp <= upto));
                prop_assert!(change.revisions.iter().all(|made| made.session == world.session));
                prop_assert!(change.before.as_ref().is_none_or(|(since, _)| *since <= after));
                let now = &change.revisions.last().unwrap().state;
                if let ChangeSubject::Entry { parent, name } = &change.subject {
                    let key = (*parent, name.clone());
                    let before = change.before.as_ref().map(|(_, state)| state);
                    if let Some(SubjectState::Entry { inode, .. }) = before {
                        names.insert(key.clone(), *inode);
                    } else {
                        prop_assert!(!names.contains_key(&key), "{:?} was there", change.subject);
                    }
                    match now {
                        Some(SubjectState::Entry { inode, .. }) => names.insert(key, *inode),
                        _ => names.remove(&key),
                    };
                }
                if let (ChangeSubject::Inode(id), Some(SubjectState::Inode(state))) = (&change.subject, now) {
                    prop_assert_eq!(&**state, &world.ns.inode(&world.history, *id, Some(upto)).unwrap());
                }
            }
            // What lies in a directory that went, or was not there yet, is reached by neither walk.
            prop_assert_eq!(reachable(&names), expect);
        }
    }

    #[test]
    fn what_ever_lay_below_a_directory_is_in_its_extent(seed in any::<u64>()) {
        let mut rng = Rng::new(seed);
        let mut world = NamespaceWorld::new();
        let start = world.stamp;
        for _ in 0..120 {
            step(&mut world, &mut rng);
        }
        let (after, upto) = (Hlc(rng.between(start.0, world.stamp.0 + 1)), world.stamp);
        let (transactions, _) = TxnChanges::list(&world.history, after, upto, usize::MAX, usize::MAX).unwrap();
        let caller = root();
        for id in world.inodes() {
            let extent = TreeExtent::find(&world.history, id, after, upto, usize::MAX).unwrap().unwrap();
            for transaction in &transactions {
                for at in [transaction.stamp.previous(), transaction.stamp] {
                    let mut cut = TreeAt::new(&world.history, at, &caller);
                    for subject in &transaction.subjects {
                        let mut inside = subject.inode() == id;
                        for named in cut.names(subject.inode()).unwrap() {
                            inside |= cut.is_within(named.parent, id).unwrap();
                        }
                        prop_assert!(!inside || extent.holds(subject.inode()), "{:?} below {} at {}", subject, id, at);
                        prop_assert!(!inside || extent.stamps(after, upto).contains(&transaction.stamp));
                    }
                }
            }
        }
        let whole = TreeExtent::find(&world.history, InodeId::ROOT, after, upto, usize::MAX).unwrap().unwrap();
        let half = whole.inodes().count() / 2;
        prop_assert_eq!(TreeExtent::find(&world.history, InodeId::ROOT, after, upto, half).unwrap(), None);
    }

    #[test]
    fn names_and_paths_of_an_inode_are_those_of_a_walk(seed in any::<u64>()) {
        let mut rng = Rng::new(seed);
        let mut world = NamespaceWorld::new();
        let start = world.stamp;
        for _ in 0..120 {
            step(&mut world, &mut rng);
        }
        for _ in 0..20 {
            let at = Hlc(rng.between(start.0, world.stamp.0 + 5000));
            let (names, paths) = walk(&world, at);
            let caller = root();
            let mut cut = TreeAt::new(&world.history, at, &caller);
            for (id, expect) in &paths {
                let found = names_at(&world.history, *id, at).unwrap();
                let mut by_name = BTreeSet::new();
                for named in &found {
                    prop_assert_eq!(names.get(&(named.parent, named.name.clone())), Some(id));
                    let directory = cut.path(named.parent).unwrap().unwrap();
                    by_name.insert(String::from_utf8([&directory[..], b"/", &named.name].concat()).unwrap());
                    prop_assert!(cut.is_within(named.parent, InodeId::ROOT).unwrap());
                }
                prop_assert_eq!(&by_name, expect);
            }
            // And those that no walk finds have none.
            for id in world.inodes().into_iter().skip(1).filter(|id| !paths.contains_key(id)) {
                prop_assert_eq!(names_at(&world.history, id, at).unwrap(), vec![]);
            }
        }
    }
}

#[test]
fn a_query_reads_only_changed_entries() {
    let read = |unchanged: usize| {
        let mut world = NamespaceWorld::new();
        world.directory("/d");
        for number in 0..unchanged {
            world.file(&format!("/d/old{number}"));
        }
        let after = world.stamp;
        for number in 0..10 {
            world.file(&format!("/d/new{number}"));
        }
        let changed = all(&world, after, world.stamp);
        assert_eq!(changed.subjects.iter().filter(|c| matches!(c.subject, ChangeSubject::Entry { .. })).count(), 10);
        (changed.index_entries, changed.versions)
    };
    assert_eq!(read(3), read(3000));
}

#[test]
fn every_version_names_its_session_absences_too() {
    let mut world = NamespaceWorld::new();
    world.directory("/d");
    world
        .run(&root(), Op::SetAttr(SetAttr { target: Target::path("/d"), mode: Some(0o777), ..SetAttr::default() }))
        .unwrap();
    let file = world.file("/d/a");
    let after = world.stamp;
    let other = user(7, 7, &[]);
    let op = Op::Remove(frieze_wire::txn::Remove { target: Target::path("/d/a"), directory: false });
    world.run(&other, op).unwrap();
    let changed = all(&world, after, world.stamp);
    let entry = changed.subjects.iter().find(|change| matches!(change.subject, ChangeSubject::Entry { .. })).unwrap();
    assert_eq!(entry.revisions.len(), 1);
    assert_eq!((entry.revisions[0].session, entry.revisions[0].uid), (world.session, 7));
    assert_eq!(entry.revisions[0].state, None);
    let inode =
        |change: &&frieze_namespace::SubjectChange| matches!(change.subject, ChangeSubject::Inode(id) if id == file);
    let gone = &changed.subjects.iter().find(inode).unwrap().revisions[0];
    assert_eq!(
        gone.causes.iter().map(|cause| (cause.kind, &cause.name[..])).collect::<Vec<_>>(),
        [(VersionKind::Unnamed, &b"a"[..])]
    );
}

#[test]
fn an_interval_with_too_many_changes_is_refused_with_words() {
    let mut world = NamespaceWorld::new();
    let after = world.stamp;
    for number in 0..10 {
        world.file(&format!("/f{number}"));
    }
    let refused = Changed::read(&world.history, after, world.stamp, None, 5, &mut |_| Ok(true));
    assert_eq!(refused.map_err(|fault| fault.reason), Err(Reason::Overloaded));
}

#[test]
fn visibility_needs_the_modes_of_then_and_of_now() {
    let mut world = NamespaceWorld::new();
    world.directory("/open");
    world.directory("/shut");
    let inner = world.directory("/shut/inner");
    let (open, shut) = (world.find("/open", None).unwrap(), world.find("/shut", None).unwrap());
    let before = world.stamp;
    let chmod = |world: &mut NamespaceWorld, path: &str, mode| {
        let target = Target::path(path);
        world.run(&root(), Op::SetAttr(SetAttr { target, mode: Some(mode), ..SetAttr::default() })).unwrap();
    };
    chmod(&mut world, "/shut", 0o700);
    let between = world.stamp;
    chmod(&mut world, "/shut", 0o711);
    let after = world.stamp;
    let check = |at, directory, caller: &frieze_wire::txn::Caller| {
        let mut cut = TreeAt::new(&world.history, at, caller);
        (cut.may_search(directory).unwrap(), cut.may_list(directory).unwrap())
    };
    let (other, superuser) = (user(7, 7, &[]), root());
    for at in [before, between, after] {
        assert_eq!(check(at, open, &other), (true, true), "{at}");
        assert_eq!(check(at, inner, &superuser), (true, true), "{at}");
    }
    // Then everybody might, now only walk through.
    assert_eq!(check(before, shut, &other), (true, false));
    assert_eq!(check(before, inner, &other), (true, true));
    // Then no user might.
    assert_eq!(check(between, shut, &other), (false, false));
    assert_eq!(check(between, inner, &other), (false, false));
    assert_eq!(check(after, shut, &other), (true, false));
}

#[test]
fn the_index_of_time_visits_stamps_in_order_and_can_be_stopped() {
    let mut world = NamespaceWorld::new();
    for number in 0..5 {
        world.file(&format!("/f{number}"));
    }
    let mut stamps = Vec::new();
    let read = world.history.changed(Hlc::ZERO, Hlc::MAX, &mut |stamp, _| {
        stamps.push(stamp);
        stamps.len() < 4
    });
    assert_eq!(read.unwrap(), 4);
    assert!(stamps.is_sorted());
}
