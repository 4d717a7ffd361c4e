//! What `check_history` finds: nothing in a history that a namespace made, and each kind of damage for what it is.

#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

mod common;

use common::NamespaceWorld;
use frieze_base::InodeId;
use frieze_hlc::Hlc;
use frieze_namespace::{KeyVersion, VersionHistory, check_history};

/// `/d`, `/d/f` and `/d/g` (one file), `/d/e`, and a name that is gone.
fn world() -> NamespaceWorld {
    let mut world = NamespaceWorld::new();
    world.directory("/d");
    world.file("/d/f");
    world.link("/d/f", "/d/g").unwrap();
    world.directory("/d/e");
    world.file("/gone");
    world.remove("/gone", false).unwrap();
    world
}

fn wrong(history: &dyn VersionHistory, at: Hlc) -> Vec<String> {
    let mut found = Vec::new();
    check_history(history, at, &mut |words| found.push(words)).unwrap();
    found
}

fn key(letter: u8, number: u64, rest: &[u8]) -> Vec<u8> {
    [&[letter][..], &number.to_be_bytes(), rest].concat()
}

fn id(world: &NamespaceWorld, path: &str) -> u64 {
    let target = frieze_wire::txn::Target::path(path);
    world.ns.resolve(&world.history, &target, None, &common::root(), &frieze_namespace::NoReadSet).unwrap().id.0
}

/// What is found once the newest version of a key is another one.
fn wrong_with(key: Vec<u8>, value: Option<&[u8]>) -> Vec<String> {
    let mut world = world();
    let stamp = world.stamp.next();
    world.history.commit(&[KeyVersion { key, stamp, value: value.map(<[u8]>::to_vec) }]);
    wrong(&world.history, Hlc::MAX)
}

fn value_of(world: &NamespaceWorld, key: &[u8]) -> Vec<u8> {
    world.history.newest(key, Hlc::MAX).unwrap().unwrap().1.unwrap()
}

#[test]
fn a_history_that_a_namespace_made_is_whole_at_every_instant() {
    let world = world();
    for (_, stamp, _) in &world.log {
        assert_eq!(wrong(&world.history, *stamp), Vec::<String>::new(), "at {stamp}");
    }
    let counts = check_history(&world.history, Hlc::MAX, &mut |_| {}).unwrap();
    // The root, /d, the file, /d/e and the one that lost its name.
    assert_eq!((counts.inodes, counts.names), (5, 4));
    assert!(counts.versions > 9, "{counts:?}");
}

/// A key, its new value, and words of what is found then.
type Case<'a> = (Vec<u8>, Option<&'a [u8]>, &'a [&'a str]);

#[test]
fn each_kind_of_damage_is_reported_as_its_kind() {
    let world = world();
    let (d, f, e) = (id(&world, "/d"), id(&world, "/d/f"), id(&world, "/d/e"));
    let parent = d.to_be_bytes();
    let name_f = key(b'E', d, b"f");
    let directory = value_of(&world, &key(b'I', d, b""));
    let file = value_of(&world, &key(b'I', f, b""));
    let cases: [Case<'_>; 8] = [
        (name_f.clone(), None, &["has 1 names, and should have 2"]),
        (name_f.clone(), Some(&[8, 77]), &["names inode 77, which there is not", "has 1 names, and should have 2"]),
        (name_f, Some(&[0xff]), &["the name \"f\" in directory", "cannot be read"]),
        (key(b'L', f, &[&parent[..], b"g"].concat()), None, &["does not know that it is called \"g\"", "has 1 names"]),
        (key(b'I', f, b""), None, &["names inode", "which there is not"]),
        (key(b'I', e, b""), Some(&file), &["of another kind"]),
        (key(b'I', f, b""), Some(&directory), &["of another kind", "lies in another directory than it says"]),
        (key(b'E', f, b"x"), Some(&[8, 1]), &["which is no directory"]),
    ];
    for (key, value, words) in cases {
        let found = wrong_with(key.clone(), value);
        for words in words {
            assert!(found.iter().any(|line| line.contains(words)), "{key:02x?} {value:02x?}: {words:?} in {found:#?}");
        }
    }
    assert!(wrong_with(key(b'Q', 1, b""), Some(b"")).iter().any(|line| line.contains("the key [51")));
}

#[test]
fn a_directory_that_is_its_own_parent_is_reported() {
    let mut world = world();
    let (d, e) = (id(&world, "/d"), id(&world, "/d/e"));
    // /d lies in /d/e.
    let stamp = world.stamp.next();
    let inode = value_of(&world, &key(b'I', e, b""));
    // Of both, home is the other: the value of /d/e with its parent is that of a child of /d.
    let change = |key: Vec<u8>, value: Option<Vec<u8>>| KeyVersion { key, stamp, value };
    let entry = value_of(&world, &key(b'E', InodeId::ROOT.0, b"d"));
    world.history.commit(&[
        change(key(b'I', d, b""), Some(inode)),
        change(key(b'E', InodeId::ROOT.0, b"d"), None),
        change(key(b'E', e, b"d"), Some(entry)),
    ]);
    let found = wrong(&world.history, Hlc::MAX);
    assert!(found.iter().any(|line| line.contains("does not lie below the root")), "{found:#?}");
}
