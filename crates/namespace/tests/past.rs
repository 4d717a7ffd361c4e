//! What was true at an instant stays readable: names since moved and removed, rights of then and of now.

#![expect(clippy::unwrap_used, reason = "a test")]

mod common;

use common::{NamespaceWorld, root, user};
use frieze_base::{InodeId, Reason};
use frieze_hlc::Hlc;
use frieze_namespace::{LoadedNames, MAY_READ, Namespace, NoReadSet, ORPHANS_KEPT_MAX, expired_removals};
use frieze_wire::forget::{Horizon, encode_ids};
use frieze_wire::message::VersionKind;
use frieze_wire::txn::{Caller, ExpireRemoved, Grant, MakeKind, Op, SetAttr, SetXattr, Settle, Target};

fn chmod(world: &mut NamespaceWorld, path: &str, mode: u32) {
    let set = SetAttr { mode: Some(mode), ..set_attr(Target::path(path)) };
    world.run(&root(), Op::SetAttr(set)).unwrap();
}

fn set_attr(target: Target) -> SetAttr {
    SetAttr { target, ..SetAttr::default() }
}

fn resolve(world: &NamespaceWorld, path: &str, at: Hlc, caller: &Caller) -> Result<InodeId, Reason> {
    let found = world.ns.resolve(&world.history, &Target::path(path), Some(at), caller, &NoReadSet);
    found.map(|resolved| resolved.id).map_err(|fault| fault.reason)
}

#[test]
fn a_file_is_found_under_its_name_of_then_after_its_parent_moved_and_it_was_deleted() {
    let mut world = NamespaceWorld::new();
    world.directory("/old");
    let file = world.file("/old/f");
    let then = world.stamp;
    world.rename("/old", "/new", 0).unwrap();
    world.remove("/new/f", false).unwrap();
    world.remove("/new", true).unwrap();
    assert_eq!(world.find("/old/f", Some(then)), Ok(file));
    assert_eq!(world.find("/new/f", Some(then)), Err(Reason::NotFound));
    assert_eq!(world.find("/new/f", Some(then.next())), Err(Reason::NotFound));
    assert_eq!(world.find("/new/f", Some(Hlc::first_of_micros(then.micros() + 1))), Ok(file));
    assert_eq!(world.find("/old/f", None), Err(Reason::NotFound));
}

#[test]
fn an_instant_equal_to_the_stamp_holds_the_change_and_the_one_before_does_not() {
    let mut world = NamespaceWorld::new();
    let file = world.file("/f");
    let made = world.stamp;
    assert_eq!(world.find("/f", Some(made)), Ok(file));
    assert_eq!(world.find("/f", Some(made.previous())), Err(Reason::NotFound));
    world.remove("/f", false).unwrap();
    assert_eq!(world.find("/f", Some(world.stamp)), Err(Reason::NotFound));
    assert_eq!(world.find("/f", Some(world.stamp.previous())), Ok(file));
}

#[test]
fn before_the_file_system_was_made_nothing_exists() {
    let world = NamespaceWorld::new();
    assert_eq!(world.find("/", Some(Hlc(5))), Err(Reason::NotFound));
    assert_eq!(world.find("/f", Some(Hlc(5))), Err(Reason::NotFound));
}

#[test]
fn a_name_used_again_leads_to_the_file_of_then() {
    let mut world = NamespaceWorld::new();
    let mut versions = Vec::new();
    for _ in 0..5 {
        versions.push((world.file("/f"), world.stamp));
        world.remove("/f", false).unwrap();
    }
    for (id, stamp) in versions {
        assert_eq!(world.find("/f", Some(stamp)), Ok(id));
    }
}

#[test]
fn the_past_is_walked_with_the_rights_of_then_and_of_now() {
    let bob = user(1001, 100, &[]);
    let mut world = NamespaceWorld::new();
    world.directory("/d");
    let file = world.file("/d/f");
    let open = world.stamp;
    chmod(&mut world, "/d", 0o700);
    let closed = world.stamp;
    assert_eq!(resolve(&world, "/d/f", open, &root()), Ok(file));
    assert_eq!(resolve(&world, "/d/f", open, &bob), Err(Reason::AccessDenied), "closed since");
    chmod(&mut world, "/d", 0o755);
    assert_eq!(resolve(&world, "/d/f", open, &bob), Ok(file));
    assert_eq!(resolve(&world, "/d/f", closed, &bob), Err(Reason::AccessDenied), "closed then");
    assert_eq!(resolve(&world, "/d/f", closed, &root()), Ok(file));
}

