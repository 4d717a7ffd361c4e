//! Replies, one of each kind.

use frieze_wire::edit::*;
use frieze_wire::fabric::FabricOffer;
use frieze_wire::forget::{ForgetReply, ForgottenFile, ForgottenHistory, SnapshotLoss};
use frieze_wire::holding::*;
use frieze_wire::message::*;
use frieze_wire::retention::*;
use frieze_wire::scrub::*;
use frieze_wire::timeline::*;

use super::requests::lock_range;
use super::{AT, answered, attr};

pub(super) fn forgotten() -> ForgottenHistory {
    ForgottenHistory { before: AT - 1, stamp: AT, uid: 1000 }
}

fn side() -> Side {
    Side {
        path: b"/a/b.txt".to_vec(),
        inode: 77,
        kind: FileKind::Symlink as i32,
        mode: 0o640,
        uid: 1000,
        gid: 100,
        size: 12,
        mtime_ns: -3,
        born: AT,
    }
}

pub(super) fn session() -> SessionInfo {
    SessionInfo { id: 42, uid: 1000, command: "fio".into(), host: "h1".into(), ended: AT, last: AT - 1, hidden: false }
}

pub(super) fn difference() -> Difference {
    Difference {
        before: Some(side()),
        after: Some(side()),
        flags: CONTENT | MODE | OWNER | TIMES | XATTRS | REPLACED,
        stamp: AT,
        session: 42,
        uid: 1000,
        spans: vec![ChangedSpan { offset: 4096, len: 10 }],
        more_spans: true,
        outside: 0,
    }
}

fn deleted() -> DeletedObject {
    DeletedObject { was: side(), stamp: AT, session: 42, uid: 1000, moved_to: b"/c".to_vec() }
}

