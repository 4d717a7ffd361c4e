//! Clones, restores, shared copies and undos through the server, against models that know nothing of patches.

use std::collections::BTreeMap;

use super::*;
use frieze_wire::edit::{ActionKind, CloneTree, CopyRange, EditAction, EditReply, Restore, Undo};
use frieze_wire::quota::{QUOTA_XATTR, USAGE_XATTR};
use frieze_wire::txn::Link;

#[path = "undo.rs"]
mod undo;

pub(crate) fn told(reply: &EditReply, kind: ActionKind) -> Vec<&EditAction> {
    reply.actions.iter().filter(|action| action.kind == kind as i32).collect()
}

#[test]
fn a_clone_shares_the_bytes_of_then_and_goes_its_own_way() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    let bytes = pattern(100_000, 1);
    client.open("/f").unwrap();
    let (then, _) = client.write(&file, Some(0), &bytes).unwrap();
    client.write(&file, Some(10), b"changed since").unwrap();
    let before = client.server.newest();
    let records = |client: &mut TestConnection| match client.ask(Request::Status(Status {})) {
        Ok(Reply::Status(status)) => status.records,
        other => panic!("{other:?}"),
    };
    let written = records(&mut client);
    let cloned = client.clone_tree("/f", then, "/c").unwrap();
    assert_eq!(records(&mut client), written, "a clone copies nothing");
    assert_eq!(client.read("/c", View::NOW).unwrap(), bytes);
    let copy = client.open("/c").unwrap();
    client.write(&copy, Some(70_000), b"mine").unwrap();
    client.write(&file, Some(0), b"theirs").unwrap();
    let mut mine = bytes.clone();
    mine[70_000..70_004].copy_from_slice(b"mine");
    let check = |client: &mut TestConnection| {
        assert_eq!(client.read("/c", View::NOW).unwrap(), mine);
        assert_eq!(client.at("/c", cloned.stamp).unwrap(), bytes);
        assert_eq!(client.at("/c", before.0).unwrap_err().reason, Reason::NotFound);
        assert_eq!(&client.read("/f", View::NOW).unwrap()[..9], [&b"theirs"[..], &bytes[6..9]].concat());
    };
    check(&mut client);
    // A clone of a clone, and of it after it has changed; a truncate hides what is shared.
    client.clone_tree("/c", 0, "/cc").unwrap();
    client.truncate("/cc", 70_002);
    client.truncate("/cc", 100_000);
    let mut cut = mine.clone();
    cut[70_002..].fill(0);
    assert_eq!(client.read("/cc", View::NOW).unwrap(), cut);
    assert_eq!(client.clone_tree("/f", 0, "/c").unwrap_err().reason, Reason::Exists);
    client.fsync();
    drop(client);
    let mut client = machine.serve();
    check(&mut client);
    assert_eq!(client.read("/cc", View::NOW).unwrap(), cut);
}

