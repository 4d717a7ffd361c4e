//! Stories: requests and their answers, line by line in `testdata/*.txt`.
//!
//! `UPDATE_EXPECT=1 cargo test -p frieze-namespace --test story` writes the answers of today into the files; read the
//! difference before it is committed. At the end of each story every instant of it is read again, after a replay and
//! after a restart too.

#![expect(clippy::unwrap_used, reason = "a test")]

mod common;

use std::path::Path;

use common::{NamespaceWorld, dump, root, special, user};
use frieze_base::Reason;
use frieze_namespace::{Inode, MAY_EXECUTE, MAY_READ, MAY_WRITE, NoReadSet};
use frieze_wire::acl::{ACCESS_ACL_XATTR, DEFAULT_ACL_XATTR};
use frieze_wire::message::FileKind;
use frieze_wire::txn::{
    Caller, Link, Make, MakeKind, Op, Remove, RemoveXattr, Rename, SetAcl, SetAttr, SetXattr, Target, TimeValue,
};

#[test]
fn names_come_and_go_as_posix_says() {
    story("names.txt");
}

#[test]
fn renames_replace_exchange_and_refuse_as_linux_does() {
    story("rename.txt");
}

#[test]
fn paths_are_walked_through_links_and_refused_where_they_are_wrong() {
    story("walk.txt");
}

#[test]
fn rights_are_asked_at_every_step() {
    story("rights.txt");
}

#[test]
fn attributes_change_as_posix_says() {
    story("attributes.txt");
}

#[test]
fn extended_attributes_have_classes_with_rules_of_their_own() {
    story("xattr.txt");
}

#[test]
fn access_lists_are_set_inherited_and_asked_as_linux_does() {
    story("acl.txt");
}

fn story(file: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    let mut world = NamespaceWorld::new();
    let mut seen = Vec::new();
    let mut written = String::new();
    for line in text.lines() {
        let Some((request, _)) = line.split_once("=>").filter(|_| !line.starts_with('#')) else {
            written.push_str(line);
            written.push('\n');
            continue;
        };
        let answer = match answer(&mut world, request) {
            Ok(words) => words,
            Err(reason) => format!("{reason:?}"),
        };
        written.push_str(format!("{:<50} => {answer}", request.trim_end()).trim_end());
        written.push('\n');
        seen.push((world.stamp, world.dump(None)));
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &written).unwrap();
    }
    for (expected, found) in text.lines().zip(written.lines()) {
        let squeeze = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(squeeze(found), squeeze(expected), "{file}");
    }
    world.check_replay();
    let reloaded = world.reloaded();
    assert_eq!(reloaded, world.ns, "a restart changed the state");
    for (stamp, then) in &seen {
        assert_eq!(world.dump(Some(*stamp)), *then, "the past at {stamp} changed");
        assert_eq!(dump(&reloaded, &world.history, Some(*stamp)), *then);
    }
}

