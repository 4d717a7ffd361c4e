//! The bytes on the wire, kept: what an older process sent still reads, and what this one sends is what was agreed.
//!
//! `testdata/golden.txt` holds one message a line: its name and its bytes in hexadecimal. `UPDATE_EXPECT=1` rewrites
//! it; a changed line is a new protocol version, an added line is not.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "golden/cluster.rs"]
mod cluster;
#[path = "golden/logs.rs"]
mod logs;
#[path = "golden/metalog.rs"]
mod metalog;
#[path = "golden/peers.rs"]
mod peers;
#[path = "golden/control.rs"]
mod plane;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fmt::Write as _;
use std::path::PathBuf;

use frieze_base::{ChainEpoch, InodeId, Reason, Seq, SessionId, crc32c};
use frieze_hlc::Hlc;
use frieze_wire::acl::Acl;
use frieze_wire::control;
use frieze_wire::edit::*;
use frieze_wire::forget::{
    Forget, ForgetReply, ForgottenFile, ForgottenHistory, ForgottenSession, Horizon, OwnedInodes, SnapshotLoss,
    encode_ids,
};
use frieze_wire::frame::{BODY_BYTES_MAX, PAYLOAD_BYTES_MAX, PROTOCOL_VERSION};
use frieze_wire::holding::*;
use frieze_wire::message::*;
use frieze_wire::peer::PeerBody;
use frieze_wire::scrub::*;
use frieze_wire::timeline::*;
use frieze_wire::txn::*;
use frieze_wire::{FRAME_HEADER_BYTES, FrameHeader, FrameKind, Holds};
use proptest::prelude::*;
use prost::Message;

const AT: u64 = 0x0006_4b2d_8f00_1234;

fn file() -> Target {
    Target { base: 1, path: b"a/b.txt".to_vec(), follow: true }
}

fn past() -> View {
    View { at: Some(AT), user_at: Some(-5) }
}

fn caller() -> Caller {
    Caller { uid: 1000, gid: 100, groups: vec![4, 27, 300] }
}

fn answered() -> InstantInfo {
    InstantInfo {
        at: AT,
        precision_us: 250,
        was_stable: true,
        incomplete: true,
        user_time_open: true,
        without_lease: true,
        executed: AT,
    }
}

fn attr() -> Attr {
    Attr {
        inode: 77,
        kind: FileKind::Directory as i32,
        mode: 0o755,
        links: 2,
        uid: 1000,
        gid: 100,
        size: 1 << 33,
        bytes_live: 4096,
        atime_ns: -1,
        mtime_ns: 1_439_845_200_000_000_000,
        ctime_ns: 3,
        born: AT,
        rdev: 5,
        chunk_bytes: 64 << 20,
        time_plugin: "json:/meta/time".to_owned(),
        changed: AT + 1,
        has_acl: false,
    }
}

fn settle() -> Settle {
    Settle { inode: 77, keep_grant: true, stamp: AT, size: 4097, mtime_ns: -9, complete: None, since: 0 }
}

fn share() -> Share {
    Share { start: 4096, len: 1 << 20, inode: 77, offset: 512, at: AT }
}

fn edit() -> Edit {
    let xattr = Xattr { name: b"user.c".to_vec(), value: Some(vec![0, 255]) };
    let gone = Xattr { name: b"user.d".to_vec(), value: None };
    Edit {
        kind: EditKind::Undo as i32,
        at: AT,
        brought: vec![NamelessInode { inode: 77, from: AT, value: vec![1, 2], xattrs: vec![xattr.clone()] }],
        new: vec![NewInode {
            kind: FileKind::Symlink as i32,
            mode: 0o777,
            uid: 1000,
            gid: 100,
            atime_ns: -1,
            mtime_ns: 5,
            size: 1 << 33,
            target: b"../to".to_vec(),
            rdev: 5,
            chunk_bytes: 64 << 20,
            chain_count: 8,
            plugin: "json:/t".into(),
            xattrs: vec![xattr],
            shares: vec![share()],
            ..NewInode::default()
        }],
        names: vec![SetName { directory: NEW | 3, name: b"n".to_vec(), expect: 77, inode: NEW }],
        states: vec![SetState {
            inode: 77,
            expect: AT,
            mode: Some(0),
            uid: Some(0),
            gid: Some(0),
            atime_ns: Some(-1),
            mtime_ns: Some(0),
            size: Some(0),
            shares: vec![share()],
            xattrs: vec![gone],
            extends: false,
            times_anew: false,
            origin: 0,
            origin_at: 0,
        }],
        keeps_times: false,
    }
}

