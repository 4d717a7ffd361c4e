//! Quotas: what would be too much is refused whole, and what is counted is what is there.

#![expect(clippy::unwrap_used, reason = "a test")]

mod common;

use std::collections::BTreeSet;

use common::{CHUNK_BYTES, NamespaceWorld, root, user};
use frieze_base::{InodeId, Reason, Rng};
use frieze_wire::edit::{Edit, EditKind, NEW, NewInode, SetName, SetState, Xattr};
use frieze_wire::message::FileKind;
use frieze_wire::quota::{QUOTA_XATTR, Quota, TreeUsage, USAGE_XATTR};
use frieze_wire::txn::{Grant, Make, MakeKind, Op, RemoveXattr, SetAttr, SetXattr, Settle, Target};
use proptest::prelude::*;

fn set_quota(world: &mut NamespaceWorld, path: &str, text: &str) -> Result<(), Reason> {
    let op = SetXattr { target: Target::path(path), name: QUOTA_XATTR.to_vec(), value: text.into(), flags: 0 };
    world.run(&root(), Op::SetXattr(op)).map(drop)
}

fn used(world: &NamespaceWorld, path: &str) -> (u64, u64) {
    let (_, TreeUsage { files, bytes }) = world.ns.quota(world.find(path, None).unwrap()).unwrap();
    (files, bytes)
}

fn set_len(world: &mut NamespaceWorld, path: &str, len: u64) -> Result<(), Reason> {
    let op = SetAttr { target: Target::path(path), size: Some(len), ..SetAttr::default() };
    world.run(&root(), Op::SetAttr(op)).map(drop)
}

fn grant(world: &mut NamespaceWorld, inode: InodeId, first: u32) -> Result<(), Reason> {
    world.run(&root(), Op::Grant(Grant { inode: inode.0, first, count: 1 })).map(drop)
}

fn settle(world: &mut NamespaceWorld, inode: InodeId, size: u64) {
    let stamp = world.stamp.0 + 1;
    let settle = Settle { inode: inode.0, stamp, size, ..Settle::default() };
    world.run(&root(), Op::Settle(settle)).unwrap();
}

#[test]
fn no_more_files_come_below_a_directory_than_its_quota_allows() {
    let mut world = NamespaceWorld::new();
    world.directory("/q");
    world.directory("/q/in");
    set_quota(&mut world, "/q", "files=4").unwrap();
    // The directory counts itself.
    assert_eq!(used(&world, "/q"), (2, 0));
    world.file("/q/a");
    world.file("/q/in/b");
    assert_eq!(world.make("/q/in/c", 0o644, MakeKind::File(true)), Err(Reason::FilesQuota));
    assert_eq!(world.make("/q/in/c", 0o755, MakeKind::Directory(true)), Err(Reason::FilesQuota));
    assert_eq!(world.make("/q/in/c", 0o755, MakeKind::Symlink(b"x".to_vec())), Err(Reason::FilesQuota));
    assert_eq!(world.find("/q/in/c", None), Err(Reason::NotFound));
    // A further name is no further file; what takes the place of another is not one more.
    world.link("/q/a", "/q/again").unwrap();
    let over =
        Make { target: Target::path("/q/in/b"), replaces: true, kind: Some(MakeKind::File(false)), ..Make::default() };
    world.run(&root(), Op::Make(over)).unwrap();
    assert_eq!(used(&world, "/q"), (4, 0));
    world.remove("/q/in/b", false).unwrap();
    world.make("/q/in/c", 0o644, MakeKind::File(false)).unwrap();
    world.check_replay();
}

#[test]
fn a_rename_brings_no_more_than_may_be_there() {
    let mut world = NamespaceWorld::new();
    for path in ["/q", "/q/in", "/tree", "/tree/deep"] {
        world.directory(path);
    }
    world.file("/tree/deep/a");
    set_len(&mut world, "/tree/deep/a", 100).unwrap();
    set_quota(&mut world, "/q", "files=4 bytes=150").unwrap();
    assert_eq!(world.rename("/tree", "/q/tree", 0).map(drop), Err(Reason::FilesQuota));
    world.rename("/tree/deep", "/q/in/deep", 0).unwrap();
    assert_eq!(used(&world, "/q"), (4, 100));
    // Within it nothing comes and nothing goes.
    world.rename("/q/in/deep", "/q/deep", 0).unwrap();
    assert_eq!(used(&world, "/q"), (4, 100));
    world.file("/b");
    set_len(&mut world, "/b", 151).unwrap();
    assert_eq!(world.rename("/b", "/q/deep/a", 0).map(drop), Err(Reason::BytesQuota), "it would replace 100 by 151");
    assert_eq!(world.rename("/b", "/q/deep/a", 2).map(drop), Err(Reason::BytesQuota), "or change places with it");
    set_len(&mut world, "/b", 150).unwrap();
    world.rename("/b", "/q/deep/a", 2).unwrap();
    assert_eq!(used(&world, "/q"), (4, 150));
    world.rename("/q/deep", "/deep", 0).unwrap();
    assert_eq!(used(&world, "/q"), (2, 0));
    world.check_replay();
}