fn answer(world: &mut NamespaceWorld, request: &str) -> Result<String, Reason> {
    let words: Vec<&str> = request.split_whitespace().collect();
    let (&who, words) = words.split_first().expect("who asks");
    let caller = match who {
        "root" => root(),
        "ann" => user(1000, 100, &[200]),
        "bob" => user(1001, 100, &[]),
        "eve" => user(2000, 2000, &[]),
        _ => panic!("who is {who}?"),
    };
    match words {
        ["stat", path] => stat(world, &caller, Target::path(plain(path))),
        ["lstat", path] => stat(world, &caller, Target { follow: false, ..Target::path(plain(path)) }),
        ["stat-inode-of", path] => {
            let id = world.find(path, None)?;
            stat(world, &caller, Target::inode(id))
        }
        ["ls", path] => {
            let id = world.find(path, None)?;
            let listed = world.ns.list(&world.history, id, None, b"", 100).map_err(|fault| fault.reason)?;
            Ok(listed.iter().map(|entry| String::from_utf8_lossy(&entry.name)).collect::<Vec<_>>().join(" "))
        }
        ["access", path, mask] => {
            let bits = [('r', MAY_READ), ('w', MAY_WRITE), ('x', MAY_EXECUTE)];
            let mask = bits.iter().filter(|(letter, _)| mask.contains(*letter)).map(|(_, bit)| bit).sum();
            let found = world.ns.resolve(&world.history, &Target::path(plain(path)), None, &caller, &NoReadSet);
            let id = found.map_err(|fault| fault.reason)?.id;
            let answer = world.ns.check_access(&world.history, id, None, &caller, mask);
            answer.map(|()| "yes".to_owned()).map_err(|fault| fault.reason)
        }
        ["xget", path, name] => {
            let found = world.ns.resolve(&world.history, &Target::path(*path), None, &caller, &NoReadSet);
            let id = found.map_err(|fault| fault.reason)?.id;
            let value = world.ns.xattr(&world.history, id, name.as_bytes(), None, &caller);
            value.map(|value| String::from_utf8_lossy(&value).into_owned()).map_err(|fault| fault.reason)
        }
        ["getfacl", path] => acl_of(world, &caller, path, ACCESS_ACL_XATTR),
        ["getfacl-default", path] => acl_of(world, &caller, path, DEFAULT_ACL_XATTR),
        ["access-at-start", path, mask] => {
            let id = world.find(path, None)?;
            let start = world.ns.current(id).unwrap().born;
            let mask = if *mask == "w" { MAY_WRITE } else { MAY_READ };
            let answer = world.ns.check_access(&world.history, id, Some(start), &caller, mask);
            answer.map(|()| "yes".to_owned()).map_err(|fault| fault.reason)
        }
        ["xlist", path] => {
            let id = world.find(path, None)?;
            let names = world.ns.xattr_names(&world.history, id, None, &caller).map_err(|fault| fault.reason)?;
            Ok(names.iter().map(|name| String::from_utf8_lossy(name)).collect::<Vec<_>>().join(" "))
        }
        _ => {
            let op = operation(words);
            let outcome = world.run(&caller, op)?;
            Ok(if outcome.existed { "existed".to_owned() } else { "ok".to_owned() })
        }
    }
}