fn ops() -> Vec<(&'static str, Op)> {
    let make =
        |kind| Op::Make(Make { target: file(), mode: 0o644, or_open: true, kind: Some(kind), ..Make::default() });
    let times_anew = SetState { inode: 77, times_anew: true, origin: 76, origin_at: AT, ..SetState::default() };
    let extends = SetState { inode: 77, size: Some(1 << 20), extends: true, ..SetState::default() };
    vec![
        (
            "open_session",
            Op::OpenSession(OpenSession { command: "fio".into(), host: "h1".into(), uid: 1000, keeps: false }),
        ),
        ("close_session", Op::CloseSession(CloseSession { settled: vec![settle()], only_stopped: false })),
        ("close_stopped_session", Op::CloseSession(CloseSession { settled: vec![settle()], only_stopped: true })),
        ("erase_sessions", Op::EraseSessions(EraseSessions { before: AT })),
        ("make_file", make(MakeKind::File(true))),
        ("make_directory", make(MakeKind::Directory(true))),
        ("make_symlink", make(MakeKind::Symlink(b"../to".to_vec()))),
        ("make_special", make(MakeKind::Special(Special { file_type: 0o020_000, rdev: 0x0103 }))),
        (
            "make_masked",
            Op::Make(Make {
                target: file(),
                mode: 0o666,
                umask: 0o027,
                kind: Some(MakeKind::File(false)),
                ..Make::default()
            }),
        ),
        ("link", Op::Link(Link { file: Target::inode(InodeId(77)), name: file() })),
        ("remove", Op::Remove(Remove { target: file(), directory: true })),
        ("rename", Op::Rename(Rename { from: file(), to: Target::under(InodeId(9), *b"c"), flags: 2 })),
        (
            "set_attr",
            Op::SetAttr(SetAttr {
                target: file(),
                mode: Some(0),
                uid: Some(1),
                gid: Some(2),
                size: Some(0),
                atime: Some(TimeValue { now: true, ns: 0 }),
                mtime: Some(TimeValue { now: false, ns: -7 }),
                by_handle: true,
                settled: Some(settle()),
                extend: false,
                times_anew: false,
            }),
        ),
        (
            "set_attr_times_anew",
            Op::SetAttr(SetAttr { target: file(), size: Some(0), times_anew: true, ..SetAttr::default() }),
        ),
        ("extend", Op::SetAttr(SetAttr { target: file(), size: Some(1 << 40), extend: true, ..SetAttr::default() })),
        (
            "set_xattr",
            Op::SetXattr(SetXattr { target: file(), name: b"user.c".to_vec(), value: vec![0, 255], flags: 1 }),
        ),
        (
            "set_acl",
            Op::SetAcl(SetAcl {
                target: file(),
                access: Some(Acl::of_mode(0o640).encode()),
                default_list: Some(Vec::new()),
                expect_access: Some(Acl::of_mode(0o600).encode()),
                expect_default: Some(Vec::new()),
            }),
        ),
        ("remove_xattr", Op::RemoveXattr(RemoveXattr { target: file(), name: b"user.c".to_vec() })),
        ("grant", Op::Grant(Grant { inode: 77, first: 3, count: 16 })),
        ("grant_append", Op::GrantAppend(Grant { inode: 77, first: 3, count: 2 })),
        ("stop_writing", Op::StopWriting(StopWriting { inodes: vec![77, 1 << 40] })),
        ("settle", Op::Settle(settle())),
        ("settle_in_part", Op::Settle(Settle { complete: Some(AT - 1), since: AT - 2, ..settle() })),
        ("make_nameless", Op::MakeNameless(MakeNameless { beside: 77 })),
        ("edit_extends", Op::Edit(Edit { kind: EditKind::CopyRange as i32, states: vec![extends], ..Edit::default() })),
        (
            "edit_times_anew",
            Op::Edit(Edit { kind: EditKind::Restore as i32, states: vec![times_anew], ..Edit::default() }),
        ),
        ("edit_keeps_times", Op::Edit(Edit { kind: EditKind::Clone as i32, keeps_times: true, ..Edit::default() })),
        ("settle_all", Op::SettleAll(SettleAll { files: vec![settle(); 2] })),
        ("make_snapshot", Op::MakeSnapshot(MakeSnapshot { name: "release-1".into(), at: AT, count_max: 0 })),
        ("make_snapshot_bounded", Op::MakeSnapshot(MakeSnapshot { name: "s".into(), at: 0, count_max: 1000 })),
        ("delete_snapshot", Op::DeleteSnapshot(DeleteSnapshot { name: "release-1".into() })),
        ("edit", Op::Edit(edit())),
        (
            "edit_clone",
            Op::Edit(Edit {
                kind: EditKind::Clone as i32,
                new: vec![NewInode { origin: 77, origin_at: AT, ..NewInode::default() }],
                ..Edit::default()
            }),
        ),
        (
            "horizon",
            Op::Forget(Horizon {
                before: AT,
                root: 77,
                path: b"/d".to_vec(),
                named: encode_ids([77, 300].into_iter()),
                nameless: encode_ids([9].into_iter()),
                ..Horizon::default()
            }),
        ),
        (
            "horizon_of_owners",
            Op::Forget(Horizon {
                before: AT,
                root: 77,
                named: encode_ids([77].into_iter()),
                with_snapshots: true,
                owners: vec![OwnedInodes { uid: 1000, inodes: encode_ids([77].into_iter()) }],
                sessions: vec![ForgottenSession { id: 42, uid: 1000 }],
                ..Horizon::default()
            }),
        ),
        ("format", Op::Format(Format { chunk_bytes: 64 << 20, chain_count: 8, uid: 0, gid: 0, mode: 0o755 })),
    ]
}

