//! Sessions, retries, write grants and settled lengths, named instants, the format.

#![expect(clippy::unwrap_used, reason = "a test")]

mod common;

use common::{CHUNK_BYTES, NamespaceWorld, root, user};
use frieze_base::{InodeId, Reason, Rng, SessionId};
use frieze_hlc::Hlc;
use frieze_namespace::{
    ENDED_SESSIONS_MAX, MemoryHistory, NamedInstant, Namespace, NoReadSet, OUTCOMES_REMEMBERED_MAX, PastSession, Patch,
    VersionHistory, author, inode_key, names_at, visit_authors,
};
use frieze_wire::edit::{Edit, EditKind, SetState, Share};
use frieze_wire::frame::PAYLOAD_BYTES_MAX;
use frieze_wire::txn::{
    CloseSession, DeleteSnapshot, EraseSessions, Format, Grant, Make, MakeKind, MakeSnapshot, Op, Outcome, Remove,
    SetAttr, SetXattr, Settle, SettleAll, StopWriting, Target, Transaction,
};

fn make(path: &str) -> Op {
    make_kind(path, MakeKind::File(false))
}

fn make_kind(path: &str, kind: MakeKind) -> Op {
    Op::Make(Make { target: Target::path(path), mode: 0o644, or_open: false, kind: Some(kind), ..Make::default() })
}

fn grant(inode: InodeId, first: u32, count: u32) -> Op {
    Op::Grant(Grant { inode: inode.0, first, count })
}

fn settle(inode: InodeId, stamp: Hlc, size: u64, keep_grant: bool) -> Settle {
    let mtime_ns = if stamp == Hlc::ZERO { 0 } else { stamp.unix_ns() };
    Settle { inode: inode.0, keep_grant, stamp: stamp.0, size, mtime_ns, ..Settle::default() }
}

fn settle_of(inode: InodeId, stamp: Hlc) -> Op {
    Op::Settle(settle(inode, stamp, 1, true))
}

fn truncate(inode: InodeId, len: u64, settled: Option<Settle>) -> Op {
    Op::SetAttr(SetAttr {
        target: Target::inode(inode),
        mode: None,
        uid: None,
        gid: None,
        size: Some(len),
        atime: None,
        mtime: None,
        by_handle: true,
        settled,
        extend: false,
        times_anew: false,
    })
}

fn chmod(inode: InodeId, mode: u32) -> Op {
    let Op::SetAttr(set) = truncate(inode, 0, None) else { unreachable!() };
    Op::SetAttr(SetAttr { size: None, mode: Some(mode), ..set })
}

/// A stamp of data written between the last transaction and the next.
fn data(world: &NamespaceWorld) -> Hlc {
    Hlc(world.stamp.0 + 7)
}

#[test]
fn a_retry_answers_the_first_outcome_and_changes_nothing() {
    let mut world = NamespaceWorld::new();
    let session = world.session;
    let first = world.raw(session, 10, 1, root(), make("/f"));
    let remove = Op::Remove(Remove { target: Target::path("/f"), directory: false });
    world.raw(session, 11, 1, root(), remove);
    let history = world.history.clone();
    let again = world.raw(session, 10, 1, root(), make("/f"));
    assert_eq!(again, first);
    assert_eq!(world.history, history);
    assert_eq!(world.find("/f", None), Err(Reason::NotFound));
}

#[test]
fn a_failure_is_remembered_too() {
    let mut world = NamespaceWorld::new();
    let first = world.raw(world.session, 10, 1, root(), make("/none/f"));
    assert_eq!(Reason::from_code(first.reason), Reason::NotFound);
    world.directory("/none");
    assert_eq!(world.raw(world.session, 10, 1, root(), make("/none/f")), first);
}

#[test]
fn retries_are_known_after_a_restart_until_they_are_acknowledged() {
    let mut world = NamespaceWorld::new();
    let session = world.session;
    let first = world.raw(session, 1, 1, root(), make("/f"));
    let snapshot =
        world.raw(session, 2, 1, root(), Op::MakeSnapshot(MakeSnapshot { name: "s".to_owned(), at: 0, count_max: 0 }));
    world.ns = world.reloaded();
    assert_eq!(world.raw(session, 1, 1, root(), make("/f")), first);
    let again =
        world.raw(session, 2, 1, root(), Op::MakeSnapshot(MakeSnapshot { name: "s".to_owned(), at: 0, count_max: 0 }));
    assert_eq!(again, snapshot);
    world.raw(session, 3, 3, root(), make("/g"));
    for restart in [false, true] {
        if restart {
            world.ns = world.reloaded();
        }
        let forgotten = world.raw(session, 1, 1, root(), make("/f"));
        assert_eq!(Reason::from_code(forgotten.reason), Reason::SequenceTooOld);
    }
    assert_eq!(world.history.current().filter(|(key, ..)| key[0] == b'R').count(), 1);
}

#[test]
fn a_session_that_never_acknowledges_is_stopped_until_it_does() {
    let mut world = NamespaceWorld::new();
    let session = world.session;
    for seq in 1..=OUTCOMES_REMEMBERED_MAX as u64 {
        world.raw(session, seq, 0, root(), make("/none/f"));
    }
    let next = OUTCOMES_REMEMBERED_MAX as u64 + 1;
    let refused = world.raw(session, next, 0, root(), make("/f"));
    assert_eq!(Reason::from_code(refused.reason), Reason::Overloaded);
    assert_eq!(world.raw(session, next, 5, root(), make("/f")).reason, 0);
    assert_eq!(world.reloaded(), world.ns);
}

