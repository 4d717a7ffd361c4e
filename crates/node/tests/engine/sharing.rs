//! Clones, restores, shared copies and undos through the engine, against models that know nothing of patches.

use std::collections::BTreeMap;

use super::*;
use frieze_wire::edit::{ActionKind, CloneTree, CopyRange, EditAction, EditReply, Restore, Undo};
use frieze_wire::quota::{QUOTA_XATTR, USAGE_XATTR};
use frieze_wire::txn::{Grant, Link};

#[path = "undo.rs"]
mod undo;

pub(crate) fn told(reply: &EditReply, kind: ActionKind) -> Vec<&EditAction> {
    reply.actions.iter().filter(|action| action.kind == kind as i32).collect()
}

impl Served {
    pub(crate) fn edit(&mut self, request: Request) -> Result<EditReply, Fault> {
        self.open_session();
        self.seq += 1;
        let id = self.send(request, &[], self.seq);
        match self.answer(id).expect("answered at once").0? {
            Reply::Edited(reply) => Ok(reply),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn clone_tree(&mut self, from: &str, at: u64, to: &str) -> Result<EditReply, Fault> {
        let (source, target) = (Target::path(from), Target::path(to));
        self.edit(Request::Clone(CloneTree { source, at, target, dry_run: false }))
    }

    pub(crate) fn restore(&mut self, path: &str, at: u64, delete: bool) -> Result<EditReply, Fault> {
        self.edit(Request::Restore(Restore { target: Target::path(path), at, delete, dry_run: false }))
    }

    pub(crate) fn undo(&mut self, sessions: &[u64]) -> Result<EditReply, Fault> {
        let sessions = sessions.to_vec();
        self.edit(Request::Undo(Undo { target: Target::path("/"), sessions, ..Undo::default() }))
    }

    /// Opens for reading and writing, with grants on the first chunks.
    pub(crate) fn open(&mut self, path: &str) -> Result<Vec<u8>, Fault> {
        self.open_session();
        let open = Open { target: Target::path(path), view: View::NOW, read: true, write: true, made_at: 0 };
        let Reply::Open(open) = self.ask(Request::Open(open))? else { panic!("no open file") };
        self.txn(Op::Grant(Grant { inode: open.attr.inode, first: 0, count: 4 }))?;
        Ok(open.capability)
    }

    pub(crate) fn cut_to(&mut self, path: &str, size: u64) -> u64 {
        let cut = SetAttr { target: Target::path(path), size: Some(size), ..SetAttr::default() };
        self.txn(Op::SetAttr(cut)).unwrap().stamp
    }

    pub(crate) fn remove(&mut self, path: &str, directory: bool) -> Result<u64, Fault> {
        self.txn(Op::Remove(Remove { target: Target::path(path), directory })).map(|reply| reply.stamp)
    }

    pub(crate) fn rename(&mut self, from: &str, to: &str) -> Result<u64, Fault> {
        let rename = Rename { from: Target::path(from), to: Target::path(to), flags: 0 };
        self.txn(Op::Rename(rename)).map(|reply| reply.stamp)
    }

    pub(crate) fn chmod(&mut self, path: &str, mode: u32) -> Result<u64, Fault> {
        let set = SetAttr { target: Target::path(path), mode: Some(mode), ..SetAttr::default() };
        self.txn(Op::SetAttr(set)).map(|reply| reply.stamp)
    }

    pub(crate) fn inode(&mut self, path: &str, view: View) -> Option<u64> {
        self.stat(path, view).ok().map(|reply| reply.attr.inode)
    }
}

#[test]
fn a_clone_shares_the_bytes_of_then_and_goes_its_own_way() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    let bytes = pattern(100_000, 1);
    served.open("/f").unwrap();
    let (then, _) = served.write(&file, Some(0), &bytes).unwrap();
    served.write(&file, Some(10), b"changed since").unwrap();
    let before = served.engine.planes.newest();
    let records = |served: &mut Served| match served.ask(Request::Status(Status {})) {
        Ok(Reply::Status(status)) => status.records,
        other => panic!("{other:?}"),
    };
    let written = records(&mut served);
    let cloned = served.clone_tree("/f", then, "/c").unwrap();
    assert_eq!(records(&mut served), written, "a clone copies nothing");
    assert_eq!(served.read("/c", View::NOW).unwrap(), bytes);
    let copy = served.open("/c").unwrap();
    served.write(&copy, Some(70_000), b"mine").unwrap();
    served.write(&file, Some(0), b"theirs").unwrap();
    let mut mine = bytes.clone();
    mine[70_000..70_004].copy_from_slice(b"mine");
    let check = |served: &mut Served| {
        assert_eq!(served.read("/c", View::NOW).unwrap(), mine);
        assert_eq!(served.at("/c", cloned.stamp).unwrap(), bytes);
        assert_eq!(served.at("/c", before.0).unwrap_err().reason, Reason::NotFound);
        assert_eq!(&served.read("/f", View::NOW).unwrap()[..9], [&b"theirs"[..], &bytes[6..9]].concat());
    };
    check(&mut served);
    // A clone of a clone, and of it after it has changed; a truncate hides what is shared.
    served.clone_tree("/c", 0, "/cc").unwrap();
    served.cut_to("/cc", 70_002);
    served.cut_to("/cc", 100_000);
    let mut cut = mine.clone();
    cut[70_002..].fill(0);
    assert_eq!(served.read("/cc", View::NOW).unwrap(), cut);
    assert_eq!(served.clone_tree("/f", 0, "/c").unwrap_err().reason, Reason::Exists);
    served.fsync();
    drop(served);
    let mut served = machine.serve();
    check(&mut served);
    assert_eq!(served.read("/cc", View::NOW).unwrap(), cut);
}

#[test]
fn a_tree_is_cloned_with_its_links_modes_and_attributes() {
    let machine = Machine::new();
    let mut served = machine.serve();
    served.mkdir("/a");
    served.mkdir("/a/b");
    let file = served.make("/a/b/f");
    served.write(&file, Some(0), b"bytes").unwrap();
    served.txn(Op::Link(Link { file: Target::path("/a/b/f"), name: Target::path("/a/g") })).unwrap();
    let symlink = Some(MakeKind::Symlink(b"b/f".to_vec()));
    served
        .txn(Op::Make(Make { target: Target::path("/a/s"), mode: 0, or_open: false, kind: symlink, ..Make::default() }))
        .unwrap();
    let color = SetXattr { target: Target::path("/a/b"), name: b"user.c".to_vec(), value: b"red".to_vec(), flags: 0 };
    served.txn(Op::SetXattr(color)).unwrap();
    served.chmod("/a/b/f", 0o4711).unwrap();
    let reply = served.clone_tree("/a", 0, "/x").unwrap();
    assert_eq!(reply.count, 4, "a file with two names is one file: {reply:?}");
    assert_eq!(served.read("/x/b/f", View::NOW).unwrap(), b"bytes");
    assert_eq!(served.read("/x/s", View::NOW).unwrap(), b"bytes");
    let stat = |served: &mut Served, path| served.stat(path, View::NOW).unwrap().attr;
    let (f, g) = (stat(&mut served, "/x/b/f"), stat(&mut served, "/x/g"));
    assert_eq!((f.inode, f.links, f.mode), (g.inode, 2, 0o4711));
    assert_eq!(f.mtime_ns, stat(&mut served, "/a/b/f").mtime_ns);
    assert_eq!(stat(&mut served, "/x").links, 3);
    let ask =
        frieze_wire::message::GetXattr { target: Target::path("/x/b"), view: View::NOW, name: b"user.c".to_vec() };
    let Ok(Reply::Bytes(value)) = served.ask(Request::GetXattr(ask)) else { panic!("no attribute") };
    assert_eq!(value.value, b"red");
}

#[test]
fn a_quota_is_neither_restored_nor_copied_nor_undone_and_counts_after_a_restart() {
    let machine = Machine::new();
    let mut served = machine.serve();
    served.mkdir("/q");
    let quota = |served: &mut Served, text: &str| {
        let set = SetXattr { target: Target::path("/q"), name: QUOTA_XATTR.to_vec(), value: text.into(), flags: 0 };
        served.txn(Op::SetXattr(set)).unwrap();
    };
    let told = |served: &mut Served, path: &str, view: View| {
        let ask = frieze_wire::message::GetXattr { target: Target::path(path), view, name: USAGE_XATTR.to_vec() };
        match served.ask(Request::GetXattr(ask)) {
            Ok(Reply::Bytes(value)) => Ok(String::from_utf8(value.value).unwrap()),
            Ok(other) => panic!("{other:?}"),
            Err(fault) => Err(fault.reason),
        }
    };
    served.make("/q/a");
    let before = served.engine.planes.newest().0;
    quota(&mut served, "files=3");
    served.make("/q/b");
    served.restore("/q", before, true).unwrap();
    assert_eq!(told(&mut served, "/q", View::NOW), Ok("files=2 bytes=0 of files=3".to_owned()));
    served.clone_tree("/q", 0, "/copy").unwrap();
    assert_eq!(told(&mut served, "/copy", View::NOW), Err(Reason::NoAttribute));
    let after = served.engine.planes.newest().0;
    quota(&mut served, "files=4");
    let undo = Undo { target: Target::path("/q"), uid: Some(0), after, ..Undo::default() };
    served.edit(Request::Undo(undo)).unwrap();
    assert_eq!(told(&mut served, "/q", View::NOW), Ok("files=2 bytes=0 of files=4".to_owned()));
    quota(&mut served, "files=3");
    served.make("/q/c");
    served.fsync();
    drop(served);
    let mut served = machine.serve();
    assert_eq!(told(&mut served, "/q", View::NOW), Ok("files=3 bytes=0 of files=3".to_owned()));
    let one_more =
        Make { target: Target::path("/q/d"), mode: 0o644, kind: Some(MakeKind::File(true)), ..Make::default() };
    assert_eq!(served.txn(Op::Make(one_more)).unwrap_err().reason, Reason::FilesQuota);
}

#[test]
fn a_retry_of_an_edit_answers_what_the_first_did() {
    let machine = Machine::new();
    let mut served = machine.serve();
    served.make("/f");
    let ask =
        Request::Clone(CloneTree { source: Target::path("/f"), at: 0, target: Target::path("/c"), dry_run: false });
    let first = served.edit(ask.clone()).unwrap();
    served.remove("/c", false).unwrap();
    let id = served.send(ask, &[], served.seq - 1);
    let Ok(Reply::Edited(again)) = served.answer(id).unwrap().0 else { panic!("no answer") };
    assert!(again.repeated);
    assert_eq!((again.stamp, again.id), (first.stamp, first.id));
    assert!(served.read("/c", View::NOW).is_err(), "it did not run again");
}

#[test]
fn a_restore_puts_back_names_bytes_and_attributes_and_touches_nothing_else() {
    let machine = Machine::new();
    let mut served = machine.serve();
    served.mkdir("/d");
    served.mkdir("/d/sub");
    for name in ["kept", "gone", "moved", "mode", "left"] {
        let file = served.make(&format!("/d/{name}"));
        served.write(&file, Some(0), name.as_bytes()).unwrap();
    }
    let inner = served.make("/d/sub/inner");
    served.write(&inner, Some(0), b"inner").unwrap();
    let moved = served.inode("/d/moved", View::NOW);
    let sub = served.inode("/d/sub", View::NOW);
    let then = served.engine.planes.newest().0;
    let kept = served.open("/d/kept").unwrap();
    let (after_write, _) = served.write(&kept, Some(2), b"XXXXX").unwrap();
    served.remove("/d/gone", false).unwrap();
    served.rename("/d/moved", "/d/elsewhere").unwrap();
    served.rename("/d/left", "/left").unwrap();
    served.chmod("/d/mode", 0o600).unwrap();
    served.remove("/d/sub/inner", false).unwrap();
    served.remove("/d/sub", true).unwrap();
    served.make("/d/new");
    served.make("/d/gone");
    let ask = Restore { target: Target::path("/d"), at: then, delete: false, dry_run: true };
    let planned = served.edit(Request::Restore(ask)).unwrap();
    assert_eq!(planned.stamp, 0);
    assert_eq!(served.read("/d/kept", View::NOW).unwrap(), b"keXXXXX");
    let done = served.restore("/d", then, false).unwrap();
    assert_eq!(done.actions, planned.actions, "a dry run tells what would be done");
    assert!(done.stamp > 0 && told(&done, ActionKind::Left).is_empty(), "{done:?}");
    let copies = told(&done, ActionKind::Make);
    assert_eq!(copies.len(), 1, "what was moved out is copied: {done:?}");
    assert_eq!((&copies[0].path[..], &copies[0].lives_at[..]), (&b"/d/left"[..], &b"/left"[..]));
    assert!(copies[0].words.contains("the original is /left now"), "{}", copies[0].words);
    let check = |served: &mut Served| {
        for name in ["kept", "gone", "moved", "mode", "left"] {
            assert_eq!(served.read(&format!("/d/{name}"), View::NOW).unwrap(), name.as_bytes());
        }
        assert_eq!(served.read("/d/sub/inner", View::NOW).unwrap(), b"inner");
        assert_eq!(served.inode("/d/sub", View::NOW), sub, "a restored name gets its inode back");
        assert_eq!(served.inode("/d/moved", View::NOW), moved);
        assert_eq!(served.inode("/d/elsewhere", View::NOW), None);
        assert_eq!(served.read("/left", View::NOW).unwrap(), b"left", "what moved out stays there too");
        assert_ne!(served.inode("/left", View::NOW), served.inode("/d/left", View::NOW));
        assert_eq!(served.stat("/d/mode", View::NOW).unwrap().attr.mode, 0o644);
        assert!(served.inode("/d/new", View::NOW).is_some(), "names made since stay");
        // What it replaced stays readable.
        assert_eq!(served.at("/d/kept", after_write).unwrap(), b"keXXXXX");
        assert_eq!(served.at("/d/kept", done.stamp - 1).unwrap(), b"keXXXXX");
        assert_eq!(served.at("/d/gone", done.stamp - 1).unwrap(), b"");
    };
    check(&mut served);
    assert_eq!(served.restore("/d", then, false).unwrap().stamp, 0, "nothing differs any more");
    served.restore("/d", then, true).unwrap();
    assert_eq!(served.inode("/d/new", View::NOW), None);
    // Back to before the restores: they are changes like others.
    served.restore("/d", done.stamp - 1, true).unwrap();
    assert_eq!(served.read("/d/kept", View::NOW).unwrap(), b"keXXXXX");
    assert_eq!(served.inode("/d/sub", View::NOW), None);
    assert_eq!(served.inode("/d/elsewhere", View::NOW), moved);
}

/// What stands in the place of a copy with the very bytes of it is no copy if it goes back to its own name.
#[test]
fn a_restore_makes_the_copy_that_a_file_going_back_stands_in_for() {
    let machine = Machine::new();
    let mut served = machine.serve();
    served.mkdir("/d");
    let one = served.make("/d/one");
    served.write(&one, Some(0), b"the same").unwrap();
    served.clone_tree("/d/one", 0, "/d/other").unwrap();
    let inode = served.inode("/d/one", View::NOW);
    let then = served.engine.planes.newest().0;
    served.rename("/d/other", "/out").unwrap();
    served.rename("/d/one", "/d/other").unwrap();
    served.restore("/d", then, false).unwrap();
    assert_eq!(served.inode("/d/one", View::NOW), inode, "it has its name again");
    assert_eq!(served.read("/d/other", View::NOW).unwrap(), b"the same");
    assert_ne!(served.inode("/d/other", View::NOW), inode);
    assert!(served.inode("/out", View::NOW).is_some(), "what moved out stays there too");
    assert_eq!(served.restore("/d", then, false).unwrap().stamp, 0, "nothing differs any more");
}

#[test]
fn a_restore_tells_of_each_copy_where_the_original_is_unless_that_is_hidden() {
    let machine = Machine::new();
    let mut served = machine.serve();
    for (path, mode) in [("/d", 0o777), ("/d/sub", 0o777), ("/open", 0o755), ("/shut", 0o700)] {
        served.mkdir(path);
        served.chmod(path, mode).unwrap();
    }
    for path in ["/d/sub/inner", "/d/hidden", "/d/replaced"] {
        let file = served.make(path);
        served.write(&file, Some(0), path.as_bytes()).unwrap();
    }
    let then = served.engine.planes.newest().0;
    served.rename("/d/sub", "/open/tree").unwrap();
    served.rename("/d/hidden", "/shut/secret").unwrap();
    served.rename("/d/replaced", "/open/replaced").unwrap();
    served.make("/d/replaced");
    drop(served);
    let mut served = machine.serve_as(Caller { uid: 1000, gid: 1000, groups: Vec::new() });
    let ask = Restore { target: Target::path("/d"), at: then, delete: false, dry_run: true };
    let planned = served.edit(Request::Restore(ask)).unwrap();
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
fn a_directory_in_the_way_of_a_restore_is_told_and_left_unless_it_may_go() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/x");
    served.write(&file, Some(0), b"file").unwrap();
    let then = served.engine.planes.newest().0;
    served.remove("/x", false).unwrap();
    served.mkdir("/x");
    served.make("/x/mine");
    let reply = served.restore("/x", then, false).unwrap();
    assert_eq!((reply.stamp, told(&reply, ActionKind::Left).len()), (0, 1), "{reply:?}");
    served.restore("/x", then, true).unwrap();
    assert_eq!(served.read("/x", View::NOW).unwrap(), b"file");
    // And what never was there is not made of nothing.
    assert_eq!(served.restore("/never", then, false).unwrap_err().reason, Reason::NotFound);
}

#[test]
fn nobody_restores_or_clones_what_he_may_not() {
    let machine = Machine::new();
    let mut served = machine.serve();
    served.mkdir("/open");
    served.chmod("/open", 0o777).unwrap();
    let file = served.make("/open/secret");
    served.write(&file, Some(0), b"old secret").unwrap();
    let then = served.engine.planes.newest().0;
    served.write(&file, Some(0), b"new secret").unwrap();
    served.chmod("/open/secret", 0o600).unwrap();
    drop(served);
    let mut served = machine.serve_as(Caller { uid: 1000, gid: 1000, groups: Vec::new() });
    let reason = |result: Result<EditReply, Fault>| result.unwrap_err().reason;
    assert_eq!(reason(served.clone_tree("/open/secret", 0, "/open/mine")), Reason::AccessDenied);
    assert_eq!(reason(served.clone_tree("/open/secret", then, "/open/mine")), Reason::AccessDenied);
    assert_eq!(reason(served.clone_tree("/open", then, "/open/mine")), Reason::AccessDenied);
    assert_eq!(reason(served.restore("/open/secret", then, false)), Reason::AccessDenied);
    let edit = Op::Edit(frieze_wire::edit::Edit::default());
    assert_eq!(served.txn(edit).unwrap_err().reason, Reason::NotPermitted);
}

#[test]
fn who_undoes_may_do_what_undoes_it_and_learns_no_names_that_he_may_not_list() {
    let machine = Machine::new();
    let mut served = machine.serve();
    for (path, mode) in [("/open", 0o777), ("/read", 0o755), ("/shut", 0o700)] {
        served.mkdir(path);
        served.chmod(path, mode).unwrap();
    }
    served.make("/shut/of-root");
    served.make("/open/of-root");
    served.make("/read/of-root");
    drop(served);
    let mut served = machine.serve_as(Caller { uid: 1000, gid: 1000, groups: Vec::new() });
    let file = served.make("/open/mine");
    served.write(&file, Some(0), b"mine").unwrap();
    let by = |uid: u32, dry_run: bool| {
        Request::Undo(Undo { target: Target::path("/"), uid: Some(uid), dry_run, ..Undo::default() })
    };
    // The user may not remove a name from another user's directory, and learns nothing of the names in a closed one.
    let planned = served.edit(by(0, true)).unwrap();
    assert!(planned.actions.iter().all(|action| !action.path.starts_with(b"/shut/")), "{planned:?}");
    assert!(told(&planned, ActionKind::Left).iter().any(|action| action.words.contains("may not list")));
    assert_eq!(served.edit(by(0, false)).unwrap_err().kind(), frieze_base::ErrorKind::Denied);
    assert!(served.inode("/read/of-root", View::NOW).is_some(), "all or nothing");
    // The user's own names may be removed.
    served.edit(by(1000, false)).unwrap();
    assert_eq!(served.inode("/open/mine", View::NOW), None);
    assert!(served.inode("/open/of-root", View::NOW).is_some());
    let nobody = Undo { target: Target::path("/"), ..Undo::default() };
    assert_eq!(served.edit(Request::Undo(nobody)).unwrap_err().reason, Reason::InvalidArgument);
}

#[test]
fn a_range_is_copied_by_sharing() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let (from, to) = (served.make("/from"), served.make("/to"));
    let bytes = pattern(60_000, 3);
    served.write(&from, Some(0), &bytes).unwrap();
    served.write(&to, Some(0), &[7; 100]).unwrap();
    let copy = |source: &[u8], target: &[u8]| CopyRange {
        source: source.to_vec(),
        source_offset: 1000,
        target: target.to_vec(),
        target_offset: 50,
        len: 1 << 20,
        also: Vec::new(),
    };
    assert_eq!(served.edit(Request::CopyRange(copy(&from, &to))).unwrap().len, 59_000);
    served.write(&from, Some(0), &[0; 5000]).unwrap();
    let whole = [&[7; 50][..], &bytes[1000..]].concat();
    assert_eq!(served.read("/to", View::NOW).unwrap(), whole);
    // Within one file, over itself.
    let into_itself = CopyRange { source_offset: 0, target_offset: 20, len: 40, ..copy(&to, &to) };
    served.edit(Request::CopyRange(into_itself)).unwrap();
    let mut moved = whole.clone();
    moved.copy_within(0..40, 20);
    assert_eq!(served.read("/to", View::NOW).unwrap(), moved);
    let beyond = CopyRange { source_offset: 1 << 30, ..copy(&from, &to) };
    assert_eq!(served.edit(Request::CopyRange(beyond)).unwrap().len, 0);
}