fn lock_range() -> LockRange {
    LockRange { inode: 77, owner: 8, kind: LockKind::Exclusive as i32, start: 10, end: 19, pid: 1234 }
}

fn requests() -> Vec<(&'static str, Request)> {
    let (target, view) = (file(), past());
    vec![
        (
            "hello",
            Request::Hello(Hello {
                software: "frieze/0.1.0".into(),
                key_name: "laptop".into(),
                nonce: vec![7; 32],
                cluster: "00ff".into(),
                node: 0,
            }),
        ),
        ("hello-of-a-node", Request::Hello(Hello { node: 3, ..Hello::default() })),
        ("prove", Request::Prove(Prove { mac: vec![8; 32] })),
        ("ping", Request::Ping(Ping {})),
        ("stat", Request::Stat(Stat { target: target.clone(), view, ..Stat::default() })),
        (
            "list",
            Request::List(List {
                target: target.clone(),
                view,
                after: b"m".to_vec(),
                count_max: 500,
                with_attrs: true,
                by_handle: true,
            }),
        ),
        ("read_link", Request::ReadLink(ReadLink { target: target.clone(), view })),
        ("access", Request::Access(Access { target: target.clone(), view, mask: 6 })),
        ("get_xattr", Request::GetXattr(GetXattr { target: target.clone(), view, name: b"user.c".to_vec() })),
        ("open", Request::Open(Open { target: target.clone(), view: View::NOW, read: true, write: true, made_at: AT })),
        (
            "read",
            Request::Read(Read {
                capability: vec![1, 2, 3],
                offset: 1 << 40,
                len: 1 << 20,
                in_steps: true,
                ..Read::default()
            }),
        ),
        (
            "write",
            Request::Write(Write {
                capability: vec![1, 2, 3],
                offset: 4096,
                append: true,
                durability: Durability::Sync as i32,
                uid: 1000,
            }),
        ),
        ("sync", Request::Sync(Sync { inode: 77 })),
        ("seek", Request::Seek(Seek { capability: vec![1, 2, 3], offset: 9, data: true })),
        (
            "txn",
            Request::Txn(Txn {
                durability: Durability::Sync as i32,
                op: Some(Op::Grant(Grant { inode: 1, first: 0, count: 1 })),
            }),
        ),
        ("now", Request::Now(Now { name: "last-whole".into() })),
        ("snapshots.page", Request::Snapshots(Snapshots { with_bytes: false, after: "s".into(), count_max: 2 })),
        ("snapshots", Request::Snapshots(Snapshots { with_bytes: true, after: String::new(), count_max: 0 })),
        ("status", Request::Status(Status {})),
        ("clone", Request::Clone(CloneTree { source: file(), at: AT, target: file(), dry_run: true })),
        ("remove_tree", Request::RemoveTree(RemoveTree { target: file(), dry_run: true })),
        ("join_files", Request::JoinFiles(JoinFiles { target: vec![1, 2, 3], sources: vec![file(), file()] })),
        ("restore", Request::Restore(Restore { target: file(), at: AT, delete: true, dry_run: true })),
        (
            "forget.with_snapshots",
            Request::Forget(Forget { target: file(), before: AT, dry_run: false, with_snapshots: true }),
        ),
        ("forget", Request::Forget(Forget { target: file(), before: AT, dry_run: true, with_snapshots: false })),
        (
            "scrub",
            Request::Scrub(Scrub { action: ScrubAction::Start as i32, bytes_per_s: 64 << 20, with_findings: true }),
        ),
        (
            "undo",
            Request::Undo(Undo {
                target: file(),
                sessions: vec![AT, 9],
                uid: Some(0),
                after: 7,
                upto: AT,
                dry_run: true,
            }),
        ),
        (
            "copy_range",
            Request::CopyRange(CopyRange {
                source: vec![1, 2],
                source_offset: 3,
                target: vec![4],
                target_offset: 5,
                len: 1 << 40,
                also: Vec::new(),
            }),
        ),
        (
            "copy_ranges",
            Request::CopyRange(CopyRange {
                source: vec![1, 2],
                source_offset: 0,
                target: vec![4],
                target_offset: 5,
                len: 6,
                also: vec![CopyRange { source: vec![1, 2], source_offset: 1 << 16, ..CopyRange::default() }],
            }),
        ),
        ("recalls", Request::Recalls(Recalls { acked: 3, life: 9, list: 2, open: vec![7, 300] })),
        ("lock", Request::Lock(Lock { range: lock_range(), wait: 5, again: true })),
        ("test_lock", Request::TestLock(TestLock { range: lock_range() })),
        ("cancel_lock", Request::CancelLock(CancelLock { wait: 5 })),
        (
            "punch",
            Request::Punch(Punch {
                capability: vec![1, 2, 3],
                offset: 4096,
                len: 1 << 50,
                durability: Durability::Sync as i32,
            }),
        ),
        ("diff", Request::Diff(Diff { target: target.clone(), from: AT, to: AT + 1, skip: 3, count_max: 10 })),
        ("last_seen", Request::LastSeen(LastSeen { path: b"/a/b".to_vec() })),
        ("deleted", Request::Deleted(Deleted { target: target.clone(), view, after: b"m".to_vec(), count_max: 10 })),
        ("sessions", Request::Sessions(Sessions { since: AT, after: 7, count_max: 10 })),
        ("usage", Request::Usage(Usage { target, view, after: b"m".to_vec(), count_max: 10 })),
    ]
}

