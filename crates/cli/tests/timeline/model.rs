//! A random history against a tree that is copied at every step: differences of any two instants, before and after
//! restarts of the server.

use std::collections::BTreeMap;

use frieze_base::Rng;
use frieze_client::{
    Client, CreateMode, Difference, FileKind, Fs, HistoryInterval, Hlc, OpenFlags, RenameMode, SetAttr, Target, flags,
};
use nix::sys::signal::Signal;

use crate::support::client as connect;
use crate::support::served::Served;

const STEPS: usize = 400;
const QUESTIONS: usize = 120;

/// A file or directory; hard links share one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    inode: u64,
    /// `None` for a directory.
    bytes: Option<Vec<u8>>,
    mode: u32,
}

/// Every path and what is there.
type Tree = BTreeMap<String, Node>;

fn walk(fs: &Fs) -> Tree {
    let mut tree = Tree::new();
    let mut todo = vec![String::new()];
    while let Some(directory) = todo.pop() {
        let here = if directory.is_empty() { "/" } else { &directory };
        for entry in fs.entries_with_attrs(&Target::path(here)).unwrap() {
            let path = format!("{directory}/{}", String::from_utf8(entry.name.clone()).unwrap());
            let attr = entry.attr.clone().unwrap();
            let bytes = match entry.kind() {
                FileKind::Directory => {
                    todo.push(path.clone());
                    None
                }
                _ => {
                    let file = fs.open(&Target::path(path.as_str()), OpenFlags::READ).unwrap();
                    let mut bytes = vec![0; attr.size as usize + 1];
                    let len = file.read_at(0, &mut bytes).unwrap();
                    bytes.truncate(len);
                    Some(bytes)
                }
            };
            tree.insert(path, Node { inode: attr.inode, bytes, mode: attr.mode });
        }
    }
    tree
}

fn step(fs: &Fs, rng: &mut Rng, tree: &Tree) {
    let old = |rng: &mut Rng| match tree.len() {
        0 => "/nothing".to_owned(),
        count => tree.keys().nth(rng.below(count as u64) as usize).unwrap().clone(),
    };
    let new = |rng: &mut Rng| {
        let parent = if rng.chance(2) { String::new() } else { old(rng) };
        format!("{parent}/n{}", rng.below(5))
    };
    let target = |path: String| Target::path(path);
    // Most steps that make no sense are refused, as they should be.
    match rng.below(12) {
        0..=2 => {
            if let Ok(file) = fs.create(&target(new(rng)), 0o644, CreateMode::OpenExisting) {
                let text = vec![b'a' + rng.below(26) as u8; rng.below(300) as usize + 1];
                file.write_at(rng.below(200), &text).unwrap();
                file.close().unwrap();
            }
        }
        3 | 4 => drop(fs.mkdir(&target(new(rng)), 0o755)),
        5 => drop(fs.unlink(&target(old(rng)))),
        6 => drop(fs.rmdir(&target(old(rng)))),
        7 | 8 => drop(fs.rename(&target(old(rng)), &target(new(rng)), RenameMode::Replace)),
        9 => {
            let mode = *rng.choose(&[RenameMode::Exchange, RenameMode::Replace]);
            drop(fs.rename(&target(old(rng)), &target(old(rng)), mode));
        }
        10 => drop(fs.link(&target(old(rng)), &target(new(rng)))),
        _ => {
            let (mode, size) = match rng.chance(2) {
                true => (Some(0o600 + rng.below(64) as u32), None),
                false => (None, Some(rng.below(400))),
            };
            drop(fs.set_attr(SetAttr { target: target(old(rng)), mode, size, ..SetAttr::default() }));
        }
    }
}

fn path_of(side: &frieze_client::Side) -> String {
    String::from_utf8(side.path.clone()).unwrap()
}

