//! Work of simulated clients: random, but never aimless: names are few, so that they collide, and instants are those of
//! actual changes.

mod time;

use std::sync::Arc;

use frieze_base::Rng;
use frieze_hlc::Hlc;
use frieze_wire::message::{FileKind, GetXattr, List, Log, Now, Open, ReadLink, Request, Snapshots, Stat, View};
use frieze_wire::txn::{
    DeleteSnapshot, Link, Make, MakeKind, MakeSnapshot, Op, Remove, RemoveXattr, Rename, SetAttr, SetXattr, Settle,
    SettleAll, Target, TimeValue,
};

use crate::client::{AfterOpen, SimClient, Step};
use crate::exchange::Handle;
use crate::machine::{STRANGER, SUPERUSER};
use crate::model::bytes::Cut;
use crate::model::tree::ROOT;
use crate::past_answers::QuestionKind;
use crate::witness::{CHUNK_BYTES, Witness};

/// How the work of a run is mixed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkloadMix {
    /// One change in so many is asked for with `sync`.
    pub(crate) sync_one_in: u64,
    /// One write in so many is large.
    pub(crate) large_one_in: u64,
}

/// Chooses a client's next step.
pub(crate) struct Workload<'a> {
    pub(crate) rng: &'a mut Rng,
    pub(crate) witness: &'a Witness,
    pub(crate) mix: WorkloadMix,
}

const DIRECTORIES: [&[u8]; 4] = [b"a", b"b", b"c", b"timed"];
const FILES: [&[u8]; 6] = [b"f", b"g", b"h", b"i", b"j", b"k"];
const LINKS: [&[u8]; 2] = [b"l", b"m"];
const XATTRS: [&[u8]; 3] = [b"user.color", b"user.size", b"user.note"];
const SNAPSHOTS: [&str; 3] = ["monday", "release", "before-the-storm"];
const BINDING: &[u8] = b"binary:size=any,unit=us";
const DEPTH_MAX: usize = 3;
/// Of how many times that the superuser, or a stranger, could do something they do.
const OTHERS_ONE_IN: u64 = 10;

/// One kind of work.
type StepMaker<'a> = fn(&mut Workload<'a>, &SimClient) -> Vec<Step>;