#[test]
fn a_tree_is_cloned_with_its_links_modes_and_attributes() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    client.mkdir("/a");
    client.mkdir("/a/b");
    let file = client.make("/a/b/f");
    client.write(&file, Some(0), b"bytes").unwrap();
    client.txn(Op::Link(Link { file: Target::path("/a/b/f"), name: Target::path("/a/g") })).unwrap();
    let symlink = Some(MakeKind::Symlink(b"b/f".to_vec()));
    client
        .txn(Op::Make(Make { target: Target::path("/a/s"), mode: 0, or_open: false, kind: symlink, ..Make::default() }))
        .unwrap();
    let color = SetXattr { target: Target::path("/a/b"), name: b"user.c".to_vec(), value: b"red".to_vec(), flags: 0 };
    client.txn(Op::SetXattr(color)).unwrap();
    client.chmod("/a/b/f", 0o4711).unwrap();
    let reply = client.clone_tree("/a", 0, "/x").unwrap();
    assert_eq!(reply.count, 4, "a file with two names is one file: {reply:?}");
    assert_eq!(client.read("/x/b/f", View::NOW).unwrap(), b"bytes");
    assert_eq!(client.read("/x/s", View::NOW).unwrap(), b"bytes");
    let stat = |client: &mut TestConnection, path| client.stat(path, View::NOW).unwrap().attr;
    let (f, g) = (stat(&mut client, "/x/b/f"), stat(&mut client, "/x/g"));
    assert_eq!((f.inode, f.links, f.mode), (g.inode, 2, 0o4711));
    assert_eq!(f.mtime_ns, stat(&mut client, "/a/b/f").mtime_ns);
    assert_eq!(stat(&mut client, "/x").links, 3);
    let ask =
        frieze_wire::message::GetXattr { target: Target::path("/x/b"), view: View::NOW, name: b"user.c".to_vec() };
    let Ok(Reply::Bytes(value)) = client.ask(Request::GetXattr(ask)) else { panic!("no attribute") };
    assert_eq!(value.value, b"red");
}

#[test]
fn a_quota_is_neither_restored_nor_copied_nor_undone_and_counts_after_a_restart() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    client.mkdir("/q");
    let quota = |client: &mut TestConnection, text: &str| {
        let set = SetXattr { target: Target::path("/q"), name: QUOTA_XATTR.to_vec(), value: text.into(), flags: 0 };
        client.txn(Op::SetXattr(set)).unwrap();
    };
    let told = |client: &mut TestConnection, path: &str, view: View| {
        let ask = frieze_wire::message::GetXattr { target: Target::path(path), view, name: USAGE_XATTR.to_vec() };
        match client.ask(Request::GetXattr(ask)) {
            Ok(Reply::Bytes(value)) => Ok(String::from_utf8(value.value).unwrap()),
            Ok(other) => panic!("{other:?}"),
            Err(fault) => Err(fault.reason),
        }
    };
    client.make("/q/a");
    let before = client.server.newest().0;
    quota(&mut client, "files=3");
    client.make("/q/b");
    client.restore("/q", before, true).unwrap();
    assert_eq!(told(&mut client, "/q", View::NOW), Ok("files=2 bytes=0 of files=3".to_owned()));
    client.clone_tree("/q", 0, "/copy").unwrap();
    assert_eq!(told(&mut client, "/copy", View::NOW), Err(Reason::NoAttribute));
    let after = client.server.newest().0;
    quota(&mut client, "files=4");
    let undo = Undo { target: Target::path("/q"), uid: Some(0), after, ..Undo::default() };
    client.edit(Request::Undo(undo)).unwrap();
    assert_eq!(told(&mut client, "/q", View::NOW), Ok("files=2 bytes=0 of files=4".to_owned()));
    quota(&mut client, "files=3");
    client.make("/q/c");
    client.fsync();
    drop(client);
    let mut client = machine.serve();
    assert_eq!(told(&mut client, "/q", View::NOW), Ok("files=3 bytes=0 of files=3".to_owned()));
    let one_more =
        Make { target: Target::path("/q/d"), mode: 0o644, kind: Some(MakeKind::File(true)), ..Make::default() };
    assert_eq!(client.txn(Op::Make(one_more)).unwrap_err().reason, Reason::FilesQuota);
}

#[test]
fn a_retry_of_an_edit_answers_what_the_first_did() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    client.make("/f");
    let ask =
        Request::Clone(CloneTree { source: Target::path("/f"), at: 0, target: Target::path("/c"), dry_run: false });
    let first = client.edit(ask.clone()).unwrap();
    client.remove("/c", false).unwrap();
    let id = client.send(ask, &[], client.seq - 1);
    let Ok(Reply::Edited(again)) = client.answer(id).unwrap().0 else { panic!("no answer") };
    assert!(again.repeated);
    assert_eq!((again.stamp, again.id), (first.stamp, first.id));
    assert!(client.read("/c", View::NOW).is_err(), "it did not run again");
}

