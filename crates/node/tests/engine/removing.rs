//! Trees that are removed by one change, and files that become a part of another.

use std::collections::BTreeSet;

use super::*;
use frieze_wire::edit::{ActionKind, ChangeTree, EditReply, RemoveTree};
use frieze_wire::mode::{ModeAction, ModeChange};
use frieze_wire::txn::Link;

/// Some files with a name elsewhere too, in directories of several depths.
fn planted(client: &mut TestConnection) {
    for path in ["/a", "/a/b", "/a/b/c", "/a/empty", "/keeps"] {
        client.mkdir(path);
    }
    for path in ["/a/f", "/a/b/f", "/a/b/c/f"] {
        let file = client.make(path);
        client.write(&file, Some(0), path.as_bytes()).unwrap();
    }
    client.txn(Op::Link(Link { file: Target::path("/a/b/c/f"), name: Target::path("/keeps/f") })).unwrap();
    client.txn(Op::Link(Link { file: Target::path("/a/b/f"), name: Target::path("/a/again") })).unwrap();
}

const NAMES: [&str; 8] = ["/a", "/a/again", "/a/b", "/a/b/c", "/a/b/c/f", "/a/b/f", "/a/empty", "/a/f"];

#[test]
fn a_tree_goes_at_one_stamp_and_is_whole_before_it() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    planted(&mut client);
    let planned = client.remove_tree("/a", true).unwrap();
    let names = |reply: &EditReply| {
        assert!(reply.actions.iter().all(|action| action.kind() == ActionKind::Unname));
        let paths = reply.actions.iter().map(|action| String::from_utf8(action.path.clone()).unwrap());
        paths.collect::<BTreeSet<_>>()
    };
    assert_eq!((planned.stamp, planned.count), (0, 8));
    assert_eq!(names(&planned), NAMES.map(str::to_owned).into());
    assert!(client.stat("/a/b/c/f", View::NOW).is_ok(), "it was only said what would be done");
    let removed = client.remove_tree("/a", false).unwrap();
    assert_eq!(names(&removed), names(&planned));
    let check = |client: &mut TestConnection| {
        for path in NAMES {
            assert_eq!(client.stat(path, View::NOW).unwrap_err().reason, Reason::NotFound, "{path}");
            let before = View { at: Some(removed.stamp - 1), user_at: None };
            assert!(client.stat(path, before).is_ok(), "{path}");
            let after = View { at: Some(removed.stamp), user_at: None };
            assert_eq!(client.stat(path, after).unwrap_err().reason, Reason::NotFound, "{path}");
        }
        assert_eq!(client.at("/a/b/f", removed.stamp - 1).unwrap(), b"/a/b/f");
        assert_eq!(client.read("/keeps/f", View::NOW).unwrap(), b"/a/b/c/f");
        assert_eq!(client.stat("/keeps/f", View::NOW).unwrap().attr.links, 1);
        assert_eq!(client.stat("/", View::NOW).unwrap().attr.links, 3);
    };
    check(&mut client);
    for (path, reason) in
        [("/a", Reason::NotFound), ("/", Reason::InvalidArgument), ("/keeps/f/x", Reason::NotDirectory)]
    {
        assert_eq!(client.remove_tree(path, false).unwrap_err().reason, reason, "{path}");
    }
    client.fsync();
    drop(client);
    let mut client = machine.serve();
    check(&mut client);
    // A file alone, and what was removed comes back as a whole.
    client.remove_tree("/keeps/f", false).unwrap();
    client.restore("/a", removed.stamp - 1, false).unwrap();
    assert_eq!(client.read("/a/again", View::NOW).unwrap(), b"/a/b/f");
}

#[test]
fn a_crash_while_a_tree_is_removed_in_parts_leaves_all_of_it_or_none() {
    let mut machine = SimMachine::new(7);
    machine.settings.edit_part_bytes = 1;
    let mut client = machine.serve();
    planted(&mut client);
    let (mut kept, mut removed) = (0, 0);
    for changes in 1..60 {
        client.fsync();
        machine.disk.fail_after(changes);
        client.seq += 1;
        let ask = RemoveTree { target: Target::path("/a"), dry_run: false };
        let id = client.send(Request::RemoveTree(ask), &[], client.seq);
        let is_acknowledged = matches!(client.answer(id), Some((Ok(_), _)));
        drop(client);
        machine.disk.crash(CrashKind::Process);
        machine.disk.restart();
        client = machine.serve();
        let there = NAMES.iter().filter(|path| client.stat(path, View::NOW).is_ok()).count();
        assert!(there == 0 || there == NAMES.len() && !is_acknowledged, "{there} names after {changes} changes");
        assert_eq!(client.server.check_up().wrong, [""; 0]);
        client.open_session();
        if there > 0 {
            kept += 1;
            continue;
        }
        removed += 1;
        client.remove_tree("/keeps", false).unwrap();
        planted(&mut client);
    }
    assert!(kept > 5 && removed > 5, "kept {kept} times, removed {removed} times");
}