/// It was on its way for long, while thousands of later ones were executed.
#[test]
fn the_oldest_request_of_a_session_has_room_whatever_came_before_it() {
    let mut world = NamespaceWorld::new();
    let session = world.session;
    for seq in 2..=OUTCOMES_REMEMBERED_MAX as u64 + 1 {
        world.raw(session, seq, 1, root(), make("/none/f"));
    }
    let next = OUTCOMES_REMEMBERED_MAX as u64 + 2;
    let refused = world.raw(session, next, 1, root(), make("/f"));
    assert_eq!(Reason::from_code(refused.reason), Reason::Overloaded);
    assert_eq!(world.raw(session, 1, 1, root(), make("/f")).reason, 0);
    assert_eq!(world.raw(session, next, 3, root(), make("/g")).reason, 0);
}

#[test]
fn only_open_sessions_may_change_anything() {
    let mut world = NamespaceWorld::new();
    let unknown = |outcome: Outcome| Reason::from_code(outcome.reason) == Reason::UnknownSession;
    assert!(unknown(world.raw(SessionId(0), 1, 0, root(), make("/f"))));
    assert!(unknown(world.raw(SessionId(77), 1, 0, root(), make("/f"))));
    let other = world.open_session(1000);
    assert_eq!(world.ns.session(other).unwrap().uid, 1000);
    assert_eq!(other.0, world.stamp.0);
    assert_eq!(world.raw(other, 1, 0, root(), make("/f")).reason, 0);
    assert_eq!(world.raw(other, 2, 0, root(), Op::CloseSession(CloseSession::default())).reason, 0);
    assert!(unknown(world.raw(other, 3, 0, root(), make("/g"))));
    assert!(unknown(world.raw(other, 1, 0, root(), make("/f"))));
    assert_eq!(world.ns.sessions().count(), 1);
    assert_eq!(world.history.current().filter(|(key, ..)| key[0] == b'R').count(), 0);
    assert_eq!(world.reloaded(), world.ns);
}

#[test]
fn several_files_are_settled_in_one_transaction_at_one_stamp() {
    let mut world = NamespaceWorld::new();
    let session = world.session;
    let files = ["/a", "/b", "/c"].map(|path| world.make(path, 0o644, MakeKind::File(true)).unwrap());
    let written = data(&world);
    let all = vec![
        settle(files[0], written, 10, false),
        // Never there.
        settle(InodeId(999), written, 5, false),
        settle(files[1], written, 20, true),
        settle(files[2], written, 30, false),
    ];
    world.run(&root(), Op::SettleAll(SettleAll { files: all })).unwrap();
    let sizes = files.map(|file| world.ns.current(file).unwrap().size);
    assert_eq!(sizes, [10, 20, 30]);
    assert_eq!(world.ns.granted(session), [files[1]]);
    let stamps = files.map(|file| world.ns.current(file).unwrap().from);
    assert_eq!(stamps, [world.stamp; 3]);
    assert_eq!(world.reloaded(), world.ns);
}

/// Its client may be back before it is over.
#[test]
fn a_session_that_is_stopped_writes_no_more_until_it_asks_again_and_is_not_closed_when_it_has() {
    let mut world = NamespaceWorld::new();
    let session = world.session;
    let files = ["/a", "/b"].map(|path| world.make(path, 0o644, MakeKind::File(true)).unwrap());
    let other = world.make("/c", 0o644, MakeKind::File(false)).unwrap();
    let stop = StopWriting { inodes: [files[0], other, InodeId(999)].map(|id| id.0).to_vec() };
    world.run(&root(), Op::StopWriting(stop.clone())).unwrap();
    let may = |world: &NamespaceWorld| files.map(|file| world.ns.has_grant(session, file, 0));
    assert_eq!(may(&world), [false, true]);
    assert_eq!(world.ns.granted(session), files, "what was written counts until it is settled");
    assert_eq!(world.ns.current(files[0]).unwrap().grants().len(), 1);
    assert_eq!(world.reloaded(), world.ns);
    // Once more changes nothing.
    let from = world.ns.current(files[0]).unwrap().from;
    world.run(&root(), Op::StopWriting(stop)).unwrap();
    assert_eq!(world.ns.current(files[0]).unwrap().from, from);
    let written = data(&world);
    let settled = vec![settle(files[0], written, 10, false), settle(files[1], written, 20, false)];
    let close = CloseSession { settled, only_stopped: true };
    let refused = world.raw(session, 0, 0, root(), Op::CloseSession(close.clone()));
    assert_eq!(refused.reason, Reason::Busy as u32, "it writes the other file");
    world.run(&root(), Op::StopWriting(StopWriting { inodes: vec![files[1].0] })).unwrap();
    world.run(&root(), grant(files[0], 0, 1)).unwrap();
    assert_eq!(may(&world), [true, false]);
    let refused = world.raw(session, 0, 0, root(), Op::CloseSession(close.clone()));
    assert_eq!(refused.reason, Reason::Busy as u32, "it is back");
    world.run(&root(), Op::StopWriting(StopWriting { inodes: vec![files[0].0] })).unwrap();
    assert_eq!(world.raw(session, 0, 0, root(), Op::CloseSession(close)).reason, 0);
    assert_eq!(files.map(|file| world.ns.current(file).unwrap().size), [10, 20]);
    assert!(world.ns.granted(session).is_empty() && world.ns.session(session).is_none());
    assert_eq!(world.reloaded(), world.ns);
}