#[test]
fn a_restore_puts_back_names_bytes_and_attributes_and_touches_nothing_else() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    client.mkdir("/d");
    client.mkdir("/d/sub");
    for name in ["kept", "gone", "moved", "mode", "left"] {
        let file = client.make(&format!("/d/{name}"));
        client.write(&file, Some(0), name.as_bytes()).unwrap();
    }
    let inner = client.make("/d/sub/inner");
    client.write(&inner, Some(0), b"inner").unwrap();
    let moved = client.inode("/d/moved", View::NOW);
    let sub = client.inode("/d/sub", View::NOW);
    let then = client.server.newest().0;
    let kept = client.open("/d/kept").unwrap();
    let (after_write, _) = client.write(&kept, Some(2), b"XXXXX").unwrap();
    client.remove("/d/gone", false).unwrap();
    client.rename("/d/moved", "/d/elsewhere").unwrap();
    client.rename("/d/left", "/left").unwrap();
    client.chmod("/d/mode", 0o600).unwrap();
    client.remove("/d/sub/inner", false).unwrap();
    client.remove("/d/sub", true).unwrap();
    client.make("/d/new");
    client.make("/d/gone");
    let ask = Restore { target: Target::path("/d"), at: then, delete: false, dry_run: true };
    let planned = client.edit(Request::Restore(ask)).unwrap();
    assert_eq!(planned.stamp, 0);
    assert_eq!(client.read("/d/kept", View::NOW).unwrap(), b"keXXXXX");
    let done = client.restore("/d", then, false).unwrap();
    assert_eq!(done.actions, planned.actions, "a dry run tells what would be done");
    assert!(done.stamp > 0 && told(&done, ActionKind::Left).is_empty(), "{done:?}");
    let copies = told(&done, ActionKind::Make);
    assert_eq!(copies.len(), 1, "what was moved out is copied: {done:?}");
    assert_eq!((&copies[0].path[..], &copies[0].lives_at[..]), (&b"/d/left"[..], &b"/left"[..]));
    assert!(copies[0].words.contains("the original is /left now"), "{}", copies[0].words);
    let check = |client: &mut TestConnection| {
        for name in ["kept", "gone", "moved", "mode", "left"] {
            assert_eq!(client.read(&format!("/d/{name}"), View::NOW).unwrap(), name.as_bytes());
        }
        assert_eq!(client.read("/d/sub/inner", View::NOW).unwrap(), b"inner");
        assert_eq!(client.inode("/d/sub", View::NOW), sub, "a restored name gets its inode back");
        assert_eq!(client.inode("/d/moved", View::NOW), moved);
        assert_eq!(client.inode("/d/elsewhere", View::NOW), None);
        assert_eq!(client.read("/left", View::NOW).unwrap(), b"left", "what moved out stays there too");
        assert_ne!(client.inode("/left", View::NOW), client.inode("/d/left", View::NOW));
        assert_eq!(client.stat("/d/mode", View::NOW).unwrap().attr.mode, 0o644);
        assert!(client.inode("/d/new", View::NOW).is_some(), "names made since stay");
        // What it replaced stays readable.
        assert_eq!(client.at("/d/kept", after_write).unwrap(), b"keXXXXX");
        assert_eq!(client.at("/d/kept", done.stamp - 1).unwrap(), b"keXXXXX");
        assert_eq!(client.at("/d/gone", done.stamp - 1).unwrap(), b"");
    };
    check(&mut client);
    assert_eq!(client.restore("/d", then, false).unwrap().stamp, 0, "nothing differs any more");
    client.restore("/d", then, true).unwrap();
    assert_eq!(client.inode("/d/new", View::NOW), None);
    // Back to before the restores: they are changes like others.
    client.restore("/d", done.stamp - 1, true).unwrap();
    assert_eq!(client.read("/d/kept", View::NOW).unwrap(), b"keXXXXX");
    assert_eq!(client.inode("/d/sub", View::NOW), None);
    assert_eq!(client.inode("/d/elsewhere", View::NOW), moved);
}

