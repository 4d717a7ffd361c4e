//! Trees that are removed by one change, and files that become a part of another.

use std::collections::BTreeSet;

use super::*;
use frieze_wire::edit::{ActionKind, EditReply, JoinFiles, RemoveTree};
use frieze_wire::txn::Link;

impl Served {
    pub(crate) fn remove_tree(&mut self, path: &str, dry_run: bool) -> Result<EditReply, Fault> {
        self.edit(Request::RemoveTree(RemoveTree { target: Target::path(path), dry_run }))
    }

    pub(crate) fn join(&mut self, target: &[u8], sources: &[&str]) -> Result<EditReply, Fault> {
        let sources = sources.iter().map(|path| Target::path(*path)).collect();
        self.edit(Request::JoinFiles(JoinFiles { target: target.to_vec(), sources }))
    }
}

/// Some files with a name elsewhere too, in directories of several depths.
fn planted(served: &mut Served) {
    for path in ["/a", "/a/b", "/a/b/c", "/a/empty", "/keeps"] {
        served.mkdir(path);
    }
    for path in ["/a/f", "/a/b/f", "/a/b/c/f"] {
        let file = served.make(path);
        served.write(&file, Some(0), path.as_bytes()).unwrap();
    }
    served.txn(Op::Link(Link { file: Target::path("/a/b/c/f"), name: Target::path("/keeps/f") })).unwrap();
    served.txn(Op::Link(Link { file: Target::path("/a/b/f"), name: Target::path("/a/again") })).unwrap();
}

const NAMES: [&str; 8] = ["/a", "/a/again", "/a/b", "/a/b/c", "/a/b/c/f", "/a/b/f", "/a/empty", "/a/f"];

#[test]
fn a_tree_goes_at_one_stamp_and_is_whole_before_it() {
    let machine = Machine::new();
    let mut served = machine.serve();
    planted(&mut served);
    let planned = served.remove_tree("/a", true).unwrap();
    let names = |reply: &EditReply| {
        assert!(reply.actions.iter().all(|action| action.kind() == ActionKind::Unname));
        let paths = reply.actions.iter().map(|action| String::from_utf8(action.path.clone()).unwrap());
        paths.collect::<BTreeSet<_>>()
    };
    assert_eq!((planned.stamp, planned.count), (0, 8));
    assert_eq!(names(&planned), NAMES.map(str::to_owned).into());
    assert!(served.stat("/a/b/c/f", View::NOW).is_ok(), "it was only said what would be done");
    let removed = served.remove_tree("/a", false).unwrap();
    assert_eq!(names(&removed), names(&planned));
    let check = |served: &mut Served| {
        for path in NAMES {
            assert_eq!(served.stat(path, View::NOW).unwrap_err().reason, Reason::NotFound, "{path}");
            let before = View { at: Some(removed.stamp - 1), user_at: None };
            assert!(served.stat(path, before).is_ok(), "{path}");
            let after = View { at: Some(removed.stamp), user_at: None };
            assert_eq!(served.stat(path, after).unwrap_err().reason, Reason::NotFound, "{path}");
        }
        assert_eq!(served.at("/a/b/f", removed.stamp - 1).unwrap(), b"/a/b/f");
        assert_eq!(served.read("/keeps/f", View::NOW).unwrap(), b"/a/b/c/f");
        assert_eq!(served.stat("/keeps/f", View::NOW).unwrap().attr.links, 1);
        assert_eq!(served.stat("/", View::NOW).unwrap().attr.links, 3);
    };
    check(&mut served);
    for (path, reason) in
        [("/a", Reason::NotFound), ("/", Reason::InvalidArgument), ("/keeps/f/x", Reason::NotDirectory)]
    {
        assert_eq!(served.remove_tree(path, false).unwrap_err().reason, reason, "{path}");
    }
    served.fsync();
    drop(served);
    let mut served = machine.serve();
    check(&mut served);
    // A file alone, and what was removed comes back as a whole.
    served.remove_tree("/keeps/f", false).unwrap();
    served.restore("/a", removed.stamp - 1, false).unwrap();
    assert_eq!(served.read("/a/again", View::NOW).unwrap(), b"/a/b/f");
}

