//! The namespace against a tree that is copied whole at every step: random operations, then 100 random instants.

#![expect(clippy::unwrap_used, reason = "a test")]

mod common;

use std::collections::BTreeMap;
use std::fmt::Write;

use common::{NamespaceWorld, dump, root};
use frieze_base::{InodeId, Reason, Rng};
use frieze_hlc::Hlc;
use frieze_namespace::check_history;
use frieze_wire::message::FileKind;
use frieze_wire::txn::{
    Grant, Link, Make, MakeKind, Op, Remove, RemoveXattr, Rename, SetAttr, SetXattr, Settle, Target, TimeValue,
};
use proptest::prelude::*;

const STEPS: usize = 300;
const INSTANTS: usize = 100;

/// What the model knows of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ModelInode {
    kind: FileKind,
    mode: u32,
    size: u64,
    mtime_ns: i64,
    ctime_ns: i64,
    target: String,
    xattrs: BTreeMap<String, String>,
    entries: BTreeMap<String, u64>,
}

/// A tree that knows nothing of versions: inodes by number, directories as maps.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ModelTree {
    nodes: BTreeMap<u64, ModelInode>,
    /// Counts of directories (`None`), and of files by slot.
    counts: BTreeMap<Option<u16>, u64>,
}

type ModelResult = Result<u64, Reason>;

impl ModelTree {
    fn new(stamp: Hlc) -> ModelTree {
        let root = node(FileKind::Directory, 0o755, stamp, "");
        ModelTree { nodes: BTreeMap::from([(1, root)]), counts: BTreeMap::new() }
    }

    /// The number of what is made in a directory.
    fn number(&mut self, parent: u64, is_directory: bool) -> u64 {
        let slot = InodeId(parent).slot();
        let count = self.counts.entry((!is_directory).then_some(slot)).or_default();
        *count += 1;
        if is_directory { InodeId::directory(*count).0 } else { InodeId::file(slot, *count).0 }
    }

    /// The directory and the last name of a path without links in it.
    fn parent(&self, path: &str) -> Result<(u64, String), Reason> {
        let (names, last) = path.rsplit_once('/').expect("absolute");
        let mut here = 1;
        for name in names.split('/').filter(|name| !name.is_empty()) {
            here = self.step(here, name, 0)?;
        }
        if self.nodes[&here].kind == FileKind::Directory {
            Ok((here, last.to_owned()))
        } else {
            Err(Reason::NotDirectory)
        }
    }

    /// One name, followed if it is a link: targets in this test are absolute and have one name or two.
    fn step(&self, directory: u64, name: &str, depth: u32) -> ModelResult {
        let node = &self.nodes[&directory];
        if node.kind != FileKind::Directory {
            return Err(Reason::NotDirectory);
        }
        let id = *node.entries.get(name).ok_or(Reason::NotFound)?;
        if self.nodes[&id].kind != FileKind::Symlink {
            return Ok(id);
        }
        if depth == 40 {
            return Err(Reason::SymlinkLoop);
        }
        let target = &self.nodes[&id].target;
        // A link on the way of a link counts from where the whole walk began; two levels are enough here.
        let mut here = 1;
        for name in target.split('/').filter(|name| !name.is_empty()) {
            here = self.step(here, name, depth + 1)?;
        }
        Ok(here)
    }

    fn find(&self, path: &str) -> ModelResult {
        let (parent, name) = self.parent(path)?;
        self.nodes[&parent].entries.get(&name).copied().ok_or(Reason::NotFound)
    }

    fn follow(&self, path: &str) -> ModelResult {
        let (parent, name) = self.parent(path)?;
        self.step(parent, &name, 0)
    }

    fn changed(&mut self, id: u64, stamp: Hlc) -> &mut ModelInode {
        let node = self.nodes.get_mut(&id).unwrap();
        node.ctime_ns = stamp.unix_ns();
        node
    }

    fn names_changed(&mut self, id: u64, stamp: Hlc) -> &mut ModelInode {
        let node = self.changed(id, stamp);
        node.mtime_ns = stamp.unix_ns();
        node
    }

    fn is_directory(&self, id: u64) -> bool {
        self.nodes[&id].kind == FileKind::Directory
    }