/// Measured while writers went on at other servers, and the file grew by a change before what was measured came here.
#[test]
fn a_length_that_was_measured_before_a_file_grew_does_not_make_it_shorter() {
    let mut world = NamespaceWorld::new();
    let file = world.make("/f", 0o644, MakeKind::File(true)).unwrap();
    let since = world.ns.current(file).unwrap().size_as_of.0;
    let written = data(&world);
    let measured = Settle { complete: Some(written.0), since, ..settle(file, written, 100, false) };
    let known = Settle { inode: file.0, complete: Some(0), since, ..Settle::default() };
    let Op::SetAttr(longer) = truncate(file, 164, Some(known)) else { unreachable!() };
    world.run(&root(), Op::SetAttr(SetAttr { extend: true, ..longer })).unwrap();
    world.run(&root(), Op::Settle(measured)).unwrap();
    let inode = world.ns.current(file).unwrap();
    assert_eq!((inode.size, inode.size_as_of), (164, written));
    assert_eq!(world.reloaded(), world.ns);
}

#[test]
fn an_unused_grant_leaves_no_version() {
    let versions = |world: &NamespaceWorld, file: InodeId| {
        let (mut found, key) = (Vec::new(), [b"I", &file.0.to_be_bytes()[..]].concat());
        let mut visit = |_: &[u8], stamp: Hlc, _: Option<&[u8]>| {
            found.push((stamp, author(&world.history, file, stamp).unwrap()));
            true
        };
        world.history.versions_of(&key, Hlc::ZERO, Hlc::MAX, &mut visit).unwrap();
        found
    };
    let mut world = NamespaceWorld::new();
    let file = world.make("/f", 0o644, MakeKind::File(true)).unwrap();
    let made = world.stamp;
    let by = (world.session, 0);
    assert_eq!(versions(&world, file), [(made, by)]);
    // The server kept writers out, and found nothing newer than the file.
    let unused = Settle { inode: file.0, stamp: made.0, ..Settle::default() };
    world.run(&root(), Op::Settle(unused.clone())).unwrap();
    assert_eq!(versions(&world, file), [(made, by)], "the version of the make, by whom it was made");
    let then = world.ns.inode(&world.history, file, Some(made)).unwrap();
    assert_eq!((then.grants().len(), then.from), (0, made));
    assert_eq!(names_at(&world.history, file, Hlc::MAX).unwrap()[0].name, b"f", "the cause is there");
    assert_eq!(world.reloaded(), world.ns);
    // Another session has a grant, which stays.
    let two = world.open_session(0);
    world.raw(two, 1, 0, root(), grant(file, 0, 1));
    let granted = world.stamp;
    world.run(&root(), grant(file, 0, 1)).unwrap();
    let both = world.stamp;
    world.run(&root(), Op::Settle(unused.clone())).unwrap();
    assert_eq!(versions(&world, file), [(made, by), (granted, (two, 0)), (both, by)]);
    assert!(world.ns.has_grant(two, file, 0) && !world.ns.has_grant(world.session, file, 0));
    assert_eq!(world.reloaded(), world.ns);
    // A member of a cluster cannot keep writers out.
    let since = world.ns.current(file).unwrap().size_as_of.0;
    let racing = Settle { complete: Some(made.0), since, ..unused };
    world.raw(two, 2, 0, root(), Op::Settle(racing));
    assert_eq!(versions(&world, file).len(), 4);
    assert_eq!(world.reloaded(), world.ns);
}

#[test]
fn a_made_file_is_open_for_writing_and_settles_to_its_length() {
    let mut world = NamespaceWorld::new();
    let session = world.session;
    let file = world.make("/f", 0o644, MakeKind::File(true)).unwrap();
    let made = world.stamp;
    assert!(world.ns.has_grant(session, file, 0) && !world.ns.has_grant(session, file, 1));
    assert!(!world.ns.has_grant(SessionId(5), file, 0));
    assert_eq!(world.ns.granted(session), [file]);
    let written = data(&world);
    world.run(&root(), Op::Settle(settle(file, written, 100, true))).unwrap();
    let inode = world.ns.current(file).unwrap();
    assert_eq!((inode.size, inode.size_as_of, inode.mtime_stamp), (100, written, written));
    assert_eq!((inode.mtime_ns, inode.ctime), (written.unix_ns(), written));
    assert!(world.ns.has_grant(session, file, 0));
    // An fsync without anything new makes no version.
    let versions = world.history.clone();
    world.run(&root(), Op::Settle(settle(file, written, 100, true))).unwrap();
    let of_inode = |history: &MemoryHistory| history.current().find(|(key, ..)| **key == *inode_key(file)).unwrap().1;
    assert_eq!(of_inode(&versions), of_inode(&world.history));
    world.run(&root(), Op::Settle(settle(file, written, 100, false))).unwrap();
    assert!(!world.ns.has_grant(session, file, 0));
    assert_eq!(world.ns.granted(session), []);
    let then = world.ns.inode(&world.history, file, Some(made)).unwrap();
    assert_eq!((then.size, then.grants().len()), (0, 1), "asks the data plane for what was written then");
    // A second close, and one of a session that never wrote, change nothing.
    let before = world.ns.current(file).unwrap().into_owned();
    world.run(&root(), Op::Settle(settle(file, data(&world), 5, false))).unwrap();
    assert_eq!(*world.ns.current(file).unwrap(), before);
}

