//! A small world for the tests: a namespace, its history, a clock that counts, and everything that was asked.

#![allow(dead_code, clippy::allow_attributes, reason = "each test file uses a part of it")]

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write;

use frieze_base::{InodeId, Reason, SessionId};
use frieze_hlc::Hlc;
use frieze_namespace::{
    ColdFile, ENTRIES, INODES, KeyVersion, LoadedNames, Loss, MemoryHistory, MemoryPieces, Namespace, NoReadSet,
    PackedInodes, PackedNames, VersionHistory, inode_between, is_rewritten,
};
use frieze_wire::edit::{Edit, StageEdit, StagedParts};
use frieze_wire::message::FileKind;
use frieze_wire::txn::{
    Caller, Format, Link, Make, MakeKind, Op, OpenSession, Outcome, Remove, Rename, Special, Target, Transaction,
};
use prost::Message;

pub(crate) const CHUNK_BYTES: u64 = 4096;

pub(crate) fn root() -> Caller {
    Caller::root()
}

pub(crate) fn user(uid: u32, gid: u32, groups: &[u32]) -> Caller {
    Caller { uid, gid, groups: groups.to_vec() }
}

pub(crate) struct NamespaceWorld {
    pub(crate) ns: Namespace,
    pub(crate) history: MemoryHistory,
    pub(crate) stamp: Hlc,
    pub(crate) session: SessionId,
    pub(crate) seq: u64,
    /// Everything applied, with its stamp and outcome.
    pub(crate) log: Vec<(Transaction, Hlc, Outcome)>,
    /// The present at two earlier instants, newer first.
    checkpoints: VecDeque<SavedPresent>,
    /// The next one is taken after so many transactions.
    checkpoint_at: usize,
}

/// The bytes of a present, and its instant.
struct SavedPresent {
    inodes: Vec<Vec<u8>>,
    names: Vec<Vec<u8>>,
    stamp: Hlc,
}

impl SavedPresent {
    fn of(ns: &Namespace, stamp: Hlc) -> SavedPresent {
        let (present, mut saved) = (ns.present(), SavedPresent { inodes: Vec::new(), names: Vec::new(), stamp });
        present.inode_pieces(&mut |piece| {
            saved.inodes.push(piece.to_vec());
            true
        });
        present.name_pieces(&mut |piece| {
            saved.names.push(piece.to_vec());
            true
        });
        saved
    }
}

/// Transactions from one saved present to the next at first; a prime, so that they fall on all kinds of transactions.
const CHECKPOINT_EVERY: usize = 11;

impl NamespaceWorld {
    pub(crate) fn new() -> NamespaceWorld {
        let mut world = NamespaceWorld {
            ns: Namespace::new(),
            history: MemoryHistory::new(),
            stamp: Hlc::first_of_micros(1_000_000),
            session: SessionId(0),
            seq: 0,
            log: Vec::new(),
            checkpoints: VecDeque::new(),
            checkpoint_at: CHECKPOINT_EVERY,
        };
        let format = Format { chunk_bytes: CHUNK_BYTES, chain_count: 8, uid: 0, gid: 0, mode: 0o755 };
        world.raw(SessionId(0), 0, 0, root(), Op::Format(format));
        world.session = world.open_session(0);
        world
    }

    pub(crate) fn open_session(&mut self, uid: u32) -> SessionId {
        let open = OpenSession { command: "test".to_owned(), host: "here".to_owned(), uid, keeps: false };
        SessionId(self.raw(SessionId(0), 0, 0, root(), Op::OpenSession(open)).id)
    }