#[test]
fn replacing_a_file_with_another_name_frees_no_quota() {
    let mut world = NamespaceWorld::new();
    world.directory("/q");
    world.file("/q/a");
    world.file("/b");
    world.link("/q/a", "/q/again").unwrap();
    set_quota(&mut world, "/q", "files=2").unwrap();
    assert_eq!(world.rename("/b", "/q/a", 0).map(drop), Err(Reason::FilesQuota));
    world.remove("/q/again", false).unwrap();
    world.rename("/b", "/q/a", 0).unwrap();
    assert_eq!(used(&world, "/q"), (2, 0));
    world.check_replay();
}

#[test]
fn nothing_more_is_written_where_the_bytes_are_used_up() {
    let mut world = NamespaceWorld::new();
    world.directory("/q");
    set_quota(&mut world, "/q", &format!("bytes={}", 2 * CHUNK_BYTES)).unwrap();
    let file = world.make("/q/a", 0o644, MakeKind::File(true)).unwrap();
    // It is asked at each chunk how far the file may go, whatever of it is settled.
    grant(&mut world, file, 1).unwrap();
    assert_eq!(grant(&mut world, file, 2), Err(Reason::BytesQuota));
    settle(&mut world, file, CHUNK_BYTES + 1);
    assert_eq!(used(&world, "/q"), (2, CHUNK_BYTES + 1));
    assert_eq!(set_len(&mut world, "/q/a", 2 * CHUNK_BYTES + 1), Err(Reason::BytesQuota));
    set_len(&mut world, "/q/a", 2 * CHUNK_BYTES).unwrap();
    // It is full: a file may be made, and not to be written; what is there may be written anew.
    assert_eq!(world.make("/q/b", 0o644, MakeKind::File(true)), Err(Reason::BytesQuota));
    let other = world.make("/q/b", 0o644, MakeKind::File(false)).unwrap();
    assert_eq!(grant(&mut world, other, 0), Err(Reason::BytesQuota));
    grant(&mut world, file, 0).unwrap();
    settle(&mut world, file, 2 * CHUNK_BYTES);
    set_len(&mut world, "/q/a", 10).unwrap();
    grant(&mut world, other, 0).unwrap();
    world.remove("/q/a", false).unwrap();
    assert_eq!(used(&world, "/q"), (2, 0));
    world.check_replay();
}

#[test]
fn the_quota_nearest_to_its_end_counts_of_several_above() {
    let mut world = NamespaceWorld::new();
    world.directory("/a");
    world.directory("/a/b");
    set_quota(&mut world, "/", "files=5").unwrap();
    set_quota(&mut world, "/a", "files=10").unwrap();
    set_quota(&mut world, "/a/b", "bytes=7").unwrap();
    world.file("/a/b/x");
    assert_eq!((used(&world, "/").0, used(&world, "/a").0, used(&world, "/a/b").0), (4, 3, 2));
    assert_eq!(set_len(&mut world, "/a/b/x", 8), Err(Reason::BytesQuota));
    set_len(&mut world, "/a/b/x", 7).unwrap();
    world.file("/y");
    assert_eq!(world.make("/a/z", 0, MakeKind::File(false)), Err(Reason::FilesQuota), "that of the root");
    // Less than there is may be set: what is there stays.
    set_quota(&mut world, "/", "files=1").unwrap();
    world.rename("/a/b/x", "/a/x", 0).unwrap();
    let op = RemoveXattr { target: Target::path("/"), name: QUOTA_XATTR.to_vec() };
    world.run(&root(), Op::RemoveXattr(op)).unwrap();
    world.file("/a/z");
    assert_eq!(world.ns.quota(InodeId::ROOT), None);
    world.check_replay();
}