/// What stands in the place of a copy with the very bytes of it is no copy if it goes back to its own name.
#[test]
fn a_restore_makes_the_copy_that_a_file_going_back_stands_in_for() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    client.mkdir("/d");
    let one = client.make("/d/one");
    client.write(&one, Some(0), b"the same").unwrap();
    client.clone_tree("/d/one", 0, "/d/other").unwrap();
    let inode = client.inode("/d/one", View::NOW);
    let then = client.server.newest().0;
    client.rename("/d/other", "/out").unwrap();
    client.rename("/d/one", "/d/other").unwrap();
    client.restore("/d", then, false).unwrap();
    assert_eq!(client.inode("/d/one", View::NOW), inode, "it has its name again");
    assert_eq!(client.read("/d/other", View::NOW).unwrap(), b"the same");
    assert_ne!(client.inode("/d/other", View::NOW), inode);
    assert!(client.inode("/out", View::NOW).is_some(), "what moved out stays there too");
    assert_eq!(client.restore("/d", then, false).unwrap().stamp, 0, "nothing differs any more");
}

#[test]
fn a_restore_reports_the_original_of_each_copy_unless_that_is_hidden() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    for (path, mode) in [("/d", 0o777), ("/d/sub", 0o777), ("/open", 0o755), ("/shut", 0o700)] {
        client.mkdir(path);
        client.chmod(path, mode).unwrap();
    }
    for path in ["/d/sub/inner", "/d/hidden", "/d/replaced"] {
        let file = client.make(path);
        client.write(&file, Some(0), path.as_bytes()).unwrap();
    }
    let then = client.server.newest().0;
    client.rename("/d/sub", "/open/tree").unwrap();
    client.rename("/d/hidden", "/shut/secret").unwrap();
    client.rename("/d/replaced", "/open/replaced").unwrap();
    client.make("/d/replaced");
    drop(client);
    let mut client = machine.serve_as(Caller { uid: 1000, gid: 1000, groups: Vec::new() });
    let ask = Restore { target: Target::path("/d"), at: then, delete: false, dry_run: true };
    let planned = client.edit(Request::Restore(ask)).unwrap();
    let copies: Vec<(String, String, &str)> = told(&planned, ActionKind::Make)
        .into_iter()
        .map(|action| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            (text(&action.path), text(&action.lives_at), action.words.as_str())
        })
        .collect();
    let copy = "a copy that shares the bytes of then";
    let stays = |place: &str, original: &str| format!("{copy}{place}: the original {original} there");
    let expected = [
        ("/d/hidden", "", stays("", "was moved away since and stays")),
        (
            "/d/replaced",
            "/open/replaced",
            stays(", in place of what has the name now", "is /open/replaced now and stays"),
        ),
        ("/d/sub", "/open/tree", stays("", "is /open/tree now and stays")),
        // What lies in a copy needs no words of its own.
        ("/d/sub/inner", "", String::new()),
    ];
    let expected: Vec<(String, String, &str)> = expected
        .iter()
        .map(|(path, lives_at, words)| ((*path).to_owned(), (*lives_at).to_owned(), words.as_str()))
        .collect();
    assert_eq!(copies, expected);
}

#[test]
fn a_directory_in_the_way_of_a_restore_is_reported_and_kept_unless_delete_is_set() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/x");
    client.write(&file, Some(0), b"file").unwrap();
    let then = client.server.newest().0;
    client.remove("/x", false).unwrap();
    client.mkdir("/x");
    client.make("/x/mine");
    let reply = client.restore("/x", then, false).unwrap();
    assert_eq!((reply.stamp, told(&reply, ActionKind::Left).len()), (0, 1), "{reply:?}");
    client.restore("/x", then, true).unwrap();
    assert_eq!(client.read("/x", View::NOW).unwrap(), b"file");
    // And what never was there is not made of nothing.
    assert_eq!(client.restore("/never", then, false).unwrap_err().reason, Reason::NotFound);
}