#[test]
fn grants_of_two_sessions_are_kept_apart() {
    let mut world = NamespaceWorld::new();
    let file = world.file("/f");
    let (one, two) = (world.session, world.open_session(0));
    world.raw(one, 90, 1, root(), grant(file, 3, 2));
    world.raw(two, 90, 1, root(), grant(file, 0, 16));
    let holds =
        |world: &NamespaceWorld, session| (0..20).filter(|&chunk| world.ns.has_grant(session, file, chunk)).count();
    assert_eq!((holds(&world, one), holds(&world, two)), (2, 16));
    world.raw(two, 91, 1, root(), Op::Settle(settle(file, data(&world), 50, false)));
    assert_eq!((holds(&world, one), holds(&world, two)), (2, 0));
    assert_eq!(world.ns.current(file).unwrap().size, 50);
    assert_eq!(world.reloaded(), world.ns);
}

#[test]
fn a_repeated_grant_makes_no_version() {
    let mut world = NamespaceWorld::new();
    let file = world.file("/f");
    world.run(&root(), grant(file, 0, 4)).unwrap();
    let from = world.ns.current(file).unwrap().from;
    world.run(&root(), grant(file, 1, 3)).unwrap();
    assert_eq!(world.ns.current(file).unwrap().from, from);
    world.run(&root(), grant(file, 1, 4)).unwrap();
    assert_eq!(world.ns.current(file).unwrap().from, world.stamp);
}

#[test]
fn impossible_grants_are_refused() {
    let mut world = NamespaceWorld::new();
    let file = world.file("/f");
    let directory = world.directory("/d");
    assert_eq!(world.run(&root(), grant(file, 0, 0)), Err(Reason::InvalidArgument));
    assert_eq!(world.run(&root(), grant(file, 0, 17)), Err(Reason::InvalidArgument));
    assert_eq!(world.run(&root(), grant(file, u32::MAX, 2)), Err(Reason::TooLarge));
    assert_eq!(world.run(&root(), grant(directory, 0, 1)), Err(Reason::InvalidArgument));
    assert_eq!(world.run(&root(), grant(InodeId(99), 0, 1)), Err(Reason::StaleHandle));
}

#[test]
fn closing_a_session_settles_every_file_it_may_write_or_is_refused() {
    let mut world = NamespaceWorld::new();
    let session = world.open_session(1000);
    let made = world.raw(session, 1, 1, root(), make_kind("/a", MakeKind::File(true)));
    let a = InodeId(made.id);
    let b = InodeId(world.raw(session, 2, 1, root(), make_kind("/b", MakeKind::File(true))).id);
    let written = data(&world);
    let partly = CloseSession { settled: vec![settle(a, written, 10, false)], ..CloseSession::default() };
    let refused = world.raw(session, 3, 1, root(), Op::CloseSession(partly));
    assert_eq!(Reason::from_code(refused.reason), Reason::Busy);
    assert!(world.ns.has_grant(session, a, 0));
    let whole = CloseSession {
        settled: vec![settle(a, written, 10, false), settle(b, Hlc::ZERO, 0, false)],
        ..CloseSession::default()
    };
    assert_eq!(world.raw(session, 3, 1, root(), Op::CloseSession(whole)).reason, 0);
    let sizes = [a, b].map(|id| world.ns.current(id).unwrap().size);
    assert_eq!(sizes, [10, 0]);
    assert!(world.ns.current(a).unwrap().grants().is_empty() && world.ns.granted(session).is_empty());
    assert_eq!(world.reloaded(), world.ns);
}

#[test]
fn a_truncate_hides_what_was_written_before_it() {
    let mut world = NamespaceWorld::new();
    let file = world.make("/f", 0o644, MakeKind::File(true)).unwrap();
    let patches = |world: &NamespaceWorld| world.ns.current(file).unwrap().patches().to_vec();
    let settled = Some(settle(file, data(&world), 1000, true));
    world.run(&root(), truncate(file, 600, settled)).unwrap();
    let first = Patch::truncate(world.stamp, 600);
    assert_eq!(patches(&world), [first]);
    // Growing hides nothing where the length is known.
    world.run(&root(), truncate(file, 2000, Some(settle(file, Hlc::ZERO, 0, true)))).unwrap();
    assert_eq!(patches(&world), [first]);
    world.run(&root(), truncate(file, 2000, Some(settle(file, Hlc::ZERO, 0, true)))).unwrap();
    assert_eq!(patches(&world), [first]);
    world.run(&root(), truncate(file, 700, Some(settle(file, Hlc::ZERO, 0, true)))).unwrap();
    let second = Patch::truncate(world.stamp, 700);
    let both_show = [Patch { end: 700, ..first }, second];
    assert_eq!(patches(&world), both_show);
    let both = world.stamp;
    // A shorter one makes the longer ones needless.
    world.run(&root(), truncate(file, 600, None)).unwrap();
    assert_eq!(patches(&world), [Patch::truncate(world.stamp, 600)]);
    let then = world.ns.inode(&world.history, file, Some(both)).unwrap();
    assert_eq!(then.patches(), both_show);
    // Where a writer may have written beyond, growing hides that too.
    world.run(&root(), truncate(file, 800, None)).unwrap();
    assert_eq!(patches(&world).len(), 2);
    assert_eq!(world.reloaded(), world.ns);
}