pub(super) fn replies() -> Vec<(&'static str, Reply)> {
    vec![
        (
            "hello",
            Reply::Hello(HelloReply {
                software: "frieze/0.1.0".into(),
                cluster: "00ff".into(),
                node: 1,
                challenge: vec![9; 32],
                uid: 65534,
                may_impersonate: true,
                chunk_bytes: 64 << 20,
                socket: String::new(),
                proof: Vec::new(),
                map_version: 0,
                former: Vec::new(),
                fabric: None,
            }),
        ),
        (
            "hello.to_a_node",
            Reply::Hello(HelloReply { node: 1, proof: vec![6; 32], map_version: 7, ..HelloReply::default() }),
        ),
        (
            "hello.of_a_survivor",
            Reply::Hello(HelloReply {
                node: 1,
                former: vec![FormerCluster { cluster: "00ff".into(), node: 3, at: AT }],
                ..HelloReply::default()
            }),
        ),
        (
            "hello.with_a_fabric",
            Reply::Hello(HelloReply {
                node: 1,
                fabric: Some(FabricOffer { provider: "tcp".into(), protocol: 11, address: vec![2, 0, 9] }),
                ..HelloReply::default()
            }),
        ),
        (
            "hello.on_this_machine",
            Reply::Hello(HelloReply { node: 1, socket: "/srv/frieze/socket".into(), ..HelloReply::default() }),
        ),
        ("done", Reply::Done(EmptyReply {})),
        ("stat", Reply::Stat(StatReply { attr: attr(), answered: answered() })),
        ("stat_acl", Reply::Stat(StatReply { attr: Attr { has_acl: true, ..attr() }, answered: answered() })),
        (
            "list",
            Reply::List(ListReply {
                entries: vec![
                    DirEntry { name: b"a".to_vec(), inode: 5, kind: FileKind::File as i32, attr: None },
                    DirEntry { name: vec![0xff], inode: 77, kind: FileKind::Directory as i32, attr: Some(attr()) },
                ],
                more: true,
                answered: answered(),
                inode: 3,
                parent: 1,
            }),
        ),
        ("bytes", Reply::Bytes(BytesReply { value: vec![0, 1, 254] })),
        ("open", Reply::Open(OpenReply { attr: attr(), capability: vec![1, 2, 3], answered: answered() })),
        (
            "read",
            Reply::Read(ReadReply {
                end_of_file: true,
                answered: answered(),
                crc_behind: true,
                ..ReadReply::default()
            }),
        ),
        ("read.landed", Reply::Read(ReadReply { landed: 1 << 20, landed_crc: 0x0102_0304, ..ReadReply::default() })),
        ("read.abandoned", Reply::Read(ReadReply { is_slot_abandoned: true, ..ReadReply::default() })),
        ("write", Reply::Write(WriteReply { stamp: AT, offset: 1 << 40 })),
        ("seek", Reply::Seek(1 << 50)),
        (
            "txn",
            Reply::Txn(TxnReply {
                stamp: AT,
                id: 77,
                existed: true,
                attr: Some(attr()),
                capability: vec![1, 2, 3],
                ..TxnReply::default()
            }),
        ),
        (
            "txn.empty_directory",
            Reply::Txn(TxnReply { stamp: AT, id: 77, attr: Some(attr()), empty_ms: 5000, ..TxnReply::default() }),
        ),
        (
            "txn.parents",
            Reply::Txn(TxnReply { stamp: AT, id: 77, parents: vec![attr()], parents_ms: 5000, ..TxnReply::default() }),
        ),
        ("txn.replaced", Reply::Txn(TxnReply { stamp: AT, id: 77, replaced: 78, ..TxnReply::default() })),
        ("now", Reply::Now(NowReply { at: AT, precision_us: 250, earliest: 1, stable: AT - 1, without_lease: true })),
        (
            "snapshots",
            Reply::Snapshots(SnapshotsReply {
                snapshots: vec![Snapshot {
                    name: "release-1".into(),
                    at: AT,
                    made: AT + 9,
                    uid: 1000,
                    bytes_held: Some(4096),
                    held_at_least: true,
                }],
                more: false,
            }),
        ),
        ("snapshots.more", Reply::Snapshots(SnapshotsReply { snapshots: Vec::new(), more: true })),
        (
            "diff",
            Reply::Diff(DiffReply {
                differences: vec![difference()],
                more: true,
                hidden: true,
                sessions: vec![session()],
                entries_read: 9,
                incomplete: true,
            }),
        ),
        ("last_existed", Reply::LastExisted(LastExistedReply { at: AT, was: deleted(), sessions: vec![session()] })),
        (
            "deleted",
            Reply::Deleted(DeletedReply { names: vec![deleted()], next: b"n".to_vec(), sessions: vec![session()] }),
        ),
        ("sessions", Reply::Sessions(SessionsReply { sessions: vec![session()], more: true })),
        (
            "usage",
            Reply::Usage(UsageReply {
                live_bytes: 1,
                history_bytes: 2,
                files: 3,
                deleted_files: 4,
                directories: vec![UsageDirectory { name: b"d".to_vec(), inode: 77, at: AT }],
                next: b"n".to_vec(),
            }),
        ),
        (
            "status-in-trouble",
            Reply::Status(Box::new(StatusReply {
                health: "db3 is away".into(),
                troubles: vec![Trouble { what: "db3 is away".into(), remedy: "start db3".into() }],
                ..Default::default()
            })),
        ),
        (
            "status",
            Reply::Status(Box::new(StatusReply {
                health: "healthy".into(),
                corrupt_reads: 5,
                flushes: 6,
                flush_bytes_median: 7,
                scrub_due: AT,
                clock_error_us: 1,
                fenced: true,
                newest: 2,
                earliest: 3,
                stable: 4,
                durable: 5,
                dirty_bytes: 6,
                dirty_age_ms: 7,
                capacity_bytes: 8,
                free_bytes: 9,
                forgotten_bytes: 27,
                forgotten_waiting_bytes: 28,
                forgetting_looked_at: 29,
                forgetting_to_look_at: 30,
                thinned: Some(Box::new(ThinnedStatus {
                    packs: 1,
                    packed_bytes: 2,
                    unpacked_dead_bytes: 3,
                    files_left: 4,
                })),
                images: Some(Box::new(ImageStatus {
                    count: 110,
                    bytes: 111,
                    bytes_max: 112,
                    pieces_max: 113,
                    pieces_most: 114,
                    looked_upto: 115,
                    lost: 116,
                    wishes: 117,
                })),
                damaged: 100,
                scrubbed: 101,
                scrub_done_bytes: 102,
                scrub_all_bytes: 103,
                log_bytes: 10,
                records: 11,
                inodes: 12,
                sessions: 13,
                connections: 14,
                resident_bytes: 15,
                resident_bytes_peak: 16,
                cpu_ns: 17,
                gaps: vec![Gap { from: 1, to: 2 }],
                software: "frieze/0.1.0".into(),
                cluster: "00ff".into(),
                uptime_ms: 23,
                metalog_index: 24,
                index_bytes: 25,
                index_bytes_max: 40,
                shelved_records: 41,
                shelf_bytes: 42,
                memory: Some(Box::new(MemoryUse {
                    bytes_max: 1,
                    program_bytes_max: 2,
                    store_bytes_max: 3,
                    files_bytes_max: 4,
                    files_bytes: 5,
                    dirty_bytes_max: 6,
                    young_bytes_max: 7,
                    young_bytes: 8,
                    old_bytes_max: 9,
                    old_bytes: 10,
                    wanted_hit_bytes: 11,
                    wanted_missed_bytes: 12,
                    scanned_hit_bytes: 13,
                    scanned_missed_bytes: 14,
                    ahead_bytes: 15,
                    admitted: 16,
                    evicted: 17,
                    refused: 18,
                    healed: 19,
                    unbounded: true,
                    names_bytes_max: 21,
                    names_bytes: 22,
                    names_cold_bytes: 23,
                    names_loads: 24,
                })),
                last_whole: 26,
                troubles: Vec::new(),
                fabric: Some(Box::new(FabricStatus {
                    provider: "tcp".into(),
                    trouble: "t".into(),
                    writes: 3,
                    reads: 4,
                    server_reads: 5,
                    bytes: 6,
                    failures: 7,
                    registered_bytes: 8,
                    registrations: 9,
                })),
            })),
        ),
        ("punch", Reply::Punch(PunchReply { stamp: AT, upto: 1 << 40 })),
        (
            "retention",
            Reply::Retention(RetentionReply {
                policy: "all 1h, 1/min 1d".into(),
                classes: vec![RetainedClass { period: "1/min".into(), below: AT, writes: 1, bytes: 2 }],
                preview: Some(RetentionPreview {
                    files: 1,
                    classes: vec![RetainedClass { period: "all".into(), below: 0, writes: 3, bytes: 4 }],
                    freed_writes: 5,
                    freed_bytes: 6,
                }),
                instant: Some(RetainedInstant { at: AT, is_exact: true, before: 1, after: 2 }),
                as_of: AT,
            }),
        ),
        (
            "forgot",
            Reply::Forgot(ForgetReply {
                stamp: AT,
                before: AT - 1,
                files: 1,
                deleted_files: 2,
                writes: 3,
                bytes: 4,
                freed_bytes: 5,
                waiting_bytes: 6,
                biggest: vec![ForgottenFile { path: b"/f".to_vec(), bytes: 7, writes: 8, deleted: true }],
                snapshots: vec!["s".into()],
                held_bytes: 9,
                left: 10,
                trouble: "t".into(),
                repeated: true,
                open: 11,
                ..ForgetReply::default()
            }),
        ),
        (
            "forgot.snapshots",
            Reply::Forgot(ForgetReply {
                more_snapshots: 12,
                sessions: 13,
                shown_by: vec![SnapshotLoss {
                    name: "s".into(),
                    at: AT,
                    uid: 1000,
                    holds: true,
                    loses: true,
                    held_bytes: 14,
                }],
                ..ForgetReply::default()
            }),
        ),
        (
            "scrub",
            Reply::Scrub(ScrubReply {
                state: ScrubState::Finished as i32,
                started: AT,
                ended: AT + 1,
                done_bytes: 4,
                all_bytes: 5,
                records: 6,
                bytes_per_s: 7,
                damaged: 8,
                mended: 3,
                findings: vec![Finding {
                    kind: FindingKind::Data as i32,
                    segment: 2,
                    at: 3,
                    len: 4,
                    path: b"/a/b".to_vec(),
                    deleted: AT,
                    inode: 77,
                    start: 8,
                    end: 9,
                    from: AT - 2,
                    until: AT - 1,
                    found: AT,
                    unread: "EIO".into(),
                }],
                finished: AT + 2,
                trouble: "t".into(),
            }),
        ),
        (
            "edited",
            Reply::Edited(EditReply {
                stamp: AT,
                id: 77,
                actions: vec![EditAction {
                    kind: ActionKind::Left as i32,
                    path: b"/a/b".to_vec(),
                    inode: 77,
                    offset: 4096,
                    len: 10,
                    words: "others wrote these bytes since".into(),
                    newest: AT,
                    older: AT - 1,
                    ..EditAction::default()
                }],
                count: 9,
                at: AT - 2,
                repeated: true,
                len: 1 << 40,
                refused: 0,
                refused_words: String::new(),
            }),
        ),
        (
            "edited-rights",
            Reply::Edited(EditReply {
                actions: vec![EditAction {
                    kind: ActionKind::Attributes as i32,
                    path: b"/a/b".to_vec(),
                    file_kind: FileKind::Directory as i32,
                    rights: Some(FileRights { mode: 0o755, uid: 1, gid: 2 }),
                    ..EditAction::default()
                }],
                count: 1,
                ..EditReply::default()
            }),
        ),
        (
            "edited-copy",
            Reply::Edited(EditReply {
                actions: vec![EditAction { path: b"/a/b".to_vec(), lives_at: b"/c".to_vec(), ..EditAction::default() }],
                count: 1,
                ..EditReply::default()
            }),
        ),
        ("edited.refused", Reply::Edited(EditReply { refused: 3, refused_words: "no".into(), ..EditReply::default() })),
        (
            "recalls",
            Reply::Recalls(RecallsReply {
                number: 4,
                life: 9,
                lease_ms: 5000,
                everything: true,
                directories: vec![7],
                files: vec![77, 78],
                locked: vec![5],
            }),
        ),
        ("lock", Reply::Lock(LockReply { outcome: LockOutcome::Waiting as i32 })),
        ("test_lock", Reply::TestLock(TestLockReply { held: Some(lock_range()) })),
    ]
}
