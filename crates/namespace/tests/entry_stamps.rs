//! Which changes of a directory are versions of its inode, and which are stamps of its entries.

#![expect(clippy::unwrap_used, reason = "a test")]

mod common;

use common::{NamespaceWorld, root};
use frieze_base::InodeId;
use frieze_namespace::{KeyVersion, NoReadSet, VersionHistory, author, entry_stamps_of, inode_key};
use frieze_wire::txn::{
    Link, Make, MakeKind, Op, RENAME_EXCHANGE, Remove, Rename, SetAttr, SetXattr, Target, Transaction,
};

/// The directories of which an operation makes a version, and those of which it makes a stamp.
fn changed(world: &mut NamespaceWorld, op: Op) -> (Vec<InodeId>, Vec<InodeId>) {
    let session = world.session;
    let (mut ns, mut changes) = (world.reloaded(), Vec::new());
    let transaction =
        Transaction { session: session.0, caller: root(), op: Some(op.clone()), ..Transaction::default() };
    let outcome = ns.apply(&transaction, world.stamp.next(), &mut changes, &NoReadSet);
    assert_eq!(outcome.reason, 0, "{op:?} fails: {}", outcome.message);
    let is_directory = |id: &InodeId| ns.inode(&world.history, *id, None).is_ok_and(|inode| inode.is_directory());
    let inode_of = |change: &KeyVersion| {
        let number = change.key.get(1..9).map(|number| u64::from_be_bytes(number.try_into().unwrap()));
        number.map(InodeId).filter(|id| change.key == inode_key(*id))
    };
    let versions = changes.iter().filter_map(inode_of).filter(is_directory).collect();
    let stamps = changes.iter().filter_map(|change| entry_stamps_of(&change.key)).collect();
    world.run(&root(), op).unwrap();
    (versions, stamps)
}

#[test]
fn what_changes_only_the_times_of_a_directory_makes_a_stamp_and_all_else_a_version() {
    let mut world = NamespaceWorld::new();
    let (a, b) = (world.directory("/a"), world.directory("/b"));
    let c = world.directory("/a/c");
    let make = |path: &str, kind: MakeKind| {
        Op::Make(Make { target: Target::path(path), mode: 0o755, kind: Some(kind), ..Make::default() })
    };
    let file = |path: &str| make(path, MakeKind::File(false));
    let remove = |path: &str, directory: bool| Op::Remove(Remove { target: Target::path(path), directory });
    let rename =
        |from: &str, to: &str, flags: u32| Op::Rename(Rename { from: Target::path(from), to: Target::path(to), flags });
    let link = |file: &str, name: &str| Op::Link(Link { file: Target::path(file), name: Target::path(name) });
    let mut check = |op: Op, versions: &[InodeId], stamps: &[InodeId]| {
        let shown = format!("{op:?}");
        let (mut made, mut stamped) = changed(&mut world, op);
        made.sort_unstable();
        stamped.sort_unstable();
        let mut wanted = (versions.to_vec(), stamps.to_vec());
        wanted.0.sort_unstable();
        wanted.1.sort_unstable();
        assert_eq!((made, stamped), wanted, "{shown}");
    };
    check(file("/a/f"), &[], &[a]);
    check(make("/a/s", MakeKind::Symlink(b"f".to_vec())), &[], &[a]);
    check(link("/a/f", "/b/g"), &[], &[b]);
    check(rename("/a/f", "/a/h", 0), &[], &[a]);
    check(rename("/a/h", "/b/h", 0), &[], &[a, b]);
    check(rename("/b/h", "/a/s", RENAME_EXCHANGE), &[], &[a, b]);
    check(remove("/b/g", false), &[], &[b]);
    // The directory keeps its parent.
    check(rename("/a/c", "/a/d", 0), &[c], &[a]);
    check(rename("/a/d", "/b/d", 0), &[a, b, c], &[]);
    check(remove("/b/d", true), &[b, c], &[]);
    let e = InodeId::directory(c.count() + 1);
    check(make("/b/e", MakeKind::Directory(true)), &[b, e], &[]);
    let set_mode = SetAttr { target: Target::path("/b"), mode: Some(0o700), ..SetAttr::default() };
    check(Op::SetAttr(set_mode), &[b], &[]);
    let name = b"user.a".to_vec();
    check(Op::SetXattr(SetXattr { target: Target::path("/b"), name, value: vec![1], flags: 0 }), &[b], &[]);
    world.check_replay();
}

#[test]
fn a_stamp_reads_as_a_version_by_its_author() {
    let mut world = NamespaceWorld::new();
    let a = world.directory("/a");
    let made = world.ns.inode(&world.history, a, None).unwrap();
    world.file("/a/f");
    let now = world.ns.inode(&world.history, a, None).unwrap();
    let stamp = world.stamp;
    assert_eq!((now.from, now.ctime, now.mtime_stamp, now.size_as_of), (stamp, stamp, stamp, stamp));
    assert_eq!((now.mtime_ns, now.born, now.named, now.mode), (stamp.unix_ns(), made.born, made.named, made.mode));
    assert_eq!(world.history.newest(&inode_key(a), stamp).unwrap().unwrap().0, stamp);
    assert_eq!(author(&world.history, a, stamp), Ok((world.session, 0)));
    let before = world.ns.inode(&world.history, a, Some(stamp.previous())).unwrap();
    assert_eq!(before, made);
}