#[test]
fn extending_never_shortens_a_file_that_another_session_extended() {
    let mut world = NamespaceWorld::new();
    let file = world.make("/f", 0o644, MakeKind::File(true)).unwrap();
    let extend = |len, settled| {
        let Op::SetAttr(set) = truncate(file, len, settled) else { unreachable!() };
        Op::SetAttr(SetAttr { extend: true, ..set })
    };
    let now = |world: &NamespaceWorld| world.ns.current(file).unwrap().into_owned();
    world.run(&root(), extend(500, None)).unwrap();
    let extended = now(&world);
    assert_eq!(extended.size, 500);
    world.run(&root(), extend(400, None)).unwrap();
    world.run(&root(), extend(500, None)).unwrap();
    assert_eq!(now(&world), extended, "nothing changed, so there is no version");
    // A writer has come further than the namespace knows.
    let written = settle(file, data(&world), 900, true);
    world.run(&root(), extend(800, Some(written))).unwrap();
    assert_eq!(now(&world).patches(), extended.patches());
    let written = settle(file, data(&world), 900, true);
    world.run(&root(), Op::Settle(written)).unwrap();
    assert_eq!(now(&world).size, 900);
    let written = settle(file, data(&world), 950, true);
    world.run(&root(), extend(1000, Some(written))).unwrap();
    assert_eq!(now(&world).size, 1000);
    assert_eq!(world.reloaded(), world.ns);
}

#[test]
fn a_settle_from_before_a_truncate_does_not_bring_the_length_back() {
    let mut world = NamespaceWorld::new();
    let file = world.make("/f", 0o644, MakeKind::File(true)).unwrap();
    let written = data(&world);
    world.run(&root(), truncate(file, 0, None)).unwrap();
    world.run(&root(), Op::Settle(settle(file, written, 1000, false))).unwrap();
    let inode = world.ns.current(file).unwrap();
    assert_eq!((inode.size, inode.mtime_ns), (0, inode.size_as_of.unix_ns()));
}

#[test]
fn times_set_by_hand_outlive_a_settle_of_older_writes_only() {
    let mut world = NamespaceWorld::new();
    let file = world.make("/f", 0o644, MakeKind::File(true)).unwrap();
    let written = data(&world);
    let Op::SetAttr(set) = truncate(file, 0, None) else { unreachable!() };
    let mtime = Some(frieze_wire::txn::TimeValue { now: false, ns: 5 });
    world.run(&root(), Op::SetAttr(SetAttr { size: None, mtime, ..set })).unwrap();
    world.run(&root(), Op::Settle(settle(file, written, 10, true))).unwrap();
    assert_eq!(world.ns.current(file).unwrap().mtime_ns, 5);
    assert_eq!(world.ns.current(file).unwrap().size, 10);
    let later = data(&world);
    world.run(&root(), Op::Settle(settle(file, later, 10, false))).unwrap();
    assert_eq!(world.ns.current(file).unwrap().mtime_ns, later.unix_ns());
}

#[test]
fn writing_takes_set_id_bits_from_all_but_the_superuser() {
    let ann = user(1000, 100, &[]);
    let mut world = NamespaceWorld::new();
    let file = world.file("/f");
    let mode = |world: &NamespaceWorld| world.ns.current(file).unwrap().mode;
    world.run(&root(), chmod(file, 0o6755)).unwrap();
    world.run(&root(), grant(file, 0, 1)).unwrap();
    assert_eq!(mode(&world), 0o6755);
    world.run(&ann, grant(file, 0, 1)).unwrap();
    assert_eq!(mode(&world), 0o755);
    // Set again after the last write: stays. Written after it was set: goes.
    let before = data(&world);
    world.run(&root(), chmod(file, 0o4755)).unwrap();
    world.run(&ann, Op::Settle(settle(file, before, 1, true))).unwrap();
    assert_eq!(mode(&world), 0o4755);
    world.run(&ann, Op::Settle(settle(file, data(&world), 1, true))).unwrap();
    assert_eq!(mode(&world), 0o755);
}

#[test]
fn named_instants_have_names_that_no_instant_has() {
    let mut world = NamespaceWorld::new();
    let make = |name: &str, at| Op::MakeSnapshot(MakeSnapshot { name: name.to_owned(), at, count_max: 0 });
    let ann = user(1000, 100, &[]);
    for bad in ["", "2026", "@1", "hlc-1", "a/b", "now", "yesterday", "last-whole", "user-1", "a\0b", &"n".repeat(256)]
    {
        assert_eq!(world.run(&ann, make(bad, 0)), Err(Reason::InvalidArgument), "{bad:?}");
    }
    let earlier = world.stamp;
    world.run(&ann, make("before", earlier.0)).unwrap();
    let made = world.stamp;
    assert_eq!(world.run(&ann, make("before", 0)), Err(Reason::Exists));
    assert_eq!(world.run(&ann, make("after", Hlc::MAX.0)), Err(Reason::Future));
    world.run(&root(), make("a-now", 0)).unwrap();
    let snapshot = world.ns.snapshot("before").unwrap().clone();
    assert_eq!(snapshot, NamedInstant { name: "before".to_owned(), at: earlier, made, uid: 1000 });
    assert_eq!(world.ns.snapshot("a-now").unwrap().at, world.stamp);
    let names: Vec<_> = world.ns.snapshots().map(|snapshot| snapshot.name.as_str()).collect();
    assert_eq!(names, ["a-now", "before"]);
    let delete = |name: &str| Op::DeleteSnapshot(DeleteSnapshot { name: name.to_owned() });
    assert_eq!(world.run(&ann, delete("a-now")), Err(Reason::NotPermitted));
    assert_eq!(world.run(&ann, delete("none")), Err(Reason::NotFound));
    assert_eq!(world.reloaded(), world.ns);
    world.run(&ann, delete("before")).unwrap();
    assert!(world.ns.snapshot("before").is_none());
    assert_eq!(world.reloaded(), world.ns);
}