#[test]
fn restore_and_clone_check_the_rights_of_their_caller() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    client.mkdir("/open");
    client.chmod("/open", 0o777).unwrap();
    let file = client.make("/open/secret");
    client.write(&file, Some(0), b"old secret").unwrap();
    let then = client.server.newest().0;
    client.write(&file, Some(0), b"new secret").unwrap();
    client.chmod("/open/secret", 0o600).unwrap();
    drop(client);
    let mut client = machine.serve_as(Caller { uid: 1000, gid: 1000, groups: Vec::new() });
    let reason = |result: Result<EditReply, Fault>| result.unwrap_err().reason;
    assert_eq!(reason(client.clone_tree("/open/secret", 0, "/open/mine")), Reason::AccessDenied);
    assert_eq!(reason(client.clone_tree("/open/secret", then, "/open/mine")), Reason::AccessDenied);
    assert_eq!(reason(client.clone_tree("/open", then, "/open/mine")), Reason::AccessDenied);
    assert_eq!(reason(client.restore("/open/secret", then, false)), Reason::AccessDenied);
    let edit = Op::Edit(frieze_wire::edit::Edit::default());
    assert_eq!(client.txn(edit).unwrap_err().reason, Reason::NotPermitted);
}

#[test]
fn an_undo_needs_the_rights_of_its_changes_and_reveals_no_name_that_its_caller_may_not_list() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    for (path, mode) in [("/open", 0o777), ("/read", 0o755), ("/shut", 0o700)] {
        client.mkdir(path);
        client.chmod(path, mode).unwrap();
    }
    client.make("/shut/of-root");
    client.make("/open/of-root");
    client.make("/read/of-root");
    drop(client);
    let mut client = machine.serve_as(Caller { uid: 1000, gid: 1000, groups: Vec::new() });
    let file = client.make("/open/mine");
    client.write(&file, Some(0), b"mine").unwrap();
    let by = |uid: u32, dry_run: bool| {
        Request::Undo(Undo { target: Target::path("/"), uid: Some(uid), dry_run, ..Undo::default() })
    };
    // The user may not remove a name from another user's directory, and learns nothing of the names in a closed one.
    let planned = client.edit(by(0, true)).unwrap();
    assert!(planned.actions.iter().all(|action| !action.path.starts_with(b"/shut/")), "{planned:?}");
    assert!(told(&planned, ActionKind::Left).iter().any(|action| action.words.contains("may not list")));
    assert_eq!(client.edit(by(0, false)).unwrap_err().kind(), frieze_base::ErrorKind::Denied);
    assert!(client.inode("/read/of-root", View::NOW).is_some(), "all or nothing");
    // The user's own names may be removed.
    client.edit(by(1000, false)).unwrap();
    assert_eq!(client.inode("/open/mine", View::NOW), None);
    assert!(client.inode("/open/of-root", View::NOW).is_some());
    let nobody = Undo { target: Target::path("/"), ..Undo::default() };
    assert_eq!(client.edit(Request::Undo(nobody)).unwrap_err().reason, Reason::InvalidArgument);
}