#[test]
fn what_may_not_be_removed_keeps_all_of_its_tree() {
    let machine = Machine::new();
    let engine = Arc::new(machine.try_serve().unwrap());
    let mut served = machine.connect(engine.clone(), Caller::root());
    planted(&mut served);
    for path in NAMES {
        served.chmod(path, 0o777).unwrap();
    }
    served.chmod("/", 0o777).unwrap();
    let mut other = machine.connect(engine, Caller { uid: 1000, gid: 1000, groups: Vec::new() });
    for (closed, mode) in [("/", 0o755), ("/a/b/c", 0o755), ("/a/b", 0o733), ("/a/b/c", 0o1777)] {
        served.chmod(closed, mode).unwrap();
        let fault = other.remove_tree("/a", false).unwrap_err();
        assert!([Reason::AccessDenied, Reason::NotPermitted].contains(&fault.reason), "{closed}: {fault}");
        for path in NAMES {
            assert!(served.stat(path, View::NOW).is_ok(), "{closed}: {path}");
        }
        served.chmod(closed, 0o777).unwrap();
    }
    other.remove_tree("/a", false).unwrap();
}

#[test]
fn files_become_a_part_of_another_at_one_stamp() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let parts = [pattern(100_000, 1), pattern(70_001, 2), Vec::new(), pattern(5, 3)];
    let names = ["/all", "/b", "/empty", "/c"];
    for (name, bytes) in names.iter().zip(&parts) {
        served.make(name);
        let file = served.open(name).unwrap();
        if !bytes.is_empty() {
            served.write(&file, Some(0), bytes).unwrap();
        }
    }
    served.txn(Op::Link(Link { file: Target::path("/c"), name: Target::path("/kept") })).unwrap();
    served.mkdir("/d");
    let all = served.open("/all").unwrap();
    for (sources, reason) in [
        (&[][..], Reason::InvalidArgument),
        (&["/b", "/none"], Reason::NotFound),
        (&["/b", "/d"], Reason::InvalidArgument),
        (&["/b", "/all"], Reason::InvalidArgument),
        (&["/c", "/kept"], Reason::InvalidArgument),
    ] {
        assert_eq!(served.join(&all, sources).unwrap_err().reason, reason, "{sources:?}");
        assert_eq!(served.read("/all", View::NOW).unwrap(), parts[0]);
        assert_eq!(served.read("/b", View::NOW).unwrap(), parts[1]);
    }
    let joined = served.join(&all, &names[1..]).unwrap();
    assert_eq!(joined.len, 70_006);
    let check = |served: &mut Served| {
        assert_eq!(served.read("/all", View::NOW).unwrap(), parts.concat());
        assert_eq!(served.read("/kept", View::NOW).unwrap(), parts[3]);
        for (name, bytes) in names.iter().zip(&parts) {
            assert_eq!(served.at(name, joined.stamp - 1).unwrap(), *bytes, "{name}");
        }
        for name in &names[1..] {
            assert_eq!(served.at(name, joined.stamp).unwrap_err().reason, Reason::NotFound, "{name}");
        }
        assert_eq!(served.at("/all", joined.stamp).unwrap(), parts.concat());
    };
    check(&mut served);
    served.fsync();
    drop(served);
    check(&mut machine.serve());
}

#[test]
fn what_may_not_be_read_or_removed_is_not_joined() {
    let machine = Machine::new();
    let engine = Arc::new(machine.try_serve().unwrap());
    let mut served = machine.connect(engine.clone(), Caller::root());
    served.mkdir("/d");
    for path in ["/d/a", "/d/b"] {
        let file = served.make(path);
        served.write(&file, Some(0), path.as_bytes()).unwrap();
        served.chmod(path, 0o666).unwrap();
    }
    let mut other = machine.connect(engine, Caller { uid: 1000, gid: 1000, groups: Vec::new() });
    let a = other.open("/d/a").unwrap();
    assert_eq!(other.join(&a, &["/d/b"]).unwrap_err().reason, Reason::AccessDenied, "its name is not its own");
    served.chmod("/d", 0o777).unwrap();
    served.chmod("/d/b", 0o600).unwrap();
    assert_eq!(other.join(&a, &["/d/b"]).unwrap_err().reason, Reason::AccessDenied, "nor are its bytes");
    assert_eq!(served.read("/d/b", View::NOW).unwrap(), b"/d/b");
    served.chmod("/d/b", 0o644).unwrap();
    other.join(&a, &["/d/b"]).unwrap();
    assert_eq!(served.read("/d/a", View::NOW).unwrap(), b"/d/a/d/b");
}