fn operation(words: &[&str]) -> Op {
    let octal = |text: &str| u32::from_str_radix(text, 8).unwrap();
    let make = |path: &str, mode: &str, kind| {
        Op::Make(Make { target: name(path), mode: octal(mode), or_open: false, kind: Some(kind), ..Make::default() })
    };
    let open = |path: &str, mode: &str, follow| {
        let target = Target { follow, ..name(path) };
        Op::Make(Make {
            target,
            mode: octal(mode),
            or_open: true,
            kind: Some(MakeKind::File(false)),
            ..Make::default()
        })
    };
    let rename = |from: &str, to: &str, flags| Op::Rename(Rename { from: name(from), to: name(to), flags });
    let set = |path: &str| SetAttr { target: Target::path(plain(path)), ..nothing() };
    let xset = |path: &str, name: &str, value: &str, flags| {
        let value = value.replace("LONG", &"x".repeat(65_537)).replace("FULL", &"x".repeat(65_000)).into_bytes();
        let name = plain(name);
        Op::SetXattr(SetXattr { target: Target::path(path), name: name.into(), value, flags })
    };
    match words {
        ["make", path, mode] => make(path, mode, MakeKind::File(false)),
        ["replace", path, mode] => {
            let (target, kind) = (name(path), Some(MakeKind::File(false)));
            Op::Make(Make { target, mode: octal(mode), replaces: true, kind, ..Make::default() })
        }
        ["make-in-group", path, mode] => {
            let (target, kind) = (name(path), Some(MakeKind::File(false)));
            Op::Make(Make { target, mode: octal(mode), group_of_directory: true, kind, ..Make::default() })
        }
        ["mkdir-in-group", path, mode] => {
            let (target, kind) = (name(path), Some(MakeKind::Directory(true)));
            Op::Make(Make { target, mode: octal(mode), group_of_directory: true, kind, ..Make::default() })
        }
        ["make-masked", path, mode, umask] => {
            let (target, kind) = (name(path), Some(MakeKind::File(false)));
            Op::Make(Make { target, mode: octal(mode), umask: octal(umask), kind, ..Make::default() })
        }
        ["mkdir-masked", path, mode, umask] => {
            let (target, kind) = (name(path), Some(MakeKind::Directory(true)));
            Op::Make(Make { target, mode: octal(mode), umask: octal(umask), kind, ..Make::default() })
        }
        ["setfacl", path, acl] => xset_bytes(path, ACCESS_ACL_XATTR, acl),
        ["setfacl-default", path, acl] => xset_bytes(path, DEFAULT_ACL_XATTR, acl),
        ["setfacl-both", path, access, default, expect] => {
            let expect = if *expect == "none" { Vec::new() } else { acl_bytes(expect) };
            Op::SetAcl(SetAcl {
                target: Target::path(*path),
                access: Some(acl_bytes(access)),
                default_list: Some(acl_bytes(default)),
                expect_access: None,
                expect_default: Some(expect),
            })
        }
        ["setfacl-if", path, access, expect] => Op::SetAcl(SetAcl {
            target: Target::path(*path),
            access: Some(acl_bytes(access)),
            expect_access: Some(acl_bytes(expect)),
            ..SetAcl::default()
        }),
        ["mkdir", path, mode] => make(path, mode, MakeKind::Directory(true)),
        ["mknod", path, mode, kind] => make(path, mode, special(kind)),
        ["symlink", target, path] => make(path, "0", MakeKind::Symlink(plain(target).into_bytes())),
        ["open", path, mode] => open(path, mode, true),
        ["open-nofollow", path, mode] => open(path, mode, false),
        ["link", file, to] => Op::Link(Link { file: name(file), name: name(to) }),
        ["link-follow", file, to] => Op::Link(Link { file: Target::path(*file), name: name(to) }),
        ["unlink", path] => Op::Remove(Remove { target: name(path), directory: false }),
        ["rmdir", path] => Op::Remove(Remove { target: name(path), directory: true }),
        ["mv", from, to] => rename(from, to, 0),
        ["mv-noreplace", from, to] => rename(from, to, 1),
        ["exchange", from, to] => rename(from, to, 2),
        ["mv-flags", from, to, flags] => rename(from, to, flags.parse().unwrap()),
        ["chmod", path, mode] => Op::SetAttr(SetAttr { mode: Some(octal(mode)), ..set(path) }),
        ["lchmod", path, mode] => Op::SetAttr(SetAttr { target: name(path), mode: Some(octal(mode)), ..nothing() }),
        ["chown", path, uid, gid] => Op::SetAttr(SetAttr { uid: uid.parse().ok(), gid: gid.parse().ok(), ..set(path) }),
        ["truncate", path, len] => Op::SetAttr(SetAttr { size: Some(len.parse().unwrap()), ..set(path) }),
        ["ftruncate", path, len] => {
            Op::SetAttr(SetAttr { size: Some(len.parse().unwrap()), by_handle: true, ..set(path) })
        }
        ["touch", path, times @ ..] => {
            let time = |text: &str| match text {
                "omit" => None,
                "now" => Some(TimeValue { now: true, ns: 0 }),
                ns => Some(TimeValue { now: false, ns: ns.parse().unwrap() }),
            };
            Op::SetAttr(SetAttr { atime: time(times[0]), mtime: time(times[1]), ..set(path) })
        }
        ["setattr-nothing", path] => Op::SetAttr(set(path)),
        ["xset", path, name, value] => xset(path, name, value, 0),
        ["xset-create", path, name, value] => xset(path, name, value, 1),
        ["xset-replace", path, name, value] => xset(path, name, value, 2),
        ["xset-both", path, name, value] => xset(path, name, value, 3),
        ["xset-odd", path, name, value] => xset(path, name, value, 4),
        ["xrm", path, name] => {
            Op::RemoveXattr(RemoveXattr { target: Target::path(*path), name: plain(name).into_bytes() })
        }
        _ => panic!("what is {words:?}?"),
    }
}

fn xset_bytes(path: &str, name: &[u8], acl: &str) -> Op {
    let (target, value) = (Target { follow: !path.contains("link"), ..Target::path(path) }, acl_bytes(acl));
    Op::SetXattr(SetXattr { target, name: name.to_vec(), value, flags: 0 })
}