    /// Applies one transaction a microsecond later.
    pub(crate) fn raw(&mut self, session: SessionId, seq: u64, acked: u64, caller: Caller, op: Op) -> Outcome {
        self.stamp = Hlc::first_of_micros(self.stamp.micros() + 1);
        let txn = Transaction { session: session.0, seq, acked, caller, must_see: 0, op: Some(op) };
        let mut changes = Vec::new();
        let outcome = self.ns.apply(&txn, self.stamp, &mut changes, &NoReadSet);
        // The one version of a session is written again in its place, and that of an inode of which a grant was unused.
        let is_there =
            |change: &KeyVersion| self.history.newest(&change.key, change.stamp).unwrap().map(|(stamp, _)| stamp);
        let is_again = |change: &KeyVersion| is_rewritten(&change.key) || is_there(change) == Some(change.stamp);
        assert!(changes.iter().all(|change| change.stamp == self.stamp || is_again(change)));
        let mut keys: Vec<&[u8]> = changes.iter().map(|change| change.key.as_slice()).collect();
        keys.sort_unstable();
        assert!(keys.windows(2).all(|pair| pair[0] != pair[1]), "one change for each key");
        self.history.commit(&changes);
        self.log.push((txn, self.stamp, outcome.clone()));
        if self.log.len() >= self.checkpoint_at {
            // Longer and longer ones: a present costs as much as all that is there.
            self.checkpoint_at += CHECKPOINT_EVERY.max(self.log.len() / 4);
            self.checkpoints.truncate(1);
            self.checkpoints.push_front(SavedPresent::of(&self.ns, self.stamp));
            self.evict();
        }
        outcome
    }

    /// Everything leaves memory that a checkpoint of now has: later transactions read it again. The bytes that a
    /// checkpoint copies are the same.
    fn evict(&mut self) {
        let before = self.ns.present();
        let (pieces, offsets) = MemoryPieces::of(&before);
        let saved = SavedPresent::of(&self.ns, self.stamp);
        let file = ColdFile::new(Box::new(pieces), self.ns.piece_loads());
        let mut relocation = before.relocate(file, offsets);
        while self.ns.relocate(&mut relocation) {}
        let all = self.ns.names_memory();
        self.ns.begin_eviction();
        while self.ns.evict(0) {}
        let cold = self.ns.names_memory();
        assert_eq!((cold.bytes, cold.cold_bytes), (0, all.bytes + all.cold_bytes), "all of it is cold");
        let again = SavedPresent::of(&self.ns, self.stamp);
        assert!(again.inodes == saved.inodes && again.names == saved.names, "cold bytes are copied as they are");
        assert_eq!(self.ns.names_memory(), cold, "a copy brings nothing into memory");
    }

    /// Every inode that ever was.
    pub(crate) fn inodes(&self) -> Vec<InodeId> {
        let keys = self.history.current().map(|(key, _, _)| key).filter(|key| key[0] == INODES);
        keys.map(|key| InodeId(u64::from_be_bytes(key[1..].try_into().expect("a number")))).collect()
    }

    /// A loss of power took changes of names, and grants among them if `grants`; it is declared now.
    pub(crate) fn lose(&mut self, grants: bool) -> Hlc {
        self.stamp = Hlc::first_of_micros(self.stamp.micros() + 1);
        let mut changes = Vec::new();
        self.ns.lose(Loss { counts_upto: self.ns.numbers().newest() + 10, grants }, self.stamp, &mut changes);
        assert!(changes.iter().all(|change| change.stamp == self.stamp));
        self.history.commit(&changes);
        self.stamp
    }

    /// Stages an edit of the next request in parts of one change. Returns the edit that names them.
    pub(crate) fn stage(&mut self, edit: Edit, plan: u64, former: u64) -> Edit {
        let (new, mut parts) = (edit.new.len() as u64, Vec::new());
        let Edit { brought, new: made, names, states, .. } = edit.clone();
        parts.extend(brought.into_iter().map(|brought| Edit { brought: vec![brought], ..Edit::default() }));
        parts.extend(made.into_iter().map(|new| Edit { new: vec![new], ..Edit::default() }));
        parts.extend(names.into_iter().map(|name| Edit { names: vec![name], ..Edit::default() }));
        parts.extend(states.into_iter().map(|state| Edit { states: vec![state], ..Edit::default() }));
        let (request, count, mut former) = (self.seq + 1, parts.len() as u32, former);
        for (part, of) in (0..).zip(parts) {
            let stage = StageEdit { request, plan, part, edit: of.encode_to_vec(), former, kind: edit.kind };
            former = 0;
            let staged = self.raw(self.session, 0, 0, root(), Op::StageEdit(stage));
            assert_eq!(staged.reason, 0, "{staged:?}");
        }
        let staged = Some(StagedParts { request, plan, count, new });
        Edit { kind: edit.kind, at: edit.at, keeps_times: edit.keeps_times, staged, ..Edit::default() }
    }

