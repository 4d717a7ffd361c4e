//! Edits: all or none, only what was planned on, and always a tree.

#![expect(clippy::unwrap_used, reason = "a test")]

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{NamespaceWorld, root, user};
use frieze_base::{InodeId, Reason, Rng};
use frieze_hlc::Hlc;
use frieze_namespace::{MAY_READ, MAY_WRITE, ORPHANS_KEPT_MAX, PATCHES_MAX, PatchSource};
use frieze_wire::acl::{ACCESS_ACL_XATTR, Acl, AclNamedEntry, DEFAULT_ACL_XATTR};
use frieze_wire::edit::{Edit, EditKind, NEW, NewInode, SetName, SetState, Share, Xattr};
use frieze_wire::message::FileKind;
use frieze_wire::txn::{MakeKind, MakeNameless, Op, Outcome};
use proptest::prelude::*;

fn edit(world: &mut NamespaceWorld, edit: Edit) -> Result<Outcome, Reason> {
    world.run(&root(), Op::Edit(edit))
}

/// Runs an edit, every second one in parts of one change.
fn edit_in_parts(world: &mut NamespaceWorld, edit: Edit) -> Result<Outcome, Reason> {
    let edit = if world.seq.is_multiple_of(2) { edit } else { world.stage(edit, 7, 0) };
    let outcome = world.run(&root(), Op::Edit(edit));
    assert_eq!(world.ns.staged_bytes(), 0, "an edit that has run, or is refused, leaves no part");
    outcome
}

fn names(names: Vec<SetName>) -> Edit {
    Edit { kind: EditKind::Undo as i32, names, ..Edit::default() }
}

fn set(directory: InodeId, name: &str, expect: InodeId, inode: InodeId) -> SetName {
    SetName { directory: directory.0, name: name.into(), expect: expect.0, inode: inode.0 }
}

fn new_inode(kind: FileKind) -> NewInode {
    NewInode { kind: kind as i32, mode: 0o755, chunk_bytes: 4096, chain_count: 8, ..NewInode::default() }
}

const NONE: InodeId = InodeId(0);

/// Every inode with a name: its kind and the directories that name it. Fails if a directory is met twice.
fn walk(world: &NamespaceWorld) -> BTreeMap<InodeId, Vec<InodeId>> {
    let mut found: BTreeMap<InodeId, Vec<InodeId>> = BTreeMap::from([(InodeId::ROOT, vec![InodeId::ROOT])]);
    let mut todo = vec![InodeId::ROOT];
    while let Some(directory) = todo.pop() {
        for entry in world.ns.list(&world.history, directory, None, b"", usize::MAX).unwrap() {
            let places = found.entry(entry.inode).or_default();
            places.push(directory);
            if entry.kind == FileKind::Directory {
                assert_eq!(places.len(), 1, "directory {} has two names", entry.inode);
                todo.push(entry.inode);
            }
        }
    }
    found
}

/// The invariants of a tree, counted from nothing.
fn check_tree(world: &NamespaceWorld) {
    let found = walk(world);
    let mut alive = 0;
    for id in world.inodes() {
        let Some(inode) = world.ns.current(id) else { continue };
        let Some(places) = found.get(&id) else {
            assert_eq!(inode.links, 0, "{id} has no name");
            assert!(inode.orphaned().is_some());
            let held = world.ns.list(&world.history, id, None, b"", 1);
            assert!(!inode.is_directory() || held.unwrap().is_empty(), "{id} is gone and holds something");
            continue;
        };
        alive += 1;
        assert!(inode.orphaned().is_none());
        if inode.is_directory() {
            let children = world.ns.list(&world.history, id, None, b"", usize::MAX).unwrap();
            let directories = children.iter().filter(|entry| entry.kind == FileKind::Directory).count();
            assert_eq!(inode.links as usize, 2 + directories, "links of directory {id}");
            assert_eq!(inode.parent, places[0], "parent of {id}");
        } else {
            assert_eq!(inode.links as usize, places.len(), "links of {id}");
            assert!(places.contains(&inode.parent) || inode.parent == NONE, "home of {id}");
        }
    }
    assert_eq!(world.ns.counts().inodes, alive);
}