#[test]
fn a_deleted_directory_is_judged_by_its_last_mode() {
    let bob = user(1001, 100, &[]);
    let mut world = NamespaceWorld::new();
    for (path, last) in [("/open", 0o755), ("/closed", 0o700)] {
        world.directory(path);
        let id = world.directory(&format!("{path}/sub"));
        let then = world.stamp;
        chmod(&mut world, path, last);
        world.remove(&format!("{path}/sub"), true).unwrap();
        world.remove(path, true).unwrap();
        let expected = if last == 0o755 { Ok(id) } else { Err(Reason::AccessDenied) };
        assert_eq!(resolve(&world, &format!("{path}/sub"), then, &bob), expected);
    }
}

#[test]
fn reading_a_file_of_the_past_needs_both_its_modes() {
    let bob = user(1001, 100, &[]);
    let mut world = NamespaceWorld::new();
    let file = world.file("/f");
    let readable = world.stamp;
    let may_read =
        |world: &NamespaceWorld, at| world.ns.check_access(&world.history, file, Some(at), &bob, MAY_READ).is_ok();
    assert!(may_read(&world, readable));
    chmod(&mut world, "/f", 0o600);
    let hidden = world.stamp;
    assert!(!may_read(&world, readable) && !may_read(&world, hidden));
    chmod(&mut world, "/f", 0o644);
    assert!(may_read(&world, readable) && !may_read(&world, hidden));
    world.remove("/f", false).unwrap();
    assert!(may_read(&world, readable) && !may_read(&world, hidden));
}

#[test]
fn a_base_by_number_is_checked_up_to_the_root_in_the_past_too() {
    let bob = user(1001, 100, &[]);
    let mut world = NamespaceWorld::new();
    world.directory("/a");
    let inner = world.directory("/a/b");
    world.file("/a/b/f");
    let then = world.stamp;
    let target = Target::under(inner, "f");
    let by_number = |world: &NamespaceWorld| {
        let found = world.ns.resolve(&world.history, &target, Some(then), &bob, &NoReadSet);
        found.map(|_| ()).map_err(|fault| fault.reason)
    };
    assert_eq!(by_number(&world), Ok(()));
    chmod(&mut world, "/a", 0o700);
    assert_eq!(by_number(&world), Err(Reason::AccessDenied));
    world.make("/elsewhere", 0o700, MakeKind::Directory(true)).unwrap();
    chmod(&mut world, "/a", 0o755);
    world.rename("/a/b", "/elsewhere/b", 0).unwrap();
    // Where it lies now does not matter: the walk of then is asked, with the modes of then and now.
    assert_eq!(by_number(&world), Ok(()));
}

#[test]
fn a_link_leads_where_it_led_then() {
    let mut world = NamespaceWorld::new();
    let first = world.file("/v1");
    let second = world.file("/v2");
    world.make("/current", 0, MakeKind::Symlink(b"v1".to_vec())).unwrap();
    let then = world.stamp;
    world.remove("/current", false).unwrap();
    world.make("/current", 0, MakeKind::Symlink(b"/v2".to_vec())).unwrap();
    world.remove("/v1", false).unwrap();
    assert_eq!(world.find("/current", Some(then)), Ok(first));
    assert_eq!(world.find("/current", None), Ok(second));
}