#[test]
fn a_range_is_copied_by_sharing() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let (from, to) = (client.make("/from"), client.make("/to"));
    let bytes = pattern(60_000, 3);
    client.write(&from, Some(0), &bytes).unwrap();
    client.write(&to, Some(0), &[7; 100]).unwrap();
    let copy = |source: &[u8], target: &[u8]| CopyRange {
        source: source.to_vec(),
        source_offset: 1000,
        target: target.to_vec(),
        target_offset: 50,
        len: 1 << 20,
        also: Vec::new(),
    };
    assert_eq!(client.edit(Request::CopyRange(copy(&from, &to))).unwrap().len, 59_000);
    client.write(&from, Some(0), &[0; 5000]).unwrap();
    let whole = [&[7; 50][..], &bytes[1000..]].concat();
    assert_eq!(client.read("/to", View::NOW).unwrap(), whole);
    // Within one file, over itself.
    let into_itself = CopyRange { source_offset: 0, target_offset: 20, len: 40, ..copy(&to, &to) };
    client.edit(Request::CopyRange(into_itself)).unwrap();
    let mut moved = whole.clone();
    moved.copy_within(0..40, 20);
    assert_eq!(client.read("/to", View::NOW).unwrap(), moved);
    let beyond = CopyRange { source_offset: 1 << 30, ..copy(&from, &to) };
    assert_eq!(client.edit(Request::CopyRange(beyond)).unwrap().len, 0);
}

#[test]
fn an_undo_of_a_length_leaves_what_another_has_copied_in_as_it_leaves_a_write() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let mut sessions: Vec<SessionPlace> = (0..2).map(|_| client.new_session()).collect();
    let actor = sessions[0].session.0;
    let bytes = pattern(40, 3);
    let from = client.make("/from");
    client.write(&from, Some(0), &bytes).unwrap();
    let files = ["/copied", "/written"].map(|path| (path, client.make(path)));
    client.switch_session(&mut sessions, 1, 0);
    for (path, _) in &files {
        client.truncate(path, 100);
    }
    client.switch_session(&mut sessions, 0, 1);
    let [(_, copied), (_, written)] = &files;
    let (source, target) = (from.clone(), copied.clone());
    let copy = CopyRange { source, source_offset: 0, target, target_offset: 20, len: 40, also: Vec::new() };
    assert_eq!(client.edit(Request::CopyRange(copy)).unwrap().len, 40);
    client.write(written, Some(20), &bytes).unwrap();
    client.undo(&[actor]).unwrap();
    let left = [&[0; 20][..], &bytes].concat();
    assert_eq!(files.map(|(path, _)| client.read(path, View::NOW).unwrap()), [left.clone(), left]);
}

#[test]
fn a_restore_touches_the_ranges_that_differ_and_a_file_of_many_pieces_becomes_one() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    client.open("/f").unwrap();
    let bytes = pattern(200_000, 9);
    client.write(&file, Some(0), &bytes).unwrap();
    let then = client.server.newest().0;
    client.write(&file, Some(1000), b"one").unwrap();
    client.write(&file, Some(150_000), b"two").unwrap();
    let reply = client.restore("/f", then, false).unwrap();
    let ranges: Vec<(u64, u64)> =
        told(&reply, ActionKind::Bytes).iter().map(|action| (action.offset, action.len)).collect();
    assert_eq!(ranges, [(1000, 3), (150_000, 3)]);
    assert_eq!(client.read("/f", View::NOW).unwrap(), bytes);
    assert_eq!(client.restore("/f", then, false).unwrap().stamp, 0, "it shows the same bytes");
    let diff = frieze_wire::timeline::Diff {
        target: Target::path("/f"),
        from: then,
        to: client.server.newest().0,
        ..frieze_wire::timeline::Diff::default()
    };
    let Ok(Reply::Diff(found)) = client.ask(Request::Diff(diff)) else { panic!("no differences") };
    assert!(found.differences.iter().all(|difference| difference.spans.is_empty()), "{:?}", found.differences);
    // As many ranges as a file may share, each written and taken back.
    for round in 0..300u64 {
        let before = client.server.newest().0;
        client.write(&file, Some(500 * (round % 290)), b"more").unwrap();
        client.restore("/f", before, false).unwrap_or_else(|fault| panic!("round {round}: {fault}"));
    }
    assert_eq!(client.read("/f", View::NOW).unwrap(), bytes);
}