fn forgotten() -> ForgottenHistory {
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

fn session() -> SessionInfo {
    SessionInfo { id: 42, uid: 1000, command: "fio".into(), host: "h1".into(), ended: AT, last: AT - 1, hidden: false }
}

fn difference() -> Difference {
    Difference {
        before: Some(side()),
        after: Some(side()),
        flags: CONTENT | MODE | OWNER | TIMES | XATTRS | REPLACED,
        stamp: AT,
        session: 42,
        uid: 1000,
        spans: vec![ChangedSpan { offset: 4096, len: 10 }],
        more_spans: true,
    }
}

fn gone() -> DeletedObject {
    DeletedObject { was: side(), stamp: AT, session: 42, uid: 1000, moved_to: b"/c".to_vec() }
}

fn replies() -> Vec<(&'static str, Reply)> {
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
        ("read", Reply::Read(ReadReply { end_of_file: true, answered: answered(), crc_behind: true })),
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
        ("last_seen", Reply::LastSeen(LastSeenReply { at: AT, was: gone(), sessions: vec![session()] })),
        (
            "deleted",
            Reply::Deleted(DeletedReply { names: vec![gone()], next: b"n".to_vec(), sessions: vec![session()] }),
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
                })),
                last_whole: 26,
                troubles: Vec::new(),
            })),
        ),
        ("punch", Reply::Punch(PunchReply { stamp: AT, upto: 1 << 40 })),
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