#[test]
fn a_user_has_as_many_snapshots_as_the_server_allows_and_others_have_theirs() {
    let mut world = NamespaceWorld::new();
    let make = |name: &str, count_max| Op::MakeSnapshot(MakeSnapshot { name: name.to_owned(), at: 0, count_max });
    let (ann, bob) = (user(1000, 100, &[]), user(1001, 100, &[]));
    world.run(&ann, make("one", 2)).unwrap();
    world.run(&ann, make("two", 2)).unwrap();
    assert_eq!(world.run(&ann, make("three", 2)), Err(Reason::NoSpace));
    world.run(&bob, make("three", 2)).unwrap();
    world.run(&root(), make("four", 0)).unwrap();
    world.run(&ann, Op::DeleteSnapshot(DeleteSnapshot { name: "one".to_owned() })).unwrap();
    world.run(&ann, make("five", 2)).unwrap();
    let after: Vec<&str> = world.ns.snapshots_after("four").map(|one| one.name.as_str()).collect();
    assert_eq!(after, ["three", "two"]);
    assert_eq!(world.reloaded(), world.ns);
}

#[test]
fn a_file_system_is_made_once_and_first() {
    let mut ns = Namespace::new();
    let mut changes = Vec::new();
    let mut stamp = 1;
    let mut apply = |ns: &mut Namespace, session, op| {
        stamp += 1;
        let txn = Transaction { session, seq: stamp, acked: 0, caller: root(), must_see: 0, op };
        ns.apply(&txn, Hlc(stamp), &mut changes, &NoReadSet).reason
    };
    let format =
        |chunk_bytes, chain_count| Some(Op::Format(Format { chunk_bytes, chain_count, uid: 1, gid: 2, mode: 0o755 }));
    let session = 2;
    let open = frieze_wire::txn::OpenSession { command: String::new(), host: String::new(), uid: 0, keeps: false };
    apply(&mut ns, 0, Some(Op::OpenSession(open)));
    assert!(ns.session(SessionId(session)).is_some());
    assert_eq!(apply(&mut ns, session, Some(make("/f"))), Reason::NotFound as u32);
    for (chunk_bytes, chain_count) in [(0, 8), (2048, 8), (5000, 8), (1 << 32, 8), (CHUNK_BYTES, 0)] {
        let refused = apply(&mut ns, 0, format(chunk_bytes, chain_count));
        assert_eq!(refused, Reason::InvalidArgument as u32, "{chunk_bytes} {chain_count}");
    }
    assert_eq!(apply(&mut ns, 0, format(CHUNK_BYTES, 8)), 0);
    assert_eq!(apply(&mut ns, 0, format(CHUNK_BYTES, 8)), Reason::Exists as u32);
    assert_eq!(ns.format().unwrap().chunk_bytes, CHUNK_BYTES);
    let root = ns.current(InodeId::ROOT).unwrap();
    assert_eq!((root.uid, root.gid, root.mode, root.links, root.parent), (1, 2, 0o755, 2, InodeId::ROOT));
    assert_eq!(apply(&mut ns, session, None), Reason::InvalidArgument as u32);
}

#[test]
fn appenders_are_recorded_with_the_first_chunk_that_a_record_may_pass() {
    let mut world = NamespaceWorld::new();
    let file = InodeId(world.run(&root(), make("/f")).unwrap().id);
    let append = |first| Op::GrantAppend(Grant { inode: file.0, first, count: 2 });
    world.run(&root(), grant(file, 0, 8)).unwrap();
    let reaches = |world: &NamespaceWorld| {
        let inode = world.ns.current(file).unwrap();
        (0..8).find(|chunk| inode.reaches_over(*chunk))
    };
    assert_eq!(reaches(&world), None);
    // It may write there already.
    world.run(&root(), append(5)).unwrap();
    assert_eq!(reaches(&world), Some(5));
    world.run(&root(), append(3)).unwrap();
    world.run(&root(), append(6)).unwrap();
    assert_eq!(reaches(&world), Some(3));
}

/// Numbers of the sessions that are listed.
fn listed(world: &NamespaceWorld) -> Vec<SessionId> {
    let all = PastSession::list(&world.history, SessionId(0), Hlc::ZERO, usize::MAX - 1).unwrap();
    all.into_iter().map(|session| session.id).collect()
}

fn close(world: &mut NamespaceWorld, session: SessionId) {
    assert_eq!(world.raw(session, 9, 1, root(), Op::CloseSession(CloseSession::default())).reason, 0);
}

fn erase(world: &mut NamespaceWorld, before: Hlc) -> bool {
    let op = Op::EraseSessions(EraseSessions { before: before.0 });
    world.raw(SessionId(0), 0, 0, root(), op).reason == 0
}

#[test]
fn a_session_that_ended_and_changed_nothing_is_erased_and_no_other() {
    let mut world = NamespaceWorld::new();
    let own = world.session;
    let [idle, failing, changing, late, open] = [(); 5].map(|()| world.open_session(1000));
    assert_ne!(world.raw(failing, 1, 0, root(), make("/none/f")).reason, 0);
    assert_eq!(world.raw(changing, 1, 0, root(), make("/f")).reason, 0);
    for session in [idle, failing, changing] {
        close(&mut world, session);
    }
    let before = Hlc(world.stamp.0 + 1);
    close(&mut world, late);
    assert_eq!(listed(&world), [own, idle, failing, changing, late, open]);
    assert_eq!(world.reloaded(), world.ns, "a restart knows which have ended without a change");
    let found = PastSession::find(&world.history, late).unwrap().unwrap();
    assert_eq!((found.uid, found.ended), (1000, Some(world.stamp)));
    let later = Hlc(world.stamp.0 + (1 << 40));
    assert!(!erase(&mut world, later), "not before it has passed");
    assert!(world.ns.has_ended_before(before));
    world.ns = world.reloaded();
    assert!(erase(&mut world, before));
    assert!(!world.ns.has_ended_before(before));
    assert_eq!(listed(&world), [own, changing, late, open]);
    assert_eq!(PastSession::find(&world.history, idle), Ok(None));
    assert_eq!(world.reloaded(), world.ns);
}