#[test]
fn what_may_not_be_removed_keeps_all_of_its_tree() {
    let machine = SimMachine::new(7);
    let server = machine.try_serve().unwrap();
    let mut client = machine.connect(server.clone(), Caller::root());
    planted(&mut client);
    for path in NAMES {
        client.chmod(path, 0o777).unwrap();
    }
    client.chmod("/", 0o777).unwrap();
    let mut other = machine.connect(server, Caller { uid: 1000, gid: 1000, groups: Vec::new() });
    for (closed, mode) in [("/", 0o755), ("/a/b/c", 0o755), ("/a/b", 0o733), ("/a/b/c", 0o1777)] {
        client.chmod(closed, mode).unwrap();
        let fault = other.remove_tree("/a", false).unwrap_err();
        assert!([Reason::AccessDenied, Reason::NotPermitted].contains(&fault.reason), "{closed}: {fault}");
        for path in NAMES {
            assert!(client.stat(path, View::NOW).is_ok(), "{closed}: {path}");
        }
        client.chmod(closed, 0o777).unwrap();
    }
    other.remove_tree("/a", false).unwrap();
}

#[test]
fn files_become_a_part_of_another_at_one_stamp() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let parts = [pattern(100_000, 1), pattern(70_001, 2), Vec::new(), pattern(5, 3)];
    let names = ["/all", "/b", "/empty", "/c"];
    for (name, bytes) in names.iter().zip(&parts) {
        client.make(name);
        let file = client.open(name).unwrap();
        if !bytes.is_empty() {
            client.write(&file, Some(0), bytes).unwrap();
        }
    }
    client.txn(Op::Link(Link { file: Target::path("/c"), name: Target::path("/kept") })).unwrap();
    client.mkdir("/d");
    let all = client.open("/all").unwrap();
    for (sources, reason) in [
        (&[][..], Reason::InvalidArgument),
        (&["/b", "/none"], Reason::NotFound),
        (&["/b", "/d"], Reason::InvalidArgument),
        (&["/b", "/all"], Reason::InvalidArgument),
        (&["/c", "/kept"], Reason::InvalidArgument),
    ] {
        assert_eq!(client.join(&all, sources).unwrap_err().reason, reason, "{sources:?}");
        assert_eq!(client.read("/all", View::NOW).unwrap(), parts[0]);
        assert_eq!(client.read("/b", View::NOW).unwrap(), parts[1]);
    }
    let joined = client.join(&all, &names[1..]).unwrap();
    assert_eq!(joined.len, 70_006);
    let check = |client: &mut TestConnection| {
        assert_eq!(client.read("/all", View::NOW).unwrap(), parts.concat());
        assert_eq!(client.read("/kept", View::NOW).unwrap(), parts[3]);
        for (name, bytes) in names.iter().zip(&parts) {
            assert_eq!(client.at(name, joined.stamp - 1).unwrap(), *bytes, "{name}");
        }
        for name in &names[1..] {
            assert_eq!(client.at(name, joined.stamp).unwrap_err().reason, Reason::NotFound, "{name}");
        }
        assert_eq!(client.at("/all", joined.stamp).unwrap(), parts.concat());
    };
    check(&mut client);
    client.fsync();
    drop(client);
    check(&mut machine.serve());
}

#[test]
fn what_may_not_be_read_or_removed_is_not_joined() {
    let machine = SimMachine::new(7);
    let server = machine.try_serve().unwrap();
    let mut client = machine.connect(server.clone(), Caller::root());
    client.mkdir("/d");
    for path in ["/d/a", "/d/b"] {
        let file = client.make(path);
        client.write(&file, Some(0), path.as_bytes()).unwrap();
        client.chmod(path, 0o666).unwrap();
    }
    let mut other = machine.connect(server, Caller { uid: 1000, gid: 1000, groups: Vec::new() });
    let a = other.open("/d/a").unwrap();
    assert_eq!(other.join(&a, &["/d/b"]).unwrap_err().reason, Reason::AccessDenied, "its name is not its own");
    client.chmod("/d", 0o777).unwrap();
    client.chmod("/d/b", 0o600).unwrap();
    assert_eq!(other.join(&a, &["/d/b"]).unwrap_err().reason, Reason::AccessDenied, "nor are its bytes");
    assert_eq!(client.read("/d/b", View::NOW).unwrap(), b"/d/b");
    client.chmod("/d/b", 0o644).unwrap();
    other.join(&a, &["/d/b"]).unwrap();
    assert_eq!(client.read("/d/a", View::NOW).unwrap(), b"/d/a/d/b");
}