#[test]
fn names_change_places_in_one_step() {
    let mut world = NamespaceWorld::new();
    let (a, b) = (world.directory("/a"), world.directory("/b"));
    let file = world.file("/a/f");
    // b moves into a, a takes the name of b, and the file goes up.
    let steps = vec![
        set(InodeId::ROOT, "b", b, a),
        set(InodeId::ROOT, "a", a, NONE),
        set(a, "f", file, b),
        set(InodeId::ROOT, "f", NONE, file),
    ];
    let stamp = Hlc(edit(&mut world, names(steps)).unwrap().stamp);
    assert_eq!((world.find("/b", None), world.find("/b/f", None), world.find("/f", None)), (Ok(a), Ok(b), Ok(file)));
    assert_eq!(world.find("/a/f", Some(stamp.previous())), Ok(file));
    check_tree(&world);
    world.check_replay();
}

#[test]
fn what_would_be_no_tree_is_refused_and_leaves_no_trace() {
    let mut world = NamespaceWorld::new();
    let (a, b) = (world.directory("/a"), world.directory("/a/b"));
    let file = world.file("/a/b/f");
    let before = world.dump(None);
    let cases = [
        // A directory below itself, and two below each other.
        (vec![set(InodeId::ROOT, "a", a, NONE), set(b, "a", NONE, a)], Reason::InvalidArgument),
        // Two names of a directory.
        (vec![set(InodeId::ROOT, "c", NONE, b)], Reason::NotPermitted),
        // A directory that holds something goes alone.
        (vec![set(a, "b", b, NONE)], Reason::NotEmpty),
        // A name in a directory that goes.
        (vec![set(a, "b", b, NONE), set(b, "f", file, NONE), set(b, "g", NONE, file)], Reason::NotEmpty),
        (vec![set(file, "x", NONE, b)], Reason::NotDirectory),
        (vec![set(a, "..", NONE, file)], Reason::InvalidArgument),
        (vec![set(a, "x/y", NONE, file)], Reason::InvalidArgument),
        (vec![set(a, "x", NONE, InodeId::ROOT)], Reason::InvalidArgument),
        (vec![set(a, "x", NONE, InodeId(NEW))], Reason::InvalidArgument),
        (vec![set(a, "x", NONE, InodeId(99))], Reason::StaleHandle),
        (vec![set(a, "x", NONE, file), set(a, "x", NONE, file)], Reason::InvalidArgument),
    ];
    for (steps, reason) in cases {
        assert_eq!(edit(&mut world, names(steps.clone())).map(|_| ()), Err(reason), "{steps:?}");
    }
    assert_eq!(world.dump(None), before);
    // All of it may go together.
    let all = vec![set(InodeId::ROOT, "a", a, NONE), set(a, "b", b, NONE), set(b, "f", file, NONE)];
    edit(&mut world, names(all)).unwrap();
    check_tree(&world);
    assert_eq!(world.ns.counts().inodes, 1);
    // And come back.
    let all = vec![set(InodeId::ROOT, "a", NONE, a), set(a, "b", NONE, b), set(b, "f", NONE, file)];
    edit(&mut world, names(all)).unwrap();
    check_tree(&world);
    assert_eq!(world.find("/a/b/f", None), Ok(file));
    assert_eq!(world.reloaded(), world.ns);
}

#[test]
fn an_edit_planned_on_what_has_changed_is_not_run_and_not_remembered() {
    let mut world = NamespaceWorld::new();
    let (a, b) = (world.file("/a"), world.file("/b"));
    let stale = names(vec![set(InodeId::ROOT, "a", b, NONE)]);
    assert_eq!(edit(&mut world, stale).map(|_| ()), Err(Reason::Superseded));
    // The same request, planned again, runs.
    let fresh = names(vec![set(InodeId::ROOT, "a", a, NONE)]);
    let (session, seq) = (world.session, world.seq);
    let outcome = world.raw(session, seq, 0, root(), Op::Edit(fresh.clone()));
    assert_eq!(outcome.reason, 0);
    assert_eq!(world.raw(session, seq, 0, root(), Op::Edit(fresh)), outcome);
    let state = SetState { inode: b.0, expect: 7, mode: Some(0), ..SetState::default() };
    let stale = Edit { states: vec![state], ..Edit::default() };
    assert_eq!(edit(&mut world, stale).map(|_| ()), Err(Reason::Superseded));
}

