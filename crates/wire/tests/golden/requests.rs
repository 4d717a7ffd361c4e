//! Requests and transactions, one of each kind.

use frieze_base::InodeId;
use frieze_wire::RemoteMemory;
use frieze_wire::acl::Acl;
use frieze_wire::edit::*;
use frieze_wire::fabric::{ConnectFabric, FabricOffer};
use frieze_wire::forget::{Forget, ForgottenSession, Horizon, OwnedInodes, encode_ids};
use frieze_wire::holding::*;
use frieze_wire::message::*;
use frieze_wire::mode::{ModeAction, ModeChange};
use frieze_wire::retention::*;
use frieze_wire::scrub::*;
use frieze_wire::timeline::*;
use frieze_wire::txn::*;

use super::{AT, edit, file, past, settle};

/// A slot.
fn memory() -> RemoteMemory {
    RemoteMemory { address: 0x7f00_0000_1000, key: 0x0102_0304_0506_0708, len: 1 << 20 }
}

pub(super) fn ops() -> Vec<(&'static str, Op)> {
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
        ("raise_marks", Op::RaiseMarks(RaiseMarks { closed: AT })),
        (
            "expire_removed",
            Op::ExpireRemoved(ExpireRemoved { inodes: encode_ids([76, 77].into_iter()), removed_upto: AT }),
        ),
        (
            "edit.policy",
            Op::Edit(Edit {
                kind: EditKind::Retain as i32,
                policy: "all 1h".into(),
                new: vec![NewInode { regime: 3, ..NewInode::default() }],
                states: vec![SetState { inode: 77, gets_policy: true, ..SetState::default() }],
                ..Edit::default()
            }),
        ),
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
        (
            "edit_staged",
            Op::Edit(Edit {
                kind: EditKind::Remove as i32,
                staged: Some(StagedParts { request: 9, plan: AT, count: 41, new: 3 }),
                ..Edit::default()
            }),
        ),
        (
            "stage_edit",
            Op::StageEdit(StageEdit {
                request: 9,
                plan: AT,
                part: 40,
                edit: b"part".to_vec(),
                former: AT - 1,
                kind: EditKind::Remove as i32,
            }),
        ),
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

pub(super) fn lock_range() -> LockRange {
    LockRange { inode: 77, owner: 8, kind: LockKind::Exclusive as i32, start: 10, end: 19, pid: 1234 }
}

pub(super) fn requests() -> Vec<(&'static str, Request)> {
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
                ..Write::default()
            }),
        ),
        (
            "read.into_a_slot",
            Request::Read(Read { offset: 1 << 40, len: 1 << 20, dest_slot: Some(memory()), ..Read::default() }),
        ),
        (
            "write.from_a_slot",
            Request::Write(Write { offset: 4096, src_slot: Some(memory()), src_crc: 0x0102_0304, ..Write::default() }),
        ),
        (
            "connect_fabric",
            Request::ConnectFabric(ConnectFabric {
                offer: FabricOffer { provider: "tcp".into(), protocol: 11, address: vec![2, 0, 9] },
                memory: memory(),
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
        ("now", Request::Now(Now { name: "last-whole".into(), nearest: 0 })),
        ("now.nearest", Request::Now(Now { name: String::new(), nearest: AT })),
        ("snapshots.page", Request::Snapshots(Snapshots { with_bytes: false, after: "s".into(), count_max: 2 })),
        ("snapshots", Request::Snapshots(Snapshots { with_bytes: true, after: String::new(), count_max: 0 })),
        ("status", Request::Status(Status {})),
        ("clone", Request::Clone(CloneTree { source: file(), at: AT, target: file(), dry_run: true })),
        ("retention", Request::Retention(Retention { target: file(), at: AT, preview: "all 1h".into() })),
        (
            "change_tree.policy",
            Request::ChangeTree(ChangeTree { target: file(), policy: Some("all 1h".into()), ..ChangeTree::default() }),
        ),
        ("remove_tree", Request::RemoveTree(RemoveTree { target: file(), dry_run: true })),
        (
            "change_tree",
            Request::ChangeTree(ChangeTree {
                target: file(),
                modes: vec![
                    ModeChange {
                        action: ModeAction::Set as i32,
                        who: 0o4700,
                        without: 0o22,
                        bits: 0o644,
                        if_any_executes: true,
                        copy_of: None,
                        exact: true,
                    },
                    ModeChange { copy_of: Some(6), ..ModeChange::default() },
                ],
                uid: Some(1),
                gid: Some(2),
                policy: None,
                dry_run: true,
            }),
        ),
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
        ("last_existed", Request::LastExisted(LastExisted { path: b"/a/b".to_vec() })),
        ("deleted", Request::Deleted(Deleted { target: target.clone(), view, after: b"m".to_vec(), count_max: 10 })),
        ("sessions", Request::Sessions(Sessions { since: AT, after: 7, count_max: 10 })),
        ("usage", Request::Usage(Usage { target, view, after: b"m".to_vec(), count_max: 10 })),
    ]
}