    fn is_within(&self, directory: u64, ancestor: u64) -> bool {
        directory == ancestor || self.nodes[&ancestor].entries.values().any(|&id| self.is_within(directory, id))
    }

    fn links(&self, id: u64) -> usize {
        let node = &self.nodes[&id];
        if node.kind == FileKind::Directory {
            return 2 + node.entries.values().filter(|&&id| self.is_directory(id)).count();
        }
        self.nodes.values().flat_map(|node| node.entries.values()).filter(|&&named| named == id).count()
    }

    fn apply(&mut self, stamp: Hlc, step: &ModelStep) -> ModelResult {
        match step {
            ModelStep::Make(path, kind, or_open) => {
                let (parent, name) = self.parent(path)?;
                if let Some(&id) = self.nodes[&parent].entries.get(&name) {
                    return match (kind, or_open) {
                        (FileKind::File, true) => match self.nodes[&id].kind {
                            FileKind::Directory => Err(Reason::IsDirectory),
                            FileKind::Symlink => Err(Reason::SymlinkLoop),
                            _ => Ok(id),
                        },
                        _ => Err(Reason::Exists),
                    };
                }
                let id = self.number(parent, *kind == FileKind::Directory);
                let target = if *kind == FileKind::Symlink { LINK_TARGET } else { "" };
                self.nodes.insert(id, node(*kind, 0o644, stamp, target));
                self.names_changed(parent, stamp).entries.insert(name, id);
                Ok(id)
            }
            ModelStep::Replace(path) => {
                let (parent, name) = self.parent(path)?;
                let old = self.nodes[&parent].entries.get(&name).copied();
                if old.is_some_and(|old| self.is_directory(old)) {
                    return Err(Reason::IsDirectory);
                }
                let id = self.number(parent, false);
                self.nodes.insert(id, node(FileKind::File, 0o644, stamp, ""));
                self.names_changed(parent, stamp).entries.insert(name, id);
                if let Some(old) = old {
                    self.changed(old, stamp);
                }
                Ok(id)
            }
            ModelStep::Link(file, path) => {
                let id = self.find(file)?;
                let (parent, name) = self.parent(path)?;
                if self.nodes[&parent].entries.contains_key(&name) {
                    return Err(Reason::Exists);
                }
                if self.is_directory(id) {
                    return Err(Reason::NotPermitted);
                }
                self.changed(id, stamp);
                self.names_changed(parent, stamp).entries.insert(name, id);
                Ok(id)
            }
            ModelStep::Remove(path, directory) => {
                let id = self.find(path)?;
                match (directory, self.is_directory(id)) {
                    (true, false) => return Err(Reason::NotDirectory),
                    (false, true) => return Err(Reason::IsDirectory),
                    (true, true) if !self.nodes[&id].entries.is_empty() => return Err(Reason::NotEmpty),
                    _ => {}
                }
                let (parent, name) = self.parent(path)?;
                self.names_changed(parent, stamp).entries.remove(&name);
                self.changed(id, stamp);
                Ok(id)
            }
            ModelStep::Rename(from, to, flags) => self.rename(stamp, from, to, *flags),
            ModelStep::Chmod(path, mode) => {
                let id = self.follow(path)?;
                self.changed(id, stamp).mode = *mode;
                Ok(id)
            }
            ModelStep::Truncate(path, len) => {
                let id = self.follow(path)?;
                match self.nodes[&id].kind {
                    FileKind::File => {}
                    FileKind::Directory => return Err(Reason::IsDirectory),
                    _ => return Err(Reason::InvalidArgument),
                }
                let node = self.names_changed(id, stamp);
                node.size = *len;
                Ok(id)
            }
            ModelStep::Touch(path, ns) => {
                let id = self.follow(path)?;
                self.changed(id, stamp).mtime_ns = *ns;
                Ok(id)
            }
            ModelStep::Xset(path, name, value) => {
                let id = self.follow(path)?;
                self.changed(id, stamp).xattrs.insert(name.clone(), value.clone());
                Ok(id)
            }
            ModelStep::Xrm(path, name) => {
                let id = self.follow(path)?;
                if self.nodes.get_mut(&id).unwrap().xattrs.remove(name).is_none() {
                    return Err(Reason::NoAttribute);
                }
                self.changed(id, stamp);
                Ok(id)
            }
            ModelStep::Write(path, size) => {
                let id = self.follow(path)?;
                if self.nodes[&id].kind != FileKind::File {
                    return Err(Reason::InvalidArgument);
                }
                let node = self.nodes.get_mut(&id).unwrap();
                node.size = *size;
                node.mtime_ns = write_stamp(stamp).unix_ns();
                node.ctime_ns = node.mtime_ns;
                Ok(id)
            }
        }
    }