/// Files by path: a number that follows the file, and its bytes.
pub(crate) type Files = BTreeMap<String, (u64, Vec<u8>)>;

pub(crate) struct Model {
    now: Files,
    pub(crate) states: Vec<(u64, Files)>,
    next: u64,
}

impl Model {
    /// Two directories with nothing in them, at this stamp.
    pub(crate) fn empty(stamp: u64) -> Model {
        Model { now: Files::new(), states: vec![(stamp, Files::new())], next: 0 }
    }

    fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// What a restore of everything below `scope` makes of the files.
    fn restore(&mut self, scope: &str, then: &Files, delete: bool) {
        let within = |path: &str| path == scope || path.starts_with(&format!("{scope}/"));
        let old: Files = then.iter().filter(|(path, _)| within(path)).map(|(p, f)| (p.clone(), f.clone())).collect();
        let mut next = Files::new();
        for (path, (id, bytes)) in &self.now {
            let returns = within(path) && old.iter().any(|(other, (was, _))| other != path && was == id);
            if !within(path) || (!delete && !returns) {
                next.insert(path.clone(), (*id, bytes.clone()));
            }
        }
        for (path, (id, bytes)) in old {
            let outside = next.iter().any(|(other, (is, _))| is == &id && !within(other));
            let id = if outside { self.fresh() } else { id };
            next.insert(path, (id, bytes));
        }
        self.now = next;
    }
}

pub(crate) fn check_states(client: &mut TestConnection, model: &Model, rng: &mut frieze_base::Rng, count: usize) {
    for _ in 0..count {
        let (stamp, files) = &model.states[rng.below(model.states.len() as u64) as usize];
        for directory in ["/a", "/b"] {
            let view = View { at: Some(*stamp), user_at: None };
            let list = List { target: Target::path(directory), view, count_max: 100, ..List::default() };
            let Ok(Reply::List(listed)) = client.ask(Request::List(list)) else { panic!("no list") };
            let found: Vec<String> = listed
                .entries
                .iter()
                .map(|entry| format!("{directory}/{}", String::from_utf8_lossy(&entry.name)))
                .collect();
            let expected: Vec<String> = files.keys().filter(|path| path.starts_with(directory)).cloned().collect();
            assert_eq!(found, expected, "names at {stamp}");
        }
        for (path, (_, bytes)) in files {
            let found = client.at(path, *stamp).unwrap_or_else(|fault| panic!("{path} at {stamp}: {fault}"));
            assert!(found == *bytes, "{path} at {stamp}: {} and {} bytes", found.len(), bytes.len());
        }
    }
}