#[test]
fn rights_are_those_of_the_single_operations() {
    let mut world = NamespaceWorld::new();
    let shut = world.directory("/shut");
    let open = world.make("/open", 0o777, MakeKind::Directory(true)).unwrap();
    let sticky = world.make("/sticky", 0o1777, MakeKind::Directory(true)).unwrap();
    let file = world.file("/open/f");
    let mine = world.file("/sticky/mine");
    let alice = user(1000, 100, &[]);
    let mut may = |edit: Edit| world.run(&alice, Op::Edit(edit)).map(|_| ());
    assert_eq!(may(names(vec![set(shut, "f", NONE, file)])), Err(Reason::AccessDenied));
    assert_eq!(may(names(vec![set(sticky, "mine", mine, NONE)])), Err(Reason::NotPermitted));
    assert_eq!(may(names(vec![set(open, "g", NONE, file)])), Ok(()));
    let expect = world.ns.current(file).unwrap().from.0;
    let state = SetState { inode: file.0, expect, ..SetState::default() };
    let mut may =
        |state: SetState| world.run(&alice, Op::Edit(Edit { states: vec![state], ..Edit::default() })).map(|_| ());
    assert_eq!(may(SetState { mode: Some(0o777), ..state.clone() }), Err(Reason::NotPermitted));
    assert_eq!(may(SetState { uid: Some(1000), ..state.clone() }), Err(Reason::NotPermitted));
    assert_eq!(may(SetState { mtime_ns: Some(0), ..state.clone() }), Err(Reason::NotPermitted));
    assert_eq!(may(SetState { size: Some(0), ..state.clone() }), Err(Reason::AccessDenied));
    let color = Xattr { name: b"user.c".to_vec(), value: Some(b"v".to_vec()) };
    assert_eq!(may(SetState { xattrs: vec![color], ..state }), Err(Reason::AccessDenied));
    let foreign = Edit {
        new: vec![new_inode(FileKind::File)],
        names: vec![set(open, "n", NONE, InodeId(NEW))],
        ..Edit::default()
    };
    assert_eq!(world.run(&alice, Op::Edit(foreign)).map(|_| ()), Err(Reason::NotPermitted));
}

#[test]
fn shares_are_patches_of_the_edits_stamp() {
    let mut world = NamespaceWorld::new();
    let origin = world.file("/origin");
    let at = world.stamp.0;
    let share = Share { start: 0, len: 100, inode: origin.0, offset: 50, at };
    let new = NewInode { size: 60, shares: vec![share], ..new_inode(FileKind::File) };
    let made = Edit { new: vec![new], names: vec![set(InodeId::ROOT, "c", NONE, InodeId(NEW))], ..Edit::default() };
    let id = InodeId(edit(&mut world, made).unwrap().id);
    let inode = world.ns.current(id).unwrap();
    assert_eq!((inode.size, inode.links, inode.patches().len()), (60, 1, 1));
    let patch = inode.patches()[0];
    assert_eq!((patch.at, patch.start, patch.end), (world.stamp, 0, 60));
    assert_eq!(patch.source, PatchSource::Shared { inode: origin, offset: 50, at: Hlc(at) });
    // The future is not shared, and no file is put together from too many pieces.
    let expect = inode.from.0;
    let state = |shares| Edit {
        states: vec![SetState { inode: id.0, expect, shares, size: Some(1 << 20), ..SetState::default() }],
        ..Edit::default()
    };
    let future = Share { at: u64::MAX, ..share };
    assert_eq!(edit(&mut world, state(vec![future])).map(|_| ()), Err(Reason::InvalidArgument));
    let many = |count: u64| (0..count).map(|i| Share { start: 200 * i, ..share }).collect::<Vec<_>>();
    let max = PATCHES_MAX as u64;
    assert_eq!(edit(&mut world, state(many(max))).map(|_| ()), Err(Reason::TooLarge));
    edit(&mut world, state(many(max - 1))).unwrap();
    assert_eq!(world.reloaded(), world.ns);
}

