//! Parts of long edits: kept until their edit runs, read by nothing else, and bounded.

#![expect(clippy::unwrap_used, reason = "a test")]

mod common;

use common::{NamespaceWorld, root};
use frieze_base::{InodeId, Reason};
use frieze_namespace::STAGED_BYTES_MAX;
use frieze_wire::edit::{Edit, EditKind, SetName, StageEdit, StagedParts};
use frieze_wire::txn::{CloseSession, Op, Outcome, Remove, Target};
use prost::Message;

/// The removal of files of `/d`.
fn removal(world: &NamespaceWorld, files: &[&str]) -> Edit {
    let directory = world.find("/d", None).unwrap();
    let name = |name: &&str| SetName {
        directory: directory.0,
        name: name.as_bytes().to_vec(),
        expect: world.find(&format!("/d/{name}"), None).unwrap().0,
        inode: 0,
    };
    Edit { kind: EditKind::Remove as i32, names: files.iter().map(name).collect(), ..Edit::default() }
}

fn world() -> NamespaceWorld {
    let mut world = NamespaceWorld::new();
    world.directory("/d");
    for name in ["a", "b", "c"] {
        world.file(&format!("/d/{name}"));
    }
    world
}

fn part(request: u64, plan: u64, part: u32, bytes: usize) -> Op {
    let name = SetName { name: vec![b'x'; bytes], ..SetName::default() };
    let edit = Edit { names: vec![name], ..Edit::default() };
    Op::StageEdit(StageEdit {
        request,
        plan,
        part,
        edit: edit.encode_to_vec(),
        former: 0,
        kind: EditKind::Remove as i32,
    })
}

fn reason(outcome: Outcome) -> Result<u64, Reason> {
    outcome.into_result().map(|outcome| outcome.id).map_err(|fault| fault.reason)
}

/// Keys of parts in the store.
fn stored(world: &NamespaceWorld) -> usize {
    world.history.current().filter(|(key, _, _)| key[0] == b'G').count()
}

fn check(world: &NamespaceWorld) {
    world.check_replay();
    assert_eq!(world.reloaded(), world.ns);
}

#[test]
fn parts_change_nothing_until_the_edit_runs_at_one_stamp() {
    let mut world = world();
    let (before, session) = (world.dump(None), world.session);
    let edit = removal(&world, &["a", "c"]);
    let staged = world.stage(edit, 5, 0);
    assert_eq!((world.dump(None), stored(&world)), (before.clone(), 2));
    assert!(world.ns.staged_bytes() > 0);
    // A restart finds them.
    check(&world);
    world.ns = world.reloaded();
    let instant = world.stamp;
    world.run(&root(), Op::Edit(staged)).unwrap();
    for name in ["/d/a", "/d/c"] {
        assert_eq!(world.find(name, None), Err(Reason::NotFound));
        assert!(world.find(name, Some(instant)).is_ok());
    }
    assert!(world.find("/d/b", None).is_ok());
    assert_eq!((stored(&world), world.ns.staged_bytes()), (0, 0));
    assert_eq!(world.dump(Some(instant)), before);
    // The retry has the same answer, and needs no parts.
    let retry = Op::Edit(Edit { kind: EditKind::Remove as i32, ..Edit::default() });
    let (first, seq) = (world.log.last().unwrap().2.clone(), world.seq);
    assert_eq!(world.raw(session, seq, 0, root(), retry), first);
    check(&world);
}

#[test]
fn an_edit_that_lacks_a_part_is_planned_again() {
    let mut world = world();
    let edit = removal(&world, &["a", "b", "c"]);
    let other = |parts: StagedParts, which: u32| match which {
        0 => StagedParts { count: 4, ..parts },
        1 => StagedParts { count: 2, ..parts },
        2 => StagedParts { plan: 6, ..parts },
        _ => StagedParts { request: 1, ..parts },
    };
    for which in 0..4 {
        let whole = world.stage(edit.clone(), 5, 0);
        let missing = Edit { staged: whole.staged.map(|parts| other(parts, which)), ..whole };
        assert_eq!(world.run(&root(), Op::Edit(missing)).unwrap_err(), Reason::Superseded);
        world.seq -= 1;
    }
    // A name has changed since: nothing is changed, and the parts of this plan go.
    let whole = world.stage(edit, 5, 0);
    let (session, seq) = (world.session, world.seq + 1);
    let remove = Op::Remove(Remove { target: Target::path("/d/b"), directory: false });
    assert!(reason(world.raw(session, seq + 1, 0, root(), remove)).is_ok());
    assert_eq!(world.raw(session, seq, 0, root(), Op::Edit(whole)).reason, Reason::Superseded as u32);
    assert_eq!(stored(&world), 0);
    // A plan whose server died is replaced by the next one.
    let edit = removal(&world, &["a", "c"]);
    world.stage(edit.clone(), 6, 0);
    let next = world.stage(edit, 8, 6);
    assert_eq!(stored(&world), 2);
    world.run(&root(), Op::Edit(next)).unwrap();
    assert_eq!(world.ns.entry_count(world.find("/d", None).unwrap()), 0);
    assert_eq!(stored(&world), 0);
    check(&world);
}