pub(crate) fn play(client: &mut TestConnection, model: &mut Model, rng: &mut frieze_base::Rng) {
    let paths: Vec<String> =
        ["/a", "/b"].iter().flat_map(|d| ["w", "x", "y", "z"].map(|n| format!("{d}/{n}"))).collect();
    let any = |rng: &mut frieze_base::Rng| paths[rng.below(paths.len() as u64) as usize].clone();
    let path = any(rng);
    let there = model.now.contains_key(&path);
    let stamp = match rng.below(10) {
        0 | 1 if !there => {
            client.make(&path);
            let id = model.fresh();
            model.now.insert(path, (id, Vec::new()));
            client.server.newest().0
        }
        0..=3 if there => {
            let (offset, len) = (rng.below(150_000), rng.between(1, 30_000));
            let bytes = pattern(len as usize, rng.below(256) as u8);
            let capability = client.open(&path).unwrap();
            let (stamp, _) = client.write(&capability, Some(offset), &bytes).unwrap();
            let (_, file) = model.now.get_mut(&path).unwrap();
            let end = (offset + len) as usize;
            file.resize(file.len().max(end), 0);
            file[offset as usize..end].copy_from_slice(&bytes);
            stamp
        }
        4 if there => {
            let size = rng.below(180_000);
            model.now.get_mut(&path).unwrap().1.resize(size as usize, 0);
            client.truncate(&path, size)
        }
        5 if there && rng.chance(2) => {
            let capability = client.open(&path).unwrap();
            let (offset, len) = (rng.below(150_000), rng.between(1, 80_000));
            let durability = Durability::Async as i32;
            client.seq += 1;
            let punch = frieze_wire::message::Punch { capability, offset, len, durability };
            let id = client.send(Request::Punch(punch), &[], client.seq);
            client.answer(id).unwrap().0.unwrap();
            let (_, file) = model.now.get_mut(&path).unwrap();
            let end = ((offset + len) as usize).min(file.len());
            file[end.min(offset as usize)..end].fill(0);
            client.server.newest().0
        }
        5 if there => {
            model.now.remove(&path);
            client.remove(&path, false).unwrap()
        }
        6 if there => {
            let to = any(rng);
            let file = model.now.remove(&path).unwrap();
            model.now.insert(to.clone(), file);
            client.rename(&path, &to).unwrap()
        }
        7 => {
            let (at, files) = model.states[rng.below(model.states.len() as u64) as usize].clone();
            let from = any(rng);
            match (files.get(&from), there) {
                (Some((_, bytes)), false) => {
                    let id = model.fresh();
                    model.now.insert(path.clone(), (id, bytes.clone()));
                    client.clone_tree(&from, at, &path).unwrap().stamp
                }
                _ => return,
            }
        }
        8 => {
            let (at, files) = model.states[rng.below(model.states.len() as u64) as usize].clone();
            let delete = rng.chance(2);
            let scope = if rng.chance(2) { path } else { "/a".to_owned() };
            if scope.len() > 2 && !files.contains_key(&scope) {
                return;
            }
            model.restore(&scope, &files, delete);
            let reply = client.restore(&scope, at, delete).unwrap();
            assert!(told(&reply, ActionKind::Left).is_empty(), "{reply:?}");
            client.server.newest().0
        }
        9 if there => {
            let to = any(rng);
            if to == path || !model.now.contains_key(&to) {
                return;
            }
            let (source, target) = (client.open(&path).unwrap(), client.open(&to).unwrap());
            let (source_offset, target_offset) = (rng.below(100_000), rng.below(100_000));
            let len = rng.between(1, 60_000);
            let ask = CopyRange { source, source_offset, target, target_offset, len, also: Vec::new() };
            let copied = client.edit(Request::CopyRange(ask)).unwrap().len as usize;
            let bytes = model.now[&path].1.clone();
            let start = (source_offset as usize).min(bytes.len());
            let bytes = bytes[start..(start + len as usize).min(bytes.len())].to_vec();
            assert_eq!(copied, bytes.len());
            let (_, file) = model.now.get_mut(&to).unwrap();
            let at = target_offset as usize;
            if !bytes.is_empty() {
                file.resize(file.len().max(at + bytes.len()), 0);
                file[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            client.server.newest().0
        }
        _ => return,
    };
    model.states.push((stamp.max(client.server.newest().0), model.now.clone()));
}

#[test]
fn any_clones_restores_and_copies_read_as_a_copied_tree_at_any_instant() {
    for seed in 1..=12 {
        let mut rng = frieze_base::Rng::new(seed);
        let mut machine = SimMachine::new(7);
        let mut client = machine.serve();
        client.mkdir("/a");
        client.mkdir("/b");
        let mut model = Model::empty(client.server.newest().0);
        for _ in 0..120 {
            play(&mut client, &mut model, &mut rng);
        }
        check_states(&mut client, &model, &mut rng, 30);
        client.fsync();
        drop(client);
        machine.lose_power();
        let mut client = machine.serve();
        check_states(&mut client, &model, &mut rng, 30);
        for _ in 0..60 {
            play(&mut client, &mut model, &mut rng);
        }
        check_states(&mut client, &model, &mut rng, 40);
    }
}