    fn rename(&mut self, stamp: Hlc, from: &str, to: &str, flags: u32) -> ModelResult {
        let (from_parent, from_name) = self.parent(from)?;
        let (to_parent, to_name) = self.parent(to)?;
        let id = *self.nodes[&from_parent].entries.get(&from_name).ok_or(Reason::NotFound)?;
        let old = self.nodes[&to_parent].entries.get(&to_name).copied();
        match (flags, old) {
            (1, Some(_)) => return Err(Reason::Exists),
            (2, None) => return Err(Reason::NotFound),
            _ => {}
        }
        if self.is_within(to_parent, id) {
            return Err(Reason::InvalidArgument);
        }
        if let Some(old) = old
            && self.is_within(from_parent, old)
        {
            return Err(if flags == 2 { Reason::InvalidArgument } else { Reason::NotEmpty });
        }
        if old == Some(id) {
            return Ok(id);
        }
        if let Some(old) = old.filter(|_| flags != 2) {
            match (self.is_directory(id), self.is_directory(old)) {
                (true, false) => return Err(Reason::NotDirectory),
                (false, true) => return Err(Reason::IsDirectory),
                (true, true) if !self.nodes[&old].entries.is_empty() => return Err(Reason::NotEmpty),
                _ => {}
            }
        }
        self.names_changed(from_parent, stamp).entries.remove(&from_name);
        self.names_changed(to_parent, stamp).entries.insert(to_name, id);
        self.changed(id, stamp);
        if let Some(old) = old {
            self.changed(old, stamp);
            if flags == 2 {
                self.nodes.get_mut(&from_parent).unwrap().entries.insert(from_name, old);
            }
        }
        Ok(id)
    }

    /// Every path but the root's, as `text` shows them.
    fn paths(&self) -> Vec<String> {
        let text = self.text();
        text.lines().skip(1).filter_map(|line| Some(line.split_once(' ')?.0.to_owned())).collect()
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let mut todo = vec![("/".to_owned(), 1)];
        while let Some((path, id)) = todo.pop() {
            let node = &self.nodes[&id];
            let ModelInode { kind, mode, size, mtime_ns, ctime_ns, target, xattrs, entries } = node;
            let links = self.links(id);
            writeln!(text, "{path} {id} {kind:?} {mode:o} {links} {size} {mtime_ns} {ctime_ns} {target} {xattrs:?}")
                .unwrap();
            for (name, id) in entries.iter().rev() {
                todo.push((format!("{}/{name}", path.trim_end_matches('/')), *id));
            }
        }
        text
    }
}

const LINK_TARGET: &str = "/a/b";

fn node(kind: FileKind, mode: u32, stamp: Hlc, target: &str) -> ModelInode {
    let ns = stamp.unix_ns();
    let mode = if kind == FileKind::Symlink { 0o777 } else { mode };
    let (size, target) = (target.len() as u64, target.to_owned());
    ModelInode {
        kind,
        mode,
        size,
        mtime_ns: ns,
        ctime_ns: ns,
        target,
        xattrs: BTreeMap::new(),
        entries: BTreeMap::new(),
    }
}