fn full_header() -> FrameHeader {
    FrameHeader {
        kind: FrameKind::Refusal,
        body_len: 0x0001_0203,
        payload_len: 0x0004_0506,
        request_id: 0x1112_1314_1516_1718,
        session: SessionId(0x2122_2324_2526_2728),
        seq: Seq(0x3132_3334_3536_3738),
        acked: Seq(0x4142_4344_4546_4748),
        epoch: ChainEpoch(0x5152_5354_5556_5758),
        hlc: Hlc(0x6162_6364_6566_6768),
        body_crc: 0x7172_7374,
        payload_crc: 0x8182_8384,
        holds: Holds { names_ms: 0x9192, files_ms: 0x9394 },
    }
}

/// Checks `value` against its line, in both directions.
struct Golden {
    kept: BTreeMap<String, Vec<u8>>,
    now: String,
    wrong: Vec<String>,
}

impl Golden {
    fn open() -> Golden {
        let text = std::fs::read_to_string(path()).unwrap_or_default();
        let kept = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
            let (name, hex) = line.split_once(' ')?;
            let bytes = (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap());
            Some((name.to_owned(), bytes.collect()))
        });
        Golden { kept: kept.collect(), now: String::new(), wrong: Vec::new() }
    }

    fn message<M: Message + Default + PartialEq + Debug>(&mut self, name: String, value: &M) {
        let bytes = value.encode_to_vec();
        if let Some(kept) = self.kept.get(&name) {
            match M::decode(&kept[..]) {
                Ok(read) if read == *value => {}
                other => self.wrong.push(format!("{name}: the kept bytes read as {other:?}")),
            }
        }
        self.bytes(name, &bytes);
    }

    fn bytes(&mut self, name: String, bytes: &[u8]) {
        match self.kept.get(&name) {
            Some(kept) if kept == bytes => {}
            Some(_) => self.wrong.push(format!("{name}: other bytes than were kept")),
            None => self.wrong.push(format!("{name}: no bytes were kept")),
        }
        let _ = write!(self.now, "{name} ");
        bytes.iter().for_each(|b| {
            let _ = write!(self.now, "{b:02x}");
        });
        self.now.push('\n');
    }

    fn finish(self) {
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            let head = "# The bytes of every message; see tests/golden.rs. A changed line is a new protocol version.\n";
            std::fs::write(path(), head.to_owned() + &self.now).unwrap();
            return;
        }
        assert!(self.wrong.is_empty(), "{}\nUPDATE_EXPECT=1 keeps the new bytes", self.wrong.join("\n"));
        assert_eq!(self.kept.len(), self.now.lines().count(), "a message that was kept is no longer tried");
    }
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/testdata/golden.txt")
}