impl<'a> Workload<'a> {
    /// Kinds of work with their weights.
    const WORK: [(u64, StepMaker<'a>); 39] = [
        (10, Self::make_file),
        (5, Self::make_directory),
        (2, Self::make_link),
        (4, Self::link),
        (6, Self::unlink),
        (3, Self::remove_directory),
        (9, Self::rename),
        (5, Self::set_attr),
        (5, Self::truncate),
        (4, Self::set_xattr),
        (2, Self::remove_xattr),
        (2, Self::bind),
        (26, Self::write),
        (11, Self::append),
        (5, Self::punch),
        (10, Self::open),
        (5, Self::close),
        (4, Self::fsync),
        (9, Self::read),
        (2, Self::seek),
        (7, Self::stat),
        (5, Self::list),
        (12, Self::read_past),
        (5, Self::look_at_past),
        (4, Self::read_user_time),
        (2, Self::snapshot),
        (2, Self::log),
        (1, Self::odd),
        (4, Self::clone_tree),
        (4, Self::restore),
        (3, Self::undo),
        (4, Self::copy_range),
        (4, Self::diff),
        (2, Self::story),
        (1, Self::deleted),
        (1, Self::last_existed),
        (1, Self::sessions),
        (2, Self::forget),
        (2, Self::usage),
    ];

    /// The steps of the next piece of work.
    pub(crate) fn next(&mut self, client: &SimClient) -> Vec<Step> {
        match client.uid {
            // These two are rare: most of the work is that of the user that owns everything.
            STRANGER | SUPERUSER if !self.rng.chance(OTHERS_ONE_IN) => return Vec::new(),
            STRANGER => return self.snapshot(client),
            SUPERUSER if self.rng.chance(3) => return self.forget(client),
            SUPERUSER => return self.snapshot(client),
            _ => {}
        }
        let total: u64 = Self::WORK.iter().map(|(weight, _)| weight).sum();
        let mut at = self.rng.below(total);
        for (weight, work) in Self::WORK {
            if at < weight {
                return work(self, client);
            }
            at -= weight;
        }
        Vec::new()
    }

    fn sync(&mut self) -> bool {
        self.rng.chance(self.mix.sync_one_in)
    }

    fn txn(&mut self, op: Op) -> Vec<Step> {
        let sync = self.sync();
        vec![Step::Txn { op: Box::new(op), sync }]
    }

    /// A directory that is there at an instant, and its path.
    fn directory(&mut self, at: Hlc) -> (u64, Vec<u8>) {
        let (mut id, mut path) = (ROOT, Vec::new());
        for _ in 0..DEPTH_MAX {
            let tree = &self.witness.model.tree;
            let below: Vec<(&[u8], u64)> = tree
                .list(id, at)
                .filter(|(_, id)| tree.node(*id, at).is_some_and(|node| node.is_directory()))
                .collect();
            if below.is_empty() || self.rng.chance(3) {
                break;
            }
            let (name, next) = *self.rng.choose(&below);
            path = [&path[..], b"/", name].concat();
            id = next;
        }
        (id, path)
    }

    /// A name that is there at an instant, of a kind if possible; now and then one that is not.
    fn existing(&mut self, at: Hlc, kind: Option<FileKind>) -> Target {
        for _ in 0..4 {
            let (id, path) = self.directory(at);
            let tree = &self.witness.model.tree;
            let fits = |id: u64| kind.is_none_or(|kind| tree.node(id, at).is_some_and(|node| node.kind == kind));
            let names: Vec<&[u8]> = tree.list(id, at).filter(|(_, id)| fits(*id)).map(|(name, _)| name).collect();
            if !names.is_empty() && !self.rng.chance(12) {
                let name = *self.rng.choose(&names);
                return self.target([&path[..], b"/", name].concat());
            }
        }
        self.fresh(kind)
    }

    /// A name that is likely to be free.
    fn fresh(&mut self, kind: Option<FileKind>) -> Target {
        let (_, path) = self.directory(Hlc::MAX);
        let names: &[&[u8]] = match kind {
            Some(FileKind::Directory) => &DIRECTORIES,
            Some(FileKind::Symlink) => &LINKS,
            _ => &FILES,
        };
        let name = *self.rng.choose(names);
        self.target([&path[..], b"/", name].concat())
    }

    fn target(&mut self, path: Vec<u8>) -> Target {
        Target { base: ROOT, path, follow: self.rng.chance(2) }
    }

    /// An instant at which, or beside which, something happened.
    fn instant(&mut self) -> u64 {
        let effects = &self.witness.journal.effects;
        let stamp = self.rng.choose(effects).stamp;
        let newest = self.witness.newest_stamp();
        let floor = self.witness.earliest();
        let at = match self.rng.below(8) {
            0 => stamp.previous(),
            1 => stamp.next(),
            2 => Hlc::last_of_micros(stamp.micros()),
            3 => newest,
            4 => match self.witness.gaps.is_empty() {
                true => stamp,
                false => {
                    let (from, to) = *self.rng.choose(&self.witness.gaps);
                    *self.rng.choose(&[from, from.next(), to.previous(), to])
                }
            },
            _ => stamp,
        };
        at.max(floor).min(newest.max(self.witness.newest_before)).0
    }

    fn past(&mut self) -> View {
        View { at: Some(self.instant()), user_at: None }
    }

    fn handle(&mut self, client: &SimClient, write: bool) -> Option<Handle> {
        let open: Vec<&Handle> = client.handles.iter().filter(|handle| !write || handle.write).collect();
        (!open.is_empty()).then(|| (*self.rng.choose(&open)).clone())
    }

    fn make_file(&mut self, _: &SimClient) -> Vec<Step> {
        let target = self.fresh(Some(FileKind::File));
        let mode = *self.rng.choose(&[0o644, 0o600, 0o666]);
        let or_open = self.rng.chance(3);
        self.txn(Op::Make(Make { target, mode, or_open, kind: Some(MakeKind::File(true)), ..Make::default() }))
    }

    fn make_directory(&mut self, _: &SimClient) -> Vec<Step> {
        let target = self.fresh(Some(FileKind::Directory));
        self.txn(Op::Make(Make {
            target,
            mode: 0o755,
            or_open: false,
            kind: Some(MakeKind::Directory(true)),
            ..Make::default()
        }))
    }

    fn make_link(&mut self, _: &SimClient) -> Vec<Step> {
        let to = self.existing(Hlc::MAX, None).path;
        let to = if self.rng.chance(4) { FILES[0].to_vec() } else { to };
        let target = self.fresh(Some(FileKind::Symlink));
        self.txn(Op::Make(Make {
            target,
            mode: 0o777,
            or_open: false,
            kind: Some(MakeKind::Symlink(to)),
            ..Make::default()
        }))
    }

    fn link(&mut self, _: &SimClient) -> Vec<Step> {
        let file = self.existing(Hlc::MAX, Some(FileKind::File));
        let name = self.fresh(Some(FileKind::File));
        self.txn(Op::Link(Link { file, name }))
    }

    fn unlink(&mut self, _: &SimClient) -> Vec<Step> {
        let kind = if self.rng.chance(8) { None } else { Some(FileKind::File) };
        let target = self.existing(Hlc::MAX, kind);
        self.txn(Op::Remove(Remove { target, directory: false }))
    }

    fn remove_directory(&mut self, _: &SimClient) -> Vec<Step> {
        let target = self.existing(Hlc::MAX, Some(FileKind::Directory));
        self.txn(Op::Remove(Remove { target, directory: true }))
    }

    fn rename(&mut self, _: &SimClient) -> Vec<Step> {
        let kind = if self.rng.chance(3) { Some(FileKind::Directory) } else { Some(FileKind::File) };
        let from = self.existing(Hlc::MAX, kind);
        let flags = *self.rng.choose(&[0, 0, 0, 1, 2, 2]);
        let replaces = flags == 2 || (flags == 0 && self.rng.chance(2));
        let to = if replaces { self.existing(Hlc::MAX, kind) } else { self.fresh(kind) };
        self.txn(Op::Rename(Rename { from, to, flags }))
    }

    fn set_attr(&mut self, _: &SimClient) -> Vec<Step> {
        let target = self.existing(Hlc::MAX, None);
        let time = |rng: &mut Rng| match rng.below(3) {
            0 => None,
            1 => Some(TimeValue { now: true, ns: 0 }),
            _ => Some(TimeValue { now: false, ns: rng.below(2_000_000_000_000_000_000) as i64 }),
        };
        let (atime, mtime) = (time(self.rng), time(self.rng));
        let mode = self.rng.chance(2).then(|| *self.rng.choose(&[0o755, 0o700, 0o777]));
        let size = self.rng.chance(3).then(|| self.length(0));
        self.txn(Op::SetAttr(SetAttr { target, mode, size, atime, mtime, ..SetAttr::default() }))
    }

    fn truncate(&mut self, client: &SimClient) -> Vec<Step> {
        let Some(handle) = self.handle(client, true) else { return self.open(client) };
        let size = Some(self.length(handle.inode));
        let target = Target { base: handle.inode, path: Vec::new(), follow: false };
        self.txn(Op::SetAttr(SetAttr { target, size, by_handle: true, ..SetAttr::default() }))
    }

    /// A length or offset: within the file, at its end, at the edge of a chunk, or far beyond.
    fn length(&mut self, inode: u64) -> u64 {
        let size = self.witness.model.tree.bytes(inode).size(Cut::NOW);
        match self.rng.below(12) {
            0 => 0,
            1 => size,
            2 => size + self.rng.below(5000),
            3 => (size / CHUNK_BYTES + 1) * CHUNK_BYTES - self.rng.below(3000),
            4 => CHUNK_BYTES * self.rng.below(4),
            5 if self.rng.chance(4) => CHUNK_BYTES * self.rng.between(20, 400) + self.rng.below(1000),
            6 => self.rng.below(2 * CHUNK_BYTES),
            _ => self.rng.below(size + 1),
        }
    }

    fn set_xattr(&mut self, _: &SimClient) -> Vec<Step> {
        let target = self.existing(Hlc::MAX, None);
        let name = self.rng.choose(&XATTRS).to_vec();
        let value = self.bytes(40).to_vec();
        let flags = *self.rng.choose(&[0, 0, 1, 2]);
        self.txn(Op::SetXattr(SetXattr { target, name, value, flags }))
    }

    fn remove_xattr(&mut self, _: &SimClient) -> Vec<Step> {
        let target = self.existing(Hlc::MAX, None);
        let name = self.rng.choose(&XATTRS).to_vec();
        self.txn(Op::RemoveXattr(RemoveXattr { target, name }))
    }

    /// Binds a directory to a user time, and makes a file in it.
    fn bind(&mut self, _: &SimClient) -> Vec<Step> {
        let (_, path) = self.directory(Hlc::MAX);
        let name = FILES[self.rng.below(2) as usize];
        let directory = Target { base: ROOT, path: path.clone(), follow: false };
        let binding = SetXattr {
            target: directory,
            name: frieze_usertime::BINDING_XATTR.to_vec(),
            value: BINDING.to_vec(),
            flags: 0,
        };
        let target = Target { base: ROOT, path: [&path[..], b"/", name].concat(), follow: false };
        let make = Make { target, mode: 0o644, or_open: true, kind: Some(MakeKind::File(true)), ..Make::default() };
        [self.txn(Op::SetXattr(binding)), self.txn(Op::Make(make))].concat()
    }

    fn bytes(&mut self, count_max: u64) -> Arc<[u8]> {
        let mut bytes = vec![0u8; self.rng.between(1, count_max) as usize];
        self.rng.fill(&mut bytes);
        bytes.into()
    }

    /// The bytes of a write: of every size, and with a time where the file wants one.
    fn payload(&mut self, handle: &Handle) -> Arc<[u8]> {
        let timed = self.witness.model.tree.node(handle.inode, Hlc::MAX).is_some_and(|node| !node.plugin.is_empty());
        let large = self.rng.chance(self.mix.large_one_in);
        let bytes = match self.rng.below(20) {
            _ if large => self.bytes(4 << 20),
            0 => self.bytes(3 * CHUNK_BYTES),
            1 | 2 => self.bytes(40_000),
            _ => self.bytes(3000),
        };
        if !timed {
            return bytes;
        }
        let newest = self.witness.model.tree.newest_user_time(handle.inode).unwrap_or(0) / 1000;
        let time = match self.rng.below(10) {
            0 => newest.saturating_sub(self.rng.below(50) as i64).max(0),
            1 => newest,
            _ => newest + self.rng.below(1000) as i64,
        };
        let mut bytes = bytes.to_vec();
        if bytes.len() >= 8 {
            bytes[..8].copy_from_slice(&(time as u64).to_le_bytes());
        }
        bytes.into()
    }

    fn write(&mut self, client: &SimClient) -> Vec<Step> {
        let Some(handle) = self.handle(client, true) else { return self.make_file(client) };
        if self.rng.chance(4) {
            return self.stream(&handle);
        }
        let bytes = self.payload(&handle);
        let (offset, sync) = (self.length(handle.inode), self.sync());
        vec![Step::Write { handle, offset: Some(offset), bytes, sync, tries: 0 }]
    }

    /// Small writes, each where the one before ended.
    fn stream(&mut self, handle: &Handle) -> Vec<Step> {
        let mut at = self.length(handle.inode);
        let writes = (0..self.rng.between(2, 9)).map(|_| {
            let (offset, bytes) = (Some(at), self.payload(handle));
            at += bytes.len() as u64;
            // Most do not wait for the disk: those may continue within the server's process.
            let sync = self.rng.chance(8);
            Step::Write { handle: handle.clone(), offset, bytes, sync, tries: 0 }
        });
        writes.collect()
    }

    fn append(&mut self, client: &SimClient) -> Vec<Step> {
        let Some(handle) = self.handle(client, true) else { return self.make_file(client) };
        let bytes = self.payload(&handle);
        let sync = self.sync();
        vec![Step::Write { handle, offset: None, bytes, sync, tries: 0 }]
    }

    fn punch(&mut self, client: &SimClient) -> Vec<Step> {
        let Some(handle) = self.handle(client, true) else { return self.make_file(client) };
        let (offset, sync) = (self.length(handle.inode), self.sync());
        let len = match self.rng.below(4) {
            0 => self.rng.between(1, 8 * CHUNK_BYTES),
            1 => CHUNK_BYTES * self.rng.between(1, 60),
            _ => self.rng.between(1, 5000),
        };
        vec![Step::Punch { handle, offset, len, sync }]
    }

    fn open(&mut self, _: &SimClient) -> Vec<Step> {
        let target = self.existing(Hlc::MAX, Some(FileKind::File));
        let write = !self.rng.chance(4);
        let request = Request::Open(Open { target, view: View::NOW, read: true, write, made_at: 0 });
        vec![Step::Open { request: Box::new(request), then: AfterOpen::Keep }]
    }

    fn settle(&mut self, inode: u64, keep_grant: bool) -> Step {
        let settle = Settle { inode, keep_grant, ..Settle::default() };
        Step::Txn { op: Box::new(Op::Settle(settle)), sync: self.sync() }
    }

    fn close(&mut self, client: &SimClient) -> Vec<Step> {
        match self.handle(client, true) {
            Some(_) if self.rng.chance(3) => {
                let of = |handle: &Handle| Settle { inode: handle.inode, ..Settle::default() };
                let files = client.handles.iter().filter(|handle| handle.write).map(of).collect();
                vec![Step::Txn { op: Box::new(Op::SettleAll(SettleAll { files })), sync: self.sync() }]
            }
            Some(handle) => vec![self.settle(handle.inode, false)],
            None => self.open(client),
        }
    }

    fn fsync(&mut self, client: &SimClient) -> Vec<Step> {
        match self.handle(client, true) {
            Some(handle) => vec![self.settle(handle.inode, true), Step::Sync { inode: handle.inode }],
            None => vec![Step::Sync { inode: 0 }],
        }
    }

    fn read(&mut self, client: &SimClient) -> Vec<Step> {
        let Some(handle) = self.handle(client, false) else { return self.open(client) };
        let offset = if self.rng.chance(2) { 0 } else { self.length(handle.inode) };
        let len = *self.rng.choose(&[0, 100, 5000, 70_000, 300_000]);
        vec![Step::Read { handle, offset, len, question: None }]
    }

    fn seek(&mut self, client: &SimClient) -> Vec<Step> {
        let Some(handle) = self.handle(client, false) else { return self.open(client) };
        let offset = self.length(handle.inode);
        vec![Step::Seek { handle, offset, data: self.rng.chance(2) }]
    }

    fn stat(&mut self, _: &SimClient) -> Vec<Step> {
        let target = self.existing(Hlc::MAX, None);
        ask(Request::Stat(Stat { target, view: View::NOW, ..Stat::default() }))
    }

    fn list(&mut self, _: &SimClient) -> Vec<Step> {
        let (_, path) = self.directory(Hlc::MAX);
        let target = self.target(path);
        let after = if self.rng.chance(4) { FILES[1].to_vec() } else { Vec::new() };
        let count_max = *self.rng.choose(&[0, 0, 1, 3]);
        let with_attrs = self.rng.chance(2);
        ask(Request::List(List { target, view: View::NOW, after, count_max, with_attrs, by_handle: false }))
    }

    fn read_past(&mut self, _: &SimClient) -> Vec<Step> {
        let view = self.past();
        let at = view.instant().unwrap_or(Hlc::MAX);
        let target = self.existing(at, Some(FileKind::File));
        let inode = self.witness.model.tree.resolve(&target, at).unwrap_or(0);
        let offset = if self.rng.chance(2) { 0 } else { self.length(inode) };
        let len = *self.rng.choose(&[100, 5000, 300_000]);
        let question = SimClient::lasting(view, QuestionKind::Bytes { offset, len }, &target);
        let request = Request::Open(Open { target, view, read: true, write: false, made_at: 0 });
        vec![Step::Open { request: Box::new(request), then: AfterOpen::Read { offset, len, question } }]
    }

    fn look_at_past(&mut self, _: &SimClient) -> Vec<Step> {
        let view = self.past();
        let at = view.instant().unwrap_or(Hlc::MAX);
        let target = self.existing(at, None);
        let (request, what) = match self.rng.below(5) {
            0 | 1 => (Request::Stat(Stat { target: target.clone(), view, ..Stat::default() }), QuestionKind::Stat),
            2 => {
                let (_, path) = self.directory(at);
                let target = self.target(path);
                let list = List { target: target.clone(), view, with_attrs: true, ..List::default() };
                let question = SimClient::lasting(view, QuestionKind::List, &target);
                return vec![Step::Ask { request: Box::new(Request::List(list)), question }];
            }
            3 => (Request::ReadLink(ReadLink { target: target.clone(), view }), QuestionKind::Link),
            _ => {
                let name = self.rng.choose(&XATTRS).to_vec();
                let get = GetXattr { target: target.clone(), view, name: name.clone() };
                (Request::GetXattr(get), QuestionKind::Xattr { name })
            }
        };
        let question = SimClient::lasting(view, what, &target);
        vec![Step::Ask { request: Box::new(request), question }]
    }

    fn read_user_time(&mut self, _: &SimClient) -> Vec<Step> {
        let tree = &self.witness.model.tree;
        let timed: Vec<u64> = tree.ids().filter(|id| tree.newest_user_time(*id).is_some()).collect();
        if timed.is_empty() {
            return Vec::new();
        }
        let inode = *self.rng.choose(&timed);
        let newest = self.witness.model.tree.newest_user_time(inode).unwrap_or(0);
        let user_at = match self.rng.below(4) {
            0 => newest,
            1 => newest + 1,
            _ => self.rng.below(newest.max(0) as u64 + 1) as i64,
        };
        let at = self.rng.chance(3).then(|| self.instant());
        let view = View { at, user_at: Some(user_at) };
        let target = Target { base: inode, path: Vec::new(), follow: false };
        let (offset, len) = (0, 300_000);
        let question = SimClient::lasting(view, QuestionKind::Bytes { offset, len }, &target);
        let request = Request::Open(Open { target, view, read: true, write: false, made_at: 0 });
        vec![Step::Open { request: Box::new(request), then: AfterOpen::Read { offset, len, question } }]
    }

    fn snapshot(&mut self, _: &SimClient) -> Vec<Step> {
        let name = (*self.rng.choose(&SNAPSHOTS)).to_owned();
        match self.rng.below(4) {
            0 => self.txn(Op::DeleteSnapshot(DeleteSnapshot { name })),
            1 if self.witness.model.snapshots.contains_key(&name) => ask(Request::Now(Now { name, nearest: 0 })),
            2 => ask(Request::Snapshots(Snapshots { with_bytes: false, after: String::new(), count_max: 0 })),
            _ => {
                let at = if self.rng.chance(2) { 0 } else { self.rng.choose(&self.witness.journal.effects).stamp.0 };
                self.txn(Op::MakeSnapshot(MakeSnapshot { name, at, count_max: 0 }))
            }
        }
    }

    fn log(&mut self, _: &SimClient) -> Vec<Step> {
        let view = if self.rng.chance(2) { self.past() } else { View::NOW };
        let target = self.existing(view.instant().unwrap_or(Hlc::MAX), Some(FileKind::File));
        let after = if self.rng.chance(3) { self.instant() } else { 0 };
        let count_max = *self.rng.choose(&[0, 0, 2, 5]);
        let upto = view.at.filter(|_| self.rng.chance(2)).unwrap_or(0);
        ask(Request::Log(Log { target, view, after, count_max, upto, ..Log::default() }))
    }

    /// The end of the session, the time of now, instants that cannot be.
    fn odd(&mut self, _: &SimClient) -> Vec<Step> {
        let target = Target { base: ROOT, path: Vec::new(), follow: false };
        let stat = |at: u64| {
            ask(Request::Stat(Stat { target, view: View { at: Some(at), user_at: None }, ..Stat::default() }))
        };
        match self.rng.below(4) {
            0 => vec![Step::CloseSession],
            1 => stat(self.witness.earliest().previous().0),
            2 => stat(self.witness.newest_stamp().0 + (20_000_000_000 << 12)),
            _ => ask(Request::Now(Now::default())),
        }
    }
}

fn ask(request: Request) -> Vec<Step> {
    vec![Step::Ask { request: Box::new(request), question: None }]
}