#[test]
fn a_length_that_is_extended_hides_and_forgets_nothing_beyond() {
    let mut world = NamespaceWorld::new();
    let file = world.file("/f");
    let origin = world.file("/origin");
    let at = world.stamp.0;
    let before = world.ns.current(file).unwrap().into_owned();
    let share = Share { start: 10, len: 5, inode: origin.0, offset: 0, at };
    let states = |size, expect| {
        vec![SetState { inode: file.0, expect, shares: vec![share], size, extends: true, ..SetState::default() }]
    };
    let copy = |states| Edit { kind: EditKind::CopyRange as i32, states, ..Edit::default() };
    edit(&mut world, copy(states(Some(15), before.from.0))).unwrap();
    let after = world.ns.current(file).unwrap().into_owned();
    assert_eq!((after.size, after.size_as_of), (15, before.size_as_of), "what is newer still counts beside it");
    assert_eq!(after.patches().len(), 1, "{:?}", after.patches());
    edit(&mut world, copy(states(Some(12), after.from.0))).unwrap();
    assert_eq!(world.ns.current(file).unwrap().size, 15);
    assert_eq!(world.reloaded(), world.ns);
    world.check_replay();
}

#[test]
fn a_file_without_a_name_is_one_that_has_lost_its_last() {
    let mut world = NamespaceWorld::new();
    let beside = world.file("/f");
    let made = world.run(&user(1000, 1000, &[]), Op::MakeNameless(MakeNameless { beside: beside.0 })).unwrap();
    let inode = world.ns.current(InodeId(made.id)).unwrap().into_owned();
    assert_eq!((inode.links, inode.uid, inode.mode, inode.orphaned()), (0, 1000, 0o600, Some(world.stamp)));
    assert_eq!(inode.grants().len(), 1, "whoever made it writes to it");
    check_tree(&world);
    let nothing = Op::MakeNameless(MakeNameless { beside: 99 });
    assert_eq!(world.run(&root(), nothing).map(|_| ()), Err(Reason::StaleHandle));
    let directory = Op::MakeNameless(MakeNameless { beside: InodeId::ROOT.0 });
    assert_eq!(world.run(&root(), directory).map(|_| ()), Err(Reason::InvalidArgument));
    assert_eq!(world.reloaded(), world.ns);
    world.check_replay();
}

#[test]
fn an_evicted_inode_is_loaded_from_the_history() {
    let mut world = NamespaceWorld::new();
    let directory = world.directory("/d");
    world
        .run(
            &root(),
            Op::SetXattr(frieze_wire::txn::SetXattr {
                target: frieze_wire::txn::Target::path("/d"),
                name: b"user.c".to_vec(),
                value: b"red".to_vec(),
                flags: 0,
            }),
        )
        .unwrap();
    world.remove("/d", true).unwrap();
    assert_eq!(world.ns.bring(&world.history, directory).unwrap(), None, "memory still holds it");
    for _ in 0..=ORPHANS_KEPT_MAX {
        world.file("/f");
        world.remove("/f", false).unwrap();
    }
    assert!(world.ns.current(directory).is_none());
    let back = |brought| Edit { brought, ..names(vec![set(InodeId::ROOT, "d", NONE, directory)]) };
    assert_eq!(edit(&mut world, back(Vec::new())).map(|_| ()), Err(Reason::StaleHandle));
    let brought = world.ns.bring(&world.history, directory).unwrap().unwrap();
    edit(&mut world, back(vec![brought])).unwrap();
    assert_eq!(world.find("/d", None), Ok(directory));
    let color = world.ns.xattr(&world.history, directory, b"user.c", None, &root()).unwrap();
    assert_eq!(color, b"red");
    check_tree(&world);
    assert_eq!(world.reloaded(), world.ns);
}

