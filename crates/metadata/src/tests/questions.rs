//! Each question about a small namespace, now and at an instant.

use std::collections::BTreeSet;

use frieze_base::{ChunkId, InodeId, Reason, Seq, SessionId};
use frieze_hlc::Hlc;
use frieze_namespace::{ExpiredInodes, Expiry, MAY_READ, MAY_WRITE, NoReadSet, Owners, PLUGIN_XATTR, Pins};
use frieze_wire::edit::{Edit, EditKind};
use frieze_wire::forget::{Horizon, encode_ids};
use frieze_wire::message::FileKind;
use frieze_wire::txn::{Caller, Grant, MakeKind, MakeSnapshot, Op, Outcome, Remove, Rename, SetXattr, StopWriting};

use super::fixture::{CHAINS, CHUNK_BYTES, lone, make, open_session, run, run_as, target};
use crate::{ChunkLayout, Metadata, MissingGrant, OtherWriter};

/// A file system in which `/d` and `/d/file` were made, the file was renamed to `/d/name`, and `/d/gone` was made and
/// removed; `writer` has the file open.
struct Example {
    metadata: Metadata,
    writer: SessionId,
    directory: InodeId,
    file: InodeId,
    gone: InodeId,
    /// The file is there and is called `file`.
    before: Hlc,
    now: Hlc,
    seq: u64,
}

impl Example {
    fn new() -> Example {
        let metadata = lone();
        let writer = open_session(&metadata, 7, true);
        let zero = InodeId(0);
        let mut example = Example {
            metadata,
            writer,
            directory: zero,
            file: zero,
            gone: zero,
            before: Hlc::ZERO,
            now: Hlc::ZERO,
            seq: 0,
        };
        example.directory = InodeId(example.run(make("/d", MakeKind::Directory(true))).id);
        example.file = InodeId(example.run(make("/d/file", MakeKind::File(true))).id);
        example.set_xattr("user.color", "red");
        let made = example.run(make("/d/gone", MakeKind::File(false)));
        (example.gone, example.before) = (InodeId(made.id), Hlc(made.stamp));
        example.set_xattr("user.color", "green");
        let rename = Rename { from: target("/d/file"), to: target("/d/name"), ..Rename::default() };
        example.run(Op::Rename(rename));
        let removed = example.run(Op::Remove(Remove { target: target("/d/gone"), ..Remove::default() }));
        example.now = Hlc(removed.stamp);
        example
    }

    fn run(&mut self, op: Op) -> Outcome {
        self.seq += 1;
        run(&self.metadata, self.writer, Seq(self.seq), op).expect("it runs")
    }