    /// Runs an operation of the world's session.
    pub(crate) fn run(&mut self, caller: &Caller, op: Op) -> Result<Outcome, Reason> {
        self.seq += 1;
        let outcome = self.raw(self.session, self.seq, self.seq.saturating_sub(2), caller.clone(), op);
        outcome.into_result().map_err(|fault| fault.reason)
    }

    pub(crate) fn make(&mut self, path: &str, mode: u32, kind: MakeKind) -> Result<InodeId, Reason> {
        let make = Make { target: Target::path(path), mode, or_open: false, kind: Some(kind), ..Make::default() };
        self.run(&root(), Op::Make(make)).map(|outcome| InodeId(outcome.id))
    }

    pub(crate) fn file(&mut self, path: &str) -> InodeId {
        self.make(path, 0o644, MakeKind::File(false)).unwrap()
    }

    pub(crate) fn directory(&mut self, path: &str) -> InodeId {
        self.make(path, 0o755, MakeKind::Directory(true)).unwrap()
    }

    pub(crate) fn remove(&mut self, path: &str, directory: bool) -> Result<Outcome, Reason> {
        self.run(&root(), Op::Remove(Remove { target: Target::path(path), directory }))
    }

    pub(crate) fn rename(&mut self, from: &str, to: &str, flags: u32) -> Result<Outcome, Reason> {
        self.run(&root(), Op::Rename(Rename { from: Target::path(from), to: Target::path(to), flags }))
    }

    pub(crate) fn link(&mut self, file: &str, name: &str) -> Result<Outcome, Reason> {
        self.run(&root(), Op::Link(Link { file: Target::path(file), name: Target::path(name) }))
    }

    pub(crate) fn find(&self, path: &str, at: Option<Hlc>) -> Result<InodeId, Reason> {
        let found = self.ns.resolve(&self.history, &Target::path(path), at, &root(), &NoReadSet);
        found.map(|resolved| resolved.id).map_err(|fault| fault.reason)
    }

    /// Every path with its attributes, as it is or was.
    pub(crate) fn dump(&self, at: Option<Hlc>) -> String {
        dump(&self.ns, &self.history, at)
    }

    /// The namespace as a restart would load it.
    pub(crate) fn reloaded(&self) -> Namespace {
        let (mut ns, mut apart) = (Namespace::new(), LoadedNames::default());
        let keys = || self.history.current();
        let last = keys().map(|(key, _, _)| key).filter(|key| key.first() == Some(&INODES)).last();
        let between = inode_between(last.unwrap_or_default());
        let is_apart =
            |key: &[u8]| key.first() == Some(&ENTRIES) || key.first() == Some(&INODES) && key >= &between[..];
        for (key, stamp, value) in keys().filter(|(key, _, _)| is_apart(key)) {
            apart.load(key, stamp, value).unwrap();
        }
        for (key, stamp, value) in keys().filter(|(key, _, _)| !is_apart(key) && key[0] <= INODES) {
            ns.load(key, stamp, value).unwrap();
        }
        ns.take_apart(apart);
        for (key, stamp, value) in keys().filter(|(key, _, _)| key[0] > INODES) {
            ns.load(key, stamp, value).unwrap();
        }
        assert_eq!(self.restarted(&SavedPresent::of(&self.ns, self.stamp)), ns, "the bytes of the present");
        for checkpoint in &self.checkpoints {
            assert_eq!(self.restarted(checkpoint), ns, "a checkpoint at {} and the changes since", checkpoint.stamp);
        }
        ns
    }