#[test]
fn a_tree_changes_mode_and_owner_at_one_stamp_or_not_at_all() {
    let mut machine = SimMachine::new(7);
    for part_bytes in [1, 1 << 20] {
        machine.settings.edit_part_bytes = part_bytes;
        let top = format!("/t{part_bytes}");
        let server = machine.try_serve().unwrap();
        let mut client = machine.connect(server.clone(), Caller::root());
        let mut other = machine.connect(server, Caller { uid: 1000, gid: 1000, groups: vec![7] });
        let files = ["", "/d", "/d/x", "/d/x/f", "/g"].map(|path| format!("{top}{path}"));
        for path in [&files[0], &files[1], &files[2]] {
            client.mkdir(path);
        }
        client.make(&files[3]);
        client.make(&files[4]);
        client
            .txn(Op::Link(Link { file: Target::path(&*files[4]), name: Target::path(format!("{top}/again")) }))
            .unwrap();
        let symlink = format!("{top}/link");
        let kind = Some(MakeKind::Symlink(b"g".to_vec()));
        client.txn(Op::Make(Make { target: Target::path(&*symlink), kind, ..Make::default() })).unwrap();
        client.chmod(&files[3], 0o640).unwrap();
        let at = |client: &mut TestConnection, stamp: Option<u64>| {
            let view = View { at: stamp, user_at: None };
            let all = files.iter().chain([&symlink]);
            all.map(|path| {
                let target = Target { follow: false, ..Target::path(&**path) };
                let Ok(Reply::Stat(found)) = client.ask(Request::Stat(Stat { target, view, ..Stat::default() })) else {
                    panic!("{path} is not there")
                };
                (found.attr.mode & 0o7777, found.attr.uid, found.attr.gid)
            })
            .collect::<Vec<_>>()
        };
        let before = at(&mut client, None);
        let change = |bits: u32, action: ModeAction| ModeChange {
            action: action as i32,
            who: 0o7777,
            bits,
            ..ModeChange::default()
        };
        // `o-rx,a+X`, and a new owner.
        let executes = ModeChange { if_any_executes: true, ..change(0, ModeAction::Add) };
        let take = ModeChange { who: 0o1007, ..change(0o555, ModeAction::Take) };
        let ask = ChangeTree {
            target: Target { follow: false, ..Target::path(&*top) },
            modes: vec![take, executes],
            uid: Some(1000),
            ..ChangeTree::default()
        };
        let planned = client.change_tree(ChangeTree { dry_run: true, ..ask.clone() }).unwrap();
        assert_eq!((planned.stamp, planned.count, planned.refused), (0, 6, 0), "six inodes, one of two names");
        assert_eq!(at(&mut client, None), before);
        // Another user owns none of it.
        let refused = other.change_tree(ask.clone()).unwrap_err();
        assert_eq!(refused.reason, Reason::NotPermitted);
        assert_eq!(at(&mut client, None), before);
        let changed = client.change_tree(ask.clone()).unwrap();
        let after: Vec<_> = before
            .iter()
            .map(|(mode, _, gid)| match *mode {
                0o777 => (0o777, 1000, *gid),
                mode if mode & 0o111 != 0 => (mode & !0o555 & 0o7 | mode & !0o7 | 0o111, 1000, *gid),
                mode => (mode & !0o5, 1000, *gid),
            })
            .collect();
        assert_eq!(at(&mut client, None), after);
        assert_eq!(at(&mut client, Some(changed.stamp)), after);
        assert_eq!(at(&mut client, Some(changed.stamp - 1)), before);
        let rights = |reply: &EditReply| {
            reply.actions.iter().map(|action| (action.path.clone(), action.rights)).collect::<Vec<_>>()
        };
        assert_eq!(rights(&changed), rights(&planned));
        assert!(rights(&changed).iter().all(|(_, rights)| rights.is_some_and(|rights| rights.uid == 1000)));
        // Nothing is left to change: no version is made.
        assert_eq!(client.change_tree(ask.clone()).unwrap().count, 0);
        // The owner closes the directories to himself, and opens them again.
        let own = |modes: Vec<ModeChange>| ChangeTree { modes, uid: None, ..ask.clone() };
        other.change_tree(own(vec![change(0o777, ModeAction::Take)])).unwrap();
        assert_eq!(other.stat(&files[3], View::NOW).unwrap_err().reason, Reason::AccessDenied);
        other.change_tree(own(vec![change(0o700, ModeAction::Add)])).unwrap();
        assert_eq!(other.stat(&files[3], View::NOW).unwrap().attr.mode & 0o7777, 0o700);
        // He gives it to a group of his, and to no other user.
        let give = |uid, gid| ChangeTree { modes: Vec::new(), uid, gid, ..ask.clone() };
        assert_eq!(other.change_tree(give(Some(0), None)).unwrap_err().reason, Reason::NotPermitted);
        assert_eq!(other.change_tree(give(None, Some(8))).unwrap_err().reason, Reason::NotPermitted);
        other.change_tree(give(None, Some(7))).unwrap();
        assert!(at(&mut client, None).iter().all(|(_, uid, gid)| (*uid, *gid) == (1000, 7)));
        let missing = ChangeTree { target: Target::path("/none"), ..ask.clone() };
        assert_eq!(client.change_tree(missing).unwrap_err().reason, Reason::NotFound);
        drop((client, other));
        assert_eq!(machine.serve().server.check_up().wrong, [""; 0]);
    }
    // The root itself.
    let mut client = machine.serve();
    let root = ChangeTree { target: Target::path("/"), gid: Some(3), ..ChangeTree::default() };
    assert!(client.change_tree(root).unwrap().count > 10);
    assert_eq!(client.stat("/", View::NOW).unwrap().attr.gid, 3);
}