#[test]
fn attributes_set_later_do_not_show_earlier() {
    let mut world = NamespaceWorld::new();
    let file = world.file("/f");
    let before = world.stamp;
    let set = |value: &[u8]| {
        let (name, value) = (b"user.v".to_vec(), value.to_vec());
        Op::SetXattr(SetXattr { target: Target::path("/f"), name, value, flags: 0 })
    };
    world.run(&root(), set(b"one")).unwrap();
    let one = world.stamp;
    world.run(&root(), set(b"")).unwrap();
    let empty = world.stamp;
    world.remove("/f", false).unwrap();
    let value = |at| world.ns.xattr(&world.history, file, b"user.v", Some(at), &root()).map_err(|fault| fault.reason);
    assert_eq!(value(before), Err(Reason::NoAttribute));
    assert_eq!(value(one), Ok(b"one".to_vec()));
    assert_eq!(value(empty), Ok(Vec::new()));
    assert_eq!(value(world.stamp), Ok(Vec::new()));
}

#[test]
fn the_log_names_the_session_of_each_create_link_truncate_and_unlink() {
    let mut world = NamespaceWorld::new();
    let file = world.file("/f");
    let made = world.stamp;
    world.link("/f", "/g").unwrap();
    world.rename("/f", "/h", 0).unwrap();
    let cut = SetAttr { size: Some(5), ..set_attr(Target::path("/h")) };
    world.run(&root(), Op::SetAttr(cut)).unwrap();
    chmod(&mut world, "/g", 0o666);
    // Bookkeeping is not told.
    let grant = Grant { inode: file.0, first: 0, count: 1 };
    world.run(&user(1000, 100, &[]), Op::Grant(grant)).unwrap();
    world.run(&user(1000, 100, &[]), Op::Settle(Settle { inode: file.0, ..Settle::default() })).unwrap();
    world.remove("/g", false).unwrap();
    let versions = world.ns.log(&world.history, file, Hlc::ZERO, Hlc::MAX, 100).unwrap();
    let told: Vec<_> =
        versions.iter().map(|v| (v.kind(), String::from_utf8_lossy(&v.name).into_owned(), v.len)).collect();
    let line = |kind, name: &str, len| (kind, name.to_owned(), len);
    assert_eq!(
        told,
        [
            line(VersionKind::Make, "f", 0),
            line(VersionKind::Named, "g", 0),
            line(VersionKind::Unnamed, "f", 0),
            line(VersionKind::Named, "h", 0),
            line(VersionKind::Truncate, "", 5),
            line(VersionKind::SetAttr, "", 0),
            line(VersionKind::Unnamed, "g", 0),
        ]
    );
    assert!(versions.iter().all(|version| version.session == world.session.0));
    assert_eq!(versions[0].stamp, made.0);
    // Pages do not cut the two lines of a rename apart.
    let page = world.ns.log(&world.history, file, made, Hlc::MAX, 2).unwrap();
    assert_eq!(page.len(), 3);
    let rest = world.ns.log(&world.history, file, Hlc(page[2].stamp), Hlc::MAX, 2).unwrap();
    assert_eq!(rest[0].kind(), VersionKind::Truncate);
    assert_eq!(world.ns.log(&world.history, file, Hlc::ZERO, made, 100).unwrap().len(), 1);
}

#[test]
fn a_file_that_is_forgotten_whole_leaves_memory_and_is_refused_as_before() {
    let mut world = NamespaceWorld::new();
    let ids = ["/gone", "/written", "/left"].map(|path| world.make(path, 0o644, MakeKind::File(true)).unwrap());
    let [gone, written, left] = ids;
    let xattr = SetXattr { target: Target::path("/gone"), name: b"user.a".to_vec(), value: vec![1], flags: 0 };
    world.run(&root(), Op::SetXattr(xattr)).unwrap();
    for (path, id) in [("/gone", gone), ("/written", written), ("/left", left)] {
        world.remove(path, false).unwrap();
        if id != written {
            world.run(&root(), Op::Settle(Settle { inode: id.0, ..Settle::default() })).unwrap();
        }
    }
    assert!(ids.iter().all(|id| world.ns.current(*id).is_some()));
    let horizon = Horizon {
        before: world.stamp.0,
        root: InodeId::ROOT.0,
        path: b"/".to_vec(),
        named: Vec::new(),
        nameless: encode_ids([gone.0, written.0].into_iter()),
        ..Horizon::default()
    };
    world.run(&root(), Op::Forget(horizon)).unwrap();
    assert!(world.ns.current(gone).is_none(), "nobody is answered about it");
    assert!(world.ns.current(written).is_some(), "it has a writer: only its past is forgotten");
    assert!(world.ns.current(left).is_some(), "it was not asked for");
    assert_eq!(world.reloaded(), world.ns);
    let set = SetAttr { mode: Some(0), ..set_attr(Target::inode(gone)) };
    assert_eq!(world.run(&root(), Op::SetAttr(set)), Err(Reason::HistoryExpired));
    assert_eq!(world.ns.inode(&world.history, gone, None).unwrap().links, 0, "the history has it");
    world.run(&root(), Op::Settle(Settle { inode: written.0, ..Settle::default() })).unwrap();
    assert_eq!(world.reloaded(), world.ns);
}