#[test]
fn parts_end_with_their_request_and_their_session() {
    let mut world = world();
    let other = world.open_session(0);
    for (request, plan) in [(3, 1), (3, 2), (4, 1)] {
        assert_eq!(reason(world.raw(other, 0, 0, root(), part(request, plan, 0, 10))), Ok(0));
    }
    let remove = || Op::Remove(Remove { target: Target::path("/none"), directory: false });
    // A request that acknowledges the third drops its parts; a late one is refused.
    world.raw(other, 5, 4, root(), remove());
    assert_eq!(stored(&world), 1);
    let late = world.raw(other, 0, 0, root(), part(3, 1, 0, 10));
    assert_eq!(reason(late), Err(Reason::SequenceTooOld));
    assert_eq!(stored(&world), 1);
    // What was only staged has changed nothing: the session is one that changed nothing.
    assert!(world.ns.session(other).unwrap().unchanging);
    world.raw(other, 6, 4, root(), Op::CloseSession(CloseSession::default()));
    assert_eq!((stored(&world), world.ns.staged_bytes()), (0, 0));
    let ended = world.raw(other, 0, 0, root(), part(9, 1, 0, 10));
    assert_eq!(reason(ended), Err(Reason::UnknownSession));
    check(&world);
}

#[test]
fn parts_of_all_sessions_together_are_bounded() {
    let mut world = world();
    let (session, other) = (world.session, world.open_session(0));
    let bytes = STAGED_BYTES_MAX / 4;
    for number in 0..3 {
        assert_eq!(reason(world.raw(session, 0, 0, root(), part(9, 1, number, bytes))), Ok(0));
    }
    let full = world.raw(other, 0, 0, root(), part(1, 1, 0, bytes));
    assert_eq!(reason(full), Err(Reason::Overloaded));
    // Again, as after a lost answer: it is the same part, and has room.
    assert_eq!(reason(world.raw(session, 0, 0, root(), part(9, 1, 2, bytes))), Ok(0));
    assert_eq!(reason(world.raw(session, 0, 0, root(), part(9, 1, 2, bytes / 2))), Ok(0));
    assert_eq!(reason(world.raw(other, 0, 0, root(), part(1, 1, 0, bytes))), Ok(0));
    assert_eq!(stored(&world), 4);
    world.raw(session, 9, 9, root(), Op::CloseSession(CloseSession::default()));
    assert_eq!(stored(&world), 1);
    assert_eq!(world.find("/d/a", None).map(|id| id != InodeId(0)), Ok(true));
}

#[test]
fn a_part_that_is_no_edit_is_an_error_of_the_edit() {
    let mut world = world();
    let request = world.seq + 1;
    let stage = StageEdit { request, plan: 5, part: 0, edit: vec![0xff; 9], former: 0, kind: 4 };
    let session = world.session;
    assert_eq!(reason(world.raw(session, 0, 0, root(), Op::StageEdit(stage.clone()))), Ok(0));
    let itself = StageEdit { former: 5, ..stage };
    assert_eq!(reason(world.raw(session, 0, 0, root(), Op::StageEdit(itself))), Err(Reason::InvalidArgument));
    let staged = Some(StagedParts { request, plan: 5, count: 1, new: 0 });
    let edit = Edit { kind: EditKind::Remove as i32, staged, ..Edit::default() };
    assert_eq!(world.run(&root(), Op::Edit(edit)).unwrap_err(), Reason::InvalidArgument);
}