#[test]
fn short_sessions_leave_a_bounded_table_though_nothing_erases_them() {
    let mut world = NamespaceWorld::new();
    let first = world.open_session(1000);
    for _ in 0..ENDED_SESSIONS_MAX + 100 {
        let session = world.open_session(1000);
        close(&mut world, session);
    }
    close(&mut world, first);
    let found = listed(&world);
    assert_eq!(found.len(), 1 + ENDED_SESSIONS_MAX);
    assert_eq!(
        found[..2],
        [world.session, first],
        "of those that ended the oldest end goes first, not the oldest session"
    );
    assert_eq!(world.history.current().filter(|(key, ..)| key[0] == b'S').count(), found.len());
    assert_eq!(world.reloaded(), world.ns);
}

#[test]
fn every_session_that_a_version_names_is_known_whatever_was_erased() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let mut world = NamespaceWorld::new();
        let mut open: Vec<(SessionId, u64)> = vec![];
        for step in 0..200 {
            match rng.below(6) {
                0 => open.push((world.open_session(0), 0)),
                1 if !open.is_empty() => {
                    let (session, _) = open.swap_remove(rng.below(open.len() as u64) as usize);
                    let settled = world.ns.granted(session).into_iter().map(|id| settle(id, Hlc::ZERO, 0, false));
                    let op = CloseSession { settled: settled.collect(), only_stopped: false };
                    assert_eq!(world.raw(session, u64::MAX, u64::MAX, root(), Op::CloseSession(op)).reason, 0);
                }
                2 => {
                    let before = Hlc(world.stamp.0 - rng.below(1 << 20));
                    assert!(erase(&mut world, before));
                }
                3 => world.ns = world.reloaded(),
                _ if !open.is_empty() => {
                    let index = rng.below(open.len() as u64) as usize;
                    let (session, seq) = &mut open[index];
                    *seq += 1;
                    let path = format!("/{}", rng.below(6));
                    let target = Target::path(path.as_str());
                    let op = match rng.below(7) {
                        0 => make_kind(&path, MakeKind::File(true)),
                        1 => Op::Remove(Remove { target, directory: false }),
                        2 => Op::SetXattr(SetXattr { target, name: b"user.a".to_vec(), value: vec![1], flags: 0 }),
                        3 => grant(InodeId(2 + rng.below(6)), 0, 2),
                        4 => Op::MakeSnapshot(MakeSnapshot { name: format!("s{step}"), at: 0, count_max: 0 }),
                        5 => settle_of(InodeId(2 + rng.below(6)), world.stamp),
                        _ => make("/none/f"),
                    };
                    let (session, seq) = (*session, *seq);
                    world.raw(session, seq, seq, root(), op);
                }
                _ => {}
            }
        }
        let known = listed(&world);
        let names = |id: u64| id == 0 || known.contains(&SessionId(id)) || id == world.session.0;
        let mut count = 0;
        visit_authors(&world.history, &mut |id, _, sessions| {
            count += sessions.len();
            assert!(sessions.iter().all(|session| names(session.0)), "seed {seed}: inode {id} names {sessions:?}");
        })
        .unwrap();
        assert!(count > 3);
        // What ended without a change is all that may go.
        let last = world.stamp;
        assert!(erase(&mut world, last));
        let stays = listed(&world);
        let mut authors = vec![];
        visit_authors(&world.history, &mut |_, _, sessions| authors.extend(sessions.iter().copied())).unwrap();
        assert!(authors.iter().all(|id| id.0 == 0 || stays.contains(id)));
        assert_eq!(world.reloaded(), world.ns);
    }
}

/// A file of `size` bytes on which no session has a grant.
fn settled_file(world: &mut NamespaceWorld, path: &str, size: u64) -> InodeId {
    let file = world.file(path);
    world.run(&root(), grant(file, 0, 1)).unwrap();
    let settled = settle(file, data(world), size, false);
    world.run(&root(), Op::Settle(settled)).unwrap();
    file
}

/// A retry of its write is answered from such a record: it is not hidden.
#[test]
fn a_record_over_the_chunks_of_two_sessions_counts() {
    let mut world = NamespaceWorld::new();
    let file = world.file("/f");
    world.run(&root(), grant(file, 0, 1)).unwrap();
    world.session = world.open_session(0);
    world.seq = 0;
    world.run(&root(), grant(file, 1, 1)).unwrap();
    let lost = world.lose(true);
    assert_eq!(hidden(&world, file), [(2 * CHUNK_BYTES, u64::MAX, lost)]);
    let inode = world.ns.current(file).unwrap().into_owned();
    assert!(inode.counts_record(CHUNK_BYTES - 10, CHUNK_BYTES + 10));
    assert!(!inode.counts_record(2 * CHUNK_BYTES - 10, 2 * CHUNK_BYTES + 10));
}

#[test]
fn chunks_that_many_sessions_may_write_are_one_run() {
    let mut world = NamespaceWorld::new();
    let file = world.file("/f");
    for (first, count) in [(0, 1), (0, 2), (5, 1), (1, 1), (2, 1), (7, 2)] {
        world.session = world.open_session(0);
        world.seq = 0;
        world.run(&root(), grant(file, first, count)).unwrap();
    }
    assert_eq!(world.ns.current(file).unwrap().granted_chunks(), [0..3, 5..6, 7..9]);
    assert_eq!(world.ns.current(InodeId::ROOT).unwrap().granted_chunks(), []);
}