/// The same text as [`ModelTree::text`], from the namespace at an instant.
fn text(world: &NamespaceWorld, at: Option<Hlc>) -> String {
    let (ns, history) = (&world.ns, &world.history);
    let mut text = String::new();
    let mut todo = vec![("/".to_owned(), InodeId::ROOT)];
    while let Some((path, id)) = todo.pop() {
        let inode = ns.inode(history, id, at).unwrap();
        let xattrs: BTreeMap<String, String> = ns
            .xattr_names(history, id, at, &root())
            .unwrap()
            .into_iter()
            .map(|name| {
                let value = ns.xattr(history, id, &name, at, &root()).unwrap();
                (String::from_utf8(name).unwrap(), String::from_utf8(value).unwrap())
            })
            .collect();
        writeln!(
            text,
            "{path} {id} {:?} {:o} {} {} {} {} {} {xattrs:?}",
            inode.kind(),
            inode.mode,
            inode.links,
            inode.size,
            inode.mtime_ns,
            inode.ctime_ns(),
            String::from_utf8_lossy(inode.symlink_target()),
        )
        .unwrap();
        if inode.is_directory() {
            for entry in ns.list(history, id, at, b"", usize::MAX).unwrap().into_iter().rev() {
                let name = String::from_utf8(entry.name).unwrap();
                todo.push((format!("{}/{name}", path.trim_end_matches('/')), entry.inode));
            }
        }
    }
    text
}

#[derive(Clone, Debug)]
enum ModelStep {
    Make(String, FileKind, bool),
    /// A file that takes the name of what is no directory.
    Replace(String),
    Link(String, String),
    Remove(String, bool),
    Rename(String, String, u32),
    Chmod(String, u32),
    Truncate(String, u64),
    Touch(String, i64),
    Xset(String, String, String),
    Xrm(String, String),
    /// A grant, a write of the data plane and a settle.
    Write(String, u64),
}

/// Often a path that is there, sometimes a new name below one, sometimes anything.
fn path(rng: &mut Rng, known: &[String]) -> String {
    let names = ["a", "b", "c", "a-long-name-that-does-not-fit-in-line"];
    let path = if rng.chance(4) || known.is_empty() { String::new() } else { rng.choose(known).clone() };
    if path.is_empty() || rng.chance(3) { format!("{path}/{}", rng.choose(&names)) } else { path }
}

fn step(rng: &mut Rng, known: &[String]) -> ModelStep {
    let path = |rng: &mut Rng| path(rng, known);
    let kinds = [FileKind::File, FileKind::Directory, FileKind::Directory, FileKind::Symlink, FileKind::Fifo];
    match rng.below(24) {
        0..=6 => ModelStep::Make(path(rng), *rng.choose(&kinds), rng.chance(3)),
        7..=8 => ModelStep::Link(path(rng), path(rng)),
        9..=10 => ModelStep::Remove(path(rng), true),
        11..=12 => ModelStep::Remove(path(rng), false),
        13..=16 => ModelStep::Rename(path(rng), path(rng), [0, 0, 1, 2][rng.below(4) as usize]),
        // Without the set-group-id bit, which directories hand on: `rights.txt` tells that.
        17 => ModelStep::Chmod(path(rng), rng.below(0o2000) as u32),
        18 => ModelStep::Truncate(path(rng), rng.below(10_000)),
        19 => ModelStep::Touch(path(rng), rng.next() as i64),
        22..=23 => ModelStep::Replace(path(rng)),
        20 if rng.chance(3) => ModelStep::Xrm(path(rng), "trusted.a".to_owned()),
        20 => ModelStep::Xset(path(rng), "trusted.a".to_owned(), rng.below(100).to_string()),
        _ => ModelStep::Write(path(rng), rng.below(10_000)),
    }
}

/// Data is stamped between the grant and the settle.
fn write_stamp(settle: Hlc) -> Hlc {
    settle.previous()
}