#[test]
fn a_restore_touches_the_ranges_that_differ_and_a_file_of_many_pieces_becomes_one() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    served.open("/f").unwrap();
    let bytes = pattern(200_000, 9);
    served.write(&file, Some(0), &bytes).unwrap();
    let then = served.engine.planes.newest().0;
    served.write(&file, Some(1000), b"one").unwrap();
    served.write(&file, Some(150_000), b"two").unwrap();
    let reply = served.restore("/f", then, false).unwrap();
    let ranges: Vec<(u64, u64)> =
        told(&reply, ActionKind::Bytes).iter().map(|action| (action.offset, action.len)).collect();
    assert_eq!(ranges, [(1000, 3), (150_000, 3)]);
    assert_eq!(served.read("/f", View::NOW).unwrap(), bytes);
    assert_eq!(served.restore("/f", then, false).unwrap().stamp, 0, "it shows the same bytes");
    let diff = frieze_wire::timeline::Diff {
        target: Target::path("/f"),
        from: then,
        to: served.engine.planes.newest().0,
        ..frieze_wire::timeline::Diff::default()
    };
    let Ok(Reply::Diff(found)) = served.ask(Request::Diff(diff)) else { panic!("no differences") };
    assert!(found.differences.iter().all(|difference| difference.spans.is_empty()), "{:?}", found.differences);
    // As many ranges as a file may share, each written and taken back.
    for round in 0..300u64 {
        let before = served.engine.planes.newest().0;
        served.write(&file, Some(500 * (round % 290)), b"more").unwrap();
        served.restore("/f", before, false).unwrap_or_else(|fault| panic!("round {round}: {fault}"));
    }
    assert_eq!(served.read("/f", View::NOW).unwrap(), bytes);
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