#[test]
fn every_message_reads_its_kept_bytes_and_writes_the_same() {
    let mut golden = Golden::open();
    golden.bytes("header".into(), &full_header().encode());
    for (name, request) in requests().into_iter().chain(logs::requests(&file(), past())).chain(cluster::requests()) {
        golden.message(format!("request.{name}"), &RequestBody { caller: Some(caller()), request: Some(request) });
    }
    for (name, reply) in replies().into_iter().chain(logs::replies()).chain(cluster::replies()) {
        golden.message(format!("reply.{name}"), &ReplyBody { reply: Some(reply) });
    }
    for (name, message) in peers::messages().into_iter().chain(metalog::messages()) {
        golden.message(format!("told.{name}"), &PeerBody { message: Some(message) });
    }
    golden.message("refusal".into(), &Refusal { reason: Reason::NoSpace as u32, message: "full".into() });
    for (name, op) in ops() {
        let transaction =
            Transaction { session: 42, seq: 7, acked: 5, caller: caller(), must_see: AT, op: Some(op.clone()) };
        golden.message(format!("op.{name}"), &transaction);
        // As a client sends it: the same tags in another envelope.
        golden.message(format!("txn.{name}"), &Txn { durability: 0, op: Some(op) });
    }
    let transactions = vec![
        Transaction {
            session: 42,
            seq: 7,
            acked: 5,
            caller: caller(),
            must_see: AT,
            op: ops().pop().map(|(_, op)| op)
        };
        2
    ];
    golden.message("batch".into(), &Batch { transactions, ids_above: 0, decisions: vec![] });
    let all: Vec<_> =
        plane::decisions().into_iter().map(|(_, kind)| control::DecisionProto { kind: Some(kind) }).collect();
    golden.message("batch.decisions".into(), &Batch { transactions: vec![], ids_above: 9, decisions: all });
    let outcome = Outcome {
        stamp: AT,
        id: 77,
        existed: true,
        reason: Reason::Exists as u32,
        message: "a/b.txt exists".into(),
        replaced: 0,
    };
    golden.message("outcome".into(), &outcome);
    golden.message("outcome.replaced".into(), &Outcome { stamp: AT, id: 77, replaced: 78, ..Outcome::default() });
    for (name, kind) in plane::decisions().into_iter().chain(plane::later_decisions()) {
        golden.message(format!("decision.{name}"), &control::DecisionProto { kind: Some(kind) });
    }
    golden.message("control_state".into(), &plane::control_state());
    let mut behind = plane::control_state();
    (behind.chains[0].behind_from, behind.chains[0].behind_to) = (AT, AT + 9);
    golden.message("control_state_behind".into(), &behind);
    let mut away = plane::control_state();
    away.nodes[0].offline_since = AT;
    golden.message("control_state_away".into(), &away);
    let former = control::StoredFormer { cluster: vec![0xef; 16], node: 2, at: AT };
    golden.message(
        "control_state_recovered".into(),
        &control::StoredCluster { former: vec![former], ..plane::control_state() },
    );
    golden.finish();
}