fn perform(world: &mut NamespaceWorld, step: &ModelStep) -> ModelResult {
    let name = |path: &str| Target { follow: false, ..Target::path(path) };
    let set = |path: &str| SetAttr { target: Target::path(path), ..SetAttr::default() };
    let op = match step {
        ModelStep::Make(path, kind, or_open) => {
            let (mode, kind) = match kind {
                FileKind::File => (0o644, MakeKind::File(false)),
                FileKind::Directory => (0o644, MakeKind::Directory(true)),
                FileKind::Symlink => (0, MakeKind::Symlink(LINK_TARGET.into())),
                _ => (0o644, common::special("fifo")),
            };
            Op::Make(Make { target: name(path), mode, or_open: *or_open, kind: Some(kind), ..Make::default() })
        }
        ModelStep::Replace(path) => {
            let kind = Some(MakeKind::File(false));
            Op::Make(Make { target: name(path), mode: 0o644, replaces: true, kind, ..Make::default() })
        }
        ModelStep::Link(file, path) => Op::Link(Link { file: name(file), name: name(path) }),
        ModelStep::Remove(path, directory) => Op::Remove(Remove { target: name(path), directory: *directory }),
        ModelStep::Rename(from, to, flags) => Op::Rename(Rename { from: name(from), to: name(to), flags: *flags }),
        ModelStep::Chmod(path, mode) => Op::SetAttr(SetAttr { mode: Some(*mode), ..set(path) }),
        ModelStep::Truncate(path, len) => Op::SetAttr(SetAttr { size: Some(*len), ..set(path) }),
        ModelStep::Touch(path, ns) => {
            let mtime = Some(TimeValue { now: false, ns: *ns });
            Op::SetAttr(SetAttr { mtime, ..set(path) })
        }
        ModelStep::Xset(path, name, value) => {
            let (name, value) = (name.clone().into(), value.clone().into());
            Op::SetXattr(SetXattr { target: Target::path(path.as_str()), name, value, flags: 0 })
        }
        ModelStep::Xrm(path, name) => {
            Op::RemoveXattr(RemoveXattr { target: Target::path(path.as_str()), name: name.clone().into() })
        }
        ModelStep::Write(path, size) => {
            let inode = world.find(path, None)?.0;
            world.run(&root(), Op::Grant(Grant { inode, first: 0, count: 1 }))?;
            let stamp = write_stamp(Hlc::first_of_micros(world.stamp.micros() + 1));
            let (mtime_ns, stamp) = (stamp.unix_ns(), stamp.0);
            Op::Settle(Settle { inode, keep_grant: false, stamp, size: *size, mtime_ns, ..Settle::default() })
        }
    };
    world.run(&root(), op).map(|outcome| outcome.id)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_namespace_equals_a_copied_tree_at_any_instant(seed in any::<u64>()) {
        let mut rng = Rng::new(seed);
        let mut world = NamespaceWorld::new();
        let format = Hlc::first_of_micros(1_000_001);
        let mut tree = ModelTree::new(format);
        let mut past = vec![(world.stamp, tree.text())];
        let mut done = 0;
        for _ in 0..STEPS {
            let step = step(&mut rng, &tree.paths());
            let found = perform(&mut world, &step);
            let expected = tree.apply(world.stamp, &step);
            prop_assert_eq!(found, expected, "{:?}", step);
            done += usize::from(found.is_ok());
            past.push((world.stamp, tree.text()));
            if rng.chance(100) {
                world.ns = world.reloaded();
            }
        }
        prop_assert!(done > STEPS / 10, "only {} steps succeeded", done);
        prop_assert_eq!(text(&world, None), tree.text());
        prop_assert_eq!(&world.reloaded(), &world.ns);
        for _ in 0..INSTANTS {
            let at = Hlc(rng.between(past[0].0.0, world.stamp.0 + 5000));
            let (_, expected) = &past[past.partition_point(|(stamp, _)| *stamp <= at) - 1];
            prop_assert_eq!(&text(&world, Some(at)), expected, "at {}", at);
            let mut wrong = Vec::new();
            check_history(&world.history, at, &mut |words| wrong.push(words)).expect("the history can be read");
            prop_assert!(wrong.is_empty(), "at {}: {:?}", at, wrong);
        }
    }

    #[test]
    fn a_replay_and_a_restart_at_any_point_change_nothing(seed in any::<u64>()) {
        let mut rng = Rng::new(seed);
        let mut world = NamespaceWorld::new();
        let mut tree = ModelTree::new(world.stamp);
        let mut dumps = Vec::new();
        for _ in 0..60 {
            let step = step(&mut rng, &tree.paths());
            let _ = perform(&mut world, &step);
            let _ = tree.apply(world.stamp, &step);
            dumps.push((world.stamp, world.dump(None)));
            let reloaded = world.reloaded();
            prop_assert_eq!(&reloaded, &world.ns);
            let (at, expected) = rng.choose(&dumps);
            prop_assert_eq!(&dump(&reloaded, &world.history, Some(*at)), expected);
        }
        world.check_replay();
    }
}