/// The kernel's bytes of `u::rwx,u:1001:r--,g::r--,m::r--,o::---`; `gone` for a list without entries, `wrong` for none.
fn acl_bytes(text: &str) -> Vec<u8> {
    let mut bytes = if text == "wrong" { vec![3, 0, 0, 0] } else { vec![2, 0, 0, 0] };
    for entry in text.split(',').filter(|entry| entry.contains(':')) {
        let words: Vec<&str> = entry.split(':').collect();
        let tag: u16 = match (words[0], words[1]) {
            ("u", "") => 0x01,
            ("u", _) => 0x02,
            ("g", "") => 0x04,
            ("g", _) => 0x08,
            ("m", _) => 0x10,
            _ => 0x20,
        };
        let bit = |letter: char, bit: u16| if words[2].contains(letter) { bit } else { 0 };
        bytes.extend(tag.to_le_bytes());
        bytes.extend((bit('r', 4) | bit('w', 2) | bit('x', 1)).to_le_bytes());
        bytes.extend(words[1].parse().unwrap_or(u32::MAX).to_le_bytes());
    }
    bytes
}

fn acl_of(world: &NamespaceWorld, caller: &Caller, path: &str, name: &[u8]) -> Result<String, Reason> {
    let found = world.ns.resolve(&world.history, &Target::path(path), None, caller, &NoReadSet);
    let id = found.map_err(|fault| fault.reason)?.id;
    let value = world.ns.xattr(&world.history, id, name, None, caller).map_err(|fault| fault.reason)?;
    let entries = value[4..].chunks(8).map(|entry| {
        let tag = ["u", "u", "g", "g", "m", "o"][entry[0].trailing_zeros() as usize];
        let id = u32::from_le_bytes(entry[4..].try_into().unwrap());
        let id = if id == u32::MAX { String::new() } else { id.to_string() };
        let letter = |bit: u8, letter: char| if entry[2] & bit != 0 { letter } else { '-' };
        format!("{tag}:{id}:{}{}{}", letter(4, 'r'), letter(2, 'w'), letter(1, 'x'))
    });
    Ok(entries.collect::<Vec<_>>().join(","))
}

/// A path whose last name is meant itself.
fn name(path: &str) -> Target {
    Target { follow: false, ..Target::path(plain(path)) }
}

/// `EMPTY`, `NUL` and `N*255` stand for what a word cannot hold.
fn plain(text: &str) -> String {
    let mut plain = text.replace("EMPTY", "").replace("NUL", "\0");
    while let Some(at) = plain.find('*') {
        let letter = plain[at - 1..at].to_owned();
        let digits = plain[at + 1..].chars().take_while(char::is_ascii_digit).count();
        let count: usize = plain[at + 1..at + 1 + digits].parse().unwrap();
        plain.replace_range(at - 1..at + 1 + digits, &letter.repeat(count));
    }
    plain
}

fn nothing() -> SetAttr {
    SetAttr { target: Target::path(""), ..SetAttr::default() }
}

fn stat(world: &NamespaceWorld, caller: &Caller, target: Target) -> Result<String, Reason> {
    let found = world.ns.resolve(&world.history, &target, None, caller, &NoReadSet).map_err(|fault| fault.reason)?;
    let inode: Inode = found.inode;
    let changed = |ns: i64| if ns == world.stamp.unix_ns() { "now".to_owned() } else { ns.to_string() };
    let old = |ns: i64| if ns == inode.born.unix_ns() { "birth".to_owned() } else { changed(ns) };
    let mut words = format!(
        "{:?} {:o} {}:{} links {} size {} a {} m {} c {}",
        inode.kind(),
        inode.mode,
        inode.uid,
        inode.gid,
        inode.links,
        inode.size,
        old(inode.atime_ns),
        old(inode.mtime_ns),
        old(inode.ctime_ns()),
    );
    if inode.kind() == FileKind::Symlink {
        words += &format!(" to {}", String::from_utf8_lossy(inode.symlink_target()));
    }
    if inode.rdev() != 0 {
        words += &format!(" device {:#x}", inode.rdev());
    }
    if !inode.plugin().is_empty() {
        words += &format!(" plugin {}", inode.plugin());
    }
    Ok(words)
}