    fn set_xattr(&mut self, name: &str, value: &str) {
        let (name, value) = (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        self.run(Op::SetXattr(SetXattr { target: target("/d/file"), name, value, flags: 0 }));
    }

    fn resolve(&self, path: &str, at: Option<Hlc>) -> Result<InodeId, Reason> {
        let found = self.metadata.resolve(&target(path), at, &Caller::root(), &NoReadSet);
        found.map(|found| found.id).map_err(|fault| fault.reason)
    }

    /// Forgets what `/d/name` was before now.
    fn forget(&mut self) -> Hlc {
        let op = Horizon {
            before: self.now.0,
            root: self.file.0,
            path: b"/d/name".to_vec(),
            named: encode_ids([self.file.0].into_iter()),
            ..Horizon::default()
        };
        Hlc(self.run(Op::Forget(op)).stamp)
    }
}

fn stranger() -> Caller {
    Caller { uid: 99, gid: 99, groups: Vec::new() }
}

#[test]
fn a_path_leads_where_it_led_at_the_instant() {
    let example = Example::new();
    assert_eq!(example.resolve("/d/name", None), Ok(example.file));
    assert_eq!(example.resolve("/d/name", Some(example.before)), Err(Reason::NotFound));
    assert_eq!(example.resolve("/d/file", Some(example.before)), Ok(example.file));
    assert_eq!(example.resolve("/d/gone", Some(example.before)), Ok(example.gone));
    assert_eq!(example.resolve("/d/gone", None), Err(Reason::NotFound));
}

#[test]
fn an_inode_is_that_of_the_instant_and_now_that_in_memory() {
    let example = Example::new();
    let Example { metadata, file, before, now, .. } = &example;
    let (then, newest) = (metadata.inode(*file, Some(*before)), metadata.inode(*file, None));
    let (then, newest) = (then.expect("it was there"), newest.expect("it is there"));
    assert!(then.from < newest.from && then.born == newest.born && newest.from <= *now);
    assert_eq!(metadata.current(*file).as_ref(), Some(&newest));
    assert_eq!(metadata.open_inode(*file), Ok(newest.clone()));
    assert_eq!(metadata.kept_inode(*file, Some(*before)), Ok(then));
    assert_eq!(metadata.version_stamp(*file), Some(newest.from));
    assert_eq!(metadata.birth_stamp(*file), Some(newest.born));
    assert_eq!(
        metadata.inode(*file, Some(newest.born.previous())).map_err(|fault| fault.reason),
        Err(Reason::NotFound)
    );
    let never = InodeId(4711);
    assert_eq!(metadata.current(never), None);
    assert_eq!(metadata.version_stamp(never), None);
    assert_eq!(metadata.open_inode(never).map_err(|fault| fault.reason), Err(Reason::StaleHandle));
    assert_eq!(metadata.layout(never).map_err(|fault| fault.reason), Err(Reason::StaleHandle));
}

#[test]
fn small_facts_of_an_inode_come_without_it() {
    let example = Example::new();
    let Example { metadata, directory, file, gone, .. } = &example;
    let layout = ChunkLayout { chunk_bytes: CHUNK_BYTES, chain_count: CHAINS };
    assert_eq!(metadata.kind(*file), Some(FileKind::File));
    assert_eq!(metadata.kind(*directory), Some(FileKind::Directory));
    assert_eq!((metadata.current_layout(*file), metadata.layout(*file)), (Some(layout), Ok(layout)));
    assert_eq!(metadata.layout(*gone), Ok(layout), "also without a name");
    assert_eq!(metadata.format().map(|format| format.chunk_bytes), Some(CHUNK_BYTES));
    assert_eq!(metadata.counts().sessions, 1);
}

#[test]
fn a_directory_lists_its_names_of_then_and_of_now_page_by_page() {
    let example = Example::new();
    let names = |at, after: &[u8], max| {
        let listed = example.metadata.list(example.directory, at, after, max).expect("a directory");
        listed.into_iter().map(|entry| String::from_utf8(entry.name).expect("plain")).collect::<Vec<_>>()
    };
    assert_eq!(names(None, b"", 10), ["name"]);
    assert_eq!(names(Some(example.before), b"", 10), ["file", "gone"]);
    assert_eq!(names(Some(example.before), b"", 1), ["file"]);
    assert_eq!(names(Some(example.before), b"file", 10), ["gone"]);
    let file = example.metadata.list(example.file, None, b"", 10);
    assert_eq!(file.map_err(|fault| fault.reason), Err(Reason::NotDirectory));
}

#[test]
fn attributes_are_those_of_one_state() {
    let example = Example::new();
    let Example { metadata, file, before, .. } = &example;
    let root = Caller::root();
    let value = |at| metadata.xattr(*file, b"user.color", at, &root);
    assert_eq!((value(None), value(Some(*before))), (Ok(b"green".to_vec()), Ok(b"red".to_vec())));
    assert_eq!(metadata.xattr_names(*file, None, &root), Ok(vec![b"user.color".to_vec()]));
    let all = |wants: &dyn Fn(&[u8]) -> bool| metadata.xattrs(*file, Some(*before), &root, wants);
    assert_eq!(all(&|_| true), Ok([(b"user.color".to_vec(), b"red".to_vec())].into()));
    assert_eq!(all(&|name| name.starts_with(b"trusted.")), Ok([].into()));
}

#[test]
fn rights_are_those_of_the_caller() {
    let example = Example::new();
    let check = |caller: &Caller, at, mask| example.metadata.check_access(example.file, at, caller, mask);
    assert_eq!(check(&Caller::root(), None, MAY_READ | MAY_WRITE), Ok(()));
    assert_eq!(check(&stranger(), None, MAY_READ), Ok(()));
    for at in [None, Some(example.before)] {
        let refused = check(&stranger(), at, MAY_WRITE);
        assert_eq!(refused.map_err(|fault| fault.reason), Err(Reason::AccessDenied));
    }
}

#[test]
fn a_log_says_what_happened_in_the_interval() {
    let example = Example::new();
    let log = |after, upto| example.metadata.log(example.file, after, upto, 100).expect("the store reads");
    let (all, early) = (log(Hlc::ZERO, Hlc::MAX), log(Hlc::ZERO, example.before));
    assert!(!early.is_empty() && early.len() < all.len());
    assert_eq!(log(example.before, Hlc::MAX).len(), all.len() - early.len());
}

#[test]
fn the_tree_of_now_comes_with_all_directories_above() {
    let example = Example::new();
    let nodes = example.metadata.tree_nodes([example.file, InodeId(4711)].into_iter());
    let found: BTreeSet<InodeId> = nodes.keys().copied().collect();
    assert_eq!(found, BTreeSet::from([InodeId::ROOT, example.directory, example.file]));
    let directory = nodes[&example.directory];
    assert!(directory.is_directory && directory.links == 2 && directory.entry_count == 1);
    assert_eq!(directory.parent, InodeId::ROOT);
    assert_eq!(nodes[&example.file].parent, example.directory);
}

#[test]
fn snapshots_come_by_name_and_after_a_name() {
    let mut example = Example::new();
    for name in ["b", "a", "c"] {
        example.run(Op::MakeSnapshot(MakeSnapshot { name: name.to_owned(), at: example.before.0, count_max: 0 }));
    }
    let metadata = &example.metadata;
    let names = |snapshots: Vec<frieze_namespace::NamedInstant>| -> Vec<String> {
        snapshots.into_iter().map(|snapshot| snapshot.name).collect()
    };
    assert_eq!(names(metadata.snapshots()), ["a", "b", "c"]);
    assert_eq!(names(metadata.snapshots_after("a", 1)), ["b"]);
    assert_eq!(metadata.snapshot("c").map(|snapshot| snapshot.at), Some(example.before));
    assert_eq!(metadata.snapshot("d"), None);
}

#[test]
fn a_request_is_remembered_and_an_edit_is_tried() {
    let example = Example::new();
    let Example { metadata, writer, gone, seq, now, .. } = &example;
    assert_eq!(metadata.remembered(*writer, Seq(*seq)).map(|outcome| outcome.stamp), Some(now.0));
    assert_eq!(metadata.remembered(*writer, Seq(seq + 1)), None);
    let empty = Edit { kind: EditKind::Undo as i32, at: 0, keeps_times: true, ..Edit::default() };
    assert_eq!(metadata.check_edit(&Caller::root(), &empty, now.next()), Ok(()));
    assert_eq!(metadata.nameless_inodes(&[*gone, example.file].into()), Ok(Vec::new()), "both are in memory");
    let never = metadata.nameless_inodes(&[InodeId(4711)].into());
    assert_eq!(never.map_err(|fault| fault.reason), Err(Reason::StaleHandle));
}

#[test]
fn what_a_session_may_write_is_said_chunk_by_chunk() {
    let mut example = Example::new();
    example.run(Op::Grant(Grant { inode: example.file.0, first: 0, count: 2 }));
    let other = open_session(&example.metadata, 8, false);
    let Example { metadata, writer, file, .. } = &example;
    let of = |session| metadata.write_target(*file, session).expect("a file");
    let target = of(*writer);
    assert!(target.kind == FileKind::File && target.layout.chunk_bytes == CHUNK_BYTES && target.timed.is_none());
    assert_eq!((target.granted.as_slice(), target.is_open), (std::slice::from_ref(&(0..2)), true));
    assert_eq!(target.missing_grant([0, 1].into_iter()), None);
    assert_eq!(target.missing_grant(1..4), Some(MissingGrant { chunk: 2, is_open: true }));
    assert_eq!(of(other).missing_grant(0..1), Some(MissingGrant { chunk: 0, is_open: true }));
    assert_eq!(of(SessionId(5)).missing_grant(0..1), Some(MissingGrant { chunk: 0, is_open: false }));
    let inode = metadata.writable_inode(*file).expect("a file");
    assert_eq!(metadata.missing_grant(&inode, *writer, 0..2), None);
    assert_eq!(metadata.missing_grant(&inode, other, 0..2), Some(MissingGrant { chunk: 0, is_open: true }));
    assert!(target.may_write_range((0, 2 * CHUNK_BYTES), false));
    assert!(!target.may_write_range((0, 2 * CHUNK_BYTES + 1), false));
    assert!(target.may_write_range((CHUNK_BYTES, 10), true));
    assert!(!target.may_write_range((CHUNK_BYTES, CHUNK_BYTES + 1), true), "no record reaches over");
    assert!(metadata.has_grant(*writer, ChunkId { inode: *file, index: 1 }));
    assert!(!metadata.has_grant(*writer, ChunkId { inode: *file, index: 2 }));
    let never = metadata.write_target(InodeId(4711), *writer);
    assert_eq!(never.map_err(|fault| fault.reason), Err(Reason::StaleHandle));
    assert_eq!(target.change_count, metadata.change_count());
    let before = target.change_count;
    example.run(Op::StopWriting(StopWriting { inodes: vec![example.file.0] }));
    assert_ne!(example.metadata.change_count(), before, "a right that was looked up before may have ended");
    let stopped = example.metadata.write_target(example.file, example.writer).expect("a file");
    assert!(stopped.granted.is_empty());
}

#[test]
fn a_grant_needs_a_grant_or_the_right_to_write() {
    let example = Example::new();
    let (metadata, file) = (&example.metadata, example.file);
    let other = open_session(metadata, 99, false);
    assert_eq!(metadata.check_grantable(file, example.writer, &stranger()), Ok(()), "it has one");
    assert_eq!(metadata.check_grantable(file, other, &Caller::root()), Ok(()), "it may write");
    let refused = metadata.check_grantable(file, other, &stranger());
    assert_eq!(refused.map_err(|fault| fault.reason), Err(Reason::AccessDenied));
    assert_eq!(metadata.check_grantable(InodeId(4711), other, &stranger()), Ok(()), "the transaction refuses it");
}

#[test]
fn only_a_file_with_user_times_has_another_writer() {
    let mut example = Example::new();
    let other = open_session(&example.metadata, 8, false);
    assert_eq!(example.metadata.other_writer(example.file, other), None, "the file has no plug-in");
    let (name, value) = (PLUGIN_XATTR.to_vec(), b"lines of some form".to_vec());
    example.run(Op::SetXattr(SetXattr { target: target("/d"), name, value, flags: 0 }));
    let timed = InodeId(example.run(make("/d/timed", MakeKind::File(true))).id);
    let expected = OtherWriter { session: example.writer, plugin: "lines of some form".to_owned() };
    assert_eq!(example.metadata.other_writer(timed, other), Some(expected));
    assert!(example.metadata.write_target(timed, example.writer).is_ok_and(|target| target.timed.is_some()));
    assert_eq!(example.metadata.other_writer(timed, example.writer), None);
}

#[test]
fn the_chunks_of_a_file_are_those_that_its_writers_may_write() {
    let mut example = Example::new();
    example.run(Op::Grant(Grant { inode: example.file.0, first: 4, count: 2 }));
    let metadata = &example.metadata;
    let chunks = metadata.file_chunks(example.file).expect("a file");
    assert!(chunks.has_writers && !chunks.is_patched && chunks.size == 0 && chunks.reaches_from.is_none());
    assert_eq!(chunks.granted, [0..1, 4..6]);
    let of_all = metadata.chunks_of_files(&[example.file, InodeId(4711)]);
    assert_eq!(of_all, [(example.file, chunks)]);
    let writers = metadata.writers(example.file).expect("a file");
    assert_eq!(writers.iter().map(|(id, session)| (*id, session.uid)).collect::<Vec<_>>(), [(example.writer, 7)]);
    assert!(metadata.writers(example.directory).is_none());
}

#[test]
fn a_session_that_was_stopped_keeps_its_files_and_writes_none() {
    let mut example = Example::new();
    let grants = example.metadata.session_grants(example.writer);
    assert!(grants.is_open && grants.may_write);
    assert_eq!(grants.files, [example.file]);
    example.run(Op::StopWriting(StopWriting { inodes: vec![example.file.0] }));
    let grants = example.metadata.session_grants(example.writer);
    assert!(grants.is_open && !grants.may_write);
    assert_eq!(grants.files, [example.file]);
    assert_eq!(example.metadata.session_grants(SessionId(5)), Default::default());
}

#[test]
fn sessions_are_open_or_closed_and_some_keep_things() {
    let example = Example::new();
    let Example { metadata, writer, now, .. } = &example;
    let other = open_session(metadata, 8, false);
    assert!(metadata.has_session(other) && !metadata.has_session(SessionId(5)));
    assert_eq!((metadata.session_user(other), metadata.session_user(SessionId(5))), (Some(8), None));
    assert!(metadata.may_keep(*writer) && metadata.may_keep(other), "a lone server asks no declaration");
    let sessions = metadata.sessions();
    assert_eq!((sessions.all, sessions.keeping), (vec![*writer, other], vec![*writer]));
    assert_eq!(metadata.closed_sessions([*writer, SessionId(5)].into_iter()), [SessionId(5)]);
    assert_eq!(metadata.newest_of_session(*writer), Some(*now));
    assert!(!metadata.has_ended_before(Hlc::MAX));
}

#[test]
fn what_was_forgotten_is_refused_with_the_instant_that_is_kept() {
    let mut example = Example::new();
    assert!(!example.metadata.has_horizons());
    assert_eq!(example.metadata.forgetting_count().count, 0);
    let stamp = example.forget();
    let Example { metadata, file, before, now, .. } = &example;
    assert!(metadata.has_horizons());
    assert_eq!(metadata.check_kept(*file, None), Ok(()));
    assert_eq!(metadata.check_kept(*file, Some(*now)), Ok(()));
    let refused = metadata.check_kept_called(*file, Some(*before), b"/d/name").expect_err("it was forgotten");
    assert!(refused.reason == Reason::HistoryExpired && refused.message.contains("/d/name"), "{refused}");
    assert_eq!(metadata.kept_inode(*file, Some(*before)).map_err(|fault| fault.reason), Err(Reason::HistoryExpired));
    assert!(metadata.inode(*file, Some(*before)).is_ok(), "without the question it is there");
    let horizon = metadata.inode_horizon(*file);
    assert!(!horizon.is_wholly_expired && horizon.pins.is_empty());
    assert_eq!(horizon.forgotten.map(|forgotten| Hlc(forgotten.before)), Some(*now));
    assert_eq!(metadata.inode_horizon(InodeId(4711)), Default::default());
    assert!(!metadata.is_wholly_expired(*file));
    let newest = metadata.newest_horizon([example.directory, *file].into_iter());
    assert_eq!(newest.map(|forgotten| forgotten.stamp), Some(stamp.0));
    let count = metadata.forgetting_count();
    assert_eq!((count.count, count.last), (1, stamp));
    assert_eq!(metadata.horizons().inodes().collect::<Vec<_>>(), [*file]);
}

#[test]
fn a_dry_run_of_forgetting_changes_nothing() {
    let example = Example::new();
    let forgetting = Expiry {
        before: example.now,
        pins: Pins::default(),
        through: false,
        root: example.file,
        path: Vec::new(),
        uid: 0,
    };
    let of = ExpiredInodes { named: &[example.file], nameless: &[], owners: &Owners::new() };
    let horizons = example.metadata.horizons_after(example.now.next(), forgetting, of);
    assert!(horizons.expired(example.file, Some(example.before)).is_some());
    assert!(!example.metadata.has_horizons());
}

#[test]
fn history_is_asked_without_the_namespace() {
    let example = Example::new();
    let Example { metadata, writer, directory, file, gone, before, now, .. } = &example;
    let (history, root) = (metadata.history(), Caller::root());
    assert_eq!(history.entry(*directory, b"file", *before), Ok(Some(*file)));
    assert_eq!(history.entry(*directory, b"file", *now), Ok(None));
    let names = |at| history.names(*file, at).expect("the store reads");
    assert_eq!(names(*before)[0].name, b"file");
    assert_eq!(names(*now)[0].name, b"name");
    let version = history.name_version(*directory, b"gone", *now).expect("the store reads").expect("there was one");
    assert_eq!((version.from, version.state), (*now, None));
    assert_eq!(history.author(*directory, *now).map(|(session, _)| session), Ok(*writer));
    assert!(history.has_inode(*gone).expect("the store reads"));
    assert!(!history.has_inode(InodeId(4711)).expect("the store reads"));
    let mut visited = Vec::new();
    let mut visit = |name: &[u8], _: &[frieze_namespace::EntryVersion]| {
        visited.push(String::from_utf8(name.to_vec()).expect("plain"));
        true
    };
    history.visit_names(*directory, b"", Hlc::MAX, &mut visit).expect("the store reads");
    assert_eq!(visited, ["file", "gone", "name"]);
    let mut tree = history.tree_at(*before, &root);
    assert_eq!(tree.path(*directory), Ok(Some(b"/d".to_vec())));
}

#[test]
fn changes_of_an_interval_come_by_subject_and_by_transaction() {
    let example = Example::new();
    let Example { metadata, writer, directory, file, before, now, .. } = &example;
    let (history, interval) = (metadata.history(), (*before, *now));
    let changed = history.changed(interval, None, 1000, &mut |_| Ok(true)).expect("few changes");
    assert!(changed.subjects.iter().any(|change| change.subject.inode() == *file));
    assert!(history.has_few_changes(interval, 1000).expect("the store reads"));
    assert!(!history.has_few_changes(interval, 1).expect("the store reads"));
    let (transactions, end) = history.transactions(interval, 100, 1000).expect("the store reads");
    assert_eq!((transactions.len(), end), (3, *now));
    let last = &transactions[2];
    assert_eq!(last.stamp, *now);
    let by = history.changed_by(last, &mut |_| Ok(true)).expect("the store reads");
    assert_eq!(by.subjects.len(), last.subjects.len());
    assert!(history.newest_transactions_since(interval, 1, 1000).expect("the store reads") < *now);
    let stamps = history.changes_of(*file, (Hlc::ZERO, *now), 100).expect("the store reads");
    assert!(stamps.is_sorted() && !stamps.is_empty());
    assert!(history.newest_changes_since(*file, (Hlc::ZERO, *now), 1).expect("the store reads") < *now);
    let extent = history.extent(*directory, interval, 1000).expect("the store reads").expect("it is small");
    assert!(extent.holds(*file) && !extent.holds(InodeId::ROOT));
    let session = history.session(*writer).expect("the store reads").expect("it is known");
    assert_eq!((session.uid, session.ended), (7, None));
    assert_eq!(history.sessions(SessionId(0), Hlc::ZERO, 10).map(|all| all.len()), Ok(1));
    assert!(history.shared_states().expect("the store reads").is_empty());
    let mut authors = Vec::new();
    let mut visit = |id: InodeId, home: crate::InodeHome, sessions: &std::collections::BTreeSet<SessionId>| {
        authors.push((id, home.parent, sessions.contains(writer)));
    };
    history.visit_authors(&mut visit).expect("the store reads");
    assert!(authors.contains(&(*file, *directory, true)));
    let mut wrong = Vec::new();
    history.check(Hlc::MAX, &mut |words| wrong.push(words)).expect("the store reads");
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn an_answer_at_an_instant_stays_when_versions_come_into_tables() {
    let example = Example::new();
    let (metadata, before) = (&example.metadata, example.before);
    let ask = || {
        let listed = metadata.list(example.directory, Some(before), b"", 10);
        (listed, metadata.inode(example.file, Some(before)), metadata.digest().map(|(_, digest)| digest))
    };
    let first = ask();
    assert!(metadata.unsettled_versions() > 0);
    let mark = metadata.mark();
    metadata.sync(mark).expect("the disk is whole");
    metadata.settle_versions(mark.index).expect("the store is whole");
    metadata.persist_versions().expect("the store is whole");
    assert_eq!(metadata.settle_versions(mark.index), Ok(metadata.appended()));
    assert_eq!(metadata.unsettled_versions(), 0);
    assert_eq!(ask(), first);
}

#[test]
fn a_stranger_is_refused_by_the_transaction_and_changes_nothing() {
    let example = Example::new();
    let session = open_session(&example.metadata, 99, false);
    let digest = example.metadata.digest().expect("the store reads").1;
    let refused = run_as(&example.metadata, stranger(), session, Seq(1), make("/d/x", MakeKind::File(false)));
    assert_eq!(refused.map_err(|fault| fault.reason), Err(Reason::AccessDenied));
    assert_eq!(example.metadata.digest().expect("the store reads").1, digest);
}
