//! Transactions of all kinds, most of them about what is there.

use std::collections::VecDeque;

use frieze_base::{InodeId, Rng, SessionId};
use frieze_hlc::Hlc;
use frieze_namespace::{MemoryHistory, Namespace};
use frieze_wire::acl::{Acl, AclNamedEntry};
use frieze_wire::edit::{Edit, EditKind, NEW, NewInode, SetName, SetState, StageEdit, StagedParts, Xattr};
use frieze_wire::forget::{Horizon, encode_ids};
use frieze_wire::message::FileKind;
use frieze_wire::quota::QUOTA_XATTR;
use frieze_wire::txn::{
    Caller, CloseSession, DeleteSnapshot, EraseSessions, Grant, Link, Make, MakeKind, MakeNameless, MakeSnapshot, Op,
    OpenSession, Remove, RemoveXattr, Rename, SetAcl, SetAttr, SetXattr, Settle, SettleAll, Special, StopWriting,
    Target, TimeValue, Transaction,
};

/// A name that there is.
#[derive(Clone, Debug)]
struct ListedName {
    path: String,
    parent: InodeId,
    id: InodeId,
    kind: FileKind,
}

/// Draws transactions against a state.
pub(super) struct TxnDraw<'a> {
    pub(super) rng: &'a mut Rng,
    pub(super) namespace: &'a Namespace,
    pub(super) history: &'a MemoryHistory,
    pub(super) now: Hlc,
    /// The number of the next staged edit.
    pub(super) requests: &'a mut u64,
}

const NAMES: &[&str] = &["a", "b", "c", "d", "e"];
/// Names that are looked for in a tree, at most.
const FOUND_MAX: usize = 120;
const FIFO: u32 = 0o010_000;
const XATTR: &[u8] = b"user.a";