/// A random edit, mostly on what is so.
fn any_edit(world: &NamespaceWorld, rng: &mut Rng) -> Edit {
    let all = world.inodes();
    let count = if rng.chance(3) { rng.below(3) } else { 0 };
    let new: Vec<NewInode> =
        (0..count).map(|_| new_inode(if rng.chance(2) { FileKind::File } else { FileKind::Directory })).collect();
    let any_inode = |rng: &mut Rng| match rng.below(4) {
        0 if !new.is_empty() => InodeId(NEW | rng.below(new.len() as u64)),
        _ => all[rng.below(all.len() as u64) as usize],
    };
    let directories: Vec<InodeId> = all
        .iter()
        .copied()
        .filter(|&id| world.ns.current(id).is_some_and(|inode| inode.is_directory() && inode.links > 0))
        .collect();
    let mut used = BTreeSet::new();
    let mut steps = Vec::new();
    for index in 0..new.len() as u64 {
        let directory = directories[rng.below(directories.len() as u64) as usize];
        if !rng.chance(8) {
            steps.push(set(directory, ["n", "o"][index as usize % 2], NONE, InodeId(NEW | index)));
        }
    }
    for _ in 0..rng.between(1, 4) {
        let directory = match rng.below(10) {
            0 => any_inode(rng),
            _ => directories[rng.below(directories.len() as u64) as usize],
        };
        let name = ["a", "b", "c", "d"][rng.below(4) as usize];
        if !used.insert((directory, name)) && !rng.chance(50) {
            continue;
        }
        let is_held = world.ns.current(directory).is_some_and(|inode| inode.is_directory());
        let held =
            if is_held { world.ns.list(&world.history, directory, None, b"", usize::MAX).unwrap() } else { Vec::new() };
        let found = held.iter().find(|entry| entry.name == name.as_bytes()).map_or(NONE, |entry| entry.inode);
        let expect = if rng.chance(50) { any_inode(rng) } else { found };
        let inode = if rng.chance(3) { NONE } else { any_inode(rng) };
        steps.push(set(directory, name, expect, inode));
        if rng.chance(2) && found != NONE && inode == NONE {
            // It moves.
            let to = directories[rng.below(directories.len() as u64) as usize];
            steps.push(set(to, "m", NONE, found));
        }
    }
    Edit { new, ..names(steps) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_edits_leave_a_tree(seed in any::<u64>()) {
        let mut rng = Rng::new(seed);
        let mut world = NamespaceWorld::new();
        world.directory("/a");
        world.directory("/a/b");
        world.file("/a/b/c");
        world.file("/d");
        let mut ran = 0;
        for _ in 0..120 {
            let planned = any_edit(&world, &mut rng);
            let before = world.dump(None);
            match edit_in_parts(&mut world, planned) {
                Ok(_) => ran += 1,
                Err(reason) => {
                    assert!(reason != Reason::Corrupt && reason != Reason::Internal, "{reason:?}");
                    assert_eq!(world.dump(None), before, "a refused edit left a trace");
                }
            }
            check_tree(&world);
        }
        assert!(ran >= 2, "{ran} of 120 random edits ran: too few to show anything");
        assert_eq!(world.reloaded(), world.ns);
        world.check_replay();
    }
}

#[test]
fn an_access_list_that_an_edit_sets_counts_and_leaves_the_mode() {
    let mut world = NamespaceWorld::new();
    let file = world.make("/f", 0o640, MakeKind::File(false)).unwrap();
    let named = vec![AclNamedEntry { id: 2000, permissions: 6 }];
    let acl = Acl { users: named, mask: Some(7), ..Acl::of_mode(0o600) };
    let state = |world: &NamespaceWorld, value: Option<Vec<u8>>| {
        let expect = world.ns.current(file).unwrap().from.0;
        let xattrs = vec![Xattr { name: ACCESS_ACL_XATTR.to_vec(), value }];
        let state = SetState { inode: file.0, expect, xattrs, ..SetState::default() };
        Edit { kind: EditKind::Restore as i32, states: vec![state], ..Edit::default() }
    };
    let eve = user(2000, 2000, &[]);
    let may = |world: &NamespaceWorld, mask| world.ns.check_access(&world.history, file, None, &eve, mask).is_ok();
    let ask = state(&world, Some(acl.encode()));
    edit(&mut world, ask).unwrap();
    // The mask is the mode's, which the edit did not change.
    assert_eq!(world.ns.current(file).unwrap().mode, 0o640);
    assert!(may(&world, MAY_READ) && !may(&world, MAY_WRITE));
    assert_eq!(world.reloaded(), world.ns);
    let ask = state(&world, None);
    edit(&mut world, ask).unwrap();
    assert!(!world.ns.current(file).unwrap().has_acl());
    let ask = state(&world, Some(b"wrong".to_vec()));
    assert_eq!(edit(&mut world, ask), Err(Reason::InvalidArgument));
    let ask = Edit { states: Vec::new(), ..state(&world, None) };
    let new = NewInode {
        xattrs: vec![Xattr { name: DEFAULT_ACL_XATTR.to_vec(), value: Some(acl.encode()) }],
        ..new_inode(FileKind::File)
    };
    let ask = Edit { new: vec![new], names: vec![set(InodeId::ROOT, "g", NONE, InodeId(NEW))], ..ask };
    assert_eq!(edit(&mut world, ask), Err(Reason::AccessDenied), "a file has no default list");
    world.check_replay();
}