#[test]
fn a_header_lies_as_its_table_says() {
    let header = full_header();
    let bytes = header.encode();
    let expect: Vec<u8> = [
        &b"FRZ1"[..],
        &[3, PROTOCOL_VERSION, 0, 0],
        &[0x03, 0x02, 0x01, 0x00],
        &[0x06, 0x05, 0x04, 0x00],
        &[0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11],
        &[0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21],
        &[0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31],
        &[0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42, 0x41],
        &[0x58, 0x57, 0x56, 0x55, 0x54, 0x53, 0x52, 0x51],
        &[0x68, 0x67, 0x66, 0x65, 0x64, 0x63, 0x62, 0x61],
        &[0x74, 0x73, 0x72, 0x71],
        &[0x84, 0x83, 0x82, 0x81],
        &[0x92, 0x91],
        &[0x94, 0x93],
    ]
    .concat();
    assert_eq!(bytes[..76], expect[..]);
    assert_eq!(bytes[76..], crc32c(&expect).to_le_bytes());
    assert_eq!(FrameHeader::decode(&bytes).unwrap(), header);
}

#[test]
fn every_flipped_bit_of_a_header_is_noticed() {
    let bytes = full_header().encode();
    for bit in 0..FRAME_HEADER_BYTES * 8 {
        let mut flipped = bytes;
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(FrameHeader::decode(&flipped).unwrap_err().reason, Reason::BadFrame, "bit {bit}");
    }
}

#[test]
fn a_header_of_another_version_names_both() {
    let mut bytes = full_header().encode();
    bytes[5] = PROTOCOL_VERSION + 1;
    let crc = crc32c(&bytes[..76]);
    bytes[76..].copy_from_slice(&crc.to_le_bytes());
    let fault = FrameHeader::decode(&bytes).unwrap_err();
    assert_eq!(fault.reason, Reason::WrongVersion);
    assert!(fault.message.contains("version 2") && fault.message.contains("this process 1"), "{fault}");
}

#[test]
fn a_length_beyond_its_bound_is_refused_before_anything_is_read() {
    for (body_len, payload_len, is_good) in
        [(BODY_BYTES_MAX, PAYLOAD_BYTES_MAX, true), (BODY_BYTES_MAX + 1, 0, false), (0, PAYLOAD_BYTES_MAX + 1, false)]
    {
        let bytes = FrameHeader { body_len, payload_len, ..FrameHeader::of(FrameKind::Request) }.encode();
        assert_eq!(FrameHeader::decode(&bytes).is_ok(), is_good, "{body_len} {payload_len}");
    }
}

#[test]
fn a_field_that_a_newer_peer_added_is_passed_over() {
    let mut bytes = StatReply { attr: attr(), answered: answered() }.encode_to_vec();
    bytes.extend([0xfa, 0x3f, 3, b'n', b'e', b'w']); // field 1023, three bytes
    assert_eq!(StatReply::decode(&bytes[..]).unwrap(), StatReply { attr: attr(), answered: answered() });
}

#[test]
fn an_unknown_request_reads_as_none_and_not_as_another() {
    // Field 29, an empty message: a request of a newer client.
    assert_eq!(RequestBody::decode(&[0xea, 0x01, 0][..]).unwrap().request, None);
    assert_eq!(ReplyBody::decode(&[0xea, 0x01, 0][..]).unwrap().reply, None);
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic_a_decoder(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = RequestBody::decode(&bytes[..]);
        let _ = ReplyBody::decode(&bytes[..]);
        let _ = Refusal::decode(&bytes[..]);
        let _ = PeerBody::decode(&bytes[..]);
        let _ = Batch::decode(&bytes[..]);
        let _ = Outcome::decode(&bytes[..]);
        let _ = control::StoredCluster::decode(&bytes[..]);
        if let Some(header) = bytes.first_chunk::<FRAME_HEADER_BYTES>() {
            let _ = FrameHeader::decode(header);
        }
    }

    #[test]
    fn a_changed_message_never_panics_a_decoder(
        which in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        to in any::<u8>(),
    ) {
        let requests = requests();
        let (_, request) = requests[which.index(requests.len())].clone();
        let mut bytes = RequestBody { caller: Some(caller()), request: Some(request) }.encode_to_vec();
        let at = at.index(bytes.len());
        bytes[at] = to;
        let _ = RequestBody::decode(&bytes[..]);
    }
}