#[test]
fn a_quota_is_the_superusers_to_set_and_everybodys_to_see() {
    let mut world = NamespaceWorld::new();
    world.directory("/q");
    world.file("/f");
    let owner = user(7, 7, &[]);
    let give = SetAttr { target: Target::path("/q"), uid: Some(7), gid: Some(7), ..SetAttr::default() };
    world.run(&root(), Op::SetAttr(give)).unwrap();
    let set = |name: &[u8], text: &str, path: &str| {
        Op::SetXattr(SetXattr { target: Target::path(path), name: name.to_vec(), value: text.into(), flags: 0 })
    };
    assert_eq!(world.run(&owner, set(QUOTA_XATTR, "files=9", "/q")).map(drop), Err(Reason::NotPermitted));
    assert_eq!(world.run(&root(), set(USAGE_XATTR, "files=9", "/q")).map(drop), Err(Reason::NotPermitted));
    assert_eq!(set_quota(&mut world, "/f", "files=9"), Err(Reason::InvalidArgument));
    assert_eq!(set_quota(&mut world, "/q", "files=many"), Err(Reason::InvalidArgument));
    let id = world.find("/q", None).unwrap();
    let see =
        |world: &NamespaceWorld, at| world.ns.xattr(&world.history, id, USAGE_XATTR, at, &owner).map_err(|f| f.reason);
    assert_eq!(see(&world, None), Err(Reason::NoAttribute));
    set_quota(&mut world, "/q", "files=9 bytes=10").unwrap();
    assert_eq!(see(&world, None), Ok(b"files=1 bytes=0 of files=9 bytes=10".to_vec()));
    assert_eq!(see(&world, Some(world.stamp)), Err(Reason::NoAttribute), "it is counted of now alone");
    assert_eq!(world.ns.xattr_names(&world.history, id, None, &owner), Ok(Vec::new()));
    // Nor does an owner bring an old one back.
    let expect = world.ns.current(id).unwrap().from.0;
    let xattrs = vec![Xattr { name: QUOTA_XATTR.to_vec(), value: None }];
    let states = vec![SetState { inode: id.0, expect, xattrs, ..SetState::default() }];
    let edit = Edit { kind: EditKind::Restore as i32, states, ..Edit::default() };
    assert_eq!(world.run(&owner, Op::Edit(edit)).map(drop), Err(Reason::InvalidArgument));
    world.check_replay();
}

#[test]
fn an_edit_brings_no_more_than_may_be_there() {
    let mut world = NamespaceWorld::new();
    let directory = world.directory("/q");
    set_quota(&mut world, "/q", "files=3 bytes=10").unwrap();
    let clone = |sizes: &[u64], replaces: InodeId| {
        let new = |size: &u64| NewInode {
            kind: FileKind::File as i32,
            mode: 0o644,
            chunk_bytes: CHUNK_BYTES,
            chain_count: 8,
            size: *size,
            ..NewInode::default()
        };
        let name = |at: usize| SetName {
            directory: directory.0,
            name: format!("n{at}").into_bytes(),
            expect: if at == 0 { replaces.0 } else { 0 },
            inode: NEW | at as u64,
        };
        Op::Edit(Edit {
            kind: EditKind::Clone as i32,
            new: sizes.iter().map(new).collect(),
            names: (0..sizes.len()).map(name).collect(),
            ..Edit::default()
        })
    };
    let none = InodeId(0);
    assert_eq!(world.run(&root(), clone(&[1, 2, 3], none)).map(drop), Err(Reason::FilesQuota));
    assert_eq!(world.run(&root(), clone(&[1, 10], none)).map(drop), Err(Reason::BytesQuota));
    let first = InodeId(world.run(&root(), clone(&[10], none)).unwrap().id);
    assert_eq!(world.run(&root(), clone(&[5, 6], first)).map(drop), Err(Reason::BytesQuota));
    world.run(&root(), clone(&[4, 6], first)).unwrap();
    assert_eq!(used(&world, "/q"), (3, 10));
    world.check_replay();
}

/// What lies below a directory by the answers of the namespace alone: each inode once, where its home is.
fn counted(world: &NamespaceWorld, directory: InodeId) -> TreeUsage {
    let mut sum = TreeUsage { files: 1, bytes: 0 };
    let (mut todo, mut seen) = (vec![directory], BTreeSet::new());
    while let Some(here) = todo.pop() {
        for entry in world.ns.list(&world.history, here, None, b"", usize::MAX).unwrap() {
            let inode = world.ns.current(entry.inode).unwrap();
            if inode.parent != here || !seen.insert(entry.inode) {
                continue;
            }
            sum.files += 1;
            sum.bytes += if entry.kind == FileKind::File { inode.size } else { 0 };
            if entry.kind == FileKind::Directory {
                todo.push(entry.inode);
            }
        }
    }
    sum
}