pub(crate) fn check_states(served: &mut Served, model: &Model, rng: &mut frieze_base::Rng, count: usize) {
    for _ in 0..count {
        let (stamp, files) = &model.states[rng.below(model.states.len() as u64) as usize];
        for directory in ["/a", "/b"] {
            let view = View { at: Some(*stamp), user_at: None };
            let list = List { target: Target::path(directory), view, count_max: 100, ..List::default() };
            let Ok(Reply::List(listed)) = served.ask(Request::List(list)) else { panic!("no list") };
            let found: Vec<String> = listed
                .entries
                .iter()
                .map(|entry| format!("{directory}/{}", String::from_utf8_lossy(&entry.name)))
                .collect();
            let expected: Vec<String> = files.keys().filter(|path| path.starts_with(directory)).cloned().collect();
            assert_eq!(found, expected, "names at {stamp}");
        }
        for (path, (_, bytes)) in files {
            let found = served.at(path, *stamp).unwrap_or_else(|fault| panic!("{path} at {stamp}: {fault}"));
            assert!(found == *bytes, "{path} at {stamp}: {} and {} bytes", found.len(), bytes.len());
        }
    }
}

pub(crate) fn play(served: &mut Served, model: &mut Model, rng: &mut frieze_base::Rng) {
    let paths: Vec<String> =
        ["/a", "/b"].iter().flat_map(|d| ["w", "x", "y", "z"].map(|n| format!("{d}/{n}"))).collect();
    let any = |rng: &mut frieze_base::Rng| paths[rng.below(paths.len() as u64) as usize].clone();
    let path = any(rng);
    let there = model.now.contains_key(&path);
    let stamp = match rng.below(10) {
        0 | 1 if !there => {
            served.make(&path);
            let id = model.fresh();
            model.now.insert(path, (id, Vec::new()));
            served.engine.planes.newest().0
        }
        0..=3 if there => {
            let (offset, len) = (rng.below(150_000), rng.between(1, 30_000));
            let bytes = pattern(len as usize, rng.below(256) as u8);
            let capability = served.open(&path).unwrap();
            let (stamp, _) = served.write(&capability, Some(offset), &bytes).unwrap();
            let (_, file) = model.now.get_mut(&path).unwrap();
            let end = (offset + len) as usize;
            file.resize(file.len().max(end), 0);
            file[offset as usize..end].copy_from_slice(&bytes);
            stamp
        }
        4 if there => {
            let size = rng.below(180_000);
            model.now.get_mut(&path).unwrap().1.resize(size as usize, 0);
            served.cut_to(&path, size)
        }
        5 if there && rng.chance(2) => {
            let capability = served.open(&path).unwrap();
            let (offset, len) = (rng.below(150_000), rng.between(1, 80_000));
            let durability = Durability::Async as i32;
            served.seq += 1;
            let punch = frieze_wire::message::Punch { capability, offset, len, durability };
            let id = served.send(Request::Punch(punch), &[], served.seq);
            served.answer(id).unwrap().0.unwrap();
            let (_, file) = model.now.get_mut(&path).unwrap();
            let end = ((offset + len) as usize).min(file.len());
            file[end.min(offset as usize)..end].fill(0);
            served.engine.planes.newest().0
        }
        5 if there => {
            model.now.remove(&path);
            served.remove(&path, false).unwrap()
        }
        6 if there => {
            let to = any(rng);
            let file = model.now.remove(&path).unwrap();
            model.now.insert(to.clone(), file);
            served.rename(&path, &to).unwrap()
        }
        7 => {
            let (at, files) = model.states[rng.below(model.states.len() as u64) as usize].clone();
            let from = any(rng);
            match (files.get(&from), there) {
                (Some((_, bytes)), false) => {
                    let id = model.fresh();
                    model.now.insert(path.clone(), (id, bytes.clone()));
                    served.clone_tree(&from, at, &path).unwrap().stamp
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
            let reply = served.restore(&scope, at, delete).unwrap();
            assert!(told(&reply, ActionKind::Left).is_empty(), "{reply:?}");
            served.engine.planes.newest().0
        }
        9 if there => {
            let to = any(rng);
            if to == path || !model.now.contains_key(&to) {
                return;
            }
            let (source, target) = (served.open(&path).unwrap(), served.open(&to).unwrap());
            let (source_offset, target_offset) = (rng.below(100_000), rng.below(100_000));
            let len = rng.between(1, 60_000);
            let ask = CopyRange { source, source_offset, target, target_offset, len, also: Vec::new() };
            let copied = served.edit(Request::CopyRange(ask)).unwrap().len as usize;
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
            served.engine.planes.newest().0
        }
        _ => return,
    };
    model.states.push((stamp.max(served.engine.planes.newest().0), model.now.clone()));
}

#[test]
fn any_clones_restores_and_copies_read_as_a_copied_tree_at_any_instant() {
    for seed in 1..=12 {
        let mut rng = frieze_base::Rng::new(seed);
        let mut machine = Machine::new();
        let mut served = machine.serve();
        served.mkdir("/a");
        served.mkdir("/b");
        let mut model = Model::empty(served.engine.planes.newest().0);
        for _ in 0..120 {
            play(&mut served, &mut model, &mut rng);
        }
        check_states(&mut served, &model, &mut rng, 30);
        served.fsync();
        drop(served);
        machine.lose_power();
        let mut served = machine.serve();
        check_states(&mut served, &model, &mut rng, 30);
        for _ in 0..60 {
            play(&mut served, &mut model, &mut rng);
        }
        check_states(&mut served, &model, &mut rng, 40);
    }
}