/// What the differences say of single names: gone, come, or there at both ends.
fn check(asked: (Hlc, Hlc), differences: &[Difference], before: &Tree, after: &Tree) {
    let mut tree: BTreeMap<String, u64> = before.iter().map(|(path, node)| (path.clone(), node.inode)).collect();
    // Paths below a directory that was renamed follow it; what was taken away goes before what comes.
    let mut moves: Vec<(String, String)> = Vec::new();
    for difference in differences {
        if let (Some(old), Some(new)) = (&difference.before, &difference.after)
            && old.path != new.path
            && old.kind() == FileKind::Directory
        {
            moves.push((path_of(old), path_of(new)));
        }
    }
    let named: BTreeMap<String, &Difference> =
        differences.iter().filter_map(|difference| Some((path_of(difference.after.as_ref()?), difference))).collect();
    let gone: Vec<String> =
        differences.iter().filter_map(|difference| difference.before.as_ref()).map(path_of).collect();
    tree.retain(|path, _| !gone.contains(path));
    let moved = |path: &String| {
        // The nearest directory above that moved says where it is now.
        let above =
            moves.iter().filter(|(from, _)| path.starts_with(&format!("{from}/"))).max_by_key(|(from, _)| from.len());
        above.map_or(path.clone(), |(from, to)| format!("{to}{}", &path[from.len()..]))
    };
    let mut tree: BTreeMap<String, u64> = tree.iter().map(|(path, inode)| (moved(path), *inode)).collect();
    for (path, difference) in &named {
        tree.insert(path.clone(), difference.after.as_ref().unwrap().inode);
    }
    let expect: BTreeMap<String, u64> = after.iter().map(|(path, node)| (path.clone(), node.inode)).collect();
    assert_eq!(tree, expect, "names from {} to {}: {differences:#?}", asked.0, asked.1);

    // Contents and modes: what is not told has not changed, and what is told to be the same is.
    let by_inode: BTreeMap<u64, &Node> = before.values().map(|node| (node.inode, node)).collect();
    for (path, node) in after {
        let Some(old) = by_inode.get(&node.inode) else { continue };
        let flags = named.get(path).map_or(0, |difference| difference.flags);
        let told = named.contains_key(path);
        // Another name of a file says nothing of its contents.
        let is_link = told && named[path].before.is_none();
        if !is_link {
            assert!(old.bytes == node.bytes || flags & flags::CONTENT != 0, "{path} from {} to {}", asked.0, asked.1);
            assert_eq!(old.mode != node.mode, flags & flags::MODE != 0, "{path} from {} to {}", asked.0, asked.1);
        }
        let (Some(old), Some(new), true) = (&old.bytes, &node.bytes, flags & flags::CONTENT != 0) else { continue };
        // Outside the spans both hold the same.
        let mut inside = vec![false; old.len().max(new.len())];
        for span in &named[path].spans {
            inside[span.offset as usize..(span.offset + span.len) as usize].fill(true);
        }
        for (at, inside) in inside.iter().enumerate() {
            assert!(*inside || old.get(at) == new.get(at), "byte {at} of {path}");
        }
    }
}

#[test]
fn differences_of_any_two_instants_are_those_of_two_copies_of_the_tree() {
    let seed = std::env::var("FRIEZE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_261_122);
    let mut rng = Rng::new(seed);
    let mut server = Served::start();
    let mut client: Client = connect(&server.address);
    let mut past: Vec<(Hlc, Tree)> = vec![(client.now().unwrap(), walk(&client.fs()))];
    let ask = |client: &Client, rng: &mut Rng, past: &[(Hlc, Tree)]| {
        let fs = client.fs();
        let from = rng.below(past.len() as u64) as usize;
        let to = from + rng.below((past.len() - from) as u64) as usize;
        let interval = HistoryInterval { after: past[from].0, upto: past[to].0 };
        let mut differences: Vec<Difference> = Vec::new();
        loop {
            // Pages of any length are one answer.
            let page = fs.diff(&Target::path("/"), interval, differences.len() as u64, rng.below(20) as u32).unwrap();
            differences.extend(page.differences);
            if !page.more {
                break;
            }
        }
        check((interval.after, interval.upto), &differences, &past[from].1, &past[to].1);
        // Step by step the same names come and go.
        let story = fs.story(&Target::path("/"), interval, true, 0).unwrap();
        assert_eq!(Hlc(story.upto), interval.upto);
        assert!(story.events.is_sorted_by_key(|event| event.stamp));
        assert!(differences.is_empty() || !story.events.is_empty());
    };
    for number in 0..STEPS {
        step(&client.fs(), &mut rng, &past.last().unwrap().1);
        past.push((client.now().unwrap(), walk(&client.fs())));
        if number % 100 == 50 {
            let signal = if rng.chance(2) { Signal::SIGKILL } else { Signal::SIGTERM };
            server.restart(signal);
            client = connect(&server.address);
        }
        if number % 10 == 0 {
            ask(&client, &mut rng, &past);
        }
    }
    for _ in 0..QUESTIONS {
        ask(&client, &mut rng, &past);
    }
    let (first, last) = (past.first().unwrap(), past.last().unwrap());
    assert!(last.1.len() > 5 && first.1.is_empty(), "something happened");
}