    /// The same by the bytes of a present, and the newest versions of what changed since.
    fn restarted(&self, checkpoint: &SavedPresent) -> Namespace {
        let mut ns = Namespace::new();
        let (mut inodes, mut names) = (PackedInodes::default(), PackedNames::default());
        checkpoint.inodes.iter().for_each(|piece| inodes.load(piece).unwrap());
        checkpoint.names.iter().for_each(|piece| names.load(piece).unwrap());
        let mut changed: BTreeSet<Vec<u8>> = inodes.rewritable().into_iter().map(|(key, _)| key).collect();
        self.history
            .changed(checkpoint.stamp, Hlc::MAX, &mut |_, key| {
                changed.insert(key.to_vec());
                true
            })
            .unwrap();
        for key in changed {
            let (stamp, value) = self.history.newest(&key, Hlc::MAX).unwrap().expect("it changed");
            match key[0] {
                ENTRIES => names.replace(&key, stamp, value.as_deref()).unwrap(),
                INODES => inodes.replace(&key, stamp, value.as_deref()).unwrap(),
                // An extended attribute: all of them are loaded.
                _ => {}
            }
        }
        let others = || self.history.current().filter(|(key, _, _)| ![ENTRIES, INODES].contains(&key[0]));
        for (key, stamp, value) in others().filter(|(key, _, _)| key[0] < INODES) {
            ns.load(key, stamp, value).unwrap();
        }
        ns.take_present(inodes, names);
        for (key, stamp, value) in others().filter(|(key, _, _)| key[0] > INODES) {
            ns.load(key, stamp, value).unwrap();
        }
        ns
    }

    /// The same transactions in another namespace: changes and outcomes have to be the same.
    pub(crate) fn check_replay(&self) {
        let mut ns = Namespace::new();
        let mut history = MemoryHistory::new();
        for (txn, stamp, outcome) in &self.log {
            let mut changes = Vec::new();
            assert_eq!(ns.apply(txn, *stamp, &mut changes, &NoReadSet), *outcome, "{txn:?}");
            history.commit(&changes);
        }
        assert_eq!(history, self.history, "a replay made other versions");
        assert_eq!(ns, self.ns);
    }
}

pub(crate) fn dump(ns: &Namespace, history: &MemoryHistory, at: Option<Hlc>) -> String {
    let mut text = String::new();
    let mut todo = vec![("/".to_owned(), InodeId::ROOT)];
    while let Some((path, id)) = todo.pop() {
        let inode = ns.inode(history, id, at).unwrap();
        let found = ns
            .resolve(history, &Target { follow: false, ..Target::path(path.as_str()) }, at, &root(), &NoReadSet)
            .unwrap();
        assert_eq!((found.id, &found.inode), (id, &inode), "{path}");
        writeln!(
            text,
            "{path} {id} {:?} {:o} {}:{} links {} size {} as of {} times {} {} {} {:?} {:?} {:?} plugin {:?}",
            inode.kind(),
            inode.mode,
            inode.uid,
            inode.gid,
            inode.links,
            inode.size,
            inode.size_as_of,
            inode.atime_ns,
            inode.mtime_ns,
            inode.ctime_ns(),
            inode.patches(),
            inode.grants(),
            String::from_utf8_lossy(inode.symlink_target()),
            inode.plugin(),
        )
        .unwrap();
        for name in ns.xattr_names(history, id, at, &root()).unwrap() {
            let value = ns.xattr(history, id, &name, at, &root()).unwrap();
            writeln!(text, "  {} = {}", String::from_utf8_lossy(&name), String::from_utf8_lossy(&value)).unwrap();
        }
        if inode.kind() == FileKind::Directory {
            let listed = ns.list(history, id, at, b"", usize::MAX).unwrap();
            // Pages of two give the same as all at once.
            let mut paged = Vec::new();
            loop {
                let after = paged.last().map_or(Vec::new(), |last: &frieze_namespace::ListedEntry| last.name.clone());
                let page = ns.list(history, id, at, &after, 2).unwrap();
                if page.is_empty() {
                    break;
                }
                paged.extend(page);
            }
            assert_eq!(paged, listed);
            let subdirectories = listed.iter().filter(|entry| entry.kind == FileKind::Directory).count();
            assert_eq!(inode.links as usize, 2 + subdirectories, "{path}");
            for entry in listed.into_iter().rev() {
                let slash = if path == "/" { "" } else { "/" };
                todo.push((format!("{path}{slash}{}", String::from_utf8_lossy(&entry.name)), entry.inode));
            }
        }
    }
    text
}

pub(crate) fn special(text: &str) -> MakeKind {
    let file_type = match text {
        "fifo" => 0o010_000,
        "char" => 0o020_000,
        "block" => 0o060_000,
        "socket" => 0o140_000,
        _ => 0o100_000,
    };
    MakeKind::Special(Special { file_type, rdev: 0x0103 })
}