#[test]
fn a_removed_file_that_policies_let_go_of_leaves_memory_and_its_name_stays_in_history() {
    let mut world = NamespaceWorld::new();
    let names = ["/removed", "/written", "/later", "/there", "/left"];
    let ids = names.map(|path| world.make(path, 0o644, MakeKind::File(true)).unwrap());
    let [removed, written, later, there, left] = ids;
    let made = world.stamp;
    for (path, id) in names.into_iter().zip(ids).filter(|(_, id)| ![later, there].contains(id)) {
        world.remove(path, false).unwrap();
        if id != written {
            world.run(&root(), Op::Settle(Settle { inode: id.0, ..Settle::default() })).unwrap();
        }
    }
    let removed_upto = world.stamp.0;
    world.remove("/later", false).unwrap();
    world.run(&root(), Op::Settle(Settle { inode: later.0, ..Settle::default() })).unwrap();
    let of = |ids: &[InodeId]| encode_ids(ids.iter().map(|id| id.0));
    let future = ExpireRemoved { inodes: of(&[removed]), removed_upto: u64::MAX };
    assert_eq!(world.run(&root(), Op::ExpireRemoved(future)), Err(Reason::Future));
    let broken = ExpireRemoved { inodes: vec![0x80], removed_upto };
    assert_eq!(world.run(&root(), Op::ExpireRemoved(broken)), Err(Reason::Corrupt));
    for _ in 0..2 {
        let all = ExpireRemoved { inodes: of(&[removed, written, later, there]), removed_upto };
        world.run(&root(), Op::ExpireRemoved(all)).unwrap();
        let expired = ids.map(|id| world.ns.horizons().is_removal_expired(id));
        assert_eq!(
            expired,
            [true, false, false, false, false],
            "{ids:?}: a name, a writer, or a later removal keeps one"
        );
        assert_eq!(ids.map(|id| world.ns.current(id).is_some()), [false, true, true, true, true]);
        assert_eq!(world.reloaded(), world.ns);
    }
    assert!(world.ns.current(left).is_some(), "it was not asked for");
    assert_eq!(expired_removals(&world.history, Hlc::ZERO).unwrap().len(), 1, "what changes nothing is not stored");
    let set = SetAttr { mode: Some(0), ..set_attr(Target::inode(removed)) };
    assert_eq!(world.run(&root(), Op::SetAttr(set)), Err(Reason::HistoryExpired));
    assert_eq!(world.find("/removed", Some(made)), Ok(removed));
    assert!(world.ns.check_kept(removed, Some(made)).is_ok(), "its past is the planes' to refuse");
}

#[test]
fn a_file_that_is_open_in_a_directory_that_is_forgotten_whole_is_changed_as_before() {
    let mut world = NamespaceWorld::new();
    let directory = world.directory("/d");
    let open = world.make("/d/open", 0o644, MakeKind::File(true)).unwrap();
    world.remove("/d/open", false).unwrap();
    world.remove("/d", true).unwrap();
    let nameless = encode_ids([directory.0].into_iter());
    let before = world.stamp.0;
    let horizon = Horizon { before, root: InodeId::ROOT.0, path: b"/".to_vec(), nameless, ..Horizon::default() };
    world.run(&root(), Op::Forget(horizon)).unwrap();
    let set = SetAttr { mode: Some(0o600), ..set_attr(Target::inode(open)) };
    world.run(&root(), Op::SetAttr(set)).unwrap();
    assert_eq!(world.reloaded(), world.ns);
}