impl TxnDraw<'_> {
    /// A transaction, or several that come one after the other.
    pub(super) fn draw(&mut self) -> VecDeque<Transaction> {
        let sessions: Vec<SessionId> = self.namespace.sessions().map(|(id, _)| id).collect();
        let of_server = |op: Op| VecDeque::from([txn(SessionId(0), Caller::root(), op)]);
        if sessions.is_empty() || self.rng.chance(60) {
            let (command, host) = ("test".to_owned(), "here".to_owned());
            return of_server(Op::OpenSession(OpenSession { command, host, uid: 0, keeps: false }));
        }
        let session = *self.rng.choose(&sessions);
        if self.rng.chance(120) {
            let before = self.rng.between(1, self.now.0);
            return of_server(Op::EraseSessions(EraseSessions { before }));
        }
        let caller = match self.rng.below(3) {
            0 => Caller { uid: 7, gid: 7, groups: Vec::new() },
            _ => Caller::root(),
        };
        let names = self.names();
        let op = match self.rng.below(64) {
            0..16 => self.make(&names),
            16..18 => Op::MakeNameless(MakeNameless { beside: self.file(&names).0 }),
            18..21 => {
                let file = Target { follow: self.rng.chance(2), ..self.target(&names) };
                Op::Link(Link { file, name: self.name(&names) })
            }
            21..28 => Op::Remove(Remove { target: self.name(&names), directory: self.rng.chance(3) }),
            28..37 => {
                let flags = *self.rng.choose(&[0, 0, 0, 1, 2]);
                Op::Rename(Rename { from: self.name(&names), to: self.name(&names), flags })
            }
            37..42 => self.set_attr(&names),
            42 if self.rng.chance(3) => {
                let directories = names.iter().filter(|found| found.kind == FileKind::Directory);
                let ids: Vec<InodeId> = directories.map(|found| found.id).collect();
                let target = Target { base: self.rng.choose(&ids).0, path: Vec::new(), follow: true };
                let value = match self.rng.below(4) {
                    0 => String::new(),
                    1 => format!("bytes={}", self.rng.below(20_000)),
                    _ => format!("files={}", self.rng.between(1, 20)),
                };
                Op::SetXattr(SetXattr { target, name: QUOTA_XATTR.to_vec(), value: value.into(), flags: 0 })
            }
            42..44 => Op::SetXattr(SetXattr {
                target: self.target(&names),
                name: XATTR.to_vec(),
                value: vec![self.rng.below(9) as u8],
                flags: self.rng.below(3) as u32,
            }),
            44 if self.rng.chance(2) => self.set_acl(&names),
            44 => Op::RemoveXattr(RemoveXattr { target: self.target(&names), name: XATTR.to_vec() }),
            45..49 => {
                let inode = self.file(&names).0;
                let grant = Grant { inode, first: self.rng.below(3) as u32, count: self.rng.between(1, 3) as u32 };
                if self.rng.chance(3) { Op::GrantAppend(grant) } else { Op::Grant(grant) }
            }
            49..52 => Op::Settle(self.settle(session, &names)),
            52 => {
                let files = (0..self.rng.between(1, 3)).map(|_| self.settle(session, &names)).collect();
                Op::SettleAll(SettleAll { files })
            }
            53 => {
                let inodes = (0..2).map(|_| self.file(&names).0).collect();
                Op::StopWriting(StopWriting { inodes })
            }
            54 => {
                let name = (*self.rng.choose(NAMES)).to_owned();
                match self.rng.chance(2) {
                    true => Op::MakeSnapshot(MakeSnapshot { name, at: 0, count_max: 2 }),
                    false => Op::DeleteSnapshot(DeleteSnapshot { name }),
                }
            }
            55 if self.rng.chance(3) => {
                let id = self.file(&names);
                let named = encode_ids([id.0].into_iter());
                let (before, root) = (self.rng.between(1, self.now.0), id.0);
                Op::Forget(Horizon { before, root, named, path: b"/f".to_vec(), ..Horizon::default() })
            }
            56 if self.rng.chance(4) => {
                let granted = self.namespace.granted(session);
                let settled = granted.iter().map(|id| self.settle_of(*id, false)).collect();
                Op::CloseSession(CloseSession { settled, only_stopped: self.rng.chance(3) })
            }
            _ => return self.edit(session, caller, &names),
        };
        VecDeque::from([txn(session, caller, op)])
    }

    fn names(&self) -> Vec<ListedName> {
        let root =
            ListedName { path: String::new(), parent: InodeId::ROOT, id: InodeId::ROOT, kind: FileKind::Directory };
        let mut found = vec![root];
        let mut next = 0;
        while next < found.len() && found.len() < FOUND_MAX {
            let ListedName { path, id, kind, .. } = found[next].clone();
            next += 1;
            if kind != FileKind::Directory {
                continue;
            }
            let listed = self.namespace.list(self.history, id, None, b"", FOUND_MAX).unwrap_or_default();
            found.extend(listed.into_iter().map(|entry| ListedName {
                path: format!("{path}/{}", String::from_utf8_lossy(&entry.name)),
                parent: id,
                id: entry.inode,
                kind: entry.kind,
            }));
        }
        found
    }

    /// A name that is there, most often.
    fn target(&mut self, names: &[ListedName]) -> Target {
        let found = self.rng.choose(names).clone();
        let follow = !self.rng.chance(3);
        match self.rng.below(6) {
            0 => Target { follow, ..self.name(names) },
            1 => Target { base: found.id.0, path: Vec::new(), follow },
            _ => Target { follow, ..Target::path(format!("{}/", found.path).trim_end_matches('/')) },
        }
    }

    /// A name that may be there.
    fn name(&mut self, names: &[ListedName]) -> Target {
        let found = self.rng.choose(names).clone();
        let name = *self.rng.choose(NAMES);
        let mut target = match self.rng.below(4) {
            0 if !found.path.is_empty() => Target::path(found.path.as_str()),
            1 if found.kind == FileKind::Directory => Target { base: found.id.0, ..Target::path(name) },
            _ => {
                let below = if found.kind == FileKind::Directory { &found.path } else { "" };
                Target::path(format!("{below}/{name}").as_str())
            }
        };
        target.follow = false;
        target
    }

    fn file(&mut self, names: &[ListedName]) -> InodeId {
        let files: Vec<InodeId> =
            names.iter().filter(|found| found.kind == FileKind::File).map(|found| found.id).collect();
        match files.is_empty() || self.rng.chance(20) {
            true => InodeId::file(self.rng.below(3) as u16, self.rng.between(1, 4)),
            false => *self.rng.choose(&files),
        }
    }

    fn make(&mut self, names: &[ListedName]) -> Op {
        let target = self.name(names);
        let kind = match self.rng.below(12) {
            0..4 => MakeKind::Directory(true),
            4 => {
                let found = self.rng.choose(names).clone();
                MakeKind::Symlink(if found.path.is_empty() { b"/".to_vec() } else { found.path.into_bytes() })
            }
            5 => MakeKind::Special(Special { file_type: FIFO, rdev: 0 }),
            _ => MakeKind::File(self.rng.chance(2)),
        };
        let mode = *self.rng.choose(&[0o755, 0o777, 0o700, 0o1777, 0o2775]);
        let (or_open, replaces) = *self.rng.choose(&[(false, false), (true, false), (false, true)]);
        Op::Make(Make { target, mode, or_open, replaces, kind: Some(kind), ..Make::default() })
    }

    fn set_attr(&mut self, names: &[ListedName]) -> Op {
        let mut set = SetAttr { target: self.target(names), ..SetAttr::default() };
        match self.rng.below(5) {
            0 | 1 => set.mode = Some(*self.rng.choose(&[0o755, 0o777, 0o700, 0o1777, 0o500])),
            2 => set.uid = Some(self.rng.below(2) as u32 * 7),
            3 => set.size = Some(self.rng.below(9000)),
            _ => set.mtime = Some(TimeValue { now: self.rng.chance(2), ns: self.rng.below(1 << 40) as i64 }),
        }
        Op::SetAttr(set)
    }

    fn set_acl(&mut self, names: &[ListedName]) -> Op {
        let named = AclNamedEntry { id: 7, permissions: self.rng.below(8) as u8 };
        let list = Acl { owner: 7, users: vec![named], group: 5, groups: Vec::new(), mask: Some(7), other: 5 };
        let list = Some(if self.rng.chance(4) { Vec::new() } else { list.encode() });
        let target = self.target(names);
        match self.rng.chance(2) {
            true => Op::SetAcl(SetAcl { target, access: list, ..SetAcl::default() }),
            false => Op::SetAcl(SetAcl { target, default_list: list, ..SetAcl::default() }),
        }
    }

    fn settle(&mut self, session: SessionId, names: &[ListedName]) -> Settle {
        let granted = self.namespace.granted(session);
        let id = if granted.is_empty() { self.file(names) } else { *self.rng.choose(&granted) };
        let keeps = self.rng.chance(4);
        self.settle_of(id, keeps)
    }

    fn settle_of(&mut self, id: InodeId, keep_grant: bool) -> Settle {
        let inode = self.namespace.current(id);
        let written = inode.as_ref().map_or(Hlc::ZERO, |inode| inode.size_as_of.max(inode.mtime_stamp)).next();
        match (self.rng.chance(2), inode) {
            // Nothing was written under the grant.
            (true, Some(inode)) => {
                Settle { inode: id.0, keep_grant, stamp: inode.from.0, size: inode.size, ..Settle::default() }
            }
            _ => Settle {
                inode: id.0,
                keep_grant,
                stamp: written.0,
                size: self.rng.below(9000),
                mtime_ns: self.rng.below(1 << 40) as i64,
                ..Settle::default()
            },
        }
    }

    /// An edit, whole or in parts.
    fn edit(&mut self, session: SessionId, caller: Caller, names: &[ListedName]) -> VecDeque<Transaction> {
        let found = self.rng.choose(names).clone();
        let below: Vec<ListedName> = names
            .iter()
            .filter(|other| other.path == found.path || other.path.starts_with(&format!("{}/", found.path)))
            .filter(|other| !other.path.is_empty())
            .cloned()
            .collect();
        let edit = match self.rng.below(4) {
            0 => self.removal(&below),
            3 => self.return_of(&found),
            1 => self.change(&below),
            _ => self.copy(&found, &below),
        };
        if self.rng.chance(2) {
            return VecDeque::from([txn(session, caller, Op::Edit(edit))]);
        }
        *self.requests += 1;
        let request = *self.requests;
        let (kind, new) = (edit.kind, edit.new.len() as u64);
        let (parts, rest) = edit.divided(8);
        let plan = self.now.0;
        let mut all = VecDeque::new();
        let count = parts.len() as u32;
        for (part, edit) in (0..).zip(parts) {
            // One that is missing.
            if self.rng.chance(30) {
                continue;
            }
            let stage = StageEdit { request, plan, part, edit, former: 0, kind };
            all.push_back(txn(session, Caller::root(), Op::StageEdit(stage)));
        }
        let staged = (count > 0).then_some(StagedParts { request, plan, count, new });
        all.push_back(txn(session, caller, Op::Edit(Edit { staged, ..rest })));
        all
    }

    fn removal(&mut self, below: &[ListedName]) -> Edit {
        let names = below.iter().map(|found| self.set_name(found, 0)).collect();
        Edit { kind: EditKind::Remove as i32, names, ..Edit::default() }
    }

    /// A file gets a name again, if it has lost its last.
    fn return_of(&mut self, found: &ListedName) -> Edit {
        let directory = if found.kind == FileKind::Directory { found.id } else { found.parent };
        let (name, count) = (*self.rng.choose(NAMES), self.rng.between(1, 8));
        let inode = InodeId::file(directory.slot(), count).0;
        let expect = self.entry(directory, name).unwrap_or_default();
        let names = vec![SetName { directory: directory.0, name: name.into(), expect, inode }];
        Edit { kind: EditKind::Undo as i32, names, ..Edit::default() }
    }

    fn set_name(&self, found: &ListedName, inode: u64) -> SetName {
        let name = found.path.rsplit('/').next().unwrap_or_default();
        SetName { directory: found.parent.0, name: name.into(), expect: found.id.0, inode }
    }

    fn change(&mut self, below: &[ListedName]) -> Edit {
        let mut states: Vec<SetState> = Vec::new();
        for found in below {
            let from = self.namespace.current(found.id).map_or(0, |inode| inode.from.0);
            let is_there = states.iter().any(|state| state.inode == found.id.0);
            if !is_there && found.kind != FileKind::Symlink {
                let mode = Some(*self.rng.choose(&[0o755, 0o700, 0o777]));
                let xattrs = match self.rng.chance(4) {
                    true => vec![Xattr { name: XATTR.to_vec(), value: Some(b"e".to_vec()) }],
                    false => Vec::new(),
                };
                states.push(SetState { inode: found.id.0, expect: from, mode, xattrs, ..SetState::default() });
            }
        }
        Edit { kind: EditKind::Change as i32, states, ..Edit::default() }
    }

    /// A tree of new inodes beside one that is there.
    fn copy(&mut self, found: &ListedName, below: &[ListedName]) -> Edit {
        let mut edit = Edit { kind: EditKind::Clone as i32, keeps_times: self.rng.chance(2), ..Edit::default() };
        for (number, of) in (0u64..).zip(below) {
            let directory = below.iter().position(|other| other.id == of.parent && other.kind == FileKind::Directory);
            let directory = match directory {
                Some(index) if of.path != found.path => index as u64 | NEW,
                _ => of.parent.0,
            };
            let is_top = directory & NEW == 0;
            let name = if is_top { *self.rng.choose(NAMES) } else { of.path.rsplit('/').next().unwrap_or_default() };
            let parent = InodeId(directory);
            let there = is_top.then(|| self.entry(parent, name)).flatten();
            let (kind, mode) = (of.kind as i32, 0o755);
            let target = if of.kind == FileKind::Symlink { b"/".to_vec() } else { Vec::new() };
            edit.new.push(NewInode { kind, mode, chunk_bytes: 4096, chain_count: 1, target, ..NewInode::default() });
            let expect = there.unwrap_or_default();
            edit.names.push(SetName { directory, name: name.into(), expect, inode: number | NEW });
        }
        edit
    }

    fn entry(&self, directory: InodeId, name: &str) -> Option<u64> {
        let listed = self.namespace.list(self.history, directory, None, b"", FOUND_MAX).unwrap_or_default();
        listed.into_iter().find(|entry| entry.name == name.as_bytes()).map(|entry| entry.inode.0)
    }
}

fn txn(session: SessionId, caller: Caller, op: Op) -> Transaction {
    Transaction { session: session.0, seq: 0, acked: 0, caller, must_see: 0, op: Some(op) }
}