/// One random change of a small tree.
fn change(world: &mut NamespaceWorld, rng: &mut Rng) {
    let path = |rng: &mut Rng| match rng.below(3) {
        0 => format!("/{}", rng.below(4)),
        1 => format!("/{}/{}", rng.below(4), rng.below(4)),
        _ => format!("/{}/{}/{}", rng.below(4), rng.below(4), rng.below(4)),
    };
    let (one, two, len) = (path(rng), path(rng), rng.below(9));
    let done = match rng.below(16) {
        0..=3 => world.make(&one, 0o755, MakeKind::Directory(true)).map(drop),
        4 | 5 => world.make(&one, 0o644, MakeKind::File(false)).map(drop),
        6 => world.link(&one, &two).map(drop),
        7 => world.remove(&one, rng.below(2) == 0).map(drop),
        8 | 9 => world.rename(&one, &two, 0).map(drop),
        10 => world.rename(&one, &two, 2).map(drop),
        11 => set_len(world, &one, len),
        12 => match world.find(&one, None) {
            Ok(file) if grant(world, file, 0).is_ok() => {
                settle(world, file, len);
                Ok(())
            }
            _ => Ok(()),
        },
        13 => {
            let text = [format!("files={}", 3 + len), format!("bytes={len}"), String::new()];
            set_quota(world, &one, &text[rng.below(3) as usize])
        }
        14 => {
            let over = Make { target: Target::path(one.as_str()), replaces: true, ..Make::default() };
            world.run(&root(), Op::Make(Make { kind: Some(MakeKind::File(false)), ..over })).map(drop)
        }
        _ => swap(world, &one, &two),
    };
    // What cannot be done has changed nothing.
    let _ = done;
}

/// An edit by which two names change what they stand for, whatever that is.
fn swap(world: &mut NamespaceWorld, one: &str, two: &str) -> Result<(), Reason> {
    let place = |world: &NamespaceWorld, path: &str| -> Result<(InodeId, String, InodeId), Reason> {
        let (parent, name) = path.rsplit_once('/').unwrap();
        let directory = world.find(if parent.is_empty() { "/" } else { parent }, None)?;
        Ok((directory, name.to_owned(), world.find(path, None)?))
    };
    let (one, two) = (place(world, one)?, place(world, two)?);
    let name = |(directory, name, old): &(InodeId, String, InodeId), new: InodeId| SetName {
        directory: directory.0,
        name: name.as_bytes().to_vec(),
        expect: old.0,
        inode: new.0,
    };
    let names = vec![name(&one, two.2), name(&two, one.2)];
    world.run(&root(), Op::Edit(Edit { kind: EditKind::Undo as i32, names, ..Edit::default() })).map(drop)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn quota_counts_equal_the_tree_after_any_history(seed in any::<u64>()) {
        let mut rng = Rng::new(seed);
        let mut world = NamespaceWorld::new();
        let mut before: Vec<(InodeId, (Quota, TreeUsage))> = Vec::new();
        for _ in 0..200 {
            let asked = world.log.len();
            change(&mut world, &mut rng);
            let now: Vec<_> = world
                .inodes()
                .into_iter()
                .filter(|id| world.ns.current(*id).is_some_and(|inode| inode.links > 0))
                .filter_map(|id| Some((id, world.ns.quota(id)?)))
                .collect();
            let reloaded = world.reloaded();
            for &(id, (quota, used)) in &now {
                prop_assert_eq!(used, counted(&world, id), "{} after {:?}", id, &world.log[asked..]);
                prop_assert_eq!(reloaded.quota(id), Some((quota, used)));
                // Only what an edit moves, and what loses the name by which it counted elsewhere, is not held back.
                let was = before.iter().find(|(other, (same, _))| *other == id && *same == quota);
                let stays = |id: u64| world.ns.current(InodeId(id)).is_some_and(|inode| inode.links > 0);
                let is_held = world.log[asked..].iter().all(|(txn, _, outcome)| match txn.op {
                    Some(Op::Edit(_)) => false,
                    Some(Op::Remove(_)) => !stays(outcome.id),
                    _ => !stays(outcome.replaced),
                });
                if let Some((_, (_, was))) = was.filter(|_| is_held) {
                    let most = quota.files_max.unwrap_or(u64::MAX).max(was.files);
                    let log = &world.log[asked..];
                    prop_assert!(used.files <= most, "{} files of {:?} after {:?}", used.files, quota, log);
                }
            }
            before = now;
        }
        world.check_replay();
    }
}