#[test]
fn files_long_without_a_name_leave_memory_and_stay_readable() {
    let mut world = NamespaceWorld::new();
    let first = world.file("/first");
    let first_stamp = world.stamp;
    let open = world.make("/open", 0o644, MakeKind::File(true)).unwrap();
    world.remove("/first", false).unwrap();
    world.remove("/open", false).unwrap();
    assert!(world.ns.current(first).is_some());
    for _ in 0..ORPHANS_KEPT_MAX {
        world.file("/f");
        world.remove("/f", false).unwrap();
    }
    assert!(world.ns.current(first).is_none(), "the oldest left memory");
    assert!(world.ns.current(open).is_some(), "one with a writer stays");
    assert!(world.ns.has_grant(world.session, open, 0));
    assert_eq!(world.ns.inode(&world.history, first, None).unwrap().links, 0);
    assert_eq!(world.ns.inode(&world.history, first, Some(first_stamp)).unwrap().links, 1);
    assert_eq!(world.find("/first", Some(first_stamp)), Ok(first));
    let set = SetAttr { mode: Some(0), ..set_attr(Target::inode(first)) };
    assert_eq!(world.run(&root(), Op::SetAttr(set)), Err(Reason::StaleHandle));
    assert_eq!(world.reloaded(), world.ns);
    world.run(&root(), Op::Settle(Settle { inode: open.0, ..Settle::default() })).unwrap();
    assert!(world.ns.current(open).is_none(), "its writer is done");
    assert_eq!(world.reloaded(), world.ns);
    assert_eq!(world.ns.counts().inodes, 1);
}

#[test]
fn an_unlinked_file_can_still_be_changed_by_its_number() {
    let mut world = NamespaceWorld::new();
    let file = world.file("/f");
    world.remove("/f", false).unwrap();
    let set = SetAttr { size: Some(9), by_handle: true, ..set_attr(Target::inode(file)) };
    world.run(&user(1000, 100, &[]), Op::SetAttr(set)).unwrap();
    let inode = world.ns.current(file).unwrap();
    assert_eq!((inode.size, inode.links), (9, 0));
    let link = frieze_wire::txn::Link { file: Target::inode(file), name: Target::path("/again") };
    assert_eq!(world.run(&root(), Op::Link(link)), Err(Reason::NotFound));
}

#[test]
fn nothing_is_made_in_a_directory_that_was_removed() {
    let mut world = NamespaceWorld::new();
    let directory = world.directory("/d");
    world.file("/f");
    world.remove("/d", true).unwrap();
    let make = |target| frieze_wire::txn::Make {
        target,
        mode: 0,
        or_open: false,
        kind: Some(MakeKind::File(false)),
        ..frieze_wire::txn::Make::default()
    };
    assert_eq!(world.run(&root(), Op::Make(make(Target::under(directory, "x")))), Err(Reason::NotFound));
    let (from, to) = (Target::path("/f"), Target::under(directory, "x"));
    assert_eq!(world.run(&root(), Op::Rename(frieze_wire::txn::Rename { from, to, flags: 0 })), Err(Reason::NotFound));
    assert_eq!(world.run(&root(), Op::Make(make(Target::under(InodeId(999), "x")))), Err(Reason::StaleHandle));
}

#[test]
fn damaged_keys_and_values_are_refused() {
    let mut ns = Namespace::new();
    for (key, value) in [(&b"Z"[..], &b""[..]), (b"I12345678", b"\xff"), (b"I\0\0\0\0\0\0\0\0", b""), (b"N\xff", b"")] {
        assert_eq!(ns.load(key, Hlc(1), value).unwrap_err().reason, Reason::Corrupt, "{key:?}");
    }
    let mut apart = LoadedNames::default();
    for (key, value) in
        [(&b"E1234567"[..], &b""[..]), (b"F", b""), (b"E12345678name", b"\xff"), (b"I\0\0\0\0\0\0\0\0", b"")]
    {
        assert_eq!(apart.load(key, Hlc(1), value).unwrap_err().reason, Reason::Corrupt, "{key:?}");
    }
    assert_eq!(ns.load(b"E12345678name", Hlc(1), b"").unwrap_err().reason, Reason::Corrupt, "not here");
}