/// What hides bytes that were written at or before a stamp: from, to and until when.
fn hidden(world: &NamespaceWorld, id: InodeId) -> Vec<(u64, u64, Hlc)> {
    let inode = world.ns.current(id).unwrap();
    inode.patches().iter().map(|patch| (patch.start, patch.end, patch.at)).collect()
}

#[test]
fn what_was_written_under_a_lost_grant_is_hidden_when_the_file_changes_next() {
    let mut world = NamespaceWorld::new();
    let file = settled_file(&mut world, "/f", 100);
    let lost = world.lose(true);
    assert_eq!(hidden(&world, file), [], "nothing counts beyond its length yet");
    assert!(world.ns.current(file).unwrap().counts_record(0, 100));
    assert!(!world.ns.current(file).unwrap().counts_record(50, 101));
    world.run(&root(), grant(file, 0, 1)).unwrap();
    assert_eq!(hidden(&world, file), [(100, u64::MAX, lost)]);
    let inode = world.ns.current(file).unwrap().into_owned();
    assert_eq!(inode.size_as_of, lost, "a record from before does not make the file longer");
    assert!(inode.counts_record(0, 101) && !inode.counts_record(CHUNK_BYTES, CHUNK_BYTES + 1));
    // Growing it would have shown those bytes, too.
    let other = settled_file(&mut world, "/g", 100);
    let lost = world.lose(true);
    world.run(&root(), truncate(other, 500, None)).unwrap();
    assert_eq!(hidden(&world, other), [(100, u64::MAX, lost)]);
    // Once is enough, and a file from after the loss has nothing to hide.
    world.run(&root(), truncate(other, 900, None)).unwrap();
    assert_eq!(hidden(&world, other), [(100, u64::MAX, lost)]);
    let young = world.file("/h");
    world.run(&root(), grant(young, 1, 1)).unwrap();
    assert_eq!(hidden(&world, young), []);
    assert_eq!(world.reloaded(), world.ns);
}

#[test]
fn what_kept_grants_let_count_stays_when_others_are_lost() {
    let mut world = NamespaceWorld::new();
    let file = settled_file(&mut world, "/f", 100);
    world.run(&root(), grant(file, 2, 2)).unwrap();
    let before = world.ns.current(file).unwrap().size_as_of;
    let lost = world.lose(true);
    let (from, to) = (2 * CHUNK_BYTES, 4 * CHUNK_BYTES);
    assert_eq!(hidden(&world, file), [(100, from, lost), (to, u64::MAX, lost)], "at once: the file may grow");
    let inode = world.ns.current(file).unwrap().into_owned();
    assert_eq!((inode.from, inode.size_as_of), (lost, before), "the other session's records still count");
    assert!(inode.counts_record(from, from + 1) && !inode.counts_record(CHUNK_BYTES, CHUNK_BYTES + 1));
    assert_eq!(world.reloaded(), world.ns);
    world.run(&root(), grant(file, 1, 1)).unwrap();
    assert_eq!(hidden(&world, file), [(100, from, lost), (to, u64::MAX, lost)]);
}

/// Bytes that a change of names shows lie beyond the settled length where a grant lets the file be longer.
#[test]
fn what_edits_show_beyond_the_settled_length_stays_when_grants_are_lost() {
    let mut world = NamespaceWorld::new();
    let (file, source) = (settled_file(&mut world, "/f", 100), settled_file(&mut world, "/g", 100));
    world.run(&root(), grant(file, 2, 1)).unwrap();
    let expect = world.ns.current(file).unwrap().from.0;
    let shares = vec![Share { start: 200, len: 50, inode: source.0, offset: 0, at: world.stamp.0 }];
    let states = vec![SetState { inode: file.0, expect, shares, ..SetState::default() }];
    world.run(&root(), Op::Edit(Edit { kind: EditKind::Join as i32, states, ..Edit::default() })).unwrap();
    let edited = world.stamp;
    let lost = world.lose(true);
    let end = 3 * CHUNK_BYTES;
    let around = [(100, 200, lost), (200, 250, edited), (250, 2 * CHUNK_BYTES, lost), (end, u64::MAX, lost)];
    assert_eq!(hidden(&world, file), around);
}

#[test]
fn a_record_over_the_end_of_its_chunk_is_not_hidden_with_the_next_chunk() {
    let mut world = NamespaceWorld::new();
    let file = world.file("/f");
    world.run(&root(), Op::GrantAppend(Grant { inode: file.0, first: 0, count: 1 })).unwrap();
    let lost = world.lose(true);
    let end = CHUNK_BYTES + u64::from(PAYLOAD_BYTES_MAX);
    assert_eq!(hidden(&world, file), [(end, u64::MAX, lost)]);
    // What is not hidden counts, whichever chunk it is a record of: a retry of its write is answered from it.
    let inode = world.ns.current(file).unwrap().into_owned();
    assert!(inode.counts_record(CHUNK_BYTES + 10, CHUNK_BYTES + 20) && !inode.counts_record(end - 1, end + 1));
}

/// A server that is alone cuts off the records whose grants it lost.
#[test]
fn a_loss_of_one_server_hides_nothing() {
    let mut world = NamespaceWorld::new();
    let file = world.file("/f");
    world.run(&root(), grant(file, 1, 1)).unwrap();
    world.lose(false);
    world.run(&root(), grant(file, 2, 1)).unwrap();
    assert_eq!((hidden(&world, file), world.ns.lost_upto()), (vec![], Hlc::ZERO));
    assert_eq!(world.reloaded(), world.ns);
}
